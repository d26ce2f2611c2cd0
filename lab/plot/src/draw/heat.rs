//! Heat maps.

use crate::{Axis, Figure, Heat, Scale};

use super::canvas::{Anchor, Area, Canvas, DIM, GRID, INK, stroke, text_of};
use super::notes::Notes;
use super::scale;
use super::{LABEL, MARGIN, NOTE, TICK, font, series, style};
use crate::figure::drawable;

/// Width of the colour bar with its labels.
pub(super) const RIGHT: f64 = 120.0;
const ROW_NAME_MAX: f64 = 150.0;
const LABELLED: usize = 200;

/// Width of the row names.
pub(super) fn left(heat: &Heat, axis: &Axis) -> f64 {
    let widest = heat.rows.iter().map(|name| font::width(name, TICK, false)).fold(0.0, f64::max);
    let label = if axis.label.is_empty() { 0.0 } else { LABEL * 1.6 };
    MARGIN + label + widest.min(ROW_NAME_MAX) + 10.0
}

pub(super) fn draw(
    canvas: &mut Canvas,
    area: Area,
    figure: &Figure,
    heat: &Heat,
    notes: &mut Notes,
) {
    let (columns, rows) = (heat.columns.len(), heat.rows.len());
    let all = heat.values.iter().flatten().copied();
    let bar = scale::fit(&heat.bar, all.clone(), false, false, 5);
    if columns == 0 || rows == 0 || !all.clone().any(|v| drawable(v, heat.bar.scale)) {
        series::no_data(canvas, area);
        return;
    }
    let (width, height) = (area.width / columns as f64, area.height / rows as f64);
    for row in 0..rows {
        let y = area.y + row as f64 * height;
        let name = font::cut(&heat.rows[row], TICK, false, ROW_NAME_MAX);
        // If rows are lower than a line of text, only some are named.
        if row % (TICK * 1.2 / height).ceil().max(1.0) as usize == 0 {
            let look = text_of(TICK, INK).anchor(Anchor::End);
            canvas.text((area.x - 8.0, y + height / 2.0 + TICK * 0.36), &name, look);
        }
        for column in 0..columns {
            let x = area.x + column as f64 * width;
            let cell = Area { x, y, width: width + 0.3, height: height + 0.3 };
            let value = heat.values.get(row).and_then(|row| row.get(column)).copied();
            let Some(value) = value.filter(|value| drawable(*value, heat.bar.scale)) else {
                canvas.path(&style::diagonals(cell, 6.0, true), stroke(GRID, 1.0));
                notes.add("Hatched cells have no value.");
                continue;
            };
            if !bar.contains(value) {
                notes.add("Values beyond the colour bar have its last colour.");
            }
            let (colour, dark) = style::heat(bar.share(value));
            let name = format!("{}, {}", heat.columns[column], heat.rows[row]);
            let text = format!("{name}: {}", scale::readable(value, &heat.bar.unit));
            canvas.open(Some(&text));
            canvas.tile(cell, &colour);
            let fits = |text: &String| font::width(text, NOTE, false) < width - 2.0;
            let texts = [bar.shown(value, 3), bar.shown(value, 2)];
            if rows * columns <= LABELLED
                && height > NOTE * 1.4
                && let Some(text) = texts.iter().find(|text| fits(text))
            {
                let position = (x + width / 2.0, y + height / 2.0 + NOTE * 0.36);
                canvas.fixed_text(position, text, NOTE, if dark { "#111111" } else { "#ffffff" });
            }
            canvas.close();
        }
    }
    row_title(canvas, area, heat, &figure.y);
    colour_bar(canvas, area, &bar);
    if heat.bar.scale == Scale::Log {
        notes.add("Colours are on a logarithmic scale.");
    }
}

fn row_title(canvas: &mut Canvas, area: Area, heat: &Heat, axis: &Axis) {
    let position = (area.x - left(heat, axis) + MARGIN + LABEL * 0.9, area.y + area.height / 2.0);
    let title = font::cut(&axis.label_with_unit(), LABEL, false, area.height * 1.1);
    canvas.text(position, &title, text_of(LABEL, INK).anchor(Anchor::Middle).rotated(-90.0));
}

fn colour_bar(canvas: &mut Canvas, area: Area, bar: &scale::FittedAxis) {
    const STEPS: usize = 48;
    let x = area.x + area.width + 18.0;
    let step = area.height / STEPS as f64;
    for index in 0..STEPS {
        let (colour, _) = style::heat((index as f64 + 0.5) / STEPS as f64);
        let y = area.y + area.height - (index + 1) as f64 * step;
        canvas.tile(Area { x, y, width: 14.0, height: step + 0.3 }, &colour);
    }
    for tick in bar.ticks.iter().filter(|tick| !tick.label.is_empty()) {
        let y = area.y + (1.0 - bar.share(tick.value)) * area.height;
        canvas.line((x + 14.0, y), (x + 18.0, y), stroke(DIM, 1.0));
        canvas.text((x + 21.0, y + TICK * 0.36), &tick.label, text_of(TICK, INK));
    }
    let widest =
        bar.ticks.iter().map(|tick| font::width(&tick.label, TICK, false)).fold(0.0, f64::max);
    let position = (x + 21.0 + widest + LABEL * 1.2, area.y + area.height / 2.0);
    let title = font::cut(&bar.title, LABEL, false, area.height * 1.1);
    canvas.text(position, &title, text_of(LABEL, INK).anchor(Anchor::Middle).rotated(-90.0));
}
