//! Forwarding strategies: which next hops an Interest goes to.
//!
//! A strategy decides through a `Context`; it holds no state of its own. What it must remember
//! of one Interest lies in the PIT entry.

mod best_route;
mod multicast;

use alloc::string::String;

use weir_base::{FaceId, Instant, NS_PER_MS};
use weir_wire::{InterestView, NackReason, Name, NameView};

use crate::io::{NextHop, Outbox};
use crate::pit::{OutRecord, Pit, PitEntry};
use crate::router::{Face, FaceTable, Sender};
use crate::stats::{DropReason, RouterStats};

/// A strategy instance: what a prefix is forwarded by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    kind: Kind,
    name: Name,
    suppression: Suppression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BestRoute,
    Multicast,
}

/// Exponential suppression of retransmissions (NFD, RetxSuppressionExponential).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suppression {
    initial_ns: u64,
    max_ns: u64,
    /// Growth of the interval in thousandths.
    multiplier_milli: u64,
}

impl Default for Suppression {
    fn default() -> Self {
        Self { initial_ns: 10 * NS_PER_MS, max_ns: 250 * NS_PER_MS, multiplier_milli: 2000 }
    }
}

impl Suppression {
    fn next_ns(&self, interval_ns: u64) -> u64 {
        let interval_ns = interval_ns.max(self.initial_ns);
        (interval_ns.saturating_mul(self.multiplier_milli) / 1000).min(self.max_ns)
    }
}

/// Why a strategy name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// No such strategy, or none of that version or later.
    #[error("no strategy of that name and version is known")]
    Unknown,
    /// A parameter that the strategy does not have, or a value out of range.
    #[error("bad strategy parameter `{0}`")]
    BadParameter(String),
}

const STRATEGY_PREFIX: [&[u8]; 3] = [b"localhost", b"nfd", b"strategy"];
/// NFD's version of both strategies, whose behaviour ours is.
const VERSION: u64 = 5;

impl Strategy {
    /// best-route with default parameters.
    #[must_use]
    pub fn best_route() -> Self {
        Self::with_defaults(Kind::BestRoute)
    }

    /// multicast with default parameters.
    #[must_use]
    pub fn multicast() -> Self {
        Self::with_defaults(Kind::Multicast)
    }

    fn with_defaults(kind: Kind) -> Self {
        Self { kind, name: kind.name(), suppression: Suppression::default() }
    }

    /// The instance name, with version and parameters.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The strategy that `name` denotes: `/localhost/nfd/strategy/<name>[/54=<version>]`
    /// `[/<parameter>~<value>...]`. Without version the highest; with one that or the next higher.
    ///
    /// # Errors
    /// When no such strategy exists or a parameter is not understood.
    pub fn from_name(name: NameView<'_>) -> Result<Self, StrategyError> {
        let mut components = name.components();
        for expected in STRATEGY_PREFIX {
            if components.next().is_none_or(|component| component.value != expected) {
                return Err(StrategyError::Unknown);
            }
        }
        let kind = match components.next().map(|component| component.value) {
            Some(b"best-route") => Kind::BestRoute,
            Some(b"multicast") => Kind::Multicast,
            _ => return Err(StrategyError::Unknown),
        };
        let mut strategy = Self::with_defaults(kind);
        match components.next().map(|component| component.as_version()) {
            None => return Ok(strategy),
            Some(Some(version)) if version <= VERSION => {}
            Some(_) => return Err(StrategyError::Unknown),
        }
        for component in components {
            strategy.suppression.set(component.value)?;
            strategy.name.push_view(component);
        }
        // Only all parameters together tell: a larger beginning may come before a larger end.
        let Suppression { initial_ns, max_ns, .. } = strategy.suppression;
        if initial_ns == 0 || initial_ns > max_ns {
            return Err(StrategyError::BadParameter("retx-suppression-initial".into()));
        }
        Ok(strategy)
    }

    pub(crate) fn is_multicast(&self) -> bool {
        self.kind == Kind::Multicast
    }

