//! Faces with hICN packets.

use std::collections::BTreeSet;
use std::string::ToString as _;
use std::vec;
use std::vec::Vec;

use weir_hicn::{HicnName, HicnView};
use weir_wire::lp::{HopSignal, LpHeader, NackReason, PitToken};
use weir_wire::{Data, DataView, Interest, InterestView};

use super::*;
use crate::{HicnConfig, PacketFormat, RunsConfig};

const LOCATOR: &str = "2001:db8:9::";
const FACE: u64 = 300;

fn config(has_tokens: bool) -> LinkConfig {
    let locator = LOCATOR.parse().unwrap();
    LinkConfig::hicn(1500, HicnConfig { locator, has_tokens, face: FACE, has_control: false })
}

fn link(has_tokens: bool) -> Link {
    Link::new(config(has_tokens))
}

fn name() -> HicnName {
    HicnName { address: "b001::1".parse().unwrap(), suffix: 7 }
}

fn interest_packet() -> Packet {
    let interest = Interest::new(name().to_name()).nonce(1).lifetime_ms(900).hop_limit(9);
    Packet::from(interest.encode())
}

fn data_packet() -> Packet {
    let data = Data::new(name().to_name()).freshness_ms(1000).content(vec![5; 1000]);
    Packet::from(data.encode_with_digest())
}

fn with_token(token: &[u8]) -> LpHeader {
    LpHeader { pit_token: PitToken::new(token).unwrap(), ..LpHeader::default() }
}

/// The only frame that a packet becomes.
fn frame_of(link: &mut Link, header: LpHeader, packet: Packet) -> Packet {
    link.enqueue(START, header, packet).unwrap();
    let frames = sent(link);
    assert_eq!(frames.len(), 1);
    frames.into_iter().next().unwrap()
}

fn packet_received(link: &mut Link, frame: Packet) -> (LpHeader, Packet) {
    match received(link, frame) {
        Received::Packet { header, packet } => (header, packet),
        other => panic!("{other:?}"),
    }
}

/// An Interest leaves a router of ours, and its Data returns. Both ends are Weir.
fn exchange(has_tokens: bool, token: &[u8]) -> LpHeader {
    let (mut near, mut far) = (link(has_tokens), link(has_tokens));
    let frame = frame_of(&mut near, with_token(token), interest_packet());
    assert_eq!((frame.len(), frame[0]), (60, 0x60));
    let (interest_header, received_interest) = packet_received(&mut far, frame);
    let view = InterestView::decode(&received_interest).unwrap();
    let expected = InterestView::decode(&interest_packet()).unwrap().to_interest();
    assert_eq!(view.to_interest(), Interest { nonce: view.nonce, ..expected });
    let frame = frame_of(&mut far, interest_header, data_packet());
    let view = HicnView::decode(&frame).unwrap();
    assert_eq!(view.header.path_label, FACE as u8);
    assert_eq!(view.payload, [5; 1000]);
    let (header, received_data) = packet_received(&mut near, frame);
    assert_eq!(received_data, data_packet());
    assert_eq!(near.counters().in_data + far.counters().in_interests, 2);
    header
}

#[test]
fn data_returns_the_token_of_its_interest() {
    let token = [6, 5, 4, 3, 2, 1];
    assert_eq!(exchange(true, &token), with_token(&token));
    assert_eq!(exchange(true, &[]), LpHeader::default());
    // A long token has no room in a locator.
    assert_eq!(exchange(true, &[1; 12]), LpHeader::default());
}

#[test]
fn nothing_is_learnt_from_a_forged_token() {
    assert_eq!(exchange(false, &[6, 5, 4, 3, 2, 1]), LpHeader::default());
}

