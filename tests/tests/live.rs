//! Growing objects, over a real router.

use std::io::{self, BufRead, Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use weir_face::FaceUri;
use weir_socket::{LiveWriter, Reader, Session, SessionConfig, SocketError};
use weir_tests::sockets::{consumer, error_of, name, producer};
use weir_tests::{Host, Process, Router, socket_example};

fn session(router: &Router) -> Session {
    let router = Some(FaceUri::resolve(&router.unix()).unwrap());
    Session::with(SessionConfig { router, threads: 1, ..SessionConfig::default() }).unwrap()
}

/// The next message with its segment number. Each message is one segment.
fn next(reader: &mut Reader) -> io::Result<Option<(u64, String)>> {
    let octets = reader.fill_buf()?.to_vec();
    if octets.is_empty() {
        return Ok(None);
    }
    let segment = reader.segment().unwrap();
    reader.consume(octets.len());
    Ok(Some((segment, String::from_utf8(octets).unwrap())))
}

fn rest(mut reader: Reader) -> io::Result<Vec<(u64, String)>> {
    let mut messages = Vec::new();
    while let Some(message) = next(&mut reader)? {
        messages.push(message);
    }
    assert_eq!(reader.missed(), 0);
    Ok(messages)
}

fn message(number: u64) -> String {
    format!("message {number}")
}

fn append(live: &mut LiveWriter, numbers: std::ops::Range<u64>, pause_ms: u64) {
    for number in numbers {
        assert_eq!(live.next_segment(), number);
        live.append(message(number).as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

fn assert_messages(messages: &[(u64, String)], segments: std::ops::Range<u64>) {
    let expected: Vec<_> = segments.map(|number| (number, message(number))).collect();
    assert_eq!(messages, expected);
}

#[test]
fn joining_reader_gets_newest_to_end() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/live");
    let mut live = producer.publish_live(&name("/live/news")).unwrap();
    let mut early = consumer(&other, "/live").fetch_newest(&name("/live/news")).unwrap();
    early.metadata().unwrap();
    let early = thread::spawn(move || rest(early).unwrap());
    append(&mut live, 0..20, 5);
    let mut late = consumer(&other, "/live").fetch_newest(&name("/live/news")).unwrap();
    assert_eq!(next(&mut late).unwrap(), Some((19, message(19))));
    let all = consumer(&other, "/live").fetch(&name("/live/news")).unwrap();
    let all = thread::spawn(move || rest(all).unwrap());
    append(&mut live, 20..40, 5);
    let versioned = live.versioned().clone();
    live.finish().unwrap();
    assert_messages(&early.join().unwrap(), 0..40);
    assert_messages(&all.join().unwrap(), 0..40);
    assert_eq!(*late.versioned().unwrap(), versioned);
    assert_messages(&rest(late).unwrap(), 20..40);
    // A finished object is read like any other.
    let mut text = String::new();
    consumer(&other, "/live")
        .fetch(&name("/live/news"))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, (0..40).map(message).collect::<String>());
    assert!(producer.recv_timeout(Duration::ZERO).unwrap().is_none(), "no unexpected request");
}

/// Number of Interests at the producer for an object of 100 segments and several consumers.
fn interests(host: &Host, consumers: usize) -> u64 {
    let router = Router::start(host);
    let one = session(&router);
    let producer = producer(&one, "/live");
    let mut live = producer.publish_live(&name("/live/news")).unwrap();
    live.append(message(0).as_bytes()).unwrap();
    let begin = |_| {
        let mut reader =
            consumer(&session(&router), "/live").fetch_newest(&name("/live/news")).unwrap();
        assert_eq!(next(&mut reader).unwrap(), Some((0, message(0))));
        thread::spawn(move || rest(reader).unwrap())
    };
    let readers: Vec<_> = (0..consumers).map(begin).collect();
    append(&mut live, 1..100, 5);
    live.finish().unwrap();
    readers.into_iter().for_each(|reader| assert_messages(&reader.join().unwrap(), 1..100));
    producer.stats().unwrap().interests
}

#[test]
fn router_aggregates_many_consumers() {
    let host = Host::new();
    let (of_one, of_many) = (interests(&host, 1), interests(&host, 24));
    eprintln!("{of_one} {of_many}");
    assert!((100..300).contains(&of_one), "{of_one}");
    // Each consumer may request its own metadata. On a busy machine, Interests are too far apart to
    // be aggregated.
    assert!(of_many < 6 * of_one, "{of_many} where one consumer makes {of_one}");
}

#[test]
fn slow_reader_skips_or_continues_in_order() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/live");
    let mut live = producer.publish_live(&name("/live/film")).unwrap();
    live.append(&[0; 8000]).unwrap();
    let open = |behind: &str| {
        let mut consumer = consumer(&other, "/live");
        consumer.set("input_buffer", "128KiB").unwrap();
        consumer.set("behind", behind).unwrap();
        let mut reader = consumer.fetch_newest(&name("/live/film")).unwrap();
        assert_eq!(reader.fill_buf().unwrap()[0], 0);
        reader
    };
    let (mut in_order, mut skipping) = (open("in-order"), open("skip"));
    for number in 1..=200 {
        live.append(&[number; 8000]).unwrap();
    }
    live.finish().unwrap();
    let mut octets = Vec::new();
    in_order.read_to_end(&mut octets).unwrap();
    let expected: Vec<u8> = (0..=200).flat_map(|number| [number; 8000]).collect();
    assert!(octets == expected);
    assert_eq!(in_order.missed(), 0);
    octets.clear();
    skipping.read_to_end(&mut octets).unwrap();
    let (got, missed) = (octets.len() as u64 / 8000, skipping.missed());
    // After the buffered segments, the newest one is the last, which is empty.
    assert_eq!(got + missed, 201);
    assert!(got < 30, "{got}");
    assert!(octets.chunks(8000).zip(0..).all(|(segment, number)| segment == [number; 8000]));
}

#[test]
fn abandoned_object_leads_to_newer_version() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer(&one, "/live");
    let mut live = producer.publish_live(&name("/live/news")).unwrap();
    append(&mut live, 0..3, 0);
    let mut consumer = consumer(&other, "/live");
    consumer.set("lifetime", "300ms").unwrap();
    consumer.set("stored", "false").unwrap();
    let mut reader = consumer.fetch(&name("/live/news")).unwrap();
    for number in 0..3 {
        assert_eq!(next(&mut reader).unwrap(), Some((number, message(number))));
    }
    // A reader that found the version through metadata also refreshes the metadata.
    let metadata = reader.metadata().unwrap().clone();
    let mut told = consumer.fetch_found(&metadata, 0..u64::MAX).unwrap();
    assert_eq!(next(&mut told).unwrap(), Some((0, message(0))));
    let versioned = live.versioned().clone();
    drop(live);
    let mut live = producer.publish_live(&name("/live/news")).unwrap();
    let newer = live.versioned().clone();
    append(&mut live, 0..1, 0);
    let expected = SocketError::Superseded { versioned, newer };
    assert_eq!(error_of(next(&mut reader)), expected);
    assert_eq!(error_of(rest(told)), expected);
    let mut reader = consumer.fetch_newest(&name("/live/news")).unwrap();
    assert_eq!(next(&mut reader).unwrap(), Some((0, message(0))));
    drop(live);
    let error = error_of(rest(reader));
    assert!(matches!(error, SocketError::NoRoute(_) | SocketError::TimedOut(_)), "{error}");
}

