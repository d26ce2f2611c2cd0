//! Computes numbers from events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_plan::event::{Event, EventKind, Observer, Queue, RouterSample};
use weir_plan::{Plan, Role};
use weir_scenario::metric::{Measure, MeasureKind, Metric, Statistic};
use weir_scenario::{Arm, Experiment, Prepared, ScenarioError, WarmUp};

use super::Histogram;
use super::settle::{self, WarmUpEstimate};
use super::shares::ConsumerShares;

/// Recorded points of a distribution.
pub(super) const DISTRIBUTION_POINTS: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The number of each metric; `None` if nothing was measured.
    pub values: BTreeMap<String, Option<f64>>,
    /// For metrics with `per_node`: node and number, in the order of the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<(String, Option<f64>)>>,
    /// For metrics with `over_time`: the middle of each bin in seconds, and its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// For metrics with `distribution`: value, and the fraction of samples at or below it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, Vec<(f64, f64)>>,
    /// The warm-up that was excluded, if it is estimated from the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<WarmUpEstimate>,
}

/// Receives the events of a run and computes its metrics.
pub(crate) struct Collector {
    meters: Vec<Meter>,
    names: Vec<String>,
    /// Last sample of each router, with its time.
    routers: Vec<(u64, RouterSample)>,
    /// Reads that waited for each node's disks at the last sample.
    disk_reads: Vec<u32>,
    /// Last sample of each sender and link, with its time.
    links: BTreeMap<(u32, u32), (u64, LinkTraffic)>,
    /// Capacity of each sender's link, if it has a rate.
    capacities: BTreeMap<(u32, u32), Capacity>,
    /// Content bytes that each consumer had received on each link at the last sample, with its
    /// time.
    paths: BTreeMap<(u32, u32), (u64, u64)>,
    /// For each consumer, the producer whose names it requests.
    content: Vec<usize>,
    spreads: BTreeMap<(usize, u64), ObjectSpread>,
    viewers: Viewers,
    duration_ns: u64,
    warm_up_ns: u64,
    bin_ns: u64,
    /// All events, if the warm-up is known only at the end.
    buffered_events: Option<Vec<Event>>,
}

/// Counters of a link.
#[derive(Clone, Copy, Default)]
struct LinkTraffic {
    bytes: u64,
    frames: u64,
    dropped: u64,
    waiting_bytes: u64,
}

/// The capacity of a link.
#[derive(Clone, Copy)]
struct Capacity {
    rate_bps: f64,
    /// Bandwidth-delay product: bytes in flight for one round trip at that rate.
    bdp_bytes: f64,
}

/// The distribution of an object to consumers.
#[derive(Default)]
struct ObjectSpread {
    start_ns: u64,
    last_ns: u64,
    waiting: BTreeSet<u32>,
    done: BTreeSet<u32>,
}

/// Who watches which live channel.
#[derive(Default)]
struct Viewers {
    /// The channel of each player.
    channels: BTreeMap<u32, u64>,
    /// The number of players of each channel that is watched.
    watched: BTreeMap<u64, u32>,
    /// When the channels last changed.
    since_ns: u64,
}

struct Meter {
    metric: Metric,
    at: Option<Vec<bool>>,
    whole: Sum,
    nodes: BTreeMap<u32, Sum>,
    bins: Vec<Sum>,
    /// For measures that compare consumers.
    shares: Option<ConsumerShares>,
}

#[derive(Clone, Default)]
struct Sum {
    amount: f64,
    of: f64,
    samples: Histogram,
}

/// A value to count or to sample.
#[derive(Clone, Copy)]
enum Count {
    Sample(f64),
    Amount(Amount),
}

/// A counted amount, and for a ratio its denominator.
#[derive(Clone, Copy)]
struct Amount {
    amount: f64,
    of: f64,
}

impl Amount {
    fn of(amount: f64) -> Self {
        Self { amount, of: 0.0 }
    }

    fn share(amount: f64, of: f64) -> Self {
        Self { amount, of }
    }
}

