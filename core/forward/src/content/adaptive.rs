//! Wait for a disk, or go to the next hop? What is likely to cost everybody less, from what was
//! seen of both lately.
//!
//! A threshold of reads before the disk is right for one arrival rate, one disk and one distance to
//! the next hop only. Here the same question is answered from measurements:
//!
//! - **Every way is a station** ([`Station`]): a disk with reads in it, a next hop of a FIB entry
//!   with Interests outstanding there. How long it spends with how many in it, and how many leave
//!   it then, is all that is measured. Load that has just gone somewhere shows at once in that
//!   number, before any answer tells of it.
//! - **Joining a queue delays those who come after.** What one more costs is not its own wait but
//!   the time that all are in the queue longer until it is empty again (Naor 1969, "The regulation
//!   of queue size by levying tolls"). An Interest that only looked at its own wait would fill the
//!   queue to the break-even point, where the disk gains nobody anything. The least marginal cost
//!   wins.
//! - **Near the break-even point** chance decides, in proportion.
//! - **What is seldom used is tried** when what was used instead has taken two hundred times as
//!   long: trying costs no more than about 0.5 %, however bad that way may be.

use alloc::vec::Vec;

use weir_base::{Instant, Rng};

use crate::table::measurements::{Measurement, Measurements, QueueModel};
use crate::table::station::Station;

/// A way is tried when what was used instead has taken this many times as long,
const TRIAL_SHARE: f64 = 200.0;
/// or less, as long as little is known of it, but at least this.
const TRIAL_SHARE_MIN: f64 = 10.0;
/// Disks of a store.
const DISKS_MAX: usize = 16;

/// A queue of the store that an Interest may wait in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskQueue {
    /// Which disk; 0 where all are one.
    pub(crate) disk: u8,
    /// Reads, or Interests, ahead.
    pub(crate) queue: u32,
    /// What the store expects, ns.
    pub(crate) expected_wait_ns: u64,
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
    model: &'a QueueModel,
}

impl<'a> Hop<'a> {
    fn find(measurements: &'a Measurements, index: u32) -> Option<Self> {
        let measured = measurements.find(index)?;
        Some(Self { measured, model: measured.model()? })
    }

    fn is_known(self) -> bool {
        self.model.station.is_known()
    }

    fn marginal_cost_ns(self, now: Instant) -> f64 {
        let cost_ns = self.model.station.marginal_cost_ns(self.measured.in_flight());
        cost_ns.max(self.measured.silent_ns(now) as f64)
    }

    fn expected_ns(self, now: Instant) -> f64 {
        let expected_ns = self.model.station.expected_ns(self.measured.in_flight());
        expected_ns.max(self.measured.silent_ns(now) as f64)
    }
}

/// A disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    station: Station,
    /// What the ways taken instead have taken since a read was last chosen, ns.
    forgone_ns: f64,
}

/// What is measured of the disks, and chance.
pub(crate) struct Adaptive {
    rng: Rng,
    disks: Vec<Disk>,
}

/// What it costs to go somewhere.
#[derive(Clone, Copy)]
struct Price {
    /// All, ns.
    marginal_cost_ns: f64,
    /// Whoever goes there, ns.
    own_ns: f64,
}

fn trial_share(station: &Station) -> f64 {
    TRIAL_SHARE_MIN + (TRIAL_SHARE - TRIAL_SHARE_MIN) * station.certainty()
}

