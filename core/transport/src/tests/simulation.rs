//! A channel that loses, delays, reorders, marks and refuses, under virtual time.

use super::*;

/// What the channel does to packets.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) delay_ns: u64,
    pub(super) jitter_ns: u64,
    /// Per thousand, of each packet in each direction.
    pub(super) lost: u32,
    pub(super) marked: u32,
    pub(super) nacked: u32,
    /// Time to serialize one Data; they queue.
    pub(super) data_ns: u64,
    /// Data that wait at most.
    pub(super) queue_max: u64,
    /// What nobody has is refused for want of a route: by the first router, or by one that lies
    /// behind this face of it.
    pub(super) no_route: Option<Option<u64>>,
    /// The router refuses everything for want of a route.
    pub(super) refuses: bool,
    /// Per thousand Data that come with an octet changed.
    pub(super) damaged: u32,
}

/// Something that reaches the consumer later.
pub(super) enum Arrival {
    Packet(PathId, LpHeader, Packet),
    Verified(VerifyOp),
    Removed(PathId),
    /// The path comes back, as a new one.
    Added(PathId),
    /// From now on this is what the path does to packets.
    Changed(PathId, Channel),
}

pub(super) struct Outcome {
    pub(super) content: Vec<u8>,
    pub(super) stats: ConsumerStats,
    pub(super) took: Instant,
    pub(super) result: Result<(), ConsumerError>,
    pub(super) is_stored: bool,
    pub(super) sent: BTreeMap<PathId, u64>,
    /// Segments verified, and those handed to the reader.
    pub(super) have: SegmentSet,
    pub(super) read: Vec<u64>,
}

pub(super) struct Simulation<'a> {
    pub(super) producer: Option<&'a mut Producer>,
    /// What the consumer is told first.
    pub(super) inputs: Vec<ConsumerInput>,
    /// By the number of the path.
    pub(super) channels: Vec<Channel>,
    pub(super) rng: Rng,
    pub(super) consumer: Consumer,
    pub(super) now: Instant,
    pub(super) link_free_at: Vec<Instant>,
    pub(super) sequence: u64,
    pub(super) arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    pub(super) arriving: BTreeMap<u64, Arrival>,
    pub(super) segments: BTreeMap<u64, Vec<u8>>,
    /// How long a verification takes.
    pub(super) verify_ns: u64,
    pub(super) is_stored: bool,
    pub(super) sent: BTreeMap<PathId, u64>,
    pub(super) reader: ReaderMode,
    /// Segments handed to the reader.
    pub(super) read: Vec<u64>,
}

pub(super) const CLEAN: Channel = Channel {
    delay_ns: 10 * NS_PER_MS,
    jitter_ns: 0,
    lost: 0,
    marked: 0,
    nacked: 0,
    data_ns: 0,
    queue_max: 0,
    no_route: None,
    refuses: false,
    damaged: 0,
};

impl<'a> Simulation<'a> {
    pub(super) fn new(
        producer: Option<&'a mut Producer>,
        channel: Channel,
        target: Target,
        config: ConsumerConfig,
        seed: u64,
    ) -> Self {
        let consumer = Consumer::new(target, config, seed, Instant::ZERO);
        Self::with_paths(producer, vec![channel], consumer, seed)
    }

    /// A simulation with one path for each channel.
    pub(super) fn with_paths(
        producer: Option<&'a mut Producer>,
        channels: Vec<Channel>,
        consumer: Consumer,
        seed: u64,
    ) -> Self {
        let paths = 0..channels.len() as u16;
        let inputs = paths
            .map(|path| ConsumerInput::AddPath {
                path: PathId(path),
                window: None,
                is_local: false,
            })
            .collect();
        Self {
            producer,
            inputs,
            link_free_at: vec![Instant::ZERO; channels.len()],
            channels,
            rng: Rng::from_seed(seed ^ 0x5eed),
            consumer,
            now: Instant::ZERO,
            sequence: 0,
            arrivals: BinaryHeap::new(),
            arriving: BTreeMap::new(),
            segments: BTreeMap::new(),
            verify_ns: 0,
            is_stored: false,
            sent: BTreeMap::new(),
            reader: ReaderMode::None,
            read: Vec::new(),
        }
    }

