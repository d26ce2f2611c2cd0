use super::*;
use alloc::format;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    objects_max: 100,
    unregistered_max: 100,
    bytes_max: 1 << 20,
    total_bytes_max: 1 << 20,
    content_bytes_max: [1 << 40, 1 << 40],
};

/// One of two objects, each in several versions.
fn name(number: u8) -> Name {
    format!("/o/{}/v={number}", number % 2).parse().unwrap()
}

fn file(number: u8) -> File {
    File {
        name: name(number),
        segments: 30,
        size_bytes: 30 * 1000,
        packet_bytes: 1200,
        manifest: Vec::new(),
    }
}

fn change(number: u8, added: Segments, removed: Segments) -> Change {
    Change { object: name(number), tier: Tier::Memory, added, removed }
}

impl Objects {
    /// Checks that the accounts match the holdings.
    fn check(&self) {
        let mut accounts: BTreeMap<RouterId, (BTreeSet<ObjectId>, usize, u64, u64)> =
            BTreeMap::new();
        for (id, object) in self.all.iter().enumerate() {
            let Some(object) = object else { continue };
            assert_eq!(self.by_name[object.name()], id as ObjectId);
            assert!(object.file().is_some() || !object.holders.is_empty());
            for held in &object.holders {
                assert!(!held.segments.is_empty());
                let account = accounts.entry(held.router).or_default();
                let is_first = account.0.insert(id as ObjectId);
                account.2 += entry_bytes(&held.segments);
                match object.file() {
                    Some(file) => account.3 += content_bytes_each(file) * held.segments.count(),
                    None if is_first => {
                        account.1 += 1;
                        account.2 += unregistered_bytes(object.name());
                    }
                    None => {}
                }
            }
        }
        for (router, account) in &self.accounts {
            let (objects, unregistered, bytes, content) =
                accounts.remove(router).unwrap_or_default();
            assert_eq!(account.objects, objects);
            assert_eq!((account.unregistered, account.bytes), (unregistered, bytes));
            assert_eq!(account.content_bytes, [content, 0]);
        }
        assert!(accounts.is_empty());
        assert_eq!(self.total_bytes, self.accounts.values().map(|one| one.bytes).sum::<u64>());
        assert_eq!(self.files_count, self.files().count());
        assert_eq!(self.all.len(), self.by_name.len() + self.free.len());
        self.check_versions();
    }

    /// Checks that older and newer versions are the same as in a search of all files.
    fn check_versions(&self) {
        let place = |file: &File| {
            let view = file.name.as_view();
            let version = view.last().and_then(|last| last.as_version()).unwrap();
            (self.owner(&file.name).unwrap(), view.parent().to_name(), version)
        };
        for file in self.files() {
            let (owner, object, version) = place(file);
            let is_of_it = |other: &&File| {
                let (of, at, _) = place(other);
                (of, &at) == (owner, &object)
            };
            let others = || self.files().filter(is_of_it);
            let newer = others().filter(|other| place(other).2 > version);
            let older = others().filter(|other| place(other).2 < version);
            assert_eq!(self.newer_version(&file.name), newer.max_by_key(|other| place(other).2));
            assert_eq!(self.previous_version(&file.name), older.max_by_key(|other| place(other).2));
        }
        assert_eq!(self.versions.len(), self.files_count);
    }
}

proptest! {
    #[test]
    fn accounts_match_holdings(
        steps in proptest::collection::vec(
            (0_u8..8, 0_u32..3, 0_u8..6, 0_u64..40, 0_u64..9),
            0..60,
        ),
    ) {
        let mut objects = Objects::default();
        for (what, router, object, first, more) in steps {
            let range = Segments::range(first, first + more);
            match what {
                0 => {
                    let owner = ["producer p", "producer q"][router as usize % 2];
                    objects.add_file(owner, file(object));
                }
                1 => drop(objects.remove_file(&name(object))),
                2 => objects.forget(router, |_| {}),
                3 | 4 => {
                    let change = change(object, Segments::default(), range);
                    objects.apply(router, &LIMITS, change);
                }
                _ => {
                    let change = change(object, range, Segments::default());
                    let applied = objects.apply(router, &LIMITS, change);
                    let is_beyond = objects.file(&name(object)).is_some() && first + more >= 30;
                    prop_assert_eq!(!applied.refused.is_empty(), is_beyond);
                }
            }
            objects.check();
        }
    }
}

/// Routers report only changes: they report nothing when a file is registered again.
#[test]
fn keeps_holdings_of_reregistered_file() {
    let mut objects = Objects::default();
    objects.add_file("producer p", file(0));
    let held = Segments::range(3, 9);
    objects.apply(1, &LIMITS, change(0, held.clone(), Segments::default()));
    assert!(objects.remove_file(&name(0)));
    assert!(objects.file(&name(0)).is_none() && !objects.remove_file(&name(0)));
    objects.check();
    objects.add_file("producer p", file(0));
    objects.check();
    assert_eq!(objects.holdings_of(1, &name(0)), held);
}

#[test]
fn rejects_holdings_beyond_limits() {
    let refused = |limits: &Limits, routers: &[RouterId]| -> Vec<LimitKind> {
        let mut objects = Objects::default();
        objects.add_file("producer p", file(0));
        let mut refused = BTreeSet::new();
        for &router in routers {
            for number in 0..10 {
                let change = change(number, Segments::range(0, 9), Segments::default());
                let applied = objects.apply(router, limits, change);
                refused.extend(applied.refused.into_iter().map(|(bound, _)| bound));
                objects.check();
            }
        }
        refused.into_iter().collect()
    };
    assert_eq!(refused(&LIMITS, &[1, 2]), []);
    let with = |change: fn(&mut Limits)| {
        let mut limits = LIMITS;
        change(&mut limits);
        limits
    };
    assert_eq!(refused(&with(|one| one.objects_max = 9), &[1]), [LimitKind::Objects]);
    assert_eq!(refused(&with(|one| one.objects_max = 10), &[1]), []);
    assert_eq!(refused(&with(|one| one.unregistered_max = 8), &[1]), [LimitKind::Unregistered]);
    assert_eq!(refused(&with(|one| one.unregistered_max = 9), &[1]), []);
    assert_eq!(refused(&with(|one| one.bytes_max = 1000), &[1]), [LimitKind::Memory]);
    assert_eq!(refused(&with(|one| one.total_bytes_max = 4000), &[1]), []);
    assert_eq!(refused(&with(|one| one.total_bytes_max = 4000), &[1, 2]), [LimitKind::Memory]);
    let small = with(|one| one.content_bytes_max = [9_999, 0]);
    assert_eq!(refused(&small, &[1]), [LimitKind::BeyondStore]);
    assert_eq!(refused(&with(|one| one.content_bytes_max = [10_000, 0]), &[1]), []);
}
