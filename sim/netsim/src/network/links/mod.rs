//! The links of a network: the faces at both ends, and the frames between them.

mod end;

use std::sync::Arc;

use weir_base::{FaceId, Packet, Pool, Rng};
use weir_link::{Frame, MarkingPolicy, Received};
use weir_netem::{LinkModel, Transit};
use weir_plan::event::{EventKind, Queue, RouterSample};
use weir_plan::hash::{SeedPurpose, seed_of};
use weir_wire::{HopSignal, LpHeader};

pub(super) use self::end::End;
use self::end::FrameInFlight;
use super::queue::{DueEvent, EventKey, INDEX_MAX};
use super::timeline::Timeline;
use crate::check::recent::TraceKind;
use crate::check::{CheckFailure, bounds};
use crate::peek::Peek;

/// Limit on free packet blocks for copied frames, bytes.
const POOL_BYTES_MAX: usize = 8 << 20;

/// All links. Link `l` has end `2 * l` at node `a` and end `2 * l + 1` at node `b`, so the opposite
/// of `end` is `end ^ 1`.
pub(super) struct Links {
    seed: u64,
    names: Arc<[String]>,
    ends: Vec<End>,
    pool: Pool,
    damage_rng: Rng,
    damaged_frames: u64,
    packet_hops: u64,
    /// The longest Interest lifetime so far, ns. It starts with the longest one in the plan; a
    /// fault that damages an Interest can lengthen it.
    lifetime_max_ns: u64,
    /// Ends with frames to send when this step ends.
    unflushed: Vec<u32>,
}

/// A whole packet that a link delivers to a node.
pub(super) struct Delivery {
    pub(super) end: u32,
    pub(super) node: u32,
    pub(super) face: FaceId,
    /// Whether it is an Interest, a Data or a Nack.
    pub(super) what: TraceKind,
    pub(super) header: LpHeader,
    pub(super) packet: Packet,
}

/// The result of a frame's arrival.
pub(super) enum Arrival {
    /// Nothing for the node: the frame was lost, or it was a fragment.
    Nothing,
    Packet(Delivery),
    /// Several Interests, which [`Links::next_delivery`] returns one at a time.
    Run,
    Signal {
        node: u32,
        face: FaceId,
        signal: HopSignal,
    },
}

/// Where an end holds packets for its node.
#[derive(Clone, Copy)]
pub(super) enum PacketSource {
    /// In the run of Interests that has just arrived.
    Run,
    /// In the shaper of incoming Interests.
    Shaped,
}

impl Links {
    /// Links between the named nodes. `lifetime_max_ns` is the longest Interest lifetime in the
    /// plan.
    pub(super) fn new(
        seed: u64,
        names: Arc<[String]>,
        ends: Vec<End>,
        lifetime_max_ns: u64,
    ) -> Self {
        Self {
            seed,
            names,
            ends,
            pool: Pool::new(POOL_BYTES_MAX),
            damage_rng: Rng::from_seed(seed_of(seed, SeedPurpose::WrongBytes, 0)),
            damaged_frames: 0,
            packet_hops: 0,
            lifetime_max_ns,
            unflushed: Vec::new(),
        }
    }

    pub(super) fn end(&self, end: u32) -> &End {
        &self.ends[end as usize]
    }

    /// The node at the other end.
    pub(super) fn peer(&self, end: u32) -> u32 {
        self.ends[(end ^ 1) as usize].node
    }

    pub(super) fn damaged_frames(&self) -> u64 {
        self.damaged_frames
    }

    /// Number of whole packets delivered.
    pub(super) fn packet_hops(&self) -> u64 {
        self.packet_hops
    }

    pub(super) fn lifetime_max_ns(&self) -> u64 {
        self.lifetime_max_ns
    }

    /// Whether no frame is in flight and no face holds an Interest.
    pub(super) fn are_quiet(&self) -> bool {
        self.ends.iter().all(|end| end.in_flight.is_empty() && !end.link.has_delayed_interests())
    }

