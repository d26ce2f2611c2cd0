//! `weir controller file`.

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::json;
use weir_agent::{FileError, Files, RegisteredFile};
use weir_wire::Name;

use crate::controller_args::ControllerArgs;
use crate::table::{Align, Table, octets, out, outln};

#[derive(Subcommand)]
pub(super) enum FileCommand {
    /// List the files, each with who registered it: for operators, readers and producers
    #[command(mut_arg("url", |url| url.help(URL).required(true)))]
    #[command(mut_arg("token_file", |file| file.help(TOKEN).required(true)))]
    List {
        #[command(flatten)]
        controller: ControllerArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Withdraw a file: routers are told no longer to keep it, and its producer goes on serving it.
    /// For operators, and for the producer that registered it
    #[command(mut_arg("url", |url| url.help(URL).required(true)))]
    #[command(mut_arg("token_file", |file| file.help(TOKEN).required(true)))]
    Remove {
        /// Its name with the version, as `list` and the dashboard show it
        name: Name,
        #[command(flatten)]
        controller: ControllerArgs,
        /// Say that it is withdrawn as a JSON object
        #[arg(long)]
        json: bool,
    },
}

const URL: &str = "The controller, such as http://127.0.0.1:8636. Several that share a database, \
                   in the order in which they are asked: once for each";
const TOKEN: &str = "A file with a token of it (`weir controller token add`)";

pub(super) fn run(command: FileCommand) -> anyhow::Result<()> {
    match command {
        FileCommand::List { controller, json } => {
            let files = connect(&controller)?.list().map_err(|error| explain(error, "list"))?;
            if json {
                outln!("{}", serde_json::to_string_pretty(&files)?)?;
            } else {
                out!("{}", table(&files).render("no file is registered"))?;
            }
        }
        FileCommand::Remove { name, controller, json } => {
            let files = connect(&controller)?;
            if !files.withdraw(&name).map_err(|error| explain(error, "withdraw"))? {
                bail!(
                    "{name} is not registered; `weir controller file list` says which files are, \
                     by their names with the version"
                );
            }
            if json {
                outln!("{}", json!({ "withdrawn": name.to_string() }))?;
            } else {
                outln!("{name} is withdrawn")?;
            }
        }
    }
    Ok(())
}

fn connect(controller: &ControllerArgs) -> anyhow::Result<Files> {
    controller.files()?.context("say which controller: --controller http://127.0.0.1:8636")
}

/// What to do next.
fn explain(error: FileError, what: &str) -> anyhow::Error {
    let hint = match error.status() {
        None => "is it running, and is that its address (--controller)?",
        Some(401) => "give a file with one of its tokens (--controller-token-file)",
        Some(403) => "an operator's token may",
        Some(_) => return anyhow::anyhow!("cannot {what}: {error}"),
    };
    anyhow::anyhow!("cannot {what}: {error}; {hint}")
}

fn table(files: &[RegisteredFile]) -> Table {
    let columns = [
        ("FILE", Align::Left),
        ("SEGMENTS", Align::Right),
        ("SIZE", Align::Right),
        ("OWNER", Align::Left),
        ("KEPT", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for file in files {
        let kept = match &file.newer {
            None => "when asked for".to_owned(),
            Some(newer) => format!("no: {newer} is newer"),
        };
        table.row(vec![
            file.name.to_string(),
            file.segments.to_string(),
            octets(file.size_bytes),
            file.owner.clone(),
            kept,
        ]);
    }
    table
}
