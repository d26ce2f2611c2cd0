//! The stream into one queue, and the step to the stream that overflows from it.

use num_complex::Complex64;

use super::super::Model;
use super::line::{PackedSamples, SampleLine};

/// The stream that arrives at queue `index`; the time unit is the mean service time.
///
/// Its transform is `A(s) = base(s) + E(s)`. The base belongs to queues that never become empty.
/// The number of packets missing from all of them together is then a birth-death process. It grows
/// at rate 1 for each of the `index` servers, and shrinks with each arrival. Its passage time
/// satisfies `index base^2 - (s + load + index) base + load = 0`. The remainder E decreases fast
/// along the line, and only E is sampled.
pub(super) struct OverflowStream<'a> {
    line: &'a SampleLine,
    load: f64,
    /// Number of queues that the stream has overflowed from.
    index: usize,
    /// Whether E is zero.
    is_base: bool,
    /// E at the points of the line.
    samples: Vec<Complex64>,
    /// The same in the layout of the line's tables.
    packed: PackedSamples,
    /// Number of samples from the real axis on that may exceed rounding; the others are zero.
    active: usize,
    /// Coefficients of `A(s + 1 - x)` for the points in progress.
    terms: Vec<Lanes>,
    /// Transforms of the overflow of smaller thresholds, for the points in progress.
    smaller: Vec<Lanes>,
}

impl<'a> OverflowStream<'a> {
    /// The Poisson stream into the first queue.
    pub(super) fn first(line: &'a SampleLine, model: &Model) -> Self {
        let samples = vec![Complex64::ZERO; line.samples()];
        let packed = line.pack(&samples, 0);
        let (terms, smaller) = (vec![Lanes::ZERO; line.terms], Vec::new());
        Self {
            line,
            load: model.load,
            index: 0,
            is_base: true,
            samples,
            packed,
            active: 0,
            terms,
            smaller,
        }
    }

    /// The fractions of arrivals that find 0 to K packets.
    ///
    /// Consider the queue only while it holds n packets or more. It leaves n upwards with
    /// probability a_0. It rises by one packet at a time, so it returns to n from level i if i + 1
    /// - n or more services fit between two arrivals. Balancing these flows gives every fraction
    ///   from those above it, as a sum of positive terms.
    pub(super) fn at_arrivals(&self) -> Vec<f64> {
        /// Fractions are scaled down at this value, because only their ratios count.
        const HUGE: f64 = 1e100;
        let threshold = self.line.terms - 1;
        let queues = self.index as f64;
        let base = base_terms(Complex64::ZERO, self.load, queues, self.line.terms);
        let rest = |term| match self.is_base {
            true => 0.0,
            false => self.line.at_origin(term, &self.packed),
        };
        let services: Vec<f64> =
            (0..threshold).map(|term| (rest(term) + base[term].re).max(0.0)).collect();
        // tails[k]: probability of k or more services between two arrivals.
        let tails = self.base_tails().unwrap_or_else(|| {
            let first = base_complement(1.0, self.load, queues) - rest(0);
            let mut tails = vec![1.0, first.max(0.0)];
            for share in &services[1..] {
                tails.push((tails[tails.len() - 1] - share).max(0.0));
            }
            tails
        });
        let mut shares = vec![0.0; threshold + 1];
        shares[threshold] = 1.0;
        for level in (0..threshold).rev() {
            // A full queue loses the arrival, so from there one service less leads down to `level`.
            let mut flow = shares[threshold] * tails[threshold - level];
            for from in level + 1..threshold {
                flow += shares[from] * tails[from + 1 - level];
            }
            shares[level] = flow / services[0];
            if shares[level] > HUGE {
                shares[level..].iter_mut().for_each(|share| *share /= HUGE);
            }
        }
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        shares
    }

    /// The tails of the base, summed from their end so that small ones keep their digits. `None` if
    /// E is not zero, or if they decrease too slowly.
    fn base_tails(&self) -> Option<Vec<f64>> {
        /// Limit on terms beyond the number of levels.
        const MORE: usize = 100;
        let wanted = self.line.terms;
        if !self.is_base {
            return None;
        }
        let terms = base_terms(Complex64::ZERO, self.load, self.index as f64, wanted + MORE);
        let mut sum = terms[wanted + MORE - 1].re;
        if sum > 1e-18 * terms[wanted - 1].re {
            return None;
        }
        let mut tails: Vec<f64> = terms
            .iter()
            .rev()
            .skip(1)
            .map(|term| {
                sum += term.re;
                sum
            })
            .collect();
        tails.reverse();
        tails.truncate(wanted);
        Some(tails)
    }

