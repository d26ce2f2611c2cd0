//! The list of stored objects. See [`crate::objects`](crate::ObjectList).

use super::Store;
use super::disks::Disks;
use super::memory::Memory;
use crate::holdings::HoldingsCursor;
use crate::objects::{ObjectsPage, StoredObject};
use crate::scope::is_localhost;
use crate::uses::TierShare;
use weir_wire::{DataView, Name, NameView};

/// Packets of an object whose sizes are read, in addition to the newest, which is often the last
/// and shorter than the others. Further packets are assumed to have the same mean.
const SAMPLE_PACKETS: u32 = 8;

impl Store {
    /// Lists objects below `prefix`, starting at a cursor and visiting up to `visits_max` nodes of
    /// the prefix tree, or objects on disks. First come the objects in memory, then those on disks.
    ///
    /// Memory needs no index: the nodes of the prefix tree have the counters. For disks,
    /// [`Store::track_holdings`] must have started the index; without it the list is partial. While
    /// the index is being built, the same cursor is returned again.
    pub fn objects(
        &self,
        prefix: NameView<'_>,
        from: HoldingsCursor,
        visits_max: u32,
    ) -> ObjectsPage {
        let mut page = ObjectsPage::default();
        if from.is_on_disk {
            self.add_disk_objects(prefix, from, visits_max, &mut page);
            return page;
        }
        let end = self.memory.node_slots();
        let to = end.min(from.object.saturating_add(visits_max));
        for node in from.object..to {
            page.objects.extend(stored_object(&self.memory, node, prefix));
        }
        page.next = match to < end {
            true => Some(HoldingsCursor { object: to, ..from }),
            false if self.has_disk() => Some(HoldingsCursor { is_on_disk: true, object: 0 }),
            false => None,
        };
        page
    }

    fn add_disk_objects(
        &self,
        prefix: NameView<'_>,
        from: HoldingsCursor,
        visits_max: u32,
        page: &mut ObjectsPage,
    ) {
        if self.has_holdings_to_build() {
            // The caller asks again later.
            page.next = Some(from);
            return;
        }
        page.is_partial = self.is_recovering();
        let Some(holdings) = self.disk_holdings() else {
            page.is_partial = true;
            return;
        };
        let add = |name: Name, disk, uses| {
            if !is_hidden(name.as_view(), prefix) {
                page.objects.push(StoredObject { name, disk, uses, ..StoredObject::default() });
            }
        };
        let next = holdings.list_shares(prefix, from.object, visits_max, add);
        page.next = next.map(|object| HoldingsCursor { object, ..from });
        if page.next.is_none() {
            page.unnamed = holdings.unnamed().into();
            page.is_partial |= holdings.missed() > 0;
        }
    }
}

/// Passes the counters of an object to the index of the disks before memory removes the last packet
/// of the object. Without that index the counters are lost.
#[cold]
pub(super) fn keep_uses(memory: &mut Memory, disks: &mut Disks, index: u32) {
    let node = memory.entries[index].node;
    let object = memory.parent_hash(&memory.entries[index]);
    if memory.packets_of(node) == 1
        && let (Some(object), Some(disk)) = (object, disks.holdings_mut())
    {
        disk.add_uses(object, memory.take_uses(node));
    }
}

/// Whether a list leaves out an object: the answers of management commands below `/localhost`,
/// unless `prefix` selects them.
fn is_hidden(name: NameView<'_>, prefix: NameView<'_>) -> bool {
    is_localhost(name) && !is_localhost(prefix)
}

/// The object of a node, if it has packets in memory and its name starts with `prefix`.
fn stored_object(memory: &Memory, node: u32, prefix: NameView<'_>) -> Option<StoredObject> {
    let packets = memory.packets_of(node);
    if packets == 0 {
        return None;
    }
    let mut at = memory.newest_of(node)?;
    let newest = &memory.entries[at];
    let name = NameView::from_value(newest.name_value()).ok()?.parent();
    if !prefix.is_prefix_of(name) || is_hidden(name, prefix) {
        return None;
    }
    let segments = DataView::decode(&newest.packet).ok().and_then(|data| {
        let last = data.final_block_id()?.as_segment()?;
        data.name.last()?.as_segment()?;
        last.checked_add(1)
    });
    let newest_bytes = newest.packet.len() as u64;
    let (mut sampled, mut sampled_bytes) = (0, 0);
    while sampled < SAMPLE_PACKETS {
        match memory.entries[at].sibling_links.previous {
            previous if memory.entries.contains(previous) => at = previous,
            _ => break,
        }
        sampled_bytes += memory.entries[at].packet.len() as u64;
        sampled += 1;
    }
    let packets = u64::from(packets);
    let others = u128::from(sampled_bytes) * u128::from(packets - 1);
    let bytes = newest_bytes + others.checked_div(sampled.into()).unwrap_or(0) as u64;
    Some(StoredObject {
        name: name.to_name(),
        memory: TierShare { packets, bytes },
        segments,
        uses: memory.uses(node),
        ..StoredObject::default()
    })
}

#[cfg(test)]
mod tests;
