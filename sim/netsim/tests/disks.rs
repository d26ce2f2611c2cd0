//! Routers with disks: hits, bypasses and faults.

use crate::common;

use common::{
    MS, PlanBuilder, S, consumer, count, is_data, names, poisson, producer, received, run,
    with_disk, without_store,
};
use weir_base::units::Time;
use weir_forward::{Bypass, Mark};
use weir_netem::{DiskConfig, LinkConfig, ServiceTime};
use weir_netsim::Network;
use weir_options::{DisksOptions, StoreOptions};
use weir_plan::event::{Event, EventKind};
use weir_plan::event::{Queue, RouterSample};
use weir_plan::workload::{Demand, Popularity};
use weir_plan::{DiskExperiments, DiskPlan, Fault, Plan, Role, RouterPlan, StoreIo};

fn received_between(events: &[Event], from_ns: u64, to_ns: u64) -> usize {
    let is_in = |event: &&Event| (from_ns..to_ns).contains(&event.at_ns);
    events.iter().filter(is_in).filter(|event| is_data(&event.kind)).count()
}

/// Disk counters of a node at the last sample.
fn disk_of(events: &[Event], node: u32) -> RouterSample {
    let sample = events.iter().rev().find_map(|event| match event.kind {
        EventKind::RouterSample(ref sample) if event.node == node => Some(**sample),
        _ => None,
    });
    sample.expect("routers are sampled")
}

/// A disk that reads one record at a time, in a millisecond each.
fn disk() -> DiskPlan {
    DiskPlan {
        bytes: 64 << 20,
        device: DiskConfig {
            read: ServiceTime::Constant { ns: MS },
            write: ServiceTime::Constant { ns: MS },
            ..DiskConfig::default()
        },
        filled: 1.0,
        ..DiskPlan::default()
    }
}

fn options() -> DisksOptions {
    DiskPlan::recorded_options()
}

fn disk_with(options: DisksOptions) -> DiskPlan {
    DiskPlan { options, ..disk() }
}

const OBJECTS: u64 = 2000;

/// A consumer at router 0, which has all content on disk, and a producer 20 ms of round trip behind
/// it.
fn plan(disk: DiskPlan, rate_hz: f64) -> Plan {
    let mut builder = PlanBuilder::new(1, 2 * S);
    builder.plan.sample_ns = 10 * MS;
    let near = builder.router(with_disk(disk));
    let far = builder.router(without_store());
    builder.link(near, far, &LinkConfig { delay_ns: 10 * MS, ..LinkConfig::default() });
    let content = names("/p", Popularity::Sequential { objects: OBJECTS }, 1000, 1000);
    builder.consumer(near, consumer(content.clone(), poisson(rate_hz)));
    builder.producer(far, producer(content));
    builder.plan
}

fn disk_mut(plan: &mut Plan, node: usize) -> &mut DiskPlan {
    match &mut plan.nodes[node].role {
        Role::Router(RouterPlan { disk: Some(disk), .. }) => disk,
        _ => panic!("no disk"),
    }
}

#[test]
fn disk_data_is_read_once_and_shared() {
    let plan = plan(disk(), 300.0);
    let (summary, events) = run(&plan);
    let disk = disk_of(&events, 0);
    assert_eq!(disk.disk.entries, OBJECTS);
    assert_eq!(received(&events) as u64, disk.busy.answered);
    assert!(disk.disk.reads > 500 && disk.disk.read_errors + disk.disk.damaged == 0, "{disk:?}");
    let mean_ns = disk.disk_answer_ns / disk.busy.answered;
    assert!((MS..2 * MS).contains(&mean_ns), "slightly more than one read: {mean_ns}");
    assert_eq!(run(&plan), (summary, events), "twice alike");
}

