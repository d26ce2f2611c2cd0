//! The vertical line on which transforms are sampled, and Cauchy's integral along it.

use std::f64::consts::PI;

use num_complex::Complex64;

use super::super::Model;

/// Rows of tables are padded to a multiple of this, for a dot product in lanes.
const LANES: usize = 8;

/// Samples of functions E on a vertical line, and tables that compute the Taylor coefficients of
/// `E(s + 1 - x)` in x from them. E must be analytic to the right of the line Re s = offset, real
/// on the real axis, and small beyond the last sample.
///
/// The samples lie at `offset (1 + i sinh w)`, where w is a multiple of the step. The trapezoidal
/// rule on them makes Cauchy's integral converge exponentially. Close to the line the point's own
/// pole needs a correction: the sum is the integral over `1 - q`. Here `q = exp(-2 pi i w / step)`
/// at the complex parameter w of the point.
pub(super) struct SampleLine {
    /// The samples with Im s >= 0; the others are their conjugates.
    pub(super) points: Vec<Complex64>,
    /// Number of coefficients: x^0 to x^threshold.
    pub(super) terms: usize,
    /// Length of half a row, a multiple of [`LANES`]. The first half has the factors of the
    /// samples' real parts, the second half those of their imaginary parts.
    half: usize,
    /// Rows for s = 0 (real parts only), one for each coefficient.
    origin: Vec<f64>,
    /// Two rows (real and imaginary part) for each coefficient of each point.
    table: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Shape {
    offset: f64,
    step: f64,
    terms: usize,
}

impl SampleLine {
    /// The line for `model` with the given step between samples.
    pub(super) fn new(model: &Model, step: f64) -> Self {
        let threshold = model.threshold as f64;
        // The coefficients of E(1 - x) lose a factor (1 - offset)^-threshold, which is at most
        // e^1.5.
        let offset = (1.5 / threshold).min(0.1);
        let shape = Shape { offset, step, terms: model.threshold + 1 };
        let last = ((height(model) / offset).asinh() / step).ceil() as usize;
        let parameter = |index: usize| index as f64 * step;
        let points: Vec<Complex64> = (0..=last)
            .map(|index| Complex64::new(offset, offset * parameter(index).sinh()))
            .collect();
        let weights: Vec<f64> =
            (0..=last).map(|index| step / (2.0 * PI) * offset * parameter(index).cosh()).collect();
        let half = points.len().next_multiple_of(LANES);
        let (terms, width) = (shape.terms, 2 * half);
        let mut line = Self { points, terms, half, origin: Vec::new(), table: Vec::new() };
        line.origin = vec![0.0; terms * width];
        let mut unused = vec![0.0; terms * width];
        let mut origin = std::mem::take(&mut line.origin);
        line.fill(shape, &weights, Complex64::ZERO, &mut origin, &mut unused);
        line.origin = origin;
        let mut table = vec![0.0; line.points.len() * terms * width * 2];
        for (index, rows) in table.chunks_exact_mut(2 * terms * width).enumerate() {
            let (real, imaginary) = rows.split_at_mut(terms * width);
            line.fill(shape, &weights, line.points[index], real, imaginary);
        }
        line.table = table;
        line
    }

    /// Number of samples with Im s >= 0.
    pub(super) fn samples(&self) -> usize {
        self.points.len()
    }

    /// Computes the rows that give the coefficients of `E(s + 1 - x)`.
    ///
    /// The value at z is `(1 - q(z)) sum_l weight_l E_l / (z - s_l)`. In powers of x, each summand
    /// is `(1 - q) weight / (d - x)` with d = s + 1 - s_l. Its coefficients follow a recursion that
    /// does not grow, because |d| >= 1.
    fn fill(
        &self,
        shape: Shape,
        weights: &[f64],
        s: Complex64,
        real: &mut [f64],
        imag: &mut [f64],
    ) {
        let factors = pole_factors(shape, s);
        let (half, width) = (self.half, 2 * self.half);
        for (at, (point, weight)) in self.points.iter().zip(weights).enumerate() {
            let upper = (s + 1.0 - point).inv();
            let lower = (s + 1.0 - point.conj()).inv();
            let (mut above, mut below) = (Complex64::ZERO, Complex64::ZERO);
            for (term, factor) in factors.iter().enumerate() {
                above = (factor * weight + above) * upper;
                below = (factor * weight + below) * lower;
                let row = term * width;
                if at == 0 {
                    // The sample on the real axis is its own conjugate.
                    (real[row], imag[row]) = (above.re, above.im);
                    continue;
                }
                (real[row + at], imag[row + at]) = (above.re + below.re, above.im + below.im);
                real[row + half + at] = below.im - above.im;
                imag[row + half + at] = above.re - below.re;
            }
        }
    }