#[test]
fn dead_producer_ends_its_readers() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let dying = producer(&one, "/live");
    let mut live = dying.publish_live(&name("/live/news")).unwrap();
    append(&mut live, 0..3, 0);
    let mut consumer = consumer(&other, "/live");
    consumer.set("lifetime", "300ms").unwrap();
    let mut reader = consumer.fetch(&name("/live/news")).unwrap();
    for number in 0..3 {
        assert_eq!(next(&mut reader).unwrap(), Some((number, message(number))));
    }
    drop((dying, one));
    let error = error_of(next(&mut reader));
    assert!(matches!(error, SocketError::NoRoute(_) | SocketError::TimedOut(_)), "{error}");
    assert!(live.append(b"no reader").is_err());
}

#[test]
fn examples_stream_lines_to_several_readers() {
    let router = Router::on_new_host();
    let start = |example: &str, arguments: &[&str], input: Stdio| {
        let mut command = router.host.command(&socket_example(example));
        command.args(arguments).env("NDN_CLIENT_TRANSPORT", router.unix());
        Process::start_with_input(example, command, input)
    };
    let (lines, mut feed) = io::pipe().unwrap();
    let source = start("live_source", &["/live/lines"], lines.into());
    let _ = source.line_with("live as /live/lines/v=");
    feed.write_all(b"one\ntwo\n").unwrap();
    let watch = |arguments: &[&str]| start("live_watch", arguments, Stdio::null());
    let watchers: Vec<_> = (0..4).map(|_| watch(&["--from-start", "/live/lines"])).collect();
    for watcher in &watchers {
        let _ = watcher.line_with("two");
    }
    let late = watch(&["/live/lines"]);
    let _ = late.line_with("two");
    feed.write_all(b"three\nfour\n").unwrap();
    drop(feed);
    let _ = source.line_with("finished after");
    for watcher in watchers {
        let _ = watcher.line_with("four");
        watcher.finish().success();
    }
    let late = late.finish().success();
    assert!(!late.output.contains("one"), "{}", late.output);
}

/// Each new segment updates the metadata of a growing object, but it does not become the latest
/// version.
#[test]
fn growing_older_version_is_not_latest() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/live");
    let mut writer = producer.publish_live(&name("/live/a")).unwrap();
    writer.append(b"one").unwrap();
    producer.publish(&name("/live/a"), b"later".to_vec()).unwrap();
    writer.append(b"two").unwrap();
    let mut text = String::new();
    consumer(&session, "/live").fetch(&name("/live/a")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "later");
}
