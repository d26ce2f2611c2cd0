//! Path labels of hICN: a router that sends Interests over a near and a far path.

use weir_base::Rng;
use weir_security::UnsignedHicnVerifier;
use weir_wire::DataView;

use super::streams::{Stream, content, data_of, stream};
use super::*;

const SEGMENTS: u32 = 2000;
const LABEL_AT: usize = 51;
/// Labels that routers would write.
const NEAR: u8 = 6;
const FAR: u8 = 4;

/// One of the two paths.
struct Upstream {
    rtt_ns: u64,
    /// Time between packets at the bottleneck.
    gap_ns: u64,
    free_at: Instant,
}

impl Upstream {
    fn new(rtt_ms: u64, gap_us: u64) -> Self {
        Self { rtt_ns: rtt_ms * NS_PER_MS, gap_ns: gap_us * 1000, free_at: Instant::ZERO }
    }

    /// When the answer to an Interest sent now arrives.
    fn answer_at(&mut self, now: Instant) -> Instant {
        self.free_at = self.free_at.max(now).plus_ns(self.gap_ns);
        self.free_at.plus_ns(self.rtt_ns)
    }
}

/// What a fetch took.
#[derive(Debug)]
struct Outcome {
    seconds: f64,
    losses: u64,
    retransmissions: u64,
    decreases: u64,
    labels: usize,
}

/// A consumer of the stream.
fn started(controller: &str) -> Fixture {
    let config = ConsumerConfig {
        controller: controller.parse().unwrap(),
        reader_segments_max: 8192,
        ..ConsumerConfig::default()
    };
    let target = Target::Latest { object: stream(), allow_stored: true };
    let mut fixture = Fixture::new(target, config);
    fixture.inputs.push(ConsumerInput::Read { segments: SEGMENTS });
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    fixture.input(start);
    fixture
}

/// Fetches a stream by a router that sends one Interest of three to the near path. `label_of` is
/// the label of an answer, by the label that is right. Each far answer after 100 others is late by
/// `late_ms`.
fn fetch(controller: &str, late_ms: u64, mut label_of: impl FnMut(u8) -> u8) -> Outcome {
    let mut fixture = started(controller);
    let packets = Stream::plain(SEGMENTS).packets;
    let (mut near, mut far) = (Upstream::new(10, 1000), Upstream::new(80, 500));
    // By arrival time, and by number.
    let mut on_way: BTreeMap<(Instant, u64), Vec<u8>> = BTreeMap::new();
    let (mut interests, mut octets) = (0_u64, Vec::<u8>::new());
    loop {
        for interest in core::mem::take(&mut fixture.requested) {
            let suffix = InterestView::decode(&interest).unwrap().name.last().unwrap();
            let Some(packet) = packets.get(&suffix.as_segment().unwrap()) else { continue };
            interests += 1;
            let is_near = interests % 3 == 0;
            let mut at = if is_near { &mut near } else { &mut far }.answer_at(fixture.now);
            if interests % 150 == 1 {
                at = at.plus_ns(late_ms * NS_PER_MS);
            }
            let mut packet = packet.clone();
            packet[LABEL_AT] = label_of(if is_near { NEAR } else { FAR });
            on_way.insert((at, interests), data_of(&packet));
        }
        for op in core::mem::take(&mut fixture.out.verify) {
            let verdict = op.check.run(&DataView::decode(&op.packet).unwrap());
            fixture.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
        }
        for event in core::mem::take(&mut fixture.out.events) {
            match event {
                ConsumerEvent::NeedKey { key, .. } => {
                    let verifier: Arc<dyn Verifier> = Arc::new(UnsignedHicnVerifier);
                    fixture.inputs.push(ConsumerInput::Key { key, verifier: Ok(verifier) });
                }
                ConsumerEvent::Failed(reason) => panic!("{reason}"),
                _ => {}
            }
        }
        for delivery in core::mem::take(&mut fixture.out.deliveries) {
            octets.extend(DataView::decode(&delivery.packet).unwrap().content);
        }
        if fixture.consumer.has_ended() {
            break;
        }
        if fixture.inputs.is_empty() {
            let arrival = on_way.keys().next().map(|&(at, _)| at);
            let wakeup = fixture.consumer.next_wakeup();
            let next = arrival.into_iter().chain(wakeup).min().expect("it waits for something");
            fixture.now = fixture.now.max(next);
            let later = on_way.split_off(&(fixture.now.plus_ns(1), 0));
            for packet in core::mem::replace(&mut on_way, later).into_values() {
                let (path, header, packet) = (PATH, LpHeader::default(), packet.into());
                fixture.inputs.push(ConsumerInput::Packet { path, header, packet });
            }
        }
        fixture.step();
    }
    assert!(octets == content(SEGMENTS));
    let stats = fixture.consumer.stats();
    Outcome {
        seconds: fixture.now.as_ns() as f64 / NS_PER_S as f64,
        losses: stats.losses,
        retransmissions: stats.retransmissions,
        decreases: stats.decreases,
        labels: fixture.consumer.label_stats(PATH).len(),
    }
}

/// Answers of the far path are neither queued nor lost. Without labels LEDBAT takes their round
/// trip for a queue.
#[test]
fn longer_path_is_no_queue() {
    let [labelled, mixed] = [fetch("ledbat", 0, |label| label), fetch("ledbat", 0, |_| 0)];
    assert_eq!((labelled.labels, mixed.labels), (2, 1));
    assert!(labelled.seconds * 1.3 < mixed.seconds, "{labelled:?} {mixed:?}");
}

/// A late answer of the far path is recognized as the answer to the first sending, because the
/// far path cannot answer the second so soon. Then the next ones are not lost.
#[test]
fn label_shows_false_loss() {
    let [labelled, mixed] = [fetch("cubic", 60, |label| label), fetch("cubic", 60, |_| 0)];
    assert!(2 * labelled.losses < mixed.losses, "{labelled:?} {mixed:?}");
    assert!(2 * labelled.retransmissions < mixed.retransmissions, "{labelled:?} {mixed:?}");
    assert!(labelled.decreases < mixed.decreases, "{labelled:?} {mixed:?}");
}

/// With labels that mean nothing, a fetch is hardly slower than without labels.
#[test]
fn false_labels_do_no_harm() {
    for (controller, late_ms) in [("ledbat", 0), ("cubic", 60), ("weir", 60)] {
        let mixed = fetch(controller, late_ms, |_| 0);
        for kind in 0..4 {
            let (mut rng, mut count) = (Rng::from_seed(kind), 0_u32);
            let lying = fetch(controller, late_ms, |_| {
                count += 1;
                let number = match kind {
                    0 => rng.next_u32(),
                    1 => rng.next_u32() % 4,
                    // Another one for each 5 or 50 packets.
                    2 => count / 5,
                    _ => count / 50,
                };
                number as u8
            });
            assert!(lying.seconds <= 1.25 * mixed.seconds, "{kind}: {lying:?} {mixed:?}");
            assert!(lying.labels <= 16);
        }
    }
}
