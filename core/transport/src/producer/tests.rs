//! Tests of the producer in virtual time.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet, Rng};
use weir_store::EvictionPolicy;
use weir_wire::{
    Data, DataView, Interest, InterestView, LpHeader, NackReason, Name, PitToken, tlv,
};

use super::*;

const KEY: HashKey = HashKey::new([3, 4]);

fn below(rng: &mut Rng, bound: u64) -> u64 {
    rng.below(bound as u32).into()
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * NS_PER_MS)
}

fn data(uri: &str, content: &[u8]) -> Packet {
    Data::new(name(uri)).content(content).encode_with_digest().into()
}

struct Fixture {
    producer: Producer,
    out: ProducerOutbox,
    now: Instant,
    token: u32,
}

impl Fixture {
    fn new(config: ProducerConfig) -> Self {
        let producer = Producer::new(Catalog::new(), config);
        Self { producer, out: ProducerOutbox::default(), now: ms(1000), token: 0 }
    }

    fn waiting() -> Self {
        Self::new(ProducerConfig::on_demand(KEY, NS_PER_S))
    }

    fn input(&mut self, input: ProducerInput) {
        self.producer.handle(self.now, &mut vec![input], &mut self.out);
    }

    fn send_interest(&mut self, interest: Interest) -> u32 {
        self.send_interest_over(PathId(0), interest)
    }

    /// Sends an Interest with its own token, and returns the token.
    fn send_interest_over(&mut self, path: PathId, interest: Interest) -> u32 {
        self.token += 1;
        let pit_token = PitToken::new(&self.token.to_be_bytes()).unwrap();
        let header = LpHeader { pit_token, ..LpHeader::default() };
        let packet = interest.encode().into();
        self.input(ProducerInput::Packet { path, header, packet });
        self.token
    }

    /// What was sent: token, Nack, URI.
    fn sent(&mut self) -> Vec<(u32, Option<NackReason>, String)> {
        let packets = self.out.packets.drain(..);
        let lines = packets.map(|(_, header, packet)| {
            let token = u32::from_be_bytes(header.pit_token.as_slice().try_into().unwrap());
            let name = match header.nack {
                Some(_) => InterestView::decode(&packet).unwrap().name.to_name(),
                None => DataView::decode(&packet).unwrap().name.to_name(),
            };
            (token, header.nack, name.to_string())
        });
        lines.collect()
    }

    fn wanted(&mut self) -> Vec<String> {
        let events = self.out.events.drain(..);
        let lines = events.map(|ProducerEvent::Wanted { interest }| {
            InterestView::decode(&interest).unwrap().name.to_name().to_string()
        });
        lines.collect()
    }

    fn advance_time(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.producer.handle(self.now, &mut Vec::new(), &mut self.out);
    }
}

fn interest(uri: &str) -> Interest {
    Interest::new(name(uri))
}

#[test]
fn metadata_interests_have_a_counter() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    for uri in ["/a/32=metadata", "/a/32=metadata/v=1/seg=0", "/a/metadata", "/a/v=1/seg=0"] {
        fixture.send_interest(interest(uri));
    }
    let stats = fixture.producer.stats();
    assert_eq!((stats.interests, stats.metadata), (4, 1));
}

#[test]
fn missing_data_is_refused_or_ignored() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    let token = fixture.send_interest(interest("/a"));
    assert_eq!(fixture.sent(), [(token, Some(NackReason::NoRoute), "/a".into())]);
    let config = ProducerConfig { on_miss: MissPolicy::Ignore, ..ProducerConfig::new(KEY) };
    let mut fixture = Fixture::new(config);
    fixture.send_interest(interest("/a"));
    assert_eq!(fixture.sent(), []);
    assert_eq!(fixture.producer.stats().unknown, 1);
    assert_eq!(fixture.producer.next_wakeup(), None);
}

