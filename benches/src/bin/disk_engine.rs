//! Compares the disk engine with fio on the same file: the same random reads and the same writes,
//! in alternating rounds.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use serde_json::json;
use weir_base::{Packet, Rng};
use weir_benches::median;
use weir_disk::{DiskFileConfig, DiskMonitor, DiskPorts, Engine, open};
use weir_store::disk::{
    DiskGeometry, DiskOp, DiskOpId, DiskOpKind, DiskOutcome, WriteChunk, record,
};

/// Size of a Data with 8,192 bytes of content, with name, MetaInfo and ECDSA signature.
const DATA_BYTES: usize = 8192 + 160;

/// Compares the disk engine with fio.
#[derive(Parser)]
struct Options {
    /// The file to create, on a file system whose speed is steady enough to compare.
    #[arg(long)]
    path: PathBuf,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of measurements of each kind; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, value_enum, default_value_t = Which::Uring)]
    engine: Which,
    /// Lets fio register the file and buffers as well.
    #[arg(long)]
    fio_registered: bool,
    /// Uses the page cache.
    #[arg(long)]
    buffered: bool,
    /// Only rows whose name starts with this text.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON object of medians.
    #[arg(long)]
    json: bool,
}

#[derive(Copy, Clone, ValueEnum, PartialEq)]
enum Which {
    Uring,
    Threads,
}

/// One row of the table.
#[derive(Clone)]
struct Row {
    name: String,
    is_write: bool,
    is_random: bool,
    /// Number of records in one operation.
    records: u64,
    depth: u32,
}

fn rows() -> Vec<Row> {
    let row = |name: &str, is_write, is_random, records, depth| Row {
        name: format!("{name} depth {depth}"),
        is_write,
        is_random,
        records,
        depth,
    };
    let reads = [1, 16, 64].map(|depth| row("read record,", false, true, 1, depth));
    let gathered = [1, 4, 16].map(|depth| row("write 30 records,", true, false, 30, depth));
    let single = [1, 16, 64].map(|depth| row("write record,", true, true, 1, depth));
    reads.into_iter().chain(gathered).chain(single).collect()
}

/// Drives the engine like a worker thread.
struct Driver {
    ports: DiskPorts,
    geometry: DiskGeometry,
    packet: Packet,
    rng: Rng,
    next: u64,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
    poll: Poll,
    events: Events,
}

impl Driver {
    fn record_bytes(&self) -> u64 {
        record::size(DATA_BYTES, self.geometry.block_bytes)
    }

    /// Number of positions on the disk for operations of `records` records.
    fn slots(&self, records: u64) -> u64 {
        let data = u64::from(self.geometry.regions) * self.geometry.region_bytes;
        data / (self.record_bytes() * records)
    }

    fn offset(&self, slot: u64, records: u64) -> u64 {
        self.geometry.data_offset + slot * records * self.record_bytes()
    }

    fn submit(&mut self, row: &Row) {
        let slots = self.slots(row.records);
        let slot = if row.is_random { self.rng.next_u64() % slots } else { self.next % slots };
        let offset = self.offset(slot, row.records);
        let len = (row.records * self.record_bytes()) as u32;
        let kind = if row.is_write {
            let part = || WriteChunk::Data { packet: self.packet.clone(), fresh_until_unix_ms: 0 };
            let parts = (0..row.records).map(|_| part()).collect();
            DiskOpKind::Write { offset, len, sequence: 1, chunks: parts }
        } else {
            DiskOpKind::ReadRecord { offset, len, sequence: 1 }
        };
        self.ports.submit(DiskOp { id: DiskOpId(self.next), disk: 0, kind });
        self.next += 1;
    }

