//! Compares the simulator with queueing theory. Stages configured as a model with a known solution
//! must agree with it within their confidence intervals.

use crate::common;

use common::{PlanBuilder, S, consumer, names, poisson, producer, run};
use weir_base::units::Time;
use weir_forward::{Bypass, Mark};
use weir_netem::{DiskConfig, LinkConfig, ServiceTime};
use weir_options::{DisksOptions, StoreOptions};
use weir_plan::event::Queue;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::Popularity;
use weir_plan::{DiskPlan, Plan, RouterPlan, StagePlan, StagesPlan, WhenFull};
use weir_queueing::nqueue::{ChainOptions, Model, chain as chain_of};
use weir_queueing::pipeline::{Pipeline, Probabilities};

/// Mean service time of 1 ms, so a rate of 1000 per second is a load of 1.
const SERVICE_NS: u64 = 1_000_000;
/// Replications. `T_999` is the two-sided 99.9 % point of Student's t with one degree of freedom
/// less.
const SEEDS: u64 = 8;
const T_999: f64 = 5.408;

/// Routers in a line with ideal links, a consumer at the first and the producer at the last.
fn line(seed: u64, routers: usize, load: f64, router: &RouterPlan) -> Plan {
    let mut builder = PlanBuilder::new(seed, 60 * S);
    builder.plan.sample_ns = 7_000_000;
    builder.local = LinkConfig::default();
    let numbers: Vec<_> = (0..routers).map(|_| builder.router(router.clone())).collect();
    for pair in numbers.windows(2) {
        builder.link(pair[0], pair[1], &LinkConfig::default());
    }
    // Two Interests must never have the same name at once: the PIT would aggregate them, or they
    // would share a read.
    let content = names("/p", Popularity::Sequential { objects: 5000 }, 100, 100);
    builder.consumer(numbers[0], consumer(content.clone(), poisson(load * 1000.0)));
    builder.producer(numbers[routers - 1], producer(content));
    builder.plan
}

/// A router whose store holds all content and takes time to serve it.
fn with_stage(capacity: u32, when_full: WhenFull) -> RouterPlan {
    let stage = StagePlan {
        service: ServiceTime::Exponential { mean_ns: SERVICE_NS },
        capacity,
        when_full,
    };
    RouterPlan {
        store_filled: 1.0,
        store: StoreOptions { admit: false, ..RouterPlan::default().store },
        stages: Some(StagesPlan { store: Some(stage), ..StagesPlan::default() }),
        ..RouterPlan::default()
    }
}

/// A router with all content on a disk that reads one record at a time. At most `reads` operations
/// wait or are in service.
fn with_disk(reads: u32, bypass: Bypass) -> RouterPlan {
    let disk = DiskPlan {
        bytes: 64 << 20,
        device: DiskConfig {
            read: ServiceTime::Exponential { mean_ns: SERVICE_NS },
            ..DiskConfig::default()
        },
        filled: 1.0,
        options: DisksOptions {
            bypass,
            mark: Mark::Off,
            threshold: reads,
            reads_max: reads,
            stalled_after: Time { ns: 60 * S },
            ..DiskPlan::recorded_options()
        },
        ..DiskPlan::default()
    };
    common::with_disk(disk)
}

/// The mean length of a queue in each router.
fn mean_lengths(plan: &Plan, routers: usize, of: Queue, events: &[Event]) -> Vec<f64> {
    let mut lengths = vec![(0u64, 0u64); routers];
    for event in events.iter().filter(|event| event.at_ns < plan.duration_ns) {
        match event.kind {
            EventKind::QueueLength { queue, packets } if queue == of => {
                let (sum, samples) = &mut lengths[event.node as usize];
                *sum += u64::from(packets);
                *samples += 1;
            }
            _ => {}
        }
    }
    lengths.into_iter().map(|(sum, samples)| sum as f64 / samples as f64).collect()
}

/// Blocking probability and mean length of each queue in one run.
fn measure(plan: &Plan, routers: usize) -> Vec<(f64, f64)> {
    let (_, events) = run(plan);
    let mut offered: u64 = 0;
    let mut full = vec![0u64; routers];
    for event in &events {
        match event.kind {
            EventKind::InterestSent { .. } => offered += 1,
            EventKind::StageFull { queue: Queue::Store, .. } => full[event.node as usize] += 1,
            _ => {}
        }
    }
    let mut results = Vec::new();
    for (full, length) in full.into_iter().zip(mean_lengths(plan, routers, Queue::Store, &events)) {
        results.push((full as f64 / offered as f64, length));
        offered = full;
    }
    results
}

