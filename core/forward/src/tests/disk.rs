//! Interests for Data on disks. The disks are byte vectors in memory.

mod random;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use proptest::prelude::*;
use weir_base::{HashKey, NS_PER_S};
use weir_store::disk::{
    DiskFailure, DiskGeometry, DiskOp, DiskOpKind, DiskOutcome, DiskTierConfig, RecordFault,
};
use weir_wire::HopSignal;

use super::disks::{DISK_OCTETS, REGION_BYTES, REGIONS, STORE_ID, carry_out, checksum};
use super::*;
use crate::{BusyPolicy, BusyStats, Bypass, Mark, StoreCommand};

const KEY: HashKey = HashKey::new([11, 12]);
const ASKER: FaceId = FaceId(300);

/// A router over one or more disks.
struct DiskFixture {
    fixture: Fixture,
    disks: Vec<Vec<u8>>,
    /// Disk operations that are not done yet.
    ops: VecDeque<DiskOp>,
    nonce: u32,
}

impl core::ops::Deref for DiskFixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl core::ops::DerefMut for DiskFixture {
    fn deref_mut(&mut self) -> &mut Fixture {
        &mut self.fixture
    }
}

impl DiskFixture {
    /// A store without memory, so all Data is on disk, with a threshold of 2 and at most 4 reads.
    fn new(busy: BusyPolicy) -> Self {
        Self::with(busy, 0, 1, |_| {})
    }

    fn with(
        busy: BusyPolicy,
        capacity_bytes: u64,
        disks: usize,
        change: impl FnOnce(&mut DiskTierConfig),
    ) -> Self {
        let mut fixture = Self::start(
            Self::config(busy, capacity_bytes, disks, change),
            vec![vec![0; DISK_OCTETS]; disks],
        );
        fixture.settle();
        fixture
    }

    fn config(
        busy: BusyPolicy,
        capacity_bytes: u64,
        disks: usize,
        change: impl FnOnce(&mut DiskTierConfig),
    ) -> RouterConfig {
        let geometry = DiskGeometry {
            data_offset: 4096,
            region_bytes: REGION_BYTES,
            block_bytes: 512,
            first: 0,
            stride: 1,
            regions: REGIONS,
            is_writable: true,
        };
        let mut disk = DiskTierConfig {
            bypass_threshold: 2,
            reads_max: 4,
            record_bytes_typical: 1024,
            ..DiskTierConfig::new(vec![geometry; disks], STORE_ID, KEY, checksum)
        };
        change(&mut disk);
        RouterConfig {
            hash_key: KEY,
            store: StoreConfig { capacity_bytes, ..StoreConfig::default() },
            disk: Some(disk),
            busy,
            ..RouterConfig::default()
        }
    }

    /// A router that recovers the index of its disks.
    fn start(config: RouterConfig, disks: Vec<Vec<u8>>) -> Self {
        let mut fixture = Self {
            fixture: Fixture::with_config(config),
            disks,
            ops: VecDeque::new(),
            nonce: 1_000_000,
        };
        fixture.command(Command::AddFace {
            face: ASKER,
            attributes: FaceAttributes::point_to_point(FaceScope::NonLocal),
        });
        fixture
    }

    fn collect(&mut self) {
        let ops = core::mem::take(&mut self.fixture.out.disk_ops);
        self.ops.extend(ops);
    }

    /// The result of an operation that succeeds.
    fn carry_out(&mut self, op: &DiskOp) -> DiskOutcome {
        carry_out(&mut self.disks[usize::from(op.disk)], op)
    }

    fn done(&mut self, op: DiskOp, outcome: DiskOutcome) {
        let mut inputs = [Input::DiskDone { id: op.id, outcome }];
        self.fixture.handle(&mut inputs);
    }

    /// Runs the oldest operation. Returns the packets that leave.
    fn step(&mut self) -> Vec<OutPacket> {
        self.collect();
        let op = self.ops.pop_front().expect("an operation waits");
        let outcome = self.carry_out(&op);
        self.done(op, outcome);
        self.take()
    }

    /// Ends the oldest operation with `outcome`. Returns the packets that leave.
    fn fail(&mut self, outcome: DiskOutcome) -> Vec<OutPacket> {
        self.collect();
        let op = self.ops.pop_front().expect("an operation waits");
        self.done(op, outcome);
        self.take()
    }

