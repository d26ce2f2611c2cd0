//! Registers the prefixes of local applications with the routing daemon of this host, so that other
//! routers learn them.
//!
//! The protocol is that of NFD (`rib { readvertise_nlsr }`, daemon/rib/readvertise at fe044ce). A
//! daemon registers `/localhost/nlsr` in the RIB. From then on the router sends it a command
//! `rib/register` for each prefix, and `rib/unregister` when the last route of the prefix ends.
//! NLSR (bb59d40) and ndn-dv (ndnd, 31822ab) accept both. The differences from NFD are:
//!
//! - NFD sends only routes of origin `client`. The libraries of most applications register with
//!   origin `app`, so these are sent as well if the application is on this host.
//! - Retries begin after a second instead of 100. A prefix must be reachable soon.
//! - Few commands are outstanding at a time, because an application may register many prefixes.
//! - Without a daemon nothing is kept. The RIB is read when a daemon appears.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use weir_base::{Backoff, FaceId, Instant, NS_PER_MS, NS_PER_S, Packet, mix};
use weir_security::Signer;
use weir_wire::{DataView, InterestView, Name, NameView, PACKET_SIZE_MAX};

use crate::commands::{COMMAND_LIFETIME_MS, Command, build_command_to, parse_response};
use crate::faces::FaceTable;
use crate::numbers::route_origin;
use crate::parameters::ControlParameters;
use crate::request::Clocks;
use crate::rib::{Rib, Route};

/// Maximum number of commands that the daemon has not answered.
const OUTSTANDING_MAX: usize = 16;
/// Delays after a command has failed.
const RETRY: Backoff = Backoff::new(NS_PER_S, 300 * NS_PER_S);
/// How long after an answer a prefix is registered again (NFD).
const REFRESH_NS: u64 = 3600 * NS_PER_S;
/// How often `rib/unregister` may fail before the router gives up: after 4 minutes of delays.
const WITHDRAWAL_FAILURES_MAX: u32 = 8;
/// Maximum number of prefixes without a route that the daemon may still know. Further ones are
/// given up at once.
const WITHDRAWALS_MAX: usize = 4096;
/// Maximum number of commands to earlier daemons that are remembered.
const STALE_MAX: usize = 256;
/// Status codes from here on are errors (ndn-cxx). NLSR answers 204 for a prefix that it knows.
const ERROR_CODE_MIN: u64 = 400;

/// What the daemon knows of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A command was sent, and its result is not known.
    Unsure,
    /// The prefix, with this cost.
    Cost(u64),
}

/// A prefix that the daemon knows or must learn.
#[derive(Debug)]
struct Advertisement {
    /// The lowest cost of its routes; `None` if there is no route any more.
    cost: Option<u64>,
    known: Known,
    /// Commands that failed since the last success or change.
    failures: u32,
    is_outstanding: bool,
    /// When to send the next command. Also in [`Readvertiser::due`].
    due: Option<Instant>,
}

impl Advertisement {
    fn new(cost: Option<u64>) -> Self {
        Self { cost, known: Known::Nothing, failures: 0, is_outstanding: false, due: None }
    }
}

/// A command that the daemon has not answered.
#[derive(Debug)]
struct Outstanding {
    /// The name of the Interest, which differs for each command.
    name: Name,
    prefix: Name,
    /// What the daemon knows if the command succeeds.
    effect: Known,
    deadline: Instant,
}

/// The state of the registrations at the routing daemon.
#[derive(Debug, Default)]
pub(crate) struct Readvertiser {
    /// The faces with a route for the daemon's prefix. Without any, no prefix is kept except in
    /// `stale`.
    daemons: BTreeSet<FaceId>,
    prefixes: BTreeMap<Name, Advertisement>,
    /// Number of `prefixes` without a cost.
    withdrawals: usize,
    due: BTreeSet<(Instant, Name)>,
    outstanding: Vec<Outstanding>,
    /// Prefixes of commands that an earlier daemon has not answered, with their deadlines. Until
    /// then the PIT keeps the Interests, and forwards them to a daemon that appears (multicast
    /// strategy).
    stale: Vec<(Instant, Name)>,
    /// SignatureTime of the last command, in milliseconds since the Unix epoch.
    last_time_ms: u64,
    failures: u64,
}

impl Readvertiser {
    /// Commands that the daemon refused or did not answer, and withdrawals given up.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Applies changes of the RIB. `changed`: the prefixes whose routes have changed.
    pub(crate) fn on_routes_changed(
        &mut self,
        now: Instant,
        changed: &BTreeSet<Name>,
        rib: &Rib,
        faces: &FaceTable,
    ) {
        let commands = command_prefixes();
        if changed.iter().any(|prefix| commands.contains(prefix)) {
            let routes = commands.iter().flat_map(|prefix| rib.routes(prefix));
            let local = routes.map(|route| route.face).filter(|&face| faces.is_local(face));
            self.set_daemons(now, local.collect(), rib, faces);
        }
        if !self.daemons.is_empty() {
            changed.iter().for_each(|prefix| self.review(now, prefix, rib, faces));
        }
    }

