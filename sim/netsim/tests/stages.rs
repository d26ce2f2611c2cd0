//! Queues between the stages of a router.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, names, producer, run};
use weir_netem::{LinkConfig, ServiceTime};
use weir_plan::event::{Event, EventKind};
use weir_plan::event::{Queue, RouterSample};
use weir_plan::workload::{Arrivals, Demand, Popularity};
use weir_plan::{CpuPlan, Fault, Plan, RouterPlan, StagePlan, StagesPlan, WhenFull};

fn stage(ns: u64, capacity: u32, when_full: WhenFull) -> Option<StagePlan> {
    Some(StagePlan { service: ServiceTime::Constant { ns }, capacity, when_full })
}

/// One router with `stages`, a constant stream of Interests, and a producer.
fn plan(rate_hz: f64, filled: f64, stages: StagesPlan) -> Plan {
    let mut builder = PlanBuilder::new(1, S);
    builder.local = LinkConfig::default();
    builder.plan.sample_ns = 100 * MS;
    let router = builder.router(RouterPlan {
        store_filled: filled,
        stages: Some(stages),
        ..RouterPlan::default()
    });
    let content = names("/p", Popularity::Sequential { objects: 10_000 }, 100, 100);
    let demand = Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz } };
    builder.consumer(router, consumer(content.clone(), demand));
    builder.producer(router, producer(content));
    builder.plan
}

fn rtts_ns(events: &[Event]) -> Vec<u64> {
    let rtts = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { rtt_ns, .. } => Some(rtt_ns),
        _ => None,
    });
    rtts.collect()
}

fn full(events: &[Event], wanted: Queue) -> (usize, usize) {
    let of = |bypass: bool| {
        let found = events.iter().filter(|event| {
            matches!(event.kind, EventKind::StageFull { queue, is_bypass }
                if queue == wanted && is_bypass == bypass)
        });
        found.count()
    };
    (of(true), of(false))
}

fn last_sample(events: &[Event]) -> RouterSample {
    let mut samples = events.iter().rev().filter_map(|event| match event.kind {
        EventKind::RouterSample(ref sample) => Some(**sample),
        _ => None,
    });
    samples.next().expect("the plan requests samples")
}

#[test]
fn each_stage_takes_its_service_time() {
    let stages = StagesPlan {
        store: stage(10_000, 9, WhenFull::Drop),
        store_write: stage(1, 9, WhenFull::Drop),
        pit: stage(2_000, 9, WhenFull::Drop),
        fib: stage(300, 9, WhenFull::Drop),
        pit_data: stage(40, 9, WhenFull::Drop),
        store_miss: None,
        cpu: None,
    };
    let misses = rtts_ns(&run(&plan(100.0, 0.0, stages.clone())).1);
    assert!(misses.len() > 90);
    assert!(misses.iter().all(|&rtt_ns| rtt_ns == 12_340), "{:?}", &misses[..3]);
    let hits = rtts_ns(&run(&plan(100.0, 1.0, stages.clone())).1);
    assert!(hits.iter().all(|&rtt_ns| rtt_ns == 10_000), "a hit needs only the store");
    let filtered = StagesPlan { store_miss: Some(ServiceTime::Constant { ns: 5 }), ..stages };
    let misses = rtts_ns(&run(&plan(100.0, 0.0, filtered.clone())).1);
    assert!(misses.iter().all(|&rtt_ns| rtt_ns == 2_345), "a miss takes no store time");
    let hits = rtts_ns(&run(&plan(100.0, 1.0, filtered)).1);
    assert!(hits.iter().all(|&rtt_ns| rtt_ns == 10_000));
}

