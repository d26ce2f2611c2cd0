//! WebSocket faces of a router, with the client of tungstenite in the place of a browser.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use socket2::{Domain, Socket, Type};
use tungstenite::client::ClientRequestBuilder;
use tungstenite::{Message, WebSocket};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    ReceivedPacket, TestRouter, command_interest, content_of, data, interest, name, name_of,
    response_of,
};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency};
use weir_runtime::{CertificateFiles, Listener, Runtime, RuntimeConfig, Snapshot};

fn listen(config: &mut RuntimeConfig) {
    let address = "127.0.0.1:0".parse().unwrap();
    config.listeners.push(Listener::WebSocket { address, required: true });
}

fn router() -> TestRouter {
    TestRouter::start_with(listen)
}

fn stream_to(router: &TestRouter) -> TcpStream {
    let stream = TcpStream::connect(address_of(router)).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn address_of(router: &TestRouter) -> SocketAddr {
    let uris = router.handle().listening().iter();
    let address = uris.filter_map(|uri| uri.strip_prefix("ws://")).next();
    address.expect("a listener").parse().unwrap()
}

/// A page that has connected.
struct Page(WebSocket<TcpStream>);

impl Page {
    fn open(router: &TestRouter) -> Self {
        Self::of_site(router, None)
    }

    fn of_site(router: &TestRouter, origin: Option<&str>) -> Self {
        let uri = format!("ws://{}/", address_of(router)).parse().unwrap();
        let mut request = ClientRequestBuilder::new(uri);
        if let Some(origin) = origin {
            request = request.with_header("Origin", origin);
        }
        Self(tungstenite::client(request, stream_to(router)).unwrap().0)
    }

    fn send(&mut self, packet: &[u8]) {
        self.0.send(Message::binary(packet.to_vec())).unwrap();
    }

    fn receive(&mut self) -> ReceivedPacket {
        match self.0.read().unwrap() {
            Message::Binary(packet) => ReceivedPacket::of_frame(&packet),
            other => panic!("{other:?}"),
        }
    }
}

fn has_pages(snapshot: &Snapshot) -> bool {
    snapshot.faces.iter().any(|face| face.uri.starts_with("wsclient://"))
}

fn drops(snapshot: &Snapshot, reason: &str) -> u64 {
    let found = snapshot.runtime_drops.iter().find(|(known, _)| *known == reason);
    found.unwrap_or_else(|| panic!("no counter {reason}")).1
}

#[test]
fn page_fetches_data_and_leaves_no_face() {
    for threads in [1, 2] {
        let router = TestRouter::start_with(|config| {
            listen(config);
            config.threads = threads;
        });
        let mut producer = router.unix();
        producer.register("/p");
        let mut page = Page::open(&router);
        page.send(&interest("/p/1"));
        assert_eq!(name_of(&producer.receive().interest()), "/p/1");
        producer.send(&data("/p/1", &[7; 8000]));
        assert_eq!(content_of(&page.receive().data()), [7; 8000]);

        let snapshot = router.snapshot();
        let face = snapshot.faces.iter().find(|face| face.uri.starts_with("wsclient://")).unwrap();
        let local = page.0.get_ref().local_addr().unwrap();
        assert_eq!(face.uri, format!("wsclient://{local}"));
        assert_eq!(face.local_uri, format!("ws://{}", address_of(&router)));
        assert_eq!((face.counters.in_interests, face.counters.out_data), (1, 1));

        page.0.close(None).unwrap();
        assert!(matches!(page.0.read().unwrap(), Message::Close(_)));
        router.wait_until("the page is gone", |snapshot| !has_pages(snapshot));
        // A page that crashes.
        let mut page = Page::open(&router);
        page.send(&interest("/p/1"));
        assert_eq!(content_of(&page.receive().data()), [7; 8000]);
        drop(page);
        router.wait_until("the page is gone", |snapshot| !has_pages(snapshot));
    }
}

#[test]
fn stopping_router_says_goodbye() {
    let router = router();
    let mut page = Page::open(&router);
    page.send(&interest("/x"));
    page.receive();
    router.stop();
    assert!(matches!(page.0.read().unwrap(), Message::Close(Some(_))));
}

/// Bytes that are no packet are dropped. The face stays, as in NFD.
#[test]
fn malformed_messages_are_counted_drops() {
    let router = router();
    let mut producer = router.unix();
    producer.register("/p");
    let mut page = Page::open(&router);
    for message in [&b""[..], &[0xff; 100], &[5], &[interest("/p/a"), interest("/p/b")].concat()] {
        page.send(message);
    }
    page.send(&interest("/p/c"));
    assert_eq!(name_of(&producer.receive().interest()), "/p/c");
    assert!(has_pages(&router.snapshot()));
}

#[test]
fn broken_protocol_closes_face_and_is_counted() {
    let router = router();
    let frames: [&[u8]; 3] = [
        // Text, not masked, longer than a packet.
        &[0x81, 0x81, 0, 0, 0, 0, b'x'],
        &[0x82, 1, 0],
        &[0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for frame in frames {
        let mut page = Page::open(&router);
        page.0.get_mut().write_all(frame).unwrap();
        assert!(matches!(page.0.read().unwrap(), Message::Close(Some(_))));
    }
    router.wait_until("all are closed", |snapshot| !has_pages(snapshot));
    assert_eq!(drops(&router.snapshot(), "framing-lost"), 3);
}

/// More stalled handshakes than the router keeps. The oldest ones make room.
#[test]
fn stalled_handshakes_hold_up_no_page() {
    let router = router();
    let begin = |_| {
        let mut stream = stream_to(&router);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
        stream
    };
    let mut stalled: Vec<TcpStream> = (0..300).map(begin).collect();
    let mut page = Page::open(&router);
    page.send(&interest("/x"));
    page.receive();
    assert!(matches!(stalled[0].read(&mut [0]), Ok(0) | Err(_)), "it was replaced");
    let snapshot = router.snapshot();
    assert!(drops(&snapshot, "handshake-failed") >= 44, "{snapshot:#?}");
    assert_eq!(snapshot.faces.len(), 1);
    // The others time out after 5 s.
    let last = stalled.last_mut().unwrap();
    assert!(matches!(
        last.read(&mut [0]).map_err(|error| error.kind()),
        Ok(0) | Err(io::ErrorKind::ConnectionReset)
    ));
    router.wait_until("all have timed out", |one| drops(one, "handshake-failed") == 300);
}

/// A host that stalls replaces only its own handshakes.
#[test]
fn stalling_host_does_not_disturb_others() {
    let router = router();
    let mut stalled: Vec<TcpStream> = (0..250).map(|_| stream_to(&router)).collect();
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&address_of(&router).into()).unwrap();
    let other = TcpStream::from(other);
    other.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stalled.extend((0..50).map(|_| stream_to(&router)));
    // 64 of the host remain, and time out later.
    router.wait_until("most are replaced", |one| drops(one, "handshake-failed") >= 236);
    let uri = format!("ws://{}/", address_of(&router)).parse().unwrap();
    tungstenite::client(ClientRequestBuilder::new(uri), other).unwrap();
}

#[test]
fn requests_without_upgrade_are_refused() {
    let router = router();
    let mut stream = stream_to(&router);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
    assert_eq!(drops(&router.snapshot(), "handshake-failed"), 1);
}

/// A page of any site can connect to a router on the user's host. Only programs and pages of this
/// host are local.
#[test]
fn foreign_page_on_this_host_is_not_local() {
    let router = router();
    let parameters = ControlParameters { name: Some(name("/p")), ..ControlParameters::default() };
    let mut own = Page::of_site(&router, Some("http://localhost:8080"));
    own.send(&command_interest(Command::RibRegister, &parameters));
    assert_eq!(response_of(&own.receive().data()).code, 200);

    let mut foreign = Page::of_site(&router, Some("https://evil.example"));
    foreign.send(&command_interest(Command::RibRegister, &parameters));
    // Packets for /localhost from other hosts are dropped.
    foreign.send(&interest("/p/1"));
    assert_eq!(name_of(&own.receive().interest()), "/p/1");
    own.send(&data("/p/1", b"content"));
    assert_eq!(content_of(&foreign.receive().data()), b"content");
}

#[test]
fn routers_connect_by_command() {
    let (near, far) = (router(), router());
    let uri = format!("ws://{}", address_of(&far));
    exchange_packets(&near, &far, &uri);
}

/// Creates a face from `near` to `far`, fetches Data, and destroys the face.
fn exchange_packets(near: &TestRouter, far: &TestRouter, uri: &str) {
    let mut producer = far.unix();
    producer.register("/p");
    let mut operator = near.unix();
    let create = ControlParameters {
        uri: Some(uri.to_owned()),
        face_persistency: Some(FacePersistency::Persistent),
        ..ControlParameters::default()
    };
    let created = operator.command(Command::FacesCreate, &create);
    assert_eq!(created.code, 200, "{created:?}");
    assert_eq!(operator.command(Command::FacesCreate, &create).code, 409);
    let face_id = created.body.unwrap().face_id;
    let route = ControlParameters { name: Some(name("/p")), face_id, ..Default::default() };
    assert_eq!(operator.command(Command::RibRegister, &route).code, 200);
    for number in 0..100 {
        let uri = format!("/p/{number}");
        operator.send(&interest(&uri));
        assert_eq!(name_of(&producer.receive().interest()), uri);
        producer.send(&data(&uri, &[3; 8000]));
        assert_eq!(content_of(&operator.receive().data()), [3; 8000]);
    }
    let destroy = ControlParameters { face_id, ..ControlParameters::default() };
    assert_eq!(operator.command(Command::FacesDestroy, &destroy).code, 200);
    far.wait_until("the face is gone", |snapshot| !has_pages(snapshot));
}

/// Also while the router runs: the certificate is renewed.
#[test]
fn routers_connect_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let files = CertificateFiles { certificate: path("tls.pem"), key: path("tls.key") };
    let issue = |host: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        fs::write(&files.certificate, params.signed_by(&key, &ca).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
    };
    issue("old.example");
    fs::write(path("ca.pem"), ca.pem()).unwrap();
    let far = TestRouter::start_with(|config| {
        let address = "127.0.0.1:0".parse().unwrap();
        let files = files.clone();
        config.listeners.push(Listener::WebSocketTls { address, required: true, files });
    });
    let near = TestRouter::start_with(|config| {
        config.face_defaults.tls_ca = Some(path("ca.pem"));
    });
    let listening = far.handle().listening().iter();
    let address = listening.filter_map(|uri| uri.strip_prefix("wss://127.0.0.1:")).next();
    let uri = format!("wss://localhost:{}/ws", address.expect("a listener"));
    let create = ControlParameters { uri: Some(uri.clone()), ..ControlParameters::default() };
    let refused = near.unix().command(Command::FacesCreate, &create);
    assert_eq!(refused.code, 504, "{refused:?}");
    assert!(refused.text.contains("not valid for name"), "{refused:?}");

    issue("localhost");
    exchange_packets(&near, &far, &uri);
}

#[test]
fn unusable_certificate_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.pem");
    let files = CertificateFiles { certificate: path.clone(), key: path };
    let mut config = weir_io_fixture::router::config(dir.path().join("nfd.sock"));
    let address = "127.0.0.1:0".parse().unwrap();
    config.listeners.push(Listener::WebSocketTls { address, required: true, files });
    let error = Runtime::start(config).unwrap_err().to_string();
    assert!(error.contains("none.pem") && error.contains("`tls_`"), "{error}");
}
