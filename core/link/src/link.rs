use alloc::boxed::Box;

use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::{HopSignal, LpHeader, NackReason};
use weir_wire::{RunOffer, tlv};

use crate::codec::{CodecContext, Decoder, Encoder, Received, Reliability};
use crate::config::LinkConfig;
use crate::counters::{LinkCounters, LinkDrop};
use crate::egress::{Context, Egress, Outgoing, PacketKind};
use crate::frame::Frame;
use crate::ingress::{Ingress, ShapingOutcome};
use crate::runs::Offers;

/// One face's state between socket and forwarder. For UDP there is one for each peer.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    counters: LinkCounters,
    decoder: Decoder,
    encoder: Encoder,
    egress: Egress,
    ingress: Ingress,
    /// Where there are runs.
    offers: Option<Box<Offers>>,
    last_received: Option<Instant>,
}

impl Link {
    /// A fresh face with `config`.
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

    /// Changes the configuration; what is queued or in reassembly stays.
    pub fn set_config(&mut self, config: LinkConfig) {
        let before = core::mem::replace(&mut self.config, config.sanitized());
        if before.shaping != self.config.shaping {
            self.ingress.reconfigure(&self.config.shaping, self.config.shaping_seed);
        }
        if before.codec.runs != self.config.codec.runs {
            let (runs, seed) = (self.config.codec.runs, self.config.egress.seed);
            self.offers = Offers::new(runs, seed).map(Box::new);
        }
        self.encoder.set_reliability(self.config.codec.reliability);
        let (egress, context) = self.egress();
        egress.reconfigure(&before.egress, context);
    }

    /// What passed through so far.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// When the latest frame came, dropped ones included; none yet is `None`.
    pub fn last_received(&self) -> Option<Instant> {
        self.last_received
    }

    /// Takes one frame: a whole TLV of a stream, or a datagram. `pool` gives the block into which
    /// fragments are put together; a packet in one piece is a slice of `frame`.
    pub fn receive(&mut self, now: Instant, frame: Packet, pool: &mut Pool) -> Received {
        self.counters.in_frames += 1;
        self.counters.in_bytes += frame.len() as u64;
        self.last_received = Some(now);
        let Self { config, counters, decoder, encoder, .. } = self;
        let reliability = encoder.reliability();
        let context = CodecContext { now, config: &config.codec, counters };
        let received = decoder.decode(context, frame, pool, reliability);
        if self.is_reliable() {
            self.push_due(now);
        }
        match received {
            Ok(Received::Packet { header, packet }) => {
                let kind = kind_of(&header, &packet);
                self.admit(now, kind, header, packet)
            }
            Ok(Received::Offer(offer)) => {
                self.on_offer(now, offer);
                Received::Offer(offer)
            }
            Ok(received) => received,
            Err(reason) => {
                self.counters.drops.count(reason);
                Received::Drop(reason)
            }
        }
    }

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

    /// The next Interest of the [run](Received::Run) that was received last, if there is one: to be
    /// asked until there is none before the next frame is received, and to be treated as if it had
    /// come in a frame of its own. What shaping holds is passed over; see [`Received::ActiveToken`].
    pub fn next_in_run(&mut self, now: Instant, pool: &mut Pool) -> Option<(LpHeader, Packet)> {
        loop {
            let (header, packet) = self.decoder.next_in_run(pool)?;
            let admitted = self.admit(now, PacketKind::Interest, header, packet);
            if let Received::Packet { header, packet } = admitted {
                return Some((header, packet));
            }
        }
    }

    /// The other end speaks of runs.
    #[cold]
    fn on_offer(&mut self, now: Instant, offer: RunOffer) {
        let answer = self.offers.as_mut().and_then(|offers| offers.on_offer(now, offer));
        self.push_offer(answer);
    }

    fn push_offer(&mut self, offer: Option<RunOffer>) {
        if let Some(offer) = offer {
            let frame = Frame::bare(Packet::from(offer.encode()));
            let result = self.egress.push(frame, &self.config.egress);
            // It will be asked for once more.
            let _counted = self.counted(result);
        }
    }

    /// Joins Interests that are ready one after the other into runs, where the other end takes
    /// them, and asks it whether it does. Drivers call it before they give the frames to a socket;
    /// those that do not send single Interests. The `begun` oldest frames stay as they are: a part
    /// of them may be sent.
    #[inline]
    pub fn gather_runs(&mut self, begun: usize) {
        if self.offers.is_some() && !self.is_egress_empty() && !self.is_reliable() {
            self.gather_ready(begun);
        }
    }

    /// Whether frames may be [gathered](Self::gather_runs) here, so that it is better to have
    /// several.
    #[inline]
    pub fn has_runs(&self) -> bool {
        self.offers.is_some()
    }

