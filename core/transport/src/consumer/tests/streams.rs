//! Streams of hICN producers, and flags that no signature covers.

use std::string::{String, ToString};

use weir_hicn::{Flags, Header, HicnName, HicnView, to_tlv};
use weir_security::{SignatureType, UnsignedHicnVerifier, VerifyError, sha256};
use weir_wire::{DataView, SignatureInfo};

use super::*;
use crate::mapping::NameMapping;

/// HMAC-SHA256, for keys of at most 64 octets.
struct ShortHmac(&'static [u8]);

impl Verifier for ShortHmac {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        let pad = |octet: u8| {
            let mut block = [octet; 64];
            block.iter_mut().zip(self.0).for_each(|(pad, key)| *pad ^= key);
            block
        };
        let inner_pad = pad(0x36);
        let inner = sha256(&[&[&inner_pad[..]], portions].concat());
        let tag = sha256(&[&pad(0x5C), &inner]);
        if tag == *signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

/// The offset of the flags in a packet.
const FLAGS_AT: usize = 53;
const HEADER_SIZE: usize = 60;

fn address() -> Ipv6Addr {
    "b001::1".parse().unwrap()
}

pub(super) fn stream() -> Name {
    HicnName::prefix(&address().octets())
}

/// An hICN packet without authentication header.
fn packet(suffix: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        name: HicnName { address: address(), suffix },
        locator: Ipv6Addr::UNSPECIFIED,
        flags: flags.with(Flags::DATA),
        hop_limit: 255,
        is_marked: false,
        path_label: 0,
        lifetime_ms: 1000,
    };
    [&header.encode(&[&[], payload]).unwrap()[..], payload].concat()
}

pub(super) fn data_of(packet: &[u8]) -> Vec<u8> {
    to_tlv(&HicnView::decode(packet).unwrap(), 0).unwrap()
}

/// The same Data with the ContentType of a refusal.
fn changed_to_nack(data: &[u8]) -> Vec<u8> {
    let view = DataView::decode(data).unwrap();
    let (info, value) = (view.signature_info(), view.signature_value());
    let (key_locator, algorithm) = (info.key_locator, info.signature_type);
    assert!(key_locator.is_none());
    let info = SignatureInfo::new(algorithm);
    let changed = Data::new(view.name.to_name()).content_type(3).content(view.content);
    changed.encode_signed(&info, |_| value.to_vec())
}

/// A manifest as hICN's library makes it. `change` may make it lie.
fn manifest(
    suffix: u32,
    listed: &[&Vec<u8>],
    is_last: bool,
    final_suffix: u32,
    change: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut payload = vec![0x11, 30, 1, u8::from(is_last), listed.len() as u8, 1, 0, 0];
    payload.extend(address().octets());
    payload.extend(final_suffix.to_le_bytes());
    for (listed, at) in listed.iter().zip(suffix + 1..) {
        payload.extend(at.to_be_bytes());
        let name = HicnName { address: address(), suffix: at };
        let mut zeroed = vec![0; HEADER_SIZE];
        zeroed[8..24].copy_from_slice(&name.address.octets());
        zeroed[44..48].copy_from_slice(&name.suffix.to_be_bytes());
        payload.extend(sha256(&[&zeroed, &listed[HEADER_SIZE..]]));
    }
    change(&mut payload);
    packet(suffix, Flags::MANIFEST, &payload)
}

/// The packets that a producer has, by suffix.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) packets: BTreeMap<u64, Vec<u8>>,
    requests: u32,
    /// The producer answers that other packets do not exist, as repositories of ours do.
    denies_others: bool,
    /// The packets are those of a store, and no router has a route to the producer.
    lacks_route: bool,
    /// A router has a copy of this packet whose ContentType it changed to Nack.
    changed_to_nack: Option<u64>,
    /// A router has a copy of this packet with the manifest flag.
    marked_as_manifest: Option<u64>,
}

impl Stream {
    /// Segments of three octets, without manifests. The last has the flag.
    pub(super) fn plain(segments: u32) -> Self {
        let last = |at| Flags::default().with_if(Flags::LAST, at + 1 == segments);
        let packets = (0..segments).map(|at| packet(at, last(at), &at.to_be_bytes()[1..]));
        Self::of(packets)
    }

