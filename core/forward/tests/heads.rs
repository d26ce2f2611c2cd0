//! Packets with a common prefix are looked up together. The result is the same as for single
//! packets.

use weir_base::{FaceId, HashKey, Instant, NS_PER_MS, Packet, Rng};
use weir_forward::{
    Command, FaceAttributes, FaceScope, Input, NextHop, Outbox, Router, RouterConfig,
};
use weir_store::StoreConfig;
use weir_wire::{Component, Data, DataView, Interest, LpHeader, Name};

const CONSUMERS: [FaceId; 2] = [FaceId(1), FaceId(2)];
/// The producers of [`PREFIXES`], in the same order.
const PRODUCERS: [FaceId; 4] = [FaceId(3), FaceId(4), FaceId(5), FaceId(6)];
/// Shorter than the common prefix of names, as long, and as long as names themselves.
const PREFIXES: [&str; 4] =
    ["/object-a", "/object-a/directory", "/object-b/directory", "/object-a/directory/seg=3"];

fn command(prefix: &str, producer: FaceId) -> Input {
    let next_hops = vec![NextHop { face: producer, cost: 1 }];
    Input::Command(Command::SetNextHops { prefix: prefix.parse().unwrap(), next_hops })
}

struct Fixture {
    router: Router,
    out: Outbox,
}

impl Fixture {
    fn new() -> Self {
        let config = RouterConfig {
            hash_key: HashKey::new([1, 2]),
            store: StoreConfig { capacity_bytes: 12_000, ..StoreConfig::default() },
            ..RouterConfig::default()
        };
        let mut fixture =
            Self { router: Router::new(Instant::ZERO, config), out: Outbox::default() };
        for face in CONSUMERS.into_iter().chain(PRODUCERS) {
            let attributes = FaceAttributes::point_to_point(FaceScope::Local);
            fixture
                .handle(Instant::ZERO, vec![Input::Command(Command::AddFace { face, attributes })]);
        }
        for (prefix, producer) in PREFIXES.into_iter().zip(PRODUCERS).take(3) {
            fixture.handle(Instant::ZERO, vec![command(prefix, producer)]);
        }
        fixture
    }

    fn handle(&mut self, now: Instant, mut inputs: Vec<Input>) {
        self.router.handle(now, &mut inputs, &mut self.out);
    }

    fn take(&mut self) -> String {
        let packets = self.out.packets.drain(..);
        let told = packets.map(|out| format!("{:?} {:?} {:?}", out.face, out.header, &*out.packet));
        told.collect::<Vec<_>>().join("\n")
    }
}

fn random_name(rng: &mut Rng) -> Name {
    let object = ["/object-a/directory", "/object-b/directory", "/object-a/directorx", "/short"];
    let object = object[[0, 0, 0, 1, 1, 2, 3][rng.below(7) as usize]];
    match rng.below(8) {
        0 => object.parse().unwrap(),
        1 => format!("{object}/seg={}/of/it", rng.below(4)).parse().unwrap(),
        _ => format!("{object}/seg={}", rng.below(60)).parse().unwrap(),
    }
}

/// `asked` has the names of recent Interests.
fn random_packet(rng: &mut Rng, asked: &mut Vec<Name>) -> (FaceId, Vec<u8>) {
    let name = match rng.below(3) {
        0 => random_name(rng),
        _ => asked.pop().unwrap_or_else(|| random_name(rng)),
    };
    let data = Data::new(name).freshness_ms(100).encode_with_digest();
    if rng.below(3) == 0 {
        return (PRODUCERS[rng.below(4) as usize], data);
    }
    let mut name = random_name(rng);
    match rng.below(12) {
        0 => {
            let view = DataView::decode(&data).unwrap();
            name = view.name.to_name();
            name.push(&Component::implicit_digest(view.implicit_digest()));
        }
        1 => return (CONSUMERS[0], data[..data.len() - 1].to_vec()),
        _ => {}
    }
    asked.push(name.clone());
    let mut interest = Interest::new(name).can_be_prefix(rng.below(6) == 0);
    if rng.below(10) == 0 {
        interest.application_parameters = Some(vec![1, 2]);
    }
    let wire = interest.nonce(rng.next_u32()).lifetime_ms(40).encode();
    (CONSUMERS[rng.below(2) as usize], wire)
}

#[test]
fn batches_behave_like_single_packets() {
    let (mut together, mut single) = (Fixture::new(), Fixture::new());
    let mut rng = Rng::from_seed(3);
    let mut asked = Vec::new();
    for round in 1..=400 {
        let now = Instant::from_ns(round * NS_PER_MS);
        let packets: Vec<_> =
            (0..rng.below(40)).map(|_| random_packet(&mut rng, &mut asked)).collect();
        let input = |(face, wire): &(FaceId, Vec<u8>)| {
            let packet = Packet::from(wire.clone());
            Input::Packet { face: *face, header: LpHeader::default(), packet }
        };
        together.handle(now, packets.iter().map(input).collect());
        packets.iter().for_each(|packet| single.handle(now, vec![input(packet)]));
        assert_eq!(together.take(), single.take(), "round {round}");
        if round % 20 == 0 {
            // A prefix as long as names is added and removed.
            let prefix: Name = PREFIXES[3].parse().unwrap();
            for fixture in [&mut together, &mut single] {
                let next_hops = match round % 40 {
                    0 => vec![],
                    _ => vec![NextHop { face: PRODUCERS[3], cost: 1 }],
                };
                let prefix = prefix.clone();
                let change = Input::Command(Command::SetNextHops { prefix, next_hops });
                fixture.handle(now, vec![change]);
            }
        }
    }
    let (one, other) = (together.router.stats(), single.router.stats());
    assert_eq!((one.satisfied, one.out_interests), (other.satisfied, other.out_interests));
    assert_eq!(one.drops, other.drops);
    assert!(one.satisfied > 100 && one.store.hits > 100 && one.store.evictions > 10, "{one:?}");
}
