//! Peers that answer what others are asked.

mod common;

use common::{Got, TestRouter, data, interest, name};
use weir_forward::DropReason;
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_wire::{LpFraming, LpHeader, PitToken};

/// A router on which a neighbour over UDP, `producer`, is the next hop for `/a`.
fn with_neighbour(threads: usize) -> (TestRouter, common::UdpPeer) {
    let router = TestRouter::start_with(|config| config.threads = threads);
    let producer = router.udp_from([127, 0, 0, 2]);
    producer.send(&interest("/unknown"));
    producer.got().nack();
    let face_id = Some(router.snapshot().faces[0].id);
    let parameters =
        ControlParameters { name: Some(name("/a")), face_id, ..ControlParameters::default() };
    assert_eq!(router.unix().command(Command::RibRegister, &parameters).code, 200);
    (router, producer)
}

/// That of the Interest for `uri`; retransmissions of others may come before it.
fn token_of(producer: &common::UdpPeer, uri: &str) -> PitToken {
    loop {
        let Got::Interest { header, wire } = producer.got() else { panic!("an Interest was due") };
        if common::name_of(&wire) == uri {
            return header.pit_token;
        }
    }
}

fn with_token(pit_token: PitToken, packet: &[u8]) -> Vec<u8> {
    let header = LpHeader { pit_token, ..LpHeader::default() };
    header.encode(&LpFraming::BARE, &[], Some(packet))
}

fn drops(router: &TestRouter, reason: DropReason) -> u64 {
    router.snapshot().router.drops[reason as usize]
}

#[test]
fn what_a_stranger_answers_reaches_no_one_and_stays_nowhere() {
    for threads in [1, 3] {
        let (router, producer) = with_neighbour(threads);
        let forger = router.udp_from([127, 0, 0, 3]);
        let mut consumer = router.unix();
        for turn in 0..20 {
            let uri = format!("/a/{turn}");
            forger.send(&interest(&uri));
            let token = token_of(&producer, &uri);
            forger.send(&data(&uri, b"forged"));
            router.wait_until("the forged Data is dropped", |snapshot| {
                snapshot.router.drops[DropReason::NotAsked as usize] == turn + 1
            });
            consumer.send(&interest(&uri));
            producer.send(&with_token(token, &data(&uri, b"right")));
            assert_eq!(common::content_of(&consumer.got().data()), b"right");
            assert_eq!(common::content_of(&forger.got().data()), b"right");
        }
        router.stop();
    }
}

/// The forger sends from the neighbour's own address, as over a network that forwards such packets:
/// here through the neighbour's socket.
#[test]
fn a_forged_source_address_without_the_token_is_found_out() {
    let (router, producer) = with_neighbour(1);
    let mut consumer = router.unix();
    for turn in 0..10 {
        let uri = format!("/a/{turn}");
        consumer.send(&interest(&uri));
        let token = token_of(&producer, &uri);
        assert_eq!(token.as_slice().len(), 12);
        if turn > 0 {
            producer.send(&data(&uri, b"forged"));
            router.wait_until("the forged Data is dropped", |snapshot| {
                snapshot.router.drops[DropReason::Spoofed as usize] == turn
            });
        }
        producer.send(&with_token(token, &data(&uri, b"right")));
        assert_eq!(common::content_of(&consumer.got().data()), b"right");
    }
    assert_eq!(drops(&router, DropReason::NotAsked), 0);
    router.stop();
}
