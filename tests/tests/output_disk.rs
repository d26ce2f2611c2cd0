//! Producer sockets with a disk tier for their output buffer, over a real router.

use std::io::Read as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_base::Rng;
use weir_security::DigestSigner;
use weir_socket::{Identity, Producer, ProducerOptions, Session, SocketError};
use weir_tests::sockets::{consumer, name, session};
use weir_tests::{Host, Router};
use weir_wire::Name;

const MIB: usize = 1 << 20;

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut octets = vec![0; len];
    Rng::from_seed(seed).fill(&mut octets);
    octets
}

fn options(host: &Host, changes: &[(&str, &str)]) -> ProducerOptions {
    let mut options = ProducerOptions::default();
    let folder = host.path("output");
    std::fs::create_dir_all(&folder).unwrap();
    let disk = folder.to_str().unwrap();
    let defaults = [("output_buffer", "1MiB"), ("disk", disk), ("disk_size", "64MiB")];
    // Wait for the disk even on a slow and busy machine.
    let patient = [("disk_wait", "1h")];
    for (name, value) in defaults.iter().chain(&patient).chain(changes) {
        options.set(name, value).unwrap();
    }
    options
}

fn bind(session: &Session, options: ProducerOptions) -> Result<Producer, SocketError> {
    Producer::bind_with(session, name("/p"), Identity::new(DigestSigner), options)
}

fn read(session: &Session, uri: &str) -> std::io::Result<Vec<u8>> {
    let consumer = consumer(session, "/p");
    let (mut octets, mut reader) = (Vec::new(), consumer.fetch(&name(uri))?);
    reader.read_to_end(&mut octets)?;
    assert!(reader.is_verified());
    Ok(octets)
}

#[test]
fn evicted_data_is_served_from_disk() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let (one, other) = (session(&router), session(&router));
    for policy in ["lru", "fifo", "lfu"] {
        let producer = bind(&one, options(&host, &[("output_policy", policy)])).unwrap();
        for number in 0..3 {
            producer.publish(&name(&format!("/p/{number}")), content(8 * MIB, number)).unwrap();
        }
        for number in [0, 1, 2, 0] {
            let octets = read(&other, &format!("/p/{number}")).unwrap();
            assert!(octets == content(8 * MIB, number), "{policy}: {number}");
        }
        let request = producer.recv_timeout(Duration::ZERO).unwrap();
        let stats = producer.stats().unwrap();
        // Count also Data that is not written yet.
        let below_memory = stats.disk_data + stats.disk.hits_unwritten;
        assert!(stats.disk_data > 0 && below_memory > 3000, "{policy}: {stats:?}");
        let lost = stats.disk.passed_by + stats.disk.no_room + stats.disk.evictions;
        assert_eq!(stats.unknown, 0, "{policy}: {stats:?}");
        assert!(request.is_none() && (stats.disk_vain, lost) == (0, 0), "{policy}: {stats:?}");
        assert_eq!(std::fs::read_dir(host.path("output")).unwrap().count(), 0);
    }
}

#[test]
fn several_publish_and_read_at_once() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = Arc::new(bind(&one, options(&host, &[])).unwrap());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (producer, other) = (producer.clone(), other.clone());
            scope.spawn(move || {
                for round in 0..4 {
                    let seed = 10 * thread + round;
                    let uri = format!("/p/{seed}");
                    producer.publish(&name(&uri), content(2 * MIB, seed)).unwrap();
                    assert!(read(&other, &uri).unwrap() == content(2 * MIB, seed), "{uri}");
                }
            });
        }
    });
    for thread in 0..4 {
        for round in 0..4 {
            let seed = 10 * thread + round;
            assert!(read(&other, &format!("/p/{seed}")).unwrap() == content(2 * MIB, seed));
        }
    }
    let (request, stats) = (producer.recv_timeout(Duration::ZERO), producer.stats().unwrap());
    assert!(request.unwrap().is_none(), "{stats:?}");
}

