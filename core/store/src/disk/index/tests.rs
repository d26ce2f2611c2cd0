use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_base::{Rng, mix};

const ALL: usize = usize::MAX;

/// A name: its components, each reduced to a number.
type Path = Vec<u8>;

fn address(number: u64) -> RecordAddress {
    RecordAddress::new((number % 16) as u8, number, (number % 251) as u8, (number % 256) as u8)
}

/// Different names have different hashes.
fn hash(path: &[u8]) -> u64 {
    path.iter().fold(1, |hash, &component| mix(hash ^ u64::from(component) << 32))
}

/// Few hashes for all names, so that names share them in every way.
fn poor_hash(path: &[u8]) -> u64 {
    mix(hash(path) % 5)
}

type HashOf = fn(&[u8]) -> u64;

fn insert(
    index: &mut DiskIndex,
    hash_of: HashOf,
    path: &[u8],
    segment: u64,
    address: RecordAddress,
) -> Option<RecordAddress> {
    index.insert(Key { object: hash_of(path), segment }, address, |prefixes| {
        prefixes.extend((1..path.len()).map(|len| hash_of(&path[..len])));
    })
}

fn whole_order(key: &Key) -> u64 {
    key.segment.wrapping_add(1)
}

/// All Data at or below a prefix, in the order of lookups.
fn all_below(index: &DiskIndex, prefix: Option<u64>) -> Vec<(Key, RecordAddress)> {
    let mut found = Vec::new();
    let none = index.below(prefix, ALL, |key, address| {
        found.push((key, address));
        false
    });
    assert!(none.is_none());
    found
}

/// Asserts that every node has Data or a child, and that every node in the table is reachable.
fn check_nodes(index: &DiskIndex) {
    let mut reached = 0;
    let mut open = vec![ROOT];
    while let Some(at) = open.pop() {
        let node = index.nodes.get(at);
        let mut child = node.first_child;
        assert!(at == ROOT || node.content != 0 || child != NONE, "node {at} leads nowhere");
        assert!(at == ROOT || index.nodes.find(node.hash) == Some(at));
        while child != NONE {
            assert_eq!(index.nodes.get(child).parent, at);
            reached += 1;
            open.push(child);
            child = index.nodes.get(child).next;
        }
    }
    assert_eq!(reached, index.prefixes());
}

use std::vec;

fn segment_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..4,
        4 => 0u64..300,
        2 => (0u64..20).prop_map(|number| number * 64),
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => (1u64..70).prop_map(|number| u64::MAX - number),
        3 => Just(WHOLE),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Path, u64, u64),
    Remove(usize),
    RemoveElsewhere(usize),
    Erase(Path, usize),
    Sweep(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || vec(0u8..3, 0..5);
    prop_oneof![
        12 => (path(), segment_number(), 0u64..1 << 36)
            .prop_map(|(path, segment, number)| Step::Insert(path, segment, number)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::RemoveElsewhere),
        1 => (path(), 0usize..20).prop_map(|(path, limit)| Step::Erase(path, limit)),
        1 => (0usize..60, any::<u64>()).prop_map(|(steps, salt)| Step::Sweep(steps, salt)),
    ]
}

#[derive(Default)]
struct Model {
    index: DiskIndex,
    addresses: BTreeMap<Key, RecordAddress>,
    /// The names of each object. Several names may share a hash.
    paths: BTreeMap<u64, BTreeSet<Path>>,
}

impl Model {
    fn nth(&self, at: usize) -> Option<(Key, RecordAddress)> {
        let at = at % self.addresses.len().max(1);
        self.addresses.iter().nth(at).map(|(&key, &address)| (key, address))
    }

    fn is_below(&self, key: Key, prefix: &[u8]) -> bool {
        self.paths[&key.object].iter().any(|path| path.starts_with(prefix))
    }

