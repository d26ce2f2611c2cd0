extern crate std;

use std::string::ToString;
use std::vec::Vec;

use weir_base::{NS_PER_MS, NS_PER_S};
use weir_wire::CongestionMark;

use super::aimd::{Aimd, AimdConfig};
use super::cubic::{Cubic, CubicConfig};
use super::ledbat::Ledbat;
use super::*;

/// An answer of one packet, to a consumer whose window is always full.
pub(super) fn sample(now: Instant, rtt_ns: u64, order: u64) -> Sample {
    Sample {
        now,
        rtt_ns: Some(rtt_ns),
        smoothed_rtt_ns: rtt_ns,
        min_rtt_ns: rtt_ns,
        label: None,
        detour_ns: 0,
        sent_order: order,
        next_order: order + 1,
        window_limited: true,
        lost: 0,
        mark: CongestionMark::NONE,
        packets: 1,
        marked_packets: 0,
        bytes: 1000,
        round: Round::default(),
    }
}

/// A path with a rate in segments per millisecond and a base round trip, whose controller always
/// uses its window. Returns the window before each round.
fn rounds(control: &mut dyn CongestionControl, count: usize, rate_per_ms: f64) -> Vec<f64> {
    let base_ns = 10 * NS_PER_MS;
    let mut now = Instant::ZERO;
    let mut order = 0;
    let mut windows = Vec::new();
    for _ in 0..count {
        let window = control.allowance().window;
        windows.push(window);
        let queued_ns = (window / rate_per_ms * NS_PER_MS as f64) as u64;
        let rtt_ns = base_ns.max(queued_ns);
        now = now.plus_ns(rtt_ns);
        let sent = window as u64;
        for i in 0..sent {
            control.on_data(&Sample {
                min_rtt_ns: base_ns,
                next_order: order + sent,
                ..sample(now, rtt_ns, order + i)
            });
        }
        order += sent;
    }
    windows
}

#[test]
fn slow_start_doubles_then_aimd_adds_one() {
    let mut aimd = Aimd::new(AimdConfig::default());
    assert_eq!(rounds(&mut aimd, 5, 1e9), [2.0, 4.0, 8.0, 16.0, 32.0]);
    aimd.on_congestion(Instant::ZERO, Congestion::Mark);
    assert_eq!(aimd.allowance().window, 32.0);
    let grown = rounds(&mut aimd, 4, 1e9);
    assert!(grown.windows(2).all(|pair| (0.9..=1.0).contains(&(pair[1] - pair[0]))), "{grown:?}");
}

#[test]
fn cubic_recovers_maximum_after_decrease() {
    let config = CubicConfig { initial_window: 100.0, ..CubicConfig::default() };
    let mut cubic = Cubic::new(config);
    cubic.on_congestion(Instant::ZERO, Congestion::Loss);
    assert!((cubic.allowance().window - 70.0).abs() < 1e-9);
    // K = cbrt(30 / 0.4) = 4.2 s, or 422 rounds of 10 ms. AIMD would be back after about 57 rounds.
    let grown = rounds(&mut cubic, 120, 1e9);
    let back = grown.iter().position(|&window| window >= 99.0).unwrap();
    assert!((40..80).contains(&back), "{back}");
    assert!(grown.windows(2).all(|pair| pair[1] >= pair[0]));
}

#[test]
fn cubic_outgrows_aimd_on_long_path() {
    let config = CubicConfig { initial_window: 1000.0, ..CubicConfig::default() };
    let mut cubic = Cubic::new(config);
    cubic.on_congestion(Instant::ZERO, Congestion::Loss);
    // AIMD adds 0.53 a round, 160 in 300 rounds. K = cbrt(300 / 0.4) = 9.1 s.
    let mut now = 0;
    let mut order = 0;
    while now < 9_100 * NS_PER_MS {
        let window = cubic.allowance().window as u64;
        for _ in 0..window {
            now += 100 * NS_PER_MS / window;
            cubic.on_data(&sample(Instant::from_ns(now), 100 * NS_PER_MS, order));
            order += 1;
        }
    }
    assert!((950.0..1010.0).contains(&cubic.allowance().window), "{}", cubic.allowance().window);
}

#[test]
fn delay_ends_slow_start_near_capacity() {
    // Ten milliseconds at 20 segments per millisecond hold 200 segments.
    let mut cubic = Cubic::new(CubicConfig::default());
    let windows = rounds(&mut cubic, 60, 20.0);
    let largest = windows.iter().copied().fold(0.0, f64::max);
    assert!((200.0..900.0).contains(&largest), "{windows:?}");
}

