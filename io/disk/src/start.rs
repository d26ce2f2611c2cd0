//! Makes the ways of all shards to all disks.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bell::Bell;
use crate::buffer::Buffers;
use crate::config::{DiskFileConfig, Engine};
use crate::fault::{FaultyIo, PositionedIo};
use crate::lane::{Backend, Lane};
use crate::monitor::{DiskMonitor, DiskShared};
use crate::port::DiskPorts;
use crate::ring::RingBackend;
use crate::threads::DiskThreads;

/// Threads where io_uring is missing.
const THREADS_DEFAULT: u16 = 16;

/// Why the engine of a disk does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// io_uring was asked for and cannot be used.
    #[error(
        "{}: io_uring cannot be used ({source}); allow it (sysctl kernel.io_uring_disabled, \
         seccomp), or set the engine to threads", path.display()
    )]
    IoUring {
        /// The disk.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No thread or descriptor is left.
    #[error(
        "{}: cannot start its threads: {source}; raise the limits of the process", path.display()
    )]
    Threads {
        /// The disk.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// One disk, ready to be read and written.
pub(crate) struct ReadyDisk {
    pub(crate) config: DiskFileConfig,
    pub(crate) file: File,
    pub(crate) block_bytes: u32,
    pub(crate) is_writable: bool,
}

/// A disk, and what reads and writes it for one shard.
type Way = (Box<dyn Backend>, Buffers);

pub(crate) fn start(
    disks: Vec<ReadyDisk>,
    store_id: u64,
    depth: u32,
    shards: usize,
) -> Result<(DiskMonitor, Vec<DiskPorts>), StartError> {
    let depth = depth.max(1) as usize;
    let mut monitored = Vec::new();
    let (mut bells, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..shards {
        let no_descriptor = |source| {
            let path = disks.first().map(|disk| disk.config.path.clone());
            StartError::Threads { path: path.unwrap_or_default(), source }
        };
        let bell = Bell::new().map(Arc::new).map_err(no_descriptor)?;
        ports.push(DiskPorts::new(Arc::clone(&bell)).map_err(no_descriptor)?);
        bells.push(bell);
    }
    for (index, disk) in disks.into_iter().enumerate() {
        let path = disk.config.path.clone();
        let no_threads = |source| StartError::Threads { path: path.clone(), source };
        let shared = DiskShared::new(&disk, store_id, &bells).map_err(no_threads)?;
        let shared = Arc::new(shared);
        let (kind, ways) = match disk.config.engine {
            Engine::Threads(threads) => threaded(index, disk, threads, &bells, depth),
            Engine::Auto if disk.config.faults.is_some() => {
                threaded(index, disk, THREADS_DEFAULT, &bells, depth)
            }
            Engine::Auto | Engine::IoUring => match ringed(&disk, &bells, depth) {
                Ok(ways) => Ok(("io_uring", ways)),
                Err(source) if disk.config.engine == Engine::IoUring => {
                    return Err(StartError::IoUring { path, source });
                }
                Err(error) => {
                    let disk_path = path.display();
                    tracing::warn!(
                        disk = %disk_path, "io_uring cannot be used ({error}); using threads"
                    );
                    threaded(index, disk, THREADS_DEFAULT, &bells, depth)
                }
            },
        }
        .map_err(no_threads)?;
        for ((backend, buffers), ports) in ways.into_iter().zip(&mut ports) {
            ports.add(Lane::new(backend, Arc::clone(&shared), buffers, depth));
        }
        monitored.push((shared, kind));
    }
    Ok((DiskMonitor::new(monitored), ports))
}

fn ringed(disk: &ReadyDisk, bells: &[Arc<Bell>], depth: usize) -> io::Result<Vec<Way>> {
    let ways = bells.iter().map(|bell| {
        let buffers = Buffers::new(depth);
        let backend = RingBackend::start(&disk.file, &buffers, depth, bell)?;
        Ok((Box::new(backend) as Box<dyn Backend>, buffers))
    });
    ways.collect()
}

fn threaded(
    index: usize,
    disk: ReadyDisk,
    threads: u16,
    bells: &[Arc<Bell>],
    depth: usize,
) -> io::Result<(&'static str, Vec<Way>)> {
    let io: Arc<dyn PositionedIo> = match disk.config.faults {
        None => Arc::new(disk.file),
        Some(faults) => Arc::new(FaultyIo::new(disk.file, faults, disk.block_bytes)),
    };
    let threads = DiskThreads::start(index, &io, threads)?;
    let ways = bells.iter().map(|bell| {
        let backend = Box::new(threads.backend(Arc::clone(bell))) as Box<dyn Backend>;
        (backend, Buffers::new(depth))
    });
    Ok(("threads", ways.collect()))
}
