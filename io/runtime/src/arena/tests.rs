use super::*;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use weir_base::{HashKey, Pool};
use weir_store::{NameHashes, NewData, Store, StoreConfig};
use weir_wire::{Data, DataView, Name};

const MIB: u64 = 1 << 20;

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Pages of a span that are in memory, and its total number of pages.
fn pages_in_memory(span: NonNull<u8>, bytes: usize) -> (usize, usize) {
    let mut pages = vec![0_u8; bytes / PAGE_BYTES];
    // SAFETY: the span is mapped, and the vector has one byte for each page.
    let error = unsafe { libc::mincore(span.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
    assert_eq!(error, 0);
    (pages.iter().filter(|&&page| page & 1 == 1).count(), pages.len())
}

#[test]
fn spans_are_disjoint_aligned_zeroed() {
    let (arena, _) = Arena::new(16 * MIB, 0, 1).unwrap();
    let bytes = arena.span_bytes();
    assert_eq!(bytes, 256 << 10);
    // More spans than one mapping holds.
    let count = arena.mapping_bytes / bytes + 2;
    let spans: Vec<_> = (0..count).map(|_| arena.take(1).unwrap()).collect();
    let places: HashSet<_> = spans.iter().map(|span| span.as_ptr() as usize / bytes).collect();
    assert_eq!(places.len(), spans.len());
    for span in spans {
        assert_eq!(span.as_ptr() as usize % bytes, 0);
        // SAFETY: this test owns the span.
        let octets = unsafe { std::slice::from_raw_parts_mut(span.as_ptr(), bytes) };
        assert!(octets.iter().all(|&octet| octet == 0));
        octets.fill(1);
        // SAFETY: taken above and not used again.
        unsafe { arena.give_back(span, 1) };
    }
    assert_eq!(lock(&arena.free_spans).mappings.len(), 2);
    assert!(places.contains(&(arena.take(1).unwrap().as_ptr() as usize / bytes)));
}

/// A memory limit of the process can give the store any size.
#[test]
fn mappings_hold_whole_spans() {
    for bytes in [16 * MIB, 46_918_656, 102_498_817, 1 << 40] {
        let (arena, _) = Arena::new(bytes, 0, 1).unwrap();
        assert_eq!(arena.mapping_bytes % arena.span_bytes(), 0);
        assert!(arena.mapping_bytes <= MAPPING_BYTES_MAX);
        arena.take(1).unwrap();
    }
}

#[test]
fn small_stores_have_no_spans() {
    assert!(Arena::new(8 * MIB, MIB, 1).is_none());
    assert!(Arena::new(64 * MIB, MIB, 8).is_none());
    assert_eq!(Arena::new(1024 * MIB, MIB, 1).unwrap().0.span_bytes(), 2 << 20);
}

#[test]
fn prepares_memory_up_to_capacity() {
    let mut preparer = Preparer::new(16 * MIB, 4 * MIB, 1).unwrap();
    preparer.start();
    let (arena, bytes) = (preparer.arena(), preparer.arena().span_bytes());
    let ready = || arena.ready.load(Ordering::Relaxed) as usize * bytes;
    wait_for("4 MiB ready", || ready() == 4 << 20);
    let mut taken = Vec::new();
    for _ in 0..4 {
        let span = arena.take(1).unwrap();
        let (present, all) = pages_in_memory(span, bytes);
        assert_eq!(present, all);
        taken.push(span);
        wait_for("4 MiB ready again", || ready() == 4 << 20);
    }
    while (taken.len() + 4) * bytes < 16 << 20 {
        taken.push(arena.take(1).unwrap());
    }
    // 1 MiB below the capacity is in use, so only 1 MiB is prepared.
    wait_for("the rest ready", || ready() >= 1 << 20);
    std::thread::sleep(Duration::from_millis(20));
    let in_use = taken.len() * bytes;
    assert!(in_use + ready() <= (16 << 20) + bytes, "{in_use} and {}", ready());
    preparer.set_capacity(64 * MIB);
    wait_for("4 MiB ready with more room", || ready() >= 4 << 20);
}

/// Counts the spans that have pages in memory.
fn spans_in_memory(spans: &[NonNull<u8>], bytes: usize) -> usize {
    spans.iter().filter(|&&span| pages_in_memory(span, bytes).0 > 0).count()
}

#[test]
fn lower_capacity_returns_memory() {
    let mut preparer = Preparer::new(16 * MIB, 4 * MIB, 1).unwrap();
    preparer.start();
    let arena = Arc::clone(preparer.arena());
    let bytes = arena.span_bytes();
    let taken: Vec<_> = (0..48).map(|_| arena.take(1).unwrap()).collect();
    for &span in &taken {
        touch(&Span(span), bytes);
    }
    wait_for("the rest ready", || arena.touched_bytes() >= 16 * MIB);
    // 48 spans are in use and 16 ready. Ready ones are released at once, the others when given
    // back.
    preparer.set_capacity(MIB);
    assert_eq!(arena.touched_bytes(), 48 * bytes as u64);
    for &span in &taken {
        // SAFETY: taken above. Only its pages are inspected afterwards.
        unsafe { arena.give_back(span, 1) };
    }
    let kept = (MIB / bytes as u64 + SPANS_OVER_CAPACITY) as usize;
    assert_eq!(arena.touched_bytes() as usize, kept * bytes);
    assert_eq!(spans_in_memory(&taken, bytes), kept);
    // All spans can be taken again, each once.
    preparer.set_capacity(16 * MIB);
    let again: HashSet<_> = (0..64).map(|_| arena.take(1).unwrap()).collect();
    assert_eq!(again.len(), 64);
    for span in again {
        // SAFETY: this test owns the span.
        unsafe { std::slice::from_raw_parts_mut(span.as_ptr(), bytes) }.fill(1);
    }
}

#[test]
fn entries_reduce_prepared_memory() {
    let mut preparer = Preparer::new(16 * MIB, 16 * MIB, 1).unwrap();
    preparer.start();
    let arena = preparer.arena();
    let (spans, blocks) = (64, 1_000);
    wait_for("all ready", || arena.ready.load(Ordering::Relaxed) == spans);
    // As many spans as fit together with their entries.
    let span_bytes = arena.span_bytes() as u64;
    let fit = 16 * MIB / (span_bytes + u64::from(blocks) * ENTRY_BYTES);
    for _ in 0..fit {
        arena.take(blocks).unwrap();
    }
    let entries_bytes = fit * u64::from(blocks) * ENTRY_BYTES;
    let most_bytes = 16 * MIB - entries_bytes + span_bytes;
    assert!(arena.touched_bytes() <= most_bytes, "{} of {most_bytes}", arena.touched_bytes());
    assert!(fit > spans / 2 && arena.touched_bytes() >= fit * span_bytes);
}

#[test]
fn unchanged_capacity_keeps_memory() {
    let (arena, _) = Arena::new(16 * MIB, 0, 1).unwrap();
    let taken: Vec<_> = (0..80).map(|_| arena.take(1).unwrap()).collect();
    for &span in &taken {
        touch(&Span(span), arena.span_bytes());
        // SAFETY: taken above. Only its pages are inspected afterwards.
        unsafe { arena.give_back(span, 1) };
    }
    assert_eq!(spans_in_memory(&taken, arena.span_bytes()), taken.len());
}

#[test]
fn works_without_preparer_thread() {
    let preparer = Preparer::new(16 * MIB, 4 * MIB, 1).unwrap();
    let span = preparer.arena().take(1).unwrap();
    assert_eq!(pages_in_memory(span, preparer.arena().span_bytes()).0, 0);
}

/// A store on an arena that gets only one mapping from the kernel.
#[test]
fn store_survives_exhausted_memory() {
    let (arena, _) = Arena::new(16 * MIB, 0, 1).unwrap();
    let spans = arena.mapping_bytes / arena.span_bytes();
    // Takes the rest of the first mapping, to be given back later.
    let all: Vec<_> = std::iter::from_fn(|| {
        let is_first = lock(&arena.free_spans).mappings.len() <= 1;
        is_first.then(|| arena.take(1).unwrap())
    })
    .collect();
    arena.note_exhausted();
    lock(&arena.free_spans).untouched.0.clear();
    assert!(arena.take(1).is_none() && all.len() >= spans - 1);
    let config = StoreConfig { capacity_bytes: 16 * MIB, ..StoreConfig::default() };
    let mut store = Store::new(config);
    let mut pool = Pool::with_spans(0, Arc::clone(&arena) as _);
    let key = HashKey::new([1, 2]);
    let mut bytes_most = 0;
    let mut put = |number: u64, content: &[u8], store: &mut Store| {
        let name: Name = format!("/file/{number}").parse().unwrap();
        let data = Data::new(name.clone()).content(content).encode_with_digest();
        let parent = Some(key.hash(name.as_view().parent().value()));
        let whole = key.hash(name.as_view().value());
        let hashes = NameHashes { whole, parent, grandparent: None };
        let view = DataView::decode(&data).unwrap();
        let now = weir_base::Instant::from_ns(1);
        let prefixes = |path: &mut Vec<u64>| path.extend(parent);
        let received = NewData { data: &view, hashes, source: 0 };
        store.insert(now, received, prefixes, &mut pool).unwrap();
        store.stats().bytes
    };
    for number in 0..1_000 {
        bytes_most = bytes_most.max(put(number, &[7; 8_000], &mut store));
    }
    assert!(bytes_most < 20_000, "{bytes_most}");
    // Spans that come back are used, and memory use does not exceed them.
    for &span in &all {
        // SAFETY: taken above and not used again.
        unsafe { arena.give_back(span, 1) };
    }
    let given = (all.len() * arena.span_bytes()) as u64;
    // Large Data, then small Data in their place, then large Data again.
    for (round, len) in [8_000, 700, 8_000].into_iter().enumerate() {
        let mut bytes_most = 0;
        for number in 0..20_000 {
            let number = 20_000 * (1 + round as u64) + number;
            bytes_most = bytes_most.max(put(number, &vec![7; len], &mut store));
            // Keeps the arena from asking the kernel again while spans are available.
            match lock(&arena.free_spans).returned.is_empty() {
                true => arena.note_exhausted(),
                false => arena.exhausted_ms.store(0, Ordering::Relaxed),
            }
        }
        // A span that just came back is filled before the store learns that it was the last.
        let entries = given / len as u64 * ENTRY_BYTES;
        let most = given + entries + 2 * arena.span_bytes() as u64;
        assert!(bytes_most > given / 2 && bytes_most < most, "{len}: {bytes_most}, {given}");
    }
}

#[test]
fn packets_outlive_preparer() {
    let mut preparer = Preparer::new(16 * MIB, MIB, 1).unwrap();
    preparer.start();
    let mut pool = Pool::with_spans(0, Arc::clone(preparer.arena()) as _);
    let packets: Vec<_> = (0..2_000).map(|at| pool.copy(&[at as u8; 8_000])).collect();
    drop(preparer);
    drop(pool);
    for (at, packet) in packets.iter().enumerate() {
        assert!(packet.iter().all(|&octet| octet == at as u8));
    }
}
