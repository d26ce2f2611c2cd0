//! Prefix announcements on their way with Data (strategy self-learning).
//!
//! **Data that arrives with an announcement** ([`Input::Announced`](crate::Input)) is handled as
//! other Data. If it answers a discovery Interest, the driver receives the announcement
//! ([`Event::Announced`]) and may add a route. Each copy for another host leaves with the
//! announcement, with any strategy (as in NFD). Copies from the store have none.
//!
//! **Data that needs an announcement** answers a discovery Interest of another host for which this
//! router had a route:
//!
//! 1. The strategy marks the PIT entry with `AwaitedSource::Announced`.
//! 2. When the entry ends with Data, `end_other_wait` records the position of the Data in the
//!    outbox. Entries without a mark do not get there.
//! 3. At the end of the turn, `attach_announcements` looks for the announcement of the longest FIB
//!    prefix. If it is not known, the Data waits and the driver is asked
//!    ([`Event::AnnouncementNeeded`]).
//! 4. The driver answers with [`Command::SetAnnouncement`](crate::Command). The Data leaves, with
//!    the announcement if there is one.
//!
//! NFD instead keeps the PIT entry for a second, and drops the Data if it finds no route.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_wire::{DataView, Name, NameView, PacketView, tlv};

use crate::announced::AnnouncedPacket;
use crate::incoming::ReceivedPacket;
use crate::io::Event;
use crate::router::Router;
use crate::shard::{Message, ShardMessage};
use crate::stats::DropReason;
use crate::strategy::DISCOVERY;
use crate::table::announcements::Found;
use crate::table::prefixes::PrefixHashes;

impl Router {
    /// Handles Data with an announcement.
    #[cold]
    pub(crate) fn on_announced_data(&mut self, announced: &AnnouncedPacket) {
        let AnnouncedPacket { face, header, packet, announcement } = announced;
        let data = match DataView::decode(packet) {
            Ok(data) => data,
            Err(error) => return self.count_malformed(&error),
        };
        if data.name.component_count() > self.config.name_components_max {
            return self.egress.drop_packet(DropReason::LongName);
        }
        let hashes = self.hash_name(&PacketView::Data(data));
        let received = ReceivedPacket::new(*face, header, packet);
        self.with_announcement((*face, announcement), &data, hashes.whole, |router| {
            router.on_data(&received, &data, &hashes);
        });
    }

    /// Calls `handle` for Data that came from a face with an announcement. Then reports the
    /// announcement if the Data was accepted for a discovery Interest, and adds it to the copies of
    /// the Data that go to other hosts or shards.
    pub(crate) fn with_announcement(
        &mut self,
        (face, announcement): (FaceId, &Packet),
        data: &DataView<'_>,
        hash: u64,
        handle: impl FnOnce(&mut Self),
    ) {
        if !is_announcement_of(announcement, data.name) {
            self.egress.stats.announcements_ignored += 1;
            return handle(self);
        }
        let is_discovered = self.has_sent_discovery(face, data, hash);
        let satisfied = self.egress.stats.satisfied;
        let out = &self.egress.out;
        let (packets, messages) = (out.packets.len(), out.shard_messages.len());
        handle(self);
        // The entries may have refused the Data, for a wrong PIT token for example.
        if is_discovered && self.egress.stats.satisfied > satisfied {
            self.egress.push_event(Event::Announced { face, announcement: announcement.clone() });
        }
        for position in packets..self.egress.out.packets.len() {
            if self.may_announce(position) {
                self.egress.out.announcements.push((position, announcement.clone()));
            }
        }
        for (_, message) in &mut self.egress.out.shard_messages[messages..] {
            add_to_message(message, announcement);
        }
    }

    /// Whether a discovery Interest for this Data was sent to `face`.
    fn has_sent_discovery(&mut self, face: FaceId, data: &DataView<'_>, hash: u64) -> bool {
        if !self.tables.strategies.may_learn() {
            return false;
        }
        let mut matched = Vec::new();
        self.tables.find_pending(data, hash, &mut matched);
        matched.into_iter().any(|index| {
            let entry = self.tables.pit.entry(index);
            let mut upstreams = entry.upstreams().filter(|record| record.face == face);
            upstreams.any(|record| record.strategy_state == DISCOVERY)
                && self.tables.strategy(entry.name_view()).learns_routes()
        })
    }

    /// Whether the packet at this position of the outbox is Data for another host.
    fn may_announce(&self, position: usize) -> bool {
        let out = &self.egress.out.packets[position];
        let is_data = out.packet.first() == Some(&(tlv::DATA as u8));
        is_data && self.tables.faces.find(out.face).is_some_and(|face| !face.is_local())
    }

