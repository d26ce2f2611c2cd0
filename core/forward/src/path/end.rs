//! The end of a PIT entry: with Data, with a Nack, or without an answer.

use core::iter::repeat_n;
use core::mem;

use weir_base::{FaceId, NS_PER_MS, Packet};
use weir_wire::DataView;

use crate::content::busy::Labels;
use crate::egress::OutNack;
use crate::endpoints::DataOrigin;
use crate::router::Router;
use crate::table::announcements::AnnouncementDue;
use crate::table::faces::Face;
use crate::table::measurements::FlightEnd;
use crate::table::pit::AwaitedSource;

impl Router {
    /// Ends the entries in `matched` with Data, and sends it to every downstream.
    #[inline(always)]
    pub(crate) fn end_with_data(
        &mut self,
        origin: DataOrigin,
        packet: Packet,
        data: &DataView<'_>,
        matched: &[u32],
    ) {
        self.downstreams.clear();
        self.end_with_data_for_others(origin, packet, data, matched);
    }

    /// Like [`Self::end_with_data`], but skips the faces in `downstreams`, which have already
    /// received the Data. Appends the faces that receive it now.
    #[inline(always)]
    pub(crate) fn end_with_data_for_others(
        &mut self,
        origin: DataOrigin,
        packet: Packet,
        data: &DataView<'_>,
        matched: &[u32],
    ) {
        let served = self.downstreams.len();
        let may_repeat = matched.len() > 1 || served > 0;
        for &index in matched {
            self.end_satisfied(index, origin, may_repeat, data.freshness_ms);
        }
        if may_repeat {
            // The order of entries in the table depends on the number of shards; the order of
            // packets must not.
            self.downstreams[served..].sort_unstable_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        }
        let downstreams = &self.downstreams[served..];
        for (to, packet) in downstreams.iter().zip(repeat_n(packet, downstreams.len())) {
            if let Some(egress) = self.tables.faces.find(to.face) {
                self.egress.data(to, egress.is_local(), origin, data.name, packet);
            }
        }
    }

    /// Ends a satisfied entry and adds its downstreams to `downstreams`. With `may_repeat`, each
    /// face is added only once for each PIT token.
    #[inline(always)]
    fn end_satisfied(
        &mut self,
        index: u32,
        origin: DataOrigin,
        may_repeat: bool,
        freshness_ms: u64,
    ) {
        let (now, from) = (self.now, origin.face);
        let entry = self.tables.pit.entry(index);
        for record in entry.all_downstreams(&[entry.inline_downstream()]) {
            self.tables.faces.remove_pending(record.face_slot, record.face);
            // Data returns to the face that it came from only on an ad hoc medium, where other
            // nodes may need it.
            if record.expiry <= now || (record.face == from && !origin.is_ad_hoc) {
                continue;
            }
            let downstream = record.downstream();
            if !may_repeat || !self.downstreams.contains(&downstream) {
                self.downstreams.push(downstream);
            }
        }
        for record in entry.all_upstreams(&[entry.inline_upstream()]) {
            if record.face == from {
                self.egress.stats.upstream_latency.record(now.ns_since(record.sent_at));
                // After a retransmission it is unclear which transmission the Data answers.
                let is_first = record.is_sent_once();
                self.tables.measurements.on_data(now, record.flight, is_first);
            } else {
                let is_store = from == FaceId::CONTENT_STORE;
                let end = if is_store { FlightEnd::Store } else { FlightEnd::OtherNextHop };
                self.tables.measurements.end(now, record.flight, end);
            }
            // The store answers a looping Interest, so its nonce need not be remembered. The
            // exception is an Interest that must be fresh, if the Data soon becomes stale.
            let freshness_ns = freshness_ms.saturating_mul(NS_PER_MS);
            if entry.must_be_fresh && freshness_ns < self.tables.dead_nonces.lifetime_ns() {
                self.tables.dead_nonces.insert(now, entry.hash, record.nonce);
            }
        }
        self.end_wait(index, Some(origin));
        self.egress.stats.satisfied += 1;
        self.content.pool.recycle(self.tables.pit.remove(index));
    }

    /// Ends an entry with a Nack to every downstream.
    pub(crate) fn end_with_nack(&mut self, index: u32, nack: OutNack) {
        let entry = self.tables.pit.entry_mut(index);
        self.egress.nack_all(self.now, entry, nack, &mut self.tables.faces);
        self.end_unsatisfied(index);
    }

