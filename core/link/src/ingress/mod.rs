//! Interest shaping: delays incoming Interests if their Data would overflow the queue of the
//! downstream.

mod config;
mod delayed;
mod fisp;
mod flows;
mod shaper;

pub use config::{FispConfig, ShapingConfig, ShapingError};
pub(crate) use fisp::ShapingOutcome;
pub(crate) use shaper::Ingress;