#[test]
fn ledbat_yields_to_other_traffic() {
    let bounds = WindowBounds { initial: None, max: 1000 };
    let mut control = Ledbat::from_config(Default::default(), bounds);
    // Alone at 20 segments per millisecond: 200 fill the path, 300 more are the target of 15 ms.
    let windows = rounds(&mut control, 400, 20.0);
    assert!(windows.iter().all(|&window| window < 520.0), "{windows:?}");
    assert!(windows[300..].iter().all(|&window| window > 400.0), "{windows:?}");
    // The queue of another flow takes 40 ms: the window falls to one Interest.
    let mut now = Instant::from_ns(60 * NS_PER_S);
    let mut rounds_taken = 0;
    while control.allowance().window > 1.0 {
        rounds_taken += 1;
        assert!(rounds_taken < 20, "{}", control.allowance().window);
        now = now.plus_ns(50 * NS_PER_MS);
        for order in 0..control.allowance().window as u64 {
            control.on_data(&Sample {
                min_rtt_ns: 10 * NS_PER_MS,
                ..sample(now, 50 * NS_PER_MS, order)
            });
        }
    }
    // The other flow ends, and the window grows back.
    let grown = rounds(&mut control, 100, 20.0);
    assert!(grown.last().is_some_and(|&window| window > 90.0), "{grown:?}");
    control.on_congestion(now, Congestion::Mark);
    control.on_timeout(now);
    assert_eq!(control.allowance().window, 1.0);
}

#[test]
fn controllers_are_found_by_name() {
    let all = Controllers::BUILT_IN;
    assert_eq!(all.names(), Controllers::BUILT_IN_NAMES);
    for controller in all.iter() {
        let config = ControllerConfig { controller, ..ControllerConfig::default() };
        assert_eq!(all.parse(controller.name()), Ok(config));
        assert_eq!(controller.name().parse(), Ok(controller));
    }
    for unknown in ["reno", ""] {
        let error = ControllerError::Unknown { name: unknown.to_string(), known: all };
        assert_eq!(all.parse(unknown), Err(error));
    }
}

#[test]
fn parses_constants() {
    let parse = |text: &str| Controllers::BUILT_IN.parse(text);
    let config = parse(" cubic  steepness=1 beta=0.8 ").unwrap();
    assert_eq!(config.controller, Controller::CUBIC);
    assert_eq!(config.to_string(), "cubic steepness=1 beta=0.8");
    assert_eq!(parse(&config.to_string()), Ok(config));
    let many = std::format!("cubic{}", " beta=0.5".repeat(9));
    for wrong in ["cubic gamma=1", "cubic beta", "cubic beta=x", "cubic beta=1.5", &many] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("it has beta, steepness"), "{error}");
    }
}

#[test]
fn windowed_min_max_forgets() {
    let mut range = WindowedMinMax::new(10);
    assert_eq!(range.bounds(), None);
    for (at, value, bounds) in [(0, 5, (5, 5)), (9, 7, (5, 7)), (10, 6, (5, 7)), (20, 6, (6, 6))] {
        range.add(Instant::from_ns(at), value);
        assert_eq!(range.bounds(), Some(bounds), "{at}");
    }
    range.add(Instant::from_ns(100), 9);
    assert_eq!(range.bounds(), Some((9, 9)), "after a silence");
}

#[test]
fn cubic_paces_below_minimum_when_marked() {
    let mut cubic = Cubic::new(CubicConfig { initial_window: 2.0, ..CubicConfig::default() });
    let mut order = 0;
    let mut answer = |cubic: &mut Cubic, is_marked: bool| {
        order += 1;
        cubic.on_data(&Sample {
            next_order: order + 2,
            mark: CongestionMark::from_value(u64::from(is_marked)),
            marked_packets: u32::from(is_marked),
            bytes: 8_000,
            ..sample(Instant::ZERO, NS_PER_MS, order)
        });
        if is_marked {
            cubic.on_congestion(Instant::ZERO, Congestion::Mark);
        }
        cubic.allowance()
    };
    let first = answer(&mut cubic, true).pacing_bps.expect("slower than the window");
    let mut slowest = first;
    for _ in 0..100 {
        slowest = answer(&mut cubic, true).pacing_bps.unwrap();
    }
    assert!((40..64).contains(&(first / slowest)), "{first} {slowest}");
    let until_window = (0..1_000).position(|_| answer(&mut cubic, false).pacing_bps.is_none());
    assert!((60..120).contains(&until_window.unwrap()), "{until_window:?}");
    assert!(cubic.allowance().window <= 2.0);
}
