//! `weir demo`: shows Weir at work on one machine, without setup.
//!
//! The demo starts two routers, a producer and a consumer as separate processes, as they would run
//! on two machines. UDP on loopback joins the routers. Each program connects to its own router over
//! a Unix socket.
//!
//! 1. The consumer fetches a file from the producer through both routers (cold).
//! 2. The demo stops the producer.
//! 3. The consumer fetches the file again, now from the routers' stores (warm).

mod network;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::table::octets;
use crate::table::outln;
use crate::transfer::{Interrupted, Stop};
use network::{Network, Served};
use weir_base::units::Size;

/// Send a file through two routers and check the copies.
///
/// The demo starts two routers, a producer and a consumer on this machine. The consumer fetches the
/// file twice: first from the producer, then, after the producer has stopped, from the routers'
/// stores. Exit code 0 means that both copies equal the original.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir demo --size 16MiB\n  weir demo --file /etc/services --json"
)]
pub(crate) struct Args {
    /// Send this file [default: a file of random bytes]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Size of the random file, such as 16MiB
    #[arg(long, default_value = "256MiB", conflicts_with = "file",
        value_parser = crate::quantity::size)]
    size: Size,
    /// Print the results as one JSON object
    #[arg(long, help_heading = crate::help::OUTPUT)]
    json: bool,
}

/// The result of one fetch, as `--json` prints it.
#[derive(Serialize)]
struct Transfer {
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    sha256_ok: bool,
    interests: u64,
    served_by: Vec<Served>,
}

#[derive(Serialize)]
struct Report {
    cold: Transfer,
    warm: Transfer,
}

/// Time between two checks for a signal.
const STOP_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

const OBJECT_NAME: &str = "/demo/file";

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let say = |text: &str| {
        if !args.json {
            crate::table::errln!("{text}");
        }
    };
    // On a signal, kill the child processes. The main thread then returns and removes the files.
    let stop = Stop::on_signals()?;
    std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.is_set() {
                std::thread::sleep(STOP_CHECK_INTERVAL);
            }
            network::stop_all();
        }
    });
    let dir = tempfile::tempdir().context("cannot make a temporary folder (see TMPDIR)")?;
    let source = match &args.file {
        Some(file) => file.clone(),
        None => {
            say(&format!("creating a random file of {}", octets(args.size.bytes)));
            make_random_file(&dir.path().join("source"), args.size.bytes, &stop)?
        }
    };
    let (size, expected) = measure(&source)?;
    say("starting four processes:");
    say("  producer -- router 1 -- (UDP on loopback) -- router 2 -- consumer");
    let mut network = Network::start(dir.path(), store_size(size))?;
    let versioned = network.put(&source, OBJECT_NAME)?;
    say(&format!("the producer signed the file and serves it as {versioned}"));
    let cold = fetch(&network, &dir.path().join("cold"), &expected)?;
    network.stop_producer()?;
    say("stopped the producer; fetching the file again");
    let warm = fetch(&network, &dir.path().join("warm"), &expected)?;
    network.stop()?;
    let report = Report { cold, warm };
    if args.json {
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        print_table(&report)?;
    }
    // Fail only now, so that the report shows which copy differs.
    for (label, copy) in [("cold", &report.cold), ("warm", &report.warm)] {
        if !copy.sha256_ok || copy.bytes != size {
            bail!("the {label} copy differs from the source");
        }
    }
    Ok(())
}

/// The store size, in bytes, that holds all segments with their names, signatures and index.
fn store_size(file_size: u64) -> u64 {
    file_size + file_size / 8 + (32 << 20)
}

fn fetch(network: &Network, target: &Path, expected: &[u8; 32]) -> anyhow::Result<Transfer> {
    let fetched = network.get(OBJECT_NAME, target)?;
    let (bytes, sha256) = measure(target)?;
    std::fs::remove_file(target).with_context(|| format!("cannot remove {}", target.display()))?;
    Ok(Transfer {
        bytes,
        seconds: fetched.seconds,
        goodput_bps: bytes as f64 * 8.0 / fetched.seconds.max(f64::MIN_POSITIVE),
        sha256_ok: sha256 == *expected,
        interests: fetched.interests,
        served_by: fetched.served_by,
    })
}

fn make_random_file(path: &Path, size: u64, stop: &Stop) -> anyhow::Result<PathBuf> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).context("cannot get random bytes from the system")?;
    let mut random = Pcg64Mcg::from_seed(seed);
    let context = || format!("cannot write {} (is the disk full? see TMPDIR)", path.display());
    let mut file = std::fs::File::create(path).with_context(context)?;
    let mut block = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        ensure!(!stop.is_set(), Interrupted(""));
        random.fill_bytes(&mut block);
        let len = left.min(block.len() as u64);
        file.write_all(&block[..len as usize]).with_context(context)?;
        left -= len;
    }
    Ok(path.to_path_buf())
}

/// Size and SHA-256 of a file.
fn measure(path: &Path) -> anyhow::Result<(u64, [u8; 32])> {
    let context = || format!("cannot read {}", path.display());
    let mut file = std::fs::File::open(path).with_context(context)?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let len = file.read(&mut block).with_context(context)?;
        if len == 0 {
            return Ok((size, digest.finalize().into()));
        }
        digest.update(&block[..len]);
        size += len as u64;
    }
}

fn print_table(report: &Report) -> anyhow::Result<()> {
    outln!()?;
    outln!(
        "{:4}  {:>13}  {:>8}  {:>7}  {:>9}  {:9}  served by",
        "",
        "bytes",
        "seconds",
        "Gbit/s",
        "Interests",
        "SHA-256"
    )?;
    for (label, transfer) in [("cold", &report.cold), ("warm", &report.warm)] {
        let sources: Vec<String> = transfer
            .served_by
            .iter()
            .map(|served| format!("{} ({} Data)", served.source, served.packets))
            .collect();
        outln!(
            "{label:4}  {:>13}  {:>8.3}  {:>7.2}  {:>9}  {:9}  {}",
            transfer.bytes,
            transfer.seconds,
            transfer.goodput_bps / 1e9,
            transfer.interests,
            if transfer.sha256_ok { "identical" } else { "DIFFERENT" },
            sources.join(", "),
        )?;
    }
    outln!()?;
    outln!("cold: the producer sent the file through both routers, which stored copies.")?;
    outln!("warm: the producer was stopped; the routers' stores sent the file.")?;
    outln!("The consumer verified the producer's signature of each segment.")?;
    Ok(())
}