    /// Operations per second while `goes_on` returns true. Its arguments: operations started, and
    /// time.
    fn work(&mut self, row: &Row, goes_on: impl Fn(u64, Duration) -> bool) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let (mut begun, mut ended) = (0, 0_u64);
        loop {
            while begun - ended < u64::from(row.depth) && goes_on(begun, begin.elapsed()) {
                self.submit(row);
                // Start operations one by one, like fio.
                self.ports.flush();
                begun += 1;
            }
            if ended == begun {
                break;
            }
            self.ports.drain(&mut self.outcomes);
            if self.outcomes.is_empty() {
                // `drain` may have queued the rest of an operation that ended early: start it.
                self.ports.flush();
                match self.poll.poll(&mut self.events, None) {
                    Err(error) if error.kind() != std::io::ErrorKind::Interrupted => bail!(error),
                    _ => continue,
                }
            }
            ended += self.outcomes.len() as u64;
            for (_, outcome) in self.outcomes.drain(..) {
                match outcome {
                    DiskOutcome::Written => {}
                    // The engine has checked the whole record.
                    DiskOutcome::Record { packet, .. } => {
                        ensure!(packet.len() == DATA_BYTES && packet[..64] == self.packet[..64]);
                    }
                    other => bail!("an operation ended with {other:?}"),
                }
            }
        }
        Ok(ended as f64 / begin.elapsed().as_secs_f64())
    }

    /// Writes a record to every position.
    fn fill(&mut self) -> anyhow::Result<()> {
        let row = Row { is_write: true, is_random: false, records: 30, depth: 4, name: "".into() };
        self.next = 0;
        let slots = self.slots(row.records);
        self.work(&row, |begun, _| begun < slots)?;
        let row = Row { records: 1, ..row };
        // The positions after the last whole group.
        let all = self.slots(1);
        self.next = slots * 30;
        let left = all - self.next;
        self.work(&row, |begun, _| begun < left)?;
        Ok(())
    }
}

fn fio(options: &Options, row: &Row, driver: &Driver) -> anyhow::Result<f64> {
    let bytes = row.records * driver.record_bytes();
    let kind = match (row.is_write, row.is_random) {
        (false, _) => "randread",
        (true, true) => "randwrite",
        (true, false) => "write",
    };
    let mut command = Command::new("fio");
    command
        .args(["--name=row", "--ioengine=io_uring", "--output-format=json", "--norandommap"])
        .args(["--time_based", "--group_reporting", "--randrepeat=0", "--allow_file_create=0"])
        .arg(format!("--filename={}", options.path.display()))
        .arg(format!("--rw={kind}"))
        .arg(format!("--bs={bytes}"))
        .arg(format!("--iodepth={}", row.depth))
        .arg(format!("--direct={}", u8::from(!options.buffered)))
        .arg(format!("--offset={}", driver.geometry.data_offset))
        .arg(format!("--size={}", driver.slots(row.records) * bytes))
        .arg(format!("--runtime={}ms", (options.seconds * 1000.0) as u64));
    if options.fio_registered {
        command.args(["--fixedbufs", "--registerfiles"]);
    }
    let output = command.output().context("cannot start fio")?;
    if !output.status.success() {
        bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value =
        serde_json::from_str(&text[text.find('{').context("fio reports nothing")?..])?;
    let job = &report["jobs"][0][if row.is_write { "write" } else { "read" }];
    job["iops"].as_f64().context("fio reports no rate")
}

fn has_fio() -> bool {
    Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn begin(options: &Options, path: &Path, depth: u32) -> anyhow::Result<(DiskMonitor, Driver)> {
    let engine = match options.engine {
        Which::Uring => Engine::IoUring,
        Which::Threads => Engine::Threads(16),
    };
    let config = DiskFileConfig {
        engine,
        direct: !options.buffered,
        ..DiskFileConfig::new(path, Some(options.mib << 20))
    };
    let set = open(&[config], 1)?;
    let geometry = set.geometry(0, 0);
    let (monitor, mut ports) = set.start(depth, 1)?;
    let ports = ports.remove(0);
    let poll = Poll::new()?;
    for source in ports.sources() {
        let source = source.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), Token(0), Interest::READABLE)?;
    }
    let mut octets = vec![0; DATA_BYTES];
    Rng::from_seed(7).fill(&mut octets);
    let driver = Driver {
        ports,
        geometry,
        packet: Packet::from(octets),
        rng: Rng::from_seed(1),
        next: 0,
        outcomes: Vec::new(),
        poll,
        events: Events::with_capacity(16),
    };
    Ok((monitor, driver))
}

