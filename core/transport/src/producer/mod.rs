//! The producer: takes Interests and returns Data. The driver carries out the reads in between.
//!
//! [`Producer`] owns and calls four components. `Buffer` stores Data that was put or read.
//! `WaitingTable` holds Interests for data that does not exist yet. `DiskReads` holds Interests
//! whose answer is on the disk. `Absence` signs answers that a name does not exist.

mod absence;
mod buffer;
mod catalog;
mod config;
mod disk;
mod input;
mod object;
mod template;
mod waiting;

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_security::{Signer, sha256};
use weir_store::Lookup;
use weir_store::disk::DiskTierConfig;
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name};

use self::absence::Absence;
use self::buffer::Buffer;
use self::disk::{DiskReads, ReadResult, ReadStart};
use self::input::PendingInterest;
use self::waiting::{JoinResult, WaitingTable};
use crate::{METADATA_KEYWORD, NameMapping, PathId};

pub use self::catalog::{Answer, Catalog, ObjectId, Source};
pub use self::config::{MissPolicy, ProducerConfig, ProducerStats};
pub use self::input::{ProducerEvent, ProducerInput, ProducerOutbox, ReadOp};
pub use self::object::{SealedObject, Signatures};
pub use self::template::{Frame, SegmentTemplate};

/// How long an Interest may wait for a segment that will be made, even if its lifetime is longer.
const SEGMENT_WAIT_NS_MAX: u64 = 60 * NS_PER_S;

/// Answers Interests from its [`Source`], from its output buffer, or, for waiting Interests, when
/// the data is published.
pub struct Producer<S = Catalog> {
    source: S,
    config: ProducerConfig,
    buffer: Buffer,
    waiting: WaitingTable,
    disk_reads: DiskReads,
    reads: usize,
    absence: Absence,
    stats: ProducerStats,
}

impl<S: Source> Producer<S> {
    /// A producer that serves `source`.
    pub fn new(source: S, config: ProducerConfig) -> Self {
        Self::build(source, config, None)
    }

    /// A producer that serves `source`, with an output buffer in memory and on a disk. The disk
    /// stores what memory has no room for (paper socket-api, section 5.4). The disk is a cache that
    /// lasts as long as the producer. What it cannot store or return is requested from `source`,
    /// and then from the application, as if there were no disk.
    pub fn with_disk(source: S, config: ProducerConfig, disk: DiskTierConfig) -> Self {
        let config = ProducerConfig { hash_key: disk.hash_key, ..config };
        Self::build(source, config, Some(disk))
    }