impl Adaptive {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::from_seed(seed ^ 0xADA9), disks: Vec::new() }
    }

    fn disk(&mut self, disk: u8) -> &mut Disk {
        let disk = usize::from(disk) % DISKS_MAX;
        if self.disks.len() <= disk {
            self.disks.resize_with(disk + 1, Disk::default);
        }
        &mut self.disks[disk]
    }

    /// Whether an Interest is to wait at `home` or to go to one of the next hops, given by their
    /// places and measurements. A next hop that nothing is known of is tried once, and used over
    /// the threshold.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        home: DiskQueue,
        threshold: u32,
        measurements: &mut Measurements,
        hops: impl Iterator<Item = (usize, u32)> + Clone,
    ) -> Choice {
        self.disk(home.disk).station.pass(now, home.queue);
        hops.clone().for_each(|(_, index)| measurements.want_model(index));
        let Some((best, index, hop)) = best_hop(now, measurements, hops.clone()) else {
            return Choice::Disk;
        };
        let away = match hop.is_known() {
            true => {
                Price { marginal_cost_ns: hop.marginal_cost_ns(now), own_ns: hop.expected_ns(now) }
            }
            // Nothing is known of any.
            false if home.queue >= threshold => Price { marginal_cost_ns: -1.0, own_ns: 0.0 },
            false => Price { marginal_cost_ns: f64::INFINITY, own_ns: 0.0 },
        };
        let (is_home, home_own_ns) = self.compare(home, away.marginal_cost_ns);
        let spent_ns = if is_home { home_own_ns } else { away.own_ns };
        let chosen = (!is_home).then_some(index);
        if let Some(place) = due_hop(now, measurements, hops, chosen, spent_ns) {
            return Choice::Away { place, is_trial: true };
        }
        let disk = self.disk(home.disk);
        if !is_home {
            disk.forgone_ns += spent_ns;
            if disk.forgone_ns <= trial_share(&disk.station) * home_own_ns {
                return Choice::Away { place: best, is_trial: false };
            }
        }
        disk.forgone_ns = 0.0;
        Choice::Disk
    }

    /// Whether waiting is the better choice where going on costs `away_ns`, and how long the wait
    /// is likely to be.
    fn compare(&mut self, home: DiskQueue, away_ns: f64) -> (bool, f64) {
        let station = &self.disk(home.disk).station;
        if !station.is_known() {
            let wait_ns = home.expected_wait_ns as f64;
            return (wait_ns <= away_ns, wait_ns);
        }
        let marginal_cost_ns = station.marginal_cost_ns(home.queue);
        let before_ns = station.marginal_cost_ns(home.queue.saturating_sub(1));
        let own_ns = station.expected_ns(home.queue);
        if marginal_cost_ns <= away_ns {
            return (true, own_ns);
        }
        if home.queue == 0 || before_ns >= away_ns {
            return (false, own_ns);
        }
        (self.rng.unit() * (marginal_cost_ns - before_ns) < away_ns - before_ns, own_ns)
    }

    /// A read has ended that found `ahead` in the queue and leaves `left`.
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        disk: u8,
        (ahead, left): (u32, u32),
        took_ns: u64,
    ) {
        self.disk(disk).station.leave(now, left.saturating_add(1), ahead, took_ns);
    }
}

/// The next hop that costs least: its place, its measurement.
fn best_hop(
    now: Instant,
    measurements: &Measurements,
    hops: impl Iterator<Item = (usize, u32)>,
) -> Option<(usize, u32, Hop<'_>)> {
    let mut best: Option<(f64, usize, u32, Hop<'_>)> = None;
    for (place, index) in hops {
        let Some(hop) = Hop::find(measurements, index) else { continue };
        let cost_ns = if hop.is_known() { hop.marginal_cost_ns(now) } else { f64::MAX };
        if best.as_ref().is_none_or(|(least_ns, ..)| cost_ns < *least_ns) {
            best = Some((cost_ns, place, index, hop));
        }
    }
    best.map(|(_, place, index, hop)| (place, index, hop))
}

/// The place of a next hop that is due to be tried instead of what takes `spent_ns`.
fn due_hop(
    now: Instant,
    measurements: &mut Measurements,
    hops: impl Iterator<Item = (usize, u32)>,
    chosen: Option<u32>,
    spent_ns: f64,
) -> Option<usize> {
    for (place, index) in hops {
        if chosen == Some(index) {
            continue;
        }
        let Some(model) = measurements.model_mut(index) else { continue };
        model.forgone_ns += spent_ns;
        let Some(hop) = Hop::find(measurements, index) else { continue };
        let is_due = !hop.is_known()
            || hop.model.forgone_ns > trial_share(&hop.model.station) * hop.expected_ns(now);
        if is_due && hop.measured.in_flight() == 0 {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests;
