use super::s3fifo::{S3Fifo, SPARED_MAX, USES_MAX, USES_TO_PROMOTE};
use super::{IncomingData, segment_of};
use crate::disk::segment_at_end;
use crate::entry::{Entry, List, NONE, PolicyLinks};
use alloc::boxed::Box;
use weir_base::Slab;

/// In an entry's mark: it is in the window.
const WINDOW: u32 = 1 << 16;
/// In an entry's mark: it came while its object was read in order.
const IN_ORDER: u32 = 1 << 17;
/// The share of the store that objects which do not fit pass through.
const WINDOW_SHARE: u64 = 32;
/// What is left of that while readers lag.
const MIN_WINDOW_SHARE: u64 = 512;
/// Objects that are watched at once.
const TRACKED_OBJECTS: usize = 256;
/// Steps forward, less steps back, after which an object counts as read in order; and their most.
const ORDER_MIN: u8 = 32;
const ORDER_MAX: u8 = 64;
/// The longest step forward: several shards have every so manieth range of 64 segments.
const STEP_MAX: u64 = 4096;
/// Uses of what is kept of an object after which the rest of it is taken for asked for again.
const USES_MIN: u32 = 64;
/// Segments of which a packet may have overtaken others.
const REORDER_MAX: u64 = 64;
/// Steps behind the front, none before it between them, after which the front is there: at least,
/// and as a part of the store.
const BEHIND_MIN: u64 = 32;
const BEHIND_SHARE: u64 = 16;
/// Readers behind the front that are told apart, and how far one goes on at once.
const READERS: usize = 4;
const READER_STEP_MAX: u64 = 16;
/// What a turn from the front to a reader far behind it counts for, where a step forward takes off
/// one, or one of several in a larger store; and the sum from which on its end is kept.
const LAG_STEP: u32 = 1 << 10;
const LAG_MIN: u32 = 1 << 14;
const LAG_ENTRIES: u64 = 1 << 12;
/// After so many steps forward from where it begins, as a part of the store, a reading counts as a
/// new one.
const RESTART_SHARE: u64 = 16;
/// How many times the store an object may pass without a use of what is kept of it.
const PASSES_MAX: u64 = 8;

/// S3-FIFO that keeps a part of an object larger than the store.
///
/// Read again and again in order, such an object pushes out each segment just before it is asked
/// for. So when segments of an object come in order and the next victim is one of its own, what is
/// there stays, and the rest passes through a window of a 32nd of the store, in which it lies long
/// enough to be asked for again by those who lost it. The best that can be done is to keep as much
/// as the store holds, whichever part; this keeps that less the window. Nothing else changes: data
/// that does not come in order, and objects of which others are pushed out, are S3-FIFO's.
///
/// Of a stream the end is wanted, not the beginning. Once readers lag behind the front by less than
/// the store, which shows in turns from the front to segments that have left and would not have
/// without a window, the end is kept, until the object is read anew: the beginning makes room for
/// it, and what readers miss meanwhile passes through the window. In the main queue, where S3-FIFO
/// puts what comes back, it would take the room that the end needs. An object goes by S3-FIFO for
/// good once eight times the store has passed without a use of what is kept.
pub(crate) struct Parts {
    base: S3Fifo,
    window: List<PolicyLinks>,
    window_bytes: u64,
    /// By node, one to a place.
    objects: Box<[TrackedObject; TRACKED_OBJECTS]>,
    /// Insertions so far.
    clock: u32,
    /// Where what comes next is put.
    destination: Destination,
}

#[derive(Copy, Clone)]
enum Destination {
    /// As S3-FIFO would.
    Default,
    /// Past what is kept.
    Window,
    /// Among what is used.
    Main,
}

/// An object of which segments came lately.
#[derive(Copy, Clone)]
struct TrackedObject {
    node: u32,
    /// Steps forward less steps back.
    order_score: u8,
    /// It has pushed out its own.
    is_oversized: bool,
    is_stream: bool,
    /// The segment at the front of those that came.
    front: u64,
    /// Steps behind the front since the last one before it.
    steps_behind: u64,
    /// Where readers behind the front are, the last first.
    lagging_readers: [u64; READERS],
    /// What turns to such readers count for.
    lag_score: u32,
    /// A reader far behind has asked since the last step forward.
    is_lag_counted: bool,
    /// Steps forward since the front has gone back beyond all of them.
    steps_since_restart: Option<u64>,
    /// Steps forward, and what they lead over.
    steps: u64,
    segments_covered: u64,
    /// When it did.
    last_active: u32,
    /// Uses of what came in order.
    hits: u32,
    /// What passed through the window since something kept was used.
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

    /// Readers lag behind its front: its end is kept.
    fn has_lagging_readers(&self) -> bool {
        self.lag_score >= LAG_MIN
    }

    /// Whether a segment is the next of a reader behind the front.
    fn continues_reader(&mut self, segment: u64) -> bool {
        let is_next = |at: &u64| (1..=READER_STEP_MAX).contains(&segment.wrapping_sub(*at));
        let known = self.lagging_readers.iter().position(is_next);
        self.lagging_readers[..=known.unwrap_or(READERS - 1)].rotate_right(1);
        self.lagging_readers[0] = segment;
        known.is_some()
    }