    fn set_daemons(
        &mut self,
        now: Instant,
        daemons: BTreeSet<FaceId>,
        rib: &Rib,
        faces: &FaceTable,
    ) {
        let has_new = !daemons.is_subset(&self.daemons);
        let old = mem::replace(&mut self.daemons, daemons);
        if has_new || self.daemons.is_empty() {
            // A new daemon knows no prefix, and registrations end with their daemon. If there is an
            // old daemon as well, it is being replaced.
            self.prefixes.clear();
            self.withdrawals = 0;
            self.due.clear();
            let unanswered = self.outstanding.drain(..);
            self.stale.extend(unanswered.map(|command| (command.deadline, command.prefix)));
            self.stale.retain(|(deadline, _)| *deadline > now);
            let excess = self.stale.len().saturating_sub(STALE_MAX);
            self.stale.drain(..excess);
        }
        if has_new {
            rib.iter().for_each(|(prefix, _)| self.review(now, prefix, rib, faces));
            for (_, prefix) in self.stale.clone() {
                self.withdraw_stale(now, prefix);
            }
            return;
        }
        // A face that is no longer a daemon's is an application's.
        for face in old {
            rib.prefixes_to(face).for_each(|prefix| self.review(now, prefix, rib, faces));
        }
    }

    /// Withdraws a prefix that a stale command may register, unless it has a route.
    fn withdraw_stale(&mut self, now: Instant, prefix: Name) {
        if self.prefixes.contains_key(&prefix) {
            return;
        }
        self.withdrawals += 1;
        let advertisement = Advertisement { known: Known::Unsure, ..Advertisement::new(None) };
        self.prefixes.insert(prefix.clone(), advertisement);
        self.schedule(&prefix, now);
    }

    /// Decides whether and at which cost the daemon must know a prefix.
    fn review(&mut self, now: Instant, prefix: &Name, rib: &Rib, faces: &FaceTable) {
        if self.daemons.is_empty() || !is_routable(prefix.as_view()) {
            return;
        }
        let is_advertised = |route: &&Route| {
            // The daemon itself decides which of its own prefixes other routers learn.
            !self.daemons.contains(&route.face)
                && match route.origin {
                    route_origin::APP => faces.is_local(route.face),
                    route_origin::CLIENT => faces.contains(route.face),
                    _ => false,
                }
        };
        let cost = rib.routes(prefix).filter(is_advertised).map(|route| route.cost).min();
        self.set_cost(now, prefix, cost);
    }

    fn set_cost(&mut self, now: Instant, prefix: &Name, cost: Option<u64>) {
        let Some(advertisement) = self.prefixes.get_mut(prefix) else {
            if cost.is_some() {
                self.prefixes.insert(prefix.clone(), Advertisement::new(cost));
                self.schedule(prefix, now);
            }
            return;
        };
        if advertisement.cost == cost {
            return;
        }
        self.withdrawals += usize::from(cost.is_none());
        self.withdrawals -= usize::from(advertisement.cost.is_none());
        advertisement.cost = cost;
        advertisement.failures = 0;
        if cost.is_none() && self.withdrawals > WITHDRAWALS_MAX {
            self.give_up(prefix);
        } else if !advertisement.is_outstanding {
            self.plan(now, prefix);
        }
    }

    /// Handles Data from the daemon. Returns whether it answers a command.
    pub(crate) fn on_data(&mut self, now: Instant, data: &DataView<'_>) -> bool {
        let Some(command) = self.take_outstanding(data.name) else { return false };
        match parse_response(data) {
            Ok(response) if response.code < ERROR_CODE_MIN => {
                if let Some(advertisement) = self.prefixes.get_mut(&command.prefix) {
                    advertisement.known = command.effect;
                    advertisement.failures = 0;
                }
                self.plan(now, &command.prefix);
            }
            _ => self.on_failure(now, &command.prefix),
        }
        true
    }

    /// Handles a Nack for an Interest of this name. Returns whether it is one for a command.
    pub(crate) fn on_nack(&mut self, now: Instant, name: NameView<'_>) -> bool {
        let Some(command) = self.take_outstanding(name) else { return false };
        self.on_failure(now, &command.prefix);
        true
    }

    /// Appends the Interests that are due.
    pub(crate) fn run(&mut self, at: Clocks, signer: &dyn Signer, out: &mut Vec<Packet>) {
        let is_late = |command: &Outstanding| command.deadline <= at.now;
        while let Some(index) = self.outstanding.iter().position(is_late) {
            let late = self.outstanding.swap_remove(index);
            self.on_failure(at.now, &late.prefix);
        }
        while self.outstanding.len() < OUTSTANDING_MAX
            && self.due.first().is_some_and(|(due, _)| *due <= at.now)
        {
            let Some((_, prefix)) = self.due.pop_first() else { break };
            match self.command(at, signer, &prefix) {
                Some((name, effect, packet)) => {
                    let deadline = at.now.plus_ns(COMMAND_LIFETIME_MS * NS_PER_MS);
                    self.outstanding.push(Outstanding { name, prefix, effect, deadline });
                    out.push(packet);
                }
                None => self.on_failure(at.now, &prefix),
            }
        }
    }

