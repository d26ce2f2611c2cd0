use std::collections::BTreeMap;
use std::io;

use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, RecvStatus};
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse, route_flags};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, LpHeader, Name};

use super::{Connector, Inheritance, RegistrationAnswer, RegistrationError};
use crate::command_signer::CommandSigner;
use crate::connection::{Connection, Received, ReceivedPacket};

/// The connector for Weir, NFD and compatible routers, which register prefixes by NFD's management
/// protocol.
pub(crate) struct NdnConnector {
    connection: Connection,
    /// Prefixes whose answer is pending, by the name of the command.
    pending: BTreeMap<Name, Name>,
    /// The command that is pending for a prefix.
    commands: BTreeMap<Name, Name>,
    answers: Vec<RegistrationAnswer>,
}

impl NdnConnector {
    pub(crate) fn new(connection: Connection) -> Self {
        let (pending, commands, answers) = Default::default();
        Self { connection, pending, commands, answers }
    }

    /// Sends a command. If it cannot be sent, the caller misses the answer, as if it was lost.
    fn send_command(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        (command, flags): (Command, Option<u64>),
        prefix: &Name,
        wants_answer: bool,
    ) {
        self.forget_answer(prefix);
        let parameters =
            ControlParameters { name: Some(prefix.clone()), flags, ..Default::default() };
        let interest = signer.sign(self.connection.is_local(), command, &parameters);
        let name = InterestView::decode(&interest).map(|interest| interest.name.to_name());
        let sent = self.send_packet(now, LpHeader::default(), Packet::from(interest));
        if let (Ok(name), Ok(()), true) = (name, sent, wants_answer) {
            self.pending.insert(name.clone(), prefix.clone());
            self.commands.insert(prefix.clone(), name);
        }
    }

    /// The answer to a pending command, if the packet is one.
    fn answer_of(&mut self, received: &ReceivedPacket) -> Option<RegistrationAnswer> {
        let ReceivedPacket { header, packet, .. } = received;
        let data = DataView::decode(packet).ok();
        let name = match (header.nack, &data) {
            (Some(_), _) => InterestView::decode(packet).ok()?.name,
            (None, Some(data)) => data.name,
            (None, None) => return None,
        };
        let prefix = self.pending.remove(&name.to_name())?;
        self.commands.remove(&prefix);
        let result = match (header.nack, &data) {
            (Some(reason), _) => Err(RegistrationError::Unreachable(reason)),
            (None, Some(data)) => match commands::parse_response(data) {
                Ok(ControlResponse { code: 200, .. }) => Ok(()),
                Ok(refusal) => Err(RegistrationError::Refused(refusal)),
                Err(_) => Err(RegistrationError::Malformed),
            },
            (None, None) => return None,
        };
        Some(RegistrationAnswer { prefix, result })
    }
}

impl Connector for NdnConnector {
    fn connect_consumer(uri: &FaceUri) -> io::Result<Self> {
        Connection::open(uri).map(Self::new)
    }

    fn connect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        inheritance: Inheritance,
    ) {
        let flags = match inheritance {
            Inheritance::Inherited => route_flags::CHILD_INHERIT,
            Inheritance::Longest => 0,
        };
        let command = (Command::RibRegister, Some(flags));
        self.send_command(now, signer, command, prefix, true);
    }

    fn disconnect_producer(
        &mut self,
        now: Instant,
        signer: &mut CommandSigner,
        prefix: &Name,
        wants_answer: bool,
    ) {
        self.send_command(now, signer, (Command::RibUnregister, None), prefix, wants_answer);
    }

    fn forget_answer(&mut self, prefix: &Name) {
        if let Some(command) = self.commands.remove(prefix) {
            self.pending.remove(&command);
        }
        self.answers.retain(|answer| answer.prefix != *prefix);
    }

    fn take_answers(&mut self, answers: &mut Vec<RegistrationAnswer>) {
        answers.append(&mut self.answers);
    }

    fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn recv_packets(
        &mut self,
        now: Instant,
        path: PathId,
        pool: &mut Pool,
        received: &mut Received<'_>,
    ) -> io::Result<RecvStatus> {
        let mut at = received.packets.len();
        let status = self.connection.recv_packets(now, path, pool, received)?;
        // Usually no command is pending, and no packet is looked at.
        while !self.pending.is_empty() && at < received.packets.len() {
            match self.answer_of(&received.packets[at]) {
                Some(answer) => {
                    received.packets.remove(at);
                    self.answers.push(answer);
                }
                None => at += 1,
            }
        }
        Ok(status)
    }

    fn run_timers(&mut self, now: Instant) {
        self.connection.run_timers(now);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.connection.link.next_wakeup()
    }

    fn has_management(&self) -> bool {
        true
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
