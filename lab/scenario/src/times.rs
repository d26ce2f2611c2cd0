//! `[run]`: the length of a run, the measured part of it, and its seeds.

use std::num::NonZeroU64;

use serde::Deserialize;
use weir_base::units::Time;

use crate::document::{ScenarioError, Tree};

/// `[run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct RunTable {
    duration: Time,
    drain: Option<Time>,
    warm_up: Option<WarmUpWord>,
    sample: Option<Time>,
    pub(crate) seeds: Option<Seeds>,
    pub(crate) seed: Option<u64>,
}

/// `run.warm_up`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "write a time such as \"200ms\", or \"auto\"")]
enum WarmUpWord {
    Auto(Auto),
    Time(Time),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auto {
    Auto,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write a number of seeds, or a list of whole numbers")]
pub(crate) enum Seeds {
    Count(NonZeroU64),
    List(Vec<u64>),
}

/// The time at the start of a run that is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// This time, ns.
    Fixed(u64),
    /// Estimated from the round-trip times of the run.
    Auto,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) duration_ns: u64,
    pub(crate) warm_up: WarmUp,
    pub(crate) sample_ns: u64,
    pub(crate) drain_ns: Option<u64>,
}

pub(crate) fn times(tree: &Tree, run: &RunTable) -> Result<Times, ScenarioError> {
    let duration_ns = run.duration.ns;
    let warm_up = match run.warm_up {
        None => WarmUp::Fixed(0),
        Some(WarmUpWord::Auto(Auto::Auto)) => WarmUp::Auto,
        Some(WarmUpWord::Time(time)) => WarmUp::Fixed(time.ns),
    };
    if duration_ns == 0 {
        let message = "a run of length 0 measures nothing; write for example \"10s\"";
        return Err(tree.error("run.duration", message));
    }
    if matches!(warm_up, WarmUp::Fixed(ns) if ns >= duration_ns) {
        let message = "the warm-up takes the whole duration; write a shorter one";
        return Err(tree.error("run.warm_up", message));
    }
    let sample_ns = run.sample.map_or(duration_ns / 100, |time| time.ns);
    if sample_ns > 0 && duration_ns / sample_ns > 1_000_000 {
        let message = "more than a million samples in a run; write a longer `sample`";
        return Err(tree.error("run.sample", message));
    }
    Ok(Times { duration_ns, warm_up, sample_ns, drain_ns: run.drain.map(|time| time.ns) })
}
