//! One shard of the content router: how it handles a batch of inputs, and its timers.

use alloc::vec::Vec;
use core::mem;

use arrayvec::ArrayVec;
use weir_base::{FaceId, Instant, Packet};
use weir_wire::{LpHeader, PacketView};

use crate::config::RouterConfig;
use crate::content::Content;
use crate::content::busy::{Labels, Mark};
use crate::egress::Egress;
use crate::endpoints::Downstream;
use crate::incoming::{Arrival, BATCH, ReceivedPacket};
use crate::input::Input;
use crate::io::{Event, Outbox};
use crate::path::InterestStep;
use crate::shard::SHARDS_MAX;
use crate::stats::{BusyStats, RouterStats};
use crate::table::announcements::Announcements;
use crate::tables::Tables;

/// One shard of the router: its tables, its content store and its egress. It has no clock and no
/// sockets.
///
/// The driver passes it packets in batches with the present time, and sends what it finds in the
/// [`Outbox`].
pub struct Router {
    pub(crate) config: RouterConfig,
    /// The present time, for the batch that is being handled.
    pub(crate) now: Instant,
    pub(crate) tables: Tables,
    pub(crate) content: Content,
    pub(crate) egress: Egress,
    pub(crate) announcements: Announcements,
    /// Runs of consecutive packets with a common prefix, counted so far. See
    /// [`ReceivedPacket::prefix_run`].
    pub(crate) prefix_runs: u64,
    /// Scratch: the PIT entries that a Data packet matches, and the downstreams that receive it.
    pub(crate) matched: Vec<u32>,
    pub(crate) downstreams: Vec<Downstream>,
    expired: Vec<u32>,
}

impl Router {
    /// Creates an empty shard with NFD's default strategies.
    pub fn new(now: Instant, config: RouterConfig) -> Self {
        assert!(
            config.shard < config.shard_count,
            "the shard number must be below the number of shards"
        );
        assert!(
            usize::from(config.shard_count) <= SHARDS_MAX,
            "too many shards: a set of shards is one 64-bit word"
        );
        Self {
            now,
            tables: Tables::new(now, &config),
            content: Content::new(now, &config),
            egress: Egress::new(config.shard, config.shard_count, &config.hash_key),
            announcements: Announcements::default(),
            prefix_runs: 0,
            matched: Vec::new(),
            downstreams: Vec::new(),
            expired: Vec::new(),
            config,
        }
    }

    /// Handles a batch of inputs that arrived at `now`, and appends the resulting work to `out`.
    ///
    /// It first parses and hashes all packets of a batch, then prefetches the table lines that they
    /// need, and then processes the packets in order.
    pub fn handle(&mut self, now: Instant, inputs: &mut [Input], out: &mut Outbox) {
        self.begin_turn(now, out);
        // Timers run first, so that no packet of the batch meets an expired entry.
        self.handle_pit_timers();
        self.end_entries_of_closed_faces();
        self.handle_disk_timeout();
        if self.egress.is_sharded() {
            self.handle_shard_timeouts();
        }
        let mut rest = inputs;
        while !rest.is_empty() {
            // Consecutive packets form a batch. Any other input is handled alone, so the order of
            // inputs is kept.
            let is_packet = |input: &Input| matches!(input, Input::Packet { .. });
            let packets = rest.iter().take(BATCH).take_while(|input| is_packet(input)).count();
            let (batch, after) = rest.split_at_mut(packets.max(1));
            rest = after;
            if packets > 0 {
                let mut arrivals = ArrayVec::new();
                self.parse_batch(batch, &mut arrivals);
                for arrival in &arrivals {
                    self.process(arrival);
                }
            } else {
                // `Wakeup` only takes the place of the input that is moved out.
                self.handle_other(mem::replace(&mut batch[0], Input::Wakeup));
            }
        }
        self.content.continue_building();
        self.finish_turn(out);
    }

    /// Runs one stage of the path of an Interest, for a driver in which Interests wait between
    /// stages. Begin with [`InterestStep::Arrival`]. Returns the next stage, or `None` when the
    /// path has ended.
    ///
    /// The path also ends when the Interest waits for a disk. If the disk has no answer, the router
    /// itself forwards the Interest later. If the PIT entry is answered or expires before the FIB
    /// stage, that stage does nothing.
    ///
    /// # Panics
    /// If `packet` is not a valid Interest, or if `header` holds a Nack.
    pub fn handle_interest_step(
        &mut self,
        now: Instant,
        step: InterestStep,
        (face, header, packet): (FaceId, &LpHeader, &Packet),
        out: &mut Outbox,
    ) -> Option<InterestStep> {
        assert!(header.nack.is_none(), "a Nack has no Interest stages");
        let view = PacketView::decode(packet).expect("drivers pass only valid Interests");
        let hashes = &self.hash_name(&view);
        let PacketView::Interest(interest) = &view else { panic!("Data has no Interest stages") };
        let received = &ReceivedPacket::new(face, header, packet);
        self.begin_turn(now, out);
        self.handle_pit_timers();
        self.handle_disk_timeout();
        let next = self.take_step(step, received, interest, hashes);
        self.finish_turn(out);
        next
    }

