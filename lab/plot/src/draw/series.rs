//! Lines, steps and scatter plots, with their intervals and reference lines.

use crate::{Axis, Figure, Interval, Join, Kind, Point, Series};

use super::canvas::{Anchor, Area, Canvas, DIM, Ink, Stroke, stroke, text_of, through};
use super::notes::Notes;
use super::scale::{self, FittedAxis};
use super::{Frame, LABEL, decimate, style};
use crate::figure::drawable;

/// Lines with more points are solid, and only some of their points have markers.
const DENSE: usize = 200;
/// Joined series with more points have markers on some points only.
const MARKED: usize = 60;
const MARKERS: usize = 12;
/// Maximum number of markers with tooltips.
const TITLED: usize = 400;
const MARKER: f64 = 4.2;

/// The horizontal axis of a figure of series.
pub(super) fn fit_x(figure: &Figure, ticks: usize) -> FittedAxis {
    let Kind::Series(all) = &figure.kind else {
        return scale::fit(&figure.x, std::iter::empty(), false, false, ticks.clamp(2, 9));
    };
    let values = all.iter().flat_map(|one| one.points.iter().map(|point| point.x));
    let references = figure.references.iter().filter(|r| r.vertical).map(|r| r.value);
    // Curves and steps may touch the frame; markers need a margin.
    let roomy = all.iter().any(|one| one.markers);
    scale::fit(&figure.x, values.chain(references), false, roomy, ticks.clamp(2, 9))
}

/// Dashes would make dense lines unreadable.
pub(super) fn dash_of(series: &Series, index: usize) -> &'static str {
    if series.points.len() > DENSE { "" } else { style::dash(index) }
}

/// A thick line would fill the gaps between the peaks of dense data.
fn width_of(series: &Series) -> f64 {
    if series.points.len() > DENSE { 1.4 } else { 2.0 }
}

/// Whether a series has markers, its own or those that distinguish dense lines.
pub(super) fn marked(series: &Series, count: usize) -> bool {
    series.markers || (series.points.len() > DENSE && count > 1)
}

pub(super) fn draw(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    all: &[Series],
    notes: &mut Notes,
) {
    let shown =
        |point: &Point| drawable(point.x, figure.x.scale) && drawable(point.y, figure.y.scale);
    if !all.iter().any(|one| one.points.iter().any(shown)) {
        no_data(canvas, frame.area);
    }
    for point in all.iter().flat_map(|one| &one.points) {
        if !drawable(point.x, figure.x.scale) {
            notes.count_undrawn(point.x);
        } else if !drawable(point.y, figure.y.scale) {
            notes.count_undrawn(point.y);
        } else if !frame.shows(point.x, point.y) {
            notes.outside();
        }
    }
    for (index, one) in all.iter().enumerate() {
        // All bands come first, so that none hides a line.
        if one.interval == Interval::Band {
            canvas.open_clipped(frame.area);
            band(canvas, frame, figure, one, style::colour(index), notes);
            canvas.close_clipped();
        }
    }
    for (index, one) in all.iter().enumerate() {
        let ink = style::colour(index);
        if one.join != Join::Scatter {
            canvas.open_clipped(grown(frame.area, 1.5));
            joined(
                canvas,
                frame,
                figure,
                one,
                Stroke { ink, width: width_of(one), dash: dash_of(one, index) },
            );
            canvas.close_clipped();
        }
        if one.interval == Interval::Bars {
            bars(canvas, frame, figure, one, ink, notes);
        }
        if marked(one, all.len()) {
            markers(canvas, frame, figure, one, index, all.len());
        }
    }
}

/// Writes that there is no data.
pub(super) fn no_data(canvas: &mut Canvas, area: Area) {
    let position = (area.x + area.width / 2.0, area.y + area.height / 2.0);
    canvas.text(position, "no data", text_of(LABEL, DIM).anchor(Anchor::Middle));
}

fn grown(area: Area, by: f64) -> Area {
    Area {
        x: area.x - by,
        y: area.y - by,
        width: area.width + 2.0 * by,
        height: area.height + 2.0 * by,
    }
}

/// The sections of a series between points that cannot be drawn.
fn runs<'a>(series: &'a Series, figure: &Figure) -> impl Iterator<Item = &'a [Point]> {
    let (x, y) = (figure.x.scale, figure.y.scale);
    series
        .points
        .split(move |point| !drawable(point.x, x) || !drawable(point.y, y))
        .filter(|run| !run.is_empty())
}

fn joined(canvas: &mut Canvas, frame: &Frame<'_>, figure: &Figure, series: &Series, look: Stroke) {
    for run in runs(series, figure) {
        let places: Vec<(f64, f64)> =
            run.iter().map(|point| (frame.at_x(point.x), frame.at_y(point.y))).collect();
        let places = decimate::decimate(&places);
        if let [only] = places[..] {
            // A line of one point is visible only with a marker.
            if !series.markers {
                style::mark(canvas, only, style::Marker::Circle, look.ink, 2.5);
            }
            continue;
        }
        let places = if series.join == Join::Step { stairs(&places) } else { places };
        canvas.path(&through(&places), look);
    }
}

