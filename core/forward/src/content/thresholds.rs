//! Which threshold would have been the best one lately.
//!
//! For each of some thresholds a virtual queue before the disk is kept, as long as it would be had
//! that threshold been in force: the same Interests arrive, and the reads take what reads took.
//! Each has its own virtual queue at the next hop, too, of what it would have sent there. So every
//! pattern of arrivals is decided as it is: bursts, pauses, lasting load.

/// The thresholds, in reads that wait or are under way; the last one is none.
pub(super) const THRESHOLDS: [u32; 26] = [
    0,
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    u32::MAX,
];
/// Interests that the costs are summed over, with falling weight.
const INTERESTS: f64 = 8192.0;

/// The disk at the arrival of an Interest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskTimes {
    /// A read that does not wait, ns.
    pub(crate) unloaded_ns: f64,
    /// From one end of a read to the next while the disk is busy, ns.
    pub(crate) interval_ns: f64,
    /// The same for the read of this Interest, ns.
    pub(crate) service_ns: f64,
    /// Reads begun since the last arrival whatever the threshold: for Interests that had passed by
    /// and came again.
    pub(crate) returned: f64,
}

/// The next hop at the arrival of an Interest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathTimes {
    /// From one answer to the next while the queue there is not empty, ns; 0 without a queue.
    pub(crate) interval_ns: f64,
    /// Interests of others that come to the queue there in a nanosecond.
    pub(crate) cross_rate: f64,
    /// Interests of this router sent there since the last arrival for want of their Data here.
    pub(crate) misses: f64,
}

/// What a threshold would have done.
#[derive(Clone, Copy, Debug, Default)]
struct VirtualQueue {
    /// Work before the disk, ns.
    disk_ns: f64,
    /// Work at the next hop that this router has sent, ns.
    path_ns: f64,
    /// What Interests spent at the disk, ns.
    read_time_ns: f64,
    /// What they, and others, waited at the next hop because of `path_ns`, ns.
    hop_wait_ns: f64,
    /// How many went to the next hop.
    bypassed: f64,
}

impl VirtualQueue {
    fn drain(&mut self, passed_ns: f64, disk: &DiskTimes, path: &PathTimes) {
        // Beyond one read for each server all are busy; below, the fewer the slower.
        let is_single = disk.unloaded_ns <= disk.interval_ns;
        let floor_ns = if is_single { 0.0 } else { disk.unloaded_ns };
        let full_ns = passed_ns.min((self.disk_ns - floor_ns).max(0.0));
        self.disk_ns -= full_ns;
        if is_single {
            self.disk_ns = (self.disk_ns - (passed_ns - full_ns)).max(0.0);
        } else {
            // About exp(-x).
            let part = (passed_ns - full_ns) / disk.unloaded_ns;
            self.disk_ns /= 1.0 + part + part * part / 2.0;
        }
        self.disk_ns += disk.returned * disk.interval_ns;
        let busy_ns = self.path_ns.min(passed_ns);
        self.hop_wait_ns += path.cross_rate * (self.path_ns - busy_ns / 2.0) * busy_ns;
        self.path_ns -= busy_ns;
        self.hop_wait_ns += path.misses * self.path_ns;
        self.path_ns += path.misses * path.interval_ns;
    }

    fn arrive(&mut self, threshold: u32, disk: &DiskTimes, path: &PathTimes) {
        let keep = 1.0 - 1.0 / INTERESTS;
        self.read_time_ns *= keep;
        self.hop_wait_ns *= keep;
        self.bypassed *= keep;
        let is_below = self.disk_ns <= disk.interval_ns * (f64::from(threshold) - 1.0);
        if is_below {
            self.disk_ns += disk.service_ns;
            self.read_time_ns += self.disk_ns.max(disk.unloaded_ns);
        } else {
            self.hop_wait_ns += self.path_ns;
            self.path_ns += path.interval_ns;
            self.bypassed += 1.0;
        }
    }
}

/// The thresholds, and what each would have cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thresholds {
    virtuals: [VirtualQueue; THRESHOLDS.len()],
}

impl Thresholds {
    /// An Interest comes `passed_ns` after the last one. Returns the threshold that would have cost
    /// least, where going to the next hop costs `hop_cost_ns` and the wait for what else goes there.
    pub(crate) fn arrive(
        &mut self,
        passed_ns: f64,
        disk: &DiskTimes,
        path: &PathTimes,
        away_ns: f64,
    ) -> u32 {
        let mut best = (f64::INFINITY, 0);
        for (queue, threshold) in self.virtuals.iter_mut().zip(THRESHOLDS) {
            queue.drain(passed_ns, disk, path);
            queue.arrive(threshold, disk, path);
            let cost_ns = queue.read_time_ns + queue.hop_wait_ns + queue.bypassed * away_ns;
            if cost_ns < best.0 {
                best = (cost_ns, threshold);
            }
        }
        best.1
    }
}
