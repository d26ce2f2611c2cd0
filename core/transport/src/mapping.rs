//! Names of the network for applications that use their own names (paper socket-api, sections 2 and
//! 4.2).
//!
//! hICN names (draft-muscariello-intarea-hicn) are an IPv6 address and a suffix of 32 bits. Here
//! they are carried in NDN names; `docs/sockets.md` has the encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

use weir_hicn::{HicnName, HicnPrefix, HicnUriError, RequestPayload};
use weir_security::manifest::{LEVELS_MAX, PartId, level_name, part_name};
use weir_security::sha256;
use weir_wire::{InterestView, Name, NameView};

use crate::metadata::METADATA_KEYWORD;

const ADDRESS_BYTES: usize = 16;
/// Bits of the address per component. Prefixes end between components.
const GROUP_BITS: u8 = 16;
/// The longest prefix. The remaining bits must keep names apart.
const PREFIX_BITS_MAX: u8 = 64;

/// Upper bound of segments of an object. The remaining suffixes are for its manifest.
const SEGMENTS_MAX: u64 = 1 << 30;
/// The suffix of the first part of the manifest's first level; the others follow.
const MANIFEST_SUFFIX: u64 = 1 << 31;
const LEVEL_SUFFIXES: u64 = 1 << 30;
/// The suffix of metadata. No manifest part can have it.
const METADATA_SUFFIX: u32 = u32::MAX;

/// The suffix of the Data that answers a request with parameters.
const REQUEST_SUFFIX: u32 = 0;
/// Most octets of a name that Interests for metadata carry. They must fit into a packet of 1,500
/// octets, also on their way through routers that know nothing of NDN.
const CARRIED_NAME_BYTES_MAX: usize = 1200;

const _: () = assert!(MANIFEST_SUFFIX + LEVELS_MAX as u64 * LEVEL_SUFFIXES == 1 << 32);

/// Why a mapping is invalid, or has no name for a packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error(
        "{0:?} is not a mapping; write \"identity\", or \"hicn:\" and an IPv6 prefix, such as \
         \"hicn:2001:db8:7::/48\""
    )]
    Unknown(String),
    #[error(transparent)]
    Prefix(#[from] HicnUriError),
    /// The remaining bits must keep names apart.
    #[error(
        "a mapping needs a prefix of 16, 32, 48 or 64 bits, not {bits}; write one, such as \
         hicn:2001:db8:7::/48"
    )]
    PrefixBits { bits: u8 },
    /// The object has more segments than there are suffixes.
    #[error(
        "segment {0} has no hICN name: only {SEGMENTS_MAX} segments have one; use larger segments"
    )]
    Segment(u64),
}

/// The payload of an Interest is malformed, or names something else than the Interest does.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload of the Interest does not belong to its name")]
pub struct FalsePayload;

/// How names of applications become names of the network.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum NameMapping {
    /// Both are the same.
    #[default]
    Identity,
    /// Each object and each of its versions has an address below this prefix. Suffixes distinguish
    /// the packets.
    Hicn(HicnPrefix),
}

/// The address for an application's name: the prefix, then the first bits of the SHA-256 digest of
/// the name's TLV-VALUE. A name that is an address stands for itself.
fn address_of(prefix: HicnPrefix, application: NameView<'_>) -> Ipv6Addr {
    HicnName::address_of(application)
        .unwrap_or_else(|| address_of_octets(prefix, application.value()))
}

/// The prefix, then the first bits of the SHA-256 digest of these octets.
fn address_of_octets(prefix: HicnPrefix, octets: &[u8]) -> Ipv6Addr {
    let (mut address, prefix_bytes) = (prefix.address().octets(), usize::from(prefix.bits() / 8));
    let digest = sha256(&[octets]);
    address[prefix_bytes..].copy_from_slice(&digest[..ADDRESS_BYTES - prefix_bytes]);
    address.into()
}

