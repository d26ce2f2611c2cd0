//! The fixed header of a packet: IPv6, then TCP without options (NDN-FACTS 8).

use core::net::Ipv6Addr;

use crate::checksum::checksum;
use crate::error::HicnError;
use crate::name::HicnName;

const IPV6_SIZE: usize = 40;
const TCP_SIZE: usize = 20;
/// Octets of the headers of IPv6 and TCP.
pub const HEADER_SIZE: usize = IPV6_SIZE + TCP_SIZE;

/// The hop limit of packets that have none in NDN.
pub(crate) const HOP_LIMIT_MAX: u8 = 255;

const VERSION: u8 = 6;
const SOURCE_PORT: u16 = 0x8000;
const DESTINATION_PORT: u16 = 0x0080;
/// ECN bits of the traffic class: congestion experienced.
const ECN_CE: u8 = 3;

/// Offsets in a packet.
mod at {
    pub(super) const LENGTH: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SOURCE: usize = 8;
    pub(super) const DESTINATION: usize = 24;
    pub(super) const SOURCE_PORT: usize = 40;
    pub(super) const DESTINATION_PORT: usize = 42;
    pub(super) const SUFFIX: usize = 44;
    /// The last octet of the acknowledgement number.
    pub(super) const PATH_LABEL: usize = 51;
    pub(super) const DATA_OFFSET: usize = 52;
    pub(super) const FLAGS: usize = 53;
    pub(super) const CHECKSUM: usize = 56;
    pub(super) const LIFETIME: usize = 58;
}

/// The flags of a packet, in the octet of TCP's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Set in each packet.
    pub(crate) const SYN: Self = Self(0x02);
    /// The last Data of its kind.
    pub const LAST: Self = Self(0x04);
    /// An authentication header follows.
    pub const AH: Self = Self(0x10);
    /// The payload is a manifest.
    pub const MANIFEST: Self = Self(0x20);
    pub const DATA: Self = Self(0x40);
    /// In an Interest: stale Data is acceptable. hICN's own programs never set it, because their
    /// caches remove Data at the end of its lifetime (decision 0046).
    pub const STALE: Self = Self(0x80);
    const KNOWN: u8 = 0xF6;

    pub const fn from_octet(octet: u8) -> Self {
        Self(octet & Self::KNOWN)
    }

    pub const fn octet(self) -> u8 {
        self.0
    }

    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    #[must_use]
    pub const fn with(self, flag: Self) -> Self {
        Self(self.0 | flag.0)
    }

    #[must_use]
    pub const fn without(self, flag: Self) -> Self {
        Self(self.0 & !flag.0)
    }

    #[must_use]
    pub const fn with_if(self, flag: Self, is_set: bool) -> Self {
        if is_set { self.with(flag) } else { self }
    }
}

/// The fields of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The destination of an Interest and the source of a Data, with the sequence number of TCP.
    pub name: HicnName,
    /// The source of an Interest, and the destination of the Data that answers it.
    pub locator: Ipv6Addr,
    pub flags: Flags,
    pub hop_limit: u8,
    /// Whether a router has reported congestion (ECN).
    pub is_marked: bool,
    /// See [`updated_label`].
    pub path_label: u8,
    /// InterestLifetime of an Interest, FreshnessPeriod of a Data, in milliseconds.
    pub lifetime_ms: u64,
}

/// The path label of Data that leaves over the face with this number.
pub const fn updated_label(label: u8, face: u64) -> u8 {
    label.rotate_left(1) ^ face as u8
}

/// Returns mantissa and scale of the largest lifetime that fits, at most `lifetime_ms`.
fn lifetime_fields(lifetime_ms: u64) -> (u16, u8) {
    const SCALE_MAX: u8 = 15;
    let mut scale = 0;
    while scale < SCALE_MAX && lifetime_ms >> scale > u64::from(u16::MAX) {
        scale += 1;
    }
    (u16::try_from(lifetime_ms >> scale).unwrap_or(u16::MAX), scale)
}

fn be16(wire: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([wire[at], wire[at + 1]])
}

fn address(wire: &[u8; HEADER_SIZE], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = wire[at..at + 16].try_into().expect("16 octets");
    octets.into()
}

impl Header {
    /// The header of a Data at its producer.
    pub(crate) const fn of_data(name: HicnName) -> Self {
        Self {
            name,
            locator: Ipv6Addr::UNSPECIFIED,
            flags: Flags::DATA,
            hop_limit: HOP_LIMIT_MAX,
            is_marked: false,
            path_label: 0,
            lifetime_ms: 0,
        }
    }

    pub const fn is_data(&self) -> bool {
        self.flags.has(Flags::DATA)
    }

