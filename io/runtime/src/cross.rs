//! Rings between packet threads: one single-producer ring for each ordered pair of threads, and a
//! waker that rouses the other side once a loop, not once a packet. A router of one thread has
//! none of this.

use std::sync::Arc;

use mio::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use weir_base::{FaceId, Packet};
use weir_forward::{FaceScope, LinkType, OutPacket};
use weir_wire::LpHeader;

/// Slots of one ring. A full ring drops, and counts, as a full queue does.
const RING_SLOTS: usize = 4096;

/// What one packet thread hands to another.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// A packet for the shard over there.
    In { face: FaceId, header: LpHeader, packet: Packet },
    /// A packet for a face over there.
    Out(OutPacket),
    /// The sender made a face. Goes ahead of the packets of that face in the same ring.
    AddFace { face: FaceId, owner: u16, scope: FaceScope, link_type: LinkType },
}

/// One thread's ends of all rings.
pub(crate) struct CrossPorts {
    pub(crate) outgoing: Vec<Option<Outgoing>>,
    pub(crate) incoming: Vec<Consumer<Crossing>>,
    /// Crossings lost to full rings.
    pub(crate) overflows: u64,
}

pub(crate) struct Outgoing {
    ring: Producer<Crossing>,
    waker: Arc<Waker>,
    pending: bool,
}

impl CrossPorts {
    /// Connects all pairs of threads; `wakers[i]` rouses thread `i`.
    pub(crate) fn connect_all(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let count = wakers.len();
        let mut all: Vec<Self> = (0..count)
            .map(|_| Self { outgoing: Vec::new(), incoming: Vec::new(), overflows: 0 })
            .collect();
        for from in 0..count {
            for to in 0..count {
                if from == to {
                    all[from].outgoing.push(None);
                    continue;
                }
                let (producer, consumer) = RingBuffer::new(RING_SLOTS);
                all[from].outgoing.push(Some(Outgoing {
                    ring: producer,
                    waker: Arc::clone(&wakers[to]),
                    pending: false,
                }));
                all[to].incoming.push(consumer);
            }
        }
        all
    }

    /// Hands `crossing` to thread `to`; counts it when the ring is full.
    pub(crate) fn push(&mut self, to: u16, crossing: Crossing) {
        let outgoing = self.outgoing[usize::from(to)].as_mut().expect("no ring leads to oneself");
        match outgoing.ring.push(crossing) {
            Ok(()) => outgoing.pending = true,
            Err(_) => self.overflows += 1,
        }
    }

    /// Hands `crossing` to every other thread.
    pub(crate) fn push_all(&mut self, mut crossing: impl FnMut() -> Crossing) {
        for to in 0..self.outgoing.len() {
            if self.outgoing[to].is_some() {
                self.push(to as u16, crossing());
            }
        }
    }

    /// Rouses the threads that were handed something since the last call.
    pub(crate) fn wake_pending(&mut self) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            if std::mem::take(&mut outgoing.pending) {
                // A waker fails only when its poll is gone, that is, at the end.
                let _ = outgoing.waker.wake();
            }
        }
    }
}
