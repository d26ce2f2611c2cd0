use alloc::boxed::Box;

use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::{LpHeader, LpView};
use weir_wire::{DecodeError, RunFields, tlv};

use super::reassembly::{Fragment, HeaderExtras, Reassembly};
use super::reliability::Reliability;
use crate::codec::config::CodecConfig;
use crate::codec::context::CodecContext;
use crate::codec::received::{AnnouncedData, Received};
use crate::counters::{DropCounters, LinkCounters, LinkDrop};
use crate::runs::{Expansion, RunsConfig};

/// Decodes frames into packets.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    reassembly: Reassembly,
    /// The latest run. It is kept after its last Interest, to reuse the memory.
    run: Option<Box<Expansion>>,
}

impl Decoder {
    /// Decodes one frame. `reliability` is that of the link, if it is on.
    #[inline(always)]
    pub(crate) fn decode(
        &mut self,
        context: CodecContext<'_>,
        frame: Packet,
        pool: &mut Pool,
        reliability: Option<&mut Reliability>,
    ) -> Result<Received, LinkDrop> {
        let CodecContext { now, config, counters } = context;
        if is_network_packet(&frame) {
            return deliver(LpHeader::default(), HeaderExtras::default(), frame, config, counters);
        }
        let view = LpView::decode(&frame).map_err(drop_of)?;
        // Handles the Acks of the frame, and drops a duplicate.
        if let Some(reliability) = reliability {
            reliability.on_frame(now, &view, counters)?;
        }
        let Some(octets) = view.fragment else {
            let signal = view.signal.map(Received::Signal);
            let offered = view.run_offer.filter(|_| config.runs != RunsConfig::Off);
            return Ok(signal.or(offered.map(Received::Offer)).unwrap_or(Received::Idle));
        };
        let extras = HeaderExtras {
            has_policy: view.cache_policy.is_some(),
            has_announcement: view.prefix_announcement.is_some(),
        };
        if view.framing.frag_count == 1 && view.framing.frag_index == 0 {
            // A whole packet. It stays in the receive block, as a slice of the frame.
            let (at, len) = (view.fragment_at, octets.len());
            let header = view.header;
            let packet = frame.slice(at..at + len);
            if let Some(announcement) = view.prefix_announcement
                && view.run.is_none()
            {
                let announcement = Packet::from(announcement);
                return deliver_announced(header, extras, (packet, announcement), config, counters);
            }
            if let Some(fields) = &view.run {
                return self.expand(fields, &frame, (header, extras, packet), config, counters);
            }
            return deliver(header, extras, packet, config, counters);
        }
        // A run must fit into one frame.
        if view.run.is_some() {
            return Err(LinkDrop::RunMalformed);
        }
        // A fragment of a packet.
        if !config.reassembly {
            return Err(LinkDrop::ReassemblyOff);
        }
        let LpView { framing, header, prefix_announcement: announcement, .. } = view;
        let fragment = Fragment { framing, header, extras, announcement, octets };
        match self.reassembly.accept(now, &fragment, config, pool, &mut counters.drops)? {
            None => Ok(Received::Partial),
            Some(whole) => {
                counters.reassembled += 1;
                let (header, extras, packet) = (whole.header, whole.extras, whole.packet);
                match whole.announcement {
                    None => deliver(header, extras, packet, config, counters),
                    Some(announcement) => {
                        deliver_announced(header, extras, (packet, announcement), config, counters)
                    }
                }
            }
        }
    }

