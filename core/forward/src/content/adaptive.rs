//! Wait for a disk, or go to the next hop? The threshold that would have cost least lately decides.
//!
//! A threshold of reads before the disk is right for one arrival rate, one disk and one distance to
//! the next hop only. Here it is chosen from measurements:
//!
//! - **At the disk**, what each of some thresholds would have cost the Interests that came lately
//!   is added up as they come ([`Thresholds`]).
//! - **At the next hop**, going there costs the way, the wait for others ([`PathModel`]), and what
//!   others wait longer for it: this router's misses, and whoever else asks there.
//! - **What is seldom used is tried** when what was used instead has taken two hundred times as
//!   long: trying costs no more than about 0.5 %, however bad that way may be.

use alloc::vec::Vec;

use weir_base::Instant;

use crate::content::thresholds::{DiskTimes, PathTimes, Thresholds};
use crate::table::measurements::{Measurement, Measurements};
use crate::table::path_model::{CrossTraffic, PathModel};
use crate::table::queue_estimator::{QueueEstimator, ServerPreference};

/// A way is tried when what was used instead has taken this many times as long,
const PROBE_COST_FACTOR: f64 = 200.0;
/// or less, as long as little is known of it, but at least this.
const PROBE_COST_FACTOR_MIN: f64 = 10.0;
/// Answers from which on no more are looked for at a price.
const ANSWERS_ENOUGH: u64 = 16;
const DISKS_MAX: usize = 16;
const SERVICES: usize = 64;

/// A queue of the store that an Interest may wait in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskQueue {
    /// Which disk; 0 where all are one.
    pub(crate) disk: u8,
    /// Reads, or Interests, ahead.
    pub(crate) length: u32,
}

/// What an Interest is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskChoice {
    /// Wait.
    Disk,
    /// Go on.
    NextHop {
        /// To which of the next hops: its place among them.
        position: usize,
        /// Only to learn how long that takes.
        is_probe: bool,
    },
}

/// A next hop, as it is measured.
#[derive(Clone, Copy)]
struct HopEstimate<'a> {
    measured: &'a Measurement,
    model: &'a PathModel,
    cross_traffic: CrossTraffic,
}

impl<'a> HopEstimate<'a> {
    /// `service_ns`: what a service there takes as long as nothing tells.
    fn find(measurements: &'a Measurements, index: u32, service_ns: f64) -> Option<Self> {
        let measured = measurements.find(index)?;
        let model = measured.model()?;
        Some(Self { measured, model, cross_traffic: model.cross_traffic(service_ns) })
    }

    /// What going there costs with nothing else of this router's there, ns: the way, the wait for
    /// others, and what these wait longer. At least what it has been silent for.
    fn cost_ns(self, now: Instant) -> f64 {
        self.expected_ns(now).max(
            self.model.expected_ns(&self.cross_traffic) + self.cross_traffic.delay_to_others_ns,
        )
    }

    /// The same for whoever goes.
    fn expected_ns(self, now: Instant) -> f64 {
        self.model.expected_ns(&self.cross_traffic).max(self.measured.silent_ns(now) as f64)
    }

    fn cost_now_ns(self, now: Instant) -> f64 {
        self.cost_ns(now) + self.model.own_wait_ns(self.measured.in_flight())
    }

    fn is_due(self, now: Instant) -> bool {
        let share = probe_cost_factor(self.model.answers());
        let is_due = self.model.spent_elsewhere_ns > share * self.expected_ns(now);
        (is_due || !self.model.is_known()) && self.measured.in_flight() == 0
    }
}

#[derive(Clone, Debug)]
struct DiskModel {
    station: QueueEstimator,
    thresholds: Thresholds,
    /// The last services, in a ring, ns.
    services_ns: [f64; SERVICES],
    /// How many there were, and how many arrivals have taken one of them.
    served: usize,
    taken: usize,
    /// When the last read ended, and how many it left.
    ended: Option<(Instant, u32)>,
    arrived_at: Instant,
    /// Interests that have come back to the disk since.
    returned: u32,
    /// What the ways taken instead have taken since a read was last chosen, ns.
    spent_elsewhere_ns: f64,
}

