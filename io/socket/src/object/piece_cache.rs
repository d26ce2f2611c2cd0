//! Packets of objects in a bucket: read in the background in pieces of many, ahead of who reads in
//! order, and kept in memory within a bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_base::{Instant, NS_PER_S, Packet, Pool};
use weir_client::EndpointWaker;
use weir_transport::ReadOp;

use super::place::InBucket;
use super::stored::{ReadError, StoredObject};
use crate::bucket::BucketError;

/// Octets of a piece at most, but for the packets that are no segments.
const PIECE_BYTES: u64 = 1 << 20;
/// Packets that are no segments in a piece.
const WHOLE_PACKETS: u64 = 64;
/// Octets of a piece of these at most.
const WHOLE_BYTES_MAX: u64 = 2 * PIECE_BYTES;
const MEMORY_BYTES: usize = 64 << 20;
/// What a piece takes besides its octets.
const PIECE_OVERHEAD_BYTES: usize = 256;
/// Reads under way at a time.
const READS_MAX: usize = 16;
/// Pieces read ahead of the last that was asked for, at most.
const AHEAD_MAX: u64 = 8;
/// How long a read may wait for others: who asked does so again, or has given up.
const WAIT_NS_MAX: u64 = 8 * NS_PER_S;
/// Objects of which it is known how they are read.
const STREAMS_MAX: usize = 1024;
/// Readers of one object that are told apart.
const READERS_MAX: usize = 8;

/// A version of an object, and a piece of it.
type Key = (u64, u64);

pub(crate) struct PieceCache {
    pieces: HashMap<Key, Piece>,
    /// Pieces that are there, from the one not used for longest.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
    /// Reads that wait for others.
    queue: VecDeque<Order>,
    under_way: usize,
    streams: HashMap<u64, Stream>,
    done: Sender<(Key, Result<Bytes, BucketError>)>,
    is_done: Receiver<(Key, Result<Bytes, BucketError>)>,
    /// Who is to look for what is done. Routers may be connected to anew meanwhile.
    waking: Arc<Mutex<Option<EndpointWaker>>>,
}

enum Piece {
    /// On its way, for these.
    Wanted(Vec<ReadOp>),
    There {
        octets: Bytes,
        used: u64,
    },
}

struct Order {
    key: Key,
    place: InBucket,
    range: Range<u64>,
    since: Instant,
}

/// How an object is read: by one reader in order or by several, each at a place of its own.
#[derive(Default)]
struct Stream {
    /// The one that has read last comes last.
    readers: Vec<Reader>,
}

struct Reader {
    /// The last piece in order that was asked for.
    top: u64,
    ahead: u64,
}

impl Stream {
    /// A piece is asked for: the pieces that will be wanted after it, the more the longer a reader
    /// goes on in order.
    fn reach(&mut self, piece: u64) -> Range<u64> {
        let is_his = |reader: &Reader| piece.abs_diff(reader.top) <= AHEAD_MAX;
        let nearest = (0..self.readers.len())
            .filter(|&at| is_his(&self.readers[at]))
            .min_by_key(|&at| piece.abs_diff(self.readers[at].top));
        let mut reader = match nearest {
            Some(at) => self.readers.remove(at),
            None => {
                if self.readers.len() == READERS_MAX {
                    self.readers.remove(0);
                }
                Reader { top: piece, ahead: 0 }
            }
        };
        if piece > reader.top {
            reader.ahead = (2 * reader.ahead).clamp(1, AHEAD_MAX);
            reader.top = piece;
        }
        let ahead = if piece == reader.top { reader.ahead } else { 0 };
        self.readers.push(reader);
        piece + 1..piece + 1 + ahead
    }
}

/// What comes of a read.
pub(crate) enum Outcome {
    Now(ReadOp, Result<Packet, ReadError>),
    Later,
}

/// A piece that has come, or has not.
pub(crate) struct Ended {
    /// Of which version of an object.
    pub(crate) number: u64,
    pub(crate) ops: Vec<ReadOp>,
    pub(crate) result: Result<(), BucketError>,
}

