//! Rings between packet threads: for each ordered pair of threads one ring of octets. The other
//! side is woken if it sleeps, and once a loop, not once a packet. A router of one thread has none
//! of this.
//!
//! A small packet crosses as a copy. By reference it would cost both threads more: its block, the
//! count of its holders and the return stack of its pool are cache lines that one core must fetch
//! from the other one after the other, while the octets of a ring are read in order. Large packets,
//! and what is no packet, cross by reference in a second ring; a mark in the first keeps the order
//! of both.

mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
}
mod doorbell;

use std::sync::Arc;

use mio::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use weir_base::{FaceId, Packet, Pool};
use weir_forward::{OutPacket, ShardMessage};
use weir_wire::{HopSignal, LpHeader, PitToken};

use self::doorbell::{Doorbell, published};

/// Octets of one ring. A full ring drops, and counts, as a full queue does.
const RING_BYTES: usize = 256 << 10;
/// Slots of the ring of what crosses by reference.
const RING_SLOTS: usize = 4096;
/// The largest packet that is copied.
const COPY_BYTES_MAX: usize = 1024;

/// What one packet thread hands to another.
#[derive(Debug)]
pub(crate) enum RingMessage {
    /// A packet for the shard over there.
    In {
        face: FaceId,
        /// Its link header, without the fields of the link itself.
        header: LpHeader,
        /// The Interest or Data TLV.
        packet: Packet,
    },
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
pub(crate) struct ShardRings {
    outgoing: Vec<Option<OutboundRing>>,
    incoming: Vec<InboundRing>,
    /// The ring whose noted crossings are being taken; those before it have none left.
    next_ring: usize,
    /// Whether this thread sleeps.
    doorbell: Arc<Doorbell>,
    /// Crossings lost to full rings.
    pub(crate) overflows: u64,
}

struct OutboundRing {
    octets: Producer<u8>,
    references: Producer<RingMessage>,
    doorbell: Arc<Doorbell>,
    waker: Arc<Waker>,
    /// Something was handed over since it was last looked whether the other side sleeps.
    needs_wake_check: bool,
}

struct InboundRing {
    octets: Consumer<u8>,
    references: Consumer<RingMessage>,
    /// Octets that waited when they were last noted and have not been taken yet.
    waiting: usize,
}

impl ShardRings {
    /// Connects all pairs of threads; `wakers[i]` rouses thread `i`.
    pub(crate) fn connect_all(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let count = wakers.len();
        let unconnected = || Self {
            outgoing: Vec::new(),
            incoming: Vec::new(),
            next_ring: 0,
            doorbell: Arc::new(Doorbell::new()),
            overflows: 0,
        };
        let mut all: Vec<Self> = (0..count).map(|_| unconnected()).collect();
        for from in 0..count {
            for to in 0..count {
                if from == to {
                    all[from].outgoing.push(None);
                    continue;
                }
                let bell = Arc::clone(&all[to].doorbell);
                let (outgoing, incoming) = ring(bell, Arc::clone(&wakers[to]));
                all[from].outgoing.push(Some(outgoing));
                all[to].incoming.push(incoming);
            }
        }
        all
    }

    /// Hands `message` to thread `to`; counts it when the ring is full. A packet that was copied
    /// goes back to `pool`.
    pub(crate) fn push(&mut self, to: u16, crossing: RingMessage, pool: &mut Pool) {
        if self.try_push(to, crossing, pool).is_err() {
            self.overflows += 1;
        }
    }

    /// Hands `message` to thread `to`.
    ///
    /// # Errors
    /// The crossing, when the ring is full.
    pub(crate) fn try_push(
        &mut self,
        to: u16,
        crossing: RingMessage,
        pool: &mut Pool,
    ) -> Result<(), RingMessage> {
        let outgoing = self.outgoing[usize::from(to)].as_mut().expect("no ring leads to oneself");
        outgoing.needs_wake_check = true;
        let (kind, face, header, packet) = match &crossing {
            RingMessage::In { face, header, packet } => (Record::IN, *face, header, packet),
            RingMessage::Out(out) => (Record::OUT, out.face, &out.header, &out.packet),
            _ => return outgoing.push_reference(crossing),
        };
        let Some(record) = Record::of(kind, face, header, packet) else {
            return outgoing.push_reference(crossing);
        };
        if !outgoing.copy(record, header.pit_token.as_slice(), packet) {
            return Err(crossing);
        }
        if let RingMessage::In { packet, .. } | RingMessage::Out(OutPacket { packet, .. }) =
            crossing
        {
            pool.recycle(packet);
        }
        Ok(())
    }