    pub(super) fn chance(&mut self, per_thousand: u32) -> bool {
        self.rng.below(1000) < per_thousand
    }

    /// The Interest reaches the producer at once; what comes back is delayed for both ways.
    pub(super) fn interest(&mut self, path: PathId, wire: &[u8]) {
        *self.sent.entry(path).or_default() += 1;
        let channel = self.channels[usize::from(path.0)].clone();
        if self.chance(channel.lost) {
            return;
        }
        let jitter = u64::from(self.rng.below((channel.jitter_ns / 1000) as u32 + 1)) * 1000;
        let mut at = self.now.plus_ns(channel.delay_ns + jitter);
        if channel.refuses || self.chance(channel.nacked) {
            let reason = match self.rng.below(3) {
                _ if channel.refuses => NackReason::NoRoute,
                0 => NackReason::Duplicate,
                1 => NackReason::NoRoute,
                _ => NackReason::Congestion,
            };
            let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
            return self.arrive(at, Arrival::Packet(path, header, wire.into()));
        }
        let interest = InterestView::decode(wire).unwrap();
        assert!(interest.nonce.is_some());
        let answer = match &mut self.producer {
            Some(producer) if producer.is_absent(&interest, self.now) => None,
            Some(producer) => producer.answer(&interest),
            None => None,
        };
        let Some(mut packet) = answer else {
            if let Some(incoming_face) = channel.no_route {
                let nack = Some(NackReason::NoRoute);
                let header = LpHeader { nack, incoming_face, ..LpHeader::default() };
                self.arrive(at, Arrival::Packet(path, header, wire.into()));
            }
            return;
        };
        if channel.data_ns > 0 {
            let free_at = &mut self.link_free_at[usize::from(path.0)];
            let start = (*free_at).max(at);
            if start.ns_since(at) > channel.queue_max * channel.data_ns {
                return;
            }
            *free_at = start.plus_ns(channel.data_ns);
            at = *free_at;
        }
        if self.chance(channel.lost) {
            return;
        }
        let is_metadata = interest.can_be_prefix;
        if self.chance(channel.damaged) && !is_metadata {
            // The signature is the last element.
            let mut octets = packet.to_vec();
            *octets.last_mut().unwrap() ^= 1;
            packet = octets.into();
        }
        let congestion_mark = u64::from(self.chance(channel.marked));
        let header = LpHeader { congestion_mark, ..LpHeader::default() };
        self.arrive(at, Arrival::Packet(path, header, packet));
    }

    pub(super) fn arrive(&mut self, at: Instant, arrival: Arrival) {
        self.sequence += 1;
        self.arrivals.push(Reverse((at, self.sequence)));
        self.arriving.insert(self.sequence, arrival);
    }

    /// The driver's thread has verified a packet and keeps its content.
    pub(super) fn verified(&mut self, op: &VerifyOp) -> Verdict {
        let data = DataView::decode(&op.packet).unwrap();
        let verdict = op.check.run(&data);
        if let (Verdict::Good, PacketId::Segment(segment)) = (&verdict, op.id) {
            let previous = self.segments.insert(segment, data.content.to_vec());
            assert!(previous.is_none(), "{segment:?} came twice");
        }
        verdict
    }

