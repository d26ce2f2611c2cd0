//! All test vectors. They come from four other implementations.

use std::fs;
use std::path::Path;

use serde_json::Value;
use weir_wire::{
    DataView, DecodeError, InterestView, KeyLocatorView, LpFraming, LpHeader, LpView, Name,
    NameView, SignatureInfoView, UriStyle, tlv,
};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The records of a `.jsonl` file. Its first line is a header with their number.
fn records(file: &str) -> Vec<Value> {
    let text = read(file);
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let header = lines.next().expect("a header");
    let records: Vec<Value> = lines.collect();
    assert_eq!(header["count"], records.len());
    records
}

fn octets(record: &Value) -> Vec<u8> {
    hex::decode(record["hex"].as_str().expect("hex")).expect("hex")
}

fn sha256(portions: &[&[u8]]) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(portions.concat()))
}

/// Compares the decoded fields with the expected ones. Both must have the same fields.
fn compare(record: &Value, found: &[(&str, Option<Value>)]) {
    let name = &record["name"];
    let expect = record["expect"].as_object().expect("expect");
    for (key, value) in found {
        assert_eq!(expect.get(*key), value.as_ref(), "{name}: {key}");
    }
    for key in expect.keys() {
        let is_about = ["note", "verifiesWith", "verifiedBy", "reassembles"].contains(&&**key);
        assert!(is_about || found.iter().any(|(found, _)| found == key), "{name}: {key} unchecked");
    }
}

fn text(value: impl ToString) -> Option<Value> {
    Some(Value::from(value.to_string()))
}

fn hex_text(value: &[u8]) -> Option<Value> {
    Some(Value::from(hex::encode(value)))
}

fn name_fields(name: NameView<'_>) -> [(&'static str, Option<Value>); 3] {
    [
        ("name", text(name.uri(UriStyle::Numeric))),
        ("nameAlt", text(name)),
        ("nameHex", hex_text(&name.to_name().to_tlv())),
    ]
}

fn signature_info(info: &SignatureInfoView<'_>) -> Value {
    let mut found = serde_json::Map::new();
    found.insert("sigType".into(), info.signature_type.into());
    match info.key_locator {
        Some(KeyLocatorView::Name(name)) => {
            found.insert("keyLocatorName".into(), name.uri(UriStyle::Numeric).to_string().into());
        }
        Some(KeyLocatorView::Digest(digest)) => {
            found.insert("keyLocatorDigestHex".into(), hex::encode(digest).into());
        }
        None => {}
    }
    if let Some(nonce) = info.nonce {
        found.insert("sigNonceHex".into(), hex::encode(nonce).into());
    }
    if let Some(time_ms) = info.time_ms {
        found.insert("sigTimeMs".into(), time_ms.into());
    }
    if let Some(seq_num) = info.seq_num {
        found.insert("sigSeqNum".into(), seq_num.into());
    }
    if let Some(validity) = info.validity_period {
        found.insert("validity".into(), vec![validity.not_before, validity.not_after].into());
    }
    found.into()
}

fn check_interest(record: &Value, view: &InterestView<'_>) {
    let hints: Vec<String> =
        view.forwarding_hint.iter().map(|name| name.uri(UriStyle::Numeric).to_string()).collect();
    let portion = view.signed_portion();
    let mut found = name_fields(view.name).to_vec();
    found.extend([
        ("canBePrefix", Some(view.can_be_prefix.into())),
        ("mustBeFresh", Some(view.must_be_fresh.into())),
        ("nonceHex", view.nonce.map(|nonce| hex::encode(nonce.to_be_bytes()).into())),
        ("lifetimeMs", Some(view.lifetime_ms_or_default().into())),
        ("hopLimit", view.hop_limit.map(Value::from)),
        ("forwardingHint", (!hints.is_empty()).then(|| hints.into())),
        ("appParamsHex", view.application_parameters().and_then(hex_text)),
        ("sigInfo", view.signature().map(|signature| signature_info(&signature.info()))),
        ("sigValueHex", view.signature().and_then(|signature| hex_text(signature.value))),
        ("signedPortionSha256", portion.map(|portion| sha256(&portion).into())),
    ]);
    compare(record, &found);
    if let Some(at) = view.nonce_at() {
        assert_eq!(view.wire[at..at + 4], view.nonce.expect("a nonce").to_be_bytes());
    }
    if record["expect"]["verifiesWith"] == "digest" {
        assert_eq!(view.signature().expect("a signature").check_digest(), Ok(()));
    }
}

