use alloc::collections::VecDeque;

use weir_base::Pool;

use crate::frame::Frame;
use crate::runs;

/// Charge for a packet in memory in addition to its own bytes. It limits a queue of tiny packets.
const PACKET_CHARGE_BYTES: u64 = 96;
/// Memory of a frame in the list, in bytes, beyond its charge. Up to half of the list is unused,
/// because the list doubles when it grows.
const FRAME_EXTRA_BYTES: u64 = 128;

/// The size of queued packets. Bytes on the wire and bytes of memory are counted separately.
/// Marking uses the former, as NFD does. The limit of the queue uses the latter.
#[derive(Copy, Clone, Debug, Default)]
pub struct Load {
    pub wire_bytes: u64,
    pub charged_bytes: u64,
}

impl Load {
    /// The charge for a frame or packet of `wire_len` bytes.
    pub(crate) fn charge_of(wire_len: usize) -> u64 {
        wire_len as u64 + PACKET_CHARGE_BYTES
    }

    /// Adds a packet of `wire_len` bytes.
    pub fn add(&mut self, wire_len: usize) {
        self.wire_bytes += wire_len as u64;
        self.charged_bytes += Self::charge_of(wire_len);
    }

    /// Removes a packet of `wire_len` bytes that was added before.
    pub fn remove(&mut self, wire_len: usize) {
        self.wire_bytes -= wire_len as u64;
        self.charged_bytes -= Self::charge_of(wire_len);
    }
}

/// Frames that the socket may take, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    frames: VecDeque<Frame>,
    load: Load,
    /// Number of frames at the front that have been copied out of receive blocks.
    detached: usize,
}

impl ReadyQueue {
    pub(crate) fn push(&mut self, frame: Frame) {
        self.load.add(frame.len());
        self.frames.push_back(frame);
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.load.remove(frame.len());
        self.detached = self.detached.saturating_sub(1);
        Some(frame)
    }

    /// Removes the newest frame, unless only `kept` are left.
    pub(crate) fn pop_newest(&mut self, kept: usize) -> Option<Frame> {
        if self.frames.len() <= kept {
            return None;
        }
        let frame = self.frames.pop_back()?;
        self.load.remove(frame.len());
        self.detached = self.detached.min(self.frames.len());
        Some(frame)
    }

    /// Joins consecutive Interests into runs over at most `span` segment numbers, in frames of at
    /// most `mtu` bytes. Returns the number of runs and of their Interests. Frames that have waited
    /// for the socket before, and the `begun` oldest, stay as they are. With a span of 0 it only
    /// reports whether there is a run.
    pub(crate) fn gather(&mut self, begun: usize, span: u8, mtu: usize) -> (u64, u64) {
        let (mut runs, mut interests) = (0, 0);
        // A detached frame has already waited for the socket.
        let mut at = self.detached.max(begun);
        // Frames are compacted in place: `at` reads, and `kept` writes.
        let mut kept = at;
        while at < self.frames.len() {
            // Without permission to send runs, the smallest span shows whether there is one.
            let found = runs::find_run(self.frames.range(at..), span.max(2), mtu);
            let count = found.map_or(1, |found| found.interests);
            if let Some(found) = found {
                (runs, interests) = (runs + 1, interests + count as u64);
                if span == 0 {
                    return (runs, interests);
                }
                let run = runs::join_run(found, self.frames.range(at..));
                for frame in self.frames.range(at..at + count) {
                    self.load.remove(frame.len());
                }
                self.load.add(run.len());
                self.frames[kept] = run;
            } else if kept != at {
                self.frames.swap(kept, at);
            }
            (at, kept) = (at + count, kept + 1);
        }
        self.frames.truncate(kept);
        (runs, interests)
    }

    /// As [`Self::gather`], for a face with hICN packets.
    pub(crate) fn gather_hicn(&mut self, begun: usize, mtu: usize) -> (u64, u64) {
        let (mut runs, mut interests) = (0, 0);
        let mut at = self.detached.max(begun);
        let mut kept = at;
        while at < self.frames.len() {
            let mut count = 1;
            if let Some((joined, run)) = runs::join_manifest(self.frames.range(at..), mtu) {
                count = joined;
                (runs, interests) = (runs + 1, interests + count as u64);
                for frame in self.frames.range(at..at + count) {
                    self.load.remove(frame.len());
                }
                self.load.add(run.len());
                self.frames[kept] = run;
            } else if kept != at {
                self.frames.swap(kept, at);
            }
            (at, kept) = (at + count, kept + 1);
        }
        self.frames.truncate(kept);
        (runs, interests)
    }

    /// Approximate memory of all frames in bytes: their charges, their list, and the rounding of
    /// blocks.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.load.charged_bytes + self.frames.len() as u64 * FRAME_EXTRA_BYTES
    }

    /// Frees the memory of an empty list.
    pub(crate) fn shrink(&mut self) {
        if self.frames.is_empty() {
            self.frames = VecDeque::new();
        }
    }

    pub(crate) fn frames(&self) -> &VecDeque<Frame> {
        &self.frames
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    pub(crate) fn detach(&mut self, pool: &mut Pool) {
        for frame in self.frames.iter_mut().skip(self.detached) {
            frame.detach(pool);
        }
        self.detached = self.frames.len();
    }
}