    /// Packs the first `active` samples for [`SampleLine::coefficient`]; the others count as 0.
    pub(super) fn pack(&self, samples: &[Complex64], active: usize) -> PackedSamples {
        let used = active.next_multiple_of(LANES).min(self.half);
        let mut parts = vec![0.0; 2 * used];
        for (at, sample) in samples[..active].iter().enumerate() {
            (parts[at], parts[used + at]) = (sample.re, sample.im);
        }
        PackedSamples { parts }
    }

    /// One row of a table times the samples.
    fn product(&self, table: &[f64], row: usize, packed: &PackedSamples) -> f64 {
        let used = packed.parts.len() / 2;
        let row = &table[2 * self.half * row..][..2 * self.half];
        dot(&row[..used], &packed.parts[..used])
            + dot(&row[self.half..self.half + used], &packed.parts[used..])
    }

    /// Coefficient of x^term of `E(1 - x)`, which is real.
    pub(super) fn at_origin(&self, term: usize, packed: &PackedSamples) -> f64 {
        self.product(&self.origin, term, packed)
    }

    /// Coefficient of x^term of `E(s + 1 - x)`, where s is the point `index`.
    pub(super) fn coefficient(
        &self,
        index: usize,
        term: usize,
        packed: &PackedSamples,
    ) -> Complex64 {
        let row = 2 * index * self.terms + term;
        let real = self.product(&self.table, row, packed);
        Complex64::new(real, self.product(&self.table, row + self.terms, packed))
    }
}

/// Samples in the layout of a table's rows.
pub(super) struct PackedSamples {
    /// Real parts and then imaginary parts, each padded to a multiple of [`LANES`].
    parts: Vec<f64>,
}

/// The imaginary part beyond which the sampled functions are below rounding.
///
/// The functions are what emptying a queue adds to a transform (see [`super::stage`]). That takes K
/// services of rate 1 and K arrivals, so |E| is of the order of N ((1 + y^2)(1 + y^2 /
/// load^2))^(-K/2).
fn height(model: &Model) -> f64 {
    let threshold = model.threshold as f64;
    let wanted = (1e17 * model.queues as f64).ln();
    let fall = |y: f64| threshold / 2.0 * ((y * y).ln_1p() + (y / model.load).powi(2).ln_1p());
    let mut y = 0.01;
    while fall(y) < wanted {
        y *= 1.1;
    }
    4.0 * y
}

/// Coefficients of `1 - q(s + 1 - x)` in x, by a discrete Fourier transform on a circle.
///
/// To the right of the line |q| <= 1, so the coefficients are bounded on any circle there. On a
/// slightly smaller circle, those of high order vanish before they alias.
fn pole_factors(shape: Shape, s: Complex64) -> Vec<Complex64> {
    let shrink = 1.0 - (3.0 / shape.terms as f64).min(0.5);
    let radius = if s == Complex64::ZERO { shrink * (1.0 - shape.offset) } else { shrink };
    let count = (2 * shape.terms).max((40.0 / -shrink.ln()).ceil() as usize);
    let turn = |index: f64| Complex64::cis(2.0 * PI * index / count as f64);
    let values: Vec<Complex64> = (0..count)
        .map(|index| {
            let z = s + 1.0 - radius * turn(index as f64);
            let parameter = (Complex64::new(0.0, -1.0) * (z - shape.offset) / shape.offset).asinh();
            (Complex64::new(0.0, -2.0 * PI / shape.step) * parameter).exp()
        })
        .collect();
    let turns: Vec<Complex64> = (0..count).map(|index| turn(-(index as f64))).collect();
    (0..shape.terms)
        .map(|term| {
            let sum: Complex64 = values
                .iter()
                .enumerate()
                .map(|(index, value)| value * turns[index * term % count])
                .sum();
            // The mean over the circle, divided by the power of its radius (Cauchy).
            let coefficient = -sum / count as f64 / radius.powi(term as i32);
            if term == 0 { 1.0 + coefficient } else { coefficient }
        })
        .collect()
}

/// The dot product of rows whose length is a multiple of [`LANES`].
fn dot(one: &[f64], two: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (one, two) in one.chunks_exact(LANES).zip(two.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * two[lane];
        }
    }
    sums.iter().sum()
}
