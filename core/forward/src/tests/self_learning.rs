//! self-learning. NFD (fe044ce3) has no tests of its own for this strategy. The cases of several
//! routers are those of its specification (NFD Developer's Guide, self-learning strategy).

use alloc::boxed::Box;

use super::topology::{End, Node, Topology};
use super::*;
use crate::AnnouncedPacket;

const SELF_LEARNING: &str = "/localhost/nfd/strategy/self-learning";

/// A consumer at A and a producer of `/p` at D. Both B and C lead from A to D, and B is faster. E
/// is a neighbour of A without others.
struct Campus {
    network: Topology,
    nodes: [Node; 5],
    consumer: End,
    producer: End,
    /// The links, seen from A.
    ab: End,
    ac: End,
    ae: End,
    /// From B to D.
    bd: End,
    asked: u32,
}

impl Campus {
    fn new() -> Self {
        let mut network = Topology::new();
        let nodes = [(); 5].map(|()| network.router("self-learning"));
        let [a, b, c, d, e] = nodes;
        let [ab, _] = network.link([a, b], 10);
        let [ac, _] = network.link([a, c], 30);
        let [ae, _] = network.link([a, e], 10);
        let [bd, _] = network.link([b, d], 10);
        network.link([c, d], 30);
        let consumer = network.consumer(a);
        let producer = network.producer(d, "/p", 0);
        network.announce(producer, "/p");
        Self { network, nodes, consumer, producer, ab, ac, ae, bd, asked: 0 }
    }

    fn run(&mut self, interests: u32) {
        let numbers = self.asked..self.asked + interests;
        self.network.ask_each(self.consumer, "/p", 5000, numbers);
        self.asked += interests;
    }

    fn sent(&self) -> [u32; 3] {
        [self.ab, self.ac, self.ae].map(|end| self.network.counts(end).out_interests)
    }

    fn answered(&self) -> u32 {
        self.network.counts(self.consumer).out_data
    }
}

#[test]
fn first_interest_floods_and_others_follow_the_route() {
    let mut campus = Campus::new();
    campus.run(1);
    assert_eq!(campus.sent(), [1, 1, 1]);
    assert_eq!(campus.answered(), 1);
    let [a, b, ..] = campus.nodes;
    assert_eq!(campus.network.next_hops(a, "/p"), [campus.ab.1]);
    assert_eq!(campus.network.next_hops(b, "/p"), [campus.bd.1]);
    campus.run(10);
    assert_eq!(campus.sent(), [11, 1, 1]);
    assert_eq!(campus.answered(), 11);
    assert_eq!(campus.network.counts(campus.producer).out_interests, 11);
    // The producer's own program gets no flood, and consumers no Nacks.
    assert_eq!(campus.network.counts(campus.consumer).out_nacks, 0);
}

#[test]
fn route_ends_with_a_refusal_and_is_learned_again() {
    let mut campus = Campus::new();
    campus.run(2);
    assert_eq!(campus.sent(), [2, 1, 1]);
    // The producer moves to E.
    campus.network.remove_route(campus.producer, "/p");
    let moved = campus.network.producer(campus.nodes[4], "/p", 0);
    campus.network.announce(moved, "/p");
    campus.run(1);
    assert_eq!((campus.sent(), campus.answered()), ([3, 1, 1], 2));
    assert_eq!(campus.network.counts(campus.consumer).out_nacks, 1);
    let [a, b, ..] = campus.nodes;
    assert_eq!(campus.network.next_hops(a, "/p"), []);
    assert_eq!(campus.network.next_hops(b, "/p"), []);
    campus.run(2);
    assert_eq!((campus.sent(), campus.answered()), ([4, 2, 3], 4));
    assert_eq!(campus.network.next_hops(a, "/p"), [campus.ae.1]);
}

#[test]
fn flood_in_a_ring_ends() {
    let mut network = Topology::new();
    let nodes = [(); 4].map(|()| network.router("self-learning"));
    let [a, b, c, d] = nodes;
    let mut ends = Vec::new();
    for pair in [[a, b], [b, c], [c, d], [d, a]] {
        ends.extend(network.link(pair, 10));
    }
    let consumer = network.consumer(a);
    // There is no producer. Each router sends the Interest over a link at most once.
    network.ask(consumer, &Ask::new("/nowhere", 7));
    network.run_ms(3000);
    let sent: u32 = ends.iter().map(|&end| network.counts(end).out_interests).sum();
    assert!((4..=6).contains(&sent), "{sent}");
    // A retransmission is a second flood, and not more.
    network.ask(consumer, &Ask::new("/nowhere", 8));
    network.run_ms(20_000);
    let sent: u32 = ends.iter().map(|&end| network.counts(end).out_interests).sum();
    assert!((8..=12).contains(&sent), "{sent}");
    assert!(nodes.iter().all(|&node| network.stats(node).pit_entries == 0));
}

