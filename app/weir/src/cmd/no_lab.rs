//! `weir lab`, `weir link` and `weir model` in a build without the laboratory: they only explain
//! how to get it.

use std::ffi::OsString;

/// Not available: this program was built without the laboratory.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

pub(crate) fn run(command: &str) -> anyhow::Result<()> {
    anyhow::bail!(
        "`weir {command}` belongs to the laboratory, and this program was built without it; to \
         build and run it, use `cargo run --release --features lab -- {command}` in the source \
         folder of Weir"
    )
}