    /// Notes what waits in each ring now.
    pub(crate) fn note_lengths(&mut self) {
        self.next_ring = 0;
        for incoming in &mut self.incoming {
            incoming.waiting = incoming.octets.slots();
        }
    }

    /// The next of the crossings that waited when [`Self::note_lengths`] was called.
    pub(crate) fn next_message(&mut self, pool: &mut Pool) -> Option<RingMessage> {
        while let Some(incoming) = self.incoming.get_mut(self.next_ring) {
            if let Some(crossing) = incoming.next_message(pool) {
                return Some(crossing);
            }
            self.next_ring += 1;
        }
        None
    }

    /// Thread `to` was handed something by another way than the rings, and is woken with the next
    /// call of [`Self::wake_pending`] if it sleeps.
    pub(crate) fn mark_for_wake(&mut self, to: u16) {
        if let Some(outgoing) = &mut self.outgoing[usize::from(to)] {
            outgoing.needs_wake_check = true;
        }
    }

    /// Wakes those that were handed something since the last call and sleep.
    pub(crate) fn wake_pending(&mut self) {
        if !self.outgoing.iter().flatten().any(|outgoing| outgoing.needs_wake_check) {
            return;
        }
        published();
        for outgoing in self.outgoing.iter_mut().flatten() {
            if std::mem::take(&mut outgoing.needs_wake_check) && outgoing.doorbell.must_ring() {
                // A waker fails only when its poll is gone, that is, at the end.
                let _ = outgoing.waker.wake();
            }
        }
    }

    /// Says that this thread is about to sleep, for others to wake it. False when something waits
    /// in a ring already: then it should not. [`Self::wake_up`] comes afterwards in either case.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.doorbell.fall_asleep();
        self.incoming.iter().all(|incoming| incoming.octets.is_empty())
    }

    /// Says that this thread will look at its rings.
    pub(crate) fn end_sleep(&self) {
        self.doorbell.wake_up();
    }
}

fn ring(bell: Arc<Doorbell>, waker: Arc<Waker>) -> (OutboundRing, InboundRing) {
    let (octets_in, octets_out) = RingBuffer::new(RING_BYTES);
    let (references_in, references_out) = RingBuffer::new(RING_SLOTS);
    (
        OutboundRing {
            octets: octets_in,
            references: references_in,
            doorbell: bell,
            waker,
            needs_wake_check: false,
        },
        InboundRing { octets: octets_out, references: references_out, waiting: 0 },
    )
}

impl OutboundRing {
    /// False when the ring is full.
    #[inline]
    fn copy(&mut self, record: Record, token: &[u8], packet: &[u8]) -> bool {
        let len = record.len();
        loop {
            let Ok(mut chunk) = self.octets.write_chunk(len) else { return false };
            let (octets, beyond_end) = chunk.as_mut_slices();
            if !beyond_end.is_empty() {
                let skipped = octets.len();
                octets[0] = Record::SKIP;
                chunk.commit(skipped);
                continue;
            }
            let (head, rest) = octets.split_first_chunk_mut().expect("as long as was asked");
            *head = record.encode();
            let (token_at, packet_at) = rest.split_at_mut(token.len());
            token_at.copy_from_slice(token);
            packet_at.copy_from_slice(packet);
            chunk.commit_all();
            return true;
        }
    }

    fn push_reference(&mut self, crossing: RingMessage) -> Result<(), RingMessage> {
        if self.octets.is_full() {
            return Err(crossing);
        }
        self.references.push(crossing).map_err(|rtrb::PushError::Full(crossing)| crossing)?;
        self.octets.push(Record::REFERENCE).expect("there is room");
        Ok(())
    }
}

