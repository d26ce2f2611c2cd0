use super::s3fifo::{S3Fifo, SPARED_MAX, USES_MAX, USES_TO_PROMOTE};
use super::{IncomingData, segment_of};
use crate::disk::segment_at_end;
use crate::entry::{Entry, List, NONE, PolicyLinks};
use alloc::boxed::Box;
use weir_base::Slab;

/// Flag in `policy_state`: the entry is in the window.
const WINDOW: u32 = 1 << 16;
/// Flag in `policy_state`: the entry was inserted while its object was scanned in order.
const IN_ORDER: u32 = 1 << 17;
/// The window takes one part in this many of the store.
const WINDOW_SHARE: u64 = 32;
/// The window's minimum while readers lag, counted in the same way.
const MIN_WINDOW_SHARE: u64 = 512;
/// Objects that are tracked at a time. Each node of the prefix tree maps to one slot.
const TRACKED_OBJECTS: usize = 256;
/// The order score from which an object counts as scanned in order, and the largest score.
const ORDER_MIN: u8 = 32;
const ORDER_MAX: u8 = 64;
/// The longest step forward. A shard sees only every n-th range of 64 segments of an object, so its
/// steps grow with the number of shards.
const STEP_MAX: u64 = 4096;
/// Hits on kept segments of an object after which its other segments count as requested again, too.
const USES_MIN: u32 = 64;
/// Distance within which a segment behind the front is a reordered packet.
const REORDER_MAX: u64 = 64;
/// Consecutive insertions behind the front after which the front moves back to them. The number is
/// a part of the store, `BEHIND_SHARE`, but at least `BEHIND_MIN`.
const BEHIND_MIN: u64 = 32;
const BEHIND_SHARE: u64 = 16;
/// Positions of readers behind the front that are remembered, and the longest step of a reader.
const READERS: usize = 4;
const READER_STEP_MAX: u64 = 16;
/// Each detected miss of a lagging reader adds `LAG_STEP` to the lag score. Each step of the front
/// takes off one; in a large store, only one step in several does. From `LAG_MIN` on, the policy
/// keeps the object's end.
const LAG_STEP: u32 = 1 << 10;
const LAG_MIN: u32 = 1 << 14;
/// A store of this many entries takes one point off for each step, one of twice the size for every
/// other step, and so on.
const LAG_ENTRIES: u64 = 1 << 12;
/// After the front has jumped back, steps forward by this part of the store mean that a consumer
/// reads the object again from there.
const RESTART_SHARE: u64 = 16;
/// If this many times the store's entries pass through the window without a hit on a kept segment,
/// the object is a stream.
const PASSES_MAX: u64 = 8;

