//! The checksum of TCP over IPv6 (RFC 8200, section 8.1).

use core::net::Ipv6Addr;

const NEXT_HEADER_TCP: u32 = 6;

/// The checksum of the octets of `parts` together, whose own checksum field must be zero. All parts
/// but the last must have an even length.
pub(crate) fn checksum(source: Ipv6Addr, destination: Ipv6Addr, parts: &[&[u8]]) -> u16 {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = u32::try_from(len).expect("a packet is shorter than 4 GiB");
    let mut sum = sum_of(&NEXT_HEADER_TCP.to_be_bytes()) + sum_of(&len.to_be_bytes());
    sum += sum_of(&source.octets()) + sum_of(&destination.octets());
    for part in parts {
        sum += sum_of(part);
    }
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    // The sum has the byte order of this machine (RFC 1071, section 2).
    !(sum as u16).to_be()
}

/// The sum of all 16-bit words in the byte order of this machine, whose carries are not folded yet.
/// Four octets at a time, in a form that compilers turn into vector instructions.
fn sum_of(octets: &[u8]) -> u64 {
    let (chunks, remainder) = octets.as_chunks::<4>();
    let sum: u64 = chunks.iter().map(|chunk| u64::from(u32::from_ne_bytes(*chunk))).sum();
    let mut rest = [0; 4];
    rest[..remainder.len()].copy_from_slice(remainder);
    sum + u64::from(u32::from_ne_bytes(rest))
}