/// The measured time and its bins.
#[derive(Clone, Copy)]
struct MeasuredTime {
    warm_up_ns: u64,
    duration_ns: u64,
    bin_ns: u64,
}

/// The time between two samples of counters.
#[derive(Clone, Copy)]
struct SamplePeriod {
    from_ns: u64,
    to_ns: u64,
}

impl SamplePeriod {
    const fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// The fraction of it that lies within another period.
    fn share_within(self, other: Self) -> f64 {
        // A sample without length counts once, even on the boundary of two periods.
        if self.length_ns() == 0 {
            return f64::from(u8::from(other.from_ns < self.to_ns && self.to_ns <= other.to_ns));
        }
        let from_ns = self.from_ns.max(other.from_ns);
        let common_ns = self.to_ns.min(other.to_ns).saturating_sub(from_ns);
        common_ns as f64 / self.length_ns() as f64
    }
}

/// The growth of a counter. Counters of a restarted router continue from their values before the
/// crash.
fn grown(now: u64, before: u64) -> f64 {
    assert!(now >= before, "a counter decreased from {before} to {now}");
    (now - before) as f64
}

impl Sum {
    fn add(&mut self, count: Count) {
        match count {
            Count::Sample(sample) => self.samples.add(sample),
            Count::Amount(Amount { amount, of }) => {
                self.amount += amount;
                self.of += of;
            }
        }
    }

    fn value(&self, metric: &Metric, time_s: f64) -> Option<f64> {
        let value = match metric.measure.kind() {
            MeasureKind::Samples => self.samples.statistic(metric.statistic)?,
            MeasureKind::Rate => self.amount / time_s,
            MeasureKind::Total => self.amount,
            MeasureKind::Span => {
                let first_s = self.samples.statistic(Statistic::Min)?;
                let span_s = self.samples.statistic(Statistic::Max)? - first_s;
                (span_s > 0.0).then(|| self.samples.count() as f64 / span_s)?
            }
            // Processor time was not counted. The simulator counts it only for routers with a `cpu`
            // stage.
            MeasureKind::Ratio if metric.measure == Measure::CpuLoad && self.amount == 0.0 => {
                return None;
            }
            MeasureKind::Ratio if self.of > 0.0 => self.amount / self.of,
            MeasureKind::Ratio | MeasureKind::Fairness | MeasureKind::Convergence => return None,
        };
        Some(value * metric.measure.scale())
    }
}

impl Collector {
    /// A collector for a run of `prepared` in `arm`, with the metrics that the arm can measure.
    pub(crate) fn of(
        experiment: &Experiment,
        prepared: &Prepared,
        arm: Arm,
    ) -> Result<Self, ScenarioError> {
        let at = experiment.nodes_of_metrics(prepared)?;
        let all = experiment.metrics.iter().cloned().zip(at);
        let (metrics, at): (Vec<Metric>, Vec<_>) =
            all.filter(|(metric, _)| metric.measure.is_measured_in(arm)).unzip();
        Ok(Self::new(&prepared.plan, &metrics, &at, prepared.warm_up))
    }

