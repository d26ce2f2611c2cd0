//! How much of an object larger than the store is kept, compared with the best possible.

mod demand;

use demand::{CONTENT, Cache, Request, Zipf, belady_hits, bytes_for, mix, scan};
use weir_base::Rng;
use weir_store::EvictionPolicy;

const MAX: u32 = 2_000;

/// The hits from request `from` on, and the most packets that the store held.
fn hits(policy: EvictionPolicy, requests: &[Request], from: usize) -> (usize, usize) {
    let mut cache = Cache::new(policy, bytes_for(MAX), CONTENT);
    cache.hits(&requests[..from]);
    let most = cache.store.stats().entries as usize;
    let hits = cache.hits(&requests[from..]);
    (hits, most.max(cache.store.stats().entries as usize))
}

/// The hits of the last reading, as a share of the best policy's.
fn share_of_best(requests: &[Request], last: usize) -> f64 {
    let from = requests.len() - last;
    let (hits, most) = hits(EvictionPolicy::default(), requests, from);
    hits as f64 / belady_hits(requests, most, from) as f64
}

#[test]
fn best_policy_keeps_part_of_a_loop() {
    assert_eq!(belady_hits(&scan(0, 10, 2), 4, 0), 4);
    assert_eq!(belady_hits(&scan(0, 10, 2), 10, 0), 10);
    let requests = [(0, 0), (0, 1), (0, 0), (0, 2), (0, 1)];
    assert_eq!(belady_hits(&requests, 1, 0), 1);
    assert_eq!(belady_hits(&requests, 2, 0), 2);
}

#[test]
fn keeps_part_of_a_file_larger_than_the_store() {
    let content = 8_000;
    let segments = (300 << 20) / content as u32;
    let file = scan(0, segments, 1);
    let mut cache = Cache::new(EvictionPolicy::default(), 256 << 20, content);
    assert_eq!(cache.hits(&file), 0);
    let most = cache.store.stats().entries as usize;
    let best = belady_hits(&scan(0, segments, 2), most, 0);
    for _ in 0..3 {
        let hits = cache.hits(&file);
        assert!(hits * 10 >= best * 9, "{hits} of {best}");
    }
}

#[test]
fn files_larger_than_the_store_leave_a_part() {
    for ratio in [110, 117, 150, 200, 300, 400] {
        let segments = MAX * ratio / 100;
        for times in [2, 3, 6] {
            let share = share_of_best(&scan(0, segments, times), segments as usize);
            assert!(share > 0.9, "{ratio} %, {times} times: {share}");
        }
    }
}

/// Each of several shards has every n-th range of 64 segments, and packets are reordered.
#[test]
fn keeps_part_despite_gaps_and_reordering() {
    let mut rng = Rng::from_seed(5);
    let mut file: Vec<_> = (0..MAX * 8)
        .map(|segment| (0, segment))
        .filter(|&(_, segment)| segment / 64 % 4 == 1)
        .collect();
    for chunk in file.chunks_mut(16) {
        for at in 1..chunk.len() {
            if rng.below(10) == 0 {
                chunk.swap(at - 1, at);
            }
        }
    }
    let twice = [&file[..], &file[..]].concat();
    let share = share_of_best(&twice, file.len());
    assert!(share > 0.9, "{share}");
}

#[test]
fn keeps_part_of_each_of_two_files() {
    let segments = MAX * 3 / 2;
    let (one, other) = (scan(1, segments, 3), scan(2, segments, 3));
    let share = share_of_best(&mix(&one, 8, &other, 8), 2 * segments as usize);
    assert!(share > 0.9, "{share}");
}

/// The store is full of Data that is no longer popular.
#[test]
fn part_of_a_file_replaces_unused_data() {
    let mut requests: Vec<_> = (0..6).flat_map(|_| (0..MAX - 50).map(|at| (at, 0))).collect();
    let segments = MAX * 3 / 2;
    requests.extend(scan(1 << 20, segments, 5));
    let share = share_of_best(&requests, segments as usize);
    assert!(share > 0.9, "{share}");
}

