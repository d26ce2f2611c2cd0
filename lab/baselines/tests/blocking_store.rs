//! A blocking store with disks in memory.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use proptest::prelude::*;
use weir_base::{FaceId, HashKey, Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_baselines::stores;
use weir_forward::{
    BusyPolicy, BusyStats, Bypass, Command, Driver, DropReason, FaceAttributes, FaceScope, Input,
    Mark, NextHop, OutPacket, Outbox, Router, RouterConfig,
};
use weir_plan::{DiskExperiments, StoreExperiments, StoreIo};
use weir_store::StoreConfig;
use weir_store::disk::{
    DiskFailure, DiskGeometry, DiskOp, DiskOpKind, DiskOutcome, DiskTierConfig, FilterKind,
    RecordFault, record,
};
use weir_wire::{Data, HopSignal, Interest, LpHeader, NackReason, tlv};

const KEY: HashKey = HashKey::new([11, 12]);
/// A program on this host.
const LOCAL: FaceId = FaceId(256);
/// Neighbours.
const U: FaceId = FaceId(258);
const V: FaceId = FaceId(259);
const CONSUMER_FACE: FaceId = FaceId(300);

const STORE_ID: u64 = 0x5157_0BE5;
const REGIONS: u32 = 8;
const REGION_BYTES: u64 = 64 << 10;
const DISK_OCTETS: usize = 4096 + REGIONS as usize * REGION_BYTES as usize;

fn checksum(octets: &[u8]) -> u32 {
    octets
        .iter()
        .fold(0x811C_9DC5, |sum, &octet| (sum ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}

/// The outcome of a successful operation.
fn carry_out(disk: &mut [u8], op: &DiskOp) -> DiskOutcome {
    match &op.kind {
        DiskOpKind::Write { offset, len, sequence, chunks: parts } => {
            let location =
                record::RecordLocation { store_id: STORE_ID, offset: *offset, sequence: *sequence };
            let (at, len) = (*offset as usize, *len as usize);
            record::encode_chunks(parts, &location, 512, checksum, &mut disk[at..at + len]);
            DiskOutcome::Written
        }
        &DiskOpKind::ReadRaw { offset, len } => {
            DiskOutcome::Raw(disk[offset as usize..][..len as usize].to_vec())
        }
        &DiskOpKind::ReadRecord { offset, len, sequence } => {
            let location = record::RecordLocation { store_id: STORE_ID, offset, sequence };
            let octets = &disk[offset as usize..][..len as usize];
            match record::parse_data(octets, &location, checksum) {
                Ok(found) => DiskOutcome::Record {
                    packet: Packet::from(found.body),
                    fresh_until_unix_ms: found.fresh_until_unix_ms,
                },
                Err(fault) => DiskOutcome::Damaged(fault),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketKind {
    Interest,
    Data,
    Nack,
}

fn kind(out: &OutPacket) -> PacketKind {
    match (out.header.nack, u32::from(out.packet[0])) {
        (Some(_), _) => PacketKind::Nack,
        (None, tlv::INTEREST) => PacketKind::Interest,
        (None, _) => PacketKind::Data,
    }
}

fn sent(packets: &[OutPacket]) -> Vec<(FaceId, PacketKind)> {
    packets.iter().map(|packet| (packet.face, kind(packet))).collect()
}

fn data(name: &str, freshness_ms: u64) -> Vec<u8> {
    let data = Data::new(name.parse().unwrap()).freshness_ms(freshness_ms);
    data.content("content").encode_with_digest()
}

fn interest(name: &str, nonce: u32) -> Interest {
    Interest::new(name.parse().unwrap()).lifetime_ms(4000).nonce(nonce)
}

fn busy(bypass: Bypass, mark: Mark) -> BusyPolicy {
    BusyPolicy { bypass, mark, ..BusyPolicy::default() }
}

/// A router with a blocking store, and its disks.
struct Fixture {
    router: Router,
    driver: Box<dyn Driver>,
    now: Instant,
    out: Outbox,
    disks: Vec<Vec<u8>>,
    /// Operations that the router submitted and that have not run yet.
    ops: VecDeque<DiskOp>,
    nonce: u32,
}

impl Fixture {
    /// No memory tier, so that all Data is on one disk, and a threshold of 2.
    fn new(busy: BusyPolicy, interests_max: u32) -> Self {
        Self::with(busy, interests_max, (0, 1), FilterKind::Bloom)
    }

    fn with(
        busy: BusyPolicy,
        interests_max: u32,
        (capacity_bytes, disks): (u64, usize),
        filter: FilterKind,
    ) -> Self {
        let geometry = DiskGeometry {
            data_offset: 4096,
            region_bytes: REGION_BYTES,
            block_bytes: 512,
            first: 0,
            stride: 1,
            regions: REGIONS,
            is_writable: true,
        };
        let disk = DiskTierConfig {
            bypass_threshold: 2,
            reads_max: 4,
            record_bytes_typical: 1024,
            filter,
            ..DiskTierConfig::new(vec![geometry; disks], STORE_ID, KEY, checksum)
        };
        let mut router = Router::new(
            Instant::ZERO,
            RouterConfig {
                hash_key: KEY,
                store: StoreConfig { capacity_bytes, ..StoreConfig::default() },
                disk: Some(disk),
                busy,
                ..RouterConfig::default()
            },
        );
        let experiments = DiskExperiments {
            io: StoreIo::Blocking,
            interests_waiting_max: interests_max,
            ..DiskExperiments::default()
        };
        let store = stores::extension(&StoreExperiments::default(), Some(&experiments));
        let mut fixture = Self {
            driver: store.unwrap().extend(&mut router).unwrap(),
            router,
            now: Instant::from_ns(NS_PER_MS),
            out: Outbox::default(),
            disks: vec![vec![0; DISK_OCTETS]; disks],
            ops: VecDeque::new(),
            nonce: 1_000_000,
        };
        for (face, scope) in [
            (LOCAL, FaceScope::Local),
            (FaceId(257), FaceScope::Local),
            (U, FaceScope::NonLocal),
            (V, FaceScope::NonLocal),
            (CONSUMER_FACE, FaceScope::NonLocal),
        ] {
            let attributes = FaceAttributes::point_to_point(scope);
            fixture.handle(Input::Command(Command::AddFace { face, attributes }));
        }
        fixture.settle();
        fixture
    }

    fn handle(&mut self, input: Input) -> Vec<OutPacket> {
        self.driver.handle(&mut self.router, self.now, &mut [input], &mut self.out);
        mem::take(&mut self.out.packets)
    }

    fn packet(&mut self, face: FaceId, wire: Vec<u8>) -> Vec<OutPacket> {
        let (header, packet) = (LpHeader::default(), Packet::from(wire));
        self.handle(Input::Packet { face, header, packet })
    }

    fn ask(&mut self, face: FaceId, name: &str, nonce: u32) -> Vec<OutPacket> {
        self.packet(face, interest(name, nonce).encode())
    }

    /// Sends a new Interest for `/d/seg=<segment>`.
    fn request_segment(&mut self, segment: u32) -> Vec<OutPacket> {
        self.nonce += 1;
        self.ask(CONSUMER_FACE, &format!("/d/seg={segment}"), self.nonce)
    }

    fn route(&mut self, prefix: &str, faces: &[FaceId]) {
        let hop = |(cost, &face)| NextHop { face, cost };
        let next_hops = (0..).zip(faces).map(hop).collect();
        let prefix = prefix.parse().unwrap();
        self.handle(Input::Command(Command::SetNextHops { prefix, next_hops }));
    }

    fn pass_ms(&mut self, ms: u64) -> Vec<OutPacket> {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.handle(Input::Wakeup)
    }

    fn collect(&mut self) {
        self.ops.extend(mem::take(&mut self.out.disk_ops));
    }

    /// Runs the oldest disk operation. Returns what the router then sends.
    fn step(&mut self) -> Vec<OutPacket> {
        self.collect();
        let op = self.ops.pop_front().expect("an operation waits");
        let outcome = carry_out(&mut self.disks[usize::from(op.disk)], &op);
        self.handle(Input::DiskDone { id: op.id, outcome })
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            self.pass_ms(1);
            self.collect();
            while !self.ops.is_empty() {
                self.step();
                self.collect();
            }
        }
    }

    /// Stores `/d/seg=0` and the following segments on disk.
    fn put_segments(&mut self, count: u32) {
        for segment in 0..count {
            let name = format!("/d/seg={segment}");
            self.route("/", &[U]);
            self.nonce += 1;
            self.ask(LOCAL, &name, self.nonce);
            assert_eq!(self.packet(U, data(&name, 1000)).len(), 1);
            self.route("/", &[]);
            self.settle();
        }
    }

    fn busy(&self) -> BusyStats {
        self.router.stats().busy
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.router.stats().drops[reason as usize]
    }
}

#[test]
fn interests_wait_behind_a_read() {
    let policy = busy(Bypass::Off, Mark::NbCc);
    let mut fixture = Fixture::with(policy, 4, (0, 1), FilterKind::Index);
    fixture.put_segments(3);
    fixture.route("/", &[U]);
    assert!(fixture.request_segment(0).is_empty());
    assert!(fixture.request_segment(1).is_empty());
    assert!(fixture.ask(V, "/miss", 1).is_empty(), "even for Data that is not stored");
    assert!(fixture.request_segment(2).is_empty());
    assert_eq!(fixture.busy().interests_waiting, 3);
    fixture.collect();
    assert_eq!(fixture.ops.len(), 1, "one read at a time");
    assert_eq!(fixture.packet(U, data("/d/seg=2", 0)).len(), 0, "Data does not wait");
    assert_eq!(fixture.drops(DropReason::Unsolicited), 1);
    // Over the limit, a Nack.
    assert!(fixture.ask(V, "/miss/2", 2).is_empty());
    let out = fixture.ask(V, "/miss/3", 3);
    assert_eq!(out[0].header.nack, Some(NackReason::Congestion));
    assert_eq!((fixture.busy().interests_refused, fixture.drops(DropReason::StoreBusy)), (1, 1));
    assert_eq!(sent(&fixture.step()), vec![(CONSUMER_FACE, PacketKind::Data)]);
    let in_order = vec![(CONSUMER_FACE, PacketKind::Data), (U, PacketKind::Interest)];
    assert_eq!(sent(&fixture.step()), in_order);
    assert_eq!(sent(&fixture.step()), in_order);
    assert_eq!((fixture.busy().interests_waiting, fixture.busy().interests_queued), (0, 4));
    assert_eq!(fixture.router.interests_waiting(), 0);
}

#[test]
fn filtered_out_interests_do_not_wait() {
    let mut fixture = Fixture::new(busy(Bypass::Off, Mark::NbCc), 4);
    fixture.put_segments(3);
    fixture.route("/", &[U]);
    assert!(fixture.request_segment(0).is_empty());
    assert_eq!(sent(&fixture.ask(V, "/miss", 1)), vec![(U, PacketKind::Interest)]);
    let prefix = interest("/miss", 2).can_be_prefix(true).encode();
    assert!(fixture.packet(V, prefix).is_empty(), "the filter knows no prefixes");
    assert!(fixture.request_segment(1).is_empty());
    assert_eq!(fixture.busy().interests_waiting, 2);
}

#[test]
fn interests_bypass_a_queue_over_the_threshold() {
    let mut fixture = Fixture::new(busy(Bypass::Threshold, Mark::NbCc), 100);
    fixture.put_segments(6);
    fixture.route("/d", &[U]);
    (0..3).for_each(|segment| assert!(fixture.request_segment(segment).is_empty()));
    assert_eq!(fixture.busy().interests_waiting, 2);
    assert_eq!(sent(&fixture.request_segment(3)), vec![(U, PacketKind::Interest)]);
    let signals = mem::take(&mut fixture.out.signals);
    assert_eq!(signals, vec![(CONSUMER_FACE, HopSignal::Unavailable { for_ms: 30 })]);
    let signal = HopSignal::Unavailable { for_ms: 1000 };
    fixture.handle(Input::Signal { face: U, signal });
    assert!(fixture.request_segment(4).is_empty(), "the next hop is busy, too");
    let marks: Vec<_> =
        (0..4).flat_map(|_| fixture.step()).map(|out| out.header.congestion_mark).collect();
    assert_eq!(marks, vec![0, 0, 0, 1]);
}

#[test]
fn data_of_interests_that_bypass_is_marked() {
    let mut fixture = Fixture::new(busy(Bypass::Threshold, Mark::Ecn), 8);
    fixture.put_segments(4);
    fixture.route("/d", &[U]);
    (0..3).for_each(|segment| assert!(fixture.request_segment(segment).is_empty()));
    assert_eq!(sent(&fixture.request_segment(3)), vec![(U, PacketKind::Interest)]);
    assert_eq!(fixture.packet(U, data("/d/seg=3", 0))[0].header.congestion_mark, 1);
    assert_eq!(fixture.busy().marked, 1);
}

/// An input of the router.
#[derive(Clone, Debug)]
enum FixtureStep {
    Interest { face: u64, name: u8, prefix: bool, fresh: bool },
    Data { face: u64, name: u8, freshness_ms: u64 },
    Nack { name: u8 },
    Disk { which: usize, fault: u8 },
    Label { face: u64, ms: u64 },
    Pass { ms: u64 },
}

fn any_step() -> impl Strategy<Value = FixtureStep> {
    let face = || 256..260_u64;
    prop_oneof![
        6 => (face(), 0..24_u8, any::<bool>(), any::<bool>()).prop_map(
            |(face, name, prefix, fresh)| FixtureStep::Interest { face, name, prefix, fresh }),
        4 => (face(), 0..24_u8, 0..50_u64)
            .prop_map(|(face, name, freshness_ms)| FixtureStep::Data { face, name, freshness_ms }),
        1 => (0..24_u8).prop_map(|name| FixtureStep::Nack { name }),
        6 => (0..8_usize, 0..12_u8).prop_map(|(which, fault)| FixtureStep::Disk { which, fault }),
        1 => (face(), 0..40_u64).prop_map(|(face, ms)| FixtureStep::Label { face, ms }),
        3 => (0..20_u64).prop_map(|ms| FixtureStep::Pass { ms }),
        1 => (0..5_000_u64).prop_map(|ms| FixtureStep::Pass { ms }),
    ]
}

fn name_of(number: u8) -> String {
    match number % 3 {
        0 => format!("/d/seg={}", number / 3),
        1 => format!("/d/{}", number / 3),
        _ => format!("/d/{}/x", number / 3),
    }
}

impl Fixture {
    fn apply(&mut self, happening: &FixtureStep) -> Vec<OutPacket> {
        match *happening {
            FixtureStep::Interest { face, name, prefix, fresh } => {
                self.nonce += 1;
                let interest = interest(&name_of(name), self.nonce);
                let interest = interest.can_be_prefix(prefix).must_be_fresh(fresh);
                self.packet(FaceId(face), interest.encode())
            }
            FixtureStep::Data { face, name, freshness_ms } => {
                self.packet(FaceId(face), data(&name_of(name), freshness_ms))
            }
            FixtureStep::Nack { name } => {
                let nack = Some(NackReason::Congestion);
                let header = LpHeader { nack, ..LpHeader::default() };
                let packet = Packet::from(interest(&name_of(name), self.nonce).encode());
                self.handle(Input::Packet { face: U, header, packet })
            }
            FixtureStep::Disk { which, fault } => {
                self.collect();
                let Some(op) = self.ops.remove(which) else { return Vec::new() };
                let outcome = match fault {
                    0 => DiskOutcome::Failed(DiskFailure::Io),
                    1 if matches!(op.kind, DiskOpKind::ReadRecord { .. }) => {
                        DiskOutcome::Damaged(RecordFault::Checksum)
                    }
                    _ => carry_out(&mut self.disks[usize::from(op.disk)], &op),
                };
                self.handle(Input::DiskDone { id: op.id, outcome })
            }
            FixtureStep::Label { face, ms } => {
                let signal = HopSignal::Unavailable { for_ms: ms };
                self.handle(Input::Signal { face: FaceId(face), signal })
            }
            FixtureStep::Pass { ms } => self.pass_ms(ms),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No face receives more Data and Nacks than it sent Interests, and nothing waits at the end.
    #[test]
    fn every_interest_ends(
        happenings in proptest::collection::vec(any_step(), 1..160),
        bypass in 0..3_usize,
        mark in 0..3_usize,
        capacity_bytes in prop_oneof![Just(0_u64), Just(4000)],
    ) {
        let bypass = [Bypass::Off, Bypass::Threshold, Bypass::Adaptive][bypass];
        let mark = [Mark::Off, Mark::Ecn, Mark::NbCc][mark];
        let mut fixture =
            Fixture::with(busy(bypass, mark), 8, (capacity_bytes, 2), FilterKind::Bloom);
        fixture.route("/d", &[U, V]);
        let mut credit = BTreeMap::<FaceId, i64>::new();
        let mut note = |happening: Option<&FixtureStep>, out: &[OutPacket]| {
            if let Some(FixtureStep::Interest { face, .. }) = happening {
                *credit.entry(FaceId(*face)).or_default() += 1;
            }
            for packet in out.iter().filter(|packet| kind(packet) != PacketKind::Interest) {
                let left = credit.entry(packet.face).or_default();
                *left -= 1;
                assert!(*left >= 0, "{} receives more than it requested", packet.face);
            }
        };
        for happening in &happenings {
            let out = fixture.apply(happening);
            note(Some(happening), &out);
        }
        fixture.collect();
        for _ in 0..1_000 {
            let out = if fixture.ops.is_empty() { fixture.pass_ms(50) } else { fixture.step() };
            note(None, &out);
            fixture.collect();
        }
        let stats = fixture.router.stats();
        prop_assert_eq!(stats.pit_entries, 0);
        prop_assert_eq!((stats.busy.interests_waiting, stats.store.disk.reads_waiting), (0, 0));
        let waits_end = stats.busy.answered + stats.busy.went_on + stats.busy.overtaken;
        prop_assert!(waits_end <= stats.busy.reads_begun);
        prop_assert_eq!(fixture.router.next_wakeup(), None);
        prop_assert!(fixture.now.as_ns() < 10_000 * NS_PER_S);
    }
}
