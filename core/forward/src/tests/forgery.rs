//! Data from strangers.

use super::*;
use crate::DataSource;

/// An attacker asks for what it then answers itself, or waits for others to ask: neither is given
/// to others.
#[test]
fn data_from_a_face_that_was_not_asked_is_neither_given_on_nor_kept() {
    let mut bed = Bed::new();
    bed.route("/a", &[(U, 0)]);
    for ask in [Ask::new("/a/b", 1), Ask::new("/a", 2).prefix()] {
        assert_eq!(sent(&bed.ask(V, &ask)), vec![(U, PacketKind::Interest)]);
    }
    assert!(bed.ask(LOCAL, &Ask::new("/a/b", 3)).is_empty(), "aggregated");
    assert!(bed.answer(V, data("/a/b", 1000)).is_empty());
    assert_eq!(bed.drops(DropReason::NotAsked), 1);
    assert_eq!(bed.router.stats().store.entries, 0);
    let kind = PacketKind::Data;
    assert_eq!(sent(&bed.answer(U, data("/a/b", 1000))), vec![(LOCAL, kind), (V, kind)]);
}

#[test]
fn data_satisfies_only_entries_that_its_face_was_asked_for() {
    let mut bed = Bed::new();
    bed.route("/a", &[(U, 0)]);
    bed.route("/a/b", &[(V, 0)]);
    bed.ask(LOCAL, &Ask::new("/a", 1).prefix());
    bed.ask(LOCAL2, &Ask::new("/a/b", 2));
    assert_eq!(sent(&bed.answer(U, data("/a/b", 0))), vec![(LOCAL, PacketKind::Data)]);
    assert_eq!(sent(&bed.answer(V, data("/a/b", 0))), vec![(LOCAL2, PacketKind::Data)]);
}

#[test]
fn data_of_any_face_satisfies_where_configured() {
    let mut bed =
        Bed::with_config(RouterConfig { data_source: DataSource::Any, ..RouterConfig::default() });
    bed.route("/a", &[(U, 0)]);
    bed.ask(LOCAL, &Ask::new("/a/b", 1));
    assert_eq!(sent(&bed.answer(V, data("/a/b", 0))), vec![(LOCAL, PacketKind::Data)]);
}

/// The exchange of one Interest for `name` with the neighbour over UDP, up to its answer.
fn ask_spoofable(bed: &mut Bed, name: &str) -> LpHeader {
    let out = bed.ask(LOCAL, &Ask::new(name, 7));
    assert_eq!(sent(&out), vec![(SPOOFABLE, PacketKind::Interest)]);
    LpHeader { pit_token: out[0].header.pit_token, ..LpHeader::default() }
}

#[test]
fn tokens_towards_peers_over_udp_differ_by_name_and_key() {
    let tokens = |key| {
        let hash_key = weir_base::HashKey::new([key, 0]);
        let mut bed = Bed::with_config(RouterConfig { hash_key, ..RouterConfig::default() });
        bed.route("/a", &[(SPOOFABLE, 0)]);
        ["/a/1", "/a/2"].map(|name| ask_spoofable(&mut bed, name).pit_token)
    };
    let [[one, two], [other, _]] = [tokens(1), tokens(2)];
    assert!(one != two && one != other);
    assert_eq!(one.as_slice().len(), 6);
}

/// Whoever forges the source address of a peer that returns tokens does not know them.
#[test]
fn a_forged_source_address_is_not_enough() {
    let mut bed = Bed::new();
    bed.route("/a", &[(SPOOFABLE, 0)]);
    let header = ask_spoofable(&mut bed, "/a/1");
    assert_eq!(bed.packet(SPOOFABLE, header, data("/a/1", 0)).len(), 1);
    for turn in 0..4 {
        let name = alloc::format!("/a/x{turn}");
        let header = ask_spoofable(&mut bed, &name);
        let guess = token(&[7; 6]);
        assert!(bed.answer(SPOOFABLE, data(&name, 0)).is_empty(), "no token");
        assert!(bed.packet(SPOOFABLE, guess, data(&name, 0)).is_empty(), "a guess");
        bed.pass_ms(3900);
        assert_eq!(bed.packet(SPOOFABLE, header, data(&name, 0)).len(), 1);
    }
    assert_eq!(bed.drops(DropReason::Spoofed), 8);
}

