//! How a packet crosses from one worker thread (shard) to another.
//!
//! Each name belongs to one shard, and each face to one thread. A packet that arrives at a face of
//! thread A, with a name of shard B, must cross to B. A packet from B to a face of A crosses back.
//! Each ordered pair of threads has one `RingBuffer` of bytes, with one writer and one reader,
//! and no lock. A router with one thread has no rings.
//!
//! 1. `ShardRings::push` writes one record into the ring to the target thread: a head of 24
//!    bytes, the PIT token, and a copy of the packet. The packet's block returns to the pool at
//!    once.
//! 2. Large packets (above `COPY_BYTES_MAX`), packets with unusual headers, and other messages
//!    cross by reference in a second ring. A one-byte mark in the byte ring keeps their order.
//! 3. A record never wraps. If it does not fit before the end of the ring, a `Record::SKIP` byte
//!    makes the reader continue at the beginning.
//! 4. If a ring is full, the writer drops the packet and counts it. It never waits.
//! 5. Once per turn of its event loop, the writer calls `ShardRings::wake_pending`. It wakes each
//!    sleeping thread that it has sent something to: see `doorbell`.
//! 6. The reader calls `ShardRings::note_lengths`, then handles its commands, and then takes
//!    exactly the noted bytes. A face's announcement enters the command queue before the face's
//!    packets enter the ring. So the reader knows the face when it takes the packets.
//!
//! Small packets are copied, because a reference would cost both threads more. The packet's block,
//! its reference count and the return list of its pool are different cache lines. One core fetches
//! them from the other, one after the other. The bytes of a ring are read in order, and prefetched.
//!
//! Example: an Interest of 60 bytes with a PIT token of 6 bytes takes 24 + 6 + 60 = 90 bytes. A
//! ring of 256 KiB holds 2912 of them. If 50 bytes are left before the end of the ring, the writer
//! puts a SKIP byte there and gives up the 50 bytes. The record starts at the beginning.
//!
//! A ring must never reorder the messages of one thread to another, block a thread, or grow.
//! Losing a shard's message to a full ring is safe: its home shard continues without the answer.

mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
}
mod doorbell;

use std::sync::Arc;

use mio::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use weir_base::{FaceId, Packet, Pool};
use weir_forward::{AnnouncedPacket, OutPacket, ShardMessage};
use weir_wire::{HopSignal, LpHeader, PitToken};

use self::doorbell::{Doorbell, published};

const RING_BYTES: usize = 256 << 10;
/// Slots of the ring for messages that cross by reference.
const RING_SLOTS: usize = 4096;
/// The largest packet that is copied.
const COPY_BYTES_MAX: usize = 1024;

/// A message from one worker thread to another.
#[derive(Debug)]
pub(crate) enum RingMessage {
    /// A packet for the receiving thread's shard.
    In {
        face: FaceId,
        /// The link header, without fields that concern only the link.
        header: LpHeader,
        /// The Interest or Data TLV.
        packet: Packet,
    },
    /// A packet for a face of the receiving thread.
    Out(OutPacket),
    /// Data with a prefix announcement for the receiving thread's shard.
    InAnnounced(Box<AnnouncedPacket>),
    /// Data with its prefix announcement for a face of the receiving thread.
    OutAnnounced(Box<(OutPacket, Packet)>),
    /// A message between shards. Losing it is safe: the home shard continues without an answer.
    Shard { from: u16, message: ShardMessage },
    /// A signal from the neighbour at a face, for the receiving thread's shard.
    SignalIn { face: FaceId, signal: HopSignal },
    /// A signal to the neighbour at a face of the receiving thread.
    SignalOut { face: FaceId, signal: HopSignal },
}

/// One thread's ends of all rings.
pub(crate) struct ShardRings {
    outgoing: Vec<Option<OutboundRing>>,
    incoming: Vec<InboundRing>,
    /// The inbound ring that is being read. Earlier ones have no noted messages left.
    next_ring: usize,
    /// Whether this thread sleeps.
    doorbell: Arc<Doorbell>,
    /// Messages lost to full rings.
    pub(crate) overflows: u64,
}

struct OutboundRing {
    octets: Producer<u8>,
    references: Producer<RingMessage>,
    doorbell: Arc<Doorbell>,
    waker: Arc<Waker>,
    /// Whether something was written since the last [`ShardRings::wake_pending`].
    needs_wake_check: bool,
}

struct InboundRing {
    octets: Consumer<u8>,
    references: Consumer<RingMessage>,
    /// Noted bytes that have not been read.
    waiting: usize,
}

