//! Sockets over a real router.

use std::future::poll_fn;
use std::io::{BufRead as _, Read as _, Seek as _, SeekFrom};
use std::sync::{Arc, mpsc};
use std::task::Context;
use std::thread;
use std::time::Duration;

use weir_base::units::Size;
use weir_face::FaceUri;
use weir_security::trust::{Decision, Trust};
use weir_security::{
    DigestSigner, KeyLocator, SignError, SignatureType, Signer, Verifier, VerifyError, sha256,
};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Offer, OptionInfo, OptionKind, Producer, Session,
    SessionConfig, SocketError,
};
use weir_tests::sockets::{
    self, anyone, block_on, consumer, content, error_of, name, producer, producer_with, read_all,
    session,
};
use weir_tests::{Host, PATIENCE, Process, Router, socket_example};
use weir_transport::Metadata;
use weir_wire::{Data, DataView, Interest};

/// A signature that only those who know the number can make or check.
struct Secret(u8);

impl Secret {
    fn value(&self, portions: &[&[u8]]) -> Vec<u8> {
        let secret = [self.0];
        let all = [&secret[..]].into_iter().chain(portions.iter().copied());
        sha256(&all.collect::<Vec<_>>()).to_vec()
    }
}

impl Signer for Secret {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(self.value(portions))
    }
}

impl Verifier for Secret {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if self.value(portions) == signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

#[test]
fn what_is_published_is_read_by_consumers_of_the_same_session_and_others() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/p");
    let manifests = producer_with(&one, "/p/manifest", &[("signs", "manifest")]);
    manifests.publish(&name("/p/manifest/a"), content(1_000_000)).unwrap();
    assert!(read_all(&consumer(&one, "/p"), "/p/manifest/a").unwrap() == content(1_000_000));
    for len in [0, 1, 7999, 8000, 8001, 5_000_000] {
        let uri = format!("/p/object-{len}");
        let versioned = producer.publish(&name(&uri), content(len)).unwrap();
        for session in [&one, &other] {
            let consumer = consumer(session, "/p");
            let mut reader = consumer.fetch(&name(&uri)).unwrap();
            let mut octets = Vec::new();
            reader.read_to_end(&mut octets).unwrap();
            assert!(octets == content(len), "{len}");
            assert!(reader.is_verified() && reader.missed() == 0);
            assert_eq!(*reader.versioned().unwrap(), versioned);
            assert_eq!(reader.metadata().unwrap().size_bytes, Some(len as u64));
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0, "the end stays the end");
        }
    }
}

#[test]
fn the_latest_version_is_read_unless_the_name_says_which() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    let versions = [b"first", b"secnd", b"third"]
        .map(|text| producer.publish(&name("/p/news"), text.to_vec()).unwrap());
    let consumer = consumer(&session, "/p");
    assert_eq!(read_all(&consumer, "/p/news").unwrap(), b"third");
    for (version, text) in versions.iter().zip([b"first", b"secnd", b"third"]) {
        assert_eq!(read_all(&consumer, &version.to_string()).unwrap(), text);
    }
    // The publisher's name may say which as well.
    let chosen = name("/p/log/v=7");
    assert_eq!(producer.publish(&chosen, b"seventh".to_vec()).unwrap(), chosen);
    assert_eq!(read_all(&consumer, "/p/log/v=7").unwrap(), b"seventh");
    assert_eq!(read_all(&consumer, "/p/log").unwrap(), b"seventh");
    let twice = producer.publish_version(&chosen, 8, b"eighth".to_vec());
    assert!(matches!(twice, Err(SocketError::Invalid(_))), "{twice:?}");
    let outside = producer.publish(&name("/p/v=1"), b"of /p".to_vec());
    assert_eq!(outside.unwrap(), name("/p/v=1"));
}

