//! Several packet threads: names belong to shards, faces to threads, and nobody can tell.

mod common;

use common::{Got, TestRouter, content_of, data, interest, name_of};
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_wire::{LpHeader, LpView, NackReason};

fn with_threads(threads: usize) -> TestRouter {
    TestRouter::start_with(|config| config.threads = threads)
}

#[test]
fn every_prefix_is_reached_from_every_face() {
    let router = with_threads(3);
    let mut producers: Vec<_> = (0..6).map(|_| router.unix()).collect();
    for (index, producer) in producers.iter_mut().enumerate() {
        producer.register(&format!("/p{index}"));
    }
    let mut consumers: Vec<_> = (0..5).map(|_| router.unix()).collect();
    for (index, producer) in producers.iter_mut().enumerate() {
        for (number, consumer) in consumers.iter_mut().enumerate() {
            let uri = format!("/p{index}/{number}");
            consumer.send(&interest(&uri));
            let Got::Interest { header, wire } = producer.got() else { panic!("an Interest") };
            assert_eq!(name_of(&wire), uri);
            // A producer returns the token; its Data finds the shard by it.
            assert!(!header.pit_token.is_empty());
            let packet = data(&uri, b"x");
            let answer = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
            let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
            let prefix_len = answer.encode_prefix(packet.len(), &mut prefix);
            producer.send(&[&prefix[..prefix_len], &packet].concat());
            assert_eq!(content_of(&consumer.got().data()), b"x");
            // From the store of whatever shard has it; and without a token it works too.
            consumer.send(&interest(&uri));
            assert_eq!(content_of(&consumer.got().data()), b"x");
            let bare = format!("{uri}/bare");
            consumer.send(&interest(&bare));
            producer.got().interest();
            producer.send(&data(&bare, b"y"));
            assert_eq!(content_of(&consumer.got().data()), b"y");
        }
    }
    let snapshot = router.snapshot();
    assert_eq!(snapshot.router.store.hits, 30);
    assert_eq!(snapshot.faces.len(), 11);
    router.stop();
}

#[test]
fn udp_strangers_are_known_to_all_shards() {
    let router = with_threads(4);
    let mut producer = router.unix();
    for index in 0..8 {
        producer.register(&format!("/s{index}"));
    }
    let peer = router.udp();
    for index in 0..8 {
        let uri = format!("/s{index}/x");
        peer.send(&interest(&uri));
        assert_eq!(name_of(&producer.got().interest()), uri);
        producer.send(&data(&uri, b"z"));
        let frame = peer.frame();
        let view = LpView::decode(&frame).unwrap();
        assert_eq!(content_of(view.fragment.unwrap()), b"z");
    }
    for index in 0..8 {
        peer.send(&interest(&format!("/nobody{index}")));
        assert_eq!(peer.got().nack(), NackReason::NoRoute);
    }
}

#[test]
fn erasing_reaches_all_shards() {
    let router = with_threads(3);
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    for index in 0..9 {
        producer.register(&format!("/e{index}"));
        let uri = format!("/e{index}/1");
        consumer.send(&interest(&uri));
        producer.got().interest();
        producer.send(&data(&uri, b"x"));
        consumer.got().data();
    }
    let parameters =
        ControlParameters { name: Some(common::name("/")), count: Some(9), ..Default::default() };
    let response = consumer.command(Command::CsErase, &parameters);
    assert_eq!((response.code, response.body.unwrap().count), (200, Some(9)));
}

#[test]
fn faces_go_from_all_shards() {
    let router = with_threads(3);
    let mut gone = router.unix();
    for index in 0..6 {
        gone.register(&format!("/g{index}"));
    }
    drop(gone);
    router.wait_until("the face is closed", |snapshot| snapshot.faces.is_empty());
    let mut consumer = router.unix();
    for index in 0..6 {
        consumer.send(&interest(&format!("/g{index}/x")));
        assert_eq!(consumer.got().nack(), NackReason::NoRoute);
    }
}
