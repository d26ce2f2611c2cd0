//! The transition diagram of the chain (paper nb-cache, Fig. 8), by the paper's rules.

use std::fmt::Write as _;

use super::Model;

/// The transitions of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagram {
    /// The queue lengths of each state, indexed by its number. The first queue's length varies
    /// slowest: 00, 01, 10, 11.
    pub states: Vec<Vec<usize>>,
    /// The transitions, by state of origin.
    pub moves: Vec<Move>,
}

/// A transition between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// State of origin.
    pub from: usize,
    /// Target state.
    pub to: usize,
    pub kind: MoveKind,
}

/// The kind of a transition, which gives its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveKind {
    /// A packet arrives, at rate lambda.
    Arrival,
    /// A packet is served, at rate mu.
    Service,
}

/// The whole diagram of a small model (section IV-C). Every state has one transition by arrival,
/// into the first queue that is not full; a state with all queues full has none. It has one
/// transition by service for each busy queue.
///
/// The caller limits the number of states, `(threshold + 1)^queues`.
pub fn diagram(model: &Model) -> Diagram {
    let (queues, base) = (model.queues, model.threshold + 1);
    let count = base.pow(queues as u32);
    let digit = |queue: usize| base.pow((queues - 1 - queue) as u32);
    let states: Vec<Vec<usize>> = (0..count)
        .map(|state| (0..queues).map(|queue| state / digit(queue) % base).collect())
        .collect();
    let mut moves = Vec::new();
    for (from, lengths) in states.iter().enumerate() {
        if let Some(queue) = lengths.iter().position(|length| *length < model.threshold) {
            moves.push(Move { from, to: from + digit(queue), kind: MoveKind::Arrival });
        }
        for (queue, _) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            moves.push(Move { from, to: from - digit(queue), kind: MoveKind::Service });
        }
    }
    Diagram { states, moves }
}

impl Diagram {
    /// A state's name: its queue lengths as digits (`10`), with commas if one needs two digits.
    pub fn label(&self, state: usize) -> String {
        let lengths = &self.states[state];
        let wide = self.states.iter().flatten().any(|length| *length > 9);
        let digits: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        digits.join(if wide { "," } else { "" })
    }

    /// The diagram in the language of Graphviz.
    pub fn to_dot(&self, name: &str) -> String {
        let mut text =
            format!("digraph \"{name}\" {{\n  rankdir = LR;\n  node [shape = circle];\n");
        for state in 0..self.states.len() {
            let _ = writeln!(text, "  s{state} [label = \"{}\"];", self.label(state));
        }
        for step in &self.moves {
            let rate = match step.kind {
                MoveKind::Arrival => "λ",
                MoveKind::Service => "μ",
            };
            let _ = writeln!(text, "  s{} -> s{} [label = \"{rate}\"];", step.from, step.to);
        }
        text.push_str("}\n");
        text
    }
}
