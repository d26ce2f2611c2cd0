//! The prefix announcements that go out with Data, and the Data that waits for one (strategy
//! self-learning). `path/announced.rs` explains when Data needs one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use weir_base::{Instant, NS_PER_S, Packet};
use weir_wire::Name;

use crate::io::OutPacket;

/// How long an answer of the driver is used. A route of the prefix may change meanwhile, so it is
/// short. The router asks the driver at most this often for each prefix.
const ANSWER_LIFETIME_NS: u64 = 5 * NS_PER_S;
/// Maximum number of prefixes with an answer or a request.
const PREFIXES_MAX: usize = 1024;
/// Maximum number of Data packets that wait for an answer.
const HELD_MAX: usize = 1024;

/// Data of the present turn that needs an announcement.
pub(crate) struct AnnouncementDue {
    /// The name of the Interest.
    pub(crate) name: Name,
    /// The position of the first copy in the outbox. The other copies follow it.
    pub(crate) first: usize,
}

enum Answer {
    /// The driver has not answered yet.
    Requested,
    /// The announcement of the prefix, or that there is none.
    Known { announcement: Option<Packet>, until: Instant },
}

/// What is known about the announcement of a prefix.
pub(crate) enum Found {
    Known(Option<Packet>),
    Requested,
    /// It has not been requested.
    Unknown,
}

#[derive(Default)]
pub(crate) struct Announcements {
    by_prefix: BTreeMap<Name, Answer>,
    /// Data that waits for the answer of a prefix, in order.
    held: Vec<(Name, OutPacket)>,
    due: Vec<AnnouncementDue>,
}

impl Announcements {
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(crate) fn add_due(&mut self, due: AnnouncementDue) {
        self.due.push(due);
    }

    pub(crate) fn take_due(&mut self) -> Vec<AnnouncementDue> {
        mem::take(&mut self.due)
    }

    pub(crate) fn find(&self, now: Instant, prefix: &Name) -> Found {
        match self.by_prefix.get(prefix) {
            Some(Answer::Requested) => Found::Requested,
            Some(Answer::Known { announcement, until }) if *until > now => {
                Found::Known(announcement.clone())
            }
            _ => Found::Unknown,
        }
    }

    /// Records a request to the driver for a prefix. Returns `false` if too many are requested.
    pub(crate) fn request(&mut self, prefix: Name) -> bool {
        if self.by_prefix.len() >= PREFIXES_MAX {
            self.by_prefix.retain(|_, answer| matches!(answer, Answer::Requested));
        }
        let has_room = self.by_prefix.len() < PREFIXES_MAX;
        if has_room {
            self.by_prefix.insert(prefix, Answer::Requested);
        }
        has_room
    }

    /// Whether this many more packets may wait.
    pub(crate) fn has_room_for(&self, packets: usize) -> bool {
        self.held.len() + packets <= HELD_MAX
    }

    pub(crate) fn hold(&mut self, prefix: Name, packet: OutPacket) {
        self.held.push((prefix, packet));
    }

    /// Records the answer for a prefix, and returns the Data that has waited for it. All shards
    /// receive each answer. Those that did not request it ignore it, so the bound holds.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        prefix: Name,
        announcement: Option<Packet>,
    ) -> Vec<OutPacket> {
        let Some(answer @ Answer::Requested) = self.by_prefix.get_mut(&prefix) else {
            return Vec::new();
        };
        *answer = Answer::Known { announcement, until: now.plus_ns(ANSWER_LIFETIME_NS) };
        let (released, held) = mem::take(&mut self.held).into_iter().partition(|it| it.0 == prefix);
        self.held = held;
        let released: Vec<(Name, OutPacket)> = released;
        released.into_iter().map(|(_, packet)| packet).collect()
    }

    /// Forgets the answer for a prefix, because its routes have changed.
    pub(crate) fn forget(&mut self, prefix: &Name) {
        if let Some(Answer::Known { .. }) = self.by_prefix.get(prefix) {
            self.by_prefix.remove(prefix);
        }
    }
}
