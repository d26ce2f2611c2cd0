//! A PIT that is full, mostly for those who fill it.

use super::*;

/// Faces of strangers begin here.
const STRANGERS: u64 = 1000;
const LIFETIME_MS: u64 = 600_000;

/// A router for `entries` pending Interests, with producers that do not answer behind `U` (`/a`)
/// and `V` (`/silent`).
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

/// Asks for something new below `prefix` for ten minutes. Returns whether it went upstream.
fn ask(fixture: &mut Fixture, face: FaceId, prefix: &str, number: u32) -> bool {
    let name = alloc::format!("{prefix}/{}/{number}", face.0);
    let ask = Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(&name, number) };
    fixture.ask(face, &ask).iter().any(|out| kind(out) == PacketKind::Interest)
}

#[test]
fn a_face_that_fills_the_pit_gives_way_to_all_others() {
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
fn a_host_has_one_share_however_many_faces_it_has() {
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

/// Very many hosts that each ask for little, all below one prefix.
#[test]
fn other_prefixes_have_room_when_one_is_flooded_by_many_hosts() {
    let mut fixture = fixture(500);
    for host in 0..500 {
        let face = stranger(&mut fixture, host, host);
        assert!(ask(&mut fixture, face, "/silent", 0));
    }
    let another = stranger(&mut fixture, 500, 500);
    assert!((0..50).all(|number| ask(&mut fixture, another, "/a", number)));
    // Below that prefix newcomers and those who wait there have the same chance.
    assert!((0..50).any(|number| ask(&mut fixture, another, "/silent", number)));
    for number in 0..50 {
        let name = alloc::format!("/a/{}/{number}", another.0);
        assert_eq!(fixture.answer(U, data(&name, 0)).len(), 1, "nothing else gave way");
    }
}

#[test]
fn programs_of_this_host_never_give_way_to_other_hosts() {
    let mut fixture = fixture(100);
    assert!((0..100).all(|number| ask(&mut fixture, LOCAL, "/a", number)));
    let stranger = stranger(&mut fixture, 0, 0);
    assert!((0..100).all(|number| !ask(&mut fixture, stranger, "/silent", number)));
    assert!(ask(&mut fixture, LOCAL2, "/a", 1), "to one another they do");
    assert!(fixture.router.stats().pit_entries <= 100);
}

#[test]
fn those_who_have_as_much_do_not_displace_each_other() {
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
fn large_interests_are_bounded_by_their_octets() {
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

/// Many small Interests leave a sparse table behind, in which later ones are hard to find.
#[test]
fn the_heaviest_is_found_in_a_sparse_table() {
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

/// Very many downstreams of an entry that gives way do not get a copy of its Interest each.
#[test]
fn what_gives_way_is_told_to_some_only() {
    let mut fixture = fixture(1);
    for number in 0..200 {
        let face = stranger(&mut fixture, number, 0);
        fixture.ask(face, &Ask::new("/silent/all", number as u32));
    }
    let out = fixture.ask(LOCAL, &Ask::new("/a/1", 1));
    let nacks = out.iter().filter(|out| kind(out) == PacketKind::Nack).count();
    assert_eq!((nacks, out.len()), (32, 33));
}

/// A retransmission may bring a longer forwarding hint.
#[test]
fn interests_do_not_grow_beyond_the_bound_once_they_are_pending() {
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

/// Each face that joins a pending Interest takes memory, too.
#[test]
fn downstreams_that_join_count_in_octets() {
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
fn what_closed_faces_have_asked_for_ends() {
    let mut fixture = fixture(10_000);
    let face = stranger(&mut fixture, 0, 0);
    assert!((0..5000).all(|number| ask(&mut fixture, face, "/silent", number)));
    assert!(ask(&mut fixture, LOCAL, "/silent", 1));
    fixture.command(Command::RemoveFace { face });
    for _ in 0..5 {
        let wakeup = fixture.router.next_wakeup().expect("the search goes on");
        fixture.now = fixture.now.max(wakeup);
        fixture.handle(&mut [Input::Wakeup]);
    }
    assert_eq!(fixture.router.stats().pit_entries, 1);
}

#[test]
fn interests_of_other_hosts_wait_no_longer_than_they_may() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    for (face, name) in [(V, "/a/1"), (LOCAL, "/a/2")] {
        fixture.ask(face, &Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(name, 1) });
    }
    fixture.pass_ms(60_001);
    assert_eq!(fixture.router.stats().pit_entries, 1);
}
