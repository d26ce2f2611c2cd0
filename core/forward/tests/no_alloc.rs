//! The router allocates nothing for a packet once its tables have grown.

use weir_base::{FaceId, HashKey, Instant, NS_PER_MS, Pool, Rng};
use weir_forward::{
    Command, FaceAttributes, FaceScope, Input, NextHop, Outbox, Router, RouterConfig,
};
use weir_store::StoreConfig;
use weir_wire::{Data, Interest, LpHeader, Name};

const CONSUMER: FaceId = FaceId(256);
const OTHER_CONSUMER: FaceId = FaceId(257);
const PRODUCER: FaceId = FaceId(258);
const NAMES: u32 = 512;

struct Bench {
    router: Router,
    pool: Pool,
    out: Outbox,
    now: Instant,
    inputs: Vec<Input>,
    rng: Rng,
    interests: Vec<Vec<u8>>,
    data: Vec<Vec<u8>>,
}

fn name(index: u32) -> Name {
    format!("/weir/objects/{}/v=1/seg={}", index / 16, index % 16).parse().unwrap()
}

impl Bench {
    /// The store has room for about a quarter of the names, so hits, misses and evictions all
    /// occur.
    fn new() -> Self {
        let config = RouterConfig {
            hash_key: HashKey::new([1, 2]),
            store: StoreConfig { capacity_bytes: 256 << 10, ..StoreConfig::default() },
            ..RouterConfig::default()
        };
        let mut router = Router::new(Instant::ZERO, config);
        let mut inputs: Vec<Input> = [CONSUMER, OTHER_CONSUMER, PRODUCER]
            .map(|face| {
                let attributes = FaceAttributes::point_to_point(FaceScope::NonLocal);
                Input::Command(Command::AddFace { face, attributes })
            })
            .into();
        let next_hops = vec![NextHop { face: PRODUCER, cost: 0 }];
        let prefix = "/weir".parse().unwrap();
        inputs.push(Input::Command(Command::SetNextHops { prefix, next_hops }));
        let mut out = Outbox::default();
        router.handle(Instant::ZERO, &mut inputs, &mut out);
        inputs.clear();
        let interests = (0..NAMES).map(|index| Interest::new(name(index)).nonce(0).encode());
        let data = (0..NAMES)
            .map(|index| Data::new(name(index)).content(vec![7; 1500]).encode_with_digest());
        Self {
            router,
            pool: Pool::new(1 << 20),
            out,
            now: Instant::from_ns(NS_PER_MS),
            inputs,
            rng: Rng::from_seed(5),
            interests: interests.collect(),
            data: data.collect(),
        }
    }

    fn receive(&mut self, face: FaceId, wire: &[u8]) {
        let packet = self.pool.copy(wire);
        self.inputs.push(Input::Packet { face, header: LpHeader::default(), packet });
    }

    /// Two consumers request the same name and the producer answers, in batches.
    fn run_batch(&mut self) {
        for _ in 0..16 {
            let index = self.rng.below(NAMES) as usize;
            for face in [CONSUMER, OTHER_CONSUMER] {
                let mut wire = [0; 100];
                let interest = &self.interests[index];
                let wire = &mut wire[..interest.len()];
                wire.copy_from_slice(interest);
                let nonce_at = wire.len() - 4;
                wire[nonce_at..].copy_from_slice(&self.rng.next_u32().to_be_bytes());
                self.receive(face, wire);
            }
            let data = core::mem::take(&mut self.data[index]);
            self.receive(PRODUCER, &data);
            self.data[index] = data;
        }
        self.now = self.now.plus_ns(NS_PER_MS);
        self.router.handle(self.now, &mut self.inputs, &mut self.out);
        self.inputs.clear();
        self.out.packets.clear();
    }
}

#[test]
fn packets_are_handled_without_allocation() {
    let mut bench = Bench::new();
    for _ in 0..20_000 {
        bench.run_batch();
    }
    let before = bench.router.stats();
    let counted = allocation_counter::measure(|| {
        for _ in 0..5000 {
            bench.run_batch();
        }
    });
    let after = bench.router.stats();
    assert!(after.store.hits > before.store.hits + 1000, "hits were among them");
    assert!(after.satisfied > before.satisfied + 10_000, "and exchanges");
    assert!(after.store.evictions > before.store.evictions + 10_000, "and evictions");
    assert!(after.aggregated > before.aggregated + 10_000, "and aggregation");
    assert_eq!(counted.count_total, 0, "allocations in 240,000 packets");
}