    /// Advances the time and runs disk operations until nothing is left to do.
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

    fn put(&mut self, name: &str, freshness_ms: u64) {
        self.route("/", &[(U, 0)]);
        self.nonce += 1;
        let ask = Ask::new(name, self.nonce);
        self.ask(LOCAL, &ask);
        let out = self.answer(U, data(name, freshness_ms));
        assert_eq!(out.len(), 1);
        self.route("/", &[]);
        self.settle();
    }

    fn busy(&self) -> BusyStats {
        self.router.stats().busy
    }

    /// Sends a new Interest for `/d/seg=<segment>`.
    fn request(&mut self, segment: u32) -> Vec<OutPacket> {
        self.nonce += 1;
        let ask = Ask::new(&format!("/d/seg={segment}"), self.nonce);
        self.ask(ASKER, &ask)
    }

    fn put_segments(&mut self, count: u32) {
        (0..count).for_each(|segment| self.put(&format!("/d/seg={segment}"), 1000));
    }
}

fn policy(bypass: Bypass, mark: Mark) -> BusyPolicy {
    BusyPolicy { bypass, mark, ..BusyPolicy::default() }
}

fn uri(packet: &OutPacket) -> String {
    format!("{}", weir_wire::DataView::decode(&packet.packet).unwrap().name)
}

#[test]
fn one_read_answers_all_waiting_entries() {
    let mut fixture = DiskFixture::new(policy(Bypass::Off, Mark::Off));
    fixture.put("/a/b/seg=1", 60_000);
    let wire = data("/a/b/seg=1", 60_000);
    let digest = weir_wire::DataView::decode(&wire).unwrap().implicit_digest();
    let mut full_name: Name = "/a/b/seg=1".parse().unwrap();
    full_name.append_implicit_digest(digest);
    assert!(fixture.packet(LOCAL, token(&[1]), Ask::new("/a/b/seg=1", 1).wire()).is_empty());
    assert!(fixture.packet(V, token(&[2]), Ask::new("/a/b/seg=1", 2).wire()).is_empty());
    assert!(fixture.ask(LOCAL2, &Ask::new("/a", 3).prefix().fresh()).is_empty());
    assert!(fixture.ask(U, &Ask { name: full_name, ..Ask::new("/a", 4) }).is_empty());
    fixture.collect();
    assert_eq!(fixture.ops.len(), 1, "one read for all");
    let out = fixture.step();
    let faces: Vec<FaceId> = out.iter().map(|packet| packet.face).collect();
    assert_eq!(faces, vec![LOCAL, LOCAL2, U, V]);
    assert_eq!(out[3].header.pit_token.as_slice(), &[2]);
    assert!(out.iter().all(|packet| *packet.packet == wire));
    assert_eq!(out[0].header.incoming_face, Some(FaceId::CONTENT_STORE.0));
    let stats = fixture.router.stats();
    assert_eq!((stats.pit_entries, stats.busy.reads_begun, stats.busy.reads_joined), (0, 3, 1));
    assert_eq!((stats.busy.answered, stats.unsatisfied), (3, 0));
    assert_eq!(stats.disk_bytes, 4 * wire.len() as u64);
    // `put` brought the Data over the next hop.
    assert_eq!((stats.memory_bytes, stats.next_hop_bytes), (0, wire.len() as u64));
    assert_eq!(stats.busy.read_latency.count(), 3);
}

#[test]
fn no_nack_without_route_during_recovery() {
    let config = || DiskFixture::config(BusyPolicy::default(), 0, 1, |_| {});
    let mut before = DiskFixture::start(config(), vec![vec![0; DISK_OCTETS]]);
    before.settle();
    before.put_segments(1);
    let mut router = DiskFixture::start(config(), before.disks);
    assert!(router.request(0).is_empty(), "a disk may have the Data");
    assert_eq!(router.router.stats().unsatisfied, 1);
    router.settle();
    assert!(router.request(0).is_empty(), "a read begins");
    assert_eq!(uri(&router.step()[0]), "/d/seg=0");
    assert_eq!(router.request(1)[0].header.nack, Some(NackReason::NoRoute));
}

