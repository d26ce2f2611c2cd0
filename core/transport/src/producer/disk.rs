//! Interests that wait for the disk of the output buffer, and what comes of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_store::Lookup;
use weir_store::disk::{FinishedRead, OnDisk, ReadId, ReadOutcome, ReadRefused};
use weir_wire::{DataView, InterestView, NackReason};

use super::input::Asker;
use super::{Producer, ProducerOutbox, Source, send};

/// Those who wait, by the read.
#[derive(Default)]
pub(super) struct DiskWaiters {
    by_read: BTreeMap<ReadId, Vec<Asker>>,
    count: usize,
}

impl DiskWaiters {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn add(&mut self, read: ReadId, asker: Asker) {
        self.count += 1;
        self.by_read.entry(read).or_default().push(asker);
    }

    fn take(&mut self, read: ReadId) -> Vec<Asker> {
        let askers = self.by_read.remove(&read).unwrap_or_default();
        self.count -= askers.len();
        askers
    }

    /// Takes out all; what is read for them is for nobody.
    pub(super) fn take_all(&mut self) -> Vec<Asker> {
        self.count = 0;
        core::mem::take(&mut self.by_read).into_values().flatten().collect()
    }
}

impl<S: Source> Producer<S> {
    /// Has the disk read what answers an Interest, which waits for it. Says no where the disk does
    /// not answer.
    pub(super) fn read_from_disk(
        &mut self,
        found: &OnDisk,
        asker: Asker,
        out: &mut ProducerOutbox,
    ) -> Result<(), Asker> {
        if found.is_stalled {
            self.buffer.decline_read();
            self.stats.disk_vain += 1;
            return Err(asker);
        }
        let begun = match self.disk_waiters.len() < self.config.reads_max {
            true => self.buffer.begin_read(found),
            false => Err(ReadRefused),
        };
        match begun {
            Ok(read) => {
                let interest = self.buffer.copy(&asker.interest);
                self.disk_waiters.add(read, Asker { interest, ..asker });
            }
            Err(ReadRefused) => {
                self.stats.refused += 1;
                self.refuse(asker, NackReason::Congestion, out);
            }
        }
        Ok(())
    }

    /// Answers those whose reads have ended, and has the disk do what is next.
    pub(super) fn serve_disk(&mut self, now: Instant, out: &mut ProducerOutbox) {
        if !self.buffer.has_disk() {
            return;
        }
        while let Some(FinishedRead { read, outcome }) = self.buffer.next_finished() {
            let askers = self.disk_waiters.take(read);
            match outcome {
                ReadOutcome::Data { packet, fresh_until } => {
                    self.on_disk_data(now, (packet, fresh_until), askers, out);
                }
                ReadOutcome::Unavailable | ReadOutcome::Stalled => {
                    self.go_on_without_disk(now, askers, out);
                }
            }
        }
        self.buffer.take_disk_ops(now, &mut out.disk_ops);
    }

    fn on_disk_data(
        &mut self,
        now: Instant,
        (packet, fresh_until): (Packet, Instant),
        askers: Vec<Asker>,
        out: &mut ProducerOutbox,
    ) {
        // The index knows hashes of names alone, and a checksum is no proof of what is there.
        let Ok(data) = DataView::decode(&packet) else {
            return self.go_on_without_disk(now, askers, out);
        };
        self.buffer.promote(now, (&packet, &data), fresh_until);
        let mut others = Vec::new();
        for asker in askers {
            let interest = InterestView::decode(&asker.interest).expect("it was decoded before");
            if !data.satisfies(&interest) {
                others.push(asker);
            } else if now > asker.deadline {
                self.stats.reads_late += 1;
            } else {
                self.stats.disk_data += 1;
                send(&mut self.stats, &asker, packet.clone(), out);
            }
        }
        self.go_on_without_disk(now, others, out);
    }

    /// The disk has nothing for them: they are answered as if there were none.
    fn go_on_without_disk(&mut self, now: Instant, askers: Vec<Asker>, out: &mut ProducerOutbox) {
        for asker in askers {
            self.stats.disk_vain += 1;
            if now > asker.deadline {
                self.stats.reads_late += 1;
                continue;
            }
            let packet = asker.interest.clone();
            let interest = InterestView::decode(&packet).expect("it was decoded before");
            // It may have been published anew meanwhile. A disk that fails is not asked twice.
            match self.buffer.find(now, &interest) {
                Lookup::Hit(hit) => send(&mut self.stats, &asker, hit.packet, out),
                Lookup::OnDisk(_) => {
                    self.buffer.decline_read();
                    self.ask_source(now, &interest, asker, out);
                }
                Lookup::Miss => self.ask_source(now, &interest, asker, out),
            }
        }
    }
}

#[cfg(test)]
mod tests;