/// S3-FIFO that keeps part of an object larger than the store ("parts").
///
/// # The problem
///
/// A file of 2,000 segments is read in a loop through a store of 1,000. FIFO and LRU evict each
/// segment 1,000 insertions before it is requested again: no hit at all. S3-FIFO has none either,
/// since its ghost list remembers only the last 900 names. Keeping *any* 1,000 segments and letting
/// the rest pass would hit 50 %.
///
/// # The idea
///
/// Watch, for each object, whether its segments are inserted in ascending order. When such a scan
/// is about to evict its own segments, keep what is stored. Send the new segments through a
/// *window*, a FIFO of a 32nd of the store. All other data is left to S3-FIFO.
///
/// # Steps
///
/// 1. [`Parts::track_segment`] sees every inserted segment. A step forward of 1 to 4,096 adds one
///    to the object's `order_score`, a late packet takes off two. From 32 points on it is a *scan*.
/// 2. [`Parts::take_victim`] evicts for the next insertion. If that belongs to a scan and the next
///    victim of S3-FIFO belongs to the same scan, the object is *oversized*. The insertion then
///    goes to the window, and the window's oldest entry is evicted for it.
/// 3. While the window is smaller than a 32nd of the store, it grows instead. The victim is the
///    scan's newest entry in the small queue, so the beginning of the object stays.
/// 4. A scan whose segments have been hit before (64 hits, or a remembered name) may also evict
///    other data from the main queue. Its segment then goes there. So a popular file replaces
///    unused data.
/// 5. An entry that was used twice in the window moves to the main queue. When other data needs
///    space, the entries of the window join the small queue, one for each eviction.
/// 6. If eight times the store has passed without a hit on a kept segment, the object is read once
///    only (`is_stream`). From then on, it is left to S3-FIFO like other data.
///
/// In the example: segments 0 to 999 fill the store. Segment 1,000 finds that the next victim is
/// segment 0 of its own scan. Segments 999, 998, ... 968 are evicted while the window grows to 32
/// entries. From then on, each new segment evicts the oldest of the window. The next round hits
/// segments 0 to 967, which is 48 %.
///
/// # Lagging readers
///
/// Readers of a live stream request its end, not its beginning. Suppose that one consumer is at
/// segment 50,000 (the *front*) and another one at 49,500. That is within reach of a plain store of
/// 1,000 segments, but beyond a window of 32. The second one misses each time. The policy detects
/// it:
///
/// 1. `lagging_readers` holds four positions behind the front. A segment that is 1 to 16 above one
///    of them continues that reader; any other segment behind the front is a late packet.
/// 2. The first miss of such a reader after each step of the front adds [`LAG_STEP`] to
///    `lag_score`. Each step of the front takes off one (fewer in a large store). About sixteen
///    misses reach [`LAG_MIN`].
/// 3. From then on the end is kept. Segments that lie a whole store behind the front are evicted
///    first, and what the lagging readers fetch again passes through the window.
/// 4. The front may jump back by a whole store and proceed from there for a 16th of the store. Then
///    the object is read again from its beginning, and `lag_score` returns to 0.
///
/// A shard of a router sees only some ranges of 64 segments. `segments_covered / steps` says how
/// many segments one step leads over, and scales the reach of the store accordingly.
///
/// # It must never
///
/// - allocate for an entry,
/// - look at more than a bounded number of entries for a victim,
/// - do worse than S3-FIFO for data that is not inserted in order,
/// - keep an object that is never read again.
pub(crate) struct Parts {
    base: S3Fifo,
    window: List<PolicyLinks>,
    window_bytes: u64,
    /// By node number, modulo the size.
    objects: Box<[TrackedObject; TRACKED_OBJECTS]>,
    /// The number of insertions so far.
    clock: u32,
    /// Where the next insertion goes. `take_victim` sets it, `on_insert` uses it.
    destination: Destination,
}

#[derive(Copy, Clone)]
enum Destination {
    /// Where S3-FIFO would put it.
    Default,
    /// Into the window, past the kept segments.
    Window,
    /// Into the main queue.
    Main,
}

/// What is known of an object with recent insertions.
#[derive(Copy, Clone)]
struct TrackedObject {
    node: u32,
    /// Steps forward, less two for each late packet.
    order_score: u8,
    /// A scan of it was about to evict its own segments.
    is_oversized: bool,
    /// It is read once only. S3-FIFO handles it.
    is_stream: bool,
    /// The highest segment of the scan.
    front: u64,
    /// Insertions behind the front since the last step forward.
    steps_behind: u64,
    /// Positions of readers behind the front, the latest first.
    lagging_readers: [u64; READERS],
    /// The evidence for lagging readers. See [`LAG_STEP`].
    lag_score: u32,
    /// A lagging reader was counted since the last step forward.
    is_lag_counted: bool,
    /// Steps forward since the front jumped back by a whole store.
    steps_since_restart: Option<u64>,
    /// Steps forward, and the segments that they lead over.
    steps: u64,
    segments_covered: u64,
    /// The clock at its last insertion.
    last_active: u32,
    /// Hits on segments that were inserted in order.
    hits: u32,
    /// Segments that went through the window since the last hit on a kept one.
    diverted: u64,
}

impl TrackedObject {
    const NONE: Self = Self {
        node: NONE,
        order_score: 0,
        is_oversized: false,
        is_stream: false,
        front: 0,
        steps_behind: 0,
        lagging_readers: [u64::MAX; READERS],
        lag_score: 0,
        is_lag_counted: false,
        steps_since_restart: None,
        steps: 1,
        segments_covered: 1,
        last_active: 0,
        hits: 0,
        diverted: 0,
    };

    fn is_in_order(&self) -> bool {
        self.order_score >= ORDER_MIN && !self.has_lagging_readers() && !self.is_stream
    }

    /// Whether readers lag behind the front, so the end is kept.
    fn has_lagging_readers(&self) -> bool {
        self.lag_score >= LAG_MIN
    }

