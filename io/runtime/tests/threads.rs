//! Several worker threads: names belong to shards and faces to threads, without an effect that a
//! peer can notice.

use weir_io_fixture::router::{
    Peer, ReceivedPacket, TestRouter, content_of, data, interest, name_of,
};
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_wire::{Data, Interest, LpFraming, LpHeader, LpView, NackReason};

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
            let ReceivedPacket::Interest { header, wire } = producer.receive() else {
                panic!("an Interest")
            };
            assert_eq!(name_of(&wire), uri);
            // The producer returns the token, which leads its Data to the right shard.
            assert!(!header.pit_token.is_empty());
            let packet = data(&uri, b"x");
            let answer = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
            let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
            let prefix_len = answer.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
            producer.send(&[&prefix[..prefix_len], &packet].concat());
            assert_eq!(content_of(&consumer.receive().data()), b"x");
            // From the store of any shard. It also works without a token.
            consumer.send(&interest(&uri));
            assert_eq!(content_of(&consumer.receive().data()), b"x");
            let bare = format!("{uri}/bare");
            consumer.send(&interest(&bare));
            producer.receive().interest();
            producer.send(&data(&bare, b"y"));
            assert_eq!(content_of(&consumer.receive().data()), b"y");
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
        assert_eq!(name_of(&producer.receive().interest()), uri);
        producer.send(&data(&uri, b"z"));
        let frame = peer.frame();
        let view = LpView::decode(&frame).unwrap();
        assert_eq!(content_of(view.fragment.unwrap()), b"z");
    }
    for index in 0..8 {
        peer.send(&interest(&format!("/absent{index}")));
        assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    }
}

/// A peer's datagrams arrive at the thread that owns the peer's face, whichever that is.
#[test]
fn created_udp_faces_spread_over_threads() {
    let router = with_threads(4);
    let mut consumer = router.unix();
    let peers: Vec<_> = (0..32).map(|_| router.udp()).collect();
    for (index, peer) in peers.iter().enumerate() {
        let uri = format!("udp4://{}", peer.socket.local_addr().unwrap());
        let parameters = ControlParameters { uri: Some(uri), ..Default::default() };
        let response = consumer.command(Command::FacesCreate, &parameters);
        assert_eq!(response.code, 200, "{response:?}");
        let route = ControlParameters {
            name: Some(weir_io_fixture::router::name(&format!("/u{index}"))),
            face_id: response.body.unwrap().face_id,
            ..Default::default()
        };
        assert_eq!(consumer.command(Command::RibRegister, &route).code, 200);
    }
    for (index, peer) in peers.iter().enumerate() {
        let uri = format!("/u{index}/x");
        consumer.send(&interest(&uri));
        let ReceivedPacket::Interest { header, wire } = peer.receive() else {
            panic!("an Interest")
        };
        assert_eq!(name_of(&wire), uri);
        let packet = data(&uri, b"z");
        let answer = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
        let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
        let prefix_len = answer.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
        peer.send(&[&prefix[..prefix_len], &packet].concat());
        assert_eq!(content_of(&consumer.receive().data()), b"z");
    }
    let snapshot = router.snapshot();
    let udp: Vec<_> = snapshot.faces.iter().filter(|face| face.uri.starts_with("udp")).collect();
    assert_eq!(udp.len(), 32, "no peer has another face");
    assert!(udp.iter().any(|face| face.thread != udp[0].thread), "one thread has all");
}

#[test]
fn erasing_reaches_all_shards() {
    let router = with_threads(3);
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    for index in 0..9 {
        producer.register(&format!("/e{index}"));
        let uri = format!("/e{index}/1");
        consumer.send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, b"x"));
        consumer.receive().data();
    }
    let parameters = ControlParameters {
        name: Some(weir_io_fixture::router::name("/")),
        count: Some(9),
        ..Default::default()
    };
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
        assert_eq!(consumer.receive().nack(), NackReason::NoRoute);
    }
}

fn prefix_interest(uri: &str, must_be_fresh: bool) -> Vec<u8> {
    Interest::new(weir_io_fixture::router::name(uri))
        .can_be_prefix(true)
        .must_be_fresh(must_be_fresh)
        .encode()
}

/// An Interest that a producer received, its header, and the answer with its token.
fn answer<S: std::io::Read + std::io::Write>(producer: &mut Peer<S>, uri: &str, packet: &[u8]) {
    let ReceivedPacket::Interest { header, wire } = producer.receive() else {
        panic!("an Interest")
    };
    assert_eq!(name_of(&wire), uri);
    let answer = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
    let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
    let prefix_len = answer.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
    producer.send(&[&prefix[..prefix_len], packet].concat());
}

#[test]
fn object_spans_threads_and_is_found() {
    for threads in [1, 2, 4] {
        let router = with_threads(threads);
        let mut producer = router.unix();
        producer.register("/site");
        let mut consumers: Vec<_> = (0..3).map(|_| router.unix()).collect();
        let segments = (0..640).step_by(8);
        for segment in segments.clone() {
            let uri = format!("/site/o/v=1/seg={segment}");
            let consumer = &mut consumers[segment % 3];
            consumer.send(&interest(&uri));
            answer(&mut producer, &uri, &data(&uri, b"x"));
            assert_eq!(content_of(&consumer.receive().data()), b"x");
        }
        // The first request of a fetch: metadata, which only the producer can name.
        let metadata = "/site/o/32=metadata";
        for version in [5, 6] {
            for (number, consumer) in consumers.iter_mut().enumerate() {
                consumer.send(&prefix_interest(metadata, true));
                if number == 0 {
                    let fresh = Data::new(weir_io_fixture::router::name(&format!(
                        "{metadata}/v={version}/seg=0"
                    )))
                    .freshness_ms(1000)
                    .content([version])
                    .encode_with_digest();
                    answer(&mut producer, metadata, &fresh);
                }
                assert_eq!(content_of(&consumer.receive().data()), [version], "{threads} threads");
            }
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
        consumers[0].send(&prefix_interest("/site/o/v=1", false));
        let newest = ReceivedPacket::data(consumers[0].receive());
        let found = weir_wire::DataView::decode(&newest).unwrap().name.to_string();
        assert_eq!(found, "/site/o/v=1/seg=632", "the segment that came last");
        consumers[1].send(&prefix_interest("/elsewhere", false));
        assert_eq!(consumers[1].receive().nack(), NackReason::NoRoute);
        // Management: a dataset by its prefix, and a count over all shards.
        for uri in ["/localhost/nfd/fib/list", "/localhost"] {
            consumers[2].send(&prefix_interest(uri, true));
            consumers[2].receive().data();
        }
        let snapshot = router.snapshot();
        assert_eq!(snapshot.router.shard_timeouts, 0);
        let parameters = ControlParameters {
            name: Some(weir_io_fixture::router::name("/site")),
            count: Some(1000),
            ..Default::default()
        };
        let response = consumers[0].command(Command::CsErase, &parameters);
        let count = response.body.unwrap().count;
        assert_eq!((response.code, count), (200, Some(segments.len() as u64 + 2)));
        router.stop();
    }
}
