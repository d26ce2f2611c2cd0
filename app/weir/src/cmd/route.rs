//! `weir route`.

use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use weir_base::FaceId;
use weir_manage::commands::Command;
use weir_manage::{
    ControlParameters, FaceStatus, RibEntry, RouteStatus, route_flags, route_origin,
};
use weir_wire::Name;

use crate::cmd::face::{create_face, find_face};
use crate::exit::Exit;
use crate::management_client::{ManagementArgs, ManagementClient};
use crate::table::{Align, Table, out, outln, span};
use crate::transfer::parse_prefix;
use crate::words::Suggesting;
use weir_base::units::Time;

/// List, add and remove routes of a running router.
///
/// A route sends Interests for names under a prefix to a face.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir route add /demo udp://192.0.2.1\n  weir route list")]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    #[command(subcommand)]
    command: Option<RouteCommand>,
}

#[derive(Subcommand)]
enum RouteCommand {
    /// List all routes (the default command)
    #[command(after_help = "Examples:\n  weir route list\n  weir route list --json")]
    List,
    /// Show the routes that match a name
    #[command(after_help = "Examples:\n  weir route show /demo/services\n  weir route show \
                      /demo/services --json")]
    Show {
        /// The name
        #[arg(value_parser = parse_prefix)]
        name: Name,
    },
    /// Add a route from a prefix to a face
    #[command(
        after_help = "Examples:\n  weir route add /demo udp://192.0.2.1\n  weir route add / \
                      udp://192.0.2.1 --cost 10 --expires 10m"
    )]
    Add(AddArgs),
    /// Remove a route
    #[command(
        aliases = ["delete", "rm", "del"],
        after_help = "Examples:\n  weir route remove /demo udp://192.0.2.1\n  weir route remove / \
                      udp://192.0.2.1 --json"
    )]
    Remove {
        /// The prefix
        #[arg(value_parser = parse_prefix)]
        prefix: Name,
        /// Number or address of the face
        face: String,
        /// Origin of the route: app, autoreg, client, autoconf, nlsr, prefixann, static or a number
        #[arg(long, default_value = "static", hide_possible_values = true,
            value_parser = Suggesting::new(ORIGINS, parse_origin))]
        origin: u64,
    },
}

#[derive(clap::Args)]
struct AddArgs {
    /// The prefix, for example /ndn/video; / means every name
    #[arg(value_parser = parse_prefix)]
    prefix: Name,
    /// The next hop: the address of a router, such as udp://router.example, or the number of a
    /// face. If no face to the address exists, one is created
    face: String,
    /// Cost of the route. The lowest cost is used first
    #[arg(long, default_value_t = 0)]
    cost: u64,
    /// Origin of the route: app, autoreg, client, autoconf, nlsr, prefixann, static or a number
    #[arg(long, default_value = "static", hide_possible_values = true,
            value_parser = Suggesting::new(ORIGINS, parse_origin))]
    origin: u64,
    /// Remove the route after this time, such as 10m [default: never]
    #[arg(long, value_name = "TIME")]
    expires: Option<Time>,
    /// Do not use this route for longer prefixes that have their own routes
    #[arg(long)]
    no_inherit: bool,
    /// Do not use routes of shorter prefixes for this prefix and below
    #[arg(long)]
    capture: bool,
}

/// The usual origins. Numbers are valid, too.
const ORIGINS: &[&str] = &["app", "autoreg", "client", "autoconf", "nlsr", "prefixann", "static"];

fn parse_origin(text: &str) -> Result<u64, String> {
    route_origin::from_name(text).or_else(|| text.parse().ok()).ok_or_else(|| {
        format!(
            "`{text}` is not an origin; use app, autoreg, client, autoconf, nlsr, prefixann, \
             static or a number"
        )
    })
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let is_json = args.router.json;
    match args.command.unwrap_or(RouteCommand::List) {
        RouteCommand::List => {
            let entries = client.dataset::<RibEntry>("rib/list")?;
            print_routes(&mut client, &entries, is_json)
        }
        RouteCommand::Show { name } => {
            let mut entries = client.dataset::<RibEntry>("rib/list")?;
            entries.retain(|entry| entry.name.as_view().is_prefix_of(name.as_view()));
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.name.component_count()));
            entries.truncate(1);
            print_routes(&mut client, &entries, is_json)
        }
        RouteCommand::Add(add) => add_route(&mut client, add, is_json),
        RouteCommand::Remove { prefix, face, origin } => {
            remove_route(&mut client, &prefix, &face, origin, is_json)
        }
    }
}

fn print_routes(
    client: &mut ManagementClient,
    entries: &[RibEntry],
    is_json: bool,
) -> anyhow::Result<()> {
    if is_json {
        outln!("{}", Value::from_iter(entries.iter().map(rib_json)))?;
    } else {
        let faces = client.dataset::<FaceStatus>("faces/list")?;
        out!("{}", routes_table(entries, &faces))?;
    }
    Ok(())
}