    fn apply(&mut self, step: Step, hash_of: HashOf, is_injective: bool) {
        match step {
            Step::Insert(path, segment, number) => {
                let key = Key { object: hash_of(&path), segment };
                let growth = self.index.growth_bytes(key, path.len().saturating_sub(1));
                let mut before = None;
                let info = allocation_counter::measure(|| {
                    before = insert(&mut self.index, hash_of, &path, segment, address(number));
                });
                assert!(info.bytes_max as usize <= growth, "{} over {growth}", info.bytes_max);
                assert_eq!(before, self.addresses.insert(key, address(number)));
                self.paths.entry(key.object).or_default().insert(path);
            }
            Step::Remove(at) => {
                let Some((key, address)) = self.nth(at) else { return };
                assert!(self.index.remove(key, address));
                assert!(!self.index.remove(key, address));
                self.addresses.remove(&key);
            }
            Step::RemoveElsewhere(at) => {
                let Some((key, at)) = self.nth(at) else { return };
                assert!(!self.index.remove(key, address(at.offset_sectors() ^ 1)));
            }
            Step::Erase(path, limit) => {
                let mut erased = Vec::new();
                let prefix = (!path.is_empty()).then(|| hash_of(&path));
                let count = self
                    .index
                    .erase_below(prefix, limit, |key, address| erased.push((key, address)));
                assert_eq!(count, erased.len());
                for (key, address) in erased {
                    assert_eq!(self.addresses.remove(&key), Some(address));
                    assert!(!is_injective || self.is_below(key, &path));
                }
                if is_injective && count < limit {
                    assert!(!self.addresses.keys().any(|&key| self.is_below(key, &path)));
                }
            }
            Step::Sweep(steps, salt) => {
                let mut removed = 0;
                let addresses = &mut self.addresses;
                let swept = self.index.sweep(steps, |key, address| {
                    assert_eq!(addresses.get(&key), Some(&address));
                    let keep = !mix(salt ^ address.offset_sectors()).is_multiple_of(4);
                    if !keep {
                        addresses.remove(&key);
                        removed += 1;
                    }
                    keep
                });
                assert_eq!(swept, removed);
            }
        }
    }

    fn check(&self) {
        check_nodes(&self.index);
        assert_eq!(self.index.len(), self.addresses.len());
        for (&key, &address) in &self.addresses {
            assert_eq!(self.index.find(key), Some(address));
            let neighbour = Key { segment: key.segment ^ 1, ..key };
            assert_eq!(self.index.find(neighbour), self.addresses.get(&neighbour).copied());
        }
        assert!(
            all_below(&self.index, None).into_iter().collect::<BTreeMap<_, _>>() == self.addresses
        );
    }

    /// Checks the result of a lookup for every prefix, if no two names share a hash.
    fn check_prefixes(&self) {
        for len in 0..4 {
            for code in 0..3usize.pow(len) {
                let prefix: Path = (0..len).map(|at| (code / 3usize.pow(at) % 3) as u8).collect();
                let found = all_below(&self.index, (len > 0).then(|| hash(&prefix)));
                let expected: BTreeMap<Key, RecordAddress> = self
                    .addresses
                    .iter()
                    .filter(|(key, _)| self.is_below(**key, &prefix))
                    .map(|(&key, &address)| (key, address))
                    .collect();
                assert_eq!(found.len(), expected.len());
                for pair in found.windows(2) {
                    let [(before, _), (after, _)] = pair else { unreachable!() };
                    let is_next_object = before.object != after.object;
                    assert!(is_next_object || whole_order(before) < whole_order(after));
                }
                assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
            }
        }
    }
}