/// Mean and half width of the 99.9 % confidence interval.
fn interval(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, T_999 * (variance / count).sqrt())
}

fn assert_agrees(what: &str, values: &[f64], expected: f64) {
    let (mean, half) = interval(values);
    assert!(
        (mean - expected).abs() <= half,
        "{what}: measured {mean:.5} +- {half:.5}, theory {expected:.5}"
    );
    // A very wide interval would prove nothing.
    assert!(half < 0.12 * expected.max(0.05), "{what}: the interval +- {half:.5} is too wide");
}

/// M/M/1/K: blocking probability and mean number in the system.
fn mm1k(load: f64, capacity: u32) -> (f64, f64) {
    let weights: Vec<f64> = (0..=capacity).map(|n| load.powi(n as i32)).collect();
    let total: f64 = weights.iter().sum();
    let mean = weights.iter().enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>();
    (weights[capacity as usize] / total, mean / total)
}

#[test]
fn store_stage_matches_mm1k() {
    for (load, capacity) in [(0.7, 4), (1.2, 6)] {
        let runs: Vec<_> = (0..SEEDS)
            .map(|seed| measure(&line(seed, 1, load, &with_stage(capacity, WhenFull::Drop)), 1)[0])
            .collect();
        let (blocking, length) = mm1k(load, capacity);
        let measured = |pick: fn(&(f64, f64)) -> f64| runs.iter().map(pick).collect::<Vec<_>>();
        assert_agrees(&format!("blocking at {load}"), &measured(|run| run.0), blocking);
        assert_agrees(&format!("length at {load}"), &measured(|run| run.1), length);
    }
}

/// Routers that bypass a full store form the N-queue bypass model of paper nb-cache, IV. Compares
/// them with the solution of its Markov chain.
#[test]
fn router_chain_matches_the_bypass_model() {
    for (routers, load) in [(2, 1.5), (3, 2.4)] {
        let capacity = 3;
        let model = Model::new(routers, capacity as usize, load).unwrap();
        let theory = chain_of(&model, &ChainOptions::default()).unwrap().solution;
        let runs: Vec<_> = (0..SEEDS)
            .map(|seed| {
                let plan = line(seed, routers, load, &with_stage(capacity, WhenFull::Bypass));
                measure(&plan, routers)
            })
            .collect();
        for (queue, expected) in theory.queues.iter().enumerate() {
            let what = format!("queue {queue} of {routers} at {load}");
            let blocking: Vec<_> = runs.iter().map(|run| run[queue].0).collect();
            let length: Vec<_> = runs.iter().map(|run| run[queue].1).collect();
            assert_agrees(&format!("blocking of {what}"), &blocking, expected.blocking);
            assert_agrees(&format!("length of {what}"), &length, expected.mean_packets);
        }
        let loss: Vec<_> =
            runs.iter().map(|run| run.iter().map(|queue| queue.0).product::<f64>()).collect();
        assert_agrees(&format!("loss of {routers} at {load}"), &loss, theory.loss);
    }
}

/// Disk measurements of one run.
struct Measured {
    /// For each router: the fraction of Interests that bypassed its disk, and the mean number of
    /// reads.
    disks: Vec<(f64, f64)>,
    /// Mean answer time, ns.
    answer_ns: f64,
}

fn measure_disks(plan: &Plan, routers: usize) -> Measured {
    let (_, events) = run(plan);
    let mut samples = vec![(0, 0); routers];
    let (mut answers, mut rtts_ns) = (0u64, 0u64);
    for event in &events {
        match event.kind {
            EventKind::DataReceived { rtt_ns, .. } => {
                answers += 1;
                rtts_ns += rtt_ns;
            }
            EventKind::RouterSample(ref sample) => {
                let not_taken = sample.busy.bypassed_queue_full + sample.busy.reads_refused;
                samples[event.node as usize] = (sample.in_interests, not_taken);
            }
            _ => {}
        }
    }
    let lengths = mean_lengths(plan, routers, Queue::DiskReads, &events);
    let each = samples.into_iter().zip(lengths);
    Measured {
        disks: each
            .map(|((asked, not_taken), length)| (not_taken as f64 / asked as f64, length))
            .collect(),
        answer_ns: rtts_ns as f64 / answers as f64,
    }
}