#[test]
fn upstream_nack_stops_during_recovery() {
    let config = || DiskFixture::config(BusyPolicy::default(), 0, 1, |_| {});
    let mut before = DiskFixture::start(config(), vec![vec![0; DISK_OCTETS]]);
    before.settle();
    before.put_segments(1);
    let mut router = DiskFixture::start(config(), before.disks);
    router.route("/d", &[(U, 0)]);
    let out = router.request(0);
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
    assert!(router.nack(U, NackReason::NoRoute, &out[0].packet).is_empty());
    assert_eq!(router.router.stats().unsatisfied, 1);
    router.settle();
    assert!(router.request(0).is_empty(), "a read begins");
    assert_eq!(uri(&router.step()[0]), "/d/seg=0");
}

#[test]
fn read_data_is_promoted_to_memory() {
    let mut fixture = DiskFixture::with(policy(Bypass::Off, Mark::Off), 3000, 1, |_| {});
    fixture.put_segments(20);
    assert!(fixture.request(0).is_empty(), "on disk");
    let out = fixture.step();
    assert_eq!((out.len(), uri(&out[0])), (1, "/d/seg=0".into()));
    let out = fixture.request(0);
    assert_eq!((out.len(), uri(&out[0])), (1, "/d/seg=0".into()));
}

#[test]
fn failed_read_is_forwarded_to_next_hop() {
    let outcomes = [
        DiskOutcome::Damaged(RecordFault::Checksum),
        DiskOutcome::Failed(DiskFailure::Io),
        DiskOutcome::Record { packet: Packet::from(vec![6, 1]), fresh_until_unix_ms: 0 },
        DiskOutcome::Record { packet: data("/d/seg=9", 0).into(), fresh_until_unix_ms: 0 },
    ];
    for outcome in outcomes {
        let mut fixture = DiskFixture::new(BusyPolicy::default());
        fixture.put_segments(1);
        fixture.route("/d", &[(U, 0)]);
        assert!(fixture.request(0).is_empty());
        let out = fixture.fail(outcome);
        assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
        assert_eq!((fixture.busy().went_on, fixture.busy().answered), (1, 0));
        let out = fixture.answer(U, data("/d/seg=0", 0));
        assert_eq!(sent(&out), vec![(ASKER, PacketKind::Data)]);
        assert_eq!(fixture.router.stats().pit_entries, 0);
    }
    // Without a next hop, downstreams get a Nack.
    let mut fixture = DiskFixture::new(BusyPolicy::default());
    fixture.put_segments(1);
    fixture.request(0);
    let out = fixture.fail(DiskOutcome::Failed(DiskFailure::Io));
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    assert_eq!(fixture.router.stats().pit_entries, 0);
}

#[test]
fn stale_read_answers_only_without_must_be_fresh() {
    let mut fixture = DiskFixture::new(BusyPolicy::default());
    fixture.put("/d/seg=0", 10);
    fixture.route("/d", &[(U, 0)]);
    assert!(fixture.ask(LOCAL, &Ask::new("/d/seg=0", 1).fresh()).is_empty(), "who knows");
    assert!(fixture.ask(LOCAL2, &Ask::new("/d/seg=0", 2)).is_empty());
    let out = fixture.step();
    let kinds = vec![(LOCAL2, PacketKind::Data), (U, PacketKind::Interest)];
    assert_eq!(sent(&out), kinds);
    assert_eq!((fixture.busy().answered, fixture.busy().went_on), (1, 1));
    assert_eq!(fixture.busy().reads_malformed, 0);
}

