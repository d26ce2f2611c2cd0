//! A store at its working size allocates nothing, for any sequence of insertions and evictions.

use weir_base::{HashKey, Instant, NS_PER_MS, Pool, Rng};
use weir_store::disk::{DiskGeometry, DiskOp, DiskOpKind, DiskOutcome, DiskTierConfig};
use weir_store::{
    EvictionPolicy, Lookup, NameHashes, NewData, Query, Retention, Rule, Rules, SegmentRange,
    Store, StoreConfig,
};
use weir_wire::{Data, DataView, Name, NameView};

const KEY: HashKey = HashKey::new([1, 2]);
const OBJECTS: u32 = 40;
const SEGMENTS: u32 = 50;

fn hashes_at(hashes: &[u64; 8], depth: usize) -> NameHashes {
    NameHashes {
        whole: hashes[depth - 1],
        parent: depth.checked_sub(2).map(|at| hashes[at]),
        grandparent: depth.checked_sub(3).map(|at| hashes[at]),
    }
}

fn hash_all(name: NameView<'_>, hashes: &mut [u64; 8]) -> usize {
    let mut hasher = KEY.hasher();
    let mut count = 0;
    for component in name.components() {
        hasher.write(component.wire);
        hashes[count] = hasher.finish();
        count += 1;
    }
    count
}

struct Workload {
    store: Store,
    pool: Pool,
    rng: Rng,
    packets: Vec<Vec<u8>>,
    now: Instant,
}

impl Workload {
    fn new(policy: EvictionPolicy) -> Self {
        let packets = (0..OBJECTS * SEGMENTS).map(|number| {
            let mut name: Name = format!("/site/{}/data", number / SEGMENTS).parse().unwrap();
            name.append_version(1).append_segment((number % SEGMENTS).into());
            let content = vec![1; 200 + number as usize % 3 * 3_000];
            Data::new(name)
                .freshness_ms(u64::from(number) % 100)
                .content(content)
                .encode_with_digest()
        });
        // Space for about a third of the Data.
        let capacity_bytes = 2_200_000;
        // The mix of sizes drifts. So the pool starts with more blocks of each size than the store
        // can hold at a time.
        let mut pool = Pool::new(128 << 20);
        let packets: Vec<_> = packets.collect();
        let blocks = [0, 1, 2].map(|at| {
            let size = packets[at].len();
            (0..capacity_bytes / size as u64).map(|_| pool.alloc(size)).collect::<Vec<_>>()
        });
        drop(blocks);
        Self {
            store: Store::new(StoreConfig { capacity_bytes, policy, ..StoreConfig::default() }),
            pool,
            rng: Rng::from_seed(3),
            packets,
            now: Instant::ZERO,
        }
    }

    fn step(&mut self) {
        self.now = self.now.plus_ns(NS_PER_MS);
        // The product makes some Data more popular than other Data.
        let at = u64::from(self.rng.below(2_000)) * u64::from(self.rng.below(2_000)) / 2_000;
        let data = DataView::decode(&self.packets[at as usize]).unwrap();
        let mut hashes = [0; 8];
        let count = hash_all(data.name, &mut hashes);
        let can_be_prefix = self.rng.below(10) == 0;
        let depth = if can_be_prefix { count - 2 } else { count };
        let name = data.name.prefix(depth);
        let must_be_fresh = self.rng.below(4) == 0;
        let query = Query { name, hashes: hashes_at(&hashes, depth), can_be_prefix, must_be_fresh };
        if let Lookup::Miss = self.store.lookup(self.now, &query) {
            let prefixes = |path: &mut Vec<u64>| path.extend(&hashes[..count - 1]);
            let hashes = hashes_at(&hashes, count);
            let received = NewData { data: &data, hashes, source: 7 };
            self.store.insert(self.now, received, prefixes, &mut self.pool).unwrap();
        }
        if self.rng.below(1_000) == 0 {
            self.store.erase(data.name.prefix(2), hashes[1], 10);
        }
    }
}

#[test]
fn a_store_at_its_working_size_allocates_nothing() {
    for &policy in EvictionPolicy::ALL {
        let mut workload = Workload::new(policy);
        (0..60_000).for_each(|_| workload.step());
        let before = workload.store.stats();
        let counted = allocation_counter::measure(|| (0..20_000).for_each(|_| workload.step()));
        let after = workload.store.stats();
        assert!(after.evictions > before.evictions + 3_000, "{policy}: evictions were among it");
        assert!(after.hits > before.hits + 3_000, "{policy}: and hits");
        assert!(after.erasures > before.erasures, "{policy}: and erasures");
        assert!(after.refreshes > before.refreshes, "{policy}: and refreshes");
        assert_eq!(counted.count_total, 0, "{policy}: allocations");
    }
}

