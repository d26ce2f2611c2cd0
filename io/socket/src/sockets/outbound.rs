//! Common to producers and everything that publishes for them: the signer, and the connection to
//! the network thread.

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

/// The signer of published objects, and its certificate.
#[derive(Clone)]
pub struct Identity {
    pub signer: Arc<dyn Signer>,
    /// The signer's certificate, a complete Data TLV, included in the metadata.
    pub certificate: Option<Vec<u8>>,
}

impl Identity {
    /// An identity without certificate.
    pub fn new(signer: impl Signer + 'static) -> Self {
        Self { signer: Arc::new(signer), certificate: None }
    }
}

/// Sends commands to the producer's endpoint on the network thread.
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

    /// Sends the command that `make_command` makes, and waits for its result.
    pub(super) fn send_and_wait<T>(
        &self,
        make_command: impl FnOnce(Completer<T>) -> ProducerCommand,
    ) -> Result<T, SocketError> {
        self.send_pending(make_command)?.wait()
    }

    /// As [`EndpointSender::send_and_wait`], but does not wait.
    pub(super) fn send_pending<T>(
        &self,
        make_command: impl FnOnce(Completer<T>) -> ProducerCommand,
    ) -> Result<Pending<T>, SocketError> {
        let (confirmation, done) = pending();
        // If the thread is gone, the result is `Closed`.
        let _ = self.commands.send(make_command(confirmation));
        self.endpoint.wake()?;
        Ok(done)
    }

    /// Publishes packets, and optionally the metadata that lead to them.
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

    /// Sends a command, which the endpoint sees when `wakes` are woken.
    pub(super) fn send_with_wakes(&self, command: ProducerCommand, wakes: &mut PendingWakes) {
        let _ = self.commands.send(command);
        wakes.add(&self.endpoint);
    }

    /// Sends a command without a result.
    pub(super) fn send(&self, command: ProducerCommand) -> Result<(), SocketError> {
        // If the thread is gone, so is the subject of the command.
        let _ = self.commands.send(command);
        Ok(self.endpoint.wake()?)
    }

    /// A version number: the time, but always greater than earlier ones, even within a millisecond.
    pub(super) fn next_version(&self) -> u64 {
        let now = unix_time_ms();
        let ordering = Ordering::Relaxed;
        let next = |last: u64| Some(now.max(last + 1));
        let last = self.last_version.fetch_update(ordering, ordering, next);
        now.max(last.unwrap_or(0) + 1)
    }
}