    /// A collector of `metrics` for a run of `plan`. `at` has the nodes of each metric, `None` for
    /// all.
    ///
    /// Numbers cover the time from the warm-up to the plan's duration. Round-trip and download
    /// times count if they started in that time, even if they end later. Other values of Interests
    /// and objects count from the warm-up on, with no end.
    pub(crate) fn new(
        plan: &Plan,
        metrics: &[Metric],
        at: &[Option<Vec<usize>>],
        warm_up: WarmUp,
    ) -> Self {
        let (warm_up_ns, held) = match warm_up {
            WarmUp::Fixed(ns) => (ns, None),
            WarmUp::Auto => (0, Some(Vec::new())),
        };
        let bin_ns = if plan.sample_ns > 0 { plan.sample_ns } else { plan.duration_ns };
        let bins = plan.duration_ns.div_ceil(bin_ns) as usize;
        let meter = |(metric, at): (&Metric, &Option<Vec<usize>>)| Meter {
            metric: metric.clone(),
            at: at.as_ref().map(|nodes| {
                let mut is_in = vec![false; plan.nodes.len()];
                nodes.iter().for_each(|node| is_in[*node] = true);
                is_in
            }),
            whole: Sum::default(),
            nodes: BTreeMap::new(),
            bins: vec![Sum::default(); if metric.over_time { bins } else { 0 }],
            shares: match metric.measure.kind() {
                MeasureKind::Fairness | MeasureKind::Convergence => {
                    Some(ConsumerShares::new(&consumers(plan, at.as_deref()), bins, bin_ns))
                }
                _ => None,
            },
        };
        // Consumers of one prefix share their objects, so distribution times count across them.
        let mut prefixes: BTreeMap<&str, usize> = BTreeMap::new();
        let content = plan.nodes.iter().map(|node| {
            let Role::Consumer(consumer) = &node.role else { return usize::MAX };
            let next = prefixes.len();
            *prefixes.entry(&consumer.names.prefix).or_insert(next)
        });
        Self {
            content: content.collect(),
            meters: metrics.iter().zip(at).map(meter).collect(),
            names: plan.nodes.iter().map(|node| node.name.clone()).collect(),
            routers: vec![(0, RouterSample::default()); plan.nodes.len()],
            disk_reads: vec![0; plan.nodes.len()],
            links: BTreeMap::new(),
            capacities: capacities(plan),
            paths: BTreeMap::new(),
            spreads: BTreeMap::new(),
            viewers: Viewers::default(),
            duration_ns: plan.duration_ns,
            warm_up_ns,
            bin_ns,
            buffered_events: held,
        }
    }

    fn measured(&self) -> MeasuredTime {
        let Self { warm_up_ns, duration_ns, bin_ns, .. } = *self;
        MeasuredTime { warm_up_ns, duration_ns, bin_ns }
    }

    /// Passes `count` to every meter of `measure` at `node`.
    fn put(&mut self, measure: Measure, at_ns: u64, node: u32, count: Count) {
        let measured = self.measured();
        for meter in &mut self.meters {
            if meter.metric.measure == measure {
                meter.put(at_ns, node, count, measured);
            }
        }
    }

    fn amount(&mut self, measure: Measure, at_ns: u64, node: u32, amount: f64) {
        self.put(measure, at_ns, node, Count::Amount(Amount::of(amount)));
    }

    fn share(&mut self, measure: Measure, at_ns: u64, node: u32, amount: f64, of: f64) {
        self.put(measure, at_ns, node, Count::Amount(Amount::share(amount, of)));
    }

    /// Passes an amount counted over a period to every meter of `measure` at `node`. Only the part
    /// within the measured time counts, because samples of real processes arrive slightly late.
    fn spread(&mut self, measure: Measure, over: SamplePeriod, node: u32, amount: Amount) {
        let measured = self.measured();
        for meter in &mut self.meters {
            if meter.metric.measure == measure {
                meter.spread(over, node, amount, measured);
            }
        }
    }

    fn sample(&mut self, measure: Measure, at_ns: u64, node: u32, sample: f64) {
        self.put(measure, at_ns, node, Count::Sample(sample));
    }

