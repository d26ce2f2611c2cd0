#![doc = include_str!("../README.md")]

mod buffer;
mod config;
mod disk_loop;
mod doorbell;
mod engine;
mod error;
mod fault;
mod file;
mod lock;
mod pace;
mod port;
mod ring;
mod set;
mod threads;

pub use config::{DiskFileConfig, Engine, Pace, Service};
pub use engine::{DiskCounters, DiskEngine, StallHandle, StartError};
pub use error::{LockHolder, OpenError, OpenWarning};
pub use fault::Faults;
pub use port::{DiskPorts, Waker};
pub use set::{DiskSet, open};

/// CRC-32C, by the processor's own instructions where it has them.
#[must_use]
pub fn checksum(octets: &[u8]) -> u32 {
    crc32c::crc32c(octets)
}
