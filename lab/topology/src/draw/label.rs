//! Places labels where they hide little.

use super::layout::Point;

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Rect {
    pub(super) fn around(centre: Point, width: f64, height: f64) -> Self {
        let (left, top) = (centre.0 - width / 2.0, centre.1 - height / 2.0);
        Self { left, top, right: left + width, bottom: top + height }
    }

    pub(super) fn area(&self) -> f64 {
        (self.right - self.left) * (self.bottom - self.top)
    }

    pub(super) fn centre(&self) -> Point {
        ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }

    /// Common area of two rectangles.
    pub(super) fn shared(&self, other: &Self) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        if width > 0.0 && height > 0.0 { width * height } else { 0.0 }
    }

    /// Length of the part of a segment inside the rectangle (Liang and Barsky).
    fn length_inside(&self, (from, to): (Point, Point)) -> f64 {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (p, q) in [
            (-dx, from.0 - self.left),
            (dx, self.right - from.0),
            (-dy, from.1 - self.top),
            (dy, self.bottom - from.1),
        ] {
            if p == 0.0 {
                if q < 0.0 {
                    return 0.0;
                }
            } else if p < 0.0 {
                enter = enter.max(q / p);
            } else {
                leave = leave.min(q / p);
            }
        }
        if leave > enter { (leave - enter) * (dx * dx + dy * dy).sqrt() } else { 0.0 }
    }
}

/// A label with its possible positions, each with its own cost.
pub(super) struct Label {
    pub(super) places: Vec<(Rect, f64)>,
}

/// What labels should not hide.
pub(super) struct Scene<'a> {
    pub(super) frame: Rect,
    pub(super) nodes: &'a [Rect],
    pub(super) links: &'a [(Point, Point)],
}

impl Scene<'_> {
    /// Cost of a position independent of other labels.
    fn cost(&self, place: &Rect) -> f64 {
        let area = place.area().max(1e-9);
        let outside = 1.0 - place.shared(&self.frame) / area;
        let nodes: f64 = self.nodes.iter().map(|node| place.shared(node)).sum();
        let links: f64 = self.links.iter().map(|&link| place.length_inside(link)).sum();
        let height = (place.bottom - place.top).max(1e-9);
        60.0 * outside + 12.0 * nodes / area + 0.8 * links / height
    }

    /// Chooses a position for each label, given those written already.
    pub(super) fn choose(&self, labels: &mut [Label], written: &[Rect]) -> Vec<Rect> {
        for label in labels.iter_mut() {
            for (place, cost) in &mut label.places {
                let area = place.area().max(1e-9);
                let hidden: f64 = written.iter().map(|other| place.shared(other)).sum();
                *cost += self.cost(place) + 20.0 * hidden / area;
            }
        }
        let cheapest = |label: &Label| {
            let best = label.places.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            best.map_or(self.frame, |best| best.0)
        };
        let mut chosen: Vec<Rect> = labels.iter().map(cheapest).collect();
        // Improve the choice in rounds: each label moves to its cheapest position, given all
        // others.
        for _ in 0..6 {
            let mut changed = false;
            for (index, label) in labels.iter().enumerate() {
                let total = |place: &Rect, cost: f64| {
                    let others = chosen.iter().enumerate().filter(|&(other, _)| other != index);
                    let hidden: f64 = others.map(|(_, other)| place.shared(other)).sum();
                    cost + 20.0 * hidden / place.area().max(1e-9)
                };
                let costs = label.places.iter().map(|(place, cost)| (place, total(place, *cost)));
                let best = costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| *place);
                if let Some(best) = best.filter(|best| *best != chosen[index]) {
                    chosen[index] = best;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        chosen
    }
}

/// Positions around a node with a radius, the most readable first.
pub(super) fn around_node(at: Point, radius: f64, width: f64, height: f64) -> Label {
    let mut places = Vec::with_capacity(24);
    for (ring, gap) in [3.0, 9.0, 17.0].into_iter().enumerate() {
        let (out, corner) = (radius + gap, (radius + gap) * 0.7);
        let (right, down) = (out + width / 2.0, out + height / 2.0 - 1.0);
        let (corner_right, corner_down) = (corner + width / 2.0, corner + height / 2.0 - 1.0);
        let directions = [
            (right, 0.0, 0.0),
            (-right, 0.0, 0.25),
            (0.0, -down, 0.15),
            (0.0, down, 0.15),
            (corner_right, -corner_down, 0.1),
            (corner_right, corner_down, 0.1),
            (-corner_right, -corner_down, 0.3),
            (-corner_right, corner_down, 0.3),
        ];
        places.extend(directions.map(|(dx, dy, cost)| {
            let rect = Rect::around((at.0 + dx, at.1 + dy), width, height);
            (rect, cost + ring as f64 * 1.2)
        }));
    }
    Label { places }
}

/// Positions along a link, its middle first.
pub(super) fn along_link(at: impl Fn(f64) -> Point, width: f64, height: f64) -> Label {
    let place = |share: f64| (Rect::around(at(share), width, height), (share - 0.5).abs() * 4.0);
    Label { places: [0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72, 0.2, 0.8].map(place).to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_clipped() {
        let rect = Rect::around((0.0, 0.0), 4.0, 2.0);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(rect.length_inside(((-9.0, 0.0), (9.0, 0.0))), 4.0));
        assert!(near(rect.length_inside(((0.0, 0.0), (0.0, 9.0))), 1.0));
        assert_eq!(rect.length_inside(((-9.0, 3.0), (9.0, 3.0))), 0.0);
        assert_eq!(rect.length_inside(((5.0, -9.0), (5.0, 9.0))), 0.0);
    }

    #[test]
    fn labels_at_one_point_do_not_overlap() {
        let nodes = [Rect::around((50.0, 50.0), 8.0, 8.0), Rect::around((58.0, 50.0), 8.0, 8.0)];
        let frame = Rect::around((50.0, 50.0), 200.0, 200.0);
        let links = [((50.0, 50.0), (90.0, 20.0))];
        let mut labels = vec![
            around_node((50.0, 50.0), 4.0, 40.0, 10.0),
            around_node((58.0, 50.0), 4.0, 40.0, 10.0),
        ];
        let scene = Scene { frame, nodes: &nodes, links: &links };
        let chosen = scene.choose(&mut labels, &[]);
        assert_eq!(chosen[0].shared(&chosen[1]), 0.0);
        for place in &chosen {
            assert!(nodes.iter().all(|node| place.shared(node) == 0.0));
            assert_eq!(place.length_inside(links[0]), 0.0);
        }
    }
}
