//! A PIT that is full, mostly for those who fill it.

use super::*;

/// Faces of strangers begin here.
const STRANGERS: u64 = 1000;
const LIFETIME_MS: u64 = 600_000;

/// A router for `entries` pending Interests, with producers that do not answer behind `U` (`/a`)
/// and `V` (`/silent`).
fn bed(entries: usize) -> Bed {
    let mut bed =
        Bed::with_config(RouterConfig { pit_entries_max: entries, ..RouterConfig::default() });
    bed.route("/a", &[(U, 0)]);
    bed.route("/silent", &[(V, 0)]);
    bed
}

fn stranger(bed: &mut Bed, number: u64, host: u64) -> FaceId {
    let face = FaceId(STRANGERS + number);
    let host = Some(host);
    let attributes = FaceAttributes { host, ..FaceAttributes::point_to_point(FaceScope::NonLocal) };
    bed.command(Command::AddFace { face, attributes });
    face
}

/// Asks for something new below `prefix` for ten minutes. Returns whether it went upstream.
fn ask(bed: &mut Bed, face: FaceId, prefix: &str, number: u32) -> bool {
    let name = alloc::format!("{prefix}/{}/{number}", face.0);
    let ask = Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(&name, number) };
    bed.ask(face, &ask).iter().any(|out| kind(out) == PacketKind::Interest)
}

#[test]
fn a_face_that_fills_the_pit_gives_way_to_all_others() {
    let mut bed = bed(500);
    let heavy = stranger(&mut bed, 0, 0);
    for number in 0..1000 {
        assert_eq!(ask(&mut bed, heavy, "/silent", number), number < 500);
    }
    let light = stranger(&mut bed, 1, 1);
    for number in 0..100 {
        assert!(ask(&mut bed, light, "/silent", number), "the same prefix, another host");
        assert!(ask(&mut bed, LOCAL, "/a", number));
        bed.pass_ms(1);
    }
    assert!(bed.router.stats().displaced >= 200 - 8);
    assert!(bed.router.stats().pit_entries <= 500);
}

#[test]
fn a_host_has_one_share_however_many_faces_it_has() {
    let mut bed = bed(500);
    for number in 0..500 {
        let face = stranger(&mut bed, number, 7);
        assert!(ask(&mut bed, face, "/silent", 0));
    }
    let light = stranger(&mut bed, 500, 8);
    assert!((0..50).all(|number| ask(&mut bed, light, "/silent", number)));
    let same = stranger(&mut bed, 501, 7);
    let refused = (0..50).filter(|&number| !ask(&mut bed, same, "/silent", number)).count();
    assert!(refused >= 50 - 8, "{refused}");
}

/// Very many hosts that each ask for little, all below one prefix.
#[test]
fn other_prefixes_have_room_when_one_is_flooded_by_many_hosts() {
    let mut bed = bed(500);
    for host in 0..500 {
        let face = stranger(&mut bed, host, host);
        assert!(ask(&mut bed, face, "/silent", 0));
    }
    let another = stranger(&mut bed, 500, 500);
    assert!((0..50).all(|number| ask(&mut bed, another, "/a", number)));
    // Below that prefix newcomers and those who wait there have the same chance.
    assert!((0..50).any(|number| ask(&mut bed, another, "/silent", number)));
    for number in 0..50 {
        let name = alloc::format!("/a/{}/{number}", another.0);
        assert_eq!(bed.answer(U, data(&name, 0)).len(), 1, "nothing else gave way");
    }
}

#[test]
fn programs_of_this_host_never_give_way_to_other_hosts() {
    let mut bed = bed(100);
    assert!((0..100).all(|number| ask(&mut bed, LOCAL, "/a", number)));
    let stranger = stranger(&mut bed, 0, 0);
    assert!((0..100).all(|number| !ask(&mut bed, stranger, "/silent", number)));
    assert!(ask(&mut bed, LOCAL2, "/a", 1), "to one another they do");
    assert!(bed.router.stats().pit_entries <= 100);
}

#[test]
fn those_who_have_as_much_do_not_displace_each_other() {
    let mut bed = bed(400);
    let both = [0, 1].map(|number| stranger(&mut bed, number, number));
    for number in 0..200 {
        assert!(both.iter().all(|&face| ask(&mut bed, face, "/a", number)));
    }
    for number in 200..400 {
        for face in both {
            ask(&mut bed, face, "/a", number);
        }
    }
    assert!(bed.router.stats().displaced < 100, "{}", bed.router.stats().displaced);
}

