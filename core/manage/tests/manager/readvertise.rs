//! The router registers the prefixes of local applications with a routing daemon. The daemon is a
//! stand-in that speaks as NLSR (bb59d40) and ndn-dv (ndnd 31822ab) do.

use std::collections::BTreeSet;

use weir_base::{FaceId, NS_PER_MS, Packet};
use weir_manage::commands::Command;
use weir_manage::{
    ControlParameters, ControlResponse, Element, FaceEventKind, FaceInfo, FaceScope, ManagerConfig,
    ManagerInput, Route, route_flags,
};
use weir_wire::{Data, InterestView, Name, PACKET_SIZE_MAX};

use crate::harness::{CLIENT, Harness, PEER, face, name, parameters};

const DAEMON: FaceId = FaceId(300);
const APP: u64 = 0;
const CLIENT_ORIGIN: u64 = 65;
const NLSR: u64 = 128;
const STATIC: u64 = 255;

/// A command that the daemon has received.
#[derive(Clone, Debug)]
struct Received {
    packet: Packet,
    verb: String,
    parameters: ControlParameters,
}

impl Received {
    fn of(packet: Packet) -> Self {
        let interest = InterestView::decode(&packet).expect("an Interest");
        assert!(packet.len() <= PACKET_SIZE_MAX);
        // ndn-dv accepts only names of six components: the last one is the digest.
        assert_eq!(interest.name.component_count(), 6, "{}", interest.name);
        assert!(name("/localhost/nlsr/rib").as_view().is_prefix_of(interest.name));
        assert!(interest.signature().is_some(), "it is signed");
        let component = |at| interest.name.component(at).unwrap().value;
        let verb = String::from_utf8(component(3).to_vec()).unwrap();
        let parameters = ControlParameters::decode(component(4)).unwrap();
        Self { verb, parameters, packet: packet.clone() }
    }

    fn text(&self) -> String {
        let cost = self.parameters.cost.map_or_else(String::new, |cost| format!(" {cost}"));
        format!("{} {}{cost}", self.verb, self.parameters.name.as_ref().unwrap())
    }
}

impl Harness {
    fn add_daemon(&mut self, id: FaceId) {
        self.add_face(face(id, "fd://30", FaceScope::Local));
        // ndn-dv and NLSR register their prefix with origins nlsr and app.
        self.add_route("/localhost/nlsr", id, NLSR, 0);
    }

    fn add_route(&mut self, prefix: &str, face: FaceId, origin: u64, cost: u64) {
        let flags = route_flags::CHILD_INHERIT;
        let route = Route { face, origin, cost, flags, expires: None };
        self.give(ManagerInput::AddRoute { prefix: name(prefix), route });
    }

    fn remove_route(&mut self, prefix: &str, face: FaceId, origin: u64) {
        let kept = std::mem::take(&mut self.out.interests);
        let response = self.command(
            Command::RibUnregister,
            &parameters(|p| {
                p.name = Some(name(prefix));
                p.face_id = Some(face);
                p.origin = Some(origin);
            }),
        );
        assert_eq!(response.code, 200, "{response:?}");
        self.out.interests.splice(0..0, kept);
    }

    fn close(&mut self, id: FaceId) {
        let info = FaceInfo { face_id: id, ..FaceInfo::default() };
        self.give(ManagerInput::FaceEvent { kind: FaceEventKind::Destroyed, info });
    }

    /// The commands since the last call.
    fn received(&mut self) -> Vec<Received> {
        std::mem::take(&mut self.out.interests).into_iter().map(Received::of).collect()
    }

    fn texts(&mut self) -> Vec<String> {
        self.received().iter().map(Received::text).collect()
    }

    fn answer(&mut self, command: &Received, code: u64) {
        // ndn-dv answers with face 1 and origin client, and NLSR with the parameters.
        let response = ControlResponse {
            body: Some(Box::new(parameters(|p| p.name.clone_from(&command.parameters.name)))),
            ..ControlResponse::new(code, "Readvertise command successful")
        };
        self.answer_with(command, &response.encode());
    }

    fn answer_with(&mut self, command: &Received, content: &[u8]) {
        let asked = InterestView::decode(&command.packet).unwrap().name.to_name();
        let data = Data::new(asked).freshness_ms(1000).content(content).encode_with_digest();
        self.give(ManagerInput::Data { packet: Packet::from(data) });
    }

    /// Answers all commands with success, until none follows.
    fn obey(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        loop {
            let commands = self.received();
            if commands.is_empty() {
                return texts;
            }
            for command in commands {
                texts.push(command.text());
                self.answer(&command, 200);
            }
        }
    }

