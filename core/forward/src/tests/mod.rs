//! Tests over one shard and a few faces: consumers `A` and `B` (local and not), upstreams `U`, `V`.

use alloc::vec;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_store::StoreConfig;
use weir_wire::{Data, Interest, InterestView, LpHeader, NackReason, Name, PitToken, tlv};

use crate::{
    Command, DropReason, Event, FaceAttributes, FaceScope, Input, LinkType, NextHop, OutPacket,
    Outbox, PitTokens, Router, RouterConfig,
};

mod access;
mod asf;
mod contents;
mod disk;
mod disks;
mod forgery;
mod forwarding;
mod multi_access;
mod multipath;
mod room;
mod scope;
mod self_learning;
mod sharding;
mod strategies;
mod topology;

/// A program on this host.
const LOCAL: FaceId = FaceId(256);
const LOCAL2: FaceId = FaceId(257);
/// Neighbours.
const U: FaceId = FaceId(258);
const V: FaceId = FaceId(259);
/// A radio link with several peers.
const RADIO: FaceId = FaceId(260);

/// A neighbour over UDP.
const SPOOFABLE: FaceId = FaceId(261);

/// A network of many hosts behind one face.
const SHARED: FaceId = FaceId(262);

/// An Interest, field by field.
#[derive(Clone)]
struct Ask {
    name: Name,
    can_be_prefix: bool,
    must_be_fresh: bool,
    hint: Option<Name>,
    nonce: Option<u32>,
    lifetime_ms: u64,
    hop_limit: Option<u8>,
}

impl Ask {
    fn new(name: &str, nonce: u32) -> Self {
        Self {
            name: name.parse().unwrap(),
            can_be_prefix: false,
            must_be_fresh: false,
            hint: None,
            nonce: Some(nonce),
            lifetime_ms: 4000,
            hop_limit: None,
        }
    }

    fn prefix(mut self) -> Self {
        self.can_be_prefix = true;
        self
    }

    fn fresh(mut self) -> Self {
        self.must_be_fresh = true;
        self
    }

    fn wire(&self) -> Vec<u8> {
        let mut interest = Interest::new(self.name.clone())
            .can_be_prefix(self.can_be_prefix)
            .must_be_fresh(self.must_be_fresh)
            .lifetime_ms(self.lifetime_ms);
        if let Some(hint) = &self.hint {
            interest = interest.forwarding_hint(vec![hint.clone()]);
        }
        if let Some(nonce) = self.nonce {
            interest = interest.nonce(nonce);
        }
        if let Some(hop_limit) = self.hop_limit {
            interest = interest.hop_limit(hop_limit);
        }
        interest.encode()
    }
}

fn data(name: &str, freshness_ms: u64) -> Vec<u8> {
    Data::new(name.parse().unwrap())
        .freshness_ms(freshness_ms)
        .content("content")
        .encode_with_digest()
}

/// The announcement of a prefix, unsigned.
fn announcement(prefix: &str) -> Vec<u8> {
    let mut name: Name = prefix.parse().unwrap();
    name.append_keyword(b"PA").append_version(1).append_segment(0);
    Data::new(name).content_type(5).content([0x6D, 2, 0x0E, 0x10]).encode_with_digest()
}

struct Fixture {
    router: Router,
    now: Instant,
    out: Outbox,
}

impl Fixture {
    fn new() -> Self {
        Self::with_config(RouterConfig {
            store: StoreConfig { capacity_bytes: 1 << 20, ..StoreConfig::default() },
            ..RouterConfig::default()
        })
    }