/// The name of the Data that answers a request with parameters. Other parameters have another name.
fn request_name(prefix: HicnPrefix, request: &RequestPayload<'_>) -> Name {
    let address = address_of_octets(prefix, &request.value());
    HicnName { address, suffix: REQUEST_SUFFIX }.to_name()
}

impl NameMapping {
    /// Whether an application's name is an hICN address. Its object is published there as hICN's
    /// programs do: segments follow the address, without a version, metadata or our manifest.
    pub fn is_direct(&self, application: NameView<'_>) -> bool {
        matches!(self, Self::Hicn(_)) && HicnName::address_of(application).is_some()
    }

    /// Content bytes of a segment unless something else is chosen. hICN packets are not fragmented:
    /// with headers and a signature, a packet must fit into the 1,420 bytes of a datagram between
    /// routers.
    pub const fn segment_size_default(&self) -> u32 {
        match self {
            Self::Identity => 8000,
            Self::Hicn(_) => 1000,
        }
    }

    /// The prefix, in the network, of all names below an application's name.
    pub fn prefix(&self, application: NameView<'_>) -> Name {
        match self {
            Self::Identity => application.to_name(),
            Self::Hicn(prefix) => prefix.name_of_groups(),
        }
    }

    /// The name that is followed by the segment numbers of an object's version.
    pub fn version_prefix(&self, versioned: NameView<'_>) -> Name {
        match self {
            Self::Identity => versioned.to_name(),
            Self::Hicn(prefix) => HicnName::prefix(&address_of(*prefix, versioned).octets()),
        }
    }

    /// The name that is followed by the part numbers of one manifest level of a version, and the
    /// offset to add to them.
    pub(crate) fn manifest_prefix(&self, versioned: NameView<'_>, level: u8) -> (Name, u64) {
        match self {
            Self::Identity => (level_name(versioned, level), 0),
            Self::Hicn(_) => {
                let first = MANIFEST_SUFFIX + u64::from(level - 1) * LEVEL_SUFFIXES;
                (self.version_prefix(versioned), first)
            }
        }
    }

    /// The name of a part of a version's manifest.
    pub fn part_name(&self, versioned: NameView<'_>, part: PartId) -> Name {
        if let Self::Identity = self {
            return part_name(versioned, part);
        }
        let (mut name, first) = self.manifest_prefix(versioned, part.level);
        name.append_segment(first.saturating_add(part.number));
        name
    }

    /// The manifest part for a number after the prefix of a version; `None` for the number of a
    /// segment.
    pub fn part_of_number(&self, number: u64) -> Option<PartId> {
        if matches!(self, Self::Identity) || number < MANIFEST_SUFFIX {
            return None;
        }
        let (level, number) =
            ((number - MANIFEST_SUFFIX) / LEVEL_SUFFIXES, number % LEVEL_SUFFIXES);
        Some(PartId { level: u8::try_from(level).unwrap_or(u8::MAX).saturating_add(1), number })
    }

    /// The name that requests the metadata of an object, and whether it is only a prefix of the
    /// Data's name.
    pub fn metadata_interest(&self, object: NameView<'_>) -> (Name, bool) {
        match self {
            Self::Identity => (object.to_name().append_keyword(METADATA_KEYWORD).clone(), true),
            Self::Hicn(_) => (self.metadata_name(object, 0), false),
        }
    }

    /// The name of an object's metadata with its own number, if names have room for a number.
    pub fn metadata_name(&self, object: NameView<'_>, number: u64) -> Name {
        match self {
            Self::Identity => {
                let mut name = self.metadata_interest(object).0;
                name.append_version(number).append_segment(0);
                name
            }
            Self::Hicn(prefix) => {
                let address = address_of(*prefix, object);
                HicnName { address, suffix: METADATA_SUFFIX }.to_name()
            }
        }
    }

    /// The address of an object that is a stream of an hICN producer: its name is an hICN address,
    /// below which all packets have suffixes from 0 on, without metadata.
    pub(crate) fn stream_address(object: NameView<'_>) -> Option<Ipv6Addr> {
        HicnName::address_of(object)
    }

