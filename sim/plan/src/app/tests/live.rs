//! Live channels: players and their server.

use weir_wire::{Interest, Name};

use super::*;
use crate::workload::{LivePlan, QualityChoice};

const CHANNELS: u64 = 4;
/// Streams of two qualities.
const STREAMS: u64 = 2 * CHANNELS;
const SEGMENT_NS: u64 = 2 * NS_PER_S;
const LISTED: u64 = 5;

/// Segments of video of 1000 and 3000 bytes.
fn channels(popularity: Popularity) -> Names {
    Names {
        popularity,
        live: Some(LivePlan { segment_ns: SEGMENT_NS, listed: LISTED }),
        ..names(Sizes::List { bytes: [1000, 3000].into() }, 1000)
    }
}

fn player(quality: QualityChoice) -> ConsumerPlan {
    let (switch_ns, controller, window) = (20 * NS_PER_S, "fixed".into(), Some(2));
    let demand = Demand::Live { switch_ns, quality, controller, window };
    consumer(channels(Popularity::Uniform { objects: CHANNELS }), demand)
}

const CLEAN: Channel = Channel { lost: 0, damaged: 0, nacked: 0, delay_ns: 2 * MS, jitter_ns: 0 };

/// When a segment of video is complete.
fn complete_ns(object: u64) -> u64 {
    let (number, channel) = (object / STREAMS, object % STREAMS / 2);
    ((number + 1).saturating_sub(LISTED) * SEGMENT_NS)
        .saturating_sub(channel * SEGMENT_NS / CHANNELS)
}

/// The start of each object, for each channel that was watched.
fn views(run: &Run) -> Vec<Vec<(u64, u64)>> {
    let mut views: Vec<Vec<(u64, u64)>> = Vec::new();
    for (at_ns, event) in &run.events {
        match *event {
            EventKind::ChannelWatched { .. } => views.push(Vec::new()),
            EventKind::ObjectStarted { object } => views.last_mut().unwrap().push((*at_ns, object)),
            _ => {}
        }
    }
    views
}

fn requests(run: &Run) -> u64 {
    let count = |(_, event): &(u64, EventKind)| match event {
        EventKind::ServerRequests { count } => *count,
        _ => 0,
    };
    run.events.iter().map(count).sum()
}

#[test]
fn player_follows_the_newest_segment() {
    for seed in 0..20 {
        let run = Run::new(&player(QualityChoice::One), 100 * NS_PER_S, CLEAN, seed).run();
        let views = views(&run);
        // The first channel is watched for up to 20 s, each other one for 20 s.
        assert!((5..=6).contains(&views.len()), "seed {seed}: {}", views.len());
        for view in &views[1..views.len() - 1] {
            // Three segments at once, and then one for each segment of time.
            assert!((12..=13).contains(&view.len()), "seed {seed}: {view:?}");
            for (&(at_ns, object), next) in view.iter().zip(&view[1..]) {
                assert_eq!(next.1, object + STREAMS, "in order, of one stream");
                assert!(complete_ns(next.1) <= next.0 && at_ns < next.0);
            }
            for &(at_ns, object) in &view[3..] {
                assert_eq!(object % 2, 1, "the highest quality");
                assert!(at_ns - complete_ns(object) <= SEGMENT_NS + 10 * MS, "not far behind");
            }
        }
        assert_eq!(run.count(|event| matches!(event, EventKind::ObjectFailed { .. })), 0);
        assert_eq!(run.consumer().stats().malformed, 0);
    }
}

#[test]
fn playlists_are_loaded_once_a_segment() {
    let run = Run::new(&player(QualityChoice::One), 100 * NS_PER_S, CLEAN, 7).run();
    let (mut before, mut loads) = (None, 0);
    for (at_ns, event) in &run.events {
        match event {
            EventKind::ChannelWatched { .. } => before = None,
            EventKind::PlaylistReceived { newest, .. } => {
                if let Some((then_ns, listed)) = before.replace((*at_ns, *newest)) {
                    assert_eq!((at_ns - then_ns, *newest), (SEGMENT_NS, listed + 1));
                }
                loads += 1;
            }
            _ => {}
        }
    }
    assert!((50..=56).contains(&loads), "{loads}");
    // Each load and each segment of video is one request.
    let segments: usize = views(&run).iter().map(Vec::len).sum();
    assert_eq!(requests(&run), loads + segments as u64);
}

