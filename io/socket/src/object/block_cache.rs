//! A cache of packets of objects in a bucket. They are read in the background in blocks of many,
//! ahead of sequential readers, and kept in memory up to a limit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_base::{Instant, NS_PER_S, Packet, Pool};
use weir_client::EndpointWaker;
use weir_transport::ReadOp;

use super::location::BucketLocation;
use super::stored::{ReadError, StoredObject};
use crate::bucket::BucketError;

/// Bytes of a block of segments at most.
const BLOCK_BYTES: u64 = 1 << 20;
/// Named packets (those that are no segments) per block.
const NAMED_PACKETS_PER_BLOCK: u64 = 64;
/// Bytes of a block of named packets at most.
const NAMED_BLOCK_BYTES_MAX: u64 = 2 * BLOCK_BYTES;
const MEMORY_BYTES: usize = 64 << 20;
/// Memory of a block besides its bytes.
const BLOCK_OVERHEAD_BYTES: usize = 256;
/// Concurrent reads.
const READS_MAX: usize = 16;
/// Blocks read ahead of the last requested one, at most.
const READ_AHEAD_MAX: u64 = 8;
/// How long a read may wait in the queue. After that, its consumer has retransmitted or failed.
const WAIT_NS_MAX: u64 = 8 * NS_PER_S;
/// Objects whose access pattern is tracked.
const TRACKED_OBJECTS_MAX: usize = 1024;
/// Readers of one object that are distinguished.
const READERS_PER_OBJECT_MAX: usize = 8;

/// A version of an object, and the number of a block.
type BlockKey = (u64, u64);

pub(crate) struct BlockCache {
    blocks: HashMap<BlockKey, Block>,
    /// Cached blocks, least recently used first.
    by_use: BTreeMap<u64, BlockKey>,
    use_counter: u64,
    bytes: usize,
    /// Reads that wait for others.
    queue: VecDeque<QueuedRead>,
    under_way: usize,
    access_patterns: HashMap<u64, AccessPattern>,
    done_sender: Sender<(BlockKey, Result<Bytes, BucketError>)>,
    done_receiver: Receiver<(BlockKey, Result<Bytes, BucketError>)>,
    /// The endpoint to wake when a read is done. Set again after a reconnect.
    waker: Arc<Mutex<Option<EndpointWaker>>>,
}

enum Block {
    /// Being read, for these operations.
    Reading(Vec<ReadOp>),
    Cached {
        octets: Bytes,
        used: u64,
    },
}

struct QueuedRead {
    key: BlockKey,
    place: BucketLocation,
    range: Range<u64>,
    since: Instant,
}

/// How an object is read: by one sequential reader or several, each at its own position.
#[derive(Default)]
struct AccessPattern {
    /// Most recent reader last.
    readers: Vec<Reader>,
}

struct Reader {
    /// The last block in order that it requested.
    last_block: u64,
    ahead: u64,
}

impl AccessPattern {
    /// A block is requested. Returns the blocks to read ahead. Their number doubles with each block
    /// that the reader requests in order, up to `READ_AHEAD_MAX`.
    fn read_ahead_range(&mut self, block: u64) -> Range<u64> {
        // Requests do not state their reader: the one whose last block is nearest takes it.
        let is_near = |reader: &Reader| block.abs_diff(reader.last_block) <= READ_AHEAD_MAX;
        let nearest = (0..self.readers.len())
            .filter(|&at| is_near(&self.readers[at]))
            .min_by_key(|&at| block.abs_diff(self.readers[at].last_block));
        let mut reader = match nearest {
            Some(at) => self.readers.remove(at),
            None => {
                if self.readers.len() == READERS_PER_OBJECT_MAX {
                    self.readers.remove(0);
                }
                Reader { last_block: block, ahead: 0 }
            }
        };
        if block > reader.last_block {
            reader.ahead = (2 * reader.ahead).clamp(1, READ_AHEAD_MAX);
            reader.last_block = block;
        }
        // A late request for an earlier block neither extends nor resets the read-ahead.
        let ahead = if block == reader.last_block { reader.ahead } else { 0 };
        self.readers.push(reader);
        block + 1..block + 1 + ahead
    }
}

/// The result of a read.
pub(crate) enum CacheResult {
    Ready(ReadOp, Result<Packet, ReadError>),
    Later,
}

/// A finished read of a block.
pub(crate) struct FinishedRead {
    /// The version of an object.
    pub(crate) number: u64,
    pub(crate) ops: Vec<ReadOp>,
    pub(crate) result: Result<(), BucketError>,
}

