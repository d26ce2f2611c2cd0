//! A full PIT: who loses entries, and who is refused.

use super::*;

/// Faces of other hosts have this number and above.
const STRANGERS: u64 = 1000;
const LIFETIME_MS: u64 = 600_000;

/// A router for `entries` pending Interests. The producers behind `U` (`/a`) and `V` (`/silent`) do
/// not answer.
fn fixture(entries: usize) -> Fixture {
    let mut fixture =
        Fixture::with_config(RouterConfig { pit_entries_max: entries, ..RouterConfig::default() });
    fixture.route("/a", &[(U, 0)]);
    fixture.route("/silent", &[(V, 0)]);
    fixture
}

fn stranger(fixture: &mut Fixture, number: u64, host: u64) -> FaceId {
    let face = FaceId(STRANGERS + number);
    let host = Some(host);
    let attributes = FaceAttributes { host, ..FaceAttributes::point_to_point(FaceScope::NonLocal) };
    fixture.command(Command::AddFace { face, attributes });
    face
}

/// Sends an Interest for a new name below `prefix`, with a lifetime of ten minutes. Returns whether
/// it went upstream.
fn ask(fixture: &mut Fixture, face: FaceId, prefix: &str, number: u32) -> bool {
    let name = alloc::format!("{prefix}/{}/{number}", face.0);
    let ask = Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(&name, number) };
    fixture.ask(face, &ask).iter().any(|out| kind(out) == PacketKind::Interest)
}

#[test]
fn evicts_face_that_fills_the_pit() {
    let mut fixture = fixture(500);
    let heavy = stranger(&mut fixture, 0, 0);
    for number in 0..1000 {
        assert_eq!(ask(&mut fixture, heavy, "/silent", number), number < 500);
    }
    let light = stranger(&mut fixture, 1, 1);
    for number in 0..100 {
        assert!(ask(&mut fixture, light, "/silent", number), "the same prefix, another host");
        assert!(ask(&mut fixture, LOCAL, "/a", number));
        fixture.pass_ms(1);
    }
    assert!(fixture.router.stats().displaced >= 200 - 8);
    assert!(fixture.router.stats().pit_entries <= 500);
}

#[test]
fn faces_of_one_host_share_one_quota() {
    let mut fixture = fixture(500);
    for number in 0..500 {
        let face = stranger(&mut fixture, number, 7);
        assert!(ask(&mut fixture, face, "/silent", 0));
    }
    let light = stranger(&mut fixture, 500, 8);
    assert!((0..50).all(|number| ask(&mut fixture, light, "/silent", number)));
    let same = stranger(&mut fixture, 501, 7);
    let refused = (0..50).filter(|&number| !ask(&mut fixture, same, "/silent", number)).count();
    assert!(refused >= 50 - 8, "{refused}");
}

/// Very many hosts with few Interests each, all below one prefix.
#[test]
fn flood_of_one_prefix_spares_others() {
    let mut fixture = fixture(500);
    for host in 0..500 {
        let face = stranger(&mut fixture, host, host);
        assert!(ask(&mut fixture, face, "/silent", 0));
    }
    let another = stranger(&mut fixture, 500, 500);
    assert!((0..50).all(|number| ask(&mut fixture, another, "/a", number)));
    // Below that prefix, new and waiting Interests have the same chance.
    assert!((0..50).any(|number| ask(&mut fixture, another, "/silent", number)));
    for number in 0..50 {
        let name = alloc::format!("/a/{}/{number}", another.0);
        assert_eq!(fixture.answer(U, data(&name, 0)).len(), 1, "no other entry was evicted");
    }
}

#[test]
fn local_entries_are_not_evicted_for_remote() {
    let mut fixture = fixture(100);
    assert!((0..100).all(|number| ask(&mut fixture, LOCAL, "/a", number)));
    let stranger = stranger(&mut fixture, 0, 0);
    assert!((0..100).all(|number| !ask(&mut fixture, stranger, "/silent", number)));
    assert!(ask(&mut fixture, LOCAL2, "/a", 1), "local entries are evicted for each other");
    assert!(fixture.router.stats().pit_entries <= 100);
}

#[test]
fn equal_holders_do_not_evict_each_other() {
    let mut fixture = fixture(400);
    let both = [0, 1].map(|number| stranger(&mut fixture, number, number));
    for number in 0..200 {
        assert!(both.iter().all(|&face| ask(&mut fixture, face, "/a", number)));
    }
    for number in 200..400 {
        for face in both {
            ask(&mut fixture, face, "/a", number);
        }
    }
    assert!(fixture.router.stats().displaced < 100, "{}", fixture.router.stats().displaced);
}

