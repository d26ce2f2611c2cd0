//! The program `weir`: it parses the command line, runs one command and returns an exit code.

mod cmd;
mod config;
mod controller_args;
mod exit;
mod help;
mod limits;
mod management_client;
mod packet_json;
mod quantity;
mod signals;
mod state;
mod table;
mod traces;
mod transfer;
mod words;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};

// musl's allocator has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Content by name: router, transfers and tools for Named Data Networking.
#[derive(Parser)]
#[command(
    name = "weir",
    bin_name = "weir",
    version = env!("WEIR_VERSION"),
    about,
    max_term_width = 100,
    after_help = format!(
        "{}\n\nExamples:\n  weir demo --size 16MiB\n  weir router",
        exit::SUMMARY
    )
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(cmd::demo::Args),
    Router(cmd::router::Args),
    #[cfg(feature = "controller")]
    Controller(cmd::controller::Args),
    #[cfg(feature = "gateway")]
    Gateway(Box<cmd::gateway::Args>),
    Put(Box<cmd::put::Args>),
    Get(Box<cmd::get::Args>),
    Ls(Box<cmd::ls::Args>),
    Stat(Box<cmd::stat::Args>),
    Ping(cmd::ping::Args),
    Status(cmd::status::Args),
    #[cfg(feature = "top")]
    Top(cmd::top::Args),
    Face(cmd::face::Args),
    Route(cmd::route::Args),
    Cs(cmd::cs::Args),
    Strategy(cmd::strategy::Args),
    Key(cmd::key::Args),
    Packet(cmd::packet::Args),
    Doctor(cmd::doctor::Args),
    Completions(cmd::completions::Args),
    #[command(hide = true)]
    Man(cmd::man::Args),
    #[cfg(feature = "lab")]
    Link(Box<cmd::link::Args>),
    #[cfg(feature = "lab")]
    Lab(cmd::lab::Args),
    #[cfg(feature = "lab")]
    Model(cmd::model::Args),
    #[cfg(not(feature = "lab"))]
    #[command(hide = true)]
    Link(cmd::no_lab::Args),
    #[cfg(not(feature = "lab"))]
    #[command(hide = true)]
    Lab(cmd::no_lab::Args),
    #[cfg(not(feature = "lab"))]
    #[command(hide = true)]
    Model(cmd::no_lab::Args),
}

fn main() -> ExitCode {
    let command = Cli::try_parse()
        .unwrap_or_else(|error| {
            // Arguments may be no UTF-8.
            let first = std::env::args_os().nth(1);
            suggest_anagram(error, first.as_deref().and_then(std::ffi::OsStr::to_str)).exit()
        })
        .command;
    weir_metrics::set_commit(env!("WEIR_COMMIT"));
    match signals::install_no_op_handlers().and_then(|()| run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has seen enough, as in `weir status | head -1`.
        Err(error) if error.downcast_ref().is_some_and(table::OutError::is_closed) => {
            ExitCode::from(exit::Exit::Failure as u8)
        }
        Err(error) => {
            if !error.is::<exit::InJournal>() {
                table::errln!("weir: {error:#}{}", limits::hint(&error));
            }
            if error.downcast_ref::<transfer::Interrupted>().is_some() {
                ExitCode::from(signals::exit_code())
            } else {
                ExitCode::from(exit_code(&error))
            }
        }
    }
}