/// The disks fill with passing Data and evict the oldest when full.
#[test]
fn disks_store_passing_data() {
    let mut plan =
        plan(DiskPlan { filled: 0.0, bytes: 4 << 20, region_bytes: 1 << 18, ..disk() }, 1000.0);
    plan.duration_ns = 4 * S;
    let Role::Router(router) = &mut plan.nodes[0].role else { panic!() };
    router.store = StoreOptions::with_bytes(100_000);
    let (_, events) = run(&plan);
    let disk = disk_of(&events, 0);
    // A record takes one block of 4,096 bytes.
    assert!((800..1024).contains(&disk.disk.entries), "{disk:?}");
    assert!(disk.disk.writes > 2000 && disk.disk.evictions > 1000, "{disk:?}");
    assert!(disk.disk.reads == 0, "it is evicted before the next request: {disk:?}");
}

/// After a crash, and with an unreachable producer, the router still serves its disk.
#[test]
fn crash_keeps_disk_content() {
    for shards in [1, 3] {
        let mut plan = plan(disk_with(DisksOptions { bypass: Bypass::Off, ..options() }), 300.0);
        let Role::Router(router) = &mut plan.nodes[0].role else { panic!() };
        router.shards = shards;
        plan.duration_ns = 4 * S;
        let fault = |at_ns, fault| weir_plan::FaultPlan { at_ns, fault };
        plan.faults = vec![
            fault(0, Fault::LinkDown { link: 0, for_ns: 10 * S }),
            fault(S, Fault::Crash { node: 0, for_ns: S / 10 }),
        ];
        let (_, events) = run(&plan);
        assert!(received_between(&events, 2 * S, 4 * S) > 500, "{shards} shards");
        let disk = disk_of(&events, 0);
        assert_eq!(disk.disk.entries, OBJECTS, "{shards} shards");
    }
}

#[test]
fn written_data_survives_a_crash() {
    let mut plan = plan(DiskPlan { filled: 0.0, ..disk() }, 900.0);
    let Role::Router(router) = &mut plan.nodes[0].role else { panic!() };
    router.store = StoreOptions::with_bytes(10_000);
    plan.duration_ns = 8 * S;
    let fault = |at_ns, fault| weir_plan::FaultPlan { at_ns, fault };
    plan.faults = vec![
        fault(4 * S, Fault::LinkDown { link: 0, for_ns: 10 * S }),
        fault(4 * S, Fault::Crash { node: 0, for_ns: S / 10 }),
    ];
    let (_, events) = run(&plan);
    assert!(received_between(&events, 5 * S, 8 * S) > 2500);
}

#[test]
fn interests_bypass_disks_over_the_threshold() {
    let with = |bypass, threshold| {
        let (_, events) =
            run(&plan(disk_with(DisksOptions { bypass, threshold, ..options() }), 1500.0));
        let longest = events.iter().filter_map(|event| match event.kind {
            EventKind::QueueLength { queue: Queue::DiskReads, packets } => Some(packets),
            _ => None,
        });
        (disk_of(&events, 0), longest.max().unwrap())
    };
    let (off, longest) = with(Bypass::Off, 64);
    assert!(longest > 500 && off.busy.bypassed_queue_full == 0, "{longest} {off:?}");
    let (threshold, longest) = with(Bypass::Threshold, 64);
    assert_eq!(longest, 64);
    assert!(threshold.busy.bypassed_queue_full > 800, "{threshold:?}");
    let (never_waits, longest) = with(Bypass::Threshold, 1);
    assert!(
        longest == 1 && never_waits.busy.bypassed_queue_full > threshold.busy.bypassed_queue_full
    );
}

#[test]
fn interests_are_refused_past_the_hard_bound() {
    let plan =
        plan(disk_with(DisksOptions { bypass: Bypass::Off, reads_max: 20, ..options() }), 1500.0);
    let (_, events) = run(&plan);
    let refused = count(&events, |kind| matches!(kind, EventKind::NackReceived { .. }));
    let disk = disk_of(&events, 0);
    assert!(refused > 800 && refused as u64 == disk.busy.reads_refused, "{refused} {disk:?}");
}

