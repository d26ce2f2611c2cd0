//! Wait for a disk, or go to the next hop? What is likely to cost everybody less, from what both
//! have taken lately.
//!
//! A threshold of reads before the disk is right for one arrival rate, one disk and one distance to
//! the next hop only. Here the same question is answered from measurements:
//!
//! - **Both ways** are curves of what requests have taken over the number that were ahead
//!   ([`Curve`]): as long as one takes alone, or as long as it takes to serve all ahead. Load that has
//!   just gone somewhere shows at once in that number, before any answer tells of it.
//! - **Waiting here delays those who come after.** The cost of one more read is not its own wait but
//!   that of all until the queue is empty again ([`Tolls`]; Naor 1969, "The regulation of queue size by
//!   levying tolls"). It grows with the rate at which Interests arrive. An Interest that only looked
//!   at its own wait would fill the queue to the break-even point, where the disk gains nobody
//!   anything.
//! - **Near the break-even point** chance decides, in proportion.
//! - **What is seldom used is tried** when what was used instead has taken a hundred times as long:
//!   trying costs no more than about 1 %, however bad that way may be.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_S, Rng, Slab};

/// Next hops of FIB entries that are measured at most; beyond it those that were used longest ago
/// are forgotten.
const METERS_MAX: usize = 4096;
/// A way is tried when what was used instead has taken so many times as long.
const TRIAL_SHARE: f64 = 100.0;
/// What was measured so long ago counts for half as much as what is measured now.
const HALF_LIFE_NS: f64 = NS_PER_S as f64;
/// Answers of about equal weight.
const ANSWERS: f64 = 256.0;
/// Less than this is not looked at while there is more elsewhere.
const WEIGHT_MIN: f64 = 8.0;
/// Numbers ahead are told apart by their logarithm.
const BUCKETS: usize = 13;
/// Interests after which tolls are computed again.
const TOLLS_HOLD: u32 = 32;
/// Longer queues cost what the longest of these does.
const TOLLS_MAX: usize = 4096;
/// Interests over which the rate of arrivals is averaged.
const ARRIVALS: f64 = 128.0;
/// Disks of a store.
const DISKS_MAX: usize = 16;

/// A queue of the store that an Interest may wait in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// Which disk; 0 where all are one.
    pub(crate) disk: u8,
    /// Reads, or Interests, ahead.
    pub(crate) queue: u32,
    /// What the store expects, ns.
    pub(crate) expected_wait_ns: u64,
}

/// An Interest on its way to a next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    meter: u32,
    face: FaceId,
    ahead: u32,
}

/// What an Interest is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// Wait.
    Home,
    /// Go on.
    Away {
        /// To which of the next hops.
        hop: usize,
        /// Only to learn how long that takes.
        is_trial: bool,
        /// To be given back when it ends; nothing when no more can be measured.
        trip: Option<Trip>,
    },
}

/// What requests took that had about as many ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// How many, recent ones counting for more.
    weight: f64,
    mean_ns: f64,
    /// Mean of the time over the place in the queue.
    mean_share_ns: f64,
    at: Instant,
}

/// What a request takes by how many are ahead of it, in a queue with any number of servers or on a
/// path with a delay: `max(alone, place * interval)`.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// By the logarithm of the place in the queue.
    buckets: [Bucket; BUCKETS],
    /// What a request takes with few ahead, ns; 0 when nothing is known.
    alone_ns: f64,
    /// Between two requests when all servers are busy, ns: no more than this.
    interval_ns: f64,
}

impl Curve {
    fn is_known(&self) -> bool {
        self.alone_ns > 0.0
    }

    fn add(&mut self, now: Instant, ahead: u32, took_ns: u64) {
        let place = f64::from(ahead) + 1.0;
        let took_ns = took_ns.max(1) as f64;
        let index = ((ahead.saturating_add(1)).ilog2() as usize).min(BUCKETS - 1);
        let bucket = &mut self.buckets[index];
        bucket.weight = bucket.weight_at(now) * (1.0 - 1.0 / ANSWERS) + 1.0;
        bucket.at = now;
        bucket.mean_ns += (took_ns - bucket.mean_ns) / bucket.weight;
        bucket.mean_share_ns += (took_ns / place - bucket.mean_share_ns) / bucket.weight;
        self.fit(now);
    }