#[test]
fn interests_wait_for_new_data() {
    let mut fixture = Fixture::waiting();
    let exact = fixture.send_interest(interest("/a/b"));
    let prefix = fixture.send_interest(interest("/a").can_be_prefix(true));
    let packet = data("/a/b", b"x");
    let digest = DataView::decode(&packet).unwrap().implicit_digest();
    let mut full = name("/a/b");
    full.append_implicit_digest(digest);
    let digest = fixture.send_interest(Interest::new(full));
    let mut unknown = name("/a/b");
    unknown.append_implicit_digest([9; 32]);
    fixture.send_interest(Interest::new(unknown));
    fixture.send_interest(interest("/a/b/c"));
    assert_eq!(fixture.wanted().len(), 5);
    fixture.input(ProducerInput::Put(packet));
    let mut sent = fixture.sent();
    sent.sort_unstable_by_key(|(token, ..)| *token);
    let expected = [exact, prefix, digest].map(|token| (token, None, "/a/b".to_string()));
    assert_eq!(sent, expected);
    assert_eq!(fixture.producer.waiting(), 2);
    // Without a buffer nothing is stored.
    fixture.send_interest(interest("/a/b"));
    assert_eq!(fixture.wanted(), ["/a/b"]);
}

#[test]
fn later_interest_of_a_path_replaces_earlier() {
    let mut fixture = Fixture::waiting();
    fixture.send_interest(interest("/a").lifetime_ms(100));
    let second = fixture.send_interest(interest("/a").lifetime_ms(500));
    let other_path = fixture.send_interest_over(PathId(1), interest("/a").lifetime_ms(500));
    assert_eq!(fixture.wanted(), ["/a", "/a"]);
    fixture.advance_time(200);
    fixture.input(ProducerInput::Put(data("/a", b"x")));
    let paths: Vec<u16> = fixture.out.packets.iter().map(|(path, ..)| path.0).collect();
    let mut sent = fixture.sent();
    sent.sort_unstable_by_key(|(token, ..)| *token);
    assert_eq!(paths.len(), 2);
    assert!(paths.contains(&1), "{paths:?}");
    assert_eq!(sent, [second, other_path].map(|token| (token, None, "/a".to_string())));
}

#[test]
fn waiting_interest_times_out_with_a_nack() {
    let wait_max_ns = 300 * NS_PER_MS;
    let mut fixture = Fixture::new(ProducerConfig { wait_max_ns, ..ProducerConfig::new(KEY) });
    let short = fixture.send_interest(interest("/short").lifetime_ms(100));
    let long = fixture.send_interest(interest("/long"));
    for (step, token, uri) in [(100, short, "/short"), (200, long, "/long")] {
        fixture.advance_time(step - 1);
        assert_eq!(fixture.sent(), []);
        assert!(fixture.producer.next_wakeup().unwrap() <= fixture.now.plus_ns(NS_PER_MS));
        fixture.advance_time(1);
        assert_eq!(fixture.sent(), [(token, Some(NackReason::NoRoute), uri.into())]);
    }
    assert_eq!(fixture.producer.stats().expired, 2);
    assert_eq!(fixture.producer.next_wakeup(), None);
    fixture.input(ProducerInput::Put(data("/long", b"x")));
    assert_eq!(fixture.sent(), []);
}

#[test]
fn waiting_interest_is_answered_on_publication() {
    let mut fixture = Fixture::waiting();
    // Version 1 (component type 54), segment 2 (type 50).
    let segment = fixture.send_interest(interest("/a/54=%01/50=%02"));
    let prefix = fixture.send_interest(interest("/a").can_be_prefix(true));
    fixture.send_interest(interest("/b"));
    fixture.send_interest(interest("/a/54=%01/50=%09"));
    fixture.producer.source_mut().add_object(name("/a/54=%01").as_view(), 3);
    fixture.input(ProducerInput::Published(name("/a")));
    let mut reads = core::mem::take(&mut fixture.out.reads);
    reads.sort_unstable_by_key(|op| op.segment);
    assert_eq!(reads.iter().map(|op| op.segment).collect::<Vec<_>>(), [0, 2]);
    for op in reads {
        let uri = format!("/a/54=%01/50=%{:02X}", op.segment);
        fixture.input(ProducerInput::ReadDone { op, data: data(&uri, b"x") });
    }
    let sent = fixture.sent();
    assert_eq!((sent[0].0, sent[1].0), (prefix, segment));
    assert_eq!(fixture.producer.waiting(), 2);
    assert_eq!(fixture.producer.reads(), 0);
}

