//! The terms of Eq. 2 (paper chopcop) for the face and for each flow: Data that waits to leave, and
//! Data that Interests have requested.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Slab, Table, TimerWheel};
use weir_wire::{InterestView, NameView, tlv};

use super::config::scaled;

/// Maximum number of flows; further names share one. The paper expects hundreds.
const FLOWS_MAX: usize = 1024;
/// The flow of all names beyond [`FLOWS_MAX`] flows.
const OVERFLOW_FLOW: u32 = 0;
/// Maximum number of unanswered Interests that are counted. At this number, new Interests are
/// delayed.
const PENDING_MAX: usize = 1 << 16;
/// Longest time that an Interest counts: NDN's default lifetime. If it is unanswered by then, its
/// Data waits elsewhere or will never arrive.
const PENDING_NS_MAX: u64 = 4 * NS_PER_S;
/// An Interest that is unanswered for this long is late. This is longer than a round trip, even on
/// long paths.
const LATE_NS: u64 = 500 * NS_PER_MS;
/// How long a flow is limited to its share after one of its Interests was late. This equals the
/// time that unanswered Interests count, so earlier ones have expired by then.
const CAP_NS: u64 = PENDING_NS_MAX;
/// Expected size of Data before any was seen: a common segment.
const DATA_BYTES_FIRST: u64 = 8192;
/// Minimum cost of an Interest to its flow: a Nack.
const COST_BYTES_MIN: u64 = 64;
/// 1 / weight of a new value in a moving average.
const AVERAGE_OVER: u64 = 8;

/// Estimates how much of the queue towards the downstream each flow of a face needs.
#[derive(Debug)]
pub(super) struct Flows {
    key: HashKey,
    components: usize,
    by_hash: Table,
    /// [`OVERFLOW_FLOW`] always exists. Any other flow exists only while it has Interests or queued
    /// Data.
    flows: Slab<Flow>,
    pending: Pending,
    /// Expected Data of all flows: q_i.
    expected_bytes: u64,
    /// Bytes that wait to leave: q_d.
    queue_bytes: u64,
    /// Flow and size of queued Data, in order. The queue is assumed to be first in, first out, so
    /// it always contains the most recent of these.
    queued: VecDeque<(u32, u64)>,
    queued_bytes: u64,
    /// Moving average of the size of all Data.
    data_bytes: u64,
    /// Removed flows that are still limited to their share: their hash, and until when. Oldest
    /// first.
    caps: VecDeque<(u64, Instant)>,
    /// The time of the last [`Self::advance`].
    now: Instant,
}

#[derive(Debug)]
struct Flow {
    hash: u64,
    /// Unanswered Interests that have passed, and how many of them are late.
    pending: u64,
    late: u64,
    /// Until then the flow is limited to its share.
    capped_until: Instant,
    queued_bytes: u64,
    /// Moving average of the Data size of its Interests.
    data_bytes: u64,
    /// Number of its delayed Interests.
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

    /// Data that the face must expect. Late Interests may never be answered, so they do not count.
    fn expected_bytes(&self) -> u64 {
        (self.pending - self.late) * self.data_bytes
    }
}

/// Unanswered Interests that have passed, by the hash of their Data's name. The hash has 64 bits
/// and a secret key, so it can replace the name.
#[derive(Debug)]
struct Pending {
    by_hash: Table,
    entries: Slab<PendingEntry>,
    /// The time when each becomes late, and then when it stops counting.
    timers: TimerWheel,
    expired: Vec<u32>,
    /// Number of Interests that Data with a longer name may answer.
    prefixes: usize,
}

#[derive(Debug)]
struct PendingEntry {
    hash: u64,
    flow: u32,
    is_prefix: bool,
    is_late: bool,
    /// When it stops counting.
    until: Instant,
}

/// An Interest that shaping may delay.
#[derive(Copy, Clone, Debug)]
pub(super) struct ShapedInterest {
    /// The hash of its Data's name.
    hash: u64,
    is_prefix: bool,
    pub(super) flow: u32,
    pub(super) lifetime_ns: u64,
}