    /// The latest time at which the driver must call [`Router::handle`] again, even without an
    /// input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let Content { store, disk, queries, building_since, .. } = &self.content;
        let disk_wakeups = if store.has_disk() {
            [store.next_wakeup(), disk.neighbours.next_wakeup(), disk.refill.next_wakeup()]
        } else {
            [None; 3]
        };
        let wakeups = [
            self.tables.pit.timers.next_wakeup(),
            self.tables.closed_face_sweep.next_wakeup(),
            queries.next_wakeup(),
            // This time lies in the past while there is such work, so the driver calls again at
            // once.
            *building_since,
        ];
        wakeups.into_iter().chain(disk_wakeups).flatten().min()
    }

    /// The counters and table sizes at this moment.
    pub fn stats(&self) -> RouterStats {
        let stats = &self.egress.stats;
        let interests_waiting = self.content.disk.driver_queue_len().into();
        RouterStats {
            pit_entries: self.tables.pit.len() as u64,
            pit_bytes: self.tables.pit.bytes(),
            fib_entries: self.tables.fib.len() as u64,
            dead_nonces: self.tables.dead_nonces.len() as u64,
            store: self.content.store.stats(),
            store_prefixes: self.content.store.prefix_stats(),
            busy: BusyStats { interests_waiting, ..stats.busy },
            ..stats.clone()
        }
    }

    /// Begins a turn: until [`Router::finish_turn`], all output goes to `out`.
    pub(crate) fn begin_turn(&mut self, now: Instant, out: &mut Outbox) {
        self.now = now;
        mem::swap(&mut self.egress.out, out);
    }

    /// Ends a turn: collects the operations for the disks, and the messages for neighbours and
    /// shards.
    #[inline]
    pub(crate) fn finish_turn(&mut self, out: &mut Outbox) {
        if self.content.store.has_disk() {
            self.finish_turn_with_disk();
        }
        if self.announcements.has_due() {
            self.attach_announcements();
        }
        if self.egress.is_sharded() {
            self.end_watches();
        }
        mem::swap(&mut self.egress.out, out);
    }

    #[inline(never)]
    fn finish_turn_with_disk(&mut self) {
        // A read that began in this turn may already have finished.
        self.take_finished_reads();
        let (now, busy) = (self.now, &self.config.busy);
        let disk = &mut self.content.disk;
        if busy.mark == Mark::NbCc && busy.labels == Labels::Neighbour {
            let is_over = disk.is_over_threshold();
            let Egress { stats, out, .. } = &mut self.egress;
            disk.neighbours.announce(now, is_over, &mut stats.busy, out);
        }
        if !disk.flushes.is_empty() && !self.content.store.flush(now) {
            let done = disk.flushes.drain(..);
            let events = done.map(|transaction| Event::StoreFlushed { transaction });
            self.egress.out.events.extend(events);
        }
        if !disk.refill.is_empty() || self.content.store.has_lost() {
            self.refill_holes();
        }
        self.drop_own_packets();
        self.content.store.take_disk_ops(now, &mut self.egress.out.disk_ops);
    }

    /// Ends the PIT entries that have expired, and wakes strategies.
    ///
    /// Each entry has one timer. It is set to the wakeup that the strategy requested, or otherwise
    /// to the last expiry of a downstream. If that expiry is still in the future, the timer was a
    /// wakeup.
    pub(crate) fn handle_pit_timers(&mut self) {
        let mut expired = mem::take(&mut self.expired);
        self.tables.pit.timers.advance(self.now, &mut expired);
        for index in expired.drain(..) {
            match self.tables.pit.entry(index).last_expiry() {
                Some(last) if last > self.now => self.wake_strategy(index, last),
                _ => self.end_unsatisfied(index),
            }
        }
        self.expired = expired;
        self.tables.dead_nonces.expire(self.now);
        self.tables.fib.expire_distrust(self.now, &self.tables.hash_key);
    }

    /// Runs the timers of the store's disks that are due.
    #[inline]
    pub(crate) fn handle_disk_timeout(&mut self) {
        let store = &mut self.content.store;
        if store.has_disk() && store.next_wakeup().is_some_and(|at| at <= self.now) {
            store.handle_timeout(self.now);
            self.take_finished_reads();
        }
    }

    /// Handles any input except a packet.
    pub(crate) fn handle_other(&mut self, input: Input) {
        match input {
            Input::Command(command) => self.apply(command),
            Input::DiskDone { id, outcome } => {
                self.content.store.on_disk_done(self.now, id, outcome);
                self.take_finished_reads();
            }
            Input::Signal { face, signal } => {
                if self.config.busy.labels == Labels::Neighbour
                    && let Some(face) = self.tables.faces.find(face)
                {
                    let stats = &mut self.egress.stats.busy;
                    self.content.disk.neighbours.on_signal(self.now, face, signal, stats);
                }
            }
            Input::Shard { from, message } => self.on_shard_message(from, message),
            Input::Announced(announced) => self.on_announced_data(&announced),
            Input::Packet { .. } | Input::Wakeup => {}
        }
    }

    /// [`Router::process`] out of line, for drivers that pass single packets.
    #[cold]
    #[inline(never)]
    pub(crate) fn process_cold(&mut self, arrival: &Arrival<'_>) {
        self.process(arrival);
    }

    #[inline(always)]
    fn process(&mut self, arrival: &Arrival<'_>) {
        let Arrival { received, hashes, .. } = arrival;
        match &arrival.parsed {
            PacketView::Interest(interest) => match received.header.nack {
                None => {
                    self.egress.stats.in_interests += 1;
                    self.on_interest(received, interest, hashes);
                }
                Some(reason) => self.on_nack(received, interest, reason, hashes),
            },
            PacketView::Data(data) => self.on_data(received, data, hashes),
        }
    }
}
