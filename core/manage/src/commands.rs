//! The commands of the protocol, and the client side of them: command Interests and responses.

use alloc::vec::Vec;

use weir_base::FaceId;
use weir_security::{SignError, Signer, sign_interest};
use weir_wire::{DataView, Interest, Name, NameView};

use crate::element::Element;
use crate::error::DecodeError;
use crate::face_uri;
use crate::numbers::{FacePersistency, route_flags, route_origin};
use crate::parameters::{ControlParameters, ControlResponse};

/// How long a client waits for the answer to a command, in milliseconds.
pub(crate) const COMMAND_LIFETIME_MS: u64 = 10_000;

/// The fields a command may carry, one bit each.
mod field {
    pub(super) const NAME: u16 = 1;
    pub(super) const FACE_ID: u16 = 1 << 1;
    pub(super) const URI: u16 = 1 << 2;
    pub(super) const LOCAL_URI: u16 = 1 << 3;
    pub(super) const ORIGIN: u16 = 1 << 4;
    pub(super) const COST: u16 = 1 << 5;
    pub(super) const CAPACITY: u16 = 1 << 6;
    pub(super) const COUNT: u16 = 1 << 7;
    pub(super) const FLAGS: u16 = 1 << 8;
    pub(super) const MASK: u16 = 1 << 9;
    pub(super) const STRATEGY: u16 = 1 << 10;
    pub(super) const EXPIRATION: u16 = 1 << 11;
    pub(super) const PERSISTENCY: u16 = 1 << 12;
    pub(super) const INTERVAL: u16 = 1 << 13;
    pub(super) const THRESHOLD: u16 = 1 << 14;
    pub(super) const MTU: u16 = 1 << 15;

    pub(super) const FACE_SETTINGS: u16 = FLAGS | MASK | PERSISTENCY | INTERVAL | THRESHOLD | MTU;
}

/// A command of NFD management whose arguments are ControlParameters in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    FacesCreate,
    FacesUpdate,
    FacesDestroy,
    /// Adds a next hop to the FIB without a route in the RIB.
    FibAddNextHop,
    /// Removes a next hop from the FIB without a change of the RIB.
    FibRemoveNextHop,
    /// Changes the content store.
    CsConfig,
    /// Erases stored Data.
    CsErase,
    /// Marks stored Data to be evicted first (specific to Weir).
    CsEvictFirst,
    /// Keeps the Data below a prefix in memory, up to Count bytes (specific to Weir).
    CsPin,
    /// Ends the effect of [`Command::CsPin`].
    CsUnpin,
    StrategyChoiceSet,
    /// Removes the strategy of a prefix, so that the shorter prefix's strategy applies.
    StrategyChoiceUnset,
    /// Adds a route.
    RibRegister,
    /// Removes a route.
    RibUnregister,
    /// Reads the router's configuration again. Only Weir has this command.
    RouterReload,
}

impl Command {
    pub(crate) const ALL: [Self; 15] = [
        Self::FacesCreate,
        Self::FacesUpdate,
        Self::FacesDestroy,
        Self::FibAddNextHop,
        Self::FibRemoveNextHop,
        Self::CsConfig,
        Self::CsErase,
        Self::CsEvictFirst,
        Self::CsPin,
        Self::CsUnpin,
        Self::StrategyChoiceSet,
        Self::StrategyChoiceUnset,
        Self::RibRegister,
        Self::RibUnregister,
        Self::RouterReload,
    ];

    /// Module and verb, as in the name.
    pub const fn module_and_verb(self) -> (&'static str, &'static str) {
        match self {
            Self::FacesCreate => ("faces", "create"),
            Self::FacesUpdate => ("faces", "update"),
            Self::FacesDestroy => ("faces", "destroy"),
            Self::FibAddNextHop => ("fib", "add-nexthop"),
            Self::FibRemoveNextHop => ("fib", "remove-nexthop"),
            Self::CsConfig => ("cs", "config"),
            Self::CsErase => ("cs", "erase"),
            Self::CsEvictFirst => ("cs", "evict-first"),
            Self::CsPin => ("cs", "pin"),
            Self::CsUnpin => ("cs", "unpin"),
            Self::StrategyChoiceSet => ("strategy-choice", "set"),
            Self::StrategyChoiceUnset => ("strategy-choice", "unset"),
            Self::RibRegister => ("rib", "register"),
            Self::RibUnregister => ("rib", "unregister"),
            Self::RouterReload => ("router", "reload"),
        }
    }

