//! NDNLPv2 reliability (NDN-FACTS 2.5).

use std::collections::{BTreeMap, VecDeque};
use std::string::String;
use std::vec;
use std::vec::Vec;

use weir_base::{Instant, NS_PER_MS, Packet, Pool, Rng};
use weir_wire::lp::{LpFraming, LpHeader, LpView};
use weir_wire::tlv;

use super::{START, data, drop_reason, fragment, interest, pool, sent, token, whole, with};
use crate::{Link, LinkConfig, LinkDrop, Received};

const SECOND_NS: u64 = 1000 * NS_PER_MS;

fn reliable(mtu: usize) -> LinkConfig {
    with(LinkConfig::datagram(mtu), |config| config.codec.reliability = true)
}

fn after_ms(ms: u64) -> Instant {
    START.plus_ns(ms * NS_PER_MS)
}

fn send(link: &mut Link, now: Instant, packet: Packet) -> Vec<Packet> {
    link.enqueue(now, LpHeader::default(), packet).unwrap();
    sent(link)
}

/// The frames that reliability sends at `now` on its own.
fn due(link: &mut Link, now: Instant) -> Vec<Packet> {
    link.poll(now);
    sent(link)
}

fn numbers(frame: &[u8]) -> (Option<u64>, Option<u64>) {
    let framing = LpView::decode(frame).unwrap().framing;
    (framing.sequence, framing.tx_sequence)
}

fn acks(frame: &[u8]) -> Vec<u64> {
    LpView::decode(frame).unwrap().acks().collect()
}

/// An IDLE packet with these Acks.
fn idle(acks: &[u64]) -> Packet {
    Packet::from(LpHeader::default().encode(&LpFraming::BARE, acks, None))
}

fn numbered(sequence: u64, tx_sequence: u64) -> Packet {
    let (sequence, tx_sequence) = (Some(sequence), Some(tx_sequence));
    let framing = LpFraming { sequence, tx_sequence, ..LpFraming::BARE };
    Packet::from(LpHeader::default().encode(&framing, &[], Some(&interest())))
}

fn octets(hex: &str) -> Packet {
    let hex: String = hex.split_whitespace().collect();
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    Packet::from((0..hex.len()).step_by(2).map(octet).collect::<Vec<u8>>())
}

/// The bytes are those of NDN-FACTS 2.1, in the order of ndn-cxx.
#[test]
fn frames_are_those_of_nfd() {
    let interest = octets("050b 0703 080141 0a04 01020304");
    let mut link = Link::new(with(reliable(1472), |config| config.codec.sequence_start = 5));
    let first = send(&mut link, START, interest.clone());
    let expected =
        "6425 5108 0000000000000005 fd034808 0000000000000000 500d 050b0703080141 0a0401020304";
    assert_eq!(first, [octets(expected)]);
    // Sequence 5, Acks 7 and 8, TxSequence 99.
    let theirs = "643d 5108 0000000000000005 fd034408 0000000000000007 fd034408 0000000000000008 \
                  fd034808 0000000000000063 500d 050b0703080141 0a0401020304";
    let (header, packet) = whole(link.receive(START, octets(theirs), &mut pool()));
    assert_eq!((header, &packet[..]), (LpHeader::default(), &interest[..]));
    assert_eq!(link.counters().acknowledged, 0, "7 and 8 were never sent");
    let second = send(&mut link, START, interest.clone());
    let expected = "6431 5108 0000000000000006 fd034408 0000000000000063 \
                    fd034808 0000000000000001 500d 050b0703080141 0a0401020304";
    assert_eq!(second, [octets(expected)]);
    // No frame can carry the next Ack, so an IDLE packet leaves after 5 ms.
    link.receive(START, numbered(6, 0x64), &mut pool());
    assert_eq!(link.next_wakeup(), Some(after_ms(5)));
    assert!(due(&mut link, START.plus_ns(5 * NS_PER_MS - 1)).is_empty());
    assert_eq!(due(&mut link, after_ms(5)), [octets("640c fd034408 0000000000000064")]);
    // One frame of the peer acknowledges both of ours.
    let both = octets("6418 fd034408 0000000000000000 fd034408 0000000000000001");
    assert!(matches!(link.receive(after_ms(9), both, &mut pool()), Received::Idle));
    assert_eq!((link.counters().acknowledged, link.next_wakeup()), (2, None));
}

