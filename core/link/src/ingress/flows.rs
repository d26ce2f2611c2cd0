//! The terms of Eq. 2 (paper chopcop), of all flows and of each: Data that waits to leave, and Data
//! that was asked for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Slab, Table, TimerWheel};
use weir_wire::{InterestView, NameView, tlv};

use super::config::scaled;

/// Flows that are told apart; those beyond share one. The paper expects hundreds.
const FLOWS_MAX: usize = 1024;
/// The flow of all names beyond [`FLOWS_MAX`] flows.
const OVERFLOW_FLOW: u32 = 0;
/// Unanswered Interests that are counted. While there are as many, Interests wait.
const PENDING_MAX: usize = 1 << 16;
/// An Interest counts for this long at most, NDN's default lifetime. What has not been answered by
/// then waits elsewhere, or will never be.
const PENDING_NS_MAX: u64 = 4 * NS_PER_S;
/// An Interest that was not answered for this long is late: longer than a round trip takes, also on
/// long paths.
const LATE_NS: u64 = 500 * NS_PER_MS;
/// For how long a flow is held to its share after an Interest of it was late. As long as its
/// pending Interests count, so that those of before are gone then.
const CAP_NS: u64 = PENDING_NS_MAX;
/// What an Interest is expected to bring before any Data was seen: a common segment.
const DATA_BYTES_FIRST: u64 = 8192;
/// What an Interest costs its flow at least when its turn comes: a Nack.
const COST_BYTES_MIN: u64 = 64;
/// A new size weighs one part in this in a moving average.
const AVERAGE_OVER: u64 = 8;

/// What the flows of a face need of the queue towards its downstream.
#[derive(Debug)]
pub(super) struct Flows {
    key: HashKey,
    components: usize,
    by_hash: Table,
    /// [`OVERFLOW_FLOW`] is always there, any other flow only while it needs something.
    flows: Slab<Flow>,
    pending: Pending,
    /// What all flows have asked for: q_i.
    expected_bytes: u64,
    /// Octets that wait to leave: q_d.
    queue_bytes: u64,
    /// Flow and size of Data in the order in which it was queued. The queue is taken for first in,
    /// first out: what it holds came last.
    queued: VecDeque<(u32, u64)>,
    queued_bytes: u64,
    /// Moving average of the size of all Data.
    data_bytes: u64,
    /// Of flows that are forgotten: the hash, and until when it is held to its share if it comes
    /// again. The oldest first.
    caps: VecDeque<(u64, Instant)>,
    /// When [`Self::advance`] was called last.
    now: Instant,
}

#[derive(Debug)]
struct Flow {
    hash: u64,
    /// Interests that went on and were not answered, and how many of them are late.
    pending: u64,
    late: u64,
    /// Until then it may have no more than its share.
    capped_until: Instant,
    queued_bytes: u64,
    /// What one of its Interests brings: a moving average.
    data_bytes: u64,
    /// Interests of it that wait.
    delayed: u32,
}

impl Flow {
    fn new(hash: u64, data_bytes: u64) -> Self {
        Self {
            hash,
            pending: 0,
            late: 0,
            capped_until: Instant::ZERO,
            queued_bytes: 0,
            data_bytes,
            delayed: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.pending == 0 && self.queued_bytes == 0 && self.delayed == 0
    }

    /// What the face is to expect for its Interests: late ones may never be answered.
    fn expected_bytes(&self) -> u64 {
        (self.pending - self.late) * self.data_bytes
    }
}

/// Interests that went on and were not answered, by the hash of what names their Data. The key of
/// the hash is secret and it has 64 bits, so that it stands for the name.
#[derive(Debug)]
struct Pending {
    by_hash: Table,
    entries: Slab<PendingEntry>,
    /// When each of them is late, and then until when it counts.
    timers: TimerWheel,
    expired: Vec<u32>,
    /// How many of them Data with a longer name may answer.
    prefixes: usize,
}

#[derive(Debug)]
struct PendingEntry {
    hash: u64,
    flow: u32,
    is_prefix: bool,
    is_late: bool,
    /// Until when it counts.
    until: Instant,
}

/// An Interest that may have to wait.
#[derive(Copy, Clone, Debug)]
pub(super) struct ShapedInterest {
    /// Of the name that its Data has.
    hash: u64,
    is_prefix: bool,
    pub(super) flow: u32,
    pub(super) lifetime_ns: u64,
}

impl Flows {
    /// Flows are told apart by `components` leading components of their names.
    pub(super) fn new(key: HashKey, components: u32) -> Self {
        let mut flows = Slab::new();
        let others = flows.insert(Flow::new(0, DATA_BYTES_FIRST));
        assert_eq!(others, OVERFLOW_FLOW, "a slab begins with 0");
        Self {
            key,
            components: components as usize,
            by_hash: Table::default(),
            flows,
            pending: Pending::default(),
            expected_bytes: 0,
            queue_bytes: 0,
            queued: VecDeque::new(),
            queued_bytes: 0,
            data_bytes: DATA_BYTES_FIRST,
            caps: VecDeque::new(),
            now: Instant::ZERO,
        }
    }

