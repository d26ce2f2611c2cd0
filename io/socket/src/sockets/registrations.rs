//! Registers a session's prefixes at its router, and registers them again after each reconnect.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_client::{Client, Context, Endpoint, PathChange, ReceivedPacket};
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, Name};

use super::SocketError;
use super::pending::Completer;

/// How long a router may take to answer.
const RESPONSE_TIMEOUT_NS: u64 = 2 * NS_PER_S;
/// How often a prefix is tried before the first registration fails.
const TRIES_MAX: u32 = 3;
/// How long after a failure a registration is repeated, once it had succeeded.
const RETRY_NS: u64 = 500 * NS_PER_MS;

/// A prefix to register or to unregister.
pub(crate) enum Registration {
    Begin { prefix: Name, registered: Completer<()> },
    End { prefix: Name },
}

struct RegisteredPrefix {
    name: Name,
    /// Notified of the first registration.
    registered: Option<Completer<()>>,
    tries: u32,
    /// The pending command, by the name of its Interest.
    pending_command: Option<Name>,
    /// When the next command is due, or the pending one times out; `None` while registered.
    due_at: Option<Instant>,
}

pub(crate) struct Registrations {
    changes: Receiver<Registration>,
    /// By the TLV-VALUE of the name.
    prefixes: BTreeMap<Vec<u8>, RegisteredPrefix>,
}

impl Registrations {
    pub(crate) fn new(changes: Receiver<Registration>) -> Self {
        Self { changes, prefixes: BTreeMap::new() }
    }

    fn take_changes(&mut self, now: Instant, client: &mut Client) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Registration::Begin { prefix: name, registered } => {
                    let (registered, due_at) = (Some(registered), Some(now));
                    let key = name.value().to_vec();
                    let prefix = RegisteredPrefix {
                        name,
                        registered,
                        tries: 0,
                        pending_command: None,
                        due_at,
                    };
                    self.prefixes.insert(key, prefix);
                }
                Registration::End { prefix } => {
                    self.prefixes.remove(prefix.value());
                    // Nothing depends on the answer.
                    Self::command(client, Command::RibUnregister, &prefix);
                }
            }
        }
    }

    /// Sends a command. Returns the name of its Interest.
    fn command(client: &mut Client, command: Command, prefix: &Name) -> Option<Name> {
        let path = client.paths().next()?;
        // Flags 0: longer prefixes must not inherit the route. A socket bound to a longer prefix,
        // even one of another program, is the only one that answers below it.
        let flags = (command == Command::RibRegister).then_some(0);
        let parameters =
            ControlParameters { name: Some(prefix.clone()), flags, ..Default::default() };
        client.send_command(path, command, &parameters)
    }

    fn send_due_commands(&mut self, now: Instant, client: &mut Client) {
        let is_due = |prefix: &&RegisteredPrefix| prefix.due_at.is_some_and(|at| at <= now);
        let due: Vec<Name> =
            self.prefixes.values().filter(is_due).map(|prefix| prefix.name.clone()).collect();
        for name in due {
            let prefix = self.prefixes.get_mut(name.value()).expect("it is there");
            if prefix.registered.is_some() && prefix.tries >= TRIES_MAX {
                let error = match client.paths().next() {
                    Some(_) => {
                        prefix_refused(&name, "it does not answer management commands".into())
                    }
                    None => SocketError::NoRouter("the connection was lost".into()),
                };
                self.fail(&name, error);
                continue;
            }
            let command_name = Self::command(client, Command::RibRegister, &name);
            let prefix = self.prefixes.get_mut(name.value()).expect("it is there");
            prefix.tries += 1;
            prefix.pending_command = command_name;
            prefix.due_at = Some(now.plus_ns(RESPONSE_TIMEOUT_NS));
        }
    }

    fn on_answer(&mut self, now: Instant, packet: &ReceivedPacket) {
        let name = match packet.header.nack {
            Some(_) => InterestView::decode(&packet.packet).map(|interest| interest.name),
            None => DataView::decode(&packet.packet).map(|data| data.name),
        };
        let Ok(name) = name else { return };
        let is_answer = |prefix: &&mut RegisteredPrefix| {
            prefix.pending_command.as_ref().is_some_and(|sent| sent.as_view() == name)
        };
        let Some(prefix) = self.prefixes.values_mut().find(is_answer) else { return };
        prefix.pending_command = None;
        let Ok(data) = DataView::decode(&packet.packet) else {
            // A Nack: the router's management may be starting.
            prefix.due_at = Some(now.plus_ns(RETRY_NS));
            return;
        };
        match commands::parse_response(&data) {
            Ok(ControlResponse { code: 200, .. }) => {
                (prefix.tries, prefix.due_at) = (0, None);
                if let Some(registered) = prefix.registered.take() {
                    registered.complete(Ok(()));
                }
            }
            Ok(response) if prefix.registered.is_some() => {
                let name = prefix.name.clone();
                let reason = format!("{} {}", response.code, response.text);
                self.fail(&name, prefix_refused(&name, reason));
            }
            // A prefix that was registered before is tried again.
            _ => prefix.due_at = Some(now.plus_ns(RETRY_NS)),
        }
    }

    /// The first registration has failed.
    fn fail(&mut self, name: &Name, error: SocketError) {
        let prefix = self.prefixes.remove(name.value());
        if let Some(registered) = prefix.and_then(|prefix| prefix.registered) {
            registered.complete(Err(error));
        }
    }
}