    fn fit(&mut self, now: Instant) {
        let known = |bucket: &&Bucket| bucket.weight_at(now) >= WEIGHT_MIN;
        let least = |least: f64, ns: f64| least.min(ns);
        let known = || self.buckets.iter().filter(known);
        let mut alone_ns = known().map(|bucket| bucket.mean_ns).fold(f64::INFINITY, least);
        let mut interval_ns = known().map(|bucket| bucket.mean_share_ns).fold(f64::INFINITY, least);
        if !alone_ns.is_finite() {
            let all = self.buckets.iter().filter(|bucket| bucket.weight > 0.0);
            (alone_ns, interval_ns) = all.fold((f64::INFINITY, f64::INFINITY), |least, bucket| {
                (least.0.min(bucket.mean_ns), least.1.min(bucket.mean_share_ns))
            });
        }
        (self.alone_ns, self.interval_ns) = (alone_ns, interval_ns);
    }

    /// What a request takes with so many ahead, ns.
    fn expected_ns(&self, ahead: f64) -> f64 {
        self.alone_ns.max((ahead + 1.0) * self.interval_ns)
    }
}

impl Bucket {
    fn weight_at(&self, now: Instant) -> f64 {
        self.weight * HALF_LIFE_NS / (HALF_LIFE_NS + now.ns_since(self.at) as f64)
    }
}

/// A disk, or the way to a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    curve: Curve,
    /// Requests under way there.
    outstanding: u32,
    /// Since when nothing has come back although something is outstanding.
    silent_since: Option<Instant>,
    /// When it was last used.
    used_at: Option<Instant>,
    /// What the ways taken instead of this one have taken since it was last used, ns.
    forgone_ns: f64,
}

impl Meter {
    /// What a request sent there now is likely to take, ns.
    fn expected_ns(&self, now: Instant) -> f64 {
        let silent_ns = self.silent_since.map_or(0, |since| now.ns_since(since));
        self.curve.expected_ns(f64::from(self.outstanding)).max(silent_ns as f64)
    }
}

/// All that is measured.
pub(crate) struct Adaptive {
    rng: Rng,
    disks: [Disk; DISKS_MAX],
    by_hop: BTreeMap<(u32, FaceId), u32>,
    meters: Slab<(Meter, (u32, FaceId))>,
}

/// What is known of a disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    curve: Curve,
    /// Time between Interests for what is on it, ns; 0 before the second.
    gap_ns: f64,
    last_at: Option<Instant>,
    /// What the ways taken instead have taken since a read was last chosen, ns.
    forgone_ns: f64,
    tolls: Tolls,
}

impl Disk {
    fn note_arrival(&mut self, now: Instant) {
        let Some(last_at) = self.last_at.replace(now) else { return };
        let gap_ns = now.ns_since(last_at) as f64;
        if self.gap_ns == 0.0 {
            self.gap_ns = gap_ns;
        }
        // A pause tells little of the rate before and after it.
        self.gap_ns += (gap_ns.min(4.0 * self.gap_ns) - self.gap_ns) / ARRIVALS;
    }

    /// What one more read with so many ahead costs all together, ns.
    fn cost_ns(&mut self, ahead: u32, guess_ns: f64) -> f64 {
        if !self.curve.is_known() {
            return guess_ns * (f64::from(ahead) + 1.0);
        }
        if self.tolls.left == 0 {
            let rate = if self.gap_ns > 0.0 { 1.0 / self.gap_ns } else { 0.0 };
            self.tolls.begin(rate, &self.curve);
        }
        self.tolls.left = self.tolls.left.saturating_sub(1);
        self.tolls.of(ahead as usize)
    }
}