    fn router(&mut self, at_ns: u64, node: u32, now: &RouterSample) {
        use Measure as M;
        let Some(slot) = self.routers.get_mut(node as usize) else { return };
        let (before_ns, before) = std::mem::replace(slot, (at_ns, *now));
        let over = SamplePeriod { from_ns: before_ns, to_ns: at_ns };
        let bits = |now, before| grown(now, before) * 8.0;
        let in_interests = grown(now.in_interests, before.in_interests);
        let packets = in_interests
            + grown(now.in_data, before.in_data)
            + grown(now.in_nacks, before.in_nacks);
        let hits = grown(now.store_hits, before.store_hits);
        let misses = grown(now.store_misses, before.store_misses);
        let cpu_s = grown(now.cpu_ns, before.cpu_ns) / 1e9;
        let out_bits = bits(now.out_bytes, before.out_bytes);
        let mut amount = |measure, amount| self.spread(measure, over, node, Amount::of(amount));
        amount(M::InThroughput, bits(now.in_bytes, before.in_bytes));
        amount(M::OutThroughput, out_bits);
        amount(M::InPackets, packets);
        amount(M::InInterests, in_interests);
        amount(M::OutInterests, grown(now.out_interests, before.out_interests));
        amount(M::OutData, grown(now.out_data, before.out_data));
        amount(M::RouterDrops, grown(now.dropped, before.dropped));
        self.spread(M::HitRatio, over, node, Amount::share(hits, hits + misses));
        self.spread(M::CpuLoad, over, node, Amount::share(cpu_s, over.length_ns() as f64 / 1e9));
        // Without counted processor time, packets would seem to cost nothing.
        if cpu_s > 0.0 {
            self.spread(M::CpuPerPacket, over, node, Amount::share(cpu_s, packets));
            self.spread(M::OutPerCpu, over, node, Amount::share(out_bits, cpu_s));
        }
        self.disks(over, node, &now.since(&before));
        self.sample(M::StoreEntries, at_ns, node, now.store_entries as f64);
        self.sample(M::DiskEntries, at_ns, node, now.disk.entries as f64);
        self.sample(M::PitEntries, at_ns, node, now.pit_entries as f64);
        self.sample(M::EgressQueue, at_ns, node, now.egress_bytes as f64);
    }

    fn disks(&mut self, over: SamplePeriod, node: u32, counted: &RouterSample) {
        use Measure as M;
        let (disk, busy) = (&counted.disk, &counted.busy);
        let bypasses = [
            (M::BypassThreshold, busy.bypassed_queue_full),
            (M::BypassAdaptive, busy.bypassed_slower),
            (M::BypassProbe, busy.bypassed_probe),
            (M::BypassStalled, busy.bypassed_stalled),
        ];
        let all_bypasses = bypasses.iter().map(|(_, count)| count).sum();
        let announced = busy.busy_sent + busy.available_sent;
        for (measure, count) in bypasses.into_iter().chain([
            (M::Bypasses, all_bypasses),
            (M::DiskReads, disk.reads),
            (M::DiskAnswers, busy.answered),
            (M::DiskReadsShared, disk.reads_shared),
            (M::DiskReadsRefused, busy.reads_refused + busy.interests_refused),
            (M::DiskWrites, disk.writes),
            (M::DiskWritesPassedBy, disk.passed_by),
            (M::FilterNegatives, disk.filter_negatives),
            (M::WaitedOverThreshold, busy.waited_over_threshold),
            (M::StoreMarks, busy.marked),
            (M::Announcements, announced),
        ]) {
            self.spread(measure, over, node, Amount::of(count as f64));
        }
        let answers = busy.answered as f64;
        let answer_s = counted.disk_answer_ns as f64 / 1e9;
        self.spread(M::DiskReadTime, over, node, Amount::share(answer_s, answers));
        let false_positives = disk.filter_false_positives as f64;
        let all = disk.filter_negatives as f64 + false_positives;
        self.spread(M::FilterFalsePositives, over, node, Amount::share(false_positives, all));
    }

    fn link(&mut self, at_ns: u64, node: u32, link: u32, now: LinkTraffic) {
        let (before_ns, before) = self.links.insert((node, link), (at_ns, now)).unwrap_or_default();
        let over = SamplePeriod { from_ns: before_ns, to_ns: at_ns };
        let bits = grown(now.bytes, before.bytes) * 8.0;
        let frames = grown(now.frames, before.frames);
        let dropped = grown(now.dropped, before.dropped);
        self.spread(Measure::LinkThroughput, over, node, Amount::of(bits));
        if let Some(&Capacity { rate_bps, bdp_bytes }) = self.capacities.get(&(node, link)) {
            let seconds = over.length_ns() as f64 / 1e9;
            self.spread(Measure::LinkLoad, over, node, Amount::share(bits, rate_bps * seconds));
            let waiting = now.waiting_bytes as f64 / bdp_bytes;
            if bdp_bytes > 0.0 {
                self.sample(Measure::LinkQueue, at_ns, node, waiting);
            }
        }
        self.spread(Measure::LinkLoss, over, node, Amount::share(dropped, frames + dropped));
    }