#[test]
fn application_learns_name_from_later_interest() {
    let mapping: NameMapping = "hicn:2001:db8::/32".parse().unwrap();
    let config = ProducerConfig { mapping, ..ProducerConfig::on_demand(KEY, NS_PER_S) };
    let mut fixture = Fixture::new(config);
    let (object, other) = (name("/p/a"), name("/p/b"));
    let network = mapping.metadata_interest(object.as_view()).0;
    let mut send = |element: &[u8]| {
        let plain = Interest::new(network.clone()).encode();
        let body = tlv::read_single_of(&plain, tlv::INTEREST).unwrap();
        let mut writer = tlv::Writer::new();
        writer.tlv(tlv::INTEREST, &[body, element].concat());
        let (path, header, packet) = (PathId(0), LpHeader::default(), writer.into_vec().into());
        fixture.input(ProducerInput::Packet { path, header, packet });
        fixture.wanted().len()
    };
    let (right, wrong) =
        (mapping.metadata_payload(object.as_view()), mapping.metadata_payload(other.as_view()));
    // A false one does not wait. The first named one is reported, although another one waits.
    assert_eq!([&wrong[..], &[], &[], &right, &right, &[]].map(&mut send), [0, 1, 0, 1, 0, 0]);
    assert_eq!(fixture.producer.stats().false_payloads, 1);
    assert_eq!(fixture.producer.waiting(), 1);
}

#[test]
fn failed_or_late_read_gives_no_answer() {
    let mut fixture = Fixture::new(ProducerConfig { reads_max: 2, ..ProducerConfig::new(KEY) });
    fixture.producer.source_mut().add_object(name("/a").as_view(), 9);
    let failed = fixture.send_interest(interest("/a/50=%00"));
    let late = fixture.send_interest(interest("/a/50=%01").lifetime_ms(100));
    let refused = fixture.send_interest(interest("/a/50=%02"));
    assert_eq!(fixture.sent(), [(refused, Some(NackReason::Congestion), "/a/seg=2".into())]);
    let mut reads = core::mem::take(&mut fixture.out.reads);
    fixture.advance_time(101);
    let op = reads.pop().unwrap();
    fixture.input(ProducerInput::ReadDone { op, data: data("/a/50=%01", b"x") });
    assert_eq!(fixture.sent(), [], "{late}");
    fixture.input(ProducerInput::ReadFailed { op: reads.pop().unwrap() });
    assert_eq!(fixture.sent(), [(failed, Some(NackReason::NoRoute), "/a/seg=0".into())]);
    let stats = fixture.producer.stats();
    assert_eq!((stats.reads_late, stats.reads_failed, stats.refused), (1, 1, 1));
    assert_eq!(fixture.producer.reads(), 0);
}

#[test]
fn digest_of_a_read_segment_is_compared() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    fixture.producer.source_mut().add_object(name("/a").as_view(), 9);
    let packet = data("/a/50=%01", b"x");
    let right = DataView::decode(&packet).unwrap().implicit_digest();
    for (digest, is_right) in [(right, true), ([7; 32], false)] {
        let mut full = name("/a/50=%01");
        full.append_implicit_digest(digest);
        fixture.send_interest(Interest::new(full));
        let op = fixture.out.reads.pop().unwrap();
        fixture.input(ProducerInput::ReadDone { op, data: packet.clone() });
        assert_eq!(fixture.sent()[0].1.is_none(), is_right);
    }
}

