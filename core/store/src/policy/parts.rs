use super::s3fifo::{S3Fifo, SPARED_MAX, USES_MAX, USES_TO_STAY};
use super::{Incoming, segment_of};
use crate::disk::segment_at_end;
use crate::entry::{Entry, List, NONE, Queue};
use alloc::boxed::Box;
use weir_base::Slab;

/// In an entry's mark: it is in the window.
const WINDOW: u32 = 1 << 16;
/// In an entry's mark: it came while its object was read in order.
const IN_ORDER: u32 = 1 << 17;
/// The share of the store that objects which do not fit pass through.
const WINDOW_SHARE: u64 = 32;
/// What is left of that while readers lag.
const LEAST_WINDOW_SHARE: u64 = 512;
/// Objects that are watched at once.
const OBJECTS: usize = 256;
/// Steps forward, less steps back, after which an object counts as read in order; and their most.
const ORDER_MIN: u8 = 32;
const ORDER_MAX: u8 = 64;
/// The longest step forward: several shards have every so manieth range of 64 segments.
const STEP_MAX: u64 = 4096;
/// Uses of what is kept of an object after which the rest of it is taken for asked for again.
const USES_MIN: u32 = 64;
/// Segments of which a packet may have overtaken others.
const OVERTAKEN_MAX: u64 = 64;
/// Steps behind the front, none before it between them, after which the front is there: at least,
/// and as a part of the store.
const BEHIND_MIN: u64 = 32;
const BEHIND_SHARE: u64 = 16;
/// Readers behind the front that are told apart, and how far one goes on at once.
const READERS: usize = 4;
const READER_STEP_MAX: u64 = 16;
/// What a turn from the front to a reader far behind it counts for, where a step forward takes off
/// one, or one of several in a larger store; and the sum from which on its end is kept.
const LAG: u32 = 1 << 10;
const LAG_MIN: u32 = 1 << 14;
const LAG_ENTRIES: u64 = 1 << 12;
/// After so many steps forward from where it begins, as a part of the store, a reading counts as a
/// new one.
const ANEW_SHARE: u64 = 16;
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
    window: List<Queue>,
    window_bytes: u64,
    /// By node, one to a place.
    objects: Box<[Object; OBJECTS]>,
    /// Insertions so far.
    clock: u32,
    /// Where what comes next is put.
    way: Way,
}

#[derive(Copy, Clone)]
enum Way {
    /// As S3-FIFO would.
    Usual,
    /// Past what is kept.
    Window,
    /// Among what is used.
    Main,
}

/// An object of which segments came lately.
#[derive(Copy, Clone)]
struct Object {
    node: u32,
    /// Steps forward less steps back.
    order: u8,
    /// It has pushed out its own.
    is_overlong: bool,
    is_stream: bool,
    /// The segment at the front of those that came.
    last: u64,
    /// Steps behind the front since the last one before it.
    behind: u64,
    /// Where readers behind the front are, the last first.
    readers: [u64; READERS],
    /// What turns to such readers count for.
    lag: u32,
    /// A reader far behind has asked since the last step forward.
    is_followed: bool,
    /// Steps forward since the front has gone back beyond all of them.
    since_jump: Option<u64>,
    /// Steps forward, and what they lead over.
    steps: u64,
    covered: u64,
    /// When it did.
    active: u32,
    /// Uses of what came in order.
    uses: u32,
    /// What passed through the window since something kept was used.
    passed: u64,
}

impl Object {
    const NONE: Self = Self {
        node: NONE,
        order: 0,
        is_overlong: false,
        is_stream: false,
        last: 0,
        behind: 0,
        readers: [u64::MAX; READERS],
        lag: 0,
        is_followed: false,
        since_jump: None,
        steps: 1,
        covered: 1,
        active: 0,
        uses: 0,
        passed: 0,
    };

    fn is_in_order(&self) -> bool {
        self.order >= ORDER_MIN && !self.is_lagged() && !self.is_stream
    }

    /// Readers lag behind its front: its end is kept.
    fn is_lagged(&self) -> bool {
        self.lag >= LAG_MIN
    }

    /// Whether a segment is the next of a reader behind the front.
    fn is_of_reader(&mut self, segment: u64) -> bool {
        let is_next = |at: &u64| (1..=READER_STEP_MAX).contains(&segment.wrapping_sub(*at));
        let known = self.readers.iter().position(is_next);
        self.readers[..=known.unwrap_or(READERS - 1)].rotate_right(1);
        self.readers[0] = segment;
        known.is_some()
    }

    /// A reader asks for what is far behind the front: once for each turn from there counts.
    fn note_lag(&mut self) {
        if !core::mem::replace(&mut self.is_followed, true) && !self.is_lagged() {
            self.lag += LAG;
            self.since_jump = None;
        }
    }

