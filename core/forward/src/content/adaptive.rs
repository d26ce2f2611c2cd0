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
//!   queue to the break-even point, where the disk gains nobody anything. The least marginal cost wins.
//! - **Near the break-even point** chance decides, in proportion.
//! - **What is seldom used is tried** when what was used instead has taken two hundred times as
//!   long: trying costs no more than about 0.5 %, however bad that way may be.

mod station;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Rng, Slab};

use self::station::Station;

/// Next hops of FIB entries that are measured at most; beyond it those that were used longest ago
/// are forgotten.
const METERS_MAX: usize = 1024;
/// A way is tried when what was used instead has taken so many times as long,
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

/// An Interest on its way to a next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BypassSample {
    meter: u32,
    face: FaceId,
    /// Outstanding there when it began.
    ahead: u32,
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
        /// Its meter.
        meter: u32,
    },
}

/// A next hop.
#[derive(Clone, Debug, Default)]
struct Meter {
    station: Station,
    /// Interests under way there.
    outstanding: u32,
    /// Since when nothing has come back although something is outstanding.
    silent_since: Option<Instant>,
    /// When it was last used.
    used_at: Option<Instant>,
    /// What the ways taken instead of this one have taken since it was last used, ns.
    forgone_ns: f64,
}

impl Meter {
    /// At least what it has been silent for, ns.
    fn silent_ns(&self, now: Instant) -> f64 {
        self.silent_since.map_or(0, |since| now.ns_since(since)) as f64
    }

    fn marginal_cost_ns(&self, now: Instant) -> f64 {
        self.station.marginal_cost_ns(self.outstanding).max(self.silent_ns(now))
    }

    fn expected_ns(&self, now: Instant) -> f64 {
        self.station.expected_ns(self.outstanding).max(self.silent_ns(now))
    }
}

/// A disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    station: Station,
    /// What the ways taken instead have taken since a read was last chosen, ns.
    forgone_ns: f64,
}

