//! The notification stream `/localhost/nfd/faces/events`.

use alloc::collections::VecDeque;

use weir_base::{Instant, NS_PER_MS, Packet};
use weir_security::{Signer, sign_data};
use weir_wire::{Data, InterestView};

use crate::commands::Scope;
use crate::dataset::FRESHNESS_MS;
use crate::element::Element;
use crate::status::FaceEventNotification;

/// Number of notifications kept for late subscribers.
const EVENTS_MAX: usize = 256;

/// The latest notifications, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    kept: VecDeque<(Instant, Packet)>,
    next_sequence: u64,
}

impl EventStream {
    /// Creates the next notification and keeps it. Returns `None` if the signer fails.
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        notification: &FaceEventNotification,
        signer: &dyn Signer,
    ) -> Option<Packet> {
        let mut name = Scope::Localhost.prefix();
        name.append_str("faces").append_str("events").append_sequence(self.next_sequence);
        let data = Data::new(name).freshness_ms(FRESHNESS_MS).content(notification.encode());
        let packet = Packet::from(sign_data(&data, signer).ok()?);
        self.next_sequence += 1;
        if self.kept.len() == EVENTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((now, packet.clone()));
        Some(packet)
    }

    /// Finds the kept notification for an Interest. An Interest with a sequence number gets the
    /// notification with this number. An Interest for the bare prefix gets the oldest match. With
    /// MustBeFresh, a match is at most one second old. If there is no match, the Interest waits in
    /// the PIT for the next notification.
    pub(crate) fn find(&self, now: Instant, interest: &InterestView<'_>) -> Option<Packet> {
        let is_fresh = |made: Instant| now.ns_since(made) < FRESHNESS_MS * NS_PER_MS;
        let first = self.next_sequence - self.kept.len() as u64;
        let mut candidates =
            self.kept.iter().filter(|(made, _)| !interest.must_be_fresh || is_fresh(*made));
        match interest.name.component(STREAM_COMPONENTS) {
            Some(component) => {
                let at = component.as_sequence()?.checked_sub(first)?;
                let (made, packet) = self.kept.get(usize::try_from(at).ok()?)?;
                (!interest.must_be_fresh || is_fresh(*made)).then(|| packet.clone())
            }
            None if interest.can_be_prefix => candidates.next().map(|(_, packet)| packet.clone()),
            None => None,
        }
    }
}

/// Components of `/localhost/nfd/faces/events`.
const STREAM_COMPONENTS: usize = 4;
