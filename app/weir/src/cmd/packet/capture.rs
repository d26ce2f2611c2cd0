//! Extracts NDN packets from captures: UDP datagrams, TCP streams and Ethernet frames.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use weir_hicn::control::ControlView;
use weir_wire::{peek_frame, tlv};

use super::FrameOrigin;

/// UDP and TCP ports of NDN: unicast and the multicast group.
const PORTS: [u16; 2] = [6363, 56363];
/// UDP port of hICN.
const HICN_PORT: u16 = 9695;
/// Ports of hICN packets in plain IPv6.
const HICN_TCP_PORTS: (u16, u16) = (0x8000, 0x0080);

const ETHERTYPE_NDN: u16 = 0x8624;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88A8];

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

const IPV6_HEADER_SIZE: usize = 40;

/// Maximum number of TCP streams with buffered data. Beyond it, all buffers are dropped.
const STREAMS_MAX: usize = 65_536;

/// Capture file formats.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Pcap,
    PcapNg,
}

/// Detects the format from the first bytes of a file.
pub(super) fn format_of(start: &[u8]) -> Option<Format> {
    match start {
        [0xD4, 0xC3, 0xB2, 0xA1, ..]
        | [0xA1, 0xB2, 0xC3, 0xD4, ..]
        | [0x4D, 0x3C, 0xB2, 0xA1, ..]
        | [0xA1, 0xB2, 0x3C, 0x4D, ..] => Some(Format::Pcap),
        [0x0A, 0x0D, 0x0D, 0x0A, ..] => Some(Format::PcapNg),
        _ => None,
    }
}

type Sink<'a> = dyn FnMut(FrameOrigin, &[u8]) -> anyhow::Result<()> + 'a;

/// Passes each NDN packet of a capture to `sink`. Returns the number of skipped NDN frames: the
/// capture truncated them or IP fragmented them.
pub(super) fn read(
    input: impl BufRead,
    format: Format,
    sink: &mut Sink<'_>,
) -> anyhow::Result<u64> {
    let mut walk = CaptureWalk { frame: 0, time_us: 0, ignored: 0, streams: HashMap::new(), sink };
    match format {
        Format::Pcap => read_pcap(input, &mut walk)?,
        Format::PcapNg => read_pcapng(input, &mut walk)?,
    }
    Ok(walk.ignored)
}

fn read_pcap(input: impl Read, walk: &mut CaptureWalk<'_, '_>) -> anyhow::Result<()> {
    let mut reader = PcapReader::new(input).context("cannot read the capture")?;
    let link = reader.header().datalink;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.context("the capture is damaged")?;
        let time_us = u64::try_from(packet.timestamp.as_micros()).unwrap_or(u64::MAX);
        walk.frame(link, time_us, &packet.data)?;
    }
    Ok(())
}

fn read_pcapng(input: impl Read, walk: &mut CaptureWalk<'_, '_>) -> anyhow::Result<()> {
    let mut reader = PcapNgReader::new(input).context("cannot read the capture")?;
    loop {
        let (interface, units, data) = match reader.next_block() {
            None => return Ok(()),
            Some(block) => match block.context("the capture is damaged")? {
                Block::EnhancedPacket(packet) => {
                    (packet.interface_id, packet.timestamp.as_nanos(), packet.data.into_owned())
                }
                // This block has no time, and always belongs to the first interface.
                Block::SimplePacket(packet) => (0, 0, packet.data.into_owned()),
                _ => continue,
            },
        };
        let Some(interface) = reader.interfaces().get(interface as usize) else { continue };
        let resolution = interface.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
            _ => None,
        });
        // The reader returns the raw number as nanoseconds, so convert it by the real resolution.
        let units_per_s = match resolution.unwrap_or(6) {
            power @ 0x80.. => 2_u128.checked_pow(u32::from(power & 0x7F)),
            power => 10_u128.checked_pow(u32::from(power)),
        };
        let time_us = units_per_s.map_or(0, |per_s| units * 1_000_000 / per_s);
        let link = interface.linktype;
        walk.frame(link, u64::try_from(time_us).unwrap_or(u64::MAX), &data)?;
    }
}

struct CaptureWalk<'a, 'b> {
    frame: u64,
    time_us: u64,
    ignored: u64,
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
    sink: &'a mut Sink<'b>,
}

/// One direction of a TCP connection.
struct Stream {
    next_sequence: u32,
    pending: Vec<u8>,
}

