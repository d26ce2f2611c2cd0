#![doc = include_str!("../README.md")]

mod answer_delay;
mod buffer;
mod config;
mod disk_port;
mod doorbell;
mod error;
#[cfg(feature = "lab")]
mod fault;
mod file;
mod lock;
mod monitor;
#[cfg(feature = "lab")]
mod pace;
mod ports;
mod ring;
mod set;
mod start;
mod threads;

use crc_fast::CrcAlgorithm;

pub use buffer::locked_bytes;
pub use config::{DiskFileConfig, Engine};
#[cfg(feature = "lab")]
pub use config::{Faults, Pace, Service};
pub use error::{LockHolder, OpenError, OpenWarning};
pub use file::check;
pub use lock::{LockOutcome, lock};
#[cfg(feature = "lab")]
pub use monitor::StallHandle;
pub use monitor::{DiskCounters, DiskError, DiskMonitor};
pub use ports::DiskPorts;
pub use set::{DiskSet, open};
pub use start::StartError;

/// CRC-32C, by the widest instructions that the processor has.
pub fn checksum(octets: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, octets) as u32
}