impl ShardRings {
    /// Connects all pairs of threads. `wakers[i]` wakes thread `i`.
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
                let doorbell = Arc::clone(&all[to].doorbell);
                let (outgoing, incoming) = ring(doorbell, Arc::clone(&wakers[to]));
                all[from].outgoing.push(Some(outgoing));
                all[to].incoming.push(incoming);
            }
        }
        all
    }

    /// Sends a message to thread `to`. Counts it as lost if the ring is full. If the packet was
    /// copied, its block returns to `pool`.
    pub(crate) fn push(&mut self, to: u16, crossing: RingMessage, pool: &mut Pool) {
        if self.try_push(to, crossing, pool).is_err() {
            self.overflows += 1;
        }
    }

    /// Sends a message to thread `to`.
    ///
    /// # Errors
    /// The message, if the ring is full.
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

    /// Notes how many bytes each inbound ring holds now.
    pub(crate) fn note_lengths(&mut self) {
        self.next_ring = 0;
        for incoming in &mut self.incoming {
            incoming.waiting = incoming.octets.slots();
        }
    }

    /// Takes the next message that was in a ring when [`Self::note_lengths`] was called.
    pub(crate) fn next_message(&mut self, pool: &mut Pool) -> Option<RingMessage> {
        while let Some(incoming) = self.incoming.get_mut(self.next_ring) {
            if let Some(crossing) = incoming.next_message(pool) {
                return Some(crossing);
            }
            self.next_ring += 1;
        }
        None
    }

    /// Marks thread `to` for [`Self::wake_pending`], after a message to its command queue.
    pub(crate) fn mark_for_wake(&mut self, to: u16) {
        if let Some(outgoing) = &mut self.outgoing[usize::from(to)] {
            outgoing.needs_wake_check = true;
        }
    }

    /// Wakes the threads that sleep and were sent something since the last call.
    pub(crate) fn wake_pending(&mut self) {
        if !self.outgoing.iter().flatten().any(|outgoing| outgoing.needs_wake_check) {
            return;
        }
        // One fence for all rings: it is too expensive for each message.
        published();
        for outgoing in self.outgoing.iter_mut().flatten() {
            if std::mem::take(&mut outgoing.needs_wake_check) && outgoing.doorbell.must_ring() {
                // A waker fails only after its poll is closed, when the thread ends.
                let _ = outgoing.waker.wake();
            }
        }
    }

    /// Announces that this thread is about to sleep, so that others wake it. Returns false if a
    /// ring is not empty: then the thread must not sleep. [`Self::end_sleep`] must follow in both
    /// cases.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.doorbell.fall_asleep();
        self.incoming.iter().all(|incoming| incoming.octets.is_empty())
    }

    /// Announces that this thread is awake and will read its rings.
    pub(crate) fn end_sleep(&self) {
        self.doorbell.wake_up();
    }
}

fn ring(doorbell: Arc<Doorbell>, waker: Arc<Waker>) -> (OutboundRing, InboundRing) {
    let (octets_in, octets_out) = RingBuffer::new(RING_BYTES);
    let (references_in, references_out) = RingBuffer::new(RING_SLOTS);
    (
        OutboundRing {
            octets: octets_in,
            references: references_in,
            doorbell,
            waker,
            needs_wake_check: false,
        },
        InboundRing { octets: octets_out, references: references_out, waiting: 0 },
    )
}

impl OutboundRing {
    /// Returns false if the ring is full.
    #[inline]
    fn copy(&mut self, record: Record, token: &[u8], packet: &[u8]) -> bool {
        let len = record.len();
        loop {
            let Ok(mut chunk) = self.octets.write_chunk(len) else { return false };
            let (octets, beyond_end) = chunk.as_mut_slices();
            // The record would wrap: skip the rest of the ring and try again.
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
        // Write the reference before its mark: a reader that sees the mark takes the reference.
        // The mark must not fail, so check its space first.
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
            // `as_slices` returns the part before the end of the ring. Records never wrap.
            let chunk = self.octets.read_chunk(self.waiting).expect("that much waits");
            let (octets, _) = chunk.as_slices();
            let (taken, crossing) = match octets[0] {
                Record::SKIP => (octets.len(), None),
                Record::REFERENCE => {
                    let crossing = self.references.pop().expect("its mark is here");
                    if let RingMessage::In { packet, .. } = &crossing {
                        // The shard reads the packet only when the batch is full. Prefetch it now.
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

/// A record in a ring of bytes: this head, the PIT token, the packet. It never wraps around the end
/// of the ring.
struct Record {
    kind: u8,
    token_len: u8,
    packet_len: u16,
    congestion_mark: u32,
    face: FaceId,
    /// 0 if there is none.
    incoming_face: u64,
}

impl Record {
    const IN: u8 = 0;
    const OUT: u8 = 1;
    /// Instead of a record: the next message is in the ring of references.
    const REFERENCE: u8 = 2;
    /// Instead of a record: continue at the beginning of the ring.
    const SKIP: u8 = 3;

    const HEAD_BYTES: usize = 24;

    /// Returns `None` if the packet is large or its header has unusual fields.
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

    /// Length in the ring, in bytes.
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
        let id = |octets: &[u8]| u64::from_ne_bytes(octets.try_into().expect("8 bytes"));
        Self {
            kind: *kind,
            token_len: *token_len,
            packet_len: u16::from_ne_bytes([*l0, *l1]),
            congestion_mark: u32::from_ne_bytes([*m0, *m1, *m2, *m3]),
            face: FaceId(id(face)),
            incoming_face: id(incoming_face),
        }
    }

    /// Decodes the message. `octets` starts with the token and the packet.
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