#[test]
fn server_has_what_is_complete_and_counts_requests() {
    let plan = ProducerPlan {
        names: channels(Popularity::Sequential { objects: CHANNELS }),
        freshness_ms: 10_000,
        delay_ns: 0,
    };
    let mut server = Producer::new(&plan, 1).unwrap();
    let mut ask = |now_ms: u64, name: &str, is_playlist: bool| {
        let name: Name = name.parse().unwrap();
        let interest = Interest::new(name).can_be_prefix(is_playlist).must_be_fresh(is_playlist);
        let (path, header) = (PathId(0), LpHeader::default());
        let mut inputs = vec![AppInput { path, header, packet: interest.encode().into() }];
        let mut out = AppOutbox::default();
        server.handle(Instant::from_ns(now_ms * MS), &mut inputs, &mut out);
        let requests = out.events.iter().map(|event| match event {
            EventKind::ServerRequests { count } => *count,
            _ => 0,
        });
        let sent = out.events.iter().map(|event| match event {
            EventKind::ServerSent { packet_bytes } => *packet_bytes,
            _ => 0,
        });
        let (requests, sent): (u64, u64) = (requests.sum(), sent.sum());
        let packet = out.packets.pop().map(|(.., packet)| packet);
        assert_eq!(sent, packet.as_ref().map_or(0, |packet| packet.len() as u64));
        let data = packet.as_ref().map(|packet| DataView::decode(packet).unwrap());
        (data.map(|data| (data.name.to_string(), data.freshness_ms)), requests)
    };
    // Stream 1 is the high quality of channel 0: number 4 is its newest segment at first.
    let playlist = "/lab/p7/playlist/00000001/32=metadata";
    let (data, requests) = ask(500, playlist, true);
    assert_eq!(data, Some((format!("{playlist}/v=4/seg=0"), 1500)));
    assert_eq!(requests, 1);
    let (data, requests) = ask(2500, playlist, true);
    assert_eq!(data, Some((format!("{playlist}/v=5/seg=0"), 1500)));
    assert_eq!(requests, 1);
    // Object 41 is number 5 of stream 1.
    for (segment, requests) in [(0, 1), (0, 1), (2, 0)] {
        let (data, asked) = ask(2600, &format!("/lab/p7/00000041/seg={segment}"), false);
        assert!(data.is_some());
        assert_eq!(asked, requests, "{segment}");
    }
    // The next one does not exist yet, and a segment has three packets.
    assert_eq!(ask(2700, "/lab/p7/00000049/seg=0", false), (None, 0));
    assert_eq!(ask(2700, "/lab/p7/00000041/seg=3", false), (None, 0));
    // Two playlists later it is removed.
    assert_eq!(ask(24_500, "/lab/p7/00000041/seg=0", false), (None, 0));
}

#[test]
fn drawn_quality_differs_between_views() {
    let run = Run::new(&player(QualityChoice::Drawn), 400 * NS_PER_S, CLEAN, 3).run();
    let mut views_of = [0, 0];
    for view in views(&run) {
        let quality = view[0].1 % 2;
        assert!(view.iter().all(|(_, object)| object % 2 == quality));
        views_of[quality as usize] += 1;
    }
    assert!(views_of.iter().all(|&count| count >= 4), "{views_of:?}");
}

#[test]
fn adaptive_quality_follows_the_throughput() {
    // Round trips of 4.5 ms carry far more than 12 kbit/s, those of 1 s less than 12 / 0.8.
    for (delay_ns, last) in [(2 * MS, 1), (NS_PER_S / 2, 0)] {
        let channel = Channel { delay_ns, ..CLEAN };
        let plan = ConsumerPlan { lifetime_ms: 4000, ..player(QualityChoice::Adaptive) };
        let run = Run::new(&plan, 60 * NS_PER_S, channel, 5).run();
        let objects: Vec<u64> = views(&run).concat().into_iter().map(|(_, it)| it).collect();
        assert_eq!(objects[0] % 2, 0, "it begins with the lowest");
        assert!(objects[5..].iter().all(|object| object % 2 == last), "{objects:?}");
    }
}

#[test]
fn lost_and_damaged_packets_are_requested_again() {
    for (lost, damaged) in [(50_000, 0), (0, 50_000)] {
        for seed in 0..10 {
            let channel = Channel { lost, damaged, ..CLEAN };
            let plan = player(QualityChoice::One);
            let run = Run::new(&plan, 100 * NS_PER_S, channel, seed).run();
            let started: usize = views(&run).iter().map(Vec::len).sum();
            // A segment is abandoned where the channel changes, or fails at the end of the run.
            assert!(run.completed() + 7 >= started as u64, "seed {seed}: {}", run.completed());
            assert!(started >= 45, "seed {seed}: {started}");
            assert_eq!(damaged > 0, !run.violations.is_empty(), "{:?}", run.violations);
        }
    }
}
