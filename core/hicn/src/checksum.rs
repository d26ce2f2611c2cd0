//! The checksum of TCP over IPv6 (RFC 8200, section 8.1).

use core::net::Ipv6Addr;

const NEXT_HEADER_TCP: u32 = 6;

/// The checksum of the octets of `parts` together, whose own checksum field must be zero. All parts
/// but the last must have an even length.
pub(crate) fn checksum(source: Ipv6Addr, destination: Ipv6Addr, parts: &[&[u8]]) -> u16 {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut sum = u64::from(NEXT_HEADER_TCP) + len as u64;
    add(&mut sum, &source.octets());
    add(&mut sum, &destination.octets());
    for part in parts {
        add(&mut sum, part);
    }
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    !(sum as u16)
}

fn add(sum: &mut u64, octets: &[u8]) {
    // Four octets at a time: the carries are folded at the end.
    let mut chunks = octets.chunks_exact(4);
    for chunk in &mut chunks {
        *sum += u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    }
    let mut rest = [0; 4];
    let remainder = chunks.remainder();
    rest[..remainder.len()].copy_from_slice(remainder);
    *sum += u64::from(u32::from_be_bytes(rest));
}
