//! One shard and several, batches of any size, and stages one by one give the same result.

use proptest::prelude::*;
use weir_base::HashKey;
use weir_wire::PacketView;

use super::*;
use crate::InterestStep;
use crate::content::decision::StoreDecision;
use crate::shard::{shard_of_name, shard_of_token, token_of_shard};

/// What may happen to a router: names, faces and times are few, so that packets meet.
#[derive(Clone, Debug)]
enum Happening {
    Interest { face: u64, name: u8, prefix: bool, fresh: bool, nonce: u32 },
    Data { face: u64, name: u8, freshness_ms: u64 },
    Pass { ms: u64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (256..260_u64, 0..12_u8, any::<bool>(), any::<bool>(), 0..50_u32).prop_map(
            |(face, name, prefix, fresh, nonce)| Happening::Interest {
                face,
                name,
                prefix,
                fresh,
                nonce
            }
        ),
        3 => (256..260_u64, 0..12_u8, 0..100_u64)
            .prop_map(|(face, name, freshness_ms)| Happening::Data { face, name, freshness_ms }),
        1 => (0..3000_u64).prop_map(|ms| Happening::Pass { ms }),
    ]
}

fn name(number: u8) -> alloc::string::String {
    let first = ["/a", "/b", "/c"][usize::from(number % 3)];
    let rest = ["", "/x", "/x/y", "/z"][usize::from(number / 3)];
    alloc::format!("{first}{rest}")
}

fn config(shard: u16, shard_count: u16) -> RouterConfig {
    RouterConfig {
        shard,
        shard_count,
        hash_key: HashKey::new([3, 4]),
        store: StoreConfig { capacity_bytes: 1 << 20, ..StoreConfig::default() },
        ..RouterConfig::default()
    }
}

fn routes(bed: &mut Bed) {
    bed.route("/a", &[(U, 0), (V, 1)]);
    bed.route("/b", &[(V, 0)]);
    bed.route("/c/x", &[(LOCAL, 0), (U, 1)]);
    bed.strategy("/b", "/localhost/nfd/strategy/multicast");
}

/// A packet that left, without the token that only several shards add.
type Left = (FaceId, PacketKind, Option<NackReason>, Vec<u8>);

fn left(packets: Vec<OutPacket>) -> Vec<Left> {
    packets
        .into_iter()
        .map(|packet| (packet.face, packet.kind, packet.header.nack, packet.packet.to_vec()))
        .collect()
}

/// The face and the octets of a happening that is a packet.
fn packet(happening: &Happening) -> Option<(FaceId, Vec<u8>)> {
    match happening {
        Happening::Interest { face, name: number, prefix, fresh, nonce } => {
            let ask = Ask {
                can_be_prefix: *prefix,
                must_be_fresh: *fresh,
                ..Ask::new(&name(*number), *nonce)
            };
            Some((FaceId(*face), ask.wire()))
        }
        Happening::Data { face, name: number, freshness_ms } => {
            Some((FaceId(*face), data(&name(*number), *freshness_ms)))
        }
        Happening::Pass { .. } => None,
    }
}

/// Runs the happenings over `count` shards and returns what left, in order.
fn run(count: u16, happenings: &[Happening]) -> Vec<Left> {
    let mut shards: Vec<Bed> =
        (0..count).map(|shard| Bed::with_config(config(shard, count))).collect();
    shards.iter_mut().for_each(routes);
    let key = HashKey::new([3, 4]);
    let mut all = Vec::new();
    for happening in happenings {
        if let Happening::Pass { ms } = happening {
            shards.iter_mut().for_each(|shard| shard.pass_ms(*ms));
        }
        let Some((face, wire)) = packet(happening) else { continue };
        let shard = shard_of_name(&key, PacketView::decode(&wire).unwrap().name(), 1, count);
        all.extend(left(shards[usize::from(shard)].answer(face, wire)));
    }
    all
}

