use alloc::boxed::Box;

use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::{HopSignal, LpHeader, NackReason};
use weir_wire::{RunOffer, tlv};

use crate::codec::{
    CodecContext, Decoder, Encoder, Hicn, Mode, PacketFormat, Received, Reliability,
};
use crate::config::LinkConfig;
use crate::counters::{LinkCounters, LinkDrop};
use crate::egress::{Context, Egress, Outgoing, PacketKind};
use crate::frame::Frame;
use crate::ingress::{Ingress, ShapingOutcome};
use crate::runs::{Offers, RunsConfig};

/// The link-layer state of one face, between its socket and the forwarder. UDP has one for each
/// peer.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    counters: LinkCounters,
    decoder: Decoder,
    encoder: Encoder,
    egress: Egress,
    ingress: Ingress,
    /// `None` if runs are off.
    offers: Option<Box<Offers>>,
    last_received: Option<Instant>,
}

impl Link {
    /// Creates the state of a new face.
    pub fn new(config: LinkConfig) -> Self {
        let config = config.sanitized();
        Self {
            counters: LinkCounters::default(),
            decoder: Decoder::default(),
            encoder: Encoder::new(&config.codec),
            egress: Egress::new(&config.egress),
            ingress: Ingress::new(&config.shaping, config.shaping_seed),
            offers: Offers::new(config.codec.runs, config.egress.seed).map(Box::new),
            last_received: None,
            config,
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the configuration. Queued packets and packets in reassembly are kept.
    pub fn set_config(&mut self, config: LinkConfig) {
        let before = core::mem::replace(&mut self.config, config.sanitized());
        if before.shaping != self.config.shaping {
            self.ingress.reconfigure(&self.config.shaping, self.config.shaping_seed);
        }
        if before.codec.runs != self.config.codec.runs {
            let (runs, seed) = (self.config.codec.runs, self.config.egress.seed);
            self.offers = Offers::new(runs, seed).map(Box::new);
        }
        self.encoder.configure(&self.config.codec);
        let (egress, context) = self.egress();
        egress.reconfigure(&before.egress, context);
    }

    /// The counters so far.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// When the latest frame was received, even if it was dropped; `None` before the first.
    pub fn last_received(&self) -> Option<Instant> {
        self.last_received
    }

    /// Handles one received frame: a whole TLV of a stream, or a datagram. Fragments are
    /// reassembled in a block of `pool`. A packet in one frame is a slice of `frame`.
    pub fn receive(&mut self, now: Instant, frame: Packet, pool: &mut Pool) -> Received {
        self.counters.in_frames += 1;
        self.counters.in_bytes += frame.len() as u64;
        self.last_received = Some(now);
        let Self { config, counters, decoder, encoder, .. } = self;
        let context = CodecContext { now, config: &config.codec, counters };
        match encoder.mode() {
            None => {
                let received = decoder.decode(context, frame, pool, None);
                self.finish(now, received)
            }
            Some(Mode::Reliability(reliability)) => {
                let received = decoder.decode(context, frame, pool, Some(reliability));
                // A received frame may acknowledge frames, fill a frame of Acks, or show that a
                // frame is lost.
                self.push_due(now);
                self.finish(now, received)
            }
            Some(Mode::Hicn(_)) => self.receive_hicn(now, &frame, pool),
        }
    }

    /// Outside of [`Self::receive`], so that it costs other faces nothing.
    #[cold]
    #[inline(never)]
    fn receive_hicn(&mut self, now: Instant, frame: &Packet, pool: &mut Pool) -> Received {
        let Self { config, counters, encoder, .. } = self;
        let Some(Mode::Hicn(hicn)) = encoder.mode() else { return Received::Idle };
        let context = CodecContext { now, config: &config.codec, counters };
        let received = hicn.decode(context, frame, pool);
        self.finish(now, received)
    }

    /// Handles the result of one frame.
    #[inline(always)]
    fn finish(&mut self, now: Instant, received: Result<Received, LinkDrop>) -> Received {
        match received {
            Ok(Received::Packet { header, packet }) => {
                let kind = kind_of(&header, &packet);
                self.admit(now, kind, header, packet)
            }
            Ok(Received::Offer(offer)) => {
                self.on_offer(now, offer);
                Received::Offer(offer)
            }
            Ok(Received::Announced(data)) => {
                self.egress.on_received(now, PacketKind::Data, &data.packet);
                Received::Announced(data)
            }
            Ok(received) => received,
            Err(reason) => {
                self.counters.drops.count(reason);
                Received::Drop(reason)
            }
        }
    }

    /// Passes a received packet to the forwarder, unless shaping delays or refuses it.
    #[inline(always)]
    fn admit(
        &mut self,
        now: Instant,
        kind: PacketKind,
        header: LpHeader,
        packet: Packet,
    ) -> Received {
        self.egress.on_received(now, kind, &packet);
        if self.ingress.is_on() && kind == PacketKind::Interest {
            return self.shape(now, header, packet);
        }
        Received::Packet { header, packet }
    }

    /// The next Interest of the [run](Received::Run) that was received last. Call it until it
    /// returns `None`, before the next frame is received. Handle each Interest as if it had come in
    /// its own frame. Interests that shaping delays are skipped; see [`Received::Delayed`].
    pub fn next_in_run(&mut self, now: Instant, pool: &mut Pool) -> Option<(LpHeader, Packet)> {
        loop {
            let next = match self.decoder.next_in_run(pool) {
                Some(next) => Some(next),
                None => self.encoder.hicn().and_then(Hicn::next_in_run),
            };
            let (header, packet) = next?;
            let admitted = self.admit(now, PacketKind::Interest, header, packet);
            if let Received::Packet { header, packet } = admitted {
                return Some((header, packet));
            }
        }
    }

    /// Handles an offer about runs from the peer.
    #[cold]
    fn on_offer(&mut self, now: Instant, offer: RunOffer) {
        let answer = self.offers.as_mut().and_then(|offers| offers.on_offer(now, offer));
        let (egress, context) = self.egress();
        egress.stop_pacing(context);
        self.push_offer(answer);
    }

    fn push_offer(&mut self, offer: Option<RunOffer>) {
        if let Some(offer) = offer {
            let frame = Frame::bare(Packet::from(offer.encode()));
            let result = self.egress.push(frame, &self.config.egress);
            // A lost offer is requested again.
            let _counted = self.counted(result);
        }
    }

    /// Joins ready Interests into runs if the peer accepts them, and sends the peer a question if
    /// needed. Drivers call this before they pass frames to a socket. Without this call, they send
    /// single Interests. The `begun` oldest frames stay as they are, because a part of them may
    /// have been sent.
    #[inline]
    pub fn gather_runs(&mut self, begun: usize) {
        if self.offers.is_some() && !self.is_egress_empty() && !self.is_reliable() {
            self.gather_ready(begun);
        }
    }

    /// Whether frames may be [joined](Self::gather_runs). If so, drivers should collect several
    /// frames.
    #[inline]
    pub fn has_runs(&self) -> bool {
        self.offers.is_some()
    }

    #[inline(never)]
    fn gather_ready(&mut self, begun: usize) {
        let Self { offers: Some(offers), egress, config, counters, encoder, .. } = self else {
            return;
        };
        if encoder.hicn().is_some() {
            // Without offers, only the configuration knows that the peer understands manifests.
            if config.codec.runs == RunsConfig::Initiate {
                let (runs, interests) = egress.gather_hicn(begun, config.codec.mtu);
                counters.out_runs += runs;
                counters.out_run_interests += interests;
            }
            return;
        }
        let now = egress.now();
        let (span, may_query) = (offers.span(now), offers.may_query(now));
        let mut offer = None;
        // A run that may not be sent yet is a reason to send the peer a question.
        if span > 0 || may_query {
            let (runs, interests) = egress.gather(begun, span, config.codec.mtu);
            if span > 0 {
                counters.out_runs += runs;
                counters.out_run_interests += interests;
            }
            // Without a run to gain, a query would only cost a frame.
            offer = (runs > 0 && may_query).then(|| offers.query(now));
        }
        let offer = offer.or_else(|| offers.announce(now));
        self.push_offer(offer);
    }

    /// Passes, delays or refuses an Interest. A refused one is answered with a Nack.
    #[cold]
    fn shape(&mut self, now: Instant, header: LpHeader, packet: Packet) -> Received {
        match self.ingress.receive(now, (header, packet), self.egress.waiting_bytes()) {
            ShapingOutcome::Pass(header, packet) => return Received::Packet { header, packet },
            ShapingOutcome::Delay => self.counters.interests_held += 1,
            ShapingOutcome::Refuse { header, packet, is_evicted } => {
                self.counters.interests_held += u64::from(is_evicted);
                self.counters.drops.count(LinkDrop::ShapingFull);
                let LpHeader { pit_token, .. } = header;
                let nack = Some(NackReason::Congestion);
                // If the queue has no room for the Nack, the drop is counted, and the Interest
                // times out at the peer.
                let _ =
                    self.enqueue(now, LpHeader { nack, pit_token, ..LpHeader::default() }, packet);
            }
        }
        Received::Delayed
    }

    /// Whether incoming Interests may be [delayed](Received::Delayed).
    #[inline]
    pub fn is_shaping(&self) -> bool {
        self.ingress.is_on()
    }

    /// Whether an Interest is delayed now.
    pub fn has_delayed_interests(&self) -> bool {
        self.ingress.has_delayed_interests()
    }

    /// The next delayed Interest that may be processed by `now`. Call it until it returns `None`
    /// after each [`poll`](Self::poll), with the socket's backlog up to date. Handle each Interest
    /// as if it had just been received.
    pub fn take_released(&mut self, now: Instant) -> Option<(LpHeader, Packet)> {
        let queue_bytes = self.egress.waiting_bytes();
        let released = self.ingress.release(now, queue_bytes, &mut self.counters)?;
        self.counters.interests_released += 1;
        Some(released)
    }

    /// Queues one packet (an Interest or Data TLV) for sending. The link sets the fragment fields
    /// of `header`, and removes local fields if the face has none. It adds a congestion mark if its
    /// marking policy requires one.
    ///
    /// # Errors
    /// [`LinkDrop::NotNetworkPacket`], [`LinkDrop::QueueFull`], [`LinkDrop::TooLargeForMtu`], or
    /// the reason of the discipline. The drop has been counted.
    pub fn enqueue(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), LinkDrop> {
        let is_packet = packet
            .first()
            .is_some_and(|&first| matches!(u32::from(first), tlv::INTEREST | tlv::DATA));
        if !is_packet {
            return self.counted(Err(LinkDrop::NotNetworkPacket));
        }
        self.enqueue_outgoing(now, header, packet, None)
    }

    /// Queues Data with its prefix announcement. The Data goes without the announcement if the link
    /// cannot carry it.
    ///
    /// # Errors
    /// As for [`enqueue`](Self::enqueue). The drop has been counted.
    pub fn enqueue_announced(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
        announcement: &Packet,
    ) -> Result<(), LinkDrop> {
        self.enqueue_outgoing(now, header, packet, Some(Box::new(announcement.clone())))
    }

    #[inline(always)]
    fn enqueue_outgoing(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
        announcement: Option<Box<Packet>>,
    ) -> Result<(), LinkDrop> {
        let kind = kind_of(&header, &packet);
        if self.ingress.is_on() {
            self.ingress.on_sent(kind, &packet, self.egress.waiting_bytes());
        }
        let (egress, context) = self.egress();
        let outgoing = Outgoing { kind, header, packet, announcement };
        let result = egress.enqueue(now, outgoing, context);
        if result.is_ok() {
            match kind {
                PacketKind::Interest => self.counters.out_interests += 1,
                PacketKind::Data => self.counters.out_data += 1,
                PacketKind::Nack => self.counters.out_nacks += 1,
            }
        }
        self.counted(result)
    }

    /// Queues a signal for the router at the other end.
    ///
    /// # Errors
    /// [`LinkDrop::QueueFull`] or [`LinkDrop::TooLargeForMtu`]. The drop has been counted.
    pub fn enqueue_signal(&mut self, signal: HopSignal) -> Result<(), LinkDrop> {
        let frame = Encoder::encode_signal(&self.config.codec, signal);
        let result = frame.and_then(|frame| self.egress.push(frame, &self.config.egress));
        self.counted(result)
    }

    /// Queues a control message of hicn-light, which is a datagram of its own. Only for links with
    /// hICN packets.
    ///
    /// # Errors
    /// [`LinkDrop::HicnNoForm`], [`LinkDrop::QueueFull`] or [`LinkDrop::TooLargeForMtu`]. The drop
    /// has been counted.
    pub fn enqueue_control(&mut self, message: Packet) -> Result<(), LinkDrop> {
        let result = match self.config.codec.format {
            PacketFormat::Ndnlp => Err(LinkDrop::HicnNoForm),
            PacketFormat::Hicn(_) if message.len() > self.config.codec.mtu => {
                Err(LinkDrop::TooLargeForMtu)
            }
            PacketFormat::Hicn(_) => self.egress.push(Frame::bare(message), &self.config.egress),
        };
        self.counted(result)
    }

    /// Whether this link retransmits lost frames. A received frame may then make other frames
    /// ready, and change [`next_wakeup`](Self::next_wakeup).
    #[inline]
    pub fn is_reliable(&self) -> bool {
        self.encoder.reliability_state().is_some()
    }

    /// Queues the frames that reliability must send now: retransmissions, and Acks alone. Without
    /// reliability, there are none.
    fn push_due(&mut self, now: Instant) {
        self.egress.set_now(now);
        loop {
            let Self { config, counters, encoder, .. } = self;
            let Some(reliability) = encoder.reliability() else { return };
            let Some(frame) = reliability.next_due(now, &config.codec, counters) else { return };
            let number = frame.tx_sequence();
            let result = self.egress.push(frame, &self.config.egress);
            if self.counted(result).is_err() {
                // A retransmission without room in the queue counts as lost again.
                self.on_dequeued(number);
            }
        }
    }

    fn counted(&mut self, result: Result<(), LinkDrop>) -> Result<(), LinkDrop> {
        result.inspect_err(|&reason| self.counters.drops.count(reason))
    }

    /// Sets how many bytes wait in the socket (Linux SIOCOUTQ). Only marking uses them.
    pub fn set_socket_backlog(&mut self, bytes: u64) {
        self.egress.set_socket_backlog(bytes);
    }

    /// Bytes on the wire that wait in the egress, without the socket's backlog.
    pub fn queue_bytes(&self) -> u64 {
        self.egress.wire_bytes()
    }

    /// The frames that are ready to be sent, oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Frame> + Clone {
        self.egress.ready().frames().iter()
    }

    /// Whether no frame is ready. Packets in a discipline are not ready.
    pub fn is_egress_empty(&self) -> bool {
        self.egress.ready().frames().is_empty()
    }

    /// Removes the `count` oldest frames, because the socket has taken them. They count as sent at
    /// the latest time that the link knows; [`poll`](Self::poll) sets it. On a
    /// [reliable](Self::is_reliable) link this starts their timeouts, and may change
    /// [`next_wakeup`](Self::next_wakeup).
    ///
    /// # Panics
    /// If fewer frames are queued.
    pub fn frames_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.pop_sent().expect("no more frames are sent than are queued");
        }
        let (egress, context) = self.egress();
        egress.refill(context);
    }

    /// Takes the oldest frame as sent, for drivers that pass frames on themselves.
    #[inline]
    pub fn take_frame(&mut self) -> Option<Frame> {
        let frame = self.pop_sent()?;
        let (egress, context) = self.egress();
        egress.refill(context);
        Some(frame)
    }

    #[inline]
    fn pop_sent(&mut self) -> Option<Frame> {
        let frame = self.pop()?;
        self.counters.out_frames += 1;
        self.counters.out_bytes += frame.len() as u64;
        Some(frame)
    }

    /// Drops the oldest frame for `reason`.
    pub fn discard_front(&mut self, reason: LinkDrop) {
        if self.pop().is_some() {
            self.counters.drops.count(reason);
        }
    }

    /// Removes the oldest frame.
    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.egress.pop()?;
        self.on_dequeued(frame.tx_sequence());
        Some(frame)
    }

    /// Starts the timer of the frame with this number. The frame has left the queue.
    #[inline]
    fn on_dequeued(&mut self, tx_sequence: Option<u64>) {
        if let (Some(number), Some(reliability)) = (tx_sequence, self.encoder.reliability()) {
            reliability.on_dequeued(self.egress.now(), number);
        }
    }

    /// Drops everything that waits to be sent. It also drops delayed Interests, because their
    /// answers could not be sent. The driver calls it when there is no socket.
    pub fn discard_all(&mut self) {
        while self.ingress.drop_newest().is_some() {
            self.counters.drops.count(LinkDrop::SocketRefused);
        }
        if let Some(offers) = &mut self.offers {
            offers.reset();
        }
        let (egress, context) = self.egress();
        egress.release(context);
        while !self.is_egress_empty() {
            self.discard_front(LinkDrop::SocketRefused);
        }
        self.egress.resume_pacing(&self.config.egress);
    }

    /// Copies queued packets out of blocks that are much larger than they are. Otherwise an
    /// Interest of 40 bytes would keep a whole receive block in use while it waits. Call it when
    /// the socket accepts no more, or on a [reliable](Self::is_reliable) link. Visits each frame
    /// once.
    pub fn detach_frames(&mut self, pool: &mut Pool) {
        self.egress.detach(pool);
        if let Some(reliability) = self.encoder.reliability() {
            reliability.detach(pool);
        }
    }

    /// Approximate memory of the egress in bytes, if its frames are
    /// [detached](Self::detach_frames). It includes frames kept for retransmission and delayed
    /// Interests.
    #[inline]
    pub fn egress_memory_bytes(&self) -> u64 {
        let reliability = self.encoder.reliability_state().map_or(0, Reliability::memory_bytes);
        self.egress.memory_bytes() + reliability + self.ingress.memory_bytes()
    }

    /// Drops the newest packets, as [`LinkDrop::EgressMemory`], until all use at most `bytes_max`
    /// bytes. Frames kept for retransmission go first, then the state of shaping, then delayed
    /// Interests. On a stream the oldest frame always stays, because the socket may have sent a
    /// part of it.
    pub fn shed_egress(&mut self, bytes_max: u64, is_stream: bool) {
        if self.egress_memory_bytes() > bytes_max
            && let Some(reliability) = self.encoder.reliability()
        {
            reliability.discard_state(&mut self.counters);
        }
        if self.egress_memory_bytes() > bytes_max {
            self.ingress.discard_state();
        }
        while self.egress_memory_bytes() > bytes_max && self.ingress.drop_newest().is_some() {
            self.counters.drops.count(LinkDrop::EgressMemory);
        }
        let kept_frames = usize::from(is_stream);
        while self.egress.memory_bytes() > bytes_max && self.egress.drop_newest(kept_frames) {
            self.counters.drops.count(LinkDrop::EgressMemory);
        }
    }

    /// Memory of packets in reassembly, in bytes.
    #[inline]
    pub fn partial_bytes(&self) -> usize {
        self.decoder.partial_bytes()
    }

    /// The packets in reassembly: deadline for the next fragment, identifier on this face, and
    /// memory in bytes.
    pub fn partials(&self) -> impl Iterator<Item = (Instant, u64, usize)> {
        self.decoder.partials()
    }

    /// Drops a packet in reassembly, as [`LinkDrop::ReassemblyFull`].
    pub fn discard_partial(&mut self, id: u64) {
        if self.decoder.discard(id) {
            self.counters.drops.count(LinkDrop::ReassemblyFull);
        }
    }

    /// Frees the memory of empty queues. It is cheap, but should not be called for every packet.
    pub fn shrink(&mut self) {
        self.egress.shrink();
        self.ingress.shrink();
        self.decoder.shrink();
        self.encoder.shrink();
    }

    /// When [`poll`](Self::poll) must be called next; may be too early, never too late.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let codec = self.decoder.next_wakeup();
        let queues = [self.egress.next_wakeup(), self.ingress.next_wakeup()];
        let reliability = self.encoder.reliability_state().and_then(Reliability::next_wakeup);
        queues.into_iter().flatten().chain(codec).chain(reliability).min()
    }

    /// Runs the timers: drops packets in reassembly that have timed out, and makes packets ready
    /// that the discipline and reliability may send now. It may [release](Self::take_released)
    /// delayed Interests.
    pub fn poll(&mut self, now: Instant) {
        self.decoder.poll(now, &mut self.counters.drops);
        self.ingress.poll(now);
        self.set_now(now);
    }

    /// Sets the time at which the socket takes the following frames; reliability needs it. Delayed
    /// Interests stay until the next [`poll`](Self::poll), and this call does not postpone it.
    pub fn set_now(&mut self, now: Instant) {
        if self.encoder.has_mode() {
            self.push_due(now);
        }
        let (egress, context) = self.egress();
        egress.poll(now, context);
    }

    #[inline]
    fn egress(&mut self) -> (&mut Egress, Context<'_>) {
        let Self { config, counters, encoder, egress, .. } = self;
        let context = Context { codec: &config.codec, config: &config.egress, encoder, counters };
        (egress, context)
    }
}

/// The kind of an Interest or Data TLV.
fn kind_of(header: &LpHeader, packet: &Packet) -> PacketKind {
    match packet.first() {
        Some(&first) if u32::from(first) == tlv::DATA => PacketKind::Data,
        _ if header.nack.is_some() => PacketKind::Nack,
        _ => PacketKind::Interest,
    }
}
