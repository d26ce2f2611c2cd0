//! `weir face`.

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use weir_base::FaceId;
use weir_face::FaceUri;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency, FaceStatus, MTU_AUTO, face_flags};

use crate::exit::Exit;
use crate::management_client::{ManagementArgs, ManagementClient, explain_response};
use crate::table::{Align, Table, fields, octets, out, outln, span};
use crate::words::Suggesting;
use weir_base::units::{Size, Time};

/// List, create, change and close faces of a running router.
///
/// A face connects the router to an application on this machine or to another router.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir face list\n  weir face create udp://192.0.2.1")]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    #[command(subcommand)]
    command: Option<FaceCommand>,
}

#[derive(Subcommand)]
enum FaceCommand {
    /// List all faces (the default command)
    #[command(after_help = "Examples:\n  weir face list\n  weir face list --json")]
    List,
    /// Show all properties and counters of one face
    #[command(after_help = "Examples:\n  weir face show udp://192.0.2.1\n  weir face show \
                      udp://192.0.2.1 --json")]
    Show {
        /// Number or URI of the face
        face: String,
    },
    /// Create a face to another router
    #[command(after_help = "Examples:\n  weir face create \
                      udp://192.0.2.2:6363 --mtu 1400 --reliability on\n  weir face create \
                      hicn+tun://hicn0/2001:db8:1::")]
    Create(CreateArgs),
    /// Change the settings of a face
    #[command(
        after_help = "Examples:\n  weir face update udp://192.0.2.1 --reliability on\n  weir face \
                      update udp://192.0.2.1 --congestion-marking off"
    )]
    Update {
        /// Number or URI of the face
        face: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Close a face
    #[command(
        aliases = ["remove", "delete", "rm", "del"],
        after_help = "Examples:\n  weir face destroy udp://192.0.2.1\n  weir face destroy \
                      udp://192.0.2.2 --json"
    )]
    Destroy {
        /// Number or URI of the face
        face: String,
    },
}

#[derive(clap::Args)]
struct CreateArgs {
    /// Address of the other router: udp://HOST[:PORT], tcp://HOST[:PORT], ws://HOST[:PORT] or
    /// wss://HOST[:PORT][/PATH]. The default port is 6363, or 9696 for ws and 443 for wss. For hICN
    /// packets: hicn+udp://HOST[:PORT], or hicn+tun://DEVICE[/LOCATOR] over a TUN device, where
    /// LOCATOR is the IPv6 /64 that Data returns to
    uri: String,
    #[command(flatten)]
    settings: Settings,
}

#[derive(clap::Args)]
struct Settings {
    /// Whether the face closes on an error (persistent) or reconnects (permanent) [default for a
    /// new face: persistent, permanent over a TUN device]
    #[arg(long)]
    persistency: Option<Persistency>,
    /// Largest UDP datagram, such as 1420B. Larger packets are fragmented. auto is [faces] udp_mtu,
    /// otherwise 1420, or 8800 on loopback; over a TUN device it is that of the device [default for
    /// a new face: auto]
    #[arg(long, value_name = "SIZE|auto", hide_possible_values = true,
        value_parser = Suggesting::new(&["auto"], mtu))]
    mtu: Option<u64>,
    /// Whether a UDP face retransmits lost packets. The other router must support it too [default
    /// for a new face: [faces] reliability]
    #[arg(long, value_name = "ON|OFF")]
    reliability: Option<Switch>,
    /// Whether the face marks packets when its queue is long [default for a new face: [faces]
    /// congestion_marking]
    #[arg(long, value_name = "ON|OFF")]
    congestion_marking: Option<Switch>,
    /// Mark packets when the queue has been above the threshold for this time, such as 100ms
    /// [default for a new face: [faces] mark_interval]
    #[arg(long, value_name = "TIME")]
    marking_interval: Option<Time>,
    /// Mark packets when the queue is longer than this size, such as 64KiB [default for a new face:
    /// [faces] mark_threshold]
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size)]
    marking_threshold: Option<Size>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Persistency {
    Persistent,
    Permanent,
}

