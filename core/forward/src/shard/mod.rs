//! How names are spread over shards, and the messages between shards.
//!
//! Data belongs to the shard of its object and of its range of 64 segments. An Interest goes to the
//! shard to which Data of exactly its name belongs. An Interest without CanBePrefix therefore
//! always meets its Data, even if its name ends in a digest. Data of any shard may satisfy an
//! Interest with CanBePrefix. The shard of its own name is its home. The home queries the other
//! shards, and they watch for Data (decision 0014, `path/shards.rs`).

mod message;

use weir_base::{HashKey, mix};
use weir_wire::{LpHeader, NameView, PitToken, tlv};

pub use message::ShardMessage;
pub(crate) use message::{Candidate, Message, OfferedData, QueryId, UnsolicitedVerdict};

/// Maximum number of shards: a set of shards is one 64-bit word.
pub(crate) const SHARDS_MAX: usize = 64;

/// Consecutive segments on one shard, as a power of two. It is large enough that the shard does not
/// change with each packet, and small enough that a usual window is spread over several shards.
const RANGE_BITS: u32 = 6;

/// Length of PIT tokens. ndnd panics at any other length, except 0.
const TOKEN_OCTETS: usize = 6;
/// Length of tokens to peers that are known to accept it.
const LONG_TOKEN_OCTETS: usize = 12;
/// The bits after the shard in tokens that need not be secret.
const TOKEN_FILLER: u64 = 0x5777_5777_5777;

/// The shard that Data of a name belongs to, among `shard_count`.
///
/// # Panics
/// If `shard_count` is 0.
pub fn shard_of_name(key: &HashKey, name: NameView<'_>, shard_count: u16) -> u16 {
    shard_of_value(key, name.value(), shard_count).unwrap_or(0)
}

/// The shard that a packet belongs to, among `shard_count`: for Data with a token of this router,
/// the shard in the token, otherwise the shard of its name. `None` if it is not a packet. Any shard
/// may then count it as malformed. The function validates the packet only up to its name.
#[inline]
pub fn shard_of_packet(
    key: &HashKey,
    header: &LpHeader,
    packet: &[u8],
    shard_count: u16,
) -> Option<u16> {
    if shard_count == 1 {
        return Some(0);
    }
    let (typ, body, _) = read_tlv(packet)?;
    if typ == tlv::DATA
        && let Some(shard) = shard_of_token(&header.pit_token, shard_count)
    {
        return Some(shard);
    }
    let (typ, name, _) = read_tlv(body)?;
    if typ != tlv::NAME { None } else { shard_of_value(key, name, shard_count) }
}

