//! The three paths on a plain configuration.

use super::*;

#[test]
fn data_returns_with_the_pit_token() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let out = fixture.packet(LOCAL, token(&[1, 2, 3]), Ask::new("/a/b", 7).wire());
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
    assert!(out[0].header.pit_token.is_empty(), "one shard sends no token");
    assert_eq!(out[0].header.incoming_face, Some(LOCAL.0));
    let wire = data("/a/b", 0);
    let out = fixture.answer(U, wire.clone());
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Data)]);
    assert_eq!(out[0].header.pit_token.as_slice(), &[1, 2, 3]);
    assert_eq!(out[0].header.incoming_face, Some(U.0));
    assert_eq!(&*out[0].packet, &wire[..]);
    let stats = fixture.router.stats();
    assert_eq!((stats.satisfied, stats.pit_entries), (1, 0));
}

#[test]
fn hit_is_answered_without_forwarding() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a/b", 1));
    fixture.answer(U, data("/a/b", 100));
    let out = fixture.packet(V, token(&[9]), Ask::new("/a/b", 2).wire());
    assert_eq!(sent(&out), vec![(V, PacketKind::Data)]);
    assert_eq!(out[0].header.pit_token.as_slice(), &[9]);
    assert_eq!(out[0].header.incoming_face, Some(FaceId::CONTENT_STORE.0));
    let out = fixture.ask(V, &Ask::new("/a/b", 3).fresh());
    assert_eq!(sent(&out), vec![(V, PacketKind::Data)], "fresh for 100 ms");
    fixture.pass_ms(101);
    let out = fixture.ask(V, &Ask::new("/a/b", 4).fresh());
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)], "stale now");
    assert_eq!(fixture.router.stats().store.hits, 2);
}

#[test]
fn served_bytes_are_counted_by_source() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let packet = data("/a/b", 100);
    let bytes = packet.len() as u64;
    // Two downstreams wait: the Data of the next hop is sent twice. Memory answers the third.
    fixture.ask(LOCAL, &Ask::new("/a/b", 1));
    fixture.ask(V, &Ask::new("/a/b", 2));
    fixture.answer(U, packet);
    fixture.ask(LOCAL2, &Ask::new("/a/b", 3));
    let stats = fixture.router.stats();
    let served = (stats.memory_bytes, stats.disk_bytes, stats.next_hop_bytes);
    assert_eq!(served, (bytes, 0, 2 * bytes));
}

#[test]
fn waiting_downstreams_share_one_upstream_interest() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    assert_eq!(fixture.ask(LOCAL, &Ask::new("/a/b", 1)).len(), 1);
    assert!(fixture.ask(LOCAL2, &Ask::new("/a/b", 2)).is_empty(), "aggregated");
    assert!(fixture.ask(V, &Ask::new("/a/b", 3)).is_empty(), "aggregated");
    let out = fixture.answer(U, data("/a/b", 0));
    let kind = PacketKind::Data;
    assert_eq!(sent(&out), vec![(LOCAL, kind), (LOCAL2, kind), (V, kind)]);
    assert!(fixture.answer(U, data("/a/b", 0)).is_empty());
    assert_eq!(fixture.drops(DropReason::Unsolicited), 1);
}

#[test]
fn data_satisfies_prefixes_and_full_names() {
    let mut fixture = Fixture::new();
    fixture.route("/", &[(U, 0)]);
    let wire = data("/a/b/c/d", 0);
    let digest = weir_wire::DataView::decode(&wire).unwrap().implicit_digest();
    let mut full_name: Name = "/a/b/c/d".parse().unwrap();
    full_name.append_implicit_digest(digest);
    fixture.ask(LOCAL, &Ask::new("/a", 1).prefix());
    fixture.ask(LOCAL2, &Ask::new("/a/b/c", 2).prefix().fresh());
    fixture.ask(V, &Ask { name: full_name, ..Ask::new("/a", 3) });
    fixture.ask(V, &Ask::new("/a/b", 4));
    let out = fixture.answer(U, wire);
    let mut faces: Vec<FaceId> = out.iter().map(|packet| packet.face).collect();
    faces.sort();
    assert_eq!(faces, vec![LOCAL, LOCAL2, V]);
    assert_eq!(fixture.router.stats().pit_entries, 1, "/a/b without CanBePrefix still waits");
}

#[test]
fn data_is_sent_once_for_each_token() {
    let mut fixture = Fixture::new();
    fixture.route("/", &[(U, 0)]);
    fixture.packet(LOCAL, token(&[1]), Ask::new("/a", 1).prefix().wire());
    fixture.packet(LOCAL, token(&[2]), Ask::new("/a/b", 2).wire());
    fixture.packet(V, token(&[3]), Ask::new("/a/b", 3).wire());
    let out = fixture.answer(U, data("/a/b", 0));
    let mut got: Vec<_> =
        out.iter().map(|packet| (packet.face, packet.header.pit_token.as_slice())).collect();
    got.sort();
    assert_eq!(got, vec![(LOCAL, &[1][..]), (LOCAL, &[2][..]), (V, &[3][..])]);
}

#[test]
fn an_interest_without_nonce_gets_one() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let out = fixture.ask(LOCAL, &Ask { nonce: None, ..Ask::new("/a/b", 0) });
    let sent = InterestView::decode(&out[0].packet).unwrap();
    assert!(sent.nonce.is_some());
    assert_eq!(sent.lifetime_ms, Some(4000));
}

