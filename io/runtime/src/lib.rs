#![doc = include_str!("../README.md")]

mod clock;
mod config;
mod control;
mod cross;
mod error;
mod handle;
mod message;
mod metrics;
mod profile;
mod snapshot;
mod worker;

pub use weir_link::DisciplineConfig;

pub use config::{
    DisksConfig, FaceDefaults, Listener, ManagementConfig, RuntimeConfig, StaticFace, THREADS_MAX,
    TrustAnchor,
};
pub use error::{StartError, StopError};
pub use handle::{Handle, Runtime};
pub use profile::{FunctionSamples, Profiler};
pub use snapshot::{DiskSnapshot, FaceSnapshot, Snapshot};
pub use weir_forward::strategy::StrategyKind;
pub use weir_forward::{BusyPolicy, Bypass, Mark, StoreIo, UnsolicitedPolicy};
