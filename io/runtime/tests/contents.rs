//! Contents of the store and rules, for other threads of the process and for management clients,
//! with one worker thread and with two.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{Peer, TestRouter, content_of, data, interest, name};
use weir_manage::ControlParameters;
use weir_manage::commands::{Command, Scope};
use weir_runtime::{Contents, ContentsError, MissReports, Runtime, RuntimeConfig};
use weir_store::{
    HoldingsConfig, HoldingsStatus, ObjectQuery, Retention, Rule, Rules, RulesError, SegmentRange,
    Tier,
};
use weir_wire::{DataView, Interest};

/// A router, a producer below /a, a consumer, and the store's contents.
struct StoreFixture {
    router: TestRouter,
    producer: Peer<UnixStream>,
    consumer: Peer<UnixStream>,
    contents: Contents,
}

impl StoreFixture {
    fn start(threads: usize) -> Self {
        Self::start_with(threads, false)
    }

    fn start_with(threads: usize, holdings_for_neighbours: bool) -> Self {
        let router = TestRouter::start_with(|config| {
            config.threads = threads;
            config.management.holdings_for_neighbours = holdings_for_neighbours;
        });
        let (mut producer, consumer) = (router.unix(), router.unix());
        producer.register("/a");
        let contents = router.handle().contents();
        Self { router, producer, consumer, contents }
    }

    fn fetch(&mut self, segments: std::ops::Range<u64>) {
        for segment in segments {
            let uri = format!("/a/v=1/seg={segment}");
            self.consumer.send(&interest(&uri));
            self.producer.receive().interest();
            self.producer.send(&data(&uri, b"x"));
            self.consumer.receive().data();
        }
    }

    /// Ranges in memory, once the index is complete.
    fn held(&self) -> Vec<SegmentRange> {
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        loop {
            let page = self.contents.list_one(&name("/a/v=1"), TEST_TIMEOUT).unwrap();
            if !page.is_partial {
                let memory = page.holdings.into_iter().find(|one| one.tier == Tier::Memory);
                return memory.map_or_else(Vec::new, |one| one.ranges);
            }
            assert!(std::time::Instant::now() < deadline, "the index is never complete");
        }
    }
}

fn range(first: u64, last: u64) -> SegmentRange {
    SegmentRange { first, last }
}

fn rules(generation: u64, segments: SegmentRange, retention: Retention) -> Rules {
    Rules { generation, rules: vec![Rule { prefix: name("/a/v=1"), segments, retention }] }
}

#[test]
fn shards_answer_as_one() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        fixture.fetch(0..300);
        let listed = fixture.contents.list_one(&name("/a/v=1"), TEST_TIMEOUT);
        assert_eq!(listed, Err(ContentsError::NotTracked));
        assert_eq!(fixture.contents.take_changes(9, TEST_TIMEOUT), Err(ContentsError::NotTracked));
        fixture.contents.track(Some(HoldingsConfig::default()), TEST_TIMEOUT).unwrap();
        assert_eq!(fixture.held(), [range(0, 299)]);

        // A listing in pages contains everything as well.
        let (mut ranges, mut from) = (Vec::new(), None);
        loop {
            let page = fixture.contents.list(&name("/a"), from.take(), 1, TEST_TIMEOUT).unwrap();
            ranges.extend(page.holdings.into_iter().flat_map(|one| one.ranges));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let count: u64 = ranges.iter().map(|range| range.last - range.first + 1).sum();
        assert_eq!(count, 300);
        let none = fixture.contents.list(&name("/b"), None, 100, TEST_TIMEOUT).unwrap();
        assert!(none.holdings.is_empty());
        fixture.router.stop();
        assert_eq!(
            fixture.contents.list_one(&name("/a"), TEST_TIMEOUT),
            Err(ContentsError::Stopped)
        );
    }
}

