//! Compares the controllers of papers with their equations, and all controllers with their bounds.

use weir_base::{Instant, NS_PER_MS, NS_PER_US};
use weir_transport::congestion::{
    Congestion, CongestionControl, LossDetection, Marks, Round, Sample, Timeout, WindowBounds,
};
use weir_wire::CongestionMark;

use super::*;

const BOUNDS: WindowBounds = WindowBounds { initial: None, max: 4096 };

/// A controller from its text, with bounds that have no effect.
fn control(text: &str) -> Box<dyn CongestionControl> {
    control_from(text, None)
}

fn control_from(text: &str, initial: Option<u32>) -> Box<dyn CongestionControl> {
    let config = CONTROLLERS.parse(text).unwrap();
    config.controller.make(&config.constants, WindowBounds { initial, ..BOUNDS })
}

/// An answer after `rtt_ms` with a chunk of 32 packets; the window limits the consumer.
fn sample(rtt_ms: u64, marked_packets: u32) -> Sample {
    Sample {
        now: Instant::from_ns(NS_PER_MS),
        rtt_ns: Some(rtt_ms * NS_PER_MS),
        smoothed_rtt_ns: rtt_ms * NS_PER_MS,
        min_rtt_ns: NS_PER_MS,
        label: None,
        detour_ns: 0,
        sent_order: 0,
        next_order: 1,
        window_limited: true,
        lost: 0,
        mark: CongestionMark::from_value(2 * u64::from(marked_packets > 0)),
        packets: 32,
        marked_packets,
        bytes: 32_000,
        round: Round::default(),
    }
}

#[track_caller]
fn assert_window(control: &dyn CongestionControl, expected: f64) {
    let window = control.allowance().window;
    assert!((window - expected).abs() < 1e-9, "{window} for {expected}");
}

fn timeout_ms(control: &dyn CongestionControl) -> Option<u64> {
    match control.rules().timeout {
        Timeout::Estimated => None,
        Timeout::After(ns) => Some(ns / NS_PER_MS),
    }
}

/// Eq. 3 with a window of 100: beta_2 - (beta_2 - beta_1) * marked / packets.
#[test]
fn chopcop_shrinks_by_marked_fraction() {
    for (marked, expected) in [(1, 90.0 - 40.0 / 32.0), (8, 80.0), (32, 50.0)] {
        let mut control = control_from("chopcop beta_1=0.5 beta_2=0.9", Some(100));
        control.on_data(&sample(100, marked));
        assert_window(&*control, expected);
    }
    let mut control = control_from("chopcop beta_1=0.2 beta_2=0.6", Some(100));
    control.on_data(&sample(100, 16));
    control.on_data(&sample(100, 16));
    assert_window(&*control, 16.0);
    for _ in 0..100 {
        control.on_data(&sample(100, 32));
    }
    assert_window(&*control, 1.0);
}

#[test]
fn chopcop_adds_one_a_chunk_then_alpha_a_window() {
    let mut chopcop = control_from("chopcop alpha=0.5", Some(10));
    for _ in 0..10 {
        chopcop.on_data(&sample(100, 0));
    }
    assert_window(&*chopcop, 20.0);
    chopcop.on_data(&sample(100, 32));
    assert_window(&*chopcop, 10.0);
    for _ in 0..10 {
        chopcop.on_data(&sample(100, 0));
    }
    let window = chopcop.allowance().window;
    assert!((10.48..=10.5).contains(&window), "{window}");

    let mut chopcop = control_from("chopcop threshold=12", Some(10));
    for _ in 0..3 {
        chopcop.on_data(&sample(100, 0));
    }
    assert_window(&*chopcop, 12.0 + 1.0 / 12.0);
}

/// Eq. 4 and 5 by hand: 100, then 0.5 * 100 + 0.5 * 300 = 200, then 0.5 * 200 + 0.5 * 100 = 150.
#[test]
fn chopcop_timeout_is_a_multiple_of_mean_rtt() {
    let mut control = control_from("chopcop sigma=0.5 delta=3 beta_0=0.7", Some(10));
    assert_eq!(timeout_ms(&*control), None);
    for (rtt_ms, timeout) in [(100, 300), (300, 600), (100, 450)] {
        control.on_data(&sample(rtt_ms, 0));
        assert_eq!(timeout_ms(&*control), Some(timeout));
    }
    assert_window(&*control, 13.0);
    control.on_timeout(Instant::ZERO);
    assert_window(&*control, 9.1);
    let rules = control.rules();
    assert_eq!((rules.loss_detection, rules.marks), (LossDetection::Never, Marks::Unreported));
}

