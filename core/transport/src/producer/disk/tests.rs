//! Tests of an output buffer with a disk that is simulated in memory.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet, Rng};
use weir_store::EvictionPolicy;
use weir_store::disk::record::{self, RecordLocation};
use weir_store::disk::{
    DiskFailure, DiskGeometry, DiskOp, DiskOpKind, DiskOutcome, DiskTierConfig, OfferAt,
    RecordFault,
};
use weir_wire::{Data, DataView, Interest, InterestView, LpHeader, NackReason, Name, PitToken};

use super::super::{
    Catalog, Producer, ProducerConfig, ProducerEvent, ProducerInput, ProducerOutbox,
};
use crate::PathId;

const KEY: HashKey = HashKey::new([5, 6]);
const STORE_ID: u64 = 0x0123_4567_89AB_CDEF;
const BLOCK_BYTES: u32 = 512;

/// FNV-1a: enough to detect the flips of the tests.
fn checksum(octets: &[u8]) -> u32 {
    let step = |sum: u32, &octet: &u8| (sum ^ u32::from(octet)).wrapping_mul(0x0100_0193);
    octets.iter().fold(0x811C_9DC5, step)
}

/// A disk with regions of 64 KiB.
fn tier(regions: u32) -> DiskTierConfig {
    let geometry = DiskGeometry {
        data_offset: 4096,
        region_bytes: 64 << 10,
        block_bytes: BLOCK_BYTES,
        first: 0,
        stride: 1,
        regions,
        is_writable: true,
    };
    DiskTierConfig {
        depth: 8,
        offer_at: OfferAt::Eviction,
        ..DiskTierConfig::new(vec![geometry], STORE_ID, KEY, checksum)
    }
}

fn below(rng: &mut Rng, bound: u32) -> u32 {
    rng.below(bound)
}

/// Faults of the disk's operations, each in percent.
#[derive(Copy, Clone, Default)]
struct Faults {
    fails: u32,
    no_space: u32,
    /// Writes that are acknowledged but not done.
    returns_wrong_record: u32,
    flips: u32,
}

struct Disk {
    octets: Vec<u8>,
    faults: Faults,
    rng: Rng,
}

impl Disk {
    fn hits(&mut self, of_hundred: u32) -> bool {
        below(&mut self.rng, 100) < of_hundred
    }

    fn run_op(&mut self, kind: DiskOpKind) -> DiskOutcome {
        if self.hits(self.faults.fails) {
            return DiskOutcome::Failed(DiskFailure::Io);
        }
        match kind {
            DiskOpKind::Write { .. } if self.hits(self.faults.no_space) => {
                DiskOutcome::Failed(DiskFailure::NoSpace)
            }
            DiskOpKind::Write { .. } if self.hits(self.faults.returns_wrong_record) => {
                DiskOutcome::Written
            }
            DiskOpKind::Write { offset, len, sequence, chunks: parts } => {
                let location = RecordLocation { store_id: STORE_ID, offset, sequence };
                let out = &mut self.octets[offset as usize..][..len as usize];
                record::encode_chunks(&parts, &location, BLOCK_BYTES, checksum, out);
                DiskOutcome::Written
            }
            DiskOpKind::ReadRaw { offset, len } => {
                DiskOutcome::Raw(self.octets[offset as usize..][..len as usize].to_vec())
            }
            DiskOpKind::ReadRecord { offset, len, sequence } => {
                let mut octets = self.octets[offset as usize..][..len as usize].to_vec();
                if self.hits(self.faults.flips) {
                    let at = below(&mut self.rng, len) as usize;
                    octets[at] ^= 1 << below(&mut self.rng, 8);
                }
                let location = RecordLocation { store_id: STORE_ID, offset, sequence };
                match record::parse_data(&octets, &location, checksum) {
                    Ok(record) => DiskOutcome::Record {
                        packet: Packet::from(record.body),
                        fresh_until_unix_ms: record.fresh_until_unix_ms,
                    },
                    Err(fault) => DiskOutcome::Damaged(fault),
                }
            }
        }
    }
}

