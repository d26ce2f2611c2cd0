//! The connectors, against sockets that answer as routers do.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use weir_base::Rng;
use weir_hicn::HicnPrefix;
use weir_hicn::control::{Command, Connection, ControlMessage, ControlView, ListedRoute, Request};

use super::*;
use crate::Client;

const PREFIX: &str = "/32=hicn/8=%B0%01/8=%00%01";
const OTHER: &str = "/32=hicn/8=%B0%02";

struct HicnLight {
    socket: UdpSocket,
    peer: Option<SocketAddr>,
    /// Requests that were answered. The client may have repeated them meanwhile.
    answered: Vec<Vec<u8>>,
}

impl HicnLight {
    fn start() -> (Self, Client) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Only a failure waits this long.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let client = Client::connect(&FaceUri::HicnUdp(socket.local_addr().unwrap())).unwrap();
        (Self { socket, peer: None, answered: Vec::new() }, client)
    }

    fn receive(&mut self) -> Vec<u8> {
        loop {
            let mut octets = [0; 2000];
            let (len, peer) = self.socket.recv_from(&mut octets).unwrap();
            assert_eq!(*self.peer.get_or_insert(peer), peer, "one socket");
            let message = octets[..len].to_vec();
            if !self.answered.contains(&message) {
                return message;
            }
        }
    }

    /// Expects a command about its own connection, and returns its prefix.
    fn expect(&mut self, command: Command) -> (Vec<u8>, Option<HicnPrefix>) {
        let message = self.receive();
        let view = ControlView::decode(&message).unwrap();
        assert_eq!(view.command, command);
        let prefix = match view.request().unwrap() {
            Request::AddRoute { connection: Connection::Own, prefix }
            | Request::RemoveRoute { connection: Connection::Own, prefix } => Some(prefix),
            Request::RemoveConnection { connection: Connection::Own } => None,
            other => panic!("{other:?}"),
        };
        (message, prefix)
    }

    fn send(&self, octets: &[u8]) {
        self.socket.send_to(octets, self.peer.unwrap()).unwrap();
    }

    fn answer(&mut self, message: &[u8], is_ok: bool) {
        self.answered.push(message.to_vec());
        let view = ControlView::decode(message).unwrap();
        self.send(&ControlMessage::answer(&view, is_ok).encode());
    }
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn hicn_prefix(uri: &str) -> Option<HicnPrefix> {
    HicnPrefix::from_name(name(uri).as_view())
}

fn connect_producer(client: &mut Client, uri: &str) {
    client.connect_producer(PathId(0), &name(uri), Inheritance::Longest);
    client.flush().unwrap();
}

/// Runs the client until the router's answer has arrived.
fn answer_of(client: &mut Client) -> RegistrationAnswer {
    let (mut packets, mut answers) = (Vec::new(), Vec::new());
    while answers.is_empty() {
        client.poll(None, &mut packets).unwrap();
        answers = client.take_registrations();
    }
    assert!(packets.is_empty() && answers.len() == 1);
    answers.remove(0)
}

#[test]
fn registers_and_takes_the_answer() {
    let (mut router, mut client) = HicnLight::start();
    connect_producer(&mut client, PREFIX);
    let (message, prefix) = router.expect(Command::ROUTE_ADD);
    assert_eq!(prefix, hicn_prefix(PREFIX));
    // hicn-light sends empty datagrams as answers to some commands. Answers to others, garbage and
    // datagrams of strangers are not for this request.
    let stray = ControlMessage::request(Command::ROUTE_ADD, 9999).encode();
    for octets in [&[][..], &[0xC2], &[0xC4, 1, 0, 0, 0, 0, 0, 0], &[0x45; 60], &stray] {
        router.send(octets);
    }
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let view = ControlView::decode(&message).unwrap();
    let nack = ControlMessage::answer(&view, false).encode();
    stranger.send_to(&nack, router.peer.unwrap()).unwrap();
    router.answer(&message, true);
    let answer = answer_of(&mut client);
    assert_eq!((answer.prefix, answer.result), (name(PREFIX), Ok(())));
    connect_producer(&mut client, OTHER);
    let (message, _) = router.expect(Command::ROUTE_ADD);
    router.answer(&message, false);
    let answer = answer_of(&mut client);
    assert_eq!((answer.prefix, answer.result), (name(OTHER), Err(RegistrationError::Negative)));
    connect_producer(&mut client, "/not/hicn");
    assert_eq!(answer_of(&mut client).result, Err(RegistrationError::NotHicn));
}

#[test]
fn repeats_a_lost_request() {
    let (mut router, mut client) = HicnLight::start();
    connect_producer(&mut client, PREFIX);
    let (first, _) = router.expect(Command::ROUTE_ADD);
    let waiting = std::thread::spawn(move || answer_of(&mut client).result);
    let (second, _) = router.expect(Command::ROUTE_ADD);
    assert_eq!(first, second, "the same sequence number");
    router.answer(&second, true);
    assert_eq!(waiting.join().unwrap(), Ok(()));
}

