//! The manager: management Interests in, Data and actions out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_S, Packet};
use weir_forward::strategy::StrategyKind as RouterStrategy;
use weir_security::{DigestSigner, Signer, sign_data};
use weir_wire::{Data, InterestView, Name, NameView, PACKET_SIZE_MAX, content_type};

use crate::authorize::{AccessPolicy, AnchorLookup, ReplayRecords};
use crate::commands::{Command, Scope};
use crate::dataset::{DatasetCache, FRESHNESS_MS};
use crate::element::Element;
use crate::events::EventStream;
use crate::fib::Fib;
use crate::io::{Action, ManagerInput, ManagerOutbox, OutData, Sender, StoreSettings};
use crate::numbers::{FaceEventKind, route_flags, route_origin};
use crate::parameters::ControlResponse;
use crate::rib::{Rib, RibError, Route};
use crate::status::{FaceEventNotification, FaceInfo, FaceQueryFilter};
use crate::strategy::{StrategyKind, StrategyTable};

/// What the manager is started with.
pub struct ManagerConfig {
    /// Name and version of the program, for status/general.
    pub version: String,
    /// Signs all Data of the manager.
    pub signer: Box<dyn Signer>,
    /// Whether programs of this host that may not command the router may register prefixes for
    /// their own face, and unregister them.
    pub local_registration: bool,
    /// Who may command the router without a signature, for refusals: "root and group ndn".
    pub operators: String,
    /// Which prefix announcements are believed (rib/announce).
    pub announcements: AccessPolicy,
    /// The trust anchors, if any.
    pub anchors: Option<Box<dyn AnchorLookup>>,
    /// Whether `/localhop/nfd/rib` is served; its commands have to be signed by an anchor.
    pub localhop: bool,
    /// Whether neighbours are told which segments of an object are held.
    pub holdings_for_neighbours: bool,
    /// The strategies that the router has.
    pub strategies: Vec<StrategyKind>,
    /// The strategy of each prefix at the start: prefix and versioned strategy name.
    pub default_strategies: Vec<(Name, Name)>,
    /// The content store at the start.
    pub store: StoreSettings,
    /// The largest content store that a command makes, in octets.
    pub store_bytes_max: u64,
    /// Most routes.
    pub routes_max: usize,
    /// Most FIB prefixes.
    pub fib_entries_max: usize,
    /// Most prefixes with a strategy of their own.
    pub strategy_choices_max: usize,
    /// Most commands and datasets that wait for the driver.
    pub pending_max: usize,
}

impl Default for ManagerConfig {
    /// As NFD: best-route everywhere but in `/localhost` and `/ndn/broadcast`, where it is
    /// multicast, and best-route again in `/localhost/nfd`.
    fn default() -> Self {
        let best_route = StrategyKind::from(RouterStrategy::BestRoute);
        let multicast = StrategyKind::from(RouterStrategy::Multicast);
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
            announcements: AccessPolicy::Any,
            anchors: None,
            localhop: false,
            holdings_for_neighbours: false,
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

/// What the manager has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerStats {
    /// Commands carried out or refused for their arguments.
    pub commands: u64,
    /// Commands refused for their signature.
    pub unauthorized: u64,
    /// Datasets asked for.
    pub datasets: u64,
    /// Interests dropped because they are no management Interests, or no well-formed ones.
    pub ignored: u64,
    /// Commands, datasets and configured routes and strategies refused because a table was full or
    /// the face or strategy unknown.
    pub overflows: u64,
    /// Data that the signer failed to sign.
    pub signer_failures: u64,
    /// Answers to transactions that were no longer waiting.
    pub late_answers: u64,
}

/// What waits for the driver.
#[derive(Debug)]
pub(crate) enum PendingKind {
    CreateFace,
    UpdateFace,
    EraseStore { prefix: Name, is_limited: bool },
    Faces(FaceQueryFilter),
    Store,
    General,
    Holdings { object: Name },
}

/// The Interest that an answer is for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ingress: FaceId,
    pub(crate) name: Name,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) kind: PendingKind,
    deadline: Instant,
}

