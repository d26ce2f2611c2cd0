//! NDNLPv2 reliability (NDN-FACTS 2.5): frames are numbered, acknowledged, and retransmitted when
//! they are lost. The rules follow NFD, so a link between Weir and NFD works.
//!
//! Sender:
//!
//! 1. A frame with a packet or a fragment gets the next TxSequence, and is kept until it is
//!    acknowledged. If the memory for kept frames is used up, the frame is sent without a
//!    TxSequence.
//! 2. The timer of a frame starts when the socket takes it, not when it is queued. Otherwise a long
//!    queue would cause time-outs and retransmissions, which make the queue longer.
//! 3. Only the oldest kept frame is checked. It is lost if three frames with a higher TxSequence
//!    were acknowledged, or if its retransmission timeout is over (RFC 6298, at least 200 ms).
//!    When the timeout expires, it doubles. Frames sent before that moment do not double it again.
//! 4. A lost frame is sent again with a new TxSequence, and with its old Sequence. After three
//!    retransmissions the sender gives up its packet. It then retransmits no other fragments of it.
//! 5. If the sender gives up eight packets in a row without an Ack, it assumes that the peer is
//!    down or has no reliability. Each frame is then sent once, without a TxSequence. One frame a
//!    second still gets a TxSequence, to probe the peer.
//!
//! Receiver:
//!
//! 1. Each numbered frame is acknowledged, even a duplicate, since its Ack may have been lost.
//! 2. Up to four Acks travel in the header of a frame that is sent anyway. Other Acks leave in a
//!    frame of their own after 5 ms, or when they fill one.
//! 3. A frame whose Sequence was received before is dropped ([`Duplicates`]).
//!
//! Example: frames 10 to 14 are sent, and 10 is lost. The Acks of 11 and 12 arrive, and nothing
//! happens. With the Ack of 13, three later frames are acknowledged. Frame 10 is lost and is sent
//! again as 15.
//!
//! It must never deliver a packet twice, keep more frames than its memory allows, or retransmit
//! without limit to a peer that does not answer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool, RttConfig, RttEstimator};
use weir_wire::lp::{LP_PREFIX_MAX, LpFraming, LpHeader, LpView};

use super::duplicates::Duplicates;
use crate::codec::config::CodecConfig;
use crate::counters::{LinkCounters, LinkDrop};
use crate::frame::{self, FRAME_PREFIX_MAX, Frame};

/// How long an Ack waits for a frame that can carry it (NFD's idle-ack timer).
const ACK_DELAY_NS: u64 = 5 * NS_PER_MS;
/// A frame is lost when this many later frames have been acknowledged (NFD's seqNumLossThreshold).
const LOSS_THRESHOLD: usize = 3;
/// Maximum number of retransmissions of a frame (NFD's maxRetx).
const RETRANSMISSIONS_MAX: u8 = 3;
const ACK_BYTES: usize = 12;
/// Maximum number of Acks in a frame without a packet, and of Acks that wait.
const ACK_ONLY_MAX: usize = 128;
/// Maximum number of Acks in a frame with a packet. More do not fit into its header
/// ([`FRAME_PREFIX_MAX`]).
const PIGGYBACKED_ACKS_MAX: usize = 4;
/// Maximum size of the type and length of an LpPacket, in bytes. The length grows with Acks.
const LP_PACKET_HEAD_MAX: usize = 4;
/// The peer counts as unresponsive when the sender has given up this number of packets in a row
/// without an Ack. One frame in each [`PROBE_INTERVAL_NS`] then probes the peer.
const UNRESPONSIVE_AFTER: u32 = 8;
const PROBE_INTERVAL_NS: u64 = NS_PER_S;
/// Maximum number of given-up packets that are remembered. Their other fragments are not
/// retransmitted.
const LOST_PACKETS_MAX: usize = 64;
/// Memory of an unacknowledged frame without its payload, in bytes. Up to half of the list is
/// unused, because the list doubles when it grows.
const UNACKNOWLEDGED_BYTES: u64 = 2 * size_of::<Option<Unacknowledged>>() as u64;

/// NFD's bounds. Only the minimum differs from RFC 6298.
const RTT: RttConfig = RttConfig {
    initial_rto_ns: NS_PER_S,
    rto_min_ns: 200 * NS_PER_MS,
    rto_max_ns: 60 * NS_PER_S,
    deviations: 4,
};

