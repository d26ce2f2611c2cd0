//! Objects that grow: a producer and consumers in virtual time, over channels that lose.

extern crate std;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet, Rng};
use weir_wire::{Component, Data, DataView, InterestView, LpHeader, NackReason, Name};

use crate::{
    Answer, Behind, Consumer, ConsumerConfig, ConsumerError, ConsumerEvent, ConsumerInput,
    ConsumerOutbox, METADATA_KEYWORD, Metadata, PacketId, PathId, Producer, ProducerConfig,
    ProducerInput, ProducerOutbox, ReaderMode, SegmentSet, Source, Target, Verdict,
};

const PATH: PathId = PathId(0);
/// From one end to the other.
const DELAY_NS: u64 = 10 * NS_PER_MS;
/// Nothing takes longer.
const END: Instant = Instant::from_ns(600 * NS_PER_S);

fn object() -> Name {
    "/live/object".parse().unwrap()
}

fn versioned(version: u64) -> Name {
    object().append_version(version).clone()
}

/// What an object that grows has: its metadata, and how far it is.
struct Growing {
    version: u64,
    next: u64,
    last: Option<u64>,
    metadata: Packet,
    renewals: u64,
}

impl Growing {
    fn new(version: u64) -> Self {
        let metadata = Packet::empty();
        let mut growing = Self { version, next: 0, last: None, metadata, renewals: 0 };
        growing.sign();
        growing
    }

    fn sign(&mut self) {
        let mut name = object();
        name.append_keyword(METADATA_KEYWORD).append_version(self.next).append_segment(0);
        let metadata = Metadata {
            next_segment: Some(self.next),
            last_segment: self.last,
            ..Metadata::new(versioned(self.version))
        };
        self.metadata = Data::new(name).content(metadata.encode()).encode_with_digest().into();
    }

    /// Makes a segment, the last one or not.
    fn make(&mut self, is_last: bool) -> Packet {
        let number = self.next;
        (self.next, self.last) = (number + 1, is_last.then_some(number));
        self.sign();
        let mut data = Data::new(versioned(self.version).append_segment(number).clone());
        if is_last {
            data = data.final_block_id(Component::segment(number));
        }
        data.content(number.to_be_bytes()).encode_with_digest().into()
    }
}

impl Source for Growing {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        if interest.name.last().is_some_and(|last| last.is_keyword(METADATA_KEYWORD)) {
            self.renewals += 1;
            return Answer::Packet(self.metadata.clone());
        }
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let is_ours = interest.name.parent() == versioned(self.version).as_view();
        match segment {
            Some(segment) if is_ours && segment >= self.next => Answer::Later,
            _ => Answer::Unknown,
        }
    }
}

enum Event {
    /// An Interest reaches the producer, from this viewer.
    Asked(usize, Packet),
    /// A packet reaches a viewer.
    Came(usize, LpHeader, Packet),
    /// A segment is made.
    Make { is_last: bool },
    /// A viewer begins.
    Join(usize),
    /// A viewer's reader takes so many segments more.
    Read(usize, u32),
    /// The producer starts over.
    Restart,
    /// From now on nothing gets through.
    Silence,
}

/// A consumer of what grows, and what it got.
struct Viewer {
    consumer: Consumer,
    out: ConsumerOutbox,
    inputs: Vec<ConsumerInput>,
    has_joined: bool,
    /// From the newest segment, or from the first.
    from_newest: bool,
    /// Segments that the reader takes at first; others by [`Event::Read`].
    places: u32,
    got: Vec<u64>,
    /// When each came.
    at: Vec<Instant>,
    end: Option<Result<(), ConsumerError>>,
}

struct World {
    producer: Producer<Growing>,
    out: ProducerOutbox,
    viewers: Vec<Viewer>,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    now: Instant,
    rng: Rng,
    /// Per thousand packets of each direction.
    lost: u32,
    is_silent: bool,
    /// Interests at the producer, and those that its application was told of or that were refused.
    asked: u64,
    told: usize,
    /// When each segment was made.
    made: Vec<Instant>,
    /// When each viewer's first Interest for each segment came.
    asked_at: BTreeMap<(u64, usize), Instant>,
}