#[test]
fn weir_get_gets_what_a_socket_publishes_and_a_socket_what_weir_put_serves() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    producer.publish(&name("/p/a"), content(100_000)).unwrap();
    let got = router.host.path("got");
    let arguments = ["get", "/p/a", "-o", got.to_str().unwrap(), "--allow-unsigned"];
    router.weir(&arguments).success();
    assert!(std::fs::read(&got).unwrap() == content(100_000));

    let file = router.host.write("file", &content(200_000));
    let arguments = ["put", file.to_str().unwrap(), "/q/b", "--sign", "digest", "--json"];
    let put = router.spawn(&arguments);
    let _ = put.json_line();
    assert!(read_all(&consumer(&session, "/q"), "/q/b").unwrap() == content(200_000));
}

#[test]
fn the_examples_serve_a_directory_and_get_from_it() {
    let host = Host::new();
    let router = Router::start(&host);
    std::fs::create_dir(host.path("served")).unwrap();
    let text: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
    host.write("served/lines", text.as_bytes());
    host.write("secret", b"none of theirs");
    let start = |example: &str, arguments: &[&str]| {
        let mut command = host.command(&socket_example(example));
        command.args(arguments).env("NDN_CLIENT_TRANSPORT", router.unix());
        Process::start(example, command)
    };
    let server = start("file_server", &["served", "/files"]);
    let _ = server.line_with("serving served as /files");
    let got = start("file_client", &["/files/lines"]).finish().success();
    assert!(got.output == text.trim_end(), "{}", got.errors);
    assert!(got.errors.contains("got /files/lines/v="), "{}", got.errors);
    let got = start("file_client", &["/files/lines", "7", "13"]).finish().success();
    assert_eq!(got.output, "line 1");
    let refused = start("file_client", &["/files/%2E%2E/secret"]).finish();
    assert!(!refused.status.success() && !refused.output.contains("theirs"));
}

#[test]
fn ranges_and_places_are_read_without_the_rest() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    let all = content(3_000_000);
    producer.publish(&name("/p/a"), all.clone()).unwrap();
    let consumer = consumer(&session, "/p");
    for (start, end) in [(0, 10), (7_999, 8_001), (16_000, 24_000), (123_456, 1_234_567)] {
        let mut octets = Vec::new();
        let mut reader = consumer.fetch_range(&name("/p/a"), start..end).unwrap();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == all[start as usize..end as usize], "{start}..{end}");
    }
    for (start, end) in [(2_999_999, 9_000_000), (2_000_000, u64::MAX), (3_000_000, u64::MAX)] {
        let mut octets = Vec::new();
        let mut reader = consumer.fetch_range(&name("/p/a"), start..end).unwrap();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == all[start as usize..], "{start}..{end}");
    }
    for (start, end) in [(5, 5), (50_000, 5), (u64::MAX, u64::MAX)] {
        let mut reader = consumer.fetch_range(&name("/p/a"), start..end).unwrap();
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert_eq!(reader.missed(), 0, "{start}..{end}");
    }
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    let mut octets = [0; 100];
    assert_eq!(reader.seek(SeekFrom::End(-100)).unwrap(), 2_999_900);
    reader.read_exact(&mut octets).unwrap();
    assert!(octets == all[2_999_900..]);
    assert_eq!(reader.read(&mut octets).unwrap(), 0);
    for place in [1_000_000, 5, 2_500_000] {
        assert_eq!(reader.seek(SeekFrom::Start(place)).unwrap(), place);
        reader.read_exact(&mut octets).unwrap();
        assert!(octets == all[place as usize..][..100], "{place}");
    }
    assert_eq!(reader.stream_position().unwrap(), 2_500_100);
    assert!(reader.seek(SeekFrom::Current(-3_000_000)).is_err());
}

