use super::*;
use alloc::collections::BTreeSet;
use std::vec;
use std::vec::Vec;
use weir_base::Rng;

fn name_of(object: u64) -> Vec<u8> {
    let uri = std::format!("/files/{object}");
    uri.parse::<Name>().unwrap().as_view().value().to_vec()
}

/// An index, what it should list, and what a reader of its changes knows.
struct Fixture {
    holdings: Holdings,
    held: BTreeSet<(u64, u64)>,
    believed: BTreeSet<(Name, u64)>,
    generation: u32,
}

impl Fixture {
    fn new(bytes_max: u64) -> Self {
        Self {
            holdings: Holdings::new(HoldingsConfig { bytes_max }),
            held: BTreeSet::new(),
            believed: BTreeSet::new(),
            generation: 0,
        }
    }

    fn add(&mut self, object: u64, segment: u64) {
        self.holdings.add(object, segment, 100, || name_of(object));
        self.held.insert((object, segment));
    }

    fn remove(&mut self, object: u64, segment: u64) {
        self.holdings.remove(object, segment, 100);
        self.held.remove(&(object, segment));
    }

    /// Everything that is listed, by segment.
    fn listed(&self) -> BTreeSet<(Name, u64)> {
        let mut holdings = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            let root = Name::default();
            from = self.holdings.list(Tier::Memory, root.as_view(), at, 3, &mut holdings);
        }
        for holding in &holdings {
            let gap = |pair: &[SegmentRange]| pair[0].last + 1 < pair[1].first;
            assert!(holding.ranges.windows(2).all(gap), "in order, with gaps: {holding:?}");
        }
        spread(holdings.iter().map(|holding| (&holding.name, &holding.ranges)))
    }

    fn expected(&self) -> BTreeSet<(Name, u64)> {
        let name = |object| NameView::from_value(&name_of(object)).unwrap().to_name();
        self.held.iter().map(|&(object, segment)| (name(object), segment)).collect()
    }

    /// The reader takes some changes. Returns whether there are more.
    fn read(&mut self, blocks_max: usize) -> bool {
        if self.holdings.generation() != self.generation {
            self.generation = self.holdings.generation();
            self.believed.clear();
        }
        let mut changes = Vec::new();
        let has_more = self.holdings.take_changes(Tier::Memory, blocks_max, &mut changes);
        for change in &changes {
            for segment in spread([(&change.name, &change.added)].into_iter()) {
                assert!(self.believed.insert(segment), "reported twice");
            }
            for segment in spread([(&change.name, &change.removed)].into_iter()) {
                assert!(self.believed.remove(&segment), "removed but never reported");
            }
        }
        has_more
    }
}

fn spread<'a>(
    ranges: impl Iterator<Item = (&'a Name, &'a Vec<SegmentRange>)>,
) -> BTreeSet<(Name, u64)> {
    ranges
        .flat_map(|(name, ranges)| {
            let of_range = |range: &SegmentRange| (range.first..=range.last).collect::<Vec<_>>();
            ranges.iter().flat_map(of_range).map(|segment| (name.clone(), segment))
        })
        .collect()
}

fn below(rng: &mut Rng, bound: u32) -> u64 {
    rng.below(bound).into()
}

