//! Reduces points without changing the drawn line.
//!
//! Of the points in one column of pixels, the first, the smallest, the largest and the last are
//! kept (the M4 method). Every peak stays, and the line covers the same pixels. Columns are half a
//! unit wide, which is finer than the pixels of the written pictures.

const COLUMNS_PER_UNIT: f64 = 2.0;

/// Reduces points in drawing order.
pub(crate) fn decimate(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let column = |position: &(f64, f64)| (position.0 * COLUMNS_PER_UNIT).floor();
    let mut reduced = Vec::new();
    for run in places.chunk_by(|a, b| column(a) == column(b)) {
        if run.len() <= 4 {
            reduced.extend_from_slice(run);
            continue;
        }
        let by_height = |a: &usize, b: &usize| run[*a].1.total_cmp(&run[*b].1);
        let least = (0..run.len()).min_by(by_height).unwrap_or(0);
        let greatest = (0..run.len()).max_by(by_height).unwrap_or(0);
        let mut chosen = [0, least, greatest, run.len() - 1];
        chosen.sort_unstable();
        let mut before = None;
        for index in chosen {
            if before != Some(index) {
                reduced.push(run[index]);
            }
            before = Some(index);
        }
    }
    reduced
}

/// Removes markers that another marker covers exactly.
pub(crate) fn distinct(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut seen = std::collections::BTreeSet::new();
    places
        .iter()
        .copied()
        .filter(|(x, y)| seen.insert(((x * 2.0).round() as i64, (y * 2.0).round() as i64)))
        .collect()
}