impl CaptureWalk<'_, '_> {
    fn frame(&mut self, link: DataLink, time_us: u64, data: &[u8]) -> anyhow::Result<()> {
        self.frame += 1;
        self.time_us = time_us;
        match link {
            DataLink::ETHERNET => self.ethernet(data),
            DataLink::LINUX_SLL => self.after(data, 14, 16),
            DataLink::LINUX_SLL2 => self.after(data, 0, 20),
            // Skip the address family: its byte order is that of the capturing machine.
            DataLink::NULL | DataLink::LOOP => self.ip(data.get(4..).unwrap_or_default()),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => self.ip(data),
            _ => Ok(()),
        }
    }

    fn ethernet(&mut self, data: &[u8]) -> anyhow::Result<()> {
        let mut type_at = 12;
        while be16(data, type_at).is_some_and(|typ| ETHERTYPES_VLAN.contains(&typ)) {
            type_at += 4;
        }
        self.after(data, type_at, type_at + 2)
    }

    /// Parses the payload at `payload_at`, whose ethertype is at `type_at`.
    fn after(&mut self, data: &[u8], type_at: usize, payload_at: usize) -> anyhow::Result<()> {
        let payload = data.get(payload_at..).unwrap_or_default();
        match be16(data, type_at) {
            Some(ETHERTYPE_NDN) => {
                // Short frames are padded, so use the length of the TLV element.
                let element = tlv::Reader::new(payload).next_element().ok().flatten();
                self.emit(element.map_or(payload, |element| element.wire), None)
            }
            Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6) => self.ip(payload),
            _ => Ok(()),
        }
    }

    fn ip(&mut self, data: &[u8]) -> anyhow::Result<()> {
        let Some(datagram) = IpDatagram::parse(data) else { return Ok(()) };
        let IpDatagram { from, to, protocol, payload, is_fragment } = datagram;
        let ports = (be16(payload, 0), be16(payload, 2));
        let (Some(from_port), Some(to_port)) = ports else { return Ok(()) };
        if protocol == PROTOCOL_TCP && (from_port, to_port) == HICN_TCP_PORTS && from.is_ipv6() {
            let stated = be16(data, 4).map_or(0, usize::from);
            if stated > payload.len() {
                self.ignored += 1;
                return Ok(());
            }
            // `payload` excludes the padding of the frame.
            return self.emit(&data[..IPV6_HEADER_SIZE + payload.len()], None);
        }
        if protocol == PROTOCOL_UDP && [from_port, to_port].contains(&HICN_PORT) {
            let ends = (SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
            return self.udp(payload, ends, is_fragment);
        }
        if !PORTS.contains(&from_port) && !PORTS.contains(&to_port) {
            return Ok(());
        }
        let ends = (SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
        match protocol {
            // Only the first fragment has ports, so a fragmented packet counts once.
            PROTOCOL_UDP => return self.udp(payload, ends, is_fragment),
            _ if is_fragment => self.ignored += 1,
            PROTOCOL_TCP => return self.tcp(payload, ends),
            _ => {}
        }
        Ok(())
    }

    fn udp(
        &mut self,
        datagram: &[u8],
        ends: (SocketAddr, SocketAddr),
        is_fragment: bool,
    ) -> anyhow::Result<()> {
        let is_hicn = [ends.0.port(), ends.1.port()].contains(&HICN_PORT);
        let length = be16(datagram, 4).map_or(0, usize::from);
        match datagram.get(8..length).filter(|_| !is_fragment) {
            // Over the same port, hICN programs send commands, and hicn-light empty datagrams.
            Some(packet) if is_hicn && (packet.is_empty() || ControlView::is_control(packet)) => {}
            Some(packets) => {
                for packet in split_datagrams(packets, is_hicn) {
                    self.emit(packet, Some(ends))?;
                }
            }
            None => self.ignored += 1,
        }
        Ok(())
    }

    fn tcp(&mut self, segment: &[u8], ends: (SocketAddr, SocketAddr)) -> anyhow::Result<()> {
        let header = segment.get(4..8).zip(segment.get(12));
        let Some((sequence, offset)) = header else { return Ok(()) };
        let sequence = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
        let payload = segment.get(usize::from(offset >> 4) * 4..).unwrap_or_default();
        if payload.is_empty() {
            return Ok(());
        }
        if self.streams.len() >= STREAMS_MAX {
            self.streams.clear();
        }
        let fresh = || Stream { next_sequence: sequence, pending: Vec::new() };
        let stream = self.streams.entry(ends).or_insert_with(fresh);
        let behind = stream.next_sequence.wrapping_sub(sequence);
        if (1..1 << 31).contains(&behind) {
            // A retransmission: use only the new bytes.
            let new = payload.get(behind as usize..).unwrap_or_default();
            stream.pending.extend_from_slice(new);
            stream.next_sequence = stream.next_sequence.wrapping_add(new.len() as u32);
        } else {
            // Bytes are missing, so the packet that has begun can never be complete.
            if behind != 0 {
                stream.pending.clear();
            }
            stream.pending.extend_from_slice(payload);
            stream.next_sequence = sequence.wrapping_add(payload.len() as u32);
        }
        let mut pending = core::mem::take(&mut stream.pending);
        let mut at = 0;
        loop {
            match peek_frame(&pending[at..]) {
                Ok(Some(size)) if size <= pending.len() - at => {
                    self.emit(&pending[at..at + size], Some(ends))?;
                    at += size;
                }
                Ok(_) => {
                    pending.drain(..at);
                    break;
                }
                // Probably in the middle of a packet. The next TCP segment may start a new one.
                Err(_) => {
                    self.ignored += 1;
                    pending.clear();
                    break;
                }
            }
        }
        if let Some(stream) = self.streams.get_mut(&ends) {
            stream.pending = pending;
        }
        Ok(())
    }

    fn emit(
        &mut self,
        packet: &[u8],
        ends: Option<(SocketAddr, SocketAddr)>,
    ) -> anyhow::Result<()> {
        let (from, to) =
            ends.map(|(from, to)| (from.to_string(), to.to_string())).unwrap_or_default();
        let origin = FrameOrigin { frame: self.frame, time_us: self.time_us, from, to };
        (self.sink)(origin, packet)
    }
}

/// The datagrams in one captured frame. With segmentation offload, the kernel captures several as
/// one, before the device cuts them.
fn split_datagrams(payload: &[u8], is_hicn: bool) -> Vec<&[u8]> {
    let (mut datagrams, mut rest) = (Vec::new(), payload);
    while !rest.is_empty() {
        let size = if is_hicn {
            let length = be16(rest, 4).filter(|_| rest[0] >> 4 == 6);
            length.map(|length| IPV6_HEADER_SIZE + usize::from(length))
        } else {
            peek_frame(rest).ok().flatten()
        };
        let Some((datagram, behind)) = size.and_then(|size| rest.split_at_checked(size)) else {
            return vec![payload];
        };
        datagrams.push(datagram);
        rest = behind;
    }
    // All have the same length, but the last may be shorter.
    let size = datagrams.first().map_or(0, |first| first.len());
    match datagrams.split_last() {
        Some((last, others))
            if last.len() <= size && others.iter().all(|other| other.len() == size) =>
        {
            datagrams
        }
        _ => vec![payload],
    }
}

struct IpDatagram<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    payload: &'a [u8],
    is_fragment: bool,
}

