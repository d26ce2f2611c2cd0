#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod app;
mod check;
mod codec;
mod control;
mod coordinator;
mod disks;
pub mod emulator;
mod fill;
mod huge_pages;
mod links;
mod merge;
mod metrics;
mod outputs;
mod proc;
mod process;
mod relay;
mod router;
mod site;
pub mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_S;
use weir_plan::Plan;
use weir_plan::event::Observer;

pub use huge_pages::begin_with_huge_pages;
pub use proc::{cores, end_with_parent, pin};

/// How a plan is run on this machine.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// The `weir` program; [`RealOptions::default`] takes the one that runs.
    pub program: PathBuf,
    /// Cores on which routers may run; all when empty.
    pub cpu_router: Vec<usize>,
    /// Cores on which consumers, producers and the link emulator may run; all when empty.
    pub cpu_apps: Vec<usize>,
    /// A folder in which every router leaves `NODE.csv` (function, percent of its own samples,
    /// samples): where its time went. Nothing is sampled when `None`.
    pub profile: Option<PathBuf>,
    /// A folder that is made for configuration files, logs and events and stays; a temporary one
    /// that goes when `None`.
    pub keep: Option<PathBuf>,
    /// How long all processes together may take to become ready, ns.
    pub start_timeout_ns: u64,
    /// Set to break off: the run ends with [`RealError::Interrupted`].
    pub stop: Arc<AtomicBool>,
}

impl Default for RealOptions {
    fn default() -> Self {
        Self {
            program: std::env::current_exe().unwrap_or_else(|_| "weir".into()),
            cpu_router: Vec::new(),
            cpu_apps: Vec::new(),
            profile: None,
            keep: None,
            start_timeout_ns: 60 * NS_PER_S,
            stop: Arc::default(),
        }
    }
}

/// What the machine did in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RealReport {
    /// From the common start to the end of the last consumer, ns.
    pub elapsed_ns: u64,
    /// Events that the observer was given.
    pub events: u64,
    /// Cores on which routers ran.
    pub cpu_router: Vec<usize>,
    /// Cores on which applications ran.
    pub cpu_apps: Vec<usize>,
    /// Routers, in the order of the plan.
    pub routers: Vec<RouterReport>,
    /// Consumers and producers, in the order of the plan.
    pub apps: Vec<AppReport>,
    /// Share of one core that the link emulator used.
    pub emulator_utilisation: f64,
}

/// What a router did between the common start and the end of the last consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouterReport {
    /// An index into [`Plan::nodes`].
    pub node: u32,
    pub name: String,
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Share of one core, 0 to the number of its threads. 1 with one shard is saturation; the rate
    /// at saturation is the rate divided by this.
    pub utilisation: f64,
    /// Interests and Data that came in.
    pub packets_in: u64,
    /// Interests and Data that went out.
    pub packets_out: u64,
    /// Pending Interests at the end.
    pub pit_entries: u64,
}

/// What a consumer or producer did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppReport {
    /// An index into [`Plan::nodes`].
    pub node: u32,
    pub name: String,
    /// Processor time between the common start and its end, ns.
    pub cpu_ns: u64,
    /// Share of one core.
    pub utilisation: f64,
    pub packets_in: u64,
    pub packets_out: u64,
    /// Turns of its loop that had something to do: packets a turn say how well it batches.
    pub turns: u64,
    /// How late it was when it had asked to be called at a time: median, ns.
    pub lateness_median_ns: u64,
    /// The same: 99th percentile.
    pub lateness_p99_ns: u64,
    /// The same: most.
    pub lateness_max_ns: u64,
    /// Packets that its socket's queue refused.
    pub dropped: u64,
    /// Connections that it lost and made again.
    pub reconnects: u64,
}

/// Why a plan did not run.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The plan asks for something that processes on one machine cannot do.
    #[error("the real arm cannot run this plan: {0}")]
    Unsupported(String),
    /// The system refused something.
    #[error("{what}: {source}")]
    System { what: String, source: std::io::Error },
    /// A process did not start, ended before its time, or ended with an error.
    #[error("{title} {what}{}", log_tail(.log))]
    Process {
        title: String,
        what: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// A router refused a command.
    #[error("router `{router}` refused {what}: {reason}")]
    Command {
        /// Its name in the plan.
        router: String,
        what: String,
        reason: String,
    },
    /// A consumer received octets that no producer made.
    #[error("consumer `{node}` received wrong octets: {what}")]
    WrongBytes {
        /// Its name in the plan.
        node: String,
        what: String,
    },
    /// [`RealOptions::stop`] was set.
    #[error("interrupted")]
    Interrupted,
}

fn log_tail(log: &str) -> String {
    match log.trim_end() {
        "" => " and left no message".to_owned(),
        log => format!("; its last words:\n{log}"),
    }
}

/// Runs `plan` to its end; `observer` gets what happened, in the order of time, after the end.
///
/// # Errors
/// [`RealError`]; no process is left running.
pub fn run(
    plan: &Plan,
    options: &RealOptions,
    observer: &mut dyn Observer,
) -> Result<RealReport, RealError> {
    plan.check().map_err(|error| RealError::Unsupported(error.to_string()))?;
    check::check(plan)?;
    coordinator::run(plan, options, observer)
}
