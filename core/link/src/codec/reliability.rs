//! NDNLPv2 reliability (NDN-FACTS 2.5): frames are numbered, acknowledged by the other end, and
//! sent again when they were lost. As in NFD, and understood by it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool, RttConfig, RttEstimator};
use weir_wire::lp::{LP_PREFIX_MAX, LpFraming, LpHeader, LpView};

use super::config::CodecConfig;
use super::duplicates::Duplicates;
use crate::counters::{LinkCounters, LinkDrop};
use crate::frame::{self, FRAME_PREFIX_MAX, Frame};

/// An Ack waits this long for a frame that could carry it (NFD's idle-ack timer).
const ACK_DELAY_NS: u64 = 5 * NS_PER_MS;
/// A frame is lost once this many sent after it were acknowledged (NFD's seqNumLossThreshold).
const LOSS_THRESHOLD: usize = 3;
/// A frame is sent again so often at most (NFD's maxRetx).
const RETRANSMISSIONS_MAX: u8 = 3;
const ACK_BYTES: usize = 12;
/// Most Acks of a frame that holds nothing else, and most that wait.
const ACK_ONLY_MAX: usize = 128;
/// Most Acks of a frame with a packet: what its header has room for, see [`FRAME_PREFIX_MAX`].
const PIGGYBACKED_ACKS_MAX: usize = 4;
/// Most octets of the type and length of an LpPacket, the latter of which grows with Acks.
const LP_PACKET_HEAD_MAX: usize = 4;
/// After so many packets given up in a row, with no Ack between, the other end is taken to have no
/// reliability, or to be away: frames are sent once, but for one each [`PROBE_INTERVAL_NS`].
const UNRESPONSIVE_AFTER: u32 = 8;
const PROBE_INTERVAL_NS: u64 = NS_PER_S;
/// Packets whose other fragments are not sent again, since one was lost for good.
const LOST_PACKETS_MAX: usize = 64;
/// Octets of memory of an unacknowledged frame beside its payload: its place in a list that doubles
/// as it grows.
const UNACKNOWLEDGED_BYTES: u64 = 2 * size_of::<Option<Unacknowledged>>() as u64;

/// NFD's bounds, which are those of RFC 6298 but for the least.
const RTT: RttConfig = RttConfig {
    initial_rto_ns: NS_PER_S,
    rto_min_ns: 200 * NS_PER_MS,
    rto_max_ns: 60 * NS_PER_S,
    deviations: 4,
};

/// A frame before it is numbered.
#[derive(Debug)]
pub(super) struct OutFragment {
    pub(super) header: LpHeader,
    /// TxSequence does not matter yet.
    pub(super) framing: LpFraming,
    pub(super) octets: Packet,
}

impl OutFragment {
    /// The same for all fragments of a packet: the Sequence of the first.
    fn packet_id(&self) -> u64 {
        self.framing.sequence.unwrap_or_default().wrapping_sub(self.framing.frag_index)
    }
}

#[derive(Debug)]
struct Unacknowledged {
    piece: OutFragment,
    /// When the socket took it, and the timeout then. None while it waits for its turn: behind a
    /// long queue it would else be taken for lost before it has left, and make the queue longer.
    /// For how long it waits in the socket and beyond is in the round trips.
    sent: Option<(Instant, u64)>,
    retransmissions: u8,
}

impl Unacknowledged {
    fn charge(&self) -> u64 {
        UNACKNOWLEDGED_BYTES + Pool::footprint(self.piece.octets.len()) as u64
    }
}

/// Both halves of a link's reliability: what was sent and not acknowledged yet, and what came and
/// is to be acknowledged.
#[derive(Debug)]
pub(crate) struct Reliability {
    /// By TxSequence, of which the last is one less than `tx_sequence_next`; acknowledged ones are
    /// `None`. The first is not: it is the oldest and so the one whose time comes first.
    unacknowledged: VecDeque<Option<Unacknowledged>>,
    tx_sequence_next: u64,
    in_flight: u32,
    charged_bytes: u64,
    /// One more than each of the three largest TxSequences acknowledged, largest first: a frame
    /// below the last of them was overtaken by three.
    acknowledged_ends: [u64; LOSS_THRESHOLD],
    rtt: RttEstimator,
    /// A frame sent before says nothing new when it times out.
    backed_off_at: Instant,
    lost_packets: VecDeque<u64>,
    failures_in_row: u32,
    probe_at: Instant,
    /// Frames below this TxSequence lie in blocks of their own.
    detached_end: u64,
    /// TxSequences to acknowledge, in the order in which they came.
    acks: Vec<u64>,
    /// When they leave alone, if there are any.
    acks_due: Instant,
    duplicates: Duplicates,
}

impl Default for Reliability {
    fn default() -> Self {
        Self {
            unacknowledged: VecDeque::new(),
            tx_sequence_next: 0,
            in_flight: 0,
            charged_bytes: 0,
            acknowledged_ends: [0; LOSS_THRESHOLD],
            rtt: RttEstimator::new(RTT),
            backed_off_at: Instant::ZERO,
            lost_packets: VecDeque::new(),
            failures_in_row: 0,
            probe_at: Instant::ZERO,
            detached_end: 0,
            acks: Vec::new(),
            acks_due: Instant::ZERO,
            duplicates: Duplicates::default(),
        }
    }
}