    /// The same with manifests of `per_part` segments, which state `final_suffix`.
    fn listed(segments: u32, per_part: usize, final_suffix: u32) -> Self {
        let numbers: Vec<u32> = (0..segments).collect();
        let mut packets = Vec::new();
        for numbers in numbers.chunks(per_part) {
            let at = packets.len() as u32;
            let segment = |(number, at): (&u32, u32)| {
                packet(at, Flags::default(), &number.to_be_bytes()[1..])
            };
            let listed: Vec<Vec<u8>> = numbers.iter().zip(at + 1..).map(segment).collect();
            let is_last = numbers.last() == Some(&(segments - 1));
            let refs: Vec<&Vec<u8>> = listed.iter().collect();
            packets.push(manifest(at, &refs, is_last, final_suffix, |_| {}));
            packets.extend(listed);
        }
        Self::of(packets.into_iter())
    }

    fn of(packets: impl Iterator<Item = Vec<u8>>) -> Self {
        let packets = (0..).zip(packets).collect();
        Self { packets, ..Self::default() }
    }

    /// A stream of the public library (`core/hicn/tests/vectors/bytestream.jsonl`).
    fn captured(stream: &str) -> Self {
        let lines = include_str!("../../../../hicn/tests/vectors/bytestream.jsonl").lines();
        let of_stream = std::format!("\"stream\": \"{stream}\"");
        let packets = lines.filter(|line| line.contains(&of_stream)).map(|line| {
            let hex = line.split('"').rev().nth(1).unwrap();
            let octet = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(octet).collect()
        });
        Self::of(packets)
    }

    /// Changes the flags of a packet on the way.
    fn flip(&mut self, suffix: u64, flag: Flags) {
        self.packets.get_mut(&suffix).unwrap()[FLAGS_AT] ^= flag.octet();
    }
}

/// What a consumer got.
struct Fetched {
    fixture: Fixture,
    octets: Vec<u8>,
    /// `None` after success.
    error: Option<String>,
}

impl Fetched {
    fn has_signed_end(&self) -> bool {
        !self.fixture.consumer.stats().has_unsigned_end
    }
}

fn config() -> ConsumerConfig {
    ConsumerConfig { controller: Controller::FIXED, window: Some(8), ..ConsumerConfig::default() }
}

/// Fetches a stream. Packets need the signature of `key`, unless a manifest lists them.
fn fetch_by(stream_of: &mut Stream, key: Arc<dyn Verifier>, config: ConsumerConfig) -> Fetched {
    let target = Target::Latest { object: stream(), allow_stored: true };
    let mut fixture = Fixture::new(target, config);
    fixture.inputs.push(ConsumerInput::Read { segments: 10_000 });
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    fixture.input(start);
    let (mut octets, mut error) = (Vec::new(), None);
    for _ in 0..10_000 {
        for requested in core::mem::take(&mut fixture.requested) {
            let interest = InterestView::decode(&requested).unwrap();
            let suffix = interest.name.last().unwrap().as_segment().unwrap();
            stream_of.requests += 1;
            let mut header = LpHeader::default();
            let packet: Packet = match stream_of.packets.get(&suffix) {
                Some(packet)
                    if stream_of.changed_to_nack == Some(suffix) && !interest.must_be_fresh =>
                {
                    changed_to_nack(&data_of(packet)).into()
                }
                Some(packet)
                    if stream_of.marked_as_manifest == Some(suffix) && !interest.must_be_fresh =>
                {
                    let mut packet = packet.clone();
                    packet[FLAGS_AT] |= Flags::MANIFEST.octet();
                    data_of(&packet).into()
                }
                Some(packet) => data_of(packet).into(),
                None if stream_of.denies_others => {
                    let absence = Data::new(interest.name.to_name()).content_type(3);
                    absence.encode_signed(&SignatureInfo::new(0), |_| vec![0; 32]).into()
                }
                None if stream_of.lacks_route => {
                    header.nack = Some(NackReason::NoRoute);
                    requested.clone().into()
                }
                None => continue,
            };
            fixture.inputs.push(ConsumerInput::Packet { path: PATH, header, packet });
        }
        for op in core::mem::take(&mut fixture.out.verify) {
            let verdict = op.check.run(&DataView::decode(&op.packet).unwrap());
            fixture.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
        }
        for event in core::mem::take(&mut fixture.out.events) {
            match event {
                ConsumerEvent::NeedKey { key: id, .. } => {
                    fixture.inputs.push(ConsumerInput::Key { key: id, verifier: Ok(key.clone()) });
                }
                ConsumerEvent::Failed(reason) => error = Some(reason.to_string()),
                _ => {}
            }
        }
        for delivery in core::mem::take(&mut fixture.out.deliveries) {
            octets.extend(DataView::decode(&delivery.packet).unwrap().content);
        }
        if fixture.consumer.has_ended() {
            return Fetched { fixture, octets, error };
        }
        if fixture.inputs.is_empty() {
            let wakeup = fixture.consumer.next_wakeup().expect("it waits for something");
            fixture.now = fixture.now.plus_ns(1).max(wakeup);
        }
        fixture.step();
    }
    panic!("the fetch does not end");
}