/// Segments of an object are in several shards; its row and its pin are one.
#[test]
fn object_of_all_shards_is_one_row() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        fixture.fetch(0..300);
        for _ in 0..2 {
            fixture.consumer.send(&interest("/a/v=1/seg=70"));
            fixture.consumer.receive().data();
        }
        let query = || ObjectQuery { prefix: name("/a"), ..ObjectQuery::default() };
        let list = fixture.contents.objects(query(), TEST_TIMEOUT).unwrap();
        let [object] = &list.objects[..] else { panic!("{list:?}") };
        assert_eq!((object.name.clone(), object.memory.packets), (name("/a/v=1"), 300));
        assert_eq!((object.uses.hits, list.total, list.is_partial), (2, 1, false));

        let command = |command, count| {
            (command, ControlParameters { name: Some(name("/a")), count, ..Default::default() })
        };
        for ((command, parameters), code) in [
            (command(Command::CsUnpin, None), 409),
            (command(Command::CsPin, Some(1 << 40)), 409),
            (command(Command::CsPin, Some(1 << 20)), 200),
            (command(Command::CsEvictFirst, None), 200),
        ] {
            let response = fixture.consumer.command(command, &parameters);
            assert_eq!(response.code, code, "{command:?}");
        }
        let list = fixture.contents.objects(query(), TEST_TIMEOUT).unwrap();
        assert_eq!(list.pins, [(name("/a"), 1 << 20)]);
        // A plan with the same rule does not end the pin.
        let plan = rules(7, range(0, 9), Retention::Refuse);
        fixture.contents.set_rules(plan, TEST_TIMEOUT).unwrap();
        let (unpin, parameters) = command(Command::CsUnpin, None);
        assert_eq!(fixture.consumer.command(unpin, &parameters).code, 200);
        let (evict, parameters) = command(Command::CsEvictFirst, None);
        let marked = fixture.consumer.command(evict, &parameters);
        assert_eq!(marked.body.and_then(|body| body.count), Some(300));
        fixture.router.stop();
    }
}

/// More packets than a shard visits for one batch.
#[test]
fn eviction_marks_arrive_in_batches() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        fixture.fetch(0..1200);
        let evict = || ControlParameters { name: Some(name("/a")), ..Default::default() };
        for marked in [1200, 0] {
            let response = fixture.consumer.command(Command::CsEvictFirst, &evict());
            assert_eq!(response.body.and_then(|body| body.count), Some(marked));
        }
        fixture.router.stop();
    }
}

#[test]
fn declared_pins_hold_from_the_start() {
    for threads in [1, 2] {
        let pins = vec![(name("/a"), 1 << 20), (name("/b"), 2 << 20)];
        let router = TestRouter::start_with(|config| {
            (config.threads, config.pins) = (threads, pins.clone());
        });
        let contents = router.handle().contents();
        let list = contents.objects(ObjectQuery::default(), TEST_TIMEOUT).unwrap();
        assert_eq!(list.pins, pins);
        router.stop();
    }
    let folder = tempfile::tempdir().unwrap();
    let config = weir_io_fixture::router::config(folder.path().join("nfd.sock"));
    let too_much = vec![(name("/a"), config.store.capacity_bytes)];
    let error = Runtime::start(RuntimeConfig { pins: too_much, ..config }).unwrap_err();
    assert!(error.to_string().contains("[[pin]]"), "{error}");
}

/// A store that shrinks below its pins: they can be lowered and removed one by one.
#[test]
fn pins_that_exceed_the_store_can_be_lowered() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        let consumer = &mut fixture.consumer;
        let mut pin = |command, prefix: &str, bytes| {
            let name = Some(name(prefix));
            let parameters = ControlParameters { name, count: bytes, ..Default::default() };
            consumer.command(command, &parameters).code
        };
        assert_eq!(pin(Command::CsPin, "/a", Some(7 << 20)), 200);
        assert_eq!(pin(Command::CsPin, "/b", Some(7 << 20)), 200);
        let capacity = Some((4 << 20) / weir_manage::STORE_PACKET_BYTES);
        let smaller = ControlParameters { capacity, ..Default::default() };
        assert_eq!(fixture.router.unix().command(Command::CsConfig, &smaller).code, 200);
        assert_eq!(pin(Command::CsPin, "/a", Some(8 << 20)), 409);
        assert_eq!(pin(Command::CsPin, "/c", Some(1)), 409);
        assert_eq!(pin(Command::CsPin, "/a", Some(6 << 20)), 200);
        // A plan that keeps nothing more is accepted, another one is not.
        let refuse = rules(3, range(0, 9), Retention::Refuse);
        fixture.contents.set_rules(refuse, TEST_TIMEOUT).unwrap();
        let mut keep = rules(4, range(0, 9), Retention::Keep { bytes_max: 1 });
        keep.rules[0].prefix = name("/c");
        assert!(fixture.contents.set_rules(keep.clone(), TEST_TIMEOUT).is_err());
        assert_eq!(pin(Command::CsUnpin, "/a", None), 200);
        assert_eq!(pin(Command::CsUnpin, "/b", None), 200);
        fixture.contents.set_rules(keep, TEST_TIMEOUT).unwrap();
        fixture.router.stop();
    }
}

