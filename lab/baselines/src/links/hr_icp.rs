use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_link::{ChoiceError, Discipline, DisciplineKind, DisciplineOptions, LinkDrop, Load};
use weir_link::{Outgoing, Outlet, PacketKind, read_options};
use weir_wire::{InterestView, NameView, PACKET_SIZE_MAX, PacketView};

pub(super) const KIND: DisciplineKind =
    DisciplineKind { name: "hr-icp", read: |options| Ok(Arc::new(Config::read(options)?)) };

/// Credit that a flow gains at its turn if its credit is too small to send. It is the largest
/// packet, so that one more turn is enough.
const QUANTUM_BYTES: u64 = PACKET_SIZE_MAX as u64;
/// Inverse weight of a new size in the mean size of a flow's Data.
const AVERAGE_OVER: u64 = 8;

/// How Interests are shaped to the Data that they will bring.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Config {
    /// Rate at which the other end sends Data, in bit/s, at least 1.
    rate_bps: u64,
    /// Leading components of a name that identify its flow.
    components: u32,
    /// Bytes of Data that may be requested at once after a pause.
    burst_bytes: u32,
    /// Assumed size of a flow's Data before the first one arrives, at least 1.
    data_bytes: u32,
    /// Limit on separate flows, at least 1. Further flows share slots.
    flows_max: u32,
    /// Limit on waiting Interests of one flow; more are dropped.
    held_max: u32,
}

impl Default for Config {
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

impl Config {
    fn read(options: &str) -> Result<Self, ChoiceError> {
        let mut config = Self::default();
        let set = |key: &str, value: &str| value.parse().is_ok_and(|value| config.set(key, value));
        read_options(("queue discipline", KIND.name), options, set)?;
        Ok(config)
    }

    /// Sets option `key` to `value`. Returns false if the option does not exist or rejects the
    /// value.
    fn set(&mut self, key: &str, value: u64) -> bool {
        let (field, least) = match key {
            "rate_bps" => {
                self.rate_bps = value;
                return value > 0;
            }
            "components" => (&mut self.components, 0),
            "burst_bytes" => (&mut self.burst_bytes, 0),
            "data_bytes" => (&mut self.data_bytes, 1),
            "flows_max" => (&mut self.flows_max, 1),
            "held_max" => (&mut self.held_max, 0),
            _ => return false,
        };
        let allowed = u32::try_from(value).ok().filter(|&value| value >= least);
        allowed.inspect(|&value| *field = value).is_some()
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        let bits_ns = u128::from(bytes) * 8 * u128::from(NS_PER_S);
        u64::try_from(bits_ns / u128::from(self.rate_bps.max(1))).unwrap_or(u64::MAX)
    }
}

/// The hop-by-hop Interest shaping of HR-ICP, at the face towards the content. Source: Carofiglio,
/// Gallo, Muscariello, "Joint hop-by-hop and receiver-driven interest control protocol for
/// content-centric networks", ICN 2012.
///
/// Interests leave no faster than the link can carry their Data back. With credit they pass at
/// once. Without it, the Interests of each flow wait in their own queue. A deficit round robin over
/// bytes of Data gives every flow an equal share of the link. Data and Nacks pass unshaped.
#[derive(Debug)]
struct HrIcp {
    config: Config,
    key: HashKey,
    flows: Vec<Flow>,
    /// Flows with waiting Interests, in the order of their turns.
    turns: VecDeque<usize>,
    load: Load,
    /// When the credit covers a whole burst, as in the generic cell rate algorithm.
    full_at: Instant,
}

#[derive(Debug)]
struct Flow {
    hash: u64,
    /// Waiting Interests, each with the time at which sending it becomes useless.
    waiting: VecDeque<(Outgoing, Instant)>,
    /// Bytes of Data that it may request in its turn.
    deficit_bytes: u64,
    /// Mean size of its Data.
    data_bytes: u64,
    used_at: Instant,
}

impl HrIcp {
    /// When there is credit for one more Interest.
    fn credit_at(&self) -> Instant {
        let burst_ns = self.config.time_ns(u64::from(self.config.burst_bytes));
        Instant::from_ns(self.full_at.as_ns().saturating_sub(burst_ns))
    }

    fn spend(&mut self, now: Instant, bytes: u64) {
        self.full_at = self.full_at.max(now).plus_ns(self.config.time_ns(bytes));
    }

    /// The slot of an existing flow.
    fn find(&self, hash: u64) -> Option<usize> {
        self.flows.iter().position(|flow| flow.hash == hash)
    }