impl InboundRing {
    #[inline]
    fn next_message(&mut self, pool: &mut Pool) -> Option<RingMessage> {
        while self.waiting > 0 {
            let chunk = self.octets.read_chunk(self.waiting).expect("that much waits");
            let (octets, _) = chunk.as_slices();
            let (taken, crossing) = match octets[0] {
                Record::SKIP => (octets.len(), None),
                Record::REFERENCE => {
                    let crossing = self.references.pop().expect("its mark is here");
                    if let RingMessage::In { packet, .. } = &crossing {
                        // The shard looks at it when the batch is full.
                        packet.prefetch_block();
                    }
                    (1, Some(crossing))
                }
                _ => {
                    let (head, rest) = octets.split_first_chunk().expect("records are whole");
                    let record = Record::decode(head);
                    (record.len(), Some(record.to_message(rest, pool)))
                }
            };
            chunk.commit(taken);
            self.waiting -= taken;
            if crossing.is_some() {
                return crossing;
            }
        }
        None
    }
}

/// A packet in a ring of octets: this head, the PIT token, the packet. No record goes round the end
/// of the ring.
struct Record {
    kind: u8,
    token_len: u8,
    packet_len: u16,
    congestion_mark: u32,
    face: FaceId,
    /// 0 when there is none.
    incoming_face: u64,
}

impl Record {
    const IN: u8 = 0;
    const OUT: u8 = 1;
    /// In place of a record: the next of the ring of references.
    const REFERENCE: u8 = 2;
    /// In place of a record: the next is at the beginning of the ring.
    const SKIP: u8 = 3;

    const HEAD_BYTES: usize = 24;

    /// Nothing when the packet is large, or its header says what few headers do.
    #[inline]
    fn of(kind: u8, face: FaceId, header: &LpHeader, packet: &[u8]) -> Option<Self> {
        if packet.len() > COPY_BYTES_MAX {
            return None;
        }
        let LpHeader {
            pit_token,
            nack: None,
            incoming_face,
            next_hop_face: None,
            no_cache: false,
            congestion_mark,
            non_discovery: false,
        } = header
        else {
            return None;
        };
        Some(Self {
            kind,
            token_len: pit_token.as_slice().len() as u8,
            packet_len: packet.len() as u16,
            congestion_mark: u32::try_from(*congestion_mark).ok()?,
            face,
            incoming_face: incoming_face.unwrap_or(0),
        })
    }

    /// Octets in the ring.
    #[inline]
    fn len(&self) -> usize {
        Self::HEAD_BYTES + usize::from(self.token_len) + usize::from(self.packet_len)
    }

    #[inline]
    fn encode(&self) -> [u8; Self::HEAD_BYTES] {
        let mut head = [0; Self::HEAD_BYTES];
        head[0] = self.kind;
        head[1] = self.token_len;
        head[2..4].copy_from_slice(&self.packet_len.to_ne_bytes());
        head[4..8].copy_from_slice(&self.congestion_mark.to_ne_bytes());
        head[8..16].copy_from_slice(&self.face.0.to_ne_bytes());
        head[16..].copy_from_slice(&self.incoming_face.to_ne_bytes());
        head
    }

    #[inline]
    fn decode(head: &[u8; Self::HEAD_BYTES]) -> Self {
        let [kind, token_len, l0, l1, m0, m1, m2, m3, ids @ ..] = head;
        let (face, incoming_face) = ids.split_at(8);
        let id = |octets: &[u8]| u64::from_ne_bytes(octets.try_into().expect("8 octets"));
        Self {
            kind: *kind,
            token_len: *token_len,
            packet_len: u16::from_ne_bytes([*l0, *l1]),
            congestion_mark: u32::from_ne_bytes([*m0, *m1, *m2, *m3]),
            face: FaceId(id(face)),
            incoming_face: id(incoming_face),
        }
    }

    /// What crossed; `octets` begin with the token and the packet.
    #[inline]
    fn to_message(&self, octets: &[u8], pool: &mut Pool) -> RingMessage {
        let (token, rest) = octets.split_at(usize::from(self.token_len));
        let packet = pool.copy(&rest[..usize::from(self.packet_len)]);
        let header = LpHeader {
            pit_token: PitToken::new(token).expect("it was a token"),
            incoming_face: (self.incoming_face != 0).then_some(self.incoming_face),
            congestion_mark: u64::from(self.congestion_mark),
            ..LpHeader::default()
        };
        let face = self.face;
        match self.kind {
            Self::IN => RingMessage::In { face, header, packet },
            _ => RingMessage::Out(OutPacket { face, header, packet }),
        }
    }
}

#[cfg(test)]
mod tests;