fn fetch(stream: &mut Stream) -> Fetched {
    fetch_by(stream, Arc::new(UnsignedHicnVerifier), config())
}

pub(super) fn content(segments: u32) -> Vec<u8> {
    (0..segments).flat_map(|at: u32| at.to_be_bytes()[1..].to_vec()).collect()
}

#[test]
fn plain_stream_ends_unsigned() {
    for segments in [1, 2, 7, 8, 9, 40] {
        let fetched = fetch(&mut Stream::plain(segments));
        assert_eq!((fetched.error.as_deref(), &fetched.octets), (None, &content(segments)));
        assert!(!fetched.has_signed_end());
    }
}

/// After the producer has gone, a store may still have the whole stream.
#[test]
fn stream_without_route_to_its_producer_ends_unsigned() {
    for segments in [1, 2, 7, 8, 9, 40] {
        let mut stream = Stream { lacks_route: true, ..Stream::plain(segments) };
        let fetched = fetch(&mut stream);
        assert_eq!((fetched.error.as_deref(), &fetched.octets), (None, &content(segments)));
        assert!(!fetched.has_signed_end());
    }
}

/// Requests behind the end get an answer. It neither fails the fetch nor truncates the stream.
#[test]
fn packets_behind_the_end_are_denied() {
    let denying = |mut stream: Stream| {
        stream.denies_others = true;
        stream
    };
    for segments in [1, 2, 7, 8, 9, 40] {
        let fetched = fetch(&mut denying(Stream::plain(segments)));
        assert_eq!((fetched.error.as_deref(), &fetched.octets), (None, &content(segments)));
        assert!(!fetched.has_signed_end());
        assert!(fetched.fixture.now < Instant::ZERO.plus_ns(NS_PER_S), "no time-out");
        for final_suffix in [segments, 0, segments + 5, u32::MAX] {
            let fetched = fetch(&mut denying(Stream::listed(segments, 4, final_suffix)));
            assert_eq!((fetched.error.as_deref(), &fetched.octets), (None, &content(segments)));
            assert!(fetched.has_signed_end());
        }
    }
    for (missing, flipped) in [(0, None), (3, None), (38, None), (39, None), (40, Some(39))] {
        for mut stream in [Stream::plain(40), Stream::listed(32, 4, 39)] {
            stream.packets.remove(&missing);
            if let Some(flipped) = flipped {
                stream.flip(flipped, Flags::LAST);
                stream.packets.remove(&39);
            }
            let fetched = fetch(&mut denying(stream));
            let error = fetched.error.expect("an error");
            assert!(error.starts_with("the producer has no"), "{missing}: {error}");
        }
    }
    let mut stream = denying(Stream::plain(40));
    (0..39).for_each(|suffix| stream.flip(suffix, Flags::LAST));
    let fetched = fetch(&mut stream);
    assert_eq!((fetched.error, fetched.octets), (None, content(40)));
}