    fn build(source: S, config: ProducerConfig, disk: Option<DiskTierConfig>) -> Self {
        Self {
            source,
            buffer: Buffer::new(&config, disk),
            waiting: WaitingTable::new(&config),
            disk_reads: DiskReads::default(),
            config,
            reads: 0,
            absence: Absence::default(),
            stats: ProducerStats::default(),
        }
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source. After adding data that waiting Interests may request, send
    /// [`ProducerInput::Published`].
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Signs an answer (ContentType Nack) to Interests for missing names below the prefixes given
    /// to [`Self::own_prefix`].
    pub fn sign_absence(&mut self, signer: Arc<dyn Signer>) {
        self.absence.set_signer(signer);
    }

    /// Declares that only this producer serves `prefix`.
    pub fn own_prefix(&mut self, prefix: &Name) {
        self.absence.add_prefix(prefix);
    }

    pub fn stats(&self) -> ProducerStats {
        ProducerStats { disk: self.buffer.disk_stats(), ..self.stats }
    }

    /// Whether the disk should write some of its backlog before more is put. Otherwise a record may
    /// find no room in its queue, and will be requested from the application again. Never for long:
    /// the producer does not wait for an unresponsive disk.
    pub fn is_disk_behind(&self) -> bool {
        self.buffer.is_disk_behind()
    }

    /// Number of waiting Interests.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of memory that the output buffer uses.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Number of pending reads.
    #[cfg(test)]
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    /// Takes and drains `inputs`, and appends to `out` what the driver must do. Must also be called
    /// without inputs when [`Producer::next_wakeup`] has come.
    pub fn handle(
        &mut self,
        now: Instant,
        inputs: &mut Vec<ProducerInput>,
        out: &mut ProducerOutbox,
    ) {
        self.expire(now, out);
        self.buffer.handle_timeout(now);
        for input in inputs.drain(..) {
            match input {
                ProducerInput::Packet { path, header, packet } => {
                    self.on_packet(now, path, &header, packet, out);
                }
                ProducerInput::Put(packet) => self.put(now, packet, out),
                ProducerInput::Answer(packet) => self.answer_waiting(&packet, out),
                ProducerInput::Refuse(interest) => self.refuse_waiting(&interest, out),
                ProducerInput::RefuseAll => self.refuse_all(out),
                ProducerInput::Published(prefix) => self.answer_published(&prefix, out),
                ProducerInput::ReadDone { op, data } => self.on_read(now, op, data, out),
                // A Nack lets the router try another next hop.
                ProducerInput::ReadFailed { op } => {
                    self.finish_read();
                    self.stats.reads_failed += 1;
                    self.refuse(op.pending, NackReason::NoRoute, out);
                }
                ProducerInput::DiskDone { id, outcome } => {
                    self.buffer.on_disk_done(now, id, outcome);
                }
            }
        }
        self.serve_disk(now, out);
    }

    /// When [`Producer::handle`] must be called at the latest, if no input arrives earlier.
    pub fn next_wakeup(&self) -> Option<Instant> {
        [self.waiting.next_wakeup(), self.buffer.next_wakeup()].into_iter().flatten().min()
    }

    fn expire(&mut self, now: Instant, out: &mut ProducerOutbox) {
        let (stats, unanswered) = (&mut self.stats, self.config.on_miss);
        self.waiting.take_expired(now, |pending| {
            stats.expired += 1;
            let unanswered = if pending.awaits_segment { MissPolicy::Ignore } else { unanswered };
            refuse(unanswered, pending, NackReason::NoRoute, out);
        });
    }

    fn on_packet(
        &mut self,
        now: Instant,
        path: PathId,
        header: &LpHeader,
        packet: Packet,
        out: &mut ProducerOutbox,
    ) {
        let interest = match InterestView::decode(&packet) {
            Ok(interest) if header.nack.is_none() => interest,
            _ => {
                self.stats.malformed += 1;
                return;
            }
        };
        self.stats.interests += 1;
        // Without an answer, routers forward the next Interest for this name, which may be genuine.
        if self.config.mapping.requested(&interest).is_err() {
            self.stats.false_payloads += 1;
            return;
        }
        let last = interest.name.last();
        self.stats.metadata +=
            u64::from(last.is_some_and(|last| last.is_keyword(METADATA_KEYWORD)));
        let lifetime_ns = interest.lifetime_ms_or_default().saturating_mul(NS_PER_MS);
        let pending = PendingInterest {
            path,
            token: header.pit_token,
            deadline: now.plus_ns(lifetime_ns),
            is_full_name: last.is_some_and(|last| last.is_implicit_digest()),
            awaits_segment: false,
            interest: Packet::empty(),
        };
        let found = self.buffer.find(now, &interest);
        if let Lookup::Hit(hit) = found {
            return send(&mut self.stats, &pending, hit.packet, out);
        }
        // The Interest waits for the disk or the source, so its packet must be kept.
        let pending = PendingInterest { interest: packet.clone(), ..pending };
        let Lookup::OnDisk(found) = found else {
            return self.answer_from_source(now, &interest, pending, out);
        };
        let reads_max = self.config.reads_max;
        match self.disk_reads.start(&mut self.buffer, &found, pending, reads_max) {
            ReadStart::Pending => {}
            ReadStart::Refused(pending) => {
                self.stats.refused += 1;
                self.refuse(pending, NackReason::Congestion, out);
            }
            ReadStart::Stalled(pending) => {
                self.stats.disk_vain += 1;
                self.answer_from_source(now, &interest, pending, out);
            }
        }
    }

    /// Answers Interests whose reads have ended, and issues the next disk operations.
    fn serve_disk(&mut self, now: Instant, out: &mut ProducerOutbox) {
        if !self.buffer.has_disk() {
            return;
        }
        while let Some(finished) = self.disk_reads.next_finished(now, &mut self.buffer) {
            let ReadResult { data, answered, unanswered } = finished;
            for (pending, data) in answered.into_iter().zip(data.iter().cycle()) {
                if now > pending.deadline {
                    self.stats.reads_late += 1;
                } else {
                    self.stats.disk_data += 1;
                    send(&mut self.stats, &pending, data.clone(), out);
                }
            }
            for pending in unanswered {
                self.answer_without_disk(now, pending, out);
            }
        }
        self.buffer.take_disk_ops(now, &mut out.disk_ops);
    }

    /// The disk has no answer to an Interest: answers as if there were no disk.
    fn answer_without_disk(
        &mut self,
        now: Instant,
        pending: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        self.stats.disk_vain += 1;
        if now > pending.deadline {
            self.stats.reads_late += 1;
            return;
        }
        let packet = pending.interest.clone();
        let interest = InterestView::decode(&packet).expect("decoded on arrival");
        // The Data may have been published again during the read. If it is on the disk, the disk is
        // not read a second time.
        match self.buffer.find(now, &interest) {
            Lookup::Hit(hit) => send(&mut self.stats, &pending, hit.packet, out),
            Lookup::OnDisk(_) => {
                self.buffer.decline_read(&packet);
                self.answer_from_source(now, &interest, pending, out);
            }
            Lookup::Miss => self.answer_from_source(now, &interest, pending, out),
        }
    }

    /// Answers an Interest that the output buffer cannot answer.
    fn answer_from_source(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        pending: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        let until = |wait_ns: u64| pending.deadline.min(now.plus_ns(wait_ns));
        match self.source.find(interest) {
            Answer::Packet(data) => send(&mut self.stats, &pending, data, out),
            Answer::Segment { object, segment } => self.read(object, segment, pending, out),
            // The source will make the segment, so the application is not notified. The Interest is
            // copied, because its packet would keep a whole receive block in memory.
            Answer::WhenMade => {
                let until = until(SEGMENT_WAIT_NS_MAX);
                let interest_copy = self.buffer.copy(&pending.interest);
                let pending =
                    PendingInterest { interest: interest_copy, awaits_segment: true, ..pending };
                self.wait(interest, until, pending, out);
            }
            // The application is notified and may publish the Data, so the Interest waits.
            Answer::NotFound if self.config.wait_max_ns > 0 => {
                let until = until(self.config.wait_max_ns);
                let pending =
                    PendingInterest { interest: self.buffer.copy(&pending.interest), ..pending };
                self.wait(interest, until, pending, out);
            }
            Answer::NotFound => {
                self.stats.unknown += 1;
                // With longer names below this one, a signed Nack would wrongly deny them, too.
                let answer = match self.source.has_below(interest.name) {
                    true => None,
                    false => self.absence.sign_answer(now, interest),
                };
                match answer {
                    Some(data) => send(&mut self.stats, &pending, data, out),
                    None => self.refuse(pending, NackReason::NoRoute, out),
                }
            }
        }
    }

    fn read(
        &mut self,
        object: ObjectId,
        segment: u64,
        pending: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        if self.reads >= self.config.reads_max {
            self.stats.refused += 1;
            self.refuse(pending, NackReason::Congestion, out);
            return;
        }
        self.reads += 1;
        out.reads.push(ReadOp { object, segment, pending });
    }

    fn wait(
        &mut self,
        interest: &InterestView<'_>,
        until: Instant,
        pending: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        let (copy, is_early) = (pending.interest.clone(), pending.awaits_segment);
        // The application knows only the name in the network.
        let mapping = self.config.mapping;
        let names_more = |old: &PendingInterest| {
            let old = InterestView::decode(&old.interest);
            is_named(mapping, interest) && old.is_ok_and(|old| !is_named(mapping, &old))
        };
        match self.waiting.join(interest, until, pending) {
            JoinResult::First if !is_early => {
                out.events.push(ProducerEvent::Wanted { interest: copy });
            }
            JoinResult::Replaced(old) if !is_early && names_more(&old) => {
                out.events.push(ProducerEvent::Wanted { interest: copy });
            }
            JoinResult::First | JoinResult::Replaced(_) => {}
            JoinResult::Full(pending) => {
                self.stats.refused += 1;
                self.refuse(pending, NackReason::Congestion, out);
            }
        }
    }

    fn put(&mut self, now: Instant, packet: Packet, out: &mut ProducerOutbox) {
        let Ok(data) = DataView::decode(&packet) else {
            self.stats.malformed += 1;
            return;
        };
        self.buffer.insert(now, &data);
        self.answer_with(&data, &packet, out);
    }

    fn answer_waiting(&mut self, packet: &Packet, out: &mut ProducerOutbox) {
        let Ok(data) = DataView::decode(packet) else {
            self.stats.malformed += 1;
            return;
        };
        self.answer_with(&data, packet, out);
    }

    fn answer_with(&mut self, data: &DataView<'_>, packet: &Packet, out: &mut ProducerOutbox) {
        let stats = &mut self.stats;
        self.waiting.take_answered(data, |pending| send(stats, &pending, packet.clone(), out));
    }

    fn refuse_waiting(&mut self, interest: &[u8], out: &mut ProducerOutbox) {
        let Ok(interest) = InterestView::decode(interest) else {
            self.stats.malformed += 1;
            return;
        };
        let (stats, unanswered) = (&mut self.stats, self.config.on_miss);
        self.waiting.take_refused(&interest, |pending| {
            stats.unknown += 1;
            refuse(unanswered, pending, NackReason::NoRoute, out);
        });
    }

    /// Refuses all waiting Interests, including those that wait for the disk.
    fn refuse_all(&mut self, out: &mut ProducerOutbox) {
        let unanswered = self.config.on_miss;
        let mut askers = self.disk_reads.take_all();
        self.waiting.take_all(|pending| askers.push(pending));
        self.stats.unknown += askers.len() as u64;
        for pending in askers {
            refuse(unanswered, pending, NackReason::NoRoute, out);
        }
    }

    /// Repeats the lookup of waiting Interests that data below `prefix` may answer.
    fn answer_published(&mut self, prefix: &Name, out: &mut ProducerOutbox) {
        let (waiting, source) = (&mut self.waiting, &mut self.source);
        for (pending, answer) in waiting.take_answerable(prefix.as_view(), source) {
            match answer {
                Answer::Packet(data) => send(&mut self.stats, &pending, data, out),
                Answer::Segment { object, segment } => self.read(object, segment, pending, out),
                Answer::NotFound | Answer::WhenMade => {
                    unreachable!("such an Interest keeps waiting")
                }
            }
        }
    }

    fn on_read(&mut self, now: Instant, op: ReadOp, data: Packet, out: &mut ProducerOutbox) {
        self.finish_read();
        let pending = op.pending;
        if self.buffer.is_enabled()
            && let Ok(view) = DataView::decode(&data)
        {
            self.buffer.insert(now, &view);
        }
        if now > pending.deadline {
            self.stats.reads_late += 1;
        } else if pending.is_full_name && !has_digest(&pending.interest, &data) {
            self.stats.unknown += 1;
            self.refuse(pending, NackReason::NoRoute, out);
        } else {
            send(&mut self.stats, &pending, data, out);
        }
    }

    fn finish_read(&mut self) {
        self.reads = self.reads.checked_sub(1).expect("each read comes back once");
    }

    fn refuse(&self, pending: PendingInterest, reason: NackReason, out: &mut ProducerOutbox) {
        refuse(self.config.on_miss, pending, reason, out);
    }
}

/// Whether an Interest carries the application's name.
fn is_named(mapping: NameMapping, interest: &InterestView<'_>) -> bool {
    matches!(mapping.requested(interest), Ok(Some(_)))
}

fn refuse(
    unanswered: MissPolicy,
    pending: PendingInterest,
    reason: NackReason,
    out: &mut ProducerOutbox,
) {
    if unanswered == MissPolicy::Nack {
        let header =
            LpHeader { pit_token: pending.token, nack: Some(reason), ..LpHeader::default() };
        out.packets.push((pending.path, header, pending.interest));
    }
}

fn send(
    stats: &mut ProducerStats,
    pending: &PendingInterest,
    data: Packet,
    out: &mut ProducerOutbox,
) {
    stats.data += 1;
    stats.octets += data.len() as u64;
    let header = LpHeader { pit_token: pending.token, ..LpHeader::default() };
    out.packets.push((pending.path, header, data));
}

/// Whether `data` has the implicit digest at the end of the Interest's name.
fn has_digest(interest: &[u8], data: &[u8]) -> bool {
    InterestView::decode(interest)
        .ok()
        .and_then(|interest| interest.name.last())
        .is_some_and(|last| last.value == sha256(&[data]))
}

#[cfg(test)]
mod tests;