    #[inline(never)]
    fn gather_ready(&mut self, begun: usize) {
        let Self { offers: Some(offers), egress, config, counters, .. } = self else { return };
        let now = egress.now();
        let (span, may_ask) = (offers.span(now), offers.may_query(now));
        let mut offer = None;
        if span > 0 || may_ask {
            let (runs, interests) = egress.gather(begun, span, config.codec.mtu);
            if span > 0 {
                counters.out_runs += runs;
                counters.out_run_interests += interests;
            }
            offer = (runs > 0 && may_ask).then(|| offers.query(now));
        }
        let offer = offer.or_else(|| offers.announce(now));
        self.push_offer(offer);
    }

    /// An Interest passes, waits, or is answered with a Nack since too many wait.
    #[cold]
    fn shape(&mut self, now: Instant, header: LpHeader, packet: Packet) -> Received {
        match self.ingress.receive(now, (header, packet), self.egress.waiting_bytes()) {
            ShapingOutcome::Pass(header, packet) => return Received::Packet { header, packet },
            ShapingOutcome::Delay => self.counters.interests_held += 1,
            ShapingOutcome::Refuse { header, packet, is_evicted: has_replaced } => {
                self.counters.interests_held += u64::from(has_replaced);
                self.counters.drops.count(LinkDrop::ShapingFull);
                let LpHeader { pit_token, .. } = header;
                let nack = Some(NackReason::Congestion);
                // A refusal is counted; the peer then learns of this one by its time-out.
                let _ =
                    self.enqueue(now, LpHeader { nack, pit_token, ..LpHeader::default() }, packet);
            }
        }
        Received::Delayed
    }

    /// Whether Interests that come in may be [held](Received::Held).
    #[inline]
    pub fn is_shaping(&self) -> bool {
        self.ingress.is_on()
    }

    /// Whether an Interest waits.
    pub fn has_delayed_interests(&self) -> bool {
        self.ingress.has_delayed_interests()
    }

    /// The next of the held Interests that may go on by `now`, if there is one. To be asked until
    /// there is none after each [`poll`](Self::poll), with the socket's backlog up to date; to be
    /// treated as if it had just been received.
    pub fn take_released(&mut self, now: Instant) -> Option<(LpHeader, Packet)> {
        let queue_bytes = self.egress.waiting_bytes();
        let released = self.ingress.release(now, queue_bytes, &mut self.counters)?;
        self.counters.interests_released += 1;
        Some(released)
    }

    /// Queues one packet (an Interest or Data TLV) for sending. Of `header`, the link sets the
    /// fragment fields itself, leaves local fields out where the face has none, and adds the
    /// congestion mark where its marking policy wants one.
    ///
    /// # Errors
    /// [`LinkDrop::NotNetworkPacket`], [`LinkDrop::QueueFull`], [`LinkDrop::TooLargeForMtu`] or
    /// what the discipline refuses for; counted already.
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
        let kind = kind_of(&header, &packet);
        if self.ingress.is_on() {
            self.ingress.on_sent(kind, &packet, self.egress.waiting_bytes());
        }
        let (egress, context) = self.egress();
        let result = egress.enqueue(now, Outgoing { kind, header, packet }, context);
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
    /// [`LinkDrop::QueueFull`] or [`LinkDrop::TooLargeForMtu`]; counted already.
    pub fn enqueue_signal(&mut self, signal: HopSignal) -> Result<(), LinkDrop> {
        let frame = Encoder::encode_signal(&self.config.codec, signal);
        let result = frame.and_then(|frame| self.egress.push(frame, &self.config.egress));
        self.counted(result)
    }

    /// Whether lost frames are sent again here. A received frame may then make others ready to be
    /// sent, and change [`next_wakeup`](Self::next_wakeup).
    #[inline]
    pub fn is_reliable(&self) -> bool {
        self.encoder.reliability_state().is_some()
    }

    /// Makes ready what reliability wants to send by now: lost frames again, Acks alone.
    fn push_due(&mut self, now: Instant) {
        self.egress.set_now(now);
        loop {
            let Self { config, counters, encoder, .. } = self;
            let Some(reliability) = encoder.reliability() else { return };
            let Some(frame) = reliability.next_due(now, &config.codec, counters) else { return };
            let number = frame.tx_sequence();
            let result = self.egress.push(frame, &self.config.egress);
            if self.counted(result).is_err() {
                // A frame without room is lost once more.
                self.on_dequeued(number);
            }
        }
    }

    fn counted(&mut self, result: Result<(), LinkDrop>) -> Result<(), LinkDrop> {
        result.inspect_err(|&reason| self.counters.drops.count(reason))
    }

    /// Tells how many octets wait in the socket (Linux SIOCOUTQ); they count for marking only.
    pub fn set_socket_backlog(&mut self, bytes: u64) {
        self.egress.set_socket_backlog(bytes);
    }

    /// Octets on the wire that wait in the egress, the socket's backlog not included.
    pub fn queue_bytes(&self) -> u64 {
        self.egress.wire_bytes()
    }

