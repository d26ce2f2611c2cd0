//! From events to numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_netsim::event::{Event, EventKind, Observer, RouterSample};
use weir_netsim::plan::{Plan, Role};

use super::{Histogram, Kind, Measure, Metric};

/// Places of a distribution that are recorded.
const DISTRIBUTION_POINTS: usize = 200;

/// What a run measured, by metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// A number for each metric; `None` where there was nothing to measure.
    pub values: BTreeMap<String, Option<f64>>,
    /// For metrics with `per_node`: node and number, in the order of the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<(String, Option<f64>)>>,
    /// For metrics with `over_time`: the middle of each bin in seconds, and its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// For metrics with `distribution`: value, and the share of samples at or below it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Takes the events of a run and computes its metrics.
pub struct Collector {
    meters: Vec<Meter>,
    names: Vec<String>,
    /// The last sample of each router and when it was.
    routers: Vec<(u64, RouterSample)>,
    /// The last sample of each sender and link: octets, frames, dropped.
    links: BTreeMap<(u32, u32), (u64, u64, u64)>,
    /// For each consumer which producer's names it asks for.
    content: Vec<usize>,
    spreads: BTreeMap<(usize, u64), Spread>,
    duration_ns: u64,
    warm_up_ns: u64,
    bin_ns: u64,
}

/// How an object spreads over consumers.
#[derive(Default)]
struct Spread {
    start_ns: u64,
    last_ns: u64,
    waiting: BTreeSet<u32>,
    done: BTreeSet<u32>,
}

struct Meter {
    metric: Metric,
    at: Option<Vec<bool>>,
    whole: Sum,
    nodes: BTreeMap<u32, Sum>,
    bins: Vec<Sum>,
}

#[derive(Clone, Default)]
struct Sum {
    amount: f64,
    of: f64,
    samples: Histogram,
}

/// One thing to be counted or sampled.
#[derive(Clone, Copy)]
enum Count {
    Sample(f64),
    Amount { amount: f64, of: f64 },
}

impl Sum {
    fn add(&mut self, count: Count) {
        match count {
            Count::Sample(sample) => self.samples.add(sample),
            Count::Amount { amount, of } => {
                self.amount += amount;
                self.of += of;
            }
        }
    }

    fn value(&self, metric: &Metric, time_s: f64) -> Option<f64> {
        let value = match metric.measure.kind() {
            Kind::Samples => self.samples.statistic(metric.statistic)?,
            Kind::Rate => self.amount / time_s,
            Kind::Total => self.amount,
            Kind::Ratio if self.of > 0.0 => self.amount / self.of,
            Kind::Ratio => return None,
        };
        Some(value * metric.measure.scale())
    }
}