#[test]
fn data_of_hicn_light_returns_to_the_locator() {
    let mut far = link(false);
    let mut octets = hex("60000000001406fe00000000000000000000000000000001b0010000000000000000\
                          00000000000180000080000000000000000050020000e8cf01f4");
    octets[23] = 0x77;
    let (header, _) = packet_received(&mut far, Packet::from(octets));
    let frame = frame_of(&mut far, header, data_packet());
    assert_eq!(HicnView::decode(&frame).unwrap().header.locator.to_string(), "::77");
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn congestion_marks_are_ecn() {
    let (mut near, mut far) = (link(false), link(false));
    let marked = LpHeader { congestion_mark: 1, ..LpHeader::default() };
    let frame = frame_of(&mut far, marked, data_packet());
    assert_eq!(frame[1], 0x30);
    assert_eq!(packet_received(&mut near, frame).0.congestion_mark, 1);
}

#[test]
fn nonces_come_from_the_seed() {
    let nonces = |seed| {
        let mut far = Link::new(with(config(false), |it| it.codec.sequence_start = seed));
        let frame = frame_of(&mut link(false), LpHeader::default(), interest_packet());
        let mut next = || packet_received(&mut far, frame.clone()).1;
        let packets = [next(), next()];
        packets.map(|it| InterestView::decode(&it).unwrap().nonce.unwrap())
    };
    let [first, second] = nonces(7);
    assert_ne!(first, second);
    assert_eq!(nonces(7), [first, second]);
    assert_ne!(nonces(8), [first, second]);
}

#[test]
fn bad_packets_are_counted_with_reasons() {
    let mut far = link(false);
    let good = frame_of(&mut link(false), LpHeader::default(), data_packet());
    let changed = |at: usize, octet: u8| {
        let mut octets = good.to_vec();
        octets[at] = octet;
        Packet::from(octets)
    };
    let long = {
        let mut octets = good.to_vec();
        octets.resize(40 + 65_535, 0);
        octets[4..6].copy_from_slice(&[0xFF, 0xFF]);
        Packet::from(octets)
    };
    for (frame, reason) in [
        (good.slice(0..30), LinkDrop::HicnTruncated),
        (changed(0, 0x45), LinkDrop::HicnVersion),
        (changed(0, 0x95), LinkDrop::HicnVersion),
        (interest(), LinkDrop::HicnVersion),
        (changed(5, 0), LinkDrop::HicnLength),
        (changed(6, 60), LinkDrop::HicnExtensionHeader),
        (changed(6, 44), LinkDrop::HicnFragment),
        (changed(6, 58), LinkDrop::HicnIcmp),
        (changed(6, 17), LinkDrop::HicnNotTcp),
        (changed(43, 80), LinkDrop::HicnPorts),
        (changed(52, 0x60), LinkDrop::HicnTcpOptions),
        (changed(60, 6), LinkDrop::HicnAh),
        (changed(62, 99), LinkDrop::HicnAlgorithm),
        (changed(104, 7), LinkDrop::HicnNdnElements),
        (long, LinkDrop::HicnTooLarge),
    ] {
        let before = far.counters().drops[reason];
        let outcome = received(&mut far, frame);
        assert!(matches!(outcome, Received::Drop(it) if it == reason), "{reason}: {outcome:?}");
        assert_eq!(far.counters().drops[reason], before + 1);
    }
    assert!(matches!(received(&mut far, good), Received::Packet { .. }));
}

#[test]
fn packets_without_an_hicn_form_are_counted() {
    let mut far = link(false);
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    assert_eq!(far.enqueue(START, nack, interest_packet()), Err(LinkDrop::HicnNoForm));
    let other = Packet::from(Interest::new("/a".parse().unwrap()).encode());
    assert_eq!(far.enqueue(START, LpHeader::default(), other), Err(LinkDrop::HicnNoName));
    let data = Data::new(name().to_name()).content(vec![0; 2000]).encode_with_digest();
    let result = far.enqueue(START, LpHeader::default(), Packet::from(data));
    assert_eq!(result, Err(LinkDrop::TooLargeForMtu));
    let signal = HopSignal::Unavailable { for_ms: 5 };
    assert_eq!(far.enqueue_signal(signal), Err(LinkDrop::HicnNoForm));
    assert_eq!(far.counters().drops.total(), 4);
    assert!(far.is_egress_empty());
}

/// Without a locator, a face answers Interests and sends none.
#[test]
fn interests_need_a_locator() {
    let locator = core::net::Ipv6Addr::UNSPECIFIED;
    let mut far =
        Link::new(LinkConfig::hicn(1500, HicnConfig { locator, ..HicnConfig::default() }));
    let refused = far.enqueue(START, LpHeader::default(), interest_packet());
    assert_eq!(refused, Err(LinkDrop::HicnNoLocator));
    let frame = frame_of(&mut far, LpHeader::default(), data_packet());
    assert!(HicnView::decode(&frame).unwrap().header.is_data());
}

#[test]
fn features_of_ndnlp_are_off() {
    let config = with(config(false), |it| {
        it.codec.reliability = true;
        it.codec.fragmentation = true;
        it.codec.local_fields = true;
    });
    let mut near = Link::new(config);
    assert!(!near.is_reliable());
    for _ in 0..3 {
        near.enqueue(START, LpHeader::default(), interest_packet()).unwrap();
    }
    near.gather_runs(0);
    assert_eq!(sent(&mut near).len(), 3);
    // The format of a face may change.
    near.set_config(LinkConfig::stream());
    let frame = frame_of(&mut near, LpHeader::default(), data_packet());
    assert!(DataView::decode(&frame).is_ok());
}

#[test]
fn control_messages_need_permission() {
    let message = Packet::from(vec![0xC0, 10, 0, 0, 7, 0, 0, 0]);
    let mut closed = link(false);
    assert!(matches!(
        received(&mut closed, message.clone()),
        Received::Drop(LinkDrop::HicnControl)
    ));
    let mut open = config(false);
    let PacketFormat::Hicn(hicn) = &mut open.codec.format else { panic!("hICN") };
    hicn.has_control = true;
    let mut open = Link::new(open);
    assert!(matches!(received(&mut open, message.clone()), Received::Control(it) if it == message));
    // Other octets that are not IPv6 are none.
    assert!(matches!(
        received(&mut open, Packet::from(vec![0x45; 60])),
        Received::Drop(LinkDrop::HicnVersion)
    ));
    open.enqueue_control(message.clone()).unwrap();
    assert_eq!(sent(&mut open), [message]);
    let long = Packet::from(vec![0xC1; 1501]);
    assert_eq!(open.enqueue_control(long), Err(LinkDrop::TooLargeForMtu));
}

fn interest_of(suffix: u32) -> Packet {
    let name = HicnName { suffix, ..name() }.to_name();
    Packet::from(Interest::new(name).nonce(1).lifetime_ms(1000).must_be_fresh(true).encode())
}

/// The names of the Interests of a received run.
fn suffixes_of_run(link: &mut Link, frame: Packet) -> Vec<u32> {
    let mut pool = Pool::new(1 << 20);
    let received = link.receive(START, frame, &mut pool);
    assert!(matches!(received, Received::Run), "{received:?}");
    let mut suffixes = Vec::new();
    let mut nonces = BTreeSet::new();
    while let Some((header, packet)) = link.next_in_run(START, &mut pool) {
        let interest = InterestView::decode(&packet).unwrap();
        assert!(!header.pit_token.as_slice().is_empty(), "the locator of the peer");
        assert!(nonces.insert(interest.nonce));
        suffixes.push(HicnName::from_name(interest.name).unwrap().suffix);
    }
    suffixes
}

/// Interests of `hicn-ping-client` with four suffixes each, which it has signed.
#[test]
fn captured_interest_manifests_are_runs() {
    let mut far = link(false);
    let lines = include_str!("../../../hicn/tests/vectors/interest-manifest.jsonl").lines();
    for (line, first) in lines.zip([0, 4]) {
        let hex = line.split('"').rev().nth(1).unwrap();
        let octet = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let packet: Vec<u8> = (0..hex.len()).step_by(2).map(octet).collect();
        let suffixes = suffixes_of_run(&mut far, Packet::from(packet.clone()));
        assert_eq!(suffixes, [first, first + 1, first + 2, first + 3]);
        // Another number of suffixes, and none requested.
        for (at, octet) in [(139, 5), (139, 0), (136, 1), (151, 0)] {
            let mut changed = packet.clone();
            changed[at] = octet;
            let outcome = received(&mut far, Packet::from(changed));
            assert!(matches!(outcome, Received::Drop(LinkDrop::HicnInterestManifest)), "{at}");
        }
    }
    let counters = far.counters();
    assert_eq!((counters.in_runs, counters.in_run_interests, counters.in_interests), (2, 8, 8));
    assert_eq!(counters.drops[LinkDrop::HicnInterestManifest], 8);
}

#[test]
fn interests_are_joined_only_by_configuration() {
    let runs = |runs| Link::new(with(config(false), |it| it.codec.runs = runs));
    let mut far = link(false);
    let mut near = runs(RunsConfig::Initiate);
    let send = |near: &mut Link, suffixes: &[u32]| {
        for &suffix in suffixes {
            near.enqueue(START, LpHeader::default(), interest_of(suffix)).unwrap();
        }
        near.gather_runs(0);
        sent(near)
    };
    let frames = send(&mut near, &[7, 8, 1000, u32::MAX, 3]);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].len(), 60 + 40 + 5 * 4);
    assert_eq!(suffixes_of_run(&mut far, frames[0].clone()), [7, 8, 1000, u32::MAX, 3]);
    // At most 256, and no more than fit into the MTU.
    let many: Vec<u32> = (0..600).collect();
    let frames = send(&mut near, &many);
    assert_eq!(frames.len(), 3);
    let all: Vec<u32> =
        frames.iter().flat_map(|it| suffixes_of_run(&mut far, it.clone())).collect();
    assert_eq!(all, many);
    let mut narrow = Link::new(with(config(false), |it| {
        (it.codec.runs, it.codec.mtu) = (RunsConfig::Initiate, 200);
    }));
    let frames = send(&mut narrow, &many[..60]);
    assert!(frames.iter().all(|frame| frame.len() <= 200) && frames.len() == 3);
    // Data in between, and another lifetime.
    let counters = near.counters();
    assert_eq!((counters.out_runs, counters.out_run_interests), (4, 605));
    // A manifest that the peer has sent proves nothing: it may be forged, or of one host of many.
    let frames = send(&mut near, &[1, 2]);
    for mode in [RunsConfig::Accept, RunsConfig::Off] {
        let mut quiet = runs(mode);
        assert_eq!(suffixes_of_run(&mut quiet, frames[0].clone()), [1, 2]);
        assert_eq!(send(&mut quiet, &[1, 2, 3]).len(), 3);
    }
}
