//! What `weir lab`, `weir link` and `weir model` say in a program built without the laboratory.

use std::ffi::OsString;

/// Part of the laboratory, which this program was built without.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

pub(crate) fn run(command: &str) -> anyhow::Result<()> {
    anyhow::bail!(
        "this program was built without the laboratory, which `weir {command}` is part of; in \
         the source folder of Weir, `cargo run --release --features lab -- {command}` builds it \
         and runs it"
    )
}
