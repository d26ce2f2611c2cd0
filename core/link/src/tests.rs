mod bounds;
mod hicn;
mod marking;
mod paced;
mod reliability;
mod runs;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use weir_base::{Instant, NS_PER_MS, Packet, Pool, Rng};
use weir_wire::lp::{HopSignal, LpFraming, LpHeader, LpView, NackReason, PitToken};
use weir_wire::{PACKET_SIZE_MAX, tlv};

use crate::codec::FRAGMENT_COUNT_MAX;
use crate::frame::FRAME_PREFIX_MAX;
use crate::{CoDelOptions, DisciplineConfig, Link, LinkConfig, LinkDrop, MarkingPolicy, Received};

const START: Instant = Instant::from_ns(1_000_000_000);

fn pool() -> Pool {
    Pool::new(1 << 20)
}

/// A TLV of type `typ` whose value has `len` bytes that depend on their position.
fn packet_of(typ: u32, len: usize) -> Packet {
    let mut head = [0; 10];
    let mut size = tlv::write_var_number(u64::from(typ), &mut head);
    size += tlv::write_var_number(len as u64, &mut head[size..]);
    let mut octets = head[..size].to_vec();
    octets.extend((0..len).map(|at| (at * 7 + at / 251) as u8));
    Packet::from(octets)
}

fn interest() -> Packet {
    packet_of(tlv::INTEREST, 40)
}

fn data(len: usize) -> Packet {
    packet_of(tlv::DATA, len)
}

/// Takes the queued frames, as bytes.
fn sent(link: &mut Link) -> Vec<Packet> {
    let frames: Vec<Packet> = link
        .frames()
        .map(|frame| Packet::from([frame.prefix(), frame.payload()].concat()))
        .collect();
    link.frames_sent(frames.len());
    frames
}

fn with(mut config: LinkConfig, change: impl FnOnce(&mut LinkConfig)) -> LinkConfig {
    change(&mut config);
    config
}

fn received(link: &mut Link, frame: Packet) -> Received {
    link.receive(START, frame, &mut pool())
}

fn whole(received: Received) -> (LpHeader, Packet) {
    match received {
        Received::Packet { header, packet } => (header, packet),
        other => panic!("{other:?}"),
    }
}

