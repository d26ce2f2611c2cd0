//! Which Interests that come in go on to the forwarder at once, and which wait.

mod config;
mod delayed;
mod fisp;
mod flows;
mod shaper;

pub use config::{FispConfig, ShapingConfig, ShapingError};
pub(crate) use fisp::ShapingOutcome;
pub(crate) use shaper::Ingress;
