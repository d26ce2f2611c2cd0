//! Adaptive bypass: wait for a disk, or go to the next hop? Decision 0012 gives the reasons.
//!
//! A fixed threshold of reads in the queue suits only one arrival rate, one disk and one distance
//! to the next hop. This policy measures all three. It then uses the threshold that would have cost
//! the least over the last 8,192 Interests or so.
//!
//! For each Interest whose Data is on a disk, [`Adaptive::choose`] does the following:
//!
//! 1. **Choose the hop.** The cost of each available next hop is a sum of four times: its base
//!    round-trip time, the usual wait for other traffic, the extra wait that one more Interest
//!    causes for others, and the wait behind this router's own Interests. [`PathModel`] estimates
//!    all four. A hop that has been silent costs at least the time of its silence. The cheapest
//!    hop is the candidate.
//! 2. **Choose the threshold.** If disk and hop are both measured, each of 26 thresholds is
//!    simulated for this arrival ([`Thresholds`]): a virtual queue at the disk and one at the hop.
//!    Each keeps the sum of the waits of its Interests. The threshold with the smallest sum
//!    applies. Otherwise the configured threshold applies.
//! 3. **Compare.** The Interest goes to the hop if the queue has reached the threshold, and if the
//!    hop has room ([`PathModel::has_room`]). Otherwise it waits for the disk.
//! 4. **Probe.** A hop or a disk that is not used has no new measurements. For each, the time that
//!    Interests spend elsewhere is added up. When it exceeds [`PROBE_COST_FACTOR`] times what a
//!    probe is expected to cost, one Interest goes there. Probes therefore cost about 0.5 %,
//!    however bad that way is.
//!
//! Example: a disk with one server takes 10 ms for a read, and the hop takes 35 ms and has no
//! queue. Six Interests arrive together.
//!
//! | threshold | at the disk | at the hop | sum |
//! |---|---|---|---|
//! | 2 | 10 + 20 ms | 4 * 35 ms | 170 ms |
//! | 3 | 10 + 20 + 30 ms | 3 * 35 ms | 165 ms |
//! | 4 | 10 + 20 + 30 + 40 ms | 2 * 35 ms | 170 ms |
//! | none | 10 + 20 + ... + 60 ms | | 210 ms |
//!
//! Threshold 3 costs the least, so three Interests wait and three go to the hop.
//!
//! It must never keep a hop in use that has stopped answering. It must never move a standing queue
//! from the disk to the hop, where others wait too. It must never spend more than a small share of
//! the time on probes.

use alloc::vec::Vec;

use weir_base::Instant;

use crate::content::thresholds::{DiskTimes, PathTimes, Thresholds};
use crate::table::measurements::{Measurement, Measurements};
use crate::table::path_model::{CrossTraffic, PathModel};
use crate::table::queue_estimator::{QueueEstimator, ServerPreference};

/// A disk or hop is probed when Interests have spent this many times the cost of a probe elsewhere.
const PROBE_COST_FACTOR: f64 = 200.0;
/// The factor before the first answer. It grows with the number of answers, up to
/// [`PROBE_COST_FACTOR`].
const PROBE_COST_FACTOR_MIN: f64 = 10.0;
/// From this many answers on, the full factor applies.
const ANSWERS_ENOUGH: u64 = 16;
const DISKS_MAX: usize = 16;
const SERVICES: usize = 64;

/// A queue of the store that an Interest may join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskQueue {
    /// The disk; 0 if all disks share one queue.
    pub(crate) disk: u8,
    /// Reads, or Interests, that are ahead.
    pub(crate) length: u32,
}

/// The decision for an Interest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskChoice {
    /// Wait for the disk.
    Disk,
    /// Go to a next hop.
    NextHop {
        /// The position of the hop among the next hops.
        position: usize,
        /// Whether the Interest is a probe that only measures the hop.
        is_probe: bool,
    },
}

/// A next hop with its measurements.
#[derive(Clone, Copy)]
struct HopEstimate<'a> {
    measured: &'a Measurement,
    model: &'a PathModel,
    cross_traffic: CrossTraffic,
}

impl<'a> HopEstimate<'a> {
    /// `service_ns` is the assumed service time of the queue there while nothing was measured.
    fn find(measurements: &'a Measurements, index: u32, service_ns: f64) -> Option<Self> {
        let measured = measurements.find(index)?;
        let model = measured.model()?;
        Some(Self { measured, model, cross_traffic: model.cross_traffic(service_ns) })
    }