impl PieceCache {
    pub(crate) fn new() -> Self {
        let (done, is_done) = unbounded();
        Self {
            pieces: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            queue: VecDeque::new(),
            under_way: 0,
            streams: HashMap::new(),
            done,
            is_done,
            waking: Arc::default(),
        }
    }

    /// Whom to wake from now on.
    pub(crate) fn wake(&self, waking: impl FnOnce() -> EndpointWaker) {
        let mut there = lock(&self.waking);
        if there.is_none() {
            *there = Some(waking());
        }
    }

    /// Nobody is to be woken any more.
    pub(crate) fn sleep(&self) {
        *lock(&self.waking) = None;
    }

    /// The packet that `op` asks for, if it is in memory; otherwise it is told later.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        (kept, place): (&StoredObject, &InBucket),
        op: ReadOp,
        pool: &mut Pool,
    ) -> Outcome {
        let layout = Layout::of(kept);
        let piece = layout.piece_of(op.segment);
        let Some(range) = layout.range(piece) else {
            return Outcome::Now(op, Err(ReadError::Damaged));
        };
        let key = (kept.number, piece);
        let outcome = match self.pieces.get_mut(&key) {
            Some(Piece::There { octets, used }) => {
                self.by_use.remove(used);
                self.uses += 1;
                *used = self.uses;
                self.by_use.insert(self.uses, key);
                let packet = packet(kept, op.segment, octets, range.start, pool);
                Outcome::Now(op, packet)
            }
            Some(Piece::Wanted(ops)) => {
                ops.push(op);
                Outcome::Later
            }
            None => {
                self.pieces.insert(key, Piece::Wanted(vec![op]));
                self.order(Order { key, place: place.clone(), range, since: now });
                Outcome::Later
            }
        };
        self.read_ahead(now, place, &layout, key);
        outcome
    }

    /// Reads on, the further the longer all is read in order.
    fn read_ahead(&mut self, now: Instant, place: &InBucket, layout: &Layout<'_>, key: Key) {
        let (number, piece) = key;
        if piece >= layout.segment_pieces {
            return;
        }
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&number) {
            self.streams.clear();
        }
        let ahead = self.streams.entry(number).or_default().reach(piece);
        for piece in ahead.take_while(|&piece| piece < layout.segment_pieces) {
            let key = (number, piece);
            if self.under_way >= READS_MAX {
                return;
            }
            if let (false, Some(range)) = (self.pieces.contains_key(&key), layout.range(piece)) {
                self.pieces.insert(key, Piece::Wanted(Vec::new()));
                self.order(Order { key, place: place.clone(), range, since: now });
            }
        }
    }

    fn order(&mut self, order: Order) {
        if self.under_way >= READS_MAX {
            self.queue.push_back(order);
            return;
        }
        self.under_way += 1;
        let Order { key, place, range, .. } = order;
        let (done, waking) = (self.done.clone(), self.waking.clone());
        place.bucket.fetch(place.name, range, place.tag, move |piece| {
            // Whoever is gone needs nothing.
            let _ = done.send((key, piece.map(|piece| piece.octets)));
            if let Some(waking) = &*lock(&waking) {
                let _ = waking.wake();
            }
        });
    }

    /// A piece that has come, or did not. It is to be used before this is called again.
    pub(crate) fn next_ended(&mut self, now: Instant) -> Option<Ended> {
        if self.under_way < READS_MAX
            && let Some(order) = self.queue.pop_front()
        {
            if now > order.since.plus_ns(WAIT_NS_MAX) {
                let reason = "more is asked of it than it answers".into();
                return Some(self.end(order.key, Err(BucketError::Away(reason))));
            }
            self.order(order);
        }
        let (key, result) = self.is_done.try_recv().ok()?;
        self.under_way -= 1;
        Some(self.end(key, result))
    }

    fn end(&mut self, key: Key, result: Result<Bytes, BucketError>) -> Ended {
        let Some(Piece::Wanted(ops)) = self.pieces.remove(&key) else {
            unreachable!("it was wanted, and nothing else ends that")
        };
        let result = result.map(|octets| self.keep(key, octets));
        Ended { number: key.0, ops, result }
    }

    fn keep(&mut self, key: Key, octets: Bytes) {
        self.bytes += octets.len() + PIECE_OVERHEAD_BYTES;
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.pieces.insert(key, Piece::There { octets, used: self.uses });
        while self.bytes > MEMORY_BYTES
            && let Some((_, key)) = self.by_use.pop_first()
        {
            if let Some(Piece::There { octets, .. }) = self.pieces.remove(&key) {
                self.bytes -= octets.len() + PIECE_OVERHEAD_BYTES;
            }
        }
    }
}

