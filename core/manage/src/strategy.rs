//! Strategy names: which strategy a name denotes, and whether its parameters are valid.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_forward::strategy::{Strategy, StrategyKind as RouterStrategy};
use weir_wire::{ComponentView, Name, NameView};

use crate::io::Action;
use crate::parameters::ControlResponse;
use crate::status::StrategyChoice;

/// The first octet of a version component in the older naming conventions.
const VERSION_MARKER: u8 = 0xfd;

/// A strategy that the router has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyInfo {
    /// Name without version, for example `/localhost/nfd/strategy/best-route`.
    pub name: Name,
    pub version: u64,
}

impl From<RouterStrategy> for StrategyInfo {
    fn from(kind: RouterStrategy) -> Self {
        let mut full = Name::new();
        for component in ["localhost", "nfd", "strategy", &kind.to_string()] {
            full.append_str(component);
        }
        Self { name: full, version: kind.version() }
    }
}

impl StrategyInfo {
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
}

/// Checks the name of a strategy of the configuration, with or without version and parameters.
///
/// # Errors
/// Why a manager with the default strategies would refuse it.
pub fn check_strategy(name: &Name) -> Result<(), String> {
    let kinds = RouterStrategy::ALL.iter().map(|&kind| kind.into()).collect();
    let table = StrategyTable::new(kinds, 0, Vec::new());
    table.resolve(name.as_view()).map(drop).map_err(|refusal| refusal.text)
}

/// The strategy of each prefix, and the available strategies.
#[derive(Clone, Debug)]
pub(crate) struct StrategyTable {
    kinds: Vec<StrategyInfo>,
    choices: BTreeMap<Name, Name>,
    choices_max: usize,
    /// The strategies of a router without configuration.
    defaults: Vec<(Name, Name)>,
}

impl StrategyTable {
    pub(crate) fn new(
        kinds: Vec<StrategyInfo>,
        choices_max: usize,
        defaults: Vec<(Name, Name)>,
    ) -> Self {
        Self { kinds, choices: BTreeMap::new(), choices_max, defaults }
    }

    /// The items of strategy-choice/list.
    pub(crate) fn items(&self) -> impl Iterator<Item = StrategyChoice> {
        self.choices.iter().map(|(name, strategy)| StrategyChoice {
            name: name.clone(),
            strategy: strategy.clone(),
        })
    }

    /// Sets a strategy. Returns its versioned name and the action for the router, if any.
    ///
    /// # Errors
    /// The refusal, as an answer.
    pub(crate) fn choose(
        &mut self,
        prefix: &Name,
        strategy: NameView<'_>,
    ) -> Result<(Name, Option<Action>), ControlResponse> {
        let resolved = self.resolve(strategy)?;
        let is_full = self.choices.len() >= self.choices_max;
        if is_full && !self.choices.contains_key(prefix) {
            return Err(ControlResponse::new(500, "Too many strategy choices"));
        }
        let old = self.choices.insert(prefix.clone(), resolved.clone());
        let action = (old.as_ref() != Some(&resolved)).then(|| Action::SetStrategy {
            prefix: prefix.clone(),
            strategy: Some(resolved.clone()),
        });
        Ok((resolved, action))
    }

    /// Removes the strategy of a prefix, so that the shorter prefix's applies. Returns the action
    /// for the router, if any.
    pub(crate) fn unset(&mut self, prefix: &Name) -> Option<Action> {
        self.choices.remove(prefix)?;
        Some(Action::SetStrategy { prefix: prefix.clone(), strategy: None })
    }

    /// Restores the strategy that a prefix has without configuration, unless it has another one
    /// than `configured` by now. Returns the action for the router, if any.
    pub(crate) fn restore(&mut self, prefix: &Name, configured: NameView<'_>) -> Option<Action> {
        let configured = self.resolve(configured).ok()?;
        if self.choices.get(prefix) != Some(&configured) {
            return None;
        }
        match self.defaults.iter().find(|(known, _)| known == prefix).cloned() {
            Some((prefix, default)) => self.choose(&prefix, default.as_view()).ok()?.1,
            None => self.unset(prefix),
        }
    }

    /// The full name of the strategy that `name` denotes, or the refusal. Without a version in
    /// `name`, it has the highest version. Otherwise it has the same version. NFD also allows a
    /// higher version that declares itself compatible, but Weir's strategies declare none.
    fn resolve(&self, name: NameView<'_>) -> Result<Name, ControlResponse> {
        // The components after the version are parameters.
        let version_at = |at| Some((at, name.component(at).and_then(version_of)?));
        let (base_len, version) = match (1..name.component_count()).rev().find_map(version_at) {
            Some((at, version)) => (at, Some(version)),
            None => (name.component_count(), None),
        };
        let base = name.prefix(base_len);
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
        let refuse = |reason: String| {
            ControlResponse::new(409, format!("Error instantiating strategy: {reason}"))
        };
        if version != kind.version {
            let name = kind.short_name();
            return Err(refuse(format!("{name} does not support version {version}")));
        }
        let mut full = kind.versioned_name();
        name.components().skip(base_len + 1).for_each(|component| {
            full.push_view(component);
        });
        // Strategies check their own parameters, so this manager accepts only names that the router
        // accepts.
        Strategy::from_name(full.as_view()).map_err(|error| refuse(error.to_string()))?;
        Ok(full)
    }
}

/// The version that a component denotes: `v=5`, or `%FD%05` of the older naming conventions, which
/// scripts for NFD still use (ndn-cxx a362e65, `Component::isVersion`).
fn version_of(component: ComponentView<'_>) -> Option<u64> {
    component.as_version().or_else(|| match component.value {
        [VERSION_MARKER, number @ ..] if component.is_generic() => match *number {
            [a] => Some(u64::from(a)),
            [a, b] => Some(u64::from(u16::from_be_bytes([a, b]))),
            [a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
            _ => <[u8; 8]>::try_from(number).ok().map(u64::from_be_bytes),
        },
        _ => None,
    })
}