fn check_data(record: &Value, view: &DataView<'_>) {
    let mut final_block_id = String::new();
    if let Some(component) = view.final_block_id() {
        component.write_uri(UriStyle::Numeric, &mut final_block_id).expect("a string takes all");
    }
    let mut found = name_fields(view.name).to_vec();
    found.extend([
        ("contentType", Some(view.content_type.into())),
        ("freshnessMs", Some(view.freshness_ms.into())),
        ("finalBlockId", view.final_block_id().map(|_| final_block_id.into())),
        ("finalBlockIdAlt", view.final_block_id().and_then(text)),
        ("contentHex", hex_text(view.content)),
        ("sigInfo", Some(signature_info(&view.signature_info()))),
        ("sigValueHex", hex_text(view.signature_value())),
        ("signedPortionSha256", Some(sha256(&[view.signed_portion()]).into())),
        ("implicitSha256", hex_text(&view.implicit_digest())),
    ]);
    compare(record, &found);
    if record["expect"]["verifiesWith"] == "digest" {
        assert_eq!(view.check_digest(), Ok(()));
    }
}

fn check_lp(record: &Value, view: &LpView<'_>) {
    let header = &view.header;
    let has = |typ| view.fields().any(|field| field.typ == typ);
    let acks: Vec<u64> = view.acks().collect();
    let announcement = view.prefix_announcement.map(|wire| {
        let data = DataView::decode(wire).expect("a prefix announcement is a Data");
        serde_json::json!({
            "name": data.name.uri(UriStyle::Numeric).to_string(),
            "contentType": data.content_type,
            "contentHex": hex::encode(data.content),
        })
    });
    let inner = view.fragment.filter(|_| view.framing.frag_count == 1).map(|fragment| {
        let packet = weir_wire::PacketView::decode(fragment).expect("the inner packet decodes");
        let kind = if fragment[0] == 5 { "interest" } else { "data" };
        let name = packet.name().uri(UriStyle::Numeric).to_string();
        serde_json::json!({ "kind": kind, "name": name })
    });
    let token = header.pit_token;
    compare(
        record,
        &[
            ("sequence", view.framing.sequence.map(Value::from)),
            ("fragIndex", has(tlv::LP_FRAG_INDEX).then(|| view.framing.frag_index.into())),
            ("fragCount", has(tlv::LP_FRAG_COUNT).then(|| view.framing.frag_count.into())),
            ("pitTokenHex", (!token.is_empty()).then(|| hex::encode(token.as_slice()).into())),
            ("nackReason", header.nack.map(|reason| reason.code().into())),
            ("incomingFaceId", header.incoming_face.map(Value::from)),
            ("nextHopFaceId", header.next_hop_face.map(Value::from)),
            ("cachePolicyType", view.cache_policy.map(Value::from)),
            ("congestionMark", has(tlv::LP_CONGESTION_MARK).then(|| header.congestion_mark.into())),
            ("acks", (!acks.is_empty()).then(|| acks.into())),
            ("txSequence", view.framing.tx_sequence.map(Value::from)),
            ("nonDiscovery", header.non_discovery.then(|| true.into())),
            ("prefixAnnouncement", announcement),
            ("fragmentHex", view.fragment.and_then(hex_text)),
            ("inner", inner),
        ],
    );
}

/// Encodes the owned form of a decoded packet.
fn encode_again(kind: &str, wire: &[u8]) -> Vec<u8> {
    match kind {
        "interest" => {
            let view = InterestView::decode(wire).expect("decodes");
            match view.signature() {
                None => view.to_interest().encode(),
                Some(signature) => view.to_interest().encode_signed(
                    &signature.info().to_signature_info(),
                    |portions| {
                        assert_eq!(portions.concat(), signature.signed_portion().concat());
                        signature.value.to_vec()
                    },
                ),
            }
        }
        "data" => {
            let view = DataView::decode(wire).expect("decodes");
            let info = view.signature_info().to_signature_info();
            view.to_data().encode_signed(&info, |_| view.signature_value().to_vec())
        }
        _ => {
            let view = LpView::decode(wire).expect("decodes");
            view.header.encode(&view.framing, &view.acks().collect::<Vec<_>>(), view.fragment)
        }
    }
}

