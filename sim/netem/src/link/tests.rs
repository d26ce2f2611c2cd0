use proptest::prelude::*;

use super::*;
use crate::Reorder;

const RATES_BPS: [u64; 7] =
    [7, 64_000, 40_000_000, 999_999_937, 1_000_000_000, 123_456_789_013, 400_000_000_000];

fn rated(rate_bps: u64) -> LinkConfig {
    LinkConfig { rate_bps: Some(rate_bps), queue_packets_max: u32::MAX, ..LinkConfig::default() }
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

fn arrival(transit: Transit) -> u64 {
    match transit {
        Transit::Arrives(arrival) => arrival.as_ns(),
        Transit::Dropped(drop) => panic!("dropped: {drop:?}"),
    }
}

fn exact_ns(bytes: u64, rate_bps: u64) -> u64 {
    (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps)) as u64
}

#[test]
fn an_ideal_link_takes_no_time() {
    let mut link = LinkModel::new(LinkConfig::default(), 1);
    for ns in [5, 5, 9] {
        assert_eq!(link.send(at(ns), 8000), Transit::Arrives(at(ns)));
    }
    assert_eq!(link.stats().busy_ns, 0);
}

/// A million frames take exactly as long as a million ideal transmissions. This holds if all are
/// sent at once and if each is sent when the link is idle.
#[test]
fn the_rate_is_exact_over_a_million_frames() {
    for rate_bps in RATES_BPS {
        let mut link = LinkModel::new(rated(rate_bps), 1);
        let mut paced = LinkModel::new(rated(rate_bps), 1);
        let (mut total, mut latest_ns) = (0, 0);
        for index in 0..1_000_000u64 {
            let bytes = [1, 64, 1500, 8000][index as usize % 4];
            total += u64::from(bytes);
            let expected_ns = exact_ns(total, rate_bps);
            assert_eq!(arrival(link.send(at(0), bytes)), expected_ns, "{rate_bps} bit/s, {index}");
            latest_ns = arrival(paced.send(at(latest_ns), bytes));
            assert_eq!(latest_ns, expected_ns, "paced, {rate_bps} bit/s, {index}");
        }
        assert_eq!(link.stats().busy_ns, exact_ns(total, rate_bps));
    }
}

/// Frames of 4 GiB at any rate do not overflow.
#[test]
fn extreme_sizes_and_rates_do_not_overflow() {
    for rate_bps in [1, 3, u64::MAX - 1, u64::MAX] {
        let mut config = rated(rate_bps);
        config.overhead_bytes = u32::MAX;
        config.delay_ns = u64::MAX;
        config.jitter = Jitter::Uniform { max_ns: u64::MAX };
        let mut link = LinkModel::new(config, 1);
        for ns in [0, 1, u64::MAX] {
            link.send(at(ns), u32::MAX);
        }
    }
    let mut link = LinkModel::new(rated(3), 1);
    assert_eq!(arrival(link.send(at(0), u32::MAX)), exact_ns(u64::from(u32::MAX), 3));
}

#[test]
fn zero_rate_counts_as_one_bit_per_second() {
    let mut link = LinkModel::new(rated(0), 1);
    assert_eq!(arrival(link.send(at(0), 1)), 8_000_000_000);
}

#[test]
fn empty_queue_sends_when_link_is_idle() {
    let config = LinkConfig { queue_packets_max: 0, delay_ns: 10, ..rated(8_000_000_000) };
    let mut link = LinkModel::new(config, 1);
    assert_eq!(link.send(at(0), 100), Transit::Arrives(at(110)));
    assert_eq!(link.send(at(99), 100), Transit::Dropped(LinkDrop::QueuePackets));
    assert_eq!(link.send(at(100), 100), Transit::Arrives(at(210)));
}

