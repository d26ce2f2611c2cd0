//! Starting and stopping a router from another thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use mio::Waker;

use crate::config::RuntimeConfig;
use crate::control;
use crate::error::{StartError, StopError};
use crate::message::{InternalPacket, ToControl};
use crate::metrics::MetricsServer;
use crate::snapshot::Snapshot;

/// Management Interests that may wait for the control thread; what comes beyond is dropped.
const INTERNAL_QUEUE_MAX: usize = 1024;

/// A content router on this machine's sockets.
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Opens all listeners and starts the threads. When it returns, peers can connect.
    ///
    /// # Errors
    /// What [`StartError`] says; then nothing is left running and no socket file behind.
    pub fn start(config: RuntimeConfig) -> Result<Handle, StartError> {
        control::start(config)
    }
}

/// A running router. Dropping it stops the router too.
#[derive(Debug)]
pub struct Handle {
    control: ControlSender,
    thread: Option<JoinHandle<Result<(), StopError>>>,
    metrics: Option<MetricsServer>,
    listening: Vec<String>,
}

impl Handle {
    pub(crate) fn new(
        control: ControlSender,
        thread: JoinHandle<Result<(), StopError>>,
        metrics: Option<MetricsServer>,
        listening: Vec<String>,
    ) -> Self {
        Self { control, thread: Some(thread), metrics, listening }
    }

    /// Where peers reach this router, as FaceUris with the real ports.
    #[must_use]
    pub fn listening(&self) -> &[String] {
        &self.listening
    }

    /// Where `/metrics` is served.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.address)
    }

    /// Counters and sizes now; `None` when the router is ending.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.control.snapshot(Duration::from_secs(5))
    }

    /// Stops the router: closes its faces, removes its socket file, ends its threads.
    ///
    /// # Errors
    /// When one of its threads had failed.
    pub fn stop(self) -> Result<(), StopError> {
        self.control.send(ToControl::Stop);
        self.wait()
    }

    /// Waits until the router stops: by signal, or because one of its threads failed.
    ///
    /// # Errors
    /// When one of its threads failed.
    pub fn wait(mut self) -> Result<(), StopError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), StopError> {
        let result = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(StopError::Panicked { thread: "control".into() }),
            None => Ok(()),
        };
        drop(self.metrics.take());
        result
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.control.send(ToControl::Stop);
        let _ = self.join();
    }
}

/// How other threads reach the control thread.
#[derive(Clone, Debug)]
pub(crate) struct ControlSender {
    messages: Sender<ToControl>,
    internal: Sender<InternalPacket>,
    waker: Arc<Waker>,
}

/// The control thread's ends.
#[derive(Debug)]
pub(crate) struct ControlReceiver {
    pub(crate) messages: Receiver<ToControl>,
    pub(crate) internal: Receiver<InternalPacket>,
}

impl ControlSender {
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, ControlReceiver) {
        // Messages follow faces and commands, which have bounds of their own.
        let (messages, messages_out) = crossbeam_channel::unbounded();
        let (internal, internal_out) = crossbeam_channel::bounded(INTERNAL_QUEUE_MAX);
        let receiver = ControlReceiver { messages: messages_out, internal: internal_out };
        (Self { messages, internal, waker }, receiver)
    }

    /// Sends `message`; nobody hears it when the control thread has ended.
    pub(crate) fn send(&self, message: ToControl) {
        if self.messages.send(message).is_ok() {
            let _ = self.waker.wake();
        }
    }

    /// Whether there was room.
    pub(crate) fn send_internal(&self, packet: InternalPacket) -> bool {
        match self.internal.try_send(packet) {
            Ok(()) => {
                let _ = self.waker.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    pub(crate) fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.send(ToControl::Query(answer));
        answered.recv_timeout(timeout).ok()
    }
}
