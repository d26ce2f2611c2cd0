//! What producers and all that publishes for them have: who signs, and the way to the thread that
//! answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;
use weir_base::Packet;
use weir_client::EndpointWaker;
use weir_face::unix_time_ms;
use weir_security::Signer;

use super::SocketError;
use super::pending::{Completer, Pending, pending};
use super::producer_endpoint::ProducerCommand;
use crate::publish::sign_pool::PendingWakes;

/// Who signs what is published, and what shows it.
#[derive(Clone)]
pub struct Identity {
    pub signer: Arc<dyn Signer>,
    /// The signer's certificate, a whole Data TLV, which goes along with the metadata.
    pub certificate: Option<Vec<u8>>,
}

impl Identity {
    /// An identity without certificate.
    pub fn new(signer: impl Signer + 'static) -> Self {
        Self { signer: Arc::new(signer), certificate: None }
    }
}

/// The way to the thread that answers.
#[derive(Clone)]
pub(super) struct EndpointSender {
    commands: Sender<ProducerCommand>,
    endpoint: EndpointWaker,
    last_version: Arc<AtomicU64>,
}

impl EndpointSender {
    pub(super) fn new(commands: Sender<ProducerCommand>, endpoint: EndpointWaker) -> Self {
        Self { commands, endpoint, last_version: Arc::default() }
    }

    /// Has it hear, and do, what `send` makes of the answer to be given when it has.
    pub(super) fn send_and_wait<T>(
        &self,
        tell: impl FnOnce(Completer<T>) -> ProducerCommand,
    ) -> Result<T, SocketError> {
        self.send_pending(tell)?.wait()
    }

    /// As [`EndpointSender::submit`], and does not wait.
    pub(super) fn send_pending<T>(
        &self,
        tell: impl FnOnce(Completer<T>) -> ProducerCommand,
    ) -> Result<Pending<T>, SocketError> {
        let (confirmation, done) = pending();
        // If the thread is gone, it is answered as closed.
        let _ = self.commands.send(tell(confirmation));
        self.endpoint.wake()?;
        Ok(done)
    }

    /// Has packets answered for, and perhaps the metadata that leads to them.
    pub(super) fn publish(
        &self,
        packets: Vec<Packet>,
        metadata: Option<Packet>,
    ) -> Result<(), SocketError> {
        self.send_and_wait(|confirmation| {
            let confirmation = confirmation.into();
            ProducerCommand::Published { packets, metadata, confirmation }
        })
    }

    /// Has it hear what is told, when `wakes` are woken.
    pub(super) fn send_with_wakes(&self, told: ProducerCommand, wakes: &mut PendingWakes) {
        let _ = self.commands.send(told);
        wakes.add(&self.endpoint);
    }

    /// Has it hear what needs no answer.
    pub(super) fn send(&self, told: ProducerCommand) -> Result<(), SocketError> {
        // If the thread is gone, so is what this is about.
        let _ = self.commands.send(told);
        Ok(self.endpoint.wake()?)
    }

    /// A number for a version: the time, and larger than all before it even within one millisecond.
    pub(super) fn next_version(&self) -> u64 {
        let now = unix_time_ms();
        let ordering = Ordering::Relaxed;
        let next = |last: u64| Some(now.max(last + 1));
        let last = self.last_version.fetch_update(ordering, ordering, next);
        now.max(last.unwrap_or(0) + 1)
    }
}
