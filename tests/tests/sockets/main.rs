//! Sockets over a real router.

mod connections;
mod producers;

use std::future::poll_fn;
use std::io::{BufRead as _, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::task::Context;
use std::thread;
use std::time::Duration;
use weir_base::units::Size;
use weir_security::{KeyLocator, SignError, SignatureType, Signer, Verifier, VerifyError, sha256};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, OptionInfo, OptionKind, Producer, SocketError,
};
use weir_tests::sockets::{
    self, block_on, consumer, content, error_of, name, producer, producer_with, read_all, session,
};
use weir_tests::{Host, Process, Router, socket_example};
use weir_wire::{Data, Interest};

/// A signature that needs a secret number to create and verify.
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
fn consumers_of_any_session_read_objects() {
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
fn reads_latest_version_unless_name_has_one() {
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
    // The name of the publisher may also contain the version.
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
fn sockets_and_commands_read_each_other() {
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
fn examples_serve_and_get_a_directory() {
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
fn reads_ranges_and_seeks() {
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
fn polls_without_an_async_runtime() {
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
fn tokio_tasks_read_concurrently() {
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
fn table_lists_consumer_flags() {
    let flags = ConsumerOptions::TABLE.iter().filter(|info| info.kind == OptionKind::Flag);
    let names: Vec<_> = flags.map(|info: &OptionInfo| info.name).collect();
    assert_eq!(names, ["reliable", "verify", "manifest", "stored", "fresh"]);
}

#[test]
fn slow_reader_stays_within_its_buffer() {
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
    // The remaining segments were not requested. Republished ones would be rejected, and removed
    // ones are missing.
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
fn untrusted_data_is_refused_or_flagged() {
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
        // Metadata is rejected too.
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
fn wrong_size_in_metadata_is_harmless() {
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
    // By the metadata, each missing segment has 2^62 bytes.
    assert!(reader.read_to_end(&mut Vec::new()).is_ok());
    assert_eq!(reader.missed(), 4);
    // A requested range is not shortened either.
    let mut range = consumer.fetch_range(&name("/p/a"), 0..100).unwrap();
    let error = error_of(range.read_to_end(&mut Vec::new()));
    assert!(matches!(error, SocketError::NotVerified(_)), "{error}");
}
