//! Learned routes, and the announcements that go out with Data (strategy self-learning).

use weir_base::{FaceId, Packet};
use weir_manage::commands::Command;
use weir_manage::{
    Action, FaceEventKind, FaceInfo, FaceScope, LearningInput, LinkType, ManagerConfig,
    ManagerInput,
};
use weir_security::{DigestSigner, Signer};
use weir_wire::{DataView, Name, tlv};

use crate::access::{
    FORGER, OPERATOR, Operator, STRANGER, announce, announcement, announcement_with,
};
use crate::harness::{CLIENT, Harness, PEER, UNIX_MS, face, name, parameters};

const MINUTE_MS: u64 = 60_000;

fn learn(harness: &mut Harness, face: FaceId, wire: Vec<u8>) {
    let announcement = Packet::from(wire);
    harness.give(ManagerInput::Learning(LearningInput::Announced { face, announcement }));
}

fn refuse(harness: &mut Harness, face: FaceId, uri: &str) {
    let name = name(uri);
    harness.give(ManagerInput::Learning(LearningInput::RouteRefused { face, name }));
}

/// The announcement that the router returns with Data of this prefix.
fn announcement_for(harness: &mut Harness, uri: &str) -> Option<Packet> {
    harness.drain();
    let prefix = name(uri);
    harness.give(ManagerInput::Learning(LearningInput::AnnouncementNeeded { prefix }));
    match harness.action() {
        Action::SetAnnouncement { prefix, announcement } => {
            assert_eq!(prefix, name(uri));
            announcement
        }
        other => panic!("{other:?}"),
    }
}

/// The FIB without the router's own entries.
fn routes(harness: &Harness) -> Vec<String> {
    harness.fib().into_iter().filter(|entry| !entry.starts_with("/localhost")).collect()
}

fn refused(harness: &Harness) -> u64 {
    harness.manager.stats().announcements_refused
}

fn signed(uri: &str, signer: &dyn Signer) -> Vec<u8> {
    announcement(&name(uri), 60 * MINUTE_MS, signer)
}

#[test]
fn announcement_makes_a_route_for_ten_minutes() {
    let mut harness = Harness::new();
    harness.drain();
    learn(&mut harness, PEER, signed("/a", &DigestSigner));
    assert_eq!(routes(&harness), ["/a 262:2048"]);
    assert!(matches!(harness.action(), Action::SetNextHops { .. }));
    // A new announcement renews it.
    harness.advance_ms(9 * MINUTE_MS);
    learn(&mut harness, PEER, signed("/a", &DigestSigner));
    harness.advance_ms(9 * MINUTE_MS);
    assert_eq!(routes(&harness), ["/a 262:2048"]);
    harness.advance_ms(MINUTE_MS);
    assert!(routes(&harness).is_empty());
    // A shorter expiration of the announcement itself.
    learn(&mut harness, PEER, announcement(&name("/b"), 1000, &DigestSigner));
    harness.advance_ms(1000);
    assert!(routes(&harness).is_empty());
    assert_eq!(refused(&harness), 0);
}

/// Nacks do not pass there, so nothing else would end a wrong route soon.
#[test]
fn routes_to_shared_links_last_ten_seconds() {
    for link_type in [LinkType::MultiAccess, LinkType::AdHoc] {
        let mut harness = Harness::new();
        let group = FaceId(300);
        let info = face(group, "udp4://224.0.23.170:56363", FaceScope::NonLocal);
        harness.add_face(FaceInfo { link_type, ..info });
        learn(&mut harness, group, signed("/a", &DigestSigner));
        learn(&mut harness, PEER, signed("/a", &DigestSigner));
        harness.advance_ms(9_999);
        assert_eq!(routes(&harness), ["/a 262:2048,300:2048"]);
        harness.advance_ms(1);
        assert_eq!(routes(&harness), ["/a 262:2048"]);
    }
}