#[test]
fn retransmission_goes_upstream_during_read() {
    let mut fixture = DiskFixture::new(BusyPolicy::default());
    fixture.put_segments(1);
    fixture.route("/d", &[(U, 0)]);
    assert!(fixture.request(0).is_empty());
    fixture.pass_ms(5);
    assert!(fixture.request(0).is_empty(), "too soon");
    assert_eq!(fixture.drops(DropReason::Suppressed), 1);
    fixture.pass_ms(6);
    assert_eq!(sent(&fixture.request(0)), vec![(U, PacketKind::Interest)]);
    assert_eq!(fixture.busy().hedged, 1);
    fixture.collect();
    assert_eq!(fixture.ops.len(), 1, "the read in progress");
    let out = fixture.answer(U, data("/d/seg=0", 1000));
    assert_eq!(sent(&out), vec![(ASKER, PacketKind::Data)]);
    assert_eq!((fixture.busy().overtaken, fixture.router.stats().satisfied), (1, 2));
    assert!(fixture.step().is_empty(), "too late");
    assert_eq!(fixture.busy().reads_late, 1);
    // The other way round, the answer from upstream finds no entry.
    fixture.request(0);
    fixture.pass_ms(11);
    assert_eq!(fixture.request(0).len(), 1);
    assert_eq!(sent(&fixture.step()), vec![(ASKER, PacketKind::Data)]);
    assert!(fixture.answer(U, data("/d/seg=0", 1000)).is_empty());
}

#[test]
fn retransmission_without_hop_waits_for_disk() {
    let mut fixture = DiskFixture::new(BusyPolicy::default());
    fixture.put_segments(1);
    assert!(fixture.request(0).is_empty());
    fixture.pass_ms(11);
    assert!(fixture.request(0).is_empty(), "a Nack does not end the wait for a disk");
    assert_eq!((fixture.busy().hedged, fixture.drops(DropReason::Suppressed)), (0, 1));
    assert_eq!(sent(&fixture.step()), vec![(ASKER, PacketKind::Data)]);
}

#[test]
fn upstream_nack_does_not_end_disk_wait() {
    for is_read in [true, false] {
        let mut fixture = DiskFixture::new(BusyPolicy::default());
        fixture.put_segments(1);
        fixture.route("/d", &[(U, 0)]);
        fixture.request(0);
        fixture.pass_ms(11);
        let out = fixture.request(0);
        assert!(fixture.nack(U, NackReason::NoRoute, &out[0].packet).is_empty());
        let out = match is_read {
            true => fixture.step(),
            false => fixture.fail(DiskOutcome::Failed(DiskFailure::Io)),
        };
        let kind = if is_read { PacketKind::Data } else { PacketKind::Nack };
        assert_eq!(sent(&out), vec![(ASKER, kind)]);
        assert_eq!(fixture.router.stats().pit_entries, 0);
    }
}

#[test]
fn expired_downstream_gets_no_disk_data() {
    let mut fixture = DiskFixture::new(policy(Bypass::Off, Mark::Off));
    fixture.put_segments(2);
    fixture.request(0);
    fixture.pass_ms(4_200);
    assert_eq!((fixture.router.stats().pit_entries, fixture.busy().overtaken), (0, 1));
    // Another Interest uses the slot in the PIT.
    fixture.route("/x", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/x", 5));
    assert!(fixture.step().is_empty());
    assert_eq!(fixture.router.stats().pit_entries, 1);
}

#[test]
fn bypasses_disk_over_threshold() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::NbCc));
    fixture.put_segments(6);
    fixture.route("/d", &[(U, 0), (V, 1)]);
    assert!(fixture.request(0).is_empty() && fixture.request(1).is_empty(), "below");
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
    assert_eq!((fixture.busy().bypassed_queue_full, fixture.busy().reads_begun), (1, 2));
    // The best hop has no room, so the next one is used.
    fixture.fixture.handle(&mut [label(U, 30)]);
    assert_eq!(sent(&fixture.request(3)), vec![(V, PacketKind::Interest)]);
    // No hop has room: the Interest waits, and its Data is marked.
    fixture.fixture.handle(&mut [label(V, 30)]);
    assert!(fixture.request(4).is_empty());
    assert_eq!(fixture.busy().waited_over_threshold, 1);
    // Above the limit of reads, a Nack is sent.
    assert!(fixture.request(5).is_empty());
    fixture.put_aside();
    let out = fixture.request(0);
    assert!(out.is_empty(), "joins");
    let marks: Vec<_> =
        (0..4).flat_map(|_| fixture.step()).map(|out| out.header.congestion_mark).collect();
    assert_eq!(marks, vec![0, 0, 1, 1]);
    assert_eq!(fixture.busy().marked, 2);
    let out = fixture.answer(U, data("/d/seg=2", 0));
    assert_eq!(sent(&out), vec![(ASKER, PacketKind::Data)]);
    assert_eq!(fixture.busy().bypass_latency.count(), 1);
    // The label of U is withdrawn, and that of V expires.
    fixture.request(0);
    fixture.request(1);
    fixture.fixture.handle(&mut [label(U, 0)]);
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
    fixture.fixture.handle(&mut [label(U, 1000)]);
    fixture.pass_ms(31);
    assert_eq!(sent(&fixture.request(4)), vec![(V, PacketKind::Interest)]);
}

