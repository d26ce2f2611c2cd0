/// Why octets are not the management structure they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not TLV, or a Name in it is not one.
    #[error(transparent)]
    Wire(#[from] weir_wire::DecodeError),
    /// Another element than the one looked for.
    #[error("expected an element of type {expected}, found type {found}")]
    Type {
        /// The type of the structure.
        expected: u32,
        found: u32,
    },
    /// A required element is not there.
    #[error("{element} is missing")]
    Missing { element: &'static str },
    /// An element holds what it must not.
    #[error("{element} has a value that is not allowed")]
    Value { element: &'static str },
    /// An element is unknown here and may not be skipped.
    #[error("unknown critical element of type {found}")]
    Critical { found: u32 },
}
