//! `weir cs fetch`.

use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use weir_store::{HoldingsStatus, SegmentRange};
use weir_wire::Name;

use crate::management_client::{ManagementArgs, ManagementClient};
use crate::table::{count, octets, outln, printable};
use crate::transfer::objects::{
    DEPTH_MAX, Part, ReadArgs, Survey, Walk, connect, report_failed, survey,
};
use crate::transfer::{Stop, byte_bar, parse_name};

/// The most objects of a directory whose shares are requested, one by one.
const SHARES_MAX: usize = 10_000;
/// How long the command waits for the router's index, for all objects together.
const INDEX_TIMEOUT: Duration = Duration::from_secs(2);
const INDEX_POLL_PAUSE: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(super) struct Args {
    /// The name of a file, stream or directory, with or without a version
    #[arg(value_parser = parse_name)]
    name: Name,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: Args, router: &ManagementArgs) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    let is_json = router.json;
    let mut consumer = connect(router.router(), &args.name)?;
    let bar = byte_bar(args.name.to_string(), None);
    let walk = Walk { part: Part::All, list_depth: DEPTH_MAX, visits_files: true };
    let mut progress = |bytes, name: &Name| show_progress(&bar, bytes, name);
    let found = survey(&mut consumer, &args.read, &args.name, walk, &stop, &mut progress);
    bar.finish_and_clear();
    let found = found.map_err(|error| error.context(format!("cannot fetch {}", args.name)))?;
    // The router may have restarted during the fetch, so an earlier connection may be lost.
    let shares = shares(&mut router.connect()?, &found)?;
    if is_json {
        outln!("{}", report_json(&args.name, &found, &shares))?;
    } else {
        outln!("{}", report_text(&args.name, &found, &shares))?;
    }
    report_failed("fetch", &args.name, found.failed)?;
    if shares.held < shares.segments {
        let advice = if shares.is_partial {
            "the router's index is incomplete, so there may be more; check with `weir cs holdings` \
             later"
        } else {
            "its store may be too small, refuse the Data by a rule, or be turned off; check with \
             `weir cs info`, and run the command again"
        };
        bail!("the router holds {} of {} segments: {advice}", shares.held, shares.segments);
    }
    Ok(())
}

fn show_progress(bar: &ProgressBar, bytes: u64, name: &Name) {
    bar.set_message(printable(name.to_string()));
    bar.set_position(bytes);
}

/// Segments of the checked objects, and how many of them the router holds.
#[derive(Default)]
struct Shares {
    segments: u64,
    held: u64,
    is_partial: bool,
    /// Objects that were fetched and not checked.
    unchecked: u64,
}

/// Asks the router how much it holds of what was fetched. The first request starts the router's
/// index, so it is repeated until the index is complete or [`INDEX_TIMEOUT`] is over.
fn shares(client: &mut ManagementClient, found: &Survey) -> anyhow::Result<Shares> {
    let unchecked = found.seen.len().saturating_sub(SHARES_MAX) as u64;
    let mut shares = Shares { unchecked, ..Shares::default() };
    let deadline = Instant::now() + INDEX_TIMEOUT;
    for seen in found.seen.iter().take(SHARES_MAX) {
        let mut status = client.holdings(&seen.metadata.versioned)?;
        while status.is_partial
            && held_segments(&status) < seen.segments
            && Instant::now() < deadline
        {
            std::thread::sleep(INDEX_POLL_PAUSE);
            status = client.holdings(&seen.metadata.versioned)?;
        }
        shares.segments += seen.segments;
        shares.held += held_segments(&status).min(seen.segments);
        shares.is_partial |= status.is_partial;
    }
    Ok(shares)
}

/// The segments in memory or on disks.
fn held_segments(status: &HoldingsStatus) -> u64 {
    let ranges = [status.memory.as_slice(), status.disk.as_slice()].concat();
    let held = SegmentRange::join(ranges);
    held.iter().map(|range| range.last - range.first + 1).sum()
}

fn bytes_of(found: &Survey) -> u64 {
    found.seen.iter().map(|seen| seen.bytes).sum()
}

fn report_text(name: &Name, found: &Survey, shares: &Shares) -> String {
    let unchecked = match shares.unchecked {
        0 => String::new(),
        objects => format!(
            " of the first {SHARES_MAX} objects; {} not checked",
            count(objects, "object was", "objects were")
        ),
    };
    format!(
        "fetched {name}: {} in {}; the router holds {} of {}{unchecked}",
        octets(bytes_of(found)),
        count(found.seen.len() as u64, "object", "objects"),
        shares.held,
        count(shares.segments, "segment", "segments"),
    )
}

fn report_json(name: &Name, found: &Survey, shares: &Shares) -> Value {
    json!({
        "name": name.to_string(),
        "versioned": found.seen.first().map(|seen| seen.metadata.versioned.to_string()),
        "objects": found.seen.len(),
        "bytes": bytes_of(found),
        "segments": shares.segments,
        "segments_held": shares.held,
        "partial": shares.is_partial,
        "objects_unchecked": shares.unchecked,
        "failed": found.failed.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(),
    })
}
