//! A producer and a consumer connected by a relay instead of a router.

mod fixture;

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_client::Client;
use weir_face::FaceUri;
use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{
    Consumer, DownloadError, DownloadOptions, Identity, MemoryOutput, ObjectStore, Opened,
    Output as _, PartFile, Producer, ProducerOptions, PublishError, PublishOptions, ServeProblem,
    Session, publish_file, publish_listing, publish_octets,
};
use weir_transport::{ConsumerError, Metadata, Target};
use weir_wire::{Data, DataView, Interest, LpView, NackReason};

use fixture::{
    Relay, RelayedFile, Serving, Tamper, TestHost, content, corrupt_segment, get, get_with_key,
    label, latest, object, options, published_file, segment_of, version,
};

#[test]
fn files_of_all_sizes_arrive_intact() {
    for len in [0, 1, 999, 1000, 1001, 2999, 250_000, 1_234_567] {
        let file = RelayedFile::honest(len);
        let summary = file.get(latest());
        assert_eq!(summary.has_manifest, len > 2000);
        assert_eq!(summary.metadata.size_bytes, Some(len as u64));
        assert_eq!(file.serving.stop().unwrap().dropped(), 0);
    }
}

#[test]
fn finds_objects_by_version_and_prefix() {
    let file = RelayedFile::honest(300_500);
    for target in [version(), Target::Prefix { name: object() }] {
        assert!(file.get(target).has_manifest);
    }
    file.serving.stop().unwrap();
}

/// The first segment arrives before the manifest's first part. It is held, and verified again when
/// its digest is known, although it is not yet known that segments are verified by digests.
#[test]
fn manifest_may_follow_the_first_segment() {
    let mut first = None;
    let both = move |number: u64, frame: Vec<u8>| {
        let is_manifest = frame.windows(8).any(|octets| octets == b"manifest");
        match number {
            0 => {
                first = Some(frame);
                Some(Vec::new())
            }
            1 if is_manifest => Some([first.take().unwrap(), frame].concat()),
            1 => Some([frame, first.take().unwrap()].concat()),
            _ => Some(frame),
        }
    };
    let file = RelayedFile::new(300_500, both);
    assert!(file.get(version()).has_manifest);
    file.serving.stop().unwrap();
}

#[test]
fn publishes_bytes_and_listings() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Relay::untampered(dir.path());
    let name = object();
    let mut store = ObjectStore::new();
    let entries = [(b"a".to_vec(), false), (b"b".to_vec(), true)];
    store.add(publish_listing(&entries, label(&name), &options()).unwrap());
    let mut note = object();
    note.append_str("note");
    store.add(publish_octets(content(5000).into(), label(&note), &options()).unwrap());
    let serving = Serving::start(&relay, store);
    let listing = MemoryOutput::new(1000);
    let mut host = TestHost::new(listing.clone());
    let mut client = relay.connect();
    host.download(&mut client, latest(), DownloadOptions::default()).unwrap();
    assert_eq!(listing.take(), b"a\0b/\0");
    assert!(host.found.unwrap().metadata.is_directory());

    let output = MemoryOutput::new(5000);
    let target = Target::Latest { object: note, allow_stored: false };
    let mut host = TestHost::new(output.clone());
    host.download(&mut client, target, DownloadOptions::default()).unwrap();
    assert!(output.take() == content(5000));
    serving.stop().unwrap();
}

#[test]
fn damaged_packets_leave_no_file() {
    // The metadata and a segment are damaged each time.
    for damaged in [None, Some(20)] {
        let meddle = move |_, frame: Vec<u8>| match damaged {
            None if segment_of(&frame)
                .0
                .as_view()
                .components()
                .any(|one| one.is_keyword(b"metadata")) =>
            {
                corrupt_segment(frame)
            }
            Some(_) if segment_of(&frame).1 == damaged => corrupt_segment(frame),
            _ => Some(frame),
        };
        let file = RelayedFile::new(30_000, meddle);
        let result = file.try_get(latest());
        assert!(matches!(result, Err(DownloadError::Fetch(_))), "{damaged:?}: {result:?}");
        assert!(!file.target().exists(), "{damaged:?}");
        file.serving.stop().unwrap();
    }
}

