//! `weir cs`.

mod fetch;
mod list;
mod pin;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use weir_base::{CounterKind, Counters};
use weir_forward::BusyStats;
use weir_manage::commands::Command;
use weir_manage::{
    ControlParameters, CsDevice, CsDiskInfo, CsInfo, STORE_PACKET_BYTES, store_flags,
};
use weir_store::disk::DiskTierStats;
use weir_store::{HoldingsStatus, SegmentRange};
use weir_wire::Name;

use crate::cmd::face::Switch;
use crate::management_client::{ManagementArgs, ManagementClient};
use crate::table::{count, fields, octets, out, outln};
use crate::transfer::parse_prefix;
use weir_base::units::Size;

/// Show, configure and erase the content store of a running router.
///
/// The content store keeps copies of forwarded Data and answers Interests with them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir cs info\n  weir cs config --capacity 1GiB")]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    #[command(subcommand)]
    command: Option<CsCommand>,
}

#[derive(Subcommand)]
enum CsCommand {
    /// Show the capacity and the counters of the store (the default command)
    #[command(after_help = "Examples:\n  weir cs info\n  weir cs info --json")]
    Info,
    /// Change the capacity of the memory tier, or turn parts of the store on and off
    #[command(
        after_help = "Examples:\n  weir cs config --capacity 1GiB\n  weir cs config --admit on \
                      --serve on"
    )]
    Config {
        /// Capacity of the memory tier, such as 1GiB. 0 stores nothing [default: no change]
        #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size)]
        capacity: Option<Size>,
        /// Whether the store admits new Data [default: no change]
        #[arg(long, value_name = "ON|OFF")]
        admit: Option<Switch>,
        /// Whether the store answers Interests [default: no change]
        #[arg(long, value_name = "ON|OFF")]
        serve: Option<Switch>,
    },
    /// List the objects that the store holds, with their use
    ///
    /// An object is the name of stored Data without its last component: the segments of one version
    /// of a file, or the readings of one sensor. HELD is the part of the object that memory or the
    /// disks hold. HITS and SERVED count answers while the object was in memory; with disks, they
    /// continue from the first `weir cs list` on. LAST USE is the last answer or arrival.
    ///
    /// The router needs memory while it makes the list: 1 % of the store, but at least 32 MiB.
    /// Beyond that, objects at the end of the order are left out, and the list says so.
    #[command(
        after_help = "Examples:\n  weir cs list --sort served --limit 10\n  weir cs list /demo \
                      --json"
    )]
    List(list::Args),
    /// Fetch an object into the store, and write nothing here
    ///
    /// Verifies each segment like `weir get`, then asks the router how much of the object it holds.
    /// Of a directory, fetches all entries, and checks the first 10,000 objects.
    ///
    /// The exit code is 1 if the router does not hold everything. If the object cannot be fetched,
    /// it is 4 for not found, 5 for no route, 6 for not verified and 8 for no answer. If entries
    /// fail, it is the code of these failures if all are the same, otherwise 1.
    #[command(
        after_help = "Examples:\n  weir cs fetch /demo/services\n  weir cs fetch /data/run7 --json"
    )]
    Fetch(Box<fetch::Args>),
    /// Keep the Data under a prefix in memory
    ///
    /// Data that memory holds now, or that arrives later, stays until `weir cs unpin`, up to
    /// --size. All pins together may use fifteen sixteenths of the memory. A pin ends when the
    /// router stops, unless the prefix is in the configuration ([[pin]]). It takes precedence over
    /// rules of a controller for the same or a longer prefix.
    #[command(
        after_help = "Examples:\n  weir cs pin /demo/services\n  weir cs pin /demo --size 100MiB"
    )]
    Pin(pin::PinArgs),
    /// End a pin: the Data is evicted like any other
    #[command(
        after_help = "Examples:\n  weir cs unpin /demo/services\n  weir cs unpin /demo --json"
    )]
    Unpin(pin::UnpinArgs),
    /// Show which segments of an object the store holds
    ///
    /// The name includes the version but no segment number; `weir get` prints it. The router starts
    /// an index at the first request. Until the index is complete, the answer is marked as partial.
    #[command(
        after_help = "Examples:\n  weir cs holdings /demo/services/v=1700000000000\n  weir cs \
                      holdings /demo/services/v=1700000000000 --json"
    )]
    Holdings {
        /// The object, such as /data/file/v=1700000000000
        #[arg(value_parser = parse_prefix)]
        name: Name,
    },
    /// Erase the Data under a prefix
    ///
    /// Erased Data is no longer served. The erasure reaches the disks a few milliseconds later: if
    /// the router is killed (kill -9) before, it serves the Data again after a restart. Data on a
    /// read-only disk comes back after any restart. While the router still reads its disks after a
    /// start, it also erases Data that it has not read yet, but does not count it.
    ///
    /// A full name, which ends in sha256digest=, erases only the packet with that digest, such as a
    /// forged copy. (On disk it erases all packets of that name.) For one minute the router prefers
    /// other next hops to the one that sent this packet.
    #[command(
        after_help = "Examples:\n  weir cs erase /demo\n  weir cs erase /demo/services --soon"
    )]
    Erase {
        /// The prefix; / erases everything
        #[arg(value_parser = parse_prefix)]
        prefix: Name,
        /// Erase at most this number of Data packets [default: all]
        #[arg(long)]
        count: Option<u64>,
        /// Evict the Data in memory before any other instead of erasing it now: nothing is lost
        /// while there is room. Data on disks stays until its region is reused. Pinned Data stays
        #[arg(long, conflicts_with = "count")]
        soon: bool,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let is_json = args.router.json;
    match args.command.unwrap_or(CsCommand::Info) {
        CsCommand::Info => {}
        CsCommand::List(args) => return list::run(args, &mut client, is_json),
        CsCommand::Fetch(fetch) => return fetch::run(*fetch, &args.router),
        CsCommand::Pin(args) => return pin::pin(args, &mut client, is_json),
        CsCommand::Unpin(args) => return pin::unpin(args, &mut client, is_json),
        CsCommand::Holdings { name } => {
            let held = client.holdings(&name)?;
            if is_json {
                outln!("{}", holdings_json(&held))?;
            } else {
                out!("{}", holdings_text(&held))?;
            }
            return Ok(());
        }
        CsCommand::Config { capacity, admit, serve } => {
            configure(&mut client, capacity, admit, serve)?;
        }
        CsCommand::Erase { prefix, soon: true, .. } => {
            return evict_first(&mut client, &prefix, is_json);
        }
        CsCommand::Erase { prefix, count: limit, .. } => {
            let erased = erase(&mut client, &prefix, limit)?;
            if is_json {
                outln!("{}", json!({ "prefix": prefix.to_string(), "erased": erased }))?;
            } else {
                outln!("erased {} under {prefix}", count(erased, "Data packet", "Data packets"))?;
            }
            return Ok(());
        }
    }
    let info = store_info(&mut client)?;
    if is_json {
        outln!("{}", store_json(&info))?;
    } else {
        out!("{}", store_text(&info))?;
    }
    Ok(())
}