/// Module and name of the dataset that tells which segments are held.
pub(crate) const HOLDINGS: (&[u8], &[u8]) = (b"cs", b"holdings");

/// Questions of neighbours that are answered in a second: who sends more holds up only others like
/// it.
const NEIGHBOUR_QUESTIONS_MAX: u32 = 200;

/// What neighbours have asked for in a second.
#[derive(Debug, Default)]
struct NeighbourQuestions {
    second: u64,
    count: u32,
}

impl NeighbourQuestions {
    /// Whether there is room for one more; counts it.
    fn may_ask(&mut self, now: Instant) -> bool {
        let second = now.as_ns() / NS_PER_S;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= NEIGHBOUR_QUESTIONS_MAX
    }
}

/// How long the driver has for a transaction. Clients give up after 10 s.
const PENDING_LIFETIME_NS: u64 = 30 * NS_PER_S;

/// The management of one router (NDN-FACTS 3). Give it everything through
/// [`Manager::handle`], carry out what comes out.
pub struct Manager {
    pub(crate) config: ManagerConfig,
    pub(crate) faces: BTreeMap<FaceId, FaceInfo>,
    pub(crate) channels: Vec<String>,
    pub(crate) rib: Rib,
    pub(crate) fib: Fib,
    pub(crate) strategies: StrategyTable,
    pub(crate) store: StoreSettings,
    pub(crate) records: ReplayRecords,
    pub(crate) datasets: DatasetCache,
    neighbours: NeighbourQuestions,
    pub(crate) stats: ManagerStats,
    events: EventStream,
    pending: BTreeMap<u64, Pending>,
    next_txn: u64,
}

/// To the router itself. An application's route for a shorter prefix must not lead commands to it.
pub(crate) const OWN_ROUTE: Route = Route {
    face: FaceId::INTERNAL,
    origin: route_origin::APP,
    cost: 0,
    flags: route_flags::CHILD_INHERIT | route_flags::CAPTURE,
    expires: None,
};

impl Manager {
    /// Starts the manager: the FIB entry of management itself and the strategies at the start are
    /// in the outbox.
    pub fn new(config: ManagerConfig, out: &mut ManagerOutbox) -> Self {
        let mut manager = Self {
            faces: BTreeMap::new(),
            channels: Vec::new(),
            rib: Rib::new(config.routes_max),
            fib: Fib::default(),
            strategies: StrategyTable::new(config.strategies.clone()),
            store: config.store,
            records: ReplayRecords::default(),
            datasets: DatasetCache::default(),
            neighbours: NeighbourQuestions::default(),
            stats: ManagerStats::default(),
            events: EventStream::default(),
            pending: BTreeMap::new(),
            next_txn: 1,
            config,
        };
        for (prefix, strategy) in core::mem::take(&mut manager.config.default_strategies) {
            manager.set_initial_strategy(&prefix, &strategy, out);
        }
        manager.register_trusted(&Scope::Localhost.prefix(), OWN_ROUTE, out);
        if manager.config.localhop {
            manager.register_trusted(&Scope::Localhop.prefix(), OWN_ROUTE, out);
        }
        if manager.config.holdings_for_neighbours {
            let mut prefix = Scope::Localhop.prefix();
            prefix.append_str("cs").append_str("holdings");
            manager.register_trusted(&prefix, OWN_ROUTE, out);
        }
        manager
    }

