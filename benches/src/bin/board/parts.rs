//! The parts of the board. Each runs a measurement of this repository as a separate process and
//! takes figures from its JSON output.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::limits::Limits;
use crate::programs::{Programs, number, output_of};
use crate::record::Figure;

pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Returns no figures, and prints the reason, if the machine lacks something.
    pub(crate) measure: fn(&mut Runs<'_>) -> Result<Vec<Figure>>,
}

/// All parts, in the order in which they are measured.
pub(crate) const PARTS: &[Part] = &[
    Part { name: "exchange", about: "router core in memory: exchanges, hits", measure: exchange },
    Part { name: "sizes", about: "exchanges by the size of store and FIB", measure: sizes },
    Part {
        name: "instructions",
        about: "the same in instructions, by callgrind",
        measure: instructions,
    },
    Part {
        name: "unix",
        about: "one router, Unix sockets",
        measure: |runs| one_router(runs, "unix"),
    },
    Part {
        name: "shm",
        about: "one router, shared memory",
        measure: |runs| one_router(runs, "shm"),
    },
    Part { name: "udp", about: "two routers that UDP joins", measure: two_routers },
    Part { name: "link", about: "egress and ingress of a face", measure: link },
    Part { name: "simulator", about: "networks under virtual time", measure: simulator },
    Part { name: "disk", about: "reads of the disk engine, compared with fio", measure: disk },
    Part { name: "controller", about: "a controller of 100 routers", measure: controller },
];

/// How the board measures.
pub(crate) struct BoardConfig {
    pub(crate) is_quick: bool,
    pub(crate) disk: Option<PathBuf>,
    pub(crate) programs: Programs,
    pub(crate) limits: Limits,
}

pub(crate) struct Runs<'a> {
    setting: &'a BoardConfig,
    pub(crate) commands: Vec<String>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(setting: &'a BoardConfig) -> Self {
        Self { setting, commands: Vec::new() }
    }

    fn json(&mut self, program: &str, words: &str) -> Result<Value> {
        let words: Vec<&str> = words.split_whitespace().chain(["--json"]).collect();
        self.commands.push(format!("{program} {}", words.join(" ")));
        self.setting.programs.json(program, &words)
    }

    /// Returns `all` in a full run, `quick` in a quick one.
    fn pick<T>(&self, all: T, quick: T) -> T {
        if self.setting.is_quick { quick } else { all }
    }

    fn limits(&self) -> &'a Limits {
        &self.setting.limits
    }
}

fn exchange(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let words = runs.pick("--rounds 5", "--rounds 3 --operations 500000");
    let report = runs.json("router_core", &format!("{words} --only exchange,hit,parse"))?;
    let figure = |name, key| -> Result<Figure> {
        Ok(Figure::new(name, "ns", number(&report, &[key, "ns"])?))
    };
    Ok(vec![
        figure("exchange that misses", "exchange")?,
        figure("hit, uniform", "hit_uniform")?,
        figure("hit, Zipf 0.8", "hit_zipf_0.8")?,
        figure("parse and hash a name", "parse_and_hash")?,
    ])
}

/// Numbers of Data in the store, and of prefixes in the FIB.
const ENTRIES: [(u64, &str); 5] = [
    (1_000, "10^3"),
    (10_000, "10^4"),
    (100_000, "10^5"),
    (1_000_000, "10^6"),
    (10_000_000, "10^7"),
];
const PREFIXES: [(&str, &str); 4] =
    [("sites", "16"), ("runs", "1,024"), ("sets", "131,072"), ("objects", "10^6")];

/// The cost of an exchange must not depend on the size of the store and FIB.
fn sizes(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    if runs.setting.is_quick {
        println!("sizes: not with --quick");
        return Ok(Vec::new());
    }
    let mut ns = |words: String| -> Result<f64> {
        let words = format!("{words} --rounds 5 --operations 500000 --only exchange");
        number(&runs.json("router_core", &words)?, &["exchange", "ns"])
    };
    let mut figures = Vec::new();
    for (entries, count) in ENTRIES {
        let outstanding = (entries / 10).min(100_000);
        let took = ns(format!("--entries {entries} --outstanding {outstanding}"))?;
        figures.push(Figure::new(&format!("exchange, {count} Data stored"), "ns", took));
    }
    for (fib, count) in PREFIXES {
        let took = ns(format!("--fib {fib}"))?;
        figures.push(Figure::new(&format!("exchange, {count} prefixes"), "ns", took));
    }
    Ok(figures)
}

