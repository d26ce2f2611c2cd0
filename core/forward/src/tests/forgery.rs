//! Forged Data and Nacks.

use super::*;
use crate::DataSource;

/// An attacker sends an Interest that it answers itself, or waits for the Interests of others.
/// Neither Data reaches others.
#[test]
fn unrequested_data_is_neither_forwarded_nor_stored() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    for ask in [Ask::new("/a/b", 1), Ask::new("/a", 2).prefix()] {
        assert_eq!(sent(&fixture.ask(V, &ask)), vec![(U, PacketKind::Interest)]);
    }
    assert!(fixture.ask(LOCAL, &Ask::new("/a/b", 3)).is_empty(), "aggregated");
    assert!(fixture.answer(V, data("/a/b", 1000)).is_empty());
    assert_eq!(fixture.drops(DropReason::NotRequested), 1);
    assert_eq!(fixture.router.stats().store.entries, 0);
    let kind = PacketKind::Data;
    assert_eq!(sent(&fixture.answer(U, data("/a/b", 1000))), vec![(LOCAL, kind), (V, kind)]);
}

#[test]
fn data_satisfies_only_entries_sent_to_its_face() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.route("/a/b", &[(V, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a", 1).prefix());
    fixture.ask(LOCAL2, &Ask::new("/a/b", 2));
    assert_eq!(sent(&fixture.answer(U, data("/a/b", 0))), vec![(LOCAL, PacketKind::Data)]);
    assert_eq!(sent(&fixture.answer(V, data("/a/b", 0))), vec![(LOCAL2, PacketKind::Data)]);
}

#[test]
fn data_source_any_accepts_every_face() {
    let mut fixture = Fixture::with_config(RouterConfig {
        data_source: DataSource::Any,
        ..RouterConfig::default()
    });
    fixture.route("/a", &[(U, 0)]);
    fixture.ask(LOCAL, &Ask::new("/a/b", 1));
    assert_eq!(sent(&fixture.answer(V, data("/a/b", 0))), vec![(LOCAL, PacketKind::Data)]);
}

/// One Interest for `name` and its answer with the neighbour over UDP. Returns the header of the
/// Interest.
fn ask_spoofable(fixture: &mut Fixture, name: &str) -> LpHeader {
    let out = fixture.ask(LOCAL, &Ask::new(name, 7));
    assert_eq!(sent(&out), vec![(SPOOFABLE, PacketKind::Interest)]);
    LpHeader { pit_token: out[0].header.pit_token, ..LpHeader::default() }
}

#[test]
fn secret_tokens_differ_by_name_and_key() {
    let tokens = |key| {
        let hash_key = weir_base::HashKey::new([key, 0]);
        let mut fixture =
            Fixture::with_config(RouterConfig { hash_key, ..RouterConfig::default() });
        fixture.route("/a", &[(SPOOFABLE, 0)]);
        ["/a/1", "/a/2"].map(|name| ask_spoofable(&mut fixture, name).pit_token)
    };
    let [[one, two], [other, _]] = [tokens(1), tokens(2)];
    assert!(one != two && one != other);
    assert_eq!(one.as_slice().len(), 6);
}

/// An attacker that forges the source address does not know the tokens.
#[test]
fn forged_source_address_is_detected() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(SPOOFABLE, 0)]);
    let header = ask_spoofable(&mut fixture, "/a/1");
    assert_eq!(fixture.packet(SPOOFABLE, header, data("/a/1", 0)).len(), 1);
    for turn in 0..4 {
        let name = alloc::format!("/a/x{turn}");
        let header = ask_spoofable(&mut fixture, &name);
        let guess = token(&[7; 6]);
        assert!(fixture.answer(SPOOFABLE, data(&name, 0)).is_empty(), "no token");
        assert!(fixture.packet(SPOOFABLE, guess, data(&name, 0)).is_empty(), "a guess");
        fixture.pass_ms(3900);
        assert_eq!(fixture.packet(SPOOFABLE, header, data(&name, 0)).len(), 1);
    }
    assert_eq!(fixture.drops(DropReason::Spoofed), 8);
}

