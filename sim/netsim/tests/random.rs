//! Random small networks with random workloads and faults. Each runs twice, must pass all checks,
//! and must give equal results. A failure prints its seed: repeat it with `SEED=n cargo test -p
//! weir-netsim --test all one_seed`, and set `DISKS=1` for networks with disks.

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{MS, PlanBuilder, S, consumer, names, producer, run_with};
use weir_base::Rng;
use weir_base::units::{Size, Time};
use weir_forward::{Bypass, Mark};
use weir_link::{DisciplineConfig, Marker, MarkerKind, MarkerOptions, MarkingPolicy, QueueArrival};
use weir_netem::{DiskConfig, Jitter, LinkConfig, Loss, Reorder, ServiceTime};
use weir_netsim::Summary;
use weir_options::{DisksOptions, StoreOptions};
use weir_plan::event::{Event, EventKind, Observer};
use weir_plan::workload::{Arrivals, Demand, Names, Popularity, Sizes};
use weir_plan::{
    CpuPlan, DiskExperiments, DiskPlan, Fault, FaultPlan, Plan, Role, RouterPlan, StagePlan,
    StagesPlan, StoreExperiments, StoreIo, WhenFull,
};
use weir_store::disk::{Admission, Contention, FilterKind, OfferAt};
use weir_wire::CongestionMark;

/// The last samples of routers and links. No counter may decrease, even after a crash or a link
/// failure.
#[derive(Default)]
struct Counters {
    links: BTreeMap<(u32, u32), [u64; 3]>,
    routers: BTreeMap<u32, [u64; 10]>,
}

impl Observer for Counters {
    fn observe(&mut self, event: &Event) {
        let grows = |before: &[u64], now: &[u64]| {
            assert!(before.iter().zip(now).all(|(before, now)| before <= now), "{event:?}");
        };
        match &event.kind {
            EventKind::LinkSample { link, frames, bytes, dropped, .. } => {
                let now = [*frames, *bytes, *dropped];
                let before = self.links.insert((event.node, *link), now);
                grows(&before.unwrap_or_default(), &now);
            }
            EventKind::RouterSample(sample) => {
                let now = [
                    sample.in_interests,
                    sample.in_data,
                    sample.in_nacks,
                    sample.out_interests,
                    sample.out_data,
                    sample.in_bytes,
                    sample.out_bytes,
                    sample.store_hits,
                    sample.store_misses,
                    sample.dropped,
                ];
                let before = self.routers.insert(event.node, now);
                grows(&before.unwrap_or_default(), &now);
            }
            _ => {}
        }
    }
}

/// Marks one Data in four: a marking policy from outside the product.
#[derive(Debug, Default)]
struct Fourth {
    data: u32,
}

const FOURTH: MarkerKind = MarkerKind { name: "fourth", read: |_| Ok(Arc::new(Fourth::default())) };

impl MarkerOptions for Fourth {
    fn make(&self, _capacity_bytes: u64, _seed: u64) -> Box<dyn Marker> {
        Box::new(Self::default())
    }
}

impl Marker for Fourth {
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::PROPORTIONAL
    }

    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        self.data += u32::from(joining.is_data);
        joining.is_data && self.data.is_multiple_of(4)
    }
}

