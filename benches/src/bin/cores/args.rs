//! Command line and conditions.

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Parser, ValueEnum};

/// Number of first name components, which are divided among the producers.
pub(crate) const SITES: u64 = 16;

#[derive(Parser, Clone)]
pub(crate) struct Args {
    /// Numbers of worker threads. Ratios refer to the first.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<usize>,
    /// Where Data come from.
    #[arg(long, value_delimiter = ',', default_value = "kernel,warm,forwarded")]
    pub(crate) modes: Vec<Mode>,
    /// Kinds of the consumers' faces.
    #[arg(long, value_delimiter = ',', default_value = "unix")]
    pub(crate) faces: Vec<Faces>,
    /// Content bytes of each Data.
    #[arg(long, value_delimiter = ',', default_value = "8000,1000")]
    pub(crate) payload: Vec<usize>,
    /// Number of consumers; by default the largest number of worker threads, at least two.
    #[arg(long)]
    pub(crate) consumers: Option<usize>,
    /// Number of producers, likewise, at most 16. Except with `forwarded`, they only fill the
    /// routers.
    #[arg(long)]
    pub(crate) producers: Option<usize>,
    /// Pending Interests of each consumer.
    #[arg(long, default_value_t = 256)]
    pub(crate) window: usize,
    /// Number of objects of 128 Data that a consumer requests in turn.
    #[arg(long, default_value_t = 8)]
    pub(crate) interleave: u64,
    /// Size of the Data that `warm` and `disk` request, in MiB.
    #[arg(long, default_value_t = 256)]
    pub(crate) mebibytes: usize,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Also measures the same number of routers with one worker thread each.
    #[arg(long)]
    pub(crate) apart: bool,
    /// Folder for the disks' files; by default that of temporary files.
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
    /// Additional arguments for `weir router`.
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub(crate) router: String,
    /// Prints a JSON object for each line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1).max(2)
    }

    pub(crate) fn consumers(&self) -> usize {
        self.consumers.unwrap_or_else(|| self.most_threads())
    }

    pub(crate) fn producers(&self) -> usize {
        self.producers.unwrap_or_else(|| self.most_threads().min(SITES as usize))
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.rounds > 0 && self.interleave > 0, "--rounds, --interleave: one at least");
        ensure!(!self.threads.contains(&0), "--threads: one at least");
        ensure!((1..=SITES as usize).contains(&self.producers()), "--producers: 1 to {SITES}");
        ensure!(self.consumers() > 0, "--consumers: one at least");
        if self.apart {
            let divides =
                |count: usize| self.threads.iter().all(|&threads| count.is_multiple_of(threads));
            ensure!(
                divides(self.consumers()) && divides(self.producers()),
                "--apart: give --consumers and --producers that each of --threads divides"
            );
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Kernel,
    Warm,
    Forwarded,
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Faces {
    Unix,
    Shm,
    Udp,
    Tcp,
}

pub(crate) fn label(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A condition under which all numbers of threads are measured.
#[derive(Clone, Copy)]
pub(crate) struct Condition {
    pub(crate) mode: Mode,
    pub(crate) faces: Faces,
    pub(crate) payload: usize,
    /// Separate routers with one thread each.
    pub(crate) is_apart: bool,
}

impl Condition {
    pub(crate) fn title(&self) -> String {
        let apart = if self.is_apart { " apart" } else { "" };
        format!("{}{apart}", label(self.mode))
    }
}