#[test]
fn large_interests_are_limited_by_bytes() {
    const BYTES_MAX: u64 = 1 << 20;
    let config = RouterConfig { pit_bytes_max: BYTES_MAX, ..RouterConfig::default() };
    let mut fixture = Fixture::with_config(config);
    fixture.route("/a", &[(U, 0)]);
    let large = |number: u32| {
        let mut name: Name = "/a".parse().unwrap();
        name.append_str(&alloc::format!("{number:08500}"));
        Ask { name, lifetime_ms: LIFETIME_MS, ..Ask::new("/a", number) }
    };
    let refused = (0..500)
        .filter(|&number| kind(&fixture.ask(V, &large(number))[0]) == PacketKind::Nack)
        .count();
    assert!((300..450).contains(&refused), "{refused}");
    assert!(fixture.router.stats().pit_bytes > BYTES_MAX * 9 / 10);
    for number in 500..550 {
        assert!(ask(&mut fixture, LOCAL, "/a", number));
        let ask = Ask { lifetime_ms: LIFETIME_MS, ..large(number) };
        assert_eq!(sent(&fixture.ask(LOCAL2, &ask)).last(), Some(&(U, PacketKind::Interest)));
        assert!(fixture.router.stats().pit_bytes <= BYTES_MAX);
    }
    let before = fixture.router.stats().pit_bytes;
    fixture.pass_ms(LIFETIME_MS + 1);
    let stats = fixture.router.stats();
    assert!(stats.pit_entries == 0 && stats.pit_bytes < before / 10, "places are kept: {stats:?}");
}

/// Many small Interests leave a sparse table behind, in which entries are hard to find.
#[test]
fn finds_largest_holder_in_sparse_table() {
    let config = RouterConfig { pit_bytes_max: 6 << 20, ..RouterConfig::default() };
    let mut fixture = Fixture::with_config(config);
    fixture.route("/a", &[(U, 0)]);
    fixture.route("/silent", &[(V, 0)]);
    let heavy = stranger(&mut fixture, 0, 0);
    for number in 0..15_000 {
        fixture.ask(heavy, &Ask::new(&alloc::format!("/silent/{number}"), number));
    }
    fixture.pass_ms(5000);
    assert_eq!(fixture.router.stats().pit_entries, 0);
    for number in 0..80 {
        for face in 1..400 {
            let joining = stranger(&mut fixture, face, 0);
            fixture.ask(joining, &Ask::new(&alloc::format!("/silent/s{number}"), face as u32));
        }
    }
    let light = stranger(&mut fixture, 5000, 5000);
    for number in 0..200 {
        assert!(ask(&mut fixture, LOCAL, "/a", number), "{number}");
        assert!(ask(&mut fixture, light, "/a", number), "{number}");
    }
    assert!(fixture.router.stats().displaced > 0);
}

/// Very many downstreams of an evicted entry do not each get a copy of its Interest.
#[test]
fn evicted_entry_sends_limited_nacks() {
    let mut fixture = fixture(1);
    for number in 0..200 {
        let face = stranger(&mut fixture, number, 0);
        fixture.ask(face, &Ask::new("/silent/all", number as u32));
    }
    let out = fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    let nacks = out.iter().filter(|out| kind(out) == PacketKind::Nack).count();
    assert_eq!((nacks, out.len()), (32, 33));
}

/// A retransmission may have a longer forwarding hint.
#[test]
fn pending_interest_cannot_outgrow_limit() {
    const BYTES_MAX: u64 = 100_000;
    let config = RouterConfig { pit_bytes_max: BYTES_MAX, ..RouterConfig::default() };
    let mut fixture = Fixture::with_config(config);
    fixture.route("/a", &[(U, 0)]);
    let mut hint: Name = "/hint".parse().unwrap();
    hint.append_str(&"x".repeat(8000));
    for turn in 0..2 {
        for number in 0..150 {
            let plain = Ask::new(&alloc::format!("/a/{number}"), 1000 * turn + number);
            let hint = (turn == 1).then(|| hint.clone());
            fixture.ask(V, &Ask { hint, ..plain });
        }
    }
    let stats = fixture.router.stats();
    assert!(stats.pit_entries == 150 && stats.pit_bytes <= BYTES_MAX, "{stats:?}");
    assert!(stats.pit_bytes > BYTES_MAX - 10_000, "{}", stats.pit_bytes);
}

/// Each face that joins a pending Interest uses memory too.
#[test]
fn joining_downstreams_count_as_bytes() {
    let config = RouterConfig { pit_bytes_max: 8192, ..RouterConfig::default() };
    let mut fixture = Fixture::with_config(config);
    fixture.route("/a", &[(U, 0)]);
    for number in 0..1000 {
        let face = stranger(&mut fixture, number, number);
        fixture.ask(face, &Ask::new("/a/b", number as u32));
    }
    assert!(fixture.router.stats().pit_bytes <= 8192);
    assert!(fixture.router.stats().aggregated < 8192 / 64);
}

#[test]
fn entries_of_closed_faces_end() {
    let mut fixture = fixture(10_000);
    let face = stranger(&mut fixture, 0, 0);
    assert!((0..5000).all(|number| ask(&mut fixture, face, "/silent", number)));
    assert!(ask(&mut fixture, LOCAL, "/silent", 1));
    fixture.command(Command::RemoveFace { face });
    for _ in 0..5 {
        let wakeup = fixture.router.next_wakeup().expect("the sweep continues");
        fixture.now = fixture.now.max(wakeup);
        fixture.handle(&mut [Input::Wakeup]);
    }
    assert_eq!(fixture.router.stats().pit_entries, 1);
}

#[test]
fn remote_lifetime_is_capped() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    for (face, name) in [(V, "/a/1"), (LOCAL, "/a/2")] {
        fixture.ask(face, &Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(name, 1) });
    }
    fixture.pass_ms(60_001);
    assert_eq!(fixture.router.stats().pit_entries, 1);
}
