//! asf, with the cases of NFD's own tests (fe044ce3, `tests/daemon/fw/asf-strategy.t.cpp`).

use alloc::format;
use alloc::string::ToString;

use super::topology::{End, Node, Topology};
use super::*;
use crate::strategy::{Strategy, StrategyError};

const ASF: &str = "/localhost/nfd/strategy/asf";

/// A consumer at A and a producer at C. The path over B is fast and costs 10. The path over D is
/// ten times slower and costs 5.
struct Grid {
    network: Topology,
    consumer: End,
    /// The links, seen from A.
    ab: End,
    ad: End,
    /// Towards C.
    bc: End,
    dc: End,
    a: Node,
    d: Node,
    asked: u32,
}

impl Grid {
    fn new(strategy: &str, producer_delay_ms: u64) -> Self {
        let mut network = Topology::new();
        let [a, b, c, d] = [(); 4].map(|()| network.router(strategy));
        let [ab, _] = network.link([a, b], 10);
        let [ad, _] = network.link([a, d], 100);
        let [bc, _] = network.link([b, c], 10);
        let [dc, _] = network.link([d, c], 100);
        let consumer = network.consumer(a);
        network.producer(c, "/hr/C", producer_delay_ms);
        network.route(ab, "/hr/C", 10);
        network.route(ad, "/hr/C", 5);
        Self { network, consumer, ab, ad, bc, dc, a, d, asked: 0 }
    }

    fn with_both_paths(strategy: &str, producer_delay_ms: u64) -> Self {
        let mut grid = Self::new(strategy, producer_delay_ms);
        let (bc, dc) = (grid.bc, grid.dc);
        grid.network.route(bc, "/hr/C", 0);
        grid.network.route(dc, "/hr/C", 0);
        grid
    }

    /// One Interest a second.
    fn run(&mut self, interests: u32) {
        let numbers = self.asked..self.asked + interests;
        self.network.ask_each(self.consumer, "/hr/C", 1000, numbers);
        self.asked += interests;
    }

    fn answered(&self) -> u32 {
        self.network.counts(self.consumer).out_data
    }

    fn sent(&self, end: End) -> u32 {
        self.network.counts(end).out_interests
    }
}

#[test]
fn asf_uses_fast_path_and_survives_failures() {
    let mut grid = Grid::with_both_paths("asf", 0);
    let (ab, ad) = (grid.ab, grid.ad);
    // D is cheaper. Within 5 s a probe finds that B is faster.
    grid.run(30);
    assert_eq!(grid.answered(), 30);
    assert!(grid.sent(ab) >= 25, "{}", grid.sent(ab));
    assert!(grid.sent(ad) <= 6, "{}", grid.sent(ad));
    // Three Interests are lost before B counts as timed out.
    grid.network.set_down(ab, true);
    grid.run(30);
    assert_eq!(grid.answered(), 57);
    assert!(grid.sent(ab) <= 36, "{}", grid.sent(ab));
    assert!(grid.sent(ad) >= 24, "{}", grid.sent(ad));
    // A probe finds B again.
    grid.network.set_down(ab, false);
    grid.network.run_ms(10_000);
    grid.run(30);
    assert_eq!(grid.answered(), 87);
    assert!(grid.sent(ab) >= 50, "{}", grid.sent(ab));
    assert!(grid.sent(ad) <= 40, "{}", grid.sent(ad));
    // Both have timed out, so the cheaper one is used.
    grid.network.set_down(ab, true);
    grid.network.set_down(ad, true);
    grid.run(30);
    assert_eq!(grid.answered(), 87);
    assert!(grid.sent(ab) <= 65, "{}", grid.sent(ab));
    assert!(grid.sent(ad) >= 55, "{}", grid.sent(ad));
}