#[test]
fn frame_overtaken_by_three_is_retransmitted() {
    let mut link = Link::new(reliable(1472));
    let frames: Vec<Packet> = (0..6).flat_map(|_| send(&mut link, START, interest())).collect();
    let numbers_sent: Vec<_> = frames.iter().map(|frame| numbers(frame)).collect();
    let expected: Vec<_> = (0..6).map(|number| (Some(number), Some(number))).collect();
    assert_eq!(numbers_sent, expected);
    link.receive(after_ms(40), idle(&[5, 2]), &mut pool());
    assert!(link.is_egress_empty());
    // Three later frames than 0 and 1 have arrived, and one later than 3.
    link.receive(after_ms(40), idle(&[4]), &mut pool());
    let again = sent(&mut link);
    let numbers_again: Vec<_> = again.iter().map(|frame| numbers(frame)).collect();
    assert_eq!(numbers_again, [(Some(0), Some(6)), (Some(1), Some(7))]);
    assert_eq!((link.counters().retransmitted, link.counters().acknowledged), (2, 3));
    // An Ack of a first transmission has no effect. One of a retransmission does, but gives no
    // sample.
    link.receive(after_ms(41), idle(&[0, 1, 3, 6, 7, 7]), &mut pool());
    assert_eq!((link.counters().acknowledged, link.next_wakeup()), (6, None));
    assert_eq!(link.egress_memory_bytes(), 0);
}

#[test]
fn frame_without_ack_is_sent_four_times() {
    let mut link = Link::new(reliable(1472));
    let first = send(&mut link, START, data(3000));
    assert_eq!(first.len(), 3);
    // 1 s at first, doubled once for all frames that time out together.
    let (mut now, mut wait_ns) = (START, SECOND_NS);
    for round in 1..=3 {
        now = now.plus_ns(wait_ns);
        assert_eq!(link.next_wakeup(), Some(now));
        let again = due(&mut link, now);
        let seen: Vec<_> = again.iter().map(|frame| numbers(frame)).collect();
        let expected: Vec<_> = (0..3).map(|at| (Some(at), Some(3 * round + at))).collect();
        assert_eq!(seen, expected);
        wait_ns *= 2;
    }
    // One fragment is given up, and the others are not retransmitted: they belong to one packet.
    assert!(due(&mut link, now.plus_ns(wait_ns)).is_empty());
    assert_eq!((link.counters().given_up, link.counters().retransmitted), (1, 9));
    assert_eq!((link.next_wakeup(), link.egress_memory_bytes()), (None, 0));
}

#[test]
fn timeout_follows_round_trips() {
    let mut link = Link::new(reliable(1472));
    send(&mut link, START, interest());
    link.receive(after_ms(100), idle(&[0]), &mut pool());
    send(&mut link, after_ms(200), interest());
    // 100 ms and four deviations of 50 ms.
    assert_eq!(link.next_wakeup(), Some(after_ms(500)));
    link.receive(after_ms(201), idle(&[1]), &mut pool());
    for number in 2..40 {
        send(&mut link, after_ms(200 + number), interest());
        link.receive(after_ms(200 + number), idle(&[number]), &mut pool());
    }
    send(&mut link, after_ms(300), interest());
    assert_eq!(link.next_wakeup(), Some(after_ms(500)), "200 ms at least");
}

