//! Reads the fields of a packet that the engine and the checks need, without decoding all of it.
//!
//! The receiver decodes the packet with `weir-wire`. This module reads only the well-formed
//! beginning, and rejects nothing.

use std::ops::Range;

const INTEREST: u8 = 5;
const DATA: u8 = 6;
const NAME: u8 = 7;
const CAN_BE_PREFIX: u8 = 0x21;
const INTEREST_LIFETIME: u8 = 0x0c;
const DIGEST_COMPONENT: [u8; 2] = [1, 32];
const LIFETIME_DEFAULT_MS: u64 = 4000;

/// The beginning of an Interest or Data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peek {
    /// True for an Interest, false for a Data.
    pub(crate) is_interest: bool,
    /// Range of the name's TLV-VALUE.
    pub(crate) name: Range<usize>,
}

impl Peek {
    /// Reads the beginning of `packet`; `None` if it has no name.
    #[inline]
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let (&first, rest) = packet.split_first()?;
        if first != INTEREST && first != DATA {
            return None;
        }
        let body_at = 1 + read_number(rest)?.1;
        if *packet.get(body_at)? != NAME {
            return None;
        }
        let (name_len, octets) = read_number(packet.get(body_at + 1..)?)?;
        let start = body_at + 1 + octets;
        let end = start.checked_add(name_len)?;
        (end <= packet.len()).then_some(Self { is_interest: first == INTEREST, name: start..end })
    }

    /// The name's TLV-VALUE.
    #[inline]
    pub(crate) fn name_value<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        &packet[self.name.clone()]
    }

    /// CanBePrefix and the lifetime in ms. The packet must be an Interest.
    #[inline]
    pub(crate) fn selectors(&self, packet: &[u8]) -> (bool, u64) {
        let mut can_be_prefix = false;
        let mut rest = &packet[self.name.end..];
        while let Some((&typ, after)) = rest.split_first() {
            let Some((len, octets)) = read_number(after) else { break };
            let Some(value) = after.get(octets..octets.saturating_add(len)) else { break };
            match typ {
                CAN_BE_PREFIX => can_be_prefix = true,
                INTEREST_LIFETIME => {
                    let fold = |sum: u64, &octet: &u8| sum << 8 | u64::from(octet);
                    return (can_be_prefix, value.iter().fold(0, fold));
                }
                _ => {}
            }
            rest = &after[octets + len..];
        }
        (can_be_prefix, LIFETIME_DEFAULT_MS)
    }
}

/// Whether a name ends in an implicit digest.
#[inline]
pub(crate) fn ends_in_digest(name: &[u8]) -> bool {
    let last = name.len().checked_sub(34).and_then(|at| name.get(at..at + 2));
    last == Some(&DIGEST_COMPONENT)
}

/// End offsets of the proper prefixes of a name, shortest first.
pub(crate) fn prefix_ends(name: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(end) = component_end(name, at) {
        if end >= name.len() {
            break;
        }
        ends.push(end);
        at = end;
    }
    ends
}

/// End offset of the component that begins at `at`.
#[inline]
fn component_end(name: &[u8], at: usize) -> Option<usize> {
    let (_, type_octets) = read_number(name.get(at..)?)?;
    let (len, len_octets) = read_number(name.get(at + type_octets..)?)?;
    at.checked_add(type_octets + len_octets)?.checked_add(len)
}

/// A VAR-NUMBER and its length in bytes.
#[inline]
fn read_number(octets: &[u8]) -> Option<(usize, usize)> {
    let (&first, rest) = octets.split_first()?;
    match first {
        0..=252 => Some((usize::from(first), 1)),
        253 => Some((usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 3)),
        254 => Some((u32::from_be_bytes(*rest.first_chunk()?) as usize, 5)),
        255 => Some((usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?, 9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::{Data, Interest};

    #[test]
    fn reads_what_the_encoder_wrote() {
        let name: weir_wire::Name = "/a/bc/def".parse().unwrap();
        for (can_be_prefix, lifetime_ms) in [(false, 4000), (true, 70_000), (true, 5)] {
            let wire = Interest::new(name.clone())
                .can_be_prefix(can_be_prefix)
                .nonce(7)
                .lifetime_ms(lifetime_ms)
                .encode();
            let peek = Peek::of(&wire).unwrap();
            assert!(peek.is_interest);
            assert_eq!(peek.name_value(&wire), name.as_view().value());
            assert_eq!(peek.selectors(&wire), (can_be_prefix, lifetime_ms));
        }
        let wire = Interest::new(name.clone()).encode();
        assert_eq!(Peek::of(&wire).unwrap().selectors(&wire), (false, LIFETIME_DEFAULT_MS));
        let wire = Data::new(name.clone()).content(vec![0; 3000]).encode_with_digest();
        let peek = Peek::of(&wire).unwrap();
        assert!(!peek.is_interest);
        assert_eq!(peek.name_value(&wire), name.as_view().value());
        assert_eq!(prefix_ends(name.as_view().value()), [3, 7]);
        assert!(!ends_in_digest(name.as_view().value()));
        for cut in 0..wire.len() {
            let _ = Peek::of(&wire[..cut]);
        }
    }

    #[test]
    fn knows_a_digest() {
        let mut name: weir_wire::Name = "/a".parse().unwrap();
        assert!(!ends_in_digest(name.as_view().value()));
        name = format!("/a/sha256digest={}", "ab".repeat(32)).parse().unwrap();
        assert!(ends_in_digest(name.as_view().value()));
    }
}
