//! Tests of unusable metadata, and of metadata from stores.

use weir_base::{Packet, Rng};
use weir_wire::Interest;

use super::*;

/// Requests metadata of `/a`, which arrive from a store because there is no route.
fn asking_stores(verification: Verification) -> Fixture {
    let target = Target::Latest { object: "/a".parse().unwrap(), allow_stored: true };
    let config = ConsumerConfig { verification, ..ConsumerConfig::default() };
    let mut fixture = Fixture::new(target, config);
    assert!(fixture.last_interest().must_be_fresh);
    let asked = fixture.requested[0].clone();
    fixture.nack(&asked, NackReason::NoRoute);
    assert!(!fixture.last_interest().must_be_fresh);
    fixture
}

fn metadata_of(versioned: &str) -> Vec<u8> {
    Metadata::new(versioned.parse().unwrap()).encode()
}

/// Metadata that are malformed, forged, of another object or of an untrusted signer are rejected.
/// The right ones may be available further on.
#[test]
fn requests_fresh_metadata_after_bad() {
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    type Corrupt = fn(&mut Fixture, &Name);
    let corruptions: [(Corrupt, &str); 4] = [
        (|fixture, name| drop(fixture.data(name)), "Metadata {"),
        (
            |fixture, name| drop(fixture.data_with(name, &metadata_of("/b/54=%01"))),
            "ForeignMetadata {",
        ),
        (
            |fixture, name| {
                fixture.data_with(name, &metadata_of("/a/54=%01"));
                assert!(fixture.requested.is_empty());
                fixture.verify(false);
            },
            "Unverified {",
        ),
        (
            |fixture, name| {
                fixture.consumer.transfer.verify.set_mode(Verification::Signatures);
                fixture.data_with(name, &metadata_of("/a/54=%01"));
                let Some(ConsumerEvent::NeedKey { key, .. }) = fixture.out.events.pop() else {
                    panic!("the signer is not known")
                };
                fixture.input(ConsumerInput::Key { key, verifier: Err("a stranger".into()) });
                fixture.consumer.transfer.verify.set_mode(Verification::ByDriver);
            },
            "Untrusted(",
        ),
    ];
    for (corrupt, error) in corruptions {
        let mut fixture = asking_stores(Verification::ByDriver);
        for _ in 0..4 {
            corrupt(&mut fixture, &name);
            assert!(fixture.last_interest().must_be_fresh, "{error}");
        }
        fixture.data_with(&name, &metadata_of("/a/54=%02"));
        fixture.verify(true);
        assert!(fixture.events()[0].starts_with("Found { metadata: Metadata"), "{error}");

        let mut fixture = asking_stores(Verification::ByDriver);
        (0..5).for_each(|_| corrupt(&mut fixture, &name));
        assert!(fixture.requested.is_empty(), "it is requested a limited number of times");
        let events = fixture.events();
        assert!(events[0].starts_with(&std::format!("Failed({error}")), "{events:?}");
    }
}

/// The store's copy was rejected and the producer is down: the user needs the reason for the
/// rejection.
#[test]
fn reports_reason_for_refused_metadata() {
    let mut fixture = asking_stores(Verification::ByDriver);
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    fixture.data_with(&name, &metadata_of("/b/54=%01"));
    while fixture.out.events.is_empty() {
        match fixture.requested.pop() {
            Some(asked) => fixture.nack(&asked, NackReason::NoRoute),
            None => {
                fixture.now = fixture.consumer.next_wakeup().expect("it asks or gives up");
                fixture.step()
            }
        };
    }
    let events = fixture.events();
    assert!(events[0].starts_with("Failed(ForeignMetadata {"), "{events:?}");
}

/// A Nack of another Interest does not mean that the producer is down.
#[test]
fn only_matching_nack_queries_stores() {
    let target = Target::Latest { object: "/a".parse().unwrap(), allow_stored: true };
    let mut fixture = Fixture::new(target, ConsumerConfig::default());
    let asked = fixture.requested[0].clone();
    let nonce = fixture.last_interest().nonce.unwrap();
    let name = fixture.last_interest().name.to_name();
    let other = |name: &str, nonce| Interest::new(name.parse().unwrap()).nonce(nonce);
    let others = [
        other("/b", nonce),
        other("/a/32=metadata", nonce),
        other("/a/32=metadata", nonce ^ 1).can_be_prefix(true),
    ];
    for other in others {
        assert!(fixture.nack(&other.encode(), NackReason::NoRoute).is_empty());
    }
    assert_eq!(fixture.nack(&asked, NackReason::NoRoute), [name]);
    assert!(!fixture.last_interest().must_be_fresh);
}

fn latest() -> Target {
    Target::Latest { object: "/a".parse().unwrap(), allow_stored: true }
}

#[test]
fn rejects_metadata_of_other_object() {
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    for (content, wanted) in [
        (metadata_of("/elsewhere/54=%01"), "name /elsewhere"),
        (vec![1, 2, 3], "malformed"),
        (metadata_of("/a"), "has no version"),
    ] {
        let mut fixture = Fixture::new(latest(), ConsumerConfig::default());
        for _ in 0..5 {
            fixture.data_with(&name, &content);
        }
        let Some(ConsumerEvent::Failed(error)) = fixture.out.events.last() else {
            panic!("{:?}", fixture.out)
        };
        let text = std::format!("{error}");
        assert!(text.contains(wanted), "{text}");
    }
}

/// Advances time until the next Interest leaves.
fn wait_for_interest(fixture: &mut Fixture) {
    while fixture.requested.is_empty() {
        fixture.now = fixture.consumer.next_wakeup().expect("it asks again");
        fixture.step();
    }
}