    fn wakeup_in_ms(&self) -> Option<u64> {
        self.manager.next_wakeup().map(|at| at.ns_since(self.now) / NS_PER_MS)
    }
}

#[test]
fn sends_nothing_without_a_daemon() {
    let mut harness = Harness::new();
    harness.add_route("/a", CLIENT, APP, 0);
    // A program that collects packets is no daemon, and neither is another host.
    harness.add_route("/", CLIENT, APP, 0);
    harness.add_route("/localhost", CLIENT, APP, 0);
    harness.add_route("/localhost/nlsr", PEER, APP, 0);
    assert_eq!(harness.wakeup_in_ms(), None);
    harness.advance_ms(3_600_000);
    assert!(harness.out.interests.is_empty());
}

#[test]
fn daemon_learns_earlier_and_later_prefixes() {
    let mut harness = Harness::new();
    harness.add_route("/a", CLIENT, APP, 0);
    harness.add_route("/b", CLIENT, CLIENT_ORIGIN, 7);
    harness.add_daemon(DAEMON);
    let commands = harness.received();
    let origins: Vec<_> = commands.iter().map(|command| command.parameters.origin).collect();
    assert_eq!(origins, [Some(CLIENT_ORIGIN); 2]);
    assert!(commands.iter().all(|command| command.parameters.face_id.is_none()));
    let texts: Vec<String> = commands.iter().map(Received::text).collect();
    assert_eq!(texts, ["register /a 0", "register /b 7"]);
    harness.answer(&commands[0], 200);
    // NLSR, for a prefix of its configuration.
    harness.answer(&commands[1], 204);
    harness.add_route("/c", CLIENT, APP, 1);
    assert_eq!(harness.obey(), ["register /c 1"]);
    // An hour later they are registered again.
    harness.advance_ms(3_600_000 - 1);
    assert_eq!(harness.texts(), [""; 0]);
    harness.advance_ms(1);
    assert_eq!(harness.obey(), ["register /a 0", "register /b 7", "register /c 1"]);
    assert_eq!(harness.wakeup_in_ms(), Some(3_600_000));
    assert_eq!(harness.manager.stats().readvertise_failures, 0);
}

#[test]
fn daemon_may_register_its_module() {
    let mut harness = Harness::new();
    harness.add_route("/a", CLIENT, APP, 0);
    harness.add_face(face(DAEMON, "fd://30", FaceScope::Local));
    harness.add_route("/localhost/nlsr/rib", DAEMON, APP, 0);
    assert_eq!(harness.obey(), ["register /a 0"]);
    harness.add_route("/localhost/nlsr", DAEMON, APP, 0);
    assert_eq!(harness.obey(), [""; 0], "it is the same daemon");
}

#[test]
fn skips_prefixes_that_are_not_for_other_hosts() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    for (prefix, face, origin) in [
        ("/", CLIENT, APP),
        ("/localhost/x", CLIENT, APP),
        ("/localhop/x", CLIENT, APP),
        ("/static", CLIENT, STATIC),
        ("/learned", PEER, NLSR),
        ("/remote", PEER, APP),
        ("/router/keys", DAEMON, APP),
        ("/unknown", FaceId(999), APP),
    ] {
        harness.add_route(prefix, face, origin, 0);
        assert_eq!(harness.texts(), [""; 0], "{prefix}");
    }
    // An end host that registers over the network uses this origin.
    harness.add_route("/host", PEER, CLIENT_ORIGIN, 0);
    assert_eq!(harness.obey(), ["register /host 0"]);
}

#[test]
fn application_that_was_a_daemon_is_advertised() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_face(face(FaceId(301), "fd://31", FaceScope::Local));
    harness.add_route("/b", FaceId(301), APP, 0);
    assert_eq!(harness.obey(), ["register /b 0"]);
    harness.add_route("/localhost/nlsr", FaceId(301), APP, 0);
    assert_eq!(harness.obey(), [""; 0], "a second daemon has only prefixes of its own");
    harness.remove_route("/localhost/nlsr", FaceId(301), APP);
    assert_eq!(harness.obey(), ["register /b 0"]);
}