impl DiskModel {
    fn new() -> Self {
        Self {
            station: QueueEstimator::new(ServerPreference::Fewest),
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

    /// The disk as the Interest finds it that comes now.
    fn next_times(&mut self) -> DiskTimes {
        let service_ns = self.services_ns[self.taken % self.served.clamp(1, SERVICES)];
        self.taken += 1;
        let (alone_ns, interval_ns) = (self.station.unloaded_ns(), self.station.interval_ns());
        let returned = f64::from(core::mem::take(&mut self.returned));
        DiskTimes { unloaded_ns: alone_ns, interval_ns, service_ns, returned }
    }

    fn on_read(&mut self, now: Instant, ahead: u32, left: u32, took_ns: u64) {
        self.station.on_departure(now, ahead, took_ns);
        let servers = self.station.servers();
        let service_ns = match self.ended.replace((now, left)) {
            // All servers were busy since.
            Some((at, waiting)) if f64::from(waiting) >= servers => now.ns_since(at) as f64,
            _ => took_ns as f64 / servers,
        };
        self.services_ns[self.served % SERVICES] = service_ns;
        self.served += 1;
    }
}

/// What is measured of the disks.
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

    /// Whether an Interest is to wait at `home` or to go to one of the next hops, given by their
    /// places and measurements. As long as nothing is known, `threshold` decides.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        home: DiskQueue,
        threshold: u32,
        measurements: &mut Measurements,
        hops: impl Iterator<Item = (usize, u32)> + Clone,
    ) -> DiskChoice {
        let disk = self.disk(home.disk);
        hops.clone().for_each(|(_, index)| measurements.add_model(index));
        let service_ns = disk.station.interval_ns();
        let Some((place, index)) = best_hop(now, measurements, service_ns, hops.clone()) else {
            return DiskChoice::Disk;
        };
        let hop = HopEstimate::find(measurements, index, service_ns).expect("it was found before");
        let mut limit = threshold;
        let passed_ns = now.ns_since(disk.arrived_at) as f64;
        disk.arrived_at = now;
        let (hop_cost_ns, away_own_ns) = (hop.cost_ns(now), hop.expected_ns(now));
        let mut path = PathTimes {
            interval_ns: hop.model.interval_ns(),
            cross_rate: hop.cross_traffic.rate,
            misses: 0.0,
        };
        let is_known = hop.model.is_known() && disk.station.is_known();
        for (_, other) in hops.clone() {
            // What went elsewhere before is not to be found there all at once later.
            let misses = measurements.model_mut(other).map_or(0, PathModel::take_unexpected);
            if other == index {
                path.misses = misses as f64;
            }
        }
        if is_known {
            let times = disk.next_times();
            limit = disk.thresholds.arrive(passed_ns, &times, &path, hop_cost_ns);
        }
        let has_room = measurements.model_mut(index).is_some_and(|model| model.has_room(now));
        let goes_to_hop = home.length >= limit && has_room;
        let read_ns = disk.station.expected_ns(home.length);
        let spent_ns = if goes_to_hop { away_own_ns } else { read_ns };
        let chosen = goes_to_hop.then_some(index);
        if let Some(place) =
            hop_due_for_probe(now, measurements, hops, chosen, spent_ns, service_ns)
        {
            return DiskChoice::NextHop { position: place, is_probe: true };
        }
        if goes_to_hop {
            disk.spent_elsewhere_ns += spent_ns;
            let is_due =
                disk.spent_elsewhere_ns > probe_cost_factor(disk.station.answers()) * read_ns;
            if !is_due || !disk.station.is_known() {
                if let Some(model) = measurements.model_mut(index) {
                    model.expect_send();
                }
                return DiskChoice::NextHop { position: place, is_probe: false };
            }
        }
        disk.spent_elsewhere_ns = 0.0;
        DiskChoice::Disk
    }

    /// What a read is expected to take that finds this queue, ns; none while too little is known.
    pub(crate) fn expected_read_ns(&self, home: DiskQueue) -> Option<f64> {
        let disk = self.disks.get(usize::from(home.disk) % DISKS_MAX)?;
        disk.station.is_known().then(|| disk.station.expected_ns(home.length))
    }

    /// An Interest that had passed by `disk` waits for it after all.
    pub(crate) fn on_return(&mut self, disk: u8) {
        self.disk(disk).returned += 1;
    }

    /// A read has ended that found `ahead` in the queue and leaves `left`.
    pub(crate) fn on_read(&mut self, now: Instant, disk: u8, ahead: u32, left: u32, took_ns: u64) {
        self.disk(disk).on_read(now, ahead, left, took_ns);
    }
}

/// The next hop that costs least now: its place, its measurement.
fn best_hop(
    now: Instant,
    measurements: &Measurements,
    service_ns: f64,
    hops: impl Iterator<Item = (usize, u32)>,
) -> Option<(usize, u32)> {
    let mut best: Option<(f64, usize, u32)> = None;
    for (place, index) in hops {
        let Some(hop) = HopEstimate::find(measurements, index, service_ns) else { continue };
        let cost_ns = if hop.model.is_known() { hop.cost_now_ns(now) } else { f64::MAX };
        if best.is_none_or(|(least_ns, ..)| cost_ns < least_ns) {
            best = Some((cost_ns, place, index));
        }
    }
    best.map(|(_, place, index)| (place, index))
}

/// The place of a next hop that is due to be tried instead of what takes `spent_ns`.
fn hop_due_for_probe(
    now: Instant,
    measurements: &mut Measurements,
    hops: impl Iterator<Item = (usize, u32)>,
    chosen: Option<u32>,
    spent_ns: f64,
    service_ns: f64,
) -> Option<usize> {
    for (place, index) in hops {
        if chosen == Some(index) {
            continue;
        }
        let Some(model) = measurements.model_mut(index) else { continue };
        model.spent_elsewhere_ns += spent_ns;
        if HopEstimate::find(measurements, index, service_ns).is_some_and(|hop| hop.is_due(now)) {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests;
