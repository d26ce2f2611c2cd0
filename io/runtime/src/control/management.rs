//! The manager of NFD's protocol, with its pending inputs and its actions.

use std::collections::VecDeque;
use std::mem;

use weir_base::Instant;
use weir_face::unix_time_ms;
use weir_manage::{
    Action, HicnAnswer, Manager, ManagerConfig, ManagerInput, ManagerOutbox, OutData, Sender,
};

use crate::message::InternalPacket;

/// Feeds the manager one input at a time.
pub(super) struct Management {
    manager: Manager,
    inputs: VecDeque<ManagerInput>,
    outbox: ManagerOutbox,
}

impl Management {
    pub(super) fn new(config: ManagerConfig) -> Self {
        let mut outbox = ManagerOutbox::default();
        let manager = Manager::new(config, &mut outbox);
        Self { manager, inputs: VecDeque::new(), outbox }
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
            // This router sends no Interests from the internal face, so it expects neither Data nor
            // Nacks.
            InternalPacket::Ndn { header, .. } if header.nack.is_some() => {}
            InternalPacket::Ndn { packet, .. } => {
                self.push(ManagerInput::Interest { ingress, sender, packet });
            }
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

    pub(super) fn take_hicn_answers(&mut self) -> Vec<HicnAnswer> {
        mem::take(&mut self.outbox.hicn_answers)
    }
}