/// A file that is read again replaces one that is not read any more.
#[test]
fn new_file_replaces_an_idle_one() {
    let segments = MAX * 3 / 2;
    for (before, after) in [(1, 2), (2, 2), (3, 3), (6, 3)] {
        let mut requests = scan(0, segments, before);
        requests.extend(scan(1, segments, after));
        let share = share_of_best(&requests, segments as usize);
        assert!(share > 0.9, "{before} times, then {after}: {share}");
    }
}

#[test]
fn fitting_file_is_kept_after_a_larger_one() {
    for times in [1, 2] {
        let mut requests = scan(0, MAX * 3 / 2, times);
        requests.extend(scan(1, MAX / 2, 2));
        let share = share_of_best(&requests, (MAX / 2) as usize);
        assert!(share > 0.99, "{times}: {share}");
    }
}

/// The segments of a stream in order, and a reader that requests each segment `lag` later.
fn stream(segments: u32, lag: u32) -> Vec<Request> {
    (0..segments)
        .flat_map(|segment| [Some((0, segment)), segment.checked_sub(lag).map(|at| (0, at))])
        .flatten()
        .collect()
}

/// A stream of 20 times the store, and a reader that lags by up to a third of the store.
#[test]
fn of_a_stream_no_less_is_found_than_before() {
    for lag in [MAX / 50, MAX / 20, MAX / 12, MAX / 3] {
        let [usual, ours] = found_of(&stream(20 * MAX, lag));
        assert!(ours * 100 >= usual * 99, "lag {lag}: {ours}, was {usual}");
    }
}

/// The hits of readers in the last fifth of the stream, with S3-FIFO first.
fn found_of(stream: &[Request]) -> [usize; 2] {
    let from = stream.len() * 4 / 5;
    [EvictionPolicy::S3Fifo, EvictionPolicy::default()].map(|policy| hits(policy, stream, from).0)
}

/// Regression: segments that the reader missed went to the main queue, until the end of the stream
/// had only a tenth of the store. The reader then found nothing.
#[test]
fn lagging_reader_hits_as_with_s3_fifo() {
    for (percent, stores) in [(50, 20), (75, 20), (90, 20), (97, 20), (25, 100), (50, 100)] {
        let stream = stream(stores * MAX, MAX * percent / 100);
        let [usual, ours] = found_of(&stream);
        let reads = stream.len() / 10;
        assert!(usual * 100 >= reads * 99, "lag {percent} %: {usual} of {reads}");
        assert!(ours * 100 >= usual * 99, "lag {percent} %: {ours}, was {usual}");
    }
}

/// The reader comes in bursts, and each shard has every fourth range of 64 segments.
#[test]
fn lagging_reader_in_bursts_and_shards() {
    let of_shard = |at: u32| (0, at / 64 * 256 + at % 64);
    for burst in [1, 40, 100] {
        for percent in [25, 50, 75] {
            let lag = MAX * percent / 100;
            let mut stream = Vec::new();
            for begin in (0..20 * MAX).step_by(burst as usize) {
                stream.extend((begin..begin + burst).map(of_shard));
                let read = (begin..begin + burst).filter_map(|at| at.checked_sub(lag));
                stream.extend(read.map(of_shard));
            }
            let [usual, ours] = found_of(&stream);
            assert!(ours * 100 >= usual * 99, "{burst}, lag {percent} %: {ours}, was {usual}");
        }
    }
}

/// In a larger store, bursts may be larger.
#[test]
fn bursts_may_be_a_twentieth_of_a_store() {
    let (max, burst) = (20_000_u32, 1_000);
    let mut stream = Vec::new();
    for begin in (0..8 * max).step_by(burst as usize) {
        stream.extend((begin..begin + burst).map(|at| (0, at)));
        stream.extend((begin..begin + burst).filter_map(|at| Some((0, at.checked_sub(max / 2)?))));
    }
    let mut cache = Cache::new(EvictionPolicy::default(), bytes_for(max), CONTENT);
    let (before, last) = stream.split_at(stream.len() * 3 / 4);
    cache.hits(before);
    let hits = cache.hits(last);
    assert!(hits * 100 >= last.len() * 48, "{hits} of {}", last.len() / 2);
}

