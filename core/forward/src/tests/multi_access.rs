//! Faces to several nodes of one network segment, such as UDP multicast. Rules of NFD fe044ce:
//! `Forwarder::onOutgoingNack`, `Forwarder::onIncomingNack` and `Strategy::isNextHopEligible`.

use weir_wire::HopSignal;

use super::topology::{End, Node, Topology};
use super::*;
use crate::{BusyPolicy, Labels};

const STRATEGIES: [&str; 4] = ["multicast", "best-route", "asf", "random"];

/// Routers on one segment, each with a program that asks, and a route for `/x` to the segment.
fn segment<const N: usize>(strategy: &str) -> (Topology, [Node; N], [End; N], [End; N]) {
    let mut net = Topology::new();
    let nodes = [(); N].map(|()| net.router(strategy));
    let ends = net.segment(nodes, 2);
    let consumers = nodes.map(|node| net.consumer(node));
    for end in ends {
        net.route(end, "/x", 0);
    }
    (net, nodes, ends, consumers)
}

#[test]
fn routes_to_each_other_do_not_storm() {
    for strategy in STRATEGIES {
        let (mut net, nodes, ends, consumers) = segment::<3>(strategy);
        net.ask(consumers[0], &Ask::new("/x/1", 1));
        net.run_ms(10_000);
        let sent = ends.map(|end| net.counts(end).out_interests);
        assert_eq!(sent, [1, 0, 0], "{strategy}");
        // The others cannot answer, and say nothing, because a third node may answer.
        assert_eq!(ends.map(|end| net.counts(end).out_nacks), [0; 3], "{strategy}");
        assert_eq!(net.drops(nodes[1], DropReason::Loop), 0);
    }
}

/// Two segments between the same three routers.
#[test]
fn loops_of_segments_end() {
    for strategy in STRATEGIES {
        let (mut net, nodes, first, consumers) = segment::<3>(strategy);
        let second = net.segment(nodes, 3);
        for end in second {
            net.route(end, "/x", 0);
        }
        let mut limited = Ask::new("/x/1", 1);
        net.ask(consumers[0], &limited);
        net.run_ms(10_000);
        for end in first.into_iter().chain(second) {
            assert!(net.counts(end).out_interests <= 1, "{strategy}: {:?}", net.counts(end));
            assert_eq!(net.counts(end).out_nacks, 0);
        }
        // An Interest that may not go further stops at the first routers.
        let before = second.map(|end| net.counts(end).out_interests);
        limited = Ask { hop_limit: Some(2), ..Ask::new("/x/2", 2) };
        net.ask(consumers[0], &limited);
        net.run_ms(10_000);
        let after = second.map(|end| net.counts(end).out_interests);
        assert_eq!(before[1..], after[1..], "{strategy}");
    }
}

#[test]
fn retransmissions_are_suppressed() {
    for strategy in ["multicast", "best-route"] {
        let (mut net, _, ends, consumers) = segment::<2>(strategy);
        // 200 Interests within a second. The intervals are 10, 20, 40, 80, 160 and 250 ms.
        for nonce in 0..200 {
            net.ask(consumers[0], &Ask::new("/x/1", nonce + 1));
            net.run_ms(5);
        }
        let sent = ends.map(|end| net.counts(end).out_interests);
        assert!((5..=10).contains(&sent[0]) && sent[1] == 0, "{strategy}: {sent:?}");
    }
}

#[test]
fn first_of_several_answers_wins() {
    let (mut net, nodes, ends, consumers) = segment::<3>("multicast");
    net.producer(nodes[1], "/x/p", 5);
    net.producer(nodes[2], "/x/p", 9);
    net.ask(consumers[0], &Ask::new("/x/p/1", 1));
    net.run_ms(1000);
    assert_eq!(net.counts(consumers[0]).out_data, 1);
    assert_eq!(ends.map(|end| net.counts(end).out_data), [0, 1, 1]);
    assert_eq!(net.drops(nodes[0], DropReason::Unsolicited), 1);
    // The node that answered last heard the first answer, which it had not requested.
    assert_eq!(net.drops(nodes[2], DropReason::NotRequested), 1);
}

