//! Notes about a drawing: which values are not shown, and what marks mean.

use super::canvas::{Canvas, DIM, text_of};
use super::{NOTE, font};

/// Collected while drawing, and written once below the figure.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    not_finite: usize,
    not_positive: usize,
    outside: usize,
    lines: Vec<String>,
    pub(crate) error_bars: bool,
    pub(crate) bands: bool,
}

impl Notes {
    /// Adds a sentence; repetitions are ignored.
    pub(crate) fn add(&mut self, line: impl Into<String>) {
        let line = line.into();
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Counts a value that its axis cannot show.
    pub(crate) fn count_undrawn(&mut self, value: f64) {
        if value.is_finite() && value <= 1e-300 {
            self.not_positive += 1;
        } else {
            self.not_finite += 1;
        }
    }

    /// Counts a value outside a given range.
    pub(crate) fn outside(&mut self) {
        self.outside += 1;
    }

    fn sentences(&self) -> String {
        let mut omitted = Vec::new();
        for (count, what) in [
            (self.not_finite, "not finite"),
            (self.not_positive, "not positive, on a logarithmic axis"),
            (self.outside, "outside the axes"),
        ] {
            if count > 0 {
                omitted.push(format!("{count} {what}"));
            }
        }
        let intervals = match (self.error_bars, self.bands) {
            (true, true) => "Error bars and bands",
            (true, false) => "Error bars",
            (false, true) => "Bands",
            (false, false) => "",
        };
        let mut lines = self.lines.clone();
        if !intervals.is_empty() {
            lines.insert(0, format!("{intervals} are 95 % confidence intervals."));
        }
        if !omitted.is_empty() {
            lines.push(format!("Values not shown: {}.", omitted.join("; ")));
        }
        lines.join(" ")
    }

    /// Writes the notes below `at`, and returns their lower end.
    pub(crate) fn draw(&self, canvas: &mut Canvas, at: (f64, f64), width: f64) -> f64 {
        let mut y = at.1;
        for line in font::wrap(&self.sentences(), NOTE, false, width) {
            y += NOTE * 1.4;
            canvas.text((at.0, y), &line, text_of(NOTE, DIM));
        }
        y
    }
}