#[test]
fn refused_name_leaves_others_waiting() {
    let config = ProducerConfig::on_demand(KEY, NS_PER_S);
    let mut fixture = Fixture::new(ProducerConfig { on_miss: MissPolicy::Nack, ..config });
    let refused = fixture.send_interest(interest("/a"));
    fixture.send_interest(interest("/a").can_be_prefix(true));
    fixture.send_interest(interest("/b"));
    fixture.input(ProducerInput::Refuse(interest("/a").nonce(1).encode().into()));
    assert_eq!(fixture.sent(), [(refused, Some(NackReason::NoRoute), "/a".into())]);
    assert_eq!((fixture.producer.waiting(), fixture.producer.stats().unknown), (2, 1));
    fixture.input(ProducerInput::Refuse(data("/a", b"x")));
    assert_eq!((fixture.sent().len(), fixture.producer.stats().malformed), (0, 1));
}

#[test]
fn closing_refuses_all_waiting_interests() {
    let config = ProducerConfig::on_demand(KEY, NS_PER_S);
    let mut fixture = Fixture::new(ProducerConfig { on_miss: MissPolicy::Nack, ..config });
    let asked = ["/a", "/b", "/b/c"].map(|name| (fixture.send_interest(interest(name)), name));
    fixture.input(ProducerInput::RefuseAll);
    let mut sent = fixture.sent();
    sent.sort_by(|one, other| one.2.cmp(&other.2));
    assert_eq!(sent, asked.map(|(token, name)| (token, Some(NackReason::NoRoute), name.into())));
    assert_eq!((fixture.producer.waiting(), fixture.producer.stats().unknown), (0, 3));
}

#[test]
fn limits_waiting_interests() {
    let config = ProducerConfig { waiting_max: 3, ..ProducerConfig::on_demand(KEY, NS_PER_S) };
    let mut fixture = Fixture::new(ProducerConfig { on_miss: MissPolicy::Nack, ..config });
    for at in 0..5 {
        fixture.send_interest(interest(&format!("/{at}")));
    }
    assert_eq!(fixture.producer.waiting(), 3);
    assert_eq!(fixture.producer.stats().refused, 2);
    assert!(fixture.sent().iter().all(|(_, nack, _)| *nack == Some(NackReason::Congestion)));
}

/// Puts four packets of equal size into a buffer for three, and returns the names that remain.
/// Before the fourth is put, the first is requested twice and the second once.
fn packets_left(buffer_policy: EvictionPolicy) -> Vec<String> {
    let config = ProducerConfig { buffer_bytes: 1 << 30, ..ProducerConfig::new(KEY) };
    // Measure one packet and the next. The first may cost more, because it creates the prefix.
    let mut fixture = Fixture::new(config.clone());
    fixture.input(ProducerInput::Put(data("/a/0", &[0; 3000])));
    let one = fixture.producer.buffer_bytes();
    fixture.input(ProducerInput::Put(data("/a/1", &[0; 3000])));
    let next = fixture.producer.buffer_bytes() - one;
    let buffer_bytes = one + 2 * next + next / 2;
    let mut fixture = Fixture::new(ProducerConfig { buffer_bytes, buffer_policy, ..config });
    for at in 0..4 {
        fixture.input(ProducerInput::Put(data(&format!("/a/{at}"), &[0; 3000])));
        if at == 2 {
            for uri in ["/a/0", "/a/0", "/a/1"] {
                fixture.send_interest(interest(uri));
            }
        }
    }
    assert!(fixture.producer.buffer_bytes() <= buffer_bytes);
    fixture.sent();
    (0..4).for_each(|at| {
        fixture.send_interest(interest(&format!("/a/{at}")));
    });
    let sent = fixture.sent().into_iter().filter(|(_, nack, _)| nack.is_none());
    sent.map(|(_, _, name)| name).collect()
}

#[test]
fn buffer_evicts_by_policy() {
    assert_eq!(packets_left(EvictionPolicy::Fifo), ["/a/1", "/a/2", "/a/3"]);
    assert_eq!(packets_left(EvictionPolicy::Lru), ["/a/0", "/a/1", "/a/3"]);
    assert_eq!(packets_left(EvictionPolicy::Lfu), ["/a/0", "/a/1", "/a/3"]);
}