#[test]
fn forged_announcements_make_no_route() {
    let mut harness = Harness::with_config(ManagerConfig {
        announcement_anchors: Some(Box::new(Operator)),
        ..ManagerConfig::default()
    });
    for signer in [&FORGER as &dyn Signer, &STRANGER, &DigestSigner] {
        learn(&mut harness, PEER, signed("/a", signer));
    }
    // A changed octet of the prefix, and of the content.
    for at in [9, 40] {
        let mut wire = signed("/abc", &OPERATOR);
        wire[at] ^= 1;
        learn(&mut harness, PEER, wire);
    }
    assert_eq!(refused(&harness), 5);
    assert!(routes(&harness).is_empty());
    learn(&mut harness, PEER, signed("/a", &OPERATOR));
    assert_eq!(routes(&harness), ["/a 262:2048"]);
}

#[test]
fn announcement_outside_its_validity_ends_the_route() {
    let with_validity = |from: &str, until: &str| {
        let mut period = tlv::Writer::new();
        period.tlv(tlv::NOT_BEFORE, from.as_bytes());
        period.tlv(tlv::NOT_AFTER, until.as_bytes());
        let mut content = tlv::Writer::new();
        content.nni(109, 60 * MINUTE_MS);
        content.tlv(tlv::VALIDITY_PERIOD, period.as_slice());
        announcement_with(&name("/a"), content, &DigestSigner)
    };
    let mut harness = Harness::new();
    assert_eq!(UNIX_MS, 1_800_000_000_000, "20270115T080000");
    learn(&mut harness, PEER, with_validity("20270115T075900", "20270115T080100"));
    assert_eq!(routes(&harness), ["/a 262:2048"]);
    harness.advance_ms(MINUTE_MS);
    assert!(routes(&harness).is_empty());
    learn(&mut harness, PEER, signed("/a", &DigestSigner));
    assert_eq!(routes(&harness), ["/a 262:2048"]);
    learn(&mut harness, PEER, with_validity("20270115T075900", "20270115T080000"));
    assert!(routes(&harness).is_empty(), "expired");
    learn(&mut harness, PEER, with_validity("20280115T075900", "20290115T080000"));
    assert!(routes(&harness).is_empty(), "not yet valid");
    assert_eq!(refused(&harness), 2);
}

#[test]
fn refuses_invalid_announcements() {
    let mut harness = Harness::new();
    let mut long = Name::new();
    (0..33).for_each(|_| {
        long.append_str("x");
    });
    let large = {
        let mut content = tlv::Writer::new();
        content.nni(109, 1000);
        content.tlv(1000, &[0; 2048]);
        announcement_with(&name("/large"), content, &DigestSigner)
    };
    let mut empty_content = signed("/a", &DigestSigner);
    empty_content.truncate(20);
    for wire in [
        signed("/", &DigestSigner),
        signed("/localhost/nfd", &DigestSigner),
        signed("/localhost/x", &DigestSigner),
        signed("/localhop/x", &DigestSigner),
        announcement(&long, 1000, &DigestSigner),
        announcement_with(&name("/a"), tlv::Writer::new(), &DigestSigner),
        weir_wire::Data::new(name("/a/1")).content_type(5).encode_with_digest(),
        empty_content,
        large,
    ] {
        learn(&mut harness, PEER, wire);
    }
    learn(&mut harness, FaceId(999), signed("/a", &DigestSigner));
    assert_eq!(refused(&harness), 10);
    assert!(routes(&harness).is_empty());
}

#[test]
fn neighbour_cannot_fill_the_rib() {
    let mut harness = Harness::new();
    for number in 0..1500 {
        // The rate is limited as well.
        if number % 100 == 0 {
            harness.advance_ms(1000);
        }
        learn(&mut harness, PEER, signed(&format!("/{number}"), &DigestSigner));
    }
    assert_eq!(routes(&harness).len(), 1024);
    for _ in 0..300 {
        learn(&mut harness, PEER, signed("/1", &DigestSigner));
    }
    // 100 of this second were used before, and 100 more were accepted.
    assert_eq!(refused(&harness), (1500 - 1024) + 200);
}

