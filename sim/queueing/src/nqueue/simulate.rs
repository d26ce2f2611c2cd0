//! Solves the model by counting events, without any mathematics.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use weir_base::Rng;

use super::{Model, NQueueError, QueueSolution, Solution};

/// Length and number of simulations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulateOptions {
    /// Seed of the random numbers. Equal seeds give equal results.
    pub seed: u64,
    /// Independent runs, at least 2.
    pub replications: usize,
    /// Arrivals counted in each run, at least 1. A fifth as many come first and are not counted.
    pub arrivals: u64,
    /// Confidence of the intervals, between 0 and 1.
    pub confidence: f64,
}

impl Default for SimulateOptions {
    fn default() -> Self {
        Self { seed: 1, replications: 10, arrivals: 1_000_000, confidence: 0.95 }
    }
}

/// Means over the replications, and their confidence intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Means over the replications.
    pub solution: Solution,
    /// Half-width of the confidence interval for each figure of `solution` (t distribution).
    pub half_widths: Solution,
}

pub fn simulate(model: &Model, options: &SimulateOptions) -> Result<Simulation, NQueueError> {
    let SimulateOptions { seed, replications, arrivals, confidence } = *options;
    if replications < 2 || arrivals == 0 {
        return Err(NQueueError::Replications { replications, arrivals });
    }
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(NQueueError::Confidence(confidence));
    }
    let mut seeds = Rng::from_seed(seed);
    let runs: Vec<Solution> = (0..replications)
        .map(|_| Run::new(model, Rng::from_seed(seeds.next_u64())).measure(arrivals))
        .collect();
    let quantile = StudentsT::new(0.0, 1.0, (replications - 1) as f64)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + confidence / 2.0));
    let estimate = |figure: &dyn Fn(&Solution) -> f64| {
        let count = replications as f64;
        let mean = runs.iter().map(figure).sum::<f64>() / count;
        // The half-width is the quantile times the standard error of the mean over the runs.
        let squares: f64 = runs.iter().map(|run| (figure(run) - mean).powi(2)).sum();
        (mean, quantile * (squares / (count - 1.0) / count).sqrt())
    };
    let (loss, loss_width) = estimate(&|run| run.loss);
    let (packets, packets_width) = estimate(&|run| run.packets);
    let (utilisation, utilisation_width) = estimate(&|run| run.utilisation);
    let mut queues = Vec::with_capacity(model.queues);
    let mut widths = Vec::with_capacity(model.queues);
    for index in 0..model.queues {
        let (mean_packets, packets) = estimate(&|run| run.queues[index].mean_packets);
        let (utilisation, busy) = estimate(&|run| run.queues[index].utilisation);
        let (blocking, blocked) = estimate(&|run| run.queues[index].blocking);
        queues.push(QueueSolution { mean_packets, utilisation, blocking });
        widths.push(QueueSolution { mean_packets: packets, utilisation: busy, blocking: blocked });
    }
    let solution = Solution { loss, packets, utilisation, queues };
    let half_widths = Solution {
        loss: loss_width,
        packets: packets_width,
        utilisation: utilisation_width,
        queues: widths,
    };
    Ok(Simulation { solution, half_widths })
}

struct Run<'a> {
    model: &'a Model,
    rng: Rng,
    /// Time since counting began, in mean service times.
    now: f64,
    lengths: Vec<usize>,
    /// Queues that hold packets, unordered, and the position of each queue in this list.
    busy: Vec<usize>,
    busy_at: Vec<usize>,
    /// A bit for each queue that is not full.
    has_space: Vec<u64>,
    counts: Vec<QueueCounters>,
    lost: u64,
}

#[derive(Clone, Copy, Default)]
struct QueueCounters {
    offered: u64,
    refused: u64,
    /// Integrals over time of its length and of whether it is busy, up to `since`.
    packets: f64,
    busy: f64,
    since: f64,
}