impl BlockCache {
    pub(crate) fn new() -> Self {
        let (done, is_done) = unbounded();
        Self {
            blocks: HashMap::new(),
            by_use: BTreeMap::new(),
            use_counter: 0,
            bytes: 0,
            queue: VecDeque::new(),
            under_way: 0,
            access_patterns: HashMap::new(),
            done_sender: done,
            done_receiver: is_done,
            waker: Arc::default(),
        }
    }

    /// Sets the endpoint to wake.
    pub(crate) fn set_waker(&self, waker: impl FnOnce() -> EndpointWaker) {
        let mut stored_waker = lock(&self.waker);
        if stored_waker.is_none() {
            *stored_waker = Some(waker());
        }
    }

    /// Clears the endpoint to wake.
    pub(crate) fn clear_waker(&self) {
        *lock(&self.waker) = None;
    }

    /// The packet that `op` requests, if its block is in memory. Otherwise starts a read, and
    /// [`BlockCache::next_finished`] returns `op` later.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        (stored, place): (&StoredObject, &BucketLocation),
        op: ReadOp,
        pool: &mut Pool,
    ) -> CacheResult {
        let layout = BlockLayout::new(stored);
        let block = layout.block_of(op.segment);
        let Some(range) = layout.range(block) else {
            return CacheResult::Ready(op, Err(ReadError::Damaged));
        };
        let key = (stored.number, block);
        let outcome = match self.blocks.get_mut(&key) {
            Some(Block::Cached { octets, used }) => {
                self.by_use.remove(used);
                self.use_counter += 1;
                *used = self.use_counter;
                self.by_use.insert(self.use_counter, key);
                let packet = packet(stored, op.segment, octets, range.start, pool);
                CacheResult::Ready(op, packet)
            }
            // Another operation already waits for this block.
            Some(Block::Reading(ops)) => {
                ops.push(op);
                CacheResult::Later
            }
            None => {
                self.blocks.insert(key, Block::Reading(vec![op]));
                self.start_read(QueuedRead { key, place: place.clone(), range, since: now });
                CacheResult::Later
            }
        };
        self.read_ahead(now, place, &layout, key);
        outcome
    }

    /// Reads ahead, further the longer an object is read in order.
    fn read_ahead(
        &mut self,
        now: Instant,
        place: &BucketLocation,
        layout: &BlockLayout<'_>,
        key: BlockKey,
    ) {
        let (number, block) = key;
        if block >= layout.segment_blocks {
            return;
        }
        // Without the patterns, read-ahead only starts slowly again, so all may be dropped at once.
        if self.access_patterns.len() >= TRACKED_OBJECTS_MAX
            && !self.access_patterns.contains_key(&number)
        {
            self.access_patterns.clear();
        }
        let ahead = self.access_patterns.entry(number).or_default().read_ahead_range(block);
        for block in ahead.take_while(|&block| block < layout.segment_blocks) {
            let key = (number, block);
            // All reads are in use. Read-ahead must not queue before reads that an Interest needs.
            if self.under_way >= READS_MAX {
                return;
            }
            if let (false, Some(range)) = (self.blocks.contains_key(&key), layout.range(block)) {
                self.blocks.insert(key, Block::Reading(Vec::new()));
                self.start_read(QueuedRead { key, place: place.clone(), range, since: now });
            }
        }
    }

    fn start_read(&mut self, queued: QueuedRead) {
        if self.under_way >= READS_MAX {
            self.queue.push_back(queued);
            return;
        }
        self.under_way += 1;
        let QueuedRead { key, place, range, .. } = queued;
        let (done, waker) = (self.done_sender.clone(), self.waker.clone());
        place.bucket.fetch(place.name, range, place.tag, move |block| {
            // If the receiver is gone, no one needs the result.
            let _ = done.send((key, block.map(|block| block.octets)));
            if let Some(waker) = &*lock(&waker) {
                let _ = waker.wake();
            }
        });
    }

    /// The next finished read. The caller must use its packets before the next call.
    pub(crate) fn next_finished(&mut self, now: Instant) -> Option<FinishedRead> {
        // A finished read has made room for one from the queue.
        if self.under_way < READS_MAX
            && let Some(queued) = self.queue.pop_front()
        {
            if now > queued.since.plus_ns(WAIT_NS_MAX) {
                let reason = "it answers more slowly than it is read".into();
                return Some(self.finish_read(queued.key, Err(BucketError::Unreachable(reason))));
            }
            self.start_read(queued);
        }
        let (key, result) = self.done_receiver.try_recv().ok()?;
        self.under_way -= 1;
        Some(self.finish_read(key, result))
    }

    fn finish_read(&mut self, key: BlockKey, result: Result<Bytes, BucketError>) -> FinishedRead {
        let Some(Block::Reading(ops)) = self.blocks.remove(&key) else {
            unreachable!("a block stays pending until its read ends")
        };
        let result = result.map(|octets| self.store_block(key, octets));
        FinishedRead { number: key.0, ops, result }
    }

    fn store_block(&mut self, key: BlockKey, octets: Bytes) {
        self.bytes += octets.len() + BLOCK_OVERHEAD_BYTES;
        self.use_counter += 1;
        self.by_use.insert(self.use_counter, key);
        self.blocks.insert(key, Block::Cached { octets, used: self.use_counter });
        while self.bytes > MEMORY_BYTES
            && let Some((_, key)) = self.by_use.pop_first()
        {
            if let Some(Block::Cached { octets, .. }) = self.blocks.remove(&key) {
                self.bytes -= octets.len() + BLOCK_OVERHEAD_BYTES;
            }
        }
    }
}

