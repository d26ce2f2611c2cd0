//! The manager of NFD's protocol, with its pending inputs and its actions.

use std::collections::VecDeque;
use std::mem;

use weir_base::{Instant, Packet};
use weir_face::unix_time_ms;
use weir_forward::Event;
use weir_manage::{
    Action, FaceCounters, HicnAnswer, LearningInput, Manager, ManagerConfig, ManagerInput,
    ManagerOutbox, ManagerStats, OutData, Sender,
};
use weir_wire::{PacketView, tlv};

use crate::message::InternalPacket;

/// Feeds the manager one input at a time.
pub(super) struct Management {
    manager: Manager,
    inputs: VecDeque<ManagerInput>,
    outbox: ManagerOutbox,
    /// Packets of the internal face, seen from the router.
    counters: FaceCounters,
}

impl Management {
    pub(super) fn new(config: ManagerConfig) -> Self {
        let mut outbox = ManagerOutbox::default();
        let manager = Manager::new(config, &mut outbox);
        Self { manager, inputs: VecDeque::new(), outbox, counters: FaceCounters::default() }
    }

    /// Replaces who may send commands.
    pub(super) fn set_authorization(&mut self, config: ManagerConfig) {
        self.manager.set_authorization(config);
    }

    /// The number of faces and of routes.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.manager.faces().count(), self.manager.rib().len())
    }

    pub(super) fn counters(&self) -> FaceCounters {
        self.counters
    }

    pub(super) fn stats(&self) -> ManagerStats {
        self.manager.stats()
    }

    /// Counts a packet that the router receives from the manager.
    pub(super) fn note_sent(&mut self, packet: &PacketView<'_>) {
        match packet {
            PacketView::Interest(interest) => {
                self.counters.in_interests += 1;
                self.counters.in_bytes += interest.wire.len() as u64;
            }
            PacketView::Data(data) => {
                self.counters.in_data += 1;
                self.counters.in_bytes += data.wire.len() as u64;
            }
        }
    }

    pub(super) fn push(&mut self, input: ManagerInput) {
        self.inputs.push_back(input);
    }

    pub(super) fn extend(&mut self, inputs: impl IntoIterator<Item = ManagerInput>) {
        self.inputs.extend(inputs);
    }

    /// Handles a packet for the internal face. `sender`: what the packet's face may command.
    pub(super) fn on_packet(&mut self, sender: Sender, internal: InternalPacket) {
        let ingress = internal.ingress();
        match internal {
            InternalPacket::Ndn { header, packet } => {
                self.counters.out_bytes += packet.len() as u64;
                if header.nack.is_some() {
                    self.counters.out_nacks += 1;
                    self.push(ManagerInput::Nack { packet });
                } else if packet.first() == Some(&(tlv::DATA as u8)) {
                    self.counters.out_data += 1;
                    self.push(ManagerInput::Data { packet });
                } else {
                    self.counters.out_interests += 1;
                    self.push(ManagerInput::Interest { ingress, sender, packet });
                }
            }
            InternalPacket::Learning(event) => self.inputs.extend(learning_input(event)),
            InternalPacket::HicnControl { message, .. } => {
                self.push(ManagerInput::HicnControl { ingress, message });
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.manager.next_wakeup()
    }

    pub(super) fn run_timers(&mut self, now: Instant) {
        if self.manager.next_wakeup().is_some_and(|at| at <= now) {
            self.push(ManagerInput::Wakeup);
        }
    }

    /// Handles one input. Returns false if none is pending.
    pub(super) fn handle_next(&mut self, now: Instant) -> bool {
        let Some(input) = self.inputs.pop_front() else { return false };
        self.manager.handle(now, unix_time_ms(), input, &mut self.outbox);
        true
    }

    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.outbox.actions)
    }

    pub(super) fn take_data(&mut self) -> Vec<OutData> {
        mem::take(&mut self.outbox.data)
    }

    pub(super) fn take_interests(&mut self) -> Vec<Packet> {
        mem::take(&mut self.outbox.interests)
    }

    pub(super) fn take_hicn_answers(&mut self) -> Vec<HicnAnswer> {
        mem::take(&mut self.outbox.hicn_answers)
    }
}

/// The manager's input for a report of strategy self-learning.
fn learning_input(event: Event) -> Option<ManagerInput> {
    let input = match event {
        Event::Announced { face, announcement } => LearningInput::Announced { face, announcement },
        Event::RouteRefused { face, name } => LearningInput::RouteRefused { face, name },
        Event::AnnouncementNeeded { prefix } => LearningInput::AnnouncementNeeded { prefix },
        _ => return None,
    };
    Some(ManagerInput::Learning(input))
}
