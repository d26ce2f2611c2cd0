//! The stages of a router as an open network of queues (paper nb-cache, section II).
//!
//! There are five M/M/1 stages. An Interest passes the store; after a miss, the PIT; after a miss
//! there, the FIB. The Data passes the PIT again and, if it is cached, the store.
//!
//! Each stage i receives T_i packets per second (Eq. 4) of the arrival rate lambda, and serves
//! mu_i. Its utilisation is T_i / mu_i (Eq. 5). The router is stable while all utilisations are
//! below 1. The stage with the lowest limit `mu_i lambda / T_i` (Eq. 6) is the bottleneck (Eq. 7).
//!
//! Example: at a store hit ratio of 25 %, three quarters of all Interests reach the PIT. A PIT of
//! 4000 packets per second then allows 4000 / 0.75 = 5333 Interests per second, while a store of
//! 4700 lookups per second allows 4700: the store is the bottleneck.

use serde::Serialize;

pub const STAGES: usize = 5;

/// The stages in the paper's order: stage i is `ALL[i - 1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// 1: lookup of an Interest in the content store.
    StoreRead,
    /// 2: write of Data to the content store.
    StoreWrite,
    /// 3: lookup of an Interest among the pending ones.
    PitInterest,
    /// 4: lookup of the pending Interests that a Data answers.
    PitData,
    /// 5: lookup of an Interest's next hop.
    Fib,
}

impl Stage {
    /// All stages in the paper's order.
    pub const ALL: [Stage; STAGES] =
        [Stage::StoreRead, Stage::StoreWrite, Stage::PitInterest, Stage::PitData, Stage::Fib];

    /// The paper's number, 1 to 5.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    pub fn name(self) -> &'static str {
        match self {
            Stage::StoreRead => "store, Interests",
            Stage::StoreWrite => "store, Data",
            Stage::PitInterest => "PIT, Interests",
            Stage::PitData => "PIT, Data",
            Stage::Fib => "FIB",
        }
    }
}

/// A router's stages, and the probabilities of the paths between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// mu_1 .. mu_5: packets per second that each stage can serve.
    service_rates: [f64; STAGES],
    probabilities: Probabilities,
}

/// Probabilities of the paths, each in 0..=1 (paper nb-cache, Table I).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probabilities {
    /// alpha: Interests that the store answers.
    pub store_hit: f64,
    /// beta: of the other Interests, those that a pending one aggregates.
    pub pit_hit: f64,
    /// theta: of the remaining Interests, those with a next hop in the FIB.
    pub fib_hit: f64,
    /// phi: Data that is written to the store.
    pub caching: f64,
}

/// The model's result for one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageReport {
    pub stage: Stage,
    /// Packets at this stage for each arriving Interest (Eq. 4 over lambda).
    pub visits: f64,
    /// Packets per second that the stage can serve, mu_i.
    pub service_rate: f64,
    /// Packets per second that reach it, T_i (Eq. 4).
    pub throughput: f64,
    /// T_i over mu_i (Eq. 5). Above 1 the queue grows without bound.
    pub utilisation: f64,
    /// Mean packets in the stage, the one in service included, as an M/M/1 queue; absent at a
    /// utilisation of 1 or more.
    pub mean_packets: Option<f64>,
    /// Arrival rate at which it is always busy (Eq. 6); absent if no packet reaches it.
    pub arrival_rate_max: Option<f64>,
}

/// The model's result for the router.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// lambda: Interests per second that arrive.
    pub arrival_rate: f64,
    /// Largest arrival rate that every stage can serve (Eq. 7).
    pub arrival_rate_max: f64,
    /// The stage that limits it; the first of several.
    pub bottleneck: Stage,
    /// Whether every stage serves what reaches it: `arrival_rate` is below `arrival_rate_max`.
    pub stable: bool,
    /// The stages in the paper's order.
    pub stages: Vec<StageReport>,
}

/// One row of a sweep over the store's hit ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SweepRow {
    pub store_hit: f64,
    /// Largest arrival rate (Eq. 7).
    pub arrival_rate_max: f64,
    pub bottleneck: Stage,
    /// Arrival rate that each stage allows; absent if no packet reaches it.
    pub stage_limits: [Option<f64>; STAGES],
}

