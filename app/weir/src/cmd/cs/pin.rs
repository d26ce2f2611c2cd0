//! `weir cs pin` and `weir cs unpin`.

use anyhow::{Context, bail};
use serde_json::json;
use weir_base::Instant;
use weir_base::units::Size;
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_store::ObjectQuery;
use weir_wire::Name;

use crate::management_client::ManagementClient;
use crate::table::{octets, outln};
use crate::transfer::parse_prefix;

#[derive(clap::Args)]
pub(super) struct PinArgs {
    /// The prefix, such as an object with or without a version
    #[arg(value_parser = parse_prefix)]
    prefix: Name,
    /// Keep at most this size [default: what memory holds below the prefix now]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

#[derive(clap::Args)]
pub(super) struct UnpinArgs {
    /// The pinned prefix, as `weir cs list` shows it
    #[arg(value_parser = parse_prefix)]
    prefix: Name,
}

pub(super) fn pin(
    args: PinArgs,
    client: &mut ManagementClient,
    is_json: bool,
) -> anyhow::Result<()> {
    let bytes_max = match args.size {
        Some(size) if size.bytes == 0 => bail!("--size 0 pins nothing; use `weir cs unpin`"),
        Some(size) => size.bytes,
        None => held_bytes(client, &args.prefix)?,
    };
    let parameters = ControlParameters {
        name: Some(args.prefix.clone()),
        count: Some(bytes_max),
        ..ControlParameters::default()
    };
    client.command(Command::CsPin, &parameters).with_context(|| {
        format!("cannot pin {}; choose a smaller --size, or unpin others", args.prefix)
    })?;
    if is_json {
        outln!("{}", json!({ "prefix": args.prefix.to_string(), "bytes_max": bytes_max }))?;
    } else {
        outln!("pinned {}, up to {}, until the router stops", args.prefix, octets(bytes_max))?;
    }
    Ok(())
}

/// The bytes that memory needs to keep what it holds below a prefix.
fn held_bytes(client: &mut ManagementClient, prefix: &Name) -> anyhow::Result<u64> {
    let query = ObjectQuery { prefix: prefix.clone(), limit: 0, ..ObjectQuery::default() };
    let held = client.objects(&query, Instant::ZERO)?.memory;
    if held.packets == 0 {
        bail!(
            "memory holds nothing below {prefix} yet, so its size is not known; give --size, or \
             fetch it first with `weir cs fetch`"
        );
    }
    // The store counts the blocks of packets and its own entries, so it needs more than the bytes
    // of the packets: at most a quarter for packets of any size, and 512 bytes for each.
    Ok(held.bytes + held.bytes / 4 + held.packets * 512)
}

pub(super) fn unpin(
    args: UnpinArgs,
    client: &mut ManagementClient,
    is_json: bool,
) -> anyhow::Result<()> {
    let parameters =
        ControlParameters { name: Some(args.prefix.clone()), ..ControlParameters::default() };
    client.command(Command::CsUnpin, &parameters)?;
    if is_json {
        outln!("{}", json!({ "prefix": args.prefix.to_string() }))?;
    } else {
        outln!("unpinned {}; its Data is evicted like any other", args.prefix)?;
    }
    Ok(())
}