/// The Ack may belong to either transmission, so it gives no sample (RFC 6298, 3).
#[test]
fn retransmission_gives_no_sample() {
    let mut link = Link::new(reliable(1472));
    send(&mut link, START, interest());
    assert_eq!(due(&mut link, after_ms(1000)).len(), 1);
    link.receive(after_ms(1001), idle(&[1]), &mut pool());
    send(&mut link, after_ms(1001), interest());
    assert_eq!(link.next_wakeup(), Some(after_ms(3001)));
}

#[test]
fn duplicate_is_dropped_and_acknowledged() {
    let mut link = Link::new(reliable(1472));
    whole(link.receive(START, numbered(77, 1), &mut pool()));
    let again = link.receive(after_ms(3), numbered(77, 2), &mut pool());
    assert_eq!(drop_reason(again), LinkDrop::SequenceDuplicate);
    assert_eq!(acks(&due(&mut link, after_ms(5))[0]), [1, 2]);
    // Without a TxSequence the frame does not use reliability.
    whole(link.receive(after_ms(6), numbered(78, 3), &mut pool()));
    whole(link.receive(after_ms(6), fragment(78, 0, 1, &interest()), &mut pool()));
}

#[test]
fn full_frame_of_acks_leaves_at_once() {
    let mut link = Link::new(reliable(148));
    for number in 0..12 {
        link.receive(START, numbered(number, number), &mut pool());
    }
    let frames = sent(&mut link);
    assert_eq!((frames.len(), frames[0].len()), (1, 146));
    assert_eq!(acks(&frames[0]), (0..12).collect::<Vec<u64>>());
    assert!(due(&mut link, after_ms(50)).is_empty());
}

#[test]
fn frames_beyond_the_limit_are_sent_once() {
    let mut link = Link::new(with(reliable(1472), |config| {
        config.codec.unacknowledged_bytes_max = 5000;
    }));
    let frames: Vec<_> = (0..100).flat_map(|_| send(&mut link, START, data(1000))).collect();
    let kept = frames.iter().filter(|frame| numbers(frame).1.is_some()).count();
    assert!((1..5).contains(&kept), "{kept}");
    assert_eq!(link.counters().unprotected, 100 - kept as u64);
    assert!(link.egress_memory_bytes() <= 5000);
    link.receive(START, idle(&[0]), &mut pool());
    assert_eq!(numbers(&send(&mut link, START, data(1000))[0]).1, Some(kept as u64));
    // All faces together use too much memory, and this is dropped first.
    link.shed_egress(0, false);
    assert_eq!((link.egress_memory_bytes(), link.next_wakeup()), (0, None));
}

#[test]
fn peer_without_reliability_gets_packets_once() {
    let mut link = Link::new(reliable(1472));
    let mut now = START;
    let mut frames = 0;
    for _ in 0..1000 {
        now = now.plus_ns(100 * NS_PER_MS);
        link.poll(now);
        link.enqueue(now, LpHeader::default(), interest()).unwrap();
        frames += sent(&mut link).len();
    }
    assert!(frames < 1500, "{frames}");
    // The peer begins to answer; one probe is enough to detect it.
    for _ in 0..11 {
        now = now.plus_ns(100 * NS_PER_MS);
        link.poll(now);
        link.enqueue(now, LpHeader::default(), interest()).unwrap();
        for frame in sent(&mut link) {
            if let Some(number) = numbers(&frame).1 {
                link.receive(now, idle(&[number]), &mut pool());
            }
        }
    }
    for _ in 0..9 {
        assert!(numbers(&send(&mut link, now, interest())[0]).1.is_some());
    }
}