    /// Reads the header of a whole packet. Returns the octets behind it as well. Does not check the
    /// checksum, because hICN's own programs send wrong ones (decision 0049).
    pub(crate) fn read(wire: &[u8]) -> Result<(Self, &[u8]), HicnError> {
        let truncated = HicnError::Truncated(wire.len());
        let version = wire.first().ok_or(truncated)? >> 4;
        if version != VERSION {
            return Err(HicnError::Version(version));
        }
        if wire.len() < IPV6_SIZE {
            return Err(truncated);
        }
        let (declared, found) = (usize::from(be16(wire, at::LENGTH)), wire.len() - IPV6_SIZE);
        if declared != found {
            return Err(HicnError::Length { declared, found });
        }
        check_next_header(wire[at::NEXT_HEADER])?;
        let (head, rest) = wire.split_first_chunk::<HEADER_SIZE>().ok_or(truncated)?;
        let ports = (be16(head, at::SOURCE_PORT), be16(head, at::DESTINATION_PORT));
        if ports != (SOURCE_PORT, DESTINATION_PORT) {
            return Err(HicnError::Ports { from: ports.0, to: ports.1 });
        }
        let (words, scale) = (head[at::DATA_OFFSET] >> 4, head[at::DATA_OFFSET] & 0xF);
        if usize::from(words) * 4 != TCP_SIZE {
            return Err(HicnError::TcpOptions(usize::from(words) * 4));
        }
        let flags = Flags::from_octet(head[at::FLAGS]);
        let (source, destination) = (address(head, at::SOURCE), address(head, at::DESTINATION));
        let (name, locator) =
            if flags.has(Flags::DATA) { (source, destination) } else { (destination, source) };
        let suffix =
            u32::from(be16(head, at::SUFFIX)) << 16 | u32::from(be16(head, at::SUFFIX + 2));
        let traffic_class = head[0] << 4 | head[1] >> 4;
        let header = Self {
            name: HicnName { address: name, suffix },
            locator,
            flags,
            hop_limit: head[at::HOP_LIMIT],
            is_marked: traffic_class & ECN_CE == ECN_CE,
            path_label: head[at::PATH_LABEL],
            lifetime_ms: u64::from(be16(head, at::LIFETIME)) << scale,
        };
        Ok((header, rest))
    }

    /// Encodes the header of a packet that continues with `rest`, with a correct checksum. All
    /// slices of `rest` but the last must have an even length.
    ///
    /// # Errors
    /// [`HicnError::TooLarge`].
    pub fn encode(&self, rest: &[&[u8]; 2]) -> Result<[u8; HEADER_SIZE], HicnError> {
        let len = TCP_SIZE + rest[0].len() + rest[1].len();
        let length = u16::try_from(len).map_err(|_| HicnError::TooLarge)?;
        let (source, destination) = if self.is_data() {
            (self.name.address, self.locator)
        } else {
            (self.locator, self.name.address)
        };
        let mut head = [0; HEADER_SIZE];
        head[0] = VERSION << 4;
        head[1] = if self.is_marked { ECN_CE << 4 } else { 0 };
        let mut put =
            |at: usize, octets: &[u8]| head[at..at + octets.len()].copy_from_slice(octets);
        put(at::LENGTH, &length.to_be_bytes());
        put(at::NEXT_HEADER, &[next_header::TCP, self.hop_limit]);
        put(at::SOURCE, &source.octets());
        put(at::DESTINATION, &destination.octets());
        put(at::SOURCE_PORT, &SOURCE_PORT.to_be_bytes());
        put(at::DESTINATION_PORT, &DESTINATION_PORT.to_be_bytes());
        put(at::SUFFIX, &self.name.suffix.to_be_bytes());
        let (mantissa, scale) = lifetime_fields(self.lifetime_ms);
        let flags = self.flags.with(Flags::SYN).octet();
        put(at::PATH_LABEL, &[self.path_label, (TCP_SIZE as u8 / 4) << 4 | scale, flags]);
        put(at::LIFETIME, &mantissa.to_be_bytes());
        let sum = checksum(source, destination, &[&head[IPV6_SIZE..], rest[0], rest[1]]);
        head[at::CHECKSUM..at::CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        Ok(head)
    }

    /// The octets of this header that a signature covers: those of a Data with all other fields
    /// zero. A router may change the others.
    pub(crate) fn signed_octets(name: HicnName) -> [u8; HEADER_SIZE] {
        let mut head = [0; HEADER_SIZE];
        head[at::SOURCE..at::SOURCE + 16].copy_from_slice(&name.address.octets());
        head[at::SUFFIX..at::SUFFIX + 4].copy_from_slice(&name.suffix.to_be_bytes());
        head
    }
}

/// Numbers of IPv6 next headers.
mod next_header {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const TCP: u8 = 6;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const ESP: u8 = 50;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const ICMP: u8 = 58;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
}

fn check_next_header(number: u8) -> Result<(), HicnError> {
    use next_header::*;
    match number {
        TCP => Ok(()),
        FRAGMENT => Err(HicnError::Fragment),
        ICMP => Err(HicnError::Icmp),
        HOP_BY_HOP | ROUTING | ESP | AUTHENTICATION | DESTINATION_OPTIONS => {
            Err(HicnError::ExtensionHeader(number))
        }
        other => Err(HicnError::NotTcp(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_rounded_down() {
        assert_eq!(lifetime_fields(0), (0, 0));
        assert_eq!(lifetime_fields(500), (500, 0));
        assert_eq!(lifetime_fields(65_535), (65_535, 0));
        assert_eq!(lifetime_fields(65_537), (32_768, 1));
        assert_eq!(lifetime_fields(0xFFFF << 15), (0xFFFF, 15));
        assert_eq!(lifetime_fields(u64::MAX), (0xFFFF, 15));
    }

    #[test]
    fn label_rotates_and_takes_the_face() {
        assert_eq!(updated_label(0, 1), 1);
        assert_eq!(updated_label(0xC9, 1), 0x92);
        assert_eq!(updated_label(0, 0x1FF), 0xFF);
    }
}
