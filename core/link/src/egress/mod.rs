//! The egress of a link: order and time of packets that leave, and their congestion marks.

mod choice;
mod discipline;
mod marking;
mod outlet;
mod paced;
mod queue;
mod ready;

pub use choice::{ChoiceError, ExternalChoice, ExternalKind, read_options};
pub use discipline::{Discipline, DisciplineConfig, DisciplineKind, DisciplineOptions};
pub use marking::{CoDelOptions, Marker, MarkerKind, MarkerOptions, QueueArrival};
pub use marking::{MarkingConfig, MarkingPolicy, Sojourn};
pub use outlet::{Outgoing, Outlet, PacketKind};
pub use queue::EgressConfig;
pub(crate) use queue::{Context, Egress};
pub use ready::Load;