#[test]
fn queue_bound_counts_frame_overhead() {
    let config = LinkConfig { queue_bytes_max: 240, overhead_bytes: 20, ..rated(8_000_000_000) };
    let mut link = LinkModel::new(config, 1);
    for _ in 0..3 {
        assert!(matches!(link.send(at(0), 100), Transit::Arrives(_)));
    }
    assert_eq!(link.queue_bytes(at(0)), 240);
    assert_eq!(link.send(at(0), 0), Transit::Dropped(LinkDrop::QueueBytes));
    // The second frame starts at 120 and no longer waits.
    assert_eq!((link.queue_bytes(at(119)), link.queue_packets(at(119))), (240, 2));
    assert_eq!((link.queue_bytes(at(120)), link.queue_packets(at(120))), (120, 1));
    assert_eq!((link.stats().queue_bytes_peak, link.stats().queue_packets_peak), (240, 2));
}

/// A simple reference model: it uses exact fractions and keeps all frames.
struct Plain {
    rate_bps: u128,
    queue_bytes_max: u128,
    queue_packets_max: usize,
    /// Numerator over `rate_bps`, in nanoseconds.
    busy_until: u128,
    accepted: Vec<(u128, u128)>,
}

impl Plain {
    fn send(&mut self, now_ns: u64, bytes: u32) -> Result<u64, LinkDrop> {
        let now = u128::from(now_ns) * self.rate_bps;
        // A frame that starts within this nanosecond has left the queue.
        let has_waited = |&&(start, _): &&(u128, u128)| start / self.rate_bps > u128::from(now_ns);
        let waiting: Vec<_> = self.accepted.iter().filter(has_waited).collect();
        let is_busy = self.busy_until / self.rate_bps > u128::from(now_ns);
        if is_busy {
            if waiting.len() >= self.queue_packets_max {
                return Err(LinkDrop::QueuePackets);
            }
            let waiting_bytes: u128 = waiting.iter().map(|(_, bytes)| bytes).sum();
            if waiting_bytes + u128::from(bytes) > self.queue_bytes_max {
                return Err(LinkDrop::QueueBytes);
            }
        }
        let start = self.busy_until.max(now);
        self.accepted.push((start, u128::from(bytes)));
        self.busy_until = start + u128::from(bytes) * 8_000_000_000;
        Ok((self.busy_until / self.rate_bps) as u64)
    }
}

proptest! {
    #[test]
    fn matches_the_reference_model(
        frames in prop::collection::vec((0u64..4_000, 0u32..3_000), 1..300),
        rate_bps in 1_000_000_000u64..20_000_000_000,
        queue_bytes_max in 0u64..20_000,
        queue_packets_max in 0u32..12,
    ) {
        let config = LinkConfig {
            queue_bytes_max, queue_packets_max, delay_ns: 77, ..rated(rate_bps)
        };
        let mut link = LinkModel::new(config, 1);
        let mut plain = Plain {
            rate_bps: rate_bps.into(),
            queue_bytes_max: queue_bytes_max.into(),
            queue_packets_max: queue_packets_max as usize,
            busy_until: 0,
            accepted: Vec::new(),
        };
        let mut now_ns = 0;
        for (gap_ns, bytes) in frames {
            now_ns += gap_ns;
            let expected = match plain.send(now_ns, bytes) {
                Ok(left_ns) => Transit::Arrives(at(left_ns + 77)),
                Err(drop) => Transit::Dropped(drop),
            };
            prop_assert_eq!(link.send(at(now_ns), bytes), expected);
            prop_assert!(link.queue_bytes(at(now_ns)) <= queue_bytes_max);
            prop_assert!(link.queue_packets(at(now_ns)) <= queue_packets_max);
        }
        prop_assert!(link.stats().queue_bytes_peak <= queue_bytes_max);
        prop_assert!(link.stats().queue_packets_peak <= queue_packets_max);
    }

    #[test]
    fn keeps_order_and_counts_without_reorder(
        frames in prop::collection::vec((0u64..50_000, 0u32..9_000), 1..300),
        rate_mbps in prop::option::of(1u64..2_000),
        jitter in prop_oneof![
            Just(Jitter::None),
            (0u64..1_000_000).prop_map(|max_ns| Jitter::Uniform { max_ns }),
            (0u64..1_000_000).prop_map(|sigma_ns| Jitter::Normal { sigma_ns }),
        ],
        probability in 0.0f64..1.0,
        seed: u64,
    ) {
        let config = LinkConfig {
            rate_bps: rate_mbps.map(|mbps| mbps * 1_000_000),
            delay_ns: 500_000,
            jitter,
            loss: Loss::Independent { probability },
            queue_bytes_max: 30_000,
            ..LinkConfig::default()
        };
        let mut link = LinkModel::new(config.clone(), seed);
        let mut again = LinkModel::new(config, seed);
        let (mut now_ns, mut latest_ns, mut offered) = (0, 0, 0);
        for (gap_ns, bytes) in frames {
            now_ns += gap_ns;
            offered += 1;
            let transit = link.send(at(now_ns), bytes);
            prop_assert_eq!(transit, again.send(at(now_ns), bytes));
            if let Transit::Arrives(arrival) = transit {
                prop_assert!(arrival.as_ns() >= latest_ns);
                prop_assert!(arrival.as_ns() >= now_ns);
                prop_assert!(link.survives(link.cuts(), bytes));
                latest_ns = arrival.as_ns();
            }
        }
        let stats = link.stats();
        prop_assert_eq!(stats.offered_frames, offered);
        prop_assert_eq!(stats.delivered_frames + stats.dropped_frames(), offered);
    }
}