impl Reliability {
    /// The frame of one piece, which is kept until it is acknowledged if there is room.
    pub(super) fn first_frame(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        piece: OutFragment,
        counters: &mut LinkCounters,
    ) -> Frame {
        let frame = Unacknowledged { piece, sent: None, retransmissions: 0 };
        self.frame(now, config, frame, counters)
    }

    fn frame(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        mut unacknowledged: Unacknowledged,
        counters: &mut LinkCounters,
    ) -> Frame {
        let charge = unacknowledged.charge();
        let is_kept = self.charged_bytes + charge <= config.unacknowledged_bytes_max
            && (!self.is_peer_unresponsive() || now >= self.probe_at);
        let number = self.tx_sequence_next;
        unacknowledged.piece.framing.tx_sequence = is_kept.then_some(number);
        let frame = self.encode(&unacknowledged.piece, config.mtu);
        if !is_kept {
            counters.unprotected += 1;
            return frame;
        }
        self.probe_at = now.plus_ns(PROBE_INTERVAL_NS);
        self.tx_sequence_next += 1;
        self.charged_bytes += charge;
        self.in_flight += 1;
        self.unacknowledged.push_back(Some(unacknowledged));
        frame.numbered(number)
    }

    /// The socket has taken a frame, or it was dropped.
    pub(crate) fn on_dequeued(&mut self, now: Instant, number: u64) {
        let rto_ns = self.rtt.rto_ns();
        if let Some(kept) = self.find(number).and_then(Option::as_mut) {
            kept.sent = Some((now, rto_ns));
        }
    }

    /// The place of a frame that was sent and may be acknowledged yet.
    fn find(&mut self, tx_sequence: u64) -> Option<&mut Option<Unacknowledged>> {
        let first = self.tx_sequence_next - self.unacknowledged.len() as u64;
        let at = usize::try_from(tx_sequence.checked_sub(first)?).ok()?;
        self.unacknowledged.get_mut(at)
    }

    /// Adds the Acks that wait, as far as the header and the MTU have room.
    fn encode(&mut self, piece: &OutFragment, mtu: usize) -> Frame {
        let OutFragment { header, framing, octets } = piece;
        let mut prefix = [0; LP_PREFIX_MAX];
        let mut len = header.encode_prefix(framing, octets.len(), &mut prefix);
        let room = |len_max: usize, len: usize| len_max.saturating_sub(len + LP_PACKET_HEAD_MAX);
        let room = room(FRAME_PREFIX_MAX, len).min(room(mtu, len + octets.len()));
        let count = (room / ACK_BYTES).min(self.acks.len()).min(PIGGYBACKED_ACKS_MAX);
        if count > 0 {
            let acks = &self.acks[..count];
            len = header.encode_prefix_with_acks(framing, acks, octets.len(), &mut prefix);
            self.acks.drain(..count);
        }
        Frame::new(&prefix[..len], octets.clone())
    }