    /// Takes one input. `now` is monotonic and counts from the start of the router, `now_unix_ms`
    /// is the wall clock in milliseconds since the Unix epoch.
    pub fn handle(
        &mut self,
        now: Instant,
        now_unix_ms: u64,
        input: ManagerInput,
        out: &mut ManagerOutbox,
    ) {
        match input {
            ManagerInput::Interest { ingress, sender, packet } => {
                let at = Moment { now, now_unix_ms };
                self.on_interest(at, ingress, sender, &packet, out);
            }
            ManagerInput::FaceEvent { kind, info } => self.on_face_event(now, kind, info, out),
            ManagerInput::FaceCreated { txn, result } => {
                if let Ok(info) = &result {
                    self.faces.insert(info.face_id, info.clone());
                }
                if let Some(pending) = self.take_pending(txn) {
                    self.on_face_created(&pending.request, result, out);
                }
            }
            ManagerInput::FaceUpdated { txn, result } => {
                if let Ok(info) = &result
                    && let Some(known) = self.faces.get_mut(&info.face_id)
                {
                    known.clone_from(info);
                }
                if let Some(pending) = self.take_pending(txn) {
                    self.on_face_updated(&pending.request, result, out);
                }
            }
            ManagerInput::StoreErased { txn, erased, more } => {
                if let Some(pending) = self.take_pending(txn) {
                    self.on_store_erased(pending, erased, more, out);
                }
            }
            ManagerInput::Snapshot { txn, snapshot } => {
                if let Some(pending) = self.take_pending(txn) {
                    self.on_snapshot(Moment { now, now_unix_ms }, pending, snapshot, out);
                }
            }
            ManagerInput::Holdings { txn, holdings, is_partial } => {
                if let Some(pending) = self.take_pending(txn) {
                    let at = Moment { now, now_unix_ms };
                    self.on_holdings(at, pending, holdings, is_partial, out);
                }
            }
            ManagerInput::Channels(channels) => self.channels = channels,
            ManagerInput::AddRoute { prefix, route } => self.register_trusted(&prefix, route, out),
            ManagerInput::SetStrategy { prefix, strategy } => {
                self.set_initial_strategy(&prefix, &strategy, out);
            }
            ManagerInput::Wakeup => {}
        }
        self.expire(now, out);
    }

