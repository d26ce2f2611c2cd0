//! The legend, above the plot area.

use crate::{Figure, Interval, Join, Kind};

use super::canvas::{Area, Canvas, INK, text_of};
use super::{TICK, font, style};

const SAMPLE: f64 = 30.0;
const SWATCH: f64 = 22.0;
const ROW: f64 = 19.0;
const GAP: f64 = 18.0;

#[derive(Clone, Debug, PartialEq)]
enum Sample {
    Line { index: usize, dash: &'static str, line: bool, marker: bool, band: bool },
    Bar(usize),
    Box(usize),
    Reference(usize),
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    sample: Sample,
}

/// Entries with their positions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Legend {
    placed: Vec<(f64, f64, Entry)>,
    pub(crate) height: f64,
}

impl Entry {
    fn sample_width(&self) -> f64 {
        match self.sample {
            Sample::Bar(_) | Sample::Box(_) => SWATCH,
            Sample::Line { line: false, .. } => SWATCH / 2.0,
            Sample::Line { .. } | Sample::Reference(_) => SAMPLE,
        }
    }
}

impl Legend {
    /// The legend of one figure; `None` if nothing has a name.
    pub(crate) fn of(figure: &Figure, width: f64) -> Option<Legend> {
        Legend::place(entries(figure), width)
    }

    /// A common legend for panels, if all have the same entries.
    pub(crate) fn shared(figures: &[Figure], width: f64) -> Option<Legend> {
        let (first, rest) = figures.split_first()?;
        let common = entries(first);
        if rest.is_empty() || rest.iter().any(|figure| entries(figure) != common) {
            return None;
        }
        Legend::place(common, width)
    }

    fn place(entries: Vec<Entry>, width: f64) -> Option<Legend> {
        let mut placed = Vec::new();
        let (mut x, mut y) = (0.0, 0.0);
        for entry in entries.into_iter().filter(|entry| !entry.name.is_empty()) {
            let name = font::cut(&entry.name, TICK, false, (width - SAMPLE - 6.0).max(20.0));
            let needed = entry.sample_width() + 6.0 + font::width(&name, TICK, false);
            if x > 0.0 && x + needed > width {
                x = 0.0;
                y += ROW;
            }
            placed.push((x, y, Entry { name, ..entry }));
            x += needed + GAP;
        }
        let height = if placed.is_empty() { return None } else { y + ROW };
        Some(Legend { placed, height })
    }

    /// Draws it below `at`, and returns its lower end.
    pub(crate) fn draw(&self, canvas: &mut Canvas, at: (f64, f64)) -> f64 {
        for (x, y, entry) in &self.placed {
            let (x, y) = (at.0 + x, at.1 + y);
            sample(canvas, (x, y + ROW / 2.0), entry);
            let place = (x + entry.sample_width() + 6.0, y + ROW / 2.0 + TICK * 0.36);
            canvas.text(place, &entry.name, text_of(TICK, INK));
        }
        at.1 + self.height
    }
}

fn sample(canvas: &mut Canvas, at: (f64, f64), entry: &Entry) {
    let (x, y) = at;
    match entry.sample {
        Sample::Line { index, dash, line, marker, band } => {
            let ink = style::colour(index);
            if band {
                let area = Area { x, y: y - 6.0, width: SAMPLE, height: 12.0 };
                canvas.rectangle(area, ink, 0.18);
            }
            if line {
                let look = super::canvas::Stroke { ink, width: 2.0, dash };
                canvas.line((x, y), (x + SAMPLE, y), look);
            }
            if marker {
                style::mark(
                    canvas,
                    (x + entry.sample_width() / 2.0, y),
                    style::marker(index),
                    ink,
                    4.0,
                );
            }
        }
        Sample::Bar(index) => {
            let area = Area { x, y: y - 6.5, width: SWATCH, height: 13.0 };
            canvas.rectangle(area, style::colour(index), 1.0);
            style::hatch(canvas, area, index);
        }
        Sample::Box(index) => {
            let ink = style::colour(index);
            let area = Area { x, y: y - 6.0, width: SWATCH, height: 12.0 };
            super::bars::box_body(canvas, area, y, index, ink);
        }
        Sample::Reference(index) => {
            canvas.line((x, y), (x + SAMPLE, y), style::reference(index));
        }
    }
}

fn entries(figure: &Figure) -> Vec<Entry> {
    let mut all: Vec<Entry> = match &figure.kind {
        Kind::Series(series) => series
            .iter()
            .enumerate()
            .map(|(index, one)| Entry {
                name: one.name.clone(),
                sample: Sample::Line {
                    index,
                    dash: super::series::dash_of(one, index),
                    line: one.join != Join::Scatter,
                    marker: super::series::marked(one, series.len()),
                    band: one.interval == Interval::Band
                        && one.points.iter().any(|p| p.low.is_some() && p.high.is_some()),
                },
            })
            .collect(),
        Kind::Bars(bars) => named(bars.groups.iter().map(|g| &g.name), Sample::Bar),
        Kind::Boxes(boxes) => named(boxes.groups.iter().map(|g| &g.name), Sample::Box),
        Kind::Heat(_) | Kind::Panels(_) => Vec::new(),
    };
    if !matches!(figure.kind, Kind::Heat(_)) {
        all.extend(figure.references.iter().enumerate().map(|(index, reference)| Entry {
            name: reference.name.clone(),
            sample: Sample::Reference(index),
        }));
    }
    all
}

fn named<'a>(
    names: impl Iterator<Item = &'a String>,
    sample: impl Fn(usize) -> Sample,
) -> Vec<Entry> {
    names
        .enumerate()
        .map(|(index, name)| Entry { name: name.clone(), sample: sample(index) })
        .collect()
}