    fn object_started(&mut self, at_ns: u64, node: u32, object: u64) {
        let content = self.content.get(node as usize).copied().unwrap_or(usize::MAX);
        let spread = self
            .spreads
            .entry((content, object))
            .or_insert_with(|| ObjectSpread { start_ns: at_ns, ..ObjectSpread::default() });
        if !spread.done.contains(&node) {
            spread.waiting.insert(node);
        }
    }

    fn object_completed(&mut self, at_ns: u64, node: u32, object: u64) {
        let content = self.content.get(node as usize).copied().unwrap_or(usize::MAX);
        if let Some(spread) = self.spreads.get_mut(&(content, object))
            && spread.waiting.remove(&node)
        {
            spread.done.insert(node);
            spread.last_ns = at_ns;
        }
    }

    /// Counts the channels that were watched until now, weighted by time. Then `change` is made.
    fn channels(&mut self, at_ns: u64, change: Option<(u32, u64)>) {
        let over = SamplePeriod { from_ns: self.viewers.since_ns, to_ns: at_ns };
        let amount = self.viewers.watched.len() as f64 * over.length_ns() as f64 / 1e9;
        if let Some(&player) = self.viewers.channels.keys().next() {
            self.spread(Measure::ChannelsWatched, over, player, Amount::of(amount));
        }
        let Viewers { channels, watched, since_ns } = &mut self.viewers;
        *since_ns = at_ns;
        let Some((player, channel)) = change else { return };
        *watched.entry(channel).or_default() += 1;
        if let Some(left) = channels.insert(player, channel)
            && let Some(count) = watched.get_mut(&left)
        {
            *count -= 1;
            if *count == 0 {
                watched.remove(&left);
            }
        }
    }

    /// Computes the numbers. No event may follow.
    #[must_use]
    pub(crate) fn finish(mut self) -> Measured {
        let settled = self.buffered_events.take().map(|events| self.settle(&events));
        self.channels(self.duration_ns, None);
        let spreads = std::mem::take(&mut self.spreads);
        // An object counts only if every consumer that requested it has received it.
        for spread in spreads.values().filter(|spread| spread.waiting.is_empty()) {
            let seconds = (spread.last_ns - spread.start_ns) as f64 / 1e9;
            let node = spread.done.first().copied().unwrap_or(0);
            self.sample(Measure::DistributionTime, spread.start_ns, node, seconds);
        }
        let mut measured = Measured { settled, ..Measured::default() };
        let time_s = (self.duration_ns - self.warm_up_ns) as f64 / 1e9;
        for meter in &self.meters {
            let metric = &meter.metric;
            let id = metric.id.clone();
            let value = match (metric.measure.kind(), &meter.shares) {
                (MeasureKind::Fairness, Some(shares)) => shares.fairness(self.warm_up_ns),
                (MeasureKind::Convergence, Some(shares)) => shares.convergence_s(),
                _ => meter.whole.value(metric, time_s),
            };
            measured.values.insert(id.clone(), value);
            if metric.per_node {
                let nodes = meter.nodes.iter().map(|(node, sum)| {
                    (self.names[*node as usize].clone(), sum.value(metric, time_s))
                });
                measured.nodes.insert(id.clone(), nodes.collect());
            }
            if metric.over_time {
                measured.series.insert(id.clone(), self.series(meter));
            }
            if metric.distribution {
                let places = meter.whole.samples.distribution(DISTRIBUTION_POINTS);
                measured.distributions.insert(id, places);
            }
        }
        measured
    }

