//! What a router knows of its content store's disks and of the ways around them.

pub(crate) mod adaptive;
pub(crate) mod busy;
pub(crate) mod bypass;
pub(crate) mod decision;
pub(crate) mod disk;
pub(crate) mod marks;
pub(crate) mod neighbours;
pub(crate) mod queries;
pub(crate) mod reads;
pub(crate) mod refill;
pub(crate) mod thresholds;
pub(crate) mod write_marks;
