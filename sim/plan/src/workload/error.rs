/// Why a consumer or producer cannot be made from its plan, or a trace not be read. Every message
/// says what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A value of a plan is out of its range.
    #[error("`{key}` {problem}")]
    Value {
        /// The key, such as `rate_hz`.
        key: &'static str,
        /// What is wrong with its value and what would be right.
        problem: String,
    },
    /// A line of a trace cannot be read.
    #[error("line {line}: {problem}")]
    TraceLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it and what would be right.
        problem: String,
    },
}

impl WorkloadError {
    pub(crate) fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value { key, problem: problem.into() }
    }
}
