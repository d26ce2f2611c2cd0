//! Management structures encoded by ndn-cxx: they decode to their fields, and encode to the same
//! octets.

use std::borrow::ToOwned;
use std::path::Path;
use std::string::String;
use std::vec;
use std::vec::Vec;

use crate::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, DecodeError, Element,
    FacePersistency, FaceScope, FaceStatus, FibEntry, GeneralStatus, LinkType, RibEntry,
    StrategyChoice,
};
use serde_json::Value;
use weir_base::FaceId;
use weir_wire::Name;

fn vectors() -> Vec<(String, Vec<u8>, Value)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/vectors/mgmt.jsonl");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .filter_map(|vector| {
            let name = vector["name"].as_str()?.to_owned();
            let octets = hex::decode(vector["hex"].as_str()?).expect("hexadecimal octets");
            Some((name, octets, vector["expect"].clone()))
        })
        .collect()
}

fn vector(name: &str) -> (Vec<u8>, Value) {
    let (_, octets, expect) = vectors()
        .into_iter()
        .find(|(known, ..)| known == name)
        .unwrap_or_else(|| panic!("no vector {name}"));
    (octets, expect)
}

fn round_trip<E: Element + std::fmt::Debug>(name: &str) -> (E, Value) {
    let (octets, expect) = vector(name);
    let decoded = E::decode(&octets).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(hex::encode(decoded.encode()), hex::encode(&octets), "{name}: {decoded:?}");
    (decoded, expect)
}

fn uri(name: &str) -> Name {
    name.parse().expect("a name")
}

#[test]
fn register_parameters() {
    let (parameters, expect) = round_trip::<ControlParameters>("cxx-controlparams-rib-register");
    assert_eq!(parameters.name, Some(uri("/example")));
    assert_eq!(parameters.face_id, Some(FaceId(expect["FaceId"].as_u64().unwrap())));
    assert_eq!(parameters.origin, expect["Origin"].as_u64());
    assert_eq!(parameters.cost, expect["Cost"].as_u64());
    assert_eq!(parameters.flags, expect["Flags"].as_u64());
    assert_eq!(parameters.expiration_period_ms, expect["ExpirationPeriodMs"].as_u64());
    assert_eq!(parameters.mask, None);
}

#[test]
fn every_field_of_parameters() {
    let (parameters, expect) =
        round_trip::<ControlParameters>("cxx-controlparams-every-field-in-order");
    assert_eq!(parameters.origin, expect["Origin"].as_u64());
    assert_eq!(parameters.flags, expect["Flags"].as_u64());
    assert_eq!(parameters.mask, expect["Mask"].as_u64());
    assert_eq!(parameters.face_persistency, Some(FacePersistency::Permanent));
    assert_eq!(
        parameters.base_congestion_marking_interval_ns,
        expect["BaseCongestionMarkingIntervalNs"].as_u64()
    );
    assert_eq!(parameters.mtu, expect["Mtu"].as_u64());
    assert_eq!(parameters.local_uri.as_deref(), Some("udp4://192.0.2.2:6363"));
    assert_eq!(parameters.strategy, Some(uri("/localhost/nfd/strategy/best-route/v=5")));
    assert_eq!(parameters.capacity, Some(3));
    assert_eq!(parameters.count, Some(4));
    assert_eq!(parameters.default_congestion_threshold_bytes, Some(65536));
}

#[test]
fn create_parameters() {
    let (parameters, expect) = round_trip::<ControlParameters>("cxx-controlparams-faces-create");
    assert_eq!(parameters.uri.as_deref(), expect["Uri"].as_str());
    assert_eq!(parameters.face_persistency, Some(FacePersistency::Persistent));
    assert_eq!(parameters.flag(2), Some(true));
    assert_eq!(parameters.flag(1), None);
}

#[test]
fn responses() {
    let (response, _) = round_trip::<ControlResponse>("cxx-controlresponse-200");
    let (body, _) = round_trip::<ControlParameters>("cxx-controlparams-rib-register");
    assert_eq!((response.code, response.text.as_str()), (200, "OK"));
    assert_eq!(response.body.as_deref(), Some(&body));
    let (response, _) = round_trip::<ControlResponse>("cxx-controlresponse-404-nobody");
    assert_eq!((response.code, response.text.as_str()), (404, "Not found"));
    assert_eq!(response.body, None);
}