    /// What is to be known of an Interest; None if it must never wait: its name does not leave
    /// the host or the link, which is where management lives, or it is malformed, as the forwarder
    /// will find. Its flow exists from now on, see [`Self::remove_if_idle`].
    pub(super) fn classify(&mut self, packet: &[u8]) -> Option<ShapedInterest> {
        let interest = InterestView::decode(packet).ok()?;
        let name = interest.name;
        let first = name.first()?;
        if first.is_generic() && matches!(first.value, b"localhost" | b"localhop") {
            return None;
        }
        let has_digest = name.last().is_some_and(|last| last.is_implicit_digest());
        let of_data = if has_digest { name.parent() } else { name };
        Some(ShapedInterest {
            hash: self.key.hash(of_data.value()),
            is_prefix: interest.can_be_prefix,
            flow: self.flow_of(name),
            lifetime_ns: interest.lifetime_ms_or_default().saturating_mul(NS_PER_MS),
        })
    }

    fn flow_of(&mut self, name: NameView<'_>) -> u32 {
        let hash = self.key.hash(name.prefix(self.components).value());
        if let Some(flow) = self.find(hash) {
            return flow;
        }
        if self.flows.len() > FLOWS_MAX {
            return OVERFLOW_FLOW;
        }
        let mut flow = Flow::new(hash, self.data_bytes);
        while self.caps.pop_front_if(|&mut (_, until)| until <= self.now).is_some() {}
        if let Some(at) = self.caps.iter().position(|&(held, _)| held == hash) {
            flow.capped_until = self.caps.remove(at).map_or(Instant::ZERO, |(_, until)| until);
        }
        let flow = self.flows.insert(flow);
        self.by_hash.insert(hash, flow);
        flow
    }

    fn find(&self, hash: u64) -> Option<u32> {
        self.by_hash.find(hash, |flow| self.flows.get(flow).is_some_and(|it| it.hash == hash))
    }

    fn flow(&mut self, flow: u32) -> &mut Flow {
        self.flows.get_mut(flow).expect("a flow is there while it needs something")
    }

    /// Forgets a flow that needs nothing, but for what it may not have if it comes again soon.
    pub(super) fn remove_if_idle(&mut self, flow: u32) {
        if flow != OVERFLOW_FLOW && self.flow(flow).is_idle() {
            let Flow { hash, capped_until: held_to_share_until, .. } = self.flows.remove(flow);
            self.by_hash.remove(hash, flow);
            if held_to_share_until > self.now {
                if self.caps.len() >= FLOWS_MAX {
                    self.caps.pop_front();
                }
                self.caps.push_back((hash, held_to_share_until));
            }
        }
    }

    /// Flows that need something, n of the paper; at least 1.
    pub(super) fn count(&self) -> u64 {
        let are_there_others =
            self.flows.get(OVERFLOW_FLOW).is_some_and(|others| !others.is_idle());
        (self.flows.len() as u64 - u64::from(!are_there_others)).max(1)
    }

    /// How many Interests of a flow wait.
    pub(super) fn delayed(&mut self, flow: u32) -> &mut u32 {
        &mut self.flow(flow).delayed
    }

    /// What an Interest of a flow costs it when its turn comes: the octets that it is expected to
    /// bring.
    pub(super) fn cost_bytes(&self, flow: u32) -> u64 {
        let data_bytes = self.flows.get(flow).map_or(0, |flow| flow.data_bytes);
        data_bytes.max(COST_BYTES_MIN)
    }

    /// Q of the face (Eq. 2), of this moment. `gamma` is in thousandths.
    pub(super) fn required_bytes(&self, gamma: u32) -> u64 {
        self.queue_bytes.saturating_add(scaled(self.expected_bytes, gamma))
    }

    /// Q_j: the same for one flow.
    pub(super) fn required_bytes_of(&self, flow: u32, gamma: u32) -> u64 {
        let Some(flow) = self.flows.get(flow) else { return 0 };
        flow.queued_bytes.saturating_add(scaled(flow.expected_bytes(), gamma))
    }

