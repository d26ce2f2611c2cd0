use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::{LpHeader, LpView};
use weir_wire::{DecodeError, tlv};

use crate::counters::LinkDrop;
use crate::link::{Link, Received};
use crate::reassembly::{Extras, Fragment};

impl Link {
    /// Takes one frame: a whole TLV of a stream, or a datagram. `pool` gives the block into which
    /// fragments are put together; a packet in one piece is a slice of `frame`.
    pub fn receive(&mut self, now: Instant, frame: Packet, pool: &mut Pool) -> Received {
        self.counters.in_frames += 1;
        self.counters.in_bytes += frame.len() as u64;
        self.last_received = Some(now);
        match self.accept(now, frame, pool) {
            Ok(received) => received,
            Err(reason) => {
                self.counters.drops.count(reason);
                Received::Drop(reason)
            }
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        frame: Packet,
        pool: &mut Pool,
    ) -> Result<Received, LinkDrop> {
        if is_network_packet(&frame) {
            return self.deliver(LpHeader::default(), Extras::default(), frame);
        }
        let view = LpView::decode(&frame).map_err(drop_of)?;
        let Some(octets) = view.fragment else {
            return Ok(view.signal.map_or(Received::Idle, Received::Signal));
        };
        let extras = Extras {
            has_policy: view.cache_policy.is_some(),
            has_announcement: view.prefix_announcement.is_some(),
        };
        if view.header.frag_count == 1 && view.header.frag_index == 0 {
            let (at, len) = (view.fragment_at, octets.len());
            let header = view.header;
            let packet = frame.slice(at..at + len);
            return self.deliver(header, extras, packet);
        }
        if !self.config.reassembly {
            return Err(LinkDrop::ReassemblyOff);
        }
        let fragment = Fragment { header: view.header, extras, octets };
        let drops = &mut self.counters.drops;
        match self.reassembly.accept(now, &fragment, &self.config, pool, drops)? {
            None => Ok(Received::Partial),
            Some(whole) => {
                self.counters.reassembled += 1;
                self.deliver(whole.header, whole.extras, whole.packet)
            }
        }
    }

    /// NFD's rules on which header may come with which packet.
    fn deliver(
        &mut self,
        mut header: LpHeader,
        extras: Extras,
        packet: Packet,
    ) -> Result<Received, LinkDrop> {
        let is_interest = match packet.first().map(|&first| u32::from(first)) {
            Some(tlv::INTEREST) => true,
            Some(tlv::DATA) => false,
            _ => return Err(LinkDrop::NotNetworkPacket),
        };
        let Extras { has_policy, has_announcement } = extras;
        let has_next_hop = header.next_hop_face.is_some();
        match (is_interest, header.nack.is_some()) {
            (true, false) => {
                if has_policy || has_announcement {
                    return Err(LinkDrop::InterestHeader);
                }
                if has_next_hop && !self.config.local_fields {
                    return Err(LinkDrop::LocalFieldsOff);
                }
                self.counters.in_interests += 1;
            }
            (true, true) => {
                if has_next_hop || has_policy || header.non_discovery || has_announcement {
                    return Err(LinkDrop::NackHeader);
                }
                self.counters.in_nacks += 1;
            }
            (false, has_nack) => {
                if has_nack || has_next_hop || header.non_discovery {
                    return Err(LinkDrop::DataHeader);
                }
                self.counters.in_data += 1;
            }
        }
        header.sequence = None;
        header.frag_index = 0;
        header.frag_count = 1;
        header.tx_sequence = None;
        header.incoming_face = None;
        Ok(Received::Packet { header, packet })
    }
}

/// Reasons that concern the link as a whole keep names of their own.
fn drop_of(error: DecodeError) -> LinkDrop {
    match error {
        DecodeError::FragmentIndex => LinkDrop::FragmentIndex,
        DecodeError::FragmentWithoutSequence => LinkDrop::FragmentUnnumbered,
        DecodeError::FragmentContent => LinkDrop::NotNetworkPacket,
        DecodeError::NackOfOther => LinkDrop::DataHeader,
        _ => LinkDrop::Malformed,
    }
}

fn is_network_packet(frame: &[u8]) -> bool {
    frame.first().is_some_and(|&first| matches!(u32::from(first), tlv::INTEREST | tlv::DATA))
}