proptest! {
    #[test]
    fn shards_do_together_what_one_does(
        happenings in proptest::collection::vec(happening(), 1..80),
        count in 2..5_u16,
    ) {
        prop_assert_eq!(run(1, &happenings), run(count, &happenings));
    }

    #[test]
    fn a_batch_does_what_its_packets_do_one_by_one(
        happenings in proptest::collection::vec(happening(), 1..100),
    ) {
        let inputs = || -> Vec<Input> {
            happenings.iter().filter_map(|happening| {
                let (face, wire) = packet(happening)?;
                let packet = Packet::from(wire);
                Some(Input::Packet { face, header: LpHeader::default(), packet })
            }).collect()
        };
        let mut batched = Bed::with_config(config(0, 1));
        routes(&mut batched);
        batched.router.handle(batched.now, &mut inputs(), &mut batched.out);
        let mut single = Bed::with_config(config(0, 1));
        routes(&mut single);
        for input in inputs() {
            single.router.handle(single.now, &mut [input], &mut single.out);
        }
        prop_assert_eq!(left(batched.take()), left(single.take()));
    }

    #[test]
    fn stages_one_after_the_other_do_what_the_path_does(
        happenings in proptest::collection::vec(happening(), 1..100),
    ) {
        let mut staged = Bed::with_config(config(0, 1));
        routes(&mut staged);
        let mut all = Vec::new();
        for happening in &happenings {
            match (happening, packet(happening)) {
                (Happening::Interest { .. }, Some((face, wire))) => {
                    walk_stages(&mut staged, face, &wire.into());
                    all.extend(left(staged.take()));
                }
                (_, Some((face, wire))) => all.extend(left(staged.answer(face, wire))),
                (Happening::Pass { ms }, _) => staged.pass_ms(*ms),
                (_, None) => unreachable!("all others are packets"),
            }
        }
        prop_assert_eq!(all, run(1, &happenings));
        prop_assert_eq!(staged.router.stats().in_interests, happenings.iter().filter(|happening| {
            matches!(happening, Happening::Interest { .. })
        }).count() as u64);
    }
}

fn walk_stages(bed: &mut Bed, face: FaceId, packet: &Packet) {
    let header = LpHeader::default();
    let mut next = Some(InterestStep::Arrival);
    while let Some(step) = next {
        let arrival = (face, &header, packet);
        next = bed.router.handle_interest_step(bed.now, step, arrival, &mut bed.out);
    }
}

/// While an Interest waits for the FIB, the Data may come or its time may be over.
#[test]
fn an_interest_that_is_answered_between_stages_goes_nowhere() {
    for (data_comes, expected) in [(true, 1), (false, 0)] {
        let mut bed = Bed::with_config(config(0, 1));
        routes(&mut bed);
        let header = LpHeader::default();
        let interest = Packet::from(Ask::new("/a/x", 7).wire());
        let arrival = (LOCAL, &header, &interest);
        let step = InterestStep::Pit(StoreDecision::Forward);
        let next = bed.router.handle_interest_step(bed.now, step, arrival, &mut bed.out);
        assert!(matches!(next, Some(InterestStep::Fib(StoreDecision::Forward))));
        if data_comes {
            assert_eq!(bed.answer(U, data("/a/x", 0)).len(), expected);
        } else {
            bed.pass_ms(5000);
        }
        let step = InterestStep::Fib(StoreDecision::Forward);
        let next = bed.router.handle_interest_step(bed.now, step, arrival, &mut bed.out);
        assert!(next.is_none() && bed.out.packets.is_empty());
    }
}

#[test]
fn tokens_name_their_shard_and_nothing_else_does() {
    for shard in 0..4 {
        assert_eq!(shard_of_token(&token_of_shard(shard), 4), Some(shard));
    }
    assert_eq!(shard_of_token(&token_of_shard(4), 4), None, "no such shard");
    for stranger in [&[][..], &[0, 0, 0, 1], &[0x57, 0x77, 0], &[0x57, 0x77, 0, 0, 0]] {
        let token = match stranger {
            [] => PitToken::default(),
            octets => PitToken::new(octets).unwrap(),
        };
        assert_eq!(shard_of_token(&token, 4), None);
    }
}