#[test]
fn damaged_packets_are_requested_again() {
    // The metadata, a manifest part and segments, of objects with and without manifest.
    for (damaged, len) in [(0, 2000), (1, 30_000), (2, 30_000), (20, 30_000), (1, 2000), (2, 2000)]
    {
        let meddle = move |number, frame| {
            if number == damaged { corrupt_segment(frame) } else { Some(frame) }
        };
        let file = RelayedFile::new(len, meddle);
        assert_eq!(file.get(latest()).segments, len as u64 / 1000);
        file.serving.stop().unwrap();
    }
}

/// A forged last segment number must not end the download early, nor make it request segments that
/// do not exist.
#[test]
fn forged_segments_are_requested_again() {
    for (forged_last, is_latest) in [(3, false), (3, true), (500, false), (500, true)] {
        get_past_forgery(1000, forged_last, is_latest);
    }
}

/// If the metadata do not state the segment size, a forged segment must not decide it: the offsets
/// of all others depend on it.
#[test]
fn forged_segment_size_is_ignored() {
    for forged_len in [0, 100, 1001] {
        get_past_forgery(forged_len, 299, false);
    }
}

/// The first copy of segment 0 is forged. The version is known from metadata or from its name.
fn get_past_forgery(forged_len: usize, forged_last: u64, is_latest: bool) {
    let mut is_forged = false;
    let forge = move |_, frame: Vec<u8>| {
        let (name, segment) = segment_of(&frame);
        if segment != Some(0) || is_forged {
            return Some(frame);
        }
        is_forged = true;
        let data = Data::new(name)
            .content(vec![7; forged_len])
            .final_block_id(weir_wire::Component::segment(forged_last));
        corrupt_segment(data.encode_with_digest())
    };
    let file = RelayedFile::new(300_000, forge);
    let target = if is_latest { latest() } else { version() };
    assert_eq!(file.get(target).segments, 300);
    file.serving.stop().unwrap();
}

#[test]
fn resumes_a_broken_download() {
    resume(|_| {});
}

/// Segments that were verified once are checked again: those that a disk or a person has changed
/// are fetched again.
#[test]
fn refetches_segments_damaged_on_disk() {
    let damage = |part: &Path| {
        let mut octets = std::fs::read(part).unwrap();
        octets[5_500] ^= 1;
        octets.truncate(octets.len() - 300);
        std::fs::write(part, octets).unwrap();
    };
    resume(damage);
}

/// A file of 1 MB, and a download of it to `target` that breaks after 600 packets.
fn interrupt(dir: &Path, target: &Path, key: Option<[u8; 32]>) -> PathBuf {
    let (path, store) = published_file(dir, 1_000_000);
    let relay_dir = tempfile::tempdir_in(dir).unwrap();
    let six_hundred = |number, frame| {
        if number < 600 {
            return Some(frame);
        }
        // Data sent but not yet read is lost when the relay disconnects, so leave some time.
        std::thread::sleep(std::time::Duration::from_millis(300));
        None
    };
    let relay = Relay::start(relay_dir.path(), Box::new(six_hundred));
    let serving = Serving::start(&relay, store);
    let error = get_with_key(&relay, latest(), target, key).unwrap_err();
    assert!(matches!(error, DownloadError::Client(_)), "{error}");
    assert!(!target.exists());
    assert!(serving.stop().is_err());
    path
}