    pub(crate) fn after_interest(&self, context: &mut Context<'_>) {
        match self.kind {
            Kind::BestRoute => best_route::after_interest(&self.suppression, context),
            Kind::Multicast => multicast::after_interest(&self.suppression, context),
        }
    }

    /// How long after the last of its Interests a retransmission of an entry may go on.
    pub(crate) fn retransmission_ns(&self, entry: &PitEntry) -> u64 {
        entry.suppression_ns.max(self.suppression.initial_ns)
    }

    pub(crate) fn after_new_next_hop(&self, context: &mut Context<'_>) {
        if self.is_multicast() {
            multicast::after_interest(&self.suppression, context);
        }
    }
}

impl Kind {
    fn name(self) -> Name {
        let mut name = Name::new();
        for component in STRATEGY_PREFIX {
            name.append_generic(component);
        }
        name.append_generic(match self {
            Self::BestRoute => b"best-route".as_slice(),
            Self::Multicast => b"multicast".as_slice(),
        });
        name.append_version(VERSION);
        name
    }
}

impl Suppression {
    /// Takes one `name~value` parameter component (NFD, strategy parameters).
    fn set(&mut self, component: &[u8]) -> Result<(), StrategyError> {
        let bad = || StrategyError::BadParameter(String::from_utf8_lossy(component).into_owned());
        let text = core::str::from_utf8(component).map_err(|_| bad())?;
        let (key, value) = text.split_once('~').ok_or_else(bad)?;
        let milliseconds = || value.parse::<u32>().map(|ms| u64::from(ms) * NS_PER_MS);
        match key {
            "retx-suppression-initial" => self.initial_ns = milliseconds().map_err(|_| bad())?,
            "retx-suppression-max" => self.max_ns = milliseconds().map_err(|_| bad())?,
            "retx-suppression-multiplier" => {
                let multiplier: f64 = value.parse().map_err(|_| bad())?;
                if !(1.0..=1000.0).contains(&multiplier) {
                    return Err(bad());
                }
                self.multiplier_milli = (multiplier * 1000.0) as u64;
            }
            _ => return Err(bad()),
        }
        Ok(())
    }
}

/// What a strategy sees of one Interest and what it can do about it.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) pit: &'a mut Pit,
    pub(crate) entry: u32,
    pub(crate) ingress: FaceId,
    /// By rising cost.
    pub(crate) next_hops: &'a [NextHop],
    pub(crate) lifetime_ns: u64,
    pub(crate) faces: &'a mut FaceTable,
    pub(crate) sender: &'a mut Sender,
    pub(crate) stats: &'a mut RouterStats,
    pub(crate) out: &'a mut Outbox,
}

impl Context<'_> {
    pub(crate) fn entry(&self) -> &PitEntry {
        self.pit.entry(self.entry)
    }

    /// Whether the Interest may go to `hop` at all: not back where it came from, unless those
    /// there do not hear one another, and not out of its scope.
    pub(crate) fn is_eligible(&self, hop: &NextHop) -> bool {
        is_eligible(self.faces, self.ingress, self.entry().name_value(), hop.face).is_some()
    }

    fn is_local(&self, face: FaceId) -> bool {
        self.faces.find(face).is_some_and(|face| face.is_local())
    }

    /// Whether an unanswered Interest is out on `hop`.
    pub(crate) fn is_in_use(&self, hop: &NextHop) -> bool {
        self.out_record(hop.face).is_some_and(|record| record.expiry > self.now)
    }

    pub(crate) fn out_record(&self, face: FaceId) -> Option<&OutRecord> {
        self.entry().out_records.iter().find(|record| record.face == face)
    }

    /// Sends the Interest to `face` and notes it (NFD, outgoing Interest pipeline).
    pub(crate) fn send_interest(&mut self, face: FaceId) -> bool {
        if self.entry().hop_limit == Some(0) && !self.is_local(face) {
            self.stats.drop_packet(DropReason::HopLimitSpent);
            return false;
        }
        let entry = self.pit.entry_mut(self.entry);
        let (now, nonce) = (self.now, entry.nonce);
        let expiry = now.plus_ns(self.lifetime_ns);
        match entry.out_records.find(|record| record.face == face) {
            Some(record) => {
                record.nonce = nonce;
                record.sent_at = now;
                record.expiry = expiry;
                record.nacked = None;
            }
            None => entry.out_records.push(OutRecord {
                face,
                nonce,
                sent_at: now,
                expiry,
                nacked: None,
                suppression_ns: 0,
            }),
        }
        let ingress = self.ingress;
        self.sender.interest(face, ingress, entry.interest.clone(), self.stats, self.out);
        true
    }

    /// Answers every downstream with a Nack and ends the entry.
    pub(crate) fn reject(&mut self, reason: NackReason) {
        self.sender.nack_all(
            self.pit.entry_mut(self.entry),
            reason,
            self.faces,
            self.stats,
            self.out,
        );
    }
}

