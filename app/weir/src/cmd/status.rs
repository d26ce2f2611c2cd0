//! `weir status`.

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use weir_face::unix_time_ms;
use weir_manage::{
    ChannelStatus, ControllerStatus, FaceCrowding, FaceStatus, FibEntry, GeneralStatus,
    NextHopRecord, RibEntry, StrategyChoice,
};

use crate::cmd::cs::{store_info, store_json, store_text};
use crate::cmd::face::{face_json, faces_table};
use crate::cmd::route::{face_uri, rib_json, routes_table};
use crate::cmd::strategy::{choice_json, choices_table};
use crate::management_client::{ManagementArgs, ManagementClient, MissingDataset};
use crate::table::{Align, Table, errln, fields, out, outln, paragraph, span};

/// Show the status of a running router.
///
/// A section that the router does not have is reported on standard error, and is null with --json.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir status\n  weir status general cs --json")]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    /// The sections to show [default: all]
    #[arg(value_enum)]
    parts: Vec<Section>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Version, uptime and packet counters
    General,
    /// Addresses on which the router listens
    Channels,
    /// Faces (connections)
    Faces,
    /// Next hops by prefix
    Fib,
    /// Routes by prefix
    Rib,
    /// Content store
    Cs,
    /// Forwarding strategies
    Strategies,
    /// Controller that plans the routes and the store
    Controller,
}

impl Section {
    const ALL: [Self; 8] = [
        Self::General,
        Self::Channels,
        Self::Faces,
        Self::Fib,
        Self::Rib,
        Self::Cs,
        Self::Strategies,
        Self::Controller,
    ];

