//! Measures the cost of an exchange in the link of a face to a consumer: from `Link::receive` of an
//! Interest to `Link::take_frame` of its Data of 1,000 bytes. The arguments are a shaping, the
//! bytes in the socket, and the number of exchanges. If the socket holds more than the shaping
//! allows, each Interest is delayed, and is released when the socket has sent its bytes.
//!     cargo run --release -p weir-link --example ingress_speed -- "fisp capacity=1500KB" 0 100000
//! `--json` prints one JSON object. To count instructions, run it under callgrind with two numbers
//! of exchanges and divide the difference.

use std::time::Instant as Clock;

use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_link::{Link, LinkConfig, Received};
use weir_wire::{Data, Interest, LpHeader, Name};

const ROUNDS: u64 = 9;
/// Exchanges in flight at once, and the number of names, which repeat.
const BATCH: usize = 64;

fn main() {
    let (flags, given): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let text = |at: usize, default: &str| given.get(at).map_or(default, String::as_str).to_owned();
    let shaping = text(0, "none").parse().expect("a shaping of Interests");
    let backlog_bytes = text(1, "0").parse().expect("bytes in the socket");
    let exchanges: u64 = text(2, "100000").parse().expect("a number of exchanges");
    let mut link = Link::new(LinkConfig { shaping, ..LinkConfig::stream() });
    let mut pool = Pool::new(1 << 20);
    let names = (0..BATCH)
        .map(|number| -> Name { format!("/a/b/c/54=1/50={number}").parse().expect("a name") });
    let packets = names.map(|name| {
        let data = Data::new(name.clone()).content([7; 1000]).encode_with_digest();
        (Packet::from(Interest::new(name).nonce(7).encode()), Packet::from(data))
    });
    let packets: Vec<(Packet, Packet)> = packets.collect();
    let mut now = Instant::ZERO;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Clock::now();
        for _ in 0..exchanges / BATCH as u64 {
            now = now.plus_ns(20 * NS_PER_MS);
            link.set_socket_backlog(backlog_bytes);
            let mut passed = 0;
            for (interest, _) in &packets {
                let received = link.receive(now, interest.clone(), &mut pool);
                passed += u64::from(matches!(received, Received::Packet { .. }));
            }
            if link.has_delayed_interests() {
                link.set_socket_backlog(0);
                now = now.plus_ns(20 * NS_PER_MS);
                link.poll(now);
                while link.take_released(now).is_some() {
                    passed += 1;
                }
            }
            assert_eq!(passed, BATCH as u64, "all pass");
            for (_, data) in &packets {
                link.enqueue(now, LpHeader::default(), data.clone()).expect("there is room");
            }
            while let Some(frame) = link.take_frame() {
                std::hint::black_box(frame);
            }
        }
        rounds.push(start.elapsed().as_secs_f64() * 1e9 / exchanges as f64);
    }
    rounds.sort_unstable_by(f64::total_cmp);
    let held = link.counters().interests_held as f64 / (ROUNDS * exchanges) as f64;
    let ns = rounds[rounds.len() / 2];
    match flags.iter().any(|flag| flag == "--json") {
        true => println!("{{\"ns\":{ns:.1},\"held\":{held:.2}}}"),
        false => println!("{ns:.1} ns an exchange (median of {ROUNDS}), {held:.2} held"),
    }
}