/// Names with and without segment numbers, many rules for one object, and more objects than the
/// rules cache.
#[test]
fn a_store_under_rules_allocates_nothing() {
    let mut workload = Workload::new(EvictionPolicy::default());
    let names = (0..OBJECTS * SEGMENTS).map(|number| {
        let mut name: Name = format!("/site/{}/data", number / SEGMENTS).parse().unwrap();
        if number % 2 == 0 {
            name.append_version(1).append_segment((number % SEGMENTS).into());
        } else {
            name.append_version(u64::from(number % SEGMENTS));
        }
        Data::new(name).content(vec![1; 500]).encode_with_digest()
    });
    workload.packets = names.collect();
    workload.store.configure(
        workload.now,
        StoreConfig { capacity_bytes: 400_000, ..workload.store.config().clone() },
    );
    let rule = |prefix: &str, first, last, retention| Rule {
        prefix: prefix.parse().unwrap(),
        segments: SegmentRange { first, last },
        retention,
    };
    let mut rules = vec![rule("/", 0, u64::MAX, Retention::Admit)];
    for segment in 0..u64::from(SEGMENTS) {
        let keep = Retention::Keep { bytes_max: 2_000 };
        rules.push(rule("/site/7/data/v=1", segment, segment, keep));
    }
    let hash = |name: NameView<'_>| {
        let mut hashes = [0; 8];
        hash_all(name, &mut hashes).checked_sub(1).map_or(0, |last| hashes[last])
    };
    workload.store.set_rules(Rules { generation: 1, rules }, hash).unwrap();
    (0..60_000).for_each(|_| workload.step());
    let before = workload.store.stats();
    let counted = allocation_counter::measure(|| (0..20_000).for_each(|_| workload.step()));
    let after = workload.store.stats();
    assert!(after.insertions > before.insertions + 3_000 && after.kept_bytes > 5_000);
    assert_eq!(counted.count_total, 0, "allocations");
}

/// Two disks from which nothing is read.
fn with_disks(config: StoreConfig) -> Store {
    let geometry = DiskGeometry {
        data_offset: 4096,
        region_bytes: 1 << 20,
        block_bytes: 4096,
        first: 0,
        stride: 1,
        regions: 64,
        is_writable: true,
    };
    let disks = vec![geometry.clone(), geometry];
    Store::with_disk(config, DiskTierConfig::new(disks, 1, KEY, |_| 0))
}

fn work_off(store: &mut Store, now: Instant) {
    let mut ops: Vec<DiskOp> = Vec::new();
    loop {
        store.handle_timeout(now);
        store.take_disk_ops(now, &mut ops);
        if ops.is_empty() {
            return;
        }
        for op in ops.drain(..) {
            let outcome = match op.kind {
                DiskOpKind::Write { .. } => DiskOutcome::Written,
                DiskOpKind::ReadRaw { len, .. } => DiskOutcome::Raw(vec![0; len as usize]),
                DiskOpKind::ReadRecord { .. } => panic!("no read was begun"),
            };
            store.on_disk_done(now, op.id, outcome);
        }
    }
}

#[test]
fn disk_lookups_allocate_nothing() {
    let mut workload = Workload::new(EvictionPolicy::S3Fifo);
    workload.store = with_disks(workload.store.config().clone());
    work_off(&mut workload.store, workload.now);
    let packets = std::mem::take(&mut workload.packets);
    for packet in &packets {
        let data = DataView::decode(packet).unwrap();
        let mut hashes = [0; 8];
        let count = hash_all(data.name, &mut hashes);
        let prefixes = |path: &mut Vec<u64>| path.extend(&hashes[..count - 1]);
        let received = NewData { data: &data, hashes: hashes_at(&hashes, count), source: 7 };
        workload.store.insert(workload.now, received, prefixes, &mut workload.pool).unwrap();
        workload.now = workload.now.plus_ns(NS_PER_MS);
        work_off(&mut workload.store, workload.now);
    }
    workload.now = workload.now.plus_ns(10 * NS_PER_MS);
    work_off(&mut workload.store, workload.now);
    let mut ask = |name: NameView<'_>| {
        let mut hashes = [0; 8];
        let count = hash_all(name, &mut hashes);
        let hashes = hashes_at(&hashes, count);
        let query = Query { name, hashes, can_be_prefix: false, must_be_fresh: false };
        workload.store.prefetch_filter(name, &hashes);
        workload.store.lookup(workload.now, &query)
    };
    let names: Vec<_> = packets.iter().map(|packet| DataView::decode(packet).unwrap()).collect();
    let mut strange: Name = "/site/7/none".parse().unwrap();
    strange.append_version(1).append_segment(3);
    let (mut hits, mut on_disk, mut misses) = (0, 0, 0);
    let counted = allocation_counter::measure(|| {
        for data in &names {
            match ask(data.name) {
                Lookup::Hit(_) => hits += 1,
                Lookup::OnDisk(_) => on_disk += 1,
                Lookup::Miss => misses += 1,
            }
            misses += u32::from(matches!(ask(strange.as_view()), Lookup::Miss));
        }
    });
    let all = OBJECTS * SEGMENTS;
    assert!(hits > all / 5 && on_disk > all / 2 && hits + on_disk == all, "{hits} {on_disk}");
    assert_eq!(misses, all);
    assert_eq!(counted.count_total, 0, "allocations");
}
