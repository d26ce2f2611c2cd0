//! `weir cs fetch`.

use anyhow::bail;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use weir_store::{HoldingsStatus, SegmentRange};
use weir_wire::Name;

use crate::management_client::{ManagementArgs, ManagementClient};
use crate::table::{count, errln, octets, outln, printable};
use crate::transfer::objects::{DEPTH_MAX, Part, ReadArgs, Survey, Walk, connect, explain, survey};
use crate::transfer::{Stop, byte_bar, parse_name};

/// The most objects of a directory whose shares are requested, one by one.
const SHARES_MAX: usize = 1000;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The name of a file, stream or directory, with or without a version
    #[arg(value_parser = parse_name)]
    name: Name,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(
    args: Args,
    client: &mut ManagementClient,
    router: &ManagementArgs,
) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    let is_json = router.json;
    let mut consumer = connect(router.router(), &args.name)?;
    let bar = byte_bar(args.name.to_string(), None);
    let walk = Walk { part: Part::All, list_depth: DEPTH_MAX, visits_files: true };
    let mut progress = |bytes, name: &Name| show_progress(&bar, bytes, name);
    let found = survey(&mut consumer, &args.read, &args.name, walk, &stop, &mut progress);
    bar.finish_and_clear();
    let found = found.map_err(|error| error.context(format!("cannot fetch {}", args.name)))?;
    let shares = shares(client, &found)?;
    if is_json {
        outln!("{}", report_json(&args.name, &found, &shares))?;
    } else {
        outln!("{}", report_text(&args.name, &found, &shares))?;
    }
    let failed = found.failed.len() as u64;
    for (name, error) in found.failed {
        errln!("weir: cannot fetch {name}: {:#}", explain(error));
    }
    if failed > 0 {
        bail!("cannot fetch {} of {}", count(failed, "entry", "entries"), args.name);
    }
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

/// Segments that were fetched, and how many of them the router holds.
#[derive(Default)]
struct Shares {
    segments: u64,
    held: u64,
    is_partial: bool,
}

/// Asks the router how much it holds of what was fetched. The first question starts the router's
/// index, so it is repeated until the index is complete.
fn shares(client: &mut ManagementClient, found: &Survey) -> anyhow::Result<Shares> {
    let mut shares = Shares::default();
    for seen in found.seen.iter().take(SHARES_MAX) {
        let mut status = client.holdings(&seen.metadata.versioned)?;
        for _ in 0..20 {
            if !status.is_partial || held_segments(&status) >= seen.segments {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
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
    format!(
        "fetched {name}: {} in {}; the router holds {} of {}",
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
        "failed": found.failed.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(),
    })
}
