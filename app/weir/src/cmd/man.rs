//! `weir man`.

mod files;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::table::printable;

/// Write the manual pages: man1 has one for each command, and man5 one for each configuration file.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir man /usr/local/share/man\n  weir man .")]
pub(crate) struct Args {
    /// The folder that gets man1 and man5. It is created if it is missing
    folder: PathBuf,
}

const SOURCE: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));

/// Writes the pages of the command line `program`.
pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<()> {
    let folder = |section: &str| {
        let folder = args.folder.join(section);
        let shown = printable(folder.display()).to_string();
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {shown}"))?;
        anyhow::Ok((folder, format!("cannot write to {shown}")))
    };
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let (commands, failed) = folder("man1")?;
    write_pages(&program, &commands).context(failed)?;
    let (configurations, failed) = folder("man5")?;
    files::write_pages(&configurations, SOURCE).context(failed)
}

/// Writes the page of a command, then those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    let man = Man::new(command.clone()).source(SOURCE).manual("Weir");
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
    if let Some(file) = files::page_for(command.get_display_name().unwrap_or_default()) {
        roff.control("SH", ["SEE ALSO"]);
        files::references(&[(file, "(5)")], &mut roff);
    }
    roff.to_writer(&mut text)?;
    Ok(text)
}
