//! Draws figures as SVG.
//!
//! A figure has a head (title, subtitle, legend), the plot area between its axes, and notes below
//! that say which values are not shown. Panels are such figures in a grid with aligned plot areas.

mod bars;
mod canvas;
mod categories;
mod decimate;
mod heat;
mod legend;
mod notes;
mod scale;
mod series;
mod style;

use crate::{Figure, Kind, Scale, font};
use canvas::{AXIS, Anchor, Area, Canvas, DIM, GRID, INK, PAPER, stroke, text_of};
use legend::Legend;
use notes::Notes;
use scale::FittedAxis;

pub(crate) use canvas::escape;
pub use scale::readable;

const TITLE: f64 = 16.0;
const SUBTITLE: f64 = 12.5;
const LABEL: f64 = 13.0;
const TICK: f64 = 12.0;
const NOTE: f64 = 11.0;
const MARGIN: f64 = 16.0;

/// The horizontal axis of a figure, or the rows of a heat map.
enum HorizontalAxis {
    Values(FittedAxis),
    Names(categories::Names),
}

/// A figure with its measured sizes.
struct FigureLayout<'a> {
    figure: &'a Figure,
    title_size: f64,
    width: f64,
    plot_height: f64,
    title: Vec<String>,
    subtitle: Vec<String>,
    legend: Option<Legend>,
    x: HorizontalAxis,
    y: Option<FittedAxis>,
    left: f64,
    right: f64,
}

/// The coordinates of a figure that has been placed.
struct Frame<'a> {
    area: Area,
    x: Option<&'a FittedAxis>,
    y: &'a FittedAxis,
}

impl Frame<'_> {
    fn at_x(&self, value: f64) -> f64 {
        let share = self.x.map_or(0.5, |axis| axis.share(value));
        self.area.x + share * self.area.width
    }

    fn at_y(&self, value: f64) -> f64 {
        self.area.y + (1.0 - self.y.share(value)) * self.area.height
    }

    fn shows(&self, x: f64, y: f64) -> bool {
        self.x.is_none_or(|axis| axis.contains(x)) && self.y.contains(y)
    }
}

pub(crate) fn svg(figure: &Figure) -> String {
    let mut canvas = Canvas::default();
    let (width, height) = match &figure.kind {
        Kind::Panels(panels) => grid(&mut canvas, figure, panels),
        _ => single(&mut canvas, figure),
    };
    let mut page = Canvas::default();
    page.rectangle(Area { x: 0.0, y: 0.0, width, height }, PAPER, 1.0);
    page.append(canvas);
    page.finish(width, height, &figure.description())
}

fn single(canvas: &mut Canvas, figure: &Figure) -> (f64, f64) {
    let width = 760.0;
    let mut notes = Notes::default();
    let block = FigureLayout::measure(figure, width, 360.0, None);
    let head = block.head_height();
    block.draw(canvas, (0.0, 0.0), head, block.left, &mut notes);
    let bottom = head + block.plot_height + block.foot_height();
    (width, notes.draw(canvas, (MARGIN, bottom), width - 2.0 * MARGIN) + MARGIN)
}

