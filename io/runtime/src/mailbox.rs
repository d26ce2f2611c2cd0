//! The queues of messages to the control thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, select};
use mio::Waker;

use crate::contents_request::Miss;
use crate::message::{InternalPacket, ToControl};
use crate::snapshot::Snapshot;

/// Maximum number of [`InternalPacket`]s that wait for the control thread: commands of programs,
/// and reports of strategy self-learning. Further ones are dropped.
const INTERNAL_QUEUE_MAX: usize = 1024;

/// Reports of self-learning are dropped if this many packets wait. Other hosts cause them, so they
/// must leave space for the commands of programs.
const LEARNING_QUEUE_MAX: usize = INTERNAL_QUEUE_MAX / 2;

/// Maximum number of waiting misses in each of two queues: one for local applications, one for
/// remote hosts. So remote misses cannot displace local ones. Further misses are dropped.
const MISS_QUEUE_MAX: usize = 1024;

/// Sends messages to the control thread.
#[derive(Clone, Debug)]
pub(crate) struct ControlSender {
    messages: Sender<ToControl>,
    internal: Sender<InternalPacket>,
    local_misses: Sender<Miss>,
    remote_misses: Sender<Miss>,
    /// Number of misses that were dropped.
    dropped_misses: Arc<AtomicU64>,
    waker: Arc<Waker>,
}

/// The control thread's ends of the queues.
#[derive(Debug)]
pub(crate) struct ControlReceiver {
    pub(crate) messages: Receiver<ToControl>,
    pub(crate) internal: Receiver<InternalPacket>,
    pub(crate) misses: MissReceiver,
}

/// Receives misses of large objects, those of local applications first.
#[derive(Clone, Debug)]
pub(crate) struct MissReceiver {
    local: Receiver<Miss>,
    remote: Receiver<Miss>,
}

impl MissReceiver {
    /// Waits for the next miss; `None` on timeout.
    pub(crate) fn next(&self, within: Duration) -> Option<Miss> {
        if let Ok(missed) = self.local.try_recv() {
            return Some(missed);
        }
        // Both queues may have filled meanwhile; `select!` then picks either.
        select! {
            recv(self.local) -> missed => missed.ok(),
            recv(self.remote) -> missed => missed.ok(),
            default(within) => None,
        }
    }

    /// Number of waiting misses.
    pub(crate) fn len(&self) -> usize {
        self.local.len() + self.remote.len()
    }
}

impl ControlSender {
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, ControlReceiver) {
        // Unbounded: mostly faces and commands cause messages, and both have limits of their own.
        let (messages, messages_out) = crossbeam_channel::unbounded();
        let (internal, internal_out) = crossbeam_channel::bounded(INTERNAL_QUEUE_MAX);
        let (missed_here, here) = crossbeam_channel::bounded(MISS_QUEUE_MAX);
        let (missed_elsewhere, elsewhere) = crossbeam_channel::bounded(MISS_QUEUE_MAX);
        let missed = MissReceiver { local: here, remote: elsewhere };
        let receiver =
            ControlReceiver { messages: messages_out, internal: internal_out, misses: missed };
        let untold = Arc::default();
        (
            Self {
                messages,
                internal,
                local_misses: missed_here,
                remote_misses: missed_elsewhere,
                dropped_misses: untold,
                waker,
            },
            receiver,
        )
    }

    /// Sends a message. It is lost if the control thread has ended.
    pub(crate) fn send(&self, message: ToControl) {
        if self.messages.send(message).is_ok() {
            let _ = self.waker.wake();
        }
    }

    /// Returns whether the queue had space.
    pub(crate) fn send_internal(&self, packet: InternalPacket) -> bool {
        let is_report = matches!(packet, InternalPacket::Learning(_));
        if is_report && self.internal.len() >= LEARNING_QUEUE_MAX {
            return false;
        }
        match self.internal.try_send(packet) {
            Ok(()) => {
                let _ = self.waker.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Reports a miss of a large object.
    pub(crate) fn send_miss(&self, missed: Miss) {
        let queue = if missed.is_local { &self.local_misses } else { &self.remote_misses };
        if queue.try_send(missed).is_err() {
            self.dropped_misses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of misses that were dropped.
    pub(crate) fn dropped_misses(&self) -> u64 {
        self.dropped_misses.load(Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.send(ToControl::Query(answer));
        answered.recv_timeout(timeout).ok()
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};
    use weir_base::{FaceId, Packet};
    use weir_forward::Event;
    use weir_wire::LpHeader;

    use super::*;

    #[test]
    fn learning_leaves_space_for_commands() {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let (sender, receiver) = ControlSender::new(Arc::new(waker));
        let report = || {
            let name = "/a".parse().unwrap();
            InternalPacket::Learning(Event::RouteRefused { face: FaceId(300), name })
        };
        let command = || {
            let packet = Packet::from(&[5, 0][..]);
            InternalPacket::Ndn { header: LpHeader::default(), packet }
        };
        let accepted = (0..600).filter(|_| sender.send_internal(report())).count();
        assert_eq!(accepted, 512);
        let accepted = (0..600).filter(|_| sender.send_internal(command())).count();
        assert_eq!(accepted, 512);
        assert_eq!(receiver.internal.len(), 1024);
    }

    #[test]
    fn remote_misses_do_not_block_local() {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let (sender, receiver) = ControlSender::new(Arc::new(waker));
        let missed = |is_local: bool, number: u64| Miss {
            ingress: FaceId(300 + u64::from(is_local)),
            is_local,
            object: format!("/{number}").parse().unwrap(),
        };
        (0..1100).for_each(|number| sender.send_miss(missed(false, number)));
        assert_eq!((receiver.misses.len(), sender.dropped_misses()), (1024, 76));
        sender.send_miss(missed(true, 7));
        assert_eq!(sender.dropped_misses(), 76);
        let next = || receiver.misses.next(Duration::ZERO);
        assert_eq!(next(), Some(missed(true, 7)), "it comes first");
        let mut others = 0;
        while let Some(missed) = next() {
            assert!(!missed.is_local);
            others += 1;
        }
        assert_eq!(others, 1024);
    }
}
