//! Which packet thread a packet belongs to. Only routers of several threads have this.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use weir_base::{FaceId, HashKey};
use weir_forward::shard::{shard_of_name, shard_of_token};
use weir_wire::{LpHeader, NameView, tlv};

use crate::cross::CrossPorts;
use crate::message::ToWorker;
use crate::worker::face::FaceIdHasher;

/// Components of a name that decide its shard: one, so that an Interest and every Data that can
/// satisfy it always agree.
pub(crate) const SHARD_COMPONENTS: usize = 1;

/// The other packet threads, seen from one.
pub(crate) struct Shards {
    pub(crate) key: HashKey,
    pub(crate) count: u16,
    pub(crate) ports: CrossPorts,
    /// Faces that other threads own.
    pub(crate) owners: HashMap<FaceId, u16, BuildHasherDefault<FaceIdHasher>>,
    /// For what must not get lost to a full ring.
    pub(crate) siblings: Vec<crossbeam_channel::Sender<ToWorker>>,
}

impl Shards {
    /// The shard of a packet, or `None` when it is no packet: any shard may count it.
    pub(super) fn shard_of(&self, header: &LpHeader, packet: &[u8]) -> Option<u16> {
        let (&first, _) = packet.split_first()?;
        if u64::from(first) == u64::from(tlv::DATA)
            && let Some(shard) = shard_of_token(&header.pit_token, self.count)
        {
            return Some(shard);
        }
        let name = first_components(packet)?;
        Some(shard_of_name(&self.key, name, SHARD_COMPONENTS, self.count))
    }
}

/// The first component of a packet's name, as a name. The packet is not validated beyond that.
fn first_components(packet: &[u8]) -> Option<NameView<'_>> {
    let (_, outer_len) = read_header(packet)?;
    let inner = packet.get(outer_len.0..)?;
    let (name_type, (name_header, name_len)) = read_header(inner)?;
    if name_type != u64::from(tlv::NAME) {
        return None;
    }
    let value = inner.get(name_header..name_header.checked_add(name_len)?)?;
    if value.is_empty() {
        return NameView::from_value(value).ok();
    }
    let (_, (header, len)) = read_header(value)?;
    NameView::from_value(value.get(..header.checked_add(len)?)?).ok()
}

/// Type, octets of type and length, and length of the TLV at the beginning.
fn read_header(octets: &[u8]) -> Option<(u64, (usize, usize))> {
    let (typ, type_octets) = read_number(octets)?;
    let (len, len_octets) = read_number(octets.get(type_octets..)?)?;
    Some((typ, (type_octets + len_octets, usize::try_from(len).ok()?)))
}

/// A VAR-NUMBER and its octets.
fn read_number(octets: &[u8]) -> Option<(u64, usize)> {
    let (&first, rest) = octets.split_first()?;
    match first {
        0..=252 => Some((u64::from(first), 1)),
        253 => Some((u64::from(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?)), 3)),
        254 => Some((u64::from(u32::from_be_bytes(rest.get(..4)?.try_into().ok()?)), 5)),
        255 => Some((u64::from_be_bytes(rest.get(..8)?.try_into().ok()?), 9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_component_of_interest_and_data() {
        let interest = [5, 8, 7, 6, 8, 1, b'a', 8, 1, b'b'];
        let name = first_components(&interest).unwrap();
        assert_eq!(name.value(), [8, 1, b'a']);
        for cut in 0..interest.len() {
            let _ = first_components(&interest[..cut]);
        }
        assert_eq!(first_components(&[6, 2, 7, 0]).map(|name| name.component_count()), Some(0));
        assert!(first_components(&[5, 4, 8, 2, 1, 1]).is_none());
        assert!(first_components(&[5, 255, 255]).is_none());
    }
}