    /// Estimates the warm-up, and then counts the buffered events.
    fn settle(&mut self, events: &[Event]) -> WarmUpEstimate {
        let times = events.iter().filter_map(|event| match event.kind {
            EventKind::DataReceived { rtt_ns, .. } => {
                Some((event.at_ns.saturating_sub(rtt_ns), rtt_ns as f64 / 1e9))
            }
            _ => None,
        });
        let (start_ns, is_settled) = settle::start_ns(times.collect());
        // At least half of the run is measured, even if it did not settle.
        self.warm_up_ns = start_ns.min(self.duration_ns / 2);
        events.iter().for_each(|event| self.observe(event));
        WarmUpEstimate { warm_up_s: self.warm_up_ns as f64 / 1e9, is_settled }
    }

    fn series(&self, meter: &Meter) -> Vec<(f64, f64)> {
        let bin_s = self.bin_ns as f64 / 1e9;
        let value = |(bin, sum): (usize, &Sum)| {
            let start_ns = bin as u64 * self.bin_ns;
            // The last bin may be shorter.
            let length_ns = self.bin_ns.min(self.duration_ns - start_ns);
            let value = sum.value(&meter.metric, length_ns as f64 / 1e9)?;
            Some(((bin as f64 + 0.5) * bin_s, value))
        };
        meter.bins.iter().enumerate().filter_map(value).collect()
    }
}

impl Meter {
    fn is_at(&self, node: u32) -> bool {
        self.at.as_ref().is_none_or(|at| at.get(node as usize).is_some_and(|is_in| *is_in))
    }

    fn spread(
        &mut self,
        over: SamplePeriod,
        node: u32,
        Amount { amount, of }: Amount,
        measured: MeasuredTime,
    ) {
        let MeasuredTime { warm_up_ns, duration_ns, bin_ns } = measured;
        if !self.is_at(node) {
            return;
        }
        let within = |from_ns, to_ns| {
            let share = over.share_within(SamplePeriod { from_ns, to_ns });
            (share > 0.0).then_some(Count::Amount(Amount::share(amount * share, of * share)))
        };
        if let Some(count) = within(warm_up_ns, duration_ns) {
            self.whole.add(count);
            if self.metric.per_node {
                self.nodes.entry(node).or_default().add(count);
            }
        }
        // Visit only the bins that the period touches.
        let last = (over.to_ns.saturating_sub(1) / bin_ns) as usize;
        let bins = self.bins.iter_mut().enumerate().take(last + 1);
        for (bin, sum) in bins.skip((over.from_ns.saturating_sub(1) / bin_ns) as usize) {
            let from_ns = bin as u64 * bin_ns;
            if let Some(count) = within(from_ns, (from_ns + bin_ns).min(duration_ns)) {
                sum.add(count);
            }
        }
    }

    fn put(&mut self, at_ns: u64, node: u32, count: Count, measured: MeasuredTime) {
        let MeasuredTime { warm_up_ns, duration_ns, bin_ns } = measured;
        if !self.is_at(node) {
            return;
        }
        let is_late = at_ns > duration_ns;
        if at_ns >= warm_up_ns && (!is_late || counts_late(self.metric.measure)) {
            self.whole.add(count);
            if self.metric.per_node {
                self.nodes.entry(node).or_default().add(count);
            }
        }
        if !is_late && !self.bins.is_empty() {
            // A sample at the very end belongs to the last bin.
            let bin = ((at_ns / bin_ns) as usize).min(self.bins.len() - 1);
            self.bins[bin].add(count);
        }
    }
}