#[test]
fn second_read_comes_from_the_buffer() {
    let mut fixture =
        Fixture::new(ProducerConfig { buffer_bytes: 1 << 20, ..ProducerConfig::new(KEY) });
    fixture.producer.source_mut().add_object(name("/a").as_view(), 9);
    fixture.send_interest(interest("/a/50=%01"));
    let op = fixture.out.reads.pop().unwrap();
    fixture.input(ProducerInput::ReadDone { op, data: data("/a/50=%01", b"x") });
    fixture.send_interest(interest("/a/50=%01"));
    assert!(fixture.out.reads.is_empty());
    assert_eq!(fixture.sent().len(), 2);
}

#[test]
fn counts_malformed_packets() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    let nacked: Packet = interest("/a").encode().into();
    let path = PathId(0);
    fixture.input(ProducerInput::Packet { path, header: nack, packet: nacked });
    let header = LpHeader::default();
    fixture.input(ProducerInput::Packet { path, header, packet: data("/a", b"x") });
    fixture.input(ProducerInput::Put(interest("/a").encode().into()));
    assert_eq!(fixture.producer.stats().malformed, 3);
    assert_eq!(fixture.sent(), []);
}

/// An answer reaches those that wait and is not stored: the next Interest is requested again.
#[test]
fn answer_is_not_stored() {
    let config = ProducerConfig { buffer_bytes: 4000, ..ProducerConfig::on_demand(KEY, NS_PER_S) };
    let mut fixture = Fixture::new(config);
    for round in 0..2 {
        fixture.send_interest(interest("/a"));
        assert_eq!(fixture.out.events.drain(..).count(), 1, "round {round}");
        fixture.input(ProducerInput::Answer(data("/a", b"x")));
        assert_eq!(fixture.sent().len(), 1, "round {round}");
    }
    assert_eq!(fixture.producer.buffer_bytes(), 0);
}

/// Requests, puts, publishes, reads and waits at random. Each Interest gets at most one answer, and
/// no Data after its deadline. All limits hold, and nothing remains at the end.
#[test]
fn random_history_answers_once() {
    for seed in 0..300_u64 {
        let rng = &mut Rng::from_seed(seed);
        let config = ProducerConfig {
            on_miss: if seed.is_multiple_of(2) { MissPolicy::Nack } else { MissPolicy::Ignore },
            wait_max_ns: below(rng, 3) * 200 * NS_PER_MS,
            waiting_max: 1 + below(rng, 8) as usize,
            reads_max: 1 + below(rng, 4) as usize,
            buffer_bytes: below(rng, 2) * 4000,
            buffer_policy: EvictionPolicy::ALL[below(rng, 4) as usize],
            hash_key: KEY,
            mapping: NameMapping::Identity,
        };
        run_history(rng, config, seed);
    }
}

