//! `weir controller file`.

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use weir_agent::{FileError, Files, RegisteredFile};
use weir_wire::Name;

use crate::controller_args::ControllerArgs;
use crate::exit::Exit;
use crate::table::{Align, Table, octets, out, outln};

#[derive(Subcommand)]
pub(super) enum FileCommand {
    /// List the registered files and their owners. Needs a token of an operator, reader or producer
    #[command(after_help = "Examples:\n  weir controller file list \\\n    --controller \
                      http://127.0.0.1:8636 --controller-token-file reader.token\n  weir \
                      controller file list --json \\\n    --controller http://127.0.0.1:8636 \
                      --controller-token-file reader.token")]
    #[command(mut_arg("url", |url| url.help(URL).required(true)))]
    #[command(mut_arg("token_file", |file| file.help(TOKEN).required(true)))]
    List {
        #[command(flatten)]
        controller: ControllerArgs,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Withdraw a file, so that routers no longer keep parts of it. The producer still serves it.
    /// Needs a token of an operator or of the producer that registered the file
    #[command(after_help = "Examples:\n  weir controller file remove /demo/hosts/v=1 \\\n    \
                      --controller http://127.0.0.1:8636 --controller-token-file \
                      operator.token\n  weir controller file remove /demo/hosts/v=1 --json \\\n    \
                      --controller http://127.0.0.1:8636 --controller-token-file operator.token")]
    #[command(mut_arg("url", |url| url.help(URL).required(true)))]
    #[command(mut_arg("token_file", |file| file.help(TOKEN).required(true)))]
    Remove {
        /// The name with its version, as `list` and the dashboard show it
        name: Name,
        #[command(flatten)]
        controller: ControllerArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

const URL: &str = "URL of the controller, such as http://127.0.0.1:8636. Repeat the option for \
                   several controllers that share a database; the first that answers is used";
const TOKEN: &str = "Read the token from this file; `weir controller token add` creates one";

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
                return Err(Exit::NotFound.error(format!(
                    "{name} is not registered; `weir controller file list` shows the names with \
                     their versions"
                )));
            }
            if json {
                outln!("{}", json!({ "withdrawn": name.to_string() }))?;
            } else {
                outln!("withdrew {name}")?;
            }
        }
    }
    Ok(())
}

fn connect(controller: &ControllerArgs) -> anyhow::Result<Files> {
    controller.files()?.context("name the controller, such as --controller http://127.0.0.1:8636")
}

/// Adds advice to an error by its HTTP status.
fn explain(error: FileError, what: &str) -> anyhow::Error {
    let hint = match error.status() {
        None => {
            return Exit::TryAgain.error(format!(
                "cannot {what}: {error}; check that the controller runs and that --controller is \
                 its address"
            ));
        }
        Some(401) => "use a token of this controller (--controller-token-file)",
        Some(403) => "use an operator's token",
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
            None => "on request".to_owned(),
            Some(newer) => format!("no, {newer} is newer"),
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
