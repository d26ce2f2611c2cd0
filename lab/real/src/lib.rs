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
mod testbed;
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

/// How a plan runs on this machine.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// The `weir` program; [`RealOptions::default`] uses the running one.
    pub program: PathBuf,
    /// Cores for routers; empty for all.
    pub cpu_router: Vec<usize>,
    /// Cores for consumers, producers and the link emulator; empty for all.
    pub cpu_apps: Vec<usize>,
    /// A folder for a profile of each router, `NODE.csv` (function, percent of its own samples,
    /// samples). `None` disables sampling.
    pub profile: Option<PathBuf>,
    /// A folder to create for configuration files, logs and events. `None` uses a temporary one,
    /// which is removed at the end.
    pub keep: Option<PathBuf>,
    /// How long all processes together may take to become ready, ns.
    pub start_timeout_ns: u64,
    /// Set to stop: the run ends with [`RealError::Interrupted`].
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

/// The machine's work in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RealReport {
    /// From the common start to the end of the last consumer, ns.
    pub elapsed_ns: u64,
    /// Events passed to the observer.
    pub events: u64,
    /// Cores that routers used.
    pub cpu_router: Vec<usize>,
    /// Cores that applications used.
    pub cpu_apps: Vec<usize>,
    /// Routers, in the order of the plan.
    pub routers: Vec<RouterReport>,
    /// Consumers and producers, in the order of the plan.
    pub apps: Vec<AppReport>,
    /// Fraction of one core that the link emulator used.
    pub emulator_utilisation: f64,
}

/// A router's work between the common start and the end of the last consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouterReport {
    /// Index in [`Plan::nodes`].
    pub node: u32,
    pub name: String,
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Processor time over elapsed time, from 0 to the number of its threads. With one shard, 1 is
    /// saturation, and the rate divided by this is the rate at saturation.
    pub utilisation: f64,
    /// Interests and Data received.
    pub packets_in: u64,
    /// Interests and Data sent.
    pub packets_out: u64,
    /// Pending Interests at the end.
    pub pit_entries: u64,
}

/// The work of a consumer or producer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppReport {
    /// Index in [`Plan::nodes`].
    pub node: u32,
    pub name: String,
    /// Processor time between the common start and its end, ns.
    pub cpu_ns: u64,
    /// Processor time over elapsed time.
    pub utilisation: f64,
    pub packets_in: u64,
    pub packets_out: u64,
    /// Iterations of its loop with work to do. Packets per iteration show how well it batches.
    pub turns: u64,
    /// Median delay of its timers, ns.
    pub lateness_median_ns: u64,
    /// 99th percentile of that delay.
    pub lateness_p99_ns: u64,
    /// Maximum of that delay.
    pub lateness_max_ns: u64,
    /// Packets that its socket's queue dropped.
    pub dropped: u64,
    /// Connections that it lost and restored.
    pub reconnects: u64,
}

/// Why a plan did not run.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Processes on one machine cannot run the plan.
    #[error("the real arm cannot run this plan: {0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: std::io::Error },
    /// A process did not start, ended early, or ended with an error.
    #[error("{title} {what}{}", log_tail(.log))]
    Process {
        title: String,
        what: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// A router rejected a command.
    #[error("router `{router}` refused {what}: {reason}")]
    Command {
        /// Its name in the plan.
        router: String,
        what: String,
        reason: String,
    },
    /// A consumer received bytes that no producer made.
    #[error("consumer `{node}` received wrong bytes: {what}")]
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
        log => format!("; its last output:\n{log}"),
    }
}

/// Runs `plan` to its end. Afterwards, `observer` receives the events in the order of time.
///
/// # Errors
/// A [`RealError`]. No process is left running.
pub fn run(
    plan: &Plan,
    options: &RealOptions,
    observer: &mut dyn Observer,
) -> Result<RealReport, RealError> {
    plan.check().map_err(|error| RealError::Unsupported(error.to_string()))?;
    check::check(plan)?;
    coordinator::run(plan, options, observer)
}
