//! Pacing of datagrams: a peer with the usual receive buffer loses nothing to bursts, and a fast
//! one is soon served at its speed.

use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_wire::lp::LpHeader;
use weir_wire::{Data, DataView, Interest, Name, RunOffer, SignatureInfo};

use super::{START, pool, sent, with};
use crate::{DisciplineConfig, Link, LinkConfig, Received, RunsConfig};

/// Linux' `net.core.rmem_default`: the receive buffer of a program that requests none, in charged
/// bytes.
const BUFFER_BYTES: u64 = 212_992;
const MTU: usize = 1420;
const SEGMENT_BYTES: usize = 8000;

fn paced() -> LinkConfig {
    with(LinkConfig::datagram(MTU), |config| {
        config.egress.discipline = DisciplineConfig::Paced;
        config.codec.runs = RunsConfig::Accept;
    })
}

/// What Linux charges for a datagram: for 1,420 bytes 2,304.
fn charge_of(frame: &Packet) -> u64 {
    (frame.len() as u64 + 320).next_multiple_of(256) + 512
}

fn segment_name(segment: u64) -> Name {
    let mut name: Name = "/a/file/54=%01".parse().unwrap();
    name.append_segment(segment);
    name
}

fn segment(number: u64) -> Packet {
    let data = Data::new(segment_name(number)).content(vec![7; SEGMENT_BYTES]);
    data.encode_signed(&SignatureInfo::new(0), |_| vec![0; 32]).into()
}

/// A router with all segments, and behind its link a peer that reads datagrams at a fixed speed for
/// a consumer with a fixed window. The consumer requests a lost segment again after 300 ms.
struct Transfer {
    near: Link,
    /// Reassembles what the peer has read.
    far: Link,
    now: Instant,
    buffer: VecDeque<Packet>,
    buffer_bytes: u64,
    read_per_ms: usize,
    lost: usize,
    next: u64,
    waiting: Vec<(u64, Instant)>,
    received: u64,
    window: Window,
}

/// A consumer's window: as that of `ndncatchunks`, unless it is fixed.
#[derive(Copy, Clone)]
struct Window {
    segments: f64,
    threshold: f64,
    is_fixed: bool,
    /// It falls once per round trip.
    next_fall_at: Instant,
}

impl Window {
    fn on_data(&mut self, now: Instant, is_marked: bool) {
        if is_marked {
            self.fall(now);
        } else if !self.is_fixed {
            let is_slow_start = self.segments < self.threshold;
            self.segments += if is_slow_start { 1.0 } else { 1.0 / self.segments };
        }
    }

    fn fall(&mut self, now: Instant) {
        if !self.is_fixed && now >= self.next_fall_at {
            self.threshold = (self.segments / 2.0).max(2.0);
            self.segments = self.threshold;
            self.next_fall_at = now.plus_ns(20 * NS_PER_MS);
        }
    }
}

impl Transfer {
    /// With a fixed window.
    fn new(window: u64, read_per_ms: usize) -> Self {
        let segments = window as f64;
        let next_fall_at = START;
        Self::with(Window { segments, threshold: 0.0, is_fixed: true, next_fall_at }, read_per_ms)
    }

    fn adaptive(read_per_ms: usize) -> Self {
        let (segments, threshold) = (2.0, f64::MAX);
        let next_fall_at = START;
        Self::with(Window { segments, threshold, is_fixed: false, next_fall_at }, read_per_ms)
    }

    fn with(window: Window, read_per_ms: usize) -> Self {
        let mut transfer = Self {
            near: Link::new(paced()),
            far: Link::new(LinkConfig::datagram(MTU)),
            now: START,
            buffer: VecDeque::new(),
            buffer_bytes: 0,
            read_per_ms,
            lost: 0,
            next: 0,
            waiting: Vec::new(),
            received: 0,
            window,
        };
        transfer.fill_window();
        transfer
    }

    fn fill_window(&mut self) {
        while (self.waiting.len() as f64) < self.window.segments {
            self.next += 1;
            self.request(self.next - 1);
        }
    }

    fn request(&mut self, number: u64) {
        self.waiting.push((number, self.now));
        let interest = Interest::new(segment_name(number)).encode().into();
        self.near.receive(self.now, interest, &mut pool());
        // A full queue is a loss as well.
        let _ = self.near.enqueue(self.now, LpHeader::default(), segment(number));
    }

    fn step(&mut self) {
        self.now = self.now.plus_ns(NS_PER_MS);
        self.near.poll(self.now);
        let mut reads = self.read_per_ms;
        for frame in sent(&mut self.near) {
            if self.buffer_bytes + charge_of(&frame) > BUFFER_BYTES {
                self.lost += 1;
                continue;
            }
            self.buffer_bytes += charge_of(&frame);
            self.buffer.push_back(frame);
            if reads > 0 {
                reads -= 1;
                self.read();
            }
        }
        (0..reads).for_each(|_| self.read());
        for at in 0..self.waiting.len() {
            let (number, requested_at) = self.waiting[at];
            if self.now.ns_since(requested_at) > 300 * NS_PER_MS {
                self.waiting.remove(at);
                self.window.fall(self.now);
                self.request(number);
                break;
            }
        }
    }