#[test]
fn refusal_ends_only_the_learned_route() {
    let mut harness = Harness::new();
    learn(&mut harness, PEER, signed("/a", &DigestSigner));
    learn(&mut harness, PEER, signed("/a/b", &DigestSigner));
    harness.command(
        Command::RibRegister,
        &parameters(|p| {
            p.name = Some(name("/a/b/c"));
            p.face_id = Some(PEER);
        }),
    );
    refuse(&mut harness, CLIENT, "/a/b/c/d");
    assert_eq!(routes(&harness).len(), 3);
    refuse(&mut harness, PEER, "/a/b/c/d");
    assert_eq!(routes(&harness), ["/a 262:2048", "/a/b/c 262:0"]);
    refuse(&mut harness, PEER, "/a/b/c/d");
    assert_eq!(routes(&harness), ["/a/b/c 262:0"]);
    refuse(&mut harness, PEER, "/a/b/c/d");
    assert_eq!(routes(&harness), ["/a/b/c 262:0"], "it was not learned");
}

#[test]
fn learned_routes_end_with_their_face() {
    for kind in [FaceEventKind::Down, FaceEventKind::Destroyed] {
        let mut harness = Harness::new();
        learn(&mut harness, PEER, signed("/a", &DigestSigner));
        learn(&mut harness, PEER, signed("/b", &DigestSigner));
        let info = face(PEER, "udp4://192.0.2.1:6363", FaceScope::NonLocal);
        harness.give(ManagerInput::FaceEvent { kind, info });
        assert!(routes(&harness).is_empty());
        let known = harness.manager.rib().iter().filter(|(prefix, _)| prefix.to_string() == "/a");
        assert_eq!(known.count(), 0);
    }
}

#[test]
fn returns_the_announcement_of_the_route() {
    let mut harness = Harness::new();
    assert_eq!(announcement_for(&mut harness, "/a"), None);
    let (producers, learned) = (signed("/a", &DigestSigner), signed("/a/b", &DigestSigner));
    harness.interest(&announce(&producers));
    learn(&mut harness, PEER, learned.clone());
    for (uri, expected) in [("/a", &producers), ("/a/x/y", &producers), ("/a/b/c", &learned)] {
        assert_eq!(announcement_for(&mut harness, uri).as_deref(), Some(&expected[..]));
    }
    // An announcement ends with its route.
    harness.advance_ms(10 * MINUTE_MS);
    assert_eq!(announcement_for(&mut harness, "/a/b").as_deref(), Some(&producers[..]));
    harness.command(
        Command::RibUnregister,
        &parameters(|p| {
            p.name = Some(name("/a"));
            p.face_id = Some(CLIENT);
            p.origin = Some(129);
        }),
    );
    assert_eq!(announcement_for(&mut harness, "/a"), None);
}

#[test]
fn makes_announcements_of_other_routes() {
    let mut harness = Harness::new();
    for (uri, expires, expected) in [
        ("/forever", None, 3_600_000),
        ("/hour", Some(7_200_000), 3_600_000),
        ("/soon", Some(20_000), 20_000),
        ("/now", Some(1000), 15_000),
    ] {
        let registered = parameters(|p| {
            p.name = Some(name(uri));
            p.expiration_period_ms = expires;
        });
        harness.command(Command::RibRegister, &registered);
        let made = announcement_for(&mut harness, &format!("{uri}/1")).unwrap();
        let data = DataView::decode(&made).unwrap();
        assert_eq!(data.name.to_string(), format!("{uri}/32=PA/v={UNIX_MS}/seg=0"));
        assert_eq!(data.content_type, 5);
        assert_eq!(data.check_digest(), Ok(()));
        // Another router learns it.
        let mut other = Harness::new();
        learn(&mut other, PEER, made.to_vec());
        assert_eq!(routes(&other), [format!("{uri} 262:2048")]);
        other.advance_ms(expected.min(10 * MINUTE_MS) - 1);
        assert_eq!(routes(&other).len(), 1);
        other.advance_ms(1);
        assert!(routes(&other).is_empty());
    }
    // Names of this host are not announced.
    assert_eq!(announcement_for(&mut harness, "/localhost/nfd/rib"), None);
    // A default route is not announced, because no router would accept it.
    harness.command(Command::RibRegister, &parameters(|p| p.name = Some(Name::new())));
    assert_eq!(announcement_for(&mut harness, "/other"), None);
}
