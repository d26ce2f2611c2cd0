//! How names are spread over shards.
//!
//! An Interest goes to the shard of its name's first components. It leaves with a PIT token that
//! holds the shard's number, so that its Data comes straight back; Data without our token goes by
//! its name. An Interest and every Data that can satisfy it share the Interest's components, so
//! with one component both roads always lead to the same shard.

use weir_base::HashKey;
use weir_wire::{NameView, PitToken};

const TOKEN_OCTETS: usize = 4;
/// First octets of our tokens: a token of an earlier run or of another maker is not taken for ours.
const TOKEN_MARK: u16 = 0x5777;

/// The shard of a name among `shard_count`, by the hash of its first `components` components.
///
/// # Panics
/// When `shard_count` is 0.
#[must_use]
pub fn shard_of_name(
    key: &HashKey,
    name: NameView<'_>,
    components: usize,
    shard_count: u16,
) -> u16 {
    assert!(shard_count > 0, "a router has at least one shard");
    if shard_count == 1 {
        return 0;
    }
    let prefix = name.prefix(components.min(name.component_count()));
    ((u128::from(key.hash(prefix.value())) * u128::from(shard_count)) >> 64) as u16
}

/// The PIT token of Interests that a shard sends.
#[must_use]
pub fn token_of_shard(shard: u16) -> PitToken {
    let mut octets = [0; TOKEN_OCTETS];
    octets[..2].copy_from_slice(&TOKEN_MARK.to_be_bytes());
    octets[2..].copy_from_slice(&shard.to_be_bytes());
    PitToken::new(&octets).expect("four octets fit a PIT token")
}

/// The shard that a PIT token names, when the token is ours and the shard exists.
#[must_use]
pub fn shard_of_token(token: &PitToken, shard_count: u16) -> Option<u16> {
    let octets: [u8; TOKEN_OCTETS] = token.as_slice().try_into().ok()?;
    let mark = u16::from_be_bytes([octets[0], octets[1]]);
    let shard = u16::from_be_bytes([octets[2], octets[3]]);
    (mark == TOKEN_MARK && shard < shard_count).then_some(shard)
}