#[test]
fn readers_and_producers_are_polled_without_a_runtime() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/p");
    let mut consumer = consumer(&other, "/p");
    let options = ConsumerOptions { input_buffer: Size { bytes: 1 << 16 }, ..Default::default() };
    consumer.set_options(options).unwrap();
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    let request = block_on(poll_fn(|context| producer.poll_recv(context))).unwrap();
    producer.publish(request.name(), content(1_000_000)).unwrap();
    let size = block_on(poll_fn(|context| {
        reader.poll_metadata(context).map_ok(|metadata| metadata.size_bytes)
    }));
    assert_eq!(size, Ok(Some(1_000_000)));
    let mut octets = vec![0; 500];
    let count = block_on(poll_fn(|context| reader.poll_read(context, &mut octets))).unwrap();
    octets.truncate(count);
    loop {
        let read = |context: &mut Context<'_>| reader.poll_fill_buf(context).map_ok(<[u8]>::to_vec);
        let chunk = block_on(poll_fn(read)).unwrap();
        if chunk.is_empty() {
            break;
        }
        reader.consume(chunk.len());
        octets.extend(chunk);
    }
    assert!(octets == content(1_000_000));
    let interest = Interest::new(name("/p/ping")).nonce(7).encode();
    let pending = consumer.express(&interest).unwrap();
    producer.publish_packet(Data::new(name("/p/ping")).encode_with_digest()).unwrap();
    block_on(pending).unwrap();
}

