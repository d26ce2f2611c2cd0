//! Run Interests: a run arrives as the Interests that it was made of, and no received run causes
//! harm.

use std::vec::Vec;

use proptest::prelude::*;
use weir_base::{Instant, NS_PER_S, Packet, Pool, Rng};
use weir_wire::lp::{LpHeader, LpView, PitToken};
use weir_wire::{Interest, Name, RunOffer};

use super::{START, data, pool, sent, with};
use crate::{Link, LinkConfig, LinkDrop, Received, RunsConfig};

fn config(runs: RunsConfig) -> LinkConfig {
    with(LinkConfig::datagram(8800), |config| config.codec.runs = runs)
}

fn link(runs: RunsConfig) -> Link {
    Link::new(config(runs))
}

/// The frames that a driver would send now.
fn flushed(link: &mut Link) -> Vec<Packet> {
    link.gather_runs(0);
    sent(link)
}

fn taken(link: &mut Link, now: Instant, frames: Vec<Packet>) -> Vec<(LpHeader, Packet)> {
    let mut pool = pool();
    let mut all = Vec::new();
    for frame in frames {
        match link.receive(now, frame, &mut pool) {
            Received::Packet { header, packet } => all.push((header, packet)),
            Received::Run => all.extend(core::iter::from_fn(|| link.next_in_run(now, &mut pool))),
            Received::Offer(_) | Received::Idle => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

/// Negotiates runs between two links that both initiate, as two routers do.
fn negotiate(near: &mut Link, far: &mut Link, now: Instant) {
    for segment in [0, 1] {
        near.enqueue(now, LpHeader::default(), segment_of(segment, 0)).unwrap();
    }
    let frames = flushed(near);
    assert_eq!(frames.len(), 3, "two Interests and a question");
    assert_eq!(taken(far, now, frames).len(), 2);
    let answer = sent(far);
    assert_eq!(answer.len(), 1);
    assert!(taken(near, now, answer).is_empty());
}

/// An Interest as Weir's consumers create them.
fn segment_of(segment: u64, base: u32) -> Packet {
    let mut name: Name = "/a/file/54=%01".parse().unwrap();
    name.append_segment(segment);
    Packet::from(Interest::new(name).nonce(base.wrapping_add(segment as u32)).encode())
}

fn token(octets: &[u8]) -> LpHeader {
    LpHeader { pit_token: PitToken::new(octets).unwrap(), ..LpHeader::default() }
}

fn acquainted() -> (Link, Link) {
    let (mut near, mut far) = (link(RunsConfig::Initiate), link(RunsConfig::Accept));
    negotiate(&mut near, &mut far, START);
    (near, far)
}

/// The bytes are those of the example in `docs/run-interests.md`.
#[test]
fn example_has_documented_octets() {
    let (mut near, _) = acquainted();
    let mut name: Name = "/a".parse().unwrap();
    name.append_segment(7);
    for (segment, octets) in [(7u64, *b"T7"), (8, *b"T8"), (10, *b"T:")] {
        let mut name: Name = "/a".parse().unwrap();
        name.append_segment(segment);
        let interest = Interest::new(name).nonce(0x0102_03F9 + segment as u32).encode();
        near.enqueue(START, token(&octets), Packet::from(interest)).unwrap();
    }
    let frames = flushed(&mut near);
    let document = include_str!("../../../../docs/run-interests.md");
    let hex = |frame: &[u8]| -> Vec<u8> {
        let block = document.split("```").find(|block| block.starts_with("hex run")).unwrap();
        let text = block.lines().skip(1).filter_map(|line| line.split('|').next());
        let octets: Vec<u8> = text
            .flat_map(str::split_whitespace)
            .map(|octet| u8::from_str_radix(octet, 16).unwrap())
            .collect();
        assert_eq!(octets.len(), frame.len(), "{frame:02x?}");
        octets
    };
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0][..], hex(&frames[0])[..]);
    let offer = RunOffer { span_max: 64, question: 0x0A0B_0C0D, answer: 0 };
    let octets = [0x64, 13, 0xFD, 0x03, 0xBC, 9, 64, 10, 11, 12, 13, 0, 0, 0, 0];
    assert_eq!(offer.encode(), octets);
    assert_eq!(LpView::decode(&octets).unwrap().run_offer, Some(offer));
}

#[test]
fn runs_are_sent_only_after_an_offer() {
    let (mut near, mut far) = acquainted();
    let interests: Vec<Packet> = (0..32).map(|segment| segment_of(segment, 9)).collect();
    let enqueue = |near: &mut Link, now| {
        for interest in &interests {
            near.enqueue(now, LpHeader::default(), interest.clone()).unwrap();
        }
        flushed(near)
    };
    let frames = enqueue(&mut near, START);
    assert_eq!(frames.len(), 1);
    assert!(frames[0].len() < 60);
    let packets: Vec<_> = taken(&mut far, START, frames).into_iter().map(|one| one.1).collect();
    assert_eq!(packets, interests);
    let counters = near.counters();
    assert_eq!((counters.out_runs, counters.out_run_interests), (1, 32));
    assert_eq!((counters.out_interests, counters.out_frames), (34, 4));
    let counters = far.counters();
    assert_eq!((counters.in_runs, counters.in_run_interests), (1, 32));
    assert_eq!((counters.in_interests, counters.in_frames), (34, 4));

    // The program at the other end no longer answers: another one has replaced it.
    let later = |seconds| START.plus_ns(seconds * NS_PER_S);
    assert_eq!(enqueue(&mut near, later(1)).len(), 2, "a run and a question");
    assert_eq!(enqueue(&mut near, later(2)).len(), 2);
    assert_eq!(enqueue(&mut near, later(3)).len(), 1);
    assert_eq!(enqueue(&mut near, later(4)).len(), 33, "the offer has expired");
    assert_eq!(enqueue(&mut near, later(5)).len(), 32, "questions become rare");
    let questions = (6..=600).filter(|&s| enqueue(&mut near, later(s)).len() > 32).count();
    assert!((9..=14).contains(&questions), "{questions}");
}

#[test]
fn peers_without_support_see_no_runs() {
    // A router does not offer runs to a peer that connects to it. An application of Weir offers
    // them three times.
    for (runs, said) in [(RunsConfig::Off, 0), (RunsConfig::Accept, 0), (RunsConfig::Initiate, 3)] {
        let mut near = link(runs);
        let mut frames = 0;
        for second in 0..100 {
            near.enqueue(START.plus_ns(second * NS_PER_S), LpHeader::default(), data(9)).unwrap();
            frames += flushed(&mut near).len();
        }
        assert_eq!(frames, 100 + said);
    }
    // The router asks an application that has offered runs when it has one to send.
    let (mut router, mut app) = (link(RunsConfig::Accept), link(RunsConfig::Initiate));
    app.enqueue(START, LpHeader::default(), data(9)).unwrap();
    taken(&mut router, START, flushed(&mut app));
    assert!(sent(&mut router).is_empty(), "nothing was asked");
    negotiate(&mut router, &mut app, START);
    assert_eq!(router.counters().drops.total(), 0);
}

#[test]
fn unrequested_answer_has_no_effect() {
    let mut near = link(RunsConfig::Initiate);
    for answer in 0..2000 {
        let forged = RunOffer { span_max: 64, question: 0, answer };
        taken(&mut near, START, [Packet::from(forged.encode())].into());
    }
    for segment in 0..32 {
        near.enqueue(START, LpHeader::default(), segment_of(segment, 0)).unwrap();
    }
    assert_eq!(flushed(&mut near).len(), 33);
}

#[test]
fn only_similar_interests_join() {
    let (mut near, mut far) = acquainted();
    let other_lifetime = Interest::new("/a/file/54=%01/50=2".parse().unwrap());
    let marked = LpHeader { congestion_mark: 1, ..LpHeader::default() };
    let sequence: Vec<(LpHeader, Packet)> = [
        (LpHeader::default(), segment_of(0, 0)),
        (LpHeader::default(), segment_of(1, 7)),
        (LpHeader::default(), segment_of(2, 7)),
        (marked, segment_of(3, 7)),
        (LpHeader::default(), segment_of(4, 7)),
        (LpHeader::default(), data(30)),
        (LpHeader::default(), segment_of(5, 7)),
        (token(b"1"), segment_of(6, 7)),
        (token(b"12"), segment_of(7, 7)),
        (token(b"12"), Packet::from(other_lifetime.nonce(9).lifetime_ms(77).encode())),
        (LpHeader::default(), segment_of(255, 7)),
        (LpHeader::default(), segment_of(256, 7)),
        (LpHeader::default(), segment_of(320, 7)),
        (LpHeader::default(), segment_of(300, 7)),
        (LpHeader::default(), segment_of(300, 7)),
    ]
    .into();
    for (header, packet) in &sequence {
        near.enqueue(START, header.clone(), packet.clone()).unwrap();
    }
    let frames = flushed(&mut near);
    assert_eq!(frames.len(), sequence.len() - 1, "only 1 and 2 form a run");
    assert_eq!(taken(&mut far, START, frames), sequence);
}

/// A frame that the socket has partly sent does not change.
#[test]
fn partly_sent_frames_do_not_change() {
    let (mut near, mut far) = acquainted();
    let interests: Vec<Packet> = (0..9).map(|segment| segment_of(segment, 1)).collect();
    for interest in &interests[..4] {
        near.enqueue(START, LpHeader::default(), interest.clone()).unwrap();
    }
    near.gather_runs(1);
    assert_eq!(near.frames().len(), 2);
    let bytes: u64 = near.frames().map(|frame| frame.len() as u64).sum();
    assert_eq!(near.queue_bytes(), bytes);
    near.detach_frames(&mut pool());
    for interest in &interests[4..] {
        near.enqueue(START, LpHeader::default(), interest.clone()).unwrap();
    }
    let frames = flushed(&mut near);
    assert_eq!(frames.len(), 3);
    assert_eq!(near.queue_bytes(), 0);
    let packets: Vec<_> = taken(&mut far, START, frames).into_iter().map(|one| one.1).collect();
    assert_eq!(packets, interests);
}

/// An LpPacket with these fields of a run and this Interest, valid or not.
fn run(bitmap: &[u8], tokens: Option<&[u8]>, fragment: &[u8]) -> Packet {
    let mut body = weir_wire::tlv::Writer::new();
    if let Some(tokens) = tokens {
        body.tlv(weir_wire::tlv::LP_PIT_TOKEN, b"12");
        body.tlv(weir_wire::tlv::LP_RUN, bitmap);
        body.tlv(weir_wire::tlv::LP_RUN_TOKENS, tokens);
    } else {
        body.tlv(weir_wire::tlv::LP_RUN, bitmap);
    }
    body.tlv(weir_wire::tlv::LP_FRAGMENT, fragment);
    let mut out = weir_wire::tlv::Writer::new();
    out.tlv(weir_wire::tlv::LP_PACKET, body.as_slice());
    Packet::from(out.into_vec())
}

/// A description, bitmap, tokens, fragment, and the reason of the drop.
type Case<'a> = (&'a str, &'a [u8], Option<&'a [u8]>, &'a [u8], LinkDrop);

#[test]
fn bad_runs_are_counted_drops() {
    let good = segment_of(7, 0);
    let no_nonce = Interest::new("/a/50=%07".parse().unwrap()).encode();
    let no_segment = Interest::new("/a".parse().unwrap()).nonce(1).encode();
    let [narrow, wide] = [u64::from(u8::MAX), u64::MAX].map(|most| segment_of(most - 1, 0));
    let all = [0xFF; 8];
    use LinkDrop::{Malformed, RunMalformed};
    let cases: [Case<'_>; 16] = [
        ("names nothing", &[0], None, &good, RunMalformed),
        ("one alone", &[1], None, &good, RunMalformed),
        ("without the first", &[0b110], None, &good, RunMalformed),
        ("no bitmap", &[], None, &good, Malformed),
        ("three bytes", &[1, 1, 1], None, &good, Malformed),
        ("more than 64 bits", &[0xFF; 9], None, &good, Malformed),
        ("no segment", &[3], None, &no_segment, RunMalformed),
        ("no nonce", &[3], None, &no_nonce, RunMalformed),
        ("beyond one byte", &[0b101], None, &narrow, RunMalformed),
        ("beyond 64 bits", &[0b101], None, &wide, RunMalformed),
        ("all, beyond", &all, None, &wide, RunMalformed),
        ("of Data", &[3], None, &data(30), RunMalformed),
        ("of nothing", &[3], None, &[], Malformed),
        ("too few tokens", &[7], Some(b"34"), &good, RunMalformed),
        ("too many tokens", &[3], Some(b"3456"), &good, RunMalformed),
        ("empty tokens", &[3], Some(b""), &good, RunMalformed),
    ];
    for (what, bitmap, tokens, fragment, reason) in cases {
        let mut link = link(RunsConfig::Accept);
        let mut pool = pool();
        let received = link.receive(START, run(bitmap, tokens, fragment), &mut pool);
        assert!(
            matches!(received, Received::Drop(found) if found == reason),
            "{what}: {received:?}"
        );
        assert_eq!(link.counters().drops[reason], 1, "{what}");
        assert_eq!(link.counters().in_interests, 0, "{what}");
        assert!(link.next_in_run(START, &mut pool).is_none(), "{what}");
    }
    let mut pool = pool();
    let mut link = link(RunsConfig::Accept);
    let mut off = Link::new(config(RunsConfig::Off));
    let received = off.receive(START, run(&[3], None, &good), &mut pool);
    assert!(matches!(received, Received::Drop(LinkDrop::RunsOff)));
    // The largest run.
    let frame = run(&all, None, &good);
    assert!(matches!(link.receive(START, frame, &mut pool), Received::Run));
    let packets: Vec<_> = core::iter::from_fn(|| link.next_in_run(START, &mut pool)).collect();
    let expected = (7..71).map(|segment| (LpHeader::default(), segment_of(segment, 0)));
    assert_eq!(packets, expected.collect::<Vec<_>>());
    // Tokens without a run, and a fragment of a run.
    let mut writer = weir_wire::tlv::Writer::new();
    writer.tlv(weir_wire::tlv::LP_RUN_TOKENS, b"12");
    writer.tlv(weir_wire::tlv::LP_FRAGMENT, &good);
    assert!(LpView::decode(&lp(&writer)).is_err());
    let mut writer = weir_wire::tlv::Writer::new();
    writer.tlv(weir_wire::tlv::LP_SEQUENCE, &[0; 8]);
    writer.tlv(weir_wire::tlv::LP_FRAG_COUNT, &[2]);
    writer.tlv(weir_wire::tlv::LP_RUN, &[3]);
    writer.tlv(weir_wire::tlv::LP_FRAGMENT, &good);
    let received = link.receive(START, Packet::from(lp(&writer)), &mut pool);
    assert!(matches!(received, Received::Drop(LinkDrop::RunMalformed)));
}

fn lp(body: &weir_wire::tlv::Writer) -> Vec<u8> {
    let mut out = weir_wire::tlv::Writer::new();
    out.tlv(weir_wire::tlv::LP_PACKET, body.as_slice());
    out.into_vec()
}

/// The rest of a run does not appear in the next one.
#[test]
fn next_run_replaces_unfinished_run() {
    let mut link = link(RunsConfig::Accept);
    let mut pool = pool();
    link.receive(START, run(&[7], None, &segment_of(7, 0)), &mut pool);
    assert_eq!(link.next_in_run(START, &mut pool).unwrap().1, segment_of(7, 0));
    link.receive(START, run(&[3], None, &segment_of(20, 0)), &mut pool);
    let rest: Vec<_> = core::iter::from_fn(|| link.next_in_run(START, &mut pool)).collect();
    assert_eq!(rest.len(), 2);
    assert_eq!(rest[1].1, segment_of(21, 0));
}

/// Interests that a consumer or router could send. Most of them form runs.
fn sequence_of(rng: &mut Rng, count: u32) -> Vec<(LpHeader, Packet)> {
    let (mut segment, mut base) = (u64::from(rng.next_u32() % 300), rng.next_u32());
    let (mut token_len, mut lifetime, mut hops) = (0, None, None);
    let mut all = Vec::new();
    for _ in 0..count {
        match rng.below(40) {
            0 => base = rng.next_u32(),
            1 => segment = segment.saturating_sub(u64::from(rng.below(9))),
            2 => token_len = rng.below(33) as usize,
            3 => lifetime = [None, Some(1000), Some(70_000)][rng.below(3) as usize],
            4 => hops = [None, Some(rng.next_u32() as u8)][rng.below(2) as usize],
            5 => segment = [250, 65_530, u32::MAX.into(), u64::MAX - 40][rng.below(4) as usize],
            6 => segment = segment.saturating_add(u64::from(rng.below(100))),
            7..12 => segment = segment.saturating_add(1 + u64::from(rng.below(3))),
            _ => {}
        }
        segment = segment.saturating_add(1);
        let mut interest = Interest::new("/some/name".parse().unwrap());
        interest.name.append_segment(segment);
        interest.nonce = Some(base.wrapping_add(segment as u32));
        (interest.lifetime_ms, interest.hop_limit) = (lifetime, hops);
        interest.can_be_prefix = rng.below(50) == 0;
        interest.must_be_fresh = rng.below(50) == 0;
        let mut octets = [0; 32];
        rng.fill(&mut octets[..token_len]);
        let header = LpHeader {
            pit_token: PitToken::new(&octets[..token_len]).unwrap(),
            congestion_mark: u64::from(rng.below(60) == 0),
            ..LpHeader::default()
        };
        let is_data = rng.below(60) == 0;
        all.push((header, if is_data { data(50) } else { Packet::from(interest.encode()) }));
    }
    all
}

#[test]
fn property_test_sequences_have_runs() {
    let (mut near, _) = acquainted();
    for (header, packet) in sequence_of(&mut Rng::from_seed(1), 300) {
        near.enqueue(START, header, packet).unwrap();
    }
    let frames = flushed(&mut near).len();
    assert!(near.counters().out_runs > 10 && frames < 150, "{frames}: {:?}", near.counters());
}

proptest! {
    /// All packets arrive unchanged and in order, for all runs and bursts.
    #[test]
    fn runs_preserve_packets(seed: u64, mtu in 200usize..9000) {
        let (mut near, mut far) = acquainted();
        near.set_config(with(near.config().clone(), |config| {
            config.codec.mtu = mtu;
            config.codec.fragmentation = true;
        }));
        let mut rng = Rng::from_seed(seed);
        let sequence = sequence_of(&mut rng, 300);
        let mut arrived = Vec::new();
        for burst in sequence.chunks(1 + rng.below(150) as usize) {
            for (header, packet) in burst {
                near.enqueue(START, header.clone(), packet.clone()).unwrap();
            }
            near.gather_runs(rng.below(3) as usize);
            let frames = sent(&mut near);
            prop_assert!(frames.iter().all(|frame| frame.len() <= mtu));
            arrived.extend(taken(&mut far, START, frames));
        }
        prop_assert_eq!(near.queue_bytes(), 0);
        prop_assert_eq!(arrived.len(), sequence.len());
        for (arrived, sent) in arrived.iter().zip(&sequence) {
            prop_assert_eq!(arrived, sent);
        }
        let count = |runs: u64, interests: u64| (runs, interests);
        let (near, far) = (near.counters(), far.counters());
        prop_assert_eq!(
            count(near.out_runs, near.out_run_interests),
            count(far.in_runs, far.in_run_interests)
        );
        prop_assert_eq!(near.out_interests, far.in_interests);
    }

    /// A run with a changed byte causes no panic, and contains at most 64 Interests.
    #[test]
    fn damaged_runs_never_panic(at in 0usize..200, octet: u8, bitmap: u64, with_tokens: bool) {
        let tokens: Vec<u8> = (0..2 * (bitmap.count_ones().max(1) - 1)).map(|n| n as u8).collect();
        let fragment = segment_of(300, 5);
        let bitmap = (bitmap | 1).to_be_bytes();
        let frame = run(&bitmap, with_tokens.then_some(&tokens[..]), &fragment);
        let mut octets = frame.to_vec();
        let at = at % octets.len();
        octets[at] = octet;
        let mut link = link(RunsConfig::Accept);
        let mut pool: Pool = pool();
        let received = link.receive(START, Packet::from(octets), &mut pool);
        let count = core::iter::from_fn(|| link.next_in_run(START, &mut pool)).count();
        prop_assert!(count <= 64 && (count == 0 || matches!(received, Received::Run)));
    }
}