#[test]
fn withdraws_with_the_last_route() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_face(face(FaceId(301), "fd://31", FaceScope::Local));
    harness.add_route("/a", CLIENT, APP, 5);
    assert_eq!(harness.obey(), ["register /a 5"]);
    harness.add_route("/a", FaceId(301), APP, 3);
    assert_eq!(harness.obey(), ["register /a 3"], "the lowest cost counts");
    harness.add_route("/a", FaceId(301), CLIENT_ORIGIN, 9);
    assert_eq!(harness.obey(), [""; 0]);
    harness.close(FaceId(301));
    assert_eq!(harness.obey(), ["register /a 5"]);
    harness.remove_route("/a", CLIENT, APP);
    assert_eq!(harness.obey(), ["unregister /a"]);
    assert_eq!(harness.wakeup_in_ms(), None);
}

#[test]
fn withdraws_an_expired_route() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    let period = parameters(|p| {
        p.name = Some(name("/a"));
        p.expiration_period_ms = Some(5000);
    });
    assert_eq!(harness.command(Command::RibRegister, &period).code, 200);
    assert_eq!(harness.obey(), ["register /a 0"]);
    harness.advance_ms(5000);
    assert_eq!(harness.obey(), ["unregister /a"]);
}

#[test]
fn dead_daemon_leaves_no_state() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    harness.add_route("/b", CLIENT, APP, 0);
    let commands = harness.received();
    harness.answer(&commands[0], 200);
    harness.close(DAEMON);
    assert_eq!(harness.wakeup_in_ms(), None);
    let ignored = harness.manager.stats().ignored;
    harness.answer(&commands[1], 200);
    assert_eq!(harness.manager.stats().ignored, ignored + 1, "a late answer");
    harness.remove_route("/b", CLIENT, APP);
    harness.advance_ms(3_600_000);
    assert_eq!(harness.texts(), [""; 0]);
    // The next one knows nothing.
    harness.add_daemon(FaceId(310));
    assert_eq!(harness.obey(), ["register /a 0"]);
}

/// The PIT forwards unanswered Interests to a daemon that appears, because the strategy of
/// `/localhost` is multicast.
#[test]
fn next_daemon_does_not_keep_a_stale_prefix() {
    for (wait_ms, expected) in [(9000, &["unregister /a", "register /b 0"][..]), (10_000, &[])] {
        let mut harness = Harness::new();
        harness.add_daemon(DAEMON);
        harness.add_route("/a", CLIENT, APP, 0);
        harness.add_route("/b", CLIENT, APP, 0);
        assert_eq!(harness.texts(), ["register /a 0", "register /b 0"]);
        harness.close(DAEMON);
        harness.remove_route("/a", CLIENT, APP);
        assert_eq!(harness.texts(), [""; 0]);
        harness.advance_ms(wait_ms);
        if expected.is_empty() {
            harness.remove_route("/b", CLIENT, APP);
        }
        harness.add_daemon(FaceId(310));
        assert_eq!(harness.obey(), expected);
    }
}

#[test]
fn restarted_daemon_learns_all_prefixes_again() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    assert_eq!(harness.obey(), ["register /a 0"]);
    // It registers before the router notices the end of its predecessor.
    harness.add_daemon(FaceId(310));
    assert_eq!(harness.obey(), ["register /a 0"]);
    harness.close(DAEMON);
    assert_eq!(harness.obey(), [""; 0]);
}

#[test]
fn retries_with_back_off() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    let mut seen = BTreeSet::new();
    for (attempt, delay_ms) in [1000, 2000, 4000, 8000, 16_000].into_iter().enumerate() {
        let command = harness.received().pop().expect("a command");
        assert!(seen.insert(command.packet.to_vec()), "each has a name of its own");
        match attempt {
            0 => harness.answer(&command, 403),
            // The TLV-LENGTH is larger than the content.
            1 => harness.answer_with(&command, &[101, 200, 102]),
            2 => harness.answer_with(&command, b""),
            3 => harness.give(ManagerInput::Nack { packet: command.packet.clone() }),
            // Without an answer.
            _ => harness.advance_ms(10_000),
        }
        assert_eq!(harness.wakeup_in_ms(), Some(delay_ms), "attempt {attempt}");
        harness.advance_ms(delay_ms - 1);
        assert_eq!(harness.texts(), [""; 0]);
        harness.advance_ms(1);
    }
    assert_eq!(harness.manager.stats().readvertise_failures, 5);
    assert_eq!(harness.obey(), ["register /a 0"]);
    // The delays start again after a success, and end at five minutes.
    harness.advance_ms(3_600_000);
    let mut last_ms = 0;
    for _ in 0..20 {
        let command = harness.received().pop().expect("a command");
        harness.answer(&command, 500);
        last_ms = harness.wakeup_in_ms().unwrap();
        harness.advance_ms(last_ms);
    }
    assert_eq!(last_ms, 300_000);
}