/// A producer with its driver and its disk.
struct Fixture {
    producer: Producer,
    disk: Disk,
    ops: Vec<DiskOp>,
    out: ProducerOutbox,
    now: Instant,
    token: u32,
}

impl Fixture {
    fn new(config: ProducerConfig, regions: u32, seed: u64) -> Self {
        let octets = vec![0; 4096 + regions as usize * (64 << 10)];
        let disk = Disk { octets, faults: Faults::default(), rng: Rng::from_seed(seed) };
        let now = Instant::from_ns(NS_PER_S);
        let producer = Producer::with_disk(Catalog::new(), config, tier(regions));
        let (ops, out, token) = (Vec::new(), ProducerOutbox::default(), 0);
        let mut fixture = Self { producer, disk, ops, out, now, token };
        // An earlier record is read first.
        fixture.handle(Vec::new());
        fixture.settle();
        assert!(!fixture.producer.is_disk_behind());
        fixture
    }

    fn handle(&mut self, mut inputs: Vec<ProducerInput>) {
        self.producer.handle(self.now, &mut inputs, &mut self.out);
        self.ops.append(&mut self.out.disk_ops);
    }

    /// Runs one of the pending operations.
    fn step(&mut self) {
        if self.ops.is_empty() {
            return;
        }
        let at = below(&mut self.disk.rng, self.ops.len() as u32) as usize;
        let DiskOp { id, kind, .. } = self.ops.swap_remove(at);
        let outcome = self.disk.run_op(kind);
        self.handle(vec![ProducerInput::DiskDone { id, outcome }]);
    }

    /// Runs all pending operations, and those that follow from them.
    fn settle(&mut self) {
        while !self.ops.is_empty() {
            self.step();
        }
    }

    fn advance_time(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.handle(Vec::new());
    }

    /// Puts Data as a driver should: not while the disk is behind.
    fn put(&mut self, packet: &Packet) {
        self.handle(vec![ProducerInput::Put(packet.clone())]);
        while self.producer.is_disk_behind() {
            if self.ops.is_empty() {
                self.advance_time(5);
            }
            self.step();
        }
    }

    fn send_interest(&mut self, interest: Interest) -> u32 {
        self.token += 1;
        let pit_token = PitToken::new(&self.token.to_be_bytes()).unwrap();
        let header = LpHeader { pit_token, ..LpHeader::default() };
        let packet = interest.encode().into();
        self.handle(vec![ProducerInput::Packet { path: PathId(0), header, packet }]);
        self.token
    }

    /// What was sent: token, Nack, packet.
    fn sent(&mut self) -> Vec<(u32, Option<NackReason>, Packet)> {
        let packets = self.out.packets.drain(..);
        let lines = packets.map(|(_, header, packet)| {
            let token = header.pit_token.as_slice().try_into().unwrap();
            (u32::from_be_bytes(token), header.nack, packet)
        });
        lines.collect()
    }

    fn take_wanted(&mut self) -> Vec<String> {
        let events = self.out.events.drain(..);
        let lines = events.map(|ProducerEvent::Wanted { interest }| {
            InterestView::decode(&interest).unwrap().name.to_name().to_string()
        });
        lines.collect()
    }
}

