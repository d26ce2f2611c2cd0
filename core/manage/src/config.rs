//! The initial configuration of the manager.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use weir_forward::strategy::StrategyKind as RouterStrategy;
use weir_security::{DigestSigner, Signer, Verifier};
use weir_wire::{KeyLocatorView, Name};

use crate::io::StoreSettings;
use crate::strategy::StrategyInfo;

/// The configured trust anchors.
pub trait AnchorLookup: Send {
    /// The verifier for the key that a KeyLocator names: the name of an anchor certificate or of
    /// its key, or the digest of its key. `None` if it is not an anchor, or not valid now.
    fn verifier(&self, locator: KeyLocatorView<'_>, now_unix_ms: u64) -> Option<&dyn Verifier>;
}

/// The initial configuration of the manager.
pub struct ManagerConfig {
    /// Name and version of the program, for status/general.
    pub version: String,
    /// The signer of all Data of the manager.
    pub signer: Box<dyn Signer>,
    /// Whether unprivileged programs of this host may register and unregister prefixes for their
    /// own face.
    pub local_registration: bool,
    /// Who may command the router without a signature, for error messages: "root and group ndn".
    pub operators: String,
    /// The keys whose prefix announcements are accepted, from rib/announce and with Data. `None`
    /// accepts all, as `prefix_announcement_validation` of NFD's sample does.
    pub announcement_anchors: Option<Box<dyn AnchorLookup>>,
    pub anchors: Option<Box<dyn AnchorLookup>>,
    /// Whether `/localhop/nfd/rib` is served. An anchor must sign its commands.
    pub localhop: bool,
    /// Whether neighbours may query which segments of an object are stored.
    pub holdings_for_neighbours: bool,
    /// Whether the prefixes of local applications are registered with a routing daemon.
    pub readvertise_nlsr: bool,
    /// The strategies that the router has.
    pub strategies: Vec<StrategyInfo>,
    /// The initial strategy of each prefix: prefix and versioned strategy name.
    pub default_strategies: Vec<(Name, Name)>,
    /// The initial settings of the content store.
    pub store: StoreSettings,
    /// Maximum capacity that a command can set for the content store, in bytes.
    pub store_bytes_max: u64,
    pub routes_max: usize,
    /// Maximum number of FIB prefixes.
    pub fib_entries_max: usize,
    /// Maximum number of prefixes with a strategy of their own.
    pub strategy_choices_max: usize,
    /// Maximum number of commands and datasets that wait for the driver.
    pub pending_max: usize,
}

impl Default for ManagerConfig {
    /// NFD's defaults: best-route, with multicast for `/localhost` and `/ndn/broadcast`, and
    /// best-route for `/localhost/nfd`.
    fn default() -> Self {
        let best_route = StrategyInfo::from(RouterStrategy::BestRoute);
        let multicast = StrategyInfo::from(RouterStrategy::Multicast);
        let name = |components: &[&str]| {
            let mut name = Name::new();
            for component in components {
                name.append_str(component);
            }
            name
        };
        let default_strategies = alloc::vec![
            (name(&[]), best_route.versioned_name()),
            (name(&["localhost"]), multicast.versioned_name()),
            (name(&["localhost", "nfd"]), best_route.versioned_name()),
            (name(&["ndn", "broadcast"]), multicast.versioned_name()),
        ];
        Self {
            version: String::from(concat!("weir ", env!("CARGO_PKG_VERSION"))),
            signer: Box::new(DigestSigner),
            local_registration: true,
            operators: String::from("the router's operator"),
            announcement_anchors: None,
            anchors: None,
            localhop: false,
            holdings_for_neighbours: false,
            readvertise_nlsr: true,
            strategies: RouterStrategy::ALL.iter().map(|&kind| kind.into()).collect(),
            default_strategies,
            store: StoreSettings { capacity_bytes: 512 << 20, admit: true, serve: true },
            store_bytes_max: u64::MAX,
            routes_max: 1 << 20,
            fib_entries_max: 1 << 20,
            strategy_choices_max: 1 << 16,
            pending_max: 256,
        }
    }
}