/// Segments that another key has verified are not resumed. If no key is known before the segments
/// arrive, the download fails once, and leaves nothing.
#[test]
fn other_key_resumes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("got");
    let part = dir.path().join(".got.weir-part");
    let file = RelayedFile::honest(1_000_000);
    let (one, other) = (Some([1; 32]), Some([2; 32]));
    for (wanted, key, is_resumed) in
        [(latest(), one, true), (latest(), other, false), (version(), one, true)]
    {
        interrupt(dir.path(), &target, one);
        let summary = get_with_key(&file.relay, wanted, &target, key).unwrap();
        assert_eq!(summary.segments_resumed > 0, is_resumed, "{summary:?}");
        std::fs::remove_file(&target).unwrap();
    }
    interrupt(dir.path(), &target, one);
    let error = get_with_key(&file.relay, version(), &target, other).unwrap_err();
    assert!(matches!(error, DownloadError::OtherSigner), "{error}");
    assert!(!target.exists() && !part.exists());
    let summary = get_with_key(&file.relay, version(), &target, other).unwrap();
    assert_eq!(summary.segments_resumed, 0);

    // The earlier attempt reported no keys.
    for (key, is_resumed) in [(None, true), (one, false)] {
        std::fs::remove_file(&target).unwrap();
        interrupt(dir.path(), &target, None);
        let result = get_with_key(&file.relay, version(), &target, key);
        let summary = result.or_else(|error| {
            assert!(matches!(error, DownloadError::OtherSigner) && !is_resumed, "{error}");
            get_with_key(&file.relay, version(), &target, key)
        });
        assert_eq!(summary.unwrap().segments_resumed > 0, is_resumed);
    }
}

/// The state lists the keys of the whole fetch. Those of other files in a folder are not needed.
#[test]
fn one_recorded_key_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("got");
    let file = RelayedFile::honest(1_000_000);
    let key = [1; 32];
    interrupt(dir.path(), &target, Some(key));
    let mut output = PartFile::new(&target);
    output.set_keys(vec![key, [2; 32]]);
    let versioned = object().append_version(7).clone();
    let Opened::File { have, segment_size, .. } = output.open(&Metadata::new(versioned)).unwrap()
    else {
        panic!("it is a file")
    };
    output.sink(segment_size.unwrap()).unwrap();
    output.save(&have).unwrap();
    drop(output);
    let summary = get_with_key(&file.relay, version(), &target, Some(key)).unwrap();
    assert_eq!(summary.segments_resumed, have.len());
}

fn resume(meddle_with_part: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("got");
    let path = interrupt(dir.path(), &target, None);
    meddle_with_part(&dir.path().join(".got.weir-part"));
    // Signed again with the same version: only a digest signature is the same twice.
    let mut store = ObjectStore::new();
    let name = object();
    store.add(publish_file(&path, label(&name), &options(), &mut |_| true).unwrap());
    let relay = Relay::untampered(dir.path());
    let serving = Serving::start(&relay, store);
    let summary = get(&relay, latest(), &target).unwrap();
    // How many depends on thread scheduling; only that there are some matters.
    assert!(summary.segments_resumed > 0, "{summary:?}");
    assert_eq!(summary.segments + summary.segments_resumed, 1000);
    assert!(std::fs::read(&target).unwrap() == content(1_000_000));
    let stats = serving.stop().unwrap().stats();
    assert!(stats.interests <= summary.segments + 10, "{stats:?}");
}

#[test]
fn missing_packets_get_a_nack() {
    let file = RelayedFile::honest(3000);
    let mut client = file.relay.connect();
    let mut name = object();
    name.append_version(7).append_segment(3);
    let interest = Interest::new(name.clone()).nonce(1).encode();
    let error = client.express(&interest).unwrap_err();
    assert!(matches!(error, weir_client::ExpressError::Nack(NackReason::NoRoute)), "{error}");
    name.pop();
    name.append_segment(2);
    let interest = Interest::new(name.clone()).nonce(2).encode();
    let data = client.express(&interest).unwrap();
    let digest = DataView::decode(&data.packet).unwrap().implicit_digest();
    for (digest, is_there) in [(digest, true), ([1; 32], false)] {
        let mut full = name.clone();
        full.append_implicit_digest(digest);
        let interest = Interest::new(full).nonce(u32::from(digest[0])).encode();
        assert_eq!(client.express(&interest).is_ok(), is_there);
    }
    assert_eq!(file.serving.stop().unwrap().stats().unknown, 2);
}

