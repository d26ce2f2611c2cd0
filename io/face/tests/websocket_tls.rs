//! WebSocket faces over TLS: a router's client, and raw TLS connections of rustls.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use weir_base::{Packet, Pool};
use weir_face::{
    Accepted, CertificateFiles, Connected, FaceUri, Listener, RecvStatus, SendStatus,
    ServerCertificate, Socket, TcpListener, TlsTrust, WebSocketListener,
};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::face::{data, link_with, octets_of, packets_of};
use weir_link::{Link, LinkConfig};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// An authority, and the files of a router.
struct Files {
    dir: TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let files = Self { dir: tempfile::tempdir().unwrap(), ca };
        fs::write(files.path("ca.pem"), files.ca.pem()).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Issues a certificate for these hosts, and writes both files.
    fn issue(&self, hosts: &[&str]) -> CertificateFiles {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(hosts).unwrap();
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let files =
            CertificateFiles { certificate: self.path("tls.pem"), key: self.path("tls.key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    fn trust(&self) -> TlsTrust {
        TlsTrust::new(Some(self.path("ca.pem"))).unwrap()
    }

    fn listen(&self, hosts: &[&str]) -> (Listener, u16) {
        let certificate = ServerCertificate::load(&self.issue(hosts)).unwrap();
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let tcp = TcpListener::bind(any_port).unwrap();
        let listener = WebSocketListener::on(tcp, Some(certificate));
        let uri = listener.local_uri();
        assert!(uri.to_string().starts_with("wss://127.0.0.1:"), "{uri}");
        (Listener::WebSocket(listener), uri.socket_addr().unwrap().port())
    }

    /// A TLS connection whose client does not know WebSocket.
    fn raw(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.ca.der().to_vec())).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        tcp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        StreamOwned::new(tls, tcp)
    }
}