#[test]
fn tasks_of_tokio_read_side_by_side() {
    use tokio::io::AsyncReadExt;

    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let producer = producer(&session, "/p");
    for number in 0..20 {
        producer.publish(&name(&format!("/p/{number}")), content(100_000 + number)).unwrap();
    }
    let consumer = consumer(&session, "/p");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let mut reader = consumer.fetch(&name(&format!("/p/{number}"))).unwrap();
                tokio::spawn(async move {
                    let mut octets = Vec::new();
                    AsyncReadExt::read_to_end(&mut reader, &mut octets).await.unwrap();
                    assert!(octets == content(100_000 + number));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn the_table_names_the_options_that_sockets_have() {
    let flags = ConsumerOptions::TABLE.iter().filter(|info| info.kind == OptionKind::Flag);
    let names: Vec<_> = flags.map(|info: &OptionInfo| info.name).collect();
    assert_eq!(names, ["reliable", "verify", "manifest", "stored", "fresh"]);
}

#[test]
fn a_slow_reader_holds_no_more_than_its_buffer() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/p");
    let all = content(4_000_000);
    let versioned = producer.publish(&name("/p/a"), all.clone()).unwrap();
    let mut consumer = consumer(&other, "/p");
    consumer.set("input_buffer", "128KiB").unwrap();
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    let mut first = [0; 1000];
    reader.read_exact(&mut first).unwrap();
    thread::sleep(Duration::from_millis(300));
    // The rest has not been asked for: what is republished in its place would be refused, and what
    // is gone is not there.
    drop(producer);
    let error = error_of(reader.read_to_end(&mut Vec::new()));
    assert!(matches!(error, SocketError::Incomplete(_)), "{error}");
    let producer = sockets::producer(&one, "/p");
    let version = versioned.as_view().last().unwrap().as_version().unwrap();
    producer.publish_version(&name("/p/a"), version, all.clone()).unwrap();
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    let mut octets = Vec::new();
    while let Ok(chunk @ [_, ..]) = reader.fill_buf() {
        octets.extend_from_slice(chunk);
        let count = chunk.len();
        reader.consume(count);
        if octets.len() % 1_000_000 < 10_000 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(octets == all);
}

#[test]
fn what_is_asked_for_before_it_exists_is_answered_when_it_does() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = producer_with(&one, "/p", &[("request_wait", "100ms")]);
    let answering = thread::spawn(move || {
        for _ in 0..50 {
            let request = producer.recv().unwrap();
            let text = format!("this is {}", request.name());
            producer.publish(request.name(), text.into_bytes()).unwrap();
        }
        assert!(producer.recv_timeout(Duration::ZERO).unwrap().is_none());
        producer
    });
    let consumer = consumer(&other, "/p");
    for number in 0..50 {
        let uri = format!("/p/made/{number}");
        assert_eq!(read_all(&consumer, &uri).unwrap(), format!("this is {uri}").as_bytes());
    }
    let producer = answering.join().unwrap();
    // What is never published is refused when it has waited long enough.
    let error = error_of(read_all(&consumer, "/p/nothing"));
    assert!(matches!(error, SocketError::NoRoute(_)), "{error}");
    let request = producer.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(*request.name(), name("/p/nothing"));
}

#[test]
fn single_interests_and_single_data_go_as_they_are() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer_with(&one, "/p", &[("request_wait", "1h")]);
    let consumer = consumer(&other, "/p");
    let interest = |uri: &str| Interest::new(name(uri)).nonce(7).lifetime_ms(60_000).encode();
    let pending = consumer.express(&interest("/p/ping/1")).unwrap();
    let request = producer.recv().unwrap();
    assert_eq!(*request.name(), name("/p/ping/1"));
    let data = Data::new(request.name().clone()).content("pong").encode_with_digest();
    producer.publish_packet(data).unwrap();
    let packet = pending.wait().unwrap();
    assert_eq!(DataView::decode(&packet).unwrap().content, b"pong");
    // What will not be is refused long before its time is over.
    let pending = consumer.express(&interest("/p/never")).unwrap();
    producer.refuse(&producer.recv().unwrap()).unwrap();
    assert!(matches!(pending.wait(), Err(SocketError::NoRoute(_))));
    let short = Interest::new(name("/p/ping/2")).nonce(8).lifetime_ms(50).encode();
    let error = consumer.express(&short).unwrap().wait().unwrap_err();
    assert!(matches!(error, SocketError::TimedOut(_)), "{error}");
    let outside = consumer.express(&interest("/q")).err();
    assert!(matches!(outside, Some(SocketError::OutsidePrefix { .. })));
    assert!(matches!(consumer.express(b"no").err(), Some(SocketError::Invalid(_))));
    assert!(matches!(producer.publish_packet(b"no".to_vec()), Err(SocketError::Invalid(_))));
}

#[test]
fn a_signer_that_is_not_believed_is_refused_or_its_octets_are_flagged() {
    let router = Router::on_new_host();
    let session = session(&router);
    let identity = Identity::new(Secret(1));
    let producer = Producer::bind(&session, name("/p"), identity).unwrap();
    producer.publish(&name("/p/a"), content(100_000)).unwrap();
    let verifier = |secret| Arc::new(Secret(secret)) as Arc<dyn Verifier>;
    let right = Consumer::bind(&session, name("/p"), verifier(1));
    assert!(read_all(&right, "/p/a").unwrap() == content(100_000));
    let mut wrong = Consumer::bind(&session, name("/p"), verifier(2));
    for on_bad in ["ask-again", "abort", "deliver"] {
        wrong.set("on_bad", on_bad).unwrap();
        // Not even metadata is believed.
        let error = error_of(read_all(&wrong, "/p/a"));
        assert!(matches!(error, SocketError::NotVerified(_)), "{on_bad}: {error}");
    }
    wrong.set("verify", "false").unwrap();
    let mut reader = wrong.fetch(&name("/p/a")).unwrap();
    let mut octets = Vec::new();
    reader.read_to_end(&mut octets).unwrap();
    assert!(octets == content(100_000) && !reader.is_verified());
}

#[test]
fn prefixes_have_one_socket_each_and_names_stay_below_them() {
    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let identity = || Identity::new(DigestSigner);
    let outer = producer(&session, "/p");
    let error = Producer::bind(&session, name("/p"), identity()).err();
    assert!(matches!(error, Some(SocketError::PrefixInUse(_))), "{error:?}");
    let inner = producer(&session, "/p/inner");
    outer.publish(&name("/p/a"), content(10)).unwrap();
    inner.publish(&name("/p/inner/a"), content(11)).unwrap();
    let error = outer.publish(&name("/q/a"), content(10)).unwrap_err();
    assert!(matches!(error, SocketError::OutsidePrefix { .. }), "{error}");
    let consumer = consumer(&session, "/p");
    let error = consumer.fetch(&name("/q/a")).err();
    assert!(matches!(error, Some(SocketError::OutsidePrefix { .. })), "{error:?}");
    assert!(read_all(&consumer, "/p/a").unwrap() == content(10));
    assert!(read_all(&consumer, "/p/inner/a").unwrap() == content(11));
    // Given back, the prefix is free.
    drop(outer);
    let again = producer(&session, "/p");
    again.publish(&name("/p/b"), content(12)).unwrap();
    assert!(read_all(&consumer, "/p/b").unwrap() == content(12));
    // Only applications of this host may register.
    let elsewhere = Session::connect(&FaceUri::resolve(&router.udp()).unwrap()).unwrap();
    let error = Producer::bind(&elsewhere, name("/p"), identity()).err();
    assert!(matches!(error, Some(SocketError::PrefixRefused { .. })), "{error:?}");
}

#[test]
fn without_a_router_or_a_route_errors_say_so() {
    let host = Host::new();
    let nobody = FaceUri::Unix(host.path("nobody.sock"));
    let error = Session::connect(&nobody).err();
    assert!(matches!(error, Some(SocketError::NoRouter(_))), "{error:?}");
    let router = Router::start(&host);
    let session = session(&router);
    let error = error_of(read_all(&consumer(&session, "/nowhere"), "/nowhere/a"));
    assert!(matches!(error, SocketError::NoRoute(_)), "{error}");
    let consumer = consumer(&session, "/nowhere");
    let mut reader = consumer.fetch(&name("/nowhere/a")).unwrap();
    drop((consumer, session));
    // The reader has a session of its own until it is dropped.
    assert!(matches!(reader.metadata(), Err(SocketError::NoRoute(_))));
}

#[test]
fn the_output_buffer_is_bounded_and_what_left_it_is_asked_of_the_application() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let session = session(&router);
    let options = [("output_buffer", "1MiB"), ("output_policy", "fifo")];
    let producer = producer_with(&session, "/p", &options);
    let error = producer.publish(&name("/p/huge"), content(2_000_000)).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { max_bytes: 1_048_576 }), "{error}");
    for number in 0..10 {
        producer.publish(&name(&format!("/p/{number}")), content(300_000)).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert!(read_all(&consumer, "/p/9").unwrap() == content(300_000));
    assert!(producer.recv_timeout(Duration::ZERO).unwrap().is_none());
    let mut lost = consumer.fetch(&name("/p/0")).unwrap();
    let asked = producer.recv().unwrap().name().clone();
    assert_eq!(asked, name("/p/0"));
    let version = lost.versioned().unwrap().as_view().last().unwrap().as_version().unwrap();
    producer.publish_version(&asked, version, content(300_000)).unwrap();
    let mut octets = Vec::new();
    lost.read_to_end(&mut octets).unwrap();
    assert!(octets == content(300_000));
}