    /// The slot for a flow: its own, a new one, that of the flow idle longest, or a shared one.
    fn index(&mut self, now: Instant, hash: u64) -> usize {
        if let Some(index) = self.find(hash) {
            return index;
        }
        let flow = Flow {
            hash,
            waiting: VecDeque::new(),
            deficit_bytes: 0,
            data_bytes: u64::from(self.config.data_bytes),
            used_at: now,
        };
        if self.flows.len() < self.config.flows_max as usize {
            self.flows.push(flow);
            return self.flows.len() - 1;
        }
        let idle = self.flows.iter().enumerate().filter(|(_, flow)| flow.waiting.is_empty());
        match idle.min_by_key(|(_, flow)| flow.used_at).map(|(index, _)| index) {
            Some(index) => {
                self.flows[index] = flow;
                index
            }
            None => (hash % u64::from(self.config.flows_max)) as usize,
        }
    }

    fn hash_of(&self, name: NameView<'_>) -> u64 {
        self.key.hash(name.prefix(self.config.components as usize).value())
    }

    /// The flow of an Interest and its lifetime in nanoseconds; `None` for packets that never wait,
    /// such as management Interests.
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
        while let Some(&index) = self.turns.front() {
            let flow = &mut self.flows[index];
            if flow.deficit_bytes < flow.data_bytes {
                flow.deficit_bytes += QUANTUM_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            let (outgoing, until) =
                flow.waiting.pop_front().expect("a flow with a turn has Interests");
            let is_late = until <= now;
            let bytes = flow.data_bytes;
            flow.deficit_bytes -= if is_late { 0 } else { bytes };
            if flow.waiting.is_empty() {
                flow.deficit_bytes = 0;
                self.turns.pop_front();
            }
            self.load.remove(outgoing.packet.len());
            if is_late {
                // The Interest has expired, so the previous hop would drop the Data.
                out.counters.drops.count(LinkDrop::ShapingExpired);
                continue;
            }
            self.spend(now, bytes);
            if let Err(reason) = out.send(outgoing) {
                out.counters.drops.count(reason);
            }
            return;
        }
    }
}

impl DisciplineOptions for Config {
    fn make(&self, seed: u64) -> Box<dyn Discipline> {
        Box::new(HrIcp {
            config: *self,
            key: HashKey::new([seed, !seed]),
            flows: Vec::new(),
            turns: VecDeque::new(),
            load: Load::default(),
            full_at: Instant::ZERO,
        })
    }
}

impl Discipline for HrIcp {
    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        let Some((hash, lifetime_ns)) = self.shaped(&outgoing) else {
            return out.send(outgoing);
        };
        let index = self.index(now, hash);
        self.flows[index].used_at = now;
        if self.turns.is_empty() && self.credit_at() <= now {
            self.spend(now, self.flows[index].data_bytes);
            return out.send(outgoing);
        }
        let flow = &mut self.flows[index];
        if flow.waiting.len() >= self.config.held_max as usize {
            return Err(LinkDrop::FlowQueueFull);
        }
        let outgoing = outgoing.detached();
        self.load.add(outgoing.packet.len());
        if flow.waiting.is_empty() {
            self.turns.push_back(index);
        }
        flow.waiting.push_back((outgoing, now.plus_ns(lifetime_ns)));
        out.counters.out_interests_delayed += 1;
        Ok(())
    }

    fn on_received(&mut self, _now: Instant, kind: PacketKind, packet: &Packet) {
        if kind == PacketKind::Data
            && let Ok(data) = PacketView::decode(packet)
            && let Some(index) = self.find(self.hash_of(data.name()))
        {
            let mean_bytes = &mut self.flows[index].data_bytes;
            // Rounded up, so that the mean reaches the exact size if all Data have the same size.
            let sum_bytes = *mean_bytes * (AVERAGE_OVER - 1) + packet.len() as u64;
            *mean_bytes = sum_bytes.div_ceil(AVERAGE_OVER);
        }
    }

    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.turns.is_empty() && self.credit_at() <= now {
            self.send_next(now, out);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (!self.turns.is_empty()).then(|| self.credit_at())
    }

    fn load(&self) -> Load {
        self.load
    }

    fn drop_newest(&mut self) -> Option<Outgoing> {
        // An Interest of the flow whose turn is last.
        let &index = self.turns.back()?;
        let flow = &mut self.flows[index];
        let (newest, _) = flow.waiting.pop_back()?;
        if flow.waiting.is_empty() {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let config =
            Config { rate_bps: 40_000_000, components: 2, burst_bytes: 0, ..Config::default() };
        assert_eq!(Config::read("rate_bps=40000000 components=2 burst_bytes=0"), Ok(config));
        for option in ["rate_bps=0", "flows_max=0", "data_bytes=0", "rate=5", "held_max=-1"] {
            assert!(Config::read(option).is_err(), "{option}");
        }
    }
}