#[test]
fn changes_come_in_numbered_batches() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        fixture.contents.track(Some(HoldingsConfig::default()), TEST_TIMEOUT).unwrap();
        fixture.fetch(0..200);
        assert_eq!(fixture.held(), [range(0, 199)]);
        let first = fixture.contents.take_changes(100, TEST_TIMEOUT).unwrap();
        assert_eq!((first.sequence, first.has_more), (1, false));
        assert_eq!(first.changes.len(), 1);
        assert_eq!(first.changes[0].added, [range(0, 199)]);

        fixture.fetch(200..210);
        let prefix = Some(name("/a/v=1/seg=5"));
        let parameters = ControlParameters { name: prefix, ..Default::default() };
        assert_eq!(fixture.consumer.command(Command::CsErase, &parameters).code, 200);
        let second = fixture.contents.take_changes(100, TEST_TIMEOUT).unwrap();
        assert_eq!((second.generation, second.sequence), (first.generation, 2));
        assert_eq!(second.changes[0].added, [range(200, 209)]);
        assert_eq!(second.changes[0].removed, [range(5, 5)]);
        assert!(fixture.contents.take_changes(100, TEST_TIMEOUT).unwrap().changes.is_empty());

        // In small batches, and from the start.
        fixture.contents.restart_changes(TEST_TIMEOUT).unwrap();
        let (mut told, mut numbers) = (0, Vec::new());
        loop {
            let batch = fixture.contents.take_changes(1, TEST_TIMEOUT).unwrap();
            assert!(batch.generation > first.generation);
            numbers.push(batch.sequence);
            let added = batch.changes.into_iter().flat_map(|change| change.added);
            told += added.map(|range| range.last - range.first + 1).sum::<u64>();
            if !batch.has_more {
                break;
            }
        }
        assert_eq!(told, 209);
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert!(numbers.len() > 1);
    }
}

#[test]
fn rules_hold_in_all_shards_or_in_none() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start(threads);
        fixture.contents.track(Some(HoldingsConfig::default()), TEST_TIMEOUT).unwrap();
        let refuse = rules(5, range(0, 149), Retention::Refuse);
        fixture.contents.set_rules(refuse.clone(), TEST_TIMEOUT).unwrap();
        fixture.fetch(0..300);
        assert_eq!(fixture.held(), [range(150, 299)]);

        // Rules of an older plan, or for more than the store's capacity, change nothing.
        let old = rules(4, range(0, 149), Retention::Admit);
        let outdated = RulesError::Outdated { offered: 4, present: 5 };
        assert_eq!(fixture.contents.set_rules(old, TEST_TIMEOUT), Err(outdated.into()));
        let keep = rules(6, range(0, 9), Retention::Keep { bytes_max: 16 << 20 });
        let refused = fixture.contents.set_rules(keep, TEST_TIMEOUT);
        assert!(
            matches!(refused, Err(ContentsError::Refused(RulesError::KeepTooMuch { .. }))),
            "{refused:?}"
        );
        fixture.contents.set_rules(refuse, TEST_TIMEOUT).unwrap();
        fixture.fetch(0..10);
        assert_eq!(fixture.held(), [range(150, 299)]);

        let keep = rules(7, range(0, 299), Retention::Keep { bytes_max: 8 << 20 });
        fixture.contents.set_rules(keep, TEST_TIMEOUT).unwrap();
        fixture.fetch(0..150);
        let kept = fixture.router.snapshot().router.store.kept_bytes;
        assert!(kept > 300 * 100, "{kept}");
        assert_eq!(fixture.held(), [range(0, 299)]);
    }
}

