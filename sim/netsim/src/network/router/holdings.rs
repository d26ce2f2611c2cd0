//! What a router's stores hold, for the controller and for consumers that query it
//! (docs/holdings.md).
//!
//! The replies equal those of `weir router` with `holdings_for_neighbours`. They take no virtual
//! time.

use weir_base::{Instant, Packet};
use weir_control::Segments;
use weir_control::message::{Change, Tier};
use weir_forward::{Command, Event, Input, Outbox, StoreCommand, StoreEvent};
use weir_store::{Holding, HoldingsConfig, HoldingsCursor, HoldingsStatus, SegmentRange};
use weir_wire::{Component, Data, InterestView, Name};

use super::RouterNode;
use super::shards::Shards;

/// The name value of `/localhop/nfd/cs/holdings`.
const HOLDINGS_PREFIX: &[u8] = b"\x08\x08localhop\x08\x03nfd\x08\x02cs\x08\x08holdings";
/// Content bytes in one segment of a reply.
const SEGMENT_BYTES: usize = 8000;
const FRESHNESS_MS: u64 = 1000;

impl RouterNode {
    /// The name of an Interest that queries this router's holdings. `None` for other Interests, or
    /// if the router does not answer such queries.
    #[inline]
    pub(in crate::network) fn holdings_query(&self, interest: &[u8]) -> Option<Name> {
        if !self.setup.reports_holdings {
            return None;
        }
        // This runs for every packet, so it first searches for the prefix without decoding.
        let is_it =
            interest.windows(HOLDINGS_PREFIX.len()).take(8).any(|octets| octets == HOLDINGS_PREFIX);
        let interest = is_it.then(|| InterestView::decode(interest).ok())??;
        interest.name.value().starts_with(HOLDINGS_PREFIX).then(|| interest.name.to_name())
    }

    /// The reply to a query of that name.
    #[cold]
    pub(in crate::network) fn holdings(&mut self, now: Instant, name: &Name) -> Option<Packet> {
        let mut components = name.as_view().components().skip(4);
        let object = HoldingsStatus::object_of(components.next()?.value)?;
        let number = components.last().and_then(|last| last.as_segment()).unwrap_or(0);
        Some(segment_of(&holdings_of(&mut self.shards, now, object), number))
    }

    /// What the memory tiers of all shards hold at the start, as an agent would report it. The
    /// shards keep their index of holdings only if consumers query it.
    pub(in crate::network) fn holdings_at_start(&mut self) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        let now = Instant::ZERO;
        let keeps_index = self.setup.reports_holdings;
        if !keeps_index {
            track(&mut self.shards, Some(HoldingsConfig::default()));
        }
        for shard in 0..self.shards.count() {
            let mut out = Outbox::default();
            while self.shards.router_mut(shard).next_wakeup().is_some_and(|at| at == now) {
                self.shards.handle(shard, now, Input::Wakeup, &mut out);
            }
        }
        list(&mut self.shards, now, &Name::new(), |holding| add(&mut changes, holding));
        if !keeps_index {
            track(&mut self.shards, None);
        }
        changes
    }
}

fn holdings_of(shards: &mut Shards, now: Instant, object: Name) -> HoldingsStatus {
    let mut segments = Segments::default();
    list(shards, now, &object, |holding| {
        if holding.name == object {
            for range in holding.ranges {
                segments.insert(range.first..=range.last);
            }
        }
    });
    let range = |(first, last)| SegmentRange { first, last };
    let memory = segments.ranges().map(range).collect();
    let mut status = HoldingsStatus { memory, object, ..HoldingsStatus::default() };
    status.truncate();
    status
}

fn segment_of(status: &HoldingsStatus, number: u64) -> Packet {
    let content = status.encode();
    let last = content.len().div_ceil(SEGMENT_BYTES).max(1) as u64 - 1;
    let from = (number.min(last) as usize) * SEGMENT_BYTES;
    let part = &content[from..content.len().min(from + SEGMENT_BYTES)];
    let mut prefix = Name::new();
    prefix.append_str("localhop").append_str("nfd");
    let mut name = HoldingsStatus::dataset_name(prefix, &status.object);
    name.append_version(0).append_segment(number.min(last));
    let data = Data::new(name)
        .freshness_ms(FRESHNESS_MS)
        .final_block_id(Component::segment(last))
        .content(part);
    Packet::from(data.encode_with_digest().as_slice())
}

/// Switches the index of the holdings in memory on or off in all shards.
fn track(shards: &mut Shards, config: Option<HoldingsConfig>) {
    for shard in 0..shards.count() {
        let command = Command::Store(StoreCommand::Track(config));
        shards.command(shard, Instant::ZERO, command, &mut Outbox::default());
    }
}

/// Calls `each` with what the shards hold in memory under a prefix. The index must be on.
fn list(shards: &mut Shards, now: Instant, prefix: &Name, mut each: impl FnMut(Holding)) {
    for shard in 0..shards.count() {
        let mut out = Outbox::default();
        let (prefix, from) = (prefix.clone(), HoldingsCursor::default());
        let list = StoreCommand::List { transaction: 0, prefix, from, objects_max: u32::MAX };
        shards.command(shard, now, Command::Store(list), &mut out);
        for event in out.events.drain(..) {
            if let Event::Store(StoreEvent::Listed { page: Some(page), .. }) = event {
                page.holdings.into_iter().for_each(&mut each);
            }
        }
    }
}

/// Merges the holdings of an object in one shard with those of the others.
fn add(changes: &mut Vec<Change>, holding: Holding) {
    let known = changes.iter().position(|change| change.object == holding.name);
    let index = known.unwrap_or_else(|| {
        changes.push(Change {
            object: holding.name,
            tier: Tier::Memory,
            added: Segments::default(),
            removed: Segments::default(),
        });
        changes.len() - 1
    });
    for range in holding.ranges {
        changes[index].added.insert(range.first..=range.last);
    }
}
