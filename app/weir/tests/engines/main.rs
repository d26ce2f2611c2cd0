//! Sweeps of the laboratory on engines: child processes, Slurm and Dask. Their records equal those
//! of a run in one process, byte for byte, also after failures.
//!
//! A test that makes something fail holds the lock of a share's folder. The share waits for it, so
//! the test knows where it is.

mod cluster;
mod dask;
mod processes;
mod slurm;
mod sweep;