/// Both routers have sent the Interest and have received that of the other one.
#[test]
fn one_answer_serves_all_who_asked() {
    let (mut net, nodes, ends, consumers) = segment::<3>("multicast");
    net.producer(nodes[2], "/x/p", 20);
    net.ask(consumers[0], &Ask::new("/x/p/1", 1));
    net.ask(consumers[1], &Ask::new("/x/p/1", 2));
    net.run_ms(1000);
    assert_eq!([0, 1].map(|at| net.counts(consumers[at]).out_data), [1, 1]);
    assert_eq!(ends.map(|end| net.counts(end).out_data), [0, 0, 1]);
}

/// The discovery of `ndn-autoconfig`.
#[test]
fn localhop_crosses_one_segment() {
    let (mut net, nodes, ends, consumers) = segment::<3>("multicast");
    let beyond = net.segment([nodes[1], nodes[2]], 1);
    let hub = "/localhop/ndn-autoconf/hub";
    for end in ends.into_iter().chain(beyond) {
        net.route(end, hub, 1);
    }
    net.producer(nodes[2], hub, 1);
    net.ask(consumers[0], &Ask::new(hub, 1).prefix().fresh());
    net.run_ms(1000);
    assert_eq!(net.counts(consumers[0]).out_data, 1);
    let sent = ends.into_iter().chain(beyond).map(|end| net.counts(end).out_interests);
    assert_eq!(sent.collect::<Vec<_>>(), [1, 0, 0, 0, 0]);
}

/// No Nack says that a segment has no answer, so time must.
#[test]
fn silent_segment_is_passed_by() {
    let (mut net, nodes, ends, consumers) = segment::<2>("best-route");
    let far = net.router("best-route");
    let [near_end, _] = net.link([nodes[0], far], 5);
    net.route(near_end, "/x", 10);
    net.producer(far, "/x", 1);
    net.ask_each(consumers[0], "/x", 300, 0..10);
    assert_eq!(net.counts(consumers[0]).out_data, 10);
    assert!(net.counts(ends[0]).out_interests < 5, "{:?}", net.counts(ends[0]));
}

#[test]
fn nacks_are_neither_sent_nor_accepted() {
    let mut fixture = Fixture::new();
    assert_eq!(sent(&fixture.ask(SHARED, &Ask::new("/none", 1))), vec![]);
    assert_eq!(sent(&fixture.ask(U, &Ask::new("/none", 2))), vec![(U, PacketKind::Nack)]);
    // A duplicate Nonce gets no Nack either.
    fixture.route("/a", &[(V, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a/1", 3));
    assert_eq!(sent(&fixture.ask(SHARED, &Ask::new("/a/1", 3))), vec![]);
    assert_eq!(fixture.drops(DropReason::Loop), 1);
    fixture.route("/s", &[(SHARED, 0)]);
    let out = fixture.ask(LOCAL, &Ask::new("/s/1", 4));
    assert_eq!(sent(&out), vec![(SHARED, PacketKind::Interest)]);
    assert!(fixture.nack(SHARED, NackReason::NoRoute, &out[0].packet).is_empty());
    assert_eq!(fixture.drops(DropReason::UnexpectedNack), 1);
    let out = fixture.answer(SHARED, data("/s/1", 0));
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Data)]);
    // If all other upstreams refuse, the segment may still answer.
    fixture.strategy("/b", "/localhost/nfd/strategy/multicast");
    fixture.route("/b", &[(SHARED, 0), (U, 0)]);
    let out = fixture.ask(LOCAL, &Ask::new("/b/1", 5));
    assert_eq!(out.len(), 2);
    assert!(fixture.nack(U, NackReason::NoRoute, &out[1].packet).is_empty());
    assert_eq!(sent(&fixture.answer(SHARED, data("/b/1", 0))), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn signals_of_one_node_are_ignored() {
    let busy = BusyPolicy { labels: Labels::Neighbour, ..BusyPolicy::default() };
    let mut fixture = Fixture::with_config(RouterConfig { busy, ..RouterConfig::default() });
    for (face, expected) in [(SHARED, 0), (U, 1)] {
        let signal = HopSignal::Unavailable { for_ms: 1000 };
        fixture.handle(&mut [Input::Signal { face, signal }]);
        assert_eq!(fixture.router.stats().busy.busy_received, expected);
    }
}
