//! The Interest path (NFD, incoming Interest, content store hit and content store miss pipelines).

use weir_store::NameHashes;
use weir_wire::{InterestView, NackReason};

use crate::content::decision::{DiskRead, ForwardingAction, StoreOutcome, StoredData};
use crate::endpoints::DataOrigin;
use crate::incoming::{IncomingInterest, ReceivedPacket, query_of};
use crate::path::step::InterestStep;
use crate::router::Router;
use crate::scope::is_localhost;
use crate::stats::DropReason;

impl Router {
    /// The path of an Interest. A stage that returns `None` has already sent the answer or the
    /// Nack, and counted it.
    ///
    /// Later events: Data in `data.rs`, a Nack in `nack.rs`, a finished read in `reads.rs`, an
    /// answer of another shard in `shards.rs`, a timeout in [`Router::handle_pit_timers`].
    #[inline(always)]
    pub(crate) fn on_interest(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
    ) {
        // Face, hop limit, scope, loop: dropped, or a Nack for a loop.
        let Some(pass) = self.check_interest(received, interest, hashes) else { return };
        // Content store: answered, refused, or waiting for a disk or for other shards.
        let Some(onward) = self.check_content_store(&pass) else { return };
        // PIT: a Nack if it is full.
        let Some(entry) = self.enter_pit(&pass) else { return };
        // FIB and strategy, unless an earlier Interest is already on its way.
        self.forward_pending(entry, &onward, received.origin(), interest, &pass.query);
    }

    /// The same out of line, for Interests that were queued in front of a blocking store.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_queued_interest(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
    ) {
        self.on_interest(received, interest, hashes);
    }

    /// The path of an Interest one stage at a time, for a driver in which Interests wait between
    /// stages. Returns the next stage; `None` at the end. Each stage checks again: faces, entries
    /// and nonces may have changed while the Interest waited.
    pub(crate) fn take_step(
        &mut self,
        step: InterestStep,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
    ) -> Option<InterestStep> {
        let origin = received.origin();
        match step {
            InterestStep::Arrival => {
                self.egress.stats.in_interests += 1;
                self.check_interest(received, interest, hashes)?;
                Some(InterestStep::Store)
            }
            InterestStep::Store => {
                let pass = self.check_interest(received, interest, hashes)?;
                let onward = self.check_content_store(&pass)?;
                if matches!(onward, ForwardingAction::Aggregate | ForwardingAction::Suppress) {
                    // It needs neither FIB nor strategy.
                    let entry = self.enter_pit(&pass)?;
                    self.forward_pending(entry, &onward, origin, interest, &pass.query);
                    return None;
                }
                Some(InterestStep::Pit(onward))
            }
            InterestStep::Pit(onward) => {
                let pass = self.check_interest(received, interest, hashes)?;
                self.enter_pit(&pass)?;
                Some(InterestStep::Fib(onward))
            }
            InterestStep::Fib(onward) => {
                let query = query_of(interest, hashes);
                // The entry may have been answered in the meantime.
                let entry = self.tables.pit.find(&query)?;
                self.forward_pending(entry, &onward, origin, interest, &query);
                None
            }
        }
    }

    /// First stage: face, hop limit, scope, loop.
    #[inline(always)]
    pub(crate) fn check_interest<'a>(
        &mut self,
        received: &'a ReceivedPacket<'a>,
        interest: &'a InterestView<'a>,
        hashes: &NameHashes,
    ) -> Option<IncomingInterest<'a>> {
        let Some(&face) = self.tables.faces.find(received.face) else {
            self.egress.drop_packet(DropReason::UnknownFace);
            return None;
        };
        if interest.hop_limit == Some(0) {
            self.egress.drop_packet(DropReason::HopLimit);
            return None;
        }
        if !face.is_local() && is_localhost(interest.name) {
            self.egress.drop_packet(DropReason::Scope);
            return None;
        }
        let query = query_of(interest, hashes);
        let nonce = interest.nonce.unwrap_or_else(|| self.tables.rng.next_u32());
        let pit_index = self.tables.pit.find(&query);
        if self.tables.is_loop(hashes.whole, nonce, pit_index, &face) {
            self.egress.refuse(received, &face, NackReason::Duplicate, DropReason::Loop);
            return None;
        }
        Some(IncomingInterest { received, interest, query, face, nonce, pit_index })
    }

    /// Second stage: the content store. `None` if it ends the path of the Interest for now.
    #[inline(always)]
    fn check_content_store(&mut self, pass: &IncomingInterest<'_>) -> Option<ForwardingAction> {
        match self.look_up(pass) {
            StoreOutcome::Continue(onward) => return Some(onward),
            StoreOutcome::Answer(data) => self.answer(pass, data),
            StoreOutcome::Read(read) => self.read_disk(pass, &read),
            StoreOutcome::QueryShards => {
                if let Some(entry) = self.enter_pit(pass) {
                    self.query_shards(entry, pass);
                }
            }
            StoreOutcome::Refuse(drop_reason) => {
                self.content.store.decline_read();
                self.egress.refuse(pass.received, &pass.face, NackReason::Congestion, drop_reason);
            }
        }
        None
    }

    /// Answers an Interest with Data from memory. It leaves no trace in the PIT.
    #[inline(always)]
    pub(crate) fn answer(&mut self, pass: &IncomingInterest<'_>, data: StoredData) {
        let StoredData { packet, is_marked } = data;
        self.egress.stats.busy.marked += u64::from(is_marked);
        let to = pass.received.downstream();
        let origin = DataOrigin::store(is_marked);
        self.egress.data(&to, pass.face.is_local(), origin, pass.interest.name, packet);
    }

    /// Begins a read for an Interest, which waits for it in the PIT.
    #[inline(always)]
    fn read_disk(&mut self, pass: &IncomingInterest<'_>, read: &DiskRead) {
        self.egress.stats.busy.waited_over_threshold += u64::from(read.is_over_threshold);
        let Some(begun) = self.begin_read(&read.found) else {
            let (nack_reason, drop_reason) = (NackReason::Congestion, DropReason::DiskBusy);
            return self.egress.refuse(pass.received, &pass.face, nack_reason, drop_reason);
        };
        if let Some(entry) = self.enter_pit(pass) {
            self.wait_for_disk(entry, pass.received.origin(), read, begun);
        }
    }
}