#[test]
fn reliability_is_turned_on_and_off() {
    let mut link = Link::new(LinkConfig::datagram(1472));
    assert_eq!(send(&mut link, START, interest())[0][..], interest()[..]);
    assert_eq!(link.next_wakeup(), None);
    link.set_config(reliable(1472));
    assert!(link.is_reliable());
    assert_eq!(numbers(&send(&mut link, START, interest())[0]), (Some(0), Some(0)));
    assert!(link.next_wakeup().is_some() && link.egress_memory_bytes() > 0);
    link.set_config(LinkConfig::datagram(1472));
    assert_eq!((link.next_wakeup(), link.egress_memory_bytes()), (None, 0));
    whole(link.receive(START, numbered(3, 3), &mut pool()));
    assert_eq!(link.next_wakeup(), None, "without reliability, nothing is acknowledged");
}

#[test]
fn kept_frame_keeps_no_large_block() {
    let mut link = Link::new(reliable(1472));
    let mut pool = pool();
    let mut block = pool.alloc(120_000);
    block[..42].copy_from_slice(&interest());
    let block = block.freeze(120_000).slice(0..42);
    link.enqueue(START, LpHeader::default(), block).unwrap();
    link.frames_sent(1);
    link.detach_frames(&mut pool);
    link.poll(after_ms(1000));
    let again = link.frames().next().unwrap().payload();
    assert_eq!((again.block_bytes(), &again[..]), (Pool::footprint(42), &interest()[..]));
}

/// Acks of frames that were never sent, of all frames, repeatedly; any TxSequences and Sequences.
#[test]
fn false_acks_cost_little() {
    let mut rng = Rng::from_seed(4);
    let mut pool = pool();
    let config = with(reliable(1472), |config| config.codec.unacknowledged_bytes_max = 1 << 20);
    let mut link = Link::new(config);
    let mut frames = 0;
    for round in 0..20_000 {
        let now = START.plus_ns(round * NS_PER_MS / 4);
        link.enqueue(now, token(b"12345678"), data(900)).unwrap();
        let near = |rng: &mut Rng| u64::from(rng.below(30_000));
        let lie = match rng.below(6) {
            0 => idle(&[rng.next_u64(), u64::MAX, 0]),
            1 => idle(&(0..700).map(|_| near(&mut rng)).collect::<Vec<u64>>()),
            2 => numbered(rng.next_u64(), rng.next_u64()),
            3 => numbered(near(&mut rng), u64::MAX),
            4 => fragment(rng.next_u64(), 0, 400, b"\x05\x01a"),
            _ => numbered(u64::MAX, 0),
        };
        link.receive(now, lie, &mut pool);
        link.poll(now);
        frames += sent(&mut link).len();
        assert!(link.egress_memory_bytes() <= (1 << 20) + (1 << 19));
        assert!(link.partial_bytes() <= link.config().codec.partial_bytes_max);
    }
    // Each packet at most four times, and one Ack for each frame.
    assert!(frames <= 5 * 20_000, "{frames}");
}

/// How a channel treats frames, in percent.
#[derive(Copy, Clone, Debug)]
struct Channel {
    loss: u32,
    /// The channel loses at most this many frames of one Sequence.
    losses_max: u32,
    copies: u32,
    reordered: u32,
    seed: u64,
}

/// Two links, and the frames in flight between them.
struct Pair {
    links: [Link; 2],
    pools: [Pool; 2],
    channel: Channel,
    rng: Rng,
    /// Receiver and frame, by time of arrival and by a number that makes the key unique.
    on_way: BTreeMap<(Instant, u64), (usize, Packet)>,
    launched: u64,
    /// Number of losses by sender and Sequence.
    lost: BTreeMap<(usize, u64), u32>,
    /// How often each packet arrived, by receiver.
    arrived: [Vec<u32>; 2],
}

impl Pair {
    fn new(channel: Channel, config: &LinkConfig, packets: usize) -> Self {
        let link = |start| {
            let mut config = config.clone();
            config.codec.sequence_start = start;
            Link::new(config)
        };
        Self {
            links: [link(u64::MAX - 5), link(channel.seed << 40)],
            pools: [pool(), pool()],
            channel,
            rng: Rng::from_seed(channel.seed),
            on_way: BTreeMap::new(),
            launched: 0,
            lost: BTreeMap::new(),
            arrived: [vec![0; packets], vec![0; packets]],
        }
    }