impl DiskFixture {
    /// Operations that wait for a disk are kept there.
    fn put_aside(&mut self) {
        self.collect();
    }
}

#[test]
fn returns_to_disk_when_next_hop_fails() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::Off));
    fixture.put_segments(6);
    fixture.route("/d", &[(U, 0)]);
    assert!(fixture.request(0).is_empty() && fixture.request(1).is_empty());
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
    let passed = fixture.request(3);
    assert_eq!(sent(&passed), vec![(U, PacketKind::Interest)]);
    // The first is not answered, and the second is refused.
    fixture.pass_ms(20);
    assert!(fixture.request(2).is_empty());
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    let input = Input::Packet { face: U, header: nack, packet: passed[0].packet.clone() };
    fixture.fixture.handle(&mut [input]);
    assert_eq!(fixture.busy().came_back, 2);
    let answers: Vec<_> = (0..4).flat_map(|_| fixture.step()).collect();
    assert_eq!(sent(&answers), vec![(ASKER, PacketKind::Data); 4]);
    assert_eq!(fixture.router.stats().pit_entries, 0);
}

#[test]
fn full_read_queue_sends_nack() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::NbCc));
    fixture.put_segments(6);
    let prefixes = vec!["/d".parse().unwrap()];
    fixture.command(Command::Store(StoreCommand::CountPrefixes(prefixes)));
    let misses = fixture.router.stats().store.misses;
    for segment in 0..4 {
        assert!(fixture.request(segment).is_empty());
    }
    let out = fixture.request(4);
    let stats = fixture.router.stats();
    let counts = stats.store_prefixes.0[0].1;
    assert_eq!((stats.store.misses - misses, counts.hits, counts.misses), (1, 4, 1));
    assert_eq!(out[0].header.nack, Some(NackReason::Congestion));
    assert_eq!((fixture.busy().reads_refused, fixture.drops(DropReason::DiskBusy)), (1, 1));
    assert_eq!(fixture.router.stats().pit_entries, 4);
    fixture.step();
    assert!(fixture.request(4).is_empty(), "there is room again");
}

#[test]
fn ecn_marks_by_queue_length() {
    let mut fixture = DiskFixture::new(policy(Bypass::Off, Mark::Ecn));
    fixture.put_segments(4);
    (0..4).for_each(|segment| assert!(fixture.request(segment).is_empty()));
    let marks: Vec<_> = (0..4).map(|_| fixture.step()[0].header.congestion_mark).collect();
    assert_eq!(marks, vec![0, 0, 1, 1], "the last two found 2 and 3 before them");
}

/// Regression: marks depended on the queue that a read left behind, and bypassing Interests never
/// got one. So with a bypass nearly no Data was marked.
#[test]
fn ecn_marks_data_of_bypassing_interests() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::Ecn));
    fixture.put_segments(4);
    fixture.route("/d", &[(U, 0)]);
    (0..2).for_each(|segment| assert!(fixture.request(segment).is_empty()));
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
    let marks: Vec<_> = (0..2).map(|_| fixture.step()[0].header.congestion_mark).collect();
    assert_eq!(marks, vec![0, 0], "they found less than 2");
    assert_eq!(fixture.answer(U, data("/d/seg=2", 0))[0].header.congestion_mark, 1);
    assert_eq!(fixture.busy().marked, 1);
}

#[test]
fn stalled_disk_releases_waiting_interests() {
    let mut fixture = DiskFixture::new(policy(Bypass::Off, Mark::Off));
    fixture.put_segments(3);
    fixture.route("/d", &[(U, 0)]);
    fixture.request(0);
    fixture.request(1);
    fixture.collect();
    fixture.pass_ms(600);
    let out = fixture.take();
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest), (U, PacketKind::Interest)]);
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
    assert_eq!((fixture.busy().went_on, fixture.busy().bypassed_stalled), (2, 1));
    assert_eq!(fixture.router.stats().store.disk.stalled_set, 1);
    // The disk responds again: late reads only fill the store.
    while !fixture.ops.is_empty() {
        assert!(sent(&fixture.step()).iter().all(|&(_, kind)| kind == PacketKind::Data));
        fixture.collect();
    }
    assert_eq!(fixture.router.stats().store.disk.stalled_set, 0);
}