fn config(buffer_bytes: u64, buffer_policy: EvictionPolicy) -> ProducerConfig {
    let config = ProducerConfig::on_demand(KEY, 2 * NS_PER_S);
    ProducerConfig { buffer_bytes, buffer_policy, ..config }
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn interest(uri: &str) -> Interest {
    Interest::new(name(uri))
}

fn uri(at: usize) -> String {
    format!("/a/v=1/seg={at}")
}

fn segment(at: usize, content: u8) -> Packet {
    let data = Data::new(name(&uri(at))).content([content; 1000]);
    data.encode_with_digest().into()
}

/// An object of ten times the memory, for each policy.
#[test]
fn evicted_data_is_served_from_disk() {
    for policy in EvictionPolicy::ALL {
        let mut fixture = Fixture::new(config(20_000, *policy), 16, 1);
        let packets: Vec<Packet> = (0..200).map(|at| segment(at, at as u8)).collect();
        packets.iter().for_each(|packet| fixture.put(packet));
        fixture.advance_time(10);
        fixture.settle();
        let mut order: Vec<usize> = (0..200).chain((0..200).rev()).collect();
        order.extend((0..200).map(|_| below(&mut fixture.disk.rng, 200) as usize));
        for at in order {
            let token = fixture.send_interest(interest(&uri(at)));
            fixture.settle();
            assert_eq!(fixture.sent(), [(token, None, packets[at].clone())], "{policy:?}");
            assert!(fixture.producer.buffer_bytes() <= 20_000);
        }
        assert_eq!(fixture.take_wanted(), Vec::<String>::new());
        let stats = fixture.producer.stats();
        assert!(stats.disk_data > 300 && stats.disk_data < stats.data, "{stats:?}");
        assert_eq!((stats.data, stats.disk_vain, stats.unknown), (600, 0, 0));
        assert_eq!((stats.disk.passed_by, stats.disk.no_room), (0, 0));
        // Data that was read back and evicted again is already on disk.
        assert!(stats.disk.writes < 250, "{stats:?}");
    }
}

#[test]
fn data_read_from_disk_stays_in_memory() {
    let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Lru), 16, 2);
    (0..100).for_each(|at| fixture.put(&segment(at, 7)));
    fixture.advance_time(10);
    fixture.settle();
    for reads in [1, 1, 1] {
        fixture.send_interest(interest(&uri(0)));
        fixture.settle();
        assert_eq!(fixture.producer.stats().disk.reads, reads);
    }
    assert_eq!(fixture.sent().len(), 3);
}

/// With digest, by prefix, and two Interests for one read.
#[test]
fn answers_all_interest_kinds_from_disk() {
    let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Fifo), 16, 3);
    let packets: Vec<Packet> = (0..100).map(|at| segment(at, at as u8)).collect();
    packets.iter().for_each(|packet| fixture.put(packet));
    fixture.advance_time(10);
    fixture.settle();
    let digest = DataView::decode(&packets[3]).unwrap().implicit_digest();
    let mut full = name(&uri(3));
    full.append_implicit_digest(digest);
    let mut wrong = name(&uri(3));
    wrong.append_implicit_digest([9; 32]);
    let mut tokens =
        vec![fixture.send_interest(interest(&uri(3))), fixture.send_interest(interest(&uri(3)))];
    tokens.push(fixture.send_interest(Interest::new(full)));
    tokens.push(fixture.send_interest(interest(&uri(3)).can_be_prefix(true)));
    let wrong = fixture.send_interest(Interest::new(wrong));
    assert_eq!(fixture.sent(), []);
    fixture.settle();
    let mut sent: Vec<u32> = fixture.sent().into_iter().map(|(token, ..)| token).collect();
    sent.sort_unstable();
    assert_eq!(sent, tokens);
    // Only the application can supply another Data of that name.
    assert_eq!(fixture.take_wanted().len(), 1, "{wrong}");
    assert_eq!((fixture.producer.stats().disk_data, fixture.producer.stats().disk_vain), (4, 1));
    assert_eq!(fixture.producer.stats().disk.reads, 1);
}

