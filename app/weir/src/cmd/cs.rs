//! `weir cs`.

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, CsInfo, STORE_PACKET_BYTES, store_flags};
use weir_wire::Name;

use crate::cmd::face::Switch;
use crate::config::ByteSize;
use crate::management_client::{ManagementArgs, ManagementClient};
use crate::table::{count, octets, out, outln};

/// Show, configure and erase the content store of a running router.
///
/// The content store keeps copies of Data that passed, and answers Interests with them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    #[command(subcommand)]
    command: Option<CsCommand>,
}

#[derive(Subcommand)]
enum CsCommand {
    /// Show its size and use (the default)
    Info,
    /// Change its capacity, or turn it off and on
    Config {
        /// How much it holds, for example 1GiB; 0 keeps nothing
        #[arg(long, value_name = "SIZE")]
        capacity: Option<ByteSize>,
        /// Whether passing Data is stored
        #[arg(long, value_name = "ON|OFF")]
        admit: Option<Switch>,
        /// Whether Interests are answered from it
        #[arg(long, value_name = "ON|OFF")]
        serve: Option<Switch>,
    },
    /// Erase what it holds under a prefix
    Erase {
        /// The prefix; / erases everything
        prefix: Name,
        /// Erase at most this many Data
        #[arg(long)]
        count: Option<u64>,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let is_json = args.router.json;
    match args.command.unwrap_or(CsCommand::Info) {
        CsCommand::Info => {}
        CsCommand::Config { capacity, admit, serve } => {
            configure(&mut client, capacity, admit, serve)?;
        }
        CsCommand::Erase { prefix, count: limit } => {
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
    capacity: Option<ByteSize>,
    admit: Option<Switch>,
    serve: Option<Switch>,
) -> anyhow::Result<()> {
    if capacity.is_none() && admit.is_none() && serve.is_none() {
        bail!("say what to change: --capacity SIZE, --admit on|off or --serve on|off");
    }
    let (mut flags, mut mask) = (0, 0);
    for (switch, flag) in [(admit, store_flags::ADMIT), (serve, store_flags::SERVE)] {
        if let Some(switch) = switch {
            mask |= flag;
            flags |= if switch == Switch::On { flag } else { 0 };
        }
    }
    let parameters = ControlParameters {
        capacity: capacity.map(|size| size.0.div_ceil(STORE_PACKET_BYTES)),
        flags: (mask != 0).then_some(flags),
        mask: (mask != 0).then_some(mask),
        ..ControlParameters::default()
    };
    client.command(Command::CsConfig, &parameters)?;
    Ok(())
}

/// Erases batch by batch, as the protocol has it; how many.
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
        erased += body.count.context("the router did not say how much it erased")?;
        if body.capacity.is_none() || body.count == Some(0) {
            return Ok(erased);
        }
    }
}

/// The store's state.
pub(crate) fn store_info(client: &mut ManagementClient) -> anyhow::Result<CsInfo> {
    let items = client.dataset::<CsInfo>("cs/info")?;
    items.into_iter().next().context("the router told nothing of its content store")
}

/// The store for people.
pub(crate) fn store_text(info: &CsInfo) -> String {
    let is_set = |flag| info.flags & flag != 0;
    let asked = info.hits + info.misses;
    let share = if asked == 0 { 0.0 } else { info.hits as f64 * 100.0 / asked as f64 };
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
        format!("{} of {} ({share:.1} %)", info.hits, count(asked, "Interest", "Interests"));
    let rows = [
        ("capacity", capacity),
        ("used", used),
        ("answered", answered),
        ("state", state.to_owned()),
    ];
    rows.iter().map(|(label, text)| format!("  {label:<10} {text}\n")).collect()
}

/// The store for programs.
pub(crate) fn store_json(info: &CsInfo) -> Value {
    json!({
        "capacityPackets": info.capacity,
        "capacityBytes": info.capacity_bytes,
        "entries": info.entries,
        "bytes": info.bytes,
        "hits": info.hits,
        "misses": info.misses,
        "admit": info.flags & store_flags::ADMIT != 0,
        "serve": info.flags & store_flags::SERVE != 0,
    })
}