#[test]
fn a_router_that_restarts_finds_the_sockets_as_they_were() {
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
fn a_router_that_stays_away_is_not_waited_for_for_ever() {
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
        assert_eq!(error.to_string().matches("is lost").count(), 1, "{error}");
    }
}

#[test]
fn what_no_packet_has_room_for_is_refused() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer_with(&session, "/p", &[("segment_size", "100")]);
    let mut long = name("/p");
    long.append_generic(&[b'x'; 4000]);
    // Its metadata has the name twice; parts of its manifest list as many digests as they can.
    for octets in [5, 2000, 24_800] {
        let versioned = producer.publish(&long, content(octets)).unwrap();
        let mut read = Vec::new();
        let mut reader = consumer(&session, "/p").fetch(&versioned).unwrap();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == content(octets));
    }
    long.append_generic(&[b'x'; 1000]);
    let error = producer.publish(&long, content(2000)).unwrap_err();
    assert!(error.to_string().contains("metadata"), "{error}");
    let data = Data::new(name("/p/large")).content(content(9000)).encode_with_digest();
    let error = producer.publish_packet(data).unwrap_err();
    assert_eq!(error, SocketError::TooLong { max_bytes: 8800 });
    let interest = Interest::new(name("/p/large")).application_parameters(content(9000)).encode();
    let error = consumer(&session, "/p").express(&interest).err().unwrap();
    assert_eq!(error, SocketError::TooLong { max_bytes: 8800 });
}

