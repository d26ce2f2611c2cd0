//! Distinguishes series by colour, in greyscale, and with any common colour blindness.
//!
//! The colours are those of Okabe and Ito, ordered so that adjacent ones also differ in lightness.
//! Their yellow is omitted, because it is hardly visible on white.

use super::canvas::{Area, Canvas, DIM, INK, Ink, PAPER, Stroke, number, stroke};

/// Colours of series in order. Their classes are `s0` to `s6`.
pub(crate) const COLOURS: [Ink; 7] = [
    Ink { class: "s0", colour: "#0072b2" },
    Ink { class: "s1", colour: "#d55e00" },
    Ink { class: "s2", colour: "#009e73" },
    Ink { class: "s3", colour: "#cc79a7" },
    Ink { class: "s4", colour: "#e69f00" },
    Ink { class: "s5", colour: "#56b4e9" },
    Ink { class: "s6", colour: "#3d4249" },
];

const DASHES: [&str; 6] = ["", "7 3", "2 2.5", "9 3 2 3", "12 3", "5 2.5 1.5 2.5 1.5 2.5"];
const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Up,
    Marker::Diamond,
    Marker::OpenCircle,
    Marker::OpenSquare,
    Marker::Down,
    Marker::Cross,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Up,
    Diamond,
    OpenCircle,
    OpenSquare,
    Down,
    Cross,
}

/// Colour of a series by its index.
pub(crate) fn colour(index: usize) -> Ink {
    COLOURS[index % COLOURS.len()]
}

/// Dash pattern of a series. It shifts when all pairs of colour and pattern have been used.
pub(crate) fn dash(index: usize) -> &'static str {
    DASHES[(index + index / (COLOURS.len() * DASHES.len())) % DASHES.len()]
}

pub(crate) fn marker(index: usize) -> Marker {
    MARKERS[(index + index / (COLOURS.len() * MARKERS.len())) % MARKERS.len()]
}

/// Lines of references, distinguished by dashes only.
pub(crate) fn reference(index: usize) -> Stroke {
    let dash = ["10 4", "2 3", "10 3 2 3", "5 2"][index % 4];
    Stroke { ink: if index < 4 { INK } else { DIM }, width: 1.3, dash }
}

/// Draws a marker centred at `position`.
pub(crate) fn mark(canvas: &mut Canvas, position: (f64, f64), marker: Marker, ink: Ink, size: f64) {
    let (x, y) = position;
    let s = size;
    let polygon = |points: &[(f64, f64)]| {
        let mut data = super::canvas::through(
            &points.iter().map(|(dx, dy)| (x + dx * s, y + dy * s)).collect::<Vec<_>>(),
        );
        data.push('Z');
        data
    };
    let circle = || {
        let r = number(s);
        let d = number(2.0 * s);
        format!("M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", number(x - s), number(y))
    };
    // A thin background rim separates overlapping markers.
    let rim = stroke(PAPER, 0.7);
    match marker {
        Marker::Circle => canvas.outlined(&circle(), ink, rim),
        Marker::Square => canvas.outlined(
            &polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            ink,
            rim,
        ),
        Marker::Up => {
            canvas.outlined(&polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]), ink, rim);
        }
        Marker::Down => {
            canvas.outlined(&polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]), ink, rim);
        }
        Marker::Diamond => canvas.outlined(
            &polygon(&[(0.0, -1.3), (1.15, 0.0), (0.0, 1.3), (-1.15, 0.0)]),
            ink,
            rim,
        ),
        Marker::OpenCircle => canvas.outlined(&circle(), PAPER, stroke(ink, 1.5)),
        Marker::OpenSquare => canvas.outlined(
            &polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            PAPER,
            stroke(ink, 1.5),
        ),
        Marker::Cross => {
            let arm = s * 0.95;
            canvas.line((x - arm, y - arm), (x + arm, y + arm), stroke(ink, 1.8));
            canvas.line((x - arm, y + arm), (x + arm, y - arm), stroke(ink, 1.8));
        }
    }
}

/// Many small points as one element: round ones, and square ones for every second series.
pub(crate) fn dots(canvas: &mut Canvas, places: &[(f64, f64)], index: usize) {
    let data: String =
        places.iter().map(|(x, y)| format!("M{} {}h0", number(*x), number(*y))).collect();
    let cap = if index.is_multiple_of(2) { "round" } else { "square" };
    // Many points are smaller, so that the density of a cloud shows.
    let width = if places.len() > 2000 { 1.7 } else { 3.4 };
    canvas.dots(&data, stroke(colour(index), width), cap);
}

/// Hatches a rectangle for the bars of group `index`; the first group is plain.
pub(crate) fn hatch(canvas: &mut Canvas, area: Area, index: usize) {
    let (rising, falling, gap) = match index % 5 {
        0 => return,
        1 => (true, false, 7.0),
        2 => (false, true, 7.0),
        3 => (true, true, 9.0),
        _ => (true, false, 4.0),
    };
    let mut data = String::new();
    if rising {
        data.push_str(&diagonals(area, gap, true));
    }
    if falling {
        data.push_str(&diagonals(area, gap, false));
    }
    canvas.path(&data, stroke(PAPER, 1.0));
}

/// Diagonal lines within a rectangle, as path data.
pub(crate) fn diagonals(area: Area, gap: f64, rising: bool) -> String {
    let Area { x, y, width, height } = area;
    let mut data = String::new();
    if !(width > 0.5 && height > 0.5 && width < 1e4 && height < 1e4) {
        return data;
    }
    // Lines u + v = offset in a frame whose v axis points down; mirrored for the other direction.
    let count = ((width + height) / gap) as usize;
    for step in 1..=count {
        let offset = step as f64 * gap;
        let start = if offset <= height { (0.0, offset) } else { (offset - height, height) };
        let end = if offset <= width { (offset, 0.0) } else { (width, offset - width) };
        let position = |(u, v): (f64, f64)| {
            let u = if rising { u } else { width - u };
            format!("{} {}", number(x + u), number(y + v))
        };
        data.push_str(&format!("M{}L{}", position(start), position(end)));
    }
    data
}

/// Colours of a heat map: viridis from dark to light. It also works in greyscale.
const VIRIDIS: [(u8, u8, u8); 9] = [
    (68, 1, 84),
    (71, 45, 123),
    (59, 82, 139),
    (44, 114, 142),
    (33, 145, 140),
    (40, 174, 128),
    (94, 201, 98),
    (173, 220, 48),
    (253, 231, 37),
];

/// The colour at `share` of the scale, and whether dark text is readable on it.
pub(crate) fn heat(share: f64) -> (String, bool) {
    let position = share.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (position as usize).min(VIRIDIS.len() - 2);
    let part = position - below as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    let (a, b) = (VIRIDIS[below], VIRIDIS[below + 1]);
    let (red, green, blue) = (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2));
    let light = 0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue);
    (format!("#{red:02x}{green:02x}{blue:02x}"), light > 130.0)
}