/// A flag that a router set neither ends the stream, nor costs more than a few round trips.
#[test]
fn false_last_flag_does_not_truncate() {
    for flipped in [0..1, 3..4, 20..22, 0..39] {
        let mut stream = Stream::plain(40);
        flipped.clone().for_each(|suffix| stream.flip(suffix, Flags::LAST));
        let fetched = fetch(&mut stream);
        assert_eq!(fetched.error, None, "{flipped:?}");
        assert_eq!(fetched.octets, content(40), "{flipped:?}");
        assert!(fetched.fixture.now < Instant::ZERO.plus_ns(10 * NS_PER_S), "{flipped:?}");
        assert!(stream.requests < 80, "{flipped:?}: {}", stream.requests);
    }
}

/// hICN has no refusals, and its signature does not cover the ContentType. So the packet is a bad
/// copy.
#[test]
fn changed_content_type_is_no_refusal() {
    for changed in [0, 3, 39] {
        for (mut stream, segments) in [(Stream::plain(40), 40), (Stream::listed(32, 4, 39), 32)] {
            stream.changed_to_nack = Some(changed);
            let fetched = fetch(&mut stream);
            assert_eq!((fetched.error, fetched.octets), (None, content(segments)), "{changed}");
        }
    }
}

/// The first packet shows by its content whether a stream has manifests. With a false flag it is a
/// bad copy.
#[test]
fn false_manifest_flag_is_a_bad_copy() {
    for marked in [0, 3, 39] {
        let mut stream = Stream::plain(40);
        stream.marked_as_manifest = Some(marked);
        let fetched = fetch(&mut stream);
        assert_eq!((fetched.error, fetched.octets), (None, content(40)), "{marked}");
    }
}

/// Key identifiers are any octets, so forged ones must not use up the signers of a fetch.
#[test]
fn many_key_identifiers_end_no_fetch() {
    const AH_BYTES: usize = 44;
    const KEY_ID_AT: usize = 12;
    let packets = (0..40_u32).map(|at| {
        let mut payload = vec![0; AH_BYTES];
        payload[KEY_ID_AT] = at as u8;
        payload.extend(&at.to_be_bytes()[1..]);
        packet(at, Flags::AH.with_if(Flags::LAST, at == 39), &payload)
    });
    let fetched = fetch(&mut Stream::of(packets));
    assert_eq!((fetched.error, fetched.octets), (None, content(40)));
}

/// Without the flag, the end of a stream looks like loss.
#[test]
fn removed_last_flag_ends_with_error() {
    let mut stream = Stream::plain(10);
    stream.flip(9, Flags::LAST);
    let fetched = fetch(&mut stream);
    let error = fetched.error.expect("an error");
    assert!(error.starts_with("no answer for /32=hicn") && error.ends_with("seg=10"), "{error}");
    assert!(fetched.fixture.now < Instant::ZERO.plus_ns(100 * NS_PER_S));
}

/// The producer stops responding in the middle of a stream. Each Interest is sent up to three
/// times and waits for at most 500 ms, so the fetch may take 1.5 s, and 500 ms more for the
/// attempt that is under way then. The segments in flight must not take turns in a small window.
#[test]
fn stalled_stream_fails_after_its_retries() {
    let end_of = |controller, segments: u32| {
        let mut stream = Stream::plain(segments);
        stream.flip(u64::from(segments) - 1, Flags::LAST);
        let config =
            ConsumerConfig { controller, retries_max: 2, lifetime_ms: 500, ..Default::default() };
        let fetched = fetch_by(&mut stream, Arc::new(UnsignedHicnVerifier), config);
        let error = fetched.error.expect("an error");
        let first_missing = std::format!("seg={segments}");
        assert!(error.starts_with("no answer for") && error.ends_with(&first_missing), "{error}");
        assert_eq!(fetched.octets, content(segments));
        // All packets arrive at time 0.
        fetched.fixture.now.ns_since(Instant::ZERO) / NS_PER_MS
    };
    for controller in [Controller::CUBIC, Controller::AIMD, Controller::FIXED, Controller::WEIR] {
        let took_ms = [1, 20, 200, 1000].map(|segments| end_of(controller, segments));
        assert!(took_ms.iter().all(|ms| (500..=2000).contains(ms)), "{controller}: {took_ms:?}");
    }
}