    /// Adds announcements to the Data of this turn that needs them. Data whose announcement is not
    /// known is taken out of the outbox.
    #[cold]
    #[inline(never)]
    pub(crate) fn attach_announcements(&mut self) {
        let mut waiting = Vec::new();
        for due in self.announcements.take_due() {
            let Some(first) = self.egress.out.packets.get(due.first) else { continue };
            let Ok(data) = DataView::decode(&first.packet) else { continue };
            // Without a downstream the Data has no copy, and this is another packet.
            let name = due.name.as_view();
            if !name.is_prefix_of(data.name) && !data.name.is_prefix_of(name) {
                continue;
            }
            let mut hashes = PrefixHashes::default();
            hashes.add(&self.tables.hash_key, data.name, self.tables.fib.lengths());
            let prefix = self.tables.fib.longest_prefix(data.name, &hashes);
            let Some(prefix) = prefix else { continue };
            let octets = first.packet.as_ptr();
            let copies = self.egress.out.packets[due.first..].iter();
            let count = copies.take_while(|copy| copy.packet.as_ptr() == octets).count();
            let found = self.announcements.find(self.now, &prefix);
            for position in due.first..due.first + count {
                let announced = &self.egress.out.announcements;
                if announced.iter().any(|(known, _)| *known == position)
                    || !self.may_announce(position)
                {
                    continue;
                }
                match &found {
                    Found::Known(Some(announcement)) => {
                        self.egress.out.announcements.push((position, announcement.clone()));
                    }
                    Found::Known(None) => {}
                    Found::Requested | Found::Unknown => waiting.push((position, prefix.clone())),
                }
            }
        }
        if !waiting.is_empty() && self.announcements.has_room_for(waiting.len()) {
            self.hold(waiting);
        }
    }

    /// Takes packets out of the outbox until the announcements of their prefixes are known.
    fn hold(&mut self, mut waiting: Vec<(usize, Name)>) {
        waiting.sort_by_key(|(position, _)| *position);
        waiting.dedup_by_key(|(position, _)| *position);
        waiting.retain(|(_, prefix)| match self.announcements.find(self.now, prefix) {
            Found::Requested => true,
            Found::Known(_) => false,
            Found::Unknown => {
                let is_requested = self.announcements.request(prefix.clone());
                if is_requested {
                    let prefix = prefix.clone();
                    self.egress.push_event(Event::AnnouncementNeeded { prefix });
                }
                is_requested
            }
        });
        let mut prefixes = waiting.iter();
        let mut next = prefixes.next();
        let held = self.egress.remove_packets(|position, _| {
            let is_held = next.is_some_and(|(waiting, _)| *waiting == position);
            if is_held {
                next = prefixes.next();
            }
            is_held
        });
        for ((_, prefix), packet) in waiting.into_iter().zip(held) {
            self.announcements.hold(prefix, packet);
        }
    }

    /// Records the announcement of a prefix, and sends the Data that has waited for it.
    pub(crate) fn set_announcement(&mut self, prefix: Name, announcement: Option<Packet>) {
        let released = self.announcements.set(self.now, prefix, announcement.clone());
        let out = &mut self.egress.out;
        for packet in released {
            if let Some(announcement) = &announcement {
                out.announcements.push((out.packets.len(), announcement.clone()));
            }
            out.packets.push(packet);
        }
    }
}

/// Whether the name of an announcement (`<prefix>/32=PA/<version>/<segment>`) fits to Data. NFD
/// does not check this. A neighbour could then announce prefixes that no Interest has requested.
fn is_announcement_of(announcement: &Packet, name: NameView<'_>) -> bool {
    DataView::decode(announcement).is_ok_and(|announcement| {
        let components = announcement.name.component_count().checked_sub(3);
        components.is_some_and(|count| announcement.name.prefix(count).is_prefix_of(name))
    })
}

/// Adds an announcement to the Data in a message for another shard.
fn add_to_message(message: &mut ShardMessage, announcement: &Packet) {
    let announcement = announcement.clone();
    match &mut message.0 {
        Message::Offer(offered) => offered.announcement = Some(announcement),
        Message::Misrouted { face, header, packet } => {
            let (face, header, packet) = (*face, (**header).clone(), packet.clone());
            let announced = AnnouncedPacket { face, header, packet, announcement };
            message.0 = Message::MisroutedAnnounced(Box::new(announced));
        }
        _ => {}
    }
}