#[test]
fn full_store_drops_or_is_bypassed() {
    // The stage serves one in 2 ms and receives one in 0.5 ms.
    let stages =
        |when_full| StagesPlan { store: stage(2 * MS, 5, when_full), ..StagesPlan::default() };
    let (_, dropping) = run(&plan(2000.0, 1.0, stages(WhenFull::Drop)));
    let (passed, dropped) = full(&dropping, Queue::Store);
    assert_eq!(passed, 0);
    assert_eq!(rtts_ns(&dropping).len() + dropped, 2000, "answered or dropped");
    assert!(rtts_ns(&dropping).len() < 510);
    let (_, passing) = run(&plan(2000.0, 1.0, stages(WhenFull::Bypass)));
    let (passed, dropped) = full(&passing, Queue::Store);
    assert!(passed > 1400 && dropped == 0);
    let rtts = rtts_ns(&passing);
    assert_eq!(rtts.len(), 2000, "the producer answers the bypassed Interests");
    assert_eq!(rtts.iter().filter(|&&rtt_ns| rtt_ns == 0).count(), passed);
    assert!(rtts.iter().all(|&rtt_ns| rtt_ns <= 10 * MS), "at most five in the stage");
}

#[test]
fn data_passes_when_the_write_queue_is_full() {
    let stages =
        StagesPlan { store_write: stage(10 * MS, 2, WhenFull::Drop), ..StagesPlan::default() };
    let (_, events) = run(&plan(1000.0, 0.0, stages));
    let (passed, _) = full(&events, Queue::StoreWrite);
    assert_eq!(rtts_ns(&events).len(), 1000, "all Data is forwarded");
    assert_eq!(last_sample(&events).store_entries + passed as u64, 1000);
    assert!((850..950).contains(&passed), "{passed}: one in ten is written");
}

#[test]
fn stalled_store_answers_nothing() {
    let stages = StagesPlan { store: stage(MS, 50, WhenFull::Drop), ..StagesPlan::default() };
    let mut staged = plan(100.0, 1.0, stages);
    let stall = Fault::StoreStall { node: 0, for_ns: S / 4 };
    staged.faults.push(weir_plan::FaultPlan { at_ns: S / 2, fault: stall });
    let quiet = |events: &[Event]| {
        let during = events.iter().filter(|event| {
            (S / 2 + 1..3 * S / 4).contains(&event.at_ns)
                && matches!(event.kind, EventKind::DataReceived { .. })
        });
        during.count()
    };
    let (_, events) = run(&staged);
    assert_eq!(quiet(&events), 0);
    assert_eq!(rtts_ns(&events).len(), 100, "they waited");
    // A stalled store without a stage behaves like no store.
    let mut plain = staged.clone();
    let weir_plan::Role::Router(router) = &mut plain.nodes[0].role else { panic!() };
    router.stages = None;
    let (_, events) = run(&plain);
    assert_eq!(rtts_ns(&events).len(), 100);
    let sample = last_sample(&events);
    assert!((24..=26).contains(&sample.store_misses), "{sample:?}");
}

fn cpu_plan(interest: ServiceTime, data: ServiceTime, capacity: u32) -> CpuPlan {
    let none = ServiceTime::default();
    CpuPlan { interest, data, read: none.clone(), bypass: none, machine: None, cores: 1, capacity }
}

#[test]
fn one_processor_serves_both_kinds() {
    let constant = |ns| ServiceTime::Constant { ns };
    let cpu = |capacity| {
        let cpu = cpu_plan(constant(100_000), constant(300_000), capacity);
        StagesPlan { cpu: Some(cpu), ..StagesPlan::default() }
    };
    let (_, events) = run(&plan(100.0, 0.0, cpu(100)));
    assert!(rtts_ns(&events).iter().all(|&rtt_ns| rtt_ns == 400_000));
    let (_, events) = run(&plan(100.0, 1.0, cpu(100)));
    assert!(rtts_ns(&events).iter().all(|&rtt_ns| rtt_ns == 100_000));
    // 5,000 per second are twice its capacity: it is always busy and drops Interests. Data always
    // finds a free slot, because its Interest was served just before.
    let (_, events) = run(&plan(5000.0, 0.0, cpu(40)));
    let (_, dropped) = full(&events, Queue::Cpu);
    assert!((2300..2700).contains(&rtts_ns(&events).len()), "{}", rtts_ns(&events).len());
    assert!(dropped > 2300, "{dropped}");
    let busy = events.iter().rev().find_map(|event| match event.kind {
        EventKind::RouterSample(ref sample) if event.at_ns == S => Some(sample.cpu_ns),
        _ => None,
    });
    assert!((990 * MS..=S).contains(&busy.unwrap()), "{busy:?}");
}