/// The end of an object with metadata is signed. What its packets claim does not count.
#[test]
fn flags_do_not_count_if_metadata_state_the_end() {
    let mapping: NameMapping = "hicn:2001:db8:7::/48".parse().unwrap();
    let versioned: Name = "/a/54=%01".parse().unwrap();
    let metadata = Metadata { last_segment: Some(5), ..Metadata::new(versioned.clone()) };
    let config = ConsumerConfig { mapping, verification: Verification::ByDriver, ..config() };
    let mut fixture = Fixture::new(Target::KnownMetadata { metadata }, config);
    fixture.inputs.push(ConsumerInput::Read { segments: 100 });
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    let asked = fixture.input(start);
    assert_eq!(asked.len(), 6);
    let address = HicnName::from_name(asked[0].as_view()).unwrap().address;
    for (at, name) in asked.iter().enumerate() {
        assert_eq!(fixture.out.deliveries.len(), at, "{:?}", fixture.out.events);
        let mut octets = packet(at as u32, Flags::default().with_if(Flags::LAST, at == 2), b"x");
        octets[8..24].copy_from_slice(&address.octets());
        let packet = data_of(&octets);
        assert_eq!(DataView::decode(&packet).unwrap().name, name.as_view());
        let (path, header) = (PATH, LpHeader::default());
        fixture.input(ConsumerInput::Packet { path, header, packet: packet.into() });
        assert_eq!(fixture.verify(true), []);
    }
    assert_eq!(fixture.events().last().unwrap(), "Done");
    assert!(!fixture.consumer.stats().has_unsigned_end);
}

/// What the network answers to requests for metadata.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum MetadataAnswer {
    None,
    /// Metadata of an older version, which end at another segment.
    Older,
    /// The same if routers may answer from their stores.
    OlderUnlessFresh,
    Right,
    Forged,
}

/// The answer to a request for a version of six segments. The third and the last one have the last
/// flag. `denied_from`: segments from this one on are denied. If it is less than six, a router does
/// that.
fn answer_of_version(
    interest: &InterestView<'_>,
    answer: MetadataAnswer,
    denied_from: Option<u32>,
) -> Option<Vec<u8>> {
    let HicnName { address, suffix } = HicnName::from_name(interest.name).unwrap();
    let name = interest.name.to_name();
    if suffix == u32::MAX {
        let is_older = match answer {
            MetadataAnswer::None => return None,
            MetadataAnswer::Older => true,
            MetadataAnswer::OlderUnlessFresh => !interest.must_be_fresh,
            MetadataAnswer::Right | MetadataAnswer::Forged => false,
        };
        let (version, last) = if is_older { ("/a/54=%01", 2) } else { ("/a/54=%02", 5) };
        let metadata = Metadata::new(version.parse().unwrap());
        let metadata = Metadata { last_segment: Some(last), ..metadata };
        return Some(Data::new(name).content(metadata.encode()).encode_with_digest());
    }
    if denied_from.is_some_and(|denied| suffix >= denied) {
        let absence = Data::new(name).content_type(3);
        return Some(absence.encode_signed(&SignatureInfo::new(0), |_| vec![0; 32]));
    }
    if suffix < 6 {
        let flags = Flags::default().with_if(Flags::LAST, matches!(suffix, 2 | 5));
        let mut octets = packet(suffix, flags, b"x");
        octets[8..24].copy_from_slice(&address.octets());
        return Some(data_of(&octets));
    }
    None
}

#[derive(Debug)]
struct FetchedVersion {
    seconds: u64,
    segments: usize,
    has_failed: bool,
    has_signed_end: bool,
}

