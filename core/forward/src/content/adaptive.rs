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
use crate::table::path_model::{Others, PathModel};
use crate::table::station::{Servers, Station};

/// A way is tried when what was used instead has taken this many times as long,
const TRIAL_SHARE: f64 = 200.0;
/// or less, as long as little is known of it, but at least this.
const TRIAL_SHARE_MIN: f64 = 10.0;
/// Answers from which on no more are looked for at a price.
const ANSWERS_SOME: u64 = 16;
const DISKS_MAX: usize = 16;
const SERVICES: usize = 64;

/// A queue of the store that an Interest may wait in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskQueue {
    /// Which disk; 0 where all are one.
    pub(crate) disk: u8,
    /// Reads, or Interests, ahead.
    pub(crate) queue: u32,
}

/// What an Interest is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// Wait.
    Disk,
    /// Go on.
    Away {
        /// To which of the next hops: its place among them.
        place: usize,
        /// Only to learn how long that takes.
        is_trial: bool,
    },
}

/// A next hop, as it is measured.
#[derive(Clone, Copy)]
struct Hop<'a> {
    measured: &'a Measurement,
    model: &'a PathModel,
    others: Others,
}

impl<'a> Hop<'a> {
    /// `service_ns`: what a service there takes as long as nothing tells.
    fn find(measurements: &'a Measurements, index: u32, service_ns: f64) -> Option<Self> {
        let measured = measurements.find(index)?;
        let model = measured.model()?;
        Some(Self { measured, model, others: model.others(service_ns) })
    }

    /// What going there costs with nothing else of this router's there, ns: the way, the wait for
    /// others, and what these wait longer. At least what it has been silent for.
    fn cost_ns(self, now: Instant) -> f64 {
        self.expected_ns(now).max(self.model.expected_ns(&self.others) + self.others.harm_ns)
    }

    /// The same for whoever goes.
    fn expected_ns(self, now: Instant) -> f64 {
        self.model.expected_ns(&self.others).max(self.measured.silent_ns(now) as f64)
    }

    fn cost_now_ns(self, now: Instant) -> f64 {
        self.cost_ns(now) + self.model.own_wait_ns(self.measured.in_flight())
    }

    fn is_due(self, now: Instant) -> bool {
        let share = trial_share(self.model.answers());
        let is_due = self.model.forgone_ns > share * self.expected_ns(now);
        (is_due || !self.model.is_known()) && self.measured.in_flight() == 0
    }
}

#[derive(Clone, Debug)]
struct Disk {
    station: Station,
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
    forgone_ns: f64,
}

impl Disk {
    fn new() -> Self {
        Self {
            station: Station::new(Servers::Fewest),
            thresholds: Thresholds::default(),
            services_ns: [0.0; SERVICES],
            served: 0,
            taken: 0,
            ended: None,
            arrived_at: Instant::ZERO,
            returned: 0,
            forgone_ns: 0.0,
        }
    }

    /// The disk as the Interest finds it that comes now.
    fn next_times(&mut self) -> DiskTimes {
        let service_ns = self.services_ns[self.taken % self.served.clamp(1, SERVICES)];
        self.taken += 1;
        let (alone_ns, interval_ns) = (self.station.alone_ns(), self.station.interval_ns());
        let returned = f64::from(core::mem::take(&mut self.returned));
        DiskTimes { alone_ns, interval_ns, service_ns, returned }
    }

    fn on_read(&mut self, now: Instant, ahead: u32, left: u32, took_ns: u64) {
        self.station.leave(now, ahead, took_ns);
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
    disks: Vec<Disk>,
}

fn trial_share(answers: u64) -> f64 {
    let certainty = answers.min(ANSWERS_SOME) as f64 / ANSWERS_SOME as f64;
    TRIAL_SHARE_MIN + (TRIAL_SHARE - TRIAL_SHARE_MIN) * certainty
}

impl Adaptive {
    fn disk(&mut self, disk: u8) -> &mut Disk {
        let disk = usize::from(disk) % DISKS_MAX;
        if self.disks.len() <= disk {
            self.disks.resize_with(disk + 1, Disk::new);
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
    ) -> Choice {
        let disk = self.disk(home.disk);
        hops.clone().for_each(|(_, index)| measurements.want_model(index));
        let service_ns = disk.station.interval_ns();
        let Some((place, index)) = best_hop(now, measurements, service_ns, hops.clone()) else {
            return Choice::Disk;
        };
        let hop = Hop::find(measurements, index, service_ns).expect("it was found before");
        let mut limit = threshold;
        let passed_ns = now.ns_since(disk.arrived_at) as f64;
        disk.arrived_at = now;
        let (away_ns, away_own_ns) = (hop.cost_ns(now), hop.expected_ns(now));
        let mut path = PathTimes {
            interval_ns: hop.model.interval_ns(),
            others_rate: hop.others.rate,
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
            limit = disk.thresholds.arrive(passed_ns, &times, &path, away_ns);
        }
        let has_room = measurements.model_mut(index).is_some_and(|model| model.has_room(now));
        let is_away = home.queue >= limit && has_room;
        let home_ns = disk.station.expected_ns(home.queue);
        let spent_ns = if is_away { away_own_ns } else { home_ns };
        let chosen = is_away.then_some(index);
        if let Some(place) = due_hop(now, measurements, hops, chosen, spent_ns, service_ns) {
            return Choice::Away { place, is_trial: true };
        }
        if is_away {
            disk.forgone_ns += spent_ns;
            let is_due = disk.forgone_ns > trial_share(disk.station.answers()) * home_ns;
            if !is_due || !disk.station.is_known() {
                if let Some(model) = measurements.model_mut(index) {
                    model.expect_sent();
                }
                return Choice::Away { place, is_trial: false };
            }
        }
        disk.forgone_ns = 0.0;
        Choice::Disk
    }

    /// What a read is expected to take that finds this queue, ns; none while too little is known.
    pub(crate) fn expected_read_ns(&self, home: DiskQueue) -> Option<f64> {
        let disk = self.disks.get(usize::from(home.disk) % DISKS_MAX)?;
        disk.station.is_known().then(|| disk.station.expected_ns(home.queue))
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
        let Some(hop) = Hop::find(measurements, index, service_ns) else { continue };
        let cost_ns = if hop.model.is_known() { hop.cost_now_ns(now) } else { f64::MAX };
        if best.is_none_or(|(least_ns, ..)| cost_ns < least_ns) {
            best = Some((cost_ns, place, index));
        }
    }
    best.map(|(_, place, index)| (place, index))
}

/// The place of a next hop that is due to be tried instead of what takes `spent_ns`.
fn due_hop(
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
        model.forgone_ns += spent_ns;
        if Hop::find(measurements, index, service_ns).is_some_and(|hop| hop.is_due(now)) {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests;
