//! Tests of the holdings of routers, and of the paths that segments take.

use alloc::collections::VecDeque;
use alloc::string::ToString as _;

use weir_store::{HoldingsStatus, SegmentRange};

use super::*;

/// Routers other than that of the fixture.
const NEAR: PathId = PathId(4);
const FAR: PathId = PathId(5);

/// Two Interests on each path.
fn config(holdings: HoldingsMode) -> ConsumerConfig {
    ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(2),
        schedule: PathSchedule::RoundRobin,
        verification: Verification::Off,
        use_manifest: false,
        holdings,
        ..ConsumerConfig::default()
    }
}

/// A fetch of 30 segments over three paths, which has started.
fn asking(holdings: HoldingsMode) -> (Fixture, Vec<Name>) {
    asking_with(config(holdings), ReaderMode::Unordered)
}

fn asking_with(config: ConsumerConfig, reader: ReaderMode) -> (Fixture, Vec<Name>) {
    let mut metadata = Metadata::new("/o/v=1".parse().unwrap());
    metadata.last_segment = Some(29);
    let mut fixture = Fixture::new(Target::KnownMetadata { metadata }, config);
    for path in [NEAR, FAR] {
        fixture.input(ConsumerInput::AddPath { path, window: None, is_local: false });
    }
    let names = fixture.input(ConsumerInput::Start { have: SegmentSet::new(), reader });
    (fixture, names)
}

/// What left on each path: queries and segments.
fn left(fixture: &Fixture, names: &[Name]) -> BTreeMap<PathId, (usize, Vec<u64>)> {
    let mut left: BTreeMap<PathId, (usize, Vec<u64>)> = BTreeMap::new();
    for (name, &path) in names.iter().zip(&fixture.out_paths) {
        let of_path = left.entry(path).or_default();
        match name.as_view().last().and_then(|last| last.as_segment()) {
            Some(segment) => of_path.1.push(segment),
            None => of_path.0 += 1,
        }
    }
    left
}

fn answer(path: PathId, name: &Name, content: &[u8], last: u64) -> ConsumerInput {
    let packet = Data::new(name.clone())
        .content(content)
        .final_block_id(Component::segment(last))
        .encode_with_digest()
        .into();
    ConsumerInput::Packet { path, header: LpHeader::default(), packet }
}

/// A router's answer, in segments of this many bytes.
fn holdings(path: PathId, ranges: &[(u64, u64)], octets: usize) -> Vec<ConsumerInput> {
    let object: Name = "/o/v=1".parse().unwrap();
    let range = |&(first, last)| SegmentRange { first, last };
    let memory = ranges.iter().map(range).collect();
    let status = HoldingsStatus { object: object.clone(), memory, ..Default::default() };
    let content = status.encode();
    let mut dataset = HoldingsStatus::dataset_name("/localhop/nfd".parse().unwrap(), &object);
    dataset.append_version(7);
    let last = content.chunks(octets).count() as u64 - 1;
    let chunks = content.chunks(octets).zip(0..);
    chunks
        .map(|(chunk, number)| {
            let mut name = dataset.clone();
            name.append_segment(number);
            answer(path, &name, chunk, last)
        })
        .collect()
}

fn data(path: PathId, number: u64) -> ConsumerInput {
    answer(path, &segment("/o/v=1", number), &[1], 29)
}

#[test]
fn queries_each_router_once() {
    let (mut fixture, names) = asking(HoldingsMode::Wait);
    let asked = left(&fixture, &names);
    assert_eq!(asked.len(), 3);
    assert!(asked.values().all(|(questions, segments)| *questions == 1 && segments.is_empty()));
    assert_eq!(names[0].as_view().component_count(), 5, "{}", names[0]);

    let mut reported = holdings(NEAR, &[(0, 3), (20, 29)], 8000);
    reported.extend(holdings(FAR, &[(4, 5)], 8000));
    fixture.inputs = reported;
    assert!(fixture.step().is_empty(), "the third has not answered");
    let names = fixture.input(holdings(PATH, &[], 8000).remove(0));
    let asked = left(&fixture, &names);
    assert_eq!(asked[&NEAR].1, [0, 1], "and it has room for no more");
    assert_eq!(asked.len(), 1);
    assert!(fixture.events().iter().any(|event| event.contains("segments: 14")));

    // Its window opens. Then the other router's part follows, then segments that no router holds,
    // in turn.
    let mut answered = 0;
    let mut under_way = VecDeque::from([(NEAR, 0), (NEAR, 1)]);
    let mut by = [NEAR; 30];
    while let Some((path, number)) = under_way.pop_front() {
        let names = fixture.input(data(path, number));
        for (path, (questions, segments)) in left(&fixture, &names) {
            assert_eq!(questions, 0);
            for number in segments {
                under_way.push_back((path, number));
                by[number as usize] = path;
            }
        }
        answered += 1;
    }
    assert_eq!(answered, 30, "none is asked twice");
    assert_eq!(by[..6], [NEAR, NEAR, NEAR, NEAR, FAR, FAR]);
    assert!(by[20..].iter().all(|&path| path == NEAR));
    let nobodys = &by[6..20];
    assert!([PATH, NEAR, FAR].iter().all(|path| nobodys.contains(path)), "{nobodys:?}");
}

