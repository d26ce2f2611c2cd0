//! A neighbour that sends forged Data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use weir_base::{NS_PER_MS, Packet};
use weir_client::{Client, ReceivedPacket};
use weir_tests::{Host, Process, Router, random_file, sha256_hex};
use weir_wire::{Interest, InterestView, LpHeader, Name};

/// Answers Interests with the Data of `honest`, with one bit of the signature flipped.
fn forge(mut asked: Client, mut honest: Client, forged: &AtomicU64, is_over: &AtomicBool) {
    let mut packets = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let deadline = asked.now().plus_ns(20 * NS_PER_MS);
        asked.poll(Some(deadline), &mut packets).expect("the router lives");
        for ReceivedPacket { path, header, packet } in packets.drain(..) {
            let Ok(interest) = InterestView::decode(&packet) else { continue };
            let same = Interest::new(interest.name.to_name())
                .can_be_prefix(interest.can_be_prefix)
                .must_be_fresh(interest.must_be_fresh)
                .nonce(honest.random_u64() as u32);
            let Ok(answer) = honest.express(&same.encode()) else { continue };
            let mut octets = answer.packet.to_vec();
            *octets.last_mut().expect("a packet") ^= 1;
            let header = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
            asked.send(path, header, Packet::from(octets)).expect("there is room");
            forged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The forger is the next hop with the lowest cost. Its Data is erased from the store when it is
/// detected, and the other next hop supplies the remaining Data.
#[test]
fn erases_forged_copies_and_avoids_their_hop() {
    for threads in ["1", "3"] {
        get_past_forger(threads);
    }
}

fn get_past_forger(threads: &str) {
    let (host, far_host) = (Host::new(), Host::new());
    let arguments = vec!["--threads".to_owned(), threads.to_owned()];
    let (router, far) = (Router::start_with(&host, &arguments), Router::start(&far_host));
    let expected = random_file(&far_host.path("source"), 400_000, 9);
    let source = far_host.path("source");
    let words = ["put", source.to_str().expect("UTF-8"), "/poisoned", "--json"];
    let producer: Process = far.spawn(&words);
    producer.json_line();
    router.weir(&["route", "add", "/poisoned", &far.tcp(), "--cost", "10"]).success();

    let connect = |router: &Router| {
        Client::connect(&router.unix().parse().expect("a URI")).expect("the router lives")
    };
    let (mut asked, honest) = (connect(&router), connect(&far));
    let prefix: Name = "/poisoned".parse().expect("a name");
    asked.register_prefix(&prefix).expect("registered");
    let (forged, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let forger = thread::spawn({
        let (forged, is_over) = (Arc::clone(&forged), Arc::clone(&is_over));
        move || forge(asked, honest, &forged, &is_over)
    });

    let target = host.path("copy");
    let words = ["get", "/poisoned", "-o", target.to_str().expect("UTF-8"), "--json"];
    router.weir(&words).success();
    assert_eq!(sha256_hex(&target), expected);
    let forged = forged.load(Ordering::Relaxed);
    assert!((1..100).contains(&forged), "{forged}");

    // The store has only Data signed by the producer.
    is_over.store(true, Ordering::Relaxed);
    forger.join().expect("it ends");
    drop((producer, far));
    let again = host.path("again");
    let words = ["get", "/poisoned", "-o", again.to_str().expect("UTF-8"), "--json"];
    router.weir(&words).success();
    assert_eq!(sha256_hex(&again), expected);
}