#[test]
fn hop_limit_bounds_the_flood() {
    let mut network = Topology::new();
    let nodes = [(); 5].map(|()| network.router("self-learning"));
    let links: Vec<[End; 2]> =
        nodes.windows(2).map(|pair| network.link([pair[0], pair[1]], 10)).collect();
    let consumer = network.consumer(nodes[0]);
    let ask = Ask { hop_limit: Some(3), ..Ask::new("/x", 1) };
    network.ask(consumer, &ask);
    network.run_ms(1000);
    let sent = links.iter().map(|link| network.counts(link[0]).out_interests);
    assert_eq!(sent.collect::<Vec<_>>(), [1, 1, 0, 0]);
}

#[test]
fn routers_with_other_strategies_pass_announcements_on() {
    let mut network = Topology::new();
    let [a, c] = [(); 2].map(|()| network.router("self-learning"));
    let b = network.router("best-route");
    let [ab, _] = network.link([a, b], 10);
    let [bc, _] = network.link([b, c], 10);
    network.route(bc, "/p", 0);
    let consumer = network.consumer(a);
    let producer = network.producer(c, "/p", 0);
    network.announce(producer, "/p");
    network.ask_each(consumer, "/p", 100, 0..3);
    assert_eq!(network.counts(consumer).out_data, 3);
    assert_eq!(network.next_hops(a, "/p"), [ab.1]);
}

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.strategy("/", SELF_LEARNING);
    fixture
}

/// The header of a marked Interest.
fn marked() -> LpHeader {
    LpHeader { non_discovery: true, ..LpHeader::default() }
}

fn give_announced(
    fixture: &mut Fixture,
    face: FaceId,
    header: LpHeader,
    wire: Vec<u8>,
    prefix: &str,
) -> Vec<OutPacket> {
    let (packet, announcement) = (Packet::from(wire), Packet::from(announcement(prefix)));
    let announced = AnnouncedPacket { face, header, packet, announcement };
    fixture.handle(&mut [Input::Announced(Box::new(announced))]);
    fixture.take()
}

fn take_events(fixture: &mut Fixture) -> Vec<Event> {
    core::mem::take(&mut fixture.out.events)
}

/// The announcements in the outbox, by position.
fn take_announcements(fixture: &mut Fixture) -> Vec<(usize, Packet)> {
    core::mem::take(&mut fixture.out.announcements)
}

fn announced(face: FaceId, prefix: &str) -> Event {
    Event::Announced { face, announcement: Packet::from(announcement(prefix)) }
}

fn faces(packets: &[OutPacket]) -> Vec<FaceId> {
    packets.iter().map(|packet| packet.face).collect()
}

#[test]
fn discovery_goes_to_all_remote_faces_without_mark() {
    let mut fixture = fixture();
    let out = fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    assert_eq!(faces(&out), [SHARED, SPOOFABLE, RADIO, V, U], "that of NFD's order");
    assert!(out.iter().all(|packet| !packet.header.non_discovery));
    // From a remote face: not back to it, unless it is ad hoc.
    assert_eq!(faces(&fixture.ask(U, &Ask::new("/a/2", 2))), [SHARED, SPOOFABLE, RADIO, V]);
    let from_radio = fixture.ask(RADIO, &Ask::new("/a/3", 3));
    assert_eq!(faces(&from_radio), [SHARED, SPOOFABLE, RADIO, V, U]);
    // Scopes: names of this host stay, and names of one link leave only for programs of this host.
    fixture.strategy("/localhost", SELF_LEARNING);
    assert!(fixture.ask(LOCAL, &Ask::new("/localhost/a", 4)).is_empty());
    assert!(fixture.ask(U, &Ask::new("/localhop/a", 5)).is_empty());
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/localhop/b", 6)).len(), 5);
}

