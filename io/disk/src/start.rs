//! Starts the engines of all disks, and creates the ports of all shards.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::buffer::Buffers;
use crate::config::Engine;
use crate::disk_port::{Backend, DiskPort};
use crate::doorbell::Doorbell;
#[cfg(feature = "lab")]
use crate::fault::FaultyIo;
use crate::file::ReadyDisk;
use crate::monitor::{DiskMonitor, DiskShared};
use crate::ports::DiskPorts;
use crate::ring::RingBackend;
use crate::threads::{DiskThreads, PositionedIo};

/// Bytes of packet blocks kept for future reads, for all shards and disks together.
const POOL_BYTES: usize = 64 << 20;

/// Threads for each disk if io_uring is not available.
const THREADS_DEFAULT: u16 = 16;

/// Why the engine of a disk does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// io_uring was requested and cannot be used.
    #[error(
        "{}: io_uring cannot be used ({source}); allow it (sysctl kernel.io_uring_disabled, \
         seccomp), or set the engine to threads", path.display()
    )]
    IoUring { path: PathBuf, source: io::Error },
    #[error("cannot watch the disks: {0}; raise the limit of open files (ulimit -n)")]
    Descriptor(#[source] io::Error),
    #[error(
        "{}: cannot start its threads: {source}; raise the limit of threads (ulimit -u)",
        path.display()
    )]
    Threads { path: PathBuf, source: io::Error },
}

/// The backend and buffers of one shard for one disk.
type ShardBackend = (Box<dyn Backend>, Buffers);

pub(crate) fn start(
    disks: Vec<ReadyDisk>,
    store_id: u64,
    depth: u32,
    shards: usize,
) -> Result<(DiskMonitor, Vec<DiskPorts>), StartError> {
    let depth = depth.max(1) as usize;
    let count = disks.len();
    let pool_bytes = POOL_BYTES / (count * shards).max(1);
    let mut monitored = Vec::new();
    let (mut bells, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..shards {
        let bell = Doorbell::new().map(Arc::new).map_err(StartError::Descriptor)?;
        ports.push(DiskPorts::new(Arc::clone(&bell)).map_err(StartError::Descriptor)?);
        bells.push(bell);
    }
    for (index, disk) in disks.into_iter().enumerate() {
        let shared = DiskShared::new(&disk, store_id, &bells).map_err(StartError::Descriptor)?;
        let shared = Arc::new(shared);
        let (kind, shard_backends) = backends(index, disk, &bells, depth)?;
        for ((backend, buffers), ports) in shard_backends.into_iter().zip(&mut ports) {
            ports.add(DiskPort::new(backend, Arc::clone(&shared), buffers, depth, pool_bytes));
        }
        monitored.push((shared, kind));
    }
    Ok((DiskMonitor::new(monitored), ports))
}

/// The kind of engine of a disk, and a backend for each shard, with at most `depth` operations in
/// progress.
fn backends(
    index: usize,
    disk: ReadyDisk,
    bells: &[Arc<Doorbell>],
    depth: usize,
) -> Result<(&'static str, Vec<ShardBackend>), StartError> {
    let path = disk.config.path.clone();
    let threads = match disk.config.engine {
        Engine::Threads(threads) => threads,
        #[cfg(feature = "lab")]
        // Only the threads can inject faults.
        Engine::Auto if disk.config.faults.is_some() => THREADS_DEFAULT,
        Engine::Auto | Engine::IoUring => match ring_backends(&disk, bells, depth) {
            Ok(shard_backends) => return Ok(("io_uring", shard_backends)),
            Err(source) if disk.config.engine == Engine::IoUring => {
                return Err(StartError::IoUring { path, source });
            }
            Err(error) => {
                let disk = path.display();
                tracing::warn!(
                    %disk,
                    "io_uring cannot be used ({error}); using threads, which takes more processor \
                     time for each operation; allow it (sysctl kernel.io_uring_disabled, seccomp, \
                     Linux 5.11 or later)"
                );
                THREADS_DEFAULT
            }
        },
    };
    let shard_backends = thread_backends(index, disk, threads, bells, depth);
    Ok(("threads", shard_backends.map_err(|source| StartError::Threads { path, source })?))
}

fn ring_backends(
    disk: &ReadyDisk,
    bells: &[Arc<Doorbell>],
    depth: usize,
) -> io::Result<Vec<ShardBackend>> {
    let shard_backends = bells.iter().map(|bell| {
        let buffers = Buffers::new(depth);
        let backend = RingBackend::start(&disk.file, &buffers, depth, bell)?;
        Ok((Box::new(backend) as Box<dyn Backend>, buffers))
    });
    shard_backends.collect()
}

fn thread_backends(
    index: usize,
    disk: ReadyDisk,
    threads: u16,
    bells: &[Arc<Doorbell>],
    depth: usize,
) -> io::Result<Vec<ShardBackend>> {
    #[cfg(feature = "lab")]
    let io: Arc<dyn PositionedIo> = match disk.config.faults {
        None => Arc::new(disk.file),
        Some(faults) => Arc::new(FaultyIo::new(disk.file, faults, disk.block_bytes)),
    };
    #[cfg(not(feature = "lab"))]
    let io: Arc<dyn PositionedIo> = Arc::new(disk.file);
    let threads = DiskThreads::start(index, &io, threads)?;
    let shard_backends = bells.iter().map(|bell| {
        let backend = Box::new(threads.backend(Arc::clone(bell))) as Box<dyn Backend>;
        (backend, Buffers::new(depth))
    });
    Ok(shard_backends.collect())
}