    fn with_config(config: RouterConfig) -> Self {
        let router = Router::new(Instant::ZERO, config);
        let now = Instant::from_ns(NS_PER_MS);
        let mut fixture = Self { router, now, out: Outbox::default() };
        for (face, scope, link_type) in [
            (FaceId::INTERNAL, FaceScope::Local, LinkType::PointToPoint),
            (LOCAL, FaceScope::Local, LinkType::PointToPoint),
            (LOCAL2, FaceScope::Local, LinkType::PointToPoint),
            (U, FaceScope::NonLocal, LinkType::PointToPoint),
            (V, FaceScope::NonLocal, LinkType::PointToPoint),
            (RADIO, FaceScope::NonLocal, LinkType::AdHoc),
            (SPOOFABLE, FaceScope::NonLocal, LinkType::PointToPoint),
            (SHARED, FaceScope::NonLocal, LinkType::MultiAccess),
        ] {
            let tokens = if face == SPOOFABLE { PitTokens::Secret } else { PitTokens::Shard };
            let attributes = FaceAttributes { scope, link_type, tokens, host: None };
            fixture.command(Command::AddFace { face, attributes });
        }
        fixture
    }

    fn handle(&mut self, inputs: &mut [Input]) {
        self.router.handle(self.now, inputs, &mut self.out);
    }

    fn command(&mut self, command: Command) {
        self.handle(&mut [Input::Command(command)]);
    }

    fn route(&mut self, prefix: &str, next_hops: &[(FaceId, u64)]) {
        let next_hops = next_hops.iter().map(|&(face, cost)| NextHop { face, cost }).collect();
        self.command(Command::SetNextHops { prefix: prefix.parse().unwrap(), next_hops });
    }

    fn strategy(&mut self, prefix: &str, name: &str) {
        let name: Name = name.parse().unwrap();
        let strategy = crate::strategy::Strategy::from_name(name.as_view()).unwrap();
        self.command(Command::SetStrategy {
            prefix: prefix.parse().unwrap(),
            strategy: Some(strategy),
        });
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.handle(&mut [Input::Wakeup]);
    }

    fn packet(&mut self, face: FaceId, header: LpHeader, wire: Vec<u8>) -> Vec<OutPacket> {
        let packet = Packet::from(wire);
        let mut inputs = [Input::Packet { face, header, packet }];
        self.handle(&mut inputs);
        self.take()
    }

    fn take(&mut self) -> Vec<OutPacket> {
        core::mem::take(&mut self.out.packets)
    }

    fn ask(&mut self, face: FaceId, ask: &Ask) -> Vec<OutPacket> {
        self.packet(face, LpHeader::default(), ask.wire())
    }

    fn answer(&mut self, face: FaceId, wire: Vec<u8>) -> Vec<OutPacket> {
        self.packet(face, LpHeader::default(), wire)
    }

    fn nack(&mut self, face: FaceId, reason: NackReason, interest: &Packet) -> Vec<OutPacket> {
        let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
        self.packet(face, header, interest.to_vec())
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.router.stats().drops[reason as usize]
    }
}

/// The packets that left, as (face, kind).
fn sent(packets: &[OutPacket]) -> Vec<(FaceId, PacketKind)> {
    packets.iter().map(|packet| (packet.face, kind(packet))).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketKind {
    Interest,
    Data,
    Nack,
}

fn kind(out: &OutPacket) -> PacketKind {
    match (out.header.nack, u32::from(out.packet[0])) {
        (Some(_), tlv::INTEREST) => PacketKind::Nack,
        (None, tlv::INTEREST) => PacketKind::Interest,
        (None, tlv::DATA) => PacketKind::Data,
        other => panic!("unexpected packet: {other:?}"),
    }
}

fn token(octets: &[u8]) -> LpHeader {
    LpHeader { pit_token: PitToken::new(octets).unwrap(), ..LpHeader::default() }
}

#[test]
fn erase_reports_count() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    for segment in 0..3 {
        let name = alloc::format!("/a/seg={segment}");
        fixture.ask(LOCAL, &Ask::new(&name, segment));
        fixture.answer(U, data(&name, 1000));
    }
    let prefix: Name = "/a".parse().unwrap();
    for (limit, erased, limit_reached) in [(2, 2, true), (2, 1, false)] {
        fixture.command(Command::EraseStore { transaction: 7, prefix: prefix.clone(), limit });
        let event = fixture.out.events.pop().unwrap();
        assert_eq!(event, Event::StoreErased { transaction: 7, erased, limit_reached });
    }
}

