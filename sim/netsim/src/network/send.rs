//! What leaves a node.

use weir_base::{Instant, Packet, Pool};
use weir_link::{Frame, MarkingPolicy};
use weir_netem::Transit;
use weir_wire::{HopSignal, LpHeader};

use super::Network;
use super::end::InFlight;
use super::queue::Due;
use crate::check::recent::Happened;
use crate::check::{Broken, bounds};
use crate::peek::Peek;

impl Network {
    /// A packet leaves by an end of a link.
    #[inline]
    pub(super) fn send(
        &mut self,
        end_index: u32,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), Broken> {
        let now = self.now();
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face.0 as u32);
        let len = packet.len() as u32;
        let is_nack = header.nack.is_some();
        let what = match packet.first() {
            Some(&5) if is_nack => Happened::SentNack,
            Some(&5) => Happened::SentInterest,
            _ => Happened::SentData,
        };
        if what != Happened::SentInterest {
            let is_expected = Peek::of(&packet).is_some_and(|peek| match is_nack {
                true => end.answers.on_nack(now.as_ns(), &packet, &peek),
                false => end.answers.on_data(now.as_ns(), &packet, &peek),
            });
            if !is_expected {
                self.note(node, face, what, len);
                return Err(unasked(
                    node,
                    is_nack,
                    &packet,
                    &self.names,
                    self.ends[(end_index ^ 1) as usize].node,
                ));
            }
        }
        let backlog_bytes = end.model.queue_bytes(now);
        end.link.set_socket_backlog(backlog_bytes);
        let queued_bytes = end.link.queue_bytes();
        let marks_before = end.link.counters().marks_set;
        let is_queued = end.link.enqueue(now, header, packet).is_ok();
        let marking = &end.link.config().egress.marking;
        if end.link.counters().marks_set != marks_before
            && marking.policy == MarkingPolicy::default()
        {
            bounds::mark(backlog_bytes + queued_bytes, marking.threshold_bytes)
                .map_err(|what| Broken::invariant(node, what))?;
        }
        let what = if is_queued { what } else { Happened::DroppedByQueue };
        self.note(node, face, what, len);
        if self.ends[end_index as usize].link.has_runs() {
            self.unflushed.push(end_index);
        } else {
            self.flush(end_index, now);
            self.schedule_link(end_index);
        }
        Ok(())
    }

    /// Sends what has gathered in this step on faces that may join Interests.
    #[cold]
    pub(super) fn flush_gathered(&mut self) {
        let now = self.now();
        let mut ends = std::mem::take(&mut self.unflushed);
        for end_index in ends.drain(..) {
            self.flush(end_index, now);
            self.schedule_link(end_index);
        }
        self.unflushed = ends;
    }

    /// Tells the router at the other end of a link what this one says of itself.
    pub(super) fn send_signal(&mut self, end_index: u32, signal: HopSignal) {
        let now = self.now();
        if self.ends[end_index as usize].link.enqueue_signal(signal).is_ok() {
            self.flush(end_index, now);
        }
    }

    /// Gives the frames of a face to its link.
    #[inline]
    pub(super) fn flush(&mut self, end_index: u32, now: Instant) {
        self.ends[end_index as usize].link.gather_runs(0);
        loop {
            let end = &mut self.ends[end_index as usize];
            let Some(frame) = end.link.take_frame() else { return };
            let bytes = frame.len() as u32;
            let Transit::Arrives(at) = end.model.send(now, bytes) else {
                let (node, face) = (end.node, end.face.0 as u32);
                self.note(node, face, Happened::DroppedByLink, bytes);
                continue;
            };
            let mut frame = joined(frame, &mut self.pool);
            if end.wrong_bytes > 0.0 {
                frame = self.damage(end_index, frame);
            }
            let end = &mut self.ends[end_index as usize];
            let moment = self.queue.moment(at.as_ns(), Due::Arrival(end_index));
            let cuts = end.model.cuts();
            if end.launch(InFlight { moment, cuts, frame }) {
                self.queue.push(moment);
            }
        }
    }

    /// Flips an octet of a frame, if its turn has come.
    #[cold]
    fn damage(&mut self, end_index: u32, frame: Packet) -> Packet {
        let end = &self.ends[end_index as usize];
        let draw = self.damage_rng.unit();
        if draw >= end.wrong_bytes || frame.is_empty() {
            return frame;
        }
        let (node, face) = (end.node, end.face.0 as u32);
        let mut octets = frame.to_vec();
        let at = self.damage_rng.below(octets.len() as u32) as usize;
        // Never 0, so that something changes.
        octets[at] ^= 1 + self.damage_rng.below(255) as u8;
        self.summary.damaged_frames += 1;
        self.note(node, face, Happened::Damaged, at as u32);
        Packet::from(octets)
    }
}

/// The octets of a frame. A bare packet is passed on as it is, without a copy.
#[inline]
fn joined(frame: Frame, pool: &mut Pool) -> Packet {
    let frame = match frame.into_bare() {
        Ok(packet) => return packet,
        Err(frame) => frame,
    };
    let prefix = frame.prefix();
    let len = frame.len();
    let mut block = pool.alloc(len);
    block[..prefix.len()].copy_from_slice(prefix);
    block[prefix.len()..len].copy_from_slice(frame.payload());
    block.freeze(len)
}

#[cold]
fn unasked(node: u32, is_nack: bool, packet: &[u8], names: &[String], peer: u32) -> Broken {
    let name = Peek::of(packet)
        .and_then(|peek| weir_wire::NameView::from_value(&packet[peek.name]).ok())
        .map_or_else(|| "?".into(), |name| name.to_string());
    let what = if is_nack { "a Nack" } else { "a Data" };
    let peer = &names[peer as usize];
    Broken::invariant(
        node,
        format!(
            "{what} of `{name}` leaves towards `{peer}`, for which no Interest from there is open"
        ),
    )
}
