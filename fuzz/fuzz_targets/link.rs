//! Arbitrary frames from a neighbour, at a face with reliability, shaping, run Interests, a marking
//! policy and a queue discipline. Reassembly, queues and buffers must stay within their limits, and
//! in the end nothing may wait.
#![no_main]

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_baselines::links::{DISCIPLINES, MARKERS};
use weir_link::{
    AnnouncedData, DisciplineConfig, Link, LinkConfig, MarkingPolicy, Received, RunsConfig,
};
use weir_wire::{Data, InterestView, LpHeader, NackReason, PACKET_SIZE_MAX};

const SHAPING: [&str; 3] = [
    "none",
    "fisp capacity=3KB held_max=4 components=1",
    "fisp capacity=40KB held_max=50 interval=1ms gamma=2",
];
const DISCIPLINE_TEXTS: [&str; 3] = [
    "fifo",
    "hr-icp rate_bps=80000 burst_bytes=9000 flows_max=2 held_max=3",
    "interest-rate interests_per_s=100 burst=2 held_max=5",
];
const MARKING_TEXTS: [&str; 4] =
    ["nfd", "rem q_min=1KB q_max=3KB", "codel target=1ms interval=2ms", "step"];
const QUEUE_BYTES_MAX: u64 = 20_000;

/// What a router may do with a received packet: answer with Data or a Nack, forward it, or nothing.
fn forward(link: &mut Link, now: Instant, header: LpHeader, packet: Packet, choice: u8) {
    let Ok(interest) = InterestView::decode(&packet) else { return };
    let LpHeader { pit_token, .. } = header;
    let _ = match choice % 4 {
        0 => return,
        1 => {
            let nack = Some(NackReason::NoRoute);
            link.enqueue(now, LpHeader { nack, pit_token, ..LpHeader::default() }, packet)
        }
        // Forward to the same neighbour.
        2 => link.enqueue(now, LpHeader::default(), packet),
        _ => {
            let data = Data::new(interest.name.to_name()).content(&[choice; 700]);
            let data = Packet::from(data.encode_with_digest());
            link.enqueue(now, LpHeader { pit_token, ..LpHeader::default() }, data)
        }
    };
}

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let [choice, octets @ ..] = octets else { return };
    let choice = usize::from(*choice);
    let mut config = LinkConfig::datagram(if choice & 128 == 0 { 1420 } else { 300 });
    config.codec.reliability = choice & 64 == 0;
    config.codec.announcements = true;
    config.codec.runs = RunsConfig::Initiate;
    config.codec.partials_max = 4;
    config.codec.partial_bytes_max = 40_000;
    config.codec.unacknowledged_bytes_max = 20_000;
    config.shaping = SHAPING[choice % 3].parse().expect("a shaping");
    let discipline = DISCIPLINE_TEXTS[choice / 3 % 3];
    config.egress.discipline =
        DisciplineConfig::read(discipline, DISCIPLINES).expect("a discipline");
    let policy = MARKING_TEXTS[choice / 9 % 4];
    config.egress.marking.policy = MarkingPolicy::read(policy, MARKERS).expect("a policy");
    config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
    let mut link = Link::new(config);
    let mut pool = Pool::new(1 << 20);
    let mut now = Instant::ZERO.plus_ns(NS_PER_S);
    let mut rest = octets;
    while let [step, len, after @ ..] = rest {
        let (frame, next) = after.split_at(usize::from(*len).min(after.len()));
        // Advance by up to some seconds.
        now = now.plus_ns(NS_PER_MS << (step % 16).saturating_sub(3));
        match link.receive(now, Packet::from(frame), &mut pool) {
            Received::Packet { header, packet } => {
                forward(&mut link, now, header, packet, step >> 4);
            }
            Received::Announced(data) => {
                let AnnouncedData { header, packet, announcement } = *data;
                let _ = link.enqueue_announced(now, header, packet, &announcement);
            }
            Received::Run => {
                while let Some((header, packet)) = link.next_in_run(now, &mut pool) {
                    forward(&mut link, now, header, packet, step >> 4);
                }
            }
            _ => {}
        }
        link.poll(now);
        while let Some((header, packet)) = link.take_released(now) {
            forward(&mut link, now, header, packet, step >> 6);
        }
        // Headers of one packet's fragments may exceed the limit.
        assert!(link.queue_bytes() <= QUEUE_BYTES_MAX + PACKET_SIZE_MAX as u64);
        assert!(link.partial_bytes() <= link.config().codec.partial_bytes_max);
        link.gather_runs(0);
        // In some steps, the socket accepts nothing, or one frame.
        let count = link.frames().len();
        link.frames_sent(match step >> 6 {
            0 => 0,
            1 => count.min(1),
            _ => count,
        });
        rest = next;
    }
    // Without further input, the link comes to rest.
    for _ in 0..10_000 {
        let count = link.frames().len();
        link.frames_sent(count);
        let Some(at) = link.next_wakeup() else { break };
        now = now.max(at);
        link.poll(now);
        while link.take_released(now).is_some() {}
    }
    assert_eq!(link.next_wakeup(), None);
    assert!(!link.has_delayed_interests() && link.is_egress_empty());
});