#[test]
fn tokens_are_long_or_off_where_a_face_says_so() {
    let mut bed = Bed::new();
    bed.route("/a", &[(SPOOFABLE, 0)]);
    for (tokens, len) in [(PitTokens::LongSecret, 12), (PitTokens::Off, 0)] {
        let attributes =
            FaceAttributes { tokens, ..FaceAttributes::point_to_point(FaceScope::NonLocal) };
        bed.command(Command::AddFace { face: SPOOFABLE, attributes });
        for turn in 0..2 {
            let name = alloc::format!("/a/{len}/{turn}");
            let header = ask_spoofable(&mut bed, &name);
            assert_eq!(header.pit_token.as_slice().len(), len);
            assert_eq!(bed.packet(SPOOFABLE, header, data(&name, 0)).len(), 1);
        }
    }
    // Without tokens the address is all there is to go by.
    ask_spoofable(&mut bed, "/a/any");
    assert_eq!(bed.packet(SPOOFABLE, token(&[7; 6]), data("/a/any", 0)).len(), 1);
    assert_eq!(bed.drops(DropReason::Spoofed), 0);
}

/// A peer need not know of tokens. One that has returned them is not forged by waiting.
#[test]
fn peers_that_return_no_tokens_are_heard_until_they_return_one() {
    let mut bed = Bed::new();
    bed.route("/a", &[(SPOOFABLE, 0)]);
    ask_spoofable(&mut bed, "/a/1");
    assert_eq!(bed.answer(SPOOFABLE, data("/a/1", 0)).len(), 1);
    let header = ask_spoofable(&mut bed, "/a/2");
    assert_eq!(bed.packet(SPOOFABLE, header, data("/a/2", 0)).len(), 1);
    for turn in 0..5 {
        bed.pass_ms(20_000);
        let name = alloc::format!("/a/t{turn}");
        ask_spoofable(&mut bed, &name);
        assert!(bed.answer(SPOOFABLE, data(&name, 0)).is_empty());
    }
}

/// An attacker knows the nonce of an Interest that it has asked for itself.
#[test]
fn nacks_bear_tokens_and_forged_ones_are_found_out() {
    let mut bed = Bed::new();
    bed.route("/a", &[(SPOOFABLE, 0)]);
    let nack = |bed: &mut Bed, name: &str, pit_token| {
        let header = LpHeader { nack: Some(NackReason::NoRoute), pit_token, ..LpHeader::default() };
        bed.packet(SPOOFABLE, header, Ask::new(name, 7).wire())
    };
    let right = ask_spoofable(&mut bed, "/a/1").pit_token;
    assert_eq!(nack(&mut bed, "/a/1", right).len(), 1);
    let right = ask_spoofable(&mut bed, "/a/2").pit_token;
    assert!(nack(&mut bed, "/a/2", PitToken::EMPTY).is_empty());
    assert_eq!(bed.drops(DropReason::Spoofed), 1);
    let out = nack(&mut bed, "/a/2", right);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)]);
    let refused = bed.packet(LOCAL, token(&[1, 2]), Ask::new("/nowhere", 9).wire());
    assert_eq!(refused[0].header.pit_token.as_slice(), [1, 2], "ours bear the token that came");
}

/// A consumer on this host has found a copy to be false.
#[test]
fn a_false_copy_is_erased_by_its_digest_and_its_next_hop_is_distrusted() {
    for strategy in ["best-route", "lowest-rtt"] {
        let mut bed = Bed::new();
        bed.strategy("/", &alloc::format!("/localhost/nfd/strategy/{strategy}"));
        bed.route("/a", &[(U, 0), (V, 5)]);
        let asked = |bed: &mut Bed, nonce| {
            let name = alloc::format!("/a/{nonce}");
            sent(&bed.ask(LOCAL, &Ask::new(&name, nonce)))[0].0
        };
        bed.ask(LOCAL, &Ask::new("/a/b", 1));
        let forged = data("/a/b", 60_000);
        bed.answer(U, forged.clone());
        let mut copy: Name = "/a/b".parse().unwrap();
        let digest = weir_wire::DataView::decode(&forged).unwrap().implicit_digest();
        let mut another = copy.clone();
        another.append_implicit_digest([7; 32]);
        copy.append_implicit_digest(digest);
        for (prefix, erased) in [(another, 0), (copy.clone(), 1), (copy, 0)] {
            bed.command(Command::EraseStore { transaction: 7, prefix, limit: 1 });
            let event = bed.out.events.pop().unwrap();
            let limit_reached = erased == 1;
            assert_eq!(event, Event::StoreErased { transaction: 7, erased, limit_reached });
        }
        assert_eq!(asked(&mut bed, 10), V, "{strategy}");
        bed.pass_ms(59_000);
        bed.route("/a", &[]);
        bed.route("/a", &[(U, 0), (V, 6)]);
        assert_eq!(asked(&mut bed, 11), V, "a new route does not make it honest");
        bed.pass_ms(2_000);
        assert_eq!(asked(&mut bed, 12), U, "{strategy}");
    }
}
