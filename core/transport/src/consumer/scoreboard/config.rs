//! The configuration of a scoreboard.

use weir_base::{NS_PER_MS, RttConfig};

use crate::congestion::{Controller, ControllerConstants, WindowBounds};
use crate::consumer::config::ConsumerConfig;

/// What a scoreboard takes from its consumer's configuration.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ScoreboardConfig {
    pub(crate) lifetime_ns: u64,
    pub(crate) retries_max: u32,
    /// A segment is requested once; a lost or refused one is given up.
    pub(crate) sends_once: bool,
    /// See [`ConsumerConfig::chunk_segments`](crate::ConsumerConfig::chunk_segments).
    pub(crate) chunk_segments: u32,
    pub(crate) rtt: RttConfig,
    pub(crate) controller: Controller,
    pub(crate) constants: ControllerConstants,
    pub(crate) window: WindowBounds,
    /// See [`ConsumerConfig::decrease_interval_ns`](crate::ConsumerConfig::decrease_interval_ns).
    pub(crate) decrease_interval_ns: Option<u64>,
    /// See [`ConsumerConfig::waits_for_lifetime`](crate::ConsumerConfig::waits_for_lifetime).
    pub(crate) waits_for_lifetime: bool,
    pub(crate) trace: bool,
}

impl ScoreboardConfig {
    pub(crate) fn new(config: &ConsumerConfig) -> Self {
        Self {
            lifetime_ns: config.lifetime_ms.saturating_mul(NS_PER_MS),
            retries_max: config.retries_max,
            sends_once: !config.is_reliable,
            chunk_segments: config.chunk_segments,
            rtt: config.rtt,
            controller: config.controller,
            constants: config.constants,
            window: WindowBounds { initial: config.window, max: config.window_max },
            decrease_interval_ns: config.decrease_interval_ns,
            waits_for_lifetime: config.waits_for_lifetime,
            trace: config.trace,
        }
    }
}
