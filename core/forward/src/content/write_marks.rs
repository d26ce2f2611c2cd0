//! Congestion marks on Data that arrives faster than the disks write it.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_store::WriteBacklog;

use crate::content::marks::{FULL_SHARE, ShareMarker};

/// Interval at which the share of marked Data is adjusted, ns (RFC 8033, 4.2, T_UPDATE).
const UPDATE_NS: u64 = 15 * NS_PER_MS;
/// Change of the share for each second of backlog above the target, and for each second of growth
/// (RFC 8033, 4.2, alpha and beta).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// The target of the backlog, and the backlog above which all Data is marked, in eighths of the
/// limit. In normal operation, the backlog of a store that writes early is a quarter of the limit.
const TARGET_EIGHTHS: u64 = 3;
const FULL_EIGHTHS: u64 = 5;
/// Maximum increase of the share in one step.
const CHANGE_MAX: f64 = 0.1;
/// From this many bytes of waiting writes on, the disks are busy.
const BUSY_BYTES: u64 = 512 << 10;
/// The assumed write rate until it was measured, in bytes per second.
const RATE_UNKNOWN: f64 = 100e6;
/// Weight of the latest rate in the average.
const RATE_WEIGHT: f64 = 0.2;

/// Marks the share of stored Data that keeps the backlog of writes near its target: PIE (RFC 8033),
/// with marks instead of drops. Unlike a packet queue, the backlog delays no Data. It may be long,
/// but it must not outgrow its memory.
#[derive(Debug)]
pub(crate) struct WriteMarks {
    marker: ShareMarker,
    /// From 0 to 1.
    share: f64,
    updated_at: Instant,
    /// At the last update: how long the backlog would take to write, and the bytes written so far.
    delay_s: f64,
    written_bytes: u64,
    was_busy: bool,
    rate: f64,
}

impl Default for WriteMarks {
    fn default() -> Self {
        Self {
            marker: ShareMarker::default(),
            share: 0.0,
            updated_at: Instant::ZERO,
            delay_s: 0.0,
            written_bytes: 0,
            was_busy: false,
            rate: RATE_UNKNOWN,
        }
    }
}

impl WriteMarks {
    /// Whether the next stored Data is marked.
    pub(crate) fn is_next_marked(&mut self, now: Instant, backlog: WriteBacklog) -> bool {
        if now >= self.updated_at.plus_ns(UPDATE_NS) {
            self.update(now, backlog);
        }
        let is_full = backlog.bytes >= backlog.bytes_max / 8 * FULL_EIGHTHS;
        let share = if is_full { FULL_SHARE } else { (self.share * f64::from(FULL_SHARE)) as u32 };
        self.marker.is_next_marked(share)
    }

    fn update(&mut self, now: Instant, backlog: WriteBacklog) {
        let elapsed_s = now.ns_since(self.updated_at) as f64 / NS_PER_S as f64;
        let written = backlog.written_bytes.saturating_sub(self.written_bytes) as f64;
        // The rate can be measured only while the disks are busy.
        let is_busy = backlog.offered_bytes >= BUSY_BYTES;
        let was_busy = core::mem::replace(&mut self.was_busy, is_busy);
        if was_busy && is_busy && written > 0.0 {
            self.rate += (written / elapsed_s - self.rate) * RATE_WEIGHT;
        }
        let delay_s = backlog.bytes as f64 / self.rate;
        let target_s = (backlog.bytes_max / 8 * TARGET_EIGHTHS) as f64 / self.rate;
        let growth_s = delay_s - self.delay_s;
        let mut change = BETA * growth_s;
        // If the backlog already shrinks, the share need not grow.
        let is_draining = growth_s < -elapsed_s / 4.0;
        if delay_s < target_s || !is_draining {
            change += ALPHA * (delay_s - target_s);
        }
        let change = (change * scale(self.share)).min(CHANGE_MAX);
        self.share = (self.share + change).clamp(0.0, 1.0);
        (self.updated_at, self.delay_s) = (now, delay_s);
        self.written_bytes = backlog.written_bytes;
    }
}

/// A smaller share changes in smaller steps (RFC 8033, 4.2). The smallest steps of the RFC are left
/// out, because the first growth of a backlog must have an effect immediately.
fn scale(share: f64) -> f64 {
    match share {
        ..0.01 => 1.0 / 8.0,
        0.01..0.1 => 1.0 / 2.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests;
