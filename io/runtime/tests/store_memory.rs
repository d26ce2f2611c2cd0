//! The store's actual memory use equals its configured size, for Data of all sizes. A separate
//! file, so that it is a separate process.

use weir_io_fixture::router::{TestRouter, data, interest};
use weir_runtime::UnsolicitedPolicy;

const STORE_BYTES: u64 = 64 << 20;
/// Buffers of sockets and of the router's pool, tables that grow by doubling, stacks, and one
/// partly filled span of each size class.
const OTHER_BYTES: u64 = 26 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Another tenth is requested repeatedly, so that it stays in the store.
#[test]
fn store_uses_configured_size() {
    let before = resident_bytes();
    let router = TestRouter::start_with(|config| {
        config.store.capacity_bytes = STORE_BYTES;
        config.unsolicited = UnsolicitedPolicy::AdmitLocal;
    });
    let mut producer = router.unix();
    let mut sent = 0;
    // Twice the store's size of each Data size, and finally mixed sizes.
    let sizes: [&dyn Fn(u64) -> usize; 5] =
        [&|_| 8_000, &|_| 6_900, &|_| 700, &|_| 3_000, &|number| {
            100 + (number * 7_919 % 8_000) as usize
        }];
    for (round, size) in sizes.iter().enumerate() {
        let mut bytes = 0;
        while bytes < 2 * STORE_BYTES {
            let content = vec![round as u8; size(sent)];
            let uri = format!("/memory/{round}/{sent}");
            producer.send(&data(&uri, &content));
            bytes += content.len() as u64;
            sent += 1;
            if sent % 10 == 0 {
                for _ in 0..2 {
                    producer.send(&interest(&uri));
                    producer.receive().data();
                }
            }
        }
        router.wait_until("all have come", |snapshot| snapshot.router.in_data >= sent);
        let snapshot = router.snapshot();
        let (stored, taken) = (snapshot.router.store.bytes, resident_bytes() - before);
        println!("round {round}: {} of {} MiB", taken >> 20, stored >> 20);
        assert!(stored > STORE_BYTES * 9 / 10, "{stored}");
        assert!(taken > STORE_BYTES * 3 / 4, "round {round}: {} MiB", taken >> 20);
        let most = STORE_BYTES + STORE_BYTES / 20 + OTHER_BYTES;
        assert!(taken < most, "round {round}: {} MiB", taken >> 20);
    }
}