/// Capacities of the plan's links with a rate, by sender and link.
fn capacities(plan: &Plan) -> BTreeMap<(u32, u32), Capacity> {
    let ways = plan.links.iter().enumerate().flat_map(|(at, link)| {
        let round_trip_ns = (link.a_to_b.delay_ns + link.b_to_a.delay_ns) as f64;
        [(link.a, &link.a_to_b), (link.b, &link.b_to_a)].into_iter().filter_map(
            move |(from, way)| {
                let rate_bps = way.rate_bps? as f64;
                let bdp_bytes = rate_bps * round_trip_ns / 8e9;
                Some(((from as u32, at as u32), Capacity { rate_bps, bdp_bytes }))
            },
        )
    });
    ways.collect()
}

/// The consumers among the nodes `at`, or all, with their start times.
fn consumers(plan: &Plan, at: Option<&[usize]>) -> Vec<(u32, u64)> {
    let is_in = |node: usize| at.is_none_or(|at| at.contains(&node));
    let nodes = plan.nodes.iter().enumerate().filter(|(node, _)| is_in(*node));
    let consumers = nodes.filter_map(|(node, plan)| match &plan.role {
        Role::Consumer(consumer) => Some((node as u32, consumer.start_ns)),
        _ => None,
    });
    consumers.collect()
}

/// Whether events after the end of the run count: these are answers to earlier Interests.
const fn counts_late(measure: Measure) -> bool {
    matches!(
        measure,
        Measure::DeliveryRate
            | Measure::DeliveryTime
            | Measure::Loss
            | Measure::NackShare
            | Measure::DistributionTime
            | Measure::ObjectsStarted
            | Measure::ObjectsCompleted
            | Measure::ObjectsFailed
    )
}

impl Observer for Collector {
    fn observe(&mut self, event: &Event) {
        use Measure as M;
        if let Some(held) = &mut self.buffered_events {
            held.push(event.clone());
            return;
        }
        let (t, node) = (event.at_ns, event.node);
        match &event.kind {
            EventKind::InterestSent { is_repeated, .. } => {
                self.amount(M::InterestRate, t, node, 1.0);
                self.share(M::RepeatedShare, t, node, f64::from(u8::from(*is_repeated)), 1.0);
            }
            EventKind::DataReceived { content_bytes, packet_bytes, rtt_ns, is_marked, .. } => {
                self.amount(M::Goodput, t, node, f64::from(*content_bytes) * 8.0);
                self.received(t, node, f64::from(*content_bytes));
                self.amount(M::Throughput, t, node, f64::from(*packet_bytes) * 8.0);
                self.share(M::ServerShare, t, node, 0.0, f64::from(*packet_bytes));
                self.amount(M::DataRate, t, node, 1.0);
                self.share(M::Loss, t, node, 0.0, 1.0);
                self.share(M::NackShare, t, node, 0.0, 1.0);
                self.share(M::MarkedShare, t, node, f64::from(u8::from(*is_marked)), 1.0);
                // A round trip counts at its request, so that the warm-up excludes late answers to
                // early Interests.
                let asked_ns = t.saturating_sub(*rtt_ns);
                self.sample(M::RoundTripTime, asked_ns, node, *rtt_ns as f64 / 1e9);
                self.sample(M::DeliveryRate, t, node, t as f64 / 1e9);
                self.sample(M::DeliveryTime, t, node, t as f64 / 1e9);
            }
            EventKind::NackReceived { .. } => {
                self.share(M::NackShare, t, node, 1.0, 1.0);
                self.share(M::Loss, t, node, 1.0, 1.0);
            }
            EventKind::TimedOut { .. } => {
                self.amount(M::Timeouts, t, node, 1.0);
                self.share(M::NackShare, t, node, 0.0, 1.0);
                self.share(M::Loss, t, node, 1.0, 1.0);
            }
            EventKind::ObjectStarted { object } => {
                self.amount(M::ObjectsStarted, t, node, 1.0);
                self.object_started(t, node, *object);
            }
            EventKind::ObjectCompleted { object, elapsed_ns, .. } => {
                self.object_completed(t, node, *object);
                self.amount(M::ObjectsCompleted, t, node, 1.0);
                let began_ns = t.saturating_sub(*elapsed_ns);
                self.sample(M::DownloadTime, began_ns, node, *elapsed_ns as f64 / 1e9);
            }
            EventKind::ObjectFailed { .. } => self.amount(M::ObjectsFailed, t, node, 1.0),
            EventKind::Window { window, outstanding } => {
                self.sample(M::Window, t, node, *window);
                self.sample(M::Outstanding, t, node, f64::from(*outstanding));
            }
            EventKind::PathSample { path, window, content_bytes } => {
                self.path(t, node, *path, *window, *content_bytes);
            }
            EventKind::QueueLength { queue, packets } => {
                self.queue(M::QueueLength, *queue, t, node, Count::Sample(f64::from(*packets)));
                self.disk_queue(t, node, *queue, *packets);
            }
            EventKind::StageFull { queue, is_bypass } => {
                let measure = if *is_bypass { M::StageBypasses } else { M::StageDrops };
                self.queue(measure, *queue, t, node, Count::Amount(Amount::of(1.0)));
            }
            EventKind::RouterSample(sample) => self.router(t, node, sample),
            &EventKind::LinkSample { link, frames, bytes, dropped, waiting_bytes } => {
                self.link(t, node, link, LinkTraffic { bytes, frames, dropped, waiting_bytes });
            }
            other => self.live(t, node, other),
        }
    }
}

