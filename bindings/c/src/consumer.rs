//! A bound consumer, with its reads by name.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use libc::c_int;
use nix::errno::Errno;
use weir_binding::SharedTrust;
use weir_socket::{Consumer, Reader, Session, SocketError};
use weir_wire::Name;

use crate::answer_queue::AnswerQueue;
use crate::constants::{ICN_MISSED, ICN_UNSIGNED_END, ICN_UNVERIFIED};
use crate::errors::errno_of;
use crate::memory::ScatterBuffer;
use crate::options::ConsumerSettings;
use crate::readiness::{Readiness, SourcePoll, WakeSource};

/// Maximum number of names that one socket reads at a time.
const READS_MAX: usize = 1024;

/// Maximum number of answers that one socket keeps or waits for.
const ANSWERS_MAX: usize = 1024;

pub(crate) struct ObjectRead {
    reader: Mutex<ReadState>,
    trust: SharedTrust,
    source: WakeSource,
}

struct ReadState {
    reader: Reader,
    /// Number of skipped segments that earlier calls have reported.
    missed: u64,
}

/// The result of one read call.
pub(crate) struct ReadResult {
    pub(crate) count: usize,
    pub(crate) is_verified: bool,
    /// Whether segments were skipped before these bytes.
    has_missed: bool,
    /// Whether this is an end that no signature covers.
    has_unsigned_end: bool,
}

impl ReadResult {
    /// The message flags of this result.
    pub(crate) fn flags(&self) -> c_int {
        let unverified = if self.is_verified { 0 } else { ICN_UNVERIFIED };
        let missed = if self.has_missed { ICN_MISSED } else { 0 };
        let unsigned_end = if self.has_unsigned_end { ICN_UNSIGNED_END } else { 0 };
        unverified | missed | unsigned_end
    }
}

impl ObjectRead {
    /// Fills the buffers with available bytes: at least one byte, or the end.
    ///
    /// # Errors
    /// Why no more bytes follow, or why there are none now.
    pub(crate) fn recv(
        &self,
        buffer: &mut ScatterBuffer,
        may_wait: bool,
    ) -> Result<ReadResult, Errno> {
        let got = self.source.wait(may_wait, |context| {
            let mut reading = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let SourcePoll { found, has_more } = reading.take(context, buffer);
            SourcePoll { found, has_more }
        })?;
        match &got {
            Ok(ReadResult { count: 0, is_verified: true, .. }) => self.trust.remember(),
            Ok(ReadResult { count: 1.., .. }) => return got.map_err(|error| errno_of(&error)),
            _ => {}
        }
        // Other waiting calls must find the same result.
        self.source.wake();
        got.map_err(|error| errno_of(&error))
    }
}

impl ReadState {
    /// Takes the available bytes, up to the next skipped segments or the end. A separate call
    /// delivers what follows, because one result has only one set of flags.
    fn take(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ScatterBuffer,
    ) -> SourcePoll<Result<ReadResult, SocketError>> {
        let (mut total, mut is_after_missed) = (0, false);
        let has_more = loop {
            let has_octets = match self.reader.poll_fill_buf(context) {
                Poll::Ready(Ok(octets)) => !octets.is_empty(),
                Poll::Ready(Err(_)) if total > 0 => break true,
                Poll::Ready(Err(error)) => return SourcePoll::of(Err(error)),
                Poll::Pending if total > 0 => break false,
                Poll::Pending => return SourcePoll { found: Poll::Pending, has_more: false },
            };
            // End this result before the gap: the flag applies to the bytes after it.
            let missed = self.reader.missed();
            if total > 0 && (!has_octets || missed > self.missed) {
                break true;
            }
            is_after_missed |= missed > self.missed;
            self.missed = missed;
            if !has_octets {
                break false;
            }
            // Poll again, because `missed` needed the reader. The bytes are still buffered.
            let Poll::Ready(Ok(octets)) = self.reader.poll_fill_buf(context) else { break true };
            let count = buffer.put(octets);
            if count == 0 {
                break true;
            }
            self.reader.consume(count);
            total += count;
        };
        let is_verified = self.reader.is_verified();
        let has_unsigned_end = total == 0 && !self.reader.is_end_signed();
        let got =
            ReadResult { count: total, is_verified, has_missed: is_after_missed, has_unsigned_end };
        SourcePoll { found: Poll::Ready(Ok(got)), has_more }
    }
}