fn lock(waker: &Mutex<Option<EndpointWaker>>) -> MutexGuard<'_, Option<EndpointWaker>> {
    waker.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A packet from a block that starts at offset `begin` of the object.
fn packet(
    stored: &StoredObject,
    number: u64,
    octets: &[u8],
    begin: u64,
    pool: &mut Pool,
) -> Result<Packet, ReadError> {
    let Range { start, end } = stored.range(number);
    let octets = octets.get((start - begin) as usize..(end - begin) as usize);
    let octets = octets.ok_or(ReadError::Damaged)?;
    let len = stored.check(number, octets)?;
    let mut block = pool.alloc(octets.len());
    block[..octets.len()].copy_from_slice(octets);
    Ok(block.freeze(len))
}

/// How an object is divided into blocks.
struct BlockLayout<'a> {
    stored: &'a StoredObject,
    group: u64,
    segment_blocks: u64,
    is_small: bool,
}

impl<'a> BlockLayout<'a> {
    fn new(stored: &'a StoredObject) -> Self {
        let group = (BLOCK_BYTES / stored.header.slot_bytes.max(1)).max(1);
        let is_small = stored.body_bytes() <= BLOCK_BYTES;
        let segment_blocks = stored.header.segments.div_ceil(group);
        Self { stored, group, segment_blocks, is_small }
    }

    fn block_of(&self, number: u64) -> u64 {
        match number.checked_sub(self.stored.header.segments) {
            _ if self.is_small => 0,
            None => number / self.group,
            Some(at) => self.segment_blocks + at / NAMED_PACKETS_PER_BLOCK,
        }
    }

    /// The byte range of a block; `None` if the object has no such block.
    fn range(&self, block: u64) -> Option<Range<u64>> {
        let (segments, all) = (self.stored.header.segments, self.stored.packets());
        let numbers = match block.checked_sub(self.segment_blocks) {
            _ if self.is_small => 0..all,
            None => block * self.group..((block + 1) * self.group).min(segments),
            Some(at) => {
                let first = segments + at * NAMED_PACKETS_PER_BLOCK;
                first..(first + NAMED_PACKETS_PER_BLOCK).min(all)
            }
        };
        let ends = match block < self.segment_blocks && !self.is_small {
            // They are adjacent in the file.
            true => self.stored.range(numbers.start).start..self.stored.range(numbers.end - 1).end,
            false => {
                let ranges = numbers.map(|number| self.stored.range(number));
                ranges.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?
            }
        };
        (ends.end - ends.start <= NAMED_BLOCK_BYTES_MAX).then_some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ahead_for_sequential_readers() {
        let mut stream = AccessPattern::default();
        let ahead: Vec<u64> = (0..6)
            .map(|block| stream.read_ahead_range(block))
            .map(|ahead| ahead.end - ahead.start)
            .collect();
        assert_eq!(ahead, [0, 1, 2, 4, 8, 8]);
        // The block has many packets, and those of the last request arrive late.
        assert_eq!(stream.read_ahead_range(5), 6..14);
        assert!(stream.read_ahead_range(4).is_empty());
        for block in [1000, 20, 500, 90] {
            assert!(stream.read_ahead_range(block).is_empty(), "{block}");
        }
    }

    #[test]
    fn tracks_several_readers_per_object() {
        let mut stream = AccessPattern::default();
        for step in 0..100 {
            for reader in 0..READERS_PER_OBJECT_MAX as u64 {
                let ahead = stream.read_ahead_range(1000 * reader + step);
                assert_eq!(ahead.end - ahead.start, [0, 1, 2, 4, 8][step.min(4) as usize]);
            }
        }
        // A reader beyond the limit replaces the one that has been idle longest.
        assert!(stream.read_ahead_range(1_000_000).is_empty());
        assert!(stream.read_ahead_range(100).is_empty());
        assert_eq!(stream.readers.len(), READERS_PER_OBJECT_MAX);
    }
}
