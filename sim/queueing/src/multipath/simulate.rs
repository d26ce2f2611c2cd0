//! Simulates a transfer packet by packet: windows, links with queues, losses and retransmissions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Serialize;

use super::{MultipathError, Path, check, transmission_ns};

/// Parameters that the formulas lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationOptions {
    /// NPS: bytes of a Data packet.
    pub packet_bytes: u32,
    /// Limit on Data in a link's queue, the one in transmission included. More is dropped.
    pub queue_packets_max: u32,
    /// Rate of a last link that the Data of all paths crosses, if there is one.
    pub shared_rate_bps: Option<u64>,
    /// Whether each path takes the next segment of the file when its window has space. Otherwise it
    /// fetches the segments assigned to it.
    pub dynamic: bool,
    /// Timeout of an Interest, in latencies of its path. The time to drain full queues is added.
    pub timeout_latencies: u32,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            packet_bytes: 1024,
            queue_packets_max: 1000,
            shared_rate_bps: None,
            dynamic: false,
            timeout_latencies: 4,
        }
    }
}

/// The result of a simulated transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Time from the first Interest to the last Data.
    pub total_ns: u64,
    pub paths: Vec<PathResult>,
    /// Longest queue of the shared link, packets.
    pub shared_queue_packets: u32,
    /// Data dropped by the shared link.
    pub shared_drops: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PathResult {
    pub segments: u64,
    /// When its last Data arrived.
    pub finished_ns: u64,
    /// Mean time from an Interest's last transmission to its Data.
    pub mean_latency_ns: f64,
    /// Longest queue of its link, packets.
    pub queue_packets: u32,
    /// Data dropped by its link.
    pub drops: u64,
    /// Retransmitted Interests.
    pub retransmissions: u64,
}

/// Simulates the transfer of all segments of `paths`.
///
/// Each path keeps `pipeline_depth` Interests in flight. A path's latency without the transmission
/// time of one packet lies half before the link and half after it.
pub fn simulate(paths: &[Path], options: &SimulationOptions) -> Result<Simulation, MultipathError> {
    check(paths, options.packet_bytes)?;
    if options.queue_packets_max == 0 {
        return Err(MultipathError::Queue);
    }
    if options.shared_rate_bps == Some(0) {
        return Err(MultipathError::SharedRate);
    }
    Ok(Transfer::new(paths, options).run())
}

/// An event of an Interest on a path, sent at `sent_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The Interest reaches the content, and its Data the path's link.
    Link { path: usize, sent_ns: u64 },
    /// The Data reaches the link that all paths share.
    Shared { path: usize, sent_ns: u64 },
    /// The Data reaches the consumer.
    Data { path: usize, sent_ns: u64 },
    /// The Data was dropped, and its Interest times out.
    Timeout { path: usize },
}

/// A FIFO link with packets of one size.
struct Link {
    transmission_ns: u64,
    queue_max: u32,
    /// When each queued packet leaves.
    leaving: VecDeque<u64>,
    queue_most: u32,
    drops: u64,
}

impl Link {
    fn new(transmission_ns: u64, queue_max: u32) -> Self {
        Self { transmission_ns, queue_max, leaving: VecDeque::new(), queue_most: 0, drops: 0 }
    }

    /// When a packet that arrives now leaves; `None` if the queue is full.
    fn send(&mut self, now_ns: u64) -> Option<u64> {
        while self.leaving.front().is_some_and(|left| *left <= now_ns) {
            self.leaving.pop_front();
        }
        if self.leaving.len() >= self.queue_max as usize {
            self.drops += 1;
            return None;
        }
        let start = self.leaving.back().copied().unwrap_or(now_ns).max(now_ns);
        self.leaving.push_back(start + self.transmission_ns);
        self.queue_most = self.queue_most.max(self.leaving.len() as u32);
        Some(start + self.transmission_ns)
    }
}

struct Transfer<'a> {
    paths: &'a [Path],
    dynamic: bool,
    timeouts_ns: Vec<u64>,
    /// Segments not requested yet, for each path. With `dynamic`, there is one number for the file.
    remaining: Vec<u64>,
    links: Vec<Link>,
    shared: Option<Link>,
    latency_sums_ns: Vec<u128>,
    results: Vec<PathResult>,
    /// Events by time, and then by the order of creation.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    event_count: u64,
}