fn mtu(text: &str) -> Result<u64, String> {
    if text == "auto" {
        return Ok(MTU_AUTO);
    }
    // Other programs write an MTU without a unit, so this is no mistake.
    let size = text.parse().map(|size: Size| size.bytes);
    size.map_err(|_| "must be a size such as 1420B, or auto".to_owned())
}

/// The value of an on/off option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Enable
    On,
    /// Disable
    Off,
}

impl Settings {
    fn fill(&self, parameters: &mut ControlParameters) {
        parameters.face_persistency = self.persistency.map(|persistency| match persistency {
            Persistency::Persistent => FacePersistency::Persistent,
            Persistency::Permanent => FacePersistency::Permanent,
        });
        parameters.mtu = self.mtu;
        for (switch, flag) in [
            (self.reliability, face_flags::LP_RELIABILITY),
            (self.congestion_marking, face_flags::CONGESTION_MARKING),
        ] {
            let Some(switch) = switch else { continue };
            let is_on = u64::from(switch == Switch::On);
            parameters.flags = Some(parameters.flags.unwrap_or(0) | (flag * is_on));
            parameters.mask = Some(parameters.mask.unwrap_or(0) | flag);
        }
        parameters.base_congestion_marking_interval_ns =
            self.marking_interval.map(|interval| interval.ns);
        parameters.default_congestion_threshold_bytes =
            self.marking_threshold.map(|threshold| threshold.bytes);
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let is_json = args.router.json;
    match args.command.unwrap_or(FaceCommand::List) {
        FaceCommand::List => {
            let faces = client.dataset::<FaceStatus>("faces/list")?;
            if is_json {
                outln!("{}", Value::from_iter(faces.iter().map(face_json)))?;
            } else {
                out!("{}", faces_table(&faces))?;
            }
        }
        FaceCommand::Show { face } => {
            let face = find_face(&mut client, &face)?;
            if is_json {
                outln!("{}", face_json(&face))?;
            } else {
                out!("{}", face_details(&face))?;
            }
        }
        FaceCommand::Create(create) => {
            let mut parameters = ControlParameters::default();
            create.settings.fill(&mut parameters);
            let created = create_face(&mut client, &create.uri, parameters)?;
            print_created(&created, is_json)?;
        }
        FaceCommand::Update { face, settings } => {
            let face = find_face(&mut client, &face)?;
            let face_id = Some(face.info.face_id);
            let mut parameters = ControlParameters { face_id, ..ControlParameters::default() };
            settings.fill(&mut parameters);
            client.command(Command::FacesUpdate, &parameters)?;
            let face = find_face(&mut client, &face.info.face_id.to_string())?;
            if is_json {
                outln!("{}", face_json(&face))?;
            } else {
                out!("{}", face_details(&face))?;
            }
        }
        FaceCommand::Destroy { face } => {
            let face = find_face(&mut client, &face)?.info;
            let face_id = Some(face.face_id);
            let parameters = ControlParameters { face_id, ..ControlParameters::default() };
            client.command(Command::FacesDestroy, &parameters)?;
            if is_json {
                outln!("{}", json!({ "face_id": face.face_id.0, "uri": face.uri }))?;
            } else {
                outln!("closed face {} ({})", face.face_id, face.uri)?;
            }
        }
    }
    Ok(())
}

/// The result of [`create_face`]. `is_new` is false if the face existed before.
pub(crate) struct CreatedFace {
    pub(crate) face_id: FaceId,
    pub(crate) uri: String,
    pub(crate) is_new: bool,
}

fn print_created(created: &CreatedFace, is_json: bool) -> anyhow::Result<()> {
    let CreatedFace { face_id, uri, is_new } = created;
    if is_json {
        outln!("{}", json!({ "face_id": face_id.0, "uri": uri, "created": is_new }))?;
    } else if *is_new {
        outln!("created face {face_id} to {uri}")?;
    } else {
        outln!("face {face_id} to {uri} already exists")?;
    }
    Ok(())
}

fn with_scheme(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("udp://{text}") }
}

