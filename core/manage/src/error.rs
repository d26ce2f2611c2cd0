/// Why bytes are not the expected management structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The TLV or a Name in it is malformed.
    #[error(transparent)]
    Wire(#[from] weir_wire::DecodeError),
    /// Another element than the expected one was found.
    #[error("expected an element of type {expected}, found type {found}")]
    Type {
        /// The type of the structure.
        expected: u32,
        found: u32,
    },
    /// A required element is missing.
    #[error("{element} is missing")]
    Missing { element: &'static str },
    /// An element has a value that is not allowed.
    #[error("{element} has a value that is not allowed")]
    Value { element: &'static str },
    /// An unknown element is critical, so it may not be skipped.
    #[error("unknown critical element of type {found}")]
    Critical { found: u32 },
}
