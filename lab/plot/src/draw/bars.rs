//! Grouped bars, and box plots.

use crate::{Bars, Boxes, Figure, Point, Scale};

use super::canvas::{Anchor, Area, Canvas, INK, Ink, PAPER, stroke, text_of};
use super::notes::Notes;
use super::{Frame, NOTE, font, series, style};
use crate::figure::drawable;

/// Maximum number of bars that have their values written above them.
const LABELLED: usize = 16;

/// The values that the vertical axis must span.
pub(super) fn extent(bars: &Bars) -> impl Iterator<Item = f64> + '_ {
    let categories = bars.categories.len();
    let points = bars.groups.iter().flat_map(move |group| group.values.iter().take(categories));
    let ends = points
        .filter(|point| point.y.is_finite())
        .flat_map(|point| [Some(point.y), point.low, point.high].into_iter().flatten());
    // Space for the values above the tallest bar.
    ends.map(|value| value * 1.03)
}

pub(super) fn draw_bars(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    bars: &Bars,
    notes: &mut Notes,
) {
    let groups = bars.groups.len().max(1);
    let slot = frame.area.width / bars.categories.len().max(1) as f64;
    let width = (slot * 0.78 / groups as f64).min(90.0);
    if figure.y.scale == Scale::Log {
        notes.add("On this logarithmic axis only the end of a bar has a meaning, not its length.");
    }
    let mut drawn = 0;
    for category in 0..bars.categories.len() {
        let middle = frame.area.x + (category as f64 + 0.5) * slot;
        for (index, group) in bars.groups.iter().enumerate() {
            let Some(point) = group.values.get(category) else { continue };
            if !drawable(point.y, figure.y.scale) {
                notes.count_undrawn(point.y);
                continue;
            }
            drawn += 1;
            let x = middle + (index as f64 + 0.5 - groups as f64 / 2.0) * width;
            let name = format!("{}, {}", bars.categories[category], group.name);
            canvas.open(Some(&tooltip(figure, &name, point)));
            bar(canvas, frame, x, width * 0.92, point.y, index);
            canvas.close();
            let labelled = bars.categories.len() * groups <= LABELLED;
            ends(canvas, frame, (x, width), point, labelled, notes);
        }
    }
    if drawn == 0 {
        series::no_data(canvas, frame.area);
    }
}

fn tooltip(figure: &Figure, name: &str, point: &Point) -> String {
    let unit = &figure.y.unit;
    let interval = match (point.low, point.high) {
        (Some(low), Some(high)) => {
            format!(" [{}, {}]", super::readable(low, unit), super::readable(high, unit))
        }
        _ => String::new(),
    };
    format!("{name}: {}{interval}", super::readable(point.y, unit))
}

fn bar(canvas: &mut Canvas, frame: &Frame<'_>, x: f64, width: f64, value: f64, index: usize) {
    let (top, bottom) = (frame.area.y, frame.area.y + frame.area.height);
    // A logarithmic axis has no zero to start from.
    let from = if frame.y.log { bottom } else { frame.at_y(0.0).clamp(top, bottom) };
    let to = frame.at_y(value).clamp(top, bottom);
    let area = Area { x: x - width / 2.0, y: from.min(to), width, height: (from - to).abs() };
    canvas.rectangle(area, style::colour(index), 1.0);
    style::hatch(canvas, area, index);
}

/// The interval at the end of a bar, and its value beyond it.
fn ends(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    (x, width): (f64, f64),
    point: &Point,
    labelled: bool,
    notes: &mut Notes,
) {
    let mut end = frame.at_y(point.y);
    if let (Some(low), Some(high)) = (point.low, point.high)
        && low.is_finite()
        && high.is_finite()
    {
        let interval = (low.min(high), low.max(high));
        let cap = (width * 0.2).min(5.0);
        // A wide background stroke keeps the interval visible on its bar.
        series::error_bar(canvas, frame, x, interval, stroke(PAPER, 3.2), cap + 0.8);
        series::error_bar(canvas, frame, x, interval, stroke(INK, 1.4), cap);
        notes.error_bars = true;
        end = frame.at_y(if point.y >= 0.0 { interval.1 } else { interval.0 });
    }
    let text = frame.y.shown(point.y, 3);
    if labelled && font::width(&text, NOTE, false) <= width + 8.0 && frame.y.contains(point.y) {
        let y = if point.y >= 0.0 { end - 5.0 } else { end + 5.0 + NOTE * 0.75 };
        let look = text_of(NOTE, INK).anchor(Anchor::Middle);
        canvas.text((x, y.max(frame.area.y - 2.0)), &text, look);
    }
}