#[test]
fn valid_packets_decode_to_the_expected_fields() {
    for record in records("valid.jsonl") {
        let wire = octets(&record);
        let refused = |error: DecodeError| -> ! { panic!("{}: {error}", record["name"]) };
        match record["kind"].as_str() {
            Some("interest") => {
                let view = InterestView::decode(&wire).unwrap_or_else(|error| refused(error));
                check_interest(&record, &view);
            }
            Some("data") => {
                let view = DataView::decode(&wire).unwrap_or_else(|error| refused(error));
                check_data(&record, &view);
            }
            Some("lp") => {
                let view = LpView::decode(&wire).unwrap_or_else(|error| refused(error));
                check_lp(&record, &view);
            }
            other => panic!("unknown kind {other:?}"),
        }
    }
}

/// Packets that are longer than necessary, or hold what the owned form leaves out. Such are empty
/// MetaInfo or Content, ContentType 0, long numbers, Nack without NackReason, skipped elements and
/// PrefixAnnouncement.
const ENCODED_OTHERWISE: &[&str] = &[
    "py-data-min",
    "py-data-content-empty",
    "py-data-blob-explicit",
    "py-data-all-metainfo",
    "py-data-sig-ecdsa",
    "py-data-sig-hmac",
    "py-data-sig-ed25519",
    "py-data-sig-null",
    "py-data-sig-ecdsa-keydigest",
    "py-data-sig-time",
    "py-data-8000B",
    "py-data-exactly-8800B",
    "ts-lp-nack-0",
    "hand-interest-unknown-noncritical-240",
    "hand-data-metainfo-appmetainfo-130",
    "hand-data-contenttype-4byte-nonminimal",
    "hand-lp-fragindex0-fragcount1",
    "hand-lp-unknown-ignorable-956",
    "hand-lp-prefixannouncement",
];

#[test]
fn valid_packets_encode_to_the_same_octets() {
    let mut otherwise = Vec::new();
    for record in records("valid.jsonl") {
        let wire = octets(&record);
        let again = encode_again(record["kind"].as_str().expect("a kind"), &wire);
        if again != wire {
            otherwise.push(record["name"].as_str().expect("a name").to_owned());
        }
    }
    assert_eq!(otherwise, ENCODED_OTHERWISE);
}

/// The vectors hold two of three fragments. This test builds the third.
#[test]
fn fragments_reassemble() {
    let records = records("valid.jsonl");
    let is_fragment = |record: &&Value| record["expect"]["reassembles"].is_string();
    let fragments: Vec<&Value> = records.iter().filter(is_fragment).collect();
    assert_eq!(fragments.len(), 2);
    let whole_name = &fragments[0]["expect"]["reassembles"];
    let whole = records.iter().find(|record| record["name"] == *whole_name).expect("the whole");
    let whole = octets(whole);
    let mut joined = Vec::new();
    let mut framing = LpFraming::BARE;
    for (index, record) in fragments.iter().enumerate() {
        let wire = octets(record);
        let view = LpView::decode(&wire).expect("a fragment decodes");
        assert_eq!((view.framing.frag_index, view.framing.frag_count), (index as u64, 3));
        joined.extend_from_slice(view.fragment.expect("a fragment"));
        framing = view.framing;
    }
    framing.frag_index += 1;
    framing.sequence = framing.sequence.map(|sequence| sequence + 1);
    let last = LpHeader::default().encode(&framing, &[], Some(&whole[joined.len()..]));
    let view = LpView::decode(&last).expect("the last fragment decodes");
    joined.extend_from_slice(view.fragment.expect("a fragment"));
    assert!(joined == whole);
    DataView::decode(&joined).expect("the whole decodes");
}

/// Decodes as the kind in `expect.as`, and checks a DigestSha256 signature.
fn verdict(record: &Value) -> Result<(), DecodeError> {
    let wire = octets(record);
    match record["expect"]["as"].as_str() {
        Some("interest") => InterestView::decode(&wire)?
            .signature()
            .map_or(Ok(()), |signature| signature.check_digest()),
        Some("data") => DataView::decode(&wire)?.check_digest(),
        Some("lp") => LpView::decode(&wire).map(|_| ()),
        other => panic!("unknown decoder {other:?}"),
    }
}

/// Only a verifier needs the invalid parts of these packets: routers forward them, as ndn-cxx does.
const CARRIED: [&str; 2] = ["inv-data-keylocator-empty", "inv-data-validity-malformed"];