/// What joining a queue costs all who are in it until it is empty, by how many are ahead.
///
/// The queue is a birth and death process: `rate` arrivals, and with `k` in it
/// `min(k / alone, 1 / interval)` departures an ns. Let it take no more than `n`. In the long run
/// those who find it full pay `T` elsewhere, those in it pay their time. One place more is worth its
/// price while `T` is above
///
/// ```text
/// ((n + 1) Z(n) - S(n)) / (departures(n + 1) Z(n) - rate Z(n - 1))
/// ```
///
/// where `Z` and `S` are the sums of `w(k)` and `k w(k)` to `n`, and `w(k)` how likely `k` are in it,
/// up to a factor. For one server this is Naor's toll.
#[derive(Clone, Debug, Default)]
struct Tolls {
    ns: Vec<f64>,
    rate: f64,
    alone_ns: f64,
    interval_ns: f64,
    /// `w(n)`, `Z(n)`, `S(n)` for the next `n`.
    likely: f64,
    sum: f64,
    sum_in: f64,
    /// Uses until they are computed anew.
    left: u32,
}

impl Tolls {
    fn begin(&mut self, rate: f64, curve: &Curve) {
        self.ns.clear();
        self.rate = rate;
        (self.alone_ns, self.interval_ns) = (curve.alone_ns, curve.interval_ns);
        (self.likely, self.sum, self.sum_in) = (1.0, 1.0, 0.0);
        self.left = TOLLS_HOLD;
    }

    fn of(&mut self, ahead: usize) -> f64 {
        while self.ns.len() <= ahead.min(TOLLS_MAX) {
            self.next();
        }
        self.ns[ahead.min(TOLLS_MAX)]
    }

    fn next(&mut self) {
        let place = self.ns.len() as f64 + 1.0;
        let departures = (place / self.alone_ns).min(1.0 / self.interval_ns);
        let price_ns = (place * self.sum - self.sum_in)
            / (departures * self.sum - self.rate * (self.sum - self.likely));
        self.ns.push(price_ns);
        self.likely *= self.rate / departures;
        self.sum += self.likely;
        self.sum_in += place * self.likely;
        if self.sum > 1e100 {
            self.likely *= 1e-100;
            self.sum *= 1e-100;
            self.sum_in *= 1e-100;
        }
    }
}