fn configure(
    client: &mut ManagementClient,
    capacity: Option<Size>,
    admit: Option<Switch>,
    serve: Option<Switch>,
) -> anyhow::Result<()> {
    if capacity.is_none() && admit.is_none() && serve.is_none() {
        bail!("nothing to change; use --capacity SIZE, --admit on|off or --serve on|off");
    }
    let (mut flags, mut mask) = (0, 0);
    for (switch, flag) in [(admit, store_flags::ADMIT), (serve, store_flags::SERVE)] {
        if let Some(switch) = switch {
            mask |= flag;
            flags |= if switch == Switch::On { flag } else { 0 };
        }
    }
    let parameters = ControlParameters {
        // The protocol counts the capacity in packets.
        capacity: capacity.map(|size| size.bytes.div_ceil(STORE_PACKET_BYTES)),
        flags: (mask != 0).then_some(flags),
        mask: (mask != 0).then_some(mask),
        ..ControlParameters::default()
    };
    client.command(Command::CsConfig, &parameters)?;
    Ok(())
}

/// Erases Data and returns the number of packets. The protocol erases in batches, so the command is
/// repeated until the router reports that nothing is left.
fn erase(client: &mut ManagementClient, prefix: &Name, limit: Option<u64>) -> anyhow::Result<u64> {
    let mut erased = 0;
    loop {
        let parameters = ControlParameters {
            name: Some(prefix.clone()),
            count: limit.map(|limit| limit - erased),
            ..ControlParameters::default()
        };
        if parameters.count == Some(0) {
            return Ok(erased);
        }
        let body = client.command(Command::CsErase, &parameters)?;
        erased += body.count.context("the router did not report how much it erased")?;
        // A response without Capacity means that nothing is left.
        if body.capacity.is_none() || body.count == Some(0) {
            return Ok(erased);
        }
    }
}

