use weir_base::Packet;
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::{HopSignal, LP_PREFIX_MAX, LpFraming, LpHeader};

use super::reliability::{OutFragment, Reliability};
use crate::codec::config::{CodecConfig, FRAGMENT_COUNT_MAX};
use crate::codec::context::CodecContext;
use crate::counters::LinkDrop;
use crate::frame::Frame;

/// Up to this many fragments, count and index take one byte each.
const SMALL_COUNT_MAX: u64 = 255;

/// Encodes packets into frames.
#[derive(Debug)]
pub(in crate::codec) struct NdnlpEncoder {
    sequence_next: u64,
}

impl NdnlpEncoder {
    pub(in crate::codec) fn new(config: &CodecConfig) -> Self {
        Self { sequence_next: config.sequence_start }
    }

    /// Encodes one packet and passes its frames to `push`. Returns their number, which is more than
    /// one if the packet must be fragmented. Sets the fragment fields of `header`, and removes
    /// local fields if the face has none. `reliability` is that of the link, if it is on.
    #[inline(always)]
    pub(in crate::codec) fn encode(
        &mut self,
        context: CodecContext<'_>,
        reliability: Option<&mut Reliability>,
        header: &mut LpHeader,
        packet: &Packet,
        mut push: impl FnMut(Frame),
    ) -> Result<u64, LinkDrop> {
        let config = context.config;
        if !config.local_fields {
            header.incoming_face = None;
            header.next_hop_face = None;
        }
        if reliability.is_some() {
            return self.encode_fragments(context, reliability, header, packet, push);
        }
        // NFD closes a stream on a frame larger than the largest packet, although it sends such
        // frames.
        if let Some(frame) = single_frame(header, packet, config.mtu.min(PACKET_SIZE_MAX)) {
            push(frame);
            return Ok(1);
        }
        if config.fragmentation {
            return self.encode_fragments(context, None, header, packet, push);
        }
        // These fields are optional. A packet that fits only without them must not be dropped.
        header.congestion_mark = 0;
        header.incoming_face = None;
        let frame = single_frame(header, packet, config.mtu);
        push(frame.ok_or(LinkDrop::TooLargeForMtu)?);
        Ok(1)
    }

    /// Encodes Data with its prefix announcement, which is of any length. Such frames are rare, so
    /// they are copies, and reliability does not retransmit them. Returns the number of frames;
    /// `None` if the announcement leaves no room for the Data, and then nothing was pushed.
    pub(in crate::codec) fn encode_announced(
        &mut self,
        config: &CodecConfig,
        header: &mut LpHeader,
        (packet, announcement): (&Packet, &Packet),
        mut push: impl FnMut(Frame),
    ) -> Option<u64> {
        if !config.local_fields {
            header.incoming_face = None;
            header.next_hop_face = None;
        }
        let mtu = config.mtu.min(PACKET_SIZE_MAX);
        let whole = header.encode_announced(&LpFraming::BARE, announcement, packet);
        if whole.len() <= mtu {
            push(Frame::bare(Packet::from(whole)));
            return Some(1);
        }
        if !config.fragmentation {
            return None;
        }
        // The headers are measured with the largest numbers, so every real header fits.
        let mut framing = LpFraming {
            sequence: Some(u64::MAX),
            frag_index: FRAGMENT_COUNT_MAX - 1,
            frag_count: FRAGMENT_COUNT_MAX,
            ..LpFraming::BARE
        };
        let some = &packet[..packet.len().min(mtu)];
        // As in `encode_fragments`.
        let LpHeader { pit_token, congestion_mark, .. } = *header;
        let rest = LpHeader { pit_token, congestion_mark, ..LpHeader::default() };
        let room =
            |wire_len: usize| mtu.checked_sub(wire_len - some.len()).filter(|&room| room > 0);
        let first = room(header.encode_announced(&framing, announcement, some).len());
        let next = room(rest.encode(&framing, &[], Some(some)).len());
        let (Some(first), Some(next)) = (first.map(|room| room.min(packet.len())), next) else {
            return None;
        };
        framing.frag_count = 1 + (packet.len() - first).div_ceil(next) as u64;
        if framing.frag_count > FRAGMENT_COUNT_MAX {
            return None;
        }
        let (head, tail) = packet.split_at(first);
        for (index, octets) in core::iter::once(head).chain(tail.chunks(next)).enumerate() {
            framing.sequence = Some(self.sequence_next);
            framing.frag_index = index as u64;
            self.sequence_next = self.sequence_next.wrapping_add(1);
            let wire = match index {
                0 => header.encode_announced(&framing, announcement, octets),
                _ => rest.encode(&framing, &[], Some(octets)),
            };
            push(Frame::bare(Packet::from(wire)));
        }
        Some(framing.frag_count)
    }

    pub(in crate::codec) fn encode_signal(
        config: &CodecConfig,
        signal: HopSignal,
    ) -> Result<Frame, LinkDrop> {
        let octets = signal.encode();
        if octets.len() > config.mtu {
            return Err(LinkDrop::TooLargeForMtu);
        }
        Ok(Frame::bare(Packet::from(octets)))
    }