    /// The command of a module and verb.
    pub(crate) fn from_module_and_verb(module: &[u8], verb: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|command| {
            let names = command.module_and_verb();
            names.0.as_bytes() == module && names.1.as_bytes() == verb
        })
    }

    /// Required and optional fields (NFD management, control commands).
    const fn fields(self) -> (u16, u16) {
        use field::*;
        match self {
            Self::FacesCreate => (URI, LOCAL_URI | FACE_SETTINGS),
            Self::FacesUpdate => (0, FACE_ID | FACE_SETTINGS),
            Self::FacesDestroy => (FACE_ID, 0),
            Self::FibAddNextHop => (NAME, FACE_ID | COST),
            Self::FibRemoveNextHop => (NAME, FACE_ID),
            Self::CsConfig => (0, CAPACITY | FLAGS | MASK),
            Self::CsErase => (NAME, COUNT),
            Self::CsEvictFirst | Self::CsUnpin => (NAME, 0),
            Self::CsPin => (NAME | COUNT, 0),
            Self::StrategyChoiceSet => (NAME | STRATEGY, 0),
            Self::StrategyChoiceUnset => (NAME, 0),
            Self::RibRegister => (NAME, FACE_ID | ORIGIN | COST | FLAGS | EXPIRATION),
            Self::RibUnregister => (NAME, FACE_ID | ORIGIN),
            Self::RouterReload => (0, 0),
        }
    }

    /// Whether the command accepts these parameters.
    pub(crate) fn accepts(self, parameters: &ControlParameters) -> bool {
        let (required, optional) = self.fields();
        let present = present_fields(parameters);
        let flags_and_mask = field::FLAGS | field::MASK;
        let has_flags_alone = optional & flags_and_mask == flags_and_mask
            && parameters.flags.is_some() != parameters.mask.is_some();
        let is_name_empty = parameters.name.as_ref().is_some_and(Name::is_empty);
        let has_bad_value = match self {
            Self::FacesDestroy => parameters.face_id == Some(FaceId::INVALID),
            Self::CsErase | Self::CsPin => parameters.count == Some(0),
            Self::StrategyChoiceUnset => is_name_empty,
            _ => false,
        };
        present & required == required
            && present & !(required | optional) == 0
            && !has_flags_alone
            && !has_bad_value
    }

    /// Sets the defaults of absent fields. The default of the face is 0. It means the face that the
    /// command came from.
    pub(crate) fn apply_defaults(self, parameters: &mut ControlParameters) {
        let (_, optional) = self.fields();
        if optional & field::FACE_ID != 0 {
            parameters.face_id.get_or_insert(FaceId::INVALID);
        }
        match self {
            Self::FacesCreate => {
                let uri = parameters.uri.as_deref().unwrap_or_default();
                // A TUN device may be removed and made again.
                let default = match face_uri::scheme(uri) {
                    "hicn+tun" => FacePersistency::Permanent,
                    _ => FacePersistency::Persistent,
                };
                parameters.face_persistency.get_or_insert(default);
            }
            Self::FibAddNextHop => {
                parameters.cost.get_or_insert(0);
            }
            Self::RibRegister => {
                parameters.origin.get_or_insert(route_origin::APP);
                parameters.cost.get_or_insert(0);
                parameters.flags.get_or_insert(route_flags::CHILD_INHERIT);
            }
            Self::RibUnregister => {
                parameters.origin.get_or_insert(route_origin::APP);
            }
            _ => {}
        }
    }
}

fn present_fields(parameters: &ControlParameters) -> u16 {
    let p = parameters;
    [
        p.name.is_some(),
        p.face_id.is_some(),
        p.uri.is_some(),
        p.local_uri.is_some(),
        p.origin.is_some(),
        p.cost.is_some(),
        p.capacity.is_some(),
        p.count.is_some(),
        p.flags.is_some(),
        p.mask.is_some(),
        p.strategy.is_some(),
        p.expiration_period_ms.is_some(),
        p.face_persistency.is_some(),
        p.base_congestion_marking_interval_ns.is_some(),
        p.default_congestion_threshold_bytes.is_some(),
        p.mtu.is_some(),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |fields, (bit, is_present)| fields | (u16::from(is_present) << bit))
}

/// The scopes in which management is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// `/localhost/nfd`: the router on this host.
    #[default]
    Localhost,
    /// `/localhop/nfd`: the router at the other end of a link. It serves only the RIB.
    Localhop,
}

impl Scope {
    /// The prefix of all management names.
    pub fn prefix(self) -> Name {
        let mut name = Name::new();
        name.append_str(match self {
            Self::Localhost => "localhost",
            Self::Localhop => "localhop",
        });
        name.append_str("nfd");
        name
    }

    /// The scope of a name under either prefix.
    pub(crate) fn of(name: NameView<'_>) -> Option<Self> {
        let mut components = name.components();
        let (first, second) = (components.next()?, components.next()?);
        if !first.is_generic() || !second.is_generic() || second.value != b"nfd" {
            return None;
        }
        match first.value {
            b"localhost" => Some(Self::Localhost),
            b"localhop" => Some(Self::Localhop),
            _ => None,
        }
    }
}

/// Builds a signed command Interest in the format of packet specification 0.3:
/// `<prefix>/<module>/<verb>/<ControlParameters>/<params-sha256>`, with SignatureNonce and
/// SignatureTime. The time is in milliseconds since the Unix epoch, and must be later than that of
/// the last command signed with the same key.
pub fn build_command(
    scope: Scope,
    command: Command,
    parameters: &ControlParameters,
    signer: &dyn Signer,
    nonce: [u8; 8],
    time_unix_ms: u64,
) -> Result<Vec<u8>, SignError> {
    build_command_to(scope.prefix(), command, parameters, signer, nonce, time_unix_ms)
}

/// Like [`build_command`], for a program with another prefix than the router's.
pub(crate) fn build_command_to(
    prefix: Name,
    command: Command,
    parameters: &ControlParameters,
    signer: &dyn Signer,
    nonce: [u8; 8],
    time_unix_ms: u64,
) -> Result<Vec<u8>, SignError> {
    let (module, verb) = command.module_and_verb();
    let mut name = prefix;
    name.append_str(module).append_str(verb).append_generic(&parameters.encode());
    // The Interest's own nonce must only differ from the last one; it need not be secret.
    let interest = Interest::new(name)
        .nonce(u32::from_be_bytes([nonce[0], nonce[1], nonce[2], nonce[3]]))
        .lifetime_ms(COMMAND_LIFETIME_MS);
    sign_interest(interest, signer, Some(nonce), Some(time_unix_ms))
}

/// Decodes the ControlResponse in the Data that answers a command or refuses a dataset.
pub fn parse_response(data: &DataView<'_>) -> Result<ControlResponse, DecodeError> {
    ControlResponse::decode(data.content)
}