#[test]
fn face_status() {
    let (status, expect) = round_trip::<FaceStatus>("cxx-facestatus");
    let number = |key: &str| expect[key].as_u64().unwrap();
    assert_eq!(status.info.face_id, FaceId(number("FaceId")));
    assert_eq!(status.info.uri, expect["Uri"].as_str().unwrap());
    assert_eq!(status.info.local_uri, expect["LocalUri"].as_str().unwrap());
    assert_eq!(status.expiration_period_ms, Some(number("ExpirationPeriodMs")));
    assert_eq!(status.info.scope, FaceScope::NonLocal);
    assert_eq!(status.info.persistency, FacePersistency::OnDemand);
    assert_eq!(status.info.link_type, LinkType::PointToPoint);
    assert_eq!(status.info.mtu, Some(number("Mtu")));
    assert_eq!(status.info.flags, number("Flags"));
    let counters = status.counters;
    let found = [
        counters.in_interests,
        counters.in_data,
        counters.in_nacks,
        counters.out_interests,
        counters.out_data,
        counters.out_nacks,
        counters.in_bytes,
        counters.out_bytes,
    ];
    assert_eq!(found, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn tables() {
    let (channel, _) = round_trip::<ChannelStatus>("cxx-channelstatus");
    assert_eq!(channel.local_uri, "tcp4://0.0.0.0:6363");

    let (fib, _) = round_trip::<FibEntry>("cxx-fibentry");
    let next_hops: Vec<_> = fib.next_hops.iter().map(|hop| (hop.face_id.0, hop.cost)).collect();
    assert_eq!((fib.name, next_hops), (uri("/p"), vec![(1, 0), (300, 10)]));

    let (rib, _) = round_trip::<RibEntry>("cxx-ribentry");
    let routes: Vec<_> = rib
        .routes
        .iter()
        .map(|r| (r.face_id.0, r.origin, r.cost, r.flags, r.expiration_period_ms))
        .collect();
    assert_eq!(routes, [(300, 0, 0, 1, None), (301, 128, 20, 3, Some(60000))]);

    let (choice, _) = round_trip::<StrategyChoice>("cxx-strategychoice");
    assert_eq!(choice.name, Name::new());
    assert_eq!(choice.strategy, uri("/localhost/nfd/strategy/best-route/v=5"));

    let (info, _) = round_trip::<CsInfo>("cxx-csinfo");
    let found = (info.capacity, info.flags, info.entries, info.hits, info.misses, info.bytes);
    assert_eq!(found, (65536, 3, 12, 3, 4, None));
}

#[test]
fn general_status() {
    let (octets, expect) = vector("cxx-forwarderstatus");
    let content = weir_wire::tlv::read_single_of(&octets, weir_wire::tlv::CONTENT).unwrap();
    let status = GeneralStatus::decode_content(content).unwrap();
    assert_eq!(hex::encode(status.encode_content()), hex::encode(content));
    assert_eq!(status.version, "24.07");
    assert_eq!(status.start_unix_ms, expect["StartMs"].as_u64().unwrap());
    assert_eq!(status.current_unix_ms, expect["CurrentMs"].as_u64().unwrap());
    let tables = (status.name_tree_entries, status.fib_entries, status.pit_entries);
    assert_eq!((tables, status.cs_entries), ((1, 2, 3), 5));
    assert_eq!((status.in_interests, status.in_data, status.in_nacks), (6, 7, 8));
    assert_eq!((status.out_interests, status.out_data, status.out_nacks), (9, 10, 11));
    assert_eq!((status.satisfied_interests, status.unsatisfied_interests), (12, 13));
}

#[test]
fn every_structure_has_a_vector() {
    let elsewhere = ["cxx-command-", "cxx-certificate-", "cxx-prefixannouncement", "cxx-rdr-"];
    let elsewhere = |name: &str| {
        elsewhere.iter().any(|prefix| name.starts_with(prefix))
            || ["cxx-link", "cxx-lp-many-fields"].contains(&name)
    };
    let structures = vectors().into_iter().filter(|(name, ..)| !elsewhere(name)).count();
    assert_eq!(structures, 12, "a new vector needs a test here");
}

#[test]
fn parameters_may_be_in_any_order() {
    let (octets, _) = vector("cxx-controlparams-rib-register");
    let value = weir_wire::tlv::read_single_of(&octets, 104).unwrap();
    let mut elements: Vec<_> =
        weir_wire::tlv::Reader::new(value).map(|element| element.unwrap().wire.to_vec()).collect();
    elements.reverse();
    let shuffled = elements.concat();
    assert_eq!(
        ControlParameters::decode_value(&shuffled).unwrap(),
        ControlParameters::decode(&octets).unwrap()
    );
}

#[test]
fn unknown_elements() {
    let (octets, _) = vector("cxx-fibentry");
    let value = weir_wire::tlv::read_single_of(&octets, 128).unwrap();
    let with = |extra: &[u8]| [value, extra].concat();
    assert_eq!(FibEntry::decode_value(&with(&[0xfc, 0])), FibEntry::decode_value(value));
    assert_eq!(
        FibEntry::decode_value(&with(&[0xfb, 0])),
        Err(DecodeError::Critical { found: 0xfb })
    );
    let missing = FibEntry::decode_value(&[]).unwrap_err();
    assert_eq!(missing, DecodeError::Missing { element: "Name" });
}
