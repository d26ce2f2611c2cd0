//! The transfer packet by packet: windows, links with queues, losses and retransmissions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Serialize;

use super::{MultipathError, Path, check, transmission_ns};

/// What the formulas do not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationOptions {
    /// NPS: octets of a Data packet.
    pub packet_bytes: u32,
    /// Data that a link queues, the one in transmission included; more is dropped.
    pub queue_packets_max: u32,
    /// Rate of a last link that Data of all paths crosses before the consumer, if there is one.
    pub shared_rate_bps: Option<u64>,
    /// Whether each path takes the next segment of the file when it has room, instead of the ones
    /// that were assigned to it.
    pub dynamic: bool,
    /// An Interest is repeated after this number of latencies of its path, each with the time that
    /// full queues take to drain.
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

/// What a simulated transfer took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Time from the first Interest to the last Data.
    pub total_ns: u64,
    pub paths: Vec<PathResult>,
    /// Most packets in the shared link's queue.
    pub shared_queue_packets: u32,
    /// Data that the shared link dropped.
    pub shared_drops: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PathResult {
    pub segments: u64,
    /// When its last Data came.
    pub finished_ns: u64,
    /// Mean time from an Interest's last transmission to its Data.
    pub mean_latency_ns: f64,
    /// Most packets in its link's queue.
    pub queue_packets: u32,
    /// Data that its link dropped.
    pub drops: u64,
    /// Interests that were sent again.
    pub retransmissions: u64,
}

/// Simulates the transfer of all segments of `paths`.
///
/// Each path keeps `pipeline_depth` Interests outstanding. Half of what its latency has besides the
/// transmission of one packet lies before the link and half after it.
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

/// What happens at a moment, to an Interest of a path that was sent at `sent_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The Interest reaches the content, and its Data the path's link.
    Link { path: usize, sent_ns: u64 },
    /// The Data reaches the link that all paths share.
    Shared { path: usize, sent_ns: u64 },
    /// The Data reaches the consumer.
    Data { path: usize, sent_ns: u64 },
    /// The Data was dropped and its Interest has timed out.
    Timeout { path: usize },
}

/// A FIFO link that sends packets of one size.
struct Link {
    transmission_ns: u64,
    queue_max: u32,
    /// When the packets in the queue will have left.
    leaving: VecDeque<u64>,
    queue_most: u32,
    drops: u64,
}

impl Link {
    fn new(transmission_ns: u64, queue_max: u32) -> Self {
        Self { transmission_ns, queue_max, leaving: VecDeque::new(), queue_most: 0, drops: 0 }
    }

    /// When a packet that comes now has left, or nothing when there is no room for it.
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
    /// Segments not asked for yet: of each path, or of the file at the first place.
    remaining: Vec<u64>,
    links: Vec<Link>,
    shared: Option<Link>,
    latency_sums_ns: Vec<u128>,
    results: Vec<PathResult>,
    /// Events in order of time, and of their making within a moment.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
}

impl<'a> Transfer<'a> {
    fn new(paths: &'a [Path], options: &SimulationOptions) -> Self {
        let queue_max = options.queue_packets_max;
        let packet_ns = |rate| transmission_ns(options.packet_bytes, rate);
        let link = |path: &Path| Link::new(packet_ns(path.rate_bps), queue_max);
        let shared = options.shared_rate_bps.map(|rate| Link::new(packet_ns(rate), queue_max));
        let drain = |link: &Link| link.transmission_ns.saturating_mul(u64::from(queue_max));
        let links: Vec<Link> = paths.iter().map(link).collect();
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
            made: 0,
        }
    }

    fn run(mut self) -> Simulation {
        // Round by round, so that a file divided as it goes starts evenly.
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
        self.events.push(Reverse((at_ns, self.made, event)));
        self.made += 1;
    }

    /// What a path's latency has besides the transmission, on each side of the link.
    fn sides_ns(&self, path: usize) -> (u64, u64) {
        let rest = self.paths[path].latency_ns - self.links[path].transmission_ns;
        (rest / 2, rest - rest / 2)
    }

    /// Asks for the next segment over a path, if there is one.
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

    /// The Data of an Interest is lost.
    fn schedule_timeout(&mut self, path: usize, sent_ns: u64, now_ns: u64) {
        let at_ns = sent_ns.saturating_add(self.timeouts_ns[path]).max(now_ns);
        self.add(at_ns, Event::Timeout { path });
    }
}
