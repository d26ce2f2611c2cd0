//! best-route, multicast, lowest-rtt and random.

use super::*;

const MULTICAST: &str = "/localhost/nfd/strategy/multicast";

#[test]
fn longest_prefix_and_cheapest_hop_win() {
    let mut fixture = Fixture::new();
    fixture.route("/", &[(RADIO, 0)]);
    fixture.route("/a", &[(U, 5), (V, 2)]);
    fixture.route("/a/b/c", &[(U, 1)]);
    for (name, face) in [("/a/b", V), ("/a/b/c/d", U), ("/z", RADIO)] {
        let out = fixture.ask(LOCAL, &Ask::new(name, 1));
        assert_eq!(sent(&out), vec![(face, PacketKind::Interest)], "{name}");
    }
    fixture.route("/a/b/c", &[]);
    let out = fixture.ask(LOCAL, &Ask::new("/a/b/c/e", 1));
    assert_eq!(sent(&out), vec![(V, PacketKind::Interest)]);
    fixture.command(Command::RemoveFace { face: V });
    let out = fixture.ask(LOCAL, &Ask::new("/a/b/c/f", 1));
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
}

#[test]
fn no_route_sends_nack_and_leaves_no_entry() {
    let mut fixture = Fixture::new();
    let out = fixture.ask(LOCAL, &Ask::new("/a", 1));
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    assert_eq!(fixture.router.stats().pit_entries, 0);
    assert_eq!(fixture.drops(DropReason::NoNextHop), 1);
}

#[test]
fn retransmissions_are_suppressed_then_try_next_hop() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let ask = |fixture: &mut Fixture, nonce| sent(&fixture.ask(LOCAL, &Ask::new("/a", nonce)));
    assert_eq!(ask(&mut fixture, 1), vec![(U, PacketKind::Interest)]);
    fixture.pass_ms(5);
    assert_eq!(ask(&mut fixture, 2), vec![], "within 10 ms");
    fixture.pass_ms(6);
    assert_eq!(ask(&mut fixture, 3), vec![(V, PacketKind::Interest)], "the next, not the first");
    fixture.pass_ms(15);
    assert_eq!(ask(&mut fixture, 4), vec![], "within 20 ms");
    fixture.pass_ms(6);
    assert_eq!(ask(&mut fixture, 5), vec![(U, PacketKind::Interest)], "used longest ago");
    assert_eq!(fixture.drops(DropReason::Suppressed), 2);
    let out = fixture.answer(U, data("/a", 0));
    assert_eq!(out.len(), 1);
}

#[test]
fn a_retransmission_carries_its_own_nonce() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    fixture.ask(LOCAL, &Ask::new("/a", 1));
    fixture.pass_ms(11);
    let out = fixture.ask(LOCAL, &Ask::new("/a", 2));
    assert_eq!(InterestView::decode(&out[0].packet).unwrap().nonce, Some(2));
}

#[test]
fn nacks_come_down_when_all_upstreams_refused() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let first = fixture.ask(LOCAL, &Ask::new("/a", 1)).remove(0).packet;
    fixture.pass_ms(11);
    let second = fixture.ask(LOCAL2, &Ask::new("/a", 2)).remove(0).packet;
    assert!(fixture.nack(U, NackReason::NoRoute, &second).is_empty(), "another nonce");
    assert_eq!(fixture.drops(DropReason::UnexpectedNack), 1);
    assert!(fixture.nack(U, NackReason::NoRoute, &first).is_empty(), "V may still answer");
    let out = fixture.nack(V, NackReason::Congestion, &second);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack), (LOCAL2, PacketKind::Nack)]);
    for (packet, nonce) in out.iter().zip([1, 2]) {
        assert_eq!(packet.header.nack, Some(NackReason::Congestion), "the least severe");
        assert_eq!(InterestView::decode(&packet.packet).unwrap().nonce, Some(nonce));
    }
    assert_eq!(fixture.router.stats().pit_entries, 0);
}

