//! One shard, several shards, batches of any size, and single stages give the same result.

use alloc::collections::VecDeque;
use alloc::string::String;

use proptest::prelude::*;
use weir_base::HashKey;
use weir_store::disk::{DiskGeometry, DiskOp, DiskOpKind, DiskTierConfig};
use weir_wire::DataView;

use super::disks::{DISK_OCTETS, REGION_BYTES, REGIONS, STORE_ID, carry_out, checksum};
use super::*;
use crate::content::decision::ForwardingAction;
use crate::shard::shard_of_packet;
use crate::table::pit::AwaitedSource;
use crate::{
    BusyPolicy, Bypass, DataSource, InterestStep, Mark, ShardMessage, StoreCommand,
    UnsolicitedPolicy,
};

const KEY: HashKey = HashKey::new([3, 4]);

/// An input for a router. There are few names, faces and times, so that packets meet.
#[derive(Clone, Debug)]
enum InputEvent {
    Interest { face: u64, name: usize, kind: Kind, fresh: bool, nonce: u32, token: u8 },
    Data { face: u64, name: usize, freshness_ms: u64, token: Return },
    Route { prefix: usize, hops: u8 },
    Erase { prefix: usize, limit: usize },
    Disks,
    Pass { ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exact,
    Prefix,
    /// A name that ends in the digest of Data with this freshness.
    Digest(u64),
}

/// The PIT token of a Data.
#[derive(Clone, Copy, Debug)]
enum Return {
    Nothing,
    /// The token of the last Interest with exactly this name.
    Right,
    /// The token of the last Interest, with any name.
    Wrong,
}

fn event(names: usize) -> impl Strategy<Value = InputEvent> {
    let kind = prop_oneof![
        4 => Just(Kind::Exact),
        4 => Just(Kind::Prefix),
        1 => (0..3_u64).prop_map(Kind::Digest),
    ];
    let token = prop_oneof![Just(Return::Nothing), Just(Return::Right), Just(Return::Wrong)];
    let interest = (256..260_u64, 0..names, kind, any::<bool>(), 0..50_u32, 0..3_u8);
    prop_oneof![
        12 => interest.prop_map(|(face, name, kind, fresh, nonce, token)| {
            InputEvent::Interest { face, name, kind, fresh, nonce, token }
        }),
        10 => (256..260_u64, 0..names, 0..3_u64, token).prop_map(
            |(face, name, freshness, token)| InputEvent::Data {
                face,
                name,
                freshness_ms: freshness * 40,
                token,
            }
        ),
        1 => (0..names, 0..4_u8).prop_map(|(prefix, hops)| InputEvent::Route { prefix, hops }),
        1 => (0..names, 0..3_usize).prop_map(|(prefix, limit)| InputEvent::Erase { prefix, limit }),
        3 => Just(InputEvent::Disks),
        2 => (0..60_u64).prop_map(|ms| InputEvent::Pass { ms }),
        1 => (0..5000_u64).prop_map(|ms| InputEvent::Pass { ms }),
    ]
}

/// Objects with segments in several ranges, versions, and names of all lengths.
const NAMES: [&str; 18] = [
    "/a",
    "/a/v=1",
    "/a/v=1/seg=0",
    "/a/v=1/seg=1",
    "/a/v=1/seg=64",
    "/a/v=1/seg=200",
    "/a/v=2/seg=0",
    "/a/v=2/seg=70",
    "/b",
    "/b/x",
    "/b/x/y",
    "/b/z",
    "/b/x/y/seg=128",
    "/c",
    "/c/x/seg=3",
    "/c/x/seg=90",
    "/localhost/x",
    "/localhost/x/y",
];

/// Each prefix has Data of one name below it, because each shard chooses on its own among Data on
/// disks.
const FEW_NAMES: [&str; 9] =
    ["/a", "/a/x", "/b", "/b/x", "/b/x/y", "/c/seg=1", "/d/e/seg=70", "/d/e", "/e/f"];
const FEW_DATA: [&str; 5] = ["/a/x", "/b/x/y", "/c/seg=1", "/d/e/seg=70", "/e/f"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mode {
    has_disks: bool,
    unsolicited: UnsolicitedPolicy,
    data_source: DataSource,
}

const IN_MEMORY: Mode = Mode {
    has_disks: false,
    unsolicited: UnsolicitedPolicy::DropAll,
    data_source: DataSource::NextHops,
};

impl Mode {
    fn name(self, number: usize) -> &'static str {
        if self.has_disks { FEW_NAMES[number % FEW_NAMES.len()] } else { NAMES[number] }
    }

    fn data_name(self, number: usize) -> &'static str {
        if self.has_disks { FEW_DATA[number % FEW_DATA.len()] } else { NAMES[number] }
    }
}

