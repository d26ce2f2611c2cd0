//! Messages in flight between routers and the controller.

use std::collections::BTreeMap;

use weir_control::message::{Configuration, RouterReport};
use weir_wire::Name;

use crate::network::queue::DueEvent;
use crate::network::timeline::Timeline;

pub(super) enum ControlMessage {
    /// A router queries an object.
    Ask {
        node: u32,
        object: Name,
    },
    /// A router receives its configuration.
    Configure {
        node: u32,
        configuration: Box<Configuration>,
    },
    /// A router's report is due.
    ReportDue {
        node: u32,
    },
    Report {
        node: u32,
        report: Box<RouterReport>,
    },
    /// The controller's timer fires.
    Tick,
    /// The round-trip time of a link changes.
    Change,
}

/// All messages in flight.
pub(super) struct MessageQueue {
    /// Minimum delay of a message, ns.
    pub(super) delay_ns: u64,
    /// When consumers stop, ns.
    duration_ns: u64,
    /// By arrival time, then by the order of sending.
    messages: BTreeMap<(u64, u64), ControlMessage>,
    sent: u64,
}

impl MessageQueue {
    pub(super) fn new(delay_ns: u64, duration_ns: u64) -> Self {
        Self { delay_ns, duration_ns, messages: BTreeMap::new(), sent: 0 }
    }

    /// Sends a message that arrives after `after_ns`.
    pub(super) fn send(&mut self, after_ns: u64, message: ControlMessage, timeline: &mut Timeline) {
        let at_ns = timeline.now_ns() + after_ns;
        self.sent += 1;
        self.messages.insert((at_ns, self.sent), message);
        timeline.schedule(at_ns, DueEvent::Control);
    }

    /// Sends a periodic message, unless it would arrive after consumers stop.
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
