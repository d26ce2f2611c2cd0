#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, Variable};

/// A network, its files and the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementProblem {
    /// Hops between routers.
    pub hops: Vec<Vec<u32>>,
    /// The router that produces each file, and the file's number of blocks.
    pub files: Vec<(usize, usize)>,
    /// Capacity of each router in blocks.
    pub capacity: Vec<usize>,
    /// Number of requests of each router for each file.
    pub requests: Vec<Vec<u32>>,
}

/// How many routers may store a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    One,
    /// As many as have capacity.
    Any,
}

/// Why there is no optimal placement.
#[derive(Debug, thiserror::Error)]
pub enum OptimumError {
    #[error("the solver says: {0}")]
    Solver(#[from] Error),
    /// The solver did not finish.
    #[error("the solver has found no placement")]
    Unsolved,
}

/// The routers that store each block, by file and block.
pub type BlockPlacement = Vec<Vec<Vec<usize>>>;

impl PlacementProblem {
    fn routers(&self) -> std::ops::Range<usize> {
        0..self.capacity.len()
    }

    /// Hops that a router saves for all requests of a file if it alone stores one of its blocks.
    fn saved(&self, consumer: usize, file: usize, keeper: usize) -> u32 {
        let (producer, _) = self.files[file];
        let per_request = self.hops[consumer][producer].saturating_sub(self.hops[consumer][keeper]);
        per_request * self.requests[consumer][file]
    }

    /// Total hops of all blocks of all requests, each from the nearest router that stores it or
    /// from its producer.
    pub fn cost(&self, placement: &BlockPlacement) -> u64 {
        let mut hops = 0;
        for consumer in self.routers() {
            for (file, &(producer, _)) in self.files.iter().enumerate() {
                let from_producer = self.hops[consumer][producer];
                for keepers in &placement[file] {
                    let nearest = keepers.iter().map(|&keeper| self.hops[consumer][keeper]).min();
                    let each = nearest.unwrap_or(from_producer).min(from_producer);
                    hops += u64::from(each) * u64::from(self.requests[consumer][file]);
                }
            }
        }
        hops
    }

    pub fn empty(&self) -> BlockPlacement {
        self.files.iter().map(|&(_, blocks)| vec![Vec::new(); blocks]).collect()
    }
}

/// A placement with the lowest [cost](PlacementProblem::cost).
///
/// # Errors
/// The solver failed.
pub fn best(case: &PlacementProblem, copies: Copies) -> Result<BlockPlacement, OptimumError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut stored: Vec<Vec<Variable>> = vec![Vec::new(); case.capacity.len()];
    let mut choices: Vec<(usize, usize, usize, Variable)> = Vec::new();
    for (file, &(_, blocks)) in case.files.iter().enumerate() {
        let saved_by =
            |keeper| case.routers().map(move |consumer| case.saved(consumer, file, keeper));
        let keepers: Vec<usize> =
            case.routers().filter(|&keeper| saved_by(keeper).any(|saved| saved > 0)).collect();
        for block in 0..blocks {
            let of_block: Vec<(usize, Variable)> = keepers
                .iter()
                .map(|&keeper| {
                    let saved = match copies {
                        Copies::One => saved_by(keeper).sum(),
                        Copies::Any => 0,
                    };
                    (keeper, problem.add_binary_var(f64::from(saved)))
                })
                .collect();
            for &(keeper, variable) in &of_block {
                stored[keeper].push(variable);
                choices.push((file, block, keeper, variable));
            }
            match copies {
                Copies::One => {
                    add_upper_bound(&mut problem, of_block.iter().map(|(_, one)| *one), 1)
                }
                Copies::Any => add_consumer_terms(&mut problem, case, file, &of_block),
            }
        }
    }
    for (&room, stored) in case.capacity.iter().zip(&stored) {
        add_upper_bound(&mut problem, stored.iter().copied(), room);
    }
    let solved = problem.solve()?.into_solution().map_err(|_| OptimumError::Unsolved)?;
    let mut placement = case.empty();
    for (file, block, keeper, variable) in choices {
        if solved.var_value(variable) > 0.5 {
            placement[file][block].push(keeper);
        }
    }
    Ok(placement)
}

/// Each consumer gets a block from one of the routers that store it.
fn add_consumer_terms(
    problem: &mut Problem,
    case: &PlacementProblem,
    file: usize,
    of_block: &[(usize, Variable)],
) {
    for consumer in case.routers() {
        let mut requests = Vec::new();
        for &(keeper, variable) in of_block {
            let saved = case.saved(consumer, file, keeper);
            if saved > 0 {
                let request = problem.add_var(f64::from(saved), (0.0, 1.0));
                problem.add_constraint([(request, 1.0), (variable, -1.0)], ComparisonOp::Le, 0.0);
                requests.push(request);
            }
        }
        add_upper_bound(problem, requests.into_iter(), 1);
    }
}

fn add_upper_bound(problem: &mut Problem, of: impl Iterator<Item = Variable>, count: usize) {
    let terms: Vec<(Variable, f64)> = of.map(|variable| (variable, 1.0)).collect();
    if terms.len() > count {
        problem.add_constraint(&terms, ComparisonOp::Le, count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lowest cost over all placements of three blocks of two files in two routers with
    /// capacity 1 or 2.
    fn brute_force_cost(case: &PlacementProblem, copies: Copies) -> u64 {
        let mut least = u64::MAX;
        for bits in 0_u32..64 {
            let mut placement = case.empty();
            let mut taken = [0; 2];
            let mut most = 0;
            let blocks = [(0, 0), (0, 1), (1, 0)];
            for (at, (file, block)) in blocks.into_iter().enumerate() {
                for (router, taken) in taken.iter_mut().enumerate() {
                    if bits >> (2 * at + router) & 1 == 1 {
                        placement[file][block].push(router);
                        *taken += 1;
                    }
                }
                most = most.max(placement[file][block].len());
            }
            let fits = taken.iter().zip(&case.capacity).all(|(taken, room)| taken <= room);
            if fits && (copies == Copies::Any || most <= 1) {
                least = least.min(case.cost(&placement));
            }
        }
        least
    }

    proptest! {
        #[test]
        fn no_placement_is_better(
            requests in proptest::collection::vec(0_u32..5, 4),
            room in proptest::collection::vec(0_usize..3, 2),
        ) {
            // Routers 0 and 1 are neighbours; the producer, 2, is 2 hops from 0 and 3 from 1.
            let case = PlacementProblem {
                hops: vec![vec![0, 1, 2], vec![1, 0, 3], vec![2, 3, 0]],
                files: vec![(2, 2), (2, 1)],
                capacity: vec![room[0], room[1], 0],
                requests: vec![requests[..2].to_vec(), requests[2..].to_vec(), vec![0, 0]],
            };
            for copies in [Copies::One, Copies::Any] {
                let placement = best(&case, copies).unwrap();
                prop_assert_eq!(case.cost(&placement), brute_force_cost(&case, copies));
            }
        }
    }
}
