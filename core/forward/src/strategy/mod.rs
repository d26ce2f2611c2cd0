//! Forwarding strategies: which next hops an Interest goes to.
//!
//! A strategy decides through a `Context`; it holds no state of its own. What it must remember
//! of one Interest lies in the PIT entry.

use crate::strategy::context::{Context, Suppression};
use crate::table::pit::PitEntry;

mod best_route;
pub(crate) mod context;
mod multicast;
pub(crate) mod nacks;

use alloc::string::String;

use weir_base::NS_PER_MS;
use weir_wire::{Name, NameView};

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
        entry.strategy_state.max(self.suppression.initial_ns)
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
