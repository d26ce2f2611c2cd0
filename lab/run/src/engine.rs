//! Engines run the shares of a sweep: child processes, a Slurm cluster, a Dask cluster.

mod dask;
mod job_file;
mod processes;
mod share;
mod slurm;

pub use job_file::{Cluster, JobFile};
pub(crate) use job_file::{JobDivision, job_file};
pub(crate) use share::{Engine, Sweep, Watch};
pub use share::{EngineError, ShareFailure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Child processes of this machine.
    Processes,
    /// A job array of Slurm.
    Slurm,
    /// Tasks of a Dask cluster.
    Dask,
}

pub(crate) fn engine(kind: EngineKind) -> &'static dyn Engine {
    match kind {
        EngineKind::Processes => &processes::Processes,
        EngineKind::Slurm => &slurm::Slurm,
        EngineKind::Dask => &dask::Dask,
    }
}