/// Quartiles and whiskers of samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Lower whisker, lower quartile, median, upper quartile, upper whisker.
    pub(crate) five: [f64; 5],
    pub(crate) outliers: Vec<f64>,
}

/// Summary of the drawable samples; `None` if there are none. Quartiles are interpolated linearly.
pub(crate) fn summary(samples: &[f64], scale: Scale) -> Option<Summary> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| drawable(*v, scale)).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let quantile = |share: f64| {
        let rank = share * last as f64;
        let below = rank as usize;
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64)
    };
    let (lower, median, upper) = (quantile(0.25), quantile(0.5), quantile(0.75));
    let reach = 1.5 * (upper - lower);
    let inside = |value: &&f64| **value >= lower - reach && **value <= upper + reach;
    let low = sorted.iter().find(inside).copied().unwrap_or(lower);
    let high = sorted.iter().rev().find(inside).copied().unwrap_or(upper);
    let outliers = sorted.iter().filter(|value| !inside(value)).copied().collect();
    Some(Summary { five: [low.min(lower), lower, median, upper, high.max(upper)], outliers })
}

pub(super) fn draw_boxes(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    boxes: &Boxes,
    notes: &mut Notes,
) {
    let groups = boxes.groups.len().max(1);
    let slot = frame.area.width / boxes.categories.len().max(1) as f64;
    let width = (slot * 0.7 / groups as f64).min(60.0);
    let mut drawn = 0;
    for (index, group) in boxes.groups.iter().enumerate() {
        for (category, samples) in group.samples.iter().take(boxes.categories.len()).enumerate() {
            for value in samples.iter().filter(|value| !drawable(**value, figure.y.scale)) {
                notes.count_undrawn(*value);
            }
            let Some(summary) = summary(samples, figure.y.scale) else { continue };
            let middle = frame.area.x + (category as f64 + 0.5) * slot;
            let x = middle + (index as f64 + 0.5 - groups as f64 / 2.0) * width;
            let five = summary.five.map(|value| super::readable(value, &figure.y.unit));
            canvas.open(Some(&format!(
                "{}, {}: {} samples, median {}, quartiles {} and {}, whiskers {} and {}",
                boxes.categories[category],
                group.name,
                samples.len(),
                five[2],
                five[1],
                five[3],
                five[0],
                five[4]
            )));
            one_box(canvas, frame, (x, width * 0.8), &summary, index);
            canvas.close();
            drawn += 1;
        }
    }
    if drawn == 0 {
        series::no_data(canvas, frame.area);
    } else {
        notes.add(
            "Boxes are quartiles about the median; whiskers reach the last sample within 1.5 \
             interquartile ranges; points are samples beyond.",
        );
    }
}

fn one_box(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    (x, width): (f64, f64),
    summary: &Summary,
    index: usize,
) {
    let ink = style::colour(index);
    let limits = (frame.area.y, frame.area.y + frame.area.height);
    let at = |value: f64| frame.at_y(value).clamp(limits.0, limits.1);
    let [low, lower, median, upper, high] = summary.five.map(at);
    for (from, to) in [(low, lower), (upper, high)] {
        canvas.line((x, from), (x, to), stroke(ink, 1.5));
        let end = if from == low { low } else { high };
        canvas.line((x - width * 0.2, end), (x + width * 0.2, end), stroke(ink, 1.5));
    }
    let area = Area { x: x - width / 2.0, y: upper, width, height: lower - upper };
    box_body(canvas, area, median, index, ink);
    let outliers: Vec<(f64, f64)> = summary
        .outliers
        .iter()
        .filter(|value| frame.y.contains(**value))
        .map(|value| (x, at(*value)))
        .collect();
    for rank in super::decimate::distinct(&outliers) {
        style::mark(canvas, rank, style::Marker::OpenCircle, ink, 2.2);
    }
}

/// The box between the quartiles, with its median.
pub(super) fn box_body(canvas: &mut Canvas, area: Area, median: f64, index: usize, ink: Ink) {
    let Area { x, y, width, height } = area;
    canvas.rectangle(area, PAPER, 1.0);
    canvas.rectangle(area, ink, 0.35);
    style::hatch(canvas, area, index);
    let corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)];
    canvas.path(&format!("{}Z", super::canvas::through(&corners)), stroke(ink, 1.5));
    canvas.line((x, median), (x + width, median), stroke(INK, 2.2));
}