    /// Decodes a frame that carries several Interests.
    fn expand(
        &mut self,
        fields: &RunFields<'_>,
        frame: &Packet,
        (header, extras, first): (LpHeader, HeaderExtras, Packet),
        config: &CodecConfig,
        counters: &mut LinkCounters,
    ) -> Result<Received, LinkDrop> {
        if config.runs == RunsConfig::Off {
            return Err(LinkDrop::RunsOff);
        }
        let is_nack = header.nack.is_some();
        let run = Expansion::new(fields, frame, header, first).filter(|_| !is_nack);
        let mut run = run.ok_or(LinkDrop::RunMalformed)?;
        // The header rules are the same for all Interests of a run. This call counts the first one.
        let delivered = deliver(run.header.clone(), extras, run.first.clone(), config, counters)?;
        if let Received::Packet { header, .. } = delivered {
            run.header = header;
        }
        let interests = u64::from(fields.bitmap.count_ones());
        counters.in_interests += interests - 1;
        counters.in_run_interests += interests;
        counters.in_runs += 1;
        match &mut self.run {
            Some(kept) => **kept = run,
            None => self.run = Some(Box::new(run)),
        }
        Ok(Received::Run)
    }

    /// The next Interest of the latest run.
    #[inline]
    pub(crate) fn next_in_run(&mut self, pool: &mut Pool) -> Option<(LpHeader, Packet)> {
        self.run.as_mut()?.next(pool)
    }

    /// The packets in reassembly: deadline, identifier, and memory in bytes.
    pub(crate) fn partials(&self) -> impl Iterator<Item = (Instant, u64, usize)> {
        self.reassembly.partials()
    }

    /// Drops a packet in reassembly. Returns whether there was one with this identifier.
    pub(crate) fn discard(&mut self, id: u64) -> bool {
        self.reassembly.discard_id(id)
    }

    pub(crate) fn shrink(&mut self) {
        self.reassembly.shrink();
    }

    /// Memory of packets in reassembly, in bytes.
    #[inline]
    pub(crate) fn partial_bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Drops partial packets that have timed out.
    pub(crate) fn poll(&mut self, now: Instant, drops: &mut DropCounters) {
        self.reassembly.expire(now, drops);
    }

    /// When [`Self::poll`] must be called next. The time may be too early, but never too late.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.reassembly.next_wakeup()
    }
}

/// Checks which header fields may come with which packet (NFD's rules), and counts the packet.
#[inline(always)]
fn deliver(
    mut header: LpHeader,
    extras: HeaderExtras,
    packet: Packet,
    config: &CodecConfig,
    counters: &mut LinkCounters,
) -> Result<Received, LinkDrop> {
    let is_interest = match packet.first().map(|&first| u32::from(first)) {
        Some(tlv::INTEREST) => true,
        Some(tlv::DATA) => false,
        _ => return Err(LinkDrop::NotNetworkPacket),
    };
    let HeaderExtras { has_policy, has_announcement } = extras;
    let has_next_hop = header.next_hop_face.is_some();
    match (is_interest, header.nack.is_some()) {
        (true, false) => {
            if has_policy || has_announcement {
                return Err(LinkDrop::InterestHeader);
            }
            // A peer without local fields must not choose the next hop.
            if has_next_hop && !config.local_fields {
                return Err(LinkDrop::LocalFieldsOff);
            }
            counters.in_interests += 1;
        }
        (true, true) => {
            if has_next_hop || has_policy || header.non_discovery || has_announcement {
                return Err(LinkDrop::NackHeader);
            }
            counters.in_nacks += 1;
        }
        (false, has_nack) => {
            if has_nack || has_next_hop || header.non_discovery {
                return Err(LinkDrop::DataHeader);
            }
            counters.in_data += 1;
        }
    }
    if !config.keep_incoming_face {
        header.incoming_face = None;
    }
    Ok(Received::Packet { header, packet })
}

/// [`deliver`] for a packet with a PrefixAnnouncement. Outside of it, so that it costs other
/// packets nothing.
#[cold]
#[inline(never)]
fn deliver_announced(
    header: LpHeader,
    extras: HeaderExtras,
    (packet, announcement): (Packet, Packet),
    config: &CodecConfig,
    counters: &mut LinkCounters,
) -> Result<Received, LinkDrop> {
    let received = deliver(header, extras, packet, config, counters)?;
    Ok(match received {
        Received::Packet { header, packet } if config.announcements => {
            Received::Announced(Box::new(AnnouncedData { header, packet, announcement }))
        }
        received => received,
    })
}

/// The drop reason of a decode error. Rules of the link as a whole have reasons of their own.
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
