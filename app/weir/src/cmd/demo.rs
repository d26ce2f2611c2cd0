//! `weir demo`: the whole of Weir on one machine, with nothing to set up.
//!
//! Two routers, a producer and a consumer run as processes of their own, as they would on two
//! machines: UDP on loopback joins the routers, and each program reaches its own router by a Unix
//! socket. A file is fetched cold, through both routers from the producer, then warm, with the
//! producer stopped.

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
use network::Network;
use weir_base::units::Size;

/// Move a real file through two routers, cold and warm, and verify it.
///
/// Starts two routers, a producer and a consumer as processes of their own; UDP on loopback joins
/// the routers. The file comes first from the producer, then, with the producer stopped, from what
/// the routers have kept. Exit code 0 means that both copies are identical to the source.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to move; without it, one of random octets is made.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Size of the file that is made.
    #[arg(long, default_value = "256MiB", conflicts_with = "file")]
    size: Size,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

/// One fetch of the file, as `--json` prints it.
#[derive(Serialize)]
struct Transfer {
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    sha256_ok: bool,
    interests: u64,
    /// Segments by where they came from: `store of router 1`, `store of router 2` (by their counts
    /// of hits), and `producer` for the rest.
    served_by: std::collections::BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Report {
    cold: Transfer,
    warm: Transfer,
}

/// How long a signal may go unnoticed.
const STOP_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

const OBJECT_NAME: &str = "/demo/file";

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let say = |text: &str| {
        if !args.json {
            crate::table::errln!("{text}");
        }
    };
    // Neither processes nor files stay when it is broken off.
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
            say(&format!("making a file of {} of random octets", octets(args.size.bytes)));
            make_random_file(&dir.path().join("source"), args.size.bytes, &stop)?
        }
    };
    let (size, expected) = measure(&source)?;
    say("starting, as processes of their own:");
    say("  producer -- router 1 -- (UDP on loopback) -- router 2 -- consumer");
    let mut network = Network::start(dir.path(), store_size(size))?;
    let versioned = network.put(&source, OBJECT_NAME)?;
    say(&format!("the producer signed it and serves it as {versioned}"));
    let cold = fetch(&network, &dir.path().join("cold"), &expected)?;
    network.stop_producer()?;
    say("the producer is stopped; fetching once more");
    let warm = fetch(&network, &dir.path().join("warm"), &expected)?;
    network.stop()?;
    let report = Report { cold, warm };
    if args.json {
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        print_table(&report)?;
    }
    for (label, copy) in [("cold", &report.cold), ("warm", &report.warm)] {
        if !copy.sha256_ok || copy.bytes != size {
            bail!("the {label} copy differs from the source");
        }
    }
    Ok(())
}

/// What a store needs to hold all segments: names, signatures and index come on top.
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
    getrandom::fill(&mut seed).context("the system gives no random octets")?;
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
        "octets",
        "seconds",
        "Gbit/s",
        "Interests",
        "SHA-256"
    )?;
    for (label, transfer) in [("cold", &report.cold), ("warm", &report.warm)] {
        let sources: Vec<String> = transfer
            .served_by
            .iter()
            .map(|(source, data)| format!("{source} ({data} Data)"))
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
    outln!("cold: the file came from the producer through both routers, which kept copies.")?;
    outln!("warm: the producer was gone; what the routers had kept was enough.")?;
    outln!("Each segment was verified against what the producer signed when it arrived.")?;
    Ok(())
}