/// Data in the store, and exchanges measured, under callgrind.
const CALLGRIND_ENTRIES: u64 = 50_000;
const CALLGRIND_OUTSTANDING: u64 = 10_000;
const CALLGRIND_OPERATIONS: u64 = 100_000;

/// As in `benches/README.md`: the total, minus filling the store.
fn instructions(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    if runs.setting.is_quick || Command::new("valgrind").arg("--version").output().is_err() {
        let reason = runs.pick("valgrind is not installed", "not with --quick");
        println!("instructions: {reason}");
        return Ok(Vec::new());
    }
    // The measurement `parse` does not use the router, so its run counts only filling the store.
    let filling = callgrind(runs, "parse")?;
    let exchanges = callgrind(runs, "exchange")? - filling;
    let hits = callgrind(runs, "hit_uniform")? - filling;
    let per = |all: f64, count: u64| all / count as f64;
    // Besides the measured exchanges, the run completes those that were pending at the start.
    let exchanges = per(exchanges, CALLGRIND_OPERATIONS + CALLGRIND_OUTSTANDING);
    let hits = per(hits, CALLGRIND_OPERATIONS);
    Ok(vec![
        Figure::new("exchange that misses", "instructions", exchanges),
        Figure::new("hit, uniform", "instructions", hits),
    ])
}

/// Instructions of `Router::handle`, including its callees.
fn callgrind(runs: &mut Runs<'_>, only: &str) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let words = format!(
        "--entries {CALLGRIND_ENTRIES} --outstanding {CALLGRIND_OUTSTANDING} \
         --operations {CALLGRIND_OPERATIONS} --rounds 1 --only {only}"
    );
    runs.commands.push(format!("valgrind --tool=callgrind router_core {words}"));
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(runs.setting.programs.build("router_core")?).args(words.split(' '));
    output_of(&mut valgrind, "valgrind")?;
    let mut annotate = Command::new("callgrind_annotate");
    let text = output_of(annotate.arg("--inclusive=yes").arg(&out), "callgrind_annotate")?;
    let line = text.lines().find(|line| line.contains("Router::handle") && line.contains('%'));
    let line = line.context("callgrind saw no Router::handle")?;
    let count = line.split_whitespace().next().unwrap_or_default().replace(',', "");
    count.parse().with_context(|| format!("no count: {line}"))
}

/// One router, with applications over this kind of face.
fn one_router(runs: &mut Runs<'_>, faces: &str) -> Result<Vec<Figure>> {
    let words = runs.pick("--rounds 7", "--rounds 3");
    let words = format!("{words} --faces {faces} --full --discard");
    let report = runs.json("whole_system", &words)?[faces].take();
    let limits = runs.limits();
    let (warm_us, send_us, receive_us) = match faces {
        "shm" => (limits.ring_us, limits.ring_us, limits.copy_us),
        _ => (limits.unix_send_stored_us, limits.unix_send_us, limits.unix_receive_us),
    };
    // Cold: the producer sends, the router receives and sends, and the consumer receives and
    // verifies. Warm: the producer and the router's receiving are missing.
    let cold_us = receive_us + send_us;
    let consumer_us = receive_us + limits.sha256_us;
    let warm_gbps = limits.gbps(warm_us + consumer_us);
    let cold_gbps = limits.gbps(send_us + cold_us + consumer_us);
    let us = |phase: &str, limit| fetched(&report, phase, "router_us_per_data", limit);
    let gbps = |phase: &str, limit| fetched(&report, phase, "gbps", limit);
    Ok(vec![
        us("cold", cold_us)?,
        us("full", cold_us)?,
        us("warm", warm_us)?,
        gbps("cold", cold_gbps)?,
        gbps("full", cold_gbps)?,
        gbps("warm", warm_gbps)?,
        Figure::new("resident beyond --store", "MiB", number(&report, &["router_over_store_mib"])?),
    ])
}