    fn flush(&mut self, now: Instant, from: usize) {
        let mtu = self.links[from].config().codec.mtu;
        for frame in sent(&mut self.links[from]) {
            assert!(frame.len() <= mtu, "{} bytes in a frame of {mtu}", frame.len());
            let Channel { loss, losses_max, copies, reordered, .. } = self.channel;
            if self.rng.below(100) < loss {
                let Some(sequence) = numbers(&frame).0 else { continue };
                let lost = self.lost.entry((from, sequence)).or_default();
                if *lost < losses_max {
                    *lost += 1;
                    continue;
                }
            }
            let times = 1 + u32::from(self.rng.below(100) < copies);
            for _ in 0..times {
                let late_ns = match self.rng.below(100) < reordered {
                    true => u64::from(self.rng.below(30)) * NS_PER_MS,
                    false => 0,
                };
                self.launched += 1;
                let at = now.plus_ns(20 * NS_PER_MS + late_ns);
                self.on_way.insert((at, self.launched), (1 - from, frame.clone()));
            }
        }
    }

    /// Advances the time to `end`.
    fn run(&mut self, end: Instant) {
        loop {
            let arrival = self.on_way.keys().next().map(|&(at, _)| at);
            let wakeups = [0, 1].map(|at| self.links[at].next_wakeup());
            let next = [arrival, wakeups[0], wakeups[1]].into_iter().flatten().min();
            let Some(now) = next.filter(|&now| now <= end) else { return };
            if arrival == Some(now) {
                let (_, (to, frame)) = self.on_way.pop_first().unwrap();
                let received = self.links[to].receive(now, frame, &mut self.pools[to]);
                if let Received::Packet { packet, .. } = received {
                    self.arrived[to][number_of(&packet)] += 1;
                }
            }
            for at in [0, 1] {
                if self.links[at].next_wakeup().is_some_and(|wakeup| wakeup <= now) {
                    self.links[at].poll(now);
                }
                let bound = self.links[at].config().codec.unacknowledged_bytes_max;
                assert!(self.links[at].egress_memory_bytes() <= bound + (1 << 20));
                self.flush(now, at);
            }
        }
    }
}

fn packet_of(number: usize, len: usize) -> Packet {
    let typ = if number.is_multiple_of(2) { tlv::INTEREST } else { tlv::DATA };
    let mut octets = super::packet_of(typ, len).to_vec();
    let at = octets.len() - 4;
    octets[at..].copy_from_slice(&(number as u32).to_be_bytes());
    Packet::from(octets)
}

fn number_of(packet: &[u8]) -> usize {
    u32::from_be_bytes(packet[packet.len() - 4..].try_into().unwrap()) as usize
}

/// The number of packets, of `count` in each direction, that did not arrive. None may arrive twice.
fn exchange(channel: Channel, count: usize) -> (u32, [Link; 2]) {
    let mut rng = Rng::from_seed(!channel.seed);
    let config = with(reliable(200 + 400 * (channel.seed as usize % 4)), |config| {
        config.codec.unacknowledged_bytes_max = 4 << 20;
    });
    let mut pair = Pair::new(channel, &config, count);
    let mut now = START;
    for number in 0..count {
        for from in [0, 1] {
            let len = [30, 300, 3000][rng.below(3) as usize] + rng.below(100) as usize;
            let packet = packet_of(number, len);
            pair.links[from].enqueue(now, token(b"8 octets"), packet).unwrap();
            pair.flush(now, from);
        }
        now = now.plus_ns(u64::from(rng.below(4000)) * 1000);
        pair.run(now);
    }
    pair.run(now.plus_ns(300 * SECOND_NS));
    assert_eq!(pair.links.each_ref().map(Link::next_wakeup), [None; 2]);
    let counts = pair.arrived.iter().flatten();
    assert!(counts.clone().all(|&times| times <= 1), "{channel:?}: a packet arrived twice");
    (counts.map(|&times| 1 - times).sum(), pair.links)
}

