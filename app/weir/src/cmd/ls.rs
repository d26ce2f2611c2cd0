//! `weir ls`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_transport::Metadata;
use weir_wire::Name;

use crate::table::{Align, Table, octets, out, outln, printable};
use crate::transfer::Stop;
use crate::transfer::objects::{
    DEPTH_MAX, LookArgs, Part, Survey, Walk, connect, date_text, join_path, kind_of, report_failed,
    survey, version_of,
};

/// List what a producer offers under a name.
///
/// Of a directory that was published with `weir put`, prints the entries. Of a file or stream,
/// prints its latest version. Fetches metadata and listings only: no file contents. Earlier
/// versions are not listed, because producers answer for the latest one only; `weir stat NAME`
/// shows a version that you know.
///
/// The exit code says why the name cannot be listed: 4 not found, 5 no route, 6 not verified, 8 no
/// answer. If entries fail, it is the code of these failures if all are the same, otherwise 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir ls /demo\n  weir ls -lR /demo/data --json")]
pub(crate) struct Args {
    /// Show sizes, times and versions of the entries, which takes an Interest for each
    #[arg(short, long)]
    long: bool,
    /// List the entries of all directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    look: LookArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    let LookArgs { name, json, router, read } = &args.look;
    let mut client = connect(router, name)?;
    let walk = Walk {
        part: Part::Listings,
        list_depth: if args.recursive { DEPTH_MAX } else { 1 },
        visits_files: args.long,
    };
    let found = survey(&mut client, read, name, walk, &stop, &mut |_, _| {})
        .map_err(|error| error.context(format!("cannot list {name}")))?;
    if *json {
        outln!("{}", list_json(name, &found))?;
    } else {
        out!("{}", list_text(args.long, &found))?;
    }
    report_failed("list", name, found.failed)
}

/// A row of the list.
#[derive(Default)]
struct Row<'a> {
    is_directory: bool,
    /// The metadata, if they were fetched.
    metadata: Option<&'a Metadata>,
}

/// The entries in order of their paths. A file is the only row, with an empty path.
fn rows(found: &Survey) -> BTreeMap<Vec<u8>, Row<'_>> {
    let mut rows = BTreeMap::<Vec<u8>, Row<'_>>::new();
    for seen in &found.seen {
        for entry in seen.entries.iter().flatten() {
            let row = rows.entry(join_path(&seen.path, entry)).or_default();
            row.is_directory = entry.ends_with(b"/");
        }
        if seen.depth > 0 || !seen.is_directory() {
            let row = rows.entry(seen.path.clone()).or_default();
            (row.is_directory, row.metadata) = (seen.is_directory(), Some(&seen.metadata));
        }
    }
    rows
}

fn path_text(path: &[u8], row: &Row<'_>) -> String {
    match row.metadata {
        // The object of the command line is no directory.
        Some(metadata) if path.is_empty() => metadata.versioned.to_string(),
        _ => {
            let slash = if row.is_directory { "/" } else { "" };
            format!("{}{slash}", printable(String::from_utf8_lossy(path)))
        }
    }
}

fn list_text(is_long: bool, found: &Survey) -> String {
    let rows = rows(found);
    if !is_long {
        return rows.iter().map(|(path, row)| format!("{}\n", path_text(path, row))).collect();
    }
    let mut table = Table::new(&[
        ("KIND", Align::Left),
        ("SIZE", Align::Right),
        ("MODIFIED", Align::Left),
        ("VERSION", Align::Right),
        ("NAME", Align::Left),
    ]);
    for (path, row) in &rows {
        let of = |text: &dyn Fn(&Metadata) -> Option<String>| {
            row.metadata.and_then(text).unwrap_or_else(|| "-".to_owned())
        };
        table.row(vec![
            of(&|metadata| Some(kind_of(metadata).to_owned())),
            of(&|metadata| {
                let size = metadata.size_bytes.filter(|_| !row.is_directory)?;
                Some(octets(size))
            }),
            of(&|metadata| Some(date_text(metadata.mtime_ns?))),
            of(&|metadata| Some(version_of(metadata)?.to_string())),
            path_text(path, row),
        ]);
    }
    table.render("no entries")
}

fn list_json(name: &Name, found: &Survey) -> Value {
    let entry = |(path, row): (Vec<u8>, Row<'_>)| {
        let metadata = row.metadata;
        json!({
            "path": String::from_utf8_lossy(&path),
            "kind": metadata.map_or(if row.is_directory { "directory" } else { "file" }, kind_of),
            "versioned": metadata.map(|it| it.versioned.to_string()),
            "size_bytes": metadata.and_then(|it| it.size_bytes),
            "modified_unix_ms": metadata.and_then(|it| it.mtime_ns).map(|ns| ns / 1_000_000),
        })
    };
    let root = found.seen.first();
    json!({
        "name": name.to_string(),
        "kind": root.map(|root| kind_of(&root.metadata)),
        "versioned": root.map(|root| root.metadata.versioned.to_string()),
        "entries": rows(found).into_iter().map(entry).collect::<Vec<_>>(),
        "failed": found.failed.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(),
    })
}