impl Flows {
    /// `components` leading components of a name identify its flow.
    pub(super) fn new(key: HashKey, components: u32) -> Self {
        let mut flows = Slab::new();
        let overflow = flows.insert(Flow::new(0, DATA_BYTES_FIRST));
        assert_eq!(overflow, OVERFLOW_FLOW, "a slab begins with 0");
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

    /// Classifies an Interest. `None` if it must never be delayed: a name under `/localhost` or
    /// `/localhop`, such as management, or a malformed packet, which the forwarder drops. Its flow
    /// exists from now on, see [`Self::remove_if_idle`].
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
        // A flow that returns is still limited to its share.
        if let Some(at) = self.caps.iter().position(|&(known, _)| known == hash) {
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
        self.flows.get_mut(flow).expect("a flow exists while it needs something")
    }

    /// Removes a flow that needs nothing. If the flow is limited to its share, the limit is
    /// remembered, so that going idle does not lift it.
    pub(super) fn remove_if_idle(&mut self, flow: u32) {
        if flow != OVERFLOW_FLOW && self.flow(flow).is_idle() {
            let Flow { hash, capped_until, .. } = self.flows.remove(flow);
            self.by_hash.remove(hash, flow);
            if capped_until > self.now {
                if self.caps.len() >= FLOWS_MAX {
                    self.caps.pop_front();
                }
                self.caps.push_back((hash, capped_until));
            }
        }
    }

    /// Number of flows with Interests or queued Data, n of the paper; at least 1.
    pub(super) fn count(&self) -> u64 {
        let has_overflow =
            self.flows.get(OVERFLOW_FLOW).is_some_and(|overflow| !overflow.is_idle());
        (self.flows.len() as u64 - u64::from(!has_overflow)).max(1)
    }

    /// The number of delayed Interests of a flow.
    pub(super) fn delayed(&mut self, flow: u32) -> &mut u32 {
        &mut self.flow(flow).delayed
    }

    /// What an Interest of a flow costs the flow: the expected bytes of its Data.
    pub(super) fn cost_bytes(&self, flow: u32) -> u64 {
        let data_bytes = self.flows.get(flow).map_or(0, |flow| flow.data_bytes);
        data_bytes.max(COST_BYTES_MIN)
    }

    /// Q of the face now (Eq. 2). `gamma` is in thousandths.
    pub(super) fn required_bytes(&self, gamma: u32) -> u64 {
        self.queue_bytes.saturating_add(scaled(self.expected_bytes, gamma))
    }

    /// Q_j: Q for one flow.
    pub(super) fn required_bytes_of(&self, flow: u32, gamma: u32) -> u64 {
        let Some(flow) = self.flows.get(flow) else { return 0 };
        flow.queued_bytes.saturating_add(scaled(flow.expected_bytes(), gamma))
    }

    /// Whether a flow must wait although the face has room. This has two conditions. Some of its
    /// Interests were late. And its unanswered Interests, including late ones, may already bring
    /// its share of `max_bytes`. One Interest at a time may always pass.
    ///
    /// Late Interests do not count for the face. Otherwise names without Data would use all the
    /// room, and no Data would ever free it. But a producer could delay its Data on purpose and
    /// then send all of it together. This limit keeps such a flow at its share.
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
        // One more flow may appear at any time.
        flow.queued_bytes.saturating_add(open_bytes) >= max_bytes / (self.count() + 1)
    }

    /// Whether an Interest for the same name has passed and is unanswered. One Data packet answers
    /// both.
    pub(super) fn is_pending(&self, interest: &ShapedInterest) -> bool {
        self.pending.find(interest.hash).is_some()
    }

    /// Whether no further Interest can be counted.
    pub(super) fn is_full(&self) -> bool {
        self.pending.entries.len() >= PENDING_MAX
    }

