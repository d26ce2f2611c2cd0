/// Why octets are not an hICN packet that Weir handles, or why a packet has no hICN form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HicnError {
    #[error("{0} octets are too short for an hICN packet")]
    Truncated(usize),
    /// IPv4 names have version 4, and the header that is independent of TCP has 9.
    #[error("IP version {0} is not supported; only IPv6 is")]
    Version(u8),
    /// The payload length of IPv6 is not that of the packet.
    #[error("the IPv6 payload length is {declared}, but {found} octets follow the header")]
    Length { declared: usize, found: usize },
    #[error("IPv6 extension header {0}")]
    ExtensionHeader(u8),
    #[error("a fragment of an IPv6 packet")]
    Fragment,
    #[error("an ICMPv6 message")]
    Icmp,
    #[error("next header {0} is not TCP")]
    NotTcp(u8),
    /// Real TCP uses other ports.
    #[error("ports {from} to {to} are not those of hICN")]
    Ports { from: u16, to: u16 },
    #[error("a TCP header of {0} octets; hICN has no TCP options")]
    TcpOptions(usize),
    /// The authentication header is longer than the packet, or contradicts itself.
    #[error("malformed authentication header")]
    Ah,
    #[error("unknown signature algorithm {0}")]
    Algorithm(u8),
    /// The elements of an NDN packet in the authentication header are malformed.
    #[error("malformed NDN elements in the authentication header")]
    NdnElements,
    /// The payload of an Interest with the manifest flag is not a manifest.
    #[error("malformed Interest manifest")]
    InterestManifest,
    /// As an NDN packet, it would exceed the largest packet.
    #[error("the packet is too large")]
    TooLarge,
    /// The name is not that of an hICN packet.
    #[error("the name is not an hICN name")]
    NoName,
    /// The packet has a field that hICN packets cannot carry.
    #[error("the packet has no hICN form")]
    NoForm,
}

impl HicnError {
    /// A short key for counters.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Truncated(_) => "hicn-truncated",
            Self::Version(_) => "hicn-version",
            Self::Length { .. } => "hicn-length",
            Self::ExtensionHeader(_) => "hicn-extension-header",
            Self::Fragment => "hicn-fragment",
            Self::Icmp => "hicn-icmp",
            Self::NotTcp(_) => "hicn-not-tcp",
            Self::Ports { .. } => "hicn-ports",
            Self::TcpOptions(_) => "hicn-tcp-options",
            Self::Ah => "hicn-ah",
            Self::Algorithm(_) => "hicn-algorithm",
            Self::NdnElements => "hicn-ndn-elements",
            Self::InterestManifest => "hicn-interest-manifest",
            Self::TooLarge => "hicn-too-large",
            Self::NoName => "hicn-no-name",
            Self::NoForm => "hicn-no-form",
        }
    }
}
