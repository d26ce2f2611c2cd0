//! How messages reach the control thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use mio::Waker;

use crate::message::{InternalPacket, ToControl};
use crate::questions::Missed;
use crate::snapshot::Snapshot;

/// Management Interests that may wait for the control thread; what comes beyond is dropped.
const INTERNAL_QUEUE_MAX: usize = 1024;

/// Misses that may wait for somebody who asks; what comes beyond is dropped.
const MISSED_QUEUE_MAX: usize = 1024;

/// How other threads reach the control thread.
#[derive(Clone, Debug)]
pub(crate) struct ControlSender {
    messages: Sender<ToControl>,
    internal: Sender<InternalPacket>,
    missed: Sender<Missed>,
    /// Misses that were dropped.
    untold: Arc<AtomicU64>,
    waker: Arc<Waker>,
}

/// The control thread's ends.
#[derive(Debug)]
pub(crate) struct ControlReceiver {
    pub(crate) messages: Receiver<ToControl>,
    pub(crate) internal: Receiver<InternalPacket>,
    pub(crate) missed: Receiver<Missed>,
}

impl ControlSender {
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, ControlReceiver) {
        // Messages follow faces and commands, which have bounds of their own.
        let (messages, messages_out) = crossbeam_channel::unbounded();
        let (internal, internal_out) = crossbeam_channel::bounded(INTERNAL_QUEUE_MAX);
        let (missed, missed_out) = crossbeam_channel::bounded(MISSED_QUEUE_MAX);
        let receiver =
            ControlReceiver { messages: messages_out, internal: internal_out, missed: missed_out };
        (Self { messages, internal, missed, untold: Arc::default(), waker }, receiver)
    }

    /// Sends `message`; it is lost when the control thread has ended.
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

    /// Tells whoever listens of a large object that the store lacks.
    pub(crate) fn send_missed(&self, missed: Missed) {
        if self.missed.try_send(missed).is_err() {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Misses that were dropped.
    pub(crate) fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.send(ToControl::Query(answer));
        answered.recv_timeout(timeout).ok()
    }
}
