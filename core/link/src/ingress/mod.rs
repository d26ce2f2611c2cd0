//! Interest shaping: which incoming Interests the forwarder gets at once, and which are delayed.

mod config;
mod delayed;
mod fisp;
mod flows;
mod shaper;

pub use config::{FispConfig, ShapingConfig, ShapingError};
pub(crate) use fisp::ShapingOutcome;
pub(crate) use shaper::Ingress;