/// One read at a time, exponential, with a hard bound: the answer time is that of M/M/1/K. By
/// Little's law, this is its mean length over its accepted rate.
#[test]
fn bounded_disk_matches_mm1k() {
    for (load, reads) in [(0.7, 4), (1.2, 6)] {
        let runs: Vec<_> = (0..SEEDS)
            .map(|seed| {
                let plan = line(seed, 1, load, &with_disk(reads, Bypass::Off));
                measure_disks(&plan, 1)
            })
            .collect();
        let (blocking, length) = mm1k(load, reads);
        let answer_ns = length / (load * (1.0 - blocking)) * SERVICE_NS as f64;
        let of = |pick: fn(&Measured) -> f64| runs.iter().map(pick).collect::<Vec<_>>();
        assert_agrees(&format!("refused at {load}"), &of(|run| run.disks[0].0), blocking);
        assert_agrees(&format!("reads at {load}"), &of(|run| run.disks[0].1), length);
        assert_agrees(&format!("time of an answer at {load}"), &of(|run| run.answer_ns), answer_ns);
    }
}

/// The store's own bypass over its threshold, with disks, forms the N-queue bypass model of paper
/// nb-cache, IV.
#[test]
fn disk_thresholds_match_the_bypass_model() {
    let (routers, load, threshold) = (2, 1.5, 3);
    let model = Model::new(routers, threshold as usize, load).unwrap();
    let theory = chain_of(&model, &ChainOptions::default()).unwrap().solution;
    let runs: Vec<_> = (0..SEEDS)
        .map(|seed| {
            let plan = line(seed, routers, load, &with_disk(threshold, Bypass::Threshold));
            measure_disks(&plan, routers).disks
        })
        .collect();
    for (queue, expected) in theory.queues.iter().enumerate() {
        let blocking: Vec<_> = runs.iter().map(|run| run[queue].0).collect();
        let length: Vec<_> = runs.iter().map(|run| run[queue].1).collect();
        assert_agrees(&format!("bypass of disk {queue}"), &blocking, expected.blocking);
        assert_agrees(&format!("reads of disk {queue}"), &length, expected.mean_packets);
    }
    let loss: Vec<_> =
        runs.iter().map(|run| run.iter().map(|queue| queue.0).product::<f64>()).collect();
    assert_agrees("bypass of both disks", &loss, theory.loss);
}

/// The stages in the order of paper nb-cache, Fig. 1: mu_1 to mu_5.
const STAGES: [Queue; 5] =
    [Queue::Store, Queue::StoreWrite, Queue::Pit, Queue::PitData, Queue::Fib];

/// One router with all five stages; its store holds 40 % of the requested objects.
fn pipeline(seed: u64, service_rates: [f64; 5], arrival_rate: f64) -> Plan {
    let mut builder = PlanBuilder::new(seed, 60 * S);
    builder.plan.sample_ns = 7_000_000;
    builder.local = LinkConfig::default();
    let stage = |rate: f64| {
        let service = ServiceTime::Exponential { mean_ns: (1e9 / rate) as u64 };
        Some(StagePlan { service, capacity: 10_000, when_full: WhenFull::Drop })
    };
    let [store, store_write, pit, pit_data, fib] = service_rates.map(stage);
    let router = builder.router(RouterPlan {
        store_filled: 0.4,
        store: StoreOptions { admit: false, ..RouterPlan::default().store },
        stages: Some(StagesPlan {
            store,
            store_write,
            pit,
            pit_data,
            fib,
            ..StagesPlan::default()
        }),
        ..RouterPlan::default()
    });
    let content = names("/p", Popularity::Sequential { objects: 20_000 }, 100, 100);
    builder.consumer(router, consumer(content.clone(), poisson(arrival_rate)));
    builder.producer(router, producer(content));
    builder.plan
}

/// Mean packets in each stage over the run.
fn stage_lengths(plan: &Plan) -> [f64; 5] {
    let (_, events) = run(plan);
    STAGES.map(|stage| mean_lengths(plan, 1, stage, &events)[0])
}

/// Paper nb-cache, Eq. 1 to 5: every stage is an M/M/1 queue with its own throughput.
#[test]
fn router_stages_match_the_pipeline_model() {
    let (service_rates, arrival_rate) = ([800.0, 900.0, 550.0, 500.0, 600.0], 500.0);
    let probabilities = Probabilities { store_hit: 0.4, pit_hit: 0.0, fib_hit: 1.0, caching: 1.0 };
    let model = Pipeline::new(service_rates, probabilities).unwrap();
    let theory = model.report(arrival_rate).unwrap();
    let runs: Vec<_> = (0..SEEDS)
        .map(|seed| stage_lengths(&pipeline(seed, service_rates, arrival_rate)))
        .collect();
    for (index, expected) in theory.stages.iter().enumerate() {
        let lengths: Vec<_> = runs.iter().map(|run| run[index]).collect();
        let what = format!("length of {:?}", STAGES[index]);
        assert_agrees(&what, &lengths, expected.mean_packets.unwrap());
    }
}
