//! Forwarding strategies: they choose the next hops of an Interest.
//!
//! A strategy decides through a `Context`. It has parameters, but no state of its own. Its state is
//! in the `strategy_state` fields of the PIT entry, of the out-record of an upstream, and of the
//! measurements of a next hop.

mod access;
mod asf;
mod best_route;
pub(crate) mod choice;
pub(crate) mod context;
mod lowest_rtt;
mod multicast;
mod multipath;
pub(crate) mod nacks;
mod random;
mod self_learning;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{FaceId, NS_PER_MS, words};
use weir_wire::{NackReason, Name, NameView};

use self::context::{Behaviour, Context, Suppression};
pub(crate) use self::self_learning::DISCOVERY;
use crate::table::pit::PitEntry;

/// Declares the strategies: variant, word and value of each.
macro_rules! strategies {
    ($($variant:ident = $word:literal: $behaviour:expr),+ $(,)?) => {
        /// All strategies. Configuration, management and scenarios name them by these words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StrategyKind {
            $(
                #[doc = concat!("`", $word, "`")]
                $variant
            ),+
        }

        words!(StrategyKind { $($variant = $word),+ });

        impl StrategyKind {
            #[inline]
            fn behaviour(self) -> &'static dyn Behaviour {
                match self { $(Self::$variant => &$behaviour),+ }
            }
        }
    };
}

// To add a strategy, add a file, its `mod`, and a line here.
strategies! {
    BestRoute = "best-route": best_route::BestRoute,
    Multicast = "multicast": multicast::Multicast,
    LowestRtt = "lowest-rtt": lowest_rtt::LowestRtt,
    Multipath = "multipath": multipath::WITHOUT_PARAMETERS,
    Asf = "asf": asf::DEFAULT,
    Random = "random": random::Random,
    Access = "access": access::Access,
    SelfLearning = "self-learning": self_learning::SelfLearning,
}

/// A strategy with its parameters, as chosen for a prefix.
#[derive(Clone, Debug)]
pub struct Strategy {
    kind: StrategyKind,
    /// The name, which identifies the strategy and all its parameters.
    name: Name,
    suppression: Suppression,
    /// The strategy with parameters of its own; `None` without.
    parameterized: Option<Arc<dyn Behaviour>>,
}

impl PartialEq for Strategy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Strategy {}

/// A `key~value` component of a strategy's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<'a> {
    text: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

impl Parameter<'_> {
    /// An error that refuses this parameter for a reason.
    pub(crate) fn refuse(&self, reason: &'static str) -> StrategyError {
        StrategyError::BadParameter(self.text.into(), reason)
    }
}

/// Why a strategy name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// There is no such strategy, or none of this version or later.
    #[error("there is no strategy with this name and version")]
    Unknown,
    /// A parameter that the strategy does not have, or a value out of range, with the reason.
    #[error("invalid strategy parameter `{0}`: {1}")]
    BadParameter(String, &'static str),
}

const STRATEGY_PREFIX: [&[u8]; 3] = [b"localhost", b"nfd", b"strategy"];

impl Strategy {
    /// best-route with default parameters.
    pub(crate) fn best_route() -> Self {
        StrategyKind::BestRoute.into()
    }

    /// multicast with default parameters.
    pub(crate) fn multicast() -> Self {
        StrategyKind::Multicast.into()
    }

    pub(crate) fn kind(&self) -> StrategyKind {
        self.kind
    }

    /// The name of the strategy, with version and parameters.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Finds the strategy that `name` denotes: `/localhost/nfd/strategy/<name>[/54=<version>]`
    /// `[/<parameter>~<value>...]`. Without a version, this is the highest one. With a version, it
    /// is the same or the next higher.
    ///
    /// # Errors
    /// If there is no such strategy, or it does not accept a parameter.
    pub fn from_name(name: NameView<'_>) -> Result<Self, StrategyError> {
        let mut components = name.components();
        for expected in STRATEGY_PREFIX {
            if components.next().is_none_or(|component| component.value != expected) {
                return Err(StrategyError::Unknown);
            }
        }
        let word = components.next().and_then(|component| str::from_utf8(component.value).ok());
        let kind: StrategyKind =
            word.and_then(|word| word.parse().ok()).ok_or(StrategyError::Unknown)?;
        let mut strategy = Self::from(kind);
        match components.next().map(|component| component.as_version()) {
            None => return Ok(strategy),
            Some(Some(version)) if version <= kind.version() => {}
            Some(_) => return Err(StrategyError::Unknown),
        }
        let mut own = Vec::new();
        for component in components {
            let parameter = parse_parameter(component.value)?;
            // Parameters of suppression are the same for all strategies that have it. Others belong
            // to this strategy.
            if !kind.behaviour().has_suppression() || !strategy.suppression.set(&parameter)? {
                own.push(parameter);
            }
            strategy.name.push_view(component);
        }
        // Each bound depends on both parameters, so they are checked after all have been read.
        let Suppression { initial_ns, max_ns, .. } = strategy.suppression;
        if initial_ns == 0 || initial_ns > max_ns {
            let reason = "it must be at least 1 ms and at most retx-suppression-max";
            return Err(StrategyError::BadParameter("retx-suppression-initial".into(), reason));
        }
        if !own.is_empty() {
            strategy.parameterized = Some(kind.behaviour().with_parameters(&own)?);
        }
        Ok(strategy)
    }

