//! What leaves when, in which order, and with which congestion marks.

mod discipline;
mod disciplines;
mod fifo;
mod interest_rate;
mod marking;
mod outlet;
mod queue;
mod ready;

pub use disciplines::{DisciplineConfig, DisciplineError};
pub use interest_rate::InterestRateConfig;
pub use marking::MarkingConfig;
pub(crate) use outlet::Outgoing;
pub use outlet::PacketKind;
pub use queue::EgressConfig;
pub(crate) use queue::{Context, Egress};
