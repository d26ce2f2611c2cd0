//! Speed of simulations: packet hops per second of processor time, and peak memory.
//!
//! `cargo run --release -p weir-benches --bin simulator [-- --shape line,tree,fetch,large]`
//!
//! With several shapes, each run is a separate process, because a process's peak memory never
//! falls.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use cpu_time::ThreadTime;
use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_benches::median;
use weir_netem::LinkConfig;
use weir_netsim::Network;
use weir_plan::event::{Event, Observer};
use weir_plan::workload::{Demand, Names, Popularity};
use weir_plan::{LinkPlan, Plan, Role, Transport};
use weir_plan_fixture::{PlanBuilder, consumer, poisson, producer, router};

#[derive(Parser)]
struct Arguments {
    /// Shapes of networks. `large` is 1,000 routers with 10,000 consumers.
    #[arg(long, value_delimiter = ',', default_value = "line,tree,fetch,large")]
    shape: Vec<String>,
    /// Virtual seconds; by default a number for each shape.
    #[arg(long)]
    seconds: Option<f64>,
    /// Store of each router in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    store_bytes: u64,
    /// Runs of each network, in turn; medians are reported.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Counts events and discards them.
#[derive(Default)]
struct Count(u64);

impl Observer for Count {
    fn observe(&mut self, _event: &Event) {
        self.0 += 1;
    }
}

/// The result of one run.
#[derive(Serialize, Deserialize)]
struct Run {
    routers: usize,
    consumers: usize,
    virtual_s: f64,
    hops: f64,
    steps: f64,
    cpu_s: f64,
    build_s: f64,
    /// Peak memory of the process: of this network alone only in its first run.
    peak_mib: f64,
}

fn main() -> Result<()> {
    // Like `weir lab`.
    weir_real::begin_with_huge_pages();
    let arguments = Arguments::parse();
    let mut runs: Vec<Vec<Run>> = arguments.shape.iter().map(|_| Vec::new()).collect();
    for _ in 0..arguments.rounds {
        for (shape, runs) in arguments.shape.iter().zip(&mut runs) {
            runs.push(match arguments.shape.len() {
                1 => measure(shape, &arguments)?,
                _ => measure_apart(shape, &arguments)?,
            });
        }
    }
    let mut report = serde_json::Map::new();
    if !arguments.json {
        println!(
            "shape   routers consumers  virtual s   Mhops  Mhops/s  ns/hop  steps/hop  peak MiB \
             build s"
        );
    }
    for (shape, runs) in arguments.shape.iter().zip(&runs) {
        let of_median = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
        let first = runs.first().context("--rounds: one at least")?;
        let run = Run {
            cpu_s: of_median(|run| run.cpu_s),
            build_s: of_median(|run| run.build_s),
            ..*first
        };
        let mhops_per_s = run.hops / 1e6 / run.cpu_s;
        let mut row = serde_json::to_value(&run)?;
        row["mhops_per_s"] = json!(mhops_per_s);
        report.insert(shape.clone(), row);
        if arguments.json {
            continue;
        }
        println!(
            "{shape:<8}{:>7}{:>10}{:>11.1}{:>8.2}{:>9.3}{:>8.0}{:>11.2}{:>10.0}{:>9.2}",
            run.routers,
            run.consumers,
            run.virtual_s,
            run.hops / 1e6,
            mhops_per_s,
            run.cpu_s * 1e9 / run.hops,
            run.steps / run.hops,
            run.peak_mib,
            run.build_s,
        );
    }
    if arguments.json {
        println!("{}", serde_json::Value::Object(report));
    }
    Ok(())
}

/// Runs one simulation as a separate process.
fn measure_apart(shape: &str, arguments: &Arguments) -> Result<Run> {
    let mut command = Command::new(std::env::current_exe().context("path of this program")?);
    command.args(["--json", "--rounds", "1", "--shape", shape]);
    command.args(["--store-bytes", &arguments.store_bytes.to_string()]);
    command.args(arguments.seconds.map(|seconds| format!("--seconds={seconds}")));
    let output = command.output().with_context(|| format!("cannot start a run of {shape}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shape}: {errors}");
    let mut report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    serde_json::from_value(report[shape].take()).with_context(|| format!("no run of {shape}"))
}

fn measure(shape: &str, arguments: &Arguments) -> Result<Run> {
    let plan = match shape {
        "line" => line(arguments.store_bytes, arguments.seconds.unwrap_or(10.0)),
        "tree" => tree(arguments.store_bytes, arguments.seconds.unwrap_or(2.0)),
        "fetch" => fetch(arguments.store_bytes, arguments.seconds.unwrap_or(5.0)),
        "large" => large(arguments.store_bytes, arguments.seconds.unwrap_or(3.0)),
        other => bail!("no shape `{other}`; there are line, tree, fetch and large"),
    };
    let building = Instant::now();
    let mut network = Network::new(&plan)?;
    let build_s = building.elapsed().as_secs_f64();
    let time = ThreadTime::now();
    let mut count = Count::default();
    let summary = network.run(&mut count)?;
    let cpu_s = time.elapsed().as_secs_f64();
    let (routers, consumers) = plan.nodes.iter().fold((0, 0), |(r, c), node| match node.role {
        Role::Router(_) => (r + 1, c),
        Role::Consumer(_) => (r, c + 1),
        Role::Producer(_) => (r, c),
    });
    Ok(Run {
        routers,
        consumers,
        virtual_s: summary.virtual_ns as f64 / 1e9,
        hops: summary.packet_hops as f64,
        steps: summary.steps as f64,
        cpu_s,
        build_s,
        peak_mib: peak_mib()?,
    })
}

/// Peak resident memory of this process in MiB.
fn peak_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM")?;
    let kib = line.split_whitespace().nth(1).context("no number")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}

fn builder(seconds: f64) -> PlanBuilder {
    PlanBuilder::new(1, (seconds * 1e9) as u64)
}

fn routers(net: &mut PlanBuilder, count: usize, store_bytes: u64) -> Vec<usize> {
    (0..count).map(|_| net.router(router(store_bytes))).collect()
}

fn link(net: &mut PlanBuilder, a: usize, b: usize, rate_bps: u64, delay_ns: u64) -> usize {
    let config = LinkConfig { rate_bps: Some(rate_bps), delay_ns, ..LinkConfig::default() };
    let link = LinkPlan::local(a, b, &config);
    net.connect(LinkPlan { is_local: false, transport: Transport::Udp, mtu: 9000, ..link })
}

fn names(objects: u64, object_bytes: u64, segment_bytes: u32) -> Names {
    let popularity = Popularity::Zipf { objects, exponent: 0.8 };
    let names = weir_plan_fixture::names("/p", popularity, object_bytes, segment_bytes);
    Names { components: 4, ..names }
}

fn add_consumer(net: &mut PlanBuilder, names: &Names, demand: Demand) -> usize {
    net.node(format!("n{}", net.plan.nodes.len()), Role::Consumer(consumer(names.clone(), demand)))
}

fn add_producer(net: &mut PlanBuilder, names: &Names) -> usize {
    net.node(format!("n{}", net.plan.nodes.len()), Role::Producer(producer(names.clone())))
}

/// Ten routers in a line, with single Interests for 1 kB Data that mostly go all the way.
fn line(store_bytes: u64, seconds: f64) -> Plan {
    let mut net = builder(seconds);
    let names = names(1_000_000, 1000, 1000);
    let routers = routers(&mut net, 10, store_bytes);
    for pair in routers.windows(2) {
        let to = link(&mut net, pair[0], pair[1], 1_000_000_000, 1_000_000);
        net.route(pair[0], "/p", to);
    }
    let app = add_producer(&mut net, &names);
    let to = link(&mut net, routers[9], app, 10_000_000_000, 1000);
    net.route(routers[9], "/p", to);
    let app = add_consumer(&mut net, &names, poisson(20_000.0));
    link(&mut net, app, routers[0], 10_000_000_000, 1000);
    net.plan
}

/// A binary tree of 127 routers with a consumer at each of the 64 leaves.
fn tree(store_bytes: u64, seconds: f64) -> Plan {
    let mut net = builder(seconds);
    let names = names(100_000, 1000, 1000);
    let routers = routers(&mut net, 127, store_bytes);
    for child in 1..127 {
        let to =
            link(&mut net, routers[child], routers[(child - 1) / 2], 10_000_000_000, 1_000_000);
        net.route(routers[child], "/p", to);
    }
    let app = add_producer(&mut net, &names);
    let to = link(&mut net, routers[0], app, 100_000_000_000, 1000);
    net.route(routers[0], "/p", to);
    for &leaf in &routers[63..] {
        let app = add_consumer(&mut net, &names, poisson(2000.0));
        link(&mut net, app, leaf, 10_000_000_000, 1000);
    }
    net.plan
}

/// Four routers, and one consumer that fetches objects of 8 kB segments with CUBIC.
fn fetch(store_bytes: u64, seconds: f64) -> Plan {
    let mut net = builder(seconds);
    let names = names(1000, 10_000_000, 8000);
    let routers = routers(&mut net, 4, store_bytes);
    for pair in routers.windows(2) {
        let to = link(&mut net, pair[0], pair[1], 10_000_000_000, 1_000_000);
        net.route(pair[0], "/p", to);
    }
    let app = add_producer(&mut net, &names);
    let to = link(&mut net, routers[3], app, 100_000_000_000, 1000);
    net.route(routers[3], "/p", to);
    let demand =
        Demand::Objects { arrivals: None, count: None, controller: "cubic".into(), window: None };
    let app = add_consumer(&mut net, &names, demand);
    link(&mut net, app, routers[0], 10_000_000_000, 1000);
    net.plan
}

/// A tree of 1,000 routers with ten consumers each. Inner routers have four children.
fn large(store_bytes: u64, seconds: f64) -> Plan {
    let mut net = builder(seconds);
    let names = names(100_000, 1000, 1000);
    let routers = routers(&mut net, 1000, store_bytes);
    for child in 1..1000 {
        let parent = (child - 1) / 4;
        let to = link(&mut net, routers[child], routers[parent], 100_000_000_000, 1_000_000);
        net.route(routers[child], "/p", to);
    }
    let app = add_producer(&mut net, &names);
    let to = link(&mut net, routers[0], app, 100_000_000_000, 1000);
    net.route(routers[0], "/p", to);
    for &router in &routers {
        for _ in 0..10 {
            let app = add_consumer(&mut net, &names, poisson(50.0));
            link(&mut net, app, router, 1_000_000_000, 100_000);
        }
    }
    net.plan
}