    /// The element that an Interest for the metadata of an object carries, so that its producer
    /// learns the application's name. Empty if it needs none, or if the name is too long.
    pub fn metadata_payload(&self, object: NameView<'_>) -> Vec<u8> {
        let is_short = object.value().len() <= CARRIED_NAME_BYTES_MAX;
        match self {
            Self::Hicn(_) if is_short && !self.is_direct(object) => {
                RequestPayload { name: object, parameters: None }.element()
            }
            _ => Vec::new(),
        }
    }

    /// The network name of a request with parameters, and the element that its Interest carries.
    /// `None`: the Interest has ApplicationParameters.
    pub fn request(&self, name: NameView<'_>, parameters: &[u8]) -> Option<(Name, Vec<u8>)> {
        let Self::Hicn(prefix) = self else { return None };
        let request = RequestPayload { name, parameters: Some(parameters) };
        Some((request_name(*prefix, &request), request.element()))
    }

    /// What an Interest requests according to its payload, if it has one of ours.
    ///
    /// # Errors
    /// The payload is malformed, or belongs to another name. It may be forged.
    pub fn requested<'a>(
        &self,
        interest: &InterestView<'a>,
    ) -> Result<Option<RequestPayload<'a>>, FalsePayload> {
        let Self::Hicn(prefix) = self else { return Ok(None) };
        let Some(request) = RequestPayload::of(interest).map_err(|_| FalsePayload)? else {
            return Ok(None);
        };
        let name = match request.parameters {
            Some(_) => request_name(*prefix, &request),
            None => self.metadata_name(request.name, 0),
        };
        (name.as_view() == interest.name).then_some(Some(request)).ok_or(FalsePayload)
    }

    /// Checks that every segment of an object up to this one has a name.
    pub fn check_last(&self, segment: u64) -> Result<(), MappingError> {
        match self {
            Self::Hicn(_) if segment >= SEGMENTS_MAX => Err(MappingError::Segment(segment)),
            _ => Ok(()),
        }
    }
}

/// Whether a Data of this name contains metadata under an hICN name.
pub fn is_hicn_metadata(name: NameView<'_>) -> bool {
    HicnName::from_name(name).is_some_and(|name| name.suffix == METADATA_SUFFIX)
}

/// Whether a Data of this name contains metadata of this object under an hICN name, with any
/// prefix.
pub fn is_hicn_metadata_of(name: NameView<'_>, object: NameView<'_>) -> bool {
    let digest = sha256(&[object.value()]);
    HicnName::from_name(name).is_some_and(|name| {
        let address = name.address.octets();
        let mut prefixes = (GROUP_BITS..=PREFIX_BITS_MAX).step_by(GROUP_BITS.into());
        name.suffix == METADATA_SUFFIX
            && prefixes.any(|bits| digest.starts_with(&address[usize::from(bits / 8)..]))
    })
}

impl fmt::Display for NameMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity => f.write_str("identity"),
            Self::Hicn(prefix) => write!(f, "hicn:{prefix}"),
        }
    }
}

impl FromStr for NameMapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "identity" {
            return Ok(Self::Identity);
        }
        let unknown = || MappingError::Unknown(text.into());
        let parsed = HicnPrefix::parse_uri(text).ok_or_else(unknown)?;
        let prefix = parsed.map_err(|error| match error {
            // Mappings permit fewer lengths than other names.
            HicnUriError::PrefixBits { bits } | HicnUriError::PrefixTooLong { bits } => {
                MappingError::PrefixBits { bits }
            }
            other => MappingError::Prefix(other),
        })?;
        match prefix.bits() {
            GROUP_BITS..=PREFIX_BITS_MAX => Ok(Self::Hicn(prefix)),
            bits => Err(MappingError::PrefixBits { bits }),
        }
    }
}

#[cfg(test)]
mod tests;