    /// The cost of one Interest there in ns: the round-trip time, the wait for other traffic, and
    /// the extra wait that it causes for others. It ignores this router's own Interests there. It
    /// is at least the time that the hop has been silent.
    fn cost_ns(self, now: Instant) -> f64 {
        self.expected_ns(now).max(
            self.model.expected_ns(&self.cross_traffic) + self.cross_traffic.delay_to_others_ns,
        )
    }

    /// The expected time of an Interest there in ns. It ignores this router's own Interests there.
    fn expected_ns(self, now: Instant) -> f64 {
        self.model.expected_ns(&self.cross_traffic).max(self.measured.silent_ns(now) as f64)
    }

    fn cost_now_ns(self, now: Instant) -> f64 {
        self.cost_ns(now) + self.model.own_wait_ns(self.measured.in_flight())
    }

    fn is_due(self, now: Instant) -> bool {
        let factor = probe_cost_factor(self.model.answers());
        let is_due = self.model.spent_elsewhere_ns > factor * self.expected_ns(now);
        (is_due || !self.model.is_known()) && self.measured.in_flight() == 0
    }
}

#[derive(Clone, Debug)]
struct DiskModel {
    estimator: QueueEstimator,
    thresholds: Thresholds,
    /// The last service times in a ring, ns.
    services_ns: [f64; SERVICES],
    /// Number of service times recorded, and number of arrivals that have used one.
    served: usize,
    taken: usize,
    /// When the last read ended, and how many reads it left.
    ended: Option<(Instant, u32)>,
    arrived_at: Instant,
    /// Interests that have returned to the disk since the last arrival.
    returned: u32,
    /// Time that Interests spent elsewhere since the disk was last chosen, ns.
    spent_elsewhere_ns: f64,
}

impl DiskModel {
    fn new() -> Self {
        Self {
            estimator: QueueEstimator::new(ServerPreference::Fewest),
            thresholds: Thresholds::default(),
            services_ns: [0.0; SERVICES],
            served: 0,
            taken: 0,
            ended: None,
            arrived_at: Instant::ZERO,
            returned: 0,
            spent_elsewhere_ns: 0.0,
        }
    }

    /// The state of the disk that the next arrival finds.
    fn next_times(&mut self) -> DiskTimes {
        let service_ns = self.services_ns[self.taken % self.served.clamp(1, SERVICES)];
        self.taken += 1;
        let (unloaded_ns, interval_ns) =
            (self.estimator.unloaded_ns(), self.estimator.interval_ns());
        let returned = f64::from(core::mem::take(&mut self.returned));
        DiskTimes { unloaded_ns, interval_ns, service_ns, returned }
    }

    fn on_read(&mut self, now: Instant, ahead: u32, left: u32, took_ns: u64) {
        self.estimator.on_departure(now, ahead, took_ns);
        let servers = self.estimator.servers();
        let service_ns = match self.ended.replace((now, left)) {
            // All servers have been busy since then.
            Some((at, waiting)) if f64::from(waiting) >= servers => now.ns_since(at) as f64,
            _ => took_ns as f64 / servers,
        };
        self.services_ns[self.served % SERVICES] = service_ns;
        self.served += 1;
    }
}

/// The measurements of all disks.
#[derive(Default)]
pub(crate) struct Adaptive {
    disks: Vec<DiskModel>,
}

fn probe_cost_factor(answers: u64) -> f64 {
    let certainty = answers.min(ANSWERS_ENOUGH) as f64 / ANSWERS_ENOUGH as f64;
    PROBE_COST_FACTOR_MIN + (PROBE_COST_FACTOR - PROBE_COST_FACTOR_MIN) * certainty
}

impl Adaptive {
    fn disk(&mut self, disk: u8) -> &mut DiskModel {
        let disk = usize::from(disk) % DISKS_MAX;
        if self.disks.len() <= disk {
            self.disks.resize_with(disk + 1, DiskModel::new);
        }
        &mut self.disks[disk]
    }