#[test]
fn an_earlier_version_published_again_is_not_the_latest() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    for (version, text) in [(6, "six"), (7, "seven"), (5, "five")] {
        producer.publish_version(&name("/p/a"), version, text.as_bytes().to_vec()).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert_eq!(read_all(&consumer, "/p/a").unwrap(), b"seven");
    assert_eq!(read_all(&consumer, "/p/a/v=5").unwrap(), b"five");
}

/// Tells when it is dropped, and whether in peace.
struct End(mpsc::Sender<bool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send(!thread::panicking()).unwrap();
    }
}

/// A trust that holds the session that it is asked by.
struct Holding {
    verifier: Arc<dyn Verifier>,
    _session: Session,
    _end: End,
}

impl Trust for Holding {
    fn decide(&mut self, data: &DataView<'_>) -> Decision {
        self.verifier.decide(data)
    }
}

#[test]
fn a_session_that_its_own_thread_lets_go_of_ends() {
    let router = Router::on_new_host();
    let session = session(&router);
    let (end, ended) = mpsc::channel();
    let trust = Holding { verifier: anyone(), _session: session.clone(), _end: End(end) };
    let consumer = Consumer::bind(&session, name("/nowhere"), trust);
    let mut reader = consumer.fetch(&name("/nowhere/a")).unwrap();
    drop((consumer, session));
    let waker = std::task::Waker::noop();
    assert!(reader.poll_metadata(&mut Context::from_waker(waker)).is_pending());
    drop(reader);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_thousand_consumers_share_a_session() {
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
    // The last first: none waits for another to be read.
    for (number, mut reader) in fetched.into_iter().rev() {
        let mut octets = Vec::new();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == content(20_000 + number), "{number}");
    }
}

#[test]
fn metadata_that_lies_about_the_size_of_segments_breaks_nothing() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer_with(&session, "/p", &[("request_wait", "0s")]);
    let versioned = name("/p/a/v=1");
    let mut metadata = vec![7, versioned.value().len() as u8];
    metadata.extend_from_slice(versioned.value());
    metadata.extend_from_slice(&[26, 3, 50, 1, 5]);
    metadata.extend_from_slice(&[0xFD, 0xF5, 0x00, 8, 0x40, 0, 0, 0, 0, 0, 0, 0]);
    for (uri, content) in [
        ("/p/a/32=metadata/v=1/seg=0", metadata),
        ("/p/a/v=1/seg=0", b"first".to_vec()),
        ("/p/a/v=1/seg=5", b"last".to_vec()),
    ] {
        let data = Data::new(name(uri)).freshness_ms(1000).content(content).encode_with_digest();
        producer.publish_packet(data).unwrap();
    }
    let mut consumer = consumer(&session, "/p");
    consumer.set("reliable", "false").unwrap();
    let mut reader = consumer.fetch(&name("/p/a")).unwrap();
    reader.read_exact(&mut [0; 5]).unwrap();
    // Each segment that is missed takes 2^62 octets, as the metadata says.
    assert!(reader.read_to_end(&mut Vec::new()).is_ok());
    assert_eq!(reader.missed(), 4);
    // Nor is what was asked for of it cut short.
    let mut range = consumer.fetch_range(&name("/p/a"), 0..100).unwrap();
    let error = error_of(range.read_to_end(&mut Vec::new()));
    assert!(matches!(error, SocketError::NotVerified(_)), "{error}");
}

/// Regression: the route of the shorter prefix was inherited, so that its producer, in another
/// program, got the Interests and held them for seconds.
#[test]
fn who_binds_the_longer_prefix_answers_alone_below_it() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let shorter = producer(&one, "/demo");
    let longer = producer(&other, "/demo/l");
    longer.publish(&name("/demo/l/x"), b"here".to_vec()).unwrap();
    let reader = consumer(&session(&router), "/demo");
    assert_eq!(read_all(&reader, "/demo/l/x").unwrap(), b"here");
    assert!(shorter.recv_timeout(Duration::ZERO).unwrap().is_none());
}

