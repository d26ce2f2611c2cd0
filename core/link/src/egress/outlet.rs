use alloc::boxed::Box;

use weir_base::{Instant, Packet};
use weir_wire::CongestionMark;
use weir_wire::lp::LpHeader;

use super::marking::{AnyMarker, MarkingConfig, QueueArrival};
use super::ready::ReadyQueue;
use crate::codec::{CodecConfig, CodecContext, Encoder};
use crate::counters::{LinkCounters, LinkDrop};

/// The kind of a packet on a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PacketKind {
    Interest,
    Data,
    /// An Interest that is returned with a reason.
    Nack,
}

/// A packet to be sent.
#[derive(Debug)]
pub struct Outgoing {
    pub kind: PacketKind,
    pub header: LpHeader,
    pub packet: Packet,
    /// A prefix announcement that goes with Data, which is rare.
    pub announcement: Option<Box<Packet>>,
}

/// A packet up to this size is copied while it is held.
const DETACH_BYTES_MAX: usize = 512;

impl Outgoing {
    /// Copies an Interest of usual size out of its receive block. Otherwise it would keep the whole
    /// block in use while it waits.
    #[must_use]
    pub fn detached(mut self) -> Self {
        if self.packet.len() <= DETACH_BYTES_MAX {
            self.packet = Packet::from(&self.packet[..]);
        }
        self
    }
}

/// Receives the packets of a discipline that may leave. It marks them if their queue is long, and
/// encodes them into frames for the socket.
pub struct Outlet<'a> {
    pub(crate) now: Instant,
    pub(crate) codec: &'a CodecConfig,
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) ready: &'a mut ReadyQueue,
    pub counters: &'a mut LinkCounters,
    pub(crate) marking: &'a MarkingConfig,
    pub(crate) marker: &'a mut AnyMarker,
    /// Bytes on the wire that the discipline holds, if they count for marks.
    pub(crate) held_bytes: u64,
    /// Bytes in the socket, as last set by the driver.
    pub(crate) socket_backlog_bytes: u64,
}

impl Outlet<'_> {
    /// Bytes on the wire that the socket has not sent yet: held packets, ready frames, and its
    /// backlog.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.held_bytes + self.ready.load().wire_bytes + self.socket_backlog_bytes
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// If it is too large for a frame. The drop is not counted here.
    #[inline]
    pub fn send(&mut self, mut outgoing: Outgoing) -> Result<(), LinkDrop> {
        self.mark(&mut outgoing);
        let Self { now, codec, encoder, ready, counters, marking, marker, .. } = self;
        let Outgoing { header, packet, announcement, .. } = outgoing;
        let before_bytes = ready.load().wire_bytes;
        let mut push = |frame| ready.push(frame);
        let announced = announcement.and_then(|announcement| {
            encoder.encode_announced(codec, header.clone(), (&packet, &announcement), &mut push)
        });
        let fragments = match announced {
            Some(fragments) => fragments,
            None => {
                let context = CodecContext { now: *now, config: codec, counters };
                encoder.encode(context, header, &packet, push)?
            }
        };
        if marking.is_on {
            marker.joined(*now, ready.load().wire_bytes - before_bytes);
        }
        counters.fragmented += u64::from(fragments > 1);
        Ok(())
    }

    #[inline]
    fn mark(&mut self, outgoing: &mut Outgoing) {
        let &MarkingConfig { is_on, threshold_bytes, interval_ns, .. } = self.marking;
        if !is_on {
            return;
        }
        let queue_bytes = self.waiting_bytes();
        let mark = self.marker.mark(&QueueArrival {
            now: self.now,
            is_data: outgoing.kind == PacketKind::Data,
            queue_bytes,
            threshold_bytes,
            interval_ns,
        });
        let Some(mark) = mark else { return };
        let before = CongestionMark::from_value(outgoing.header.congestion_mark);
        let marked = before.with(mark);
        if marked != before {
            outgoing.header.congestion_mark = marked.value();
            self.counters.marks_set += 1;
        }
    }
}
