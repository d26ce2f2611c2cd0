//! The time to transfer a file over one path or several (paper multipath-cache-management, section
//! 6).
//!
//! [`latencies`] evaluates the paper's formulas and one that adds rates. [`simulate`] transfers
//! packet by packet, which shows where the formulas are too simple.
//!
//! | value | formula |
//! |---|---|
//! | default, one Interest at a time | `s_num delta` |
//! | pipelined over one path | `s_num delta / DP` |
//! | multipath | `sum_i(s_i delta_i / DP_i) / paths` |
//! | limited | `max_i(delta_i + (s_i - 1) max(delta_i / DP_i, packet / B_i))` |
//!
//! Example: 100 segments over one path of 10 ms take 1 s with one Interest at a time, and 200 ms
//! with a pipeline of 5. On a 10 Mbit/s link a packet of 1250 bytes takes 1 ms, so ten Interests
//! fill the path: a pipeline of 20 gains nothing over 10, although the pipelined formula says so.

mod simulate;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use simulate::{PathResult, Simulation, SimulationOptions, simulate};

/// A path from the consumer to the content.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Path {
    /// delta_i: time from an Interest to its Data on an idle path, ns.
    pub latency_ns: u64,
    /// DP_i: number of Interests in flight, at least 1.
    pub pipeline_depth: u32,
    /// B_i: rate of the path's slowest link in bit/s. The paper's formulas ignore it.
    pub rate_bps: u64,
    /// Segments fetched over this path.
    pub segments: u64,
}

/// Transfer times by the paper's formulas and by ours, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// One Interest at a time over the first path: `s_num delta`.
    pub default_ns: f64,
    /// A pipeline over the first path: `s_num delta / DP`.
    pub pipelined_ns: f64,
    /// All paths: the sum of `s_i delta_i / DP_i` over the number of paths.
    pub multipath_ns: f64,
    /// The last path to finish, each limited by its pipeline or its rate, whichever is slower:
    /// `max_i(delta_i + (s_i - 1) max(delta_i / DP_i, packet / B_i))`. It ignores only the queues
    /// before shared links.
    pub limited_ns: f64,
}

/// Why a transfer is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipathError {
    #[error("no paths: give at least one")]
    NoPaths,
    /// A pipeline depth of 0.
    #[error("path {path} has a pipeline depth of 0: give 1 or more")]
    Depth {
        /// Number of the path, from 1.
        path: usize,
    },
    #[error("path {path} has a rate of 0: give bits a second")]
    Rate {
        /// Number of the path, from 1.
        path: usize,
    },
    /// The path's latency is below the transmission time on its own link.
    #[error(
        "path {path} has a latency of {latency_ns} ns, but its link needs {transmission_ns} ns for \
         a packet: give more latency or a higher rate"
    )]
    Latency {
        /// Number of the path, from 1.
        path: usize,
        latency_ns: u64,
        /// Transmission time of a packet on its link.
        transmission_ns: u64,
    },
    /// No segments, or too many to simulate.
    #[error("{0} segments: give 1 to {SEGMENTS_MAX}")]
    Segments(u64),
    /// A packet size of 0.
    #[error("packets of 0 bytes: give 1 or more")]
    PacketBytes,
    /// The shared link has a rate of 0.
    #[error("the shared link has a rate of 0: give bits a second, or leave it out")]
    SharedRate,
    /// A queue of 0 packets.
    #[error("a queue of 0 packets: give 1 or more")]
    Queue,
}

/// Limit on the segments of a transfer.
pub(crate) const SEGMENTS_MAX: u64 = 100_000_000;

/// Transmission time of `bytes` at `rate_bps` in ns, rounded up.
pub(crate) fn transmission_ns(bytes: u32, rate_bps: u64) -> u64 {
    let bit_ns = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bit_ns.div_ceil(u128::from(rate_bps.max(1)))).unwrap_or(u64::MAX)
}

/// How a file is divided over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The same number of segments on each path.
    Equal,
    /// Proportional to the capacity of each path: `min(DP_i / delta_i, B_i / packet)`.
    Proportional,
}

/// Assigns all `segments` to `paths`, and overwrites their `segments`.
pub fn divide(paths: &mut [Path], segments: u64, packet_bytes: u32, split: Split) {
    let capacity = |path: &Path| match split {
        Split::Equal => 1.0,
        Split::Proportional => 1.0 / spacing_ns(path, packet_bytes),
    };
    let total: f64 = paths.iter().map(capacity).sum();
    let (mut passed, mut given) = (0.0, 0);
    for path in paths {
        passed += capacity(path);
        let until = ((passed / total * segments as f64).round() as u64).min(segments);
        path.segments = until - given;
        given = until;
    }
}

/// Mean time between two Data on a busy path.
fn spacing_ns(path: &Path, packet_bytes: u32) -> f64 {
    let window = path.latency_ns as f64 / f64::from(path.pipeline_depth);
    window.max(transmission_ns(packet_bytes, path.rate_bps) as f64)
}

/// Checks that paths are valid for packets of `packet_bytes`.
pub(crate) fn check(paths: &[Path], packet_bytes: u32) -> Result<(), MultipathError> {
    if paths.is_empty() {
        return Err(MultipathError::NoPaths);
    }
    if packet_bytes == 0 {
        return Err(MultipathError::PacketBytes);
    }
    for (index, path) in paths.iter().enumerate() {
        let number = index + 1;
        if path.pipeline_depth == 0 {
            return Err(MultipathError::Depth { path: number });
        }
        if path.rate_bps == 0 {
            return Err(MultipathError::Rate { path: number });
        }
        let transmission_ns = transmission_ns(packet_bytes, path.rate_bps);
        if path.latency_ns < transmission_ns {
            let latency_ns = path.latency_ns;
            return Err(MultipathError::Latency { path: number, latency_ns, transmission_ns });
        }
    }
    let segments = paths.iter().fold(0u64, |sum, path| sum.saturating_add(path.segments));
    if !(1..=SEGMENTS_MAX).contains(&segments) {
        return Err(MultipathError::Segments(segments));
    }
    Ok(())
}

/// The paper's formulas for all segments of `paths`, and one that includes rates and the last path.
pub fn latencies(paths: &[Path], packet_bytes: u32) -> Result<Latencies, MultipathError> {
    check(paths, packet_bytes)?;
    let segments: u64 = paths.iter().map(|path| path.segments).sum();
    let latency = |path: &Path| path.latency_ns as f64;
    let pipelined =
        |path: &Path, segments: f64| segments * latency(path) / f64::from(path.pipeline_depth);
    let sum: f64 = paths.iter().map(|path| pipelined(path, path.segments as f64)).sum();
    let limited = paths
        .iter()
        .filter(|path| path.segments > 0)
        .map(|path| latency(path) + (path.segments - 1) as f64 * spacing_ns(path, packet_bytes))
        .fold(0.0, f64::max);
    Ok(Latencies {
        default_ns: segments as f64 * latency(&paths[0]),
        pipelined_ns: pipelined(&paths[0], segments as f64),
        multipath_ns: sum / paths.len() as f64,
        limited_ns: limited,
    })
}