    /// The front has gone on by a segment or some.
    fn step(&mut self, forward: u64, entries: u64) {
        self.order = (self.order + 1).min(ORDER_MAX);
        self.last = self.last.wrapping_add(forward);
        self.steps += 1;
        self.covered += forward;
        self.behind = 0;
        self.is_followed = false;
        if !self.is_lagged() {
            let is_counted = self.steps.is_multiple_of(1 + entries / LAG_ENTRIES);
            self.lag = self.lag.saturating_sub(is_counted.into());
            return;
        }
        self.since_jump = self.since_jump.map(|steps| steps + 1);
        if self.since_jump.is_some_and(|steps| steps > entries / ANEW_SHARE) {
            self.lag = 0;
        }
    }

    /// Whether a segment is so far behind the front that only a store without window has it.
    fn is_behind(&self, segment: u64, entries: u64) -> bool {
        let reach = self.reach(entries);
        (OVERTAKEN_MAX.max(reach / WINDOW_SHARE)..reach).contains(&self.last.wrapping_sub(segment))
    }

    /// Whether a segment is so far behind the front that no store has it.
    fn is_past(&self, segment: u64, entries: u64) -> bool {
        self.last.checked_sub(segment).is_some_and(|back| back >= self.reach(entries))
    }

    /// How many segments behind the front a queue of so many entries would reach: of several shards
    /// each has a part of them.
    fn reach(&self, entries: u64) -> u64 {
        entries.saturating_mul(self.covered) / self.steps
    }
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            base: S3Fifo::new(),
            window: List::EMPTY,
            window_bytes: 0,
            objects: Box::new([Object::NONE; OBJECTS]),
            clock: 0,
            way: Way::Usual,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.base.prefetch(hash);
    }

    #[inline]
    fn object(&self, node: u32) -> Option<&Object> {
        Some(&self.objects[node as usize % OBJECTS]).filter(|object| object.node == node)
    }

    #[inline]
    fn object_mut(&mut self, node: u32) -> Option<&mut Object> {
        Some(&mut self.objects[node as usize % OBJECTS]).filter(|object| object.node == node)
    }

    #[inline]
    pub(super) fn on_new_object(&mut self, node: u32) {
        if let Some(object) = self.object_mut(node) {
            *object = Object::NONE;
        }
    }

    #[inline(always)]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.clock = self.clock.wrapping_add(1);
        let way = core::mem::replace(&mut self.way, Way::Usual);
        let entry = &entries[index];
        let is_in_order = match segment_of(entry) {
            Some(segment) => self.note(entry.node, segment, entries.len() as u64),
            None => false,
        };
        match way {
            Way::Usual => self.base.on_insert(entries, index),
            Way::Main => self.base.push_main(entries, index),
            Way::Window => {
                entries[index].mark = WINDOW;
                self.window_bytes += entries[index].bytes();
                self.window.push_back(entries, index);
            }
        }
        if is_in_order {
            entries[index].mark |= IN_ORDER;
        }
    }

    /// What room was made for went elsewhere. What comes next has not its way.
    #[inline]
    pub(super) fn on_passed_by(&mut self) {
        self.way = Way::Usual;
    }

    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.way, Way::Usual)
    }

    /// A segment of the object at `node` has come. Says whether the object is read in order.
    #[inline]
    fn note(&mut self, node: u32, segment: u64, entries: u64) -> bool {
        let clock = self.clock;
        let object = &mut self.objects[node as usize % OBJECTS];
        if object.node != node {
            object.order = object.order.saturating_sub(1);
            if object.order == 0 {
                *object = Object { node, last: segment, active: clock, ..Object::NONE };
            }
            return false;
        }
        let (forward, back) =
            (segment.wrapping_sub(object.last), object.last.wrapping_sub(segment));
        if (1..=STEP_MAX).contains(&forward) {
            object.step(forward, entries);
        } else {
            let reach = object.reach(entries);
            if !object.is_of_reader(segment) {
                // Packets that come late are no readers.
                object.order = object.order.saturating_sub(2);
            } else if object.is_overlong && (OVERTAKEN_MAX..reach).contains(&back) {
                object.note_lag();
            }
            object.behind += 1;
            if back >= reach {
                object.since_jump = Some(0);
            }
            if back >= reach || object.behind >= BEHIND_MIN.max(entries / BEHIND_SHARE) {
                object.behind = 0;
                object.last = segment;
            }
        }
        object.active = clock;
        object.order >= ORDER_MIN
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.base.on_hit(entries, index);
        let entry = &entries[index];
        if entry.mark & IN_ORDER != 0 {
            let is_kept = entry.mark & WINDOW == 0;
            if let Some(object) = self.object_mut(entry.node) {
                object.uses = object.uses.saturating_add(1);
                if is_kept {
                    object.passed = 0;
                }
            }
        }
    }

    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        match entries[index].mark & WINDOW {
            0 => self.base.on_remove(entries, index),
            _ => self.unlink(entries, index),
        }
    }

    fn unlink(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.window_bytes -= entries[index].bytes();
        self.window.unlink(entries, index);
    }

    #[inline(always)]
    pub(super) fn take_victim(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: Incoming<'_>,
    ) -> Option<u32> {
        // What passed a window ages with all else, once others want its room.
        let passed = self.window.head();
        if passed != NONE && !self.is_of_same(entries, passed, incoming.node) {
            self.unlink(entries, passed);
            let mark = entries[passed].mark;
            self.base.push_small(entries, passed);
            entries[passed].mark = mark & !WINDOW;
        }
        if self.object(incoming.node).is_some_and(Object::is_in_order)
            && let Some(victim) = self.take_for_ordered(entries, incoming)
        {
            return Some(victim);
        }
        if let Some(&object) = self.object(incoming.node).filter(|object| object.is_lagged())
            && let Some(victim) = self.take_for_lagged(entries, incoming, &object)
        {
            return Some(victim);
        }
        self.take_any(entries)
    }

    /// The victim that S3-FIFO chooses, or one from the window where nothing else is left.
    fn take_any(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
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
    fn take_for_lagged(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: Incoming<'_>,
        object: &Object,
    ) -> Option<u32> {
        let count = entries.len() as u64;
        let segment = segment_at_end(incoming.name)?;
        if object.is_behind(segment, count) {
            self.way = Way::Window;
            return self.take_from_window(entries);
        }
        for index in self.base.candidates() {
            let is_past = entries.get(index).is_some_and(|entry| {
                let segment = segment_of(entry);
                entry.node == incoming.node
                    && segment.is_some_and(|segment| object.is_past(segment, count))
            });
            if is_past {
                self.base.on_remove(entries, index);
                return Some(index);
            }
        }
        let least = (self.base.bytes() + self.window_bytes) / LEAST_WINDOW_SHARE;
        if self.window_bytes > least { self.take_from_window(entries) } else { None }
    }

    /// The victim for a segment of an object that is read in order; none if S3-FIFO is to choose.
    #[inline(never)]
    fn take_for_ordered(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: Incoming<'_>,
    ) -> Option<u32> {
        let is_known = matches!(self.way, Way::Main)
            || self.object(incoming.node)?.uses >= USES_MIN
            || self.base.recall(incoming.hash);
        if is_known {
            // It is worth more than what nobody uses, but not more than its own.
            let head = self.base.main_head();
            if head != NONE && !self.is_of_same(entries, head, incoming.node) {
                self.way = Way::Main;
                return self.base.take_from_main(entries);
            }
        }
        let next = self.base.next();
        let is_own = next == NONE || self.is_of_same(entries, next, incoming.node);
        if !is_own && !is_known {
            return None;
        }
        self.divert(entries, incoming.node)
    }

    /// Whether an entry is of this object, or both are of objects that do not fit and are read at
    /// present.
    fn is_of_same(&self, entries: &Slab<Entry>, index: u32, node: u32) -> bool {
        let other = entries[index].node;
        let is_live = |object: &Object| {
            let age = self.clock.wrapping_sub(object.active) as usize;
            object.is_overlong && object.is_in_order() && age < entries.len() / 4
        };
        let is_overlong = |node| self.object(node).is_some_and(is_live);
        other == node || is_overlong(node) && is_overlong(other)
    }

    /// Makes room in the window, which grows at first by the end of what is kept.
    fn divert(&mut self, entries: &mut Slab<Entry>, node: u32) -> Option<u32> {
        let entries_bytes = self.base.bytes() + self.window_bytes;
        let passed_max = entries.len() as u64 * PASSES_MAX;
        let object = self.object_mut(node)?;
        object.is_overlong = true;
        object.passed += 1;
        if object.passed > passed_max {
            object.is_stream = true;
            return None;
        }
        self.way = Way::Window;
        if self.window_bytes < entries_bytes / WINDOW_SHARE {
            let tail = self.base.small_tail();
            let is_own = entries.get(tail).is_some_and(|entry| entry.node == node);
            if is_own {
                self.base.on_remove(entries, tail);
                return Some(tail);
            }
            return self.take_any(entries);
        }
        self.take_from_window(entries).or_else(|| self.base.take_victim(entries))
    }

    /// What has been in the window longest, less what is used, which stays.
    fn take_from_window(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        for _ in 0..SPARED_MAX {
            let index = self.window.head();
            let uses = entries.get(index)?.mark & USES_MAX;
            self.unlink(entries, index);
            if uses < USES_TO_STAY {
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
