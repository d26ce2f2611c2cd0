//! Several routers with links, consumers and producers under virtual time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;

use super::*;
use crate::AnnouncedPacket;

/// A router of a [`Topology`], by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node(usize);

/// One end of a link, or the face of a program.
pub(super) type End = (Node, FaceId);

/// What has passed one end, seen from its router.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) out_interests: u32,
    pub(super) out_data: u32,
    pub(super) out_nacks: u32,
    pub(super) in_data: u32,
    pub(super) in_nacks: u32,
}

/// What is behind an end.
enum Peer {
    Link {
        to: End,
        delay_ns: u64,
    },
    /// A network segment: every other end receives each packet.
    Segment {
        others: Vec<End>,
        delay_ns: u64,
    },
    Consumer,
    Producer {
        prefix: Name,
        delay_ns: u64,
    },
}

struct EndState {
    peer: Peer,
    is_down: bool,
    counts: Counts,
}

struct InFlight {
    header: LpHeader,
    packet: Packet,
    announcement: Option<Packet>,
}

/// The next event is the earliest packet in flight, or the earliest timer of a router.
pub(super) struct Topology {
    now: Instant,
    routers: Vec<Router>,
    ends: BTreeMap<End, EndState>,
    routes: BTreeMap<(Node, Name), Vec<NextHop>>,
    /// Packets by time of arrival, in the order in which they were sent.
    in_flight: BTreeMap<(Instant, u64), (End, InFlight)>,
    /// The announcements of prefixes, and the faces of learned routes.
    announcements: BTreeMap<(Node, Name), (FaceId, Packet)>,
    packets: u64,
}

impl Topology {
    pub(super) fn new() -> Self {
        Self {
            now: Instant::from_ns(NS_PER_MS),
            routers: Vec::new(),
            ends: BTreeMap::new(),
            routes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            announcements: BTreeMap::new(),
            packets: 0,
        }
    }

    /// Adds a router that has this strategy for all names.
    pub(super) fn router(&mut self, strategy: &str) -> Node {
        let node = Node(self.routers.len());
        self.routers.push(Router::new(self.now, RouterConfig::default()));
        let name: Name = format!("/localhost/nfd/strategy/{strategy}").parse().unwrap();
        let strategy = Some(crate::strategy::Strategy::from_name(name.as_view()).unwrap());
        self.command(node, Command::SetStrategy { prefix: Name::new(), strategy });
        node
    }

    pub(super) fn link(&mut self, [a, b]: [Node; 2], delay_ms: u64) -> [End; 2] {
        let (from, to) = (self.face(a, FaceScope::NonLocal), self.face(b, FaceScope::NonLocal));
        let delay_ns = delay_ms * NS_PER_MS;
        self.connect(from, Peer::Link { to, delay_ns });
        self.connect(to, Peer::Link { to: from, delay_ns });
        [from, to]
    }

    /// Connects all nodes by one network segment.
    pub(super) fn segment<const N: usize>(&mut self, nodes: [Node; N], delay_ms: u64) -> [End; N] {
        let attributes = FaceAttributes {
            link_type: LinkType::MultiAccess,
            tokens: PitTokens::Off,
            ..FaceAttributes::point_to_point(FaceScope::NonLocal)
        };
        let delay_ns = delay_ms * NS_PER_MS;
        let ends = nodes.map(|node| {
            let end = self.face_with(node, attributes);
            self.connect(end, Peer::Segment { others: Vec::new(), delay_ns });
            end
        });
        for end in ends {
            let others = ends.into_iter().filter(|&other| other != end).collect();
            self.connect(end, Peer::Segment { others, delay_ns });
        }
        ends
    }

    pub(super) fn drops(&self, node: Node, reason: DropReason) -> u64 {
        self.routers[node.0].stats().drops[reason as usize]
    }

    pub(super) fn consumer(&mut self, node: Node) -> End {
        let end = self.face(node, FaceScope::Local);
        self.connect(end, Peer::Consumer);
        end
    }

    /// Adds a program that answers every Interest under `prefix` after a delay.
    pub(super) fn producer(&mut self, node: Node, prefix: &str, delay_ms: u64) -> End {
        let end = self.face(node, FaceScope::Local);
        let delay_ns = delay_ms * NS_PER_MS;
        self.connect(end, Peer::Producer { prefix: prefix.parse().unwrap(), delay_ns });
        self.route(end, prefix, 0);
        end
    }