#[test]
fn republished_data_replaces_disk_copy() {
    let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Fifo), 16, 4);
    (0..100).for_each(|at| fixture.put(&segment(at, 1)));
    fixture.advance_time(10);
    fixture.settle();
    // While the older one is being read, and before.
    let reading = fixture.send_interest(interest(&uri(0)));
    let newer = [segment(0, 2), segment(1, 2)];
    newer.iter().for_each(|packet| fixture.put(packet));
    fixture.settle();
    let before = fixture.send_interest(interest(&uri(1)));
    fixture.settle();
    let [first, second] = newer;
    assert_eq!(fixture.sent(), [(reading, None, first.clone()), (before, None, second)]);
    // It is evicted later.
    (2..100).for_each(|at| fixture.put(&segment(at, 1)));
    fixture.advance_time(10);
    fixture.settle();
    let token = fixture.send_interest(interest(&uri(0)));
    fixture.settle();
    assert_eq!(fixture.sent(), [(token, None, first)]);
}

#[test]
fn evicted_disk_data_is_requested_again() {
    let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Fifo), 2, 5);
    let packets: Vec<Packet> = (0..250).map(|at| segment(at, at as u8)).collect();
    packets.iter().for_each(|packet| fixture.put(packet));
    fixture.advance_time(10);
    fixture.settle();
    let stats = fixture.producer.stats();
    assert!(stats.disk.evictions > 0, "{stats:?}");
    let mut tokens = BTreeMap::new();
    for at in 0..250 {
        tokens.insert(fixture.send_interest(interest(&uri(at))), at);
        fixture.settle();
    }
    let sent = fixture.sent();
    let wanted = fixture.take_wanted();
    // The last ones are stored: as many as two regions and the memory hold at least.
    assert!(sent.len() > 40 && sent.len() + wanted.len() == 250, "{}", sent.len());
    for (token, nack, packet) in sent {
        assert!(nack.is_none() && packet == packets[tokens[&token]]);
    }
    for at in 0..100 {
        assert!(wanted.contains(&name(&uri(at)).to_string()), "{at} is long gone");
    }
    // The application makes it again.
    let waiting = fixture.producer.waiting();
    fixture.put(&packets[0]);
    assert_eq!((fixture.sent().len(), fixture.producer.waiting()), (1, waiting - 1));
}

#[test]
fn bypasses_unresponsive_disk() {
    let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Fifo), 16, 6);
    (0..100).for_each(|at| fixture.put(&segment(at, 1)));
    fixture.advance_time(10);
    fixture.settle();
    fixture.send_interest(interest(&uri(0)));
    assert_eq!((fixture.sent(), fixture.take_wanted().len()), (vec![], 0));
    let stalls_at = fixture.producer.next_wakeup().unwrap();
    fixture.advance_time(stalls_at.ns_since(fixture.now).div_ceil(NS_PER_MS));
    assert_eq!(fixture.take_wanted().len(), 1, "it waits for the application now");
    // The next one also fails at once, and no publisher waits.
    fixture.send_interest(interest(&uri(1)));
    assert_eq!(fixture.take_wanted().len(), 1);
    assert!(!fixture.producer.is_disk_behind());
    assert_eq!((fixture.producer.stats().disk_vain, fixture.producer.stats().disk.stalls), (2, 1));
    // Until the disk responds.
    fixture.settle();
    fixture.sent();
    let token = fixture.send_interest(interest(&uri(2)));
    fixture.settle();
    assert_eq!(fixture.sent(), [(token, None, segment(2, 1))]);
}

#[test]
fn limits_interests_waiting_for_disk() {
    let config = ProducerConfig { reads_max: 2, ..config(20_000, EvictionPolicy::Fifo) };
    let mut fixture =
        Fixture::new(ProducerConfig { on_miss: super::super::MissPolicy::Nack, ..config }, 16, 7);
    (0..100).for_each(|at| fixture.put(&segment(at, 1)));
    fixture.advance_time(10);
    fixture.settle();
    fixture.send_interest(interest(&uri(0)));
    fixture.send_interest(interest(&uri(0)));
    let refused = fixture.send_interest(interest(&uri(0)));
    let sent = fixture.sent();
    assert_eq!((sent.len(), sent[0].0, sent[0].1), (1, refused, Some(NackReason::Congestion)));
    fixture.settle();
    assert_eq!((fixture.sent().len(), fixture.producer.stats().refused), (2, 1));
}

