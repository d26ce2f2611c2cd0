//! Arbitrary frames from a neighbour that supports run Interests. The Interests of a run must leave
//! in runs again and arrive unchanged.
#![no_main]

use weir_base::{Instant, Packet, Pool};
use weir_link::{Link, LinkConfig, Received, RunsConfig};
use weir_wire::{LpHeader, LpView, RunOffer};

/// A face whose neighbour has confirmed that it accepts runs.
fn acquainted(now: Instant, pool: &mut Pool) -> Link {
    let mut config = LinkConfig::default();
    config.codec.runs = RunsConfig::Initiate;
    let mut link = Link::new(config);
    for segment in [7, 8] {
        let interest = [5, 14, 7, 6, 8, 1, 97, 50, 1, segment, 10, 4, 0, 0, 0, segment];
        link.enqueue(now, LpHeader::default(), Packet::from(&interest[..])).expect("there is room");
    }
    link.gather_runs(0);
    let asked = link.frames().find_map(|frame| LpView::decode(frame.payload()).ok()?.run_offer);
    let answer = asked.expect("the link has sent a run offer").question;
    let offer = RunOffer { span_max: 64, question: 0, answer };
    link.receive(now, Packet::from(offer.encode()), pool);
    let count = link.frames().len();
    link.frames_sent(count);
    link
}

/// All packets in these frames.
fn taken(
    link: &mut Link,
    now: Instant,
    frames: &[Packet],
    pool: &mut Pool,
) -> Vec<(LpHeader, Packet)> {
    let mut all = Vec::new();
    for frame in frames {
        match link.receive(now, frame.clone(), pool) {
            Received::Packet { header, packet } => all.push((header, packet)),
            Received::Run => {
                let before = all.len();
                while let Some(one) = link.next_in_run(now, pool) {
                    all.push(one);
                }
                assert!((2..=64).contains(&(all.len() - before)));
            }
            _ => {}
        }
    }
    all
}

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let (mut pool, now) = (Pool::new(1 << 20), Instant::ZERO);
    let (mut near, mut far) = (acquainted(now, &mut pool), acquainted(now, &mut pool));
    let mut frames = Vec::new();
    let mut rest = octets;
    while let [len, after @ ..] = rest {
        let (frame, next) = after.split_at(usize::from(*len).min(after.len()));
        frames.push(Packet::from(frame));
        rest = next;
    }
    let mut first = taken(&mut near, now, &frames, &mut pool);
    let count = near.frames().len();
    near.frames_sent(count);
    // A neighbour may not accept fields other than tokens and marks.
    first.retain(|(header, _)| {
        let kept = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
        *header == kept
    });
    first.retain(|(header, packet)| near.enqueue(now, header.clone(), packet.clone()).is_ok());
    near.gather_runs(0);
    let frames: Vec<Packet> = near
        .frames()
        .map(|frame| Packet::from([frame.prefix(), frame.payload()].concat()))
        .collect();
    assert_eq!(taken(&mut far, now, &frames, &mut pool), first);
});
