//! Routers that share a disk, or the cores of a machine.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, is_data, names, poisson, producer, run};
use weir_forward::{Bypass, Mark};
use weir_netem::{DiskConfig, ServiceTime};
use weir_netsim::Network;
use weir_options::{DisksOptions, StoreOptions};
use weir_plan::event::Event;
use weir_plan::workload::Popularity;
use weir_plan::{CpuPlan, DiskPlan, Fault, Plan, Role, RouterPlan, StagesPlan};

const OBJECTS: u64 = 20_000;

/// A read takes one millisecond.
fn disk(shared_as: Option<&str>, parallelism: u32) -> DiskPlan {
    let service = ServiceTime::Constant { ns: MS };
    let device =
        DiskConfig { read: service.clone(), write: service, parallelism, ..DiskConfig::default() };
    DiskPlan {
        bytes: 256 << 20,
        device,
        shared_as: shared_as.map(str::to_owned),
        filled: 1.0,
        options: DisksOptions {
            bypass: Bypass::Off,
            mark: Mark::Off,
            depth: 4,
            reads_max: 20_000,
            ..DiskPlan::recorded_options()
        },
        ..DiskPlan::default()
    }
}

fn cpu(machine: Option<&str>, cores: u32) -> CpuPlan {
    let constant = |ns| ServiceTime::Constant { ns };
    CpuPlan {
        interest: constant(MS / 2),
        data: constant(0),
        read: constant(MS / 2),
        bypass: constant(0),
        machine: machine.map(str::to_owned),
        cores,
        capacity: 100_000,
    }
}

/// Two routers that each receive 1,500 Interests per second for content on disk.
fn plan(disk: &DiskPlan, cpu: Option<CpuPlan>) -> Plan {
    let mut builder = PlanBuilder::new(1, 2 * S);
    for prefix in ["/a", "/b"] {
        let store = StoreOptions { admit: false, ..StoreOptions::with_bytes(0) };
        let stages = cpu.clone().map(|cpu| StagesPlan { cpu: Some(cpu), ..StagesPlan::default() });
        let disk = Some(disk.clone());
        let router = builder.router(RouterPlan { store, disk, stages, ..RouterPlan::default() });
        let content = names(prefix, Popularity::Sequential { objects: OBJECTS }, 1000, 1000);
        builder.consumer(router, consumer(content.clone(), poisson(1500.0)));
        builder.producer(router, producer(content));
    }
    builder.plan
}

/// Data per second of each router's consumer while both run.
fn rates(plan: &Plan) -> [u64; 2] {
    let (summary, events) = run(plan);
    assert_eq!(run(plan).0, summary, "twice alike");
    [1, 4].map(|node| {
        let is_data = |event: &&Event| {
            event.node == node && (S / 2..2 * S).contains(&event.at_ns) && is_data(&event.kind)
        };
        events.iter().filter(is_data).count() as u64 * 2 / 3
    })
}

fn is_about(rate: u64, expected: u64) -> bool {
    rate.abs_diff(expected) <= expected / 20
}

#[test]
fn two_routers_on_one_disk_share_its_rate() {
    let own = rates(&plan(&disk(None, 1), None));
    assert!(own.iter().all(|&rate| is_about(rate, 1000)), "{own:?}");
    let shared = rates(&plan(&disk(Some("ssd"), 1), None));
    assert!(shared.iter().all(|&rate| is_about(rate, 500)), "{shared:?}");
    let wider = rates(&plan(&disk(Some("ssd"), 2), None));
    assert!(wider.iter().all(|&rate| is_about(rate, 1000)), "{wider:?}");
}

/// Operations of the crashed router have no effect, and the other router continues.
#[test]
fn crash_leaves_shared_disk_to_other_router() {
    let mut plan = plan(&disk(Some("ssd"), 1), None);
    plan.faults.push(weir_plan::FaultPlan {
        at_ns: 100 * MS,
        fault: Fault::Crash { node: 0, for_ns: 300 * MS },
    });
    let (summary, events) = run(&plan);
    assert_eq!(run(&plan).0, summary, "twice alike");
    let between = |node: u32, from_ms: u64, to_ms: u64| {
        let is_data = |event: &&Event| {
            event.node == node
                && (from_ms * MS..to_ms * MS).contains(&event.at_ns)
                && is_data(&event.kind)
        };
        events.iter().filter(is_data).count() as u64
    };
    assert_eq!(between(1, 101, 400), 0);
    assert!(is_about(between(4, 110, 400), 290), "{}", between(4, 110, 400));
    assert!(between(1, 1000, 2000) > 400);
}

/// An Interest takes half a millisecond, and its read as much again: 1,000 per second and core.
#[test]
fn routers_of_one_machine_share_its_cores() {
    let fast = DiskPlan { device: DiskConfig::default(), ..disk(None, 1) };
    let own = rates(&plan(&fast, Some(cpu(None, 1))));
    assert!(own.iter().all(|&rate| is_about(rate, 1000)), "{own:?}");
    let one = rates(&plan(&fast, Some(cpu(Some("pc"), 1))));
    assert!(one.iter().all(|&rate| is_about(rate, 500)), "{one:?}");
    let four = rates(&plan(&fast, Some(cpu(Some("pc"), 4))));
    assert!(four.iter().all(|&rate| is_about(rate, 1000)), "one packet at a time: {four:?}");
}

#[test]
fn invalid_sharing_is_refused() {
    let refused = |change: &dyn Fn(&mut Plan), words: &[&str]| {
        let mut plan = plan(&disk(Some("ssd"), 1), Some(cpu(Some("pc"), 4)));
        change(&mut plan);
        let Err(error) = Network::new(&plan) else { panic!("accepted") };
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{text}: no {word}"));
    };
    fn second(plan: &mut Plan) -> &mut RouterPlan {
        match &mut plan.nodes[3].role {
            Role::Router(router) => router,
            _ => panic!("no router"),
        }
    }
    let disk_of = |change: fn(&mut DiskPlan)| {
        move |plan: &mut Plan| change(second(plan).disk.as_mut().unwrap())
    };
    let cpu_of = |change: fn(&mut CpuPlan)| {
        move |plan: &mut Plan| {
            change(second(plan).stages.as_mut().unwrap().cpu.as_mut().unwrap());
        }
    };
    refused(&disk_of(|disk| disk.device.parallelism = 2), &["r3", "disk.device", "`r0`"]);
    refused(&disk_of(|disk| disk.disks = 2), &["r3", "disk.disks", "shares its disk"]);
    refused(&cpu_of(|cpu| cpu.cores = 2), &["r3", "stages.cpu.cores", "`r0`"]);
    refused(&cpu_of(|cpu| cpu.cores = 0), &["r3", "stages.cpu.cores", "is 0"]);
    refused(&cpu_of(|cpu| cpu.machine = None), &["r3", "stages.cpu.cores", "machine"]);
    let stall = Fault::DiskStall { node: 3, disk: 0, for_ns: 1 };
    let fault = weir_plan::FaultPlan { at_ns: 0, fault: stall };
    refused(&|plan| plan.faults.push(fault.clone()), &["fault 0", "r3", "share"]);
}
