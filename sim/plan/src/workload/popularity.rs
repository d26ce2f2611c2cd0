//! Chooses objects.

use std::sync::Arc;

use weir_base::Rng;

use super::random::below;
use super::{Popularity, WorkloadError};

/// Ranks are floating-point numbers, which represent integers up to this exactly.
const RANKS_MAX: u64 = 1 << 53;

/// Chooses objects by a [`Popularity`].
#[derive(Clone, Debug)]
pub(crate) struct ObjectChooser {
    rng: Rng,
    kind: PopularityKind,
}

#[derive(Clone, Debug)]
enum PopularityKind {
    Sequential { objects: u64, next: u64 },
    Uniform { objects: u64 },
    Zipf(Zipf),
    Trace { requests: Arc<[(u64, u64)]>, next: usize },
}

impl ObjectChooser {
    /// # Errors
    /// There are no objects, or a parameter is out of range.
    pub(crate) fn new(plan: &Popularity, seed: u64) -> Result<Self, WorkloadError> {
        let objects = plan.object_count();
        if objects == 0 {
            let problem = "has no objects; write at least 1";
            return Err(WorkloadError::value("popularity", problem));
        }
        let kind = match plan {
            Popularity::Sequential { .. } => PopularityKind::Sequential { objects, next: 0 },
            Popularity::Uniform { .. } => PopularityKind::Uniform { objects },
            Popularity::Zipf { exponent, .. } => {
                PopularityKind::Zipf(Zipf::new(objects, *exponent, 0.0)?)
            }
            Popularity::ZipfMandelbrot { exponent, shift, .. } => {
                PopularityKind::Zipf(Zipf::new(objects, *exponent, *shift)?)
            }
            Popularity::Trace { requests } => {
                PopularityKind::Trace { requests: requests.clone(), next: 0 }
            }
        };
        Ok(Self { rng: Rng::from_seed(seed), kind })
    }

    /// The next object, and the segment if it comes from a trace.
    #[inline]
    pub(crate) fn next_request(&mut self) -> (u64, Option<u64>) {
        match &mut self.kind {
            PopularityKind::Sequential { objects, next } => {
                let object = *next;
                *next = (object + 1) % *objects;
                (object, None)
            }
            PopularityKind::Uniform { objects } => (below(&mut self.rng, *objects), None),
            PopularityKind::Zipf(zipf) => (zipf.draw(&mut self.rng), None),
            PopularityKind::Trace { requests, next } => {
                let (object, segment) = requests[*next];
                *next = (*next + 1) % requests.len();
                (object, Some(segment))
            }
        }
    }
}

impl Popularity {
    /// Number of objects, numbered from 0.
    pub(crate) fn object_count(&self) -> u64 {
        match self {
            Self::Sequential { objects }
            | Self::Uniform { objects }
            | Self::Zipf { objects, .. }
            | Self::ZipfMandelbrot { objects, .. } => *objects,
            Self::Trace { requests } => {
                requests.iter().map(|&(object, _)| object.saturating_add(1)).max().unwrap_or(0)
            }
        }
    }
}

/// Draws rank `k` of `1..=ranks` with a probability proportional to `(k + shift)^-exponent`, by
/// rejection-inversion (Hörmann and Derflinger 1996). It uses constant memory and fewer than 1.1
/// tries.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    ranks: f64,
    exponent: f64,
    shift: f64,
    /// The antiderivative half a rank after the last rank, and at the start of the first.
    area_last: f64,
    area_first: f64,
    /// A draw this close below its rank is accepted without further computation.
    near: f64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64, shift: f64) -> Result<Self, WorkloadError> {
        let out_of = |key, value: f64, range: &str| {
            Err(WorkloadError::value(key, format!("is {value}; write a number {range}")))
        };
        if !(0.0..=100.0).contains(&exponent) {
            return out_of("exponent", exponent, "from 0 to 100");
        }
        if !(0.0..=1e15).contains(&shift) {
            return out_of("shift", shift, "from 0 to 1e15");
        }
        if ranks > RANKS_MAX {
            return out_of("objects", ranks as f64, "at most 2^53");
        }
        let mut zipf = Self {
            ranks: ranks as f64,
            exponent,
            shift,
            area_last: 0.0,
            area_first: 0.0,
            near: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - zipf.weight(1.0);
        zipf.area_last = zipf.area(zipf.ranks + 0.5);
        zipf.near = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        Ok(zipf)
    }

    /// The object, which is the rank less 1.
    #[inline]
    fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_last + rng.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.ranks);
            // The cheap test accepts most draws. The exact one evaluates two more functions.
            if rank - x <= self.near || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x + self.shift))
    }

    /// An antiderivative of the weight, also finite at exponent 1.
    fn area(&self, x: f64) -> f64 {
        let log = libm::log(x + self.shift);
        let t = (1.0 - self.exponent) * log;
        let slope = if t.abs() > 1e-8 { libm::expm1(t) / t } else { 1.0 + t / 2.0 };
        slope * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        let slope = if t.abs() > 1e-8 { libm::log1p(t) / t } else { 1.0 - t / 2.0 };
        libm::exp(slope * area) - self.shift
    }
}