    /// Whether a segment is the next one of a known reader behind the front. In any case remembers
    /// its position: in place of that reader's last position, or of the oldest one.
    fn continues_reader(&mut self, segment: u64) -> bool {
        let is_next = |at: &u64| (1..=READER_STEP_MAX).contains(&segment.wrapping_sub(*at));
        let known = self.lagging_readers.iter().position(is_next);
        self.lagging_readers[..=known.unwrap_or(READERS - 1)].rotate_right(1);
        self.lagging_readers[0] = segment;
        known.is_some()
    }

    /// A reader far behind the front missed a segment. Counts once for each step of the front.
    fn count_lag(&mut self) {
        if !core::mem::replace(&mut self.is_lag_counted, true) && !self.has_lagging_readers() {
            self.lag_score += LAG_STEP;
            self.steps_since_restart = None;
        }
    }

    /// The front moved forward by `forward` segments.
    fn advance(&mut self, forward: u64, entries: u64) {
        self.order_score = (self.order_score + 1).min(ORDER_MAX);
        self.front = self.front.wrapping_add(forward);
        self.steps += 1;
        self.segments_covered += forward;
        self.steps_behind = 0;
        self.is_lag_counted = false;
        if !self.has_lagging_readers() {
            let is_counted = self.steps.is_multiple_of(1 + entries / LAG_ENTRIES);
            self.lag_score = self.lag_score.saturating_sub(is_counted.into());
            return;
        }
        self.steps_since_restart = self.steps_since_restart.map(|steps| steps + 1);
        if self.steps_since_restart.is_some_and(|steps| steps > entries / RESTART_SHARE) {
            self.lag_score = 0;
        }
    }

    /// Whether a segment lies so far behind the front that the window no longer has it, but a plain
    /// queue of the whole store would.
    fn is_beyond_window(&self, segment: u64, entries: u64) -> bool {
        let reach = self.reach(entries);
        (REORDER_MAX.max(reach / WINDOW_SHARE)..reach).contains(&self.front.wrapping_sub(segment))
    }

    /// Whether a segment lies so far behind the front that no queue would still have it.
    fn is_beyond_store(&self, segment: u64, entries: u64) -> bool {
        self.front.checked_sub(segment).is_some_and(|back| back >= self.reach(entries))
    }