fn grid(canvas: &mut Canvas, figure: &Figure, panels: &crate::Panels) -> (f64, f64) {
    let columns = panels.columns.clamp(1, panels.figures.len().clamp(1, 6));
    let cell = match columns {
        1 => 740.0,
        2 => 470.0,
        _ => 400.0,
    };
    let width = cell * columns as f64 + MARGIN;
    let mut figures = panels.figures.clone();
    for (index, panel) in figures.iter_mut().enumerate() {
        let letter = char::from(b'a' + (index % 26) as u8);
        panel.title = format!("({letter}) {}", panel.title);
    }
    let shared = Legend::shared(&panels.figures, width - 2.0 * MARGIN);
    let mut y = MARGIN;
    let title = font::wrap(&figure.title, TITLE + 1.0, true, width - 2.0 * MARGIN);
    let subtitle = font::wrap(&figure.subtitle, SUBTITLE, false, width - 2.0 * MARGIN);
    for (lines, size, ink, bold) in
        [(&title, TITLE + 1.0, INK, true), (&subtitle, SUBTITLE, DIM, false)]
    {
        let look = if bold { text_of(size, ink).bold() } else { text_of(size, ink) };
        for line in lines {
            y += size * 1.25;
            canvas.text((MARGIN, y - size * 0.25), line, look);
        }
    }
    if let Some(legend) = &shared {
        y = legend.draw(canvas, (MARGIN, y + 6.0));
    }
    let mut notes = Notes::default();
    for row in figures.chunks(columns) {
        let blocks: Vec<FigureLayout<'_>> = row
            .iter()
            .map(|panel| FigureLayout::measure(panel, cell, cell * 0.58, Some(shared.is_none())))
            .collect();
        // All panels of a row use the largest head, margin and foot, so that their plot areas
        // align.
        let head = blocks.iter().map(FigureLayout::head_height).fold(0.0, f64::max);
        let left = blocks.iter().map(|block| block.left).fold(0.0, f64::max);
        let foot = blocks.iter().map(FigureLayout::foot_height).fold(0.0, f64::max);
        for (index, block) in blocks.iter().enumerate() {
            block.draw(canvas, (index as f64 * cell, y), head, left, &mut notes);
        }
        y += head + blocks.iter().map(|block| block.plot_height).fold(0.0, f64::max) + foot;
    }
    (width, notes.draw(canvas, (MARGIN, y), width - 2.0 * MARGIN) + MARGIN)
}