/// The fraction of lost frames, and the lengths of the loss bursts.
fn losses(loss: Loss, seed: u64, frames: u64) -> (f64, Vec<u64>) {
    let mut link = LinkModel::new(LinkConfig { loss, ..LinkConfig::default() }, seed);
    let (mut lost, mut runs, mut run) = (0u64, Vec::new(), 0u64);
    for ns in 0..frames {
        if link.send(at(ns), 100) == Transit::Dropped(LinkDrop::Loss) {
            lost += 1;
            run += 1;
        } else if run > 0 {
            runs.push(run);
            run = 0;
        }
    }
    (lost as f64 / frames as f64, runs)
}

/// With random seeds, one run in 1.7 million would exceed five standard errors.
const STANDARD_ERRORS: f64 = 5.0;

#[test]
fn independent_loss_has_its_frequency() {
    let frames = 200_000;
    for probability in [0.001, 0.01, 0.3, 0.9] {
        let bound = STANDARD_ERRORS * (probability * (1.0 - probability) / frames as f64).sqrt();
        for seed in 0..10 {
            let (share, _) = losses(Loss::Independent { probability }, seed, frames);
            assert!((share - probability).abs() < bound, "{probability}: {share}, seed {seed}");
        }
    }
    assert_eq!(losses(Loss::Independent { probability: 0.0 }, 1, 1000).0, 0.0);
    assert_eq!(losses(Loss::Independent { probability: 1.0 }, 1, 1000).0, 1.0);
    // Clamped to the nearest valid value.
    assert_eq!(losses(Loss::Independent { probability: 7.0 }, 1, 1000).0, 1.0);
    assert_eq!(losses(Loss::Independent { probability: -1.0 }, 1, 1000).0, 0.0);
    assert_eq!(losses(Loss::Independent { probability: f64::NAN }, 1, 1000).0, 0.0);
}