/// Suggests `get` for `gte`. Swapped letters in a short word are too different for clap, which
/// would suggest `gateway`. `first` is the first argument.
fn suggest_anagram(mut error: clap::Error, first: Option<&str>) -> clap::Error {
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let program = Cli::command();
    let similar = program.get_subcommands().find(|command| {
        let is_meant = letters(command.get_name()) == letters(word);
        is_meant && first == Some(word) && !command.is_hide_set()
    });
    if let Some(similar) = similar {
        let names = ContextValue::Strings(vec![similar.get_name().to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, names);
    }
    error
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => cmd::demo::run(args),
        Command::Router(args) => cmd::router::run(args),
        #[cfg(feature = "controller")]
        Command::Controller(args) => cmd::controller::run(args),
        #[cfg(feature = "gateway")]
        Command::Gateway(args) => cmd::gateway::run(*args),
        Command::Put(args) => cmd::put::run(*args),
        Command::Get(args) => cmd::get::run(*args),
        Command::Ls(args) => cmd::ls::run(*args),
        Command::Stat(args) => cmd::stat::run(*args),
        Command::Ping(args) => cmd::ping::run(args),
        Command::Status(args) => cmd::status::run(args),
        #[cfg(feature = "top")]
        Command::Top(args) => cmd::top::run(args),
        Command::Face(args) => cmd::face::run(args),
        Command::Route(args) => cmd::route::run(args),
        Command::Cs(args) => cmd::cs::run(args),
        Command::Strategy(args) => cmd::strategy::run(args),
        Command::Key(args) => cmd::key::run(args),
        Command::Packet(args) => cmd::packet::run(args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Completions(args) => cmd::completions::run(&args, &Cli::command()),
        Command::Man(args) => cmd::man::run(&args, Cli::command()),
        #[cfg(feature = "lab")]
        Command::Link(args) => cmd::link::run(*args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => cmd::lab::run(args),
        #[cfg(feature = "lab")]
        Command::Model(args) => cmd::model::run(args),
        #[cfg(not(feature = "lab"))]
        Command::Link(_) => cmd::no_lab::run("link"),
        #[cfg(not(feature = "lab"))]
        Command::Lab(_) => cmd::no_lab::run("lab"),
        #[cfg(not(feature = "lab"))]
        Command::Model(_) => cmd::no_lab::run("model"),
    }
}

#[cfg(feature = "lab")]
fn exit_code(error: &anyhow::Error) -> u8 {
    cmd::lab::exit_code(error).unwrap_or_else(|| general_exit_code(error))
}

#[cfg(not(feature = "lab"))]
fn exit_code(error: &anyhow::Error) -> u8 {
    general_exit_code(error)
}

fn general_exit_code(error: &anyhow::Error) -> u8 {
    let missing = error.downcast_ref::<management_client::MissingDataset>();
    missing.map_or_else(|| exit::Exit::of(error), |missing| missing.exit) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of the `weir` command in an example. Quoted text becomes one word.
    fn words(example: &str) -> Vec<String> {
        let mut text = String::new();
        for (index, part) in example.split('"').enumerate() {
            text.push_str(if index % 2 == 0 { part } else { "quoted" });
        }
        let mut commands = text.split(['|', ';', '>']).map(str::trim);
        let command = commands.find(|command| command.starts_with("weir ")).expect("a command");
        command.split_whitespace().map(str::to_owned).collect()
    }

    fn check_examples(command: &clap::Command, path: &str) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (_, examples) = help.split_once("Examples:\n").expect(path);
        let examples = examples.replace("\\\n", "");
        assert_eq!(examples.lines().count(), 2, "{path}: {examples}");
        for example in examples.lines() {
            let words = words(example);
            assert!(words.join(" ").starts_with(path), "{path}: {example}");
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{example}: {error}");
            }
        }
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            check_examples(command, &format!("{path} {}", command.get_name()));
        }
    }

    #[test]
    fn swapped_letters_suggest_the_command() {
        let message = |first: &str, all: &[&str]| {
            let error = Cli::try_parse_from(all).err().expect("an error");
            suggest_anagram(error, Some(first)).to_string()
        };
        let text = message("gte", &["weir", "gte"]);
        assert!(text.contains("'get'") && !text.contains("gateway"), "{text}");
        assert!(message("rotuer", &["weir", "rotuer"]).contains("'router'"));
        assert!(!message("face", &["weir", "face", "gte"]).contains("'get'"));
        assert!(!message("nma", &["weir", "nma"]).contains("'man'"));
    }

    #[test]
    fn help_pages_end_with_two_valid_examples() {
        let command = Cli::command();
        command.clone().debug_assert();
        check_examples(&command, "weir");
    }
}
