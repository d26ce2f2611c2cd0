//! The standard output of a run's processes, as JSON lines by node.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::Value;

use super::process::OutputLine;

/// How often the request to stop is checked.
pub(super) const STOP_CHECK: Duration = Duration::from_millis(20);

/// Why waiting for output ended early.
pub(super) enum Interruption {
    /// The process of this node has ended, and no end was expected.
    Ended(usize),
    /// The run should stop.
    Stop,
}

/// Buffers the output of processes.
pub(super) struct Outputs {
    stop: Arc<AtomicBool>,
    received: Receiver<OutputLine>,
    sender: Sender<OutputLine>,
    next_number: usize,
    /// The node of each process by its number, without processes that were stopped on purpose.
    nodes: HashMap<usize, usize>,
    /// Unread lines by node.
    lines: HashMap<usize, VecDeque<Value>>,
    /// Nodes whose processes have ended, once ends are expected.
    ended: BTreeSet<usize>,
    is_ending: bool,
}

impl Outputs {
    pub(super) fn new(stop: Arc<AtomicBool>) -> Self {
        let (sender, received) = channel();
        Self {
            stop,
            received,
            sender,
            next_number: 0,
            nodes: HashMap::new(),
            lines: HashMap::new(),
            ended: BTreeSet::new(),
            is_ending: false,
        }
    }

    /// Adds a process of `node`. Returns its number and the channel for its output.
    pub(super) fn add(&mut self, node: usize) -> (usize, Sender<OutputLine>) {
        let number = self.next_number;
        self.next_number += 1;
        self.nodes.insert(number, node);
        (number, self.sender.clone())
    }

    /// Ignores the processes of `node` from now on, because they are stopped on purpose.
    pub(super) fn remove(&mut self, node: usize) {
        self.nodes.retain(|_, &mut of| of != node);
    }

    /// From here on, the end of a process is expected.
    pub(super) fn expect_ends(&mut self) {
        self.is_ending = true;
    }

    /// Whether the process of `node` has ended since ends are expected.
    pub(super) fn has_ended(&self, node: usize) -> bool {
        self.ended.contains(&node)
    }

    /// Takes the next line of `node` that has `key`, and drops the lines before it.
    pub(super) fn next_with(&mut self, node: usize, key: &str) -> Option<Value> {
        let lines = self.lines.entry(node).or_default();
        while let Some(line) = lines.pop_front() {
            if line.get(key).is_some() {
                return Some(line);
            }
        }
        None
    }

    /// Whether an unread line of `node` has `key`.
    pub(super) fn has_line_with(&self, node: usize, key: &str) -> bool {
        let mut lines = self.lines.get(&node).into_iter().flatten();
        lines.any(|line| line.get(key).is_some())
    }

    /// Waits for at most `patience` for one line of any process.
    ///
    /// # Errors
    /// A process has ended unexpectedly, or the run should stop.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<(), Interruption> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interruption::Stop);
        }
        match self.received.recv_timeout(patience.min(STOP_CHECK)) {
            Ok(OutputLine { process, line }) => {
                let Some(&node) = self.nodes.get(&process) else {
                    return Ok(());
                };
                let Some(line) = line else {
                    if !self.is_ending {
                        return Err(Interruption::Ended(node));
                    }
                    self.ended.insert(node);
                    return Ok(());
                };
                if let Ok(value) = serde_json::from_str::<Value>(&line) {
                    self.lines.entry(node).or_default().push_back(value);
                }
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // This value holds a sender itself.
            Err(RecvTimeoutError::Disconnected) => Err(Interruption::Stop),
        }
    }
}