pub(crate) struct BoundConsumer {
    session: Session,
    prefix: Name,
    reads: BTreeMap<Name, Arc<ObjectRead>>,
    answers: BTreeMap<Name, Arc<AnswerQueue>>,
}

impl BoundConsumer {
    pub(crate) fn new(session: Session, prefix: Name) -> Self {
        Self { session, prefix, reads: BTreeMap::new(), answers: BTreeMap::new() }
    }

    fn consumer(&self, settings: &ConsumerSettings, trust: SharedTrust) -> Result<Consumer, Errno> {
        let mut consumer = Consumer::bind(&self.session, self.prefix.clone(), trust);
        consumer.set_options(settings.options.clone()).map_err(|error| errno_of(&error))?;
        Ok(consumer)
    }

    /// Returns the read of a name. Starts it if necessary, with the newest segment if
    /// `from_newest`.
    ///
    /// # Errors
    /// EINVAL: the name is outside the prefix, or `from_newest` with a version or a range. ENOBUFS:
    /// too many reads are active.
    pub(crate) fn read(
        &mut self,
        readiness: &Arc<Readiness>,
        name: Name,
        settings: &ConsumerSettings,
        from_newest: bool,
    ) -> Result<Arc<ObjectRead>, Errno> {
        if let Some(read) = self.reads.get(&name) {
            return Ok(read.clone());
        }
        if self.reads.len() >= READS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let trust = settings.trust(&name)?;
        let consumer = self.consumer(settings, trust.clone())?;
        let reader = match from_newest {
            true if !settings.is_whole() => return Err(Errno::EINVAL),
            true => consumer.fetch_newest(&name),
            false => consumer.fetch_range(&name, settings.range.clone()),
        };
        let reader = reader.map_err(|error| errno_of(&error))?;
        let reader = Mutex::new(ReadState { reader, missed: 0 });
        let read = ObjectRead { reader, trust, source: WakeSource::new(readiness) };
        Ok(self.reads.entry(name).or_insert(Arc::new(read)).clone())
    }

    /// Removes a read that has ended.
    pub(crate) fn end(&mut self, name: &Name, read: &Arc<ObjectRead>) {
        if self.reads.get(name).is_some_and(|found| Arc::ptr_eq(found, read)) {
            self.reads.remove(name);
        }
    }

    /// Sends one Interest. Keeps its answer if `keeps_answer`.
    ///
    /// # Errors
    /// EINVAL: the name is outside the prefix. EMSGSIZE: the parameters are too long. ENOBUFS: too
    /// many answers are kept or awaited.
    pub(crate) fn express(
        &mut self,
        readiness: &Arc<Readiness>,
        name: Name,
        keeps_answer: bool,
        parameters: Vec<u8>,
        settings: &ConsumerSettings,
    ) -> Result<(), Errno> {
        let consumer = self.consumer(settings, settings.trust(&name)?)?;
        let kept = self.answers.values().map(|answers| answers.count()).sum::<usize>();
        if keeps_answer && kept >= ANSWERS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let answer = consumer.send_parameters(&name, &parameters);
        let answer = answer.map_err(|error| errno_of(&error))?;
        if keeps_answer {
            let answers = self.answers.entry(name);
            answers.or_insert_with(|| Arc::new(AnswerQueue::new(readiness))).add(answer);
        }
        Ok(())
    }

    /// The answers to Interests for a name.
    ///
    /// # Errors
    /// ENOMSG: no Interest with a requested answer was sent, or all answers were delivered.
    pub(crate) fn answers(&self, name: &Name) -> Result<Arc<AnswerQueue>, Errno> {
        self.answers.get(name).cloned().ok_or(Errno::ENOMSG)
    }

    /// Removes a queue whose answers were all delivered.
    pub(crate) fn end_answers(&mut self, name: &Name) {
        if self.answers.get(name).is_some_and(|answers| answers.count() == 0) {
            self.answers.remove(name);
        }
    }
}