/// All that is measured.
pub(crate) struct Adaptive {
    rng: Rng,
    disks: Vec<Disk>,
    by_hop: BTreeMap<(u32, FaceId), u32>,
    meters: Slab<(Meter, (u32, FaceId))>,
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
        Self {
            rng: Rng::from_seed(seed ^ 0xADA9),
            disks: Vec::new(),
            by_hop: BTreeMap::new(),
            meters: Slab::new(),
        }
    }

    fn disk(&mut self, disk: u8) -> &mut Disk {
        let disk = usize::from(disk) % DISKS_MAX;
        if self.disks.len() <= disk {
            self.disks.resize_with(disk + 1, Disk::default);
        }
        &mut self.disks[disk]
    }

    /// Whether an Interest is to wait at `home` or to go to one of the next hops of the FIB entry
    /// `fib`. A next hop that nothing is known of is tried once, and used over the threshold.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        home: DiskQueue,
        threshold: u32,
        fib: u32,
        hops: impl Iterator<Item = (usize, FaceId)> + Clone,
    ) -> Choice {
        self.disk(home.disk).station.pass(now, home.queue);
        let Some((best, meter)) = self.best_hop(now, fib, hops.clone()) else {
            return Choice::Disk;
        };
        let away = match self.meters[meter].0.station.is_known() {
            true => {
                let meter = &self.meters[meter].0;
                Price {
                    marginal_cost_ns: meter.marginal_cost_ns(now),
                    own_ns: meter.expected_ns(now),
                }
            }
            // Nothing is known of any.
            false if home.queue >= threshold => Price { marginal_cost_ns: -1.0, own_ns: 0.0 },
            false => Price { marginal_cost_ns: f64::INFINITY, own_ns: 0.0 },
        };
        let (is_home, home_own_ns) = self.compare(home, away.marginal_cost_ns);
        let spent_ns = if is_home { home_own_ns } else { away.own_ns };
        let chosen = (!is_home).then_some(meter);
        if let Some((hop, meter)) = self.due_hop(now, fib, hops, chosen, spent_ns) {
            return self.go(hop, meter, true);
        }
        let disk = self.disk(home.disk);
        if !is_home {
            disk.forgone_ns += spent_ns;
            if disk.forgone_ns <= trial_share(&disk.station) * home_own_ns {
                return self.go(best, meter, false);
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

    fn go(&mut self, place: usize, index: u32, is_trial: bool) -> Choice {
        self.meters[index].0.forgone_ns = 0.0;
        Choice::Away { place, is_trial, meter: index }
    }

    /// An Interest goes where [`Adaptive::choose`] has said. To be given back when it ends; nothing
    /// where the meter is gone.
    pub(crate) fn begin_sample(&mut self, now: Instant, index: u32) -> Option<BypassSample> {
        let (meter, (_, face)) = self.meters.get_mut(index)?;
        let sample = BypassSample { meter: index, face: *face, ahead: meter.outstanding };
        meter.station.pass(now, meter.outstanding);
        meter.outstanding += 1;
        meter.used_at = Some(now);
        meter.silent_since.get_or_insert(now);
        Some(sample)
    }

    /// The next hop that costs least, and its meter.
    fn best_hop(
        &mut self,
        now: Instant,
        fib: u32,
        hops: impl Iterator<Item = (usize, FaceId)>,
    ) -> Option<(usize, u32)> {
        let mut best: Option<(f64, usize, u32)> = None;
        for (hop, face) in hops {
            let Some(index) = self.meter(now, fib, face) else { continue };
            let meter = &self.meters[index].0;
            let marginal_cost_ns = match meter.station.is_known() {
                true => meter.marginal_cost_ns(now),
                false => f64::MAX,
            };
            if best.is_none_or(|(least_ns, ..)| marginal_cost_ns < least_ns) {
                best = Some((marginal_cost_ns, hop, index));
            }
        }
        best.map(|(_, hop, index)| (hop, index))
    }

    /// A next hop whose turn it is to be tried instead of what takes `spent_ns`.
    fn due_hop(
        &mut self,
        now: Instant,
        fib: u32,
        hops: impl Iterator<Item = (usize, FaceId)>,
        chosen: Option<u32>,
        spent_ns: f64,
    ) -> Option<(usize, u32)> {
        for (hop, face) in hops {
            let Some(index) = self.meter(now, fib, face) else { continue };
            if chosen == Some(index) {
                continue;
            }
            let meter = &mut self.meters[index].0;
            meter.forgone_ns += spent_ns;
            let is_due = match meter.station.is_known() {
                true => {
                    let own_ns = meter.expected_ns(now);
                    meter.forgone_ns > trial_share(&meter.station) * own_ns
                }
                false => true,
            };
            if is_due && meter.outstanding == 0 {
                return Some((hop, index));
            }
        }
        None
    }

    /// The meter of a next hop, a new one if need be.
    fn meter(&mut self, now: Instant, fib: u32, face: FaceId) -> Option<u32> {
        if let Some(&index) = self.by_hop.get(&(fib, face)) {
            return Some(index);
        }
        if self.meters.len() >= METERS_MAX {
            let idle = self.meters.iter().filter(|(_, (meter, _))| meter.outstanding == 0);
            let (index, _) = idle.min_by_key(|(_, (meter, _))| meter.used_at)?;
            let (_, key) = self.meters.remove(index);
            self.by_hop.remove(&key);
        }
        let meter = Meter { used_at: Some(now), ..Meter::default() };
        let index = self.meters.insert((meter, (fib, face)));
        self.by_hop.insert((fib, face), index);
        Some(index)
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

    /// A sample has ended after `took_ns`: with Data from `upstream`, or without.
    pub(crate) fn end_sample(
        &mut self,
        now: Instant,
        sample: &BypassSample,
        took_ns: u64,
        upstream: Option<FaceId>,
    ) {
        let meter = &mut self.meters[sample.meter].0;
        let before = meter.outstanding;
        meter.outstanding -= 1;
        match upstream {
            Some(face) if face == sample.face => {
                meter.station.leave(now, before, sample.ahead, took_ns);
                meter.silent_since = Some(now);
            }
            // The store had it in the end, which says nothing of the next hop.
            Some(FaceId::CONTENT_STORE) => meter.station.pass(now, before),
            _ => meter.station.leave(now, before, sample.ahead, took_ns),
        }
        if meter.outstanding == 0 {
            meter.silent_since = None;
        }
    }
}

#[cfg(test)]
mod tests;
