//! A bound producer: what it is asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use nix::errno::Errno;
use weir_socket::{Producer, Request, SocketError};
use weir_wire::Name;

use crate::bell::{Bell, Line, Look};
use crate::errors::errno_of;
use crate::names::address_of;

/// A bound producer.
pub(crate) struct Outlet {
    pub(crate) producer: Arc<Producer>,
    pub(crate) line: Arc<Line>,
    /// The request that comes next.
    next: Option<Request>,
    /// Requests that the application has got and not answered, the latest ones.
    given: VecDeque<Request>,
    given_max: usize,
}

impl Outlet {
    pub(crate) fn new(bell: &Arc<Bell>, producer: Producer) -> Self {
        Self {
            given_max: producer.options().requests_max as usize,
            producer: Arc::new(producer),
            line: Arc::new(Line::new(bell)),
            next: None,
            given: VecDeque::new(),
        }
    }

    /// Looks for the next request.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<(), SocketError> {
        while self.next.is_none() {
            let Poll::Ready(request) = self.producer.poll_recv(context) else { return Ok(()) };
            let request = request?;
            match address_of(request.name()) {
                Some(_) => self.next = Some(request),
                // Nobody can be told of a name that has no room in an address.
                None => self.producer.refuse(&request)?,
            }
        }
        Ok(())
    }

    /// Looks whether there is a request.
    pub(crate) fn look(&mut self, context: &mut Context<'_>) -> Look<()> {
        let is_ended = self.fill(context).is_err();
        let has_more = is_ended || self.next.is_some();
        Look { found: Poll::Ready(()), has_more }
    }

    /// Hands over the next request; it stays the next one if that fails.
    pub(crate) fn recv<T>(
        &mut self,
        context: &mut Context<'_>,
        deliver: impl FnOnce(&Request) -> Result<T, Errno>,
    ) -> Look<Result<T, Errno>> {
        if let Err(error) = self.fill(context) {
            return Look { found: Poll::Ready(Err(errno_of(&error))), has_more: true };
        }
        let Some(request) = self.next.take() else {
            return Look { found: Poll::Pending, has_more: false };
        };
        let delivered = deliver(&request);
        if delivered.is_err() {
            self.next = Some(request);
        } else {
            if self.given.len() >= self.given_max {
                self.given.pop_front();
            }
            self.given.push_back(request);
        }
        Look { found: Poll::Ready(delivered), has_more: self.look(context).has_more }
    }

    /// What has been asked for under a name; it is no longer to be answered.
    pub(crate) fn take_given(&mut self, name: &Name) -> Vec<Request> {
        let (asked, rest) = self.given.drain(..).partition(|request| request.name() == name);
        self.given = rest;
        asked.into()
    }
}
