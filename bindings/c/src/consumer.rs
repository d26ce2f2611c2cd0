//! A bound consumer: what it is getting, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use nix::errno::Errno;
use weir_binding::SharedTrust;
use weir_crypto::random_octets;
use weir_socket::{Consumer, Reader, Session, SocketError};
use weir_wire::{Interest, Name, PACKET_SIZE_MAX};

use crate::bell::{Bell, Line, Look};
use crate::errors::errno_of;
use crate::memory::Room;
use crate::options::Intent;

/// Names that one socket has begun to get and not read to their end, at most.
const READS_MAX: usize = 1024;

const NS_PER_MS: u64 = 1_000_000;

/// What is being got under one name.
pub(crate) struct Read {
    reader: Mutex<Reader>,
    trust: SharedTrust,
    line: Line,
}

/// What a call got.
pub(crate) struct Got {
    pub(crate) count: usize,
    pub(crate) is_verified: bool,
}

impl Read {
    /// Fills the room with what there is, at least one octet or the end.
    ///
    /// # Errors
    /// Why no more can be had, or why there is nothing now.
    pub(crate) fn recv(&self, room: &mut Room, may_wait: bool) -> Result<Got, Errno> {
        let got = self.line.wait(may_wait, |context| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let Look { found, has_more } = take(&mut reader, context, room);
            let is_verified = reader.is_verified();
            let found = found.map(|count| count.map(|count| Got { count, is_verified }));
            Look { found, has_more }
        })?;
        match &got {
            Ok(Got { count: 0, is_verified: true }) => self.trust.remember(),
            Ok(Got { count: 1.., .. }) => return got.map_err(|error| errno_of(&error)),
            _ => {}
        }
        // Whoever else waits for it finds the same.
        self.line.ring();
        got.map_err(|error| errno_of(&error))
    }
}

fn take(
    reader: &mut Reader,
    context: &mut Context<'_>,
    room: &mut Room,
) -> Look<Result<usize, SocketError>> {
    use std::io::BufRead;
    let mut total = 0;
    loop {
        let count = match reader.poll_fill_buf(context) {
            Poll::Ready(Ok(octets)) if !octets.is_empty() => room.put(octets),
            Poll::Pending if total == 0 => {
                return Look { found: Poll::Pending, has_more: false };
            }
            Poll::Pending => return Look { found: Poll::Ready(Ok(total)), has_more: false },
            // An end is told by a call of its own.
            Poll::Ready(end) => {
                let end = if total == 0 { end.map(|_| 0) } else { Ok(total) };
                return Look { found: Poll::Ready(end), has_more: total > 0 };
            }
        };
        if count == 0 {
            return Look { found: Poll::Ready(Ok(total)), has_more: true };
        }
        reader.consume(count);
        total += count;
    }
}

/// A bound consumer.
pub(crate) struct Intake {
    session: Session,
    prefix: Name,
    reads: BTreeMap<Name, Arc<Read>>,
}

impl Intake {
    pub(crate) fn new(session: Session, prefix: Name) -> Self {
        Self { session, prefix, reads: BTreeMap::new() }
    }

    fn consumer(&self, intent: &Intent, trust: SharedTrust) -> Result<Consumer, Errno> {
        let mut consumer = Consumer::bind(&self.session, self.prefix.clone(), trust);
        consumer.set_options(intent.options.clone()).map_err(|error| errno_of(&error))?;
        Ok(consumer)
    }

    /// What is being got under a name; it begins if it has not.
    ///
    /// # Errors
    /// EINVAL: it is not below the prefix; ENOBUFS: too many have begun.
    pub(crate) fn read(
        &mut self,
        bell: &Arc<Bell>,
        name: Name,
        intent: &Intent,
    ) -> Result<Arc<Read>, Errno> {
        if let Some(read) = self.reads.get(&name) {
            return Ok(read.clone());
        }
        if self.reads.len() >= READS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let trust = intent.trust(&name)?;
        let consumer = self.consumer(intent, trust.clone())?;
        let reader = consumer.fetch_range(&name, intent.range.clone());
        let reader = reader.map_err(|error| errno_of(&error))?;
        let read = Read { reader: Mutex::new(reader), trust, line: Line::new(bell) };
        Ok(self.reads.entry(name).or_insert(Arc::new(read)).clone())
    }

    /// Lets go of what has come to its end.
    pub(crate) fn end(&mut self, name: &Name, read: &Arc<Read>) {
        if self.reads.get(name).is_some_and(|found| Arc::ptr_eq(found, read)) {
            self.reads.remove(name);
        }
    }

    /// Sends one Interest.
    ///
    /// # Errors
    /// EINVAL: the name is not below the prefix; EMSGSIZE: the parameters are too long.
    pub(crate) fn express(
        &self,
        name: Name,
        parameters: Vec<u8>,
        intent: &Intent,
    ) -> Result<(), Errno> {
        let consumer = self.consumer(intent, intent.trust(&name)?)?;
        let lifetime_ms = intent.options.lifetime.ns.div_ceil(NS_PER_MS);
        let nonce = u32::from_ne_bytes(random_octets());
        let mut interest = Interest::new(name).nonce(nonce).lifetime_ms(lifetime_ms);
        if !parameters.is_empty() {
            interest = interest.application_parameters(parameters);
        }
        let interest = interest.encode();
        if interest.len() > PACKET_SIZE_MAX {
            return Err(Errno::EMSGSIZE);
        }
        // Its Data is of no interest.
        consumer.express(&interest).map(drop).map_err(|error| errno_of(&error))
    }
}