/// The timeout lies at delta between the smallest and the largest round trip of the history.
/// Samples that left the history no longer count.
#[test]
fn icp_has_a_timer_between_least_and_greatest() {
    let mut control = control("icp history=4 delta=0.25");
    for rtt_ms in [1000, 100, 200] {
        control.on_data(&sample(rtt_ms, 0));
        assert_eq!(timeout_ms(&*control), None, "the history is not full");
    }
    for (rtt_ms, timeout) in [(140, 325), (120, 125), (300, 165)] {
        control.on_data(&sample(rtt_ms, 0));
        assert_eq!(timeout_ms(&*control), Some(timeout));
    }
    let rules = control.rules();
    assert_eq!((rules.loss_detection, rules.marks), (LossDetection::Never, Marks::Unreported));
}

#[test]
fn icp_grows_by_eta_and_shrinks_on_timeouts() {
    for name in ["icp", "hr-icp"] {
        let mut control = control_from(&format!("{name} eta=2 beta=0.25"), Some(10));
        control.on_data(&sample(100, 32));
        assert_window(&*control, 10.2);
        control.on_timeout(Instant::ZERO);
        assert_window(&*control, 2.55);
        control.on_timeout(Instant::ZERO);
        assert_window(&*control, 1.0);
    }
}

#[test]
fn nb_cc_adds_one_per_data_and_halves_on_mark() {
    fn round(control: &mut dyn CongestionControl) {
        for _ in 0..control.allowance().window as u64 {
            control.on_data(&sample(100, 0));
        }
    }
    let mut control = control("nb-cc");
    for window in [2.0, 4.0, 8.0, 16.0, 32.0] {
        assert_window(&*control, window);
        round(&mut *control);
    }
    assert_window(&*control, 64.0);
    control.on_congestion(Instant::ZERO, Congestion::Mark);
    for window in [32.0, 64.0] {
        assert_window(&*control, window);
        round(&mut *control);
    }
    // The window grows neither on marked Data nor on a timeout.
    let window = control.allowance().window;
    control.on_data(&sample(100, 1));
    assert_window(&*control, window);
    for _ in 0..20 {
        control.on_congestion(Instant::ZERO, Congestion::Mark);
    }
    assert_window(&*control, 1.0);
    control.on_timeout(Instant::ZERO);
    assert_window(&*control, 1.0);
}

#[test]
fn ictp_behaves_like_tcp() {
    let mut control = control("ictp");
    assert_window(&*control, 2.0);
    for _ in 0..14 {
        control.on_data(&sample(100, 1));
    }
    assert_window(&*control, 16.0);
    control.on_congestion(Instant::ZERO, Congestion::Loss);
    assert_window(&*control, 8.0);
    control.on_data(&sample(100, 0));
    assert_window(&*control, 8.125);
    control.on_timeout(Instant::ZERO);
    assert_window(&*control, 1.0);
    for window in [2.0, 3.0, 4.0, 5.0, 5.2] {
        control.on_data(&sample(100, 0));
        assert_window(&*control, window);
    }
    let rules = control.rules();
    assert_eq!(
        (rules.timeout, rules.loss_detection),
        (Timeout::Estimated, LossDetection::AfterThree)
    );
    assert_eq!(rules.marks, Marks::Unreported);
}

/// p = p_min + (p_max - p_min) * (R - R_min) / (R_max - R_min). At the largest round trip each
/// fourth Data shrinks the window here, at the smallest none, and in the middle each eighth.
#[test]
fn delay_shrinks_more_often_with_more_delay() {
    for (rtt_ms, each) in [(200, 4), (150, 8), (100, 1000)] {
        let mut control = control_from("delay p_max=0.25 p_min=0 eta=0.01 beta=0.5", Some(1000));
        // The first sample ends slow start, and the two samples are the bounds.
        for rtt_ms in [100, 200] {
            control.on_data(&sample(rtt_ms, 0));
        }
        let mut decreases = Vec::new();
        for answer in 1..=24 {
            let before = control.allowance().window;
            control.on_data(&sample(rtt_ms, 0));
            if control.allowance().window < before {
                decreases.push(answer);
            }
        }
        // The earlier Data at 200 ms has contributed 0.25 to the first decrease.
        let first = if each == 4 { 3 } else { each - each / 4 };
        let expected: Vec<u32> = (first..=24).step_by(each as usize).collect();
        assert_eq!(decreases, expected, "{rtt_ms} ms");
    }
}