    pub(super) fn route(&mut self, (node, face): End, prefix: &str, cost: u64) {
        let prefix: Name = prefix.parse().unwrap();
        let next_hops = self.routes.entry((node, prefix.clone())).or_default();
        next_hops.push(NextHop { face, cost });
        let next_hops = next_hops.clone();
        self.command(node, Command::SetNextHops { prefix, next_hops });
    }

    pub(super) fn remove_route(&mut self, (node, face): End, prefix: &str) {
        let prefix: Name = prefix.parse().unwrap();
        let next_hops = self.routes.entry((node, prefix.clone())).or_default();
        next_hops.retain(|hop| hop.face != face);
        let next_hops = next_hops.clone();
        self.command(node, Command::SetNextHops { prefix, next_hops });
    }

    /// The program behind this end has announced the prefix.
    pub(super) fn announce(&mut self, (node, face): End, prefix: &str) {
        let announcement = Packet::from(announcement(prefix));
        self.announcements.insert((node, prefix.parse().unwrap()), (face, announcement));
    }

    /// The next hops of a prefix at a router.
    pub(super) fn next_hops(&self, node: Node, prefix: &str) -> Vec<FaceId> {
        let next_hops = self.routes.get(&(node, prefix.parse().unwrap()));
        next_hops.into_iter().flatten().map(|hop| hop.face).collect()
    }

    pub(super) fn stats(&self, node: Node) -> crate::RouterStats {
        self.routers[node.0].stats()
    }

    /// Packets through this end are lost from now on, or no longer.
    pub(super) fn set_down(&mut self, end: End, is_down: bool) {
        self.ends.get_mut(&end).unwrap().is_down = is_down;
    }

    pub(super) fn counts(&self, end: End) -> Counts {
        self.ends[&end].counts
    }

    /// The consumer sends an Interest now.
    pub(super) fn ask(&mut self, consumer: End, ask: &Ask) {
        self.send_at(self.now, consumer, LpHeader::default(), Packet::from(ask.wire()), None);
        self.run_ms(0);
    }

    /// The consumer sends Interests for `prefix/START`, `prefix/START+1` and so on at an interval.
    /// Runs until one interval after the last.
    pub(super) fn ask_each(
        &mut self,
        consumer: End,
        prefix: &str,
        interval_ms: u64,
        numbers: core::ops::Range<u32>,
    ) {
        for number in numbers {
            self.ask(consumer, &Ask::new(&format!("{prefix}/{number}"), number + 1));
            self.run_ms(interval_ms);
        }
    }

