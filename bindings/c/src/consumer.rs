//! A bound consumer: what it is getting, by name.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use libc::c_int;
use nix::errno::Errno;
use weir_binding::SharedTrust;
use weir_crypto::random_octets;
use weir_socket::{Consumer, Reader, Session, SocketError};
use weir_wire::{Interest, Name, PACKET_SIZE_MAX};

use crate::answer_queue::AnswerQueue;
use crate::constants::{ICN_MISSED, ICN_UNVERIFIED};
use crate::errors::errno_of;
use crate::memory::ScatterBuffer;
use crate::options::ConsumerSettings;
use crate::readiness::{Readiness, SourcePoll, WakeSource};

/// Names that one socket has begun to get and not read to their end, at most.
const READS_MAX: usize = 1024;

/// Answers that one socket keeps, or waits for, at most.
const ANSWERS_MAX: usize = 1024;

const NS_PER_MS: u64 = 1_000_000;

/// What is being got under one name.
pub(crate) struct ObjectRead {
    reader: Mutex<ReadState>,
    trust: SharedTrust,
    source: WakeSource,
}

struct ReadState {
    reader: Reader,
    /// Segments that were passed over, as far as calls have told.
    missed: u64,
}

/// What a call got.
pub(crate) struct ReadResult {
    pub(crate) count: usize,
    pub(crate) is_verified: bool,
    /// Something was passed over before that.
    has_missed: bool,
}

impl ReadResult {
    /// The flags of a message that say so.
    pub(crate) fn flags(&self) -> c_int {
        let unverified = if self.is_verified { 0 } else { ICN_UNVERIFIED };
        unverified | if self.has_missed { ICN_MISSED } else { 0 }
    }
}

impl ObjectRead {
    /// Fills the room with what there is, at least one octet or the end.
    ///
    /// # Errors
    /// Why no more can be had, or why there is nothing now.
    pub(crate) fn recv(
        &self,
        room: &mut ScatterBuffer,
        may_wait: bool,
    ) -> Result<ReadResult, Errno> {
        let got = self.source.wait(may_wait, |context| {
            let mut reading = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let SourcePoll { found, has_more } = reading.take(context, room);
            SourcePoll { found, has_more }
        })?;
        match &got {
            Ok(ReadResult { count: 0, is_verified: true, .. }) => self.trust.remember(),
            Ok(ReadResult { count: 1.., .. }) => return got.map_err(|error| errno_of(&error)),
            _ => {}
        }
        // Whoever else waits for it finds the same.
        self.source.wake();
        got.map_err(|error| errno_of(&error))
    }
}

impl ReadState {
    /// Takes what there is. An end, and what comes after something that was passed over, is told
    /// by a call of its own.
    fn take(
        &mut self,
        context: &mut Context<'_>,
        room: &mut ScatterBuffer,
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
            let missed = self.reader.missed();
            if total > 0 && (!has_octets || missed > self.missed) {
                break true;
            }
            is_after_missed |= missed > self.missed;
            self.missed = missed;
            if !has_octets {
                break false;
            }
            let Poll::Ready(Ok(octets)) = self.reader.poll_fill_buf(context) else { break true };
            let count = room.put(octets);
            if count == 0 {
                break true;
            }
            self.reader.consume(count);
            total += count;
        };
        let is_verified = self.reader.is_verified();
        let got = ReadResult { count: total, is_verified, has_missed: is_after_missed };
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

    /// What is being got under a name; it begins if it has not, perhaps with the newest segment.
    ///
    /// # Errors
    /// EINVAL: it is not below the prefix, or has a version where the newest is wanted, or a range
    /// is; ENOBUFS: too many have begun.
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

    /// Lets go of what has come to its end.
    pub(crate) fn end(&mut self, name: &Name, read: &Arc<ObjectRead>) {
        if self.reads.get(name).is_some_and(|found| Arc::ptr_eq(found, read)) {
            self.reads.remove(name);
        }
    }

    /// Sends one Interest, and keeps its answer if that is wanted.
    ///
    /// # Errors
    /// EINVAL: the name is not below the prefix; EMSGSIZE: the parameters are too long; ENOBUFS:
    /// too many answers are kept or waited for.
    pub(crate) fn express(
        &mut self,
        readiness: &Arc<Readiness>,
        name: Name,
        keeps_answer: bool,
        parameters: Vec<u8>,
        settings: &ConsumerSettings,
    ) -> Result<(), Errno> {
        let consumer = self.consumer(settings, settings.trust(&name)?)?;
        let lifetime_ms = settings.options.lifetime.ns.div_ceil(NS_PER_MS);
        let nonce = u32::from_ne_bytes(random_octets());
        let mut interest = Interest::new(name.clone()).nonce(nonce).lifetime_ms(lifetime_ms);
        if !parameters.is_empty() {
            interest = interest.application_parameters(parameters);
        }
        let interest = interest.encode();
        if interest.len() > PACKET_SIZE_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let kept = self.answers.values().map(|answers| answers.count()).sum::<usize>();
        if keeps_answer && kept >= ANSWERS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let answer = consumer.express(&interest).map_err(|error| errno_of(&error))?;
        if keeps_answer {
            let answers = self.answers.entry(name);
            answers.or_insert_with(|| Arc::new(AnswerQueue::new(readiness))).add(answer);
        }
        Ok(())
    }

    /// The answers to Interests of a name.
    ///
    /// # Errors
    /// ENOMSG: none was sent whose answer is wanted, or they have been got.
    pub(crate) fn answers(&self, name: &Name) -> Result<Arc<AnswerQueue>, Errno> {
        self.answers.get(name).cloned().ok_or(Errno::ENOMSG)
    }

    /// Lets go of answers that have all been got.
    pub(crate) fn end_answers(&mut self, name: &Name) {
        if self.answers.get(name).is_some_and(|answers| answers.count() == 0) {
            self.answers.remove(name);
        }
    }
}