/// Fetches by the name of a version.
fn fetch_version(answer: MetadataAnswer, denied_from: Option<u32>) -> FetchedVersion {
    let mapping: NameMapping = "hicn:2001:db8:7::/48".parse().unwrap();
    let (object, versioned): (Name, Name) = ("/a".parse().unwrap(), "/a/54=%02".parse().unwrap());
    let metadata_name = mapping.metadata_interest(object.as_view()).0;
    let config = ConsumerConfig {
        mapping,
        verification: Verification::ByDriver,
        look_for_manifest: false,
        ..config()
    };
    let target = Target::Version { versioned };
    let mut fixture = Fixture::new(target.clone(), config);
    fixture.inputs.push(ConsumerInput::Read { segments: 100 });
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    fixture.input(start);
    let mut segments = 0;
    for _ in 0..1000 {
        for interest in core::mem::take(&mut fixture.requested) {
            let interest = InterestView::decode(&interest).unwrap();
            assert!(target.prefixes(mapping).any(|it| it.as_view().is_prefix_of(interest.name)));
            let Some(packet) = answer_of_version(&interest, answer, denied_from) else {
                continue;
            };
            let (path, header) = (PATH, LpHeader::default());
            fixture.inputs.push(ConsumerInput::Packet { path, header, packet: packet.into() });
        }
        for op in core::mem::take(&mut fixture.out.verify) {
            let data = DataView::decode(&op.packet).unwrap();
            let is_forged =
                data.name == metadata_name.as_view() && answer == MetadataAnswer::Forged;
            let verdict = if is_forged {
                Verdict::Bad { reason: "forged".into(), digest: None }
            } else {
                Verdict::Good
            };
            fixture.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
        }
        segments += core::mem::take(&mut fixture.out.deliveries).len();
        if fixture.consumer.has_ended() {
            return FetchedVersion {
                seconds: fixture.now.ns_since(Instant::ZERO) / NS_PER_S,
                segments,
                has_failed: fixture.events().iter().any(|event| event.starts_with("Failed")),
                has_signed_end: !fixture.consumer.stats().has_unsigned_end,
            };
        }
        if fixture.inputs.is_empty() {
            let wakeup = fixture.consumer.next_wakeup().expect("it waits for something");
            fixture.now = fixture.now.plus_ns(1).max(wakeup);
        }
        fixture.step();
    }
    panic!("the fetch does not end");
}

/// The end of a version that is fetched by its name, from metadata that are requested for it.
#[test]
fn metadata_confirm_end_of_a_version() {
    for denied_from in [None, Some(6)] {
        for answer in [MetadataAnswer::Right, MetadataAnswer::OlderUnlessFresh] {
            let fetched = fetch_version(answer, denied_from);
            assert!(fetched.segments == 6 && !fetched.has_failed, "{answer:?}: {fetched:?}");
            assert!(fetched.has_signed_end && fetched.seconds == 0, "{answer:?}: {fetched:?}");
        }
        for answer in [MetadataAnswer::None, MetadataAnswer::Older, MetadataAnswer::Forged] {
            let fetched = fetch_version(answer, denied_from);
            assert!(fetched.segments == 6 && !fetched.has_failed, "{answer:?}: {fetched:?}");
            assert!(!fetched.has_signed_end, "{answer:?}");
            // A denied segment confirms the end. The fetch still waits for metadata, up to 3 s.
            let is_quick = denied_from.is_some() && answer != MetadataAnswer::None;
            assert_eq!(fetched.seconds, if is_quick { 0 } else { 3 }, "{answer:?}");
        }
    }
}

/// A router sets the last flag and denies the segments behind it. Metadata that arrive after the
/// denial reveal that. Without them, the end counts as unsigned.
#[test]
fn metadata_reveal_forged_denial() {
    let fetched = fetch_version(MetadataAnswer::Right, Some(3));
    assert!(fetched.has_failed, "{fetched:?}");
    let fetched = fetch_version(MetadataAnswer::None, Some(3));
    assert!(fetched.segments == 3 && !fetched.has_failed, "{fetched:?}");
    assert!(!fetched.has_signed_end, "{fetched:?}");
}