fn config(shard: u16, shard_count: u16, mode: Mode) -> RouterConfig {
    let geometry = DiskGeometry {
        data_offset: 4096,
        region_bytes: REGION_BYTES,
        block_bytes: 512,
        first: 0,
        stride: 1,
        regions: REGIONS,
        is_writable: true,
    };
    let capacity_bytes = if mode.has_disks { 0 } else { 1 << 20 };
    let disk = DiskTierConfig {
        record_bytes_typical: 1024,
        write_delay_max_ns: 0,
        stalled_after_ns: 1 << 60,
        ..DiskTierConfig::new(vec![geometry], STORE_ID, KEY, checksum)
    };
    RouterConfig {
        shard,
        shard_count,
        hash_key: KEY,
        store: StoreConfig { capacity_bytes, ..StoreConfig::default() },
        disk: mode.has_disks.then_some(disk),
        busy: BusyPolicy { bypass: Bypass::Off, mark: Mark::Off, ..BusyPolicy::default() },
        unsolicited: mode.unsolicited,
        data_source: mode.data_source,
        ..RouterConfig::default()
    }
}

fn routes(fixture: &mut Fixture) {
    fixture.route("/a", &[(U, 0), (V, 1)]);
    fixture.route("/b", &[(V, 0)]);
    fixture.route("/c/x", &[(LOCAL, 0), (U, 1)]);
    fixture.route("/d", &[(V, 0), (U, 0)]);
    fixture.route("/localhost", &[(LOCAL, 0)]);
    fixture.strategy("/b", "/localhost/nfd/strategy/multicast");
}

/// A packet that left, without the token of Interests of several shards.
type Left = (FaceId, u8, Option<u64>, Vec<u8>, Vec<u8>);

fn left(packet: &OutPacket) -> Left {
    let token = match kind(packet) {
        PacketKind::Data => packet.header.pit_token.as_slice().to_vec(),
        PacketKind::Interest | PacketKind::Nack => Vec::new(),
    };
    let reason = packet.header.nack.map(|reason| reason.code());
    (packet.face, kind(packet) as u8, reason, token, packet.packet.to_vec())
}

/// All shards of a router, with the messages between them.
struct Cluster {
    shards: Vec<Fixture>,
    disks: Vec<Vec<u8>>,
    ops: VecDeque<(usize, DiskOp)>,
    messages: VecDeque<(usize, usize, ShardMessage)>,
    /// Packets that have left since the last check.
    left: Vec<OutPacket>,
    /// Names and tokens of Interests that left.
    asked: Vec<(Name, PitToken)>,
    erased: Vec<usize>,
    mode: Mode,
}

impl Cluster {
    fn new(count: u16, mode: Mode) -> Self {
        let new = |shard| Fixture::with_config(config(shard, count, mode));
        let mut cluster = Self {
            shards: (0..count).map(new).collect(),
            disks: vec![vec![0; DISK_OCTETS]; usize::from(count)],
            ops: VecDeque::new(),
            messages: VecDeque::new(),
            left: Vec::new(),
            asked: Vec::new(),
            erased: Vec::new(),
            mode,
        };
        cluster.shards.iter_mut().for_each(routes);
        (0..50).for_each(|_| cluster.pass_ms(1));
        cluster.work(true);
        cluster
    }