/// Marks the Data under a prefix to be evicted first.
fn evict_first(client: &mut ManagementClient, prefix: &Name, is_json: bool) -> anyhow::Result<()> {
    let parameters =
        ControlParameters { name: Some(prefix.clone()), ..ControlParameters::default() };
    let body = client.command(Command::CsEvictFirst, &parameters)?;
    let marked = body.count.context("the router did not report how much it marked")?;
    if is_json {
        outln!("{}", json!({ "prefix": prefix.to_string(), "marked": marked }))?;
    } else {
        let marked = count(marked, "Data packet", "Data packets");
        outln!("{marked} under {prefix} will be evicted first")?;
    }
    Ok(())
}

/// The holdings of an object as text.
fn holdings_text(held: &HoldingsStatus) -> String {
    let tier = |name: &str, ranges: &[SegmentRange]| {
        let segments = ranges.iter().map(|range| range.last - range.first + 1).sum();
        let list: Vec<String> = ranges.iter().map(range_text).collect();
        format!("  {name:<10} {}: {}\n", count(segments, "segment", "segments"), list.join(", "))
    };
    let mut text = String::new();
    for (name, ranges) in [("memory", &held.memory), ("disks", &held.disk)] {
        if !ranges.is_empty() {
            text.push_str(&tier(name, ranges));
        }
    }
    if text.is_empty() {
        text.push_str(if held.is_partial {
            "  no segments known yet\n"
        } else {
            "  no segments\n"
        });
    }
    if held.is_partial {
        text.push_str("  partial answer: the index is incomplete, so there may be more segments\n");
    }
    text
}

fn range_text(range: &SegmentRange) -> String {
    if range.first == range.last {
        range.first.to_string()
    } else {
        format!("{}-{}", range.first, range.last)
    }
}

/// The holdings of an object as JSON.
fn holdings_json(held: &HoldingsStatus) -> Value {
    let ranges = |ranges: &[SegmentRange]| -> Vec<[u64; 2]> {
        ranges.iter().map(|range| [range.first, range.last]).collect()
    };
    json!({
        "object": held.object.to_string(),
        "memory": ranges(&held.memory),
        "disk": ranges(&held.disk),
        "partial": held.is_partial,
    })
}

/// Requests the status of the store.
pub(crate) fn store_info(client: &mut ManagementClient) -> anyhow::Result<CsInfo> {
    let items = client.dataset::<CsInfo>("cs/info")?;
    items.into_iter().next().context("the router did not report its content store")
}

/// The status of the store as text.
pub(crate) fn store_text(info: &CsInfo) -> String {
    let is_set = |flag| info.flags & flag != 0;
    let lookups = info.hits + info.misses;
    let share = if lookups == 0 { 0.0 } else { info.hits as f64 * 100.0 / lookups as f64 };
    let capacity = match info.capacity_bytes {
        Some(bytes) => octets(bytes),
        None => count(info.capacity, "packet", "packets"),
    };
    let used = match info.bytes {
        Some(bytes) => {
            format!("{} in {}", octets(bytes), count(info.entries, "packet", "packets"))
        }
        None => count(info.entries, "packet", "packets"),
    };
    let state = match (is_set(store_flags::ADMIT), is_set(store_flags::SERVE)) {
        (true, true) => "on",
        (true, false) => "stores Data, does not answer Interests",
        (false, true) => "answers Interests, does not store Data",
        (false, false) => "off",
    };
    let answered =
        format!("{} of {} ({share:.1} %)", info.hits, count(lookups, "Interest", "Interests"));
    let rows = [
        ("capacity", capacity),
        ("used", used),
        ("answered", answered),
        ("state", state.to_owned()),
    ];
    let disk = info.disk.as_ref().map_or_else(Vec::new, disk_rows);
    let rows: Vec<_> = rows.into_iter().chain(disk).collect();
    fields(&rows)
}

