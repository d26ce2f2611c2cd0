//! Publications that the threads of a session sign.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use weir_security::{DigestSigner, KeyLocator, SignError, SignatureType, Signer};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Producer, ProducerOptions, Session, SocketError,
};
use weir_tests::sockets::{block_on, content, digest_verifier, name, session};
use weir_tests::{Host, Router, TEST_TIMEOUT};
use weir_wire::{Interest, Name};

fn producer(session: &Session, signer: impl Signer + 'static, threads: u32) -> Producer {
    let options = ProducerOptions { threads, ..ProducerOptions::default() };
    Producer::bind_with(session, name("/p"), Identity::new(signer), options).unwrap()
}

fn read(session: &Session, name: &Name) -> Result<Vec<u8>, std::io::Error> {
    let mut consumer = Consumer::bind(session, Name::new(), digest_verifier());
    let options = ConsumerOptions { stored: false, ..ConsumerOptions::default() };
    consumer.set_options(options).unwrap();
    let mut octets = Vec::new();
    consumer.fetch(name)?.read_to_end(&mut octets)?;
    Ok(octets)
}

/// A digest signer that records names and threads. For some names it waits, fails or panics.
#[derive(Clone, Default)]
struct RecordingSigner(Arc<Mutex<SignerLog>>);

#[derive(Default)]
struct SignerLog {
    threads: HashSet<ThreadId>,
    names: Vec<String>,
    /// Reports that a signature waits, and receives the permission to continue.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

impl RecordingSigner {
    /// A signer that waits at the first signature, and the other ends of its channels.
    fn with_gate() -> (Self, Receiver<()>, Sender<()>) {
        let (waits, is_waiting) = channel();
        let (go_on, goes_on) = channel();
        let watched = Self::default();
        watched.0.lock().unwrap().gate = Some((waits, goes_on));
        (watched, is_waiting, go_on)
    }

    fn has_signed(&self, part: &str) -> bool {
        self.0.lock().unwrap().names.iter().any(|name| name.contains(part))
    }
}

impl Signer for RecordingSigner {
    fn signature_type(&self) -> SignatureType {
        DigestSigner.signature_type()
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        let text = String::from_utf8_lossy(&portions.concat()).into_owned();
        let gate = {
            let mut seen = self.0.lock().unwrap();
            seen.threads.insert(thread::current().id());
            seen.names.push(text.clone());
            seen.gate.take()
        };
        if let Some((waits, goes_on)) = gate {
            waits.send(()).unwrap();
            let _ = goes_on.recv();
        }
        if text.contains("broken") {
            return Err(SignError::Provider);
        }
        assert!(!text.contains("panics"), "as it should");
        DigestSigner.sign(portions)
    }
}

#[test]
fn background_publication_is_read_by_all() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, DigestSigner, 0);
    let object = |number: usize| name(&format!("/p/{number}"));
    let begin = |number: usize| producer.publish_async(&object(number), content(10 * number));
    let pending: Vec<_> = (0..200).map(|number| begin(number).unwrap()).collect();
    for (number, pending) in pending.into_iter().enumerate() {
        // Test both the future and the blocking call.
        let versioned = if number % 2 == 0 { block_on(pending) } else { pending.wait() }.unwrap();
        assert!(object(number).as_view().is_prefix_of(versioned.as_view()));
        if number % 20 == 0 {
            assert_eq!(read(&other, &object(number)).unwrap(), content(10 * number));
        }
    }
    // An object of several chunks and several batches of packets.
    let large = content(3_000_000);
    let versioned = block_on(producer.publish_async(&name("/p/large"), large.clone()).unwrap());
    assert!(read(&other, &versioned.unwrap()).unwrap() == large);
    // The last call is the latest version, independent of the order of signing.
    let versions: Vec<_> = (0..50_u8)
        .map(|number| producer.publish_async(&name("/p/again"), vec![number]).unwrap())
        .collect();
    let versions: Vec<Name> = versions.into_iter().map(|one| one.wait().unwrap()).collect();
    assert!(versions.is_sorted());
    assert_eq!(read(&other, &name("/p/again")).unwrap(), [49]);
    let outside = producer.publish_async(&name("/q"), vec![1]).map(drop).unwrap_err();
    assert!(matches!(outside, SocketError::OutsidePrefix { .. }), "{outside}");
}