fn lock(waking: &Mutex<Option<EndpointWaker>>) -> MutexGuard<'_, Option<EndpointWaker>> {
    waking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A packet out of a piece that begins at that place of the object.
fn packet(
    kept: &StoredObject,
    number: u64,
    octets: &[u8],
    begin: u64,
    pool: &mut Pool,
) -> Result<Packet, ReadError> {
    let Range { start, end } = kept.range(number);
    let octets = octets.get((start - begin) as usize..(end - begin) as usize);
    let octets = octets.ok_or(ReadError::Damaged)?;
    let len = kept.check(number, octets)?;
    let mut block = pool.alloc(octets.len());
    block[..octets.len()].copy_from_slice(octets);
    Ok(block.freeze(len))
}

/// How an object is cut into pieces.
struct Layout<'a> {
    kept: &'a StoredObject,
    group: u64,
    segment_pieces: u64,
    is_small: bool,
}

impl<'a> Layout<'a> {
    fn of(kept: &'a StoredObject) -> Self {
        let group = (PIECE_BYTES / kept.header.slot_bytes.max(1)).max(1);
        let is_small = kept.body_bytes() <= PIECE_BYTES;
        let segment_pieces = kept.header.segments.div_ceil(group);
        Self { kept, group, segment_pieces, is_small }
    }

    fn piece_of(&self, number: u64) -> u64 {
        match number.checked_sub(self.kept.header.segments) {
            _ if self.is_small => 0,
            None => number / self.group,
            Some(at) => self.segment_pieces + at / WHOLE_PACKETS,
        }
    }

    /// Where a piece lies; nothing if that is no place that a piece has.
    fn range(&self, piece: u64) -> Option<Range<u64>> {
        let (segments, all) = (self.kept.header.segments, self.kept.packets());
        let numbers = match piece.checked_sub(self.segment_pieces) {
            _ if self.is_small => 0..all,
            None => piece * self.group..((piece + 1) * self.group).min(segments),
            Some(at) => {
                let first = segments + at * WHOLE_PACKETS;
                first..(first + WHOLE_PACKETS).min(all)
            }
        };
        let ends = match piece < self.segment_pieces && !self.is_small {
            // They lie side by side.
            true => self.kept.range(numbers.start).start..self.kept.range(numbers.end - 1).end,
            false => {
                let ranges = numbers.map(|number| self.kept.range(number));
                ranges.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?
            }
        };
        (ends.end - ends.start <= WHOLE_BYTES_MAX).then_some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_in_order_is_read_ahead_for_and_who_does_not_is_not() {
        let mut stream = Stream::default();
        let ahead: Vec<u64> =
            (0..6).map(|piece| stream.reach(piece)).map(|ahead| ahead.end - ahead.start).collect();
        assert_eq!(ahead, [0, 1, 2, 4, 8, 8]);
        // The packets of one piece are many, and those of the last ones come late.
        assert_eq!(stream.reach(5), 6..14);
        assert!(stream.reach(4).is_empty());
        for piece in [1000, 20, 500, 90] {
            assert!(stream.reach(piece).is_empty(), "{piece}");
        }
    }

    #[test]
    fn readers_of_one_object_do_not_hinder_each_other() {
        let mut stream = Stream::default();
        for step in 0..100 {
            for reader in 0..READERS_MAX as u64 {
                let ahead = stream.reach(1000 * reader + step);
                assert_eq!(ahead.end - ahead.start, [0, 1, 2, 4, 8][step.min(4) as usize]);
            }
        }
        // One more than is remembered takes the place of who has not read for longest.
        assert!(stream.reach(1_000_000).is_empty());
        assert!(stream.reach(100).is_empty());
        assert_eq!(stream.readers.len(), READERS_MAX);
    }
}
