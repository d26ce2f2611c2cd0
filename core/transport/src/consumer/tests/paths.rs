//! Tests of paths: pacing, and which path takes a chunk.

use super::*;

struct Paced;

impl CongestionControl for Paced {
    fn on_data(&mut self, _sample: &Sample) {}

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

    fn on_timeout(&mut self, _now: Instant) {}

    fn allowance(&self) -> Allowance {
        // A packet of 8800 bytes every 10 ms.
        Allowance { window: 5.0, pacing_bps: Some(7_040_000) }
    }
}

#[test]
fn paces_interests() {
    let mut fixture = sequence(1);
    fixture.input(ConsumerInput::RemovePath { path: PATH });
    let path = Path::new(PathId(9), RttConfig::default(), Box::new(Paced));
    fixture.consumer.transfer.scoreboard.push_path(path);
    assert_eq!(fixture.append(1, "/a", Some(0..100)).len(), 1);
    let mut sent = 1;
    while sent < 5 {
        fixture.now = fixture.consumer.next_wakeup().unwrap();
        sent += fixture.step().len();
        assert_eq!(fixture.now, Instant::from_ns((sent as u64 - 1) * 10 * NS_PER_MS));
    }
    // The window is full now.
    let next = fixture.consumer.next_wakeup().unwrap();
    assert_eq!(next, Instant::from_ns(NS_PER_S), "the timeout of the first");
}

/// The driver is not called needlessly while an unused path has room.
#[test]
fn standby_path_causes_no_wakeup() {
    let mut fixture = sequence(1);
    fixture.input(ConsumerInput::AddPath { path: PathId(9), window: None, is_local: false });
    assert_eq!(fixture.append(1, "/a", Some(0..9)).len(), 1);
    let wakeup = fixture.consumer.next_wakeup().unwrap();
    assert_eq!(wakeup, Instant::from_ns(NS_PER_S), "the timeout of the first");
}

/// Interests of a removed path do not count as sent on a new path with the same number, whose
/// sending order starts again.
#[test]
fn readded_path_starts_fresh() {
    /// Records the orders of answered Interests.
    struct RecordedOrders(alloc::sync::Arc<std::sync::Mutex<Vec<(u64, u64)>>>);

    impl CongestionControl for RecordedOrders {
        fn on_data(&mut self, sample: &Sample) {
            self.0.lock().unwrap().push((sample.sent_order, sample.next_order));
        }

        fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

        fn on_timeout(&mut self, _now: Instant) {}

        fn allowance(&self) -> Allowance {
            Allowance::window(1.0)
        }
    }

    let mut fixture = sequence(4);
    assert_eq!(fixture.append(1, "/a", Some(0..4)).len(), 4);
    assert!(fixture.input(ConsumerInput::RemovePath { path: PATH }).is_empty());
    let orders = alloc::sync::Arc::default();
    let control = Box::new(RecordedOrders(alloc::sync::Arc::clone(&orders)));
    fixture.consumer.transfer.scoreboard.push_path(Path::new(PATH, RttConfig::default(), control));
    assert_eq!(fixture.step(), [segment("/a", 0)], "the window is one");
    // The last one of the removed path.
    fixture.data(&segment("/a", 3));
    assert!(orders.lock().unwrap().is_empty(), "it is no answer to what was sent on this one");
    fixture.data(&segment("/a", 0));
    assert_eq!(*orders.lock().unwrap(), [(0, 1)]);
}

/// With a small buffer only the faster of two paths is used (paper chopcop, 4.2: freeze and
/// resume). Its segments would have to wait for the slower path.
#[test]
fn freezes_slow_path_when_reader_is_full() {
    const SLOW: PathId = PathId(9);
    let asked_of_slow = |reader_segments_max| {
        let config = ConsumerConfig {
            controller: Controller::FIXED,
            window: Some(4),
            verification: Verification::Off,
            schedule: PathSchedule::Parallel,
            reader_segments_max,
            ..ConsumerConfig::default()
        };
        let mut fixture = Fixture::new(Target::Sequence, config);
        fixture.input(ConsumerInput::AddPath { path: SLOW, window: None, is_local: false });
        let mut asked = fixture.append(1, "/a", Some(0..1000));
        // The first answers show the paths' round trips, 1 and 20 ms.
        assert_eq!(asked.len(), 8);
        let of_slow = asked.split_off(4);
        fixture.now = fixture.now.plus_ns(NS_PER_MS);
        for name in &asked {
            fixture.data(name);
        }
        fixture.now = fixture.now.plus_ns(19 * NS_PER_MS);
        let mut count = 0;
        for name in &of_slow {
            let packet = Data::new(name.clone()).encode_with_digest().into();
            let header = LpHeader::default();
            fixture.input(ConsumerInput::Packet { path: SLOW, header, packet });
            count += fixture.out_paths.iter().filter(|&&path| path == SLOW).count();
        }
        count
    };
    // In 20 ms the fast path delivers 80.
    assert_eq!(asked_of_slow(40), 0);
    assert_eq!(asked_of_slow(400), 4);
}

#[test]
fn probes_timed_out_path_with_one_chunk() {
    const SILENT: PathId = PathId(9);
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(4),
        verification: Verification::Off,
        schedule: PathSchedule::Parallel,
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Sequence, config);
    fixture.input(ConsumerInput::AddPath { path: SILENT, window: None, is_local: false });
    let mut asked = fixture.append(1, "/a", Some(0..10_000));
    assert_eq!(fixture.out_paths.iter().filter(|&&path| path == SILENT).count(), 4);
    let mut lost = asked.split_off(4);
    let mut tries = 0;
    for _ in 0..10_000 {
        fixture.now = fixture.now.plus_ns(NS_PER_MS);
        let name = asked.remove(0);
        let next = fixture.data(&name);
        for (name, path) in next.into_iter().zip(fixture.out_paths.clone()) {
            if path == SILENT {
                assert!(!lost.contains(&name), "{name} was lost there");
                lost.push(name);
                tries += 1;
            } else {
                asked.push(name);
            }
        }
        if asked.is_empty() {
            break;
        }
    }
    assert!((2..=10).contains(&tries), "{tries}");
}
