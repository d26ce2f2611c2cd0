//! Strategy names: which strategy a name chooses, and whether its parameters are right.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_forward::strategy::StrategyKind as RouterStrategy;
use weir_wire::{ComponentView, Name, NameView};

use crate::parameters::ControlResponse;

/// What values a strategy parameter takes. The router's strategies take no others, so that what is
/// answered with success here is also done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A time in milliseconds, from 1 to 2^32 - 1.
    Milliseconds,
    /// A decimal number from 1 to 1000.
    Factor,
}

impl ParameterKind {
    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Milliseconds => text.parse::<u32>().is_ok_and(|ms| ms > 0),
            Self::Factor => {
                text.parse::<f64>().is_ok_and(|factor| (1.0..=1000.0).contains(&factor))
            }
        }
    }
}

/// A strategy that the router has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyKind {
    /// Name without version, for example `/localhost/nfd/strategy/best-route`.
    pub name: Name,
    /// The one version there is.
    pub version: u64,
    /// Parameters that may follow the version as `key~value`.
    pub parameters: Vec<(&'static str, ParameterKind)>,
}

impl From<RouterStrategy> for StrategyKind {
    fn from(kind: RouterStrategy) -> Self {
        let mut full = Name::new();
        for component in ["localhost", "nfd", "strategy", &kind.to_string()] {
            full.append_str(component);
        }
        let parameters = alloc::vec![
            ("retx-suppression-initial", ParameterKind::Milliseconds),
            ("retx-suppression-max", ParameterKind::Milliseconds),
            ("retx-suppression-multiplier", ParameterKind::Factor),
        ];
        Self { name: full, version: kind.version(), parameters }
    }
}

impl StrategyKind {
    /// Name with version.
    pub(crate) fn versioned_name(&self) -> Name {
        let mut name = self.name.clone();
        name.append_version(self.version);
        name
    }

    fn short_name(&self) -> String {
        match self.name.as_view().last() {
            Some(component) => String::from_utf8_lossy(component.value).into_owned(),
            None => String::new(),
        }
    }

    fn check_parameters<'a>(
        &self,
        parameters: impl Iterator<Item = ComponentView<'a>>,
    ) -> Result<(), ControlResponse> {
        let refuse = |reason: String| {
            Err(ControlResponse::new(409, format!("Error instantiating strategy: {reason}")))
        };
        for component in parameters {
            let text = String::from_utf8_lossy(component.value);
            let pair =
                text.split_once('~').filter(|(key, value)| !key.is_empty() && !value.is_empty());
            let Some((key, value)) = pair else {
                return refuse(String::from(
                    "Strategy parameters format is (<parameter>~<value>)*",
                ));
            };
            let known = self.parameters.iter().find(|(name, _)| *name == key);
            if !known.is_some_and(|(_, kind)| kind.accepts(value)) {
                let name = self.short_name();
                return refuse(format!("{name} does not take the parameter {key}~{value}"));
            }
        }
        Ok(())
    }
}

/// The strategy chosen for each prefix, and the strategies there are.
#[derive(Clone, Debug)]
pub(crate) struct StrategyTable {
    kinds: Vec<StrategyKind>,
    choices: BTreeMap<Name, Name>,
}

impl StrategyTable {
    pub(crate) fn new(kinds: Vec<StrategyKind>) -> Self {
        Self { kinds, choices: BTreeMap::new() }
    }

    pub(crate) fn choices(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.choices.iter()
    }

    /// The full name of what `name` chooses, or the refusal: without a version the highest there
    /// is; with one the same or the next higher, which must then say that it can stand in, and none
    /// of ours does.
    pub(crate) fn resolve(&self, name: NameView<'_>) -> Result<Name, ControlResponse> {
        let version_at = (1..name.component_count()).rev().find(|at| {
            name.component(*at).is_some_and(|component| component.as_version().is_some())
        });
        let base = name.prefix(version_at.unwrap_or_else(|| name.component_count()));
        let version = version_at.and_then(|at| name.component(at)).and_then(|c| c.as_version());
        let found = self
            .kinds
            .iter()
            .filter(|kind| kind.name.as_view() == base)
            .filter(|kind| version.is_none_or(|version| kind.version >= version))
            .min_by_key(|kind| match version {
                Some(_) => kind.version,
                None => u64::MAX - kind.version,
            });
        let Some(kind) = found else {
            return Err(ControlResponse::new(404, "Strategy not registered"));
        };
        let Some(version) = version else { return Ok(kind.versioned_name()) };
        if version != kind.version {
            let name = kind.short_name();
            let reason = format!("{name} does not support version {version}");
            return Err(ControlResponse::new(
                409,
                format!("Error instantiating strategy: {reason}"),
            ));
        }
        kind.check_parameters(name.components().skip(base.component_count() + 1))?;
        Ok(name.to_name())
    }

    /// `true` when that changes something.
    pub(crate) fn set(&mut self, prefix: &Name, strategy: &Name) -> bool {
        self.choices.insert(prefix.clone(), strategy.clone()).as_ref() != Some(strategy)
    }

    /// `true` when that changes something.
    pub(crate) fn unset(&mut self, prefix: &Name) -> bool {
        self.choices.remove(prefix).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    pub(crate) fn contains(&self, prefix: &Name) -> bool {
        self.choices.contains_key(prefix)
    }
}