    /// Takes the link's own fields of a received frame.
    ///
    /// # Errors
    /// [`LinkDrop::SequenceDuplicate`]; it is acknowledged nevertheless.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        view: &LpView<'_>,
        counters: &mut LinkCounters,
    ) -> Result<(), LinkDrop> {
        for ack in view.acks() {
            self.on_ack(now, ack, counters);
        }
        let (Some(_), Some(tx_sequence)) = (view.fragment, view.framing.tx_sequence) else {
            return Ok(());
        };
        if self.acks.is_empty() {
            self.acks_due = now.plus_ns(ACK_DELAY_NS);
        }
        debug_assert!(self.acks.len() < ACK_ONLY_MAX, "what fills a frame leaves at once");
        self.acks.push(tx_sequence);
        match view.framing.sequence {
            Some(sequence) if self.duplicates.is_duplicate(now, sequence) => {
                Err(LinkDrop::SequenceDuplicate)
            }
            _ => Ok(()),
        }
    }

    /// What was never sent, or acknowledged before, is ignored.
    fn on_ack(&mut self, now: Instant, tx_sequence: u64, counters: &mut LinkCounters) {
        let entry = self.find(tx_sequence).filter(|entry| {
            // What has not left cannot have come.
            entry.as_ref().is_some_and(|entry| entry.sent.is_some())
        });
        let Some(acknowledged) = entry.and_then(Option::take) else { return };
        self.charged_bytes -= acknowledged.charge();
        counters.acknowledged += 1;
        self.failures_in_row = 0;
        if let (0, Some((sent_at, _))) = (acknowledged.retransmissions, acknowledged.sent) {
            // One round trip counts as one sample, however many frames are under way.
            self.rtt.sample(now.ns_since(sent_at), self.in_flight);
        }
        self.in_flight -= 1;
        let mut end = tx_sequence + 1;
        for greatest in &mut self.acknowledged_ends {
            if end > *greatest {
                core::mem::swap(&mut end, greatest);
            }
        }
        self.pop_acknowledged();
    }

    fn pop_acknowledged(&mut self) {
        while let Some(None) = self.unacknowledged.front() {
            self.unacknowledged.pop_front();
        }
    }

    /// The next frame that is to leave by now without being asked for: one that was lost, or Acks
    /// alone. To be called until there is none.
    pub(crate) fn next_due(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        counters: &mut LinkCounters,
    ) -> Option<Frame> {
        while let Some(lost) = self.take_lost(now) {
            if let Some(again) = self.retransmission_of(lost, counters) {
                return Some(self.frame(now, config, again, counters));
            }
        }
        self.ack_only_frame(now, config.mtu)
    }

    /// The oldest frame, if it is lost.
    fn take_lost(&mut self, now: Instant) -> Option<Unacknowledged> {
        let oldest = self.unacknowledged.front()?.as_ref()?;
        let number = self.tx_sequence_next - self.unacknowledged.len() as u64;
        let is_overtaken = number + 1 < self.acknowledged_ends[LOSS_THRESHOLD - 1];
        if !is_overtaken && self.deadline(oldest).is_none_or(|at| now < at) {
            return None;
        }
        let is_after_back_off = oldest.sent.is_some_and(|(at, _)| at >= self.backed_off_at);
        if !is_overtaken && is_after_back_off {
            self.rtt.back_off();
            self.backed_off_at = now;
        }
        let lost = self.unacknowledged.pop_front().flatten()?;
        self.charged_bytes -= lost.charge();
        self.in_flight -= 1;
        self.pop_acknowledged();
        Some(lost)
    }

    /// `lost` as it is to be sent again, unless its packet is given up.
    fn retransmission_of(
        &mut self,
        lost: Unacknowledged,
        counters: &mut LinkCounters,
    ) -> Option<Unacknowledged> {
        let is_cut = lost.piece.framing.frag_count > 1;
        let packet_id = lost.piece.packet_id();
        if is_cut && self.lost_packets.contains(&packet_id) {
            return None;
        }
        if lost.retransmissions == RETRANSMISSIONS_MAX || self.is_peer_unresponsive() {
            counters.given_up += 1;
            self.failures_in_row = self.failures_in_row.saturating_add(1);
            if is_cut {
                self.lost_packets.truncate(LOST_PACKETS_MAX - 1);
                self.lost_packets.push_front(packet_id);
            }
            return None;
        }
        counters.retransmitted += 1;
        let retransmissions = lost.retransmissions + 1;
        Some(Unacknowledged { sent: None, retransmissions, ..lost })
    }

    fn ack_only_frame(&mut self, now: Instant, mtu: usize) -> Option<Frame> {
        let most = (mtu.saturating_sub(LP_PACKET_HEAD_MAX) / ACK_BYTES).min(ACK_ONLY_MAX);
        if self.acks.is_empty() || (self.acks.len() < most && now < self.acks_due) {
            return None;
        }
        let count = self.acks.len().min(most);
        let frame = LpHeader::default().encode(&LpFraming::BARE, &self.acks[..count], None);
        self.acks.drain(..count);
        self.acks_due = now.plus_ns(ACK_DELAY_NS);
        Some(Frame::bare(Packet::from(frame)))
    }

    fn is_peer_unresponsive(&self) -> bool {
        self.failures_in_row >= UNRESPONSIVE_AFTER
    }

    /// A shorter timeout holds for what was sent before, too, but not a longer one.
    fn deadline(&self, frame: &Unacknowledged) -> Option<Instant> {
        let (sent_at, rto_ns) = frame.sent?;
        Some(sent_at.plus_ns(rto_ns.min(self.rtt.rto_ns())))
    }

    /// When [`Self::next_due`] may give something; may be early, never late.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let oldest = self.unacknowledged.front().and_then(Option::as_ref);
        let acks = (!self.acks.is_empty()).then_some(self.acks_due);
        oldest.and_then(|oldest| self.deadline(oldest)).into_iter().chain(acks).min()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.charged_bytes + self.duplicates.bytes() as u64
    }

    /// Moves the frames kept out of blocks that are much larger than they. Each is looked at once.
    pub(crate) fn detach(&mut self, pool: &mut Pool) {
        let first = self.tx_sequence_next - self.unacknowledged.len() as u64;
        let done = self.detached_end.saturating_sub(first) as usize;
        for kept in self.unacknowledged.iter_mut().skip(done).flatten() {
            frame::detach(&mut kept.piece.octets, pool);
        }
        self.detached_end = self.tx_sequence_next;
    }

    /// Keeps nothing of the past: what is on its way is not sent again.
    pub(crate) fn discard_state(&mut self, counters: &mut LinkCounters) {
        counters.unprotected += u64::from(self.in_flight);
        self.unacknowledged = VecDeque::new();
        (self.in_flight, self.charged_bytes) = (0, 0);
        self.duplicates.clear();
    }
}
