//! Interests that wait for the output buffer's disk.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_store::disk::{FinishedRead, OnDisk, ReadId, ReadOutcome, ReadRefused};
use weir_wire::{DataView, InterestView};

use super::buffer::Buffer;
use super::input::PendingInterest;

/// The waiting Interests, by read.
#[derive(Default)]
pub(super) struct DiskReads {
    waiting: BTreeMap<ReadId, Vec<PendingInterest>>,
    count: usize,
}

/// What happened to an Interest whose answer is on the disk.
pub(super) enum ReadStart {
    Pending,
    /// Too many wait already.
    Refused(PendingInterest),
    /// The disk does not respond: the Interest must be answered without it.
    Stalled(PendingInterest),
}

/// A finished read.
#[derive(Default)]
pub(super) struct ReadResult {
    /// What the disk had, and the Interests that it answers.
    pub(super) data: Option<Packet>,
    pub(super) answered: Vec<PendingInterest>,
    /// Interests that must be answered without the disk.
    pub(super) unanswered: Vec<PendingInterest>,
}

impl DiskReads {
    /// Starts to read the answer to an Interest. At most `max` wait.
    pub(super) fn start(
        &mut self,
        buffer: &mut Buffer,
        found: &OnDisk,
        pending: PendingInterest,
        max: usize,
    ) -> ReadStart {
        if found.is_stalled {
            buffer.decline_read(&pending.interest);
            return ReadStart::Stalled(pending);
        }
        let started = if self.count < max { buffer.begin_read(found) } else { Err(ReadRefused) };
        let Ok(read) = started else {
            buffer.decline_read(&pending.interest);
            return ReadStart::Refused(pending);
        };
        let interest = buffer.copy(&pending.interest);
        self.count += 1;
        self.waiting.entry(read).or_default().push(PendingInterest { interest, ..pending });
        ReadStart::Pending
    }

    /// The next finished read. Its Data returns to memory.
    pub(super) fn next_finished(
        &mut self,
        now: Instant,
        buffer: &mut Buffer,
    ) -> Option<ReadResult> {
        let FinishedRead { read, outcome } = buffer.next_finished()?;
        let pending_interests = self.waiting.remove(&read).unwrap_or_default();
        self.count -= pending_interests.len();
        let ReadOutcome::Data { packet, fresh_until } = outcome else {
            return Some(ReadResult { unanswered: pending_interests, ..ReadResult::default() });
        };
        // The disk may return another record: its index knows only hashes of names, and a checksum
        // does not show which record this is. So the Data is compared with each Interest.
        let Ok(data) = DataView::decode(&packet) else {
            return Some(ReadResult { unanswered: pending_interests, ..ReadResult::default() });
        };
        buffer.promote(now, &packet, &data, fresh_until);
        let (answered, unanswered) = pending_interests.into_iter().partition(|pending| {
            let interest = InterestView::decode(&pending.interest).expect("decoded on arrival");
            data.satisfies(&interest)
        });
        Some(ReadResult { data: Some(packet.clone()), answered, unanswered })
    }

    /// Number of waiting Interests.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Removes and returns all Interests. When their reads finish, nothing is sent.
    pub(super) fn take_all(&mut self) -> Vec<PendingInterest> {
        self.count = 0;
        core::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
