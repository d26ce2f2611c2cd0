//! How long a file takes over one path or several (paper multipath-cache-management, section 6),
//! and a simulation that shows where the paper's formulas are too simple.

mod simulate;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use simulate::{PathResult, Simulation, SimulationOptions, simulate};

/// A path from the consumer to the content.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Path {
    /// delta_i: time from an Interest to its Data when nothing else is on the path, in nanoseconds.
    pub latency_ns: u64,
    /// DP_i: Interests kept outstanding; at least 1.
    pub pipeline_depth: u32,
    /// B_i: rate of the path's slowest link in bits a second. The formulas ignore it.
    pub rate_bps: u64,
    /// Segments that are fetched over this path.
    pub segments: u64,
}

/// What the paper's formulas and ours say of a transfer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// One Interest at a time over the first path: `s_num delta`.
    pub default_ns: f64,
    /// A pipeline over the first path: `s_num delta / DP`.
    pub pipelined_ns: f64,
    /// All paths: the sum of `s_i delta_i / DP_i` over the number of paths.
    pub multipath_ns: f64,
    /// The last path to finish, each limited by its pipeline or by its rate, whichever is slower:
    /// `max_i(delta_i + (s_i - 1) max(delta_i / DP_i, packet / B_i))`. What the formulas leave out
    /// except queueing before links that paths share.
    pub limited_ns: f64,
}

/// Why a transfer is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipathError {
    #[error("no paths: give at least one")]
    NoPaths,
    /// A path that keeps no Interest outstanding.
    #[error("path {path} has a pipeline depth of 0: give 1 or more")]
    Depth {
        /// Number of the path, from 1.
        path: usize,
    },
    /// A path with no rate.
    #[error("path {path} has a rate of 0: give bits a second")]
    Rate {
        /// Number of the path, from 1.
        path: usize,
    },
    /// A path faster than its own link.
    #[error(
        "path {path} has a latency of {latency_ns} ns, but its link needs {transmission_ns} ns for \
         a packet: give more latency or a higher rate"
    )]
    Latency {
        /// Number of the path, from 1.
        path: usize,
        latency_ns: u64,
        /// What a packet takes on its link.
        transmission_ns: u64,
    },
    /// No segments, or more than can be simulated.
    #[error("{0} segments: give 1 to {SEGMENTS_MAX}")]
    Segments(u64),
    /// Packets of no size.
    #[error("packets of 0 octets: give 1 or more")]
    PacketBytes,
    /// A link that all paths share has no rate.
    #[error("the shared link has a rate of 0: give bits a second, or leave it out")]
    SharedRate,
    /// A queue without room.
    #[error("a queue of 0 packets: give 1 or more")]
    Queue,
}

/// The most segments of a transfer.
pub(crate) const SEGMENTS_MAX: u64 = 100_000_000;

/// Nanoseconds that `bytes` take at `rate_bps`, rounded up.
pub(crate) fn transmission_ns(bytes: u32, rate_bps: u64) -> u64 {
    let bit_ns = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bit_ns.div_ceil(u128::from(rate_bps.max(1)))).unwrap_or(u64::MAX)
}

/// How a file is divided over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// As many segments over each.
    Equal,
    /// In proportion to what each can carry: `min(DP_i / delta_i, B_i / packet)`.
    Proportional,
}

/// Divides `segments` over `paths`, whose `segments` are overwritten; every segment is assigned.
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

/// Mean time between two Data of a busy path.
fn spacing_ns(path: &Path, packet_bytes: u32) -> f64 {
    let window = path.latency_ns as f64 / f64::from(path.pipeline_depth);
    window.max(transmission_ns(packet_bytes, path.rate_bps) as f64)
}

/// Checks that paths are possible for packets of `packet_bytes`.
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

/// The paper's formulas for all segments of `paths`, and one that knows rates and the last path.
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