impl<'a> Run<'a> {
    fn new(model: &'a Model, rng: Rng) -> Self {
        let queues = model.queues;
        let mut room = vec![u64::MAX; queues.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (room.last_mut(), queues % 64) {
            *last = (1 << rest) - 1;
        }
        Self {
            model,
            rng,
            now: 0.0,
            lengths: vec![0; queues],
            busy: Vec::with_capacity(queues),
            busy_at: vec![0; queues],
            has_space: room,
            counts: vec![QueueCounters::default(); queues],
            lost: 0,
        }
    }

    /// Counts `arrivals` arrivals, after a fifth as many to fill the queues.
    fn measure(mut self, arrivals: u64) -> Solution {
        if self.model.load == 0.0 {
            let idle = QueueSolution { mean_packets: 0.0, utilisation: 0.0, blocking: 0.0 };
            return Solution::from_queues(vec![idle; self.model.queues]);
        }
        let mut rest = arrivals / 5;
        while rest > 0 {
            rest -= u64::from(self.step());
        }
        self.now = 0.0;
        self.lost = 0;
        // The queues keep the packets of the warm-up; only the counters restart.
        self.counts.fill(QueueCounters::default());
        rest = arrivals;
        while rest > 0 {
            rest -= u64::from(self.step());
        }
        let now = self.now;
        let queues: Vec<QueueSolution> = (0..self.model.queues)
            .map(|index| {
                self.settle(index);
                let count = self.counts[index];
                let blocking = match count.offered {
                    0 => 0.0,
                    offered => count.refused as f64 / offered as f64,
                };
                QueueSolution {
                    mean_packets: count.packets / now,
                    utilisation: count.busy / now,
                    blocking,
                }
            })
            .collect();
        Solution { loss: self.lost as f64 / arrivals as f64, ..Solution::from_queues(queues) }
    }

    /// One event. Returns whether it was an arrival.
    fn step(&mut self) -> bool {
        // All times are exponential, so the time to the next event of any kind is too, at the
        // summed rate.
        let rate = self.model.load + self.busy.len() as f64;
        self.now -= libm::log(1.0 - self.rng.unit()) / rate;
        if self.rng.unit() * rate < self.model.load {
            self.arrive();
            return true;
        }
        let index = self.busy[self.rng.below(self.busy.len() as u32) as usize];
        self.serve(index);
        false
    }

    fn arrive(&mut self) {
        let word = self.has_space.iter().position(|word| *word != 0);
        let first = word.map(|word| word * 64 + self.has_space[word].trailing_zeros() as usize);
        let passed = first.unwrap_or(self.model.queues);
        // The packet was offered to every full queue before the first one with space.
        for count in &mut self.counts[..passed] {
            count.offered += 1;
            count.refused += 1;
        }
        let Some(index) = first else {
            self.lost += 1;
            return;
        };
        self.settle(index);
        self.counts[index].offered += 1;
        self.lengths[index] += 1;
        if self.lengths[index] == 1 {
            self.busy_at[index] = self.busy.len();
            self.busy.push(index);
        }
        if self.lengths[index] == self.model.threshold {
            self.has_space[index / 64] &= !(1 << (index % 64));
        }
    }

    fn serve(&mut self, index: usize) {
        self.settle(index);
        self.lengths[index] -= 1;
        self.has_space[index / 64] |= 1 << (index % 64);
        if self.lengths[index] == 0 {
            let at = self.busy_at[index];
            self.busy.swap_remove(at);
            if let Some(&moved) = self.busy.get(at) {
                self.busy_at[moved] = at;
            }
        }
    }

    /// Adds the time since the last change to the integrals of a queue.
    fn settle(&mut self, index: usize) {
        let count = &mut self.counts[index];
        let passed = self.now - count.since;
        count.packets += passed * self.lengths[index] as f64;
        count.busy += if self.lengths[index] > 0 { passed } else { 0.0 };
        count.since = self.now;
    }
}