    /// Ends an entry that got no Data. Its nonces are remembered as dead (NFD, Interest finalize
    /// pipeline).
    pub(crate) fn end_unsatisfied(&mut self, index: u32) {
        let entry = self.tables.pit.entry(index);
        for record in entry.upstreams() {
            self.tables.dead_nonces.insert(self.now, entry.hash, record.nonce);
            self.tables.measurements.end(self.now, record.flight, FlightEnd::TimeOut);
        }
        for record in entry.downstreams() {
            self.tables.faces.remove_pending(record.face_slot, record.face);
        }
        self.end_wait(index, None);
        self.egress.stats.unsatisfied += 1;
        self.content.pool.recycle(self.tables.pit.remove(index));
    }

    /// Ends some of the entries whose downstreams have all closed, if a sweep is due.
    #[inline]
    pub(crate) fn end_entries_of_closed_faces(&mut self) {
        if self.tables.closed_face_sweep.is_due(self.now) {
            self.sweep_closed_faces();
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep_closed_faces(&mut self) {
        for index in self.tables.closed_face_sweep.advance(self.now) {
            let faces = &self.tables.faces;
            if let Some(entry) = self.tables.pit.get(index)
                && entry
                    .downstreams()
                    .all(|record| faces.get(record.face_slot, record.face).is_none())
            {
                self.end_unsatisfied(index);
            }
        }
    }

    /// Ends an entry's wait for a disk, for other shards or for a bypass. Either the entry ends, or
    /// it will wait for another source. `origin` describes the Data that answers the entry, if any.
    #[inline(always)]
    pub(crate) fn end_wait(&mut self, index: u32, origin: Option<DataOrigin>) {
        if self.tables.pit.entry(index).awaits != AwaitedSource::Upstream {
            self.end_other_wait(index, origin);
        }
    }

    #[inline(never)]
    fn end_other_wait(&mut self, index: u32, origin: Option<DataOrigin>) {
        if matches!(self.tables.pit.entry(index).awaits, AwaitedSource::Bypass { .. }) {
            self.end_bypass(index, origin);
        }
        match mem::take(&mut self.tables.pit.entry_mut(index).awaits) {
            AwaitedSource::Upstream => {}
            AwaitedSource::Announced => {
                // The copies of the Data come next in the outbox.
                if origin.is_some() {
                    let name = self.tables.pit.entry(index).name_view().to_name();
                    let first = self.egress.out.packets.len();
                    self.announcements.add_due(AnnouncementDue { name, first });
                }
            }
            AwaitedSource::Disk(waiter) => {
                self.content.disk.reads.remove_waiter(waiter);
                // Only this entry stops waiting. The read continues, because other entries may wait
                // for it.
                self.egress.stats.busy.overtaken += 1;
            }
            AwaitedSource::Shards(query) => drop(self.content.queries.remove(query)),
            AwaitedSource::Bypass { since, .. } => {
                if origin.is_some_and(|origin| origin.face != FaceId::CONTENT_STORE) {
                    self.egress.stats.busy.bypass_latency.record(self.now.ns_since(since));
                }
            }
        }
    }

    /// With [`Labels::Path`], records whether the next hop of a bypass had room. It had room if its
    /// Data carries no mark.
    fn end_bypass(&mut self, index: u32, origin: Option<DataOrigin>) {
        let Some((face, has_refused)) = self.bypass_of(index) else { return };
        let had_room = match origin {
            _ if has_refused => Some(false),
            Some(origin) if origin.face == face.id() => Some(origin.mark == 0),
            _ => None,
        };
        self.content.disk.neighbours.on_bypass_end(&face, had_room);
    }

    /// With [`Labels::Path`], returns the next hop of an entry that has bypassed a disk, and
    /// whether this next hop refused the Interest.
    pub(crate) fn bypass_of(&self, index: u32) -> Option<(Face, bool)> {
        let entry = self.tables.pit.get(index)?;
        if self.config.busy.labels != Labels::Path
            || !matches!(entry.awaits, AwaitedSource::Bypass { .. })
        {
            return None;
        }
        let first = entry.upstreams().next()?;
        Some((*self.tables.faces.find(first.face)?, first.nacked.is_some()))
    }
}
