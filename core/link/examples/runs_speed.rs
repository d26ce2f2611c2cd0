//! What an Interest costs in two links, from `Link::enqueue` at one end to the packet that comes
//! out of the other, in bursts of so many that are sent singly or as a run.
//!
//!     cargo run --release -p weir-link --example runs_speed -- runs 32 20000
//!
//! The first argument is `runs` or `single`. For instructions, run it under callgrind with two
//! counts of bursts and divide the difference.

use std::time::Instant as Clock;

use weir_base::{Instant, Packet, Pool};
use weir_link::{Link, LinkConfig, Received, RunsConfig};
use weir_wire::{Interest, LpHeader, Name};

const ROUNDS: usize = 9;

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        given.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (burst, bursts) = (number(1, 32), number(2, 20_000));
    let mut config = LinkConfig::stream();
    if given.first().is_none_or(|what| what == "runs") {
        config.codec.runs = RunsConfig::Begins;
    }
    let (mut near, mut far) = (Link::new(config.clone()), Link::new(config));
    let mut pool = Pool::new(1 << 20);
    let interests: Vec<Packet> = (0..burst as u64)
        .map(|segment| {
            let mut name: Name = "/a/b/c/54=1".parse().expect("a name");
            name.append_segment(segment);
            Packet::from(Interest::new(name).nonce(segment as u32).encode())
        })
        .collect();
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Clock::now();
        for _ in 0..bursts {
            exchange(&mut near, &mut far, &interests, &mut pool);
        }
        *round = start.elapsed().as_secs_f64() * 1e9 / (burst * bursts) as f64;
    }
    rounds.sort_unstable_by(f64::total_cmp);
    let counters = near.counters();
    let frames = counters.out_frames as f64 / counters.out_interests as f64;
    println!("{:.1} ns an Interest (median of {ROUNDS}), {frames:.3} frames", rounds[ROUNDS / 2]);
}

/// One burst, from queue to packets; and what the far end has to answer.
fn exchange(near: &mut Link, far: &mut Link, interests: &[Packet], pool: &mut Pool) {
    let now = Instant::ZERO;
    for interest in interests {
        near.enqueue(now, LpHeader::default(), interest.clone()).expect("there is room");
    }
    near.gather_runs(0);
    let mut arrived = 0;
    while let Some(frame) = near.take_frame() {
        // As a socket reads it.
        let (prefix, len) = (frame.prefix(), frame.len());
        let mut block = pool.alloc(len);
        block[..prefix.len()].copy_from_slice(prefix);
        block[prefix.len()..len].copy_from_slice(frame.payload());
        match far.receive(now, block.freeze(len), pool) {
            Received::Packet { .. } => arrived += 1,
            Received::Run => {
                while std::hint::black_box(far.next_in_run(now, pool)).is_some() {
                    arrived += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(arrived, interests.len());
    while let Some(answer) = far.take_frame() {
        near.receive(now, answer.payload().clone(), pool);
    }
}