#[test]
fn every_packet_arrives_once() {
    for seed in 0..24 {
        let [loss, copies] = [[0, 0], [1, 5], [5, 1], [10, 10]][seed as usize % 4];
        let reordered = [0, 2, 20][seed as usize / 4 % 3];
        let channel = Channel { loss, losses_max: 2, copies, reordered, seed };
        let (missing, links) = exchange(channel, 300);
        let sent_again: u64 = links.iter().map(|link| link.counters().retransmitted).sum();
        assert_eq!(missing, 0, "{channel:?}");
        assert_eq!(sent_again > 0, loss + reordered > 0, "{channel:?}");
    }
}

/// A packet that retransmissions do not deliver is counted as given up.
#[test]
fn given_up_packets_are_counted() {
    for seed in 0..6 {
        let channel = Channel { loss: 45, losses_max: u32::MAX, copies: 3, reordered: 5, seed };
        let (missing, links) = exchange(channel, 200);
        let given_up: u64 = links.iter().map(|link| link.counters().given_up).sum();
        assert!(missing > 0 && u64::from(missing) <= given_up, "{channel:?}");
    }
}

/// A queued frame is not lost: its timer starts when it leaves.
#[test]
fn queued_frame_is_not_lost() {
    // Frames for 3.3 s on a line of 1 Mbit/s, with 20 ms each way.
    let [mut link, mut other] = [(); 2].map(|()| Link::new(reliable(1472)));
    (0..400).for_each(|_| link.enqueue(START, LpHeader::default(), data(1000)).unwrap());
    let mut on_the_way: [VecDeque<(Instant, Packet)>; 2] = Default::default();
    let (mut now, mut line_free_at, mut pool) = (START, START, pool());
    while now < after_ms(10_000) {
        link.poll(now);
        other.poll(now);
        if line_free_at <= now && !link.is_egress_empty() {
            let frame = link.take_frame().unwrap();
            let octets = Packet::from([frame.prefix(), frame.payload()].concat());
            line_free_at = now.plus_ns(octets.len() as u64 * 8 * 1000);
            on_the_way[0].push_back((line_free_at.plus_ns(20 * NS_PER_MS), octets));
        }
        let acks = sent(&mut other).into_iter().map(|frame| (now.plus_ns(20 * NS_PER_MS), frame));
        on_the_way[1].extend(acks);
        for (frames, to) in on_the_way.iter_mut().zip([&mut other, &mut link]) {
            while let Some((_, frame)) = frames.pop_front_if(|(at, _)| *at <= now) {
                to.receive(now, frame, &mut pool);
            }
        }
        now = now.plus_ns(NS_PER_MS);
    }
    let counters = link.counters();
    assert_eq!((counters.acknowledged, counters.retransmitted, counters.given_up), (400, 0, 0));
    assert_eq!(link.next_wakeup(), None);
}

/// A retransmission without room in the queue is tried again later, and is not forgotten.
#[test]
fn retransmission_without_room_is_retried() {
    let mut link = Link::new(with(reliable(1472), |config| config.egress.queue_bytes_max = 1300));
    send(&mut link, START, data(1000));
    link.enqueue(after_ms(900), LpHeader::default(), data(1000)).unwrap();
    link.poll(after_ms(1000));
    assert_eq!((link.counters().retransmitted, link.frames().len()), (1, 1), "no room");
    sent(&mut link);
    let mut now = after_ms(1000);
    while let Some(at) = link.next_wakeup() {
        now = at;
        link.poll(now);
        sent(&mut link);
    }
    assert!(now > after_ms(5000), "{now:?}");
    assert_eq!((link.counters().given_up, link.egress_memory_bytes()), (2, 0));
}