impl World {
    fn new(seed: u64, lost: u32) -> Self {
        let config = ProducerConfig {
            buffer_bytes: 1 << 24,
            ..ProducerConfig::on_demand(HashKey::new([1, 2]), NS_PER_S)
        };
        Self {
            producer: Producer::new(Growing::new(1), config),
            out: ProducerOutbox::default(),
            viewers: Vec::new(),
            events: BTreeMap::new(),
            sequence: 0,
            now: Instant::from_ns(NS_PER_S),
            rng: Rng::from_seed(seed),
            lost,
            is_silent: false,
            asked: 0,
            told: 0,
            made: Vec::new(),
            asked_at: BTreeMap::new(),
        }
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn at_ms(&mut self, ms: u64, event: Event) {
        self.at(Instant::from_ns(ms * NS_PER_MS), event);
    }

    fn join(&mut self, ms: u64, from_newest: bool, places: u32, config: ConsumerConfig) {
        let target = Target::Latest { object: object(), allow_stored: false };
        self.join_with(ms, from_newest, places, config, target);
    }

    fn join_with(
        &mut self,
        ms: u64,
        from_newest: bool,
        places: u32,
        config: ConsumerConfig,
        target: Target,
    ) {
        let at = Instant::from_ns(ms * NS_PER_MS);
        let consumer = Consumer::new(target, config, 7 + self.viewers.len() as u64, at);
        self.at(at, Event::Join(self.viewers.len()));
        self.viewers.push(Viewer {
            consumer,
            out: ConsumerOutbox::default(),
            inputs: vec![ConsumerInput::AddPath { path: PATH, window: None, is_local: false }],
            has_joined: false,
            from_newest,
            places,
            got: Vec::new(),
            at: Vec::new(),
            end: None,
        });
    }

    fn run(&mut self) {
        while self.viewers.iter().any(|viewer| viewer.end.is_none()) {
            let of_viewers = self.viewers.iter().filter(|viewer| viewer.has_joined);
            let wakeups = of_viewers.filter_map(|viewer| viewer.consumer.next_wakeup());
            let wakeup = wakeups.chain(self.producer.next_wakeup()).min();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = wakeup.into_iter().chain(event).min().expect("something is to come");
            self.now = self.now.max(next);
            assert!(self.now < END, "it does not end");
            while let Some(entry) = self.events.first_entry().filter(|e| e.key().0 <= self.now) {
                let event = entry.remove();
                self.take(event);
            }
            self.tell_producer(Vec::new());
            (0..self.viewers.len()).for_each(|at| self.turn(at));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Asked(viewer, packet) => {
                self.asked += 1;
                let name = InterestView::decode(&packet).unwrap().name;
                if let Some(segment) = name.last().and_then(|last| last.as_segment()) {
                    self.asked_at.entry((segment, viewer)).or_insert(self.now);
                }
                let path = PathId(viewer as u16);
                let header = LpHeader::default();
                self.tell_producer(vec![ProducerInput::Packet { path, header, packet }]);
            }
            Event::Came(viewer, header, packet) => {
                let input = ConsumerInput::Packet { path: PATH, header, packet };
                self.viewers[viewer].inputs.push(input);
                // One at a time, as answers arrive one after another.
                self.turn(viewer);
            }
            Event::Make { is_last } => {
                let data = self.producer.source_mut().make(is_last);
                self.made.push(self.now);
                self.tell_producer(vec![ProducerInput::Put(data)]);
            }
            Event::Join(viewer) => self.viewers[viewer].has_joined = true,
            Event::Read(viewer, segments) => {
                self.viewers[viewer].inputs.push(ConsumerInput::Read { segments });
            }
            Event::Restart => *self.producer.source_mut() = Growing::new(2),
            Event::Silence => self.is_silent = true,
        }
    }

    fn tell_producer(&mut self, mut inputs: Vec<ProducerInput>) {
        self.producer.handle(self.now, &mut inputs, &mut self.out);
        self.told += self.out.events.drain(..).count();
        for (path, header, packet) in core::mem::take(&mut self.out.packets) {
            self.told += usize::from(header.nack.is_some());
            self.send(Event::Came(usize::from(path.0), header, packet));
        }
    }

    fn send(&mut self, event: Event) {
        if !self.is_silent && self.rng.below(1000) >= self.lost {
            self.at(self.now.plus_ns(DELAY_NS), event);
        }
    }

    fn turn(&mut self, at: usize) {
        if !self.viewers[at].has_joined {
            return;
        }
        loop {
            let viewer = &mut self.viewers[at];
            viewer.consumer.handle(self.now, &mut viewer.inputs, &mut viewer.out);
            viewer.consumer.assert_consistent();
            let interests: Vec<Packet> =
                viewer.out.interests.iter().map(|(_, wire)| wire.into()).collect();
            viewer.out.interests.clear();
            for delivery in viewer.out.deliveries.drain(..) {
                let PacketId::Segment(segment) = delivery.id else { panic!("{delivery:?}") };
                let data = DataView::decode(&delivery.packet).unwrap();
                assert_eq!(data.content, segment.to_be_bytes());
                viewer.got.push(segment);
                viewer.at.push(self.now);
            }
            for op in viewer.out.verify.drain(..) {
                let verdict = Verdict::Good;
                viewer.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
            }
            viewer.take_events();
            let is_settled = viewer.inputs.is_empty();
            interests.into_iter().for_each(|wire| self.send(Event::Asked(at, wire)));
            if is_settled {
                return;
            }
        }
    }
}

impl Viewer {
    fn take_events(&mut self) {
        for event in self.out.events.drain(..) {
            match event {
                ConsumerEvent::Found { metadata, .. } => {
                    let newest = metadata.newest_segment().unwrap_or(0);
                    let first = if self.from_newest { newest } else { 0 };
                    let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
                    self.inputs.push(ConsumerInput::Narrow { segments: first..u64::MAX });
                    self.inputs.push(ConsumerInput::Start { have, reader });
                    self.inputs.push(ConsumerInput::Read { segments: self.places });
                }
                ConsumerEvent::NeedKey { key, .. } => {
                    let verifier = Ok(crate::tests::digest_verifier());
                    self.inputs.push(ConsumerInput::Key { key, verifier });
                }
                ConsumerEvent::Done => self.end = Some(Ok(())),
                ConsumerEvent::Failed(error) => self.end = Some(Err(error)),
                _ => {}
            }
        }
    }