/// Answers the last Interest with a Nack of a router further on.
fn refuse_further_on(fixture: &mut Fixture) {
    let packet = fixture.requested[0].as_slice().into();
    let nack = Some(NackReason::NoRoute);
    let header = LpHeader { nack, incoming_face: Some(258), ..LpHeader::default() };
    fixture.input(ConsumerInput::Packet { path: PATH, header, packet });
}

fn found_reason(fixture: &mut Fixture) -> Option<ConsumerError> {
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    fixture.data_with(&name, &metadata_of("/a/54=%01"));
    fixture.verify(true);
    match fixture.out.events.pop() {
        Some(ConsumerEvent::Found { stored, .. }) => stored.map(|error| *error),
        other => panic!("{other:?}"),
    }
}

/// One packet may be lost, but a user does not wait long for a producer that is down.
#[test]
fn silent_producer_delays_stores_by_3_s() {
    let config = ConsumerConfig { verification: Verification::ByDriver, ..Default::default() };
    let mut fixture = Fixture::new(latest(), config);
    let mut fresh = 0;
    while fixture.last_interest().must_be_fresh {
        fresh += 1;
        fixture.requested.clear();
        wait_for_interest(&mut fixture);
    }
    assert_eq!((fresh, fixture.now.as_ns()), (2, 3 * NS_PER_S));
    let reason = found_reason(&mut fixture);
    assert_eq!(reason, Some(ConsumerError::Unanswered("/a".parse().unwrap())));
}

/// A refusal further on may have ended a learned route. The next Interest then finds the producer,
/// whose version is newer than that of a store.
#[test]
fn refusal_further_on_is_no_proof_yet() {
    let config = ConsumerConfig { verification: Verification::ByDriver, ..Default::default() };
    let mut fixture = Fixture::new(latest(), config.clone());
    refuse_further_on(&mut fixture);
    wait_for_interest(&mut fixture);
    assert!(fixture.last_interest().must_be_fresh);
    assert_eq!(found_reason(&mut fixture), None);

    let mut fixture = Fixture::new(latest(), config);
    for _ in 0..2 {
        assert!(fixture.last_interest().must_be_fresh);
        refuse_further_on(&mut fixture);
        wait_for_interest(&mut fixture);
    }
    assert!(!fixture.last_interest().must_be_fresh);
    assert!(fixture.now.as_ns() <= 200 * NS_PER_MS, "{:?}", fixture.now);
    let reason = found_reason(&mut fixture);
    assert_eq!(reason, Some(ConsumerError::NoRouteFurtherOn("/a".parse().unwrap())));
}

/// A producer may take seconds to start, and only a router further on has no route.
#[test]
fn retries_remote_missing_route() {
    let mut fixture = Fixture::new(latest(), ConsumerConfig::default());
    while fixture.out.events.is_empty() {
        match fixture.requested.pop() {
            Some(asked) => {
                fixture.now = fixture.now.plus_ns(10 * NS_PER_MS);
                let nack = Some(NackReason::NoRoute);
                let header = LpHeader { nack, incoming_face: Some(258), ..LpHeader::default() };
                let packet = asked.as_slice().into();
                fixture.input(ConsumerInput::Packet { path: PATH, header, packet })
            }
            None => {
                fixture.now = fixture.consumer.next_wakeup().expect("it asks or gives up");
                fixture.step()
            }
        };
    }
    let events = fixture.events();
    assert!(events[0].starts_with("Failed(NoRouteFurtherOn("), "{events:?}");
    let waited = 2500 * NS_PER_MS..=3500 * NS_PER_MS;
    assert!(waited.contains(&fixture.now.as_ns()), "{:?}", fixture.now);
}

#[test]
fn accepts_whole_object_in_one_data() {
    let name: Name = "/a".parse().unwrap();
    let mut fixture =
        Fixture::new(Target::Prefix { name: name.clone() }, ConsumerConfig::default());
    let packet: Packet = Data::new(name.clone())
        .content(b"all of it")
        .final_block_id(Component::segment(0))
        .encode_with_digest()
        .into();
    for round in 0..2 {
        assert_eq!(fixture.last_interest().name, name.as_view());
        let (header, packet) = (LpHeader::default(), packet.clone());
        fixture.inputs.push(ConsumerInput::Packet { path: PATH, header, packet });
        if round == 0 {
            let (have, reader) = (SegmentSet::new(), ReaderMode::None);
            fixture.inputs.push(ConsumerInput::Start { have, reader });
        }
        fixture.step();
    }
    let Some(ConsumerEvent::NeedKey { key, .. }) = fixture.out.events.pop() else {
        panic!("{:?}", fixture.out)
    };
    fixture.input(ConsumerInput::Key { key, verifier: Ok(digest_verifier()) });
    let ids: Vec<PacketId> = fixture.out.verify.iter().map(|op| op.id).collect();
    assert_eq!(ids, [PacketId::Segment(0)]);
    fixture.verify(true);
    assert!(fixture.consumer.has_ended());
}

#[test]
fn counts_malformed_packets() {
    let mut rng = Rng::from_seed(5);
    let mut fixture = Fixture::new(latest(), ConsumerConfig::default());
    for i in 0..1000 {
        let mut octets = vec![0; rng.below(200) as usize];
        rng.fill(&mut octets);
        let nack = (i % 2 == 0).then_some(NackReason::NoRoute);
        let header = LpHeader { nack, ..LpHeader::default() };
        let packet = octets.into();
        fixture.input(ConsumerInput::Packet { path: PATH, header, packet });
    }
    assert_eq!(fixture.consumer.stats().malformed, 1000);
    assert!(fixture.out.deliveries.is_empty() && fixture.out.events.is_empty());
}
