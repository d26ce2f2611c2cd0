//! The requested chunks that are not done, and which of them to send again.
//!
//! This type keeps its counters and lists consistent with the states of the chunks (see
//! `ChunkState`).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use weir_base::Instant;

use super::paths::Paths;
use super::{FailReason, FailedSegment};
use crate::PathId;
use crate::consumer::chunk::{Chunk, ChunkState};
use crate::consumer::chunks::Chunks;

/// About how many segments may lie between the first unanswered one and the last requested one.
/// A segment that is lost twice arrives after three round trips. At 10 Gbit/s over 300 ms, one
/// round trip is 47,000 packets of 8 kB. Each packet past the first missing one uses about 120
/// bytes, so half a million use 60 MB.
const SEGMENTS_MAX: u64 = 1 << 19;

pub(crate) struct Outstanding {
    chunks: Chunks,
    /// Chunks that wait to be resent: when, and their first segments.
    resends: BTreeSet<(Instant, u64)>,
    /// Chunks that were requested ahead: when their Interests expire, and their first segments.
    ahead_ends: BTreeSet<(Instant, u64)>,
    /// Segments of failed chunks, to be reported.
    failed: VecDeque<FailedSegment>,
    /// Open segments, in flight or to be sent again.
    unanswered: u32,
    in_flight: u32,
    /// Segments past the last requested one that were answered already.
    early_answers: BTreeSet<u64>,
}