#[test]
fn blocking_store_queues_interests() {
    let plan = plan(
        DiskPlan {
            experiments: DiskExperiments {
                io: StoreIo::Blocking,
                interests_waiting_max: 50,
                ..DiskExperiments::default()
            },
            ..disk_with(DisksOptions { bypass: Bypass::Off, ..options() })
        },
        1500.0,
    );
    let (_, events) = run(&plan);
    let lengths = |wanted| {
        let lengths = events.iter().filter_map(move |event| match event.kind {
            EventKind::QueueLength { queue, packets } if queue == wanted => Some(packets),
            _ => None,
        });
        lengths.max().unwrap()
    };
    assert_eq!((lengths(Queue::DiskBlocked), lengths(Queue::DiskReads)), (50, 1));
    assert!(disk_of(&events, 0).busy.interests_refused > 800);
}

fn marked(events: &[Event]) -> usize {
    count(events, |kind| matches!(kind, EventKind::DataReceived { is_marked: true, .. }))
}

#[test]
fn nb_cc_marks_over_threshold_and_lazily() {
    let with = |mark, bypass| {
        let disk = disk_with(DisksOptions { mark, bypass, threshold: 16, ..options() });
        let (_, events) = run(&plan(disk, 1500.0));
        (marked(&events), disk_of(&events, 0).busy.marked)
    };
    assert_eq!(with(Mark::Off, Bypass::Off), (0, 0));
    let (seen, set) = with(Mark::Ecn, Bypass::Off);
    assert!(seen > 1000 && set >= seen as u64, "{seen} {set}");
    let (seen, _) = with(Mark::NbCc, Bypass::Off);
    assert!(seen > 1000, "no other next hop: {seen}");
    assert_eq!(with(Mark::NbCc, Bypass::Threshold), (0, 0), "there is another hop");
}

/// Router 1 exceeds its threshold and signals that. Router 0 then sends it only Interests without
/// another next hop, and marks their Data.
#[test]
fn signals_unavailability_to_neighbours() {
    let mut builder = PlanBuilder::new(3, 2 * S);
    builder.plan.sample_ns = 10 * MS;
    let full = disk_with(DisksOptions { threshold: 16, ..options() });
    let near = builder.router(with_disk(full.clone()));
    let next = builder.router(with_disk(full));
    let link = LinkConfig { delay_ns: MS, ..LinkConfig::default() };
    builder.link(near, next, &link);
    let content = names("/p", Popularity::Uniform { objects: OBJECTS }, 1000, 1000);
    builder.consumer(near, consumer(content.clone(), poisson(2500.0)));
    builder.producer(next, producer(content.clone()));
    // Router 1 has no route to the producer, so nothing else can serve its Interests.
    builder.plan.routes.retain(|route| route.node != next);
    let (_, events) = run(&builder.plan);
    let (near, next) = (disk_of(&events, 0), disk_of(&events, 1));
    assert!(
        next.busy.busy_sent > 20 && near.busy.busy_received == next.busy.busy_sent,
        "{near:?} {next:?}"
    );
    assert!(near.busy.bypassed_queue_full > 100 && near.busy.marked > 100, "{near:?}");
    assert!(near.busy.waited_over_threshold > 100, "{near:?}");
    assert!(marked(&events) > 500);
}

#[test]
fn stalled_disk_does_not_block_forwarding() {
    let mut plan = plan(
        DiskPlan {
            disks: 2,
            ..disk_with(DisksOptions { stalled_after: Time { ns: 50 * MS }, ..options() })
        },
        500.0,
    );
    let fault = |at_ns, fault| weir_plan::FaultPlan { at_ns, fault };
    plan.faults = vec![fault(S / 2, Fault::DiskStall { node: 0, disk: 1, for_ns: S })];
    let (_, events) = run(&plan);
    let during = received_between(&events, S / 2 + 100 * MS, 3 * S / 2);
    assert!((400..500).contains(&during), "{during} of about 450 were answered");
    let disk = disk_of(&events, 0);
    assert!(disk.busy.bypassed_stalled > 100 && disk.busy.answered > 500, "{disk:?}");
    // With all disks stalled, everything comes from the producer.
    plan.faults = vec![fault(S / 2, Fault::StoreStall { node: 0, for_ns: S })];
    let (_, events) = run(&plan);
    assert!(received_between(&events, S / 2 + 100 * MS, 3 * S / 2) > 400);
    assert!(disk_of(&events, 0).busy.bypassed_stalled > 350);
}