impl<'a> FigureLayout<'a> {
    /// `panel`: `Some` for a panel, with whether it has its own legend.
    fn measure(
        figure: &'a Figure,
        width: f64,
        plot_height: f64,
        panel: Option<bool>,
    ) -> FigureLayout<'a> {
        let title_size = if panel.is_some() { TITLE * 0.88 } else { TITLE };
        let inner = width - 2.0 * MARGIN;
        let y = fitted_y(figure);
        let left = match (&figure.kind, &y) {
            (Kind::Heat(heat), _) => heat::left(heat, &figure.y),
            (_, Some(axis)) => {
                let widest = axis
                    .ticks
                    .iter()
                    .map(|tick| font::width(&tick.label, TICK, false))
                    .fold(0.0, f64::max);
                let label = if axis.title.is_empty() { 0.0 } else { LABEL * 1.6 };
                MARGIN + label + widest + 10.0
            }
            _ => MARGIN,
        };
        let right = if matches!(figure.kind, Kind::Heat(_)) { heat::RIGHT } else { MARGIN + 6.0 };
        let room = (width - left - right).max(40.0);
        let x = match &figure.kind {
            Kind::Bars(bars) => {
                HorizontalAxis::Names(categories::Names::fit(&bars.categories, room))
            }
            Kind::Boxes(boxes) => {
                HorizontalAxis::Names(categories::Names::fit(&boxes.categories, room))
            }
            Kind::Heat(heat) => HorizontalAxis::Names(categories::Names::fit(&heat.columns, room)),
            _ => HorizontalAxis::Values(series::fit_x(figure, (room / 58.0) as usize)),
        };
        // Rotated names reach beyond the left end of the axis, so the margin must hold them.
        let overhang = match &x {
            HorizontalAxis::Names(names) => names.overhang(room) + 6.0,
            HorizontalAxis::Values(_) => 0.0,
        };
        FigureLayout {
            figure,
            title_size,
            width,
            plot_height,
            title: font::wrap(&figure.title, title_size, true, inner),
            subtitle: font::wrap(&figure.subtitle, SUBTITLE, false, inner),
            legend: if panel.unwrap_or(true) { Legend::of(figure, inner) } else { None },
            x,
            y,
            left: left.max(overhang),
            right,
        }
    }

    fn head_height(&self) -> f64 {
        let lines = self.title.len() as f64 * self.title_size * 1.25
            + self.subtitle.len() as f64 * SUBTITLE * 1.3;
        MARGIN + lines + self.legend.as_ref().map_or(0.0, |legend| legend.height + 8.0) + 10.0
    }

    fn foot_height(&self) -> f64 {
        let (ticks, title) = match &self.x {
            HorizontalAxis::Values(axis) => (TICK * 1.6, axis.title.clone()),
            HorizontalAxis::Names(names) => (names.height, self.figure.x.label_with_unit()),
        };
        8.0 + ticks + if title.is_empty() { 0.0 } else { LABEL * 1.5 } + 8.0
    }

    fn draw(&self, canvas: &mut Canvas, at: (f64, f64), head: f64, left: f64, notes: &mut Notes) {
        let mut y = at.1 + MARGIN;
        for line in &self.title {
            y += self.title_size * 1.25;
            let position = (at.0 + MARGIN, y - self.title_size * 0.25);
            canvas.text(position, line, text_of(self.title_size, INK).bold());
        }
        for line in &self.subtitle {
            y += SUBTITLE * 1.3;
            canvas.text((at.0 + MARGIN, y - SUBTITLE * 0.25), line, text_of(SUBTITLE, DIM));
        }
        if let Some(legend) = &self.legend {
            legend.draw(canvas, (at.0 + MARGIN, y + 6.0));
        }
        let area = Area {
            x: at.0 + left,
            y: at.1 + head,
            width: (self.width - left - self.right).max(40.0),
            height: self.plot_height,
        };
        self.draw_data(canvas, area, notes);
    }

    fn draw_data(&self, canvas: &mut Canvas, area: Area, notes: &mut Notes) {
        if let Kind::Heat(data) = &self.figure.kind {
            heat::draw(canvas, area, self.figure, data, notes);
            self.names(canvas, area);
            return;
        }
        let Some(y) = &self.y else { return };
        let x = match &self.x {
            HorizontalAxis::Values(axis) => Some(axis),
            HorizontalAxis::Names(_) => None,
        };
        let frame = Frame { area, x, y };
        grid_lines(canvas, &frame);
        match &self.figure.kind {
            Kind::Series(all) => series::draw(canvas, &frame, self.figure, all, notes),
            Kind::Bars(data) => bars::draw_bars(canvas, &frame, self.figure, data, notes),
            Kind::Boxes(data) => bars::draw_boxes(canvas, &frame, self.figure, data, notes),
            Kind::Heat(_) => {}
            Kind::Panels(_) => {
                let position = (area.x + area.width / 2.0, area.y + area.height / 2.0);
                let look = text_of(LABEL, DIM).anchor(Anchor::Middle);
                canvas.text(position, "panels within panels are not drawn", look);
            }
        }
        series::references(canvas, &frame, self.figure);
        vertical_axis(canvas, &frame);
        match x {
            Some(axis) => horizontal_axis(canvas, &frame, axis),
            None => self.names(canvas, area),
        }
    }

    /// Names of categories and the axis below them.
    fn names(&self, canvas: &mut Canvas, area: Area) {
        let HorizontalAxis::Names(names) = &self.x else { return };
        let base = area.y + area.height;
        canvas.line((area.x, base), (area.x + area.width, base), stroke(AXIS, 1.2));
        names.draw(canvas, area);
        let position = (area.x + area.width / 2.0, base + 8.0 + names.height + LABEL);
        let look = text_of(LABEL, INK).anchor(Anchor::Middle);
        canvas.text(position, &self.figure.x.label_with_unit(), look);
    }
}

impl crate::Axis {
    fn label_with_unit(&self) -> String {
        match (self.label.is_empty(), self.unit.is_empty()) {
            (_, true) => self.label.clone(),
            (true, false) => self.unit.clone(),
            (false, false) => format!("{} ({})", self.label, self.unit),
        }
    }
}