/// Regression (seed 271 of the random networks): a downstream whose Interest had expired, while
/// another kept the entry alive, got a Nack.
#[test]
fn expired_downstream_gets_no_nack() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let asked = fixture.ask(LOCAL, &Ask::new("/a", 1)).remove(0).packet;
    fixture.ask(LOCAL2, &Ask { lifetime_ms: 100, ..Ask::new("/a", 2) });
    fixture.pass_ms(150);
    let out = fixture.nack(U, NackReason::NoRoute, &asked);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)]);
    assert_eq!(fixture.router.stats().pit_entries, 0);
}

#[test]
fn nack_goes_to_upstream_that_is_downstream() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let first = fixture.ask(V, &Ask::new("/a", 1)).remove(0).packet;
    fixture.pass_ms(11);
    // U sends an Interest too. It can only go to V, which itself waits for us.
    assert_eq!(sent(&fixture.ask(U, &Ask::new("/a", 2))), vec![(V, PacketKind::Interest)]);
    let out = fixture.nack(U, NackReason::NoRoute, &first);
    assert_eq!(sent(&out), vec![(V, PacketKind::Nack)]);
}

/// The cheaper next hop is dead. It costs one wait, and not one for each Interest.
#[test]
fn best_route_skips_and_retries_silent_hop() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let ask = |fixture: &mut Fixture, n: u32| {
        sent(&fixture.ask(LOCAL, &Ask::new(&alloc::format!("/a/{n}"), n)))
    };
    assert_eq!(ask(&mut fixture, 1), vec![(U, PacketKind::Interest)]);
    fixture.pass_ms(249);
    assert_eq!(sent(&fixture.take()), vec![]);
    fixture.pass_ms(2);
    assert_eq!(sent(&fixture.take()), vec![(V, PacketKind::Interest)], "after its time, the next");
    assert_eq!(fixture.answer(V, data("/a/1", 0)).len(), 1);
    for n in 2..50 {
        assert_eq!(ask(&mut fixture, n), vec![(V, PacketKind::Interest)], "{n}");
        fixture.pass_ms(10);
        assert_eq!(fixture.answer(V, data(&alloc::format!("/a/{n}"), 0)).len(), 1);
    }
    fixture.pass_ms(600);
    assert_eq!(ask(&mut fixture, 50), vec![(U, PacketKind::Interest)], "tried again");
    assert_eq!(ask(&mut fixture, 51), vec![(V, PacketKind::Interest)], "by one Interest");
    // It is up again.
    assert_eq!(fixture.answer(U, data("/a/50", 0)).len(), 1);
    assert_eq!(ask(&mut fixture, 52), vec![(U, PacketKind::Interest)]);
}

#[test]
fn best_route_tries_next_hop_after_nack() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    for n in 1..=3 {
        let asked = fixture.ask(LOCAL, &Ask::new(&alloc::format!("/a/{n}"), n)).remove(0);
        assert_eq!(asked.face, U);
        let next = fixture.nack(U, NackReason::NoRoute, &asked.packet);
        assert_eq!(sent(&next), vec![(V, PacketKind::Interest)]);
        let nacks = fixture.nack(V, NackReason::NoRoute, &next[0].packet);
        assert_eq!(sent(&nacks), vec![(LOCAL, PacketKind::Nack)]);
        assert_eq!(nacks[0].header.incoming_face, Some(V.0), "it came from there");
    }
    // Data that both refuse does not exist, so no hop is marked down for it.
    for n in 4..=9 {
        let asked = fixture.ask(LOCAL, &Ask::new(&alloc::format!("/a/{n}"), n)).remove(0);
        let (first, is_first) = (asked.face, n < 6);
        assert_eq!(first, if is_first { U } else { V }, "{n}");
        if is_first {
            let next = fixture.nack(U, NackReason::NoRoute, &asked.packet);
            assert_eq!(sent(&next), vec![(V, PacketKind::Interest)]);
        }
        assert_eq!(fixture.answer(V, data(&alloc::format!("/a/{n}"), 0)).len(), 1);
    }
}