impl Collector {
    /// A collector of `metrics` for a run of `plan`; `at` holds the nodes of each metric, `None`
    /// for all. Numbers are those of the time from `warm_up_ns` to the plan's duration; what is
    /// answered later counts where it was asked for in that time.
    #[must_use]
    pub fn new(
        plan: &Plan,
        metrics: &[Metric],
        at: &[Option<Vec<usize>>],
        warm_up_ns: u64,
    ) -> Self {
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
        };
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
            links: BTreeMap::new(),
            spreads: BTreeMap::new(),
            duration_ns: plan.duration_ns,
            warm_up_ns,
            bin_ns,
        }
    }

    /// Gives `count` to every meter of `measure` at `node`.
    fn put(&mut self, measure: Measure, at_ns: u64, node: u32, count: Count) {
        let range = (self.warm_up_ns, self.duration_ns, self.bin_ns);
        for meter in &mut self.meters {
            if meter.metric.measure == measure {
                meter.put(at_ns, node, count, range);
            }
        }
    }

    fn amount(&mut self, measure: Measure, at_ns: u64, node: u32, amount: f64) {
        self.put(measure, at_ns, node, Count::Amount { amount, of: 0.0 });
    }

    fn share(&mut self, measure: Measure, at_ns: u64, node: u32, amount: f64, of: f64) {
        self.put(measure, at_ns, node, Count::Amount { amount, of });
    }

    fn sample(&mut self, measure: Measure, at_ns: u64, node: u32, sample: f64) {
        self.put(measure, at_ns, node, Count::Sample(sample));
    }

    fn router(&mut self, at_ns: u64, node: u32, now: &RouterSample) {
        use Measure as M;
        let Some(slot) = self.routers.get_mut(node as usize) else { return };
        let (before_ns, before) = std::mem::replace(slot, (at_ns, *now));
        // A router that crashed counts from 0 again.
        let delta = |now: u64, before: u64| if now >= before { now - before } else { now } as f64;
        // What a sample tells happened before it.
        let t = at_ns.saturating_sub(1);
        let bits = |now, before| delta(now, before) * 8.0;
        let in_interests = delta(now.in_interests, before.in_interests);
        let packets = in_interests
            + delta(now.in_data, before.in_data)
            + delta(now.in_nacks, before.in_nacks);
        let hits = delta(now.store_hits, before.store_hits);
        let misses = delta(now.store_misses, before.store_misses);
        let cpu_s = delta(now.cpu_ns, before.cpu_ns) / 1e9;
        let out_bits = bits(now.out_bytes, before.out_bytes);
        self.amount(M::InThroughput, t, node, bits(now.in_bytes, before.in_bytes));
        self.amount(M::OutThroughput, t, node, out_bits);
        self.amount(M::InPackets, t, node, packets);
        self.amount(M::InInterests, t, node, in_interests);
        self.amount(M::OutInterests, t, node, delta(now.out_interests, before.out_interests));
        self.amount(M::OutData, t, node, delta(now.out_data, before.out_data));
        self.amount(M::RouterDrops, t, node, delta(now.dropped, before.dropped));
        self.share(M::HitRatio, t, node, hits, hits + misses);
        self.share(M::CpuLoad, t, node, cpu_s, at_ns.saturating_sub(before_ns) as f64 / 1e9);
        if cpu_s > 0.0 {
            self.share(M::CpuPerPacket, t, node, cpu_s, packets);
            self.share(M::OutPerCpu, t, node, out_bits, cpu_s);
        }
        self.sample(M::StoreEntries, at_ns, node, now.store_entries as f64);
        self.sample(M::PitEntries, at_ns, node, now.pit_entries as f64);
    }

    fn link(&mut self, at_ns: u64, node: u32, link: u32, now: (u64, u64, u64)) {
        let before = self.links.insert((node, link), now).unwrap_or_default();
        let delta = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let t = at_ns.saturating_sub(1);
        let (frames, dropped) = (delta(now.1, before.1), delta(now.2, before.2));
        self.amount(Measure::LinkThroughput, t, node, delta(now.0, before.0) * 8.0);
        self.share(Measure::LinkLoss, t, node, dropped, frames + dropped);
    }

    fn object_started(&mut self, at_ns: u64, node: u32, object: u64) {
        let content = self.content.get(node as usize).copied().unwrap_or(usize::MAX);
        let spread = self
            .spreads
            .entry((content, object))
            .or_insert_with(|| Spread { start_ns: at_ns, ..Spread::default() });
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

    /// The numbers. Nothing may be observed afterwards.
    #[must_use]
    pub fn finish(mut self) -> Measured {
        let spreads = std::mem::take(&mut self.spreads);
        for spread in spreads.values().filter(|spread| spread.waiting.is_empty()) {
            let seconds = (spread.last_ns - spread.start_ns) as f64 / 1e9;
            let node = spread.done.first().copied().unwrap_or(0);
            self.sample(Measure::DistributionTime, spread.start_ns, node, seconds);
        }
        let mut measured = Measured::default();
        let time_s = (self.duration_ns - self.warm_up_ns) as f64 / 1e9;
        for meter in &self.meters {
            let metric = &meter.metric;
            let id = metric.id.clone();
            measured.values.insert(id.clone(), meter.whole.value(metric, time_s));
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

    fn series(&self, meter: &Meter) -> Vec<(f64, f64)> {
        let bin_s = self.bin_ns as f64 / 1e9;
        let value = |(bin, sum): (usize, &Sum)| {
            let start_ns = bin as u64 * self.bin_ns;
            let length_ns = self.bin_ns.min(self.duration_ns - start_ns);
            let value = sum.value(&meter.metric, length_ns as f64 / 1e9)?;
            Some(((bin as f64 + 0.5) * bin_s, value))
        };
        meter.bins.iter().enumerate().filter_map(value).collect()
    }
}

impl Meter {
    fn put(
        &mut self,
        at_ns: u64,
        node: u32,
        count: Count,
        (warm_up_ns, duration_ns, bin_ns): (u64, u64, u64),
    ) {
        if self.at.as_ref().is_some_and(|at| !at.get(node as usize).is_some_and(|is_in| *is_in)) {
            return;
        }
        let is_late = at_ns > duration_ns;
        if at_ns >= warm_up_ns && (!is_late || self.metric.measure.counts_late()) {
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

impl Measure {
    /// Whether what comes after the end of the run counts: answers to what was asked before.
    const fn counts_late(self) -> bool {
        matches!(
            self,
            Self::RoundTripTime
                | Self::Loss
                | Self::NackShare
                | Self::DownloadTime
                | Self::DistributionTime
                | Self::ObjectsCompleted
                | Self::ObjectsFailed
        )
    }
}

impl Observer for Collector {
    fn observe(&mut self, event: &Event) {
        use Measure as M;
        let (t, node) = (event.at_ns, event.node);
        match &event.kind {
            EventKind::InterestSent { is_repeated, .. } => {
                self.amount(M::InterestRate, t, node, 1.0);
                self.share(M::RepeatedShare, t, node, f64::from(u8::from(*is_repeated)), 1.0);
                self.share(M::Loss, t, node, 0.0, 1.0);
                self.share(M::NackShare, t, node, 0.0, 1.0);
            }
            EventKind::DataReceived { content_bytes, packet_bytes, rtt_ns, is_marked, .. } => {
                self.amount(M::Goodput, t, node, f64::from(*content_bytes) * 8.0);
                self.amount(M::Throughput, t, node, f64::from(*packet_bytes) * 8.0);
                self.amount(M::DataRate, t, node, 1.0);
                self.share(M::MarkedShare, t, node, f64::from(u8::from(*is_marked)), 1.0);
                self.sample(M::RoundTripTime, t, node, *rtt_ns as f64 / 1e9);
            }
            EventKind::NackReceived { .. } => {
                self.share(M::NackShare, t, node, 1.0, 0.0);
                self.share(M::Loss, t, node, 1.0, 0.0);
            }
            EventKind::TimedOut { .. } => self.share(M::Loss, t, node, 1.0, 0.0),
            EventKind::ObjectStarted { object } => self.object_started(t, node, *object),
            EventKind::ObjectCompleted { object, elapsed_ns, .. } => {
                self.object_completed(t, node, *object);
                self.amount(M::ObjectsCompleted, t, node, 1.0);
                self.sample(M::DownloadTime, t, node, *elapsed_ns as f64 / 1e9);
            }
            EventKind::ObjectFailed { .. } => self.amount(M::ObjectsFailed, t, node, 1.0),
            EventKind::Window { window, outstanding } => {
                self.sample(M::Window, t, node, *window);
                self.sample(M::Outstanding, t, node, f64::from(*outstanding));
            }
            EventKind::QueueLength { queue, packets } => {
                self.queue(M::QueueLength, *queue, t, node, Count::Sample(f64::from(*packets)));
            }
            EventKind::StageFull { queue, is_bypass } => {
                let measure = if *is_bypass { M::StageBypasses } else { M::StageDrops };
                self.queue(measure, *queue, t, node, Count::Amount { amount: 1.0, of: 0.0 });
            }
            EventKind::RouterSample(sample) => self.router(t, node, sample),
            EventKind::LinkSample { link, frames, bytes, dropped } => {
                self.link(t, node, *link, (*bytes, *frames, *dropped));
            }
            _ => {}
        }
    }
}

impl Collector {
    fn queue(
        &mut self,
        measure: Measure,
        queue: weir_netsim::event::Queue,
        at_ns: u64,
        node: u32,
        count: Count,
    ) {
        let range = (self.warm_up_ns, self.duration_ns, self.bin_ns);
        for meter in &mut self.meters {
            if meter.metric.measure == measure && meter.metric.queue == Some(queue) {
                meter.put(at_ns, node, count, range);
            }
        }
    }
}