#[test]
fn misses_are_queued_and_excess_counted() {
    let mut fixture = StoreFixture::start(2);
    fixture.fetch(64..65);
    assert_eq!(fixture.contents.next_miss(Duration::ZERO), None, "no request has come");
    fixture.contents.watch_misses(MissReports::Local, TEST_TIMEOUT).unwrap();
    // Commands and packets arrive in different queues. The reply to a request comes after both.
    let _ = fixture.contents.list_one(&name("/a"), TEST_TIMEOUT);
    fixture.fetch(120..140);
    let missed = fixture.contents.next_miss(TEST_TIMEOUT).unwrap();
    assert_eq!(missed.object, name("/a/v=1"));
    assert_eq!(fixture.contents.next_miss(Duration::ZERO), None);
    for at in 0..1100 {
        fixture.consumer.send(&interest(&format!("/a/{at}/seg=64")));
    }
    fixture.router.wait_until("misses are dropped", |snapshot| {
        snapshot.runtime_drops.iter().any(|&(reason, count)| reason == "miss-untold" && count == 76)
    });
}

#[test]
fn in_process_apps_need_no_listener() {
    let router = TestRouter::start_with(|config| config.listeners.clear());
    let peer = || {
        let stream = router.handle().local_port().connect().unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Peer::new(stream)
    };
    let (mut producer, mut consumer) = (peer(), peer());
    producer.register("/a");
    consumer.send(&interest("/a/1"));
    producer.receive().interest();
    producer.send(&data("/a/1", b"x"));
    assert_eq!(content_of(&consumer.receive().data()), b"x");
    router.stop();
    assert!(consumer.try_frame().unwrap().is_none(), "the stream ends with the router");
}

#[test]
fn clients_and_neighbours_list_holdings() {
    for threads in [1, 2] {
        let mut fixture = StoreFixture::start_with(threads, true);
        fixture.fetch(0..100);
        let ask = |scope: Scope| {
            let dataset = HoldingsStatus::dataset_name(scope.prefix(), &name("/a/v=1"));
            Interest::new(dataset).can_be_prefix(true).must_be_fresh(true).nonce(rand()).encode()
        };
        let status = |wire: &[u8]| {
            let data = DataView::decode(wire).unwrap();
            HoldingsStatus::decode(data.content).unwrap()
        };
        // The index is built from the first request on.
        let held = loop {
            fixture.consumer.send(&ask(Scope::Localhost));
            let held = status(&fixture.consumer.receive().data());
            if !held.is_partial {
                break held;
            }
        };
        assert_eq!((&held.object, &held.memory[..]), (&name("/a/v=1"), &[range(0, 99)][..]));
        assert!(held.disk.is_empty());
        // The same for neighbours.
        let neighbour = fixture.router.udp();
        neighbour.send(&ask(Scope::Localhop));
        assert_eq!(status(&neighbour.receive().data()).memory, [range(0, 99)]);

        // A name that is not that of an object is rejected.
        let bad = Interest::new(name("/localhost/nfd/cs/holdings/x")).can_be_prefix(true);
        fixture.consumer.send(&bad.must_be_fresh(true).nonce(7).encode());
        let answer = fixture.consumer.receive().data();
        assert_eq!(DataView::decode(&answer).unwrap().content_type, 3);
    }
}

#[test]
fn neighbours_list_holdings_only_if_configured() {
    let router = TestRouter::start();
    let dataset = HoldingsStatus::dataset_name(Scope::Localhop.prefix(), &name("/a/v=1"));
    let ask = Interest::new(dataset).can_be_prefix(true).must_be_fresh(true).nonce(1).encode();
    let neighbour = router.udp();
    neighbour.send(&ask);
    neighbour.receive().nack();
}

#[test]
fn first_request_starts_index() {
    let mut fixture = StoreFixture::start(2);
    fixture.fetch(0..100);
    let dataset = HoldingsStatus::dataset_name(Scope::Localhost.prefix(), &name("/a/v=1"));
    loop {
        let ask = Interest::new(dataset.clone()).can_be_prefix(true).must_be_fresh(true);
        fixture.consumer.send(&ask.nonce(rand()).encode());
        let held = HoldingsStatus::decode(&content_of(&fixture.consumer.receive().data())).unwrap();
        if !held.is_partial {
            assert_eq!(held.memory, [range(0, 99)]);
            break;
        }
    }
}

fn rand() -> u32 {
    static NONCE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1 << 20);
    NONCE.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