#[test]
fn ignores_packets_that_answer_nothing() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    let command = harness.received().pop().unwrap();
    let ignored = harness.manager.stats().ignored;
    let other = Data::new(name("/localhost/nlsr/rib/register/x")).encode_with_digest();
    harness.give(ManagerInput::Data { packet: Packet::from(other) });
    harness.give(ManagerInput::Data { packet: Packet::from(&b"nonsense"[..]) });
    harness.give(ManagerInput::Nack { packet: Packet::from(&b"nonsense"[..]) });
    assert_eq!(harness.manager.stats().ignored, ignored + 3);
    harness.answer(&command, 200);
    harness.answer(&command, 500);
    assert_eq!(harness.manager.stats().ignored, ignored + 4, "the second answer");
    assert_eq!(harness.wakeup_in_ms(), Some(3_600_000));
}

#[test]
fn prefix_that_ends_during_a_command_is_withdrawn() {
    for is_answered in [true, false] {
        let mut harness = Harness::new();
        harness.add_daemon(DAEMON);
        harness.add_route("/a", CLIENT, APP, 0);
        let command = harness.received().pop().unwrap();
        harness.remove_route("/a", CLIENT, APP);
        assert_eq!(harness.texts(), [""; 0], "one command at a time");
        if is_answered {
            harness.answer(&command, 200);
        } else {
            // The daemon may have obeyed.
            harness.advance_ms(10_000);
            harness.advance_ms(1000);
        }
        assert_eq!(harness.obey(), ["unregister /a"]);
        assert_eq!(harness.wakeup_in_ms(), None);
    }
}

#[test]
fn prefix_that_returns_during_withdrawal_is_registered() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    assert_eq!(harness.obey(), ["register /a 0"]);
    harness.remove_route("/a", CLIENT, APP);
    let command = harness.received().pop().unwrap();
    harness.add_route("/a", CLIENT, APP, 0);
    assert_eq!(harness.texts(), [""; 0]);
    harness.answer(&command, 200);
    assert_eq!(harness.obey(), ["register /a 0"]);
}

#[test]
fn withdrawals_end_when_the_daemon_refuses() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    harness.add_route("/a", CLIENT, APP, 0);
    assert_eq!(harness.obey(), ["register /a 0"]);
    harness.remove_route("/a", CLIENT, APP);
    for _ in 0..8 {
        let command = harness.received().pop().expect("a command");
        harness.answer(&command, 500);
        harness.advance_ms(harness.wakeup_in_ms().unwrap_or(0));
    }
    assert_eq!(harness.wakeup_in_ms(), None);
    assert_eq!(harness.texts(), [""; 0]);
}

#[test]
fn few_of_many_commands_are_outstanding() {
    const PREFIXES: usize = 6000;
    let mut harness = Harness::new();
    let uri = |number: usize| format!("/app/{number}");
    (0..PREFIXES).for_each(|number| harness.add_route(&uri(number), CLIENT, APP, 0));
    harness.add_daemon(DAEMON);
    let mut known = BTreeSet::new();
    let mut outstanding = harness.received();
    while let Some(command) = outstanding.pop() {
        assert!(outstanding.len() < 16, "{}", outstanding.len());
        harness.answer(&command, 200);
        assert!(known.insert(command.text()));
        outstanding.extend(harness.received());
    }
    assert_eq!(known.len(), PREFIXES);
    // The daemon stops responding, and the application ends.
    harness.close(CLIENT);
    assert_eq!(harness.received().len(), 16);
    harness.advance_ms(10_000);
    assert_eq!(harness.received().len(), 16);
    let failures = harness.manager.stats().readvertise_failures;
    assert_eq!(failures, (PREFIXES - 4096) as u64 + 16, "the queue of withdrawals is limited");
}

#[test]
fn config_turns_it_off() {
    let config = ManagerConfig { readvertise_nlsr: false, ..ManagerConfig::default() };
    let mut harness = Harness::with_config(config);
    harness.add_route("/a", CLIENT, APP, 0);
    harness.add_daemon(DAEMON);
    assert_eq!(harness.texts(), [""; 0]);
    assert_eq!(harness.wakeup_in_ms(), None);
}

#[test]
fn prefix_too_long_for_a_command_is_no_loop() {
    let mut harness = Harness::new();
    harness.add_daemon(DAEMON);
    let mut long = Name::new();
    long.append_generic(&[b'x'; PACKET_SIZE_MAX - 100]);
    harness.add_route(&long.to_string(), CLIENT, APP, 0);
    assert_eq!(harness.texts(), [""; 0]);
    assert_eq!(harness.wakeup_in_ms(), Some(1000));
}