    /// When to call [`Manager::handle`] at the latest, with [`ManagerInput::Wakeup`] if there is
    /// nothing else.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let pending = self.pending.values().map(|pending| pending.deadline).min();
        [self.rib.next_wakeup(), pending].into_iter().flatten().min()
    }

    /// What the manager has seen.
    pub fn stats(&self) -> ManagerStats {
        self.stats
    }

    /// The routes.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The FIB as the router has it.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The faces that the manager knows.
    pub fn faces(&self) -> impl Iterator<Item = &FaceInfo> {
        self.faces.values()
    }

    fn on_interest(
        &mut self,
        at: Moment,
        ingress: FaceId,
        sender: Sender,
        packet: &Packet,
        out: &mut ManagerOutbox,
    ) {
        let Ok(interest) = InterestView::decode(packet) else {
            self.stats.ignored += 1;
            return;
        };
        let Some(scope) = Scope::of(interest.name) else {
            self.stats.ignored += 1;
            return;
        };
        let components = (interest.name.component(2), interest.name.component(3));
        let (Some(module), Some(verb)) = components else {
            self.stats.ignored += 1;
            return;
        };
        let is_holdings = (module.value, verb.value) == HOLDINGS;
        let is_served = match scope {
            Scope::Localhost => sender != Sender::Remote,
            Scope::Localhop if is_holdings => {
                self.config.holdings_for_neighbours && self.neighbours.may_ask(at.now)
            }
            Scope::Localhop => self.config.localhop && module.value == b"rib",
        };
        if !is_served || !module.is_generic() || !verb.is_generic() {
            self.stats.ignored += 1;
            return;
        }
        let call = Call { at, ingress, scope, sender, interest: &interest };
        if let Some(command) = Command::from_module_and_verb(module.value, verb.value) {
            self.on_command(&call, command, out);
        } else if (module.value, verb.value) == (b"rib", b"announce") {
            self.on_announce(&call, out);
        } else if scope == Scope::Localhost || is_holdings {
            self.on_dataset(&call, module.value, verb.value, out);
        } else {
            self.stats.ignored += 1;
        }
    }

    fn on_face_event(
        &mut self,
        now: Instant,
        kind: FaceEventKind,
        info: FaceInfo,
        out: &mut ManagerOutbox,
    ) {
        let face = info.face_id;
        let notification = FaceEventNotification { kind, info };
        if kind == FaceEventKind::Destroyed {
            self.faces.remove(&face);
            let mut changes = Vec::new();
            self.rib.remove_face(face, &mut changes);
            self.apply(changes);
            self.fib.remove_face(face);
            self.fib.flush(&mut out.actions);
        } else {
            self.faces.insert(face, notification.info.clone());
        }
        match self.events.publish(now, &notification, self.config.signer.as_ref()) {
            Some(packet) => {
                out.data.push(OutData { face: FaceId::INTERNAL, packet, no_cache: true });
            }
            None => self.stats.signer_failures += 1,
        }
    }

    /// The notification that an Interest under faces/events asks for.
    pub(crate) fn on_events(&mut self, call: &Call<'_>, out: &mut ManagerOutbox) {
        if let Some(packet) = self.events.find(call.at.now, call.interest) {
            out.data.push(OutData { face: call.ingress, packet, no_cache: true });
        }
    }

    /// Removes what has expired. A client whose transaction the driver forgot has given up.
    fn expire(&mut self, now: Instant, out: &mut ManagerOutbox) {
        let mut changes = Vec::new();
        self.rib.expire(now, &mut changes);
        self.apply(changes);
        self.fib.flush(&mut out.actions);
        self.pending.retain(|_, pending| pending.deadline > now);
    }

    /// Lets the FIB follow the RIB. Faces that are gone take no next hops.
    pub(crate) fn apply(&mut self, changes: Vec<crate::rib::FibChange>) {
        for change in changes {
            match change.cost {
                Some(cost) if self.knows_face(change.face) => {
                    self.fib.add(&change.prefix, change.face, cost);
                }
                _ => self.fib.remove(&change.prefix, change.face),
            }
        }
    }

    pub(crate) fn knows_face(&self, face: FaceId) -> bool {
        face == FaceId::INTERNAL || self.faces.contains_key(&face)
    }

    /// Adds a route whose face is known to exist.
    pub(crate) fn register(&mut self, prefix: &Name, route: Route) -> Result<(), RibError> {
        if !self.fib.contains(prefix) && self.fib.len() >= self.config.fib_entries_max {
            return Err(RibError::Full);
        }
        let mut changes = Vec::new();
        self.rib.register(prefix, route, &mut changes)?;
        self.apply(changes);
        Ok(())
    }

    /// A route of the router's own making. There is no one to answer, and the bounds leave room for
    /// a configuration, so that one that is too large shows in the route's absence.
    pub(crate) fn register_trusted(
        &mut self,
        prefix: &Name,
        route: Route,
        out: &mut ManagerOutbox,
    ) {
        if self.knows_face(route.face) && self.register(prefix, route).is_ok() {
            self.fib.flush(&mut out.actions);
        } else {
            self.stats.overflows += 1;
        }
    }

    /// A strategy of the configuration.
    fn set_initial_strategy(&mut self, prefix: &Name, strategy: &Name, out: &mut ManagerOutbox) {
        if self.set_strategy(prefix, strategy.as_view(), out).is_err() {
            self.stats.overflows += 1;
        }
    }

    /// Chooses a strategy; the versioned name, or the refusal.
    pub(crate) fn set_strategy(
        &mut self,
        prefix: &Name,
        strategy: NameView<'_>,
        out: &mut ManagerOutbox,
    ) -> Result<Name, ControlResponse> {
        let resolved = self.strategies.resolve(strategy)?;
        let is_full = self.strategies.len() >= self.config.strategy_choices_max;
        if is_full && !self.strategies.contains(prefix) {
            return Err(ControlResponse::new(500, "Too many strategy choices"));
        }
        if self.strategies.set(prefix, &resolved) {
            let strategy = Some(resolved.clone());
            out.actions.push(Action::SetStrategy { prefix: prefix.clone(), strategy });
        }
        Ok(resolved)
    }

    /// Makes a transaction wait for the driver; refuses when too many do.
    pub(crate) fn wait(&mut self, at: Moment, request: Request, kind: PendingKind) -> Option<u64> {
        if self.pending.len() >= self.config.pending_max {
            self.stats.overflows += 1;
            return None;
        }
        let txn = self.next_txn;
        self.next_txn += 1;
        let deadline = at.now.plus_ns(PENDING_LIFETIME_NS);
        self.pending.insert(txn, Pending { request, kind, deadline });
        Some(txn)
    }

    fn take_pending(&mut self, txn: u64) -> Option<Pending> {
        let pending = self.pending.remove(&txn);
        if pending.is_none() {
            self.stats.late_answers += 1;
        }
        pending
    }

    /// Answers a command.
    pub(crate) fn respond(
        &mut self,
        request: &Request,
        response: &ControlResponse,
        out: &mut ManagerOutbox,
    ) {
        self.send(request, response, 0, out);
    }

    /// Refuses a dataset.
    pub(crate) fn refuse_dataset(
        &mut self,
        request: &Request,
        response: &ControlResponse,
        out: &mut ManagerOutbox,
    ) {
        self.send(request, response, content_type::NACK, out);
    }

    fn send(
        &mut self,
        request: &Request,
        response: &ControlResponse,
        content_type: u64,
        out: &mut ManagerOutbox,
    ) {
        let sign = |response: &ControlResponse| {
            let data = Data::new(request.name.clone())
                .content_type(content_type)
                .freshness_ms(FRESHNESS_MS)
                .content(response.encode());
            sign_data(&data, self.config.signer.as_ref())
        };
        let signed = match sign(response) {
            // A command's parameters are in the name already: the code alone has room beside them.
            Ok(wire) if wire.len() > PACKET_SIZE_MAX => {
                sign(&ControlResponse::new(response.code, "the answer has no room in a packet"))
            }
            signed => signed,
        };
        match signed {
            Ok(wire) => {
                let packet = Packet::from(wire);
                out.data.push(OutData { face: request.ingress, packet, no_cache: false });
            }
            Err(_) => self.stats.signer_failures += 1,
        }
    }

    /// Publishes a dataset and sends its first segment.
    pub(crate) fn publish(
        &mut self,
        request: &Request,
        content: &[u8],
        now_unix_ms: u64,
        out: &mut ManagerOutbox,
    ) {
        let signer = self.config.signer.as_ref();
        match self.datasets.publish(request.name.as_view(), content, now_unix_ms, signer) {
            Some(packet) => {
                out.data.push(OutData { face: request.ingress, packet, no_cache: true });
            }
            None => self.stats.signer_failures += 1,
        }
    }
}

impl core::fmt::Debug for Manager {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Manager")
            .field("faces", &self.faces.len())
            .field("routes", &self.rib.len())
            .field("fib_entries", &self.fib.len())
            .field("pending", &self.pending.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Both clocks at the time of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) now_unix_ms: u64,
}

/// A management Interest that is served.
pub(crate) struct Call<'a> {
    pub(crate) at: Moment,
    pub(crate) ingress: FaceId,
    pub(crate) scope: Scope,
    pub(crate) sender: Sender,
    pub(crate) interest: &'a InterestView<'a>,
}

impl Call<'_> {
    pub(crate) fn request(&self) -> Request {
        Request { ingress: self.ingress, name: self.interest.name.to_name() }
    }
}
