//! Commands without an answer.

use std::collections::{BTreeMap, VecDeque};

use weir_base::{Instant, NS_PER_S};
use weir_wire::{Name, NameView};

/// An answer that arrives later than this is not recognized.
const ANSWER_WAIT_NS: u64 = 30 * NS_PER_S;

/// The commands that a connector has sent for itself, and what each is about. A command whose
/// answer is no longer needed stays here, because that answer may be late and is no packet for the
/// caller. The name of an answer does not show that: callers send commands below the same prefixes.
pub(super) struct PendingCommands<S> {
    /// `None`: the answer is not needed.
    by_name: BTreeMap<Name, Option<S>>,
    /// All of `by_name`, and some that were answered, in the order in which they were sent.
    by_age: VecDeque<(Instant, Name)>,
}

impl<S> PendingCommands<S> {
    pub(super) fn new() -> Self {
        Self { by_name: BTreeMap::new(), by_age: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn insert(&mut self, now: Instant, name: Name, subject: Option<S>) {
        self.by_age.push_back((now, name.clone()));
        self.by_name.insert(name, subject);
    }

    /// The answer to this command is no longer needed.
    pub(super) fn forget(&mut self, name: &Name) {
        if let Some(subject) = self.by_name.get_mut(name) {
            *subject = None;
        }
    }

    /// Whether a packet of this name answers a command.
    pub(super) fn contains(&self, name: NameView<'_>) -> bool {
        self.by_name.contains_key(&name.to_name())
    }

    /// Removes an answered command.
    pub(super) fn take(&mut self, name: NameView<'_>) -> Option<S> {
        let subject = self.by_name.remove(&name.to_name()).flatten();
        if self.by_name.is_empty() {
            self.by_age.clear();
        }
        subject
    }

    /// Removes the commands whose answers are not expected any more.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_expiry().is_some_and(|at| at <= now) {
            let (_, name) = self.by_age.pop_front().expect("there is one");
            self.by_name.remove(&name);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.by_age.front().map(|(sent_at, _)| sent_at.plus_ns(ANSWER_WAIT_NS))
    }
}