    /// Advances to the stream that overflows from this queue. `found` are the fractions of arrivals
    /// by what they find, from [`OverflowStream::at_arrivals`].
    ///
    /// E stays zero if no queue ever becomes empty between two overflows.
    pub(super) fn advance(&mut self, found: &[f64]) {
        /// Below this number of arrivals at an empty queue for each overflow, they change nothing.
        const NEVER: f64 = 1e-20;
        self.is_base &= found[0] < NEVER * found[found.len() - 1];
        if self.is_base {
            self.index += 1;
            return;
        }
        /// Samples below this count as zero: the rounding error of a transform.
        const ROUNDING: f64 = 2e-16;
        /// How far samples above rounding can spread in one step: |s| grows by half.
        const SPREAD: f64 = 1.5;
        let queues = self.index as f64;
        let edge = match self.active {
            0 => f64::INFINITY,
            active => SPREAD * self.line.points[active - 1].norm(),
        };
        let points = &self.line.points;
        let within = points.iter().position(|point| point.norm() > edge).unwrap_or(points.len());
        // Evaluate only the points that can exceed rounding: those within `SPREAD` of the last
        // active one.
        let rows: Vec<usize> = (0..within.max(self.active + 2).min(points.len())).collect();
        let mut overflow = vec![Complex64::ZERO; points.len()];
        // Vector instructions process `LANES` points at once.
        for rows in rows.chunks(LANES) {
            let mut whole = Lanes::ONE;
            for (lane, &at) in rows.iter().enumerate() {
                let s = points[at];
                let base = base_terms(s, self.load, queues, self.line.terms);
                for (term, value) in base.into_iter().enumerate() {
                    let rest = self.line.coefficient(at, term, &self.packed);
                    self.terms[term].set(lane, value + rest);
                }
                whole.set(lane, self.samples[at] + base_value(s, self.load, queues));
            }
            let transforms = overflow_transforms(&self.terms, whole, &mut self.smaller);
            for (lane, &at) in rows.iter().enumerate() {
                overflow[at] =
                    transforms.at(lane) - base_value(points[at], self.load, queues + 1.0);
            }
        }
        // Transforms are real on the real axis.
        overflow[0].im = 0.0;
        let last = overflow.iter().rposition(|sample| sample.norm() > ROUNDING);
        self.active = last.map_or(0, |last| last + 1);
        overflow[self.active..].fill(Complex64::ZERO);
        self.samples = overflow;
        self.packed = self.line.pack(&self.samples, self.active);
        self.index += 1;
    }
}

/// The transforms of the overflow of GI/M/1/K at several s. `terms[k]` are the transforms of the
/// time between arrivals with k services in it, and `whole` are their sums over all k.
///
/// An arrival fills level j. Level j + 1 (or the overflow for j = K) is reached at once if no
/// service precedes the next arrival. After k services the next arrival finds j - k + 1 packets.
/// From there, the levels up to j are passed one after another, and then once more from j: `F_j =
/// a_0 / (1 - a_1 - a_2 F_(j-1) - a_3 F_(j-1) F_(j-2) - ...)`. The last product goes down to F_1
/// and stands for an empty queue.
fn overflow_transforms(terms: &[Lanes], whole: Lanes, smaller: &mut Vec<Lanes>) -> Lanes {
    smaller.clear();
    smaller.push(Lanes::ONE);
    for level in 1..terms.len() {
        // a_1 + a_2 F_(j-1) + .., subtracted from 1 at the end because its terms may be small.
        let mut back = Lanes::ZERO;
        let mut passed = Lanes::ONE;
        let mut tail = whole;
        tail.subtract(&terms[0]);
        for services in 1..level {
            back.add_product(&terms[services], &passed);
            tail.subtract(&terms[services]);
            passed.multiply(&smaller[level - services]);
            if passed.are_negligible() {
                break;
            }
        }
        // What remains in `tail` are `level` or more services, which empty the queue.
        back.add_product(&tail, &passed);
        let mut forth = Lanes::ONE;
        forth.subtract(&back);
        smaller.push(terms[0].over(&forth));
    }
    smaller[terms.len() - 1]
}