#[test]
fn changed_and_removed_files_are_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Relay::untampered(dir.path());
    let mut store = ObjectStore::new();
    let sources = ["changed", "gone", "same"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, content(30_000)).unwrap();
        let mut object = object();
        object.append_str(name);
        store.add(publish_file(&path, label(&object), &options(), &mut |_| true).unwrap());
        (object, path)
    });
    std::fs::write(&sources[0].1, b"something else").unwrap();
    std::fs::remove_file(&sources[1].1).unwrap();
    let serving = Serving::start(&relay, store);
    let got = |index: usize| {
        let target = Target::Latest { object: sources[index].0.clone(), allow_stored: true };
        get(&relay, target, &dir.path().join("got"))
    };
    for lost in [0, 1] {
        let error = got(lost).unwrap_err();
        assert!(matches!(error, DownloadError::Fetch(ConsumerError::NoRoute(_))), "{error}");
    }
    got(2).unwrap();
    let (_, losses) = serving.stop_with_losses().unwrap();
    match &losses[..] {
        [ServeProblem::FileChanged { path: changed }, ServeProblem::Read { path: gone, .. }] => {
            assert_eq!((changed, gone), (&sources[0].1, &sources[1].1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refuses_unreadable_and_oversized_files() {
    let dir = tempfile::tempdir().unwrap();
    let name = object();
    let mut progress = |_| true;
    let missing = dir.path().join("missing");
    let error = publish_file(&missing, label(&name), &options(), &mut progress).unwrap_err();
    assert!(matches!(error, PublishError::Read { .. }), "{error}");
    let error = publish_file(dir.path(), label(&name), &options(), &mut progress).unwrap_err();
    assert!(matches!(error, PublishError::NoFile { .. }), "{error}");
    let path = dir.path().join("file");
    std::fs::write(&path, content(10_000)).unwrap();
    let too_large = PublishOptions { segment_size: 8800, ..options() };
    match publish_file(&path, label(&name), &too_large, &mut progress) {
        Err(PublishError::SegmentSize { max, .. }) => {
            let largest = PublishOptions { segment_size: max, ..options() };
            publish_file(&path, label(&name), &largest, &mut progress).unwrap();
        }
        other => panic!("{other:?}"),
    }
    let error = publish_file(&path, label(&name), &options(), &mut |_| false).unwrap_err();
    assert!(matches!(error, PublishError::Stopped), "{error}");
}

#[test]
fn error_names_the_missing_router() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.sock");
    let Err(error) = Client::connect(&FaceUri::Unix(path.clone())) else { panic!("connected") };
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

/// Counts answers until the first segment, held back, finally arrives.
#[test]
fn late_segment_holds_bounded_memory() {
    const UNCONSUMED_MAX: u32 = 100;
    let (mut late, mut others) = (false, 0);
    let most = Arc::new(AtomicU64::new(0));
    let most_others = most.clone();
    let withhold = move |_: u64, frame: Vec<u8>| {
        let view = LpView::decode(&frame).unwrap();
        let data = DataView::decode(view.fragment.unwrap()).unwrap();
        if data.name.last().unwrap().as_segment() != Some(0) || data.name.components().count() != 4
        {
            others += u64::from(!late);
            most_others.store(others, Ordering::Relaxed);
            return Some(frame);
        }
        // The first answers are dropped until the others had time to arrive.
        late = others >= u64::from(UNCONSUMED_MAX) - 10;
        Some(if late { frame } else { Vec::new() })
    };
    let file = RelayedFile::new(1_000_000, withhold);
    let output = MemoryOutput::new(1_000_000);
    let mut host = TestHost::new(output.clone());
    let mut options = DownloadOptions::default();
    options.fetch.reader_segments_max = UNCONSUMED_MAX;
    let mut client = file.relay.connect();
    host.download(&mut client, latest(), options).unwrap();
    assert!(output.take() == content(1_000_000));
    // Segments that arrived before the first, and a few manifest parts.
    let most = most.load(Ordering::Relaxed);
    assert!(most <= u64::from(UNCONSUMED_MAX) + 20, "{most}");
    file.serving.stop().unwrap();
}

/// A consumer socket fetches the file of 30 segments from a producer socket, through `meddle`.
fn socket_through(
    dir: &Path,
    meddle: Tamper,
    settings: &[(&str, &str)],
) -> (Session, Producer, Consumer) {
    let relay = Relay::start(dir, meddle);
    let session = Session::connect(&FaceUri::Unix(relay.path)).unwrap();
    let mut options = ProducerOptions::default();
    options.set("segment_size", "1000").unwrap();
    let identity = Identity::new(DigestSigner);
    let producer = Producer::bind_with(&session, object(), identity, options).unwrap();
    producer.publish(&object(), content(30_000)).unwrap();
    let anybody: Arc<dyn Verifier> = Arc::new(DigestVerifier);
    let mut consumer = Consumer::bind(&session, object(), anybody);
    settings.iter().for_each(|(option, value)| consumer.set(option, value).unwrap());
    (session, producer, consumer)
}

#[test]
fn on_bad_decides_about_damaged_packets() {
    for (on_bad, times) in [("ask-again", 1), ("ask-again", 100), ("deliver", 1), ("abort", 1)] {
        let dir = tempfile::tempdir().unwrap();
        let mut damaged = 0;
        let meddle = move |_, frame: Vec<u8>| {
            if segment_of(&frame).1 != Some(20) || damaged >= times {
                return Some(frame);
            }
            damaged += 1;
            corrupt_segment(frame)
        };
        let settings = [("on_bad", on_bad)];
        let (_session, _producer, consumer) =
            socket_through(dir.path(), Box::new(meddle), &settings);
        let mut reader = consumer.fetch(&object()).unwrap();
        let mut octets = Vec::new();
        match (reader.read_to_end(&mut octets), on_bad, times) {
            (Ok(_), "ask-again", 1) => assert!(octets == content(30_000) && reader.is_verified()),
            (Ok(_), "deliver", _) => {
                let differ = octets.iter().zip(content(30_000)).filter(|(a, b)| **a != *b);
                assert!(differ.map(|_| ()).count() == 1 && octets.len() == 30_000);
                assert!(!reader.is_verified());
            }
            (Err(error), "abort", _) | (Err(error), "ask-again", 100) => {
                assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{on_bad}: {error}");
                assert!(octets.len() <= 20_000, "nothing after what is damaged");
            }
            (result, ..) => panic!("{on_bad} {times}: {result:?}"),
        }
    }
}

#[test]
fn unreliable_socket_skips_lost_segments() {
    let dir = tempfile::tempdir().unwrap();
    let lose = |_, frame: Vec<u8>| match segment_of(&frame).1 {
        Some(0 | 5 | 6 | 20 | 29) => Some(Vec::new()),
        _ => Some(frame),
    };
    let settings = [("reliable", "false"), ("lifetime", "300ms")];
    let (_session, _producer, consumer) = socket_through(dir.path(), Box::new(lose), &settings);
    let mut reader = consumer.fetch(&object()).unwrap();
    let mut octets = Vec::new();
    reader.read_to_end(&mut octets).unwrap();
    let all = content(30_000);
    assert!(octets == [&all[1000..5000], &all[7000..20_000], &all[21_000..29_000]].concat());
    assert_eq!(reader.missed(), 5);
    let mut part = consumer.fetch_range(&object(), 4500..6500).unwrap();
    octets.clear();
    part.read_to_end(&mut octets).unwrap();
    assert!(octets == all[4500..5000]);
    assert_eq!(part.missed(), 2);
    let mut part = consumer.fetch_range(&object(), 5500..8500).unwrap();
    octets.clear();
    part.read_to_end(&mut octets).unwrap();
    assert!(octets == all[7000..8500]);
    assert_eq!((part.missed(), part.stream_position().unwrap()), (2, 3000));
}