/// Accepts a connection, and waits for its request.
fn accept(listener: &Listener) -> std::io::Result<Socket> {
    let until = Clock::now() + Duration::from_millis(500);
    let mut handshake = loop {
        match listener.accept().unwrap() {
            Some(Accepted::Handshake(handshake)) => break handshake,
            None if Clock::now() < until => std::thread::sleep(Duration::from_millis(1)),
            None => return Err(std::io::ErrorKind::TimedOut.into()),
            Some(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(handshake.peer(), Ipv4Addr::LOCALHOST);
    let until = Clock::now() + TEST_TIMEOUT;
    while !handshake.read()? {
        assert!(Clock::now() < until, "no request came");
        std::thread::sleep(Duration::from_millis(1));
    }
    Socket::of_handshake(handshake)
}

/// Connects to `uri` with the trust of `files`, while `listener` accepts.
fn connect(files: &Files, listener: &Listener, uri: &str) -> Result<(Socket, Socket), String> {
    let (uri, trust) = (FaceUri::resolve(uri).unwrap(), files.trust());
    let client = std::thread::spawn(move || {
        match Connected::with_trust(&uri, Duration::from_secs(5), &trust) {
            Ok(Connected::Socket(socket)) => Ok(socket),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    });
    // A host with several addresses gets more than one connection.
    let mut far = None;
    while far.is_none() && !client.is_finished() {
        far = accept(listener).ok();
    }
    client.join().unwrap().map(|near| (near, far.expect("the other end")))
}

fn pump(from: &mut Socket, link: &mut Link, to: &mut Socket) -> Vec<Packet> {
    let (mut pool, mut frames) = (Pool::new(4 << 20), Vec::new());
    let count = link.frames().len();
    let until = Clock::now() + TEST_TIMEOUT;
    while frames.len() < count {
        assert!(Clock::now() < until, "{} of {count} frames came", frames.len());
        let sent = from.send(link).unwrap();
        assert!(sent == SendStatus::WouldBlock || link.is_egress_empty());
        to.recv(&mut pool, &mut frames).unwrap();
    }
    frames
}

fn receive(face: &mut Socket, count: usize) -> (Vec<Packet>, RecvStatus) {
    let (mut pool, mut frames) = (Pool::new(4 << 20), Vec::new());
    let until = Clock::now() + TEST_TIMEOUT;
    loop {
        let status = face.recv(&mut pool, &mut frames).unwrap();
        if frames.len() >= count || !matches!(status, RecvStatus::Drained | RecvStatus::More) {
            return (frames, status);
        }
        assert!(Clock::now() < until, "{} of {count} frames came", frames.len());
    }
}

#[test]
fn packets_of_all_sizes_cross_both_ways() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    let uri = format!("wss://LocalHost:{port}/ws/");
    let (mut near, mut far) = connect(&files, &listener, &uri).unwrap();
    assert_eq!(near.remote_uri().to_string(), format!("wss://localhost:{port}/ws/"));
    assert_eq!(far.local_uri().to_string(), format!("wss://127.0.0.1:{port}"));
    assert_eq!(far.remote_uri(), near.local_uri());
    assert!(near.is_local() && far.is_local());

    let packets: Vec<Packet> =
        (0..2000).map(|index| data(2 + (index * index * 37) % 8700, index)).collect();
    let mut config = LinkConfig::stream();
    config.egress.queue_bytes_max = 64 << 20;
    let mut link = link_with(&packets, config.clone());
    assert!(packets_of(pump(&mut near, &mut link, &mut far)) == packets);
    let mut link = link_with(&packets, config);
    assert!(packets_of(pump(&mut far, &mut link, &mut near)) == packets);
    assert!(!near.has_unsent() && !far.has_unsent());

    drop(near);
    assert_eq!(receive(&mut far, 1), (Vec::new(), RecvStatus::Closed));
}

/// A peer that reads nothing: what the socket does not accept stays in the queue, and at most one
/// batch in TLS. Everything arrives later.
#[test]
fn full_socket_keeps_the_rest() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    let (mut near, mut far) =
        connect(&files, &listener, &format!("wss://localhost:{port}")).unwrap();
    let packets: Vec<Packet> = (0..4000).map(|index| data(8000, index)).collect();
    let mut config = LinkConfig::stream();
    config.egress.queue_bytes_max = 64 << 20;
    let mut link = link_with(&packets, config);
    let all = octets_of(&link).len();
    assert_eq!(far.send(&mut link).unwrap(), SendStatus::WouldBlock);
    assert!(far.has_unsent());
    let left = octets_of(&link).len();
    assert!(0 < left && left < all);
    let (mut pool, mut frames) = (Pool::new(64 << 20), Vec::new());
    let until = Clock::now() + TEST_TIMEOUT;
    while frames.len() < packets.len() {
        assert!(Clock::now() < until, "{} frames came", frames.len());
        near.recv(&mut pool, &mut frames).unwrap();
        far.send(&mut link).unwrap();
    }
    assert!(packets_of(frames) == packets);
}

#[test]
fn client_verifies_host_and_authority() {
    let files = Files::new();
    let (listener, port) = files.listen(&["router.example", "localhost"]);
    connect(&files, &listener, &format!("wss://localhost:{port}")).unwrap();
    let error = connect(&files, &listener, &format!("wss://127.0.0.1:{port}")).unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");
    let error = connect(&Files::new(), &listener, &format!("wss://localhost:{port}")).unwrap_err();
    assert!(error.contains("invalid peer certificate") && error.contains("tls_ca"), "{error}");
    let (listener, port) = files.listen(&["127.0.0.1"]);
    connect(&files, &listener, &format!("wss://127.0.0.1:{port}")).unwrap();
}

#[test]
fn wrong_scheme_names_the_right_one() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    let error = connect(&files, &listener, &format!("ws://127.0.0.1:{port}")).unwrap_err();
    assert!(error.contains("use wss://"), "{error}");
    let plain = WebSocketListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = plain.local_uri().socket_addr().unwrap().port();
    let listener = Listener::WebSocket(plain);
    let error = connect(&files, &listener, &format!("wss://localhost:{port}")).unwrap_err();
    assert!(error.contains("use ws://"), "{error}");
}

/// Clients refuse them, so the router must warn.
#[test]
fn expired_certificate_is_a_problem() {
    let files = Files::new();
    let problem = |from: (i32, u8, u8), until: (i32, u8, u8)| {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let good = files.issue(&["localhost"]);
        fs::write(&good.certificate, params.signed_by(&key, &files.ca).unwrap().pem()).unwrap();
        fs::write(&good.key, key.serialize_pem()).unwrap();
        ServerCertificate::load(&good).unwrap().problem()
    };
    assert_eq!(problem((2020, 1, 1), (4000, 1, 1)), None);
    let expired = problem((2020, 1, 1), (2021, 1, 1)).unwrap();
    assert!(expired.starts_with("it expired ") && expired.ends_with(" days ago"), "{expired}");
    let early = problem((3000, 1, 1), (4000, 1, 1)).unwrap();
    assert!(early.contains("becomes valid") && early.contains("clock"), "{early}");
    let issuer = ServerCertificate::load(&files.issue(&["localhost"])).unwrap();
    assert_eq!(issuer.problem(), None);
}

#[test]
fn renewed_certificate_needs_no_restart() {
    let files = Files::new();
    let (mut listener, port) = files.listen(&["old.example"]);
    let uri = format!("wss://localhost:{port}");
    connect(&files, &listener, &uri).unwrap_err();
    assert!(listener.reload_certificate().is_none(), "the files are unchanged");

    // Programs replace one file after the other.
    let written = files.issue(&["localhost"]);
    let new_key = fs::read(&written.key).unwrap();
    fs::write(&written.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let error = listener.reload_certificate().unwrap().unwrap_err();
    assert!(error.to_string().contains("tls.key"), "{error}");
    assert!(listener.reload_certificate().is_none(), "the same files are not read again");
    assert!(connect(&files, &listener, &uri).unwrap_err().contains("not valid"), "the old one");
    // The time of a file advances in steps of a few milliseconds.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&written.key, new_key).unwrap();
    listener.reload_certificate().unwrap().unwrap();
    connect(&files, &listener, &uri).unwrap();
    assert!(listener.reload_certificate().is_none());
    fs::remove_file(&written.certificate).unwrap();
    listener.reload_certificate().unwrap().unwrap_err();
    connect(&files, &listener, &uri).unwrap();
}

#[test]
fn unusable_files_are_named() {
    let files = Files::new();
    let good = files.issue(&["localhost"]);
    let load = |certificate: &str, key: &str| {
        let files = CertificateFiles { certificate: files.path(certificate), key: files.path(key) };
        ServerCertificate::load(&files).unwrap_err().to_string()
    };
    fs::write(files.path("empty"), "").unwrap();
    fs::write(files.path("other.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    ServerCertificate::load(&good).unwrap();
    assert!(load("none", "tls.key").contains("none"));
    assert!(load("empty", "tls.key").contains("no certificate"));
    assert!(load("tls.key", "tls.key").contains("no certificate"));
    assert!(load("tls.pem", "empty").contains("no private key"));
    // Opening a FIFO waits for a writer.
    let made = std::process::Command::new("mkfifo").arg(files.path("fifo")).status().unwrap();
    assert!(made.success());
    for (name, why) in [("fifo", "no regular file"), (".", "no regular file")] {
        assert!(load(name, "tls.key").contains(why), "{name}");
        assert!(load("tls.pem", name).contains(why), "{name}");
    }
    fs::File::create(files.path("long")).unwrap().set_len(1 << 30).unwrap();
    assert!(load("long", "tls.key").contains("longer than 1 MiB"));
    let certificate = fs::read_to_string(&good.certificate).unwrap();
    fs::write(files.path("cut.pem"), &certificate[..certificate.len() / 2]).unwrap();
    assert!(load("cut.pem", "tls.key").contains("has no end"));
    assert!(load("tls.pem", "other.key").contains("the private key"));
    let error = TlsTrust::new(Some(files.path("empty"))).unwrap_err().to_string();
    assert!(error.contains("authority") && error.contains("empty"), "{error}");
}

/// The request and the first packet in one record: the packet waits in TLS, not in the kernel.
#[test]
fn packet_in_record_of_request_is_kept() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    let mut raw = files.raw(port);
    let frame = [&[0x82, 0x82, 0, 0, 0, 0][..], &data(2, 0)].concat();
    let client = std::thread::spawn(move || {
        raw.write_all(&[REQUEST.as_bytes(), &frame].concat()).unwrap();
        raw.flush().unwrap();
        let mut answer = [0; 12];
        raw.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 101");
        raw
    });
    let mut face = accept(&listener).unwrap();
    assert_eq!(receive(&mut face, 1).0, [data(2, 0)]);
    drop(client.join().unwrap());
    // Without the alert of TLS.
    assert_eq!(receive(&mut face, 1), (Vec::new(), RecvStatus::Closed));
}

#[test]
fn other_protocols_are_refused() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    for sent in [REQUEST.as_bytes(), &[0; 100], &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0]] {
        let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        plain.write_all(sent).unwrap();
        plain.shutdown(std::net::Shutdown::Write).unwrap();
        accept(&listener).unwrap_err();
    }
    let mut raw = files.raw(port);
    let client = std::thread::spawn(move || {
        raw.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        raw.read_to_string(&mut answer).unwrap();
        answer
    });
    accept(&listener).unwrap_err();
    let answer = client.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
}

/// A forged record closes the face.
#[test]
fn damaged_record_ends_the_face() {
    let files = Files::new();
    let (listener, port) = files.listen(&["localhost"]);
    let mut raw = files.raw(port);
    let client = std::thread::spawn(move || {
        raw.write_all(REQUEST.as_bytes()).unwrap();
        raw.read_exact(&mut [0; 12]).unwrap();
        raw.sock.write_all(&[0x17, 3, 3, 0, 32]).unwrap();
        raw.sock.write_all(&[7; 32]).unwrap();
        raw
    });
    let mut face = accept(&listener).unwrap();
    let _client = client.join().unwrap();
    let (mut pool, until) = (Pool::new(1 << 20), Clock::now() + TEST_TIMEOUT);
    let error = loop {
        assert!(Clock::now() < until);
        if let Err(error) = face.recv(&mut pool, &mut Vec::new()) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
}
