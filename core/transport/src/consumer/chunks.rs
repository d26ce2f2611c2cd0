//! The chunks from the first open one to the last requested one, with a bit per segment.
//!
//! A window counts chunks: consecutive segments, one by default (paper chopcop, 3: a chunk is cut
//! into packets). Chunks end at multiples of their length, so that all consumers of an object cut
//! it the same way. The last chunk is shorter if the last segment is known when it is requested.

use alloc::collections::VecDeque;

use super::chunk::{Chunk, ChunkState};

/// Upper bound of segments in a chunk.
pub const CHUNK_SEGMENTS_MAX: u32 = 1024;

pub(crate) struct Chunks {
    segments_max: u64,
    chunks: VecDeque<Chunk>,
    /// Which segments of each chunk are wanted and have not arrived: `words` words per chunk.
    open_bits: VecDeque<u64>,
    /// Which of them were refused since the last sending, in the same layout.
    refused_bits: VecDeque<u64>,
    words: usize,
    /// The first segment that is in no chunk yet.
    next_index: u64,
}

impl Chunks {
    pub(crate) fn new(segments_max: u32) -> Self {
        let segments_max = segments_max.clamp(1, CHUNK_SEGMENTS_MAX);
        Self {
            segments_max: u64::from(segments_max),
            chunks: VecDeque::new(),
            open_bits: VecDeque::new(),
            refused_bits: VecDeque::new(),
            words: segments_max.div_ceil(u64::BITS) as usize,
            next_index: 0,
        }
    }

    /// Starts at `index`: earlier segments are not wanted.
    pub(crate) fn start_at(&mut self, index: u64) {
        debug_assert!(self.chunks.is_empty());
        self.next_index = index;
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// About the number of segments between the first and the last one.
    pub(crate) fn segments(&self) -> u64 {
        self.chunks.len() as u64 * self.segments_max
    }

    pub(crate) fn next_index(&self) -> u64 {
        self.next_index
    }

    /// The first segment of the first chunk.
    pub(crate) fn first_index(&self) -> u64 {
        self.chunks.front().map_or(self.next_index, |chunk| chunk.first_segment)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter()
    }

    pub(crate) fn get(&self, at: usize) -> &Chunk {
        &self.chunks[at]
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Chunk {
        &mut self.chunks[at]
    }

    /// The position of the chunk that contains segment `index`.
    pub(crate) fn find(&self, index: u64) -> Option<usize> {
        let first = self.chunks.front()?.first_segment;
        if index < first || index >= self.next_index {
            return None;
        }
        // Shorter chunks shift later ones, so the chunk is at this position or soon after.
        let at = (index / self.segments_max - first / self.segments_max) as usize;
        (at..self.chunks.len()).find(|&at| self.chunks[at].segments().contains(&index))
    }

    /// Adds a chunk of the next segments up to `limit`; those for which `is_open` holds are open.
    /// Returns its position. There must be a next segment.
    pub(crate) fn push(
        &mut self,
        chunk: Chunk,
        limit: u64,
        mut is_open: impl FnMut(u64) -> bool,
    ) -> usize {
        let first = self.next_index;
        // Chunks end at multiples of `segments_max`, so `find` can compute a position. The chunk
        // that starts at another index, or ends at the limit, is shorter.
        let end = (first / self.segments_max + 1).saturating_mul(self.segments_max).min(limit);
        debug_assert!(first < end);
        let mut chunk = Chunk {
            first_segment: first,
            segment_count: (end - first) as u32,
            open_count: 0,
            ..chunk
        };
        // Even a short chunk has `words` words, so a chunk's position gives that of its words.
        for word in 0..self.words as u64 {
            let start = (first + word * u64::from(u64::BITS)).min(end);
            let segments = start..(start + u64::from(u64::BITS)).min(end);
            let mut bits = 0;
            for (bit, index) in segments.enumerate() {
                bits |= u64::from(is_open(index)) << bit;
            }
            chunk.open_count += bits.count_ones();
            self.open_bits.push_back(bits);
            self.refused_bits.push_back(0);
        }
        self.chunks.push_back(chunk);
        self.next_index = end;
        self.chunks.len() - 1
    }

    /// The word of [`Chunks::open_bits`], and the bit within it.
    fn bit(&self, at: usize, index: u64) -> (usize, u64) {
        let offset = index - self.chunks[at].first_segment;
        let word = at * self.words + (offset / u64::from(u64::BITS)) as usize;
        (word, 1 << (offset % u64::from(u64::BITS)))
    }

    /// Whether a segment is wanted and has not arrived.
    pub(crate) fn is_open(&self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        self.open_bits[word] & bit != 0
    }

    /// Marks a segment as arrived or not wanted. Returns whether it was open.
    pub(crate) fn close(&mut self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        let was_open = self.open_bits[word] & bit != 0;
        self.open_bits[word] &= !bit;
        self.chunks[at].open_count -= u32::from(was_open);
        let was_refused = self.refused_bits[word] & bit != 0;
        self.refused_bits[word] &= !bit;
        self.chunks[at].nacked_count -= u32::from(was_refused);
        was_open
    }

    /// Marks an open segment as refused. Returns false if it was already: a Nack may arrive twice.
    pub(crate) fn mark_refused(&mut self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        let is_new = self.refused_bits[word] & bit == 0;
        self.refused_bits[word] |= bit;
        self.chunks[at].nacked_count += u32::from(is_new);
        is_new
    }

    /// Forgets which segments of a chunk were refused, because it is sent again.
    pub(crate) fn forget_refused(&mut self, at: usize) {
        if self.chunks[at].nacked_count > 0 {
            self.chunks[at].nacked_count = 0;
            self.refused_bits
                .range_mut(at * self.words..(at + 1) * self.words)
                .for_each(|bits| *bits = 0);
        }
    }

    /// The open segments of a chunk.
    pub(crate) fn open_segments(&self, at: usize) -> impl Iterator<Item = u64> {
        let first = self.chunks[at].first_segment;
        let words = self.open_bits.range(at * self.words..(at + 1) * self.words);
        words.enumerate().flat_map(move |(word, &bits)| {
            let first = first + (word as u64) * u64::from(u64::BITS);
            (0..u64::from(u64::BITS))
                .filter(move |bit| bits >> bit & 1 != 0)
                .map(move |b| first + b)
        })
    }

    /// Removes the segments from `limit` on, which must be closed, from the last chunk. Removes the
    /// chunk if none is left.
    pub(crate) fn truncate(&mut self, limit: u64) {
        let Some(chunk) = self.chunks.back_mut() else { return };
        self.next_index = limit.clamp(chunk.first_segment, self.next_index);
        chunk.segment_count = (self.next_index - chunk.first_segment) as u32;
        if chunk.segment_count == 0 {
            self.chunks.pop_back();
            self.open_bits.truncate(self.chunks.len() * self.words);
            self.refused_bits.truncate(self.chunks.len() * self.words);
        }
    }

    /// Removes the leading chunks that are done.
    pub(crate) fn pop_done(&mut self) {
        while self.chunks.front().is_some_and(|chunk| chunk.state == ChunkState::Done) {
            self.chunks.pop_front();
            self.open_bits.drain(..self.words);
            self.refused_bits.drain(..self.words);
        }
    }
}
