//! `weir strategy`.

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Value, json};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, StrategyChoice};
use weir_wire::Name;

use crate::management_client::ManagementArgs;
use crate::table::{Align, Table, out, outln};
use crate::transfer::parse_prefix;
use crate::words::Suggesting;

/// List, set and unset forwarding strategies of a running router.
///
/// A strategy chooses among several routes. best-route uses the cheapest route, and another for a
/// retransmission. multicast uses all routes. lowest-rtt uses the fastest. multipath spreads the
/// segments of an object over all routes. asf uses the fastest and probes another one each minute;
/// its parameters are probing-interval, max-timeouts and measurements-lifetime. random uses any
/// route. access uses all routes at first, and then the one that answered. self-learning needs no
/// routes: it sends the first Interest to all neighbours, and learns the route from the answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir strategy set /demo multicast\n  weir strategy list")]
pub(crate) struct Args {
    #[command(flatten)]
    router: ManagementArgs,
    #[command(subcommand)]
    command: Option<StrategyCommand>,
}

#[derive(Subcommand)]
enum StrategyCommand {
    /// List the prefixes with their strategies (the default command)
    #[command(after_help = "Examples:\n  weir strategy list\n  weir strategy list --json")]
    List,
    /// Show the strategy that applies to a name
    #[command(after_help = "Examples:\n  weir strategy show /demo/services\n  weir strategy show \
                      /demo/services --json")]
    Show {
        /// The name
        #[arg(value_parser = parse_prefix)]
        name: Name,
    },
    /// Set the strategy of a prefix and all names below it
    #[command(
        after_help = "Examples:\n  weir strategy set /demo multicast\n  weir strategy set /live \
                      lowest-rtt"
    )]
    Set {
        /// The prefix; / means all names
        #[arg(value_parser = parse_prefix)]
        prefix: Name,
        /// best-route, multicast, lowest-rtt, multipath, asf, random, access, self-learning, or a
        /// full strategy name with version and parameters
        #[arg(hide_possible_values = true,
            value_parser = Suggesting::new(STRATEGIES, parse_strategy))]
        strategy: Name,
    },
    /// Remove the strategy of a prefix, so that the next shorter prefix decides
    #[command(
        aliases = ["remove", "delete", "rm", "del"],
        after_help = "Examples:\n  weir strategy unset /demo\n  weir strategy unset /live --json"
    )]
    Unset {
        /// The prefix
        #[arg(value_parser = parse_prefix)]
        prefix: Name,
    },
}

/// The short names of the strategies. Full names are valid, too.
const STRATEGIES: &[&str] = &[
    "best-route",
    "multicast",
    "lowest-rtt",
    "multipath",
    "asf",
    "random",
    "access",
    "self-learning",
];

/// Parses a strategy name. A short name is completed with `/localhost/nfd/strategy/`.
fn parse_strategy(text: &str) -> Result<Name, String> {
    let full = if text.starts_with('/') || text.starts_with("ndn:") {
        text.to_owned()
    } else {
        format!("/localhost/nfd/strategy/{text}")
    };
    full.parse().map_err(|error| format!("`{text}` is not a strategy name: {error}"))
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut client = args.router.connect()?;
    let is_json = args.router.json;
    match args.command.unwrap_or(StrategyCommand::List) {
        StrategyCommand::List => {
            let choices = client.dataset::<StrategyChoice>("strategy-choice/list")?;
            if is_json {
                outln!("{}", Value::from_iter(choices.iter().map(choice_json)))?;
            } else {
                out!("{}", choices_table(&choices))?;
            }
        }
        StrategyCommand::Show { name } => {
            let choices = client.dataset::<StrategyChoice>("strategy-choice/list")?;
            let choice = choices
                .into_iter()
                .filter(|choice| choice.name.as_view().is_prefix_of(name.as_view()))
                .max_by_key(|choice| choice.name.component_count())
                .context("the router reported no strategy for that name")?;
            print_choice(&choice, is_json)?;
        }
        StrategyCommand::Set { prefix, strategy } => {
            let parameters = ControlParameters {
                name: Some(prefix.clone()),
                strategy: Some(strategy.clone()),
                ..ControlParameters::default()
            };
            let body =
                client.command(Command::StrategyChoiceSet, &parameters).with_context(|| {
                    format!("cannot set the strategy of {prefix} (try best-route or multicast)")
                })?;
            let strategy = body.strategy.unwrap_or(strategy);
            print_choice(&StrategyChoice { name: prefix, strategy }, is_json)?;
        }
        StrategyCommand::Unset { prefix } => {
            anyhow::ensure!(
                !prefix.is_empty(),
                "/ always needs a strategy; set another one with `weir strategy set / NAME`"
            );
            // The router reports success even for a prefix without a strategy, so check first.
            let choices = client.dataset::<StrategyChoice>("strategy-choice/list")?;
            anyhow::ensure!(
                choices.iter().any(|choice| choice.name == prefix),
                "{prefix} has no strategy of its own; list the strategies with `weir strategy list`"
            );
            let name = Some(prefix.clone());
            let parameters = ControlParameters { name, ..ControlParameters::default() };
            client.command(Command::StrategyChoiceUnset, &parameters)?;
            if is_json {
                outln!("{}", json!({ "prefix": prefix.to_string() }))?;
            } else {
                outln!("{prefix} now uses the strategy of the next shorter prefix")?;
            }
        }
    }
    Ok(())
}

fn print_choice(choice: &StrategyChoice, is_json: bool) -> anyhow::Result<()> {
    if is_json {
        outln!("{}", choice_json(choice))?;
    } else {
        outln!("{} uses {}", choice.name, short(&choice.strategy))?;
    }
    Ok(())
}

/// The strategy name without the common prefix.
fn short(strategy: &Name) -> String {
    let text = strategy.to_string();
    text.strip_prefix("/localhost/nfd/strategy/").map_or(text.clone(), str::to_owned)
}

/// The strategy choices as a table.
pub(crate) fn choices_table(choices: &[StrategyChoice]) -> String {
    let mut table = Table::new(&[("PREFIX", Align::Left), ("STRATEGY", Align::Left)]);
    for choice in choices {
        table.row(vec![choice.name.to_string(), short(&choice.strategy)]);
    }
    table.render("no strategies")
}

pub(crate) fn choice_json(choice: &StrategyChoice) -> Value {
    json!({ "prefix": choice.name.to_string(), "strategy": choice.strategy.to_string() })
}