fn add_route(client: &mut ManagementClient, add: AddArgs, is_json: bool) -> anyhow::Result<()> {
    // A number means an existing face. An address may need a new face.
    let (face, uri, is_new) = match add.face.parse() {
        Ok(number) => {
            let info = find_face(client, &FaceId(number).to_string())?.info;
            (info.face_id, info.uri, false)
        }
        Err(_) => {
            let created = create_face(client, &add.face, ControlParameters::default())?;
            (created.face_id, created.uri, created.is_new)
        }
    };
    let inherit = if add.no_inherit { 0 } else { route_flags::CHILD_INHERIT };
    let capture = if add.capture { route_flags::CAPTURE } else { 0 };
    let parameters = ControlParameters {
        name: Some(add.prefix.clone()),
        face_id: Some(face),
        origin: Some(add.origin),
        cost: Some(add.cost),
        flags: Some(inherit | capture),
        expiration_period_ms: add.expires.map(|expires| expires.ns / 1_000_000),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters)?;
    wait_for_route(client, &add.prefix, face, add.origin)?;
    if is_json {
        outln!(
            "{}",
            json!({
                "prefix": add.prefix.to_string(),
                "face_id": face.0,
                "uri": uri,
                "face_created": is_new,
                "cost": add.cost,
                "origin": add.origin,
            })
        )?;
    } else {
        let created = if is_new { ", a new face" } else { "" };
        outln!("route {} -> face {face} ({uri}{created}), cost {}", add.prefix, add.cost)?;
    }
    Ok(())
}

/// Waits until the route is in the table. A router answers the command before it installs the
/// route, and does not report a later failure.
fn wait_for_route(
    client: &mut ManagementClient,
    prefix: &Name,
    face: FaceId,
    origin: u64,
) -> anyhow::Result<()> {
    for _ in 0..20 {
        if find_route(client, prefix, face, origin)?.is_some() {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    bail!(
        "the router accepted the command but did not install the route; check with `weir face \
         list` whether face {face} has closed"
    )
}

fn find_route(
    client: &mut ManagementClient,
    prefix: &Name,
    face: FaceId,
    origin: u64,
) -> anyhow::Result<Option<RouteStatus>> {
    let entries = client.dataset::<RibEntry>("rib/list")?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.name == *prefix)
        .flat_map(|entry| entry.routes)
        .find(|route| route.face_id == face && route.origin == origin))
}

fn remove_route(
    client: &mut ManagementClient,
    prefix: &Name,
    face: &str,
    origin: u64,
    is_json: bool,
) -> anyhow::Result<()> {
    let info = find_face(client, face)?.info;
    let face_id = info.face_id;
    // The router reports success even for a route that does not exist, so check first.
    find_route(client, prefix, face_id, origin)?.ok_or_else(|| {
        let origin = origin_name(origin);
        Exit::NotFound.error(format!(
            "there is no route {prefix} to face {face_id} with origin {origin}; list the routes \
             with `weir route list`"
        ))
    })?;
    let parameters = ControlParameters {
        name: Some(prefix.clone()),
        face_id: Some(face_id),
        origin: Some(origin),
        ..ControlParameters::default()
    };
    client.command(Command::RibUnregister, &parameters)?;
    if is_json {
        outln!("{}", json!({ "prefix": prefix.to_string(), "face_id": face_id.0 }))?;
    } else {
        outln!("removed route {prefix} -> face {face_id} ({})", info.uri)?;
    }
    Ok(())
}

fn origin_name(origin: u64) -> String {
    route_origin::name(origin).map_or_else(|| origin.to_string(), str::to_owned)
}

pub(crate) fn routes_table(entries: &[RibEntry], faces: &[FaceStatus]) -> String {
    let mut table = Table::new(&[
        ("PREFIX", Align::Left),
        ("FACE", Align::Right),
        ("TO", Align::Left),
        ("COST", Align::Right),
        ("ORIGIN", Align::Left),
        ("EXPIRES", Align::Left),
        ("REMARKS", Align::Left),
    ]);
    for entry in entries {
        for route in &entry.routes {
            let is_set = |flag| route.flags & flag != 0;
            let inherit = if is_set(route_flags::CHILD_INHERIT) { "" } else { "not inherited" };
            let capture = if is_set(route_flags::CAPTURE) { "capture" } else { "" };
            let remarks: Vec<&str> =
                [inherit, capture].into_iter().filter(|remark| !remark.is_empty()).collect();
            table.row(vec![
                entry.name.to_string(),
                route.face_id.to_string(),
                face_uri(faces, route.face_id),
                route.cost.to_string(),
                origin_name(route.origin),
                route.expiration_period_ms.map_or_else(|| "never".to_owned(), span),
                remarks.join(", "),
            ]);
        }
    }
    table.render("no routes")
}

pub(crate) fn face_uri(faces: &[FaceStatus], face: FaceId) -> String {
    let known = faces.iter().find(|status| status.info.face_id == face);
    known.map_or_else(|| "?".to_owned(), |status| status.info.uri.clone())
}

pub(crate) fn rib_json(entry: &RibEntry) -> Value {
    let route = |route: &RouteStatus| {
        json!({
            "face_id": route.face_id.0,
            "origin": route.origin,
            "origin_name": route_origin::name(route.origin),
            "cost": route.cost,
            "child_inherit": route.flags & route_flags::CHILD_INHERIT != 0,
            "capture": route.flags & route_flags::CAPTURE != 0,
            "expiration_ms": route.expiration_period_ms,
        })
    };
    json!({
        "prefix": entry.name.to_string(),
        "routes": Value::from_iter(entry.routes.iter().map(route)),
    })
}