#[test]
fn constants_are_part_of_the_text() {
    let parse = |text: &str| CONTROLLERS.parse(text);
    let config = parse(" chopcop  beta_2=0.85 delta=3 ").unwrap();
    assert_eq!(config.controller.name(), "chopcop");
    assert_eq!(config.to_string(), "chopcop beta_2=0.85 delta=3");
    assert_eq!(parse(&config.to_string()), Ok(config));
    for wrong in ["chopcop gamma=1", "chopcop beta_2", "chopcop beta_2=x", "chopcop beta_2=1.5"] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("alpha, beta_0, beta_1, beta_2"), "{error}");
    }
    for (wrong, problem) in [
        ("chopcop beta_1=0.95", "beta_1=0.95 and beta_2=0.9: `beta_1` must not be above `beta_2`"),
        ("chopcop beta_2=0.4", "beta_1=0.5 and beta_2=0.4"),
        ("delay p_min=0.3", "p_min=0.3 and p_max=0.2"),
        ("delay p_max=0 beta=0.5", "p_min=0.00001 and p_max=0"),
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    // The last value of a constant counts, and contradictions are checked at the end.
    for right in ["chopcop beta_1=0.95 beta_2=0.97", "chopcop beta_2=0.4 beta_1=0.4"] {
        assert!(parse(right).is_ok(), "{right}");
    }
    for controller in CONTROLLERS.iter() {
        for key in controller.constants() {
            for value in ["NaN", "-1"] {
                assert!(parse(&format!("{controller} {key}={value}")).is_err(), "{key}={value}");
            }
        }
    }
}

#[test]
fn table_has_the_built_in_controllers() {
    for controller in Controllers::BUILT_IN.iter() {
        assert_eq!(CONTROLLERS.find(controller.name()), Some(controller));
    }
}

#[test]
fn unused_window_does_not_grow() {
    for controller in CONTROLLERS.iter() {
        let mut control = controller.make(&Default::default(), BOUNDS);
        let before = control.allowance().window;
        for order in 0..100 {
            control.on_data(&Sample {
                now: Instant::from_ns(order * NS_PER_US),
                sent_order: order,
                next_order: order + 1,
                window_limited: false,
                ..sample(1, 0)
            });
        }
        assert_eq!(control.allowance().window, before, "{controller}");
    }
}

#[test]
fn windows_stay_within_their_bounds() {
    for controller in CONTROLLERS.iter() {
        let bounds = WindowBounds { initial: Some(64), max: 128 };
        let mut control = controller.make(&Default::default(), bounds);
        // Rounds of 10 ms without a queue, in which the window is fully used.
        let mut order = 0;
        for round in 1..=50 {
            let sent = control.allowance().window as u64;
            for at in order..order + sent {
                control.on_data(&Sample {
                    now: Instant::from_ns(round * 10 * NS_PER_MS),
                    min_rtt_ns: 10 * NS_PER_MS,
                    sent_order: at,
                    next_order: order + sent,
                    ..sample(10, 0)
                });
            }
            order += sent;
        }
        assert!(control.allowance().window <= 128.0, "{controller}");
        for i in 0..50 {
            control.on_timeout(Instant::from_ns(i));
            control.on_congestion(Instant::from_ns(i), Congestion::Nack);
        }
        assert!(control.allowance().window >= 1.0, "{controller}");
    }
}

/// Round trips of zero, and losses.
#[test]
fn windows_stay_bounded_at_constant_time() {
    for controller in CONTROLLERS.iter() {
        let mut control = controller.make(&Default::default(), BOUNDS);
        for order in 0..1000 {
            control.on_data(&Sample {
                now: Instant::ZERO,
                sent_order: order,
                next_order: order + 10,
                lost: order / 3,
                ..sample(0, 0)
            });
            let window = control.allowance().window;
            assert!((1.0..=4096.0).contains(&window), "{controller}: {window}");
        }
    }
}