#[test]
fn malformed_packets_are_counted_by_reason() {
    let mut fixture = Fixture::new();
    let mut truncated = Ask::new("/a", 1).wire();
    truncated.pop();
    assert!(fixture.packet(U, LpHeader::default(), truncated).is_empty());
    assert_eq!(fixture.drops(DropReason::Malformed), 1);
    assert_eq!(fixture.router.stats().malformed.values().sum::<u64>(), 1);
}

#[test]
fn long_names_are_dropped_and_counted() {
    let mut fixture = Fixture::new();
    fixture.route("/", &[(U, 0)]);
    for (count, passes) in [(64, true), (65, false), (4000, false)] {
        let name = "/a".repeat(count);
        let out = fixture.ask(LOCAL, &Ask::new(&name, count as u32).prefix());
        assert_eq!(out.len(), usize::from(passes), "{count}");
        assert_eq!(fixture.answer(U, data(&name, 0)).len(), usize::from(passes), "{count}");
    }
    assert_eq!(fixture.drops(DropReason::LongName), 4);
}

#[test]
fn full_pit_sends_congestion_nack() {
    let mut fixture =
        Fixture::with_config(RouterConfig { pit_entries_max: 2, ..RouterConfig::default() });
    fixture.route("/a", &[(U, 0)]);
    for (index, expected) in
        [PacketKind::Interest, PacketKind::Interest, PacketKind::Nack].into_iter().enumerate()
    {
        let out = fixture.ask(LOCAL, &Ask::new(&alloc::format!("/a/{index}"), index as u32));
        assert_eq!(kind(&out[0]), expected);
    }
    assert_eq!(fixture.drops(DropReason::PitFull), 1);
    fixture.pass_ms(4100);
    assert_eq!(fixture.router.stats().pit_entries, 0);
    assert_eq!(fixture.router.next_wakeup(), None);
    let out = fixture.ask(LOCAL, &Ask::new("/a/3", 3));
    assert_eq!(sent(&out), vec![(U, PacketKind::Interest)]);
}

#[test]
fn face_is_limited_to_its_share_of_the_pit() {
    let mut fixture = Fixture::with_config(RouterConfig {
        pit_entries_per_face_max: 2,
        ..RouterConfig::default()
    });
    fixture.route("/a", &[(U, 0)]);
    let ask =
        |fixture: &mut Fixture, face, name: &str, nonce| fixture.ask(face, &Ask::new(name, nonce));
    for turn in 0..3 {
        assert_eq!(kind(&ask(&mut fixture, LOCAL, "/a/1", 10 * turn)[0]), PacketKind::Interest);
        assert_eq!(kind(&ask(&mut fixture, LOCAL, "/a/2", 10 * turn + 1)[0]), PacketKind::Interest);
        let refused = ask(&mut fixture, LOCAL, "/a/3", 10 * turn + 2);
        assert_eq!(refused[0].header.nack, Some(NackReason::Congestion));
        assert_eq!(kind(&ask(&mut fixture, V, "/a/3", 10 * turn + 3)[0]), PacketKind::Interest);
        // Data, a Nack and expiry all free the share.
        match turn {
            0 => ["/a/1", "/a/2", "/a/3"].iter().for_each(|name| {
                let header = LpHeader { no_cache: true, ..LpHeader::default() };
                fixture.packet(U, header, data(name, 0));
            }),
            1 => fixture.pass_ms(10_000),
            _ => {}
        }
    }
    let again = ask(&mut fixture, LOCAL, "/a/1", 99);
    assert!(again.iter().all(|packet| kind(packet) != PacketKind::Nack), "it waits already");
}