/// Random choices for a plan.
struct Draw(Rng);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + u64::from(self.0.below((high - low) as u32))
    }

    fn one_in(&mut self, of: u32) -> bool {
        self.below(of) == 0
    }

    fn share(&mut self) -> f64 {
        f64::from(self.below(1 << 20)) / f64::from(1 << 20)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u32) as usize]
    }

    fn link(&mut self) -> LinkConfig {
        LinkConfig {
            rate_bps: (!self.one_in(4)).then(|| self.between(1_000_000, 200_000_000)),
            delay_ns: self.between(1000, 20 * MS),
            jitter: match self.below(4) {
                0 => Jitter::Uniform { max_ns: self.between(1, 3 * MS) },
                1 => Jitter::Normal { sigma_ns: self.between(1, MS) },
                _ => Jitter::None,
            },
            loss: match self.below(5) {
                0 => Loss::Independent { probability: 0.1 * self.share() },
                1 => Loss::GilbertElliott {
                    good_to_bad: 0.02 * self.share(),
                    bad_to_good: 0.5,
                    loss_good: 0.0,
                    loss_bad: self.share(),
                },
                _ => Loss::None,
            },
            reorder: self.one_in(4).then(|| Reorder {
                probability: 0.1 * self.share(),
                extra_ns: self.between(1000, 5 * MS),
            }),
            queue_bytes_max: self.between(3000, 400_000),
            queue_packets_max: self.between(2, 300) as u32,
            overhead_bytes: self.below(60),
        }
    }

    fn stage(&mut self, may_bypass: bool) -> Option<StagePlan> {
        let mean_ns = self.between(1000, 2 * MS);
        self.one_in(2).then(|| StagePlan {
            service: match self.below(3) {
                0 => ServiceTime::Constant { ns: mean_ns },
                1 => ServiceTime::Exponential { mean_ns },
                _ => ServiceTime::Histogram { bins: vec![(mean_ns, 0.9), (5 * mean_ns, 0.1)] },
            },
            capacity: self.between(1, 60) as u32,
            when_full: match may_bypass && self.one_in(2) {
                true => WhenFull::Bypass,
                false => WhenFull::Drop,
            },
        })
    }

    fn cpu(&mut self) -> CpuPlan {
        let mut service = || ServiceTime::Exponential { mean_ns: self.between(1000, 200_000) };
        let (interest, data) = (service(), service());
        let capacity = self.between(2, 200) as u32;
        let (none, cores) = (ServiceTime::default(), 1);
        CpuPlan { interest, data, read: none.clone(), bypass: none, machine: None, cores, capacity }
    }

    fn router(&mut self) -> RouterPlan {
        let stages = self.one_in(4).then(|| {
            let store = self.stage(true);
            StagesPlan {
                cpu: self.one_in(3).then(|| self.cpu()),
                store_miss: (store.is_some() && self.one_in(2))
                    .then_some(ServiceTime::Constant { ns: 2000 }),
                store,
                store_write: self.stage(true),
                pit: self.stage(false),
                pit_data: self.stage(false),
                fib: self.stage(false),
            }
        });
        let bytes = match self.below(3) {
            0 => 0,
            1 => self.between(10_000, 300_000),
            _ => 64 << 20,
        };
        let policies = ["lru", "fifo", "lfu", "s3-fifo", "parts"];
        let policy = self.pick(&policies).parse().unwrap();
        let store_experiments = StoreExperiments {
            index: self.pick(&["hash", "hash", "ordered"]).parse().unwrap(),
            compare: self.pick(&["stored", "stored", "decode"]).parse().unwrap(),
        };
        let (size, admit) = (Size { bytes }, !self.one_in(6));
        RouterPlan {
            store: StoreOptions { size, policy, admit, ..StoreOptions::default() },
            store_experiments,
            store_filled: if self.one_in(4) { self.share() } else { 0.0 },
            pit_entries_max: if self.one_in(4) { self.between(4, 200) as u32 } else { 1 << 16 },
            strategy: self.pick(&["best-route", "best-route", "multicast"]).into(),
            shaping: self.pick(&["none", "none", "fisp capacity=30KB held_max=40"]).into(),
            shards: if self.one_in(3) { self.between(2, 5) as u16 } else { 1 },
            fib_filler: self.below(50),
            stages,
            disk: None,
            marking: match self.below(4) {
                0 => MarkingPolicy::Nfd,
                2 => "codel target=1ms".parse().unwrap(),
                _ => MarkingPolicy::read("fourth", &[FOURTH]).unwrap(),
            },
            discipline: DisciplineConfig::Fifo,
        }
    }

    fn service(&mut self, low_ns: u64, high_ns: u64) -> ServiceTime {
        let mean_ns = self.between(low_ns, high_ns);
        match self.below(4) {
            0 => ServiceTime::Constant { ns: mean_ns },
            1 => ServiceTime::Constant { ns: 0 },
            2 => ServiceTime::Exponential { mean_ns },
            _ => ServiceTime::Histogram { bins: vec![(mean_ns, 0.95), (20 * mean_ns, 0.05)] },
        }
    }

    fn device(&mut self) -> DiskConfig {
        DiskConfig {
            read: self.service(1000, 5 * MS),
            write: self.service(1000, 5 * MS),
            read_ns_per_kib: u64::from(self.below(2000)),
            write_ns_per_kib: u64::from(self.below(2000)),
            parallelism: self.between(1, 9) as u32,
            ..DiskConfig::default()
        }
    }

    fn disk(&mut self) -> DiskPlan {
        let block_bytes = if self.one_in(2) { 512 } else { 4096 };
        let region_bytes = u64::from(block_bytes) * self.between(40, 300);
        let mut plan = DiskPlan {
            disks: self.between(1, 4) as u8,
            bytes: region_bytes * self.between(2, 40),
            region_bytes,
            block_bytes,
            device: self.device(),
            shared_as: None,
            filled_objects: if self.one_in(2) { self.below(60) } else { 0 },
            filled_ranges: if self.one_in(4) { vec![(2, 4), (4, 9)] } else { Vec::new() },
            filled: if self.one_in(3) { self.share() } else { 0.0 },
            options: DisksOptions::default(),
            experiments: DiskExperiments::default(),
        };
        let (options, experiments) = (&mut plan.options, &mut plan.experiments);
        experiments.filter = if self.one_in(3) { FilterKind::Index } else { FilterKind::Bloom };
        experiments.io = if self.one_in(3) { StoreIo::Blocking } else { StoreIo::Async };
        options.bypass = match self.below(3) {
            0 => Bypass::Off,
            1 => Bypass::Threshold,
            _ => Bypass::Adaptive,
        };
        options.mark = match self.below(3) {
            0 => Mark::Off,
            1 => Mark::Ecn,
            _ => Mark::NbCc,
        };
        options.threshold = self.below(20);
        experiments.contention = match self.below(3) {
            0 => Contention::Fifo,
            1 => Contention::DataFirst,
            _ => Contention::InterestFirst,
        };
        options.admission = match self.below(4) {
            0 => Admission::SecondHit,
            1 => Admission::Size { bytes_min: self.below(5000) },
            _ => Admission::All,
        };
        options.offer = match self.below(3) {
            0 => OfferAt::Early,
            1 => OfferAt::Arrival,
            _ => OfferAt::Eviction,
        };
        options.depth = self.between(1, 70) as u32;
        options.reads_max = self.between(1, 200) as u32;
        options.write_backlog_max = Some(Size { bytes: self.between(64 << 10, 2 << 20) });
        options.write_size_max = Size { bytes: self.between(1, 300_000) };
        options.write_delay_max = Time { ns: self.between(0, 20 * MS) };
        options.stalled_after = Time { ns: self.between(10 * MS, 600 * MS) };
        experiments.announce_period = Time { ns: self.between(MS, 50 * MS) };
        experiments.interests_waiting_max = self.between(1, 500) as u32;
        experiments.filter_false_positives_ppm = self.between(100, 200_000) as u32;
        options.record_size_typical = Size { bytes: self.between(500, 9000) };
        plan
    }

    fn disk_fault(&mut self, node: usize, disk: u8) -> Fault {
        let for_ns = self.between(MS, S);
        match self.below(5) {
            0 => Fault::DiskStall { node, disk, for_ns },
            1 => Fault::DiskErrors { node, disk, for_ns, probability: self.share() },
            2 => Fault::DiskDamage {
                node,
                disk,
                for_ns,
                flipped: 0.5 * self.share(),
                lost: 0.3 * self.share(),
                torn: 0.3 * self.share(),
            },
            3 => Fault::DiskFull { node, disk, for_ns },
            _ => Fault::Crash { node, for_ns },
        }
    }

    fn names(&mut self, number: u32) -> Names {
        let objects = self.between(1, 60);
        let popularity = match self.below(4) {
            0 => Popularity::Sequential { objects },
            1 => Popularity::Uniform { objects },
            2 => Popularity::Zipf { objects, exponent: 2.0 * self.share() },
            _ => Popularity::ZipfMandelbrot { objects, exponent: 1.0, shift: 5.0 * self.share() },
        };
        let segment_bytes = self.between(100, 6000) as u32;
        let mut names = names(&format!("/p{number}"), popularity, 1, segment_bytes);
        names.sizes = match self.below(2) {
            0 => Sizes::Fixed { bytes: self.between(1, 40_000) },
            _ => Sizes::LogNormal { mean_bytes: 8000, sigma: 1.0, min_bytes: 1, max_bytes: 60_000 },
        };
        names.components = if self.one_in(2) { self.between(4, 16) as u32 } else { 0 };
        names
    }

    fn arrivals(&mut self) -> Arrivals {
        let rate_hz = 1.0 + 300.0 * self.share();
        match self.below(3) {
            0 => Arrivals::Constant { rate_hz },
            1 => Arrivals::Poisson { rate_hz },
            _ => Arrivals::OnOff { rate_hz, on_ns: 200 * MS, off_ns: 300 * MS },
        }
    }

    fn demand(&mut self) -> Demand {
        match self.below(3) {
            0 => Demand::Arrivals { arrivals: self.arrivals() },
            1 => Demand::Window {
                window: self.between(1, 40) as u32,
                count: self.one_in(2).then(|| self.between(1, 500)),
            },
            _ => Demand::Objects {
                arrivals: self.one_in(3).then_some(Arrivals::Poisson { rate_hz: 3.0 }),
                count: self.one_in(2).then(|| self.between(1, 20)),
                controller: self.pick(&["cubic", "aimd", "fixed"]).into(),
                window: None,
            },
        }
    }

    fn fault(&mut self, links: usize, routers: usize) -> Fault {
        let for_ns = self.between(MS, S);
        let node = self.below(routers as u32) as usize;
        let link = self.below(links as u32) as usize;
        match self.below(4) {
            0 => Fault::LinkDown { link, for_ns },
            1 => Fault::Crash { node, for_ns },
            2 => Fault::StoreStall { node, for_ns },
            _ => Fault::WrongBytes { link, for_ns, probability: 0.3 * self.share() },
        }
    }
}

