//! What leaves when, in which order, and with which congestion marks.

mod choice;
mod discipline;
mod disciplines;
mod fifo;
mod hr_icp;
mod interest_rate;
mod marking;
mod outlet;
mod queue;
mod ready;

pub use choice::ChoiceError;
pub use disciplines::DisciplineConfig;
pub use hr_icp::HrIcpConfig;
pub use interest_rate::InterestRateConfig;
pub use marking::{CoDelOptions, MarkingConfig, MarkingPolicy, RemOptions, StepOptions};
pub(crate) use outlet::Outgoing;
pub use outlet::PacketKind;
pub use queue::EgressConfig;
pub(crate) use queue::{Context, Egress};