/// A record that could be taken for that of another name.
#[test]
fn rejects_wrong_bytes_from_disk() {
    for outcome in [
        DiskOutcome::Record { packet: segment(9, 9), fresh_until_unix_ms: 0 },
        DiskOutcome::Record { packet: Packet::from(&b"no Data"[..]), fresh_until_unix_ms: 0 },
        DiskOutcome::Damaged(RecordFault::Checksum),
        DiskOutcome::Failed(DiskFailure::Io),
    ] {
        let mut fixture = Fixture::new(config(20_000, EvictionPolicy::Fifo), 16, 8);
        (0..100).for_each(|at| fixture.put(&segment(at, 1)));
        fixture.advance_time(10);
        fixture.settle();
        fixture.send_interest(interest(&uri(0)));
        let DiskOp { id, .. } = fixture.ops.pop().unwrap();
        fixture.handle(vec![ProducerInput::DiskDone { id, outcome }]);
        assert_eq!(fixture.sent(), []);
        assert_eq!(fixture.take_wanted(), [name(&uri(0)).to_string()]);
        assert_eq!(fixture.producer.stats().disk_vain, 1);
        fixture.put(&segment(0, 1));
        assert_eq!(fixture.sent().len(), 1);
    }
}

/// A random history of publishing, requesting and waiting, on disks that fail, fill up, corrupt,
/// lie and stall. Each Interest gets at most one answer, with the data that was published last, and
/// none waits at the end.
#[test]
fn faulty_disk_never_serves_wrong_data() {
    let mut from_disk = 0;
    for seed in 0..150 {
        let rng = &mut Rng::from_seed(seed);
        let policy = EvictionPolicy::ALL[below(rng, 4) as usize];
        let mut fixture = Fixture::new(config(8_000, policy), 2 + below(rng, 6), seed);
        fixture.disk.faults = match seed % 3 {
            0 => Faults::default(),
            1 => Faults { returns_wrong_record: 10, flips: 10, ..Faults::default() },
            _ => Faults { fails: 20, no_space: 20, flips: 5, returns_wrong_record: 5 },
        };
        run_history(rng, &mut fixture, seed);
        from_disk += fixture.producer.stats().disk_data;
    }
    assert!(from_disk > 1000, "{from_disk}");
}

fn run_history(rng: &mut Rng, fixture: &mut Fixture, seed: u64) {
    let mut published: BTreeMap<String, Packet> = BTreeMap::new();
    let mut open: BTreeMap<u32, (Instant, String)> = BTreeMap::new();
    for round in 0..600 {
        let at = below(rng, 60) as usize;
        match below(rng, 10) {
            0..3 => {
                let packet = segment(at, (round / 100) as u8);
                published.insert(uri(at), packet.clone());
                fixture.handle(vec![ProducerInput::Put(packet)]);
            }
            3..6 => {
                let lifetime_ms = 1 + u64::from(below(rng, 2000));
                let token = fixture.send_interest(interest(&uri(at)).lifetime_ms(lifetime_ms));
                open.insert(token, (fixture.now.plus_ns(lifetime_ms * NS_PER_MS), uri(at)));
            }
            6..9 => (0..below(rng, 12)).for_each(|_| fixture.step()),
            _ => fixture
                .advance_time(below(rng, if seed.is_multiple_of(2) { 20 } else { 300 }).into()),
        }
        for (token, nack, packet) in fixture.sent() {
            let (deadline, uri) = open.remove(&token).expect("one answer for one Interest");
            assert!(nack.is_none() && fixture.now <= deadline, "seed {seed}");
            assert!(packet == published[&uri], "seed {seed}: {uri}");
        }
    }
    fixture.disk.faults = Faults::default();
    fixture.settle();
    fixture.advance_time(2500);
    fixture.settle();
    assert_eq!(
        (fixture.producer.waiting(), fixture.producer.disk_reads.len()),
        (0, 0),
        "seed {seed}"
    );
}
