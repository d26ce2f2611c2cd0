use weir_base::Packet;
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::{HopSignal, LP_PREFIX_MAX, LpFraming, LpHeader};

use super::config::{CodecConfig, FRAGMENT_COUNT_MAX};
use crate::counters::LinkDrop;
use crate::frame::Frame;

/// From packets to frames.
#[derive(Debug)]
pub(crate) struct Encoder {
    sequence_next: u64,
}

impl Encoder {
    pub(crate) fn new(config: &CodecConfig) -> Self {
        Self { sequence_next: config.sequence_start }
    }

    /// Gives the frames of one packet to `push`, and how many there are: several where it must be
    /// cut. Of `header` it sets the fragment fields itself, and leaves local fields out where the
    /// face has none.
    pub(crate) fn encode(
        &mut self,
        config: &CodecConfig,
        mut header: LpHeader,
        packet: &Packet,
        mut push: impl FnMut(Frame),
    ) -> Result<u64, LinkDrop> {
        if !config.local_fields {
            header.incoming_face = None;
            header.next_hop_face = None;
        }
        // NFD closes a stream on a frame beyond the largest packet, though it sends such frames.
        if let Some(frame) = single_frame(&header, packet, config.mtu.min(PACKET_SIZE_MAX)) {
            push(frame);
            return Ok(1);
        }
        if config.fragmentation {
            return self.encode_fragments(config.mtu, &header, packet, push);
        }
        // What is only advice must never cost a packet that fits without it.
        header.congestion_mark = 0;
        header.incoming_face = None;
        let frame = single_frame(&header, packet, config.mtu);
        push(frame.ok_or(LinkDrop::TooLargeForMtu)?);
        Ok(1)
    }

    /// The frame of a signal.
    pub(crate) fn encode_signal(
        config: &CodecConfig,
        signal: HopSignal,
    ) -> Result<Frame, LinkDrop> {
        let octets = signal.encode();
        if octets.len() > config.mtu {
            return Err(LinkDrop::TooLargeForMtu);
        }
        Ok(Frame::bare(Packet::from(octets)))
    }

    /// Network-layer fields go into fragment 0 alone, as in NFD.
    fn encode_fragments(
        &mut self,
        mtu: usize,
        header: &LpHeader,
        packet: &Packet,
        mut push: impl FnMut(Frame),
    ) -> Result<u64, LinkDrop> {
        let mut scratch = [0; LP_PREFIX_MAX];
        let rest = LpHeader::default();
        let longest = LpFraming {
            sequence: Some(u64::MAX),
            frag_index: FRAGMENT_COUNT_MAX - 1,
            frag_count: FRAGMENT_COUNT_MAX,
            ..LpFraming::BARE
        };
        let first_prefix = header.encode_prefix(&longest, mtu, &mut scratch);
        let next_prefix = rest.encode_prefix(&longest, mtu, &mut scratch);
        if first_prefix >= mtu || next_prefix >= mtu {
            return Err(LinkDrop::TooLargeForMtu);
        }
        let (first_len, next_len) = ((mtu - first_prefix).min(packet.len()), mtu - next_prefix);
        let count = 1 + (packet.len() - first_len).div_ceil(next_len) as u64;
        if count > FRAGMENT_COUNT_MAX {
            return Err(LinkDrop::TooLargeForMtu);
        }
        let (mut start, mut end) = (0, first_len);
        for index in 0..count {
            let fields = if index == 0 { header } else { &rest };
            let framing = LpFraming {
                sequence: Some(self.sequence_next),
                frag_index: index,
                frag_count: count,
                ..LpFraming::BARE
            };
            self.sequence_next = self.sequence_next.wrapping_add(1);
            let prefix_len = fields.encode_prefix(&framing, end - start, &mut scratch);
            push(Frame::new(&scratch[..prefix_len], packet.slice(start..end)));
            (start, end) = (end, (end + next_len).min(packet.len()));
        }
        Ok(count)
    }
}

/// The packet in one frame, unless that exceeds the MTU.
fn single_frame(header: &LpHeader, packet: &Packet, mtu: usize) -> Option<Frame> {
    if header.is_plain() {
        return (packet.len() <= mtu).then(|| Frame::bare(packet.clone()));
    }
    let mut prefix = [0; LP_PREFIX_MAX];
    let prefix_len = header.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
    (prefix_len + packet.len() <= mtu).then(|| Frame::new(&prefix[..prefix_len], packet.clone()))
}
