//! Tests of the rules of a controller: timeouts, loss detection, and marks.

use super::*;

/// A controller with given rules.
struct FixedRules(PathRules);

impl CongestionControl for FixedRules {
    fn on_data(&mut self, _sample: &Sample) {}

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

    fn on_timeout(&mut self, _now: Instant) {}

    fn allowance(&self) -> Allowance {
        Allowance::window(10.0)
    }

    fn rules(&self) -> PathRules {
        self.0
    }
}

fn ruled(rules: PathRules) -> Fixture {
    let mut fixture = sequence(1);
    fixture.input(ConsumerInput::RemovePath { path: PATH });
    let path = Path::new(PATH, RttConfig::default(), Box::new(FixedRules(rules)));
    fixture.consumer.transfer.scoreboard.push_path(path);
    fixture
}

#[test]
fn controller_sets_timeout() {
    for (timeout, first_ms, second_ms) in [
        (Timeout::Estimated, 1000, 3000),
        (Timeout::After(300 * NS_PER_MS), 300, 600),
        (Timeout::After(NS_PER_MS), 10, 20),
        (Timeout::After(9 * NS_PER_S), 4000, 8000),
    ] {
        let mut fixture = ruled(PathRules { timeout, ..PathRules::default() });
        fixture.append(1, "/a", Some(0..1));
        for at_ms in [first_ms, second_ms] {
            fixture.now = fixture.consumer.next_wakeup().unwrap();
            assert_eq!(fixture.now, Instant::from_ns(at_ms * NS_PER_MS), "{timeout:?}");
            assert_eq!(fixture.step().len(), 1);
        }
    }
}

#[test]
fn controller_sets_loss_detection() {
    // Answers at 100, 101, ... 108 ms: the third at 102, and 1.25 of the slowest is 135.
    for (loss_detection, expected_ms) in [
        (LossDetection::AfterSlowest, Some(135)),
        (LossDetection::AfterSlowestEarly, Some(135)),
        (LossDetection::AfterThree, Some(102)),
        (LossDetection::Never, None),
    ] {
        let mut fixture = ruled(PathRules { loss_detection, ..PathRules::default() });
        fixture.append(1, "/a", Some(0..10));
        let lost_ms = (100..190).find(|&at_ms| {
            fixture.now = Instant::from_ns(at_ms * NS_PER_MS);
            if at_ms < 109 {
                fixture.data(&segment("/a", at_ms - 99));
            }
            fixture.step();
            fixture.consumer.stats().losses > 0
        });
        assert_eq!(lost_ms, expected_ms, "{loss_detection:?}");
    }
}

/// Answers after 1 ms, while routers suppress retransmissions before 10 ms.
#[test]
fn early_loss_waits_for_retransmission() {
    for (loss_detection, lost_us, sent_us) in [
        (LossDetection::AfterSlowest, 10_000, 10_000),
        (LossDetection::AfterSlowestEarly, 1250, 10_000),
    ] {
        let mut fixture = ruled(PathRules { loss_detection, ..PathRules::default() });
        fixture.append(1, "/a", Some(0..10));
        fixture.now = Instant::from_ns(NS_PER_MS);
        for index in 1..10 {
            fixture.data(&segment("/a", index));
        }
        for at_us in [lost_us, sent_us] {
            fixture.now = fixture.consumer.next_wakeup().unwrap();
            assert_eq!(fixture.now, Instant::from_ns(at_us * 1000), "{loss_detection:?}");
            let is_sent = at_us == sent_us;
            assert_eq!(fixture.step().len(), usize::from(is_sent), "{loss_detection:?}");
            assert_eq!(fixture.consumer.stats().losses, 1);
            if lost_us == sent_us {
                break;
            }
        }
    }
}

/// Regression: on a path of 1 ms sixteen tries ended within 150 ms, while routers suppress each
/// retransmission for up to 250 ms.
#[test]
fn repeated_losses_back_off() {
    for loss_detection in
        [LossDetection::AfterSlowest, LossDetection::AfterSlowestEarly, LossDetection::AfterThree]
    {
        let mut fixture = ruled(PathRules { loss_detection, ..PathRules::default() });
        let mut asked = fixture.append(1, "/a", Some(0..20_000));
        let mut asked_ms = Vec::new();
        for at_ms in 1..1000 {
            let lost = asked.iter().position(|name| *name == segment("/a", 0));
            if let Some(lost) = lost {
                asked.swap_remove(lost);
                asked_ms.push(at_ms - 1);
            }
            fixture.now = Instant::from_ns(at_ms * NS_PER_MS);
            let answered = std::mem::take(&mut asked);
            answered.iter().for_each(|name| asked.extend(fixture.data(name)));
            asked.extend(fixture.step());
        }
        let waits_ms: Vec<u64> = asked_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let expected_ms = [10, 20, 40, 80, 160, 320];
        assert_eq!(&waits_ms[..6], expected_ms, "{loss_detection:?}: {waits_ms:?}");
    }
}