    /// What has arrived by now, but for what comes by paths that are no more.
    pub(super) fn take_arrivals(
        &mut self,
        removed: &mut Vec<PathId>,
        inputs: &mut Vec<ConsumerInput>,
    ) {
        while let Some(&Reverse((at, sequence))) = self.arrivals.peek()
            && at <= self.now
        {
            self.arrivals.pop();
            inputs.push(match self.arriving.remove(&sequence).unwrap() {
                Arrival::Packet(path, ..) if removed.contains(&path) => continue,
                Arrival::Packet(path, header, packet) => {
                    ConsumerInput::Packet { path, header, packet }
                }
                Arrival::Verified(op) => {
                    ConsumerInput::Verified { op: op.op, verdict: self.verified(&op) }
                }
                Arrival::Removed(path) => {
                    removed.push(path);
                    ConsumerInput::RemovePath { path }
                }
                Arrival::Added(path) => {
                    removed.retain(|&other| other != path);
                    ConsumerInput::AddPath { path, window: None, is_local: false }
                }
                Arrival::Changed(path, channel) => {
                    self.channels[usize::from(path.0)] = channel;
                    continue;
                }
            });
        }
    }

    pub(super) fn run(mut self, have: &SegmentSet) -> Outcome {
        let mut inputs = core::mem::take(&mut self.inputs);
        let mut out = ConsumerOutbox::default();
        let (mut idle, mut steps) = (0, 0);
        let mut removed = Vec::new();
        let result = loop {
            self.consumer.handle(self.now, &mut inputs, &mut out);
            // What waits for an answer that does not come makes long lists.
            steps += 1;
            if steps < 10_000 || steps % 64 == 0 {
                self.consumer.assert_consistent();
            }
            let interests: Vec<(PathId, Vec<u8>)> =
                out.interests.iter().map(|(path, wire)| (path, wire.to_vec())).collect();
            out.interests.clear();
            for (path, interest) in interests {
                self.interest(path, &interest);
            }
            for op in core::mem::take(&mut out.verify) {
                self.arrive(self.now.plus_ns(self.verify_ns), Arrival::Verified(op));
            }
            for delivery in out.deliveries.drain(..) {
                let PacketId::Segment(segment) = delivery.id else { panic!("{delivery:?}") };
                self.read.push(segment);
                inputs.push(ConsumerInput::Read { segments: 1 });
            }
            let mut ended = None;
            for event in out.events.drain(..) {
                match event {
                    ConsumerEvent::Found { is_stored, .. } => {
                        self.is_stored = is_stored;
                        let reader = self.reader;
                        inputs.push(ConsumerInput::Start { have: have.clone(), reader });
                        inputs.push(ConsumerInput::Read { segments: 10 });
                    }
                    ConsumerEvent::NeedKey { key, .. } => {
                        inputs.push(ConsumerInput::Key { key, verifier: Ok(digest_verifier()) });
                    }
                    ConsumerEvent::Done => ended = Some(Ok(())),
                    ConsumerEvent::Failed(error) => ended = Some(Err(error)),
                    _ => {}
                }
            }
            if let Some(result) = ended {
                assert!(self.consumer.is_over());
                break result;
            }
            if !inputs.is_empty() {
                continue;
            }
            let wakeup = self.consumer.next_wakeup().unwrap_or(Instant::FAR_FUTURE);
            let arrival = self.arrivals.peek().map_or(Instant::FAR_FUTURE, |next| next.0.0);
            let next = wakeup.min(arrival);
            idle = if next > self.now { 0 } else { idle + 1 };
            assert!(idle < 1000, "no progress: {:?}", self.consumer);
            assert!(next < Instant::from_ns(3600 * NS_PER_S), "stuck: {:?}", self.consumer);
            self.now = self.now.max(next);
            self.take_arrivals(&mut removed, &mut inputs);
        };
        self.outcome(result)
    }

    pub(super) fn outcome(self, result: Result<(), ConsumerError>) -> Outcome {
        let mut have = SegmentSet::new();
        self.segments.keys().for_each(|&segment| {
            have.insert(segment);
        });
        Outcome {
            have,
            read: self.read,
            content: self.segments.into_values().flatten().collect(),
            stats: self.consumer.stats(),
            sent: self.sent,
            took: self.now,
            result,
            is_stored: self.is_stored,
        }
    }
}