fn label(face: FaceId, for_ms: u64) -> Input {
    Input::Signal { face, signal: HopSignal::Unavailable { for_ms } }
}

fn announcements(fixture: &mut DiskFixture) -> Vec<(FaceId, u64)> {
    let said = core::mem::take(&mut fixture.fixture.out.signals);
    said.into_iter().map(|(face, HopSignal::Unavailable { for_ms })| (face, for_ms)).collect()
}

#[test]
fn signals_neighbours_over_threshold() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::NbCc));
    fixture.put_segments(4);
    fixture.ask(LOCAL, &Ask::new("/d/seg=0", 1));
    fixture.request(1);
    assert_eq!(
        announcements(&mut fixture),
        vec![(ASKER, 30)],
        "over the threshold with two; programs get no signal"
    );
    fixture.request(2);
    assert_eq!(announcements(&mut fixture), vec![], "once a period");
    fixture.pass_ms(10);
    assert_eq!(announcements(&mut fixture), vec![(ASKER, 30)]);
    (0..3).for_each(|_| drop(fixture.step()));
    assert_eq!(announcements(&mut fixture), vec![], "not before the period is over");
    for repeats in [1, 1, 0, 0] {
        fixture.pass_ms(10);
        assert_eq!(announcements(&mut fixture), vec![(ASKER, 0); repeats]);
    }
    assert_eq!(fixture.router.next_wakeup(), None, "no signal is left to send");
    // A neighbour that has sent no Interest for long gets no signal.
    fixture.pass_ms(2_000);
    fixture.ask(LOCAL, &Ask::new("/d/seg=0", 2));
    fixture.ask(LOCAL, &Ask::new("/d/seg=1", 3));
    assert_eq!(announcements(&mut fixture), vec![]);
    assert_eq!((fixture.busy().busy_sent, fixture.busy().available_sent), (2, 2));
    // Plain marking sends no signals.
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::Ecn));
    fixture.put_segments(4);
    (0..4).for_each(|segment| drop(fixture.request(segment)));
    fixture.pass_ms(10);
    assert_eq!(announcements(&mut fixture), vec![]);
}

#[test]
fn adaptive_uses_threshold_before_measurements() {
    let mut fixture = DiskFixture::with(policy(Bypass::Adaptive, Mark::Off), 0, 1, |disk| {
        disk.reads_max = 64;
    });
    fixture.put_segments(40);
    fixture.route("/d", &[(U, 0)]);
    assert_eq!(sent(&fixture.request(0)), vec![(U, PacketKind::Interest)], "tried once");
    assert!(fixture.request(1).is_empty() && fixture.request(2).is_empty());
    assert_eq!(fixture.request(3).len(), 1, "without measurements, the threshold decides");
    assert_eq!((fixture.busy().bypassed_probe, fixture.busy().bypassed_slower), (1, 1));
    // The disk takes 10 ms, the next hop 1 ms.
    fixture.pass_ms(1);
    fixture.answer(U, data("/d/seg=0", 0));
    fixture.answer(U, data("/d/seg=3", 0));
    fixture.pass_ms(9);
    fixture.step();
    fixture.step();
    let before = fixture.busy().reads_begun;
    for segment in 4..20 {
        let out = fixture.request(segment);
        fixture.pass_ms(1);
        for packet in out {
            let name = InterestView::decode(&packet.packet).unwrap().name;
            let name = format!("{name}");
            fixture.answer(U, data(&name, 0));
        }
    }
    assert!(fixture.busy().reads_begun - before <= 1, "{:?}", fixture.busy());
}