    /// A reader asks for what is far behind the front: once for each turn from there counts.
    fn count_lag(&mut self) {
        if !core::mem::replace(&mut self.is_lag_counted, true) && !self.has_lagging_readers() {
            self.lag_score += LAG_STEP;
            self.steps_since_restart = None;
        }
    }

    /// The front has gone on by a segment or some.
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

    /// Whether a segment is so far behind the front that only a store without window has it.
    fn is_beyond_window(&self, segment: u64, entries: u64) -> bool {
        let reach = self.reach(entries);
        (REORDER_MAX.max(reach / WINDOW_SHARE)..reach).contains(&self.front.wrapping_sub(segment))
    }

    /// Whether a segment is so far behind the front that no store has it.
    fn is_beyond_store(&self, segment: u64, entries: u64) -> bool {
        self.front.checked_sub(segment).is_some_and(|back| back >= self.reach(entries))
    }

    /// How many segments behind the front a queue of so many entries would reach: of several shards
    /// each has a part of them.
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
        let way = core::mem::replace(&mut self.destination, Destination::Default);
        let entry = &entries[index];
        let is_in_order = match segment_of(entry) {
            Some(segment) => self.track_segment(entry.node, segment, entries.len() as u64),
            None => false,
        };
        match way {
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

    /// What room was made for went elsewhere. What comes next has not its way.
    #[inline]
    pub(super) fn on_insert_skipped(&mut self) {
        self.destination = Destination::Default;
    }

    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.destination, Destination::Default)
    }

    /// A segment of the object at `node` has come. Says whether the object is read in order.
    #[inline]
    fn track_segment(&mut self, node: u32, segment: u64, entries: u64) -> bool {
        let clock = self.clock;
        let object = &mut self.objects[node as usize % TRACKED_OBJECTS];
        if object.node != node {
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
        let (forward, back) =
            (segment.wrapping_sub(object.front), object.front.wrapping_sub(segment));
        if (1..=STEP_MAX).contains(&forward) {
            object.advance(forward, entries);
        } else {
            let reach = object.reach(entries);
            if !object.continues_reader(segment) {
                // Packets that come late are no readers.
                object.order_score = object.order_score.saturating_sub(2);
            } else if object.is_oversized && (REORDER_MAX..reach).contains(&back) {
                object.count_lag();
            }
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
        // What passed a window ages with all else, once others want its room.
        let passed = self.window.head();
        if passed != NONE && !self.is_same_scan(entries, passed, incoming.node) {
            self.unlink(entries, passed);
            let mark = entries[passed].policy_state;
            self.base.push_small(entries, passed);
            entries[passed].policy_state = mark & !WINDOW;
        }
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

    /// The victim that S3-FIFO chooses, or one from the window where nothing else is left.
    fn take_default_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        if let Some(victim) = self.base.take_victim(entries) {
            return Some(victim);
        }
        // What is used moves to the main queue on the way.
        self.take_from_window(entries).or_else(|| self.base.take_victim(entries))
    }

    /// The victim for a segment of an object that has lagging readers, if it is not for S3-FIFO to
    /// choose: its beginning and the window make room for its end. What had passed and is missed
    /// now passes again: once the end is there nobody misses it.
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
        let least = (self.base.bytes() + self.window_bytes) / MIN_WINDOW_SHARE;
        if self.window_bytes > least { self.take_from_window(entries) } else { None }
    }

    /// The victim for a segment of an object that is read in order; none if S3-FIFO is to choose.
    #[inline(never)]
    fn take_victim_for_scan(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
    ) -> Option<u32> {
        let is_known = matches!(self.destination, Destination::Main)
            || self.object(incoming.node)?.hits >= USES_MIN
            || self.base.take_remembered(incoming.hash);
        if is_known {
            // It is worth more than what nobody uses, but not more than its own.
            let head = self.base.main_head();
            if head != NONE && !self.is_same_scan(entries, head, incoming.node) {
                self.destination = Destination::Main;
                return self.base.take_from_main(entries);
            }
        }
        let next = self.base.next_candidate();
        let is_own = next == NONE || self.is_same_scan(entries, next, incoming.node);
        if !is_own && !is_known {
            return None;
        }
        self.divert_to_window(entries, incoming.node)
    }

    /// Whether an entry is of this object, or both are of objects that do not fit and are read at
    /// present.
    fn is_same_scan(&self, entries: &Slab<Entry>, index: u32, node: u32) -> bool {
        let other = entries[index].node;
        let is_live = |object: &TrackedObject| {
            let age = self.clock.wrapping_sub(object.last_active) as usize;
            object.is_oversized && object.is_in_order() && age < entries.len() / 4
        };
        let is_overlong = |node| self.object(node).is_some_and(is_live);
        other == node || is_overlong(node) && is_overlong(other)
    }

    /// Makes room in the window, which grows at first by the end of what is kept.
    fn divert_to_window(&mut self, entries: &mut Slab<Entry>, node: u32) -> Option<u32> {
        let entries_bytes = self.base.bytes() + self.window_bytes;
        let passed_max = entries.len() as u64 * PASSES_MAX;
        let object = self.object_mut(node)?;
        object.is_oversized = true;
        object.diverted += 1;
        if object.diverted > passed_max {
            object.is_stream = true;
            return None;
        }
        self.destination = Destination::Window;
        if self.window_bytes < entries_bytes / WINDOW_SHARE {
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

    /// What has been in the window longest, less what is used, which stays.
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
            (passed, [small, _]) => [passed, small],
        }
    }
}
