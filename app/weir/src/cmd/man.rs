//! `weir man`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::table::printable;

/// Write the manual pages: weir.1, and one page for each subcommand.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir man /usr/local/share/man/man1\n  weir man .")]
pub(crate) struct Args {
    /// The folder, which is created if it is missing
    folder: PathBuf,
}

/// Writes the pages of the command line `program`.
pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<()> {
    let folder = &args.folder;
    let shown = printable(folder.display());
    fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
    let mut program = program.disable_help_subcommand(true);
    program.build();
    write_pages(&program, folder).with_context(|| format!("cannot write to {shown}"))
}

/// Writes the page of a command, then those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    let man = Man::new(command.clone())
        .source(concat!("weir ", env!("CARGO_PKG_VERSION")))
        .manual("Weir");
    fs::write(folder.join(man.get_filename()), page(&man, command)?)?;
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(subcommand, folder)?;
    }
    Ok(())
}

/// The page of a command. `Man::render` would join the lines of the examples to a paragraph.
fn page(man: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let end = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::default();
    for paragraph in end.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let (title, lines) = paragraph.split_once(":\n").unwrap_or(("Notes", paragraph));
        roff.control("SH", [title.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(&mut text)?;
    Ok(text)
}