#[test]
fn verifier_fields_are_not_checked() {
    let all = [records("invalid.jsonl"), records("divergent.jsonl")].concat();
    let carried = all.iter().filter(|record| CARRIED.iter().any(|name| record["name"] == *name));
    let mut seen = 0;
    for record in carried {
        let wire = octets(record);
        let data = DataView::decode(&wire).expect("it is carried");
        let info = data.signature_info();
        assert!(info.key_locator.is_none() && info.validity_period.is_none());
        seen += 1;
    }
    assert_eq!(seen, CARRIED.len());
}

#[test]
fn invalid_packets_are_refused() {
    for record in records("invalid.jsonl").iter().chain(&records("divergent.jsonl")) {
        assert_eq!(record["kind"], "invalid");
        if CARRIED.contains(&record["name"].as_str().expect("a name")) {
            continue;
        }
        let error = verdict(record).expect_err(record["name"].as_str().expect("a name"));
        assert!(!error.reason().is_empty() && !error.to_string().is_empty());
    }
}

#[test]
fn refusals_name_the_reason() {
    let expected = |name: &str| match name {
        "inv-empty" => Some("truncated"),
        "inv-interest-length-huge" => Some("length-overrun"),
        "inv-interest-type-9octet" | "inv-nonshortest-nonce-type" => Some("non-shortest-number"),
        "inv-element-type-0" => Some("type-out-of-range"),
        "inv-data-trailing-junk" => Some("trailing-octets"),
        "inv-interest-name-not-first" => Some("name-not-first"),
        "inv-interest-unknown-critical-odd" => Some("unrecognised-critical"),
        "inv-interest-mbf-before-cbp" | "inv-lp-mark-before-nack" => Some("out-of-order"),
        "inv-interest-cbp-twice" | "inv-lp-nack-twice" => Some("repeated"),
        "inv-interest-nonce-len8" | "inv-lp-pittoken-empty" => Some("element-length"),
        "inv-interest-lifetime-len3" | "inv-lp-fragcount-len3" => Some("integer-length"),
        "inv-interest-empty-name" => Some("empty-name"),
        "inv-interest-fwhint-empty" => Some("empty-forwarding-hint"),
        "inv-interest-appparams-no-digest" => Some("parameters-without-digest"),
        "inv-interest-digest-no-appparams" => Some("digest-without-parameters"),
        "inv-interest-two-digests" => Some("several-parameters-digests"),
        "inv-interest-signed-bad-params" => Some("parameters-digest-mismatch"),
        "inv-interest-signed-digest-not-last" => Some("parameters-digest-not-last"),
        "inv-interest-signed-no-sigvalue" | "inv-interest-signed-no-siginfo" => {
            Some("signature-incomplete")
        }
        "inv-data-no-siginfo" | "inv-data-siginfo-empty" => Some("missing"),
        "inv-data-finalblockid-two" | "inv-data-finalblockid-empty" => Some("final-block-id"),
        "inv-data-content-changed" => Some("signature-digest-mismatch"),
        "inv-lp-fragment-twice" => Some("element-after-fragment"),
        "inv-lp-fragindex-ge-fragcount" => Some("fragment-index"),
        "inv-lp-fragcount-no-sequence" => Some("fragment-without-sequence"),
        "inv-lp-nack-of-data" => Some("nack-of-other"),
        "inv-lp-inner-nested-lp" => Some("fragment-content"),
        "inv-lp-inner-truncated" => Some("length-overrun"),
        "inv-interest-implicit-digest-31B" => Some("digest-component-length"),
        _ => None,
    };
    let mut checked = 0;
    for record in records("invalid.jsonl").iter().chain(&records("divergent.jsonl")) {
        let name = record["name"].as_str().expect("a name");
        if let Some(reason) = expected(name) {
            assert_eq!(verdict(record).expect_err(name).reason(), reason, "{name}");
            checked += 1;
        }
    }
    assert_eq!(checked, 37);
}

#[test]
fn names_follow_their_uri_form() {
    for record in records("name-uri.jsonl") {
        let uri = record["uri"].as_str().expect("a URI");
        let parsed = uri.parse::<Name>();
        let Some(expected) = record["nameHex"].as_str() else {
            assert!(parsed.is_err(), "{uri} is refused");
            continue;
        };
        let name = parsed.unwrap_or_else(|error| panic!("{uri}: {error}"));
        assert_eq!(hex::encode(name.to_tlv()), expected, "{uri}");
        assert_eq!(name.as_view().canonical_uri(), record["canonical"], "{uri}");
        assert_eq!(name.to_string(), record["alt"], "{uri}");
        for style in [UriStyle::Alternate, UriStyle::Numeric, UriStyle::Canonical] {
            let printed = name.as_view().uri(style).to_string();
            assert_eq!(printed.parse().as_ref(), Ok(&name), "{printed}");
        }
    }
}

