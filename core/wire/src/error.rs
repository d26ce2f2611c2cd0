use crate::types::type_name;

/// Why octets are not a valid packet.
///
/// Numbers in `within` and `element` are TLV-TYPEs ([`crate::tlv`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The octets end inside a TLV-TYPE or TLV-LENGTH, or there are none.
    #[error("truncated: the octets end inside a TLV-TYPE or TLV-LENGTH")]
    Truncated,
    /// A TLV-LENGTH extends beyond the enclosing element or the end of the packet.
    #[error("TLV-LENGTH of {} exceeds the enclosing element", type_name(*.element))]
    LengthOverrun { element: u32 },
    /// A TLV-TYPE or TLV-LENGTH is not in its shortest form.
    #[error("TLV-TYPE or TLV-LENGTH not in its shortest form")]
    NonShortestNumber,
    /// TLV-TYPE 0, or above 2^32 - 1.
    #[error("TLV-TYPE {0} is not between 1 and 4294967295")]
    TypeOutOfRange(u64),
    /// The outermost element has another type than requested.
    #[error("the outermost element is {} (type {found})", type_name(*.found))]
    UnexpectedOuterType { found: u32 },
    /// Octets follow the packet.
    #[error("{0} octets after the packet")]
    TrailingOctets(usize),
    /// The first element of an Interest or Data is not its Name.
    #[error("{}: the first element must be Name", type_name(*.within))]
    NameNotFirst { within: u32 },
    /// An unrecognised element of critical type.
    #[error("{}: unrecognised critical element of type {element}", type_name(*.within))]
    UnrecognisedCritical { within: u32, element: u32 },
    /// A recognised critical element after one that it must precede.
    #[error("{}: {} out of order", type_name(*.within), type_name(*.element))]
    OutOfOrder { within: u32, element: u32 },
    /// A critical element that may appear once appears again.
    #[error("{}: {} repeated", type_name(*.within), type_name(*.element))]
    Repeated { within: u32, element: u32 },
    #[error("{}: {} missing", type_name(*.within), type_name(*.element))]
    Missing { within: u32, element: u32 },
    /// A non-negative integer whose length is not 1, 2, 4 or 8 octets.
    #[error("{}: a non-negative integer of {length} octets", type_name(*.element))]
    IntegerLength { element: u32, length: usize },
    /// An element of fixed or bounded length has another length.
    #[error("{}: length {length} is not allowed", type_name(*.element))]
    ElementLength { element: u32, length: usize },
    /// A name component type of 0 or above 65535.
    #[error("Name: component type {0} is not between 1 and 65535")]
    ComponentType(u64),
    /// A digest component that is not of 32 octets.
    #[error("Name: digest component of {0} octets instead of 32")]
    DigestComponentLength(usize),
    /// An Interest whose Name has no components.
    #[error("Interest: empty Name")]
    EmptyName,
    #[error("ForwardingHint: no Name")]
    EmptyForwardingHint,
    /// ApplicationParameters without a ParametersSha256Digest component in the Name.
    #[error("Interest: ApplicationParameters without ParametersSha256Digest component")]
    ParametersWithoutDigest,
    /// A ParametersSha256Digest component without ApplicationParameters.
    #[error("Interest: ParametersSha256Digest component without ApplicationParameters")]
    DigestWithoutParameters,
    #[error("Interest: more than one ParametersSha256Digest component")]
    SeveralParametersDigests,
    /// The ParametersSha256Digest component does not equal the digest of the parameters.
    #[error("Interest: ParametersSha256Digest does not match the parameters")]
    ParametersDigestMismatch,
    /// A signed Interest whose ParametersSha256Digest is not its last component.
    #[error("Interest: ParametersSha256Digest is not the last component of a signed Interest")]
    ParametersDigestNotLast,
    /// InterestSignatureInfo without InterestSignatureValue, or the reverse.
    #[error("Interest: InterestSignatureInfo and InterestSignatureValue must come together")]
    SignatureIncomplete,
    #[error("Interest: signed without ApplicationParameters")]
    SignatureWithoutParameters,
    /// FinalBlockId holds no or several name components.
    #[error("FinalBlockId: must hold exactly one name component")]
    FinalBlockId,
    /// An element follows Fragment in an LpPacket.
    #[error("LpPacket: element after Fragment")]
    ElementAfterFragment,
    /// FragIndex is not below FragCount.
    #[error("LpPacket: FragIndex is not below FragCount")]
    FragmentIndex,
    #[error("LpPacket: FragCount above 1 without Sequence")]
    FragmentWithoutSequence,
    /// A Nack around something that is not an Interest.
    #[error("Nack: the fragment is not an Interest")]
    NackOfOther,
    /// An unfragmented LpPacket whose Fragment is not exactly one Interest or Data.
    #[error("Fragment: not exactly one Interest or Data")]
    FragmentContent,
    /// A DigestSha256 SignatureValue that is not the SHA-256 of the signed portion.
    #[error("the DigestSha256 signature does not verify")]
    SignatureDigestMismatch,
}

impl DecodeError {
    /// A short key for counters.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::LengthOverrun { .. } => "length-overrun",
            Self::NonShortestNumber => "non-shortest-number",
            Self::TypeOutOfRange(_) => "type-out-of-range",
            Self::UnexpectedOuterType { .. } => "unexpected-outer-type",
            Self::TrailingOctets(_) => "trailing-octets",
            Self::NameNotFirst { .. } => "name-not-first",
            Self::UnrecognisedCritical { .. } => "unrecognised-critical",
            Self::OutOfOrder { .. } => "out-of-order",
            Self::Repeated { .. } => "repeated",
            Self::Missing { .. } => "missing",
            Self::IntegerLength { .. } => "integer-length",
            Self::ElementLength { .. } => "element-length",
            Self::ComponentType(_) => "component-type",
            Self::DigestComponentLength(_) => "digest-component-length",
            Self::EmptyName => "empty-name",
            Self::EmptyForwardingHint => "empty-forwarding-hint",
            Self::ParametersWithoutDigest => "parameters-without-digest",
            Self::DigestWithoutParameters => "digest-without-parameters",
            Self::SeveralParametersDigests => "several-parameters-digests",
            Self::ParametersDigestMismatch => "parameters-digest-mismatch",
            Self::ParametersDigestNotLast => "parameters-digest-not-last",
            Self::SignatureIncomplete => "signature-incomplete",
            Self::SignatureWithoutParameters => "signature-without-parameters",
            Self::FinalBlockId => "final-block-id",
            Self::ElementAfterFragment => "element-after-fragment",
            Self::FragmentIndex => "fragment-index",
            Self::FragmentWithoutSequence => "fragment-without-sequence",
            Self::NackOfOther => "nack-of-other",
            Self::FragmentContent => "fragment-content",
            Self::SignatureDigestMismatch => "signature-digest-mismatch",
        }
    }
}
