//! Interests that wait for a disk.

use weir_base::Instant;

use crate::io::{Event, Input, Outbox};
use crate::router::Router;

impl Router {
    /// An input that is no packet.
    pub(crate) fn handle_other(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        if let Input::Command(command) = input {
            self.apply(now, command, out);
        }
    }

    pub(crate) fn flush_store(&mut self, now: Instant, transaction: u64, out: &mut Outbox) {
        if !self.store.flush(now) {
            out.events.push(Event::StoreFlushed { transaction });
        }
    }
}
