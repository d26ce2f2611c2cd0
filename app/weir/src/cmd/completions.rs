//! `weir completions`.

use clap::Command;
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
pub(crate) fn run(args: &Args, program: &Command) -> anyhow::Result<()> {
    // In memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    let mut shown = without_hidden(program);
    clap_complete::generate(args.shell, &mut shown, "weir", &mut script);
    crate::table::write_out(format_args!("{}", String::from_utf8(script)?))?;
    Ok(())
}

/// The command line without the commands that no help page lists. The generator includes them, and
/// a command cannot be removed.
fn without_hidden(command: &Command) -> Command {
    if !has_hidden(command) {
        return command.clone();
    }
    // Without its feature `string`, clap takes no owned text. The program ends after this.
    let kept = |text: &str| -> &'static str { text.to_owned().leak() };
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut copy = Command::new(kept(command.get_name()))
        .visible_aliases(command.get_visible_aliases().map(kept))
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned())
        .subcommands(shown.map(without_hidden));
    if let Some(version) = command.get_version() {
        copy = copy.version(kept(version));
    }
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    copy
}

fn has_hidden(command: &Command) -> bool {
    command.get_subcommands().any(|command| command.is_hide_set() || has_hidden(command))
}
