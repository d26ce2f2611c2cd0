//! Drawings of transition diagrams (paper nb-cache, Fig. 8).

use std::fmt::Write as _;

use weir_queueing::nqueue::{Diagram, MoveKind};

const STEP: f64 = 130.0;
const MARGIN: f64 = 70.0;
const RADIUS: f64 = 26.0;
const ARRIVAL: &str = "#1f5fa8";
const SERVICE: &str = "#b3541e";

/// Positions of the states, in steps. With two queues the states form a grid: the length of the
/// first queue grows to the right, that of the second upwards. With more queues, each total number
/// of packets has a column.
fn positions(diagram: &Diagram) -> Vec<(f64, f64)> {
    if diagram.states.iter().all(|lengths| lengths.len() <= 2) {
        let high = diagram.states.iter().filter_map(|lengths| lengths.get(1)).max().unwrap_or(&0);
        let place = |lengths: &Vec<usize>| {
            let up = high - lengths.get(1).unwrap_or(&0);
            (lengths[0] as f64, up as f64)
        };
        return diagram.states.iter().map(place).collect();
    }
    let packets = |lengths: &Vec<usize>| lengths.iter().sum::<usize>();
    let most = diagram.states.iter().map(packets).max().unwrap_or(0);
    let mut columns = vec![0usize; most + 1];
    diagram.states.iter().for_each(|lengths| columns[packets(lengths)] += 1);
    let tallest = *columns.iter().max().unwrap_or(&1);
    let mut filled = vec![0usize; most + 1];
    let place = |lengths: &Vec<usize>| {
        let column = packets(lengths);
        // Columns with fewer states are centred.
        let row = filled[column] as f64 + (tallest - columns[column]) as f64 / 2.0;
        filled[column] += 1;
        (column as f64 * 1.6, row)
    };
    diagram.states.iter().map(place).collect()
}

/// Draws the diagram as SVG. The arrows are bent, so that two opposite ones do not overlap.
pub(super) fn svg(diagram: &Diagram, title: &str) -> String {
    let places: Vec<(f64, f64)> = positions(diagram)
        .into_iter()
        .map(|(x, y)| (MARGIN + x * STEP, MARGIN + 40.0 + y * STEP))
        .collect();
    let most = |coordinate: fn(&(f64, f64)) -> f64| {
        places.iter().map(coordinate).fold(0.0, f64::max) + MARGIN
    };
    let (width, height) = (most(|place| place.0).max(420.0), most(|place| place.1));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<defs>\n"
    );
    for (name, colour) in [("a", ARRIVAL), ("s", SERVICE)] {
        let _ = writeln!(
            text,
            "<marker id=\"{name}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" \
             markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" fill=\"{colour}\"/>\
             </marker>"
        );
    }
    text.push_str("</defs>\n");
    let _ = writeln!(
        text,
        "<text x=\"20\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"20\" y=\"50\" font-size=\"13\"><tspan fill=\"{ARRIVAL}\">λ arrival</tspan>\
         <tspan dx=\"14\" fill=\"{SERVICE}\">μ service</tspan></text>"
    );
    for step in &diagram.moves {
        arrow(&mut text, places[step.from], places[step.to], step.kind);
    }
    for (state, (x, y)) in places.iter().enumerate() {
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"#f4f6f8\" \
             stroke=\"#333\" stroke-width=\"1.5\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" \
             font-size=\"15\" text-anchor=\"middle\">{}</text>",
            y + 5.0,
            diagram.label(state)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// An arrow from the rim of one circle to the rim of another, bent to its right.
fn arrow(text: &mut String, from: (f64, f64), to: (f64, f64), kind: MoveKind) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    // Unit vectors: (ux, uy) along the arrow, (nx, ny) across it.
    let (ux, uy) = (dx / length, dy / length);
    let (nx, ny) = (-uy, ux);
    // Shift both ends sideways by about a third of the radius.
    let side = RADIUS * 0.35;
    let along = (RADIUS * RADIUS - side * side).sqrt() + 1.5;
    let (ax, ay) = (from.0 + ux * along + nx * side, from.1 + uy * along + ny * side);
    let (bx, by) = (to.0 - ux * along + nx * side, to.1 - uy * along + ny * side);
    let bend = side + length * 0.06;
    let (cx, cy) = ((ax + bx) / 2.0 + nx * bend, (ay + by) / 2.0 + ny * bend);
    let (marker, colour, rate) = match kind {
        MoveKind::Arrival => ("a", ARRIVAL, "λ"),
        MoveKind::Service => ("s", SERVICE, "μ"),
    };
    // The rate is next to the middle of the curve.
    let (lx, ly) =
        ((ax + bx) / 2.0 + nx * (bend / 2.0 + 11.0), (ay + by) / 2.0 + ny * (bend / 2.0 + 11.0));
    let _ = writeln!(
        text,
        "<path d=\"M{ax:.1} {ay:.1}Q{cx:.1} {cy:.1} {bx:.1} {by:.1}\" fill=\"none\" \
         stroke=\"{colour}\" stroke-width=\"1.4\" marker-end=\"url(#{marker})\"/>\n\
         <text x=\"{lx:.1}\" y=\"{:.1}\" font-size=\"13\" text-anchor=\"middle\" \
         fill=\"{colour}\">{rate}</text>",
        ly + 4.5
    );
}