/// The mean of a two-state chain over n steps has the variance p (1 - p) / n (1 + r) / (1 - r) with
/// r = 1 - good_to_bad - bad_to_good. Burst lengths are geometric.
#[test]
fn gilbert_elliott_has_mean_rate_and_bursts() {
    let frames = 400_000u64;
    for (good_to_bad, bad_to_good) in [(0.01, 0.25), (0.002, 0.05), (0.3, 0.4)] {
        let loss = Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0 };
        let mean = loss.mean();
        assert!((mean - good_to_bad / (good_to_bad + bad_to_good)).abs() < 1e-12);
        let memory: f64 = 1.0 - good_to_bad - bad_to_good;
        let variance = mean * (1.0 - mean) * (1.0 + memory) / (1.0 - memory) / frames as f64;
        for seed in 0..10 {
            let (share, runs) = losses(loss, seed, frames);
            let bound = STANDARD_ERRORS * variance.sqrt();
            assert!((share - mean).abs() < bound, "{loss:?}: {share}, seed {seed}");
            let burst = runs.iter().sum::<u64>() as f64 / runs.len() as f64;
            let deviation = (1.0 - bad_to_good).sqrt() / bad_to_good;
            let bound = STANDARD_ERRORS * deviation / (runs.len() as f64).sqrt();
            assert!((burst - 1.0 / bad_to_good).abs() < bound, "{loss:?}: {burst}, seed {seed}");
        }
    }
    let both =
        Loss::GilbertElliott { good_to_bad: 0.1, bad_to_good: 0.3, loss_good: 0.05, loss_bad: 0.5 };
    assert!((both.mean() - (0.25 * 0.5 + 0.75 * 0.05)).abs() < 1e-12);
    let (share, _) = losses(both, 3, frames);
    assert!((share - both.mean()).abs() < 0.01, "{share}");
}

/// The first frame is lost as often as any other.
#[test]
fn gilbert_elliott_starts_stationary() {
    let loss = Loss::GilbertElliott {
        good_to_bad: 0.01,
        bad_to_good: 0.03,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let seeds = 20_000;
    let lost = (0..seeds).filter(|&seed| losses(loss, seed, 1).0 > 0.0).count();
    let share = lost as f64 / seeds as f64;
    let bound = STANDARD_ERRORS * (0.25 * 0.75 / seeds as f64).sqrt();
    assert!((share - 0.25).abs() < bound, "{share}");
}

/// Delays beyond `delay_ns` of frames so far apart that keeping the order does not matter.
fn extra_delays(jitter: Jitter, seed: u64, frames: u64) -> Vec<f64> {
    let config = LinkConfig { delay_ns: 20_000_000, jitter, ..LinkConfig::default() };
    let mut link = LinkModel::new(config, seed);
    let extra = |index: u64| {
        let sent_ns = index * 1_000_000_000;
        arrival(link.send(at(sent_ns), 100)) as f64 - (sent_ns + 20_000_000) as f64
    };
    (0..frames).map(extra).collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (values.len() - 1) as f64).sqrt())
}

#[test]
fn jitter_has_its_distribution() {
    let frames = 100_000;
    let root = (frames as f64).sqrt();
    for seed in 0..5 {
        let extra = extra_delays(Jitter::Uniform { max_ns: 1_000_000 }, seed, frames);
        let (mean, deviation) = mean_and_deviation(&extra);
        let expected_deviation = 1e6 / 12f64.sqrt();
        assert!((mean - 5e5).abs() < STANDARD_ERRORS * expected_deviation / root, "{mean}");
        assert!((deviation / expected_deviation - 1.0).abs() < 0.02, "{deviation}");
        assert!(extra.iter().all(|&extra| (0.0..=1e6).contains(&extra)));
        let extra = extra_delays(Jitter::Normal { sigma_ns: 1_000_000 }, seed, frames);
        let (mean, deviation) = mean_and_deviation(&extra);
        assert!(mean.abs() < STANDARD_ERRORS * 1e6 / root, "{mean}");
        assert!((deviation / 1e6 - 1.0).abs() < 0.02, "{deviation}");
        let within = extra.iter().filter(|extra| extra.abs() < 1e6).count() as f64 / frames as f64;
        assert!((within - 0.6827).abs() < 0.01, "{within}");
    }
}

