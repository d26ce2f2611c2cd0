#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod draw;
mod error;
mod format;
mod generate;
mod geo;
mod model;
mod route;

pub use draw::{DrawOptions, LinkLabels, Placement, draw_svg};
pub use error::{InvalidTopology, TopologyError};
pub use format::{ReadOptions, builtin_names};
pub use generate::{Generator, GeneratorError, LinkDefaults};
pub use model::{Link, Node, Role, Topology};
pub use route::{Hop, Metric, RoutePlanner, Routes};
use weir_base::units;
