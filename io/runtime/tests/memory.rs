//! Memory of the router: the store, and at most 64 MiB with 1,000 faces and 100,000 PIT entries. A
//! separate file, so that it is a separate process.

use std::os::unix::net::UnixStream;
use weir_io_fixture::router::{Peer, TestRouter, name};

use weir_wire::Interest;

const FACES: usize = 1000;
const PIT_ENTRIES: usize = 100_000;
const BYTES_MAX: u64 = 64 << 20;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn many_faces_and_interests_fit() {
    let before = resident_bytes();
    let router = TestRouter::start_with(|config| {
        config.store.capacity_bytes = 0;
        config.pit_entries_max = 2 * PIT_ENTRIES;
        config.pit_entries_per_face_max = 2 * PIT_ENTRIES;
        // The silent producer's queue holds its Interests and does not count as tables.
        config.face_defaults.queue_bytes_max = 1 << 20;
    });
    let mut producer = router.unix();
    producer.register("/m");
    let mut peers: Vec<Peer<UnixStream>> = (0..FACES - 1).map(|_| router.unix()).collect();
    for number in 0..PIT_ENTRIES {
        let count = peers.len();
        let uri = format!("/m/a/typical/name/of/eight/components/{number}");
        let interest = Interest::new(name(&uri)).nonce(number as u32).lifetime_ms(60_000);
        peers[number % count].send(&interest.encode());
    }
    router.wait_until("all are pending", |snapshot| {
        snapshot.router.in_interests as usize > PIT_ENTRIES
    });
    let snapshot = router.snapshot();
    assert_eq!(snapshot.faces.len(), FACES);
    assert!(
        snapshot.router.pit_entries > PIT_ENTRIES as u64 * 9 / 10,
        "{}",
        snapshot.router.pit_entries
    );
    let taken = resident_bytes() - before;
    println!("{} MiB", taken >> 20);
    assert!(taken < BYTES_MAX, "{} MiB", taken >> 20);
}
