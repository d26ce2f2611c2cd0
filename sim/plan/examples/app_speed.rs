//! What a packet costs in consumers and producers, in nanoseconds, without a network between them:
//! `cargo run --release -p weir-plan --example app_speed`.

use std::time::Instant as Clock;

use weir_base::Instant;
use weir_plan::app::{AppInput, AppOutbox, Consumer, Producer};
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_transport::Controllers;

const BATCH: usize = 32;
const ROUNDS: usize = 20_000;

fn names(components: u32, segment_bytes: u32, popularity: Popularity) -> Names {
    Names {
        prefix: "/lab/p0".into(),
        components,
        popularity,
        sizes: Sizes::Fixed { bytes: u64::from(segment_bytes) * 100 },
        segment_bytes,
    }
}

/// Medians of ns for an Interest produced, a Data answered, a Data consumed.
fn measure(names: &Names, demand: Demand) -> [f64; 3] {
    let plan = ConsumerPlan::new(names.clone(), demand);
    let mut consumer =
        Consumer::new(&plan, Controllers::BUILT_IN, u64::MAX, 1).expect("the plan is good");
    let plan = ProducerPlan { names: names.clone(), freshness_ms: 3_600_000, delay_ns: 0 };
    let mut producer = Producer::new(&plan, 1).expect("the plan is good");
    let (mut asked, mut answered) = (AppOutbox::default(), AppOutbox::default());
    let mut inputs = Vec::new();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut now_ns = 0;
    let per = |clock: Clock, packets: usize| clock.elapsed().as_nanos() as f64 / packets as f64;
    consumer.handle(Instant::ZERO, &mut inputs, &mut asked);
    for _ in 0..ROUNDS {
        now_ns += 1_000 * BATCH as u64;
        // Open loop: Interests leave here; closed loop: with the Data that makes room for them.
        let clock = Clock::now();
        consumer.handle(Instant::from_ns(now_ns), &mut inputs, &mut asked);
        if asked.packets.is_empty() {
            break;
        }
        times[0].push(per(clock, asked.packets.len()));
        let input = |(path, header, packet)| AppInput { path, header, packet };
        inputs.extend(asked.packets.drain(..).map(input));
        let count = inputs.len();
        let clock = Clock::now();
        producer.handle(Instant::from_ns(now_ns), &mut inputs, &mut answered);
        times[1].push(per(clock, count));
        inputs.extend(answered.packets.drain(..).map(input));
        let clock = Clock::now();
        consumer.handle(Instant::from_ns(now_ns), &mut inputs, &mut asked);
        times[2].push(per(clock, count));
        asked.events.clear();
    }
    assert!(asked.violation.is_none(), "octets were wrong");
    times.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    })
}

fn main() {
    let uniform = || Popularity::Uniform { objects: 100_000 };
    let constant = || Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz: 1e6 } };
    println!("open loop, uniform: ns for an Interest | answering it | taking its Data");
    for components in [4, 16] {
        for segment_bytes in [1, 128, 1024, 8000] {
            let names = names(components, segment_bytes, uniform());
            let [interest, answer, data] = measure(&names, constant());
            println!(
                "{components:3} components {segment_bytes:5} B: \
                 {interest:6.0} | {answer:6.0} | {data:6.0}"
            );
        }
    }
    println!(
        "closed loop of {BATCH}: ns for answering an Interest | taking its Data and asking on"
    );
    let demands = [
        ("window", Demand::Window { window: BATCH as u32, count: None }),
        (
            "objects",
            Demand::Objects {
                arrivals: None,
                count: None,
                controller: "fixed".into(),
                window: Some(BATCH as u32),
            },
        ),
    ];
    for (text, demand) in demands {
        let names = names(4, 1024, Popularity::Sequential { objects: 100_000 });
        let [_, answer, data] = measure(&names, demand);
        println!("{text:>8} 1024 B: {answer:6.0} | {data:6.0}");
    }
}