#[test]
fn large_interests_are_bounded_by_their_octets() {
    const BYTES_MAX: u64 = 1 << 20;
    let config = RouterConfig { pit_bytes_max: BYTES_MAX, ..RouterConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.route("/a", &[(U, 0)]);
    let large = |number: u32| {
        let mut name: Name = "/a".parse().unwrap();
        name.append_str(&alloc::format!("{number:08500}"));
        Ask { name, lifetime_ms: LIFETIME_MS, ..Ask::new("/a", number) }
    };
    let refused =
        (0..500).filter(|&number| kind(&bed.ask(V, &large(number))[0]) == PacketKind::Nack).count();
    assert!((300..450).contains(&refused), "{refused}");
    assert!(bed.router.stats().pit_bytes > BYTES_MAX * 9 / 10);
    for number in 500..550 {
        assert!(ask(&mut bed, LOCAL, "/a", number));
        let ask = Ask { lifetime_ms: LIFETIME_MS, ..large(number) };
        assert_eq!(sent(&bed.ask(LOCAL2, &ask)).last(), Some(&(U, PacketKind::Interest)));
        assert!(bed.router.stats().pit_bytes <= BYTES_MAX);
    }
    let before = bed.router.stats().pit_bytes;
    bed.pass_ms(LIFETIME_MS + 1);
    let stats = bed.router.stats();
    assert!(stats.pit_entries == 0 && stats.pit_bytes < before / 10, "places are kept: {stats:?}");
}

/// Many small Interests leave a sparse table behind, in which later ones are hard to find.
#[test]
fn the_heaviest_is_found_in_a_sparse_table() {
    let config = RouterConfig { pit_bytes_max: 6 << 20, ..RouterConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.route("/a", &[(U, 0)]);
    bed.route("/silent", &[(V, 0)]);
    let heavy = stranger(&mut bed, 0, 0);
    for number in 0..15_000 {
        bed.ask(heavy, &Ask::new(&alloc::format!("/silent/{number}"), number));
    }
    bed.pass_ms(5000);
    assert_eq!(bed.router.stats().pit_entries, 0);
    for number in 0..80 {
        for face in 1..400 {
            let joining = stranger(&mut bed, face, 0);
            bed.ask(joining, &Ask::new(&alloc::format!("/silent/s{number}"), face as u32));
        }
    }
    let light = stranger(&mut bed, 5000, 5000);
    for number in 0..200 {
        assert!(ask(&mut bed, LOCAL, "/a", number), "{number}");
        assert!(ask(&mut bed, light, "/a", number), "{number}");
    }
    assert!(bed.router.stats().displaced > 0);
}

/// Very many downstreams of an entry that gives way do not get a copy of its Interest each.
#[test]
fn what_gives_way_is_told_to_some_only() {
    let mut bed = bed(1);
    for number in 0..200 {
        let face = stranger(&mut bed, number, 0);
        bed.ask(face, &Ask::new("/silent/all", number as u32));
    }
    let out = bed.ask(LOCAL, &Ask::new("/a/1", 1));
    let nacks = out.iter().filter(|out| kind(out) == PacketKind::Nack).count();
    assert_eq!((nacks, out.len()), (32, 33));
}

/// A retransmission may bring a longer forwarding hint.
#[test]
fn interests_do_not_grow_beyond_the_bound_once_they_are_pending() {
    const BYTES_MAX: u64 = 100_000;
    let config = RouterConfig { pit_bytes_max: BYTES_MAX, ..RouterConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.route("/a", &[(U, 0)]);
    let mut hint: Name = "/hint".parse().unwrap();
    hint.append_str(&"x".repeat(8000));
    for turn in 0..2 {
        for number in 0..150 {
            let plain = Ask::new(&alloc::format!("/a/{number}"), 1000 * turn + number);
            let hint = (turn == 1).then(|| hint.clone());
            bed.ask(V, &Ask { hint, ..plain });
        }
    }
    let stats = bed.router.stats();
    assert!(stats.pit_entries == 150 && stats.pit_bytes <= BYTES_MAX, "{stats:?}");
    assert!(stats.pit_bytes > BYTES_MAX - 10_000, "{}", stats.pit_bytes);
}

/// Each face that joins a pending Interest takes memory, too.
#[test]
fn downstreams_that_join_count_in_octets() {
    let config = RouterConfig { pit_bytes_max: 8192, ..RouterConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.route("/a", &[(U, 0)]);
    for number in 0..1000 {
        let face = stranger(&mut bed, number, number);
        bed.ask(face, &Ask::new("/a/b", number as u32));
    }
    assert!(bed.router.stats().pit_bytes <= 8192);
    assert!(bed.router.stats().aggregated < 8192 / 64);
}

#[test]
fn what_closed_faces_have_asked_for_ends() {
    let mut bed = bed(10_000);
    let face = stranger(&mut bed, 0, 0);
    assert!((0..5000).all(|number| ask(&mut bed, face, "/silent", number)));
    assert!(ask(&mut bed, LOCAL, "/silent", 1));
    bed.command(Command::RemoveFace { face });
    for _ in 0..5 {
        let wakeup = bed.router.next_wakeup().expect("the search goes on");
        bed.now = bed.now.max(wakeup);
        bed.handle(&mut [Input::Wakeup]);
    }
    assert_eq!(bed.router.stats().pit_entries, 1);
}

#[test]
fn interests_of_other_hosts_wait_no_longer_than_they_may() {
    let mut bed = Bed::new();
    bed.route("/a", &[(U, 0)]);
    for (face, name) in [(V, "/a/1"), (LOCAL, "/a/2")] {
        bed.ask(face, &Ask { lifetime_ms: LIFETIME_MS, ..Ask::new(name, 1) });
    }
    bed.pass_ms(60_001);
    assert_eq!(bed.router.stats().pit_entries, 1);
}
