//! Which packets are marked for congestion.

mod codel;
mod nfd;
mod policies;
mod policy;
mod rem;
mod sojourn;
mod step;

pub use codel::CoDelOptions;
pub(crate) use policies::AnyPolicy;
pub use policies::{MarkingConfig, MarkingPolicy};
pub(crate) use policy::Joining;
pub use rem::RemOptions;
pub use step::StepOptions;
