//! Truncated chunks, and repeated Nacks.

use alloc::vec;

use weir_base::{NS_PER_S, RttConfig};
use weir_wire::CongestionMark;

use super::*;
use crate::PathSchedule;
use crate::congestion::{Controller, ControllerConstants, WindowBounds};

const PATH: PathId = PathId(3);

/// The end that a segment states truncates a chunk that was requested whole; then the end proves
/// false.
#[test]
fn truncated_chunk_grows_again() {
    let mut board = scoreboard(8);
    let next = |board: &mut Scoreboard| {
        let (first, path) = board.next_to_send(Instant::ZERO, 100, |_| true)?;
        let segments: Vec<u64> = board.open_segments(first).collect();
        board.on_sent(first, path, 0, Instant::ZERO);
        Some(segments)
    };
    board.start_at(3);
    assert_eq!(next(&mut board), Some((3..8).collect()));
    assert_eq!(next(&mut board), Some((8..16).collect()));
    let now = Instant::from_ns(NS_PER_MS);
    let answer =
        |_| Answer { now, path: PATH, mark: CongestionMark::NONE, packet_bytes: 1, label: None };
    assert!(
        [9, 13, 4].map(|segment| board.on_answer(segment, &answer(segment))).iter().all(|&new| new)
    );
    board.set_limit(Some(11));
    board.assert_consistent();
    assert_eq!((board.outstanding().unanswered(), board.outstanding().next_index()), (4 + 2, 11));
    assert!(!board.on_answer(12, &answer(12)), "beyond the end");
    board.set_limit(Some(20));
    assert_eq!(next(&mut board), Some(vec![11, 12, 14, 15]));
    assert_eq!(next(&mut board), Some((16..20).collect()));
    assert_eq!(next(&mut board), None);
    for segment in [3, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 17, 18, 19] {
        assert!(!board.is_done());
        assert!(board.on_answer(segment, &answer(segment)), "{segment}");
        board.assert_consistent();
    }
    assert!(board.is_done());
}

fn scoreboard(chunk_segments: u32) -> Scoreboard {
    let config = ScoreboardConfig {
        lifetime_ns: NS_PER_S,
        retries_max: 1,
        sends_once: false,
        chunk_segments,
        rtt: RttConfig::default(),
        controller: Controller::FIXED,
        constants: ControllerConstants::default(),
        window: WindowBounds { initial: Some(100), max: 100 },
        decrease_interval_ns: None,
        waits_for_lifetime: false,
        trace: false,
    };
    let mut board = Scoreboard::new(config, PathSchedule::Single.make());
    board.add_path(PATH, None);
    board
}

/// A repeated Nack refuses one segment. A segment that arrives after it was refused is not refused:
/// the rest of the chunk continues.
#[test]
fn repeated_nack_refuses_one_segment() {
    let mut board = scoreboard(4);
    board.set_limit(Some(4));
    let (now, later) = (Instant::ZERO, Instant::from_ns(NS_PER_S));
    let answer =
        Answer { now, path: PATH, mark: CongestionMark::NONE, packet_bytes: 1, label: None };
    let next = |board: &mut Scoreboard, now| board.next_to_send(now, 100, |_| true);
    let (first, path) = next(&mut board, now).unwrap();
    board.on_sent(first, path, 7, now);
    let nack = |board: &mut Scoreboard, segment: u64| {
        board.on_nack(segment, None, NackReason::NoRoute, now).is_ok_and(|counts| counts)
    };
    assert!(nack(&mut board, 0));
    assert!(!(0..10).any(|_| nack(&mut board, 0)));
    assert_eq!(next(&mut board, later), None, "three are on their way");
    assert!(board.on_answer(0, &answer));
    assert!(nack(&mut board, 1) && nack(&mut board, 2));
    assert_eq!(next(&mut board, later), None, "one is on its way");
    assert!(nack(&mut board, 3));
    assert!(next(&mut board, later).is_some(), "all that is open is refused");
    assert_eq!(board.counters().nacks, 4);
}