#[test]
fn repeated_nonces_are_loops() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a/b", 1));
    let out = fixture.ask(V, &Ask::new("/a/b", 1));
    assert_eq!(sent(&out), vec![(V, PacketKind::Nack)]);
    assert_eq!(out[0].header.nack, Some(NackReason::Duplicate));
    assert!(fixture.ask(RADIO, &Ask::new("/a/b", 1)).is_empty(), "no Nack to several peers");
    fixture.pass_ms(4100);
    let out = fixture.ask(V, &Ask::new("/a/b", 1));
    assert_eq!(out[0].header.nack, Some(NackReason::Duplicate), "dead, but remembered");
    fixture.pass_ms(6100);
    let out = fixture.ask(V, &Ask::new("/a/b", 1));
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
}

#[test]
fn hop_limits_count_down() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.route("/here", &[(LOCAL, 0)]);
    let limited =
        |name: &str, nonce, limit| Ask { hop_limit: Some(limit), ..Ask::new(name, nonce) };
    let out = fixture.ask(V, &limited("/a/1", 1, 3));
    assert_eq!(InterestView::decode(&out[0].packet).unwrap().hop_limit, Some(2));
    assert!(fixture.ask(V, &limited("/a/2", 2, 0)).is_empty());
    assert_eq!(fixture.drops(DropReason::HopLimit), 1);
    assert!(fixture.ask(V, &limited("/a/3", 3, 1)).is_empty(), "it may not leave the host");
    assert_eq!(fixture.drops(DropReason::HopLimitSpent), 1);
    let out = fixture.ask(V, &limited("/here/4", 4, 1));
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Interest)]);
}

#[test]
fn forwarding_hint_is_used_until_home() {
    let mut fixture = Fixture::new();
    fixture.route("/net/x", &[(U, 0)]);
    fixture.route("/a", &[(V, 0)]);
    let hinted =
        |nonce, hint: &str| Ask { hint: Some(hint.parse().unwrap()), ..Ask::new("/a/b", nonce) };
    assert_eq!(sent(&fixture.ask(LOCAL, &hinted(1, "/net/x"))), vec![(U, PacketKind::Interest)]);
    fixture.pass_ms(4100);
    fixture.command(Command::SetProducerRegions(vec!["/net/x/here".parse().unwrap()]));
    let out = fixture.ask(LOCAL, &hinted(2, "/net/x"));
    assert_eq!(sent(&out), vec![(V, PacketKind::Interest)]);
    let sent = InterestView::decode(&out[0].packet).unwrap();
    assert!(sent.forwarding_hint.is_empty(), "stripped in the producer's region");
}

#[test]
fn a_chosen_next_hop_is_taken() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let header = LpHeader { next_hop_face: Some(V.0), ..LpHeader::default() };
    let out = fixture.packet(LOCAL, header, Ask::new("/a/b", 1).wire());
    assert_eq!(sent(&out), vec![(V, PacketKind::Interest)]);
}

#[test]
fn no_cache_data_is_forwarded_but_not_stored() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a/b", 1));
    let header = LpHeader { no_cache: true, congestion_mark: 1, ..LpHeader::default() };
    let out = fixture.packet(U, header, data("/a/b", 1000));
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Data)]);
    assert_eq!(out[0].header.congestion_mark, 1, "marks are forwarded");
    assert_eq!(fixture.router.stats().store.entries, 0);
}

/// Each host behind such a face gives another PIT token: over a TUN device, its locator.
#[test]
fn hosts_behind_one_face_each_get_data() {
    let mut fixture =
        Fixture::with_config(RouterConfig { pit_entries_per_face_max: 100, ..Default::default() });
    fixture.route("/a", &[(U, 0)]);
    let tokens_of = |out: &[OutPacket]| -> Vec<Vec<u8>> {
        assert!(out.iter().all(|packet| kind(packet) == PacketKind::Data));
        out.iter().map(|packet| packet.header.pit_token.as_slice().to_vec()).collect()
    };
    // The second host repeats its Interest.
    for (host, nonce) in [(1, 1), (2, 2), (2, 3)] {
        fixture.packet(SHARED, token(&[host]), Ask::new("/a/b", nonce).wire());
    }
    let mut tokens = tokens_of(&fixture.answer(U, data("/a/b", 0)));
    tokens.sort();
    assert_eq!(tokens, [[1], [2]]);
    // Too many hosts: the later ones replace those whose Interests expire first.
    for host in 0..80 {
        fixture.packet(SHARED, token(&[host]), Ask::new("/a/c", 100 + u32::from(host)).wire());
        fixture.pass_ms(1);
    }
    let mut tokens = tokens_of(&fixture.answer(U, data("/a/c", 0)));
    tokens.sort();
    assert_eq!(tokens, (16..80).map(|host| vec![host]).collect::<Vec<_>>());
    // All entries of the face have ended, so it may have as many again.
    for number in 0..110 {
        let ask = Ask::new(&alloc::format!("/a/{number}"), 1000 + number);
        fixture.packet(SHARED, token(&[1]), ask.wire());
    }
    assert_eq!(fixture.drops(DropReason::PitFull), 10);
}