#[test]
fn ranges_and_changes_equal_a_model() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        let mut rng = Rng::from_seed(seed);
        let mut fixture = Fixture::new(1 << 20);
        if seed % 3 > 0 {
            fixture.holdings.begin_generation();
        }
        for step in 0..if cfg!(miri) { 60 } else { 3_000 } {
            let object = below(&mut rng, 5);
            let segment = below(&mut rng, 300) + if object == 0 { u64::MAX - 400 } else { 0 };
            match rng.below(12) {
                0..5 => fixture.add(object, segment),
                5..8 => fixture.remove(object, segment),
                8 => (0..below(&mut rng, 200))
                    .for_each(|more| fixture.add(object, segment + more / 2)),
                9 => fixture
                    .held
                    .clone()
                    .into_iter()
                    .filter(|&(of, _)| of == object)
                    .for_each(|(object, segment)| fixture.remove(object, segment)),
                10 if seed % 3 > 0 => {
                    fixture.read(1 + rng.below(3) as usize);
                }
                11 if seed % 3 > 1 && rng.below(20) == 0 => fixture.holdings.begin_generation(),
                _ => {}
            }
            fixture.holdings.check();
            if step % 50 == 0 {
                assert_eq!(fixture.listed(), fixture.expected(), "seed {seed}");
            }
        }
        assert_eq!(fixture.listed(), fixture.expected(), "seed {seed}");
        if seed % 3 > 0 {
            while fixture.read(2) {}
            assert_eq!(fixture.believed, fixture.expected(), "seed {seed}");
            assert!(!fixture.read(2), "nothing is reported twice");
        }
        assert!(!fixture.holdings.is_partial());
        for (object, segment) in fixture.held.clone() {
            fixture.remove(object, segment);
        }
        while fixture.read(100) {}
        assert_eq!(fixture.holdings.memory_bytes(), 0, "seed {seed}");
    }
}

#[test]
fn reverted_change_is_not_reported() {
    let mut fixture = Fixture::new(1 << 20);
    fixture.holdings.begin_generation();
    (0..100).for_each(|segment| fixture.add(1, segment));
    while fixture.read(10) {}
    let mut changes = Vec::new();
    fixture.remove(1, 7);
    fixture.add(1, 7);
    fixture.add(1, 200);
    fixture.remove(1, 200);
    fixture.holdings.take_changes(Tier::Memory, 10, &mut changes);
    assert_eq!(changes, []);
    fixture.remove(1, 63);
    fixture.remove(1, 64);
    fixture.add(1, 100);
    fixture.holdings.take_changes(Tier::Memory, 10, &mut changes);
    let range = |first, last| SegmentRange { first, last };
    let name = "/files/1".parse().unwrap();
    let (added, removed) = (vec![range(100, 100)], vec![range(63, 64)]);
    assert_eq!(changes, [HoldingChange { name, tier: Tier::Memory, added, removed }]);
}

#[test]
fn full_index_starts_new_generation() {
    let bytes_max = 20_000;
    let mut fixture = Fixture::new(bytes_max);
    fixture.holdings.begin_generation();
    while fixture.read(10) {}
    // A window moves over a file while no reader takes changes.
    for segment in 0..100_000 {
        fixture.add(1, segment);
        if let Some(last) = segment.checked_sub(500) {
            fixture.remove(1, last);
        }
        assert!(fixture.holdings.memory_bytes() <= bytes_max);
    }
    assert!(!fixture.holdings.is_partial(), "what is held has room");
    assert_eq!(fixture.listed(), fixture.expected());
    let before = fixture.generation;
    while fixture.read(10) {}
    assert_ne!(fixture.generation, before);
    assert_eq!(fixture.believed, fixture.expected());
}

#[test]
fn full_index_reports_partial_list() {
    let mut fixture = Fixture::new(20_000);
    for object in 0..1_000 {
        fixture.add(object, 0);
        assert!(fixture.holdings.memory_bytes() <= 20_000);
    }
    assert!(fixture.holdings.is_partial());
    let listed = fixture.listed();
    assert!((50..200).contains(&listed.len()), "{}", listed.len());
    assert!(listed.is_subset(&fixture.expected()));
    for object in 0..1_000 {
        fixture.remove(object, 0);
    }
    assert_eq!(fixture.holdings.memory_bytes(), 0);
}

#[test]
fn reports_object_once_named() {
    let mut holdings = Holdings::new(HoldingsConfig::default());
    holdings.begin_generation();
    for object in [1, 2] {
        (0..200).for_each(|segment| holdings.add(object, segment, 100, Vec::new));
    }
    let mut changes = Vec::new();
    while holdings.take_changes(Tier::Disk, 2, &mut changes) {}
    assert_eq!(changes, []);
    (0..200).for_each(|segment| holdings.remove(2, segment, 100));
    holdings.learn_name(1, || name_of(1));
    while holdings.take_changes(Tier::Disk, 100, &mut changes) {}
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].added, [SegmentRange { first: 0, last: 199 }]);
    assert!(!holdings.is_partial());
    holdings.check();
}

