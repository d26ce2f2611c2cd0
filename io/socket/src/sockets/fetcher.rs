//! Starts the fetches of a reader.

use std::ops::Range;
use std::sync::Arc;

use weir_transport::Target;

use super::fetches::{Fetch, SharedTrust};
use super::inbox::Inbox;
use super::{ConsumerOptions, Session};

/// What a reader needs to start a fetch at another position.
pub(super) struct Fetcher {
    pub(super) session: Session,
    pub(super) options: ConsumerOptions,
    pub(super) trust: SharedTrust,
    /// For a growing object: start with the newest segment.
    pub(super) from_newest: bool,
}

impl Fetcher {
    /// Starts to fetch a range of bytes of `target`.
    pub(super) fn fetch(&self, target: Target, range: Range<u64>) -> Arc<Inbox> {
        let inbox = Inbox::new(self.options.reader_capacity());
        self.session.fetch(Fetch {
            target: Some(target),
            config: self.options.config(),
            trust: self.trust.clone(),
            range,
            from_newest: self.from_newest,
            inbox: inbox.clone(),
        });
        inbox
    }
}