    /// The peer reads one datagram, if there is one.
    fn read(&mut self) {
        if let Some(frame) = self.buffer.pop_front() {
            self.buffer_bytes -= charge_of(&frame);
            if let Received::Packet { packet, header } =
                self.far.receive(self.now, frame, &mut pool())
            {
                let name = DataView::decode(&packet).unwrap().name;
                let number = name.last().and_then(|last| last.as_segment()).unwrap();
                let at = self.waiting.iter().position(|&(waiting, _)| waiting == number);
                // A late copy is nothing new.
                let Some(at) = at else { return };
                self.waiting.remove(at);
                self.received += 1;
                self.window.on_data(self.now, header.congestion_mark > 0);
                self.fill_window();
            }
        }
    }

    /// Megabits of Data in the next second.
    fn mbits_in_a_second(&mut self) -> u64 {
        let before = self.received;
        (0..1000).for_each(|_| self.step());
        (self.received - before) * SEGMENT_BYTES as u64 * 8 / 1_000_000
    }
}

/// A peer that reads nothing for a while: what leaves at once fits its buffer.
#[test]
fn burst_fits_the_usual_receive_buffer() {
    let mut near = Link::new(paced());
    for number in 0..400 {
        near.enqueue(START, LpHeader::default(), segment(number)).unwrap();
    }
    let charged: u64 = sent(&mut near).iter().map(charge_of).sum();
    assert!((BUFFER_BYTES / 2..BUFFER_BYTES).contains(&charged), "{charged}");
    // Interests are small, but charged nearly as much.
    let mut near = Link::new(paced());
    for number in 0..400 {
        let interest = Interest::new(segment_name(number)).encode().into();
        near.enqueue(START, LpHeader::default(), interest).unwrap();
    }
    let charged: u64 = sent(&mut near).iter().map(charge_of).sum();
    assert!((BUFFER_BYTES / 2..BUFFER_BYTES).contains(&charged), "{charged}");
}

/// 200 segments need nine times the buffer. The peer reads 159 Mbit/s.
#[test]
fn large_window_to_a_slow_reader_loses_little() {
    let mut transfer = Transfer::new(200, 14);
    let mbits = transfer.mbits_in_a_second();
    assert!(mbits > 120, "{mbits}");
    let mut unpaced = Transfer::new(0, 14);
    let fifo = with(paced(), |config| config.egress.discipline = DisciplineConfig::Fifo);
    unpaced.near.set_config(fifo);
    unpaced.window.segments = 200.0;
    unpaced.fill_window();
    unpaced.mbits_in_a_second();
    assert!(transfer.lost < unpaced.lost / 4, "{} of {}", transfer.lost, unpaced.lost);
}

/// After losses, the rate stays close to the peer's speed.
#[test]
fn rate_settles_below_the_rate_of_the_last_loss() {
    let mut transfer = Transfer::new(200, 40);
    (0..20).for_each(|_| _ = transfer.mbits_in_a_second());
    let (before, mut mbits) = (transfer.lost, 0);
    (0..20).for_each(|_| mbits += transfer.mbits_in_a_second());
    // The peer reads at most 448 Mbit/s of Data.
    assert!(mbits / 20 > 300, "{}", mbits / 20);
    let sent = mbits * 1_000_000 / 8 / MTU as u64;
    assert!(((transfer.lost - before) as u64) < sent / 50, "{} of {sent}", transfer.lost - before);
}

/// The window of this consumer halves at each mark, so the bucket does not limit all the time.
#[test]
fn marked_consumer_gets_the_speed_of_its_peer() {
    for (reads_per_ms, mbits_min) in [(14, 100), (40, 150), (100, 500)] {
        let mut transfer = Transfer::adaptive(reads_per_ms);
        (0..4).for_each(|_| _ = transfer.mbits_in_a_second());
        let mbits = transfer.mbits_in_a_second();
        assert!(mbits > mbits_min, "{reads_per_ms} {mbits} lost {}", transfer.lost);
    }
}

#[test]
fn rate_grows_while_the_peer_keeps_up() {
    let mut transfer = Transfer::new(300, 10_000);
    let first = transfer.mbits_in_a_second();
    (0..3).for_each(|_| _ = transfer.mbits_in_a_second());
    let later = transfer.mbits_in_a_second();
    assert_eq!(transfer.lost, 0);
    assert!(first < 400 && later > 1500, "{first} {later}");
}

#[test]
fn offer_of_the_peer_ends_pacing() {
    let mut near = Link::new(paced());
    let fill = |near: &mut Link| {
        for number in 0..400 {
            near.enqueue(START, LpHeader::default(), segment(number)).unwrap();
        }
        sent(near).len()
    };
    assert!(fill(&mut near) < 100);
    let offer = RunOffer { span_max: 64, question: 1, answer: 0 };
    near.receive(START, Packet::from(offer.encode()), &mut pool());
    // What waited leaves as well.
    assert!(fill(&mut near) > 700 * 6);
    // The next peer may be another program.
    near.discard_all();
    near.poll(START.plus_ns(NS_PER_S));
    assert!(fill(&mut near) < 100);
}

#[test]
fn reliable_link_is_not_paced() {
    let frames_of = |discipline| {
        let mut near = Link::new(with(paced(), |config| {
            config.codec.reliability = true;
            config.egress.discipline = discipline;
        }));
        for number in 0..100 {
            near.enqueue(START, LpHeader::default(), segment(number)).unwrap();
        }
        sent(&mut near).len()
    };
    assert_eq!(frames_of(DisciplineConfig::Paced), frames_of(DisciplineConfig::Fifo));
}

/// Consumers that react to marks request less before the peer's buffer overflows.
#[test]
fn waiting_packets_are_marked() {
    let mut transfer = Transfer::new(200, 100);
    transfer.mbits_in_a_second();
    assert!(transfer.near.counters().marks_set > 0);
}