impl Adaptive {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::from_seed(seed ^ 0xADA9),
            disks: core::array::from_fn(|_| Disk::default()),
            by_hop: BTreeMap::new(),
            meters: Slab::new(),
        }
    }

    /// Whether an Interest is to wait at `home` or to go to one of the next hops of the FIB entry
    /// `fib`. A next hop that nothing is known of is tried once, and used over the threshold.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        home: Home,
        threshold: u32,
        fib: u32,
        hops: impl Iterator<Item = FaceId> + Clone,
    ) -> Choice {
        let disk = usize::from(home.disk) % DISKS_MAX;
        self.disks[disk].note_arrival(now);
        let guess_ns = home.expected_wait_ns as f64 / (f64::from(home.queue) + 1.0);
        let own_ns = self.disks[disk].curve.expected_ns(f64::from(home.queue));
        let cost_ns = self.disks[disk].cost_ns(home.queue, guess_ns);
        let best = self.best_hop(now, fib, hops.clone());
        let Some((best, meter)) = best else { return Choice::Home };
        let away_ns = match self.meters[meter].0.curve.is_known() {
            true => self.meters[meter].0.expected_ns(now),
            false if home.queue >= threshold => -1.0,
            false => f64::INFINITY,
        };
        let before_ns = self.disks[disk].cost_ns(home.queue.saturating_sub(1), guess_ns);
        let is_home = if cost_ns <= away_ns {
            true
        } else if home.queue == 0 || before_ns >= away_ns {
            false
        } else {
            self.rng.unit() * (cost_ns - before_ns) < away_ns - before_ns
        };
        let spent_ns = if is_home { own_ns } else { away_ns };
        if let Some((hop, meter)) =
            self.trial_hop(now, fib, hops, (!is_home).then_some(meter), spent_ns)
        {
            return self.go(now, hop, meter, true);
        }
        if is_home {
            self.disks[disk].forgone_ns = 0.0;
            return Choice::Home;
        }
        self.disks[disk].forgone_ns += spent_ns;
        if self.disks[disk].forgone_ns > TRIAL_SHARE * own_ns && self.disks[disk].curve.is_known() {
            self.disks[disk].forgone_ns = 0.0;
            return Choice::Home;
        }
        self.go(now, best, meter, false)
    }

    fn go(&mut self, now: Instant, hop: usize, index: u32, is_trial: bool) -> Choice {
        let (meter, (_, face)) = &mut self.meters[index];
        let trip = Trip { meter: index, face: *face, ahead: meter.outstanding };
        meter.outstanding += 1;
        meter.forgone_ns = 0.0;
        meter.used_at = Some(now);
        meter.silent_since.get_or_insert(now);
        Choice::Away { hop, is_trial, trip: Some(trip) }
    }

    /// The next hop that is likely to answer first, and its meter.
    fn best_hop(
        &mut self,
        now: Instant,
        fib: u32,
        hops: impl Iterator<Item = FaceId>,
    ) -> Option<(usize, u32)> {
        let mut best: Option<(f64, usize, u32)> = None;
        for (hop, face) in hops.enumerate() {
            let Some(index) = self.meter(now, fib, face) else { continue };
            let meter = &self.meters[index].0;
            let expected_ns = match meter.curve.is_known() {
                true => meter.expected_ns(now),
                false => f64::MAX,
            };
            if best.is_none_or(|(least_ns, ..)| expected_ns < least_ns) {
                best = Some((expected_ns, hop, index));
            }
        }
        best.map(|(_, hop, index)| (hop, index))
    }

    /// A next hop whose turn it is to be tried instead of what takes `spent_ns`.
    fn trial_hop(
        &mut self,
        now: Instant,
        fib: u32,
        hops: impl Iterator<Item = FaceId>,
        chosen: Option<u32>,
        spent_ns: f64,
    ) -> Option<(usize, u32)> {
        for (hop, face) in hops.enumerate() {
            let Some(index) = self.meter(now, fib, face) else { continue };
            if chosen == Some(index) {
                continue;
            }
            let meter = &mut self.meters[index].0;
            meter.forgone_ns += spent_ns;
            let is_due = match meter.curve.is_known() {
                true => meter.forgone_ns > TRIAL_SHARE * meter.expected_ns(now),
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

    /// A read has ended that had `ahead` before it.
    pub(crate) fn on_read(&mut self, now: Instant, disk: u8, ahead: u32, took_ns: u64) {
        self.disks[usize::from(disk) % DISKS_MAX].curve.add(now, ahead, took_ns);
    }

    /// What one more read ahead takes, ns.
    pub(crate) fn read_ns(&self, disk: u8) -> u64 {
        self.disks[usize::from(disk) % DISKS_MAX].curve.interval_ns as u64
    }

    /// A trip has ended after `took_ns`: with Data from `upstream`, or without.
    pub(crate) fn end_trip(
        &mut self,
        now: Instant,
        trip: &Trip,
        took_ns: u64,
        upstream: Option<FaceId>,
    ) {
        let meter = &mut self.meters[trip.meter].0;
        meter.outstanding -= 1;
        match upstream {
            Some(face) if face == trip.face => {
                meter.curve.add(now, trip.ahead, took_ns);
                meter.silent_since = (meter.outstanding > 0).then_some(now);
            }
            // The store had it in the end, which says nothing of the next hop.
            Some(FaceId::CONTENT_STORE) => {}
            _ => meter.curve.add(now, trip.ahead, took_ns),
        }
        if meter.outstanding == 0 {
            meter.silent_since = None;
        }
    }
}

#[cfg(test)]
mod tests;