    /// Without best-route, in which each shard learns on its own which hops are silent.
    fn of_multicast(count: u16, mode: Mode) -> Self {
        let mut cluster = Self::new(count, mode);
        let multicast = "/localhost/nfd/strategy/multicast";
        cluster.shards.iter_mut().for_each(|fixture| fixture.strategy("/", multicast));
        cluster
    }

    fn count(&self) -> u16 {
        self.shards.len() as u16
    }

    /// Takes the output of a shard.
    fn collect(&mut self, shard: usize) {
        let out = core::mem::take(&mut self.shards[shard].out);
        for packet in &out.packets {
            if kind(packet) == PacketKind::Interest {
                let interest = InterestView::decode(&packet.packet).unwrap();
                self.asked.push((interest.name.to_name(), packet.header.pit_token));
            }
        }
        self.left.extend(out.packets);
        let messages = out.shard_messages.into_iter();
        self.messages.extend(messages.map(|(to, message)| (shard, usize::from(to), message)));
        self.ops.extend(out.disk_ops.into_iter().map(|op| (shard, op)));
        for event in out.events {
            if let Event::StoreErased { erased, .. } = event {
                self.erased.push(erased);
            }
        }
    }

    fn give(&mut self, shard: usize, input: Input) {
        let Fixture { router, now, out, .. } = &mut self.shards[shard];
        router.handle(*now, &mut [input], out);
        self.collect(shard);
    }

    fn deliver(&mut self, at: usize) {
        if let Some((from, to, message)) = self.messages.remove(at) {
            self.give(to, Input::Shard { from: from as u16, message });
        }
    }

    fn deliver_all(&mut self) {
        while !self.messages.is_empty() {
            self.deliver(0);
        }
    }

    fn command(&mut self, command: impl Fn() -> Command) {
        for shard in 0..self.shards.len() {
            self.give(shard, Input::Command(command()));
        }
    }

    fn pass_ms(&mut self, ms: u64) {
        for shard in 0..self.shards.len() {
            self.shards[shard].pass_ms(ms);
            self.collect(shard);
        }
    }

    /// Runs all disk operations, or all except the reads for Interests.
    fn work(&mut self, with_reads: bool) {
        self.deliver_all();
        let is_due = |op: &DiskOp| with_reads || !matches!(op.kind, DiskOpKind::ReadRecord { .. });
        while let Some(at) = self.ops.iter().position(|(_, op)| is_due(op)) {
            let (shard, op) = self.ops.remove(at).expect("it is there");
            let outcome = carry_out(&mut self.disks[shard], &op);
            self.give(shard, Input::DiskDone { id: op.id, outcome });
            self.deliver_all();
        }
    }

    fn packet(&self, event: &InputEvent) -> Option<(FaceId, LpHeader, Vec<u8>)> {
        match *event {
            InputEvent::Interest { face, name, kind, fresh, nonce, token } => {
                let mut ask = Ask::new(self.mode.name(name), nonce);
                if let Kind::Digest(freshness) = kind {
                    let wire = data(self.mode.name(name), freshness * 40);
                    let digest = DataView::decode(&wire).unwrap().implicit_digest();
                    ask.name.append_implicit_digest(digest);
                }
                ask.can_be_prefix = kind == Kind::Prefix;
                ask.must_be_fresh = fresh;
                let header = if token == 0 { LpHeader::default() } else { super::token(&[token]) };
                Some((FaceId(face), header, ask.wire()))
            }
            InputEvent::Data { face, name, freshness_ms, token } => {
                let uri = self.mode.data_name(name);
                let name: Name = uri.parse().unwrap();
                let mut asked = self.asked.iter().rev();
                let token = match token {
                    Return::Nothing => None,
                    Return::Right => asked.find(|(asked, _)| *asked == name),
                    Return::Wrong => asked.next(),
                };
                let pit_token = token.map_or(PitToken::default(), |(_, token)| *token);
                let header = LpHeader { pit_token, ..LpHeader::default() };
                Some((FaceId(face), header, data(uri, freshness_ms)))
            }
            _ => None,
        }
    }