/// The face `egress`, when an Interest from `ingress` may go there at all.
#[inline]
pub(crate) fn is_eligible(
    faces: &FaceTable,
    ingress: FaceId,
    name_value: &[u8],
    egress: FaceId,
) -> Option<Face> {
    let found = faces.find(egress)?;
    if egress == ingress && !found.is_ad_hoc() {
        return None;
    }
    let is_in_scope = match scope_of(name_value) {
        Scope::Global => true,
        Scope::Localhost => found.is_local(),
        Scope::Localhop => {
            found.is_local() || faces.find(ingress).is_some_and(|face| face.is_local())
        }
    };
    is_in_scope.then_some(found)
}

/// How far a name reaches (NFD, name-based scope control).
enum Scope {
    Global,
    /// Never crosses to another host.
    Localhost,
    /// Crosses to another host only from this one.
    Localhop,
}

#[inline]
fn scope_of(name_value: &[u8]) -> Scope {
    match name_value {
        [8, 9, rest @ ..] if rest.starts_with(b"localhost") => Scope::Localhost,
        [8, 8, rest @ ..] if rest.starts_with(b"localhop") => Scope::Localhop,
        _ => Scope::Global,
    }
}

/// Whether a name lies in `/localhost`.
#[inline]
pub(crate) fn is_localhost(name: NameView<'_>) -> bool {
    name.value().starts_with(b"\x08\x09localhost")
}

/// Whether an Interest that found its entry pending may be sent again, by the time since the last.
pub(crate) fn may_retransmit(now: Instant, last: Instant, interval_ns: u64) -> bool {
    now.ns_since(last) >= interval_ns
}

/// What remains of an entry's Nacks: all upstreams refused, one that is also a downstream has not,
/// or some may still answer (NFD, ProcessNack).
pub(crate) enum NackVerdict {
    AllRefused(NackReason),
    OnlyDownstreamLeft(FaceId, NackReason),
    Wait,
}

pub(crate) fn judge_nacks(now: Instant, entry: &PitEntry) -> NackVerdict {
    let mut reason: Option<NackReason> = None;
    let mut waiting = None;
    let mut waiting_count = 0;
    for record in entry.out_records.iter() {
        match record.nacked {
            Some(theirs) => {
                reason = Some(reason.map_or(theirs, |known| known.least_severe(theirs)));
            }
            None if record.expiry > now => {
                waiting = Some(record.face);
                waiting_count += 1;
            }
            None => {}
        }
    }
    let reason = reason.unwrap_or(NackReason::None);
    match waiting {
        None => NackVerdict::AllRefused(reason),
        Some(face)
            if waiting_count == 1 && entry.in_records.iter().any(|record| record.face == face) =>
        {
            NackVerdict::OnlyDownstreamLeft(face, reason)
        }
        Some(_) => NackVerdict::Wait,
    }
}

/// The lifetime that an Interest asks for, ns, capped at ten minutes: NFD's ten days would let a
/// stranger who is long gone hold on to a part of the PIT.
pub(crate) fn lifetime_ns(interest: &InterestView<'_>) -> u64 {
    const LIFETIME_MS_MAX: u64 = 10 * 60 * 1000;
    interest.lifetime_ms_or_default().min(LIFETIME_MS_MAX) * NS_PER_MS
}