/// Converts an address from the command line to a canonical face URI. The default scheme is UDP.
pub(crate) fn canonical_uri(text: &str) -> anyhow::Result<String> {
    let full = with_scheme(text);
    // `{error}` already includes the cause; a chain would print it twice.
    let uri =
        FaceUri::resolve_reachable(&full, None).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(uri.to_string())
}

/// Creates a face or finds an existing one. An on-demand face, which closes when idle, becomes
/// persistent.
pub(crate) fn create_face(
    client: &mut ManagementClient,
    uri: &str,
    parameters: ControlParameters,
) -> anyhow::Result<CreatedFace> {
    let uri = canonical_uri(uri)?;
    let parameters = ControlParameters { uri: Some(uri.clone()), ..parameters };
    let response = client.send_command(Command::FacesCreate, &parameters)?;
    // 409 means that a face to this address exists; the body describes it.
    let is_new = response.code == 200;
    if !is_new && response.code != 409 {
        return Err(explain_response(&response).context(format!("cannot create a face to {uri}")));
    }
    let body = response.body.context("the router did not report the new face")?;
    let face_id = body.face_id.context("the router did not report the new face")?;
    let wanted = parameters.face_persistency.unwrap_or_default();
    if body.face_persistency.is_some_and(|persistency| persistency == FacePersistency::OnDemand) {
        let update = ControlParameters {
            face_id: Some(face_id),
            face_persistency: Some(wanted),
            ..ControlParameters::default()
        };
        client.command(Command::FacesUpdate, &update)?;
    }
    Ok(CreatedFace { face_id, uri: body.uri.unwrap_or(uri), is_new })
}

/// Finds a face by number or URI.
pub(crate) fn find_face(client: &mut ManagementClient, face: &str) -> anyhow::Result<FaceStatus> {
    let faces = client.dataset::<FaceStatus>("faces/list")?;
    let id = face.parse().ok().map(FaceId);
    // A host name may have several addresses, and the face may use any of them.
    let uris = match id {
        Some(_) => Vec::new(),
        None => FaceUri::resolve_all(&with_scheme(face))
            .map_err(|error| anyhow::anyhow!("{error}"))?
            .iter()
            .map(FaceUri::to_string)
            .collect(),
    };
    // Prefer a face that was created here to an on-demand face that the peer created.
    faces
        .into_iter()
        .filter(|status| match id {
            Some(id) => status.info.face_id == id,
            None => uris.contains(&status.info.uri),
        })
        .min_by_key(|status| status.info.persistency == FacePersistency::OnDemand)
        .ok_or_else(|| {
            Exit::NotFound
                .error(format!("there is no face {face}; list the faces with `weir face list`"))
        })
}

pub(crate) fn faces_table(faces: &[FaceStatus]) -> String {
    let mut table = Table::new(&[
        ("FACE", Align::Right),
        ("TO", Align::Left),
        ("SCOPE", Align::Left),
        ("PERSISTENCY", Align::Left),
        ("LAST PACKET", Align::Right),
        ("INTERESTS IN/OUT", Align::Right),
        ("DATA IN/OUT", Align::Right),
        ("NACKS IN/OUT", Align::Right),
        ("BYTES IN/OUT", Align::Right),
    ]);
    for FaceStatus { info, counters, heard_ms_ago, .. } in faces {
        let both = |received: u64, sent: u64| format!("{received} / {sent}");
        table.row(vec![
            info.face_id.to_string(),
            info.uri.clone(),
            info.scope.to_string(),
            info.persistency.to_string(),
            last_heard_text(*heard_ms_ago),
            both(counters.in_interests, counters.out_interests),
            both(counters.in_data, counters.out_data),
            both(counters.in_nacks, counters.out_nacks),
            format!("{} / {}", octets(counters.in_bytes), octets(counters.out_bytes)),
        ]);
    }
    table.render("no faces")
}