fn prefix_refused(prefix: &Name, reason: String) -> SocketError {
    SocketError::PrefixRefused { prefix: prefix.clone(), reason }
}

impl Endpoint for Registrations {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        let now = context.client.now();
        for packet in packets.drain(..) {
            let is_interest =
                packet.header.nack.is_none() && InterestView::decode(&packet.packet).is_ok();
            match is_interest {
                // Without producers this endpoint gets all packets. The router may have sent
                // Interests before it learned that the last producer is gone.
                true => context.client.nack_no_route(packet),
                false => self.on_answer(now, &packet),
            }
        }
        self.take_changes(now, context.client);
        self.send_due_commands(now, context.client);
    }

    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let is_back = change.error.is_none() && client.paths().next() == Some(PathId(0));
        for prefix in self.prefixes.values_mut().filter(|_| is_back) {
            // The restarted router has lost the registration.
            (prefix.pending_command, prefix.due_at) = (None, Some(client.now()));
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.prefixes.values().filter_map(|prefix| prefix.due_at).min()
    }

    fn is_done(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use crossbeam_channel::unbounded;
    use weir_face::FaceUri;
    use weir_wire::{Interest, LpView, NackReason, peek_frame};

    use super::*;
    use weir_client::EventLoop;

    #[test]
    fn nacks_interests_without_producer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&FaceUri::Unix(path)).unwrap();
        let (mut router, _) = listener.accept().unwrap();
        let name: Name = "/p/late".parse().unwrap();
        router.write_all(&Interest::new(name.clone()).encode()).unwrap();
        let (_register, changes) = unbounded();
        let mut events = EventLoop::new(&mut client);
        events.add(Registrations::new(changes));
        events.run_once(None).unwrap();
        events.run_once(Some(Instant::ZERO)).unwrap();
        // Only a failure waits this long.
        router.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut received, mut block) = (Vec::new(), [0; 4096]);
        while peek_frame(&received).unwrap().is_none_or(|len| len > received.len()) {
            let count = router.read(&mut block).expect("an answer");
            assert!(count > 0, "the connection has ended");
            received.extend_from_slice(&block[..count]);
        }
        let view = LpView::decode(&received).unwrap();
        assert_eq!(view.header.nack, Some(NackReason::NoRoute));
        let refused = InterestView::decode(view.fragment.unwrap()).unwrap();
        assert_eq!(refused.name, name.as_view());
    }
}
