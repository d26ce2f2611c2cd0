//! Names under bars, boxes and cells: on one line, on several lines, or rotated.

use super::canvas::{Anchor, Area, Canvas, INK, text_of};
use super::{TICK, font};

/// Names fitted to the width that each has.
pub(crate) struct Names {
    lines: Vec<Vec<String>>,
    rotated: bool,
    pub(crate) height: f64,
}

const TURN_DEGREES: f64 = -35.0;
const TURNED_WIDTH_MAX: f64 = 160.0;

impl Names {
    pub(crate) fn fit(names: &[String], width: f64) -> Names {
        let slot = width / names.len().max(1) as f64 - 6.0;
        let lines: Vec<Vec<String>> =
            names.iter().map(|name| font::wrap(name, TICK, false, slot)).collect();
        let widest =
            lines.iter().flatten().map(|line| font::width(line, TICK, false)).fold(0.0, f64::max);
        let most = lines.iter().map(Vec::len).max().unwrap_or(0);
        if widest <= slot && most <= 3 {
            return Names { lines, rotated: false, height: 4.0 + most as f64 * TICK * 1.2 };
        }
        let lines: Vec<Vec<String>> =
            // Names that do not fit side by side are rotated, each on one line.
            names.iter().map(|name| vec![font::cut(name, TICK, false, TURNED_WIDTH_MAX)]).collect();
        let widest =
            lines.iter().flatten().map(|line| font::width(line, TICK, false)).fold(0.0, f64::max);
        let height = widest * TURN_DEGREES.to_radians().sin().abs() + TICK * 1.4;
        Names { lines, rotated: true, height }
    }

    /// How far rotated names reach beyond the left end of the axis.
    pub(crate) fn overhang(&self, width: f64) -> f64 {
        if !self.rotated {
            return 0.0;
        }
        let slot = width / self.lines.len().max(1) as f64;
        let cosine = TURN_DEGREES.to_radians().cos();
        let reach = self.lines.iter().enumerate().map(|(index, lines)| {
            let text = lines.first().map_or("", String::as_str);
            font::width(text, TICK, false) * cosine - (index as f64 + 0.5) * slot
        });
        reach.fold(0.0, f64::max)
    }

    pub(crate) fn draw(&self, canvas: &mut Canvas, area: Area) {
        let slot = area.width / self.lines.len().max(1) as f64;
        let base = area.y + area.height;
        // Rotated names closer than a line's height would overlap.
        let stride = if self.rotated { (TICK * 1.5 / slot).ceil().max(1.0) as usize } else { 1 };
        for (index, lines) in self.lines.iter().enumerate().step_by(stride) {
            let middle = area.x + (index as f64 + 0.5) * slot;
            if self.rotated {
                let look = text_of(TICK, INK).anchor(Anchor::End).rotated(TURN_DEGREES);
                let text = lines.first().map_or("", String::as_str);
                canvas.text((middle + 4.0, base + TICK + 4.0), text, look);
                continue;
            }
            for (row, line) in lines.iter().enumerate() {
                let y = base + 6.0 + TICK + row as f64 * TICK * 1.2;
                canvas.text((middle, y), line, text_of(TICK, INK).anchor(Anchor::Middle));
            }
        }
    }
}