    /// The caller delivers the messages.
    fn begin(&mut self, event: &InputEvent) {
        if let Some((face, header, wire)) = self.packet(event) {
            let shard = shard_of_packet(&KEY, &header, &wire, self.count()).unwrap();
            self.give(usize::from(shard), Input::Packet { face, header, packet: wire.into() });
        }
        match *event {
            InputEvent::Route { prefix, hops } => {
                let prefix: Name = self.mode.name(prefix).parse().unwrap();
                let hops: Vec<NextHop> = [(U, 1), (V, 2)]
                    .into_iter()
                    .filter(|(_, bit)| hops & bit != 0)
                    .map(|(face, bit)| NextHop { face, cost: u64::from(bit) })
                    .collect();
                self.command(|| Command::SetNextHops {
                    prefix: prefix.clone(),
                    next_hops: hops.clone(),
                });
            }
            InputEvent::Disks => self.work(true),
            InputEvent::Pass { ms } => {
                // A shard waits for its own disk without limit, and for that of another shard for 4
                // s.
                if ms >= 60 {
                    self.work(true);
                }
                self.pass_ms(ms);
            }
            InputEvent::Erase { prefix, limit } => self.erase(prefix, limit),
            InputEvent::Interest { .. } | InputEvent::Data { .. } => {}
        }
    }

    /// Erases shard by shard until the limit is reached, as the runtime does, then all the rest.
    /// What is erased first depends on the layout.
    fn erase(&mut self, prefix: usize, limit: usize) {
        let prefix: Name = self.mode.name(prefix).parse().unwrap();
        let mut counts = Vec::new();
        for limit in [limit, usize::MAX] {
            let mut erased = 0;
            for shard in 0..self.shards.len() {
                let (prefix, limit) = (prefix.clone(), limit - erased);
                let command = Command::EraseStore { transaction: 0, prefix, limit };
                self.give(shard, Input::Command(command));
                erased += self.erased.pop().expect("the erase is answered at once");
            }
            counts.push(erased);
        }
        self.erased.extend(counts);
    }

    fn take_left(&mut self) -> Vec<Left> {
        let mut all: Vec<Left> = self.left.drain(..).map(|packet| left(&packet)).collect();
        all.sort();
        all
    }
}

/// Runs the events on `count` shards. Returns the packets that left after each, and some counters.
fn run(count: u16, mode: Mode, events: &[InputEvent]) -> (Vec<Vec<Left>>, Vec<usize>) {
    let mut cluster = Cluster::of_multicast(count, mode);
    let prefixes: Vec<Name> =
        ["/", mode.name(0), mode.name(1)].map(|uri| uri.parse().unwrap()).into();
    cluster.command(|| Command::Store(StoreCommand::CountPrefixes(prefixes.clone())));
    let all = events.iter().map(|event| {
        cluster.begin(event);
        cluster.pass_ms(0);
        cluster.work(false);
        cluster.take_left()
    });
    let all = all.collect();
    for _ in 0..40 {
        cluster.pass_ms(1000);
        cluster.work(true);
    }
    let mut sums = [0; 9];
    for shard in &cluster.shards {
        let stats = shard.router.stats();
        assert_eq!(stats.pit_entries, 0);
        assert!(shard.router.content.watches.is_empty());
        let by_prefix =
            stats.store_prefixes.0.iter().fold((0, 0), |(hits, misses), (_, counts)| {
                (hits + counts.hits, misses + counts.misses)
            });
        assert_eq!(by_prefix, (stats.store.hits, stats.store.misses));
        let packets = [stats.in_interests, stats.in_data, stats.out_interests, stats.out_data];
        let store = [stats.store.hits, stats.store.misses, stats.store.insertions];
        let counts = packets.into_iter().chain(store).chain([stats.out_nacks, stats.aggregated]);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count as usize);
    }
    cluster.erased.extend(sums);
    (all, cluster.erased)
}