#[test]
fn flood_reaches_the_256_oldest_faces() {
    let mut fixture = fixture();
    let others = (0..300).map(|number| FaceId(1000 + number));
    for face in others.clone() {
        let attributes = FaceAttributes::point_to_point(FaceScope::NonLocal);
        fixture.command(Command::AddFace { face, attributes });
    }
    let mut expected = vec![U, V, RADIO, SPOOFABLE, SHARED];
    expected.extend(others.take(251));
    expected.reverse();
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/a", 1))), expected);
    assert!(fixture.ask(LOCAL, &Ask::new("/a", 2)).is_empty());
    assert_eq!(fixture.drops(DropReason::Suppressed), 256);
    fixture.pass_ms(10);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/a", 3))), expected);
    // All are marked: they got a discovery Interest.
    for face in [expected[0], expected[255]] {
        let header = LpHeader { no_cache: true, ..LpHeader::default() };
        fixture.ask(LOCAL, &Ask::new("/b", 4 + face.0 as u32));
        give_announced(&mut fixture, face, header, data("/b", 0), "/b");
        assert_eq!(take_events(&mut fixture), [announced(face, "/b")]);
    }
}

#[test]
fn flood_is_suppressed_for_10_ms() {
    let mut fixture = fixture();
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/a", 1)).len(), 5);
    assert!(fixture.ask(LOCAL, &Ask::new("/a", 2)).is_empty());
    assert_eq!(fixture.drops(DropReason::Suppressed), 5);
    // Another downstream is also an upstream that has not been asked yet.
    assert!(fixture.ask(U, &Ask::new("/a", 3)).is_empty());
    fixture.pass_ms(10);
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/a", 4)).len(), 5);
}

#[test]
fn routes_get_marked_interests() {
    let mut fixture = fixture();
    fixture.route("/a", &[(U, 1), (V, 2)]);
    for header in [LpHeader::default(), marked()] {
        let nonce = 1 + u32::from(header.non_discovery);
        let ask = Ask::new(&alloc::format!("/a/{nonce}"), nonce);
        let out = fixture.packet(LOCAL, header, ask.wire());
        assert_eq!(faces(&out), [U, V]);
        assert!(out.iter().all(|packet| packet.header.non_discovery));
    }
}

#[test]
fn marked_interest_without_route_is_refused() {
    let mut fixture = fixture();
    let out = fixture.packet(U, marked(), Ask::new("/a", 1).wire());
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].face, out[0].header.nack), (U, Some(NackReason::NoRoute)));
    // Its only next hop is its own ingress.
    fixture.route("/b", &[(U, 0)]);
    let out = fixture.packet(U, marked(), Ask::new("/b", 2).wire());
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    // A discovery Interest is never refused: other routers may have a route.
    assert!(fixture.ask(U, &Ask::new("/b/1", 3)).is_empty());
    // A marked Interest joins the flood of another.
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/c", 4)).len(), 5);
    assert!(fixture.packet(U, marked(), Ask::new("/c", 5).wire()).is_empty());
    assert_eq!(fixture.answer(V, data("/c", 0)).len(), 2);
}

