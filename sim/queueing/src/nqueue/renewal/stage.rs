//! The stream into one queue, and the step to the stream that overflows from it.

use num_complex::Complex64;

use super::super::Model;
use super::line::Line;

/// The stream that arrives at queue `index`, in units of the service rate.
///
/// Its transform is `A(s) = base(s) + E(s)`. The base is that of queues that never empty: then the
/// packets missing from all of them together form a birth-death process (one more for each of the
/// `index` servers at rate 1, one less for each arrival), whose passage time has
/// `index base^2 - (s + load + index) base + load = 0`. What remains, E, falls fast along the line:
/// this is what is sampled.
pub(super) struct Stage<'a> {
    line: &'a Line,
    load: f64,
    /// Queues that the stream has overflowed from.
    index: usize,
    /// Whether E is zero.
    is_base: bool,
    /// E at the points of the line.
    samples: Vec<Complex64>,
    /// The same for the line's tables.
    packed: Vec<f64>,
    /// Coefficients of `A(s + 1 - x)` for the point in work.
    terms: Vec<Complex64>,
    /// Transforms of the overflow of smaller thresholds, for the point in work.
    smaller: Vec<Complex64>,
}

impl<'a> Stage<'a> {
    /// The Poisson stream into the first queue.
    pub(super) fn first(line: &'a Line, model: &Model) -> Self {
        let samples = vec![Complex64::ZERO; line.samples()];
        let mut packed = Vec::new();
        line.pack(&samples, &mut packed);
        let (terms, smaller) = (vec![Complex64::ZERO; line.terms], Vec::new());
        Self { line, load: model.load, index: 0, is_base: true, samples, packed, terms, smaller }
    }

    /// The shares of arrivals that find 0 to K packets.
    ///
    /// Watched only while it holds n packets or more, the queue leaves n upwards with
    /// probability a_0 and comes back to n from level i when i + 1 - n or more services fit between
    /// two arrivals, because it rises by one packet at a time. Balance of these flows gives every
    /// share from those above it, in sums of positive terms.
    pub(super) fn at_arrivals(&self) -> Vec<f64> {
        /// Where shares, of which only ratios count, are scaled down.
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
        // tails[k]: k or more services between two arrivals.
        let mut tails = vec![1.0, (base_complement(1.0, self.load, queues) - rest(0)).max(0.0)];
        for share in &services[1..] {
            tails.push((tails[tails.len() - 1] - share).max(0.0));
        }
        let mut shares = vec![0.0; threshold + 1];
        shares[threshold] = 1.0;
        for level in (0..threshold).rev() {
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

    /// Goes on to the stream that overflows from this queue, which `found` arrivals, by what they
    /// find, as [`Stage::at_arrivals`] says.
    ///
    /// E stays zero as long as no queue is ever empty between two overflows.
    pub(super) fn advance(&mut self, found: &[f64]) {
        /// Arrivals at an empty queue, for each overflow, that change nothing.
        const NEVER: f64 = 1e-20;
        self.is_base &= found[0] < NEVER * found[found.len() - 1];
        if self.is_base {
            self.index += 1;
            return;
        }
        let queues = self.index as f64;
        let mut overflow = Vec::with_capacity(self.samples.len());
        for (at, &s) in self.line.points.iter().enumerate() {
            let base = base_terms(s, self.load, queues, self.line.terms);
            for (term, value) in base.into_iter().enumerate() {
                self.terms[term] = value + self.line.coefficient(at, term, &self.packed);
            }
            let whole = self.samples[at] + base_value(s, self.load, queues);
            let transform = overflow_transform(&self.terms, whole, &mut self.smaller);
            overflow.push(transform - base_value(s, self.load, queues + 1.0));
        }
        // On the real axis transforms are real.
        overflow[0].im = 0.0;
        self.samples = overflow;
        self.line.pack(&self.samples, &mut self.packed);
        self.index += 1;
    }
}

/// The transform of the overflow of GI/M/1/K at one s, from `terms[k]`, the transform of the time
/// between arrivals with k services in it, and `whole`, their sum over all k.
///
/// After an arrival that fills level j, level j + 1 is reached (j = K: the overflow) by an arrival
/// before any service; or after k services, which leave j - k + 1 packets with the next arrival,
/// from where the levels up to j are passed one after the other, and then once more from j:
/// `F_j = a_0 / (1 - a_1 - a_2 F_(j-1) - a_3 F_(j-1) F_(j-2) - ...)`, where the last product goes
/// down to F_1 and stands for an empty queue.
fn overflow_transform(
    terms: &[Complex64],
    whole: Complex64,
    smaller: &mut Vec<Complex64>,
) -> Complex64 {
    /// Products below this change nothing.
    const NEGLIGIBLE: f64 = 1e-40;
    smaller.clear();
    smaller.push(Complex64::ONE);
    for level in 1..terms.len() {
        let mut sum = Complex64::ZERO;
        let mut passed = Complex64::ONE;
        let mut tail = whole - terms[0];
        for services in 1..level {
            sum += terms[services] * passed;
            tail -= terms[services];
            passed *= smaller[level - services];
            if passed.norm_sqr() < NEGLIGIBLE {
                break;
            }
        }
        sum += tail * passed;
        smaller.push(terms[0] / (1.0 - sum));
    }
    smaller[terms.len() - 1]
}

/// The discriminant's root of the base: `sqrt((s + load + queues)^2 - 4 load queues)`, by factors so
/// that the branch is the one that is positive for positive s.
fn base_root(centre: Complex64, load: f64, queues: f64) -> Complex64 {
    let width = 2.0 * (load * queues).sqrt();
    (centre - width).sqrt() * (centre + width).sqrt()
}

/// The base of `queues` queues at s.
fn base_value(s: Complex64, load: f64, queues: f64) -> Complex64 {
    let centre = s + load + queues;
    2.0 * load / (centre + base_root(centre, load, queues))
}

/// One less the base at a real s, without cancellation where the base is close to 1.
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