    /// Chooses between the disk of `disk_queue` and the next hops. `hops` has the position of each
    /// next hop and the index of its measurements. `threshold` decides while nothing is known.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        disk_queue: DiskQueue,
        threshold: u32,
        measurements: &mut Measurements,
        hops: impl Iterator<Item = (usize, u32)> + Clone,
    ) -> DiskChoice {
        let disk = self.disk(disk_queue.disk);
        hops.clone().for_each(|(_, index)| measurements.add_model(index));
        let service_ns = disk.estimator.interval_ns();
        // Step 1: the cheapest next hop. Hops without measurements come last.
        let Some((position, index)) = best_hop(now, measurements, service_ns, hops.clone()) else {
            return DiskChoice::Disk;
        };
        let hop = HopEstimate::find(measurements, index, service_ns).expect("it was found before");
        // Step 2: the threshold for this arrival.
        let mut limit = threshold;
        let elapsed_ns = now.ns_since(disk.arrived_at) as f64;
        disk.arrived_at = now;
        let (hop_cost_ns, hop_time_ns) = (hop.cost_ns(now), hop.expected_ns(now));
        let mut path = PathTimes {
            interval_ns: hop.model.interval_ns(),
            cross_rate: hop.cross_traffic.rate,
            misses: 0.0,
        };
        let is_known = hop.model.is_known() && disk.estimator.is_known();
        for (_, other) in hops.clone() {
            // Every hop is cleared, not only the chosen one. Otherwise old misses of a hop would
            // count all at once when it is chosen later.
            let misses = measurements.model_mut(other).map_or(0, PathModel::take_unexpected);
            if other == index {
                path.misses = misses as f64;
            }
        }
        if is_known {
            let times = disk.next_times();
            limit = disk.thresholds.arrive(elapsed_ns, &times, &path, hop_cost_ns);
        }
        // Step 3: the disk or the hop.
        let has_room = measurements.model_mut(index).is_some_and(|model| model.has_room(now));
        let goes_to_hop = disk_queue.length >= limit && has_room;
        let read_ns = disk.estimator.expected_ns(disk_queue.length);
        let spent_ns = if goes_to_hop { hop_time_ns } else { read_ns };
        let chosen = goes_to_hop.then_some(index);
        // Step 4: if a hop has not been chosen for a long time, this Interest probes it.
        if let Some(position) =
            hop_due_for_probe(now, measurements, hops, chosen, spent_ns, service_ns)
        {
            return DiskChoice::NextHop { position, is_probe: true };
        }
        if goes_to_hop {
            disk.spent_elsewhere_ns += spent_ns;
            // Step 4 for the disk: it is probed if Interests have spent long enough elsewhere.
            let is_due =
                disk.spent_elsewhere_ns > probe_cost_factor(disk.estimator.answers()) * read_ns;
            if !is_due || !disk.estimator.is_known() {
                if let Some(model) = measurements.model_mut(index) {
                    model.expect_send();
                }
                return DiskChoice::NextHop { position, is_probe: false };
            }
        }
        disk.spent_elsewhere_ns = 0.0;
        DiskChoice::Disk
    }

    /// The expected time of a read that joins this queue, ns; `None` while too little is known.
    pub(crate) fn expected_read_ns(&self, disk_queue: DiskQueue) -> Option<f64> {
        let disk = self.disks.get(usize::from(disk_queue.disk) % DISKS_MAX)?;
        disk.estimator.is_known().then(|| disk.estimator.expected_ns(disk_queue.length))
    }

    /// An Interest that had bypassed `disk` now waits for it.
    pub(crate) fn on_return(&mut self, disk: u8) {
        self.disk(disk).returned += 1;
    }

    /// Records a finished read that found `ahead` reads in the queue and leaves `left`.
    pub(crate) fn on_read(&mut self, now: Instant, disk: u8, ahead: u32, left: u32, took_ns: u64) {
        self.disk(disk).on_read(now, ahead, left, took_ns);
    }
}

/// The next hop with the lowest cost now: its position and its measurement.
fn best_hop(
    now: Instant,
    measurements: &Measurements,
    service_ns: f64,
    hops: impl Iterator<Item = (usize, u32)>,
) -> Option<(usize, u32)> {
    let mut best: Option<(f64, usize, u32)> = None;
    for (position, index) in hops {
        let Some(hop) = HopEstimate::find(measurements, index, service_ns) else { continue };
        let cost_ns = if hop.model.is_known() { hop.cost_now_ns(now) } else { f64::MAX };
        if best.is_none_or(|(least_ns, ..)| cost_ns < least_ns) {
            best = Some((cost_ns, position, index));
        }
    }
    best.map(|(_, position, index)| (position, index))
}

/// The position of a hop that is due for a probe. The time `spent_ns` of the present choice is
/// added to each hop that is not chosen.
fn hop_due_for_probe(
    now: Instant,
    measurements: &mut Measurements,
    hops: impl Iterator<Item = (usize, u32)>,
    chosen: Option<u32>,
    spent_ns: f64,
    service_ns: f64,
) -> Option<usize> {
    for (position, index) in hops {
        if chosen == Some(index) {
            continue;
        }
        let Some(model) = measurements.model_mut(index) else { continue };
        model.spent_elsewhere_ns += spent_ns;
        if HopEstimate::find(measurements, index, service_ns).is_some_and(|hop| hop.is_due(now)) {
            return Some(position);
        }
    }
    None
}

#[cfg(test)]
mod tests;