/// Holds each value until the next point.
fn stairs(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners = Vec::with_capacity(places.len() * 2);
    let mut before: Option<f64> = None;
    for (x, y) in places {
        if let Some(height) = before.filter(|height| height != y) {
            corners.push((*x, height));
        }
        corners.push((*x, *y));
        before = Some(*y);
    }
    corners
}

fn interval_of(point: &Point) -> Option<(f64, f64)> {
    let (low, high) = (point.low?, point.high?);
    (low.is_finite() && high.is_finite()).then(|| (low.min(high), low.max(high)))
}

fn band(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    series: &Series,
    ink: Ink,
    notes: &mut Notes,
) {
    for run in runs(series, figure) {
        for part in run.split(|point| interval_of(point).is_none()) {
            let edge = |upper: bool| -> Vec<(f64, f64)> {
                let places: Vec<(f64, f64)> = part
                    .iter()
                    .filter_map(|point| {
                        let (low, high) = interval_of(point)?;
                        Some((frame.at_x(point.x), frame.at_y(if upper { high } else { low })))
                    })
                    .collect();
                let places = decimate::decimate(&places);
                if series.join == Join::Step { stairs(&places) } else { places }
            };
            if part.is_empty() {
                continue;
            }
            // Along the upper edge, and back along the lower one.
            let mut outline = edge(true);
            outline.extend(edge(false).into_iter().rev());
            canvas.shape(&format!("{}Z", through(&outline)), ink, 0.18);
            notes.bands = true;
        }
    }
}

fn bars(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    series: &Series,
    ink: Ink,
    notes: &mut Notes,
) {
    for point in runs(series, figure).flatten() {
        if let Some(interval) = interval_of(point).filter(|_| frame.shows(point.x, point.y)) {
            error_bar(canvas, frame, frame.at_x(point.x), interval, stroke(ink, 1.4), 4.0);
            notes.error_bars = true;
        }
    }
}

/// An interval at `x` with caps. An end beyond the axes has no cap, which shows that it continues.
pub(super) fn error_bar(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    x: f64,
    interval: (f64, f64),
    look: Stroke,
    cap: f64,
) {
    let (top, bottom) = (frame.area.y, frame.area.y + frame.area.height);
    let low = frame.at_y(interval.0).clamp(top, bottom);
    let high = frame.at_y(interval.1).clamp(top, bottom);
    canvas.line((x, low), (x, high), look);
    for (value, at) in [(interval.0, low), (interval.1, high)] {
        if frame.y.contains(value) {
            canvas.line((x - cap, at), (x + cap, at), look);
        }
    }
}

fn markers(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    figure: &Figure,
    series: &Series,
    index: usize,
    count: usize,
) {
    let ink = style::colour(index);
    let marker = style::marker(index);
    let shown: Vec<&Point> =
        runs(series, figure).flatten().filter(|p| frame.shows(p.x, p.y)).collect();
    let position = |point: &Point| (frame.at_x(point.x), frame.at_y(point.y));
    if series.join == Join::Scatter && shown.len() > TITLED {
        let places: Vec<(f64, f64)> = shown.into_iter().map(position).collect();
        style::dots(canvas, &decimate::distinct(&places), index);
        return;
    }
    let thinned = series.join != Join::Scatter
        && (series.points.len() > DENSE || series.points.len() > MARKED);
    let stride = if thinned { shown.len().div_ceil(MARKERS).max(1) } else { 1 };
    // Series with equal abscissas show their markers at different points.
    let first = if thinned { stride * (2 * index + 1) / (2 * count.max(1)) } else { 0 };
    for point in shown.into_iter().skip(first).step_by(stride) {
        canvas.open(Some(&tooltip(figure, &series.name, point)));
        style::mark(canvas, position(point), marker, ink, MARKER);
        canvas.close();
    }
}

fn tooltip(figure: &Figure, name: &str, point: &Point) -> String {
    let with =
        |axis: &Axis, value: f64| format!("{} {}", axis.label, scale::readable(value, &axis.unit));
    let interval = interval_of(point).map_or(String::new(), |(low, high)| {
        let unit = &figure.y.unit;
        format!(" [{}, {}]", scale::readable(low, unit), scale::readable(high, unit))
    });
    format!("{name}: {}, {}{interval}", with(&figure.x, point.x), with(&figure.y, point.y))
}

/// Lines across the plot area; their names are in the legend.
pub(super) fn references(canvas: &mut Canvas, frame: &Frame<'_>, figure: &Figure) {
    let Area { x, y, width, height } = frame.area;
    for (index, reference) in figure.references.iter().enumerate() {
        let axis = if reference.vertical { frame.x } else { Some(frame.y) };
        let Some(axis) = axis.filter(|axis| {
            reference.value.is_finite()
                && (!axis.log || reference.value > 0.0)
                && axis.contains(reference.value)
        }) else {
            continue;
        };
        let share = axis.share(reference.value);
        let (from, to) = if reference.vertical {
            ((x + share * width, y), (x + share * width, y + height))
        } else {
            ((x, y + (1.0 - share) * height), (x + width, y + (1.0 - share) * height))
        };
        canvas.line(from, to, style::reference(index));
    }
}
