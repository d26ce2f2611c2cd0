use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_wire::{InterestView, NameView, PACKET_SIZE_MAX, PacketView};

use super::discipline::Discipline;
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

/// What a flow's credit grows by when its turn comes and does not suffice: the largest packet, so
/// that one turn more is enough.
const QUANTUM_BYTES: u64 = PACKET_SIZE_MAX as u64;
/// A new size weighs one part in this in the mean size of a flow's Data.
const AVERAGE_OVER: u64 = 8;

/// How Interests are shaped to the Data that they will bring.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HrIcpConfig {
    /// What the other end sends in Data, in bits a second, at least 1.
    pub rate_bps: u64,
    /// Leading components of a name that tell flows apart.
    pub components: u32,
    /// Octets of Data that may be asked for at once after a pause.
    pub burst_bytes: u32,
    /// Octets that the Data of a flow is expected to have until some came, at least 1.
    pub data_bytes: u32,
    /// Flows that are told apart, at least 1; those beyond share places.
    pub flows_max: u32,
    /// Interests of one flow that wait for their turn; more are dropped.
    pub held_max: u32,
}

impl Default for HrIcpConfig {
    fn default() -> Self {
        Self {
            rate_bps: 100_000_000,
            components: 1,
            burst_bytes: 64 << 10,
            data_bytes: 8192,
            flows_max: 256,
            held_max: 1024,
        }
    }
}

impl HrIcpConfig {
    fn time_ns(&self, bytes: u64) -> u64 {
        let bits_ns = u128::from(bytes) * 8 * u128::from(NS_PER_S);
        u64::try_from(bits_ns / u128::from(self.rate_bps.max(1))).unwrap_or(u64::MAX)
    }
}

/// The hop-by-hop Interest shaping of HR-ICP (Carofiglio, Gallo, Muscariello, "Joint hop-by-hop and
/// receiver-driven interest control protocol for content-centric networks", ICN 2012) at the face
/// towards the content: Interests leave no faster than the link brings back the Data they ask for.
/// While it has credit they pass; then those of each flow wait in a queue of their own, and a
/// deficit round robin, in octets of Data, gives every flow the same share of the link. Data and
/// Nacks pass; what may leave goes on to the discipline `Next`.
#[derive(Debug)]
pub(crate) struct HrIcp<Next> {
    config: HrIcpConfig,
    next: Next,
    key: HashKey,
    flows: Vec<Flow>,
    /// The flows of which Interests wait, in the order of their turns.
    turns: VecDeque<usize>,
    load: Load,
    /// When there will be credit for a whole burst, as in the generic cell rate algorithm.
    full_at: Instant,
}

#[derive(Debug)]
struct Flow {
    hash: u64,
    /// Interests that wait, and until when each of them is worth sending.
    held: VecDeque<(Outgoing, Instant)>,
    /// Octets of Data that it may ask for in its turn.
    deficit_bytes: u64,
    /// Mean size of its Data.
    data_bytes: u64,
    used_at: Instant,
}

impl<Next: Discipline> HrIcp<Next> {
    /// When there is credit for one more Interest.
    fn credit_at(&self) -> Instant {
        let burst_ns = self.config.time_ns(u64::from(self.config.burst_bytes));
        Instant::from_ns(self.full_at.as_ns().saturating_sub(burst_ns))
    }

    fn spend(&mut self, now: Instant, bytes: u64) {
        self.full_at = self.full_at.max(now).plus_ns(self.config.time_ns(bytes));
    }

    /// The place of a flow that there is.
    fn find(&self, hash: u64) -> Option<usize> {
        self.flows.iter().position(|flow| flow.hash == hash)
    }

    /// The place of a flow: its own, a new one, that of the flow idle longest, or one to share.
    fn place(&mut self, now: Instant, hash: u64) -> usize {
        if let Some(place) = self.find(hash) {
            return place;
        }
        let flow = Flow {
            hash,
            held: VecDeque::new(),
            deficit_bytes: 0,
            data_bytes: u64::from(self.config.data_bytes),
            used_at: now,
        };
        if self.flows.len() < self.config.flows_max as usize {
            self.flows.push(flow);
            return self.flows.len() - 1;
        }
        let idle = self.flows.iter().enumerate().filter(|(_, flow)| flow.held.is_empty());
        match idle.min_by_key(|(_, flow)| flow.used_at).map(|(place, _)| place) {
            Some(place) => {
                self.flows[place] = flow;
                place
            }
            None => (hash % u64::from(self.config.flows_max)) as usize,
        }
    }

    fn hash_of(&self, name: NameView<'_>) -> u64 {
        self.key.hash(name.prefix(self.config.components as usize).value())
    }