/// The time since the last packet from the peer.
fn last_heard_text(ms_ago: Option<u64>) -> String {
    ms_ago.map_or_else(|| "never".to_owned(), |ms| format!("{} ago", span(ms)))
}

fn face_details(face: &FaceStatus) -> String {
    let FaceStatus { info, expiration_period_ms, counters, marking_policy, heard_ms_ago } = face;
    let flag = |bit| if info.flags & bit != 0 { "on" } else { "off" };
    let optional = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = [
        ("face", info.face_id.to_string()),
        ("to", info.uri.clone()),
        ("from", info.local_uri.clone()),
        ("scope", info.scope.to_string()),
        ("persistency", info.persistency.to_string()),
        ("link", info.link_type.to_string()),
        ("last packet", last_heard_text(*heard_ms_ago)),
        ("closes in", expiration_period_ms.map_or_else(|| "-".to_owned(), span)),
        ("mtu", optional(info.mtu.map(|mtu| format!("{mtu} B")))),
        ("local fields", flag(face_flags::LOCAL_FIELDS).to_owned()),
        ("reliability", flag(face_flags::LP_RELIABILITY).to_owned()),
        (
            "congestion marks",
            match marking_policy {
                None => flag(face_flags::CONGESTION_MARKING).to_owned(),
                Some(policy) => format!("{}, {policy}", flag(face_flags::CONGESTION_MARKING)),
            },
        ),
        (
            "marks after",
            optional(info.base_congestion_marking_interval_ns.map(|ns| span(ns / 1_000_000))),
        ),
        ("marks above", optional(info.default_congestion_threshold_bytes.map(octets))),
        ("Interests", format!("{} in, {} out", counters.in_interests, counters.out_interests)),
        ("Data", format!("{} in, {} out", counters.in_data, counters.out_data)),
        ("Nacks", format!("{} in, {} out", counters.in_nacks, counters.out_nacks)),
        ("bytes", format!("{} in, {} out", octets(counters.in_bytes), octets(counters.out_bytes))),
        (
            "runs",
            format!(
                "{} in ({} Interests), {} out ({} Interests)",
                counters.in_runs,
                counters.in_run_interests,
                counters.out_runs,
                counters.out_run_interests
            ),
        ),
    ];
    fields(&rows)
}

/// A face as JSON. The keys are the field names of the management protocol.
pub(crate) fn face_json(face: &FaceStatus) -> Value {
    let FaceStatus { info, expiration_period_ms, counters, marking_policy, heard_ms_ago } = face;
    json!({
        "face_id": info.face_id.0,
        "uri": info.uri,
        "local_uri": info.local_uri,
        "scope": info.scope.to_string(),
        "persistency": info.persistency.to_string(),
        "link_type": info.link_type.to_string(),
        "expiration_ms": expiration_period_ms,
        "heard_ms_ago": heard_ms_ago,
        "mtu": info.mtu,
        "flags": {
            "local_fields": info.flags & face_flags::LOCAL_FIELDS != 0,
            "reliability": info.flags & face_flags::LP_RELIABILITY != 0,
            "congestion_marking": info.flags & face_flags::CONGESTION_MARKING != 0,
        },
        "base_congestion_marking_interval_ns": info.base_congestion_marking_interval_ns,
        "default_congestion_threshold_bytes": info.default_congestion_threshold_bytes,
        "marking_policy": marking_policy.as_deref().unwrap_or("nfd"),
        "in_interests": counters.in_interests,
        "in_data": counters.in_data,
        "in_nacks": counters.in_nacks,
        "in_bytes": counters.in_bytes,
        "out_interests": counters.out_interests,
        "out_data": counters.out_data,
        "out_nacks": counters.out_nacks,
        "out_bytes": counters.out_bytes,
        "in_runs": counters.in_runs,
        "in_run_interests": counters.in_run_interests,
        "out_runs": counters.out_runs,
        "out_run_interests": counters.out_run_interests,
    })
}