#[test]
fn faces_choose_long_tokens_or_none() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(SPOOFABLE, 0)]);
    for (tokens, len) in [(PitTokens::LongSecret, 12), (PitTokens::Off, 0)] {
        let attributes =
            FaceAttributes { tokens, ..FaceAttributes::point_to_point(FaceScope::NonLocal) };
        fixture.command(Command::AddFace { face: SPOOFABLE, attributes });
        for turn in 0..2 {
            let name = alloc::format!("/a/{len}/{turn}");
            let header = ask_spoofable(&mut fixture, &name);
            assert_eq!(header.pit_token.as_slice().len(), len);
            assert_eq!(fixture.packet(SPOOFABLE, header, data(&name, 0)).len(), 1);
        }
    }
    // Without tokens, only the address can be checked.
    ask_spoofable(&mut fixture, "/a/any");
    assert_eq!(fixture.packet(SPOOFABLE, token(&[7; 6]), data("/a/any", 0)).len(), 1);
    assert_eq!(fixture.drops(DropReason::Spoofed), 0);
}

/// A peer need not support tokens. Once it has returned one, forged packets without a token are
/// refused.
#[test]
fn tokens_are_required_after_the_first() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(SPOOFABLE, 0)]);
    ask_spoofable(&mut fixture, "/a/1");
    assert_eq!(fixture.answer(SPOOFABLE, data("/a/1", 0)).len(), 1);
    let header = ask_spoofable(&mut fixture, "/a/2");
    assert_eq!(fixture.packet(SPOOFABLE, header, data("/a/2", 0)).len(), 1);
    for turn in 0..5 {
        fixture.pass_ms(20_000);
        let name = alloc::format!("/a/t{turn}");
        ask_spoofable(&mut fixture, &name);
        assert!(fixture.answer(SPOOFABLE, data(&name, 0)).is_empty());
    }
}

/// An attacker knows the nonce of an Interest that it has sent itself.
#[test]
fn forged_nacks_are_detected() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(SPOOFABLE, 0)]);
    let nack = |fixture: &mut Fixture, name: &str, pit_token| {
        let header = LpHeader { nack: Some(NackReason::NoRoute), pit_token, ..LpHeader::default() };
        fixture.packet(SPOOFABLE, header, Ask::new(name, 7).wire())
    };
    let right = ask_spoofable(&mut fixture, "/a/1").pit_token;
    assert_eq!(nack(&mut fixture, "/a/1", right).len(), 1);
    let right = ask_spoofable(&mut fixture, "/a/2").pit_token;
    assert!(nack(&mut fixture, "/a/2", PitToken::EMPTY).is_empty());
    assert_eq!(fixture.drops(DropReason::Spoofed), 1);
    let out = nack(&mut fixture, "/a/2", right);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)]);
    let refused = fixture.packet(LOCAL, token(&[1, 2]), Ask::new("/nowhere", 9).wire());
    assert_eq!(
        refused[0].header.pit_token.as_slice(),
        [1, 2],
        "our Nacks carry the token of the Interest"
    );
}

/// A consumer on this host has found a copy to be false.
#[test]
fn erasing_false_copy_distrusts_its_hop() {
    for strategy in ["best-route", "lowest-rtt"] {
        let mut fixture = Fixture::new();
        fixture.strategy("/", &alloc::format!("/localhost/nfd/strategy/{strategy}"));
        fixture.route("/a", &[(U, 0), (V, 5)]);
        let asked = |fixture: &mut Fixture, nonce| {
            let name = alloc::format!("/a/{nonce}");
            sent(&fixture.ask(LOCAL, &Ask::new(&name, nonce)))[0].0
        };
        fixture.ask(LOCAL, &Ask::new("/a/b", 1));
        let forged = data("/a/b", 60_000);
        fixture.answer(U, forged.clone());
        let mut copy: Name = "/a/b".parse().unwrap();
        let digest = weir_wire::DataView::decode(&forged).unwrap().implicit_digest();
        let mut another = copy.clone();
        another.append_implicit_digest([7; 32]);
        copy.append_implicit_digest(digest);
        for (prefix, erased) in [(another, 0), (copy.clone(), 1), (copy, 0)] {
            fixture.command(Command::EraseStore { transaction: 7, prefix, limit: 1 });
            let event = fixture.out.events.pop().unwrap();
            let limit_reached = erased == 1;
            assert_eq!(event, Event::StoreErased { transaction: 7, erased, limit_reached });
        }
        assert_eq!(asked(&mut fixture, 10), V, "{strategy}");
        fixture.pass_ms(59_000);
        fixture.route("/a", &[]);
        fixture.route("/a", &[(U, 0), (V, 6)]);
        assert_eq!(asked(&mut fixture, 11), V, "a new route does not end the distrust");
        fixture.pass_ms(2_000);
        assert_eq!(asked(&mut fixture, 12), U, "{strategy}");
    }
}