    /// Encodes the fragments of a packet. Network-layer fields go into fragment 0, as in NFD. The
    /// others repeat its PIT token and congestion mark. ndnd (31822ab,
    /// fw/face/ndnlp-link-service.go) reads both from the fragment that arrives last, and sends
    /// them in each as well. Without a token it looks for pending Interests of the Data's exact
    /// name, so it drops Data for CanBePrefix. With reliability, a packet that fits into one frame
    /// is one fragment of one, so each packet has a Sequence and room for a TxSequence. Outside of
    /// [`Self::encode`], which stays small for the usual packet.
    #[inline(never)]
    fn encode_fragments(
        &mut self,
        context: CodecContext<'_>,
        mut reliability: Option<&mut Reliability>,
        header: &LpHeader,
        packet: &Packet,
        mut push: impl FnMut(Frame),
    ) -> Result<u64, LinkDrop> {
        let CodecContext { now, config, counters } = context;
        let LpHeader { pit_token, congestion_mark, .. } = *header;
        let rest = LpHeader { pit_token, congestion_mark, ..LpHeader::default() };
        let is_reliable = reliability.is_some();
        let (count, first_len, next_len) =
            fragment_sizes(config, is_reliable, [header, &rest], packet.len())?;
        let (mut start, mut end) = (0, first_len);
        for index in 0..count {
            let fields = if index == 0 { header } else { &rest };
            let framing = LpFraming {
                sequence: Some(self.sequence_next),
                frag_index: index,
                frag_count: count,
                ..LpFraming::BARE
            };
            // Reassembly needs consecutive Sequences for the fragments of a packet.
            self.sequence_next = self.sequence_next.wrapping_add(1);
            let octets = packet.slice(start..end);
            push(match &mut reliability {
                None => frame_of(fields, &framing, octets),
                Some(reliability) => {
                    let fragment = OutFragment { header: fields.clone(), framing, octets };
                    reliability.first_frame(now, config, fragment, counters)
                }
            });
            (start, end) = (end, (end + next_len).min(packet.len()));
        }
        Ok(count)
    }
}

/// Computes how a packet of `len` bytes is fragmented. Returns the number of fragments, the
/// size of the first, and the size of the others. The last may be shorter.
fn fragment_sizes(
    config: &CodecConfig,
    is_reliable: bool,
    [first, rest]: [&LpHeader; 2],
    len: usize,
) -> Result<(u64, usize, usize), LinkDrop> {
    let mtu = config.mtu;
    let mut scratch = [0; LP_PREFIX_MAX];
    // The usual packet fits with any header, so its header need not be measured.
    if is_reliable && len + LP_PREFIX_MAX <= mtu {
        return Ok((1, len, len));
    }
    // Headers are measured with the largest numbers, so every real header fits.
    let mut framing = LpFraming { sequence: Some(u64::MAX), ..LpFraming::BARE };
    if is_reliable {
        framing.tx_sequence = Some(u64::MAX);
        if first.encode_prefix(&framing, len, &mut scratch) + len <= mtu {
            return Ok((1, len, len));
        }
    }
    // All fragments but the last have exactly the same length, so that the system can cut them
    // out of one message. Count and index take one byte each, unless there are more than 255
    // fragments.
    let mut cuts = |count_max| {
        framing.frag_count = count_max;
        let mut room = |header: &LpHeader, index| {
            framing.frag_index = index;
            mtu.checked_sub(header.encode_prefix(&framing, mtu, &mut scratch))
        };
        let first_len = room(first, 0).filter(|&room| room > 0)?.min(len);
        let next_len = room(rest, count_max - 1).filter(|&room| room > 0)?;
        let count = 1 + (len - first_len).div_ceil(next_len) as u64;
        (count <= count_max).then_some((count, first_len, next_len))
    };
    cuts(SMALL_COUNT_MAX).or_else(|| cuts(FRAGMENT_COUNT_MAX)).ok_or(LinkDrop::TooLargeForMtu)
}

fn frame_of(header: &LpHeader, framing: &LpFraming, octets: Packet) -> Frame {
    let mut prefix = [0; LP_PREFIX_MAX];
    let prefix_len = header.encode_prefix(framing, octets.len(), &mut prefix);
    Frame::new(&prefix[..prefix_len], octets)
}

/// The packet in one frame; `None` if it would exceed the MTU.
fn single_frame(header: &LpHeader, packet: &Packet, mtu: usize) -> Option<Frame> {
    if header.is_plain() {
        return (packet.len() <= mtu).then(|| Frame::bare(packet.clone()));
    }
    let mut prefix = [0; LP_PREFIX_MAX];
    let prefix_len = header.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
    (prefix_len + packet.len() <= mtu).then(|| Frame::new(&prefix[..prefix_len], packet.clone()))
}