#[test]
fn reordered_frames_arrive_late_others_in_order() {
    let frames = 100_000u64;
    let config = LinkConfig {
        delay_ns: 1_000,
        reorder: Some(Reorder { probability: 0.1, extra_ns: 5_500 }),
        ..LinkConfig::default()
    };
    let mut link = LinkModel::new(config, 4);
    let mut held = 0u64;
    for index in 0..frames {
        let sent_ns = index * 1_000;
        match arrival(link.send(at(sent_ns), 100)) - sent_ns {
            1_000 => {}
            6_500 => held += 1,
            other => panic!("a delay of {other} ns"),
        }
    }
    assert_eq!(link.stats().reordered_frames, held);
    let bound = STANDARD_ERRORS * (0.09 / frames as f64).sqrt();
    assert!((held as f64 / frames as f64 - 0.1).abs() < bound, "{held}");
}

#[test]
fn down_link_loses_queue_and_frames_in_flight() {
    let config = LinkConfig { delay_ns: 10_000, queue_packets_max: 4, ..rated(8_000_000_000) };
    let mut link = LinkModel::new(config, 1);
    let before = link.cuts();
    for _ in 0..5 {
        assert!(matches!(link.send(at(0), 1000), Transit::Arrives(_)));
    }
    assert_eq!(link.queue_packets(at(500)), 4);
    link.set_up(false);
    assert!(!link.is_up());
    assert_eq!(link.queue_packets(at(500)), 0);
    assert_eq!(link.send(at(600), 1000), Transit::Dropped(LinkDrop::Down));
    link.set_up(false);
    link.set_up(true);
    assert_eq!(link.cuts(), before + 1, "a link that is down cannot go down again");
    // The link is idle at once, because its queue was dropped.
    assert_eq!(link.send(at(700), 1000), Transit::Arrives(at(11_700)));
    assert!(!link.survives(before, 1000));
    assert!(link.survives(link.cuts(), 1000));
    assert_eq!(link.stats().lost_in_cuts, 1);
    assert_eq!((link.stats().delivered_frames, link.stats().delivered_bytes), (1, 1000));
    assert_eq!(link.stats().dropped_down, 1);
}

#[test]
fn random_streams_are_independent() {
    let loss = Loss::Independent { probability: 0.2 };
    let plain = LinkConfig { loss, ..LinkConfig::default() };
    let shaken = LinkConfig {
        jitter: Jitter::Normal { sigma_ns: 900 },
        reorder: Some(Reorder { probability: 0.5, extra_ns: 3 }),
        ..plain.clone()
    };
    let lost = |config: LinkConfig, seed| {
        let mut link = LinkModel::new(config, seed);
        let lost = |ns| link.send(at(ns), 9) == Transit::Dropped(LinkDrop::Loss);
        (0..1000).map(lost).collect::<Vec<bool>>()
    };
    assert_eq!(lost(plain.clone(), 5), lost(shaken.clone(), 5));
    assert_ne!(lost(plain.clone(), 5), lost(plain, 6));
}

#[test]
fn earlier_times_count_as_the_latest() {
    let mut link = LinkModel::new(LinkConfig { delay_ns: 5, ..LinkConfig::default() }, 1);
    assert_eq!(arrival(link.send(at(100), 1)), 105);
    assert_eq!(arrival(link.send(at(50), 1)), 105);
}

/// Queued frames keep their times. Later frames take twice as long until the rate is restored.
#[test]
fn rate_share_lasts_for_its_period() {
    let mut link = LinkModel::new(rated(8_000_000_000), 1);
    assert_eq!(link.send(at(0), 100), Transit::Arrives(at(100)));
    link.set_rate_share(0.5);
    assert_eq!(link.send(at(0), 100), Transit::Arrives(at(300)));
    link.set_rate_share(1.0);
    assert_eq!(link.send(at(300), 100), Transit::Arrives(at(400)));
}
