//! `weir completions`.

use clap_complete::Shell;

/// Print the completion script of a shell.
///
/// In the running shell, the script takes effect when it is sourced. The packages install it for
/// all users.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir completions bash > ~/.local/share/bash-completion/completions/\
                  weir\n  weir completions fish > ~/.config/fish/completions/weir.fish"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for the command line `program`.
pub(crate) fn run(args: &Args, mut program: clap::Command) -> anyhow::Result<()> {
    // In memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "weir", &mut script);
    crate::table::write_out(format_args!("{}", String::from_utf8(script)?))?;
    Ok(())
}