/// Why a pipeline is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PipelineError {
    /// A service rate that is not positive.
    #[error("mu_{stage} is {rate}: give packets a second above 0")]
    ServiceRate {
        /// The paper's number of the stage.
        stage: usize,
        rate: f64,
    },
    /// A probability outside 0..=1.
    #[error("{name} is {value}: give a probability between 0 and 1")]
    Probability {
        /// The paper's symbol.
        name: &'static str,
        value: f64,
    },
    #[error("an arrival rate of {0}: give packets a second, 0 or more")]
    ArrivalRate(f64),
    /// A sweep without steps.
    #[error("a sweep of {0} steps: give 1 to 10000")]
    Steps(usize),
}

impl Pipeline {
    /// A router with service rates mu_1 .. mu_5 in packets per second.
    pub fn new(
        service_rates: [f64; STAGES],
        probabilities: Probabilities,
    ) -> Result<Self, PipelineError> {
        for (index, &rate) in service_rates.iter().enumerate() {
            if !rate.is_finite() || rate <= 0.0 {
                return Err(PipelineError::ServiceRate { stage: index + 1, rate });
            }
        }
        let Probabilities { store_hit, pit_hit, fib_hit, caching } = probabilities;
        for (name, value) in
            [("alpha", store_hit), ("beta", pit_hit), ("theta", fib_hit), ("phi", caching)]
        {
            if !(0.0..=1.0).contains(&value) {
                return Err(PipelineError::Probability { name, value });
            }
        }
        Ok(Self { service_rates, probabilities })
    }

    /// Packets at each stage for each arriving Interest (Eq. 4 over lambda).
    pub(crate) fn visits(&self) -> [f64; STAGES] {
        let Probabilities { store_hit, pit_hit, fib_hit, caching } = self.probabilities;
        let misses = 1.0 - store_hit;
        let forwarded = (1.0 - pit_hit) * misses;
        let answered = fib_hit * forwarded;
        [1.0, caching * answered, misses, answered, forwarded]
    }

    /// Arrival rate that each stage allows (Eq. 6); `None` if no packet reaches it.
    pub(crate) fn stage_limits(&self) -> [Option<f64>; STAGES] {
        let visits = self.visits();
        std::array::from_fn(|index| {
            (visits[index] > 0.0).then(|| self.service_rates[index] / visits[index])
        })
    }

    /// The stage that limits the arrival rate (the first of several), and that rate (Eq. 7).
    pub fn bottleneck(&self) -> (Stage, f64) {
        let limits = self.stage_limits();
        let mut found = (Stage::StoreRead, f64::INFINITY);
        for (stage, limit) in Stage::ALL.into_iter().zip(limits) {
            if let Some(limit) = limit.filter(|limit| *limit < found.1) {
                found = (stage, limit);
            }
        }
        found
    }

    /// The result for `arrival_rate` Interests per second.
    pub fn report(&self, arrival_rate: f64) -> Result<Report, PipelineError> {
        if !arrival_rate.is_finite() || arrival_rate < 0.0 {
            return Err(PipelineError::ArrivalRate(arrival_rate));
        }
        let (visits, limits) = (self.visits(), self.stage_limits());
        let (bottleneck, arrival_rate_max) = self.bottleneck();
        let stage = |index: usize| {
            let throughput = visits[index] * arrival_rate;
            let utilisation = throughput / self.service_rates[index];
            StageReport {
                stage: Stage::ALL[index],
                visits: visits[index],
                service_rate: self.service_rates[index],
                throughput,
                utilisation,
                mean_packets: (utilisation < 1.0).then(|| utilisation / (1.0 - utilisation)),
                arrival_rate_max: limits[index],
            }
        };
        Ok(Report {
            arrival_rate,
            arrival_rate_max,
            bottleneck,
            stable: arrival_rate < arrival_rate_max,
            stages: (0..STAGES).map(stage).collect(),
        })
    }

    /// The same router with another hit ratio of the store.
    pub(crate) fn with_store_hit(&self, store_hit: f64) -> Result<Self, PipelineError> {
        Self::new(self.service_rates, Probabilities { store_hit, ..self.probabilities })
    }