fn run_history(rng: &mut Rng, config: ProducerConfig, seed: u64) {
    let mut fixture = Fixture::new(config.clone());
    let mut reads: Vec<ReadOp> = Vec::new();
    let mut open: BTreeMap<u32, (Instant, Name)> = BTreeMap::new();
    for _ in 0..200 {
        let uri = format!("/{}/50=%{:02X}", below(rng, 3), below(rng, 4));
        match below(rng, 8) {
            0..3 => {
                let lifetime_ms = 1 + below(rng, 500);
                let token = fixture.send_interest(interest(&uri).lifetime_ms(lifetime_ms));
                open.insert(token, (fixture.now.plus_ns(lifetime_ms * NS_PER_MS), name(&uri)));
            }
            3 => fixture.input(ProducerInput::Put(data(&uri, &[0; 500]))),
            4 => {
                let prefix = name(&uri).as_view().prefix(1).to_name();
                fixture.producer.source_mut().add_object(prefix.as_view(), 1 + below(rng, 4));
                fixture.input(ProducerInput::Published(prefix));
            }
            5 if !reads.is_empty() => {
                let op = reads.swap_remove(below(rng, reads.len() as u64) as usize);
                let asked = InterestView::decode(&op.pending.interest).unwrap().name.to_name();
                fixture.input(if below(rng, 4) == 0 {
                    ProducerInput::ReadFailed { op }
                } else {
                    ProducerInput::ReadDone { op, data: data(&asked.to_string(), &[0; 500]) }
                });
            }
            _ => fixture.advance_time(below(rng, 100)),
        }
        reads.append(&mut fixture.out.reads);
        for (token, nack, sent) in fixture.sent() {
            let (deadline, asked) = open.remove(&token).expect("one answer for one Interest");
            assert_eq!(asked.to_string(), sent, "seed {seed}");
            assert!(nack.is_some() || fixture.now <= deadline, "seed {seed}");
        }
        assert!(fixture.producer.waiting() <= config.waiting_max, "seed {seed}");
        assert!(fixture.producer.reads() <= config.reads_max, "seed {seed}");
        assert_eq!(fixture.producer.reads(), reads.len(), "seed {seed}");
        assert!(fixture.producer.buffer_bytes() <= config.buffer_bytes, "seed {seed}");
    }
    for op in reads {
        fixture.input(ProducerInput::ReadFailed { op });
    }
    fixture.advance_time(1000);
    assert_eq!((fixture.producer.waiting(), fixture.producer.reads()), (0, 0), "seed {seed}");
    assert_eq!(fixture.producer.next_wakeup(), None, "seed {seed}");
}

/// Sends an Interest. Returns `Some(true)` if the answer is signed Data of ContentType Nack,
/// `Some(false)` if it is a network-layer Nack, and `None` otherwise.
fn is_signed_absence(fixture: &mut Fixture, interest: Interest) -> Option<bool> {
    fixture.send_interest(interest);
    let (_, header, packet) = fixture.out.packets.pop()?;
    if header.nack.is_some() {
        return Some(false);
    }
    let data = DataView::decode(&packet).unwrap();
    weir_security::verify_data(&data, &weir_security::DigestVerifier).unwrap();
    data.is_nack().then_some(true)
}

#[test]
fn producer_signs_absence_of_names() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    let catalog = fixture.producer.source_mut();
    catalog.add_object(name("/d/x/v=1").as_view(), 2);
    fixture.producer.own_prefix(&name("/d"));
    let interest = |uri: &str| Interest::new(name(uri)).can_be_prefix(true);
    assert_eq!(is_signed_absence(&mut fixture, interest("/d/none/32=metadata")), Some(false));
    fixture.producer.sign_absence(Arc::new(weir_security::DigestSigner));
    assert_eq!(is_signed_absence(&mut fixture, interest("/d/none/32=metadata")), Some(true));
    assert_eq!(is_signed_absence(&mut fixture, interest("/d/x/v=2")), Some(true));
    assert_eq!(is_signed_absence(&mut fixture, interest("/d/x/v=1/seg=2")), Some(true));
    // Not signed: a name outside the producer's prefix, one with objects below it, and one with a
    // digest.
    assert_eq!(is_signed_absence(&mut fixture, interest("/e/none")), Some(false));
    let exact = Interest::new(name("/d/x"));
    assert_eq!(is_signed_absence(&mut fixture, exact), Some(false));
    let mut full = name("/d/none");
    full.append_implicit_digest([1; 32]);
    assert_eq!(is_signed_absence(&mut fixture, Interest::new(full)), Some(false));
}

#[test]
fn signed_absences_are_rate_limited() {
    let mut fixture = Fixture::new(ProducerConfig::new(KEY));
    fixture.producer.own_prefix(&name("/d"));
    fixture.producer.sign_absence(Arc::new(weir_security::DigestSigner));
    let mut signed = || {
        let interest = |at| Interest::new(name(&format!("/d/{at}")));
        let answers = (0..1500).map(|at| is_signed_absence(&mut fixture, interest(at)));
        let signed = answers.filter(|&answer| answer == Some(true)).count();
        fixture.now = fixture.now.plus_ns(NS_PER_S);
        signed
    };
    // At most 1000 (`SIGNED_MAX`) in each second.
    assert_eq!([signed(), signed()], [1000, 1000]);
}
