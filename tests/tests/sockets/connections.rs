//! Sessions with a missing or restarting router, and sessions shared by many sockets.

use std::io::Read as _;
use std::sync::{Arc, mpsc};
use std::task::Context;
use std::thread;
use std::time::Duration;
use weir_face::FaceUri;
use weir_security::trust::{Trust, TrustDecision};
use weir_security::{DigestSigner, Verifier};
use weir_socket::{Consumer, Identity, Producer, Session, SessionConfig, SocketError};
use weir_tests::sockets::{
    consumer, content, digest_verifier, error_of, name, producer, read_all, session,
};
use weir_tests::{Host, Router, TEST_TIMEOUT};
use weir_wire::DataView;

#[test]
fn missing_router_and_route_are_errors() {
    let host = Host::new();
    let missing = FaceUri::Unix(host.path("missing.sock"));
    let error = Session::connect(&missing).err();
    assert!(matches!(error, Some(SocketError::NoRouter(_))), "{error:?}");
    let router = Router::start(&host);
    let session = session(&router);
    let error = error_of(read_all(&consumer(&session, "/nowhere"), "/nowhere/a"));
    assert!(matches!(error, SocketError::NoRoute(_)), "{error}");
    let consumer = consumer(&session, "/nowhere");
    let mut reader = consumer.fetch(&name("/nowhere/a")).unwrap();
    drop((consumer, session));
    // The reader keeps its session until it is dropped.
    assert!(matches!(reader.metadata(), Err(SocketError::NoRoute(_))));
}

#[test]
fn sockets_survive_a_router_restart() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/p");
    let all = content(6_000_000);
    producer.publish(&name("/p/a"), all.clone()).unwrap();
    let mut consumer = consumer(&other, "/p");
    consumer.set("input_buffer", "256KiB").unwrap();
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    let mut octets = vec![0; 1_000_000];
    reader.read_exact(&mut octets).unwrap();
    drop(router);
    let router = Router::start(&host);
    reader.read_to_end(&mut octets).unwrap();
    assert!(octets == all);
    assert!(read_all(&consumer, "/p/a").unwrap() == all);
    drop(router);
}

#[test]
fn gives_up_on_an_unreachable_router() {
    let host = Host::new();
    let router = Router::start(&host);
    let one = session(&router);
    let producer = producer(&one, "/p");
    producer.publish(&name("/p/a"), content(3_000_000)).unwrap();
    let config = SessionConfig {
        router: Some(FaceUri::resolve(&router.unix()).unwrap()),
        router_wait: Duration::from_millis(200),
        ..SessionConfig::default()
    };
    let mut consumer = consumer(&Session::with(config).unwrap(), "/p");
    consumer.set("input_buffer", "128KiB").unwrap();
    let mut begun = consumer.fetch(&name("/p/a")).unwrap();
    begun.read_exact(&mut [0; 1000]).unwrap();
    drop(router);
    for mut reader in [begun, consumer.fetch(&name("/p/b")).unwrap()] {
        let error = error_of(reader.read_to_end(&mut Vec::new()));
        assert!(matches!(error, SocketError::NoRouter(_)), "{error}");
        assert_eq!(error.to_string().matches("was lost").count(), 1, "{error}");
    }
}

/// Reports its drop, and whether the thread was panicking.
struct DropReport(mpsc::Sender<bool>);

impl Drop for DropReport {
    fn drop(&mut self) {
        self.0.send(!thread::panicking()).unwrap();
    }
}

/// A trust policy that keeps the session that uses it.
struct SessionHoldingTrust {
    verifier: Arc<dyn Verifier>,
    _session: Session,
    _end: DropReport,
}

impl Trust for SessionHoldingTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.verifier.decide(data)
    }
}

#[test]
fn session_ends_when_its_thread_drops_it() {
    let router = Router::on_new_host();
    let session = session(&router);
    let (end, ended) = mpsc::channel();
    let trust = SessionHoldingTrust {
        verifier: digest_verifier(),
        _session: session.clone(),
        _end: DropReport(end),
    };
    let consumer = Consumer::bind(&session, name("/nowhere"), trust);
    let mut reader = consumer.fetch(&name("/nowhere/a")).unwrap();
    drop((consumer, session));
    let waker = std::task::Waker::noop();
    assert!(reader.poll_metadata(&mut Context::from_waker(waker)).is_pending());
    drop(reader);
    assert_eq!(ended.recv_timeout(TEST_TIMEOUT), Ok(true));
}

#[test]
fn thousand_consumers_share_a_session() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/p");
    for number in 0..50 {
        producer.publish(&name(&format!("/p/{number}")), content(20_000 + number)).unwrap();
    }
    let fetched: Vec<_> = (0..1000)
        .map(|number| {
            let consumer = consumer(&other, &format!("/p/{}", number % 50));
            let reader = consumer.fetch(consumer.prefix()).unwrap();
            (number % 50, reader)
        })
        .collect();
    // Read the last one first: no reader waits for another.
    for (number, mut reader) in fetched.into_iter().rev() {
        let mut octets = Vec::new();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == content(20_000 + number), "{number}");
    }
}

#[test]
fn bind_without_router_is_an_error() {
    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let first = producer(&session, "/first");
    drop(router);
    let error = Producer::bind(&session, name("/p"), Identity::new(DigestSigner)).err().unwrap();
    assert!(matches!(error, SocketError::NoRouter(_)), "{error}");
    drop(first);
}
