//! The Nack path (NFD, incoming Nack pipeline and ProcessNack).

use weir_base::Instant;
use weir_store::{NameHashes, Query};
use weir_wire::{InterestView, NackReason};

use crate::egress::{OutNack, with_nonce};
use crate::io::Outbox;
use crate::packet::{Origin, ReceivedPacket, query_of};
use crate::router::Router;
use crate::shard::Echo;
use crate::stats::DropReason;
use crate::strategy::nacks::{NackVerdict, judge_nacks};
use crate::table::measurements::{Flight, FlightEnd};
use crate::table::pit::AwaitedSource;
use crate::table::records::{InRecord, OutRecord};

impl Router {
    /// **PIT entry and out-record of that nonce -> what the other upstreams say** -> egress.
    pub(crate) fn on_nack(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        reason: NackReason,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) {
        self.stats.in_nacks += 1;
        let query = query_of(interest, hashes);
        let sender = self.faces.find(received.face).filter(|face| face.is_point_to_point());
        let Some(index) = sender.and_then(|_| self.pit.find(&query)) else {
            return self.stats.drop_packet(DropReason::UnexpectedNack);
        };
        if !self.is_nack_believed(received, index, out) {
            return self.stats.drop_packet(DropReason::Spoofed);
        }
        let is_match = |record: &OutRecord| {
            record.face == received.face && Some(record.nonce) == interest.nonce
        };
        let Some(at) = self.pit.entry(index).upstreams().position(|record| is_match(&record))
        else {
            return self.stats.drop_packet(DropReason::UnexpectedNack);
        };
        let record = &mut self.pit.lists_mut(index).upstreams[at];
        record.nacked = Some(reason);
        let flight = core::mem::replace(&mut record.flight, Flight::NONE);
        // Whom the sender of an Interest has chosen for it nobody stands in for.
        let is_chosen = flight.is_over();
        self.measurements.end(now, flight, FlightEnd::Nack);
        let entry = self.pit.entry(index);
        if matches!(entry.awaits, AwaitedSource::Disk(_) | AwaitedSource::Shards(_)) {
            return;
        }
        let from = Some(received.face);
        match judge_nacks(now, entry) {
            NackVerdict::Wait => {}
            NackVerdict::AllRefused(_) if self.is_back_at_store(now, index, &query) => {}
            NackVerdict::AllRefused(_) if !is_chosen && self.ask_another(now, index, out) => {}
            NackVerdict::AllRefused(reason) => {
                self.end_with_nack(now, index, OutNack { reason, from }, out);
            }
            NackVerdict::OnlyDownstreamLeft(face, reason) => {
                let entry = self.pit.entry_mut(index);
                let waits = |record: &InRecord| record.face == face && record.expiry > now;
                if let Some(record) = entry.remove_downstream(waits) {
                    self.faces.end_wait(record.face_slot, record.face);
                    let interest = with_nonce(entry, record.nonce);
                    let to = (face, record.pit_token);
                    let nack = OutNack { reason, from };
                    self.sender.nack(to, nack, interest, &mut self.stats, out);
                }
            }
        }
    }

    /// Ends an entry with a Nack to all who wait for it.
    pub(crate) fn end_with_nack(
        &mut self,
        now: Instant,
        index: u32,
        nack: OutNack,
        out: &mut Outbox,
    ) {
        let entry = self.pit.entry_mut(index);
        self.sender.nack_all(now, entry, nack, &mut self.faces, &mut self.stats, out);
        self.finish_unsatisfied(now, index);
    }

    /// Whether a Nack is its peer's, as far as its PIT token tells.
    fn is_nack_believed(
        &mut self,
        received: &ReceivedPacket<'_>,
        index: u32,
        out: &mut Outbox,
    ) -> bool {
        let tokens = self.faces.tokens_of(received.face);
        if !tokens.are_secret() {
            return true;
        }
        let secret = self.sender.secret_token(received.face, tokens, self.pit.entry(index));
        self.is_believed(received.face, Echo::Nacks, received.header.pit_token == secret, out)
    }

    /// Whether an entry that has passed the store by is there again.
    fn is_back_at_store(&mut self, now: Instant, index: u32, query: &Query<'_>) -> bool {
        let entry = self.pit.entry(index);
        let Some(first) = entry.downstreams().next() else { return false };
        let origin = Origin { face: first.face, next_hop_face: None, head: 0 };
        matches!(entry.awaits, AwaitedSource::Bypass { .. })
            && self.fall_back_to_disk(now, index, query, origin)
    }
}