/// Several complex numbers, so that vector instructions process them together.
#[derive(Clone, Copy)]
struct Lanes {
    real: [f64; LANES],
    imaginary: [f64; LANES],
}

/// Numbers in one group.
const LANES: usize = 8;

impl Lanes {
    const ZERO: Self = Self { real: [0.0; LANES], imaginary: [0.0; LANES] };
    const ONE: Self = Self { real: [1.0; LANES], imaginary: [0.0; LANES] };

    fn set(&mut self, lane: usize, value: Complex64) {
        (self.real[lane], self.imaginary[lane]) = (value.re, value.im);
    }

    fn at(&self, lane: usize) -> Complex64 {
        Complex64::new(self.real[lane], self.imaginary[lane])
    }

    #[inline(always)]
    fn subtract(&mut self, other: &Self) {
        for lane in 0..LANES {
            self.real[lane] -= other.real[lane];
            self.imaginary[lane] -= other.imaginary[lane];
        }
    }

    #[inline(always)]
    fn add_product(&mut self, one: &Self, two: &Self) {
        for lane in 0..LANES {
            self.real[lane] +=
                one.real[lane] * two.real[lane] - one.imaginary[lane] * two.imaginary[lane];
            self.imaginary[lane] +=
                one.real[lane] * two.imaginary[lane] + one.imaginary[lane] * two.real[lane];
        }
    }

    #[inline(always)]
    fn multiply(&mut self, other: &Self) {
        for lane in 0..LANES {
            let real =
                self.real[lane] * other.real[lane] - self.imaginary[lane] * other.imaginary[lane];
            self.imaginary[lane] =
                self.real[lane] * other.imaginary[lane] + self.imaginary[lane] * other.real[lane];
            self.real[lane] = real;
        }
    }

    fn over(&self, other: &Self) -> Self {
        let mut quotient = *self;
        for lane in 0..LANES {
            quotient.set(lane, self.at(lane) / other.at(lane));
        }
        quotient
    }

    /// Whether products with these change nothing.
    #[inline(always)]
    fn are_negligible(&self) -> bool {
        const NEGLIGIBLE: f64 = 1e-20;
        let parts = self.real.iter().chain(&self.imaginary);
        parts.fold(0.0_f64, |most, part| most.max(part.abs())) < NEGLIGIBLE
    }
}

/// The root of the discriminant of the base: `sqrt((s + load + queues)^2 - 4 load queues)`. It is
/// computed by factors to select the branch that is positive for positive s.
fn base_root(centre: Complex64, load: f64, queues: f64) -> Complex64 {
    let width = 2.0 * (load * queues).sqrt();
    (centre - width).sqrt() * (centre + width).sqrt()
}

/// The base of `queues` queues at s.
fn base_value(s: Complex64, load: f64, queues: f64) -> Complex64 {
    let centre = s + load + queues;
    2.0 * load / (centre + base_root(centre, load, queues))
}

/// 1 minus the base at a real s, without cancellation where the base is close to 1.
fn base_complement(s: f64, load: f64, queues: f64) -> f64 {
    if load < queues {
        return 1.0 - base_value(Complex64::new(s, 0.0), load, queues).re;
    }
    let root = base_root(Complex64::new(s + load + queues, 0.0), load, queues).re;
    2.0 * s / (s + load - queues + root)
}

/// Coefficients of `base(s + 1 - x)` in x: the first from the closed form, the others by the
/// recursion of a square root of a quadratic.
fn base_terms(s: Complex64, load: f64, queues: f64, count: usize) -> Vec<Complex64> {
    let centre = s + 1.0 + load + queues;
    let root = base_root(centre, load, queues);
    let square = (root * root).inv();
    let mut terms = Vec::with_capacity(count.max(3));
    let first = 2.0 * load / (centre + root);
    terms.extend([first, first / root, load / (root * root * root)]);
    for term in 3..count {
        let order = (term - 1) as f64;
        let rise = (2.0 * order - 1.0) * centre * terms[term - 1];
        let fall = (order - 2.0) * terms[term - 2];
        terms.push((rise - fall) * square / (order + 1.0));
    }
    terms.truncate(count);
    terms
}
