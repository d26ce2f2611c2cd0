use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

impl Table {
    /// Asserts that every entry is found from its home line, and that slots in use come first.
    fn check(&self) {
        let mut entries = 0;
        for (at, line) in self.lines.iter().enumerate() {
            let used = line.used();
            assert!(line.indexes[used..].iter().all(|&index| index == NONE));
            entries += used;
            for &tag in &line.tags[..used] {
                let mut between = self.home_line(tag);
                while between != at {
                    assert!(self.lines[between].is_full(), "a gap before an entry");
                    between = self.next_line(between);
                }
            }
        }
        assert_eq!(entries, self.len);
    }

    fn candidates(&self, hash: u64) -> Vec<u32> {
        let mut found = Vec::new();
        self.for_each_candidate(hash, |index| found.push(index));
        found.sort_unstable();
        found
    }
}

#[test]
fn capacity_is_held_without_growth() {
    for entries in [0, 1, 6, 7, 12, 13, 100, 1_000] {
        let mut table = Table::with_capacity(entries);
        let memory = table.memory_bytes();
        for index in 0..entries as u32 {
            table.insert(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15), index);
        }
        assert_eq!(table.memory_bytes(), memory);
        table.check();
    }
}

#[test]
fn find_asks_only_for_equal_tags() {
    let mut table = Table::with_capacity(100);
    table.insert(5 << 32, 1);
    table.insert(5 << 32, 2);
    table.insert(6 << 32, 3);
    table.prefetch(5 << 32);
    assert_eq!(table.find(5 << 32, |index| index == 2), Some(2));
    assert_eq!(table.find(5 << 32, |index| index == 3), None);
    assert_eq!(table.find(7 << 32, |_| true), None);
    assert_eq!(table.find(0, |_| true), None);
    assert!(!table.remove(0, NONE));
    table.clear();
    assert!(table.is_empty() && table.find(5 << 32, |_| true).is_none());
}

#[test]
fn many_of_one_hash_wrap_around_the_end() {
    let mut table = Table::with_capacity(200);
    let hash = u64::MAX;
    for index in 0..100 {
        table.insert(hash, index);
        table.insert(u64::from(index), index);
    }
    table.check();
    assert_eq!(table.candidates(hash), (0..100).collect::<Vec<_>>());
    for index in (0..100).step_by(3) {
        assert!(table.remove(hash, index));
        assert!(!table.remove(hash, index));
        table.check();
    }
    assert_eq!(table.candidates(hash), (0..100).filter(|index| index % 3 != 0).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u32),
    Remove(u64, u32),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few tags, close together at both ends of the range, so that runs of full lines form, wrap and
    // move.
    let hash = prop_oneof![
        (0..4u64).prop_map(|tag| tag << 32),
        (0..4u64).prop_map(|tag| (u64::from(u32::MAX) - tag) << 32),
        (0..64u64).prop_map(|tag| tag << 58),
        any::<u64>(),
    ];
    let step = (0..100u8, hash, 0..20u32).prop_map(|(kind, hash, index)| match kind {
        0 => Step::Clear,
        1..60 => Step::Insert(hash, index),
        _ => Step::Remove(hash, index),
    });
    proptest::collection::vec(step, 0..if cfg!(miri) { 60 } else { 400 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    #[test]
    fn equals_a_multimap(steps in steps()) {
        let mut table = Table::with_capacity(0);
        let mut model = BTreeMap::<u32, Vec<u32>>::new();
        for step in steps {
            match step {
                Step::Insert(hash, index) => {
                    table.insert(hash, index);
                    model.entry(Table::tag(hash)).or_default().push(index);
                }
                Step::Remove(hash, index) => {
                    let indices = model.entry(Table::tag(hash)).or_default();
                    let at = indices.iter().position(|&other| other == index);
                    prop_assert_eq!(table.remove(hash, index), at.is_some());
                    at.map(|at| indices.remove(at));
                }
                Step::Clear => {
                    table.clear();
                    model.clear();
                }
            }
            table.check();
        }
        prop_assert_eq!(table.len(), model.values().map(Vec::len).sum::<usize>());
        for (&tag, indices) in &mut model {
            indices.sort_unstable();
            prop_assert_eq!(&table.candidates(u64::from(tag) << 32), indices);
        }
    }
}

#[test]
fn growth_is_foretold() {
    let mut table = Table::with_capacity(0);
    for index in 0..2_000 {
        let before = table.memory_bytes();
        let growth = table.growth_bytes(1);
        table.insert(crate::mix(index), index as u32);
        match table.memory_bytes() == before {
            true => assert_eq!(growth, 0),
            false => assert_eq!(growth, table.memory_bytes()),
        }
    }
    let all = table.growth_bytes(10_000);
    (2_000..12_000).for_each(|index| table.insert(crate::mix(index), index as u32));
    assert_eq!(all, table.memory_bytes());
}