#[test]
fn what_is_short_needs_no_room_for_a_whole_segment() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer_with(&session, "/p", &[("segment_size", "8800")]);
    producer.publish(&name("/p/a"), content(5)).unwrap();
    assert!(read_all(&consumer(&session, "/p"), "/p/a").unwrap() == content(5));
    let error = producer.publish(&name("/p/b"), content(8800)).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { max_bytes: 8000.. }), "{error}");
}

#[test]
fn binding_without_a_router_says_that_there_is_none() {
    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let first = producer(&session, "/first");
    drop(router);
    let error = Producer::bind(&session, name("/p"), Identity::new(DigestSigner)).err().unwrap();
    assert!(matches!(error, SocketError::NoRouter(_)), "{error}");
    drop(first);
}

#[test]
fn a_name_may_have_the_keyword_of_metadata_in_it() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    for (uri, text) in [("/p/32=metadata/a", b"one"), ("/p/32=metadata/b", b"two")] {
        producer.publish(&name(uri), text.to_vec()).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert_eq!(read_all(&consumer, "/p/32=metadata/a").unwrap(), b"one");
    assert_eq!(read_all(&consumer, "/p/32=metadata/b").unwrap(), b"two");
}

#[test]
fn a_server_gets_what_a_client_offers_and_says_so() {
    let host = Host::new();
    let router = Router::start(&host);
    let (server_session, client_session) = (session(&router), session(&router));
    // Getting what is offered may take its time.
    let server = producer_with(&server_session, "/server", &[("request_wait", "30s")]);
    let served = thread::spawn(move || {
        let puller = consumer(&server_session, "/");
        let mut results = Vec::new();
        while results.len() < 4 {
            let request = server.recv().unwrap();
            let answer = request.offer().expect("parameters").and_then(|offer| {
                assert_eq!(offer.metadata().size_bytes, Some(100_000));
                let mut octets = Vec::new();
                let mut reader = puller.fetch(offer.name())?;
                reader
                    .read_to_end(&mut octets)
                    .map_err(|error| SocketError::Invalid(format!("cannot be got: {error}")))?;
                Ok(octets)
            });
            match &answer {
                Ok(octets) => server.answer(&request, &octets.len().to_be_bytes()).unwrap(),
                Err(error) => server.answer(&request, error.to_string().as_bytes()).unwrap(),
            }
            results.push(answer);
        }
        results
    });

    let own = producer(&client_session, "/client");
    let mut asker = consumer(&client_session, "/server");
    asker.set("lifetime", "30s").unwrap();
    let offer = own.offer(&name("/client/photo"), content(100_000)).unwrap();
    let send = |offer: &Offer| {
        let answer = asker.send(&name("/server/upload"), offer).unwrap().wait().unwrap();
        DataView::decode(&answer).unwrap().content.to_vec()
    };
    assert_eq!(send(&offer), 100_000_usize.to_be_bytes());
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    // What is not there, and what the server itself would be asked for.
    let made = |object: &str| {
        let metadata = Metadata {
            size_bytes: Some(100_000),
            ..Metadata::new(name(&format!("{object}/54=%01")))
        };
        let data = Data::new(name(&format!("{object}/32=metadata/54=%01/50=%00")));
        Offer::decode(data.content(metadata.encode()).encode_with_digest()).unwrap()
    };
    let missing = text(send(&made("/nowhere/file")));
    assert!(missing.contains("no route to /nowhere/file"), "{missing}");
    let looping = text(send(&made("/server/file")));
    assert!(looping.contains("which this producer answers for"), "{looping}");
    let rubbish =
        Interest::new(name("/server/upload")).application_parameters("rubbish").nonce(1).encode();
    let answer = asker.express(&rubbish).unwrap().wait().unwrap();
    let rubbish = text(DataView::decode(&answer).unwrap().content.to_vec());
    assert!(rubbish.contains("no offer"), "{rubbish}");
    let results = served.join().unwrap();
    assert!(results[0].as_ref().unwrap() == &content(100_000));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 3);
}