#[test]
fn says_that_it_ends() {
    let (mut router, client) = HicnLight::start();
    drop(client);
    router.expect(Command::CONNECTION_REMOVE);
}

/// hicn-light refuses to remove a route of the connection that asks.
#[test]
fn removes_one_of_several_routes() {
    let (mut router, mut client) = HicnLight::start();
    for uri in [PREFIX, OTHER] {
        connect_producer(&mut client, uri);
        let (message, _) = router.expect(Command::ROUTE_ADD);
        router.answer(&message, true);
        assert_eq!(answer_of(&mut client).result, Ok(()));
    }
    let waiting = std::thread::spawn(move || {
        client.unregister_prefix(&name(PREFIX)).unwrap();
        client.flush().unwrap();
        client
    });
    let (message, prefix) = router.expect(Command::ROUTE_REMOVE);
    assert_eq!(prefix, hicn_prefix(PREFIX));
    router.answer(&message, false);
    let mut client = waiting.join().unwrap();
    let message = router.receive();
    let list = ControlView::decode(&message).unwrap();
    assert_eq!(list.request(), Ok(Request::ListRoutes));
    let route =
        |uri, connection| ListedRoute { connection, prefix: hicn_prefix(uri).unwrap(), cost: 1 };
    let routes = [route(OTHER, 7), route(PREFIX, 7), route(OTHER, 8)];
    router.send(&ControlMessage::answer(&list, true).encode_routes(&routes));
    let serving = std::thread::spawn(move || {
        let mut packets = Vec::new();
        client.poll(None, &mut packets).unwrap();
        client.flush().unwrap();
        client
    });
    let message = router.receive();
    let view = ControlView::decode(&message).unwrap();
    let Ok(Request::RemoveRoute { connection, prefix }) = view.request() else {
        panic!("{view:?}")
    };
    assert!(connection.is_own(7) && Some(prefix) == hicn_prefix(PREFIX));
    drop(serving.join().unwrap());
    router.expect(Command::CONNECTION_REMOVE);
}

#[test]
fn commands_need_management() {
    let (_router, mut client) = HicnLight::start();
    let refused = client.dataset_content("faces/list").unwrap_err();
    assert!(matches!(refused, crate::CommandError::NoManagement(_)), "{refused}");
    assert!(client.enable_local_fields().is_err());
    let parameters = weir_manage::ControlParameters::default();
    let command = weir_manage::commands::Command::CsErase;
    assert_eq!(client.send_command(PathId(0), command, &parameters), None);
    assert_eq!(client.dropped(), 0, "nothing was queued");
}

mod ndn {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use weir_base::NS_PER_S;
    use weir_wire::{InterestView, LpFraming, LpView, peek_frame};

    use super::*;

