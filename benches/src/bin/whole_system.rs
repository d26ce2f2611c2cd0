//! The whole system on real sockets: a producer, one or two routers, a consumer.
//!
//! `cargo run --release -p weir-benches --bin whole_system` builds the program and reports medians
//! over rounds for each kind of face: goodput of `weir get` (cold and warm), the routers' processor
//! time for each Data (user and system, from `/proc`), and the memory of the consumer's router.
//! Cold: the store still grows. Warm: the producer has stopped, and all Data comes from the store.
//! `--full` adds a cold fetch with a full store, in which each new Data evicts another. Rounds of
//! all faces alternate.

use std::path::Path;

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Map, Value, json};
use weir_benches::{median, threads_ns};
use weir_tests::{Host, Process, Router, random_file, sha256_hex};

#[derive(Parser)]
struct Args {
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 100)]
    mebibytes: usize,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Kinds of the consumer's faces, and of the producer's where possible. `two-udp`: two routers
    /// joined by UDP, with Unix sockets for the applications. `two-hicn`: the same with hICN
    /// packets and names. `hicn`: the consumer uses hICN packets over UDP. With `shm`, applications
    /// share memory with the router; with `unix` they do not.
    #[arg(long, value_delimiter = ',', default_value = "shm,unix,udp,tcp")]
    faces: Vec<String>,
    /// Adds a fetch with a full store.
    #[arg(long)]
    full: bool,
    /// Fetches into /dev/null: verified content is not written and read again.
    #[arg(long)]
    discard: bool,
    /// Additional arguments for `weir get`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    get: String,
    /// Additional arguments for `weir put`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    put: String,
    /// The router accepts no run Interests.
    #[arg(long)]
    without_runs: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Two routers joined by hICN packets over UDP.
const TWO_HICN: &str = "two-hicn";
const HICN_MAPPING: &str = "hicn:2001:db8:7::/48";
/// The names below the prefix of [`HICN_MAPPING`].
const HICN_PREFIX: &str = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07";

fn is_hicn(faces: &str) -> bool {
    [TWO_HICN, "hicn"].contains(&faces)
}

/// Arguments of `weir put` and `weir get` for these faces.
fn mapping_words(faces: &str) -> &'static [&'static str] {
    if is_hicn(faces) { &["--mapping", HICN_MAPPING] } else { &[] }
}

/// Figures of a round by name.
type Round = Vec<(String, f64)>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); args.faces.len()];
    for number in 0..args.rounds {
        for (faces, rounds) in args.faces.iter().zip(&mut rounds) {
            rounds.push(run_round(&args, faces, number as u64)?);
        }
    }
    let mut report = Map::new();
    for (faces, rounds) in args.faces.iter().zip(&rounds) {
        let first = rounds.first().context("--rounds: one at least")?;
        if !args.json {
            println!("{faces}");
        }
        let mut row = Map::new();
        for (index, (name, _)) in first.iter().enumerate() {
            let value = median(rounds.iter().map(|round| round[index].1).collect());
            if !args.json {
                println!("  {name:26} {value:9.2}");
            }
            row.insert(name.clone(), json!(value));
        }
        report.insert(faces.clone(), Value::Object(row));
    }
    if args.json {
        println!("{}", Value::Object(report));
    }
    Ok(())
}

/// The routers of a round: the first is the consumer's, the last the producer's.
struct Routers {
    routers: Vec<Router>,
    /// The address for hICN packets of the last router, if it has one.
    hicn: String,
}

impl Routers {
    fn start(args: &Args, faces: &str, host: &Host) -> anyhow::Result<Self> {
        let hicn_port = host.free_port();
        let start = |socket: &str, has_hicn_port: bool| -> anyhow::Result<Router> {
            let config = host.path("router.toml");
            let (runs, shared_memory) = (!args.without_runs, faces == "shm");
            let mut text = format!("[faces]\nruns = {runs}\nshared_memory = {shared_memory}\n");
            if has_hicn_port {
                text += &format!("hicn_udp = [\"127.0.0.1:{hicn_port}\"]\n");
            }
            std::fs::write(&config, text)?;
            let mut arguments = vec!["--store".into(), format!("{}MiB", store_mib(args))];
            arguments.extend(["-c".into(), config.to_str().context("UTF-8")?.into()]);
            Ok(Router::start_at_with(host, socket, &arguments))
        };
        let hicn = format!("hicn+udp4://127.0.0.1:{hicn_port}");
        if faces != TWO_HICN && faces != "two-udp" {
            let routers = vec![start("router.sock", faces == "hicn")?];
            return Ok(Self { routers, hicn });
        }
        let (near, far) = (start("near.sock", false)?, start("far.sock", faces == TWO_HICN)?);
        match faces == TWO_HICN {
            true => near.add_route(HICN_PREFIX, &hicn),
            false => near.add_route("/bench", &far.udp()),
        }
        Ok(Self { routers: vec![near, far], hicn })
    }

    fn near(&self) -> &Router {
        &self.routers[0]
    }