/// Arriving answers show that older Interests wait in a queue, so the timeout restarts.
#[test]
fn answers_postpone_timeout() {
    for (loss_detection, timeouts) in
        [(LossDetection::AfterSlowest, 1), (LossDetection::AfterSlowestEarly, 0)]
    {
        let mut fixture = ruled(PathRules { loss_detection, ..PathRules::default() });
        fixture.append(1, "/a", Some(0..50));
        let mut answer = |at_ms, index| {
            fixture.now = Instant::from_ns(at_ms * NS_PER_MS);
            fixture.step();
            fixture.data(&segment("/a", index));
        };
        // The timeout is 0.3 s after these. Then each answer takes 50 ms longer than the last.
        (0..40).for_each(|index| answer(100 * (index / 10 + 1), index));
        (40..50).for_each(|index| answer(550 + 50 * (index - 40), index));
        assert_eq!(fixture.consumer.stats().timeouts.min(1), timeouts, "{loss_detection:?}");
    }
}

/// No later answers can overtake the last Interests of an object.
#[test]
fn tail_loss_is_found_before_timeout() {
    let mut fixture = ruled(PathRules {
        loss_detection: LossDetection::AfterSlowestEarly,
        ..PathRules::default()
    });
    fixture.append(1, "/a", Some(0..3));
    fixture.now = Instant::from_ns(100 * NS_PER_MS);
    fixture.data(&segment("/a", 0));
    fixture.step();
    fixture.now = fixture.consumer.next_wakeup().unwrap();
    // Twice 1.25 of the slowest answer, after the latest answer.
    assert_eq!(fixture.now, Instant::from_ns(350 * NS_PER_MS));
    assert_eq!(fixture.step().len(), 1, "the oldest");
    let stats = fixture.consumer.stats();
    assert_eq!((stats.losses, stats.decreases, stats.timeouts), (1, 0, 0));
    // Once, until an answer arrives: timeouts of a dead path grow.
    fixture.now = fixture.consumer.next_wakeup().unwrap();
    fixture.step();
    assert_eq!(fixture.consumer.stats().timeouts, 1);
}

/// Regression: each stall permanently doubled the reorder margin.
#[test]
fn stall_does_not_widen_reorder_margin() {
    let mut fixture = ruled(PathRules {
        loss_detection: LossDetection::AfterSlowestEarly,
        ..PathRules::default()
    });
    fixture.append(1, "/a", Some(0..3));
    fixture.now = Instant::from_ns(NS_PER_MS);
    fixture.data(&segment("/a", 0));
    fixture.step();
    // The oldest is sent again, and its first answer arrives at the same time.
    fixture.now = fixture.consumer.next_wakeup().unwrap();
    fixture.step();
    assert_eq!(fixture.consumer.stats().losses, 1);
    fixture.data(&segment("/a", 1));
    assert_eq!(fixture.consumer.stats().false_losses, 0);
}

/// An unreliable consumer gives up a lost segment, although its answer may only be late.
#[test]
fn unreliable_path_detects_no_early_loss() {
    for (sends_once, losses) in [(false, 1), (true, 0)] {
        let mut fixture = sequence(1);
        fixture.input(ConsumerInput::RemovePath { path: PATH });
        let rules =
            PathRules { loss_detection: LossDetection::AfterSlowestEarly, ..PathRules::default() };
        let path = Path::new(PATH, RttConfig::default(), Box::new(FixedRules(rules)));
        fixture.consumer.transfer.scoreboard.push_path(path.with_rules(None, false, sends_once));
        fixture.append(1, "/a", Some(0..10));
        fixture.now = Instant::from_ns(NS_PER_MS);
        for index in 1..10 {
            fixture.data(&segment("/a", index));
        }
        fixture.now = Instant::from_ns(9 * NS_PER_MS);
        fixture.step();
        assert_eq!(fixture.consumer.stats().losses, losses, "sends once: {sends_once}");
    }
}

/// A mark that the controller ignores does not replace a loss of its round trip.
#[test]
fn ignored_mark_hides_no_timeout() {
    for marks in [Marks::Reported, Marks::Unreported] {
        let mut fixture = ruled(PathRules { marks, ..PathRules::default() });
        fixture.append(1, "/a", Some(0..2));
        let header = LpHeader { congestion_mark: 1, ..LpHeader::default() };
        let packet = Data::new(segment("/a", 1)).encode_with_digest().into();
        fixture.now = Instant::from_ns(NS_PER_MS);
        fixture.input(ConsumerInput::Packet { path: PATH, header, packet });
        assert_eq!(fixture.consumer.stats().marks, 1);
        let heard = u64::from(marks == Marks::Reported);
        assert_eq!(fixture.consumer.stats().decreases, heard);
        fixture.now = fixture.consumer.next_wakeup().unwrap();
        fixture.step();
        let stats = fixture.consumer.stats();
        assert_eq!((stats.timeouts, stats.decreases), (1, 1), "{marks:?}");
    }
}