#[test]
fn grown_object_is_read_from_its_start() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = bind(&one, options(&host, &[])).unwrap();
    let mut writer = producer.publish_live(&name("/p/live")).unwrap();
    let all = content(6 * MIB, 1);
    all.chunks(100_000).for_each(|chunk| writer.append(chunk).unwrap());
    writer.finish().unwrap();
    assert!(read(&other, "/p/live").unwrap() == all);
    let stats = producer.stats().unwrap();
    assert!(stats.disk_data + stats.disk.hits_unwritten > 0, "{stats:?}");
}

/// Without a disk, as with an unreliable producer, Data evicted from memory is lost.
#[test]
fn unreliable_producer_has_no_disk() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let (one, other) = (session(&router), session(&router));
    for changes in
        [[("reliable", "false"), ("request_wait", "0s")], [("disk", ""), ("request_wait", "0s")]]
    {
        let producer = bind(&one, options(&host, &changes)).unwrap();
        let too_long = producer.publish(&name("/p/large"), content(2 * MIB, 0)).unwrap_err();
        assert_eq!(too_long, SocketError::TooLong { max_bytes: MIB as u64 });
        producer.publish(&name("/p/first"), content(MIB / 2, 1)).unwrap();
        producer.publish(&name("/p/second"), content(MIB / 2, 2)).unwrap();
        producer.publish(&name("/p/third"), content(MIB / 2, 3)).unwrap();
        let lost = read(&other, "/p/first").unwrap_err();
        assert!(lost.to_string().contains("no route"), "{lost}");
        assert!(read(&other, "/p/third").unwrap() == content(MIB / 2, 3));
        let stats = producer.stats().unwrap();
        assert_eq!((stats.disk_data, stats.disk), Default::default(), "{stats:?}");
    }
    // The same producer with a disk loses nothing.
    let producer = bind(&one, options(&host, &[("request_wait", "0s")])).unwrap();
    for number in 0..3 {
        producer.publish(&name(&format!("/p/{number}")), content(MIB / 2, number)).unwrap();
    }
    assert!(read(&other, "/p/0").unwrap() == content(MIB / 2, 0));
}

#[test]
fn data_evicted_from_disk_is_requested_again() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = bind(&one, options(&host, &[("disk_size", "8MiB")])).unwrap();
    let versions: Vec<Name> = (0..6)
        .map(|number| {
            producer.publish(&name(&format!("/p/{number}")), content(3 * MIB, number)).unwrap()
        })
        .collect();
    assert!(producer.stats().unwrap().disk.evictions > 0);
    assert!(read(&other, "/p/5").unwrap() == content(3 * MIB, 5));
    let asking = thread::spawn(move || {
        let octets = read(&other, "/p/0").unwrap();
        assert!(octets == content(3 * MIB, 0));
    });
    let request = producer.recv().unwrap();
    assert_eq!(*request.name(), name("/p/0"));
    let version = versions[0].as_view().last().unwrap().as_version().unwrap();
    producer.publish_version(&name("/p/0"), version, content(3 * MIB, 0)).unwrap();
    asking.join().unwrap();
}

#[test]
fn unusable_disk_fails_the_bind() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let session = session(&router);
    let file = host.write("file", b"something else");
    for path in [host.path("nowhere"), file.clone()] {
        let path = path.to_str().unwrap();
        let error = bind(&session, options(&host, &[("disk", path)])).err().unwrap();
        let SocketError::Disk { reason, errno: Some(_) } = error else { panic!("{error}") };
        assert!(reason.contains(path), "{reason}");
    }
    assert_eq!(std::fs::read(file).unwrap(), b"something else");
    // The prefix is free again. For an occupied prefix, no disk file is created.
    let _producer = bind(&session, options(&host, &[])).unwrap();
    let nowhere = host.path("nowhere");
    let error = bind(&session, options(&host, &[("disk", nowhere.to_str().unwrap())])).err();
    assert_eq!(error, Some(SocketError::PrefixInUse(name("/p"))));
}