    /// How many segments behind the front a plain queue of `entries` entries reaches. Steps longer
    /// than 1 mean that other shards hold the segments between.
    fn reach(&self, entries: u64) -> u64 {
        entries.saturating_mul(self.segments_covered) / self.steps
    }
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            base: S3Fifo::new(),
            window: List::EMPTY,
            window_bytes: 0,
            objects: Box::new([TrackedObject::NONE; TRACKED_OBJECTS]),
            clock: 0,
            destination: Destination::Default,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.base.prefetch(hash);
    }

    #[inline]
    fn object(&self, node: u32) -> Option<&TrackedObject> {
        Some(&self.objects[node as usize % TRACKED_OBJECTS]).filter(|object| object.node == node)
    }

    #[inline]
    fn object_mut(&mut self, node: u32) -> Option<&mut TrackedObject> {
        Some(&mut self.objects[node as usize % TRACKED_OBJECTS])
            .filter(|object| object.node == node)
    }

    #[inline]
    pub(super) fn on_new_object(&mut self, node: u32) {
        if let Some(object) = self.object_mut(node) {
            *object = TrackedObject::NONE;
        }
    }

    #[inline(always)]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.clock = self.clock.wrapping_add(1);
        let destination = core::mem::replace(&mut self.destination, Destination::Default);
        let entry = &entries[index];
        let is_in_order = match segment_of(entry) {
            Some(segment) => self.track_segment(entry.node, segment, entries.len() as u64),
            None => false,
        };
        match destination {
            Destination::Default => self.base.on_insert(entries, index),
            Destination::Main => self.base.push_main(entries, index),
            Destination::Window => {
                entries[index].policy_state = WINDOW;
                self.window_bytes += entries[index].memory_bytes();
                self.window.push_back(entries, index);
            }
        }
        if is_in_order {
            entries[index].policy_state |= IN_ORDER;
        }
    }

    /// Forgets the destination that `take_victim` chose: the Data was pinned, so `on_insert` is not
    /// called for it.
    #[inline]
    pub(super) fn on_insert_skipped(&mut self) {
        self.destination = Destination::Default;
    }

    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.destination, Destination::Default)
    }

    /// Notes the insertion of a segment of the object at `node`. Returns whether the object is
    /// scanned in order.
    #[inline]
    fn track_segment(&mut self, node: u32, segment: u64, entries: u64) -> bool {
        let clock = self.clock;
        let object = &mut self.objects[node as usize % TRACKED_OBJECTS];
        if object.node != node {
            // Another object has the slot. It loses the slot once insertions of others have used up
            // its score.
            object.order_score = object.order_score.saturating_sub(1);
            if object.order_score == 0 {
                *object = TrackedObject {
                    node,
                    front: segment,
                    last_active: clock,
                    ..TrackedObject::NONE
                };
            }
            return false;
        }
        // The distance in each direction; the wrong one wraps around.
        let (forward, back) =
            (segment.wrapping_sub(object.front), object.front.wrapping_sub(segment));
        if (1..=STEP_MAX).contains(&forward) {
            object.advance(forward, entries);
        } else {
            let reach = object.reach(entries);
            if !object.continues_reader(segment) {
                // A late packet, and no reader.
                object.order_score = object.order_score.saturating_sub(2);
            } else if object.is_oversized && (REORDER_MAX..reach).contains(&back) {
                object.count_lag();
            }
            // The front follows a jump back by a whole store at once. It follows a shorter one only
            // if nothing arrives at the front any more.
            object.steps_behind += 1;
            if back >= reach {
                object.steps_since_restart = Some(0);
            }
            if back >= reach || object.steps_behind >= BEHIND_MIN.max(entries / BEHIND_SHARE) {
                object.steps_behind = 0;
                object.front = segment;
            }
        }
        object.last_active = clock;
        object.order_score >= ORDER_MIN
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.base.on_hit(entries, index);
        let entry = &entries[index];
        if entry.policy_state & IN_ORDER != 0 {
            let is_kept = entry.policy_state & WINDOW == 0;
            if let Some(object) = self.object_mut(entry.node) {
                object.hits = object.hits.saturating_add(1);
                if is_kept {
                    object.diverted = 0;
                }
            }
        }
    }

    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        match entries[index].policy_state & WINDOW {
            0 => self.base.on_remove(entries, index),
            _ => self.unlink(entries, index),
        }
    }

    fn unlink(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.window_bytes -= entries[index].memory_bytes();
        self.window.unlink(entries, index);
    }

    #[inline(always)]
    pub(super) fn take_victim(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
    ) -> Option<u32> {
        // Other data needs memory: the oldest entry of the window joins the small queue, to age
        // with the rest.
        let oldest = self.window.head();
        if oldest != NONE && !self.is_same_scan(entries, oldest, incoming.node) {
            self.unlink(entries, oldest);
            let state = entries[oldest].policy_state;
            self.base.push_small(entries, oldest);
            entries[oldest].policy_state = state & !WINDOW;
        }
        // At most one of these applies. Each may leave the choice to S3-FIFO.
        if self.object(incoming.node).is_some_and(TrackedObject::is_in_order)
            && let Some(victim) = self.take_victim_for_scan(entries, incoming)
        {
            return Some(victim);
        }
        if let Some(&object) =
            self.object(incoming.node).filter(|object| object.has_lagging_readers())
            && let Some(victim) = self.take_victim_for_lagging(entries, incoming, &object)
        {
            return Some(victim);
        }
        self.take_default_victim(entries)
    }

    /// The victim of S3-FIFO, or one from the window if nothing else is left.
    fn take_default_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        if let Some(victim) = self.base.take_victim(entries) {
            return Some(victim);
        }
        // Used entries of the window move to the main queue on the way, so S3-FIFO may have one
        // now.
        self.take_from_window(entries).or_else(|| self.base.take_victim(entries))
    }

    /// The victim for a segment of an object with lagging readers; `None` leaves the choice to
    /// S3-FIFO. The end of the object takes memory from segments far behind the front and from the
    /// window. Segments that a lagging reader fetches again pass through the window: once the end
    /// is kept, no reader will miss them.
    #[inline(never)]
    fn take_victim_for_lagging(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
        object: &TrackedObject,
    ) -> Option<u32> {
        let count = entries.len() as u64;
        let segment = segment_at_end(incoming.name)?;
        if object.is_beyond_window(segment, count) {
            self.destination = Destination::Window;
            return self.take_from_window(entries);
        }
        // If S3-FIFO is about to evict segments that lie a whole store behind the front, evict them
        // first.
        for index in self.base.candidates() {
            let is_past = entries.get(index).is_some_and(|entry| {
                let segment = segment_of(entry);
                entry.node == incoming.node
                    && segment.is_some_and(|segment| object.is_beyond_store(segment, count))
            });
            if is_past {
                self.base.on_remove(entries, index);
                return Some(index);
            }
        }
        // Shrink the window to its minimum, so that the end of the stream gets its memory.
        let least = (self.base.bytes() + self.window_bytes) / MIN_WINDOW_SHARE;
        if self.window_bytes > least { self.take_from_window(entries) } else { None }
    }

    /// The victim for a segment of an object that is scanned in order; `None` leaves the choice to
    /// S3-FIFO.
    #[inline(never)]
    fn take_victim_for_scan(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
    ) -> Option<u32> {
        // The segment has proved useful. Either an earlier eviction for the same insertion found
        // so, or kept segments of its object are hit, or its name was evicted lately.
        let is_known = matches!(self.destination, Destination::Main)
            || self.object(incoming.node)?.hits >= USES_MIN
            || self.base.take_remembered(incoming.hash);
        if is_known {
            // The segment is worth more than unused data, but not more than segments of its own
            // scan.
            let head = self.base.main_head();
            if head != NONE && !self.is_same_scan(entries, head, incoming.node) {
                self.destination = Destination::Main;
                return self.base.take_from_main(entries);
            }
        }
        // Unless the scan is about to evict its own segments, S3-FIFO does the right thing.
        let next = self.base.next_candidate();
        let is_own = next == NONE || self.is_same_scan(entries, next, incoming.node);
        if !is_own && !is_known {
            return None;
        }
        self.divert_to_window(entries, incoming.node)
    }

    /// Whether an entry belongs to this object, or both belong to oversized objects that are being
    /// scanned now. Two scans must not evict each other's kept segments either.
    fn is_same_scan(&self, entries: &Slab<Entry>, index: u32, node: u32) -> bool {
        let other = entries[index].node;
        let is_live = |object: &TrackedObject| {
            let age = self.clock.wrapping_sub(object.last_active) as usize;
            object.is_oversized && object.is_in_order() && age < entries.len() / 4
        };
        let is_active_scan = |node| self.object(node).is_some_and(is_live);
        other == node || is_active_scan(node) && is_active_scan(other)
    }

    /// Evicts for an insertion into the window. While the window grows to its size, the victim is
    /// the scan's newest kept segment.
    fn divert_to_window(&mut self, entries: &mut Slab<Entry>, node: u32) -> Option<u32> {
        let entries_bytes = self.base.bytes() + self.window_bytes;
        let diverted_max = entries.len() as u64 * PASSES_MAX;
        let object = self.object_mut(node)?;
        object.is_oversized = true;
        object.diverted += 1;
        if object.diverted > diverted_max {
            // The kept segments are of no use: leave the object to S3-FIFO.
            object.is_stream = true;
            return None;
        }
        self.destination = Destination::Window;
        if self.window_bytes < entries_bytes / WINDOW_SHARE {
            // The window grows by the newest kept segment, so the beginning stays.
            let tail = self.base.small_tail();
            let is_own = entries.get(tail).is_some_and(|entry| entry.node == node);
            if is_own {
                self.base.on_remove(entries, tail);
                return Some(tail);
            }
            return self.take_default_victim(entries);
        }
        self.take_from_window(entries).or_else(|| self.base.take_victim(entries))
    }

    /// Removes and returns the oldest entry of the window. Used ones move to the main queue
    /// instead.
    fn take_from_window(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        for _ in 0..SPARED_MAX {
            let index = self.window.head();
            let uses = entries.get(index)?.policy_state & USES_MAX;
            self.unlink(entries, index);
            if uses < USES_TO_PROMOTE {
                self.base.remember(entries[index].hash);
                return Some(index);
            }
            self.base.push_main(entries, index);
        }
        None
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        match (self.window.head(), self.base.candidates()) {
            (NONE, candidates) => candidates,
            (oldest, [small, _]) => [oldest, small],
        }
    }
}
