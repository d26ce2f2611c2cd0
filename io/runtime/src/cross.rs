//! Rings between packet threads: one single-producer ring for each ordered pair of threads, and a
//! waker that rouses the other side once a loop, not once a packet. A router of one thread has
//! none of this.

use std::sync::Arc;

use mio::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use weir_base::{FaceId, Packet};
use weir_forward::{OutPacket, ShardMessage};
use weir_wire::{HopSignal, LpHeader};

/// Slots of one ring. A full ring drops, and counts, as a full queue does.
const RING_SLOTS: usize = 4096;

/// What one packet thread hands to another.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// A packet for the shard over there.
    In { face: FaceId, header: LpHeader, packet: Packet },
    /// A packet for a face over there.
    Out(OutPacket),
    /// What one shard says to another. A home goes on without an answer that was lost.
    Shard { from: u16, message: ShardMessage },
    /// A signal from the router at a face, for the shard over there.
    SignalIn { face: FaceId, signal: HopSignal },
    /// A signal for the router at a face over there.
    SignalOut { face: FaceId, signal: HopSignal },
}

/// One thread's ends of all rings.
pub(crate) struct CrossPorts {
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Consumer<Crossing>>,
    waiting: Vec<usize>,
    /// Crossings lost to full rings.
    pub(crate) overflows: u64,
}

struct Outgoing {
    ring: Producer<Crossing>,
    waker: Arc<Waker>,
    pending: bool,
}

impl CrossPorts {
    /// Connects all pairs of threads; `wakers[i]` rouses thread `i`.
    pub(crate) fn connect_all(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let count = wakers.len();
        let mut all: Vec<Self> = (0..count)
            .map(|_| Self {
                outgoing: Vec::new(),
                incoming: Vec::new(),
                waiting: Vec::new(),
                overflows: 0,
            })
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

    /// Notes how many crossings wait in each ring now.
    pub(crate) fn note_waiting(&mut self) {
        self.waiting.clear();
        self.waiting.extend(self.incoming.iter().map(Consumer::slots));
    }

    /// The next of the crossings that waited when [`Self::note_waiting`] was called.
    pub(crate) fn next_noted(&mut self) -> Option<Crossing> {
        for (ring, waiting) in self.incoming.iter_mut().zip(&mut self.waiting) {
            if *waiting > 0 {
                *waiting -= 1;
                return ring.pop().ok();
            }
        }
        None
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