/// Operations per second of one row in each round.
struct Rates {
    ours: Vec<f64>,
    /// Rates of fio; empty if it is not installed.
    theirs: Vec<f64>,
}

impl Rates {
    fn measure(options: &Options, row: &Row, driver: &mut Driver) -> anyhow::Result<Self> {
        let mut rates = Self { ours: Vec::new(), theirs: Vec::new() };
        let has_fio = has_fio();
        let time = Duration::from_secs_f64(options.seconds);
        for _ in 0..options.rounds {
            rates.ours.push(driver.work(row, |_, elapsed| elapsed < time)?);
            if has_fio {
                rates.theirs.push(fio(options, row, driver)?);
            }
        }
        ensure!(!rates.ours.is_empty(), "--rounds: one at least");
        Ok(rates)
    }

    fn to_json(&self) -> serde_json::Value {
        let theirs = (!self.theirs.is_empty()).then(|| median(self.theirs.clone()));
        json!({ "per_second": median(self.ours.clone()), "fio_per_second": theirs })
    }

    /// Prints medians and the best rounds, which are more reliable while other programs run.
    fn print(&self, row: &Row) {
        let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let (median_ours, best_ours) = (median(self.ours.clone()), best(&self.ours));
        print!("{:28} {median_ours:>9.0}", row.name);
        if self.theirs.is_empty() {
            println!(" {:>9} {:>8} {best_ours:>9.0} {:>9} {:>8} {:>6}", "-", "-", "-", "-", load());
            return;
        }
        let (median_theirs, best_theirs) = (median(self.theirs.clone()), best(&self.theirs));
        let percent = |ours: f64, theirs: f64| format!("{:.1} %", 100.0 * ours / theirs);
        println!(
            " {median_theirs:>9.0} {:>8} {best_ours:>9.0} {best_theirs:>9.0} {:>8} {:>6}",
            percent(median_ours, median_theirs),
            percent(best_ours, best_theirs),
            load()
        );
    }
}

fn print_heading(options: &Options, monitor: &DiskMonitor, driver: &Driver) {
    if !has_fio() {
        println!("fio is NOT installed: the engine's figures alone, nothing is compared");
    }
    println!(
        "{} ({}), {} MiB; a Data of {} bytes (8192 of content) takes {} bytes on disk; load {}",
        options.path.display(),
        monitor.kind(0),
        options.mib,
        DATA_BYTES,
        driver.record_bytes(),
        load(),
    );
    println!(
        "{:28} {:>9} {:>9} {:>8} {:>9} {:>9} {:>8} {:>6}",
        "operations a second", "weir", "fio", "ratio", "best", "fio", "ratio", "load"
    );
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let (monitor, mut driver) = begin(&options, &options.path, 64)?;
    driver.fill()?;
    if !options.json {
        print_heading(&options, &monitor, &driver);
    }
    let mut report = serde_json::Map::new();
    for row in rows() {
        if options.only.as_ref().is_some_and(|only| !row.name.starts_with(only.as_str())) {
            continue;
        }
        let rates = Rates::measure(&options, &row, &mut driver)?;
        if !options.json {
            rates.print(&row);
        }
        report.insert(row.name, rates.to_json());
    }
    if options.json {
        println!("{}", serde_json::Value::Object(report));
    }
    ensure!(driver.ports.close(Duration::from_secs(5)), "the disk does not answer");
    Ok(())
}