/// The rows about disks. Rows about errors appear only if there were errors.
fn disk_rows(info: &CsDiskInfo) -> Vec<(&'static str, String)> {
    let (disk, busy): (DiskTierStats, BusyStats) = (info.table(), info.table());
    let disks = count(info.disks(), "disk", "disks");
    let bypassed = busy.bypassed_queue_full
        + busy.bypassed_slower
        + busy.bypassed_probe
        + busy.bypassed_stalled;
    let mut state = match u64::from(disk.stalled_set.count_ones()) {
        0 => "ok".to_owned(),
        stalled if stalled == info.disks() => "not responding".to_owned(),
        stalled => format!("{stalled} not responding"),
    };
    if disk.is_recovering() {
        state.push_str(", recovery in progress");
    }
    let records = count(disk.entries, "packet", "packets");
    let mut rows = vec![
        (
            "on disk",
            format!("{} of {} in {records}", octets(disk.bytes), octets(info.capacity_bytes())),
        ),
        ("disks", format!("{disks}, {state}; index {}", octets(disk.index_bytes))),
        (
            "disk reads",
            format!("{} ({} waiting), {} damaged", disk.reads, disk.reads_waiting, disk.damaged),
        ),
        ("writes", writes_text(&disk)),
        ("evicted", format!("{} from disk", count(disk.evictions, "packet", "packets"))),
        (
            "bypassed",
            format!(
                "{bypassed} Interests: {} queue full, {} slower, {} probes, {} stalled",
                busy.bypassed_queue_full,
                busy.bypassed_slower,
                busy.bypassed_probe,
                busy.bypassed_stalled
            ),
        ),
    ];
    if disk.read_errors + disk.write_errors + disk.stalls > 0 {
        let text = format!(
            "{} read errors, {} write errors, {} stalls",
            disk.read_errors, disk.write_errors, disk.stalls
        );
        rows.push(("errors", text));
    }
    if disk.passed_by + disk.no_room > 0 {
        let text = format!("{} write backlog full, {} no space", disk.passed_by, disk.no_room);
        rows.push(("not stored", text));
    }
    rows
}

/// The number of written packets, and the written bytes including checkpoints.
fn writes_text(disk: &DiskTierStats) -> String {
    let packets = count(disk.writes, "packet", "packets");
    let bytes = match disk.writes {
        0 => String::new(),
        _ => format!(", {} with checkpoints", octets(disk.written_bytes)),
    };
    format!("{packets} ({} waiting){bytes}", disk.writes_waiting)
}

/// The counters of the disks as JSON, each under its name.
fn disk_json(info: &CsDiskInfo) -> Value {
    let (disk, busy): (DiskTierStats, BusyStats) = (info.table(), info.table());
    let mut json = numbers_json(&disk);
    json.extend(numbers_json(&busy));
    json.insert("disks".to_owned(), info.disks().into());
    json.insert("capacity_bytes".to_owned(), info.capacity_bytes().into());
    json.insert("recovering".to_owned(), disk.is_recovering().into());
    let (latency_ns, reads_timed) = info.read_latency();
    json.insert("read_latency_sum_ns".to_owned(), latency_ns.into());
    json.insert("read_latency_count".to_owned(), reads_timed.into());
    Value::Object(json)
}

/// The counters of a table that appear in status datasets. The key of a counter is the name of its
/// field. A counter with a label is nested under the name of its metric. A set has the name of its
/// metric.
fn numbers_json<T: Counters>(stats: &T) -> serde_json::Map<String, Value> {
    let mut json = serde_json::Map::new();
    for (counter, value) in stats.rows().filter(|(counter, _)| counter.status.is_some()) {
        match (counter.label, counter.kind, counter.metric) {
            (Some((_, label)), _, Some(metric)) => {
                let family = snake_case(short(metric));
                json.entry(family).or_insert_with(|| json!({}))[snake_case(label)] = value.into();
            }
            (_, CounterKind::Set, Some(metric)) => {
                json.insert(snake_case(short(metric)), value.into());
            }
            _ => {
                json.insert(snake_case(counter.name), value.into());
            }
        }
    }
    json
}

fn short(metric: &str) -> &str {
    metric.split_once('_').map_or(metric, |(_, rest)| rest)
}

fn snake_case(name: &str) -> String {
    name.replace('-', "_")
}

/// The status of the store as JSON.
pub(crate) fn store_json(info: &CsInfo) -> Value {
    json!({
        "capacity_packets": info.capacity,
        "capacity_bytes": info.capacity_bytes,
        "entries": info.entries,
        "bytes": info.bytes,
        "hits": info.hits,
        "misses": info.misses,
        "admit": info.flags & store_flags::ADMIT != 0,
        "serve": info.flags & store_flags::SERVE != 0,
        "disk": info.disk.as_ref().map(disk_json),
        "served_bytes": {
            "memory": info.served_memory_bytes,
            "disk": info.served_disk_bytes,
            "next_hop": info.served_next_hop_bytes,
        },
        "devices": info.devices.iter().map(device_json).collect::<Vec<_>>(),
    })
}

fn device_json(device: &CsDevice) -> Value {
    json!({
        "path": device.path,
        "capacity_bytes": device.capacity_bytes,
        "reads": device.reads,
        "read_bytes": device.read_bytes,
        "writes": device.writes,
        "written_bytes": device.written_bytes,
        "failures": device.failures,
        "dead": device.is_dead != 0,
    })
}