#[test]
fn stalled_disk_without_hop_sends_congestion_nack() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::Off));
    fixture.put_segments(3);
    fixture.request(0);
    fixture.collect();
    fixture.pass_ms(600);
    let reasons = |out: Vec<OutPacket>| out.iter().map(|out| out.header.nack).collect::<Vec<_>>();
    assert_eq!(reasons(fixture.take()), vec![Some(NackReason::Congestion)]);
    assert_eq!(reasons(fixture.request(2)), vec![Some(NackReason::Congestion)]);
    assert_eq!(fixture.router.stats().pit_entries, 0);
}

#[test]
fn labels_expire() {
    let mut fixture = DiskFixture::new(policy(Bypass::Threshold, Mark::NbCc));
    fixture.put_segments(6);
    fixture.route("/d", &[(U, 0)]);
    let label = label(U, u64::MAX);
    fixture.fixture.handle(&mut [label]);
    fixture.pass_ms(10_001);
    (0..2).for_each(|segment| assert!(fixture.request(segment).is_empty()));
    assert_eq!(sent(&fixture.request(2)), vec![(U, PacketKind::Interest)]);
}

#[test]
fn refused_interest_is_not_measured() {
    let mut fixture = DiskFixture::with(policy(Bypass::Adaptive, Mark::Off), 0, 1, |disk| {
        disk.reads_max = 64;
    });
    fixture.put_segments(4);
    fixture.route("/d", &[(U, 0)]);
    fixture.fixture.router.config.pit_entries_per_face_max = 0;
    let out = fixture.request(0);
    assert_eq!(out[0].header.nack, Some(NackReason::Congestion));
    fixture.fixture.router.config.pit_entries_per_face_max = 100;
    // Nothing is in flight there, so it may still be probed.
    assert_eq!(sent(&fixture.request(0)), vec![(U, PacketKind::Interest)]);
}

#[test]
fn flush_is_answered_after_all_writes() {
    let mut fixture = DiskFixture::with(BusyPolicy::default(), 1 << 20, 1, |_| {});
    fixture.put_segments(3);
    assert_eq!(fixture.router.stats().store.disk.entries, 0, "all in RAM");
    fixture.command(Command::FlushStore { transaction: 5 });
    assert!(fixture.out.events.is_empty());
    fixture.settle();
    assert_eq!(fixture.out.events.pop(), Some(Event::StoreFlushed { transaction: 5 }));
    assert_eq!(fixture.router.stats().store.disk.writes, 3);
    let mut fixture = Fixture::new();
    fixture.command(Command::FlushStore { transaction: 6 });
    assert_eq!(fixture.out.events.pop(), Some(Event::StoreFlushed { transaction: 6 }), "no disk");
}

#[test]
fn refills_lost_segments_when_disk_is_idle() {
    // Two records may wait for the disk.
    let busy = policy(Bypass::Off, Mark::Off);
    let mut fixture = DiskFixture::with(busy, 0, 1, |disk| disk.write_backlog_bytes_max = 1024);
    fixture.put_segments(40);
    fixture.route("/", &[(U, 0)]);
    for segment in 40..44 {
        fixture.request(segment);
        let out = fixture.answer(U, data(&format!("/d/seg={segment}"), 1000));
        assert_eq!(sent(&out), vec![(ASKER, PacketKind::Data)], "forwarding does not wait");
    }
    assert_eq!(fixture.router.stats().store.disk.passed_by, 2);
    let mut requested = Vec::new();
    for _ in 0..80 {
        fixture.pass_ms(10);
        fixture.collect();
        while !fixture.ops.is_empty() {
            fixture.step();
            fixture.collect();
        }
        for packet in fixture.take() {
            assert_eq!(packet.face, U, "no packet leaves to the store itself");
            let interest = weir_wire::InterestView::decode(&packet.packet).unwrap();
            requested.push(format!("{}", interest.name));
            let name = requested.last().unwrap().clone();
            assert!(fixture.answer(U, data(&name, 1000)).is_empty());
        }
    }
    assert_eq!(requested, ["/d/seg=42", "/d/seg=43"]);
    assert_eq!(fixture.busy().refill_interests, 2);
    fixture.settle();
    fixture.route("/", &[]);
    for segment in 0..44 {
        assert!(fixture.request(segment).is_empty());
        assert_eq!(sent(&fixture.step()), vec![(ASKER, PacketKind::Data)], "{segment}");
    }
    assert_eq!(fixture.router.stats().pit_entries, 0);
}