    /// Frames ready to be sent, oldest first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Frame> + Clone {
        self.egress.ready().frames().iter()
    }

    /// Whether no frame is ready to be sent. What a discipline holds back is not ready.
    pub fn is_egress_empty(&self) -> bool {
        self.egress.ready().frames().is_empty()
    }

    /// Takes the `count` oldest frames off the queue: the socket has them, since the latest time
    /// that anyone told. Where the link [is reliable](Self::is_reliable) that starts their timeouts
    /// and may change [`next_wakeup`](Self::next_wakeup); [`poll`](Self::poll) tells the time.
    ///
    /// # Panics
    /// If fewer are queued.
    pub fn frames_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.pop_sent().expect("no more frames are sent than are queued");
        }
        let (egress, context) = self.egress();
        egress.refill(context);
    }

    /// Takes the oldest frame off the queue, as sent: for drivers whose frames go on as they are.
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

    /// Takes the oldest frame off the queue as dropped for `reason`.
    pub fn discard_front(&mut self, reason: LinkDrop) {
        if self.pop().is_some() {
            self.counters.drops.count(reason);
        }
    }

    /// Takes the oldest frame off the queue.
    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.egress.pop()?;
        self.on_dequeued(frame.tx_sequence());
        Some(frame)
    }

    /// The frame of this number is no longer queued.
    #[inline]
    fn on_dequeued(&mut self, tx_sequence: Option<u64>) {
        if let (Some(number), Some(reliability)) = (tx_sequence, self.encoder.reliability()) {
            reliability.on_dequeued(self.egress.now(), number);
        }
    }

    /// Drops all that waits to be sent, and the Interests whose answers could not be sent: there is
    /// no socket.
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
    }

    /// Moves queued packets out of blocks that are much larger than they. To be called when the
    /// socket takes no more, or where the link [is reliable](Self::is_reliable): an Interest of 40
    /// octets would else hold a whole receive block for as long as it waits. Each frame is looked
    /// at once.
    pub fn detach_frames(&mut self, pool: &mut Pool) {
        self.egress.detach(pool);
        if let Some(reliability) = self.encoder.reliability() {
            reliability.detach(pool);
        }
    }

    /// Octets of memory that the egress takes, about, when its frames are
    /// [detached](Self::detach_frames), those that may have to be sent again among them, and the
    /// Interests that wait for it to have room.
    #[inline]
    pub fn egress_memory_bytes(&self) -> u64 {
        let reliability = self.encoder.reliability_state().map_or(0, Reliability::memory_bytes);
        self.egress.memory_bytes() + reliability + self.ingress.memory_bytes()
    }

    /// Drops the newest of what waits, as [`LinkDrop::EgressMemory`], until all takes `bytes_max`
    /// octets or less. What is kept for retransmission gives way first, then what shaping counts,
    /// then held Interests. On a stream the oldest frame stays whatever it takes: the socket may
    /// have sent a part of it.
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

    /// Octets of memory held for packets in reassembly.
    #[inline]
    pub fn partial_bytes(&self) -> usize {
        self.decoder.partial_bytes()
    }

    /// The packets in reassembly: until when each waits for another fragment, an identifier among
    /// those of this face, and octets of memory.
    pub fn partials(&self) -> impl Iterator<Item = (Instant, u64, usize)> {
        self.decoder.partials()
    }

    /// Gives up a packet in reassembly, as [`LinkDrop::ReassemblyFull`].
    pub fn discard_partial(&mut self, id: u64) {
        if self.decoder.discard(id) {
            self.counters.drops.count(LinkDrop::ReassemblyFull);
        }
    }

    /// Gives back the memory of what is empty now. Cheap, but not to be called for every packet.
    pub fn shrink(&mut self) {
        self.egress.shrink();
        self.ingress.shrink();
        self.decoder.shrink();
    }

    /// When [`poll`](Self::poll) should be called next; may be early, never late.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let codec = self.decoder.next_wakeup();
        let queues = [self.egress.next_wakeup(), self.ingress.next_wakeup()];
        let reliability = self.encoder.reliability_state().and_then(Reliability::next_wakeup);
        queues.into_iter().flatten().chain(codec).chain(reliability).min()
    }

    /// The time has come: gives up packets in reassembly that no further fragment came for, and
    /// makes ready what the discipline held back until now, and what reliability wants to send.
    /// Interests that were held may have been [released](Self::take_released).
    pub fn poll(&mut self, now: Instant) {
        self.decoder.poll(now, &mut self.counters.drops);
        self.ingress.poll(now);
        self.set_now(now);
    }

    /// What the socket takes from here on leaves at `now`, which reliability wants to know.
    /// Interests that are held stay so until the next [`poll`](Self::poll), which this does not
    /// put off.
    pub fn set_now(&mut self, now: Instant) {
        if self.is_reliable() {
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

/// The kind of a packet whose type is that of an Interest or a Data.
fn kind_of(header: &LpHeader, packet: &Packet) -> PacketKind {
    match packet.first() {
        Some(&first) if u32::from(first) == tlv::DATA => PacketKind::Data,
        _ if header.nack.is_some() => PacketKind::Nack,
        _ => PacketKind::Interest,
    }
}