/// A figure of `whole_system`, named for the board.
fn fetched(report: &Value, phase: &str, key: &str, limit: f64) -> Result<Figure> {
    let (what, unit) = match key {
        "gbps" => ("get, verified, /dev/null", "Gbit/s"),
        _ => ("router time a Data of 8000 octets", "us"),
    };
    let phase_name = match phase {
        "cold" => "cold, growing",
        "full" => "cold, full",
        other => other,
    };
    let value = number(report, &[&format!("{phase}_{key}")])?;
    Ok(Figure::new(&format!("{what}, {phase_name}"), unit, value).with_limit(limit))
}

fn two_routers(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let words = runs.pick("--rounds 5", "--rounds 3");
    let report = runs.json("whole_system", &format!("{words} --faces two-udp --discard"))?;
    let report = &report["two-udp"];
    let limits = runs.limits();
    let warm_us = limits.unix_send_stored_us;
    let between_us = limits.udp_send_us + limits.udp_receive_us;
    let cold_us = limits.unix_receive_us + between_us + limits.unix_send_us;
    let consumer_us = limits.consumer_us();
    let cold_gbps = limits.gbps(limits.unix_send_us + cold_us + consumer_us);
    let again = number(report, &["cold_retransmissions"])?;
    Ok(vec![
        fetched(report, "cold", "router_us_per_data", cold_us)?,
        fetched(report, "warm", "router_us_per_data", warm_us)?,
        fetched(report, "cold", "gbps", cold_gbps)?,
        fetched(report, "warm", "gbps", limits.gbps(warm_us + consumer_us))?,
        Figure::new("Interests sent again, cold", "", again),
    ])
}

fn link(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let count = runs.pick("1000000", "200000");
    let egress = runs.json("egress_speed", &format!("nfd fifo 0 {count} data"))?;
    let ingress = runs.json("ingress_speed", &format!("none 0 {count}"))?;
    Ok(vec![
        Figure::new("egress, a packet", "ns", number(&egress, &["ns"])?),
        Figure::new("ingress and egress, an exchange", "ns", number(&ingress, &["ns"])?),
    ])
}

fn simulator(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let rounds = runs.pick(3, 1);
    let mut figures = Vec::new();
    for (shape, seconds, name) in
        [("tree", 1.0, "127 routers"), ("large", 0.5, "1,000 routers, 10,000 consumers")]
    {
        let words = format!("--shape {shape} --seconds {seconds} --rounds {rounds}");
        let report = runs.json("simulator", &words)?;
        let mhops = number(&report, &[shape, "mhops_per_s"])?;
        figures.push(Figure::new(name, "M hops/s", mhops));
    }
    Ok(figures)
}

fn disk(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let Some(path) = &runs.setting.disk else {
        println!("disk: give a file for it with --disk, on a file system that is steady");
        return Ok(Vec::new());
    };
    let path = path.to_str().context("--disk: a path of UTF-8")?;
    let words = runs.pick("--rounds 7 --seconds 1", "--rounds 3 --seconds 0.5");
    let words = format!("--path {path} --mib 512 --only read {words}");
    let report = runs.json("disk_engine", &words)?;
    // Records are shared: keep the path of this machine out of them.
    if let Some(command) = runs.commands.last_mut() {
        *command = command.replace(path, "FILE");
    }
    let mut figures = Vec::new();
    for depth in [1, 16, 64] {
        let row = format!("read record, depth {depth}");
        let ours = number(&report, &[&row, "per_second"])?;
        let figure = Figure::new(&row, "thousand/s", ours / 1000.0);
        figures.push(match report[&row]["fio_per_second"].as_f64() {
            Some(theirs) => figure.with_limit(theirs / 1000.0),
            None => figure,
        });
    }
    Ok(figures)
}

fn controller(runs: &mut Runs<'_>) -> Result<Vec<Figure>> {
    let objects = runs.pick(10_000, 2000);
    let report = runs.json("control_speed", &format!("100 {objects}"))?;
    Ok(vec![
        Figure::new("decision, median", "us", number(&report, &["decision", "median_us"])?),
        Figure::new("decision, p99", "us", number(&report, &["decision", "p99_us"])?),
    ])
}