/// Interests in flight when a next hop dies go to the next one, even if two consumers wait. A short
/// outage does not exclude the hop for a minute.
#[test]
fn best_route_moves_interests_in_flight() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let name = |n: u32| alloc::format!("/a/{n}");
    for n in 0..20 {
        fixture.ask(LOCAL, &Ask::new(&name(n), n));
        fixture.pass_ms(10);
        assert_eq!(fixture.answer(U, data(&name(n), 0)).len(), 1);
    }
    for n in 100..110 {
        assert_eq!(fixture.ask(LOCAL, &Ask::new(&name(n), n))[0].face, U);
        fixture.pass_ms(1);
    }
    assert!(
        fixture.ask(LOCAL2, &Ask::new(&name(109), 999)).is_empty(),
        "it joins the other Interest"
    );
    assert_eq!(fixture.answer(U, data(&name(100), 0)).len(), 1, "then the hop dies");
    let mut moved = Vec::new();
    for _ in 0..1500 {
        fixture.pass_ms(1);
        moved.extend(fixture.take().iter().map(|packet| packet.face));
    }
    assert_eq!(moved, vec![V; 9]);
    for n in 101..110 {
        assert!(!fixture.answer(V, data(&name(n), 0)).is_empty());
    }
    // Nine Interests have failed, but its first retry is due.
    assert_eq!(fixture.ask(LOCAL, &Ask::new(&name(200), 200))[0].face, U);
    assert_eq!(fixture.answer(U, data(&name(200), 0)).len(), 1);
    assert_eq!(fixture.ask(LOCAL, &Ask::new(&name(201), 201))[0].face, U, "it lives again");
}

/// A next hop that answers other Interests is up.
#[test]
fn best_route_keeps_hop_after_one_loss() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0), (V, 1)]);
    let ask = |fixture: &mut Fixture, n: u32| {
        sent(&fixture.ask(LOCAL, &Ask::new(&alloc::format!("/a/{n}"), n)))
    };
    assert_eq!(ask(&mut fixture, 1000), vec![(U, PacketKind::Interest)]);
    for n in 1..100 {
        assert_eq!(ask(&mut fixture, n), vec![(U, PacketKind::Interest)], "{n}");
        fixture.pass_ms(10);
        assert_eq!(fixture.answer(U, data(&alloc::format!("/a/{n}"), 0)).len(), 1);
    }
}

#[test]
fn multicast_sends_to_all_and_new_hops() {
    let mut fixture = Fixture::new();
    fixture.strategy("/m", MULTICAST);
    fixture.route("/m", &[(U, 3)]);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/m/1", 1))), vec![(U, PacketKind::Interest)]);
    fixture.route("/m", &[(U, 3), (V, 9), (LOCAL, 0)]);
    assert_eq!(
        sent(&fixture.take()),
        vec![(V, PacketKind::Interest)],
        "V receives the pending Interest"
    );
    let out = fixture.ask(LOCAL, &Ask::new("/m/2", 2));
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest), (V, PacketKind::Interest)]);
    assert!(fixture.ask(LOCAL2, &Ask::new("/m/2", 3)).iter().all(|packet| packet.face == LOCAL));
}

#[test]
fn names_choose_strategies_with_versions_and_parameters() {
    use crate::strategy::{Strategy, StrategyError};
    let parse = |text: &str| Strategy::from_name(text.parse::<Name>().unwrap().as_view());
    assert_eq!(parse(MULTICAST).unwrap(), Strategy::multicast());
    assert_eq!(parse("/localhost/nfd/strategy/best-route/v=1").unwrap(), Strategy::best_route());
    assert_eq!(parse("/localhost/nfd/strategy/best-route/v=6"), Err(StrategyError::Unknown));
    assert_eq!(parse("/localhost/nfd/strategy/teleport"), Err(StrategyError::Unknown));
    let tuned = "/localhost/nfd/strategy/best-route/v=5/retx-suppression-initial~20";
    assert_eq!(parse(tuned).unwrap().name().to_string(), tuned);
    let both = "/localhost/nfd/strategy/multicast/v=5/retx-suppression-initial~300/retx-suppression-max~500";
    assert!(parse(both).is_ok(), "the initial value precedes the larger maximum");
    for bad in
        ["retx-suppression-initial~x", "colour~3", "retx-suppression-multiplier~0", "part~1:0-1"]
    {
        let name = alloc::format!("/localhost/nfd/strategy/multicast/v=5/{bad}");
        let Err(StrategyError::BadParameter(refused, _)) = parse(&name) else { panic!("{bad}") };
        assert_eq!(refused, bad);
    }
}

use alloc::string::ToString;