#[test]
fn asf_avoids_hop_that_refused() {
    let mut grid = Grid::new("asf", 0);
    let bc = grid.bc;
    grid.network.route(bc, "/hr/C", 0);
    // D has no route and sends a Nack for the first Interest.
    grid.run(30);
    assert!(grid.network.counts(grid.ad).in_nacks >= 1);
    assert_eq!(grid.answered(), 29);
    assert_eq!(grid.sent(grid.ab), 29);
    assert!(grid.sent(grid.ad) >= 2, "probes continue");
}

/// Retransmissions go to the unused next hop, and then to the one that was used longest ago.
#[test]
fn asf_retransmissions_try_other_hops() {
    let mut grid = Grid::with_both_paths("asf", 400);
    let (ab, ad, consumer) = (grid.ab, grid.ad, grid.consumer);
    for (nonce, expected) in [(1, (1, 0)), (2, (1, 1)), (3, (2, 1))] {
        grid.network.ask(consumer, &Ask::new("/hr/C/x", nonce));
        grid.network.run_ms(100);
        assert_eq!((grid.sent(ad), grid.sent(ab)), expected, "{nonce}");
    }
    grid.network.run_ms(5000);
    assert_eq!(grid.network.counts(ad).in_data, 1);
    assert_eq!(grid.network.counts(ab).in_data, 1);
    assert_eq!(grid.answered(), 1);
}

#[test]
fn asf_ignores_timeouts_up_to_maximum() {
    let mut grid = Grid::with_both_paths("asf/v=5/probing-interval~30000/max-timeouts~5", 0);
    grid.run(15);
    let before = grid.sent(grid.ad);
    let ab = grid.ab;
    grid.network.set_down(ab, true);
    grid.run(5);
    assert_eq!(grid.sent(grid.ad), before);
    grid.run(5);
    assert_eq!(grid.sent(grid.ad), before + 5);
}

#[test]
fn asf_probes_at_each_interval() {
    let mut grid = Grid::with_both_paths("asf/v=5/probing-interval~30000/max-timeouts~5", 0);
    grid.run(6);
    // A new and cheap next hop gets no Interest before the next probe.
    let [new, _] = grid.network.link([grid.a, grid.d], 5);
    grid.network.route(new, "/hr/C", 1);
    grid.run(20);
    assert_eq!(grid.sent(new), 0);
    grid.run(10);
    assert_eq!(grid.sent(new), 1);
}

/// B receives an Interest over C, and its probe directly. With the nonce of the Interest the second
/// one would be a loop.
#[test]
fn asf_probe_has_own_nonce() {
    let mut network = Topology::new();
    let [a, b, c, d] = [(); 4].map(|()| network.router("asf"));
    let [ab, _] = network.link([a, b], 15);
    let [ac, _] = network.link([a, c], 14);
    let [cb, _] = network.link([c, b], 16);
    let [bd, _] = network.link([b, d], 80);
    let consumer = network.consumer(a);
    network.producer(d, "/ping", 0);
    for (end, cost) in [(ab, 15), (ac, 14), (cb, 16), (bd, 80)] {
        network.route(end, "/ping", cost);
    }
    network.ask_each(consumer, "/ping", 1000, 0..7);
    assert_eq!(network.counts(consumer).out_data, 7);
    assert!(network.counts(ab).out_interests >= 1);
    for end in [ab, ac, cb, bd] {
        assert_eq!(network.counts(end).in_nacks, 0);
    }
    // The probe was faster, so A uses this path from then on.
    let over_c = network.counts(ac).out_interests;
    network.ask_each(consumer, "/ping", 1000, 7..10);
    assert_eq!(network.counts(ac).out_interests, over_c);
}

