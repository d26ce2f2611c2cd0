//! Hit ratios of the eviction policies and of the best possible one, for synthetic demands and for
//! a trace. Run it with `cargo run --release -p weir-store --example hit_ratios -- [TRACE.csv]`,
//! where the trace has lines `site,segment`.

#[path = "../tests/demand/mod.rs"]
mod demand;

use demand::{CONTENT, Cache, Request, Zipf, belady_hits, bytes_for, mix, scan};
use std::collections::HashMap;
use weir_base::Rng;
use weir_store::EvictionPolicy;

fn main() {
    println!("{:44} {:>8} {:>8} {:>8} {:>8}", "demand", "lru", "s3-fifo", "parts", "belady");
    for ratio in [110, 117, 150, 200, 300, 400] {
        let requests = scan(0, 40 * ratio, 2);
        show(&format!("scan of {ratio} % twice, second"), &requests, 4_000, requests.len() / 2);
    }
    for s in [0.7, 0.8, 0.9, 1.0, 1.1, 1.2] {
        for (label, of) in SHAPES {
            let requests = zipf(s, 300_000, of);
            show(&format!("Zipf {s}, {label}"), &requests, 4_000, 0);
        }
        let cold = scan(1 << 20, 4_700, 40);
        let requests = mix(&zipf(s, 300_000, one_each), 2, &cold, 1);
        show(&format!("Zipf {s} with a scan of 117 %"), &requests, 4_000, 0);
        let once: Vec<_> = (0..40).flat_map(|file| scan(1 << 20 | file, 4_700, 1)).collect();
        let requests = mix(&zipf(s, 300_000, one_each), 2, &once, 1);
        show(&format!("Zipf {s} with scans of files read once"), &requests, 4_000, 0);
    }
    if let Some(path) = std::env::args().nth(1) {
        let requests = trace(&path);
        for max in [250, 500, 1_000, 2_000, 4_000] {
            show(&format!("{path}, store of {max}"), &requests, max, 0);
        }
    }
}

type Shape = (&'static str, fn(u32) -> Request);

const SHAPES: [Shape; 3] =
    [("objects of one", one_each), ("one object", of_one), ("objects of 32", of_32)];

fn one_each(rank: u32) -> Request {
    (rank, 0)
}

fn of_one(rank: u32) -> Request {
    (0, rank)
}

fn of_32(rank: u32) -> Request {
    (rank / 32, rank % 32)
}

fn zipf(s: f64, count: u32, of: fn(u32) -> Request) -> Vec<Request> {
    let law = Zipf::new(40_000, s);
    let mut rng = Rng::from_seed(11);
    (0..count).map(|_| of(law.draw(&mut rng))).collect()
}

fn trace(path: &str) -> Vec<Request> {
    let text = std::fs::read_to_string(path).expect("the trace can be read");
    let mut sites = HashMap::new();
    let mut requests = Vec::new();
    for (site, segment) in text.lines().skip(1).filter_map(|line| line.split_once(',')) {
        let next = sites.len() as u32;
        let site = *sites.entry(site.to_owned()).or_insert(next);
        requests.push((site, segment.trim().parse().expect("a number")));
    }
    requests
}

fn show(label: &str, requests: &[Request], max: u32, from: usize) {
    let requested = requests[from..].len() as f64;
    let mut most = 0;
    let ratio = |policy| {
        let mut cache = Cache::new(policy, bytes_for(max), CONTENT);
        cache.hits(&requests[..from]);
        let ratio = cache.hits(&requests[from..]) as f64 / requested;
        most = most.max(cache.store.stats().entries as usize);
        ratio
    };
    let [lru, s3, parts] =
        [EvictionPolicy::Lru, EvictionPolicy::S3Fifo, EvictionPolicy::Parts].map(ratio);
    let best = belady_hits(requests, most, from) as f64 / requested;
    println!("{label:44} {lru:8.4} {s3:8.4} {parts:8.4} {best:8.4}");
}
