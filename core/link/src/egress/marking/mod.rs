//! Marking policies: they decide which packets are marked for congestion.

mod codel;
mod marker;
mod nfd;
mod policy;
mod sojourn;

pub use codel::CoDelOptions;
pub use marker::{Marker, MarkerKind, MarkerOptions, QueueArrival};
pub(crate) use policy::AnyMarker;
pub use policy::{MarkingConfig, MarkingPolicy};
pub use sojourn::Sojourn;