    /// Whether a flow has to wait although the face has room: not all of its Interests are
    /// answered in time, and those that are not yet, the late ones included, may bring as much as
    /// its share of `max_bytes` already. One at a time goes all the same.
    ///
    /// Late ones do not count for the face; else names that nothing answers would take all the
    /// room, and no Data would ever set it free. But whoever has them answered late on purpose, all
    /// at once, must not get more by it than others have.
    pub(super) fn has_used_share(
        &self,
        now: Instant,
        flow: u32,
        gamma: u32,
        max_bytes: u64,
    ) -> bool {
        let Some(flow) = self.flows.get(flow) else { return false };
        if now >= flow.capped_until || flow.pending == flow.late {
            return false;
        }
        let open_bytes = scaled(flow.pending * flow.data_bytes, gamma);
        // One flow more may come at any time.
        flow.queued_bytes.saturating_add(open_bytes) >= max_bytes / (self.count() + 1)
    }

    /// Whether an Interest of the same name has gone on and was not answered: what comes will
    /// answer both.
    pub(super) fn is_pending(&self, asked: &ShapedInterest) -> bool {
        self.pending.find(asked.hash).is_some()
    }

    /// Whether no more Interests can be counted.
    pub(super) fn is_full(&self) -> bool {
        self.pending.entries.len() >= PENDING_MAX
    }

    /// An Interest goes on.
    pub(super) fn add(&mut self, now: Instant, asked: ShapedInterest) {
        let ShapedInterest { hash, is_prefix, flow, lifetime_ns } = asked;
        let until = now.plus_ns(lifetime_ns.min(PENDING_NS_MAX));
        if let Some(index) = self.pending.find(hash) {
            self.pending.extend(index, until);
            return self.remove_if_idle(flow);
        }
        let late_at = now.plus_ns(LATE_NS).min(until);
        self.pending.insert(PendingEntry { hash, flow, is_prefix, is_late: false, until }, late_at);
        let data_bytes = {
            let flow = self.flow(flow);
            flow.pending += 1;
            flow.data_bytes
        };
        self.expected_bytes += data_bytes;
    }

    /// Data or a Nack is about to join the `queue_bytes` that wait to leave. `data_bytes`: of the
    /// Data; 0 for a Nack.
    pub(super) fn on_answer(&mut self, packet: &[u8], data_bytes: u64, queue_bytes: u64) {
        self.set_queue(queue_bytes);
        let Some(name) = name_of(packet) else { return };
        let answered = self.pending.take_answered(&self.key, name, data_bytes > 0);
        let flow = match answered {
            Some(entry) => {
                // A Nack tells nothing of what others bring: who gets some at will would be let in.
                let brought = (data_bytes > 0).then_some(data_bytes);
                self.end_pending(&entry, brought);
                Some(entry.flow)
            }
            None => self.find(self.key.hash(name.prefix(self.components).value())),
        };
        if data_bytes == 0 {
            flow.into_iter().for_each(|flow| self.remove_if_idle(flow));
            return;
        }
        self.data_bytes = averaged(self.data_bytes, data_bytes);
        let flow = flow.unwrap_or(OVERFLOW_FLOW);
        self.flow(flow).queued_bytes += data_bytes;
        self.queued_bytes += data_bytes;
        match self.queued.back_mut() {
            Some((last, bytes)) if *last == flow => *bytes += data_bytes,
            _ => self.queued.push_back((flow, data_bytes)),
        }
    }

    /// An Interest counts no longer. It brought `data_bytes`, which tells what others of its flow
    /// will, where anything does.
    fn end_pending(&mut self, entry: &PendingEntry, data_bytes: Option<u64>) {
        let flow = self.flow(entry.flow);
        let before = flow.expected_bytes();
        flow.pending -= 1;
        flow.late -= u64::from(entry.is_late);
        if let Some(data_bytes) = data_bytes {
            flow.data_bytes = averaged(flow.data_bytes, data_bytes);
        }
        let after = flow.expected_bytes();
        self.expected_bytes = self.expected_bytes - before + after;
    }

    /// `queue_bytes` wait to leave now.
    fn set_queue(&mut self, queue_bytes: u64) {
        self.queue_bytes = queue_bytes;
        while let Some(&(flow, bytes)) = self.queued.front()
            && self.queued_bytes > queue_bytes
        {
            let left_bytes = bytes.min(self.queued_bytes - queue_bytes);
            self.queued_bytes -= left_bytes;
            self.flow(flow).queued_bytes -= left_bytes;
            if left_bytes == bytes {
                self.queued.pop_front();
                self.remove_if_idle(flow);
            } else if let Some((_, front_bytes)) = self.queued.front_mut() {
                *front_bytes -= left_bytes;
            }
        }
    }

    /// The present: `queue_bytes` wait to leave, and some Interests are answered no more.
    pub(super) fn advance(&mut self, now: Instant, queue_bytes: u64) {
        self.now = now;
        self.set_queue(queue_bytes);
        let mut expired = mem::take(&mut self.pending.expired);
        self.pending.timers.advance(now, &mut expired);
        for index in expired.drain(..) {
            self.on_late(now, index);
        }
        self.pending.expired = expired;
    }