#[test]
fn joins_segmented_answers() {
    let (mut fixture, _) = asking(HoldingsMode::Ask);
    let ranges: Vec<(u64, u64)> = (0..10).map(|at| (3 * at, 3 * at + 1)).collect();
    let parts = holdings(FAR, &ranges, 8);
    assert!(parts.len() > 2);
    for (number, part) in parts.into_iter().enumerate() {
        let names = fixture.input(part);
        let next = names.iter().find(|name| name.to_string().contains("holdings"));
        let number = number as u64 + 1;
        let asked = next.map(|name| name.as_view().last().unwrap().as_segment());
        assert!(asked.is_none_or(|segment| segment == Some(number)), "{next:?}");
    }
    assert!(fixture.events().iter().any(|event| event.contains("segments: 20")));
}

#[test]
fn silent_router_delays_fetch_briefly() {
    let (mut fixture, names) = asking(HoldingsMode::Wait);
    let question = fixture.requested[0].clone();
    assert!(fixture.nack(&question, NackReason::NoRoute).is_empty());
    let refused = Data::new({
        let mut name = names[1].clone();
        name.append_version(1).append_segment(0).clone()
    });
    let packet = refused.content([5, 0]).encode_with_digest().into();
    let header = LpHeader::default();
    assert!(fixture.input(ConsumerInput::Packet { path: NEAR, header, packet }).is_empty());
    fixture.now = fixture.consumer.next_wakeup().expect("the third is still pending");
    assert!(fixture.now <= Instant::from_ns(NS_PER_S));
    assert_eq!(fixture.step().len(), 6, "all windows");
}

#[test]
fn refused_segments_go_to_other_routers() {
    let (mut fixture, _) = asking(HoldingsMode::Wait);
    let reported = [(NEAR, &[(0, 29)][..]), (FAR, &[]), (PATH, &[])];
    fixture.inputs = reported.iter().flat_map(|(path, held)| holdings(*path, held, 8000)).collect();
    let names = fixture.step();
    assert_eq!(left(&fixture, &names)[&NEAR].1, [0, 1]);
    let refused: Vec<Vec<u8>> = fixture.requested.clone();
    for interest in refused {
        let header = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
        let packet = interest.as_slice().into();
        fixture.inputs.push(ConsumerInput::Packet { path: NEAR, header, packet });
    }
    let mut by: Vec<PathId> = Vec::new();
    for _ in 0..4 {
        let names = fixture.step();
        by.extend(
            left(&fixture, &names)
                .into_iter()
                .flat_map(|(path, (_, of))| of.iter().map(move |_| path).collect::<Vec<_>>()),
        );
        let Some(at) = fixture.consumer.next_wakeup() else { break };
        fixture.now = at;
    }
    assert!(by.contains(&PATH) && by.contains(&FAR), "{by:?}");
}

/// A distant router may be the only one that holds the segment that an in-order reader needs.
#[test]
fn slow_holder_is_used_with_small_reader() {
    let config = ConsumerConfig {
        window: Some(4),
        schedule: PathSchedule::Parallel,
        reader_segments_max: 8,
        ..config(HoldingsMode::Wait)
    };
    let (mut fixture, _) = asking_with(config, ReaderMode::InOrder);
    let reported = [(NEAR, &[(1, 4)][..]), (FAR, &[(0, 0), (5, 29)]), (PATH, &[])];
    fixture.inputs = reported.iter().flat_map(|(path, held)| holdings(*path, held, 8000)).collect();
    let names = fixture.step();
    let asked = left(&fixture, &names);
    assert_eq!((&asked[&FAR].1, &asked[&NEAR].1), (&vec![0, 5, 6, 7], &vec![1, 2, 3, 4]));
    fixture.now = fixture.now.plus_ns(NS_PER_MS);
    fixture.inputs = (1..5).map(|number| data(NEAR, number)).collect();
    fixture.step();
    fixture.now = fixture.now.plus_ns(100 * NS_PER_MS);
    fixture.inputs = [0, 5, 6, 7].into_iter().map(|number| data(FAR, number)).collect();
    fixture.inputs.push(ConsumerInput::Read { segments: 8 });
    let names = fixture.step();
    assert!(left(&fixture, &names).contains_key(&FAR), "{names:?}");
}

#[test]
fn standby_path_is_no_holder() {
    let config = ConsumerConfig { schedule: PathSchedule::Single, ..config(HoldingsMode::Wait) };
    let (mut fixture, _) = asking_with(config, ReaderMode::Unordered);
    let reported = [(NEAR, &[(0, 29)][..]), (FAR, &[]), (PATH, &[])];
    fixture.inputs = reported.iter().flat_map(|(path, held)| holdings(*path, held, 8000)).collect();
    let names = fixture.step();
    assert_eq!(left(&fixture, &names)[&PATH].1, [0, 1]);
}

#[test]
fn endless_answer_delays_fetch_briefly() {
    let (mut fixture, names) = asking(HoldingsMode::Wait);
    let mut dataset = names[0].clone();
    dataset.append_version(1);
    fixture.inputs = [NEAR, FAR].iter().flat_map(|path| holdings(*path, &[], 8000)).collect();
    fixture.step();
    let mut asked = Vec::new();
    for number in 0..12 {
        let mut name = dataset.clone();
        name.append_segment(number);
        asked.extend(fixture.input(answer(PATH, &name, &[0xfd], 1 << 60)));
        fixture.now = fixture.now.plus_ns(100 * NS_PER_MS);
    }
    let is_segment = |name: &&Name| name.as_view().component_count() == 3;
    assert_eq!(asked.iter().filter(is_segment).count(), 6, "{asked:?}");
}
