//! A bounded buffer of packets between the network thread and a reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{self, Poll};

use weir_base::Packet;
use weir_transport::{Delivery, Metadata};

use super::SocketError;
use crate::fetch::{Notifier, PacketReader};

/// What is known when the object has been found.
#[derive(Clone, Debug)]
pub(crate) struct ObjectStart {
    pub(crate) metadata: Metadata,
    pub(crate) first_segment: u64,
    /// How many bytes to skip first, and how many to read after them at most.
    pub(crate) skip_bytes: u64,
    pub(crate) len: u64,
}

#[derive(Default)]
struct InboxState {
    packets: VecDeque<Delivery>,
    start: Option<ObjectStart>,
    end: Option<Result<(), SocketError>>,
    /// The object ended, and no signature covers its end.
    has_unsigned_end: bool,
    /// What led to the object came from the local router's store.
    is_from_local_store: bool,
    task: Option<task::Waker>,
    /// The task waits for packets or the end, and not for the object to be found.
    waits_for_packets: bool,
    /// Packets read that have not been reported to the network thread.
    consumed: u32,
    is_abandoned: bool,
}

/// The buffer. Packets in it and in the reader are at most its capacity.
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
    is_notified: AtomicBool,
    /// Empty until the object has been found.
    notifier: OnceLock<Notifier>,
    pub(crate) capacity: u32,
}

impl Inbox {
    pub(crate) fn new(capacity: u32) -> Arc<Self> {
        let (state, changed, notifier) = (Mutex::default(), Condvar::new(), OnceLock::new());
        let capacity = capacity.max(1);
        Arc::new(Self { state, changed, is_notified: AtomicBool::new(false), notifier, capacity })
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that the reader waits for.
    fn change(&self, change: impl FnOnce(&mut InboxState)) {
        let mut state = self.state();
        change(&mut state);
        let task = state.task.take();
        drop(state);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// The object has been found.
    pub(crate) fn set_start(&self, start: ObjectStart) {
        let mut state = self.state();
        state.start = Some(start);
        let task = if state.waits_for_packets { None } else { state.task.take() };
        drop(state);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Nothing more will arrive.
    pub(crate) fn set_end(&self, result: Result<(), SocketError>) {
        self.change(|state| {
            state.end.get_or_insert(result);
        });
    }

    /// The object ends where no signature says so. Precedes [`Inbox::set_end`].
    pub(crate) fn set_unsigned_end(&self) {
        self.state().has_unsigned_end = true;
    }

    pub(crate) fn has_unsigned_end(&self) -> bool {
        self.state().has_unsigned_end
    }

    /// Whether what led to the object came from the local router's store. Precedes
    /// [`Inbox::set_start`].
    pub(crate) fn set_from_local_store(&self, is_from_local_store: bool) {
        self.state().is_from_local_store = is_from_local_store;
    }

    pub(crate) fn is_from_local_store(&self) -> bool {
        self.state().is_from_local_store
    }

    /// Whether the reader is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().is_abandoned
    }

    /// The reader is gone.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        state.packets.clear();
        drop(state);
        self.notify_download();
    }

    /// This many packets have been read.
    pub(crate) fn release(&self, packets: u32) {
        self.state().consumed += packets;
        self.notify_download();
    }

    fn notify_download(&self) {
        // One notification per wake-up is enough. The network thread also checks right after it is
        // attached.
        if !self.is_notified.swap(true, Ordering::AcqRel)
            && let Some(notifier) = self.notifier.get()
        {
            notifier.notify();
        }
    }

    /// Returns what `poll` finds, as soon as it finds something.
    fn wait<T>(&self, mut poll: impl FnMut(&mut InboxState) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(found) = poll(&mut state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll<T>(
        &self,
        context: Option<&mut task::Context<'_>>,
        awaits_packets: bool,
        mut poll: impl FnMut(&mut InboxState) -> Option<T>,
    ) -> Poll<T> {
        let Some(context) = context else { return Poll::Ready(self.wait(poll)) };
        let mut state = self.state();
        match poll(&mut state) {
            Some(found) => Poll::Ready(found),
            None => {
                state.task = Some(context.waker().clone());
                state.waits_for_packets = awaits_packets;
                Poll::Pending
            }
        }
    }

    /// What is known of the object. Waits if there is no context. A task with `awaits_packets` is
    /// woken by the first packet.
    pub(crate) fn poll_start(
        &self,
        context: Option<&mut task::Context<'_>>,
        awaits_packets: bool,
    ) -> Poll<Result<ObjectStart, SocketError>> {
        self.poll(context, awaits_packets, |state| match (&state.start, &state.end) {
            (Some(start), _) => Some(Ok(start.clone())),
            (None, Some(end)) => Some(Err(end.clone().err().unwrap_or(SocketError::Closed))),
            (None, None) => None,
        })
    }

    /// Moves all buffered packets into `packets`; returns false at the end. Waits if there is no
    /// context.
    pub(crate) fn poll_packets(
        &self,
        context: Option<&mut task::Context<'_>>,
        packets: &mut VecDeque<Delivery>,
    ) -> Poll<Result<bool, SocketError>> {
        self.poll(context, true, |state| {
            if !state.packets.is_empty() {
                std::mem::swap(&mut state.packets, packets);
                return Some(Ok(true));
            }
            state.end.clone().map(|end| end.map(|()| false))
        })
    }
}

/// The network thread's end.
pub(crate) struct InboxWriter(pub(crate) Arc<Inbox>);

impl PacketReader for InboxWriter {
    fn take(&mut self, packets: &mut Vec<Delivery>) {
        let capacity = self.0.capacity as usize;
        self.0.change(|state| {
            for mut delivery in packets.drain(..).filter(|_| !state.is_abandoned) {
                // A packet shares its receive block with others. It is copied, because a slow
                // reader would keep the whole block in memory.
                let packet = &delivery.packet;
                if state.packets.len() > capacity / 4 && packet.block_bytes() > 2 * packet.len() {
                    delivery.packet = Packet::from(&packet[..]);
                }
                state.packets.push_back(delivery);
            }
        });
    }

    fn set_notifier(&mut self, notifier: Notifier) {
        // A second download never has the same inbox.
        let _ = self.0.notifier.set(notifier);
    }

    fn take_consumed(&mut self) -> Option<u32> {
        if !self.0.is_notified.swap(false, Ordering::AcqRel) {
            return Some(0);
        }
        let mut state = self.0.state();
        (!state.is_abandoned).then(|| std::mem::take(&mut state.consumed))
    }
}
