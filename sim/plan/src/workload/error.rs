/// Why a consumer or producer cannot be created, or a trace cannot be read. Every message says what
/// to write.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A value of a plan is out of range.
    #[error("`{key}` {problem}")]
    Value {
        /// The key, such as `rate_hz`.
        key: &'static str,
        /// What is wrong and what to write.
        problem: String,
    },
    /// A line of a trace is invalid.
    #[error("line {line}: {problem}")]
    TraceLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong and what to write.
        problem: String,
    },
}

impl WorkloadError {
    pub(crate) fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value { key, problem: problem.into() }
    }
}