#[test]
fn manifests_list_the_packets_of_a_stream() {
    for (segments, per_part) in [(1_u32, 4), (4, 4), (5, 4), (40, 7), (40, 1), (300, 38)] {
        let packets = segments + segments.div_ceil(per_part);
        // The final segment that a producer states may be too low or too high.
        for final_suffix in [packets - 1, 0, packets / 2, packets + 5, u32::MAX - 1, u32::MAX] {
            let mut stream = Stream::listed(segments, per_part as usize, final_suffix);
            let fetched = fetch(&mut stream);
            let case = (segments, per_part, final_suffix);
            assert_eq!(fetched.error, None, "{case:?}");
            assert_eq!(fetched.octets, content(segments), "{case:?}");
            assert!(fetched.has_signed_end());
        }
    }
}

#[test]
fn flags_of_a_stream_with_manifests_do_not_count() {
    for flag in [Flags::LAST, Flags::MANIFEST] {
        let mut stream = Stream::listed(40, 7, 45);
        for suffix in 0..46 {
            stream.flip(suffix, flag);
        }
        let fetched = fetch(&mut stream);
        assert_eq!((fetched.error, fetched.octets), (None, content(40)), "{flag:?}");
        assert!(!fetched.fixture.consumer.stats().has_unsigned_end);
    }
    // Nor that of a manifest in a stream without.
    let mut stream = Stream::plain(9);
    (1..9).for_each(|suffix| stream.flip(suffix, Flags::MANIFEST));
    assert_eq!(fetch(&mut stream).octets, content(9));
}

/// A segment that is not the one listed is requested again, then the fetch fails.
#[test]
fn forged_segment_of_a_listed_stream_is_refused() {
    let mut stream = Stream::listed(10, 4, 12);
    *stream.packets.get_mut(&7).unwrap().last_mut().unwrap() ^= 1;
    let error = fetch(&mut stream).error.expect("an error");
    assert!(error.contains("segment 5 cannot be verified: its digest differs"), "{error}");
}

#[test]
fn manifests_that_lie_are_refused() {
    const ADDRESS_AT: usize = 8;
    const FIRST_ENTRY_AT: usize = 28;
    let entry_at = |at: usize| FIRST_ENTRY_AT + 36 * at;
    type Change = std::boxed::Box<dyn Fn(&mut Vec<u8>)>;
    let cases: [(&str, Change); 7] = [
        ("it lists packets of b001::2", {
            std::boxed::Box::new(|payload| payload[ADDRESS_AT + 15] = 2)
        }),
        ("it lists packet 6 where packet 7 must be", {
            // Repeated.
            std::boxed::Box::new(move |payload| payload[entry_at(1) + 3] = 6)
        }),
        ("it lists packet 4294967046 where packet 6 must be", {
            std::boxed::Box::new(move |payload| payload[entry_at(0)..][..3].fill(0xFF))
        }),
        ("the manifest declares 9 entries", std::boxed::Box::new(|payload| payload[4] = 9)),
        ("it lists 3 packets, the first one of the stream 4", {
            std::boxed::Box::new(move |payload| {
                payload[4] = 3;
                payload.truncate(entry_at(3));
            })
        }),
        ("it lists no packets", {
            std::boxed::Box::new(move |payload| {
                payload[4] = 0;
                payload.truncate(entry_at(0));
            })
        }),
        ("it is of a live stream", {
            std::boxed::Box::new(move |payload| {
                payload[0] = 0x21;
                payload.splice(entry_at(0)..entry_at(0), [0; 16]);
            })
        }),
    ];
    for (reason, change) in cases {
        let mut stream = Stream::listed(12, 4, 14);
        let listed: Vec<Vec<u8>> = (6..10).map(|at| stream.packets[&at].clone()).collect();
        let refs: Vec<&Vec<u8>> = listed.iter().collect();
        stream.packets.insert(5, manifest(5, &refs, false, 14, change));
        let error = fetch(&mut stream).error.expect("an error");
        let expected = std::format!("the manifest at packet 5 cannot be verified: {reason}");
        assert!(error.contains(&expected), "{reason}: {error}");
    }
}