#[test]
fn lowest_rtt_uses_fastest_hop() {
    let mut fixture = Fixture::new();
    fixture.strategy("/r", "/localhost/nfd/strategy/lowest-rtt");
    fixture.route("/r", &[(U, 0), (V, 1)]);
    // Each is tried once, the cheaper first.
    for (name, face, took_ms) in [("/r/1", U, 50), ("/r/2", V, 10)] {
        assert_eq!(
            sent(&fixture.ask(LOCAL, &Ask::new(name, 1))),
            vec![(face, PacketKind::Interest)]
        );
        fixture.pass_ms(took_ms);
        assert_eq!(fixture.answer(face, data(name, 0)).len(), 1);
    }
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/r/3", 1))), vec![(V, PacketKind::Interest)]);
    fixture.pass_ms(5000);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/r/4", 1))), vec![(U, PacketKind::Interest)]);
    let refused = fixture.ask(LOCAL, &Ask::new("/r/5", 1)).remove(0).packet;
    fixture.nack(U, NackReason::NoRoute, &refused);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/r/6", 1))), vec![(V, PacketKind::Interest)]);
}

/// A probe is one Interest, not all Interests until the next Data.
#[test]
fn lowest_rtt_probes_with_single_interests() {
    let mut fixture = Fixture::new();
    fixture.strategy("/r", "/localhost/nfd/strategy/lowest-rtt");
    fixture.route("/r", &[(U, 0), (V, 1)]);
    for (name, face, took_ms) in [("/r/u", U, 5), ("/r/v", V, 50)] {
        fixture.ask(LOCAL, &Ask::new(name, 1));
        fixture.pass_ms(took_ms);
        fixture.answer(face, data(name, 0));
    }
    let mut to_second = 0;
    for number in 0..1000 {
        let name = alloc::format!("/r/{number}");
        let out = fixture.ask(LOCAL, &Ask::new(&name, 1));
        assert_eq!(out[0].face, U);
        to_second += out.len() - 1;
        // Data arrives in bursts.
        if number % 200 == 126 {
            (0..=number).rev().take(100).for_each(|number| {
                fixture.answer(U, data(&alloc::format!("/r/{number}"), 0));
            });
        }
    }
    assert!((7..=8).contains(&to_second), "{to_second}");
}

#[test]
fn measurements_end_with_last_flight() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let of = |fixture: &Fixture, index| {
        let measured = fixture.router.tables.measurements.find(index)?;
        Some((measured.in_flight(), measured.data(), measured.smoothed_rtt_ns()))
    };
    fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    fixture.ask(LOCAL, &Ask::new("/a/2", 1));
    assert_eq!(of(&fixture, 0), Some((2, 0, None)));
    fixture.pass_ms(20);
    fixture.answer(U, data("/a/1", 0));
    assert_eq!(of(&fixture, 0), Some((1, 1, Some(20 * NS_PER_MS))));
    // The route is removed while an Interest is in flight.
    fixture.route("/a", &[]);
    assert_eq!(of(&fixture, 0).unwrap().0, 1);
    fixture.answer(U, data("/a/2", 0));
    assert_eq!(of(&fixture, 0), None);
}

/// NFD's case for best-route (fe044ce3, `best-route-strategy.t.cpp`, Forward): retransmissions
/// follow the cost of unused next hops, then the age of the last transmission.
#[test]
fn best_route_retransmits_by_cost_then_age() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 10), (V, 20), (SPOOFABLE, 30)]);
    // U is the downstream, so it is no upstream.
    assert_eq!(sent(&fixture.ask(U, &Ask::new("/a", 1))), vec![(V, PacketKind::Interest)]);
    let (mut faces, mut last) = (Vec::new(), fixture.now);
    for nonce in 2..400 {
        fixture.pass_ms(5);
        // The strategy itself may send at a timeout; those are not retransmissions.
        fixture.take();
        let out = fixture.ask(LOCAL, &Ask::new("/a", nonce));
        if let [packet] = &out[..] {
            assert!(fixture.now.ns_since(last) >= 10 * NS_PER_MS);
            last = fixture.now;
            faces.push(packet.face);
        }
    }
    assert_eq!(faces[..5], [U, SPOOFABLE, V, U, SPOOFABLE]);
    fixture.route("/a", &[(V, 20), (SPOOFABLE, 30)]);
    for nonce in 1000..1003 {
        fixture.pass_ms(500);
        fixture.take();
        assert_ne!(fixture.ask(LOCAL2, &Ask::new("/a", nonce))[0].face, U, "no longer a next hop");
    }
}

