//! Registers a session's prefixes at its router, and registers them again after each reconnect.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_client::{
    Client, Context, Endpoint, Inheritance, PathChange, ReceivedPacket, RegistrationAnswer,
    RegistrationError,
};
use weir_transport::PathId;
use weir_wire::{InterestView, Name};

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
    /// When the next request is due, or the pending one times out; `None` while registered.
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
                    let prefix = RegisteredPrefix { name, registered, tries: 0, due_at };
                    self.prefixes.insert(key, prefix);
                }
                Registration::End { prefix } => {
                    self.prefixes.remove(prefix.value());
                    // Nothing depends on the answer.
                    let path = client.paths().next();
                    if let Some(path) = path {
                        client.disconnect_producer(path, &prefix);
                    }
                }
            }
        }
    }

    fn send_due_requests(&mut self, now: Instant, client: &mut Client) {
        let is_due = |prefix: &&RegisteredPrefix| prefix.due_at.is_some_and(|at| at <= now);
        let due: Vec<Name> =
            self.prefixes.values().filter(is_due).map(|prefix| prefix.name.clone()).collect();
        for name in due {
            let prefix = self.prefixes.get_mut(name.value()).expect("it is there");
            if prefix.registered.is_some() && prefix.tries >= TRIES_MAX {
                let path = client.paths().next();
                let error = match path {
                    Some(_) => {
                        prefix_refused(&name, "it does not answer management commands".into())
                    }
                    None => SocketError::NoRouter("the connection was lost".into()),
                };
                // It is not known whether the router has the route.
                if let Some(path) = path {
                    client.disconnect_producer(path, &name);
                }
                self.fail(&name, error);
                continue;
            }
            let path = client.paths().next();
            if let Some(path) = path {
                // Only the longest prefix: a socket bound to a longer one, even one of another
                // program, is the only one that answers below it.
                client.connect_producer(path, &name, Inheritance::Longest);
            }
            let prefix = self.prefixes.get_mut(name.value()).expect("it is there");
            prefix.tries += 1;
            prefix.due_at = Some(now.plus_ns(RESPONSE_TIMEOUT_NS));
        }
    }

    fn on_answer(&mut self, now: Instant, answer: RegistrationAnswer) {
        let RegistrationAnswer { prefix: name, result } = answer;
        let Some(prefix) = self.prefixes.get_mut(name.value()) else { return };
        match result {
            Ok(()) => {
                (prefix.tries, prefix.due_at) = (0, None);
                if let Some(registered) = prefix.registered.take() {
                    registered.complete(Ok(()));
                }
            }
            // The router's management may be starting.
            Err(RegistrationError::Unreachable(_) | RegistrationError::Malformed) => {
                prefix.due_at = Some(now.plus_ns(RETRY_NS));
            }
            Err(error) if prefix.registered.is_some() => {
                self.fail(&name, prefix_refused(&name, error.to_string()));
            }
            // A prefix that was registered before is tried again.
            Err(_) => prefix.due_at = Some(now.plus_ns(RETRY_NS)),
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
            // Without producers this endpoint gets all packets. The router may have sent Interests
            // before it learned that the last producer is gone.
            if is_interest {
                context.client.nack_no_route(packet);
            }
        }
        for answer in context.client.take_registrations() {
            self.on_answer(now, answer);
        }
        self.take_changes(now, context.client);
        self.send_due_requests(now, context.client);
    }

    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let is_back = change.error.is_none() && client.paths().next() == Some(PathId(0));
        for prefix in self.prefixes.values_mut().filter(|_| is_back) {
            // The restarted router has lost the registration.
            prefix.due_at = Some(client.now());
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