#[test]
fn path_may_repeat_a_hash() {
    let mut model = Model::default();
    model.apply(Step::Insert(std::vec![1, 0, 0, 0], 0, 0), poor_hash, false);
    check_nodes(&model.index);
    model.check();
    assert_eq!(model.index.erase_below(None, ALL, |_, _| ()), 1);
    assert_eq!((model.index.len(), model.index.prefixes()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn equals_a_map_with_prefixes(steps in vec(step(), 0..200)) {
        let mut model = Model::default();
        for step in steps {
            model.apply(step, hash, true);
        }
        model.check();
        model.check_prefixes();
    }

    #[test]
    fn colliding_hashes_keep_tree_valid(steps in vec(step(), 0..200)) {
        let mut model = Model::default();
        for step in steps {
            model.apply(step, poor_hash, false);
            check_nodes(&model.index);
        }
        model.check();
        let all = model.index.len();
        prop_assert_eq!(model.index.erase_below(None, ALL, |_, _| ()), all);
        prop_assert_eq!((model.index.len(), model.index.prefixes()), (0, 0));
    }

    #[test]
    fn segments_equal_an_ordered_map(
        steps in vec((any::<bool>(), segment_number(), 1u64..1 << 30), 0..600),
    ) {
        let mut segments = Segments::new();
        let mut model = BTreeMap::new();
        let mut object = EMPTY;
        for (is_insertion, segment, number) in steps {
            if segment == WHOLE {
                let from = number % 400;
                let expected = model.range(from..).next().map(|(&at, &address)| (at, address));
                prop_assert_eq!(segments.first_from(object, from), expected);
                continue;
            }
            let before;
            if is_insertion {
                (object, before) = segments.insert(object, segment, address(number));
                prop_assert_eq!(before, model.insert(segment, address(number)));
            } else {
                (object, before) = segments.remove(object, segment, number % 2 == 0);
                prop_assert_eq!(before, model.remove(&segment));
            }
            prop_assert_eq!(object == EMPTY, model.is_empty());
        }
        let mut from = 0;
        for (&segment, &address) in &model {
            prop_assert_eq!(segments.find(object, segment), Some(address));
            prop_assert_eq!(segments.first_from(object, from), Some((segment, address)));
            from = segment + 1;
        }
        prop_assert_eq!(segments.first_from(object, from), None);
    }
}

#[test]
fn address_round_trips() {
    for (disk, offset, sectors, generation) in
        [(0, 0, 0, 0), (15, (1 << 36) - 1, 255, 255), (3, 1 << 35, 17, 200)]
    {
        let address = RecordAddress::new(disk, offset, sectors, generation);
        assert_eq!(address.disk(), disk);
        assert_eq!(address.offset_sectors(), offset);
        assert_eq!(address.sectors(), sectors);
        assert_eq!(address.generation(), generation);
        assert_eq!(RecordAddress::from_word(address.to_word()), Some(address));
    }
    assert_eq!(size_of::<Option<RecordAddress>>(), 8);
    assert_eq!(RecordAddress::from_word(0), None);
}

#[test]
fn prefix_lookup_takes_newest_child() {
    let mut index = DiskIndex::new();
    for (path, segment) in [(&[1, 1][..], 5), (&[1, 2], WHOLE), (&[1, 2], 3), (&[1, 3], 9)] {
        insert(&mut index, hash, path, segment, address(segment & 0xFF));
    }
    let order: Vec<(u64, u64)> = all_below(&index, Some(hash(&[1])))
        .into_iter()
        .map(|(key, _)| (key.object, key.segment))
        .collect();
    let [one, two, three] = [[1, 1], [1, 2], [1, 3]].map(|path| hash(&path));
    assert_eq!(order, [(three, 9), (two, WHOLE), (two, 3), (one, 5)]);
    let first = |visits| index.below(None, visits, |_, _| true);
    assert!(first(2).is_none());
    assert_eq!(first(3).unwrap().0, Key { object: three, segment: 9 });
    assert!(index.below(Some(hash(&[7])), ALL, |_, _| true).is_none());
}

#[test]
fn path_is_computed_for_new_objects_only() {
    let mut index = DiskIndex::new();
    let mut calls = 0;
    for segment in 0..100 {
        index.insert(Key { object: 77, segment }, address(segment), |_| calls += 1);
    }
    assert_eq!((calls, index.prefixes()), (1, 1));
}

#[test]
fn sweep_visits_every_stable_entry() {
    let mut index = DiskIndex::new();
    let mut rng = Rng::from_seed(4);
    let lasting: BTreeSet<Key> = (0..500u64)
        .map(|number| {
            let path = [number as u8 % 7, number as u8 % 5];
            insert(&mut index, hash, &path, 1000 + number, address(number));
            Key { object: hash(&path), segment: 1000 + number }
        })
        .collect();
    let mut seen = BTreeSet::new();
    let mut passing = Vec::new();
    for _ in 0..2 {
        // Insertions and removals during the round prolong it. Each call counts them.
        let mut steps = index.round_steps() * 2;
        while steps > 0 {
            index.sweep(1, |key, _| {
                seen.insert(key);
                true
            });
            steps -= 1;
            let path = [rng.below(9) as u8, rng.below(9) as u8, rng.below(3) as u8];
            let segment = u64::from(rng.below(900));
            insert(&mut index, hash, &path, segment, address(segment));
            passing.push((Key { object: hash(&path), segment }, address(segment)));
            if passing.len() > 5 {
                let (key, address) = passing.swap_remove(rng.below(5) as usize);
                index.remove(key, address);
            }
        }
        assert!(lasting.is_subset(&seen));
        seen.clear();
    }
}

#[test]
fn sweep_visits_each_entry_once() {
    let mut index = DiskIndex::new();
    for number in 0..2_000u64 {
        insert(&mut index, hash, &[(number % 50) as u8, 1], number / 50, address(number));
    }
    let mut seen = BTreeMap::new();
    let steps = index.round_steps();
    index.sweep(steps, |key, _| {
        *seen.entry(key).or_insert(0) += 1;
        true
    });
    assert_eq!(seen.len(), 2_000);
    let removed = index.sweep(2 * steps, |key, _| key.segment % 2 == 0);
    assert_eq!((removed, index.len()), (1_000, 1_000));
    check_nodes(&index);
}

#[test]
fn memory_bytes_is_exact() {
    let mut index = DiskIndex::new();
    let empty = allocation_counter::measure(|| drop(DiskIndex::new())).bytes_max;
    let mut rng = Rng::from_seed(9);
    let mut keys = Vec::with_capacity(20_000);
    let mut held = empty as i64;
    for round in 0..4u8 {
        let info = allocation_counter::measure(|| {
            for number in 0..5_000 {
                let path = [round, (number / 500) as u8, 3];
                let segment = u64::from(rng.below(1_000)) * u64::from(rng.below(3));
                if insert(&mut index, hash, &path, segment, address(number)).is_none() {
                    keys.push(Key { object: hash(&path), segment });
                }
            }
        });
        held += info.bytes_current;
        assert_eq!(index.memory_bytes() - size_of::<DiskIndex>(), held as usize);
    }
    let info = allocation_counter::measure(|| {
        for key in keys {
            let address = index.find(key).unwrap();
            assert!(index.remove(key, address));
        }
    });
    // The list of keys is freed as well.
    held += info.bytes_current + 20_000 * size_of::<Key>() as i64;
    assert_eq!(index.memory_bytes() - size_of::<DiskIndex>(), held as usize);
    assert!(index.is_empty());
    assert_eq!(index.segments.cells().page_count(), 1);
}

/// Objects with some segments each, in random order, until many are refused. Then most of them are
/// removed and others inserted.
#[test]
fn memory_stays_within_limit() {
    let bytes_max = 600_000;
    let mut index = DiskIndex::with_bytes_max(bytes_max);
    let mut rng = Rng::from_seed(21);
    let mut keys: Vec<(Key, RecordAddress)> = Vec::new();
    let mut counts = Vec::new();
    for round in 0..6u8 {
        let mut refused = 0;
        let mut number = 0;
        while refused < 2_000 {
            number += 1;
            let path = [round, rng.below(if round % 2 == 0 { 40 } else { 255 }) as u8, 1];
            let segment = [u64::from(rng.below(4_000)), u64::from(rng.below(64)), WHOLE]
                [rng.below(12).saturating_sub(9) as usize];
            let key = Key { object: hash(&path), segment };
            if !index.has_room_for(key, 2) {
                refused += 1;
                continue;
            }
            let before = index.memory_bytes();
            let info = allocation_counter::measure(|| {
                if insert(&mut index, hash, &path, segment, address(number)).is_some() {
                    keys.retain(|&(other, _)| other != key);
                }
            });
            assert!(before + info.bytes_max as usize <= bytes_max, "{before}, {info:?}");
            assert!(index.memory_bytes() <= bytes_max);
            keys.push((key, address(number)));
        }
        counts.push(index.len());
        assert_eq!(index.len(), keys.len());
        assert!(index.memory_bytes() > bytes_max / 2);
        // In this order, many cells shrink at the same time.
        for step in (0..keys.len() * 9 / 10).rev() {
            let (key, address) = keys.swap_remove(rng.below(step as u32 + 1) as usize);
            assert!(index.remove(key, address));
            assert!(index.memory_bytes() <= bytes_max);
        }
        index.sweep(2 * index.round_steps(), |_, _| true);
        check_nodes(&index);
    }
    assert!(counts.iter().all(|&count| count > 5_000), "{counts:?}");
    for &(key, address) in &keys {
        assert_eq!(index.find(key), Some(address));
    }
    assert_eq!(index.erase_below(None, ALL, |_, _| ()), keys.len());
}

/// 8.4 bytes a segment, 8.25 of them in the cell of 64.
#[test]
fn sequential_segments_cost_nine_bytes() {
    let mut index = DiskIndex::new();
    for segment in 0..1 << 20 {
        insert(&mut index, hash, &[1, 2, 3], segment, address(segment));
    }
    let per_segment = index.memory_bytes() as f64 / f64::from(1 << 20);
    assert!((8.375..8.55).contains(&per_segment), "{per_segment}");
}

/// In random order, most cells leave smaller ones behind all over memory.
#[test]
fn sweep_compacts_cells() {
    let mut index = DiskIndex::new();
    let count = 440 * 200_u64;
    let key = |number: u64| ([(number / 440) as u8, 1], number % 440);
    let mut order: Vec<u64> = (0..count).collect();
    order.sort_by_key(|&number| mix(number + 1));
    for number in order {
        let (path, segment) = key(number);
        insert(&mut index, hash, &path, segment, address(number));
    }
    let scattered = index.memory_bytes();
    index.sweep(2 * index.round_steps(), |_, _| true);
    let gathered = index.memory_bytes();
    assert!(
        gathered < count as usize * 11 && gathered * 5 < scattered * 4,
        "{scattered}, {gathered}"
    );
    for number in 0..count {
        let (path, segment) = key(number);
        assert_eq!(index.find(Key { object: hash(&path), segment }), Some(address(number)));
    }
    let addresses = index.erase_below(None, ALL, |_, _| ());
    assert_eq!((addresses as u64, index.segments.cells().page_count()), (count, 1));
}