fn mode() -> impl Strategy<Value = Mode> {
    let policies = [
        UnsolicitedPolicy::DropAll,
        UnsolicitedPolicy::AdmitLocal,
        UnsolicitedPolicy::AdmitNetwork,
        UnsolicitedPolicy::AdmitAll,
    ];
    let sources = [DataSource::NextHops, DataSource::Any];
    (any::<bool>(), 0..policies.len(), 0..sources.len()).prop_map(
        move |(has_disks, policy, source)| Mode {
            has_disks,
            unsolicited: policies[policy],
            data_source: sources[source],
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn several_shards_behave_like_one(
        events in proptest::collection::vec(event(NAMES.len()), 1..100),
        count in 2..5_u16,
        mode in mode(),
    ) {
        let (one, one_erased) = run(1, mode, &events);
        let (all, all_erased) = run(count, mode, &events);
        for (at, event) in events.iter().enumerate() {
            prop_assert_eq!(&one[at], &all[at], "number {}: {:?}", at, event);
        }
        prop_assert_eq!(one_erased, all_erased);
    }

    /// Late or lost messages delay no Interest beyond the timeout.
    #[test]
    fn lost_messages_do_not_block_interests(
        events in
            proptest::collection::vec((event(NAMES.len()), 0..5_usize, 0..9_u8), 1..100),
        count in 2..5_u16,
    ) {
        let mut cluster = Cluster::new(count, IN_MEMORY);
        for (event, delivered, luck) in &events {
            cluster.begin(event);
            for _ in 0..*delivered {
                cluster.deliver(0);
            }
            if *luck == 0 {
                cluster.messages.pop_front();
            }
        }
        cluster.pass_ms(60);
        for shard in &cluster.shards {
            for (_, entry) in shard.router.tables.pit.iter() {
                prop_assert!(!matches!(entry.awaits, AwaitedSource::Shards(_)));
            }
        }
        cluster.deliver_all();
        cluster.pass_ms(5000);
        for shard in &mut cluster.shards {
            prop_assert_eq!(shard.router.stats().pit_entries, 0);
            prop_assert!(shard.router.content.watches.is_empty());
            prop_assert!(shard.router.next_wakeup().is_none());
        }
    }

    #[test]
    fn batches_behave_like_single_packets(
        events in proptest::collection::vec(event(NAMES.len()), 1..100),
    ) {
        let mut single = Cluster::new(1, IN_MEMORY);
        let mut batched = Cluster::new(1, IN_MEMORY);
        let packets = |cluster: &Cluster| -> Vec<Input> {
            let packets = events.iter().filter_map(|event| cluster.packet(event));
            packets
                .map(|(face, header, wire)| Input::Packet { face, header, packet: wire.into() })
                .collect()
        };
        let mut inputs = packets(&batched);
        let Fixture { router, now, out, .. } = &mut batched.shards[0];
        router.handle(*now, &mut inputs, out);
        batched.collect(0);
        for input in packets(&single) {
            single.give(0, input);
        }
        let left = |cluster: &Cluster| cluster.left.iter().map(left).collect::<Vec<_>>();
        prop_assert_eq!(left(&batched), left(&single));
    }

    #[test]
    fn stages_behave_like_the_whole_path(
        events in proptest::collection::vec(event(NAMES.len()), 1..100),
    ) {
        let mut staged = Cluster::of_multicast(1, IN_MEMORY);
        let mut all = Vec::new();
        for event in &events {
            match (event, staged.packet(event)) {
                (InputEvent::Interest { .. }, Some((face, header, wire))) => {
                    walk_stages(&mut staged.shards[0], face, &header, &wire.into());
                    staged.collect(0);
                }
                _ => staged.begin(event),
            }
            all.push(staged.take_left());
        }
        prop_assert_eq!(all, run(1, IN_MEMORY, &events).0);
    }
}

fn walk_stages(fixture: &mut Fixture, face: FaceId, header: &LpHeader, packet: &Packet) {
    let mut next = Some(InterestStep::Arrival);
    while let Some(step) = next {
        let arrival = (face, header, packet);
        next = fixture.router.handle_interest_step(fixture.now, step, arrival, &mut fixture.out);
    }
}

/// While an Interest waits for the FIB, its Data may arrive, or it may expire.
#[test]
fn answered_interest_is_not_forwarded() {
    for (data_comes, expected) in [(true, 1), (false, 0)] {
        // Data for an Interest that was not sent can only come from another face.
        let mode = Mode { data_source: DataSource::Any, ..IN_MEMORY };
        let mut fixture = Fixture::with_config(config(0, 1, mode));
        routes(&mut fixture);
        let header = LpHeader::default();
        let interest = Packet::from(Ask::new("/a/x", 7).wire());
        let arrival = (LOCAL, &header, &interest);
        let step = InterestStep::Pit(ForwardingAction::Forward);
        let next =
            fixture.router.handle_interest_step(fixture.now, step, arrival, &mut fixture.out);
        assert!(matches!(next, Some(InterestStep::Fib(ForwardingAction::Forward))));
        if data_comes {
            assert_eq!(fixture.answer(U, data("/a/x", 0)).len(), expected);
        } else {
            fixture.pass_ms(5000);
        }
        let step = InterestStep::Fib(ForwardingAction::Forward);
        let next =
            fixture.router.handle_interest_step(fixture.now, step, arrival, &mut fixture.out);
        assert!(next.is_none() && fixture.out.packets.is_empty());
    }
}

/// A prefix whose home is not the shard of the other name.
fn apart(prefix: &str, below: &str, count: u16) -> (Ask, String) {
    let shard = |wire: &[u8]| shard_of_packet(&KEY, &LpHeader::default(), wire, count).unwrap();
    let ask = Ask::new(prefix, 1).prefix();
    let home = shard(&ask.wire());
    let is_elsewhere = |uri: &String| shard(&data(uri, 0)) != home;
    let mut names = (0..100).map(|number| alloc::format!("{prefix}/{below}{number}"));
    (ask, names.find(is_elsewhere).expect("names are spread"))
}

/// Two Interests of one face for the same Data each get it if their tokens differ, and once if they
/// have none.
#[test]
fn data_is_sent_once_per_face_and_token() {
    for count in 1..4 {
        for (tokens, expected) in [([1, 2], 2), ([1, 1], 1), ([0, 0], 1)] {
            let mut cluster = Cluster::new(count, IN_MEMORY);
            for (uri, token) in [("/a", tokens[0]), ("/a/v=1", tokens[1])] {
                let name = NAMES.iter().position(|name| *name == uri).unwrap();
                let (kind, nonce) = (Kind::Prefix, u32::from(token) + name as u32);
                let ask =
                    InputEvent::Interest { face: 256, name, kind, fresh: false, nonce, token };
                cluster.begin(&ask);
                cluster.deliver_all();
            }
            cluster.take_left();
            let data =
                InputEvent::Data { face: 258, name: 4, freshness_ms: 0, token: Return::Wrong };
            cluster.begin(&data);
            cluster.deliver_all();
            assert_eq!(cluster.take_left().len(), expected, "{count} shards, {tokens:?}");
        }
    }
}

/// When other shards do not reply in time, the Interest continues.
#[test]
fn continues_without_silent_shard() {
    let mut cluster = Cluster::new(2, IN_MEMORY);
    let (ask, below) = apart("/a", "x", 2);
    let home = usize::from(shard_of_packet(&KEY, &LpHeader::default(), &ask.wire(), 2).unwrap());
    cluster.give(home, arrival(LOCAL, ask.wire()));
    assert!(cluster.take_left().is_empty(), "it asks first");
    cluster.messages.clear();
    let wakeup = cluster.shards[home].router.next_wakeup().unwrap();
    assert!(wakeup <= cluster.shards[home].now.plus_ns(50 * NS_PER_MS));
    cluster.pass_ms(50);
    let left = cluster.take_left();
    assert_eq!((left.len(), left[0].0), (1, U));
    assert_eq!(cluster.shards[home].router.stats().shard_timeouts, 1);
    // With the retransmission, the other shard watches after all.
    cluster.pass_ms(20);
    cluster.give(home, arrival(LOCAL, Ask { nonce: Some(9), ..ask }.wire()));
    cluster.deliver_all();
    cluster.take_left();
    cluster.give(1 - home, arrival(U, data(&below, 0)));
    cluster.deliver_all();
    let left = cluster.take_left();
    assert_eq!((left.len(), left[0].0), (1, LOCAL));
}

/// A cluster of two shards with an Interest with CanBePrefix for `prefix` and its home. The other
/// shard has Data below `prefix`.
fn with_data_elsewhere(prefix: &str) -> (Cluster, Ask, usize) {
    let mode = Mode { unsolicited: UnsolicitedPolicy::AdmitLocal, ..IN_MEMORY };
    let mut cluster = Cluster::new(2, mode);
    let (ask, below) = apart(prefix, "x", 2);
    let home = usize::from(shard_of_packet(&KEY, &LpHeader::default(), &ask.wire(), 2).unwrap());
    cluster.give(1 - home, arrival(LOCAL2, data(&below, 100)));
    (cluster, ask.fresh(), home)
}

fn arrival(face: FaceId, wire: Vec<u8>) -> Input {
    Input::Packet { face, header: LpHeader::default(), packet: wire.into() }
}

/// While an Interest waits for other shards, its face may be replaced by one that leads to another
/// host.
#[test]
fn other_shards_answers_respect_scope() {
    for (scope, expected) in [(FaceScope::Local, 1), (FaceScope::NonLocal, 0)] {
        let (mut cluster, ask, home) = with_data_elsewhere("/localhost");
        cluster.give(home, arrival(LOCAL, ask.wire()));
        let attributes = FaceAttributes::point_to_point(scope);
        cluster.command(|| Command::AddFace { face: LOCAL, attributes });
        cluster.deliver_all();
        assert_eq!(cluster.take_left().len(), expected);
        assert_eq!(cluster.shards[home].drops(DropReason::Scope), 1 - expected as u64);
    }
}

/// An Interest that went upstream while other shards were asked may return in a loop.
#[test]
fn answered_nonces_become_dead() {
    let (mut cluster, ask, home) = with_data_elsewhere("/a");
    cluster.give(home, arrival(LOCAL, ask.wire()));
    cluster.pass_ms(20);
    let again = Ask { nonce: Some(2), ..ask };
    cluster.give(home, arrival(LOCAL, again.wire()));
    let upstream = cluster.take_left();
    assert_eq!((upstream.len(), upstream[0].0), (1, U));
    cluster.deliver_all();
    let left = cluster.take_left();
    assert_eq!((left.len(), left[0].0), (1, LOCAL));
    cluster.give(home, arrival(V, again.wire()));
    assert_eq!(cluster.take_left()[0].2, Some(NackReason::Duplicate.code()));
}

/// An attacker closes its face at once. The home of the prefix no longer knows the face when the
/// Data is offered.
#[test]
fn data_of_closed_face_is_refused() {
    let mut cluster = Cluster::new(2, IN_MEMORY);
    let (ask, below) = apart("/a", "x", 2);
    let home = usize::from(shard_of_packet(&KEY, &LpHeader::default(), &ask.wire(), 2).unwrap());
    cluster.give(home, arrival(LOCAL, ask.wire()));
    cluster.deliver_all();
    assert_eq!(cluster.take_left()[0].0, U);
    cluster.give(1 - home, arrival(V, data(&below, 1000)));
    cluster.command(|| Command::RemoveFace { face: V });
    cluster.deliver_all();
    assert!(cluster.take_left().is_empty());
    assert_eq!(cluster.shards[1 - home].router.stats().store.entries, 0);
}
