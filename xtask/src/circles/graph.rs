//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::path::{Path, PathBuf};

/// From file to file, with a label for each edge.
pub(super) type Graph<E> = BTreeMap<PathBuf, BTreeMap<PathBuf, E>>;

/// Sets of at least two files, or of one with an edge to itself, where each reaches each: the
/// strongly connected components.
pub(super) fn circles<E>(graph: &Graph<E>) -> Vec<BTreeSet<PathBuf>> {
    let reach: BTreeMap<&Path, BTreeSet<&Path>> =
        graph.keys().map(|file| (file.as_path(), reachable(graph, file))).collect();
    let mut circles: Vec<BTreeSet<PathBuf>> = Vec::new();
    for (&file, ahead) in &reach {
        let is_known = circles.iter().any(|circle| circle.contains(file));
        if is_known || !ahead.contains(file) {
            continue;
        }
        let comes_back = |to: &&Path| reach.get(to).is_some_and(|back| back.contains(file));
        let members = ahead.iter().copied().filter(comes_back);
        circles.push(members.map(Path::to_path_buf).collect());
    }
    circles
}

fn reachable<'a, E>(graph: &'a Graph<E>, from: &Path) -> BTreeSet<&'a Path> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&Path> = vec![from];
    while let Some(file) = left.pop() {
        for to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to.as_path()) {
                left.push(to);
            }
        }
    }
    seen
}

/// The files of the shortest path around, with the first file again at the end.
pub(super) fn shortest_way<E>(circle: &BTreeSet<PathBuf>, graph: &Graph<E>) -> Vec<PathBuf> {
    let ways = circle.iter().filter_map(|file| way_around(file, circle, graph));
    ways.min_by_key(Vec::len).unwrap_or_default()
}

fn way_around<E>(
    from: &PathBuf,
    circle: &BTreeSet<PathBuf>,
    graph: &Graph<E>,
) -> Option<Vec<PathBuf>> {
    let mut before: BTreeMap<&PathBuf, &PathBuf> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(file) = queue.pop_front() {
        for to in graph.get(file)?.keys().filter(|to| circle.contains(*to)) {
            if to == from {
                let back = iter::successors(Some(file), |at| before.get(at).copied());
                let mut way: Vec<PathBuf> = back.cloned().collect();
                way.reverse();
                way.push(from.clone());
                return Some(way);
            }
            if !before.contains_key(to) {
                before.insert(to, file);
                queue.push_back(to);
            }
        }
    }
    None
}
