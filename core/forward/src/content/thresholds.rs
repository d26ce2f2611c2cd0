//! Simulates thresholds to find the threshold with the lowest cost for recent Interests.
//!
//! For each threshold there is a virtual queue at the disk, as long as it would be with that
//! threshold. The same Interests arrive, and reads take as long as real reads took. Each threshold
//! also has a virtual queue at the next hop, for the Interests that it would have sent there. The
//! simulation thus covers bursts, pauses and lasting load without a model of arrivals.

/// The thresholds, in reads that wait or are in progress. The last one means no threshold.
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
/// Costs are summed over about this many Interests, with exponentially falling weight.
const INTERESTS: f64 = 8192.0;

/// The disk when an Interest arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskTimes {
    /// The time of a read that does not wait, ns.
    pub(crate) unloaded_ns: f64,
    /// The time between the ends of two reads while the disk is busy, ns.
    pub(crate) interval_ns: f64,
    /// The service time of the read for this Interest, ns.
    pub(crate) service_ns: f64,
    /// Reads begun since the last arrival by Interests that had bypassed the disk and returned.
    /// They do not depend on the threshold.
    pub(crate) returned: f64,
}

/// The next hop when an Interest arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathTimes {
    /// The time between two answers while the queue there is not empty, ns; 0 without a queue.
    pub(crate) interval_ns: f64,
    /// Arrival rate of Interests of others at the queue there, in 1/ns.
    pub(crate) cross_rate: f64,
    /// This router's Interests sent there since the last arrival because their Data is not here.
    pub(crate) misses: f64,
}

/// The state of one simulated threshold.
#[derive(Clone, Copy, Debug, Default)]
struct VirtualQueue {
    /// Work that waits at the disk, ns.
    disk_ns: f64,
    /// Work at the next hop that this router has sent, ns.
    path_ns: f64,
    /// Time that Interests spent at the disk, ns.
    read_time_ns: f64,
    /// Time that they and others waited at the next hop because of `path_ns`, ns.
    hop_wait_ns: f64,
    /// Number of Interests sent to the next hop.
    bypassed: f64,
}

impl VirtualQueue {
    fn drain(&mut self, elapsed_ns: f64, disk: &DiskTimes, path: &PathTimes) {
        // With at least one read for each server, all servers are busy. With fewer reads, the disk
        // is slower in proportion.
        let is_single = disk.unloaded_ns <= disk.interval_ns;
        let floor_ns = if is_single { 0.0 } else { disk.unloaded_ns };
        let full_ns = elapsed_ns.min((self.disk_ns - floor_ns).max(0.0));
        self.disk_ns -= full_ns;
        if is_single {
            self.disk_ns = (self.disk_ns - (elapsed_ns - full_ns)).max(0.0);
        } else {
            // Approximates division by exp(part).
            let part = (elapsed_ns - full_ns) / disk.unloaded_ns;
            self.disk_ns /= 1.0 + part + part * part / 2.0;
        }
        self.disk_ns += disk.returned * disk.interval_ns;
        // Interests of others that arrive while this router's work is served wait for the remaining
        // work.
        let busy_ns = self.path_ns.min(elapsed_ns);
        self.hop_wait_ns += path.cross_rate * (self.path_ns - busy_ns / 2.0) * busy_ns;
        self.path_ns -= busy_ns;
        self.hop_wait_ns += path.misses * self.path_ns;
        self.path_ns += path.misses * path.interval_ns;
    }

    fn arrive(&mut self, threshold: u32, disk: &DiskTimes, path: &PathTimes) {
        // Older Interests lose weight, so the costs follow changes of the load.
        let keep = 1.0 - 1.0 / INTERESTS;
        self.read_time_ns *= keep;
        self.hop_wait_ns *= keep;
        self.bypassed *= keep;
        // Whether the virtual queue is shorter than the threshold, in reads.
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

/// All thresholds with their costs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thresholds {
    queues: [VirtualQueue; THRESHOLDS.len()],
}

impl Thresholds {
    /// Simulates an Interest that arrives `elapsed_ns` after the last one. Returns the threshold
    /// with the lowest cost, if the next hop costs `hop_cost_ns` plus the wait behind other
    /// Interests there.
    pub(crate) fn arrive(
        &mut self,
        elapsed_ns: f64,
        disk: &DiskTimes,
        path: &PathTimes,
        hop_cost_ns: f64,
    ) -> u32 {
        let mut best = (f64::INFINITY, 0);
        for (queue, threshold) in self.queues.iter_mut().zip(THRESHOLDS) {
            queue.drain(elapsed_ns, disk, path);
            queue.arrive(threshold, disk, path);
            let cost_ns = queue.read_time_ns + queue.hop_wait_ns + queue.bypassed * hop_cost_ns;
            if cost_ns < best.0 {
                best = (cost_ns, threshold);
            }
        }
        best.1
    }
}
