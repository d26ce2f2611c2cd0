//! Measures the cost of a packet in the egress of a face, from `Link::enqueue` to
//! `Link::take_frame`. The arguments are a marking policy, a queue discipline, the bytes in the
//! socket, the number of packets, and their kind: Data of 1,000 bytes, or Interests.
//!     cargo run --release -p weir-link --example egress_speed -- codel fifo 1000000 200000 data
//! `--json` prints one JSON object. To count instructions, run it under callgrind with two numbers
//! of packets and divide the difference.

use std::time::Instant as Clock;

use weir_base::{Instant, Packet};
use weir_link::{Link, LinkConfig};
use weir_wire::{Data, Interest, LpHeader, Name};

const ROUNDS: usize = 9;

fn main() {
    let (flags, given): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let text = |at: usize, default: &str| given.get(at).map_or(default, String::as_str).to_owned();
    let mut config = LinkConfig::stream();
    config.egress.marking.policy = text(0, "nfd").parse().expect("a marking policy");
    config.egress.discipline = text(1, "fifo").parse().expect("a queue discipline");
    let backlog_bytes = text(2, "0").parse().expect("bytes in the socket");
    let packets: u64 = text(3, "200000").parse().expect("a number of packets");
    let mut link = Link::new(config);
    link.set_socket_backlog(backlog_bytes);
    let name: Name = "/a/b/c/54=1/50=7".parse().expect("a name");
    let packet = match text(4, "data").as_str() {
        "interest" => Interest::new(name).encode(),
        _ => Data::new(name).content([7; 1000]).encode_with_digest(),
    };
    let packet = Packet::from(packet);
    let mut now = Instant::ZERO;
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Clock::now();
        for _ in 0..packets {
            now = now.plus_ns(100_000);
            link.enqueue(now, LpHeader::default(), packet.clone()).expect("there is room");
            while let Some(frame) = link.take_frame() {
                std::hint::black_box(frame);
            }
        }
        *round = start.elapsed().as_secs_f64() * 1e9 / packets as f64;
    }
    rounds.sort_unstable_by(f64::total_cmp);
    let marked = link.counters().marks_set as f64 / (ROUNDS as f64 * packets as f64);
    let ns = rounds[ROUNDS / 2];
    match flags.iter().any(|flag| flag == "--json") {
        true => println!("{{\"ns\":{ns:.1},\"marked\":{marked:.4}}}"),
        false => println!("{ns:.1} ns a packet (median of {ROUNDS}), {marked:.4} marked"),
    }
}