impl Outstanding {
    pub(super) fn new(chunk_segments: u32) -> Self {
        Self {
            chunks: Chunks::new(chunk_segments),
            resends: BTreeSet::new(),
            ahead_ends: BTreeSet::new(),
            failed: VecDeque::new(),
            unanswered: 0,
            in_flight: 0,
            early_answers: BTreeSet::new(),
        }
    }

    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Segments whose Interests are in flight or wait at the producer.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight + self.ahead_count()
    }

    /// Chunks that were requested ahead.
    pub(crate) fn ahead_count(&self) -> u32 {
        self.ahead_ends.len() as u32
    }

    /// The first index that has not been requested.
    pub(crate) fn next_index(&self) -> u64 {
        self.chunks.next_index()
    }

    /// The first segment of the first chunk that is not done.
    pub(crate) fn first_index(&self) -> u64 {
        self.chunks.first_index()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.chunks.segments() < SEGMENTS_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn find(&self, index: u64) -> Option<usize> {
        self.chunks.find(index)
    }

    pub(super) fn get(&self, at: usize) -> &Chunk {
        self.chunks.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut Chunk {
        self.chunks.get_mut(at)
    }

    /// The open segments of a chunk.
    pub(super) fn open_segments(&self, at: usize) -> impl Iterator<Item = u64> {
        self.chunks.open_segments(at)
    }

    /// Whether a segment is requested and not answered.
    pub(crate) fn is_open(&self, index: u64) -> bool {
        self.find(index).is_some_and(|at| self.chunks.is_open(at, index))
    }

    /// The chunk that begins with `first`, if it is in flight on this path in this order.
    pub(super) fn find_in_flight(&self, first: u64, path: PathId, order: u64) -> Option<usize> {
        let at = self.find(first)?;
        let chunk = self.get(at);
        (chunk.is_in_flight() && chunk.path == path && chunk.send_order == order).then_some(at)
    }

    /// The next chunk to send again, and when.
    pub(super) fn first_resend(&self) -> Option<(Instant, u64)> {
        self.resends.first().copied()
    }

    /// When the first request ahead expires, and the first segment of its chunk.
    pub(super) fn first_ahead_end(&self) -> Option<(Instant, u64)> {
        self.ahead_ends.first().copied()
    }

    pub(super) fn take_failed(&mut self) -> Option<FailedSegment> {
        self.failed.pop_front()
    }

    /// Starts at `index`: earlier segments are not wanted.
    pub(super) fn start_at(&mut self, index: u64) {
        self.chunks.start_at(index);
    }

    /// Adds the next chunk before `limit` that has a needed segment, to be sent on `path`. Returns
    /// its first segment.
    pub(super) fn push_next(
        &mut self,
        path: PathId,
        now: Instant,
        limit: u64,
        mut is_needed: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        loop {
            if self.next_index() >= limit || !self.has_room() {
                return None;
            }
            // A segment answered before its turn needs no Interest. Its record ends here.
            let Self { chunks, early_answers, .. } = self;
            let at = chunks.push(Chunk::new(path, now), limit, |index| {
                !early_answers.remove(&index) && is_needed(index)
            });
            let chunk = chunks.get_mut(at);
            if chunk.open_count > 0 {
                self.unanswered += chunk.open_count;
                return Some(chunk.first_segment);
            }
            // No segment of this chunk is needed: tries the next chunk.
            chunk.state = ChunkState::Done;
            chunks.pop_done();
        }
    }

    /// The first chunk to send again is being sent.
    pub(super) fn take_resend(&mut self) {
        self.resends.pop_first();
    }

    /// A chunk was sent: in the window, or ahead until the given time.
    pub(super) fn on_sent(&mut self, at: usize, ahead_until: Option<Instant>) {
        let chunk = self.chunks.get_mut(at);
        debug_assert!(matches!(chunk.state, ChunkState::AwaitsResend(_)), "{chunk:?}");
        let Chunk { first_segment: first, open_count: open, .. } = *chunk;
        match ahead_until {
            Some(end) => {
                chunk.state = ChunkState::Ahead(end);
                self.ahead_ends.insert((end, first));
            }
            None => {
                chunk.state = ChunkState::InFlight;
                self.in_flight += open;
            }
        }
        self.chunks.forget_refused(at);
    }

    /// Closes a segment of a chunk. Returns whether it was open.
    pub(super) fn close(&mut self, at: usize, index: u64) -> bool {
        let was_open = self.chunks.close(at, index);
        let is_flying = self.chunks.get(at).is_in_flight();
        self.unanswered -= u32::from(was_open);
        self.in_flight -= u32::from(was_open && is_flying);
        was_open
    }

    /// Marks an open segment as refused. Returns false if it was already.
    pub(super) fn mark_refused(&mut self, at: usize, index: u64) -> bool {
        self.chunks.mark_refused(at, index)
    }

    /// Marks a chunk as done. The caller calls [`Self::pop_done`].
    pub(super) fn finish(&mut self, at: usize, paths: &mut Paths) {
        let chunk = self.chunks.get_mut(at);
        let (path, first) = (chunk.path, chunk.first_segment);
        match core::mem::replace(&mut chunk.state, ChunkState::Done) {
            ChunkState::InFlight => {
                if let Some(path) = paths.get_mut(path) {
                    path.remove_in_flight();
                }
            }
            ChunkState::AwaitsResend(at) => {
                self.resends.remove(&(at, first));
            }
            ChunkState::Ahead(end) => {
                self.ahead_ends.remove(&(end, first));
            }
            ChunkState::Done => {}
        }
    }

    /// Removes the leading chunks that are done.
    pub(super) fn pop_done(&mut self) {
        self.chunks.pop_done();
    }

    /// Sends a chunk that is in flight again at `when`.
    pub(super) fn resend(&mut self, at: usize, when: Instant, paths: &mut Paths) {
        let chunk = self.chunks.get_mut(at);
        debug_assert!(chunk.is_in_flight());
        chunk.state = ChunkState::AwaitsResend(when);
        let Chunk { path, first_segment: first, open_count: open, .. } = *chunk;
        self.in_flight -= open;
        if let Some(path) = paths.get_mut(path) {
            path.remove_in_flight();
        }
        self.resends.insert((when, first));
    }

    /// Sends a chunk that was requested ahead again at `when`. Attempts before its segments existed
    /// do not count.
    pub(super) fn resend_ahead(&mut self, at: usize, when: Instant) {
        let chunk = self.chunks.get_mut(at);
        let ChunkState::Ahead(end) = chunk.state else { return };
        chunk.state = ChunkState::AwaitsResend(when);
        chunk.sends = 1;
        let first = chunk.first_segment;
        self.ahead_ends.remove(&(end, first));
        self.resends.insert((when, first));
    }

    /// A path was removed: its chunks are sent again at once.
    pub(super) fn path_removed(&mut self, path: PathId, now: Instant) {
        for at in 0..self.chunks.len() {
            let chunk = self.chunks.get_mut(at);
            if chunk.path != path {
                continue;
            }
            chunk.is_path_gone = true;
            // `resend_ahead` ignores chunks that are done, or wait to be resent anyway.
            if chunk.is_in_flight() {
                chunk.state = ChunkState::AwaitsResend(now);
                self.in_flight -= chunk.open_count;
                self.resends.insert((now, chunk.first_segment));
            } else {
                self.resend_ahead(at, now);
            }
        }
    }

    /// Fails a chunk and reports its open segments. The caller calls [`Self::pop_done`].
    pub(super) fn fail(&mut self, at: usize, reason: FailReason, paths: &mut Paths) {
        let Self { chunks, failed, .. } = self;
        failed.extend(chunks.open_segments(at).map(|index| FailedSegment { index, reason }));
        for index in self.chunks.get(at).segments() {
            self.close(at, index);
        }
        self.finish(at, paths);
    }

    pub(super) fn cancel(&mut self, index: u64, paths: &mut Paths) {
        let Some(at) = self.find(index) else { return };
        self.close(at, index);
        if self.get(at).open_count == 0 {
            self.finish(at, paths);
            self.pop_done();
        }
    }

    /// Cancels all open segments, and returns them.
    pub(super) fn cancel_all(&mut self, paths: &mut Paths) -> Vec<u64> {
        let mut open = Vec::new();
        for at in 0..self.chunks.len() {
            open.extend(self.chunks.open_segments(at));
            for index in self.chunks.get(at).segments() {
                self.close(at, index);
            }
            self.finish(at, paths);
        }
        self.pop_done();
        open
    }

    /// Removes everything from index `limit` on. The limit may turn out to be too low, so answered
    /// segments past it are remembered in `early_answers`.
    pub(super) fn truncate(&mut self, limit: u64, paths: &mut Paths) {
        while self.next_index() > limit && !self.chunks.is_empty() {
            let at = self.chunks.len() - 1;
            let ahead_segments = self.chunks.get(at).segments();
            for index in ahead_segments.start.max(limit)..ahead_segments.end {
                // A closed segment was answered, or is not needed.
                if !self.close(at, index) {
                    self.early_answers.insert(index);
                }
            }
            if self.chunks.get(at).open_count == 0 {
                self.finish(at, paths);
            }
            self.chunks.truncate(limit);
        }
        self.pop_done();
    }

    /// Moves the next index forward or back while nothing is requested. Returns the skipped indices
    /// that were answered already.
    pub(super) fn skip_to(&mut self, index: u64) -> Vec<u64> {
        debug_assert!(self.chunks.is_empty());
        let later = self.early_answers.split_off(&index);
        let done = core::mem::replace(&mut self.early_answers, later);
        self.chunks.start_at(index);
        done.into_iter().collect()
    }

    /// A segment that was not requested in its turn is answered.
    pub(super) fn answered_early(&mut self, index: u64) {
        if index >= self.next_index() {
            self.early_answers.insert(index);
        }
    }

    /// Whether a segment was answered before it was requested in its turn.
    pub(crate) fn is_answered_early(&self, index: u64) -> bool {
        self.early_answers.contains(&index)
    }

    /// Checks counters and lists against the states of the chunks.
    pub(super) fn assert_consistent(&self, paths: &Paths) {
        let flying = |id| self.chunks.iter().filter(move |s| s.is_in_flight() && s.path == id);
        for path in paths.all() {
            assert_eq!(flying(path.id).count(), path.in_flight() as usize, "{:?}", path.id);
        }
        let mut open = (0, 0);
        for at in 0..self.chunks.len() {
            let chunk = self.chunks.get(at);
            assert_eq!(self.chunks.open_segments(at).count(), chunk.open_count as usize);
            assert_eq!(chunk.open_count == 0, chunk.state == ChunkState::Done, "{chunk:?}");
            open.0 += chunk.open_count;
            open.1 += if chunk.is_in_flight() { chunk.open_count } else { 0 };
        }
        assert_eq!(open, (self.unanswered, self.in_flight));
        let waiting = |chunk: &&Chunk| matches!(chunk.state, ChunkState::AwaitsResend(_));
        assert_eq!(self.chunks.iter().filter(waiting).count(), self.resends.len());
        let ahead = |chunk: &&Chunk| matches!(chunk.state, ChunkState::Ahead(_));
        assert_eq!(self.chunks.iter().filter(ahead).count(), self.ahead_count() as usize);
    }
}
