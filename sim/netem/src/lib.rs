#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod disk;
mod link;
mod random;
mod server;
mod service;

pub use config::{ConfigError, Jitter, LinkConfig, Loss, Reorder};
pub use disk::{Completion, DiskConfig, DiskError, DiskFull, DiskModel, DiskOp, DiskOpKind};
pub use link::{LinkDrop, LinkModel, LinkStats, Transit};
pub use server::{Server, ServerConfig};
pub use service::ServiceTime;
