//! The prefixes to which producers of a session are bound.

use std::pin::Pin;
use std::task::{self, Poll, ready};

use weir_client::EndpointWaker;
use weir_wire::Name;

use super::pending::Pending;
use super::producer_endpoint::ProducerEndpoint;
use super::{Session, SocketError};
use crate::publish::sign_pool::SignPoolHandle;

/// A producer's prefix. Dropping it makes the prefix free again.
pub(super) struct PrefixBinding {
    session: Session,
    prefix: Name,
    /// Wakes the endpoint for new commands, once it exists.
    endpoint: Option<EndpointWaker>,
}

impl PrefixBinding {
    pub(super) fn prefix(&self) -> &Name {
        &self.prefix
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.session.packet_bytes_max()
    }

    /// A handle to the session's signing threads, at least `count` of them.
    pub(super) fn signers(&self, count: usize) -> Result<SignPoolHandle, SocketError> {
        self.session.signers(count)
    }

    /// Wakes the endpoint for new commands.
    pub(super) fn waker(&self) -> Option<EndpointWaker> {
        self.endpoint.clone()
    }
}

impl Drop for PrefixBinding {
    fn drop(&mut self) {
        self.session.release_prefix(&self.prefix, self.endpoint.as_ref().map(EndpointWaker::id));
    }
}

/// A prefix that the router is registering.
pub(super) struct PendingBind {
    binding: Option<PrefixBinding>,
    registered: Pending<()>,
}

impl PrefixBinding {
    /// Reserves a prefix for one producer.
    pub(super) fn reserve(session: &Session, prefix: Name) -> Result<Self, SocketError> {
        if !session.reserve(&prefix) {
            return Err(SocketError::PrefixInUse(prefix));
        }
        Ok(Self { session: session.clone(), prefix, endpoint: None })
    }

    /// Lets `endpoint` answer Interests below the prefix.
    pub(super) fn serve(mut self, endpoint: ProducerEndpoint) -> Result<PendingBind, SocketError> {
        let (endpoint, registered) = self.session.serve(&self.prefix, endpoint)?;
        self.endpoint = Some(endpoint);
        Ok(PendingBind { binding: Some(self), registered })
    }
}

impl PendingBind {
    pub(super) fn wait(&mut self) -> Result<PrefixBinding, SocketError> {
        self.registered.wait_again()?;
        self.binding.take().ok_or(SocketError::Closed)
    }

    /// As [`PendingBind::wait`], for a task.
    pub(super) fn poll(
        &mut self,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<PrefixBinding, SocketError>> {
        ready!(Pin::new(&mut self.registered).poll(context))?;
        Poll::Ready(self.binding.take().ok_or(SocketError::Closed))
    }
}