    const fn key(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Channels => "channels",
            Self::Faces => "faces",
            Self::Fib => "fib",
            Self::Rib => "rib",
            Self::Cs => "cs",
            Self::Strategies => "strategies",
            Self::Controller => "controller",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::General => "Router",
            Self::Channels => "Listening at",
            Self::Faces => "Faces",
            Self::Fib => "FIB (next hops)",
            Self::Rib => "Routes",
            Self::Cs => "Content store",
            Self::Strategies => "Strategies",
            Self::Controller => "Controller",
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let parts = if args.parts.is_empty() { &Section::ALL[..] } else { &args.parts };
    if args.router.json {
        let sections = sections(&mut client, parts, section_json)?.into_iter();
        let object: Map<_, _> = sections
            .map(|(part, value)| (part.key().to_owned(), value.unwrap_or(Value::Null)))
            .collect();
        outln!("{}", Value::Object(object))?;
        return Ok(());
    }
    let sections = sections(&mut client, parts, section_text)?;
    let present = sections.into_iter().filter_map(|(part, text)| Some((part, text?)));
    for (at, (part, text)) in present.enumerate() {
        let gap = if at == 0 { "" } else { "\n" };
        out!("{gap}{}\n{text}", part.title())?;
    }
    Ok(())
}

/// Reads the sections. One that the router lacks is `None`, and is reported on standard error. For
/// example, ndnd 31822ab (`fw/mgmt/face.go`) has no `faces/channels`.
///
/// # Errors
/// The router lacks all of them, does not answer at all, or sends something invalid.
fn sections<T>(
    client: &mut ManagementClient,
    parts: &[Section],
    read: fn(&mut ManagementClient, Section) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<(Section, Option<T>)>> {
    let (mut sections, mut missing) = (Vec::new(), Vec::new());
    for &part in parts {
        match read(client, part).map_err(anyhow::Error::downcast::<MissingDataset>) {
            Ok(section) => sections.push((part, Some(section))),
            // A router that has not answered anything yet is probably down.
            Err(Ok(error)) if error.is_refused || !sections.is_empty() => {
                sections.push((part, None));
                missing.push((part, error));
            }
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        }
    }
    if sections.iter().all(|(_, section)| section.is_none()) {
        let first = missing.into_iter().next();
        return first.map_or(Ok(sections), |(_, error)| Err(error.into()));
    }
    for (part, error) in missing {
        errln!("weir: {} missing: {error}", part.key());
    }
    Ok(sections)
}

fn section_text(client: &mut ManagementClient, part: Section) -> anyhow::Result<String> {
    Ok(match part {
        Section::General => general_text(&client.general_status()?),
        Section::Channels => {
            let channels = client.dataset::<ChannelStatus>("faces/channels")?;
            if channels.is_empty() {
                "  no address\n".to_owned()
            } else {
                channels.iter().map(|channel| paragraph("  ", &channel.local_uri)).collect()
            }
        }
        Section::Faces => faces_table(&client.dataset::<FaceStatus>("faces/list")?),
        Section::Fib => {
            let faces = client.dataset::<FaceStatus>("faces/list")?;
            fib_table(&client.dataset::<FibEntry>("fib/list")?, &faces)
        }
        Section::Rib => {
            let faces = client.dataset::<FaceStatus>("faces/list")?;
            routes_table(&client.dataset::<RibEntry>("rib/list")?, &faces)
        }
        Section::Cs => store_text(&store_info(client)?),
        Section::Strategies => {
            choices_table(&client.dataset::<StrategyChoice>("strategy-choice/list")?)
        }
        Section::Controller => controller_text(controller(client)?.as_ref(), unix_time_ms()),
    })
}

fn section_json(client: &mut ManagementClient, part: Section) -> anyhow::Result<Value> {
    Ok(match part {
        Section::General => general_json(&client.general_status()?),
        Section::Channels => client
            .dataset::<ChannelStatus>("faces/channels")?
            .into_iter()
            .map(|channel| json!({ "local_uri": channel.local_uri }))
            .collect(),
        Section::Faces => {
            client.dataset::<FaceStatus>("faces/list")?.iter().map(face_json).collect()
        }
        Section::Fib => client.dataset::<FibEntry>("fib/list")?.iter().map(fib_json).collect(),
        Section::Rib => client.dataset::<RibEntry>("rib/list")?.iter().map(rib_json).collect(),
        Section::Cs => store_json(&store_info(client)?),
        Section::Strategies => client
            .dataset::<StrategyChoice>("strategy-choice/list")?
            .iter()
            .map(choice_json)
            .collect(),
        Section::Controller => controller(client)?.as_ref().map_or(Value::Null, controller_json),
    })
}

/// What the router knows of its controller; `None` if it has none.
fn controller(client: &mut ManagementClient) -> anyhow::Result<Option<ControllerStatus>> {
    Ok(client.dataset::<ControllerStatus>("status/controller")?.into_iter().next())
}

fn controller_text(status: Option<&ControllerStatus>, now_unix_ms: u64) -> String {
    let Some(status) = status else { return "  none ([controller] url)\n".to_owned() };
    let ago = |at_ms: Option<u64>| {
        at_ms.map_or_else(
            || "never".to_owned(),
            |at_ms| format!("{} ago", span(now_unix_ms.saturating_sub(at_ms))),
        )
    };
    let state = match (status.is_reachable, status.connected_unix_ms) {
        (0, _) => "no answer; what is set up stays".to_owned(),
        (_, None) => "connected".to_owned(),
        (_, Some(since)) => format!("connected for {}", span(now_unix_ms.saturating_sub(since))),
    };
    let plan = match (status.generation, &status.problem) {
        (_, Some(problem)) => format!("not complete: {problem}"),
        (0, None) => "none received yet".to_owned(),
        (_, None) => format!("in force, confirmed {}", ago(status.confirmed_unix_ms)),
    };
    let rows = [
        ("URL", status.urls.clone()),
        ("state", state),
        ("last report", ago(status.reported_unix_ms)),
        ("plan", plan),
    ];
    fields(&rows)
}

fn controller_json(status: &ControllerStatus) -> Value {
    json!({
        "urls": status.urls.split(' ').collect::<Vec<_>>(),
        "reachable": status.is_reachable != 0,
        "connected_unix_ms": status.connected_unix_ms,
        "reported_unix_ms": status.reported_unix_ms,
        "confirmed_unix_ms": status.confirmed_unix_ms,
        "generation": status.generation,
        "problem": status.problem,
    })
}

fn general_text(status: &GeneralStatus) -> String {
    let uptime = status.current_unix_ms.saturating_sub(status.start_unix_ms);
    let both = |received: u64, sent: u64| format!("{received} in, {sent} out");
    let mut rows = vec![
        ("version", status.version.clone()),
        ("running for", span(uptime)),
        ("Interests", both(status.in_interests, status.out_interests)),
        ("Data", both(status.in_data, status.out_data)),
        ("Nacks", both(status.in_nacks, status.out_nacks)),
        (
            "satisfied",
            format!(
                "{} of {} forwarded Interests",
                status.satisfied_interests,
                status.satisfied_interests + status.unsatisfied_interests
            ),
        ),
        ("pending", format!("{} Interests", status.pit_entries)),
        ("FIB", format!("{} prefixes", status.fib_entries)),
        ("store", format!("{} Data packets", status.cs_entries)),
    ];
    if let Some(FaceCrowding { refused, displaced, stalled }) = status.crowding {
        let text = format!("{refused} rejected, {displaced} evicted, {stalled} stalled");
        rows.push(("faces", text));
    }
    fields(&rows)
}

fn general_json(status: &GeneralStatus) -> Value {
    json!({
        "version": status.version,
        "start_unix_ms": status.start_unix_ms,
        "current_unix_ms": status.current_unix_ms,
        "name_tree_entries": status.name_tree_entries,
        "fib_entries": status.fib_entries,
        "pit_entries": status.pit_entries,
        "measurements_entries": status.measurements_entries,
        "cs_entries": status.cs_entries,
        "in_interests": status.in_interests,
        "in_data": status.in_data,
        "in_nacks": status.in_nacks,
        "out_interests": status.out_interests,
        "out_data": status.out_data,
        "out_nacks": status.out_nacks,
        "satisfied_interests": status.satisfied_interests,
        "unsatisfied_interests": status.unsatisfied_interests,
        "faces_refused": status.crowding.map(|faces| faces.refused),
        "faces_displaced": status.crowding.map(|faces| faces.displaced),
        "faces_stalled": status.crowding.map(|faces| faces.stalled),
    })
}

fn fib_table(entries: &[FibEntry], faces: &[FaceStatus]) -> String {
    let mut table = Table::new(&[
        ("PREFIX", Align::Left),
        ("FACE", Align::Right),
        ("TO", Align::Left),
        ("COST", Align::Right),
    ]);
    for entry in entries {
        for NextHopRecord { face_id, cost } in &entry.next_hops {
            table.row(vec![
                entry.name.to_string(),
                face_id.to_string(),
                face_uri(faces, *face_id),
                cost.to_string(),
            ]);
        }
    }
    table.render("no next hops")
}

fn fib_json(entry: &FibEntry) -> Value {
    let next_hop = |hop: &NextHopRecord| json!({ "face_id": hop.face_id.0, "cost": hop.cost });
    json!({
        "prefix": entry.name.to_string(),
        "next_hops": Value::from_iter(entry.next_hops.iter().map(next_hop)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management_client::tests::client_of_manager_without;

    #[test]
    fn shows_controller_in_words() {
        let status = ControllerStatus {
            urls: "http://a:1 http://b:1".to_owned(),
            is_reachable: 1,
            connected_unix_ms: Some(40_000),
            reported_unix_ms: Some(98_000),
            confirmed_unix_ms: Some(95_000),
            generation: 1_764_000_000_000,
            problem: None,
        };
        let text = controller_text(Some(&status), 100_000);
        for part in ["http://a:1", "connected for 1 min 0 s", "2 s ago", "confirmed 5 s ago"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("1764000000000"), "{text}");
        let silent = ControllerStatus { is_reachable: 0, generation: 0, ..status };
        let text = controller_text(Some(&silent), 100_000);
        assert!(text.contains("no answer") && text.contains("none received yet"), "{text}");
        assert!(controller_text(None, 0).contains("none"));
        assert_eq!(controller_json(&silent)["urls"][1], "http://b:1");
    }

    /// ndnd refuses `faces/channels`, and its answer looks like other Data.
    #[test]
    fn missing_section_does_not_hide_others() {
        let parts = [Section::Strategies, Section::Channels];
        let mut client = client_of_manager_without("faces");
        let sections = sections(&mut client, &parts, section_text).unwrap();
        let [(Section::Strategies, Some(text)), (Section::Channels, None)] = &sections[..] else {
            panic!("{sections:?}")
        };
        assert!(text.contains("best-route"), "{text}");

        let mut client = client_of_manager_without("faces");
        let error = self::sections(&mut client, &[Section::Channels], section_json).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("501 Unknown verb; this router does not support it"), "{text}");
    }
}
