use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::{HopSignal, LpHeader};

use crate::config::{LinkConfig, MTU_MIN};
use crate::counters::{LinkCounters, LinkDrop};
use crate::egress::{Egress, Frame};
use crate::marking::Marking;
use crate::reassembly::Reassembly;

/// What became of one received frame.
#[derive(Clone, Debug)]
pub enum Received {
    /// A whole Interest, Data or Nack. Link-only fields (Sequence, FragIndex, FragCount,
    /// TxSequence) and IncomingFaceId are cleared from the header; the packet starts with TLV type
    /// 5 or 6 but is not decoded further here.
    Packet {
        /// Header fields for the forwarder; of a reassembled packet those of fragment 0.
        header: LpHeader,
        /// The Interest or Data TLV, a slice of the frame when it came unfragmented.
        packet: Packet,
    },
    /// A fragment of a packet that is not complete yet.
    Partial,
    /// An LpPacket without a fragment that says nothing to the forwarder.
    Idle,
    /// What the router at the other end says of itself, for the router at this end.
    Signal(HopSignal),
    /// Dropped and counted.
    Drop(LinkDrop),
}

/// One face's state between socket and forwarder. For UDP there is one for each peer.
#[derive(Debug)]
pub struct Link {
    pub(crate) config: LinkConfig,
    pub(crate) counters: LinkCounters,
    pub(crate) egress: Egress,
    pub(crate) marking: Marking,
    pub(crate) reassembly: Reassembly,
    pub(crate) socket_backlog_bytes: u64,
    pub(crate) sequence_next: u64,
    pub(crate) last_received: Option<Instant>,
}

impl Link {
    /// A fresh face with `config`.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            sequence_next: config.sequence_start,
            config: sane(config),
            counters: LinkCounters::default(),
            egress: Egress::default(),
            marking: Marking::default(),
            reassembly: Reassembly::default(),
            socket_backlog_bytes: 0,
            last_received: None,
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the configuration; what is queued or in reassembly stays.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = sane(config);
    }

    /// What passed through so far.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// When the latest frame came, dropped ones included; none yet is `None`.
    pub fn last_received(&self) -> Option<Instant> {
        self.last_received
    }

    /// Tells how many octets wait in the socket (Linux SIOCOUTQ); they count for marking only.
    pub fn set_socket_backlog(&mut self, bytes: u64) {
        self.socket_backlog_bytes = bytes;
    }

    /// Octets on the wire that wait in the egress queue, the socket's backlog not included.
    pub fn queue_bytes(&self) -> u64 {
        self.egress.wire_bytes()
    }

    /// Octets of memory held for packets in reassembly.
    pub fn partial_bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Frames ready to be sent, oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Frame> + Clone {
        self.egress.frames().iter()
    }

    /// The oldest frame ready to be sent.
    pub fn front_frame(&self) -> Option<&Frame> {
        self.egress.frames().front()
    }

    /// Whether nothing waits to be sent.
    pub fn is_egress_empty(&self) -> bool {
        self.egress.frames().is_empty()
    }

    /// Takes the `count` oldest frames off the queue: the socket has them.
    ///
    /// # Panics
    /// If fewer are queued.
    pub fn frames_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.take_frame().expect("no more frames are sent than are queued");
        }
    }

    /// Takes the oldest frame off the queue, as sent: for drivers whose frames go on as they are.
    #[inline]
    pub fn take_frame(&mut self) -> Option<Frame> {
        let frame = self.egress.pop()?;
        self.counters.out_frames += 1;
        self.counters.out_bytes += frame.len() as u64;
        Some(frame)
    }

    /// Takes the oldest frame off the queue as dropped for `reason`.
    pub fn discard_front(&mut self, reason: LinkDrop) {
        if self.egress.pop().is_some() {
            self.counters.drops.count(reason);
        }
    }

    /// Moves small queued packets into blocks of their own. To be called when the socket takes no
    /// more: an Interest of 40 octets would else hold a whole receive block for as long as it
    /// waits. Each frame is looked at once.
    pub fn detach_small_frames(&mut self, pool: &mut Pool) {
        self.egress.detach_small(pool);
    }

    /// When [`handle_timeout`](Self::handle_timeout) should be called next; may be early, never
    /// late.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.reassembly.next_wakeup()
    }

    /// Gives up packets in reassembly whose time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.reassembly.expire(now, &mut self.counters.drops);
    }
}

fn sane(mut config: LinkConfig) -> LinkConfig {
    config.mtu = config.mtu.max(MTU_MIN);
    config
}
