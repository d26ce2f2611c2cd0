#![doc = include_str!("../README.md")]

mod arena;
mod check;
mod clock;
mod config;
mod contents;
mod contents_request;
mod control;
#[doc(hidden)]
pub mod cross;
mod error;
mod face;
mod face_quota;
mod handle;
mod limits;
mod mailbox;
mod memory;
mod message;
mod metrics;
mod objects_json;
mod profile;
mod rate_limited_log;
mod reload;
mod snapshot;
mod worker;

pub use weir_face::{CertificateFiles, UnixAccess};
pub use weir_link::{ChoiceError, DisciplineConfig, DisciplineKind};
pub use weir_link::{MarkerKind, MarkingPolicy, ShapingConfig};

pub use config::{
    DisksConfig, FaceDefaults, Listener, ManagementConfig, MulticastConfig, PitTokenChoice,
    RuntimeConfig, StaticFace, THREADS_MAX, TrustAnchor,
};
pub use contents::Contents;
pub use contents_request::{ContentsCursor, ContentsError, ContentsPage, Miss};
pub use control::{is_kept_ignored, warn_of_certificate};
pub use error::{StartError, StopError};
pub use face_quota::FaceLimits;
pub use handle::{Handle, LocalPort};
pub use limits::{
    GroupLimit, MemoryLimit, UNLIMITED, group_files, installed_memory_bytes, memory_limit,
    memory_limit_needed_bytes, memory_limit_of_process, process_limit,
};
pub use memory::memory_bytes_min;
pub use metrics::ExtraMetric;
pub use objects_json::objects_json;
pub use profile::{FunctionSamples, Profiler};
pub use reload::ReloadReport;
pub use snapshot::{
    DiskSnapshot, FaceSnapshot, RemovedFaces, RemovedKind, SharedMemorySnapshot, Snapshot,
};
pub use weir_forward::strategy::StrategyKind;
pub use weir_forward::{
    BusyPolicy, Bypass, DataSource, Mark, MissReports, NAME_COMPONENTS_MAX, UnsolicitedPolicy,
};

/// A content router on this machine's sockets.
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Opens all listeners and starts the threads. Peers can connect when it returns.
    ///
    /// # Errors
    /// [`StartError`]. Then nothing is left running, and no socket file remains.
    pub fn start(config: RuntimeConfig) -> Result<Handle, StartError> {
        control::start(config)
    }

    /// Checks a configuration without starting a router: its values, files, addresses and disks.
    ///
    /// # Errors
    /// [`StartError`], mostly as [`Self::start`] would return it. An address that another program
    /// uses is no error, because it may be the router that is about to be restarted.
    pub fn check(config: &RuntimeConfig) -> Result<(), StartError> {
        check::check(config)
    }
}
