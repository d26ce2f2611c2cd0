//! A bound producer, with its requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use nix::errno::Errno;
use weir_socket::{LiveWriter, Producer, Request, SocketError};
use weir_wire::Name;

use crate::errors::errno_of;
use crate::names::address_of;
use crate::readiness::{Readiness, SourcePoll, WakeSource};

/// Maximum number of objects of one socket that grow at the same time.
const GROWING_MAX: usize = 1024;
/// Number of segments that are signed between checks whether the socket was closed.
const SEGMENTS_PER_CHECK: usize = 64;

pub(crate) struct BoundProducer {
    pub(crate) producer: Arc<Producer>,
    pub(crate) source: Arc<WakeSource>,
    next: Option<Request>,
    /// The latest requests that the application has received and not answered.
    delivered: VecDeque<Request>,
    delivered_max: usize,
    growing: BTreeMap<Name, Arc<Growing>>,
}

/// An object that grows: from its first part to its end.
#[derive(Default)]
pub(crate) struct Growing(Mutex<Option<LiveWriter>>);

impl Growing {
    /// Appends bytes, and the end if `is_last`. Returns whether there was an object to append to.
    /// Without `is_last`, the first call starts the object. The call stops with an error when
    /// `goes_on` returns false.
    ///
    /// # Errors
    /// Those of `icn_sendto`.
    pub(crate) fn append(
        &self,
        producer: &Producer,
        name: &Name,
        octets: &[u8],
        is_last: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, SocketError> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() && !is_last {
            *place = Some(producer.publish_live(name)?);
        }
        let Some(writer) = place.as_mut() else { return Ok(false) };
        let piece =
            (producer.options().segment_size.bytes as usize).saturating_mul(SEGMENTS_PER_CHECK);
        for piece in octets.chunks(piece) {
            if !goes_on() {
                return Err(SocketError::Stopped);
            }
            writer.append(piece)?;
        }
        if is_last && let Some(writer) = place.take() {
            writer.finish()?;
        }
        Ok(true)
    }

    fn has_ended(&self) -> bool {
        self.0.try_lock().is_ok_and(|place| place.is_none())
    }
}

impl BoundProducer {
    pub(crate) fn new(readiness: &Arc<Readiness>, producer: Producer) -> Self {
        Self {
            delivered_max: producer.options().requests_max as usize,
            producer: Arc::new(producer),
            source: Arc::new(WakeSource::new(readiness)),
            next: None,
            delivered: VecDeque::new(),
            growing: BTreeMap::new(),
        }
    }

    /// Polls for the next request.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<(), SocketError> {
        while self.next.is_none() {
            let Poll::Ready(request) = self.producer.poll_recv(context) else { return Ok(()) };
            let request = request?;
            match address_of(request.name()) {
                Some(_) => self.next = Some(request),
                // A name that is too long for an address cannot be delivered.
                None => self.producer.refuse(&request)?,
            }
        }
        Ok(())
    }

    /// Polls whether there is a request.
    pub(crate) fn poll_request(&mut self, context: &mut Context<'_>) -> SourcePoll<()> {
        let is_ended = self.fill(context).is_err();
        let has_more = is_ended || self.next.is_some();
        SourcePoll { found: Poll::Ready(()), has_more }
    }

    /// Delivers the next request. If that fails, it stays the next one.
    pub(crate) fn recv<T>(
        &mut self,
        context: &mut Context<'_>,
        deliver: impl FnOnce(&Request) -> Result<T, Errno>,
    ) -> SourcePoll<Result<T, Errno>> {
        if let Err(error) = self.fill(context) {
            return SourcePoll { found: Poll::Ready(Err(errno_of(&error))), has_more: true };
        }
        let Some(request) = self.next.take() else {
            return SourcePoll { found: Poll::Pending, has_more: false };
        };
        let delivered = deliver(&request);
        if delivered.is_err() {
            self.next = Some(request);
        } else {
            // Keep only the latest requests: the application may never answer the others.
            if self.delivered.len() >= self.delivered_max {
                self.delivered.pop_front();
            }
            self.delivered.push_back(request);
        }
        SourcePoll { found: Poll::Ready(delivered), has_more: self.poll_request(context).has_more }
    }

    /// The growing object with that name, or a new one.
    ///
    /// # Errors
    /// ENOBUFS: too many objects grow.
    pub(crate) fn growing(&mut self, name: &Name) -> Result<Arc<Growing>, Errno> {
        if let Some(growing) = self.growing.get(name) {
            return Ok(growing.clone());
        }
        if self.growing.len() >= GROWING_MAX {
            return Err(Errno::ENOBUFS);
        }
        Ok(self.growing.entry(name.clone()).or_default().clone())
    }

    /// Like [`BoundProducer::growing`], but only an existing one.
    pub(crate) fn known_growing(&self, name: &Name) -> Option<Arc<Growing>> {
        self.growing.get(name).cloned()
    }

    /// Removes an object that has ended or has not started.
    pub(crate) fn end_growing(&mut self, name: &Name, growing: &Arc<Growing>) {
        let is_it = self.growing.get(name).is_some_and(|found| Arc::ptr_eq(found, growing));
        if is_it && growing.has_ended() {
            self.growing.remove(name);
        }
    }

    /// Delivered requests for a name that have no answer yet.
    pub(crate) fn delivered(&self, name: &Name) -> Vec<Request> {
        self.delivered.iter().filter(|request| request.name() == name).cloned().collect()
    }

    /// Takes the delivered requests for a name, because they are answered.
    pub(crate) fn take_delivered(&mut self, name: &Name) -> Vec<Request> {
        let (taken, rest) = self.delivered.drain(..).partition(|request| request.name() == name);
        self.delivered = rest;
        taken.into()
    }
}