#[test]
fn reports_announcements_only_for_discoveries() {
    let mut fixture = fixture();
    fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    let out = give_announced(&mut fixture, U, LpHeader::default(), data("/a/1", 0), "/a");
    assert_eq!(sent(&out), [(LOCAL, PacketKind::Data)]);
    assert_eq!(take_events(&mut fixture), [announced(U, "/a")]);
    assert!(take_announcements(&mut fixture).is_empty(), "programs need none");
    // Unsolicited Data.
    give_announced(&mut fixture, U, LpHeader::default(), data("/a/2", 0), "/a");
    // From a face that was not asked.
    fixture.route("/b", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/b/1", 2));
    give_announced(&mut fixture, V, LpHeader::default(), data("/b/1", 0), "/b");
    // The Interest was marked, so the route exists.
    let out = give_announced(&mut fixture, U, LpHeader::default(), data("/b/1", 0), "/b");
    assert_eq!(sent(&out), [(LOCAL, PacketKind::Data)]);
    assert_eq!(take_events(&mut fixture), []);
}

#[test]
fn ignores_announcements_of_other_prefixes() {
    let mut fixture = fixture();
    for (nonce, prefix) in (1..).zip(["/b", "/a/1/2", "/a/2"]) {
        fixture.ask(V, &Ask::new("/a/1", nonce).prefix());
        let header = LpHeader { no_cache: true, ..LpHeader::default() };
        let out = give_announced(&mut fixture, U, header, data("/a/1", 0), prefix);
        assert_eq!(sent(&out), [(V, PacketKind::Data)]);
        assert_eq!(take_events(&mut fixture), []);
        assert!(take_announcements(&mut fixture).is_empty());
    }
    // Neither is an announcement that is no Data.
    fixture.ask(V, &Ask::new("/c", 9));
    let packet = Packet::from(data("/c", 0));
    let announcement = Packet::from(&[6, 1, 7][..]);
    let announced = AnnouncedPacket { face: U, header: LpHeader::default(), packet, announcement };
    fixture.handle(&mut [Input::Announced(Box::new(announced))]);
    assert_eq!(sent(&fixture.take()), [(V, PacketKind::Data)]);
    assert_eq!(fixture.router.stats().announcements_ignored, 4);
    assert_eq!(take_events(&mut fixture), []);
}

#[test]
fn forged_data_teaches_no_route() {
    let mut fixture = fixture();
    let out = fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    let asked = out.iter().find(|packet| packet.face == SPOOFABLE).unwrap();
    let token = asked.header.pit_token;
    let with_token = LpHeader { pit_token: token, ..LpHeader::default() };
    // From the first token on, the peer must return it.
    let header = LpHeader { no_cache: true, ..with_token.clone() };
    give_announced(&mut fixture, SPOOFABLE, header, data("/a/1", 0), "/a");
    assert_eq!(take_events(&mut fixture), [announced(SPOOFABLE, "/a")]);
    fixture.ask(LOCAL, &Ask::new("/a/2", 2));
    give_announced(&mut fixture, SPOOFABLE, LpHeader::default(), data("/a/2", 0), "/a");
    assert_eq!(take_events(&mut fixture), []);
    assert_eq!(fixture.drops(DropReason::Spoofed), 1);
}

#[test]
fn passes_announcements_on_to_other_hosts() {
    let mut fixture = fixture();
    fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    fixture.ask(V, &Ask::new("/a/1", 2));
    let out = give_announced(&mut fixture, U, LpHeader::default(), data("/a/1", 0), "/a");
    assert_eq!(sent(&out), [(LOCAL, PacketKind::Data), (V, PacketKind::Data)]);
    assert_eq!(take_announcements(&mut fixture), [(1, Packet::from(announcement("/a")))]);
    assert_eq!(take_events(&mut fixture), [announced(U, "/a")]);
}

#[test]
fn data_for_a_discovery_waits_for_its_announcement() {
    let mut fixture = fixture();
    fixture.route("/a", &[(LOCAL, 0)]);
    let prefix: Name = "/a".parse().unwrap();
    fixture.ask(U, &Ask::new("/a/1", 1));
    fixture.ask(LOCAL2, &Ask::new("/a/1", 2));
    let out = fixture.answer(LOCAL, data("/a/1", 0));
    assert_eq!(sent(&out), [(LOCAL2, PacketKind::Data)], "a program does not wait");
    let needed = Event::AnnouncementNeeded { prefix: prefix.clone() };
    assert_eq!(take_events(&mut fixture), [needed]);
    // A second packet of the prefix waits as well, without a second request.
    fixture.ask(V, &Ask::new("/a/2", 3));
    assert!(fixture.answer(LOCAL, data("/a/2", 0)).is_empty());
    assert_eq!(take_events(&mut fixture), []);
    let pa = Packet::from(announcement("/a"));
    let announcement = Some(pa.clone());
    fixture.command(Command::SetAnnouncement { prefix: prefix.clone(), announcement });
    assert_eq!(sent(&fixture.take()), [(U, PacketKind::Data), (V, PacketKind::Data)]);
    assert_eq!(take_announcements(&mut fixture), [(0, pa.clone()), (1, pa.clone())]);
    // The answer is used for some seconds. Marked Interests get Data without it.
    fixture.ask(U, &Ask::new("/a/3", 4));
    assert_eq!(fixture.answer(LOCAL, data("/a/3", 0)).len(), 1);
    assert_eq!(take_announcements(&mut fixture), [(0, pa)]);
    fixture.packet(U, marked(), Ask::new("/a/4", 5).wire());
    assert_eq!(fixture.answer(LOCAL, data("/a/4", 0)).len(), 1);
    assert!(take_announcements(&mut fixture).is_empty());
    // Then, or when the routes have changed, the router asks the driver again.
    for change in [true, false] {
        match change {
            true => fixture.route("/a", &[(LOCAL, 0), (LOCAL2, 1)]),
            false => fixture.pass_ms(5000),
        }
        let nonce = 10 + u32::from(change);
        let name = alloc::format!("/a/{nonce}");
        fixture.ask(U, &Ask::new(&name, nonce));
        assert!(fixture.answer(LOCAL, data(&name, 0)).is_empty());
        assert_eq!(take_events(&mut fixture).len(), 1);
        let prefix = prefix.clone();
        fixture.command(Command::SetAnnouncement { prefix, announcement: None });
        assert_eq!(sent(&fixture.take()), [(U, PacketKind::Data)]);
        assert!(take_announcements(&mut fixture).is_empty());
    }
}

/// All shards receive the answers that one has requested.
#[test]
fn ignores_answers_that_it_has_not_requested() {
    let mut fixture = fixture();
    fixture.route("/a", &[(LOCAL, 0)]);
    let announcement = Some(Packet::from(announcement("/a")));
    fixture.command(Command::SetAnnouncement { prefix: "/a".parse().unwrap(), announcement });
    fixture.ask(U, &Ask::new("/a/1", 1));
    assert!(fixture.answer(LOCAL, data("/a/1", 0)).is_empty());
    let needed = Event::AnnouncementNeeded { prefix: "/a".parse().unwrap() };
    assert_eq!(take_events(&mut fixture), [needed]);
}

#[test]
fn data_that_waits_is_bounded() {
    let mut fixture = fixture();
    fixture.route("/a", &[(LOCAL, 0)]);
    let mut sent_at_once = 0;
    for number in 0..1100 {
        let name = alloc::format!("/a/{number}");
        fixture.ask(U, &Ask::new(&name, number));
        sent_at_once += fixture.answer(LOCAL, data(&name, 0)).len();
    }
    assert_eq!(sent_at_once, 1100 - 1024);
    assert_eq!(take_events(&mut fixture).len(), 1);
    let prefix = "/a".parse().unwrap();
    fixture.command(Command::SetAnnouncement { prefix, announcement: None });
    assert_eq!(fixture.take().len(), 1024);
}

#[test]
fn nacks_end_routes_but_not_floods() {
    let mut fixture = fixture();
    fixture.route("/a", &[(U, 0), (V, 0)]);
    let out = fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    let name: Name = "/a/1".parse().unwrap();
    assert!(fixture.nack(U, NackReason::NoRoute, &out[0].packet).is_empty());
    assert_eq!(take_events(&mut fixture), [Event::RouteRefused { face: U, name: name.clone() }]);
    // Other reasons say nothing about the route. The Nack is passed on when all have refused.
    let passed = fixture.nack(V, NackReason::Congestion, &out[1].packet);
    assert_eq!(passed[0].header.nack, Some(NackReason::Congestion));
    assert_eq!(take_events(&mut fixture), []);
    // A flood waits for faces whose nodes cannot refuse it.
    for ingress in [V, LOCAL] {
        let ask = Ask::new(&alloc::format!("/b/{}", ingress.0), 7);
        let out = fixture.ask(ingress, &ask);
        let mut sent = Vec::new();
        for asked in out.iter().filter(|asked| asked.face != RADIO && asked.face != SHARED) {
            let header = LpHeader {
                nack: Some(NackReason::NoRoute),
                pit_token: asked.header.pit_token,
                ..LpHeader::default()
            };
            sent.extend(fixture.packet(asked.face, header, asked.packet.to_vec()));
        }
        assert!(sent.is_empty(), "the radio may still answer");
        assert_eq!(take_events(&mut fixture), []);
    }
    assert_eq!(fixture.router.stats().pit_entries, 2);
}

#[test]
fn refused_flood_of_a_program_gets_a_nack() {
    let mut fixture = fixture();
    for face in [RADIO, SHARED, SPOOFABLE] {
        fixture.command(Command::RemoveFace { face });
    }
    for (ingress, expected) in [(LOCAL, 1), (V, 0)] {
        let out = fixture.ask(ingress, &Ask::new(&alloc::format!("/b/{}", ingress.0), 7));
        let mut nacks = Vec::new();
        for asked in &out {
            nacks.extend(fixture.nack(asked.face, NackReason::NoRoute, &asked.packet));
        }
        assert_eq!(nacks.len(), expected);
        assert!(nacks.iter().all(|nack| nack.face == LOCAL));
    }
}

#[test]
fn self_learning_has_no_parameters() {
    for name in ["/v=1", "", "/v=0"] {
        let name: Name = alloc::format!("{SELF_LEARNING}{name}").parse().unwrap();
        let strategy = crate::strategy::Strategy::from_name(name.as_view()).unwrap();
        assert_eq!(alloc::format!("{}", strategy.name()), alloc::format!("{SELF_LEARNING}/v=1"));
    }
    for name in ["/v=2", "/v=1/x~1", "/v=1/retx-suppression-initial~20"] {
        let name: Name = alloc::format!("{SELF_LEARNING}{name}").parse().unwrap();
        assert!(crate::strategy::Strategy::from_name(name.as_view()).is_err());
    }
}