    pub(super) fn run_ms(&mut self, ms: u64) {
        let end = self.now.plus_ns(ms * NS_PER_MS);
        loop {
            let arrival = self.in_flight.keys().next().map(|&(at, _)| at);
            let wakeups = self.routers.iter().filter_map(Router::next_wakeup);
            let Some(next) = wakeups.chain(arrival).min().filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (to, packet)) = self.in_flight.pop_first().unwrap();
                self.deliver(to, packet);
            } else {
                (0..self.routers.len()).for_each(|node| self.handle(Node(node), Input::Wakeup));
            }
        }
        self.now = end;
    }

    fn face(&mut self, node: Node, scope: FaceScope) -> End {
        self.face_with(node, FaceAttributes::point_to_point(scope))
    }

    fn face_with(&mut self, node: Node, attributes: FaceAttributes) -> End {
        let face = FaceId(300 + self.ends.len() as u64);
        self.command(node, Command::AddFace { face, attributes });
        (node, face)
    }

    fn connect(&mut self, end: End, peer: Peer) {
        let state = EndState { peer, is_down: false, counts: Counts::default() };
        self.ends.insert(end, state);
    }

    fn command(&mut self, node: Node, command: Command) {
        self.handle(node, Input::Command(command));
    }

    /// Hands a packet to the router at `to`.
    fn deliver(&mut self, to: End, InFlight { header, packet, announcement }: InFlight) {
        let state = self.ends.get_mut(&to).unwrap();
        if state.is_down {
            return;
        }
        match (header.nack, u32::from(packet[0])) {
            (Some(_), _) => state.counts.in_nacks += 1,
            (None, tlv::DATA) => state.counts.in_data += 1,
            _ => {}
        }
        let face = to.1;
        let input = match announcement {
            None => Input::Packet { face, header, packet },
            Some(announcement) => {
                Input::Announced(Box::new(AnnouncedPacket { face, header, packet, announcement }))
            }
        };
        self.handle(to.0, input);
    }

    fn handle(&mut self, node: Node, input: Input) {
        let mut out = Outbox::default();
        self.routers[node.0].handle(self.now, &mut [input], &mut out);
        let mut announcements: BTreeMap<usize, Packet> = out.announcements.into_iter().collect();
        for (position, packet) in out.packets.into_iter().enumerate() {
            self.on_output((node, packet.face), packet, announcements.remove(&position));
        }
        assert!(announcements.is_empty());
        out.events.into_iter().for_each(|event| self.on_event(node, event));
    }

    /// Does what the manager would do. Every announcement is accepted.
    fn on_event(&mut self, node: Node, event: Event) {
        match event {
            Event::Announced { face, announcement } => {
                let view = weir_wire::DataView::decode(&announcement).unwrap();
                let prefix = view.name.prefix(view.name.component_count() - 3).to_name();
                self.announcements.insert((node, prefix.clone()), (face, announcement));
                if !self.next_hops(node, &prefix.to_string()).contains(&face) {
                    self.route((node, face), &prefix.to_string(), 2048);
                }
            }
            Event::RouteRefused { face, name } => {
                let of_face = self.announcements.iter().find(|((of, prefix), (hop, _))| {
                    (*of, *hop) == (node, face) && prefix.as_view().is_prefix_of(name.as_view())
                });
                let prefix = of_face.map(|((_, prefix), _)| prefix.clone());
                if let Some(prefix) = prefix {
                    self.announcements.remove(&(node, prefix.clone()));
                    self.remove_route((node, face), &prefix.to_string());
                }
            }
            Event::AnnouncementNeeded { prefix } => {
                let known = self.announcements.get(&(node, prefix.clone()));
                let announcement = known.map(|(_, announcement)| announcement.clone());
                self.command(node, Command::SetAnnouncement { prefix, announcement });
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a packet of a router to the peer of its face.
    fn on_output(&mut self, from: End, out: OutPacket, announcement: Option<Packet>) {
        let state = self.ends.get_mut(&from).unwrap();
        let kind = kind(&out);
        match kind {
            PacketKind::Interest => state.counts.out_interests += 1,
            PacketKind::Data => state.counts.out_data += 1,
            PacketKind::Nack => state.counts.out_nacks += 1,
        }
        if state.is_down {
            return;
        }
        match &state.peer {
            &Peer::Link { to, delay_ns } => {
                let header = LpHeader { incoming_face: None, ..out.header };
                let at = self.now.plus_ns(delay_ns);
                self.send_at(at, to, header, out.packet, announcement);
            }
            Peer::Segment { others, delay_ns } => {
                let (others, delay_ns) = (others.clone(), *delay_ns);
                for to in others {
                    let header = LpHeader { incoming_face: None, ..out.header.clone() };
                    let (at, packet) = (self.now.plus_ns(delay_ns), out.packet.clone());
                    self.send_at(at, to, header, packet, announcement.clone());
                }
            }
            Peer::Producer { prefix, delay_ns } if kind == PacketKind::Interest => {
                let interest = InterestView::decode(&out.packet).unwrap();
                assert!(prefix.as_view().is_prefix_of(interest.name));
                let answer = Data::new(interest.name.to_name()).encode_with_digest();
                let header = LpHeader { pit_token: out.header.pit_token, ..LpHeader::default() };
                let at = self.now.plus_ns(*delay_ns);
                self.send_at(at, from, header, Packet::from(answer), None);
            }
            Peer::Consumer | Peer::Producer { .. } => {}
        }
    }

    fn send_at(
        &mut self,
        at: Instant,
        to: End,
        header: LpHeader,
        packet: Packet,
        announcement: Option<Packet>,
    ) {
        self.packets += 1;
        let packet = InFlight { header, packet, announcement };
        self.in_flight.insert((at, self.packets), (to, packet));
    }
}
