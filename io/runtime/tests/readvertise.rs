//! The prefixes of local applications reach a routing daemon on the Unix socket. The daemon is a
//! stand-in for NLSR (bb59d40) and ndn-dv (ndnd 31822ab).

use std::os::unix::net::UnixStream;

use weir_io_fixture::router::{
    Peer, ReceivedPacket, TestRouter, command_interest, interest, name, name_of, response_of,
};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, ControlResponse, Element};
use weir_wire::{Data, Interest, InterestView, LpFraming, LpHeader};

/// Registers the daemon's prefix. Returns the commands that arrive before the answer does, because
/// they take another way through the router.
fn become_daemon(daemon: &mut Peer<UnixStream>) -> Vec<String> {
    let prefix = Some(name("/localhost/nlsr"));
    let parameters = ControlParameters { name: prefix, ..ControlParameters::default() };
    daemon.send(&command_interest(Command::RibRegister, &parameters));
    let mut commands = Vec::new();
    loop {
        match daemon.receive() {
            ReceivedPacket::Data { wire, .. } => {
                assert_eq!(response_of(&wire).code, 200);
                return commands;
            }
            received => commands.push(text_of(&received)),
        }
    }
}

fn text_of(received: &ReceivedPacket) -> String {
    let ReceivedPacket::Interest { wire, .. } = received else { panic!("{received:?}") };
    let interest = InterestView::decode(wire).unwrap();
    let component = |at| interest.name.component(at).unwrap().value;
    let parameters = ControlParameters::decode(component(4)).unwrap();
    assert!(name("/localhost/nlsr/rib").as_view().is_prefix_of(interest.name));
    let verb = String::from_utf8_lossy(component(3)).into_owned();
    format!("{verb} {}", parameters.name.unwrap())
}

/// Receives a command, and returns it as text with its Interest.
fn receive(daemon: &mut Peer<UnixStream>) -> (String, ReceivedPacket) {
    let received = daemon.receive();
    (text_of(&received), received)
}

/// Answers with the PIT token of the Interest, as libraries do.
fn answer(daemon: &mut Peer<UnixStream>, command: ReceivedPacket, code: u64) {
    let ReceivedPacket::Interest { header, wire } = command else { panic!("{command:?}") };
    let asked = InterestView::decode(&wire).unwrap().name.to_name();
    let response = ControlResponse::new(code, "stand-in").encode();
    let data = Data::new(asked).freshness_ms(1000).content(response).encode_with_digest();
    let header = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
    daemon.send(&header.encode(&LpFraming::BARE, &[], Some(&data)));
}

fn learns_and_forgets(threads: usize) {
    let router = TestRouter::start_with(|config| config.threads = threads);
    let mut application = router.unix();
    let mut daemon = router.unix();
    assert!(become_daemon(&mut daemon).is_empty());
    application.register("/early");
    let (text, command) = receive(&mut daemon);
    assert_eq!(text, "register /early");
    answer(&mut daemon, command, 200);
    // A refused command is sent again with another name. Its answer is not in the store.
    let mut other = router.unix();
    other.register("/late");
    let (text, command) = receive(&mut daemon);
    assert_eq!(text, "register /late");
    answer(&mut daemon, command, 500);
    let (text, command) = receive(&mut daemon);
    assert_eq!(text, "register /late");
    answer(&mut daemon, command, 204);
    drop(other);
    let (text, command) = receive(&mut daemon);
    assert_eq!(text, "unregister /late");
    answer(&mut daemon, command, 200);
    let unregister =
        ControlParameters { name: Some(name("/early")), ..ControlParameters::default() };
    assert_eq!(application.command(Command::RibUnregister, &unregister).code, 200);
    let (text, command) = receive(&mut daemon);
    assert_eq!(text, "unregister /early");
    answer(&mut daemon, command, 200);
    // The next daemon learns what there is then.
    application.register("/again");
    let (text, _) = receive(&mut daemon);
    assert_eq!(text, "register /again");
    drop(daemon);
    // Its predecessor's command is still in the PIT, so the command may arrive twice.
    let mut daemon = router.unix();
    let mut commands = become_daemon(&mut daemon);
    if commands.is_empty() {
        commands.push(receive(&mut daemon).0);
    }
    assert!(commands.iter().all(|command| command == "register /again"), "{commands:?}");
    router.stop();
}

#[test]
fn daemon_learns_prefixes_of_applications() {
    learns_and_forgets(1);
}

#[test]
fn daemon_learns_prefixes_with_several_threads() {
    learns_and_forgets(3);
}

/// Answers that are no Data of a command, and programs that send the router Data and Nacks.
#[test]
fn nonsense_of_the_daemon_stops_nothing() {
    let router = TestRouter::start();
    let mut daemon = router.unix();
    assert!(become_daemon(&mut daemon).is_empty());
    let mut application = router.unix();
    application.register("/a");
    let (_, command) = receive(&mut daemon);
    let ReceivedPacket::Interest { wire, .. } = &command else { panic!("{command:?}") };
    let asked = InterestView::decode(wire).unwrap().name.to_name();
    daemon.send(&Data::new(asked).content([255; 100]).encode_with_digest());
    let (text, _) = receive(&mut daemon);
    assert_eq!(text, "register /a");
    // The manager does not mistake an application's Interest for an answer.
    let status = Interest::new(name("/localhost/nfd/status/general")).can_be_prefix(true);
    application.send(&status.must_be_fresh(true).encode());
    let data = application.receive().data();
    assert!(name_of(&data).starts_with("/localhost/nfd/status/general"));
    application.send(&interest("/localhost/nfd/nonsense"));
    router.stop();
}