    fn assert_got(&self, segments: core::ops::Range<u64>) {
        assert_eq!(self.end, Some(Ok(())), "{:?}", self.got.last());
        assert_eq!(self.got, segments.collect::<Vec<_>>());
    }
}

/// Segments 50 ms apart from 2 s on.
fn steady(world: &mut World, count: u64) {
    for at in 0..count {
        world.at_ms(2000 + 50 * at, Event::Make { is_last: at + 1 == count });
    }
}

#[test]
fn viewers_follow_from_the_newest_segment_to_the_last_without_any_loss() {
    let mut world = World::new(1, 0);
    for (ms, from_newest) in [(1000, true), (2020, true), (7020, true), (7020, false)] {
        world.join(ms, from_newest, 10_000, ConsumerConfig::default());
    }
    steady(&mut world, 200);
    world.run();
    world.viewers[0].assert_got(0..200);
    // Metadata are on their way for 20 ms.
    world.viewers[1].assert_got(0..200);
    world.viewers[2].assert_got(100..200);
    world.viewers[3].assert_got(0..200);
    for viewer in &world.viewers {
        let stats = viewer.consumer.stats();
        assert_eq!((stats.losses, stats.timeouts, stats.decreases, stats.nacks), (0, 0, 0, 0));
        assert_eq!(stats.retransmissions, 0, "none waits for its lifetime");
        assert_eq!(stats.outstanding, 0);
        // What was waited for comes as soon as it is there.
        let late = viewer.got.iter().zip(&viewer.at).filter(|&(&segment, &at)| {
            segment > 103 && at > world.made[segment as usize].plus_ns(DELAY_NS)
        });
        assert_eq!(late.count(), 0);
    }
}

#[test]
fn nobody_gives_up_while_nothing_is_made_and_few_interests_wait() {
    let mut world = World::new(1, 0);
    world.join(1000, true, 100, ConsumerConfig::default());
    for (ms, is_last) in [(2000, false), (2001, false), (400_000, false), (400_010, true)] {
        world.at_ms(ms, Event::Make { is_last });
    }
    world.run();
    world.viewers[0].assert_got(0..4);
    let stats = world.viewers[0].consumer.stats();
    assert_eq!((stats.losses, stats.timeouts, stats.decreases), (0, 0, 0));
    // Two every 4 s, and the metadata every 8 s.
    assert_eq!(world.told, 0, "it knows that it is to make more");
    assert!((200..300).contains(&world.asked), "{}", world.asked);
}

#[test]
fn what_is_made_faster_than_round_trips_is_asked_for_further_ahead() {
    let mut world = World::new(1, 0);
    world.join(1000, true, 100_000, ConsumerConfig::default());
    // One a millisecond: twenty in a round trip.
    for at in 0..5000 {
        world.at_ms(2000 + at, Event::Make { is_last: at == 4999 });
    }
    world.run();
    let viewer = &world.viewers[0];
    viewer.assert_got(0..5000);
    for (segment, at) in viewer.got.iter().zip(&viewer.at).skip(1000) {
        assert_eq!(*at, world.made[*segment as usize].plus_ns(DELAY_NS), "{segment}");
    }
    assert!(viewer.consumer.stats().outstanding_max <= 64);
}

/// Regression: who had seen segments come fast asked further ahead than others as long as nothing
/// waited for a lifetime, so that routers, which take Interests for one while they are near each
/// other, sent those of each kind on: the producer had as many for each segment.
#[test]
fn viewers_ask_for_a_segment_at_the_same_time_whatever_they_have_seen() {
    let mut world = World::new(1, 0);
    for ms in [1000, 2500, 2815, 2990] {
        world.join(ms, true, 10_000, ConsumerConfig::default());
    }
    // At first one in 4 ms, then one in 200 ms.
    for at in 0..200 {
        world.at_ms(2000 + 4 * at, Event::Make { is_last: false });
    }
    for at in 0..150 {
        world.at_ms(3000 + 200 * at, Event::Make { is_last: at == 149 });
    }
    world.run();
    world.viewers[0].assert_got(0..350);
    for segment in 330..350 {
        let asked = (0..4).map(|viewer| world.asked_at[&(segment, viewer)]);
        assert_eq!(asked.collect::<BTreeSet<_>>().len(), 1, "{segment}");
    }
}

/// What is made at once is asked for at once, however long it waits for the next time.
#[test]
fn what_is_made_in_bursts_comes_without_delay() {
    let mut world = World::new(1, 0);
    world.join(1000, true, 10_000, ConsumerConfig::default());
    for at in 0..2000 {
        world.at_ms(2000 + at / 10 * 100, Event::Make { is_last: at == 1999 });
    }
    world.run();
    let viewer = &world.viewers[0];
    viewer.assert_got(0..2000);
    for (segment, at) in viewer.got.iter().zip(&viewer.at).skip(200) {
        assert_eq!(*at, world.made[*segment as usize].plus_ns(DELAY_NS), "{segment}");
    }
}

#[test]
fn every_segment_comes_whatever_is_lost() {
    for seed in 0..200 {
        let mut world = World::new(seed, 30);
        let mut rng = Rng::from_seed(seed + 1000);
        for _ in 0..4 {
            let ms = 1000 + u64::from(rng.below(8000));
            world.join(ms, rng.below(2) == 0, 100_000, ConsumerConfig::default());
        }
        let (count, mut ms) = (100 + u64::from(rng.below(200)), 2000);
        for at in 0..count {
            // Bursts, steady times and long breaks.
            ms += match rng.below(20) {
                0 => u64::from(rng.below(15_000)),
                1..10 => u64::from(rng.below(100)),
                _ => 0,
            };
            world.at_ms(ms, Event::Make { is_last: at + 1 == count });
        }
        world.run();
        for viewer in &world.viewers {
            let first = if viewer.from_newest { viewer.got[0] } else { 0 };
            viewer.assert_got(first..count);
        }
    }
}

#[test]
fn a_slow_reader_goes_on_in_order_or_with_the_newest() {
    for (behind, loses) in [(Behind::InOrder, false), (Behind::Skip, true)] {
        let mut world = World::new(3, 0);
        let config = ConsumerConfig { reader_segments_max: 8, behind, ..ConsumerConfig::default() };
        world.join(1900, true, 8, config);
        steady(&mut world, 400);
        // It reads nothing for 10 s, then everything.
        for ms in 0..4000 {
            world.at_ms(12_000 + 10 * ms, Event::Read(0, 4));
        }
        world.run();
        let viewer = &world.viewers[0];
        assert_eq!(viewer.end, Some(Ok(())));
        assert!(viewer.consumer.stats().outstanding_max <= 8);
        let gaps = viewer.got.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert_eq!(viewer.got.last(), Some(&399));
        match loses {
            false => viewer.assert_got(0..400),
            true => {
                assert_eq!(gaps, 1, "{:?}", viewer.got);
                // Then it is with the newest again.
                let newest = viewer.got.iter().zip(&viewer.at).find(|&(&segment, &at)| {
                    segment > 100 && at <= world.made[segment as usize].plus_ns(DELAY_NS)
                });
                assert!(*newest.unwrap().0 < 215, "{:?}", viewer.got);
            }
        }
    }
}

#[test]
fn a_producer_that_starts_over_ends_the_version_before() {
    let mut world = World::new(1, 0);
    world.join(1000, true, 100, ConsumerConfig::default());
    for at in 0..20 {
        world.at_ms(2000 + 50 * at, Event::Make { is_last: false });
    }
    world.at_ms(4000, Event::Restart);
    world.run();
    let viewer = &world.viewers[0];
    let newer = versioned(2);
    let versioned = versioned(1);
    assert_eq!(viewer.end, Some(Err(ConsumerError::Superseded { versioned, newer })));
    assert_eq!(viewer.got, (0..20).collect::<Vec<_>>());
    assert!(world.now < Instant::from_ns(15 * NS_PER_S));
}

#[test]
fn a_producer_that_is_not_heard_any_more_is_given_up() {
    let mut world = World::new(1, 0);
    world.join(1000, true, 100, ConsumerConfig::default());
    for at in 0..20 {
        world.at_ms(2000 + 50 * at, Event::Make { is_last: false });
    }
    world.at_ms(4000, Event::Silence);
    world.run();
    let end = world.viewers[0].end.clone();
    assert_eq!(end, Some(Err(ConsumerError::Unanswered(object()))));
    assert!(world.now < Instant::from_ns(30 * NS_PER_S));
}

#[test]
fn who_was_told_of_the_version_notices_too_how_it_goes_on() {
    let ends = [Event::Silence, Event::Restart, Event::Make { is_last: true }];
    for event in ends {
        let mut world = World::new(1, 0);
        let metadata = Metadata { next_segment: Some(0), ..Metadata::new(versioned(1)) };
        world.join_with(1000, false, 100, ConsumerConfig::default(), Target::Known { metadata });
        for at in 0..20 {
            world.at_ms(2000 + 50 * at, Event::Make { is_last: false });
        }
        let expected = match event {
            Event::Silence => Err(ConsumerError::Unanswered(versioned(1))),
            Event::Restart => {
                let newer = versioned(2);
                Err(ConsumerError::Superseded { versioned: versioned(1), newer })
            }
            _ => Ok(()),
        };
        world.at_ms(4000, event);
        world.run();
        assert_eq!(world.viewers[0].end, Some(expected));
        assert_eq!(world.viewers[0].got[..20], (0..20).collect::<Vec<_>>());
        assert!(world.now < Instant::from_ns(30 * NS_PER_S));
    }
}

/// A consumer that has been told of an object that grows, has segment 4, and waits for the next.
fn waiting() -> (World, Vec<Packet>) {
    let mut world = World::new(1, 0);
    world.join(1000, true, 100, ConsumerConfig::default());
    for at in 0..5 {
        world.at_ms(500 + at, Event::Make { is_last: false });
    }
    world.at_ms(2000, Event::Silence);
    while world.now < Instant::from_ns(1_900 * NS_PER_MS) {
        let Some((&(at, _), _)) = world.events.first_key_value() else { break };
        world.now = world.now.max(at);
        let event = world.events.pop_first().unwrap().1;
        world.take(event);
        world.turn(0);
    }
    let asked = (5..7).map(|segment| {
        let name = versioned(1).append_segment(segment).clone();
        Packet::from(weir_wire::Interest::new(name).encode())
    });
    (world, asked.collect())
}

#[test]
fn refusals_of_what_is_not_made_shrink_no_window_and_end_it_in_the_end() {
    let (mut world, asked) = waiting();
    assert_eq!(world.viewers[0].got, [4]);
    assert_eq!(world.viewers[0].consumer.stats().outstanding, 2);
    let mut names = BTreeSet::new();
    for _ in 0..8 {
        for wire in &asked {
            let header = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
            let input = ConsumerInput::Packet { path: PATH, header, packet: wire.clone() };
            world.viewers[0].inputs.push(input);
            names.insert(wire.to_vec());
        }
        world.turn(0);
        world.now = world.now.plus_ns(NS_PER_S);
        world.turn(0);
    }
    let stats = world.viewers[0].consumer.stats();
    assert_eq!((stats.decreases, stats.losses, stats.timeouts), (0, 0, 0));
    let end = world.viewers[0].end.clone();
    let name = versioned(1).append_segment(5).clone();
    assert_eq!(end, Some(Err(ConsumerError::NoRoute(name))));
}