fn plan(seed: u64) -> Plan {
    let mut draw = Draw(Rng::from_seed(seed));
    let mut builder = PlanBuilder::new(seed, draw.between(S / 2, 2 * S));
    builder.plan.drain_ns = draw.between(0, 5 * S);
    builder.plan.sample_ns = if draw.one_in(2) { draw.between(10 * MS, S) } else { 0 };
    builder.local.delay_ns = draw.between(200_000, 2 * MS);
    // Without any rate limit, windows would grow without end.
    builder.local.rate_bps = Some(draw.between(10_000_000, 200_000_000));
    let routers: Vec<_> = (0..draw.between(1, 8)).map(|_| builder.router(draw.router())).collect();
    for at in 1..routers.len() {
        let other = draw.below(at as u32) as usize;
        let config = draw.link();
        builder.link(routers[at], routers[other], &config);
        if draw.one_in(3) && at > 1 {
            let (other, config) = (draw.below(at as u32) as usize, draw.link());
            builder.link(routers[at], routers[other], &config);
        }
    }
    for number in 0..draw.below(3) + 1 {
        let content = draw.names(number);
        for _ in 0..draw.below(3) + 1 {
            let at = draw.below(routers.len() as u32) as usize;
            let mut plan = consumer(content.clone(), draw.demand());
            plan.lifetime_ms = draw.between(50, 5000);
            plan.start_ns = draw.between(0, S);
            builder.consumer(routers[at], plan);
        }
        let at = draw.below(routers.len() as u32) as usize;
        let mut plan = producer(content);
        plan.delay_ns = if draw.one_in(3) { draw.between(1, 20 * MS) } else { 0 };
        plan.freshness_ms = draw.between(0, 10_000);
        builder.producer(routers[at], plan);
    }
    for link in &mut builder.plan.links {
        link.mtu = draw.between(600, 9000) as usize;
    }
    for _ in 0..draw.below(4) {
        let at_ns = draw.between(0, 3 * S);
        let fault = draw.fault(builder.plan.links.len(), routers.len());
        builder.fault(at_ns, fault);
    }
    for link in builder.plan.links.iter_mut().filter(|link| !link.is_local) {
        link.reliability = draw.one_in(3);
    }
    for link in &mut builder.plan.links {
        link.runs = draw.one_in(2);
    }
    builder.plan
}

