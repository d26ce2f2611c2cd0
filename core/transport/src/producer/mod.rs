//! The producer: Interests in, Data out, with what is needed in between as operations.
//!
//! [`Producer`] owns and calls `Buffer` (Data that was put or read), `Waiting` (Interests for what
//! does not exist yet), `DiskReads` (Interests whose answer the disk reads; returns which of them
//! are answered) and `Absence` (signed answers that there is no such Data).

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
use crate::{METADATA_KEYWORD, PathId};

pub use self::catalog::{Answer, Catalog, ObjectId, Source};
pub use self::config::{MissPolicy, ProducerConfig, ProducerStats};
pub use self::input::{ProducerEvent, ProducerInput, ProducerOutbox, ReadOp};
pub use self::object::{SealedObject, Signatures};
pub use self::template::{Frame, SegmentTemplate};

/// How long an Interest for what will be made waits at most, whatever its lifetime.
const SEGMENT_WAIT_NS_MAX: u64 = 60 * NS_PER_S;

/// Answers Interests: with what its [`Source`] has, with what was put into its output buffer, or,
/// once it is there, with what an Interest waits for.
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
    /// A producer of what `source` has.
    pub fn new(source: S, config: ProducerConfig) -> Self {
        Self::build(source, config, None)
    }

    /// A producer of what `source` has, with an output buffer of two levels: what its memory has no
    /// room for lies on a disk (paper socket-api, section 5.4). It is a cache for as long as the
    /// producer lives: what the disk cannot take or give is asked of `source`, and then of the
    /// application, as if there were no disk.
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

    /// What it has. Whoever adds to it while Interests may wait says so afterwards
    /// ([`ProducerInput::Published`]).
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Signs an answer (ContentType Nack) to Interests for what there is not, below the names that
    /// it [owns](Self::own).
    pub fn sign_absence(&mut self, signer: Arc<dyn Signer>) {
        self.absence.set_signer(signer);
    }

    /// Only this producer has what is below `prefix`.
    pub fn own_prefix(&mut self, prefix: &Name) {
        self.absence.add_prefix(prefix);
    }

    /// Counters.
    pub fn stats(&self) -> ProducerStats {
        ProducerStats { disk: self.buffer.disk_stats(), ..self.stats }
    }

    /// Whether the disk of the output buffer should write some of what waits for it before anything
    /// more is put: what comes meanwhile may find no room in its queue, and is then asked of the
    /// application again. Never for long: a disk that does not answer is not waited for.
    pub fn is_disk_behind(&self) -> bool {
        self.buffer.is_disk_behind()
    }

    /// Interests that wait for what there is not yet.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Octets of memory that the output buffer takes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Reads under way.
    #[cfg(test)]
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    /// Takes `inputs`, which it drains, and appends what the driver must do to `out`. Must also be
    /// called, without inputs, when [`Producer::next_wakeup`] has come.
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
                ProducerInput::Refuse(interest) => self.refuse_waiting(&interest, out),
                ProducerInput::RefuseAll => self.refuse_all(out),
                ProducerInput::Published(prefix) => self.answer_published(&prefix, out),
                ProducerInput::ReadDone { op, data } => self.on_read(now, op, data, out),
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

    /// When [`Producer::handle`] must be called at the latest if no input comes before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        [self.waiting.next_wakeup(), self.buffer.next_wakeup()].into_iter().flatten().min()
    }

    fn expire(&mut self, now: Instant, out: &mut ProducerOutbox) {
        let (stats, unanswered) = (&mut self.stats, self.config.on_miss);
        self.waiting.take_expired(now, |asker| {
            stats.expired += 1;
            let unanswered = if asker.awaits_segment { MissPolicy::Ignore } else { unanswered };
            refuse(unanswered, asker, NackReason::NoRoute, out);
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
        let last = interest.name.last();
        self.stats.metadata +=
            u64::from(last.is_some_and(|last| last.is_keyword(METADATA_KEYWORD)));
        let lifetime_ns = interest.lifetime_ms_or_default().saturating_mul(NS_PER_MS);
        let asker = PendingInterest {
            path,
            token: header.pit_token,
            deadline: now.plus_ns(lifetime_ns),
            is_full_name: last.is_some_and(|last| last.is_implicit_digest()),
            awaits_segment: false,
            interest: Packet::empty(),
        };
        let found = self.buffer.find(now, &interest);
        if let Lookup::Hit(hit) = found {
            return send(&mut self.stats, &asker, hit.packet, out);
        }
        let asker = PendingInterest { interest: packet.clone(), ..asker };
        let Lookup::OnDisk(found) = found else {
            return self.answer_from_source(now, &interest, asker, out);
        };
        let reads_max = self.config.reads_max;
        match self.disk_reads.start(&mut self.buffer, &found, asker, reads_max) {
            ReadStart::Pending => {}
            ReadStart::Refused(asker) => {
                self.stats.refused += 1;
                self.refuse(asker, NackReason::Congestion, out);
            }
            ReadStart::Stalled(asker) => {
                self.stats.disk_vain += 1;
                self.answer_from_source(now, &interest, asker, out);
            }
        }
    }

    /// Answers the Interests whose reads have ended, and makes the disk do what is next.
    fn serve_disk(&mut self, now: Instant, out: &mut ProducerOutbox) {
        if !self.buffer.has_disk() {
            return;
        }
        while let Some(finished) = self.disk_reads.next_finished(now, &mut self.buffer) {
            let ReadResult { data, answered, unanswered } = finished;
            for (asker, data) in answered.into_iter().zip(data.iter().cycle()) {
                if now > asker.deadline {
                    self.stats.reads_late += 1;
                } else {
                    self.stats.disk_data += 1;
                    send(&mut self.stats, &asker, data.clone(), out);
                }
            }
            for asker in unanswered {
                self.answer_without_disk(now, asker, out);
            }
        }
        self.buffer.take_disk_ops(now, &mut out.disk_ops);
    }

    /// The disk has nothing for an Interest: it is answered as if there were no disk.
    fn answer_without_disk(
        &mut self,
        now: Instant,
        asker: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        self.stats.disk_vain += 1;
        if now > asker.deadline {
            self.stats.reads_late += 1;
            return;
        }
        let packet = asker.interest.clone();
        let interest = InterestView::decode(&packet).expect("it was decoded before");
        // It may have been published again meanwhile. A disk that fails is not asked twice.
        match self.buffer.find(now, &interest) {
            Lookup::Hit(hit) => send(&mut self.stats, &asker, hit.packet, out),
            Lookup::OnDisk(_) => {
                self.buffer.decline_read();
                self.answer_from_source(now, &interest, asker, out);
            }
            Lookup::Miss => self.answer_from_source(now, &interest, asker, out),
        }
    }

    /// Answers an Interest for what the output buffer has not.
    fn answer_from_source(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        asker: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        let until = |wait_ns: u64| asker.deadline.min(now.plus_ns(wait_ns));
        match self.source.find(interest) {
            Answer::Packet(data) => send(&mut self.stats, &asker, data, out),
            Answer::Segment { object, segment } => self.read(object, segment, asker, out),
            Answer::WhenMade => {
                let until = until(SEGMENT_WAIT_NS_MAX);
                let interest_copy = self.buffer.copy(&asker.interest);
                let asker =
                    PendingInterest { interest: interest_copy, awaits_segment: true, ..asker };
                self.wait(interest, until, asker, out);
            }
            Answer::NotFound if self.config.wait_max_ns > 0 => {
                let until = until(self.config.wait_max_ns);
                let asker =
                    PendingInterest { interest: self.buffer.copy(&asker.interest), ..asker };
                self.wait(interest, until, asker, out);
            }
            Answer::NotFound => {
                self.stats.unknown += 1;
                // An answer to a shorter name would stand for what is below it.
                let answer = match self.source.has_below(interest.name) {
                    true => None,
                    false => self.absence.sign_answer(now, interest),
                };
                match answer {
                    Some(data) => send(&mut self.stats, &asker, data, out),
                    None => self.refuse(asker, NackReason::NoRoute, out),
                }
            }
        }
    }

    fn read(
        &mut self,
        object: ObjectId,
        segment: u64,
        asker: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        if self.reads >= self.config.reads_max {
            self.stats.refused += 1;
            self.refuse(asker, NackReason::Congestion, out);
            return;
        }
        self.reads += 1;
        out.reads.push(ReadOp { object, segment, pending: asker });
    }

    fn wait(
        &mut self,
        interest: &InterestView<'_>,
        until: Instant,
        asker: PendingInterest,
        out: &mut ProducerOutbox,
    ) {
        let (copy, is_early) = (asker.interest.clone(), asker.awaits_segment);
        match self.waiting.join(interest, until, asker) {
            JoinResult::First if !is_early => {
                out.events.push(ProducerEvent::Wanted { interest: copy });
            }
            JoinResult::First | JoinResult::Replaced => {}
            JoinResult::Full(asker) => {
                self.stats.refused += 1;
                self.refuse(asker, NackReason::Congestion, out);
            }
        }
    }

    fn put(&mut self, now: Instant, packet: Packet, out: &mut ProducerOutbox) {
        let Ok(data) = DataView::decode(&packet) else {
            self.stats.malformed += 1;
            return;
        };
        self.buffer.insert(now, &data);
        let stats = &mut self.stats;
        self.waiting.take_answered(&data, |asker| send(stats, &asker, packet.clone(), out));
    }

    fn refuse_waiting(&mut self, interest: &[u8], out: &mut ProducerOutbox) {
        let Ok(interest) = InterestView::decode(interest) else {
            self.stats.malformed += 1;
            return;
        };
        let (stats, unanswered) = (&mut self.stats, self.config.on_miss);
        self.waiting.take_refused(&interest, |asker| {
            stats.unknown += 1;
            refuse(unanswered, asker, NackReason::NoRoute, out);
        });
    }

    /// Refuses all that wait, also for the disk.
    fn refuse_all(&mut self, out: &mut ProducerOutbox) {
        let unanswered = self.config.on_miss;
        let mut askers = self.disk_reads.take_all();
        self.waiting.take_all(|asker| askers.push(asker));
        self.stats.unknown += askers.len() as u64;
        for asker in askers {
            refuse(unanswered, asker, NackReason::NoRoute, out);
        }
    }

    /// Has the Interests that wait for something near `prefix` looked up once more.
    fn answer_published(&mut self, prefix: &Name, out: &mut ProducerOutbox) {
        let (waiting, source) = (&mut self.waiting, &mut self.source);
        for (asker, answer) in waiting.take_answerable(prefix.as_view(), source) {
            match answer {
                Answer::Packet(data) => send(&mut self.stats, &asker, data, out),
                Answer::Segment { object, segment } => self.read(object, segment, asker, out),
                Answer::NotFound | Answer::WhenMade => unreachable!("such an Interest waits on"),
            }
        }
    }

    fn on_read(&mut self, now: Instant, op: ReadOp, data: Packet, out: &mut ProducerOutbox) {
        self.finish_read();
        let asker = op.pending;
        if self.buffer.is_enabled()
            && let Ok(view) = DataView::decode(&data)
        {
            self.buffer.insert(now, &view);
        }
        if now > asker.deadline {
            self.stats.reads_late += 1;
        } else if asker.is_full_name && !has_digest(&asker.interest, &data) {
            self.stats.unknown += 1;
            self.refuse(asker, NackReason::NoRoute, out);
        } else {
            send(&mut self.stats, &asker, data, out);
        }
    }

    fn finish_read(&mut self) {
        self.reads = self.reads.checked_sub(1).expect("each read comes back once");
    }

    fn refuse(&self, asker: PendingInterest, reason: NackReason, out: &mut ProducerOutbox) {
        refuse(self.config.on_miss, asker, reason, out);
    }
}

fn refuse(
    unanswered: MissPolicy,
    asker: PendingInterest,
    reason: NackReason,
    out: &mut ProducerOutbox,
) {
    if unanswered == MissPolicy::Nack {
        let header = LpHeader { pit_token: asker.token, nack: Some(reason), ..LpHeader::default() };
        out.packets.push((asker.path, header, asker.interest));
    }
}

fn send(
    stats: &mut ProducerStats,
    asker: &PendingInterest,
    data: Packet,
    out: &mut ProducerOutbox,
) {
    stats.data += 1;
    stats.octets += data.len() as u64;
    let header = LpHeader { pit_token: asker.token, ..LpHeader::default() };
    out.packets.push((asker.path, header, data));
}

/// Whether `data` has the implicit digest that the Interest's name ends with.
fn has_digest(interest: &[u8], data: &[u8]) -> bool {
    InterestView::decode(interest)
        .ok()
        .and_then(|interest| interest.name.last())
        .is_some_and(|last| last.value == sha256(&[data]))
}

#[cfg(test)]
mod tests;