    /// Sends a packet from an end.
    ///
    /// # Errors
    /// The packet answers no open Interest, or it was marked without a long queue.
    #[inline]
    pub(super) fn send(
        &mut self,
        end_index: u32,
        header: LpHeader,
        packet: Packet,
        timeline: &mut Timeline,
    ) -> Result<(), CheckFailure> {
        let now = timeline.now();
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face.0 as u32);
        let len = packet.len() as u32;
        let is_nack = header.nack.is_some();
        // TLV type 5 is an Interest; a Nack carries the Interest that it rejects.
        let what = match packet.first() {
            Some(&5) if is_nack => TraceKind::SentNack,
            Some(&5) => TraceKind::SentInterest,
            _ => TraceKind::SentData,
        };
        // Each Data or Nack consumes one open Interest of this end.
        if what != TraceKind::SentInterest && !end.may_answer(now, is_nack, &packet) {
            timeline.note(node, face, what, len);
            let peer = &self.names[self.peer(end_index) as usize];
            return Err(unsolicited_answer(node, is_nack, &packet, peer));
        }
        let backlog_bytes = end.model.queue_bytes(now);
        end.link.set_socket_backlog(backlog_bytes);
        let queued_bytes = end.link.queue_bytes();
        // NFD's policy marks by queue length, so remember the state before the packet joins the
        // queue.
        let marks_before = end.link.counters().marks_set;
        let is_queued = end.link.enqueue(now, header, packet).is_ok();
        let marking = &end.link.config().egress.marking;
        if end.link.counters().marks_set != marks_before && marking.policy == MarkingPolicy::Nfd {
            bounds::mark(backlog_bytes + queued_bytes, marking.threshold_bytes)
                .map_err(|what| CheckFailure::invariant(node, what))?;
        }
        let what = if is_queued { what } else { TraceKind::DroppedByQueue };
        timeline.note(node, face, what, len);
        // A face with run Interests gathers the packets of one step into a frame.
        if end.link.has_runs() {
            self.unflushed.push(end_index);
        } else {
            self.flush_and_poll(end_index, timeline);
        }
        Ok(())
    }

    /// Sends the frames that faces with run Interests gathered in this step.
    #[inline]
    pub(super) fn flush_gathered(&mut self, timeline: &mut Timeline) {
        if self.unflushed.is_empty() {
            return;
        }
        let mut ends = std::mem::take(&mut self.unflushed);
        for end in ends.drain(..) {
            self.flush_and_poll(end, timeline);
        }
        self.unflushed = ends;
    }

    /// Sends a router's signal about itself to the other end.
    pub(super) fn send_signal(&mut self, end: u32, signal: HopSignal, timeline: &mut Timeline) {
        if self.ends[end as usize].link.enqueue_signal(signal).is_ok() {
            self.flush(end, timeline);
        }
    }

    /// Handles the arrival of the first frame from `from_end`.
    pub(super) fn arrive(
        &mut self,
        from_end: u32,
        moment: EventKey,
        timeline: &mut Timeline,
    ) -> Arrival {
        let sender = &mut self.ends[from_end as usize];
        // A first frame that was overtaken has two events: its own, and one scheduled when the
        // faster frame arrived. The second event finds the frame already delivered.
        if sender.in_flight.front().is_none_or(|first| first.moment != moment) {
            return Arrival::Nothing;
        }
        let Some(arrived) = sender.in_flight.pop_front() else { return Arrival::Nothing };
        if let Some(next) = sender.in_flight.front() {
            timeline.push(next.moment);
        }
        let bytes = arrived.frame.len() as u32;
        let survives = sender.model.survives(arrived.cuts, bytes);
        let end_index = from_end ^ 1;
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face);
        let note = |what, timeline: &mut Timeline| timeline.note(node, face.0 as u32, what, bytes);
        if !survives {
            note(TraceKind::LostInCut, timeline);
            return Arrival::Nothing;
        }
        if end.is_node_down {
            end.past_counters.drops += 1;
            note(TraceKind::LostToCrash, timeline);
            return Arrival::Nothing;
        }
        let now = timeline.now();
        end.set_backlog(now);
        let received = end.link.receive(now, arrived.frame, &mut self.pool);
        if end.link.is_reliable() {
            self.flush_and_poll(end_index, timeline);
        }
        match received {
            Received::Packet { header, packet } => {
                return Arrival::Packet(self.accept(end_index, header, packet, timeline));
            }
            Received::Run => return Arrival::Run,
            Received::Delayed | Received::Offer(_) => {
                note(TraceKind::Shaped, timeline);
                self.flush_and_poll(end_index, timeline);
            }
            Received::Partial => {
                self.set_timer(end_index, timeline);
                note(TraceKind::Fragment, timeline);
            }
            Received::Signal(signal) => {
                self.ends[end_index as usize].had_signal = true;
                note(TraceKind::Signal, timeline);
                return Arrival::Signal { node, face, signal };
            }
            // Links of the simulator permit neither control messages nor announcements.
            Received::Idle | Received::Drop(_) | Received::Control(_) | Received::Announced(_) => {
                note(TraceKind::Refused, timeline);
            }
        }
        Arrival::Nothing
    }

    /// Whether this event is the current timer of the face at an end.
    pub(super) fn is_due(&mut self, end: u32, moment: EventKey) -> bool {
        self.ends[end as usize].timer.fires(moment)
    }

    /// Polls the face at an end. [`Links::next_delivery`] then returns the packets that its shaper
    /// releases.
    pub(super) fn poll(&mut self, end: u32, timeline: &Timeline) {
        let now = timeline.now();
        let end = &mut self.ends[end as usize];
        end.link.set_socket_backlog(end.model.queue_bytes(now));
        end.link.poll(now);
    }

    /// The next of several packets at an end. After the last one, the face sends its own frames.
    pub(super) fn next_delivery(
        &mut self,
        end_index: u32,
        waiting: PacketSource,
        timeline: &mut Timeline,
    ) -> Option<Delivery> {
        let now = timeline.now();
        let end = &mut self.ends[end_index as usize];
        let next = match waiting {
            PacketSource::Run => end.link.next_in_run(now, &mut self.pool),
            PacketSource::Shaped => {
                end.set_backlog(now);
                end.link.take_released(now)
            }
        };
        let Some((header, packet)) = next else {
            self.flush_and_poll(end_index, timeline);
            return None;
        };
        Some(self.accept(end_index, header, packet, timeline))
    }

    /// Records a whole packet that has reached an end.
    fn accept(
        &mut self,
        end_index: u32,
        header: LpHeader,
        packet: Packet,
        timeline: &mut Timeline,
    ) -> Delivery {
        self.packet_hops += 1;
        let end = &mut self.ends[end_index as usize];
        let (node, face) = (end.node, end.face);
        let what = match &Peek::of(&packet) {
            Some(peek) if peek.is_interest && header.nack.is_none() => {
                end.has_asked = true;
                let (now_ns, patience_ns) = (timeline.now_ns(), end.patience_ns);
                let lifetime_ns = end.answers.on_interest(now_ns, &packet, peek, patience_ns);
                self.lifetime_max_ns = self.lifetime_max_ns.max(lifetime_ns);
                TraceKind::Interest
            }
            Some(peek) if peek.is_interest => TraceKind::Nack,
            _ => TraceKind::Data,
        };
        timeline.note(node, face.0 as u32, what, packet.len() as u32);
        Delivery { end: end_index, node, face, what, header, packet }
    }

    #[inline]
    fn flush_and_poll(&mut self, end: u32, timeline: &mut Timeline) {
        self.flush(end, timeline);
        self.set_timer(end, timeline);
    }

    /// Sets a face's timer to the time of its next poll.
    #[inline]
    fn set_timer(&mut self, end_index: u32, timeline: &mut Timeline) {
        let end = &mut self.ends[end_index as usize];
        if let Some(at) = end.link.next_wakeup() {
            end.timer.set(at.as_ns(), DueEvent::Link(end_index), timeline);
        }
    }

    /// Moves the frames of a face to its link.
    #[inline]
    fn flush(&mut self, end_index: u32, timeline: &mut Timeline) {
        let now = timeline.now();
        self.ends[end_index as usize].link.gather_runs(0);
        loop {
            let end = &mut self.ends[end_index as usize];
            let Some(frame) = end.link.take_frame() else { return };
            let bytes = frame.len() as u32;
            let Transit::Arrives(at) = end.model.send(now, bytes) else {
                timeline.note(end.node, end.face.0 as u32, TraceKind::DroppedByLink, bytes);
                continue;
            };
            let mut frame = joined(frame, &mut self.pool);
            if end.wrong_bytes > 0.0 {
                frame = self.damage(end_index, frame, timeline);
            }
            let end = &mut self.ends[end_index as usize];
            // Reserve the key now, but schedule only the first frame in flight. Events then keep
            // the order of sending, and the heap stays small.
            let moment = timeline.reserve(at.as_ns(), DueEvent::Arrival(end_index));
            let cuts = end.model.cuts();
            if end.launch(FrameInFlight { moment, cuts, frame }) {
                timeline.push(moment);
            }
        }
    }

    /// Flips one byte of a frame with the probability of the current faults.
    #[cold]
    fn damage(&mut self, end: u32, frame: Packet, timeline: &mut Timeline) -> Packet {
        let end = &self.ends[end as usize];
        let draw = self.damage_rng.unit();
        if draw >= end.wrong_bytes || frame.is_empty() {
            return frame;
        }
        let mut octets = frame.to_vec();
        let at = self.damage_rng.below(octets.len() as u32) as usize;
        // The mask is never 0, so the byte always changes.
        octets[at] ^= 1 + self.damage_rng.below(255) as u8;
        self.damaged_frames += 1;
        timeline.note(end.node, end.face.0 as u32, TraceKind::Damaged, at as u32);
        Packet::from(octets)
    }

    /// Prefetches the memory that the next arrival from an end will touch.
    #[inline]
    pub(super) fn prefetch_arrival(&self, from_end: u32) {
        self.ends[from_end as usize].prefetch_arrival();
        self.ends[(from_end ^ 1) as usize].prefetch_delivery();
    }

    /// Begins a fault that takes the link down, or ends one. The link is up while no such fault is
    /// active. Returns the node at `a`: events name it instead of the link. The next methods do the
    /// same.
    pub(super) fn set_up(&mut self, link: usize, is_up: bool) -> u32 {
        self.change(link, |end| {
            if is_up {
                end.downs -= 1;
            } else {
                end.downs += 1;
            }
            end.model.set_up(end.downs == 0);
        })
    }

    /// Reduces the link's rate to the fraction `share`. If faults overlap, the last change counts.
    pub(super) fn set_rate_share(&mut self, link: usize, share: f64) -> u32 {
        self.change(link, |end| end.model.set_rate_share(share))
    }

    /// Changes the fraction of damaged frames. Overlapping faults add up; the value is 0 again
    /// after the last one.
    pub(super) fn change_damage(&mut self, link: usize, by: f64) -> u32 {
        self.change(link, |end| {
            let probability = end.wrong_bytes + by;
            end.wrong_bytes = if probability < 1e-12 { 0.0 } else { probability };
        })
    }

    fn change(&mut self, link: usize, change: impl FnMut(&mut End)) -> u32 {
        let ends = &mut self.ends[2 * link..2 * link + 2];
        ends.iter_mut().for_each(change);
        ends[0].node
    }

    /// Records that the node at an end crashed or restarted. Frames to a crashed node are lost.
    pub(super) fn set_node_down(&mut self, end: u32, is_down: bool) {
        self.ends[end as usize].is_node_down = is_down;
    }

    /// Replaces the face at an end, as a router does after a crash.
    pub(super) fn restart(&mut self, end: u32) {
        self.ends[end as usize].restart();
    }

    /// Adds an end at the node of the end `like`, and copies the settings of its face. The link has
    /// a delay and no rate limit. Returns the number of the new end.
    pub(super) fn add_like(&mut self, like: u32, face: FaceId, delay_ns: u64) -> u32 {
        let number = self.ends.len() as u32;
        let seed = |part| seed_of(self.seed, part, number.into());
        let like = &self.ends[like as usize];
        let mut config = like.link.config().clone();
        config.egress.seed = seed(SeedPurpose::Egress);
        config.shaping_seed = seed(SeedPurpose::Shaping);
        let model = weir_netem::LinkConfig { delay_ns, ..weir_netem::LinkConfig::default() };
        let model = LinkModel::new(model, seed(SeedPurpose::Link));
        let end = End::new(like.node, face, config, model, like.patience_ns);
        self.ends.push(end);
        number
    }

    pub(super) fn has_capacity(&self) -> bool {
        self.ends.len() + 2 < INDEX_MAX
    }

    /// Adds the counters and queues of a router's faces to a sample.
    pub(super) fn count(&mut self, ends: &[u32], sample: &mut RouterSample, timeline: &Timeline) {
        for &end in ends {
            let end = &mut self.ends[end as usize];
            sample.egress_bytes += end.waiting_bytes(timeline.now());
            let totals = end.totals();
            sample.in_bytes += totals.in_bytes;
            sample.out_bytes += totals.out_bytes;
            sample.dropped += totals.drops;
        }
    }

    /// Emits a sample of each direction of each link.
    pub(super) fn sample(&mut self, timeline: &mut Timeline) {
        let now = timeline.now();
        for (index, end) in self.ends.iter_mut().enumerate() {
            let link = index as u32 / 2;
            let packets = end.model.queue_packets(now);
            let waiting_bytes = end.waiting_bytes(now);
            let stats = end.model.stats();
            let sample = EventKind::LinkSample {
                link,
                frames: stats.delivered_frames,
                bytes: stats.delivered_bytes,
                dropped: stats.dropped_frames(),
                waiting_bytes,
            };
            let queue = Queue::Link(link);
            timeline.emit(end.node, EventKind::QueueLength { queue, packets });
            timeline.emit(end.node, sample);
        }
    }

    /// Checks that the queues of all links are within their bounds.
    pub(super) fn check(&mut self, timeline: &Timeline) -> Result<(), CheckFailure> {
        let now = timeline.now();
        self.ends.iter_mut().try_for_each(|end| {
            let (bytes, packets) = (end.model.queue_bytes(now), end.model.queue_packets(now));
            let config = end.model.config();
            let packets_max = config.queue_packets_max.into();
            bounds::queue("the queue of a link, in bytes,", bytes, config.queue_bytes_max)
                .and_then(|()| bounds::queue("the queue of a link", packets.into(), packets_max))
                .map_err(|what| CheckFailure::invariant(end.node, what))
        })
    }
}

/// The bytes of a frame. A bare packet passes through without a copy.
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
fn unsolicited_answer(node: u32, is_nack: bool, packet: &[u8], peer: &str) -> CheckFailure {
    let name = Peek::of(packet)
        .and_then(|peek| weir_wire::NameView::from_value(&packet[peek.name]).ok())
        .map_or_else(|| "?".into(), |name| name.to_string());
    let what = if is_nack { "a Nack" } else { "a Data" };
    let what =
        format!("{what} of `{name}` leaves towards `{peer}`, but no Interest from there is open");
    CheckFailure::invariant(node, what)
}