    /// An Interest was not answered in time, or will be no more.
    fn on_late(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.pending.entries.get_mut(index) else { return };
        let (flow, until) = (entry.flow, entry.until);
        let was_late = mem::replace(&mut entry.is_late, true);
        if !was_late {
            let flow = self.flow(flow);
            flow.late += 1;
            let data_bytes = flow.data_bytes;
            self.expected_bytes -= data_bytes;
        }
        self.flow(flow).capped_until = now.min(until).plus_ns(CAP_NS);
        if now < until {
            return self.pending.timers.schedule(index, until);
        }
        let entry = self.pending.remove(index);
        self.end_pending(&entry, None);
        self.remove_if_idle(flow);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let queued = self.queued.capacity() * size_of::<(u32, u64)>();
        let holds = self.caps.capacity() * size_of::<(u64, Instant)>();
        let flows = self.by_hash.memory_bytes() + self.flows.memory_bytes();
        (queued + holds + flows + self.pending.memory_bytes()) as u64
    }

    /// Forgets what is under way. Who waits stays.
    pub(super) fn clear(&mut self) {
        let idle: Vec<u32> = self
            .flows
            .iter_mut()
            .filter_map(|(index, flow)| {
                (flow.pending, flow.late, flow.queued_bytes) = (0, 0, 0);
                flow.is_idle().then_some(index)
            })
            .collect();
        idle.into_iter().for_each(|flow| self.remove_if_idle(flow));
        (self.expected_bytes, self.queue_bytes, self.queued_bytes) = (0, 0, 0);
        (self.pending, self.queued, self.caps) = Default::default();
    }

    /// Gives back the memory that only a busier time needed.
    pub(super) fn shrink(&mut self) {
        if self.pending.entries.is_empty() {
            self.pending = Pending::default();
        }
        if self.queued.is_empty() {
            self.queued = VecDeque::new();
        }
        self.caps.retain(|&(_, until)| until > self.now);
        self.caps.shrink_to_fit();
    }
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            by_hash: Table::default(),
            entries: Slab::new(),
            timers: TimerWheel::new(NS_PER_MS, Instant::ZERO),
            expired: Vec::new(),
            prefixes: 0,
        }
    }
}

impl Pending {
    fn find(&self, hash: u64) -> Option<u32> {
        self.by_hash.find(hash, |index| self.entries.get(index).is_some_and(|it| it.hash == hash))
    }

    fn insert(&mut self, entry: PendingEntry, late_at: Instant) {
        self.prefixes += usize::from(entry.is_prefix);
        let hash = entry.hash;
        let index = self.entries.insert(entry);
        self.by_hash.insert(hash, index);
        self.timers.schedule(index, late_at);
    }

    /// Another Interest of the same name goes on.
    fn extend(&mut self, index: u32, until: Instant) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        entry.until = entry.until.max(until);
        if entry.is_late {
            self.timers.schedule(index, entry.until);
        }
    }

    fn memory_bytes(&self) -> usize {
        let expired = self.expired.capacity() * size_of::<u32>();
        self.by_hash.memory_bytes()
            + self.entries.memory_bytes()
            + expired
            + self.timers.memory_bytes()
    }

    fn remove(&mut self, index: u32) -> PendingEntry {
        let entry = self.entries.remove(index);
        self.by_hash.remove(entry.hash, index);
        self.timers.cancel(index);
        self.prefixes -= usize::from(entry.is_prefix);
        entry
    }

    /// Takes out the Interest that a Data of this name answers, or a Nack (`is_data` false).
    fn take_answered(
        &mut self,
        key: &HashKey,
        name: NameView<'_>,
        is_data: bool,
    ) -> Option<PendingEntry> {
        let index = self.find(key.hash(name.value())).or_else(|| {
            let shorter = if is_data && self.prefixes > 0 { name.component_count() } else { 0 };
            (1..shorter).rev().find_map(|count| {
                let index = self.find(key.hash(name.prefix(count).value()))?;
                self.entries.get(index).is_some_and(|entry| entry.is_prefix).then_some(index)
            })
        })?;
        Some(self.remove(index))
    }
}

/// A moving average with one more value. What is nothing for long has the average 0.
fn averaged(average: u64, value: u64) -> u64 {
    average - average.div_ceil(AVERAGE_OVER) + value.div_ceil(AVERAGE_OVER)
}

/// The name of an Interest or Data, which comes first in it.
fn name_of(packet: &[u8]) -> Option<NameView<'_>> {
    let (_, body) = tlv::read_single(packet).ok()?;
    let first = tlv::Reader::new(body).next_element().ok()??;
    if first.typ != tlv::NAME {
        return None;
    }
    let name = NameView::from_value(first.value).ok()?;
    // A Nack bears the whole Interest, the digest of the Data that it asked for included.
    Some(if name.last()?.is_implicit_digest() { name.parent() } else { name })
}
