//! The present routers, the numbers of their configurations, and events about them.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use super::event::Event;
use super::startup::Startup;
use crate::limits::LimitKind;
use crate::message::RouterReport;
use crate::network::{DuplicateRouter, Network, PLANS_MAX, PLANS_PER_S, Router, is_similar};

/// How long a refused duplicate is listed. It tries again within half a minute.
const DUPLICATE_SHOWN_NS: u64 = 60 * NS_PER_S;

/// What a report changes for routes.
#[derive(Default)]
pub(super) struct TopologyChange {
    /// Links have changed, or their costs.
    pub(super) has_link_change: bool,
    /// Prefixes that were added or removed at the router.
    pub(super) changed_prefixes: Vec<Name>,
}

/// The present routers. Generations of configurations and numbers of plans come from one sequence.
pub(super) struct Registry {
    pub(super) network: Network,
    pub(super) startup: Startup,
    /// The time of the latest input.
    pub(super) now: Instant,
    /// See [`ControllerConfig::numbers`](super::ControllerConfig::numbers).
    numbers: (u64, u64),
    /// The highest number of a plan or a configuration that was given or heard of.
    generation: u64,
    events: Vec<Event>,
    /// For each kind of limit: how often any router exceeded it.
    limit_counts: [u64; LimitKind::ALL.len()],
    /// The time of the latest tick.
    ticked: Instant,
}

impl Registry {
    pub(super) fn new(numbers: (u64, u64)) -> Self {
        Self {
            network: Network::default(),
            startup: Startup::default(),
            now: Instant::ZERO,
            numbers,
            generation: 0,
            events: Vec::new(),
            limit_counts: Default::default(),
            ticked: Instant::ZERO,
        }
    }