#[test]
fn finds_object_by_hash() {
    let mut holdings = Holdings::new(HoldingsConfig::default());
    for segment in 5..80 {
        holdings.add(9, segment, 100, Vec::new);
    }
    assert_eq!(holdings.of(9), [SegmentRange { first: 5, last: 79 }]);
    assert_eq!(holdings.of(8), []);
    assert!(holdings.is_partial(), "its name is not known");
    let mut listed = Vec::new();
    assert_eq!(holdings.list(Tier::Disk, Name::default().as_view(), 0, 10, &mut listed), None);
    assert_eq!(listed, []);
    holdings.add(9, 100, 100, || name_of(9));
    holdings.list(Tier::Disk, Name::default().as_view(), 0, 10, &mut listed);
    assert_eq!(listed[0].ranges.len(), 2);
    assert!(!holdings.is_partial());
}

#[test]
fn reports_full_generation_when_full() {
    let mut fixture = Fixture::new(20_000);
    fixture.holdings.begin_generation();
    let mut objects = 0;
    while !fixture.holdings.is_partial() {
        fixture.add(objects, 0);
        objects += 1;
    }
    fixture.remove(objects - 1, 0);
    while fixture.read(10) {}
    let before = fixture.generation;
    // Whenever one object leaves, another arrives, before the reader takes changes.
    for object in objects..10 * objects {
        fixture.remove(object - objects, 0);
        fixture.add(object, 0);
        fixture.read(2);
        fixture.holdings.check();
        assert!(fixture.holdings.memory_bytes() <= 20_000);
    }
    while fixture.read(10) {}
    assert_eq!(fixture.generation, before, "the generation continues");
    assert_eq!(fixture.believed, fixture.listed());
    let (listed, held) = (fixture.listed().len(), fixture.held.len());
    assert!(listed * 10 > held * 8, "{listed} of {held}");
}

#[test]
fn silent_reader_does_not_fill_index() {
    let mut fixture = Fixture::new(20_000);
    fixture.holdings.begin_generation();
    let mut objects = 0;
    while !fixture.holdings.is_partial() {
        fixture.add(objects, 0);
        objects += 1;
    }
    while fixture.read(10) {}
    // A hundred times the capacity: at most one generation for each eighth of it.
    let before = fixture.holdings.generation();
    for object in objects..100 * objects {
        fixture.remove(object - objects, 0);
        fixture.add(object, 0);
    }
    let begun = u64::from(fixture.holdings.generation() - before);
    assert!((50..=100 * 9).contains(&begun), "{begun}");
    let (listed, held) = (fixture.listed().len(), fixture.held.len());
    assert!(listed * 10 > held * 8, "{listed} of {held}");
    while fixture.read(10) {}
    assert_eq!(fixture.believed, fixture.listed());
}

#[test]
fn retries_missed_when_space_is_free() {
    let mut fixture = Fixture::new(20_000);
    let mut objects = 0;
    while !fixture.holdings.is_partial() {
        fixture.add(objects, 0);
        objects += 1;
    }
    (objects..objects + 10).for_each(|object| fixture.add(object, 0));
    assert!(!fixture.holdings.retry_missed(), "it is full");
    (0..objects / 2).for_each(|object| fixture.remove(object, 0));
    assert!(fixture.holdings.is_partial(), "some are there still");
    assert!(fixture.holdings.retry_missed() && !fixture.holdings.retry_missed());
    for (object, segment) in fixture.held.clone() {
        fixture.add(object, segment);
    }
    assert!(!fixture.holdings.is_partial());
    assert_eq!(fixture.listed(), fixture.expected());
}
