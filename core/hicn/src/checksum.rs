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

/// A number that is congruent to the sum of all 16-bit words, in the byte order of this machine,
/// modulo 65,535. Words of 64 bits have the same sum modulo 65,535 (RFC 1071, section 2), and the
/// additions with carry that compilers make of a sum of 128 bits are the fastest portable form.
fn sum_of(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<8>();
    let sum: u128 = words.iter().map(|word| u128::from(u64::from_ne_bytes(*word))).sum();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = sum + u128::from(u64::from_ne_bytes(last));
    let (low, high) = (sum as u64, (sum >> 64) as u64);
    let half = |word: u64| (word & u64::from(u32::MAX)) + (word >> 32);
    half(low) + half(high)
}
