//! The Interest path (NFD: incoming Interest, content store hit and content store miss pipelines).
//!
//! An Interest passes four stages. [`Router::on_interest`] runs them in order. Any stage may end
//! the path with Data, with a Nack or with a drop.
//!
//! 1. **Check** (`check_interest`): drops Interests of unknown faces, with HopLimit 0, or for
//!    `/localhost` from another host. **Loops are detected here**, before the store:
//!    `Tables::is_loop` looks up the nonce in the dead nonce list and in the PIT entry of the same
//!    name. A loop gets a Duplicate Nack.
//! 2. **Store** (`check_content_store`, `lookup.rs`): **the store is asked here**, unless an
//!    earlier Interest for the same Data is pending. Data in memory is the answer, and the PIT is
//!    not touched. If a disk has the Data, `bypass.rs` decides: the Interest waits for a read, or
//!    it bypasses the disk.
//! 3. **PIT** (`enter_pit`, `pending.rs`): creates an entry or joins one. A full PIT evicts entries
//!    or refuses the Interest with a Congestion Nack (`eviction.rs`).
//! 4. **Forward** (`forward_pending`, `forward.rs`): the strategy of the name chooses next hops
//!    from the FIB entry. If the Interest joined an entry that already waits for a disk, it stops
//!    before this stage.
//!
//! An Interest that waits for a disk leaves the path after `read_disk`. Its PIT entry then refers
//! to the read (`AwaitedSource::Disk`). It continues as follows:
//!
//! 1. The driver reports the finished operation as `Input::DiskDone`, and the store finishes the
//!    read.
//! 2. `take_finished_reads` (`reads.rs`) finds the entries that wait for this read.
//! 3. Data of the read satisfies its entries (`answer_from_disk`), as Data from upstream would.
//! 4. If the read failed or its Data does not match, `forward_waiting` sends the Interest upstream,
//!    as if the store had never had the Data.
//!
//! While the entry waits, Data from upstream, a timeout or an eviction may end it. The read then
//! finds no waiter. A retransmission from the same face may also go upstream (`Hedge`).
//!
//! Example: `/a/seg=7` is on disk 0 with 3 reads ahead. The Interest passes the loop check, the
//! store reports `OnDisk`, the policy says wait, and a read begins. The PIT entry waits for the
//! read. The read takes 5 ms, and its Data is sent to each downstream and kept in memory.
//!
//! Other events begin elsewhere: Data in `data.rs`, a Nack in `nack.rs`, an answer of another shard
//! in `shards.rs`, and a timeout in [`Router::handle_pit_timers`].

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
    /// Runs the path of an Interest; the module's documentation explains the stages. A stage that
    /// returns `None` has sent the answer or the Nack, and has counted it.
    #[inline(always)]
    pub(crate) fn on_interest(
        &mut self,
        received: &ReceivedPacket<'_>,
        interest: &InterestView<'_>,
        hashes: &NameHashes,
    ) {
        // Stage 1: face, HopLimit, scope and loop. May drop the Interest, or send a Nack for a
        // loop.
        let Some(incoming) = self.check_interest(received, interest, hashes) else { return };
        // Stage 2: the store may answer, refuse, or let the Interest wait for a disk or for other
        // shards.
        let Some(onward) = self.check_content_store(&incoming) else { return };
        // Stage 3: a full PIT sends a Nack.
        let Some(entry) = self.enter_pit(&incoming) else { return };
        // Stage 4: FIB and strategy, unless an earlier Interest already waits for the same Data.
        self.forward_pending(entry, &onward, received.origin(), interest, &incoming.query);
    }

    /// [`Router::on_interest`] out of line, for Interests that were queued in front of a blocking
    /// store.
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

    /// Runs one stage of the path, for a driver in which Interests wait between stages. Returns the
    /// next stage, or `None` at the end. The store and PIT stages repeat the checks of the first
    /// stage, because faces, entries and nonces may have changed while the Interest waited.
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
                let incoming = self.check_interest(received, interest, hashes)?;
                let onward = self.check_content_store(&incoming)?;
                if matches!(onward, ForwardingAction::Aggregate | ForwardingAction::Suppress) {
                    // These two need neither the FIB nor the strategy.
                    let entry = self.enter_pit(&incoming)?;
                    self.forward_pending(entry, &onward, origin, interest, &incoming.query);
                    return None;
                }
                Some(InterestStep::Pit(onward))
            }
            InterestStep::Pit(onward) => {
                let incoming = self.check_interest(received, interest, hashes)?;
                self.enter_pit(&incoming)?;
                Some(InterestStep::Fib(onward))
            }
            InterestStep::Fib(onward) => {
                let query = query_of(interest, hashes);
                // The entry may have been answered since the last stage.
                let entry = self.tables.pit.find(&query)?;
                self.forward_pending(entry, &onward, origin, interest, &query);
                None
            }
        }
    }

    /// Stage 1: checks face, HopLimit, scope and nonce.
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
        // HopLimit counts the hops that remain, so this Interest should not have been sent here.
        if interest.hop_limit == Some(0) {
            self.egress.drop_packet(DropReason::HopLimit);
            return None;
        }
        if !face.is_local() && is_localhost(interest.name) {
            self.egress.drop_packet(DropReason::Scope);
            return None;
        }
        let query = query_of(interest, hashes);
        // The Interest leaves with a nonce even if it arrived without one.
        let nonce = interest.nonce.unwrap_or_else(|| self.tables.rng.next_u32());
        let pit_index = self.tables.pit.find(&query);
        if self.tables.is_loop(hashes.whole, nonce, pit_index, &face) {
            self.egress.refuse(received, &face, NackReason::Duplicate, DropReason::Loop);
            return None;
        }
        Some(IncomingInterest { received, interest, query, face, nonce, pit_index })
    }

    /// Stage 2: asks the content store. Returns `None` if the path ends here, at least for now.
    #[inline(always)]
    fn check_content_store(&mut self, incoming: &IncomingInterest<'_>) -> Option<ForwardingAction> {
        match self.look_up(incoming) {
            StoreOutcome::Continue(onward) => return Some(onward),
            StoreOutcome::Answer(data) => self.answer(incoming, data),
            StoreOutcome::Read(read) => self.read_disk(incoming, &read),
            // The entry waits for the replies of the other shards.
            StoreOutcome::QueryShards => {
                if let Some(entry) = self.enter_pit(incoming) {
                    self.query_shards(entry, incoming);
                }
            }
            StoreOutcome::Refuse(drop_reason) => {
                // The record that the store has found will not be read.
                let interest = incoming.interest;
                self.content.store.count_miss(interest.name, interest.can_be_prefix);
                self.egress.refuse(
                    incoming.received,
                    &incoming.face,
                    NackReason::Congestion,
                    drop_reason,
                );
            }
        }
        None
    }

    /// Answers an Interest with Data from memory. It leaves no trace in the PIT.
    #[inline(always)]
    pub(crate) fn answer(&mut self, incoming: &IncomingInterest<'_>, data: StoredData) {
        let StoredData { packet, is_marked } = data;
        self.egress.stats.busy.marked += u64::from(is_marked);
        let to = incoming.received.downstream();
        let origin = DataOrigin::store(is_marked);
        let (bytes, sent) = (packet.len() as u64, self.egress.stats.out_data);
        self.egress.data(&to, incoming.face.is_local(), origin, incoming.interest.name, packet);
        let copies = self.egress.stats.out_data - sent;
        self.egress.stats.memory_bytes += copies * bytes;
    }

    /// Begins a disk read for an Interest. The Interest waits for it in the PIT.
    #[inline(always)]
    fn read_disk(&mut self, incoming: &IncomingInterest<'_>, read: &DiskRead) {
        self.egress.stats.busy.waited_over_threshold += u64::from(read.is_over_threshold);
        // The read begins before the PIT stage. If that stage refuses the Interest, the read
        // continues without a waiter, and its Data is still kept in memory.
        let Some(begun) = self.begin_read(&read.found) else {
            let interest = incoming.interest;
            self.content.store.count_miss(interest.name, interest.can_be_prefix);
            let (nack_reason, drop_reason) = (NackReason::Congestion, DropReason::DiskBusy);
            return self.egress.refuse(incoming.received, &incoming.face, nack_reason, drop_reason);
        };
        if let Some(entry) = self.enter_pit(incoming) {
            self.wait_for_disk(entry, incoming.received.origin(), read, begun);
        }
    }
}