    /// Reads the next command. Returns its Interest and the name without the signature.
    fn command(router: &mut UnixStream) -> (Vec<u8>, String) {
        // Only a failure waits this long.
        router.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut received, mut block) = (Vec::new(), [0; 1]);
        while peek_frame(&received).unwrap().is_none_or(|len| len > received.len()) {
            router.read_exact(&mut block).expect("a command");
            received.push(block[0]);
        }
        command_of(&received).expect("a command")
    }

    /// `None` if the frame has only fields of the link.
    fn command_of(frame: &[u8]) -> Option<(Vec<u8>, String)> {
        let interest = LpView::decode(frame).unwrap().fragment?.to_vec();
        let name = InterestView::decode(&interest).unwrap().name.prefix(4).to_string();
        Some((interest, name))
    }

    /// A router that was restarted has forgotten the settings of its faces, and its management may
    /// be starting.
    #[test]
    fn sources_are_requested_on_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&FaceUri::Unix(path)).unwrap();
        let waker = client.waker();
        let (end, ended) = crossbeam_channel::bounded::<()>(1);
        let driver = std::thread::spawn(move || {
            client.retry_last_path();
            client.report_sources().unwrap();
            let mut packets = Vec::new();
            while ended.try_recv().is_err() {
                client.poll(None, &mut packets).unwrap();
            }
            assert!(packets.is_empty(), "answers are not for the caller");
        });
        for _ in 0..2 {
            let (mut router, _) = listener.accept().unwrap();
            let (first, name) = command(&mut router);
            assert_eq!(name, "/localhost/nfd/faces/update");
            let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
            let nack = nack.encode(&LpFraming::BARE, &[], Some(&first));
            router.write_all(&nack).unwrap();
            let (second, name) = command(&mut router);
            assert_eq!(name, "/localhost/nfd/faces/update");
            assert_ne!(first, second);
        }
        end.send(()).unwrap();
        waker.wake().unwrap();
        driver.join().unwrap();
    }

    /// A router at a UDP address, without a client's event loop.
    struct UdpRouter {
        socket: UdpSocket,
        connector: NdnConnector,
        signer: CommandSigner,
    }

    impl UdpRouter {
        fn start() -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            // Only a failure waits this long.
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let uri = FaceUri::Udp(socket.local_addr().unwrap());
            let connector = NdnConnector::connect_consumer(&uri).unwrap();
            Self { socket, connector, signer: CommandSigner::new(Rng::from_seed(1)) }
        }

        fn connect_producer(&mut self, now: Instant, prefix: &Name) {
            self.connector.connect_producer(now, &mut self.signer, prefix, Inheritance::Longest);
        }

        fn run_timers(&mut self, now: Instant) {
            self.connector.run_timers(now, &mut self.signer);
        }

        /// Expects this many commands. More are returned if they have arrived.
        fn commands(&mut self, count: usize) -> Vec<(Vec<u8>, String)> {
            self.connector.connection_mut().flush().unwrap();
            let mut commands = Vec::new();
            let mut datagram = [0; 2000];
            loop {
                self.socket.set_nonblocking(commands.len() >= count).unwrap();
                let Ok((len, peer)) = self.socket.recv_from(&mut datagram) else { break };
                self.socket.connect(peer).unwrap();
                commands.extend(command_of(&datagram[..len]));
            }
            commands
        }

        fn verbs(&mut self, count: usize) -> Vec<String> {
            self.commands(count).into_iter().map(|(_, name)| name).collect()
        }
    }

    const REGISTER: &str = "/localhop/nfd/rib/register";
    const UNREGISTER: &str = "/localhop/nfd/rib/unregister";

    #[test]
    fn routes_over_udp_are_refreshed() {
        let (mut router, mut now) = (UdpRouter::start(), Instant::from_ns(NS_PER_S));
        let prefix = name("/p");
        router.connect_producer(now, &prefix);
        let first = router.commands(1);
        assert_eq!(first[0].1, REGISTER);
        now = router.connector.next_wakeup().expect("a refresh");
        router.run_timers(now);
        let second = router.commands(1);
        assert!(second[0].1 == REGISTER && first != second);
        router.connector.disconnect_producer(now, &mut router.signer, &prefix, false);
        assert_eq!(router.verbs(1), [UNREGISTER]);
        router.run_timers(now.plus_ns(3600 * NS_PER_S));
        assert!(router.verbs(0).is_empty(), "the route has ended");
    }

    /// A burst of all of them would exceed the queue, which then always drops the same ones.
    #[test]
    fn many_routes_are_refreshed_in_turns() {
        let (mut router, mut now) = (UdpRouter::start(), Instant::from_ns(NS_PER_S));
        for index in 0..120 {
            router.connect_producer(now, &name(&format!("/p/{index}")));
            assert_eq!(router.verbs(1), [REGISTER]);
        }
        let mut queued_before = 0;
        for count in [50, 50, 20] {
            now = router.connector.next_wakeup().expect("a refresh");
            router.run_timers(now);
            // A command has 154 to 156 bytes.
            let queued = router.connector.connection().link.queue_bytes();
            assert_eq!((queued - queued_before + 77) / 155, count);
            queued_before = queued;
        }
        router.run_timers(now.plus_ns(9 * NS_PER_S));
        let queued = router.connector.connection().link.queue_bytes();
        assert_eq!(queued, queued_before, "the next round is later");
    }

    #[test]
    fn abandoned_registration_is_not_refreshed() {
        let (mut router, now) = (UdpRouter::start(), Instant::from_ns(NS_PER_S));
        let prefix = name("/p");
        router.connect_producer(now, &prefix);
        assert_eq!(router.verbs(1), [REGISTER]);
        router.connector.forget_answer(&prefix);
        router.run_timers(now.plus_ns(3600 * NS_PER_S));
        assert!(router.verbs(0).is_empty());
    }

    #[test]
    fn late_answers_are_not_for_the_caller() {
        let (mut router, now) = (UdpRouter::start(), Instant::from_ns(NS_PER_S));
        let prefix = name("/p");
        router.connect_producer(now, &prefix);
        router.connect_producer(now.plus_ns(2 * NS_PER_S), &prefix);
        router.connector.forget_answer(&prefix);
        let commands = router.commands(2);
        assert_eq!(commands.len(), 2);
        let header = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
        for (interest, _) in &commands {
            let nack = header.encode(&LpFraming::BARE, &[], Some(interest));
            router.socket.send(&nack).unwrap();
        }
        // Both have arrived.
        std::thread::sleep(Duration::from_millis(50));
        let (mut packets, mut control, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let mut received = Received {
            packets: &mut packets,
            control: &mut control,
            frames: &mut frames,
            has_frames: false,
            dropped: 0,
        };
        let mut pool = Pool::new(0);
        router.connector.recv_packets(now, PathId(0), &mut pool, &mut received).unwrap();
        assert!(received.has_frames && packets.is_empty(), "{packets:?}");
        assert!(!router.connector.has_answers());
        // Only the timer of the link is left, if any.
        router.run_timers(now.plus_ns(60 * NS_PER_S));
        assert!(router.verbs(0).is_empty());
    }
}
