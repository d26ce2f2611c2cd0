//! The whole system on real sockets: one router, one producer, one consumer.
//!
//! `cargo run --release -p weir-benches --bin whole_system` builds the program and reports, for
//! each kind of face, medians over rounds of: goodput of `weir get` cold and warm, processor time
//! of the router for each Data moved (user and system, from `/proc`), and the router's peak memory.

use std::path::Path;

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Value, json};
use weir_tests::{Router, RouterOptions, Site, random_file, sha256_hex};

#[derive(Parser)]
struct Args {
    /// Size of the file, MiB.
    #[arg(long, default_value_t = 100)]
    mebibytes: usize,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Kinds of faces: of the producer and the consumer to the router.
    #[arg(long, value_delimiter = ',', default_value = "unix,udp,tcp")]
    faces: Vec<String>,
    /// More arguments for `weir get`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    get: String,
    /// More arguments for `weir put`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    put: String,
    /// The router takes no runs of Interests.
    #[arg(long)]
    without_runs: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// What one fetch took.
struct Fetch {
    goodput_gbps: f64,
    router_us_per_data: f64,
    retransmissions: f64,
}

struct Round {
    cold: Fetch,
    warm: Fetch,
    memory_mib: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut report = serde_json::Map::new();
    for faces in &args.faces {
        let rounds = (0..args.rounds)
            .map(|round| run_round(&args, faces, round as u64))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let median = |value: &dyn Fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let row = json!({
            "cold_gbps": median(&|round| round.cold.goodput_gbps),
            "warm_gbps": median(&|round| round.warm.goodput_gbps),
            "cold_router_us_per_data": median(&|round| round.cold.router_us_per_data),
            "warm_router_us_per_data": median(&|round| round.warm.router_us_per_data),
            "cold_retransmissions": median(&|round| round.cold.retransmissions),
            "warm_retransmissions": median(&|round| round.warm.retransmissions),
            "router_peak_mib": median(&|round| round.memory_mib),
        });
        if !args.json {
            println!("{faces}");
            for (key, value) in row.as_object().context("an object")? {
                println!("  {key:26} {:9.2}", value.as_f64().unwrap_or(f64::NAN));
            }
        }
        report.insert(faces.clone(), row);
    }
    if args.json {
        println!("{}", Value::Object(report));
    }
    Ok(())
}

fn run_round(args: &Args, faces: &str, seed: u64) -> anyhow::Result<Round> {
    let site = Site::new();
    let size = args.mebibytes << 20;
    let source = site.path("source");
    let expected = random_file(&source, size, seed);
    let store = format!("{}MiB", args.mebibytes + args.mebibytes / 8 + 32);
    let mut arguments = vec!["--store".into(), store];
    if args.without_runs {
        let config = site.path("router.toml");
        std::fs::write(&config, "[faces]\nruns = false\n")?;
        arguments.extend(["-c".into(), config.to_str().context("UTF-8")?.into()]);
    }
    let router = Router::start_with(&site, &RouterOptions { arguments, ..Default::default() });
    let transport = match faces {
        "unix" => router.unix(),
        "tcp" => router.tcp(),
        "udp" => router.udp(),
        other => anyhow::bail!("--faces {other}: unix, tcp or udp"),
    };
    // Commands are for local faces, and UDP faces are not: there the producer stays on Unix.
    let producer_transport = if faces == "udp" { router.unix() } else { transport.clone() };
    let mut words = vec!["put", source.to_str().context("UTF-8")?, "/bench/file", "--json"];
    words.extend(args.put.split_whitespace());
    let producer = site.weir(&producer_transport, &words);
    let name = producer.json_line()["name"].as_str().context("a name")?.to_owned();
    let fetch = |target: &Path| -> anyhow::Result<Fetch> {
        let before = processor_seconds(router.process.id())?;
        let target_text = target.to_str().context("UTF-8")?;
        let mut words = vec!["get", &name, "-o", target_text, "--json"];
        words.extend(args.get.split_whitespace());
        let report = site.weir(&transport, &words).finish().success().json();
        let used = processor_seconds(router.process.id())? - before;
        ensure!(sha256_hex(target) == expected, "the copy is identical");
        let number = |key: &str| report[key].as_f64().with_context(|| format!("{key}: {report}"));
        Ok(Fetch {
            goodput_gbps: size as f64 * 8e-9 / number("seconds")?,
            router_us_per_data: used * 1e6 / number("segments")?,
            retransmissions: number("retransmissions")?,
        })
    };
    let cold = fetch(&site.path("cold"))?;
    drop(producer);
    let warm = fetch(&site.path("warm"))?;
    Ok(Round { cold, warm, memory_mib: peak_memory_mib(router.process.id())? })
}

/// User and system time of a process and its threads so far, from `/proc/<id>/schedstat` of each
/// thread: nanoseconds, where `stat` counts in hundredths of a second.
fn processor_seconds(id: u32) -> anyhow::Result<f64> {
    let mut total_ns = 0_u64;
    for task in std::fs::read_dir(format!("/proc/{id}/task")).context("the router has ended")? {
        let schedstat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let running = schedstat.split_whitespace().next().context("three numbers")?;
        total_ns += running.parse::<u64>()?;
    }
    Ok(total_ns as f64 * 1e-9)
}

fn peak_memory_mib(id: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("VmHWM")?;
    let kibibytes: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kibibytes / 1024.0)
}