    /// The flow of an Interest that may have to wait, and its lifetime in nanoseconds. One of
    /// management never does.
    fn shaped(&self, outgoing: &Outgoing) -> Option<(u64, u64)> {
        if outgoing.kind != PacketKind::Interest {
            return None;
        }
        let interest = InterestView::decode(&outgoing.packet).ok()?;
        let name = interest.name;
        let is_local = name.first().is_some_and(|first| {
            first.is_generic() && matches!(first.value, b"localhost" | b"localhop")
        });
        let lifetime_ns = interest.lifetime_ms_or_default().saturating_mul(NS_PER_MS);
        (!is_local).then(|| (self.hash_of(name), lifetime_ns))
    }

    /// Sends the next Interest in the order of turns, if any waits.
    fn send_next(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while let Some(&place) = self.turns.front() {
            let flow = &mut self.flows[place];
            if flow.deficit_bytes < flow.data_bytes {
                flow.deficit_bytes += QUANTUM_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            let (outgoing, until) =
                flow.held.pop_front().expect("a flow with a turn has Interests");
            let is_late = until <= now;
            let bytes = flow.data_bytes;
            flow.deficit_bytes -= if is_late { 0 } else { bytes };
            if flow.held.is_empty() {
                flow.deficit_bytes = 0;
                self.turns.pop_front();
            }
            self.load.remove(outgoing.packet.len());
            if is_late {
                // No one waits for its Data any more.
                out.counters.drops.count(LinkDrop::ShapingExpired);
                continue;
            }
            self.spend(now, bytes);
            if let Err(reason) = self.next.enqueue(now, outgoing, out) {
                out.counters.drops.count(reason);
            }
            return;
        }
    }
}

impl<Next: Discipline<Config = ()>> Discipline for HrIcp<Next> {
    type Config = HrIcpConfig;

    fn new(config: &HrIcpConfig, seed: u64) -> Self {
        Self {
            config: *config,
            next: Next::new(&(), seed),
            key: HashKey::new([seed, !seed]),
            flows: Vec::new(),
            turns: VecDeque::new(),
            load: Load::default(),
            full_at: Instant::ZERO,
        }
    }

    fn set(config: &mut HrIcpConfig, key: &str, value: u64) -> bool {
        let (field, least) = match key {
            "rate_bps" => {
                config.rate_bps = value;
                return value > 0;
            }
            "components" => (&mut config.components, 0),
            "burst_bytes" => (&mut config.burst_bytes, 0),
            "data_bytes" => (&mut config.data_bytes, 1),
            "flows_max" => (&mut config.flows_max, 1),
            "held_max" => (&mut config.held_max, 0),
            _ => return false,
        };
        let allowed = u32::try_from(value).ok().filter(|&value| value >= least);
        allowed.inspect(|&value| *field = value).is_some()
    }

    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        let Some((hash, lifetime_ns)) = self.shaped(&outgoing) else {
            return self.next.enqueue(now, outgoing, out);
        };
        let place = self.place(now, hash);
        self.flows[place].used_at = now;
        if self.turns.is_empty() && self.credit_at() <= now {
            self.spend(now, self.flows[place].data_bytes);
            return self.next.enqueue(now, outgoing, out);
        }
        let flow = &mut self.flows[place];
        if flow.held.len() >= self.config.held_max as usize {
            return Err(LinkDrop::FlowQueueFull);
        }
        let outgoing = outgoing.detached();
        self.load.add(outgoing.packet.len());
        if flow.held.is_empty() {
            self.turns.push_back(place);
        }
        flow.held.push_back((outgoing, now.plus_ns(lifetime_ns)));
        out.counters.out_interests_delayed += 1;
        Ok(())
    }

    fn on_received(&mut self, now: Instant, kind: PacketKind, packet: &Packet) {
        if kind == PacketKind::Data
            && let Ok(data) = PacketView::decode(packet)
            && let Some(place) = self.find(self.hash_of(data.name()))
        {
            let mean_bytes = &mut self.flows[place].data_bytes;
            // Rounded up, so that it comes to rest at the size of all Data that have the same.
            let sum_bytes = *mean_bytes * (AVERAGE_OVER - 1) + packet.len() as u64;
            *mean_bytes = sum_bytes.div_ceil(AVERAGE_OVER);
        }
        self.next.on_received(now, kind, packet);
    }

    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.turns.is_empty() && self.credit_at() <= now {
            self.send_next(now, out);
        }
        self.next.poll(now, out);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let own = (!self.turns.is_empty()).then(|| self.credit_at());
        own.into_iter().chain(self.next.next_wakeup()).min()
    }

    fn held(&self) -> Load {
        self.load.with(self.next.held())
    }

    fn drop_newest(&mut self) -> Option<Outgoing> {
        // Of the flow whose turn comes last.
        let Some(&place) = self.turns.back() else { return self.next.drop_newest() };
        let flow = &mut self.flows[place];
        let (newest, _) = flow.held.pop_back()?;
        if flow.held.is_empty() {
            flow.deficit_bytes = 0;
            self.turns.pop_back();
        }
        self.load.remove(newest.packet.len());
        Some(newest)
    }

    fn release(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.turns.is_empty() {
            self.send_next(now, out);
        }
        self.next.release(now, out);
    }
}