fn fitted_y(figure: &Figure) -> Option<FittedAxis> {
    let references = figure.references.iter().filter(|r| !r.vertical).map(|r| r.value);
    match &figure.kind {
        Kind::Series(all) => {
            let values = all.iter().flat_map(|one| &one.points).flat_map(|point| {
                let interval =
                    if point.y.is_finite() { [point.low, point.high] } else { [None; 2] };
                [Some(point.y), interval[0], interval[1]]
            });
            Some(scale::fit(&figure.y, values.flatten().chain(references), false, true, 6))
        }
        Kind::Bars(bars) => {
            let zero = figure.y.scale == Scale::Linear;
            Some(scale::fit(&figure.y, bars::extent(bars).chain(references), zero, true, 6))
        }
        Kind::Boxes(boxes) => {
            let samples = boxes.groups.iter().flat_map(|g| g.samples.iter().flatten().copied());
            Some(scale::fit(&figure.y, samples.chain(references), false, true, 6))
        }
        Kind::Panels(_) => Some(scale::fit(&figure.y, std::iter::empty(), false, false, 1)),
        Kind::Heat(_) => None,
    }
}

fn grid_lines(canvas: &mut Canvas, frame: &Frame<'_>) {
    let Area { x, y, width, height } = frame.area;
    for tick in frame.y.ticks.iter().filter(|tick| !tick.label.is_empty()) {
        let at = frame.at_y(tick.value);
        canvas.line((x, at), (x + width, at), stroke(GRID, 1.0));
    }
    for tick in frame.x.iter().flat_map(|axis| &axis.ticks).filter(|t| !t.label.is_empty()) {
        let at = frame.at_x(tick.value);
        canvas.line((at, y), (at, y + height), stroke(GRID, 1.0));
    }
}

fn vertical_axis(canvas: &mut Canvas, frame: &Frame<'_>) {
    let Area { x, y, height, .. } = frame.area;
    canvas.line((x, y), (x, y + height), stroke(AXIS, 1.2));
    let mut widest: f64 = 0.0;
    for tick in &frame.y.ticks {
        let at = frame.at_y(tick.value);
        let length = if tick.label.is_empty() { 3.0 } else { 5.0 };
        canvas.line((x - length, at), (x, at), stroke(AXIS, 1.0));
        widest = widest.max(font::width(&tick.label, TICK, false));
        let look = text_of(TICK, INK).anchor(Anchor::End);
        canvas.text((x - 8.0, at + TICK * 0.36), &tick.label, look);
    }
    let position = (x - 8.0 - widest - LABEL * 0.75, y + height / 2.0);
    let limit = height * 1.15;
    let title = font::cut(&frame.y.title, LABEL, false, limit);
    canvas.text(position, &title, text_of(LABEL, INK).anchor(Anchor::Middle).rotated(-90.0));
}

fn horizontal_axis(canvas: &mut Canvas, frame: &Frame<'_>, axis: &FittedAxis) {
    let Area { x, y, width, height } = frame.area;
    let base = y + height;
    canvas.line((x, base), (x + width, base), stroke(AXIS, 1.2));
    let mut free_from = f64::NEG_INFINITY;
    for tick in &axis.ticks {
        let at = frame.at_x(tick.value);
        let length = if tick.label.is_empty() { 3.0 } else { 5.0 };
        canvas.line((at, base), (at, base + length), stroke(AXIS, 1.0));
        let half = font::width(&tick.label, TICK, false) / 2.0;
        // Omits a label that would touch the previous one; its tick stays.
        if !tick.label.is_empty() && at - half > free_from {
            let look = text_of(TICK, INK).anchor(Anchor::Middle);
            canvas.text((at, base + 6.0 + TICK), &tick.label, look);
            free_from = at + half + 6.0;
        }
    }
    let position = (x + width / 2.0, base + 8.0 + TICK * 1.6 + LABEL);
    let title = font::cut(&axis.title, LABEL, false, width * 1.1);
    canvas.text(position, &title, text_of(LABEL, INK).anchor(Anchor::Middle));
}

#[cfg(test)]
mod tests;