    /// FaceUris for consumer and producer.
    fn transports(&self, faces: &str) -> anyhow::Result<(String, String)> {
        let (near, far) = (self.near(), &self.routers[self.routers.len() - 1]);
        let consumer = match faces {
            "shm" | "unix" | "two-udp" | TWO_HICN => near.unix(),
            "tcp" => near.tcp(),
            "udp" => near.udp(),
            "hicn" => self.hicn.clone(),
            other => {
                anyhow::bail!("--faces {other}: shm, unix, tcp, udp, hicn, two-udp or two-hicn")
            }
        };
        // Commands require a local face, and UDP faces are not local, so the producer stays on
        // Unix.
        let producer = if faces == "tcp" { far.tcp() } else { far.unix() };
        Ok((consumer, producer))
    }

    fn processor_seconds(&self) -> anyhow::Result<f64> {
        self.routers.iter().map(|router| processor_seconds(router.process.id())).sum()
    }
}

/// Store size in MiB: space for one file with names, signatures and index, but not for two.
fn store_mib(args: &Args) -> usize {
    args.mebibytes + args.mebibytes / 8 + 32
}

/// A producer of a file that it has created.
struct Offer {
    producer: Option<Process>,
    name: String,
    sha256: String,
}

impl Offer {
    fn new(
        args: &Args,
        faces: &str,
        host: &Host,
        transport: &str,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let source = host.path(&format!("source{seed}"));
        let sha256 = random_file(&source, args.mebibytes << 20, seed);
        let object = format!("/bench/file{seed}");
        let mut words = vec!["put", source.to_str().context("UTF-8")?, &object, "--json"];
        words.extend(mapping_words(faces));
        words.extend(args.put.split_whitespace());
        let producer = host.spawn(transport, &words);
        let name = producer.json_line()["name"].as_str().context("a name")?.to_owned();
        Ok(Self { producer: Some(producer), name, sha256 })
    }
}

fn run_round(args: &Args, faces: &str, number: u64) -> anyhow::Result<Round> {
    let host = Host::new();
    let routers = Routers::start(args, faces, &host)?;
    let (consumer, producer) = routers.transports(faces)?;
    let mut round = Round::new();
    let mut fetch = |offer: &Offer, phase: Option<&str>| -> anyhow::Result<()> {
        let figures = fetch(args, faces, &host, &consumer, &routers, offer)?;
        let named = |phase| figures.map(|(name, value)| (format!("{phase}_{name}"), value));
        round.extend(phase.into_iter().flat_map(named));
        Ok(())
    };
    let seed = number * 3;
    let mut offer = Offer::new(args, faces, &host, &producer, seed)?;
    fetch(&offer, Some("cold"))?;
    // Stop the producer, so that all Data comes from the store. Fetch at once, before other Data
    // evicts it.
    offer.producer = None;
    fetch(&offer, Some("warm"))?;
    if args.full {
        // The second fetch fills the store; the third finds it full.
        for (more, phase) in [(1, None), (2, Some("full"))] {
            let offer = Offer::new(args, faces, &host, &producer, seed + more)?;
            fetch(&offer, phase)?;
        }
    }
    let near = routers.near().process.id();
    round.push(("router_peak_mib".into(), memory_mib(near, "VmHWM:")?));
    let over_store = memory_mib(near, "VmRSS:")? - store_mib(args) as f64;
    round.push(("router_over_store_mib".into(), over_store));
    Ok(round)
}

/// One fetch: goodput, the routers' processor time for each Data, retransmissions.
fn fetch(
    args: &Args,
    faces: &str,
    host: &Host,
    transport: &str,
    routers: &Routers,
    offer: &Offer,
) -> anyhow::Result<[(&'static str, f64); 3]> {
    let before = routers.processor_seconds()?;
    let target = host.path("target");
    let output = if args.discard { Path::new("/dev/null") } else { &target };
    let mut words = vec!["get", &offer.name, "-o", output.to_str().context("UTF-8")?, "--json"];
    words.extend(mapping_words(faces));
    words.extend(args.get.split_whitespace());
    let report = host.spawn(transport, &words).finish().success().json();
    let used = routers.processor_seconds()? - before;
    let size = args.mebibytes << 20;
    ensure!(report["bytes"] == size, "the file came whole: {report}");
    if !args.discard {
        ensure!(sha256_hex(&target) == offer.sha256, "the copy is identical");
        std::fs::remove_file(&target)?;
    }
    let number = |key: &str| report[key].as_f64().with_context(|| format!("{key}: {report}"));
    Ok([
        ("gbps", size as f64 * 8e-9 / number("seconds")?),
        ("router_us_per_data", used * 1e6 / number("segments")?),
        ("retransmissions", number("retransmissions")?),
    ])
}

/// User and system time of a process and its threads so far.
fn processor_seconds(id: u32) -> anyhow::Result<f64> {
    let total_ns: u64 = threads_ns(id)?.iter().map(|(_, ran_ns)| ran_ns).sum();
    Ok(total_ns as f64 * 1e-9)
}

/// A memory value of a process, in MiB.
fn memory_mib(id: u32, line: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let found = status.lines().find(|found| found.starts_with(line)).context("no such line")?;
    let kibibytes: f64 = found.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kibibytes / 1024.0)
}
