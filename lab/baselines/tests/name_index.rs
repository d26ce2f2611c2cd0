//! Compares the ordered index, and decoding for every comparison, with a map of names.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_baselines::stores;
use weir_forward::{
    Command, Event, FaceAttributes, FaceScope, Input, LinkType, Outbox, PitTokens, Router,
    RouterConfig, UnsolicitedPolicy,
};
use weir_plan::{Compare, IndexKind, StoreExperiments};
use weir_store::StoreConfig;
use weir_wire::{Data, DataView, Interest, LpHeader, Name};

const LOCAL: FaceId = FaceId(256);

/// A router that stores every Data.
struct Fixture {
    router: Router,
    now: Instant,
    out: Outbox,
    nonce: u32,
}

impl Fixture {
    fn new(capacity_bytes: u64, index: IndexKind, compare: Compare) -> Self {
        let config = RouterConfig {
            store: StoreConfig { capacity_bytes, ..StoreConfig::default() },
            unsolicited: UnsolicitedPolicy::AdmitAll,
            ..RouterConfig::default()
        };
        let mut router = Router::new(Instant::ZERO, config);
        if let Some(store) = stores::extension(&StoreExperiments { index, compare }, None) {
            assert!(store.extend(&mut router).is_none());
        }
        let now = Instant::from_ns(NS_PER_MS);
        let mut fixture = Self { router, now, out: Outbox::default(), nonce: 0 };
        let (scope, link_type) = (FaceScope::Local, LinkType::PointToPoint);
        let attributes = FaceAttributes { scope, link_type, tokens: PitTokens::Shard, host: None };
        fixture.handle(Input::Command(Command::AddFace { face: LOCAL, attributes }));
        fixture
    }

    fn handle(&mut self, input: Input) {
        self.router.handle(self.now, &mut [input], &mut self.out);
    }

    fn packet(&mut self, wire: Vec<u8>) {
        let (header, packet) = (LpHeader::default(), Packet::from(wire));
        self.handle(Input::Packet { face: LOCAL, header, packet });
    }

    /// The URI of the Data that answers, if any.
    fn ask(&mut self, uri: &str, can_be_prefix: bool, must_be_fresh: bool) -> Option<String> {
        self.out.packets.clear();
        self.nonce += 1;
        let interest = Interest::new(uri.parse().unwrap()).nonce(self.nonce).lifetime_ms(1);
        self.packet(interest.can_be_prefix(can_be_prefix).must_be_fresh(must_be_fresh).encode());
        let answer = self.out.packets.iter().find_map(|out| DataView::decode(&out.packet).ok());
        answer.map(|data| data.name.to_string())
    }

    fn put(&mut self, uri: &str, freshness_ms: u64, size: usize) {
        let data = Data::new(uri.parse().unwrap()).freshness_ms(freshness_ms);
        self.packet(data.content(vec![0; size]).encode_with_digest());
    }

    fn erase(&mut self, uri: &str, limit: usize) -> usize {
        self.out.events.clear();
        let prefix: Name = uri.parse().unwrap();
        self.handle(Input::Command(Command::EraseStore { transaction: 1, prefix, limit }));
        match self.out.events.pop() {
            Some(Event::StoreErased { erased, .. }) => erased,
            other => panic!("{other:?}"),
        }
    }

    /// Expires pending Interests, so that Data is unsolicited.
    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.handle(Input::Wakeup);
    }
}

#[test]
fn ordered_index_returns_first_name_of_prefix() {
    let mut fixture = Fixture::new(1 << 30, IndexKind::Ordered, Compare::Decode);
    for uri in ["/b", "/a/c", "/a/b/2", "/a/b/1", "/a"] {
        fixture.put(uri, 0, 10);
    }
    assert_eq!(fixture.ask("/a", true, false).unwrap(), "/a");
    assert_eq!(fixture.ask("/a/b", true, false).unwrap(), "/a/b/1");
    assert_eq!(fixture.ask("/a/b", false, false), None);
    assert_eq!(fixture.ask("/b", false, false).unwrap(), "/b");
    assert_eq!(fixture.erase("/a/b", 9), 2);
    fixture.pass_ms(10);
    assert_eq!(fixture.ask("/a/b", true, false), None);
}