impl<'a> IpDatagram<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        match data.first()? >> 4 {
            4 => Self::parse_v4(data),
            6 => Self::parse_v6(data),
            _ => None,
        }
    }

    fn parse_v4(data: &'a [u8]) -> Option<Self> {
        const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3FFF;
        let header_size = usize::from(data[0] & 0x0F) * 4;
        let total = usize::from(be16(data, 2)?);
        let address = |at: usize| {
            let octets: [u8; 4] = data.get(at..at + 4)?.try_into().ok()?;
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        };
        Some(Self {
            from: address(12)?,
            to: address(16)?,
            protocol: *data.get(9)?,
            // Segmentation offload leaves a length of 0.
            payload: data
                .get(header_size..if total == 0 { data.len() } else { total.min(data.len()) })?,
            is_fragment: be16(data, 6)? & MORE_FRAGMENTS_AND_OFFSET != 0,
        })
    }

    fn parse_v6(data: &'a [u8]) -> Option<Self> {
        const HEADER_SIZE: usize = IPV6_HEADER_SIZE;
        const NEXT_FRAGMENT: u8 = 44;
        const FRAGMENT_HEADER_SIZE: usize = 8;
        let address = |at: usize| {
            let octets: [u8; 16] = data.get(at..at + 16)?.try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)))
        };
        let length = usize::from(be16(data, 4)?);
        let end = if length == 0 { data.len() } else { (HEADER_SIZE + length).min(data.len()) };
        let next = *data.get(6)?;
        let is_fragment = next == NEXT_FRAGMENT;
        let header_size = HEADER_SIZE + if is_fragment { FRAGMENT_HEADER_SIZE } else { 0 };
        Some(Self {
            from: address(8)?,
            to: address(24)?,
            protocol: next,
            payload: data.get(header_size..end)?,
            is_fragment,
        })
    }
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}