/// The plan of a seed, with disks at some routers, and disk faults.
fn plan_with_disks(seed: u64) -> Plan {
    let mut plan = plan(seed);
    let mut draw = Draw(Rng::from_seed(!seed));
    let mut disks = Vec::new();
    for (node, state) in plan.nodes.iter_mut().enumerate() {
        let Role::Router(router) = &mut state.role else { continue };
        if draw.one_in(4) {
            continue;
        }
        let disk = draw.disk();
        disks.push((node, disk.disks));
        router.disk = Some(disk);
        // Otherwise nothing would reach the disks.
        if draw.one_in(2) {
            router.store.size.bytes = draw.between(0, 100_000);
        }
    }
    let faults = if disks.is_empty() || draw.one_in(3) { 0 } else { draw.below(5) };
    for _ in 0..faults {
        let (node, count) = disks[draw.below(disks.len() as u32) as usize];
        let disk = draw.below(count.into()) as u8;
        let at_ns = draw.between(0, 2 * S);
        let fault = draw.disk_fault(node, disk);
        plan.faults.push(FaultPlan { at_ns, fault });
    }
    plan
}

fn run(seed: u64) -> Summary {
    run_plan(&plan(seed))
}

fn run_plan(plan: &Plan) -> Summary {
    run_with(plan, &mut Counters::default())
}