/// NFD's bug 4874: a retransmission without a next hop ended the entry.
#[test]
fn asf_keeps_entry_without_next_hop() {
    let mut fixture = Fixture::new();
    fixture.strategy("/p", ASF);
    fixture.route("/p", &[(U, 0)]);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/p/1", 1))), vec![(U, PacketKind::Interest)]);
    fixture.route("/p", &[]);
    fixture.pass_ms(100);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/p/1", 2))), vec![]);
    assert_eq!(sent(&fixture.answer(U, data("/p/1", 0))), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn asf_suppresses_for_each_upstream() {
    let mut fixture = Fixture::new();
    fixture.strategy("/s", ASF);
    fixture.route("/s", &[(U, 1), (V, 10)]);
    let to = |fixture: &mut Fixture, nonce, lifetime_ms| {
        let ask = Ask { lifetime_ms, ..Ask::new("/s/1", nonce) };
        let faces = sent(&fixture.ask(LOCAL, &ask)).into_iter().map(|(face, _)| face);
        faces.collect::<Vec<_>>()
    };
    // The lifetime of the first ends within the suppression interval of 10 ms.
    assert_eq!(to(&mut fixture, 1, 5), [U]);
    fixture.pass_ms(1);
    assert_eq!(to(&mut fixture, 2, 100), [V], "another upstream has its own interval");
    fixture.pass_ms(2);
    assert_eq!(to(&mut fixture, 3, 100), [], "both are used");
    fixture.pass_ms(3);
    assert_eq!(to(&mut fixture, 4, 100), [], "U is unused again, but too early");
    fixture.pass_ms(6);
    assert_eq!(to(&mut fixture, 5, 100), [U]);
    fixture.pass_ms(11);
    assert_eq!(to(&mut fixture, 6, 100), [V]);
    assert_eq!(fixture.drops(DropReason::Suppressed), 2);
}

/// An Interest that ends before the retransmission timeout still counts as a timeout.
#[test]
fn asf_counts_timeouts_of_short_interests() {
    let mut fixture = Fixture::new();
    fixture.strategy("/t", ASF);
    fixture.route("/t", &[(U, 1), (V, 10)]);
    let faces = (0..4).map(|number| {
        let ask = Ask { lifetime_ms: 100, ..Ask::new(&format!("/t/{number}"), number) };
        let face = fixture.ask(LOCAL, &ask)[0].face;
        fixture.pass_ms(90);
        fixture.pass_ms(20);
        face
    });
    assert_eq!(faces.collect::<Vec<_>>(), [U, U, U, V]);
}

/// Interests in flight at the same time fail once, not each on its own.
#[test]
fn asf_counts_burst_as_one_timeout() {
    let mut fixture = Fixture::new();
    fixture.strategy("/t", ASF);
    fixture.route("/t", &[(U, 1), (V, 10)]);
    for (burst, expected) in [U, U, U, V].into_iter().enumerate() {
        for number in 0..10 {
            let out = fixture.ask(LOCAL, &Ask::new(&format!("/t/{burst}/{number}"), 1));
            assert_eq!(out[0].face, expected, "{burst} {number}");
            fixture.pass_ms(1);
        }
        fixture.pass_ms(1100);
    }
}

#[test]
fn asf_starts_counting_again_after_data() {
    let mut fixture = Fixture::new();
    fixture.strategy("/t", ASF);
    fixture.route("/t", &[(U, 1), (V, 10)]);
    for (number, is_answered) in [0, 0, 1, 0, 0, 0].into_iter().enumerate() {
        let name = format!("/t/{number}");
        assert_eq!(fixture.ask(LOCAL, &Ask::new(&name, 1))[0].face, U, "{number}");
        fixture.pass_ms(10);
        if is_answered == 1 {
            fixture.answer(U, data(&name, 0));
        }
        fixture.pass_ms(1100);
    }
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/t/6", 1))[0].face, V);
}

#[test]
fn asf_forgets_after_measurements_lifetime() {
    let mut fixture = Fixture::new();
    fixture.strategy("/t", &format!("{ASF}/v=5/measurements-lifetime~70000"));
    fixture.route("/t", &[(U, 1)]);
    let refused = fixture.ask(LOCAL, &Ask::new("/t/1", 1)).remove(0).packet;
    fixture.nack(U, NackReason::NoRoute, &refused);
    fixture.route("/t", &[(U, 1), (V, 10)]);
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/t/2", 1))[0].face, V, "U has timed out");
    fixture.answer(V, data("/t/2", 0));
    fixture.pass_ms(71_000);
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/t/3", 1))[0].face, U, "both are unmeasured");
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/t/4", 1))[0].face, U, "the Nack is forgotten");
}

/// Unmeasured hops are probed first, by cost. Of three measured hops, the best one is probed in 3
/// of 6 cases, the next one in 2, and the last one in 1.
#[test]
fn asf_probes_better_hops_more_often() {
    let mut fixture = Fixture::new();
    fixture.strategy("/t", &format!("{ASF}/v=5/probing-interval~1000"));
    let others = [V, SPOOFABLE, RADIO];
    fixture.route("/t", &[(U, 1), (V, 2), (SPOOFABLE, 3), (RADIO, 4)]);
    let (mut measured, mut counts) = (0, [0; 3]);
    for number in 0..610 {
        let name = format!("/t/{number}");
        let out = fixture.ask(LOCAL, &Ask::new(&name, number));
        assert_eq!(out[0].face, U);
        let probed = out.get(1).and_then(|probe| others.iter().position(|it| *it == probe.face));
        match probed {
            // The answer of the probe comes first, so it is measured.
            Some(at) if measured < others.len() => {
                assert_eq!(at, measured, "by cost");
                measured += 1;
                fixture.pass_ms(10 * measured as u64);
                fixture.answer(others[at], data(&name, 0));
            }
            probed => {
                probed.into_iter().for_each(|at| counts[at] += 1);
                fixture.pass_ms(1);
                fixture.answer(U, data(&name, 0));
            }
        }
        fixture.pass_ms(1001);
    }
    let [best, second, last] = counts;
    assert!((250..350).contains(&best), "{counts:?}");
    assert!((150..250).contains(&second), "{counts:?}");
    assert!((60..150).contains(&last), "{counts:?}");
}

/// A strategy starts without the state of its predecessor, which means something else.
#[test]
fn changed_strategy_starts_without_state() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let of = |fixture: &Fixture| {
        let measured = fixture.router.tables.measurements.find(0).unwrap();
        (measured.strategy_state, measured.probe_at)
    };
    // U is silent, so best-route marks it as down.
    fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    fixture.pass_ms(300);
    assert_ne!(of(&fixture).0, 0);
    fixture.strategy("/a/b", ASF);
    assert_eq!(of(&fixture).0, 0);
    fixture.ask(LOCAL, &Ask::new("/a/b/1", 1));
    assert_ne!(of(&fixture).1, Instant::ZERO);
    fixture.strategy("/a/b", &format!("{ASF}/v=5/max-timeouts~5"));
    assert_ne!(of(&fixture).1, Instant::ZERO, "the strategy is the same");
}

#[test]
fn asf_checks_its_parameters() {
    let parse = |parameters: &str| {
        let name: Name = format!("{ASF}/v=5{parameters}").parse().unwrap();
        Strategy::from_name(name.as_view())
    };
    for valid in [
        "",
        "/probing-interval~30000/max-timeouts~5/measurements-lifetime~120000",
        "/max-timeouts~5/probing-interval~30000",
        "/probing-interval~1000",
        "/max-timeouts~0",
        "/measurements-lifetime~400000/probing-interval~300000",
        "/retx-suppression-initial~20/max-timeouts~1",
    ] {
        assert_eq!(parse(valid).unwrap().name().to_string(), format!("{ASF}/v=5{valid}"));
    }
    for invalid in [
        "/probing-interval~500",
        "/probing-interval~-5000",
        "/probing-interval~foo",
        "/probing-interval~300000",
        "/max-timeouts~-1",
        "/max-timeouts~%20-1",
        "/max-timeouts~1-0",
        "/max-timeouts~1~2",
        "/max-timeouts~16384",
        "/measurements-lifetime~1000",
        "/measurements-lifetime~0-120000",
        "/measurements-lifetime~18446744073709551615",
        "/part~1:0-1",
    ] {
        assert!(matches!(parse(invalid), Err(StrategyError::BadParameter(..))), "{invalid}");
    }
}