#[test]
fn random_uses_all_eligible_hops() {
    let mut fixture = Fixture::new();
    fixture.strategy("/r", "/localhost/nfd/strategy/random");
    fixture.route("/r", &[(U, 10), (V, 20), (SPOOFABLE, 30), (LOCAL, 0)]);
    let mut counts = [0; 3];
    for number in 0..1000 {
        let out = fixture.ask(LOCAL, &Ask::new(&alloc::format!("/r/{number}"), number));
        let [packet] = &out[..] else { panic!("one next hop for each Interest") };
        let at = [U, V, SPOOFABLE].iter().position(|&face| face == packet.face);
        counts[at.expect("not the ingress")] += 1;
    }
    assert!(counts.iter().all(|&count| (250..420).contains(&count)), "{counts:?}");
    // Retransmissions are not suppressed, and each has a new chance.
    let faces = (0..20).map(|nonce| fixture.ask(LOCAL, &Ask::new("/r/x", nonce))[0].face);
    let faces: Vec<FaceId> = faces.collect();
    assert!(faces.iter().any(|face| *face != faces[0]));
}

#[test]
fn random_without_next_hop_sends_nack() {
    let mut fixture = Fixture::new();
    fixture.strategy("/r", "/localhost/nfd/strategy/random");
    let out = fixture.ask(LOCAL, &Ask::new("/r/1", 1));
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    assert_eq!(fixture.router.stats().pit_entries, 0);
    // A pending Interest stays pending.
    fixture.route("/r", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/r/2", 1));
    fixture.route("/r", &[]);
    assert_eq!(sent(&fixture.ask(LOCAL, &Ask::new("/r/2", 2))), vec![]);
    assert_eq!(sent(&fixture.answer(U, data("/r/2", 0))), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn strategies_of_nfd_have_its_versions() {
    use crate::strategy::{Strategy, StrategyError};
    let parse = |text: &str| {
        let name: Name = alloc::format!("/localhost/nfd/strategy/{text}").parse().unwrap();
        Strategy::from_name(name.as_view()).map(|strategy| strategy.name().to_string())
    };
    for (word, version) in
        [("best-route", 5), ("multicast", 5), ("asf", 5), ("random", 1), ("access", 1)]
    {
        let full = alloc::format!("/localhost/nfd/strategy/{word}/v={version}");
        assert_eq!(parse(word), Ok(full));
        let next = alloc::format!("{word}/v={}", version + 1);
        assert_eq!(parse(&next), Err(StrategyError::Unknown));
    }
    // These two have no parameters, not even those of suppression.
    for word in ["random", "access"] {
        let tuned = alloc::format!("{word}/v=1/retx-suppression-initial~20");
        assert!(matches!(parse(&tuned), Err(StrategyError::BadParameter(..))), "{word}");
    }
}

/// NFD's cases for all strategies (fe044ce3, `strategy-scope-control.t.cpp`,
/// `strategy-nack-return.t.cpp`).
#[test]
fn all_strategies_keep_scope_and_return_nacks() {
    for kind in crate::strategy::StrategyKind::ALL {
        let mut fixture = Fixture::new();
        let name = alloc::format!("/localhost/nfd/strategy/{kind}");
        ["/localhop", "/a"].iter().for_each(|prefix| fixture.strategy(prefix, &name));
        fixture.route("/localhop", &[(U, 0), (LOCAL2, 1)]);
        let out = fixture.ask(V, &Ask::new("/localhop/x", 1));
        assert_eq!(sent(&out), vec![(LOCAL2, PacketKind::Interest)], "{kind}");
        fixture.route("/a", &[(U, 0)]);
        let asked = fixture.ask(LOCAL, &Ask::new("/a/1", 1)).remove(0).packet;
        let out = fixture.nack(U, NackReason::Congestion, &asked);
        assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)], "{kind}");
        assert_eq!(out[0].header.nack, Some(NackReason::Congestion), "{kind}");
    }
}
