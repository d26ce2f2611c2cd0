//! The prefixes that producers of a session are bound to.

use std::pin::Pin;
use std::task::{self, Poll, ready};

use weir_client::EndpointWaker;
use weir_wire::Name;

use super::pending::Pending;
use super::producer_endpoint::ProducerEndpoint;
use super::{Session, SocketError};
use crate::publish::sign_pool::SignPoolHandle;

/// A prefix of a producer. Dropped, it is free again.
pub(super) struct PrefixBinding {
    session: Session,
    prefix: Name,
    /// What has the endpoint look for what it was told, once there is one.
    endpoint: Option<EndpointWaker>,
}

impl PrefixBinding {
    pub(super) fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The way to the session's threads that sign, of which there are `count` at least.
    pub(super) fn signers(&self, count: usize) -> Result<SignPoolHandle, SocketError> {
        self.session.signers(count)
    }

    /// What has the endpoint look for what it was told.
    pub(super) fn waker(&self) -> Option<EndpointWaker> {
        self.endpoint.clone()
    }
}

impl Drop for PrefixBinding {
    fn drop(&mut self) {
        self.session.release_prefix(&self.prefix, self.endpoint.as_ref().map(EndpointWaker::id));
    }
}

/// A prefix that the router is about to register.
pub(super) struct PendingBind {
    binding: Option<PrefixBinding>,
    registered: Pending<()>,
}

impl PrefixBinding {
    /// Keeps a prefix from others.
    pub(super) fn reserve(session: &Session, prefix: Name) -> Result<Self, SocketError> {
        if !session.reserve(&prefix) {
            return Err(SocketError::PrefixInUse(prefix));
        }
        Ok(Self { session: session.clone(), prefix, endpoint: None })
    }

    /// Has `endpoint` answer what is below the prefix.
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