impl<'a> Transfer<'a> {
    fn new(paths: &'a [Path], options: &SimulationOptions) -> Self {
        let queue_max = options.queue_packets_max;
        let packet_ns = |rate| transmission_ns(options.packet_bytes, rate);
        let link = |path: &Path| Link::new(packet_ns(path.rate_bps), queue_max);
        let shared = options.shared_rate_bps.map(|rate| Link::new(packet_ns(rate), queue_max));
        let drain = |link: &Link| link.transmission_ns.saturating_mul(u64::from(queue_max));
        let links: Vec<Link> = paths.iter().map(link).collect();
        // A Data may wait in full queues. It must not time out before they drain.
        let timeouts = paths.iter().zip(&links).map(|(path, link)| {
            let latencies = path.latency_ns.saturating_mul(options.timeout_latencies.into());
            latencies.saturating_add(drain(link)).saturating_add(shared.as_ref().map_or(0, drain))
        });
        let mut rest: Vec<u64> = paths.iter().map(|path| path.segments).collect();
        if options.dynamic {
            rest = vec![rest.iter().sum()];
        }
        Self {
            paths,
            dynamic: options.dynamic,
            timeouts_ns: timeouts.collect(),
            remaining: rest,
            links,
            shared,
            latency_sums_ns: vec![0; paths.len()],
            results: vec![PathResult::default(); paths.len()],
            events: BinaryHeap::new(),
            event_count: 0,
        }
    }

    fn run(mut self) -> Simulation {
        // One Interest per path in turn, so that a dynamically divided file starts evenly.
        let deepest = self.paths.iter().map(|path| path.pipeline_depth).max().unwrap_or(0);
        for round in 0..deepest {
            for path in 0..self.paths.len() {
                if round < self.paths[path].pipeline_depth {
                    self.request_next(path, 0);
                }
            }
            if self.remaining.iter().all(|rest| *rest == 0) {
                break;
            }
        }
        let mut total_ns = 0;
        while let Some(Reverse((now_ns, _, event))) = self.events.pop() {
            match event {
                Event::Link { path, sent_ns } => self.at_link(path, sent_ns, now_ns),
                Event::Shared { path, sent_ns } => self.at_shared(path, sent_ns, now_ns),
                Event::Data { path, sent_ns } => {
                    total_ns = now_ns;
                    let result = &mut self.results[path];
                    result.segments += 1;
                    result.finished_ns = now_ns;
                    self.latency_sums_ns[path] += u128::from(now_ns - sent_ns);
                    self.request_next(path, now_ns);
                }
                Event::Timeout { path } => {
                    self.results[path].retransmissions += 1;
                    self.express(path, now_ns);
                }
            }
        }
        for (path, result) in self.results.iter_mut().enumerate() {
            let count = result.segments.max(1) as f64;
            result.mean_latency_ns = self.latency_sums_ns[path] as f64 / count;
            result.queue_packets = self.links[path].queue_most;
            result.drops = self.links[path].drops;
        }
        let (shared_queue_packets, shared_drops) =
            self.shared.as_ref().map_or((0, 0), |link| (link.queue_most, link.drops));
        Simulation { total_ns, paths: self.results, shared_queue_packets, shared_drops }
    }

    fn add(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, self.event_count, event)));
        self.event_count += 1;
    }

    /// The path's latency without transmission, before and after the link.
    fn sides_ns(&self, path: usize) -> (u64, u64) {
        let rest = self.paths[path].latency_ns - self.links[path].transmission_ns;
        (rest / 2, rest - rest / 2)
    }

    /// Requests the next segment over a path, if any.
    fn request_next(&mut self, path: usize, now_ns: u64) {
        let rest = &mut self.remaining[if self.dynamic { 0 } else { path }];
        if *rest > 0 {
            *rest -= 1;
            self.express(path, now_ns);
        }
    }

    fn express(&mut self, path: usize, now_ns: u64) {
        let (before_ns, _) = self.sides_ns(path);
        self.add(now_ns + before_ns, Event::Link { path, sent_ns: now_ns });
    }

    fn at_link(&mut self, path: usize, sent_ns: u64, now_ns: u64) {
        let (_, after_ns) = self.sides_ns(path);
        match self.links[path].send(now_ns) {
            Some(left_ns) if self.shared.is_some() => {
                self.add(left_ns + after_ns, Event::Shared { path, sent_ns });
            }
            Some(left_ns) => self.add(left_ns + after_ns, Event::Data { path, sent_ns }),
            None => self.schedule_timeout(path, sent_ns, now_ns),
        }
    }

    fn at_shared(&mut self, path: usize, sent_ns: u64, now_ns: u64) {
        match self.shared.as_mut().and_then(|link| link.send(now_ns)) {
            Some(left_ns) => self.add(left_ns, Event::Data { path, sent_ns }),
            None => self.schedule_timeout(path, sent_ns, now_ns),
        }
    }

    /// Schedules the timeout of an Interest whose Data was lost.
    fn schedule_timeout(&mut self, path: usize, sent_ns: u64, now_ns: u64) {
        let at_ns = sent_ns.saturating_add(self.timeouts_ns[path]).max(now_ns);
        self.add(at_ns, Event::Timeout { path });
    }
}