fn drop_reason(received: Received) -> LinkDrop {
    match received {
        Received::Drop(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn fragment(sequence: u64, index: u64, count: u64, octets: &[u8]) -> Packet {
    fragment_of(&LpHeader::default(), sequence, index, count, octets)
}

fn fragment_of(header: &LpHeader, sequence: u64, index: u64, count: u64, octets: &[u8]) -> Packet {
    let sequence = Some(sequence);
    let framing = LpFraming { sequence, frag_index: index, frag_count: count, ..LpFraming::BARE };
    Packet::from(header.encode(&framing, &[], Some(octets)))
}

fn token(octets: &[u8]) -> LpHeader {
    LpHeader { pit_token: PitToken::new(octets).unwrap(), ..LpHeader::default() }
}

#[test]
fn bare_packet_is_not_copied() {
    let mut link = Link::new(LinkConfig::stream());
    let packet = data(8000);
    link.enqueue(START, LpHeader::default(), packet.clone()).unwrap();
    let frame = link.frames().next().unwrap();
    assert!(frame.prefix().is_empty());
    assert_eq!(frame.payload().as_ptr(), packet.as_ptr());
    assert_eq!(link.queue_bytes(), packet.len() as u64);

    let (header, arrived) = whole(received(&mut link, packet.clone()));
    assert_eq!(header, LpHeader::default());
    assert_eq!(arrived.as_ptr(), packet.as_ptr());
    assert_eq!((link.counters().in_data, link.counters().out_data), (1, 1));
}

#[test]
fn unfragmented_packet_is_a_slice() {
    let mut link = Link::new(LinkConfig::stream());
    let header = token(b"abcd");
    link.enqueue(START, header.clone(), data(8000)).unwrap();
    let frame = sent(&mut link).remove(0);
    let (seen, packet) = whole(received(&mut link, frame.clone()));
    assert_eq!(seen, header);
    assert_eq!(packet[..], data(8000)[..]);
    assert!(frame.as_ptr_range().contains(&packet.as_ptr()));
}

#[test]
fn a_nack_is_counted_as_one() {
    let mut link = Link::new(LinkConfig::stream());
    let header = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    link.enqueue(START, header.clone(), interest()).unwrap();
    let frame = sent(&mut link).remove(0);
    assert_eq!(whole(received(&mut link, frame)).0, header);
    assert_eq!((link.counters().in_nacks, link.counters().out_nacks), (1, 1));
    assert_eq!((link.counters().in_interests, link.counters().out_interests), (0, 0));
}

#[test]
fn long_header_is_copied_with_its_packet() {
    let config = with(LinkConfig::stream(), |config| config.codec.local_fields = true);
    let mut link = Link::new(config.clone());
    let header = LpHeader {
        nack: Some(NackReason::Other(u64::MAX)),
        incoming_face: Some(u64::MAX),
        congestion_mark: u64::MAX,
        ..token(&[9; 32])
    };
    link.enqueue(START, header.clone(), interest()).unwrap();
    assert!(link.frames().next().unwrap().prefix().is_empty());
    let frame = sent(&mut link).remove(0);
    assert!(frame.len() > interest().len() + FRAME_PREFIX_MAX);
    let (seen, packet) = whole(received(&mut link, frame));
    assert_eq!(seen, LpHeader { incoming_face: None, ..header });
    assert_eq!(packet[..], interest()[..]);
}

/// NDN-FACTS 2.2, row by row.
#[test]
fn accepts_only_headers_that_nfd_allows() {
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    let next_hop = LpHeader { next_hop_face: Some(300), ..LpHeader::default() };
    let policy = LpHeader { no_cache: true, ..LpHeader::default() };
    let non_discovery = LpHeader { non_discovery: true, ..LpHeader::default() };
    let with_nack = |header: &LpHeader| LpHeader { nack: nack.nack, ..header.clone() };
    let cases = [
        (policy.clone(), interest(), Some(LinkDrop::InterestHeader)),
        (next_hop.clone(), interest(), Some(LinkDrop::LocalFieldsOff)),
        (non_discovery.clone(), interest(), None),
        (policy.clone(), data(9), None),
        (nack.clone(), data(9), Some(LinkDrop::DataHeader)),
        (next_hop.clone(), data(9), Some(LinkDrop::DataHeader)),
        (non_discovery.clone(), data(9), Some(LinkDrop::DataHeader)),
        (nack.clone(), interest(), None),
        (with_nack(&next_hop), interest(), Some(LinkDrop::NackHeader)),
        (with_nack(&policy), interest(), Some(LinkDrop::NackHeader)),
        (with_nack(&non_discovery), interest(), Some(LinkDrop::NackHeader)),
        (LpHeader { incoming_face: Some(9), ..token(b"t") }, interest(), None),
    ];
    for (header, packet, refused) in cases {
        let mut link = Link::new(LinkConfig::stream());
        let frame = Packet::from(header.encode(&LpFraming::BARE, &[], Some(&packet)));
        match refused {
            Some(reason) => {
                assert_eq!(drop_reason(received(&mut link, frame)), reason, "{header:?}");
                assert_eq!(link.counters().drops[reason], 1);
                assert_eq!(link.counters().drops.total(), 1);
            }
            None => {
                let expected = LpHeader { incoming_face: None, ..header };
                assert_eq!(whole(received(&mut link, frame)).0, expected);
            }
        }
    }
    let mut link = Link::new(with(LinkConfig::stream(), |config| config.codec.local_fields = true));
    let frame = Packet::from(next_hop.encode(&LpFraming::BARE, &[], Some(&interest())));
    assert_eq!(whole(received(&mut link, frame)).0, next_hop);
}

#[test]
fn prefix_announcement_is_allowed_only_on_data() {
    let with_announcement = |packet: &[u8]| {
        let mut body = vec![];
        let announcement = [0x06, 0x02, 0x07, 0x00];
        body.extend_from_slice(&[0xfd, 0x03, 0x50, announcement.len() as u8]);
        body.extend_from_slice(&announcement);
        body.extend_from_slice(&[0x50, packet.len() as u8]);
        body.extend_from_slice(packet);
        let mut frame = vec![0x64, body.len() as u8];
        frame.extend_from_slice(&body);
        Packet::from(frame)
    };
    let mut link = Link::new(LinkConfig::stream());
    let (header, _) = whole(received(&mut link, with_announcement(&data(9))));
    assert!(header.is_plain());
    let refused = received(&mut link, with_announcement(&interest()));
    assert_eq!(drop_reason(refused), LinkDrop::InterestHeader);
}

/// Sends Data with an announcement over a link. Returns what arrives, and the number of frames.
fn announced_over(config: LinkConfig, header: &LpHeader, len: usize) -> (Received, usize) {
    let announcement = Packet::from([&[6, 0xFD, 1, 0][..], &[7; 256][..]].concat());
    let mut near = Link::new(config.clone());
    near.enqueue_announced(START, header.clone(), data(len), &announcement).unwrap();
    assert_eq!(near.counters().out_data, 1);
    let mut far = Link::new(with(config, |config| config.codec.announcements = true));
    let frames = sent(&mut near);
    let count = frames.len();
    let mut arrived = None;
    for frame in frames {
        assert!(frame.len() <= near.config().codec.mtu);
        arrived = Some(received(&mut far, frame));
    }
    if let Some(Received::Announced(announced)) = &arrived {
        assert_eq!(announced.announcement, announcement);
        assert_eq!(announced.packet, data(len));
        assert_eq!(far.counters().in_data, 1);
    }
    (arrived.unwrap(), count)
}

#[test]
fn announcements_pass_from_end_to_end() {
    let header = LpHeader { congestion_mark: 1, ..token(b"abcd") };
    let reliable = with(LinkConfig::datagram(1420), |config| config.codec.reliability = true);
    for (config, len, frames) in [
        (LinkConfig::stream(), 100, 1),
        (LinkConfig::stream(), 8000, 1),
        (LinkConfig::datagram(1420), 1000, 1),
        (LinkConfig::datagram(1420), 1200, 2),
        (LinkConfig::datagram(1420), 8000, 6),
        (reliable, 3000, 3),
    ] {
        let (arrived, count) = announced_over(config, &header, len);
        let Received::Announced(announced) = arrived else { panic!("{arrived:?}") };
        assert_eq!((announced.header, count), (header.clone(), frames));
    }
}

#[test]
fn data_goes_without_announcement_that_does_not_fit() {
    // A stream has no fragments. On the datagram link even the first fragment has no room.
    for (config, len) in [(LinkConfig::stream(), 8750), (LinkConfig::datagram(200), 1000)] {
        let (arrived, _) = announced_over(config, &token(b"abcd"), len);
        let (header, packet) = whole(arrived);
        assert_eq!((header, packet), (token(b"abcd"), data(len)));
    }
}

#[test]
fn local_fields_are_sent_only_if_on() {
    let header = LpHeader { incoming_face: Some(256), next_hop_face: Some(3), ..token(b"x") };
    for local_fields in [false, true] {
        let mut link = Link::new(with(LinkConfig::stream(), |config| {
            config.codec.local_fields = local_fields
        }));
        link.enqueue(START, header.clone(), interest()).unwrap();
        let frame = sent(&mut link).remove(0);
        let seen = LpView::decode(&frame).unwrap().header;
        assert_eq!(seen.incoming_face, local_fields.then_some(256));
        assert_eq!(seen.next_hop_face, local_fields.then_some(3));
    }
}

#[test]
fn signals_pass_from_end_to_end() {
    let mut link = Link::new(LinkConfig::datagram(1420));
    for for_ms in [30, 0] {
        let signal = HopSignal::Unavailable { for_ms };
        link.enqueue_signal(signal).unwrap();
        let frames = sent(&mut link);
        assert_eq!(frames.len(), 1);
        let heard = received(&mut link, frames[0].clone());
        assert!(matches!(heard, Received::Signal(heard) if heard == signal));
    }
    // A link that does not know the field ignores a packet with it.
    let unknown = Packet::from(&[0x64, 5, 0xFD, 0x03, 0xBC, 1, 30][..]);
    assert!(matches!(received(&mut link, unknown), Received::Idle));
    assert_eq!(link.counters().drops.total(), 0);
    // The limit of the queue also applies to signals.
    let mut full =
        Link::new(with(LinkConfig::datagram(1420), |config| config.egress.queue_bytes_max = 0));
    assert_eq!(full.enqueue_signal(HopSignal::Unavailable { for_ms: 1 }), Err(LinkDrop::QueueFull));
    assert_eq!((full.counters().drops[LinkDrop::QueueFull], full.frames().len()), (1, 0));
}

#[test]
fn malformed_frames_are_counted() {
    let mut link = Link::new(LinkConfig::datagram(1420));
    let idle = Packet::from(LpHeader::default().encode(&LpFraming::BARE, &[7, 8], None));
    assert!(matches!(received(&mut link, idle), Received::Idle));
    let cases: [(&[u8], LinkDrop); 6] = [
        (&[], LinkDrop::Malformed),
        (&[0x08, 0x00], LinkDrop::Malformed),
        (&[0x64, 0x05, 0x50], LinkDrop::Malformed),
        (&[0x64, 0x02, 0x50, 0x00], LinkDrop::Malformed),
        (&[0x64, 0x04, 0x50, 0x02, 0x09, 0x00], LinkDrop::NotNetworkPacket),
        (&[0x64, 0x07, 0x53, 0x01, 0x02, 0x50, 0x02, 0x06, 0x00], LinkDrop::FragmentUnnumbered),
    ];
    for (frame, reason) in cases {
        assert_eq!(drop_reason(received(&mut link, Packet::from(frame))), reason, "{frame:x?}");
    }
    assert_eq!(link.counters().drops.total(), cases.len() as u64);
    assert_eq!(link.counters().in_frames, 1 + cases.len() as u64);
    let refused = link.enqueue(START, LpHeader::default(), Packet::empty());
    assert_eq!(refused, Err(LinkDrop::NotNetworkPacket));
}

#[test]
fn every_drop_has_its_own_name() {
    let mut names: Vec<&str> = LinkDrop::ALL.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), LinkDrop::COUNT);
    assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
}

#[test]
fn header_is_that_of_fragment_zero() {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let packet = data(100);
    let (first, second) = packet.split_at(60);
    let of =
        |index, base: LpHeader, octets: &[u8]| fragment_of(&base, 50 + index, index, 2, octets);
    let marked = LpHeader { congestion_mark: 1, ..token(b"other") };
    assert!(matches!(received(&mut link, of(1, marked, second)), Received::Partial));
    let (header, whole) = whole(received(&mut link, of(0, token(b"right"), first)));
    assert_eq!(header, LpHeader { congestion_mark: 1, ..token(b"right") });
    assert_eq!(whole[..], packet[..]);
    assert_eq!(link.counters().reassembled, 1);
    assert_eq!(link.partial_bytes(), 0);
}

/// ndnd (31822ab) reads these fields from the fragment that arrives last.
#[test]
fn each_fragment_has_token_and_mark() {
    let mut link = Link::new(LinkConfig::datagram(1420));
    let repeated = LpHeader { congestion_mark: 1, ..token(b"ndnd's") };
    let header = LpHeader { no_cache: true, ..repeated.clone() };
    link.enqueue(START, header.clone(), data(8000)).unwrap();
    let frames = sent(&mut link);
    assert_eq!(frames.len(), 6);
    link.enqueue_announced(START, header.clone(), data(8000), &data(300)).unwrap();
    let announced = sent(&mut link);
    assert_eq!(announced.len(), 7);
    for frames in [frames, announced] {
        for (at, frame) in frames.iter().enumerate() {
            let expected = if at == 0 { &header } else { &repeated };
            assert_eq!(LpView::decode(frame).unwrap().header, *expected, "fragment {at}");
        }
    }
}

#[test]
fn invalid_fragments_are_dropped() {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut reason = |frame| match received(&mut link, frame) {
        Received::Drop(reason) => Some(reason),
        Received::Partial => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(fragment(10, 0, 3, b"abc")), None);
    assert_eq!(reason(fragment(10, 0, 3, b"abc")), Some(LinkDrop::FragmentDuplicate));
    assert_eq!(reason(fragment(12, 2, 3, b"abc")), None);
    assert_eq!(reason(fragment(12, 2, 3, b"abc")), Some(LinkDrop::FragmentDuplicate));
    assert_eq!(reason(fragment(11, 1, 4, b"abc")), Some(LinkDrop::FragmentMismatch));
    assert_eq!(reason(fragment(90, 3, 3, b"abc")), Some(LinkDrop::FragmentIndex));
    assert_eq!(
        reason(fragment(90, 0, FRAGMENT_COUNT_MAX + 1, b"abc")),
        Some(LinkDrop::FragmentCount)
    );
    assert_eq!(reason(fragment(200, 0, 2, &[6; PACKET_SIZE_MAX - 100])), None);
    assert_eq!(reason(fragment(201, 1, 2, &[6; 101])), Some(LinkDrop::ReassembledTooLarge));

    let mut stream = Link::new(LinkConfig::stream());
    let refused = received(&mut stream, fragment(1, 0, 2, b"abc"));
    assert_eq!(drop_reason(refused), LinkDrop::ReassemblyOff);
}

#[test]
fn partial_packets_time_out() {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut pool = pool();
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    link.receive(at(0), fragment(0, 0, 3, b"\x06\x04ab"), &mut pool);
    assert_eq!(link.next_wakeup(), Some(at(500)));
    link.receive(at(400), fragment(1, 1, 3, b"c"), &mut pool);
    link.poll(at(500));
    assert_eq!(link.counters().drops.total(), 0, "the second fragment gave it more time");
    assert_eq!(link.next_wakeup(), Some(at(900)));
    link.poll(at(900));
    assert_eq!(link.counters().drops[LinkDrop::ReassemblyTimeout], 1);
    assert_eq!((link.next_wakeup(), link.partial_bytes()), (None, 0));
    // The last fragment is late. It begins a new partial packet instead of completing the dead one.
    assert!(matches!(link.receive(at(901), fragment(2, 2, 3, b"d"), &mut pool), Received::Partial));
}

#[test]
fn oldest_partial_packet_is_dropped() {
    let config = with(LinkConfig::datagram(8800), |config| config.codec.partials_max = 4);
    let mut link = Link::new(config);
    let mut pool = pool();
    for message in 0..10u64 {
        let now = START.plus_ns(message);
        link.receive(now, fragment(message * 10, 0, 2, b"\x06\x02a"), &mut pool);
    }
    assert_eq!(link.counters().drops[LinkDrop::ReassemblyFull], 6);
    let late = START.plus_ns(20);
    let (_, packet) = whole(link.receive(late, fragment(91, 1, 2, b"b"), &mut pool));
    assert_eq!(packet[..], *b"\x06\x02ab");
    assert!(matches!(link.receive(late, fragment(1, 1, 2, b"b"), &mut pool), Received::Partial));
}

#[test]
fn memory_of_reassembly_is_limited() {
    let bound = 64 * 1024;
    let config = with(LinkConfig::datagram(8800), |config| config.codec.partial_bytes_max = bound);
    let mut link = Link::new(config);
    let mut pool = pool();
    let mut rng = Rng::from_seed(7);
    for _ in 0..5000 {
        let count = 2 + u64::from(rng.below(30));
        let index = u64::from(rng.below(count as u32));
        let id = u64::from(rng.below(200)) * 100;
        let octets = [6; 600];
        let len = 1 + rng.below(599) as usize;
        link.receive(START, fragment(id + index, index, count, &octets[..len]), &mut pool);
        // One buffer that had to grow may exceed the limit.
        assert!(link.partial_bytes() <= bound + 2 * Pool::footprint(PACKET_SIZE_MAX));
    }
    assert!(link.counters().drops[LinkDrop::ReassemblyFull] > 0);
}

#[test]
fn egress_queue_is_limited() {
    let mut link =
        Link::new(with(LinkConfig::stream(), |config| config.egress.queue_bytes_max = 50_000));
    let mut queued = 0;
    while link.enqueue(START, LpHeader::default(), data(8000)).is_ok() {
        queued += 1;
    }
    assert_eq!(queued, 6);
    assert_eq!(link.counters().drops[LinkDrop::QueueFull], 1);
    assert_eq!(link.counters().out_data, 6);
    link.frames_sent(1);
    assert_eq!(link.enqueue(START, LpHeader::default(), data(8000)), Ok(()));
    link.discard_front(LinkDrop::SocketRefused);
    assert_eq!(link.counters().drops[LinkDrop::SocketRefused], 1);
    assert_eq!(link.counters().out_frames, 1);
}

proptest! {
    #[test]
    fn reassembles_fragments_in_any_order(
        len in 1usize..8796,
        mtu in 64usize..9000,
        token_len in 0usize..33,
        is_marked: bool,
        sequence_start: u64,
        seed: u64,
    ) {
        let mut config = LinkConfig::datagram(mtu);
        config.codec.sequence_start = sequence_start;
        let mut sender = Link::new(config);
        let marked = LpHeader { congestion_mark: u64::from(is_marked), ..LpHeader::default() };
        let pit_token = PitToken::new(&vec![5; token_len]).unwrap();
        let header = LpHeader { pit_token, ..marked };
        let packet = data(len);
        if let Err(reason) = sender.enqueue(START, header.clone(), packet.clone()) {
            // At the smallest MTUs, a large packet needs more than 400 fragments, or the header
            // fills the frame.
            prop_assert_eq!(reason, LinkDrop::TooLargeForMtu);
            prop_assert!(mtu < 140);
            return Ok(());
        }
        let mut frames = sent(&mut sender);
        // With smaller ones, a fragment may have about 253 octets. Its length then takes two more
        // octets, and the frame cannot be exactly full.
        if mtu > 350 {
            // All but the last have the same length, so one message of the system can hold them.
            let (_, full) = frames.split_last().unwrap();
            prop_assert!(full.iter().all(|frame| frame.len() == mtu));
        }
        let mut rng = Rng::from_seed(seed);
        for at in (1..frames.len()).rev() {
            frames.swap(at, rng.below(at as u32 + 1) as usize);
        }
        prop_assert!(frames.iter().all(|frame| frame.len() <= mtu));
        let mut receiver = Link::new(LinkConfig::datagram(8800));
        let mut pool = pool();
        let last = frames.pop().unwrap();
        for frame in frames {
            prop_assert!(matches!(receiver.receive(START, frame, &mut pool), Received::Partial));
        }
        let (seen, arrived) = whole(receiver.receive(START, last, &mut pool));
        prop_assert_eq!(seen, header);
        prop_assert_eq!(&arrived[..], &packet[..]);
        prop_assert_eq!(receiver.partial_bytes(), 0);
    }

    /// Interleaved packets with losses, duplicates and damage cause no panic and no invented
    /// packet.
    #[test]
    fn random_frames_are_counted_without_panic(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..40), 0u64..6, 0u64..5, 0u64..5, any::<bool>()),
            1..200,
        ),
        local_fields: bool,
    ) {
        let mut config = LinkConfig::datagram(1420);
        config.codec.partials_max = 3;
        config.codec.local_fields = local_fields;
        let mut link = Link::new(config);
        let mut pool = pool();
        let (mut given, mut dropped) = (0, 0);
        let count = frames.len() as u64;
        for (at, (octets, sequence, index, of, is_raw)) in frames.into_iter().enumerate() {
            let frame = match is_raw {
                true => Packet::from(octets),
                false => fragment(sequence, index, of, &octets),
            };
            match link.receive(START.plus_ns(at as u64 * 90 * NS_PER_MS), frame, &mut pool) {
                Received::Packet { packet, .. } => {
                    given += 1;
                    prop_assert!(matches!(packet[0], 5 | 6));
                }
                Received::Drop(_) => dropped += 1,
                _ => {}
            }
        }
        let counters = link.counters();
        prop_assert_eq!(counters.in_frames, count);
        prop_assert_eq!(counters.in_interests + counters.in_data + counters.in_nacks, given);
        let given_up = counters.drops[LinkDrop::ReassemblyTimeout]
            + counters.drops[LinkDrop::ReassemblyFull];
        prop_assert_eq!(counters.drops.total() - given_up, dropped);
    }

    /// A valid frame with one byte changed.
    #[test]
    fn damaged_frames_never_panic(at in 0usize..90, octet: u8, len in 1usize..100) {
        let mut config = LinkConfig::datagram(8800);
        config.codec.local_fields = true;
        let mut link = Link::new(config);
        let header = LpHeader {
            congestion_mark: 1,
            no_cache: true,
            incoming_face: Some(300),
            ..token(b"12345678")
        };
        let mut frame = header.encode(
            &LpFraming { sequence: Some(1), ..LpFraming::BARE },
            &[3, 4],
            Some(&data(len)),
        );
        let at = at % frame.len();
        frame[at] = octet;
        link.receive(START, Packet::from(frame), &mut pool());
        prop_assert_eq!(link.counters().in_frames, 1);
    }
}

#[test]
fn keeps_incoming_face_on_request() {
    let header = LpHeader { incoming_face: Some(300), ..token(b"t") };
    let frame = Packet::from(header.encode(&LpFraming::BARE, &[], Some(&data(9))));
    for keep_incoming_face in [false, true] {
        let config = with(LinkConfig::stream(), |config| {
            config.codec.keep_incoming_face = keep_incoming_face;
        });
        let (seen, _) = whole(received(&mut Link::new(config), frame.clone()));
        assert_eq!(seen.incoming_face, keep_incoming_face.then_some(300));
    }
}
