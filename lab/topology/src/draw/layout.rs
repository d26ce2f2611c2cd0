//! Positions nodes: at their own positions, or so that distances in the picture follow those in the
//! graph.

use weir_base::Rng;

use super::Placement;
use crate::model::{Coordinates, Topology};

pub(super) type Point = (f64, f64);

/// Larger components use distances from some nodes only.
const EXACT_NODES_MAX: usize = 600;
/// Nodes whose distances to all others are used in a larger component.
const PIVOTS: usize = 64;
/// Rounds of the descent. The paper has good results after 15, but a line becomes straight only
/// after hundreds.
const ROUNDS: usize = 400;
/// Limit on moves of pairs; more pairs have fewer rounds.
const MOVES_MAX: usize = 8_000_000;
/// With more nodes, overlapping nodes are not separated.
const SEPARATE_NODES_MAX: usize = 3_000;

fn minus(a: Point, b: Point) -> Point {
    (a.0 - b.0, a.1 - b.1)
}

fn length(a: Point) -> f64 {
    (a.0 * a.0 + a.1 * a.1).sqrt()
}

/// Smallest and largest coordinates.
pub(super) fn bounds(points: &[Point]) -> (Point, Point) {
    let start = ((f64::INFINITY, f64::INFINITY), (f64::NEG_INFINITY, f64::NEG_INFINITY));
    points.iter().fold(start, |(low, high), point| {
        ((low.0.min(point.0), low.1.min(point.1)), (high.0.max(point.0), high.1.max(point.1)))
    })
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Median distance of a node to its nearest neighbour, over at most 1,000 nodes.
pub(super) fn median_gap(points: &[Point]) -> Option<f64> {
    let every = points.len() / 1_000 + 1;
    let gap = |index: usize| {
        let others = points.iter().enumerate().filter(|&(other, _)| other != index);
        others.map(|(_, &other)| length(minus(points[index], other))).fold(f64::INFINITY, f64::min)
    };
    median((0..points.len()).step_by(every).map(gap).filter(|gap| gap.is_finite()).collect())
}

/// Positions of all nodes in any unit, with y pointing down.
pub(super) fn place(topology: &Topology, placement: Placement) -> Vec<Point> {
    let nodes = topology.nodes();
    let placed = nodes.iter().filter(|node| node.position.is_some()).count();
    let mut points = match placement == Placement::Auto && placed > 0 && 2 * placed >= nodes.len() {
        true => own_positions(topology),
        false => by_stress(topology),
    };
    separate(&mut points);
    points
}

/// The nodes' own positions. Nodes without one are placed near a neighbour.
fn own_positions(topology: &Topology) -> Vec<Point> {
    let placed = topology.nodes().iter().filter_map(|node| node.position);
    let latitudes: Vec<f64> = placed.map(|(_, y)| y).collect();
    let stretch = match topology.coordinates() {
        Coordinates::Plane => 1.0,
        // A degree of longitude is shorter than a degree of latitude, by the cosine of the
        // latitude.
        Coordinates::Geographic => {
            let mean = latitudes.iter().sum::<f64>() / latitudes.len().max(1) as f64;
            mean.to_radians().cos().max(0.05)
        }
    };
    let mut points: Vec<Option<Point>> =
        topology.nodes().iter().map(|node| node.position.map(|(x, y)| (x * stretch, -y))).collect();
    let known: Vec<Point> = points.iter().flatten().copied().collect();
    let (low, high) = bounds(&known);
    let extent = length(minus(high, low));
    let lengths = topology.links().iter().filter_map(|link| {
        Some(length(minus(points[link.a]?, points[link.b]?))).filter(|&length| length > 0.0)
    });
    let reach = median(lengths.collect()).map_or(extent * 0.1, |typical| typical * 0.4);
    place_unpositioned(topology, &mut points, if reach > 0.0 { reach } else { 1.0 });
    points.into_iter().map(|point| point.unwrap_or(high)).collect()
}

/// Places nodes without a position in a fan around a neighbour that has one, in its widest gap.
/// Components without any position form a row below.
fn place_unpositioned(topology: &Topology, points: &mut [Option<Point>], reach: f64) {
    let neighbours = topology.neighbours();
    let mut queue: Vec<usize> = (0..points.len()).filter(|&node| points[node].is_some()).collect();
    let lowest = queue.iter().filter_map(|&node| points[node]).map(|point| point.1);
    let below = lowest.fold(f64::NEG_INFINITY, f64::max) + reach;
    let left = queue.iter().filter_map(|&node| points[node]).map(|point| point.0);
    let (mut right, mut next, mut scan) = (left.fold(f64::INFINITY, f64::min), 0, 0);
    loop {
        while let Some(&node) = queue.get(next) {
            next += 1;
            // 1. Breadth first: place the neighbours of nodes that have a position.
            let Some(centre) = points[node] else { continue };
            let mut without: Vec<usize> =
                neighbours[node].iter().map(|&(_, other)| other).collect();
            without.retain(|&other| points[other].is_none());
            without.sort_unstable();
            without.dedup();
            let angles = neighbours[node].iter().filter_map(|&(_, other)| {
                let (dx, dy) = minus(points[other]?, centre);
                Some(dy.atan2(dx))
            });
            let (from, width) = widest_gap(angles.collect());
            for (index, &other) in without.iter().enumerate() {
                let share = (index + 1) as f64 / (without.len() + 1) as f64;
                let angle = from + width * share;
                points[other] =
                    Some((centre.0 + reach * angle.cos(), centre.1 + reach * angle.sin()));
                queue.push(other);
            }
        }
        // 2. The next node without a position starts a component of its own, below the others.
        while scan < points.len() && points[scan].is_some() {
            scan += 1;
        }
        if scan == points.len() {
            return;
        }
        points[scan] = Some((right, below));
        right += 2.0 * reach;
        queue.push(scan);
    }
}

/// Start and width of the widest gap between directions; a full circle without any.
fn widest_gap(mut angles: Vec<f64>) -> (f64, f64) {
    use std::f64::consts::TAU;
    angles.sort_unstable_by(f64::total_cmp);
    let Some((&first, &last)) = angles.first().zip(angles.last()) else { return (0.0, TAU) };
    let around = (last, first + TAU - last);
    let between = angles.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
    between.fold(around, |best, gap| if gap.1 > best.1 { gap } else { best })
}

/// Separates nodes that would hide each other.
fn separate(points: &mut [Point]) {
    if points.len() < 2 || points.len() > SEPARATE_NODES_MAX {
        return;
    }
    let (low, high) = bounds(points);
    let extent = length(minus(high, low)).max(1e-9);
    let least = extent * (0.35 / (points.len() as f64).sqrt()).min(0.035);
    for _ in 0..80 {
        let mut moved = false;
        for a in 0..points.len() {
            for b in a + 1..points.len() {
                let difference = minus(points[b], points[a]);
                let distance = length(difference);
                if distance >= least * 0.99 {
                    continue;
                }
                // Nodes at the same position move in different directions, a golden angle apart.
                let angle = b as f64 * 2.399_963;
                let direction = match distance > least * 1e-3 {
                    true => (difference.0 / distance, difference.1 / distance),
                    false => (angle.cos(), angle.sin()),
                };
                let by = (least - distance) / 2.0;
                points[a] = minus(points[a], (direction.0 * by, direction.1 * by));
                points[b] = minus(points[b], (-direction.0 * by, -direction.1 * by));
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// Lays out every component. The components then fill rows of limited width, the largest first.
fn by_stress(topology: &Topology) -> Vec<Point> {
    let neighbours: Vec<Vec<usize>> = topology
        .neighbours()
        .into_iter()
        .map(|list| list.into_iter().map(|(_, other)| other).collect())
        .collect();
    let mut parts: Vec<(Vec<usize>, Vec<Point>)> = topology
        .components()
        .into_iter()
        .map(|part| {
            let points = layout_component(&neighbours, &part);
            (part, points)
        })
        .collect();
    parts.sort_by_key(|(part, _)| std::cmp::Reverse(part.len()));
    let size = |points: &[Point]| {
        let (low, high) = bounds(points);
        (low, (high.0 - low.0 + 1.5, high.1 - low.1 + 1.5))
    };
    let sizes: Vec<_> = parts.iter().map(|(_, points)| size(points)).collect();
    let area: f64 = sizes.iter().map(|(_, (width, height))| width * height).sum();
    // Rows of this width give a picture about 1.7 times as wide as high.
    let widest = sizes.iter().map(|(_, size)| size.0).fold((area * 1.7).sqrt(), f64::max);
    let mut points = vec![(0.0, 0.0); topology.nodes().len()];
    let (mut x, mut y, mut shelf) = (0.0, 0.0, 0.0f64);
    for ((part, own), (low, (width, height))) in parts.iter().zip(sizes) {
        if x > 0.0 && x + width > widest {
            (x, y, shelf) = (0.0, y + shelf, 0.0);
        }
        for (&node, point) in part.iter().zip(own) {
            points[node] = (point.0 - low.0 + x, point.1 - low.1 + y);
        }
        x += width;
        shelf = shelf.max(height);
    }
    points
}

/// Minimises the stress of one component by stochastic gradient descent over pairs of nodes (Zheng,
/// Pawar, Goodman: Graph Drawing by Stochastic Gradient Descent, 2018).
fn layout_component(neighbours: &[Vec<usize>], part: &[usize]) -> Vec<Point> {
    let count = part.len();
    let mut rng = Rng::from_seed(count as u64);
    let mut unit = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
    let mut points: Vec<Point> = (0..count).map(|_| (unit(), unit())).collect();
    let mut pairs = component_pairs(neighbours, part);
    let furthest = pairs.iter().map(|pair| pair.distance).fold(1.0, f64::max);
    let rounds = (MOVES_MAX / pairs.len().max(1)).clamp(30, ROUNDS);
    // The step shrinks geometrically. At first it moves even the most distant pair fully, at the
    // end neighbours by 3 %.
    let (first, last): (f64, f64) = (furthest * furthest, 0.03);
    let factor = (last / first).powf(1.0 / (rounds - 1) as f64);
    let mut step = first;
    for _ in 0..rounds {
        // A new random order each round: a fixed one would favour the first pairs.
        for index in (1..pairs.len()).rev() {
            pairs.swap(index, rng.below(index as u32 + 1) as usize);
        }
        for &Pair { a, b, distance, fixed } in &pairs {
            let difference = minus(points[a], points[b]);
            let now = length(difference).max(1e-9);
            let share = (step / (distance * distance)).min(1.0);
            let by = share * (now - distance) / 2.0 / now;
            if !fixed {
                points[a] = minus(points[a], (difference.0 * by, difference.1 * by));
            }
            points[b] = minus(points[b], (-difference.0 * by, -difference.1 * by));
        }
        step *= factor;
    }
    lay_flat(&mut points);
    points
}

/// Two nodes (indices in their component) and their distance in links.
struct Pair {
    a: usize,
    b: usize,
    distance: f64,
    /// Only `b` moves: `a` is in many pairs, and each would move it again.
    fixed: bool,
}

/// All pairs of nodes. Large components use only the pairs of some distant nodes, and all links.
fn component_pairs(neighbours: &[Vec<usize>], part: &[usize]) -> Vec<Pair> {
    let mut index_of = vec![usize::MAX; neighbours.len()];
    for (index, &node) in part.iter().enumerate() {
        index_of[node] = index;
    }
    let distances_from = |start: usize| {
        let mut distance = vec![u32::MAX; part.len()];
        let mut queue = vec![start];
        distance[start] = 0;
        let mut next = 0;
        while next < queue.len() {
            let node = queue[next];
            next += 1;
            for &other in &neighbours[part[node]] {
                let other = index_of[other];
                if distance[other] == u32::MAX {
                    distance[other] = distance[node] + 1;
                    queue.push(other);
                }
            }
        }
        distance
    };
    let mut pairs = Vec::new();
    if part.len() <= EXACT_NODES_MAX {
        for a in 0..part.len() {
            let distance = distances_from(a);
            let far = |b: usize| Pair { a, b, distance: f64::from(distance[b]), fixed: false };
            pairs.extend((a + 1..part.len()).map(far));
        }
        return pairs;
    }
    let mut nearest = vec![u32::MAX; part.len()];
    let mut pivot = 0;
    for _ in 0..PIVOTS {
        let distance = distances_from(pivot);
        let others = (0..part.len()).filter(|&other| other != pivot);
        let far = |b: usize| Pair { a: pivot, b, distance: f64::from(distance[b]), fixed: true };
        pairs.extend(others.map(far));
        for (nearest, distance) in nearest.iter_mut().zip(distance) {
            *nearest = (*nearest).min(distance);
        }
        // The next pivot is the node furthest from all pivots so far; the first of several.
        pivot = (0..part.len()).rev().max_by_key(|&node| nearest[node]).unwrap_or(0);
    }
    for (a, &node) in part.iter().enumerate() {
        let linked = neighbours[node].iter().map(|&other| index_of[other]);
        let near = |b: usize| Pair { a, b, distance: 1.0, fixed: false };
        pairs.extend(linked.filter(|&b| a < b).map(near));
    }
    pairs
}

/// Rotates the points so that they are widest horizontally.
fn lay_flat(points: &mut [Point]) {
    let count = points.len() as f64;
    let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let centre = (sum.0 / count, sum.1 / count);
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for point in points.iter() {
        let (x, y) = minus(*point, centre);
        (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
    }
    // The direction of the largest variance.
    let angle = 0.5 * (2.0 * xy).atan2(xx - yy);
    let (sin, cos) = angle.sin_cos();
    for point in points.iter_mut() {
        let (x, y) = minus(*point, centre);
        *point = (x * cos + y * sin, y * cos - x * sin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{LinkDefaults, barabasi_albert, grid, line};
    use crate::model::{Link, Node};

    #[test]
    fn a_line_is_laid_out_as_a_line() {
        let row = line(9, &LinkDefaults::default()).unwrap();
        let points = place(&row, Placement::Stress);
        let (low, high) = bounds(&points);
        assert!((high.0 - low.0 - 8.0).abs() < 0.2, "{points:?}");
        assert!(high.1 - low.1 < 0.3, "{points:?}");
    }

    #[test]
    fn links_of_a_grid_come_out_about_equally_long() {
        let generated = grid(6, 6, &LinkDefaults::default()).unwrap();
        let points = place(&generated, Placement::Stress);
        for link in generated.links() {
            let long = length(minus(points[link.a], points[link.b]));
            assert!((0.5..1.5).contains(&long), "{long}");
        }
    }

    #[test]
    fn nodes_do_not_overlap() {
        let mut same: Vec<_> =
            (0..5).map(|index| Node::new(format!("s{index}")).at(1.0, 1.0)).collect();
        same.push(Node::new("far").at(9.0, 1.0));
        same.push(Node::new("unplaced"));
        let links = vec![Link::new(5, 6)];
        let close = Topology::new("", Coordinates::Plane, same, links).unwrap();
        let large = barabasi_albert(700, 2, &LinkDefaults::default(), 3).unwrap();
        for (topology, least) in [(close, 0.02), (large, 0.004)] {
            let points = place(&topology, Placement::Auto);
            let (low, high) = bounds(&points);
            let extent = length(minus(high, low));
            for a in 0..points.len() {
                for b in 0..a {
                    let distance = length(minus(points[a], points[b]));
                    assert!(distance > extent * least, "{a} {b} {distance} {extent}");
                }
            }
        }
    }

    #[test]
    fn components_do_not_overlap() {
        let nodes = (0..8).map(|index| Node::new(format!("n{index}"))).collect();
        let links = [(0, 1), (1, 2), (3, 4), (5, 6)].map(|(a, b)| Link::new(a, b)).to_vec();
        let topology = Topology::new("", Coordinates::Plane, nodes, links).unwrap();
        let points = place(&topology, Placement::Auto);
        let parts = topology.components();
        assert_eq!(parts.len(), 4);
        let of =
            |part: &[usize]| bounds(&part.iter().map(|&node| points[node]).collect::<Vec<_>>());
        for (index, a) in parts.iter().enumerate() {
            for b in &parts[..index] {
                let ((a_low, a_high), (b_low, b_high)) = (of(a), of(b));
                let apart = a_high.0 < b_low.0
                    || b_high.0 < a_low.0
                    || a_high.1 < b_low.1
                    || b_high.1 < a_low.1;
                assert!(apart, "{a:?} {b:?}");
            }
        }
    }
}