#[derive(Clone, Debug)]
enum Step {
    Put { name: Vec<u8>, freshness_ms: u64, size: usize },
    Ask { name: Vec<u8>, can_be_prefix: bool, must_be_fresh: bool },
    Erase { name: Vec<u8>, limit: usize },
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || proptest::collection::vec(0..3u8, 1..6);
    let step = prop_oneof![
        8 => (name(), prop_oneof![Just(0), 1..50u64], 0..3_000usize)
            .prop_map(|(name, freshness_ms, size)| Step::Put { name, freshness_ms, size }),
        8 => (name(), any::<bool>(), any::<bool>())
            .prop_map(|(name, can_be_prefix, must_be_fresh)| {
                Step::Ask { name, can_be_prefix, must_be_fresh }
            }),
        1 => (proptest::collection::vec(0..3u8, 0..4), 0..5usize)
            .prop_map(|(name, limit)| Step::Erase { name, limit }),
        2 => (0..40u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..150)
}

fn uri(name: &[u8]) -> String {
    if name.is_empty() { "/".into() } else { name.iter().map(|at| format!("/c{at}")).collect() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The model finds evicted entries by exact lookups.
    #[test]
    fn equals_a_map_of_names(
        steps in steps(),
        capacity_bytes in prop_oneof![Just(1_u64 << 30), 0..40_000_u64],
        is_ordered in any::<bool>(),
        decodes in any::<bool>(),
    ) {
        let index = if is_ordered { IndexKind::Ordered } else { IndexKind::Hash };
        let compare = if decodes { Compare::Decode } else { Compare::Stored };
        let mut fixture = Fixture::new(capacity_bytes, index, compare);
        // The end of freshness, and the arrival time.
        let mut model = BTreeMap::<Vec<u8>, (Instant, Instant)>::new();
        for step in steps {
            // No Interest is pending for the inserted Data.
            fixture.pass_ms(2);
            match step {
                Step::Put { name, freshness_ms, size } => {
                    fixture.put(&uri(&name), freshness_ms, size);
                    let until = fixture.now.plus_ns(freshness_ms * NS_PER_MS);
                    model.insert(name, (until, fixture.now));
                }
                Step::Ask { name, can_be_prefix, must_be_fresh } => {
                    let now = fixture.now;
                    let matching = model.iter().filter(|(other, (until, _))| {
                        (**other == name || can_be_prefix && other.starts_with(&name))
                            && (!must_be_fresh || now < *until)
                    });
                    let best = if is_ordered {
                        matching.min_by_key(|(other, _)| *other)
                    } else {
                        matching.max_by_key(|(other, (_, came))| (**other == name, *came, *other))
                    };
                    let best = best.map(|(other, _)| uri(other));
                    let answer = fixture.ask(&uri(&name), can_be_prefix, must_be_fresh);
                    prop_assert_eq!(answer, best);
                }
                Step::Erase { name, limit } => {
                    let below = model.keys().filter(|other| other.starts_with(&name)).count();
                    let erased = fixture.erase(&uri(&name), limit);
                    prop_assert_eq!(erased, below.min(limit));
                }
                Step::Wait(wait_ms) => fixture.pass_ms(wait_ms),
            }
            let packet = |name: &[u8]| {
                Packet::from(Data::new(uri(name).parse().unwrap()).encode_with_digest())
            };
            model.retain(|name, _| fixture.router.would_find(fixture.now, &packet(name)));
            prop_assert_eq!(fixture.router.stats().store.entries, model.len() as u64);
        }
    }
}