impl Collector {
    /// Events of live channels.
    fn live(&mut self, at_ns: u64, node: u32, kind: &EventKind) {
        use Measure as M;
        match kind {
            EventKind::ChannelWatched { channel } => self.channels(at_ns, Some((node, *channel))),
            EventKind::PlaylistReceived { packet_bytes, .. } => {
                self.share(M::ServerShare, at_ns, node, 0.0, f64::from(*packet_bytes));
            }
            EventKind::ServerRequests { count } => {
                self.amount(M::ServerRequests, at_ns, node, *count as f64);
            }
            EventKind::ServerSent { packet_bytes } => {
                self.share(M::ServerShare, at_ns, node, *packet_bytes as f64, 0.0);
            }
            _ => {}
        }
    }

    /// Interests wait for reads, or before a blocking store. Both are sampled together, in this
    /// order.
    fn disk_queue(&mut self, at_ns: u64, node: u32, queue: Queue, packets: u32) {
        let Some(reads) = self.disk_reads.get_mut(node as usize) else { return };
        match queue {
            Queue::DiskReads => *reads = packets,
            Queue::DiskBlocked => {
                let interests = f64::from(*reads) + f64::from(packets);
                self.sample(Measure::DiskQueue, at_ns, node, interests);
            }
            _ => {}
        }
    }

    /// A sample of one of a consumer's links: its window, and the bytes received on it since the
    /// start.
    fn path(&mut self, at_ns: u64, node: u32, path: u32, window: f64, now_bytes: u64) {
        let before = self.paths.insert((node, path), (at_ns, now_bytes));
        let (from_ns, before_bytes) = before.unwrap_or_default();
        let over = SamplePeriod { from_ns, to_ns: at_ns };
        let bits = grown(now_bytes, before_bytes) * 8.0;
        let measured = self.measured();
        for meter in &mut self.meters {
            match meter.metric.measure {
                _ if meter.metric.of_path != Some(path) => {}
                Measure::PathWindow => meter.put(at_ns, node, Count::Sample(window), measured),
                Measure::PathGoodput => meter.spread(over, node, Amount::of(bits), measured),
                _ => {}
            }
        }
    }

    fn received(&mut self, at_ns: u64, node: u32, content_bytes: f64) {
        for shares in self.meters.iter_mut().filter_map(|meter| meter.shares.as_mut()) {
            shares.add(at_ns, node, content_bytes);
        }
    }

    fn queue(&mut self, measure: Measure, queue: Queue, at_ns: u64, node: u32, count: Count) {
        let measured = self.measured();
        for meter in &mut self.meters {
            if meter.metric.measure == measure && meter.metric.queue == Some(queue) {
                meter.put(at_ns, node, count, measured);
            }
        }
    }
}
