//! The Nack path (NFD: incoming Nack pipeline and ProcessNack).

use core::mem;

use weir_store::{NameHashes, Query};
use weir_wire::{InterestView, NackReason};

use crate::egress::{OutNack, with_nonce};
use crate::endpoints::{Origin, TokenCarrier};
use crate::incoming::{ReceivedPacket, query_of};
use crate::router::Router;
use crate::stats::DropReason;
use crate::strategy::nacks::{NackVerdict, judge_nacks};
use crate::table::measurements::{Flight, FlightEnd};
use crate::table::pit::AwaitedSource;
use crate::table::records::{InRecord, OutRecord};

impl Router {
    /// The path of a Nack. The Nack marks the out-record of its sender as refused. If no other
    /// upstream can answer, the Interest goes to a disk or to another next hop. Otherwise its entry
    /// ends with a Nack.
    pub(crate) fn on_nack(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        reason: NackReason,
        hashes: &NameHashes,
    ) {
        self.egress.stats.in_nacks += 1;
        let query = query_of(interest, hashes);
        let sender = self.tables.faces.find(received.face);
        let is_expected = sender.is_some_and(|face| face.is_point_to_point());
        let entry = if is_expected { self.tables.pit.find(&query) } else { None };
        // Without an entry, the Interest has been answered already or was never sent.
        let Some(index) = entry else {
            return self.egress.drop_packet(DropReason::UnexpectedNack);
        };
        if !self.is_nack_authentic(received, index) {
            return self.egress.drop_packet(DropReason::Spoofed);
        }
        let is_match = |record: OutRecord| {
            record.face == received.face && Some(record.nonce) == interest.nonce
        };
        // The nonce shows which transmission was refused. A Nack for an earlier one is ignored.
        let Some(at) = self.tables.pit.entry(index).upstreams().position(is_match) else {
            return self.egress.drop_packet(DropReason::UnexpectedNack);
        };
        let record = &mut self.tables.pit.lists_mut(index).upstreams[at];
        record.nacked = Some(reason);
        let flight = mem::replace(&mut record.flight, Flight::NONE);
        // An explicitly chosen next hop (NextHopFaceId) is not measured, and is never replaced.
        let is_chosen = flight.is_over();
        self.tables.measurements.end(self.now, flight, FlightEnd::Nack);
        let entry = self.tables.pit.entry(index);
        // The disk or the other shards may still answer.
        if matches!(entry.awaits, AwaitedSource::Disk(_) | AwaitedSource::Shards(_)) {
            return;
        }
        if self.tables.strategies.may_learn() && self.report_nack(index, received.face, reason) {
            return;
        }
        let entry = self.tables.pit.entry(index);
        let from = Some(received.face);
        match judge_nacks(self.now, entry) {
            NackVerdict::Wait => {}
            NackVerdict::AllRefused(reason) => {
                let continues = self.retry_on_disk(index, &query)
                    || !is_chosen && self.forward_after_refusal(index);
                if !continues && self.content.store.is_recovering() {
                    // A retransmission may find the Data on a disk, see [`Router::forward`].
                    self.end_unsatisfied(index);
                } else if !continues {
                    self.end_with_nack(index, OutNack { reason, from });
                }
            }
            NackVerdict::OnlyDownstreamLeft(face, reason) => {
                let (now, entry) = (self.now, self.tables.pit.entry_mut(index));
                // The only upstream that has not refused also waits for this Data, so it will not
                // send it. It gets a Nack as a downstream.
                let waits = |record: &InRecord| record.face == face && record.expiry > now;
                if let Some(record) = entry.remove_downstream(waits) {
                    self.tables.faces.remove_pending(record.face_slot, record.face);
                    let interest = with_nonce(entry, record.nonce);
                    self.egress.nack(record.downstream(), OutNack { reason, from }, interest);
                }
            }
        }
    }

    /// Whether the PIT token of a Nack proves that its peer sent it, if the face uses secret
    /// tokens.
    fn is_nack_authentic(&mut self, received: &ReceivedPacket<'_>, index: u32) -> bool {
        let tokens = self.tables.faces.tokens_of(received.face);
        if !tokens.are_secret() {
            return true;
        }
        let entry = self.tables.pit.entry(index);
        let secret = self.egress.secret_token(received.face, tokens, entry);
        self.check_token(received.face, TokenCarrier::Nacks, received.header.pit_token == secret)
    }

    /// Begins a disk read for an entry that had bypassed the disk. Returns whether the entry waits
    /// now.
    fn retry_on_disk(&mut self, index: u32, query: &Query<'_>) -> bool {
        let entry = self.tables.pit.entry(index);
        let Some(first) = entry.downstreams().next() else { return false };
        matches!(entry.awaits, AwaitedSource::Bypass { .. })
            && self.fall_back_to_disk(index, query, Origin::of_face(first.face))
    }
}
