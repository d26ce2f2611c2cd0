//! A file through two routers with disk stores, on real processes, sockets and disks:
//! `weir put`, far router, UDP, near router, `weir get`, every segment verified.
//!
//! `cargo build --release && WEIR_BIN=target/release/weir cargo run --release -p weir-benches --bin
//! through_disks -- --folder FOLDER` reports medians over rounds, beside what XCache (XRootD 5.5.3)
//! reached on a machine of this kind. Memory holds an eighth of the file, so that the disks matter;
//! the disks are read past the page cache, so that there is none to drop: "warm, restarted" is the
//! near router started anew, with nothing in memory. Interests that find many reads before the disk
//! go on to the far router (`bypass`), whose disk has the file too; `--settings 'bypass = "off"'`
//! leaves the near disk alone with it.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use serde_json::{Value, json};
use weir_tests::{DiskStore, Router, Site, random_file, sha256_hex};

#[derive(Parser)]
struct Args {
    /// Size of the file, MiB.
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
    /// Memory of each store, MiB.
    #[arg(long, default_value_t = 128)]
    memory_mebibytes: usize,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the files of the disks are made; by default where temporary files are.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Disks of each router.
    #[arg(long, default_value_t = 1)]
    disks: usize,
    /// Lines of `[disks]`, for example 'offer = "arrival"'.
    #[arg(long, default_value = "")]
    settings: String,
    /// Lines of each `[[disk]]`, for example 'engine = "threads"'.
    #[arg(long, default_value = "")]
    each: String,
    /// More arguments for `weir get`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    get: String,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Cases and what XCache reached in them, Gbit/s: cold, warm, warm with its page cache dropped.
const CASES: [(&str, f64); 3] = [("cold", 1.8), ("warm", 4.5), ("warm, restarted", 3.8)];

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let goodputs_gbps = run_round(&args, round as u64)?;
        eprintln!("round {round}: {goodputs_gbps:.2?} Gbit/s");
        rounds.push(goodputs_gbps);
    }
    let mut report = serde_json::Map::new();
    for (case, (name, xcache_gbps)) in CASES.into_iter().enumerate() {
        let mut goodputs: Vec<f64> = rounds.iter().map(|round| round[case]).collect();
        goodputs.sort_by(f64::total_cmp);
        let median_gbps = goodputs[goodputs.len() / 2];
        if !args.json {
            let ratio = median_gbps / xcache_gbps;
            println!("{name:16} {median_gbps:6.2} Gbit/s   XCache {xcache_gbps:.1}   {ratio:.2} x");
        }
        report.insert(name.into(), json!({ "gbps": median_gbps, "xcache_gbps": xcache_gbps }));
    }
    if args.json {
        println!("{}", Value::Object(report));
    }
    Ok(())
}

fn store(args: &Args, name: &str) -> DiskStore {
    // Records are whole blocks: of 4,096 octets, those of a file signed with a key take half as
    // much again.
    let size_mib = (args.mebibytes * 7 / 4).div_ceil(args.disks) + 64;
    DiskStore {
        disks: args.disks,
        size: format!("{size_mib}MiB"),
        memory: format!("{}MiB", args.memory_mebibytes),
        settings: format!("{}\n", args.settings),
        each: format!("{}\n", args.each),
        folder: args.folder.clone(),
        ..DiskStore::new(name)
    }
}

fn run_round(args: &Args, seed: u64) -> anyhow::Result<Vec<f64>> {
    let site = Site::new();
    let source = site.path("source");
    let expected = random_file(&source, args.mebibytes << 20, seed);
    let (near_store, far_store) = (store(args, "near"), store(args, "far"));
    let _files = Files(&[&near_store, &far_store], &site);
    let far = far_store.start(&site);
    let mut near = start_near(&near_store, &site, &far);
    let words = ["put", source.to_str().context("UTF-8")?, "/bench/file", "--json"];
    let producer = site.weir(&far.unix(), &words);
    let name = producer.json_line()["name"].as_str().context("a name")?.to_owned();
    let mut goodputs = Vec::new();
    goodputs.push(fetch(args, &site, &near, &name, &expected)?);
    let disk = near.disks_settle(&site);
    // What the disks could not take while it came is asked for again, and counted.
    eprintln!("  passed by the disk: {} of {} Data", disk["passedBy"], disk["writes"]);
    goodputs.push(fetch(args, &site, &near, &name, &expected)?);
    near.process.signal(nix::sys::signal::Signal::SIGTERM);
    let _ = near.process.finish().success();
    near = start_near(&near_store, &site, &far);
    goodputs.push(fetch(args, &site, &near, &name, &expected)?);
    let disk = near.disk_status(&site);
    ensure!(disk["damaged"] == 0, "{disk}");
    drop(producer);
    Ok(goodputs)
}

fn start_near(store: &DiskStore, site: &Site, far: &Router) -> Router {
    let near = store.start(site);
    near.disks_settle(site);
    let _ = near.weir(site, &["route", "add", "/bench", &far.udp()]).success();
    near
}

fn fetch(
    args: &Args,
    site: &Site,
    near: &Router,
    name: &str,
    expected: &str,
) -> anyhow::Result<f64> {
    let target = site.path("target");
    let target_text = target.to_str().context("UTF-8")?;
    let mut words = vec!["get", name, "-o", target_text, "--json"];
    words.extend(args.get.split_whitespace());
    let report = site.weir(&near.unix(), &words).finish().success().json();
    let disk = near.disk_status(site);
    eprintln!(
        "  {:.2} s, served by {}; from disk {}, bypassed {}, stalls {}",
        report["seconds"].as_f64().unwrap_or_default(),
        report["served_by"],
        disk["answered"],
        disk["bypassed"],
        disk["stalls"]
    );
    ensure!(sha256_hex(&target) == expected, "the copy is identical");
    std::fs::remove_file(&target)?;
    let seconds = report["seconds"].as_f64().context("seconds")?;
    Ok((args.mebibytes << 20) as f64 * 8e-9 / seconds)
}

/// Files of disks outside the site, which go with their round.
struct Files<'a>(&'a [&'a DiskStore], &'a Site);

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for store in self.0 {
            for disk in 0..store.disks {
                let _ = std::fs::remove_file(store.file(self.1, disk));
            }
        }
    }
}