    /// Whether pending Interests are offered new next hops.
    pub(crate) fn wants_new_next_hops(&self) -> bool {
        self.behaviour().wants_new_next_hops()
    }

    /// Whether the strategy learns routes from prefix announcements.
    pub(crate) fn learns_routes(&self) -> bool {
        self.behaviour().learns_routes()
    }

    #[inline]
    fn behaviour(&self) -> &dyn Behaviour {
        match &self.parameterized {
            Some(own) => &**own,
            None => self.kind.behaviour(),
        }
    }

    /// Handles an Interest.
    #[inline]
    pub(crate) fn on_interest(&self, context: &mut Context<'_>) {
        self.behaviour().on_interest(&self.suppression, context);
    }

    /// Handles an Interest that all its upstreams have refused. Returns whether it was sent to
    /// another next hop.
    pub(crate) fn on_refusal(&self, context: &mut Context<'_>) -> bool {
        self.behaviour().on_refusal(context)
    }

    /// Handles a Nack of an upstream. Returns whether the Interest stays pending in any case.
    pub(crate) fn on_nack(
        &self,
        context: &mut Context<'_>,
        from: FaceId,
        reason: NackReason,
    ) -> bool {
        self.behaviour().on_nack(context, from, reason)
    }

    /// Handles an Interest that is still unanswered when the strategy's wakeup is due.
    pub(crate) fn on_timeout(&self, context: &mut Context<'_>) {
        self.behaviour().on_timeout(context);
    }

    /// How long after the last transmission a retransmission of an entry is accepted.
    pub(crate) fn retransmission_ns(&self, entry: &PitEntry) -> u64 {
        self.suppression.current_ns(entry.strategy_state())
    }
}

impl From<StrategyKind> for Strategy {
    /// The strategy with default parameters.
    fn from(kind: StrategyKind) -> Self {
        Self { kind, name: kind.name(), suppression: Suppression::default(), parameterized: None }
    }
}

impl StrategyKind {
    /// The highest version. A strategy of NFD has NFD's version.
    #[must_use]
    pub fn version(self) -> u64 {
        self.behaviour().version()
    }

    fn name(self) -> Name {
        let mut name = Name::new();
        for component in STRATEGY_PREFIX {
            name.append_generic(component);
        }
        name.append_str(Self::WORDS[self as usize]);
        name.append_version(self.version());
        name
    }
}

/// A `key~value` component (NFD, strategy parameters).
fn parse_parameter(component: &[u8]) -> Result<Parameter<'_>, StrategyError> {
    let found = str::from_utf8(component).ok().and_then(|text| Some((text, text.split_once('~')?)));
    let Some((text, (key, value))) = found else {
        let text = String::from_utf8_lossy(component).into_owned();
        return Err(StrategyError::BadParameter(text, "it must have the form <key>~<value>"));
    };
    Ok(Parameter { text, key, value })
}

/// A number of decimal digits alone.
fn parse_number(text: &str) -> Option<u64> {
    let is_decimal = text.bytes().all(|octet| octet.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

impl Suppression {
    /// Sets one of the parameters of suppression. Returns `false` for another parameter.
    fn set(&mut self, parameter: &Parameter<'_>) -> Result<bool, StrategyError> {
        let milliseconds = || match parameter.value.parse::<u32>() {
            Ok(ms) => Ok(u64::from(ms) * NS_PER_MS),
            Err(_) => Err(parameter.refuse("it must be a number of milliseconds")),
        };
        match parameter.key {
            "retx-suppression-initial" => self.initial_ns = milliseconds()?,
            "retx-suppression-max" => self.max_ns = milliseconds()?,
            "retx-suppression-multiplier" => {
                let multiplier = parameter.value.parse().unwrap_or(f64::NAN);
                if !(1.0..=1000.0).contains(&multiplier) {
                    return Err(parameter.refuse("it must be a number from 1 to 1000"));
                }
                self.multiplier_milli = (multiplier * 1000.0) as u64;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