#[test]
fn damage_and_errors_are_never_served() {
    let window = Demand::Window { window: 8, count: None };
    for (number, fault) in [
        Fault::DiskErrors { node: 0, disk: 0, for_ns: S, probability: 0.3 },
        Fault::DiskDamage { node: 0, disk: 0, for_ns: S, flipped: 0.3, lost: 0.2, torn: 0.2 },
        Fault::DiskFull { node: 0, disk: 0, for_ns: S },
    ]
    .into_iter()
    .enumerate()
    {
        let mut plan = plan(DiskPlan { filled: 0.5, ..disk() }, 1.0);
        let Role::Consumer(consumer) = &mut plan.nodes[2].role else { panic!("the consumer") };
        consumer.demand = window.clone();
        let Role::Router(router) = &mut plan.nodes[0].role else { panic!() };
        router.store = StoreOptions::with_bytes(30_000);
        plan.faults.push(weir_plan::FaultPlan { at_ns: S / 4, fault });
        let (summary, events) = run(&plan);
        assert!(received(&events) > 500, "fault {number}");
        assert_eq!(summary.damage_noticed, 0, "fault {number}");
        let disk = disk_of(&events, 0);
        let seen = [disk.disk.read_errors, disk.disk.damaged, disk.disk.write_errors][number];
        // After a few attempts the store stops writing to a full disk.
        assert!(seen > [10, 10, 2][number], "fault {number}: {disk:?}");
    }
}

#[test]
fn invalid_disks_are_rejected_by_name() {
    let refused = |change: &dyn Fn(&mut Plan), words: &[&str]| {
        let mut plan = plan(disk(), 100.0);
        change(&mut plan);
        let Err(error) = Network::new(&plan) else { panic!("accepted") };
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{text}: no {word}"));
    };
    let bad = |change: fn(&mut DiskPlan), words: &[&str]| {
        refused(&|plan| change(disk_mut(plan, 0)), words);
    };
    bad(|disk| disk.disks = 0, &["r0", "disk.disks", "1 to 16"]);
    bad(|disk| disk.disks = 17, &["r0", "disk.disks", "17"]);
    bad(|disk| disk.block_bytes = 1000, &["r0", "disk.block_bytes", "512 or 4096"]);
    bad(|disk| disk.region_bytes = 10_000, &["r0", "disk.region_bytes", "4096"]);
    bad(|disk| disk.region_bytes = 4096, &["r0", "disk.region_bytes"]);
    bad(|disk| disk.bytes = 1 << 22, &["r0", "disk.bytes", "2 regions"]);
    bad(|disk| disk.filled = 1.5, &["r0", "disk.filled", "1.5"]);
    bad(|disk| disk.options.depth = 0, &["r0", "disk.depth"]);
    bad(|disk| disk.options.reads_max = 0, &["r0", "disk.reads_max"]);
    bad(|disk| disk.experiments.filter_false_positives_ppm = 0, &["r0", "disk.false_positives"]);
    bad(|disk| disk.device.parallelism = 0, &["r0", "disk.device", "parallelism"]);
    bad(|disk| disk.experiments.announce_period.ns = 0, &["r0", "disk.announce_period"]);
    let fault = |fault: Fault| {
        move |plan: &mut Plan| {
            let fault = fault.clone();
            plan.faults.push(weir_plan::FaultPlan { at_ns: 0, fault });
        }
    };
    let stall = |node, disk| Fault::DiskStall { node, disk, for_ns: 1 };
    refused(&fault(stall(0, 1)), &["fault 0", "r0", "disk 1"]);
    refused(&fault(stall(1, 0)), &["fault 0", "r1", "disk 0"]);
    refused(&fault(stall(2, 0)), &["fault 0", "router"]);
    let errors = Fault::DiskErrors { node: 0, disk: 0, for_ns: 1, probability: 2.0 };
    refused(&fault(errors), &["fault 0", "probability", "2"]);
    let damage =
        Fault::DiskDamage { node: 0, disk: 0, for_ns: 1, flipped: 0.0, lost: 0.7, torn: 0.7 };
    refused(&fault(damage), &["fault 0", "lost, torn"]);
}