    /// When [`Self::run`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let deadlines = self.outstanding.iter().map(|command| command.deadline);
        let has_room = self.outstanding.len() < OUTSTANDING_MAX;
        let due = self.due.first().filter(|_| has_room).map(|(due, _)| *due);
        deadlines.chain(due).min()
    }

    /// The next command for a prefix: name, effect, and the Interest. `None` if it cannot be signed
    /// or does not fit into a packet.
    fn command(
        &mut self,
        at: Clocks,
        signer: &dyn Signer,
        prefix: &Name,
    ) -> Option<(Name, Known, Packet)> {
        let advertisement = self.prefixes.get_mut(prefix)?;
        advertisement.due = None;
        let (command, effect) = match advertisement.cost {
            Some(cost) => (Command::RibRegister, Known::Cost(cost)),
            None => (Command::RibUnregister, Known::Nothing),
        };
        // NFD sends these fields. ndn-dv keeps costs by face, so a face that is sent with
        // rib/register would have to be sent with rib/unregister as well.
        let parameters = ControlParameters {
            name: Some(prefix.clone()),
            origin: Some(route_origin::CLIENT),
            cost: advertisement.cost,
            ..ControlParameters::default()
        };
        // The time makes each command's name unique, so a retry finds no answer of an earlier one.
        self.last_time_ms = at.now_unix_ms.max(self.last_time_ms + 1);
        let nonce = mix(self.last_time_ms).to_be_bytes();
        let (to, time_ms) = (daemon_prefix(), self.last_time_ms);
        let wire = build_command_to(to, command, &parameters, signer, nonce, time_ms).ok()?;
        let name = InterestView::decode(&wire).ok()?.name.to_name();
        if wire.len() > PACKET_SIZE_MAX {
            return None;
        }
        advertisement.known = Known::Unsure;
        advertisement.is_outstanding = true;
        Some((name, effect, Packet::from(wire)))
    }

    fn take_outstanding(&mut self, name: NameView<'_>) -> Option<Outstanding> {
        let index = self.outstanding.iter().position(|command| command.name.as_view() == name)?;
        let command = self.outstanding.swap_remove(index);
        if let Some(advertisement) = self.prefixes.get_mut(&command.prefix) {
            advertisement.is_outstanding = false;
        }
        Some(command)
    }

    /// Plans the next command of a prefix whose last one has succeeded, or has become obsolete.
    fn plan(&mut self, now: Instant, prefix: &Name) {
        let Some(advertisement) = self.prefixes.get(prefix) else { return };
        match (advertisement.cost, advertisement.known) {
            (None, Known::Nothing) => self.remove(prefix),
            (Some(cost), Known::Cost(known)) if cost == known => {
                self.schedule(prefix, now.plus_ns(REFRESH_NS));
            }
            _ => self.schedule(prefix, now),
        }
    }

    fn on_failure(&mut self, now: Instant, prefix: &Name) {
        self.failures += 1;
        let Some(advertisement) = self.prefixes.get_mut(prefix) else { return };
        advertisement.is_outstanding = false;
        advertisement.failures = advertisement.failures.saturating_add(1);
        let failures = advertisement.failures;
        if advertisement.cost.is_none() && failures >= WITHDRAWAL_FAILURES_MAX {
            self.give_up(prefix);
        } else {
            self.schedule(prefix, now.plus_ns(RETRY.delay_ns(failures)));
        }
    }

    fn give_up(&mut self, prefix: &Name) {
        self.failures += 1;
        self.remove(prefix);
    }

    fn schedule(&mut self, prefix: &Name, at: Instant) {
        let Some(advertisement) = self.prefixes.get_mut(prefix) else { return };
        if let Some(due) = advertisement.due.replace(at) {
            self.due.remove(&(due, prefix.clone()));
        }
        self.due.insert((at, prefix.clone()));
    }

    /// Removes a prefix. Its answer, if one is outstanding, is then ignored.
    fn remove(&mut self, prefix: &Name) {
        let Some(advertisement) = self.prefixes.remove(prefix) else { return };
        self.withdrawals -= usize::from(advertisement.cost.is_none());
        if let Some(due) = advertisement.due {
            self.due.remove(&(due, prefix.clone()));
        }
        self.outstanding.retain(|command| command.prefix != *prefix);
    }
}

/// The prefix of a routing daemon's commands.
fn daemon_prefix() -> Name {
    let mut name = Name::new();
    name.append_str("localhost").append_str("nlsr");
    name
}

/// The prefixes that a daemon may register to receive the commands. A shorter one is no daemon's: a
/// program that collects all packets registers `/`.
fn command_prefixes() -> [Name; 2] {
    let mut module = daemon_prefix();
    module.append_str("rib");
    [daemon_prefix(), module]
}

/// Whether other hosts can use a prefix. `/` would attract all their Interests.
fn is_routable(prefix: NameView<'_>) -> bool {
    let first = prefix.component(0);
    first.is_some_and(|first| {
        !(first.is_generic() && matches!(first.value, b"localhost" | b"localhop"))
    })
}