#[test]
fn names_are_in_canonical_order() {
    let file: Value = serde_json::from_str(&read("name-order.json")).expect("JSON");
    let names: Vec<Name> = file["names"]
        .as_array()
        .expect("names")
        .iter()
        .map(|name| hex::decode(name.as_str().expect("hex")).expect("hex"))
        .map(|wire| Name::decode(&wire).expect("a name"))
        .collect();
    assert!(names.len() > 20);
    for (index, name) in names.iter().enumerate() {
        for (other_index, other) in names.iter().enumerate() {
            assert_eq!(name.cmp(other), index.cmp(&other_index), "{name} and {other}");
        }
    }
}

fn management(name: &str) -> (Vec<u8>, Value) {
    let record = records("mgmt.jsonl").into_iter().find(|record| record["name"] == name);
    let record = record.unwrap_or_else(|| panic!("{name} is missing"));
    (octets(&record), record["expect"].clone())
}

#[test]
fn a_link_packet_of_many_fields_decodes() {
    let (wire, expect) = management("cxx-lp-many-fields");
    let view = LpView::decode(&wire).expect("decodes");
    let header = &view.header;
    // `expect` says 05280703, but that is not in the packet.
    assert_eq!(hex::encode(header.pit_token.as_slice()), "05240703");
    assert_eq!(header.incoming_face.map(Value::from), Some(expect["incomingFaceId"].clone()));
    assert_eq!(header.next_hop_face.map(Value::from), Some(expect["nextHopFaceId"].clone()));
    assert_eq!(Value::from(header.congestion_mark), expect["congestionMark"]);
    assert_eq!(Value::from(header.non_discovery), expect["nonDiscovery"]);
    assert_eq!(view.framing.tx_sequence.map(Value::from), Some(expect["txSequence"].clone()));
    assert_eq!(Value::from(view.acks().collect::<Vec<_>>()), expect["acks"]);
    assert_eq!(view.framing.sequence.map(Value::from), Some(expect["sequence"].clone()));
    let interest = InterestView::decode(view.fragment.expect("a fragment")).expect("an Interest");
    let hints: Vec<String> = interest.forwarding_hint.iter().map(|name| name.to_string()).collect();
    assert_eq!(hints, ["/h1", "/h2"]);
    assert_eq!((interest.lifetime_ms, interest.hop_limit), (Some(1000), Some(9)));
    assert_eq!(view.header.encode(&view.framing, &[6, 7], view.fragment), wire);
}

#[test]
fn packets_of_the_management_vectors_decode() {
    let (wire, _) = management("cxx-command-rib-register-v03-digest");
    let command = InterestView::decode(&wire).expect("a command decodes");
    let signature = command.signature().expect("it is signed");
    assert_eq!(signature.check_digest(), Ok(()));
    assert!(signature.info().nonce.is_some() && signature.info().time_ms.is_some());

    let (wire, _) = management("cxx-command-rib-register-v02-digest");
    let old = InterestView::decode(&wire).expect("an old command is a plain Interest");
    assert!(old.signature().is_none() && old.name.component_count() == 9);

    let (wire, _) = management("cxx-certificate-ec");
    let certificate = DataView::decode(&wire).expect("a certificate decodes");
    let validity = certificate.signature_info().validity_period.expect("it has a validity period");
    assert_eq!((validity.not_before, validity.not_after), ("20261120T084652", "20461115T084652"));
    assert!(validity.to_validity_period().contains(1_795_164_412));

    let (wire, expect) = management("cxx-rdr-metadata");
    let metadata = DataView::decode(&wire).expect("metadata decodes");
    assert_eq!(metadata.name.uri(UriStyle::Numeric).to_string(), expect["name"]);
    let versioned = NameView::decode(metadata.content).expect("it holds a name");
    assert_eq!(versioned.uri(UriStyle::Numeric).to_string(), expect["VersionedName"]);

    for name in ["cxx-prefixannouncement", "cxx-link"] {
        let (wire, expect) = management(name);
        let data = DataView::decode(&wire).expect("decodes");
        assert_eq!(Value::from(data.content_type), expect["ContentType"]);
    }
}