/// A frame without its TxSequence.
#[derive(Debug)]
pub(super) struct OutFragment {
    pub(super) header: LpHeader,
    /// The TxSequence is not set yet.
    pub(super) framing: LpFraming,
    pub(super) octets: Packet,
}

impl OutFragment {
    /// The Sequence of the packet's first fragment, which is the same for all its fragments.
    fn packet_id(&self) -> u64 {
        self.framing.sequence.unwrap_or_default().wrapping_sub(self.framing.frag_index)
    }
}

#[derive(Debug)]
struct Unacknowledged {
    fragment: OutFragment,
    /// When the socket took the frame, and the timeout at that time. `None` while the frame is
    /// queued: a timer that ran in a long queue would expire before the frame leaves.
    sent: Option<(Instant, u64)>,
    retransmissions: u8,
}

impl Unacknowledged {
    fn charge(&self) -> u64 {
        UNACKNOWLEDGED_BYTES + Pool::footprint(self.fragment.octets.len()) as u64
    }
}

/// Both halves of a link's reliability: frames that were sent and not acknowledged, and frames that
/// were received and must be acknowledged.
#[derive(Debug)]
pub(crate) struct Reliability {
    /// Kept frames by TxSequence; the last is `tx_sequence_next - 1`. Acknowledged ones are `None`.
    /// The first one is never `None`: it is the oldest frame, whose timeout comes first.
    unacknowledged: VecDeque<Option<Unacknowledged>>,
    tx_sequence_next: u64,
    in_flight: u32,
    charged_bytes: u64,
    /// The three largest acknowledged TxSequences, each plus one, largest first. A frame is lost if
    /// even the smallest of the three is later.
    acknowledged_ends: [u64; LOSS_THRESHOLD],
    rtt: RttEstimator,
    /// Frames sent before this time cause no further back-off when they time out.
    backed_off_at: Instant,
    lost_packets: VecDeque<u64>,
    failures_in_row: u32,
    /// From this time on, even an unresponsive peer gets a frame with a TxSequence.
    probe_at: Instant,
    /// Frames below this TxSequence have been copied out of receive blocks.
    detached_end: u64,
    /// TxSequences to acknowledge, in order of arrival.
    acks: Vec<u64>,
    /// When the waiting Acks leave in a frame of their own.
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
    /// The frame of a new fragment. It is kept until it is acknowledged, if there is memory.
    pub(super) fn first_frame(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        fragment: OutFragment,
        counters: &mut LinkCounters,
    ) -> Frame {
        let frame = Unacknowledged { fragment, sent: None, retransmissions: 0 };
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
        // A frame without a TxSequence is neither acknowledged nor retransmitted. That is the case
        // if memory is used up, or if the peer is unresponsive and no probe is due.
        let is_kept = self.charged_bytes + charge <= config.unacknowledged_bytes_max
            && (!self.is_peer_unresponsive() || now >= self.probe_at);
        let number = self.tx_sequence_next;
        unacknowledged.fragment.framing.tx_sequence = is_kept.then_some(number);
        let frame = self.encode(&unacknowledged.fragment, config.mtu);
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

    /// The socket has taken a frame, or the frame was dropped from the queue. Both start its timer:
    /// a dropped frame is lost like one on the network.
    pub(crate) fn on_dequeued(&mut self, now: Instant, number: u64) {
        let rto_ns = self.rtt.rto_ns();
        if let Some(kept) = self.find(number).and_then(Option::as_mut) {
            kept.sent = Some((now, rto_ns));
        }
    }

    /// The slot of a numbered frame. `None` if the frame has left the list.
    fn find(&mut self, tx_sequence: u64) -> Option<&mut Option<Unacknowledged>> {
        let first = self.tx_sequence_next - self.unacknowledged.len() as u64;
        let at = usize::try_from(tx_sequence.checked_sub(first)?).ok()?;
        self.unacknowledged.get_mut(at)
    }

    /// Encodes a frame. Adds waiting Acks while the header and the MTU have room.
    fn encode(&mut self, fragment: &OutFragment, mtu: usize) -> Frame {
        let OutFragment { header, framing, octets } = fragment;
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

    /// Handles the reliability fields of a received frame.
    ///
    /// # Errors [`LinkDrop::SequenceDuplicate`]; the frame is still acknowledged.
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
        // The first waiting Ack starts the timer. Later Acks leave in the same frame.
        if self.acks.is_empty() {
            self.acks_due = now.plus_ns(ACK_DELAY_NS);
        }
        debug_assert!(self.acks.len() < ACK_ONLY_MAX, "Acks that fill a frame leave at once");
        self.acks.push(tx_sequence);
        match view.framing.sequence {
            Some(sequence) if self.duplicates.is_duplicate(now, sequence) => {
                Err(LinkDrop::SequenceDuplicate)
            }
            _ => Ok(()),
        }
    }

    /// Handles an Ack. Acks of unknown or already acknowledged frames are ignored.
    fn on_ack(&mut self, now: Instant, tx_sequence: u64, counters: &mut LinkCounters) {
        let entry = self.find(tx_sequence).filter(|entry| {
            // An Ack for a frame that is still queued is invalid.
            entry.as_ref().is_some_and(|entry| entry.sent.is_some())
        });
        let Some(acknowledged) = entry.and_then(Option::take) else { return };
        self.charged_bytes -= acknowledged.charge();
        counters.acknowledged += 1;
        self.failures_in_row = 0;
        if let (0, Some((sent_at, _))) = (acknowledged.retransmissions, acknowledged.sent) {
            // The weight of a sample is divided by the number of frames in flight, so all samples
            // of one round trip together count as one.
            self.rtt.sample(now.ns_since(sent_at), self.in_flight);
        }
        self.in_flight -= 1;
        let mut end = tx_sequence + 1;
        // Inserts the number into the three largest, which stay sorted.
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

    /// The next frame that must be sent now: a retransmission, or Acks alone. Call it until it
    /// returns `None`.
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

    /// Takes the oldest frame if it is lost.
    fn take_lost(&mut self, now: Instant) -> Option<Unacknowledged> {
        let oldest = self.unacknowledged.front()?.as_ref()?;
        let number = self.tx_sequence_next - self.unacknowledged.len() as u64;
        // Lost if three later frames were acknowledged, or if the timeout has passed.
        let is_overtaken = number + 1 < self.acknowledged_ends[LOSS_THRESHOLD - 1];
        if !is_overtaken && self.deadline(oldest).is_none_or(|at| now < at) {
            return None;
        }
        // Many frames in flight may time out together. Only the first of them doubles the timeout.
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

    /// The retransmission of `lost`. `None` if the sender has given up its packet.
    fn retransmission_of(
        &mut self,
        lost: Unacknowledged,
        counters: &mut LinkCounters,
    ) -> Option<Unacknowledged> {
        let is_fragmented = lost.fragment.framing.frag_count > 1;
        let packet_id = lost.fragment.packet_id();
        // Another fragment of the same packet was given up, so the packet cannot be completed.
        if is_fragmented && self.lost_packets.contains(&packet_id) {
            return None;
        }
        if lost.retransmissions == RETRANSMISSIONS_MAX || self.is_peer_unresponsive() {
            counters.given_up += 1;
            self.failures_in_row = self.failures_in_row.saturating_add(1);
            if is_fragmented {
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

    /// When the frame times out. If the timeout has become shorter since the frame was sent, the
    /// shorter one applies. A longer one does not.
    fn deadline(&self, frame: &Unacknowledged) -> Option<Instant> {
        let (sent_at, rto_ns) = frame.sent?;
        Some(sent_at.plus_ns(rto_ns.min(self.rtt.rto_ns())))
    }

    /// When [`Self::next_due`] may return a frame; may be too early, never too late.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let oldest = self.unacknowledged.front().and_then(Option::as_ref);
        let acks = (!self.acks.is_empty()).then_some(self.acks_due);
        oldest.and_then(|oldest| self.deadline(oldest)).into_iter().chain(acks).min()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.charged_bytes + self.duplicates.bytes() as u64
    }

    /// Copies kept frames out of blocks that are much larger than they are. Visits each frame once.
    pub(crate) fn detach(&mut self, pool: &mut Pool) {
        let first = self.tx_sequence_next - self.unacknowledged.len() as u64;
        let done = self.detached_end.saturating_sub(first) as usize;
        for kept in self.unacknowledged.iter_mut().skip(done).flatten() {
            frame::detach(&mut kept.fragment.octets, pool);
        }
        self.detached_end = self.tx_sequence_next;
    }

    /// Discards all state; frames in flight are not retransmitted.
    pub(crate) fn discard_state(&mut self, counters: &mut LinkCounters) {
        counters.unprotected += u64::from(self.in_flight);
        self.unacknowledged = VecDeque::new();
        (self.in_flight, self.charged_bytes) = (0, 0);
        self.duplicates.clear();
    }
}
