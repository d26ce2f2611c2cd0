//! Messages between routers and the controller that are on their way.

use std::collections::BTreeMap;

use weir_control::message::{Configuration, RouterReport};
use weir_wire::Name;

use crate::network::queue::DueEvent;
use crate::network::timeline::Timeline;

pub(super) enum ControlMessage {
    /// A router asks for an object.
    Ask {
        node: u32,
        object: Name,
    },
    /// A router gets its configuration.
    Configure {
        node: u32,
        configuration: Box<Configuration>,
    },
    /// It is time for a router to report.
    ReportDue {
        node: u32,
    },
    Report {
        node: u32,
        report: Box<RouterReport>,
    },
    /// The controller looks at the clock.
    Tick,
    /// What is reported of a link becomes something else.
    Change,
}

/// All messages on their way.
pub(super) struct MessageQueue {
    /// How long a message takes at least, ns.
    pub(super) delay_ns: u64,
    /// When consumers stop, ns.
    duration_ns: u64,
    /// By when they arrive, and by when they were sent.
    messages: BTreeMap<(u64, u64), ControlMessage>,
    sent: u64,
}

impl MessageQueue {
    pub(super) fn new(delay_ns: u64, duration_ns: u64) -> Self {
        Self { delay_ns, duration_ns, messages: BTreeMap::new(), sent: 0 }
    }

    /// Sends a message that arrives after some time.
    pub(super) fn send(&mut self, after_ns: u64, message: ControlMessage, timeline: &mut Timeline) {
        let at_ns = timeline.now_ns() + after_ns;
        self.sent += 1;
        self.messages.insert((at_ns, self.sent), message);
        timeline.schedule(at_ns, DueEvent::Control);
    }

    /// Sends a message of a kind that comes again and again, until consumers stop.
    pub(super) fn repeat(
        &mut self,
        after_ns: u64,
        message: ControlMessage,
        timeline: &mut Timeline,
    ) {
        if timeline.now_ns() + after_ns < self.duration_ns {
            self.send(after_ns, message, timeline);
        }
    }

    pub(super) fn take_first(&mut self) -> Option<ControlMessage> {
        self.messages.pop_first().map(|(_, message)| message)
    }
}