    pub(super) fn record(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    pub(super) fn set_numbers(&mut self, numbers: (u64, u64)) {
        self.numbers = numbers;
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// A plan or a configuration has this number, so the next number must be higher.
    pub(super) fn raise_generation(&mut self, number: u64) {
        self.generation = self.generation.max(number);
    }

    /// Draws the next number: higher than all known ones, with this controller's remainder. With
    /// step 1,000 and remainder 2, the numbers after 5,001 are 5,002, 6,002 and so on.
    pub(super) fn next_number(&mut self) -> u64 {
        let (step, rest) = (self.numbers.0.max(1), self.numbers.1);
        let next = self.generation - self.generation % step + rest % step;
        self.generation = if next > self.generation { next } else { next + step };
        self.generation
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.startup.is_waiting()
    }

    /// Whether the router reports to any controller.
    pub(super) fn is_heard(&self, router: &str) -> bool {
        self.network.routers.contains_key(router) || self.startup.is_heard_elsewhere(router)
    }

    pub(super) fn generation_of(&self, name: &str) -> u64 {
        self.network.routers.get(name).map_or(0, |router| router.generation)
    }

    /// Gives a router's configuration a new number, so that the router fetches it.
    pub(super) fn new_generation(&mut self, name: &str) {
        if self.is_waiting() {
            return;
        }
        let number = self.next_number();
        if let Some(router) = self.network.routers.get_mut(name) {
            router.parent = router.generation;
            router.generation = number;
        }
    }

    /// Counts what was ignored because a router exceeded a limit, and records an event for the
    /// operator.
    pub(super) fn note_limit_exceeded(&mut self, name: &str, bound: LimitKind, count: u64) {
        self.count_limit_exceeded(bound, count);
        let Some(router) = self.network.routers.get_mut(name) else { return };
        if let Some(count) = router.event_limiters[bound as usize].add(self.now, count) {
            self.events.push(Event::LimitExceeded { router: name.to_owned(), bound, count });
        }
    }

    /// Counts an exceeded limit without an event.
    pub(super) fn count_limit_exceeded(&mut self, bound: LimitKind, count: u64) {
        let total = &mut self.limit_counts[bound as usize];
        *total = total.saturating_add(count);
    }

    pub(super) fn limit_counts(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        LimitKind::ALL.iter().copied().zip(self.limit_counts)
    }

    /// Counts a refused report of a router with the name of another one.
    pub(super) fn note_duplicate(&mut self, name: &str, uris: Vec<String>) {
        self.count_limit_exceeded(LimitKind::Name, 1);
        let Some(router) = self.network.routers.get_mut(name) else { return };
        if router.event_limiters[LimitKind::Name as usize].add(self.now, 1).is_some() {
            self.events.push(Event::DuplicateName { router: name.to_owned(), uris });
        }
    }

    pub(super) fn duplicates(&self) -> impl Iterator<Item = (&str, &[String])> {
        let routers = self.network.routers.iter();
        routers.flat_map(|(name, router)| {
            let is_near =
                |twin: &&DuplicateRouter| self.now.ns_since(twin.seen) < DUPLICATE_SHOWN_NS;
            router
                .duplicates
                .iter()
                .filter(is_near)
                .map(|twin| (name.as_str(), twin.uris.as_slice()))
        })
    }

    /// Compares a report with the previous one, and updates addresses, prefixes and round-trip
    /// times.
    pub(super) fn update_topology(&mut self, name: &str, former: &RouterReport) -> TopologyChange {
        let Some(router) = self.network.routers.get_mut(name) else {
            return TopologyChange::default();
        };
        let id = router.id;
        let mut has_other_links = note_round_trips(router, former);
        // Take these out of the report for a moment, because `claim_addresses` borrows the network.
        let uris = core::mem::take(&mut router.report.uris);
        let prefixes = core::mem::take(&mut router.report.prefixes);
        let (taken, is_new) = self.network.claim_addresses(id, &uris);
        has_other_links |= is_new || uris != former.uris;
        let (old, new): (BTreeSet<&Name>, BTreeSet<&Name>) =
            (former.prefixes.iter().collect(), prefixes.iter().collect());
        let moved: Vec<Name> =
            old.symmetric_difference(&new).map(|prefix| (*prefix).clone()).collect();
        for prefix in &moved {
            if new.contains(prefix) {
                self.network.add_producer(prefix, id);
            } else {
                self.network.remove_producer(prefix, id);
            }
        }
        // Only a report with changes counts, not each repetition of it.
        if taken > 0 && (has_other_links || !moved.is_empty()) {
            self.note_limit_exceeded(name, LimitKind::Address, taken);
        }
        if let Some(router) = self.network.routers.get_mut(name) {
            (router.report.uris, router.report.prefixes) = (uris, prefixes);
        }
        TopologyChange { has_link_change: has_other_links, changed_prefixes: moved }
    }

    /// The routers that have not reported for too long.
    pub(super) fn silent_routers(&self, now: Instant, timeout_ns: u64) -> BTreeSet<String> {
        let is_lost = |router: &Router| now.ns_since(router.last_seen) > timeout_ns;
        let silent = self.network.routers.iter().filter(|(_, router)| is_lost(router));
        silent.map(|(name, _)| name.clone()).collect()
    }

    /// Ends the wait at the start. Expected routers that have not reported anywhere are lost.
    pub(super) fn end_startup(&mut self) {
        for router in self.startup.end() {
            if !self.is_heard(&router) {
                self.events.push(Event::RouterLost { router });
            }
        }
    }

    /// Lets routers cause new plans again as time passes, and creates the events about limits that
    /// are due.
    pub(super) fn refill_plan_credits(&mut self, now: Instant) {
        let since = core::mem::replace(&mut self.ticked, now);
        let more = now.ns_since(since).saturating_mul(PLANS_PER_S) / NS_PER_S;
        for (name, router) in &mut self.network.routers {
            router.plan_credits = PLANS_MAX.min(router.plan_credits.saturating_add(more));
            for (tally, &bound) in router.event_limiters.iter_mut().zip(LimitKind::ALL) {
                // Duplicates have an event of their own; see [`Registry::note_duplicate`].
                if bound == LimitKind::Name {
                    continue;
                }
                if let Some(count) = tally.due(now) {
                    self.events.push(Event::LimitExceeded { router: name.clone(), bound, count });
                }
            }
        }
    }
}

/// Decides which round-trip times routes use from now on. Returns whether one of them, or the set
/// of faces, has changed.
fn note_round_trips(router: &mut Router, former: &RouterReport) -> bool {
    let known: BTreeMap<&str, Option<u64>> = former
        .faces
        .iter()
        .zip(&router.round_trips)
        .map(|(face, used)| (face.remote.as_str(), *used))
        .collect();
    let mut has_changed = router.report.faces.len() != former.faces.len();
    let mut round_trips = Vec::with_capacity(router.report.faces.len());
    for face in &router.report.faces {
        let used = known.get(face.remote.as_str());
        let near = used.copied().filter(|used| is_similar(*used, face.round_trip_ns));
        has_changed |= near.is_none();
        round_trips.push(near.unwrap_or(face.round_trip_ns));
    }
    router.round_trips = round_trips;
    has_changed
}