/// S3-FIFO finds at most half of it: segments that two readers have used move to its main queue.
#[test]
fn two_readers_behind_a_stream_find_it_all() {
    for (near, far) in [(10, 50), (25, 50), (40, 80), (50, 52), (70, 90)] {
        let readers = [MAX * near / 100, MAX * far / 100];
        let of = |at: u32| {
            let read = readers.iter().filter_map(move |lag| at.checked_sub(*lag));
            [at].into_iter().chain(read).map(|at| (0, at)).collect::<Vec<_>>()
        };
        let stream: Vec<_> = (0..20 * MAX).flat_map(of).collect();
        let [usual, ours] = found_of(&stream);
        let reads = stream.len() * 2 / 15;
        assert!(ours * 100 >= reads * 98, "{readers:?}: {ours} of {reads}, was {usual}");
    }
}

/// The reader starts when the beginning has not been used for a long time.
#[test]
fn late_reader_hits_as_with_s3_fifo() {
    let lag = MAX * 98 / 100;
    let mut requests = scan(0, 15 * MAX, 1);
    requests.extend((15 * MAX..25 * MAX).flat_map(|at| [(0, at), (0, at - lag)]));
    let [usual, ours] = found_of(&requests);
    assert!(usual > 0 && ours * 100 >= usual * 99, "{ours}, was {usual}");
}

/// A file with two readers, half a store apart, is read again.
#[test]
fn a_reading_after_one_that_lagged_finds_a_part() {
    for percent in [150, 300] {
        let segments = MAX * percent / 100;
        let mut requests = stream(segments, MAX / 2);
        requests.extend(scan(0, segments, 1));
        let share = share_of_best(&requests, segments as usize);
        assert!(share > 0.9, "{percent} %: {share}");
    }
}

/// One packet in 100 is lost before the store, and arrives when it is requested again.
#[test]
fn late_packets_are_no_lagging_reader() {
    let segments = MAX * 3;
    let late: Vec<_> = (0..segments).filter(|at| at % 100 == 99).collect();
    let mut file: Vec<_> = (0..segments).filter(|at| at % 100 != 99).map(|at| (0, at)).collect();
    for &at in &late {
        let behind = (at as usize + 200).min(file.len());
        file.insert(behind, (0, at));
    }
    let requests = [&file[..], &file[..]].concat();
    let share = share_of_best(&requests, file.len());
    assert!(share > 0.9, "{share}");
}

/// Exactly as many hits as S3-FIFO.
#[test]
fn demand_in_no_order_is_s3_fifos() {
    for s in [0.7, 1.1] {
        let law = Zipf::new(20 * MAX, s);
        let mut rng = Rng::from_seed(11);
        let requests: Vec<_> = (0..300_000).map(|_| (0, law.draw(&mut rng))).collect();
        let of = |policy| Cache::new(policy, 2 * bytes_for(MAX), CONTENT).hits(&requests);
        assert_eq!(of(EvictionPolicy::default()), of(EvictionPolicy::S3Fifo), "Zipf {s}");
    }
}

#[test]
fn nothing_is_lost_where_demand_follows_zipf() {
    let shapes: [fn(u32) -> Request; 3] =
        [|rank| (rank, 0), |rank| (0, rank), |rank| (rank / 32, rank % 32)];
    for s in [0.7, 0.8, 0.9, 1.0, 1.1, 1.2] {
        let law = Zipf::new(10 * MAX, s);
        let mut rng = Rng::from_seed(3);
        let ranks: Vec<_> = (0..50_000).map(|_| law.draw(&mut rng)).collect();
        for of in shapes {
            let popular: Vec<_> = ranks.iter().map(|&rank| of(rank)).collect();
            let large = 1 << 20;
            let again = scan(large, MAX * 6 / 5, 11);
            let once: Vec<_> =
                (0..11).flat_map(|file| scan(large + file, MAX * 6 / 5, 1)).collect();
            for requests in [&popular, &mix(&popular, 2, &again, 1), &mix(&popular, 2, &once, 1)] {
                let usual = hits(EvictionPolicy::S3Fifo, requests, 0).0;
                let ours = hits(EvictionPolicy::default(), requests, 0).0;
                assert!(ours * 1_000 >= usual * 999, "Zipf {s}: {ours}, was {usual}");
            }
        }
    }
}
