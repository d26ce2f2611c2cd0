use weir_base::{Instant, Packet};
use weir_wire::lp::{HopSignal, LP_PREFIX_MAX, LpHeader};
use weir_wire::{PACKET_SIZE_MAX, tlv};

use crate::config::FRAGMENT_COUNT_MAX;
use crate::counters::LinkDrop;
use crate::egress::{Egress, Frame};
use crate::link::Link;

impl Link {
    /// Queues one packet (an Interest or Data TLV) for sending, in fragments where it must be cut.
    /// Of `header`, the link sets the fragment fields itself, leaves local fields out where the
    /// face has none, and adds the congestion mark when the queue has been long for long enough.
    ///
    /// # Errors
    /// [`LinkDrop::QueueFull`], [`LinkDrop::TooLargeForMtu`] or [`LinkDrop::NotNetworkPacket`];
    /// counted already.
    pub fn enqueue(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), LinkDrop> {
        let is_nack = header.nack.is_some();
        let result = match packet.first().map(|&first| u32::from(first)) {
            Some(tlv::INTEREST | tlv::DATA) => self.try_enqueue(now, header, &packet),
            _ => Err(LinkDrop::NotNetworkPacket),
        };
        match result {
            Err(reason) => self.counters.drops.count(reason),
            Ok(()) if u32::from(packet[0]) == tlv::DATA => self.counters.out_data += 1,
            Ok(()) if is_nack => self.counters.out_nacks += 1,
            Ok(()) => self.counters.out_interests += 1,
        }
        result
    }

    /// Queues a signal for the router at the other end.
    ///
    /// # Errors
    /// [`LinkDrop::QueueFull`] or [`LinkDrop::TooLargeForMtu`]; counted already.
    pub fn enqueue_signal(&mut self, signal: HopSignal) -> Result<(), LinkDrop> {
        let octets = signal.encode();
        let charge = self.egress.charged_bytes() + Egress::charge_of(octets.len());
        let refusal = match () {
            () if charge > self.config.queue_bytes_max => Some(LinkDrop::QueueFull),
            () if octets.len() > self.config.mtu => Some(LinkDrop::TooLargeForMtu),
            () => None,
        };
        if let Some(reason) = refusal {
            self.counters.drops.count(reason);
            return Err(reason);
        }
        self.egress.push(Frame::bare(Packet::from(octets)));
        Ok(())
    }

    fn try_enqueue(
        &mut self,
        now: Instant,
        mut header: LpHeader,
        packet: &Packet,
    ) -> Result<(), LinkDrop> {
        let charge = self.egress.charged_bytes() + Egress::charge_of(packet.len());
        if charge > self.config.queue_bytes_max {
            return Err(LinkDrop::QueueFull);
        }
        header.sequence = None;
        header.frag_index = 0;
        header.frag_count = 1;
        header.tx_sequence = None;
        if !self.config.local_fields {
            header.incoming_face = None;
            header.next_hop_face = None;
        }
        if self.is_mark_due(now) && header.congestion_mark == 0 {
            header.congestion_mark = 1;
            self.counters.marks_set += 1;
        }
        // NFD closes a stream on a frame beyond the largest packet, though it sends such frames.
        if let Some(frame) = single_frame(&header, packet, self.config.mtu.min(PACKET_SIZE_MAX)) {
            self.egress.push(frame);
            return Ok(());
        }
        if self.config.fragmentation {
            return self.enqueue_fragments(header, packet);
        }
        // What is only advice must never cost a packet that fits without it.
        header.congestion_mark = 0;
        header.incoming_face = None;
        let frame = single_frame(&header, packet, self.config.mtu);
        self.egress.push(frame.ok_or(LinkDrop::TooLargeForMtu)?);
        Ok(())
    }

    fn is_mark_due(&mut self, now: Instant) -> bool {
        self.config.congestion_marking
            && self.marking.on_packet(
                now,
                self.egress.wire_bytes() + self.socket_backlog_bytes,
                self.config.mark_threshold_bytes,
                self.config.mark_interval_ns,
            )
    }

    /// Network-layer fields go into fragment 0 alone, as in NFD.
    fn enqueue_fragments(&mut self, header: LpHeader, packet: &Packet) -> Result<(), LinkDrop> {
        let mtu = self.config.mtu;
        let mut scratch = [0; LP_PREFIX_MAX];
        let longest = |header: LpHeader| LpHeader {
            sequence: Some(u64::MAX),
            frag_index: FRAGMENT_COUNT_MAX - 1,
            frag_count: FRAGMENT_COUNT_MAX,
            ..header
        };
        let first_prefix = longest(header.clone()).encode_prefix(mtu, &mut scratch);
        let next_prefix = longest(LpHeader::default()).encode_prefix(mtu, &mut scratch);
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
            let fields = if index == 0 { header.clone() } else { LpHeader::default() };
            let fields = LpHeader {
                sequence: Some(self.sequence_next),
                frag_index: index,
                frag_count: count,
                ..fields
            };
            self.sequence_next = self.sequence_next.wrapping_add(1);
            let prefix_len = fields.encode_prefix(end - start, &mut scratch);
            self.egress.push(Frame::new(&scratch[..prefix_len], packet.slice(start..end)));
            (start, end) = (end, (end + next_len).min(packet.len()));
        }
        self.counters.fragmented += 1;
        Ok(())
    }
}

/// The packet in one frame, unless that exceeds the MTU.
fn single_frame(header: &LpHeader, packet: &Packet, mtu: usize) -> Option<Frame> {
    if header.is_plain() {
        return (packet.len() <= mtu).then(|| Frame::bare(packet.clone()));
    }
    let mut prefix = [0; LP_PREFIX_MAX];
    let prefix_len = header.encode_prefix(packet.len(), &mut prefix);
    (prefix_len + packet.len() <= mtu).then(|| Frame::new(&prefix[..prefix_len], packet.clone()))
}