#[test]
fn dropping_a_queued_publication_cancels_it() {
    let router = Router::on_new_host();
    let session = session(&router);
    let (watched, is_waiting, go_on) = RecordingSigner::with_gate();
    let producer = producer(&session, watched.clone(), 1);
    let first = producer.publish_async(&name("/p/first"), vec![1]).unwrap();
    is_waiting.recv().unwrap();
    drop(first);
    drop(producer.publish_async(&name("/p/second"), vec![2]).unwrap());
    let third = producer.publish_async(&name("/p/third"), vec![3]).unwrap();
    go_on.send(()).unwrap();
    block_on(third).unwrap();
    assert!(!watched.has_signed("second"));
    // A publication that had started is completed.
    assert_eq!(read(&session, &name("/p/first")).unwrap(), [1]);
    assert_eq!(read(&session, &name("/p/third")).unwrap(), [3]);
}

#[test]
fn queued_publications_end_with_the_session() {
    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let (watched, is_waiting, go_on) = RecordingSigner::with_gate();
    let producer = producer(&session, watched.clone(), 1);
    let pending: Vec<_> = (0..3)
        .map(|number| producer.publish_async(&name(&format!("/p/{number}")), vec![1]).unwrap())
        .collect();
    is_waiting.recv().unwrap();
    let ends = thread::spawn(move || drop((producer, session)));
    go_on.send(()).unwrap();
    ends.join().unwrap();
    for pending in pending {
        // A running publication may have completed in time.
        let result = pending.wait();
        assert!(matches!(result, Ok(_) | Err(SocketError::Closed)), "{result:?}");
    }
}

#[test]
fn failing_signer_is_reported_and_isolated() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, RecordingSigner::default(), 2);
    for _ in 0..5 {
        let begin = |last: &str| producer.publish_async(&name(&format!("/p/{last}")), vec![1]);
        let (broken, panics) = (begin("broken").unwrap(), begin("panics").unwrap());
        let fine = begin("fine").unwrap();
        assert!(matches!(block_on(broken), Err(SocketError::Invalid(_))));
        assert_eq!(block_on(panics), Err(SocketError::Closed));
        block_on(fine).unwrap();
    }
    assert_eq!(read(&session, &name("/p/fine")).unwrap(), [1]);
}

/// Regression: each publication of a large object started its own threads.
#[test]
fn session_threads_sign_large_objects() {
    let router = Router::on_new_host();
    let session = session(&router);
    let watched = RecordingSigner::default();
    let producer = producer(&session, watched.clone(), 4);
    let large = content(2_000_000);
    for _ in 0..10 {
        producer.publish(&name("/p/large"), large.clone()).unwrap();
    }
    let threads = watched.0.lock().unwrap().threads.len();
    assert!((1..=5).contains(&threads), "{threads}: this one, and four of the session");
    assert!(read(&session, &name("/p/large")).unwrap() == large);
}

#[test]
fn cancelled_publication_is_not_published() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, DigestSigner, 2);
    // Cancel during the signing, and during the handover.
    for turns in [0, 20] {
        let mut left = turns;
        let mut goes_on = || {
            left -= 1;
            left >= 0
        };
        let broken_off = producer.publish_while(&name("/p/a"), content(10_000_000), &mut goes_on);
        assert_eq!(broken_off, Err(SocketError::Stopped), "after {turns}");
    }
    producer.publish_while(&name("/p/b"), content(10_000_000), &mut || true).unwrap();
    assert!(read(&session, &name("/p/b")).unwrap() == content(10_000_000));
}

/// Closing must end the wait before the Interest or the request times out.
#[test]
fn closing_ends_waiting_receivers() {
    let host = Host::new();
    let router = Router::start(&host);
    let asking = session(&router);
    let consumer = Consumer::bind(&asking, Name::new(), digest_verifier());
    let ask = |uri: &str| {
        let interest = Interest::new(name(uri)).nonce(1).lifetime_ms(3_600_000).encode();
        consumer.express(&interest).unwrap()
    };
    let bind = |session: &Session, prefix: &str| {
        let options = ProducerOptions { request_wait: "1h".parse().unwrap(), ..Default::default() };
        let identity = Identity::new(DigestSigner);
        Producer::bind_with(session, name(prefix), identity, options).unwrap()
    };
    // The session continues with another producer, or ends with this one.
    let serving = session(&router);
    let (one, other) = (bind(&serving, "/p"), bind(&serving, "/q"));
    drop(serving);
    for (producer, uri) in [(one, "/p/never"), (other, "/q/never")] {
        let pending = ask(uri);
        assert_eq!(*producer.recv().unwrap().name(), name(uri));
        drop(producer);
        let (send, answer) = channel();
        thread::spawn(move || send.send(pending.wait()));
        let answer = answer.recv_timeout(TEST_TIMEOUT).expect("it waits on");
        assert!(matches!(answer, Err(SocketError::NoRoute(_))), "{answer:?}");
    }
}