/// The shard of the TLV-VALUE of a name.
#[inline]
fn shard_of_value(key: &HashKey, name: &[u8], shard_count: u16) -> Option<u16> {
    assert!(shard_count > 0, "a router has at least one shard");
    let (object, range) = object_and_range(name)?;
    let hash = mix(key.hash(object).wrapping_add(range.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    Some(((u128::from(hash) * u128::from(shard_count)) >> 64) as u16)
}

/// The two values that decide the shard of a name: its object, and the range of its segment.
#[inline]
fn object_and_range(name: &[u8]) -> Option<(&[u8], u64)> {
    let (object, segment) = object_and_segment(name)?;
    Some((object, segment.map_or(0, |segment| segment >> RANGE_BITS)))
}

/// The TLV-VALUE of a name without implicit digests at its end and without the segment before them,
/// and the number of that segment.
#[inline]
pub(crate) fn object_and_segment(name: &[u8]) -> Option<(&[u8], Option<u64>)> {
    let mut rest = name;
    // Start, end and segment number of the last component that is not a digest.
    let (mut start, mut end, mut segment) = (0, 0, None);
    while !rest.is_empty() {
        let at = name.len() - rest.len();
        let (typ, value, after) = read_tlv(rest)?;
        rest = after;
        if typ != tlv::IMPLICIT_SHA256_DIGEST_COMPONENT {
            (start, end) = (at, name.len() - rest.len());
            segment = if typ == tlv::SEGMENT_NAME_COMPONENT { read_integer(value) } else { None };
        }
    }
    Some((&name[..if segment.is_some() { start } else { end }], segment))
}

/// Type and value of the first TLV, and the bytes after it.
#[inline(always)]
fn read_tlv(octets: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    // Nearly all components have a one-byte type and a one-byte length.
    if let [typ @ 0..=252, len @ 0..=252, rest @ ..] = octets {
        let (value, after) = rest.split_at_checked(usize::from(*len))?;
        return Some((u32::from(*typ), value, after));
    }
    let (typ, type_octets) = tlv::read_var_number(octets).ok()?;
    let (len, len_octets) = tlv::read_var_number(octets.get(type_octets..)?).ok()?;
    let value = octets.get(type_octets + len_octets..)?;
    let (value, after) = value.split_at_checked(usize::try_from(len).ok()?)?;
    Some((u32::try_from(typ).ok()?, value, after))
}

/// A non-negative integer (NDN packet 0.3, 1.2).
#[inline(always)]
fn read_integer(value: &[u8]) -> Option<u64> {
    match value.len() {
        1 | 2 | 4 | 8 => Some(value.iter().fold(0, |sum, &octet| sum << 8 | u64::from(octet))),
        _ => None,
    }
}

pub(crate) fn shards_in(mut set: u64) -> impl Iterator<Item = u16> {
    core::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let shard = set.trailing_zeros() as u16;
        set &= set - 1;
        Some(shard)
    })
}

/// The number in place of the shard in tokens of Interests with CanBePrefix. Their Data goes to the
/// shard of its own name.
pub(crate) fn name_routed_shard(shard_count: u16) -> u16 {
    shard_count
}

/// Number of bits of a token that hold the shard, or [`name_routed_shard`]. It is 0 with one shard,
/// and 7 with [`SHARDS_MAX`].
const fn shard_bits(shard_count: u16) -> u32 {
    if shard_count == 1 { 0 } else { shard_count.ilog2() + 1 }
}

/// The PIT token of Interests to peers whose packets cannot be forged.
pub(crate) fn token_of_shard(shard: u16, shard_count: u16) -> PitToken {
    secret_token(shard, shard_count, TOKEN_FILLER, false)
}

/// The PIT token of Interests to peers whose packets can be forged. A long token contains all 64
/// bits of `secret`. A short token contains its low 48 bits, minus the bits of the shard.
pub(crate) fn secret_token(shard: u16, shard_count: u16, secret: u64, is_long: bool) -> PitToken {
    let secret_bits = 48 - shard_bits(shard_count);
    let low = secret & ((1 << secret_bits) - 1);
    let number = u64::from(shard) << secret_bits | low;
    let mut octets = [0; LONG_TOKEN_OCTETS];
    octets[..TOKEN_OCTETS].copy_from_slice(&number.to_be_bytes()[2..]);
    octets[TOKEN_OCTETS..]
        .copy_from_slice(&secret.to_be_bytes()[..LONG_TOKEN_OCTETS - TOKEN_OCTETS]);
    let len = if is_long { LONG_TOKEN_OCTETS } else { TOKEN_OCTETS };
    PitToken::new(&octets[..len]).expect("twelve bytes fit a PIT token")
}

/// The shard that a PIT token names, if the token may be of this router and the shard exists. A
/// foreign token may lead to any shard. This shard then passes the Data to the shard of its name.
pub(crate) fn shard_of_token(token: &PitToken, shard_count: u16) -> Option<u16> {
    let (&[high, low, ..], TOKEN_OCTETS | LONG_TOKEN_OCTETS) =
        (token.as_slice(), token.as_slice().len())
    else {
        return None;
    };
    let bits = shard_bits(shard_count);
    let shard = u16::from_be_bytes([high, low]).checked_shr(16 - bits).unwrap_or(0);
    (shard < shard_count).then_some(shard)
}

#[cfg(test)]
mod tests;