    /// An Interest passes.
    pub(super) fn add(&mut self, now: Instant, interest: ShapedInterest) {
        let ShapedInterest { hash, is_prefix, flow, lifetime_ns } = interest;
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

    /// Data or a Nack is about to join the `queue_bytes` that wait to leave. `data_bytes` is the
    /// size of the Data, or 0 for a Nack.
    pub(super) fn on_answer(&mut self, packet: &[u8], data_bytes: u64, queue_bytes: u64) {
        self.set_queue(queue_bytes);
        let Some(name) = name_of(packet) else { return };
        // An answer without a known Interest still counts for the flow of its name.
        let answered = self.pending.take_answered(&self.key, name, data_bytes > 0);
        let flow = match answered {
            Some(entry) => {
                // A Nack must not lower the average. Otherwise a flow could cause Nacks to get more
                // Interests through.
                let received_bytes = (data_bytes > 0).then_some(data_bytes);
                self.end_pending(&entry, received_bytes);
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
        // Consecutive Data of one flow shares an entry.
        self.queued_bytes += data_bytes;
        match self.queued.back_mut() {
            Some((last, bytes)) if *last == flow => *bytes += data_bytes,
            _ => self.queued.push_back((flow, data_bytes)),
        }
    }

    /// An Interest no longer counts. `data_bytes` is the size of its Data, if any, and updates the
    /// average of its flow.
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

    /// Sets the number of bytes that wait to leave.
    fn set_queue(&mut self, queue_bytes: u64) {
        self.queue_bytes = queue_bytes;
        // If the queue has become shorter than the recorded Data, the oldest Data has left it.
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

    /// Advances the time to `now`, sets the queue, and handles Interests that have become late or
    /// expired.
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

    /// An Interest has become late, or has expired.
    fn on_late(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.pending.entries.get_mut(index) else { return };
        let (flow, until) = (entry.flow, entry.until);
        let was_late = mem::replace(&mut entry.is_late, true);
        // Each entry has one timer. It fires once when the Interest is late, and again when it
        // stops counting.
        if !was_late {
            let flow = self.flow(flow);
            flow.late += 1;
            let data_bytes = flow.data_bytes;
            self.expected_bytes -= data_bytes;
        }
        // If this call is late, the limit counts from the expiry, not from the call.
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
        let caps = self.caps.capacity() * size_of::<(u64, Instant)>();
        let flows = self.by_hash.memory_bytes() + self.flows.memory_bytes();
        (queued + caps + flows + self.pending.memory_bytes()) as u64
    }

    /// Forgets unanswered Interests and queued Data. Delayed Interests stay.
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

    /// Frees memory that only a busier time needed.
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

    /// Another Interest for the same name has passed.
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

    /// Takes the Interest that this Data or Nack answers. Only Data (`is_data`) may answer an
    /// Interest with a shorter name.
    fn take_answered(
        &mut self,
        key: &HashKey,
        name: NameView<'_>,
        is_data: bool,
    ) -> Option<PendingEntry> {
        let index = self.find(key.hash(name.value())).or_else(|| {
            let shorter = if is_data && self.prefixes > 0 { name.component_count() } else { 0 };
            // The longest prefix that an Interest with CanBePrefix has requested.
            (1..shorter).rev().find_map(|count| {
                let index = self.find(key.hash(name.prefix(count).value()))?;
                self.entries.get(index).is_some_and(|entry| entry.is_prefix).then_some(index)
            })
        })?;
        Some(self.remove(index))
    }
}

/// A moving average with one more value. It converges to 0 if the value stays 0.
fn averaged(average: u64, value: u64) -> u64 {
    average - average.div_ceil(AVERAGE_OVER) + value.div_ceil(AVERAGE_OVER)
}

/// The name of an Interest or Data. It is the first element of the packet.
fn name_of(packet: &[u8]) -> Option<NameView<'_>> {
    let (_, body) = tlv::read_single(packet).ok()?;
    let first = tlv::Reader::new(body).next_element().ok()??;
    if first.typ != tlv::NAME {
        return None;
    }
    let name = NameView::from_value(first.value).ok()?;
    // A Nack contains the whole Interest, including the digest of the requested Data.
    Some(if name.last()?.is_implicit_digest() { name.parent() } else { name })
}