#[test]
fn random_networks_pass_all_checks() {
    let mut hops = 0;
    for seed in 0..300 {
        let summary = run(seed);
        hops += summary.packet_hops;
        if seed % 20 == 0 {
            assert_eq!(run(seed), summary, "seed {seed} twice");
        }
    }
    assert!(hops > 100_000, "something happens: {hops} hops");
}

/// The same with all kinds of disks and disk faults.
#[test]
fn random_disk_networks_pass_all_checks() {
    let mut hops = 0;
    for seed in 0..300 {
        let plan = plan_with_disks(seed);
        let summary = run_plan(&plan);
        hops += summary.packet_hops;
        if seed % 20 == 0 {
            assert_eq!(run_plan(&plan), summary, "seed {seed} twice");
        }
    }
    assert!(hops > 100_000, "something happens: {hops} hops");
}

/// Found by the long test: a fault lengthened an Interest's lifetime beyond every lifetime in the
/// plan.
#[test]
fn waits_for_a_damaged_lifetime() {
    run(10_959);
}

/// Found by the long test: shards woken together send together, and the marks of the fourth were
/// compared with the queue of the first.
#[test]
fn marks_of_simultaneous_shards_are_valid() {
    run_plan(&plan_with_disks(929));
}

#[test]
#[ignore = "takes minutes"]
fn thousands_of_networks_pass_all_checks() {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    for seed in 300..300 + count {
        run(seed);
    }
}

#[test]
#[ignore = "takes minutes"]
fn thousands_of_disk_networks_pass_all_checks() {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    for seed in 300..300 + count {
        run_plan(&plan_with_disks(seed));
    }
}

#[test]
#[ignore = "repeats the seed in SEED (default 0), with disks if DISKS is set"]
fn one_seed() {
    let seed = std::env::var("SEED").map_or(0, |seed| seed.parse().expect("SEED is a number"));
    let has_disks = std::env::var_os("DISKS").is_some();
    let plan = if has_disks { plan_with_disks(seed) } else { plan(seed) };
    println!("{plan:#?}");
    println!("{:?}", run_plan(&plan));
}