/// A live stream has manifests without entries.
#[test]
fn live_stream_is_refused_with_a_reason() {
    let mut stream = Stream::default();
    let change = |payload: &mut Vec<u8>| {
        payload[0] = 0x21;
        payload.extend([0; 16]);
    };
    stream.packets.insert(0, manifest(0, &[], false, 0, change));
    let error = fetch(&mut stream).error.expect("an error");
    assert!(error.contains("it is of a live stream, which is not supported"), "{error}");
}

/// Packets of the public library: unsigned, signed with HMAC, and with a final segment that is too
/// low.
#[test]
fn captured_streams_verify() {
    let hmac: Arc<dyn Verifier> = Arc::new(ShortHmac(b"secret-of-the-producer"));
    let other: Arc<dyn Verifier> = Arc::new(ShortHmac(b"other"));
    let unsigned: Arc<dyn Verifier> = Arc::new(UnsignedHicnVerifier);
    for (name, key) in [("none", &unsigned), ("hmac", &hmac), ("low", &hmac)] {
        let mut stream = Stream::captured(name);
        assert_eq!(stream.packets.len(), 8);
        let fetched = fetch_by(&mut stream, key.clone(), config());
        assert_eq!(fetched.error, None, "{name}");
        assert_eq!(fetched.octets, [b'?'; 1000], "{name}");
        assert!(fetched.has_signed_end());
    }
    for (name, key) in [("none", &hmac), ("hmac", &other), ("hmac", &unsigned)] {
        let error = fetch_by(&mut Stream::captured(name), key.clone(), config()).error;
        let error = error.expect("an error");
        assert!(error.contains("packet 0 cannot be verified"), "{name}: {error}");
        // Nothing verified shows that it is a manifest.
        assert!(!error.contains("the manifest"), "{name}: {error}");
    }
}

#[test]
fn unverified_stream_is_read_by_manifests_as_well() {
    let config = ConsumerConfig { verification: Verification::Off, ..config() };
    let key: Arc<dyn Verifier> = Arc::new(UnsignedHicnVerifier);
    let fetched = fetch_by(&mut Stream::listed(40, 7, 45), key.clone(), config.clone());
    assert_eq!((fetched.error, fetched.octets), (None, content(40)));
    let fetched = fetch_by(&mut Stream::plain(40), key, config);
    assert_eq!((fetched.error, fetched.octets), (None, content(40)));
}

/// Data of two paths behind one router: labels keep them apart. A router that writes random labels
/// changes nothing else.
#[test]
fn path_labels_are_measured() {
    const LABEL_AT: usize = 51;
    let fetched_with = |label_of: fn(u64) -> u8| {
        let mut stream = Stream::plain(200);
        for (suffix, packet) in &mut stream.packets {
            packet[LABEL_AT] = label_of(*suffix);
        }
        let fetched = fetch(&mut stream);
        assert_eq!((fetched.error.as_deref(), &fetched.octets), (None, &content(200)));
        fetched.fixture.consumer.label_stats(PATH)
    };
    let stats = fetched_with(|suffix| if suffix % 4 == 0 { 0x92 } else { 0 });
    let answers: u64 = stats.iter().map(|label| label.answers).sum();
    // The first packet is requested before the window.
    assert_eq!((stats.len(), answers), (2, 199), "{stats:?}");
    let rare = stats.iter().find(|label| label.label == 0x92).unwrap();
    assert_eq!((rare.answers, rare.losses), (49, 0));
    assert!(rare.rtt_smoothed_ns.is_some());
    assert_eq!(fetched_with(|suffix| suffix as u8).len(), 16);
}

/// Numbers of a range below an address are suffixes, as stores and prefetching use them.
#[test]
fn range_of_an_address_is_plain() {
    let config = ConsumerConfig {
        verification: Verification::ByDriver,
        look_for_manifest: false,
        ..config()
    };
    let target = Target::Range { versioned: stream(), segments: 3..5 };
    let mut fixture = Fixture::new(target, config);
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::None };
    let suffix = |name: &Name| name.as_view().last().unwrap().as_segment().unwrap();
    let asked = fixture.input(start);
    assert_eq!(asked.iter().map(suffix).collect::<Vec<_>>(), [3, 4]);
}