    /// The bottleneck for store hit ratios from 0 to 1 in `steps` equal steps.
    pub fn sweep(&self, steps: usize) -> Result<Vec<SweepRow>, PipelineError> {
        if !(1..=10_000).contains(&steps) {
            return Err(PipelineError::Steps(steps));
        }
        (0..=steps)
            .map(|step| {
                let store_hit = step as f64 / steps as f64;
                let router = self.with_store_hit(store_hit)?;
                let (bottleneck, arrival_rate_max) = router.bottleneck();
                let stage_limits = router.stage_limits();
                Ok(SweepRow { store_hit, arrival_rate_max, bottleneck, stage_limits })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Pipeline {
        let probabilities =
            Probabilities { store_hit: 0.25, pit_hit: 0.2, fib_hit: 0.9, caching: 0.5 };
        Pipeline::new([4700.0, 9000.0, 4000.0, 8000.0, 4000.0], probabilities).unwrap()
    }

    #[test]
    fn flows_follow_equation_4() {
        let report = paper().report(1000.0).unwrap();
        let throughputs: Vec<f64> = report.stages.iter().map(|stage| stage.throughput).collect();
        let expected = [1000.0, 270.0, 750.0, 540.0, 600.0];
        for (found, expected) in throughputs.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{throughputs:?}");
        }
        assert!((report.stages[4].utilisation - 0.15).abs() < 1e-12);
        assert!((report.stages[0].mean_packets.unwrap() - 1000.0 / 3700.0).abs() < 1e-12);
        assert!(report.stable);
    }

    #[test]
    fn bottleneck_moves_from_pit_to_store() {
        // The text of Fig. 2 says that the PIT (4 kpps) is the bottleneck at 25 % hits, where 75 %
        // of all Interests reach it. By Eq. 6 this requires 4000 / 0.75 to be below the store's
        // 4700, which it is not. By the rates, the store is the bottleneck from a hit ratio of 1 -
        // 4000 / 4700 on.
        let rows = paper().sweep(100).unwrap();
        assert_eq!(rows.len(), 101);
        for row in &rows {
            let expected = if row.store_hit < 1.0 - 4000.0 / 4700.0 {
                Stage::PitInterest
            } else {
                Stage::StoreRead
            };
            assert_eq!(row.bottleneck, expected, "{row:?}");
        }
        assert_eq!(rows[0].arrival_rate_max, 4000.0);
        assert_eq!(rows[100].arrival_rate_max, 4700.0);
        assert_eq!(rows[100].stage_limits[1..], [None; 4]);
    }

    #[test]
    fn every_stage_can_be_the_bottleneck() {
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            let mut rates = [1e6; STAGES];
            rates[index] = 10.0;
            let all = Probabilities { store_hit: 0.0, pit_hit: 0.0, fib_hit: 1.0, caching: 1.0 };
            let router = Pipeline::new(rates, all).unwrap();
            assert_eq!(router.bottleneck(), (stage, 10.0));
            let report = router.report(20.0).unwrap();
            assert!(!report.stable && report.stages[index].mean_packets.is_none());
            assert_eq!(stage.number(), index + 1);
        }
    }

    #[test]
    fn invalid_values_are_rejected() {
        let fine = Probabilities { store_hit: 0.0, pit_hit: 0.0, fib_hit: 1.0, caching: 1.0 };
        let zero = Pipeline::new([1.0, 1.0, 0.0, 1.0, 1.0], fine).unwrap_err();
        assert_eq!(zero, PipelineError::ServiceRate { stage: 3, rate: 0.0 });
        let over = Pipeline::new([1.0; STAGES], Probabilities { pit_hit: 1.5, ..fine });
        assert_eq!(over, Err(PipelineError::Probability { name: "beta", value: 1.5 }));
        let none = Pipeline::new([1.0; STAGES], Probabilities { caching: f64::NAN, ..fine });
        assert!(matches!(none, Err(PipelineError::Probability { name: "phi", .. })));
        let router = Pipeline::new([1.0; STAGES], fine).unwrap();
        assert_eq!(router.report(-1.0), Err(PipelineError::ArrivalRate(-1.0)));
        assert_eq!(router.sweep(0), Err(PipelineError::Steps(0)));
    }
}
