//! Errors in a topology or its file.

/// Why a text or a file was rejected. Every message gives the location and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The file could not be read.
    #[error(
        "{path}: cannot read: {source}; check the path, or name a built-in topology ({builtin})"
    )]
    Read {
        path: String,
        source: std::io::Error,
        /// Names that need no file.
        builtin: String,
    },
    /// The text has an error.
    #[error("{file}:{line}: {problem}; {remedy}")]
    Text {
        /// The file, or the caller's name for the text.
        file: String,
        /// The line, from 1.
        line: usize,
        problem: String,
        remedy: String,
    },
    /// The text as a whole is no topology.
    #[error("{file}: {problem}; {remedy}")]
    Whole {
        /// The file, or the caller's name for the text.
        file: String,
        problem: String,
        remedy: String,
    },
}

impl TopologyError {
    pub(crate) fn text(
        file: &str,
        line: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self::Text { file: file.to_owned(), line, problem, remedy }
    }

    pub(crate) fn whole(file: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Whole { file: file.to_owned(), problem: problem.into(), remedy: remedy.into() }
    }

    /// The line of the error, from 1, if there is one.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Text { line, .. } => Some(*line),
            _ => None,
        }
    }
}

/// Why nodes and links form no valid topology.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidTopology {
    /// Two nodes have the same name.
    #[error("two nodes have the name {name:?}; give each node its own name")]
    DuplicateName { name: String },
    /// A name is empty, or contains spaces or control characters.
    #[error(
        "node name {name:?} is empty or contains a space; use letters, digits, '-', '_' and '.'"
    )]
    BadName { name: String },
    /// A link names a node that does not exist.
    #[error("a link names node number {node}, but there are {nodes} nodes; number them from 0")]
    NoSuchNode { node: usize, nodes: usize },
    /// A link connects a node to itself.
    #[error("node {name:?} has a link to itself; name two different nodes")]
    SelfLink { name: String },
    /// A link attribute is out of range.
    #[error("the link between {a:?} and {b:?} has {attribute}; {remedy}")]
    BadLink {
        a: String,
        /// The other end.
        b: String,
        attribute: String,
        remedy: &'static str,
    },
    /// A coordinate is not finite, or is not on earth.
    #[error("node {name:?} has position ({x}, {y}); {remedy}")]
    BadPosition {
        name: String,
        /// Its first coordinate.
        x: f64,
        /// Its second coordinate.
        y: f64,
        remedy: &'static str,
    },
}
