//! The manager: it handles management Interests, and returns Data and actions.

mod replies;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_hicn::control::{ControlMessage, ControlView};
use weir_wire::{DataView, InterestView, Name};

use crate::PREFIX_COMPONENTS_MAX;
use crate::announcement::{self, Announcement};
use crate::answers::{Dataset, encode_items, is_for_any_dataset, items, reloaded};
use crate::authorize::Authorizer;
use crate::commands::{Command, Scope};
use crate::config::ManagerConfig;
use crate::contents::{self, ContentsTask};
use crate::element::Element;
use crate::error::DecodeError;
use crate::faces::{self, FaceTable};
use crate::fib::Fib;
use crate::hicn::{self, HicnRequest};
use crate::io::{Action, HicnAnswer, LearningInput, ManagerInput, ManagerOutbox, Sender};
use crate::learning;
use crate::numbers::FaceEventKind;
use crate::parameters::{ControlParameters, ControlResponse};
use crate::publisher::Publisher;
use crate::rate_limit::RateLimit;
use crate::readvertise::Readvertiser;
use crate::request::{Clocks, ManagementRequest, ReplyTarget};
use crate::rib::{Rib, Route};
use crate::routing::{self, OWN_ROUTE, Routing};
use crate::status::{ChannelStatus, FaceEventNotification, FaceInfo, FaceQueryFilter};
use crate::store::{self, StoreModule};
use crate::strategy::StrategyTable;
use crate::transactions::{Outcome, Pending, Task, Transactions};

weir_base::counters! {
    /// What the manager has handled.
    #[derive(Copy)]
    pub struct ManagerStats {
        /// Management commands that were run, or were refused because of their parameters.
        commands: Total, "management_commands";
        /// Management commands that were refused because of their signature.
        unauthorized: Total, "management_unauthorized";
        /// Interests for status datasets.
        datasets: Total, "management_datasets";
        /// Management Interests dropped because they are malformed, or not for management.
        ignored: Total, "management_ignored";
        /// Commands, datasets, and configured routes and strategies that were refused because a
        /// table was full, or the face or strategy unknown.
        overflows: Total, "management_overflows";
        /// Management Data that the signer failed to sign.
        signer_failures: Total, "management_signer_failures";
        /// Answers to management transactions that had already ended.
        late_answers: Total, "management_late_answers";
        /// Prefix announcements of neighbours that made no route (strategy self-learning).
        announcements_refused: Total, "announcements_refused";
        /// Commands that the routing daemon (NLSR, ndn-dv) refused or did not answer.
        readvertise_failures: Total, "readvertise_failures";
    }
}

/// Module and name of the dataset of stored segments.
const HOLDINGS: (&[u8], &[u8]) = (b"cs", b"holdings");

/// Number of components before the ControlParameters: scope, `nfd`, module and verb.
const PARAMETERS_AT: usize = 4;

/// Maximum number of prefix announcements in one second that are verified.
const ANNOUNCEMENTS_MAX: u32 = 200;

/// Maximum number of requests of neighbours in one second. A neighbour that sends more slows only
/// other neighbours.
const NEIGHBOUR_REQUESTS_MAX: u32 = 200;

/// The management of one router (NDN-FACTS 3). Pass all inputs to [`Manager::handle`], and run the
/// actions that it returns.
///
/// The manager calls its components in order. They return answers, tasks and actions, and never
/// call the manager. The README has a table of them.
pub struct Manager {
    version: String,
    localhop: bool,
    holdings_for_neighbours: bool,
    /// FaceUris on which the router listens.
    channels: Vec<String>,
    authorizer: Authorizer,
    neighbours: RateLimit,
    announcements: RateLimit,
    faces: FaceTable,
    routing: Routing,
    /// `None` if the configuration forbids it.
    readvertiser: Option<Readvertiser>,
    strategies: StrategyTable,
    store: StoreModule,
    transactions: Transactions,
    publisher: Publisher,
    stats: ManagerStats,
}

impl Manager {
    /// Creates the manager. The FIB entry of management itself and the initial strategies are in
    /// the outbox.
    pub fn new(config: ManagerConfig, out: &mut ManagerOutbox) -> Self {
        let mut manager = Self {
            version: config.version,
            localhop: config.localhop,
            holdings_for_neighbours: config.holdings_for_neighbours,
            channels: Vec::new(),
            authorizer: Authorizer::new(
                config.operators,
                config.local_registration,
                config.announcement_anchors,
                config.anchors,
            ),
            neighbours: RateLimit::new(NEIGHBOUR_REQUESTS_MAX),
            announcements: RateLimit::new(ANNOUNCEMENTS_MAX),
            faces: FaceTable::default(),
            routing: Routing::new(config.routes_max, config.fib_entries_max),
            readvertiser: config.readvertise_nlsr.then(Readvertiser::default),
            strategies: StrategyTable::new(
                config.strategies,
                config.strategy_choices_max,
                config.default_strategies.clone(),
            ),
            store: StoreModule::new(config.store, config.store_bytes_max),
            transactions: Transactions::new(config.pending_max),
            publisher: Publisher::new(config.signer),
            stats: ManagerStats::default(),
        };
        for (prefix, strategy) in config.default_strategies {
            manager.set_initial_strategy(&prefix, &strategy, out);
        }
        // Management Interests reach the manager by the internal face.
        manager.register_trusted(&Scope::Localhost.prefix(), OWN_ROUTE, out);
        // So do Interests for any dataset.
        let mut localhost = Name::new();
        localhost.append_str("localhost");
        manager.register_trusted(&localhost, Route { flags: 0, ..OWN_ROUTE }, out);
        if manager.localhop {
            manager.register_trusted(&Scope::Localhop.prefix(), OWN_ROUTE, out);
        }
        if manager.holdings_for_neighbours {
            let mut prefix = Scope::Localhop.prefix();
            prefix.append_str("cs").append_str("holdings");
            manager.register_trusted(&prefix, OWN_ROUTE, out);
        }
        manager
    }

    /// Handles one input. `now` is monotonic and counts from the start of the router. `now_unix_ms`
    /// is the wall clock in milliseconds since the Unix epoch.
    pub fn handle(
        &mut self,
        now: Instant,
        now_unix_ms: u64,
        input: ManagerInput,
        out: &mut ManagerOutbox,
    ) {
        let at = Clocks { now, now_unix_ms };
        match input {
            ManagerInput::Interest { ingress, sender, packet } => {
                self.on_interest(at, ingress, sender, &packet, out);
            }
            ManagerInput::Data { packet } => self.on_data(now, &packet),
            ManagerInput::Nack { packet } => self.on_nack(now, &packet),
            ManagerInput::Learning(input) => self.on_learning_input(at, input, out),
            ManagerInput::HicnControl { ingress, message } => {
                self.on_hicn_control(now, ingress, &message, out);
            }
            ManagerInput::FaceEvent { kind, info } => self.on_face_event(now, kind, info, out),
            ManagerInput::FaceCreated { txn, result } => {
                if let Ok(info) = &result {
                    self.faces.insert(info.clone());
                }
                if let Some(pending) = self.end_transaction(txn) {
                    self.respond(&pending.target, &faces::created(result), out);
                }
            }
            ManagerInput::FaceUpdated { txn, result } => {
                if let Ok(info) = &result {
                    self.faces.replace(info);
                }
                if let Some(pending) = self.end_transaction(txn) {
                    self.respond(&pending.target, &faces::updated(result), out);
                }
            }
            ManagerInput::StoreErased { txn, erased, more } => {
                let pending = self.end_transaction(txn);
                if let Some(Pending { target, task, .. }) = pending
                    && let Task::EraseStore { prefix, is_limited, .. } = task
                {
                    let response = store::erased(prefix, is_limited, erased, more);
                    self.respond(&target, &response, out);
                }
            }
            ManagerInput::Snapshot { txn, snapshot } => {
                if let Some(pending) = self.end_transaction(txn) {
                    self.on_snapshot(at, pending, snapshot, out);
                }
            }
            ManagerInput::Holdings { txn, holdings, is_partial } => {
                if let Some(pending) = self.end_transaction(txn) {
                    self.on_holdings(at, pending, holdings, is_partial, out);
                }
            }
            ManagerInput::Controller { txn, status } => {
                if let Some(Pending { target, .. }) = self.end_transaction(txn) {
                    self.publish(&target, &encode_items(status.into_iter()), at, out);
                }
            }
            ManagerInput::Contents { txn, answer } => self.on_contents(at, txn, answer, out),
            ManagerInput::Reloaded { txn, result } => {
                if let Some(pending) = self.end_transaction(txn) {
                    self.respond(&pending.target, &reloaded(result), out);
                }
            }
            configured => self.on_configured(configured, out),
        }
        self.finish(at, out);
    }

    /// Applies what the configuration says, at the start or after a reload.
    fn on_configured(&mut self, input: ManagerInput, out: &mut ManagerOutbox) {
        match input {
            ManagerInput::Channels(channels) => self.channels = channels,
            ManagerInput::AddRoute { prefix, route } => self.register_trusted(&prefix, route, out),
            ManagerInput::SetStrategy { prefix, strategy } => {
                self.set_initial_strategy(&prefix, &strategy, out);
            }
            ManagerInput::RemoveRoute { prefix, face, origin } => {
                self.routing.remove_route(&self.faces, &prefix, face, origin);
                self.routing.flush(&mut out.actions);
            }
            ManagerInput::UnsetStrategy { prefix, strategy } => {
                out.actions.extend(self.strategies.restore(&prefix, strategy.as_view()));
            }
            ManagerInput::ConfigureStore(settings) => out.actions.extend(self.store.set(settings)),
            _ => {}
        }
    }

    /// After every input: removes expired routes, then passes all changes of the FIB on together.
    fn finish(&mut self, at: Clocks, out: &mut ManagerOutbox) {
        self.routing.expire(&self.faces, at.now);
        self.routing.flush(&mut out.actions);
        self.transactions.expire(at.now);
        self.readvertise(at, out);
    }

    /// Replaces who may send commands and announce prefixes. `config` has the new settings; those
    /// of other components are ignored.
    pub fn set_authorization(&mut self, config: ManagerConfig) {
        self.authorizer.replace(config);
    }

    /// The latest time to call [`Manager::handle`], with [`ManagerInput::Wakeup`] if there is no
    /// other input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let wakeups = [
            self.routing.rib.next_wakeup(),
            self.transactions.next_wakeup(),
            self.readvertiser.as_ref().and_then(Readvertiser::next_wakeup),
        ];
        wakeups.into_iter().flatten().min()
    }

    pub fn stats(&self) -> ManagerStats {
        let readvertise_failures = self.readvertiser.as_ref().map_or(0, Readvertiser::failures);
        ManagerStats { readvertise_failures, ..self.stats }
    }

    pub fn rib(&self) -> &Rib {
        &self.routing.rib
    }

    /// The FIB of the router.
    pub fn fib(&self) -> &Fib {
        &self.routing.fib
    }

    /// The known faces.
    pub fn faces(&self) -> impl Iterator<Item = &FaceInfo> {
        self.faces.iter()
    }

    fn on_interest(
        &mut self,
        at: Clocks,
        ingress: FaceId,
        sender: Sender,
        packet: &Packet,
        out: &mut ManagerOutbox,
    ) {
        let Ok(interest) = InterestView::decode(packet) else {
            self.stats.ignored += 1;
            return;
        };
        if is_for_any_dataset(&interest) && sender != Sender::Remote {
            return self.publish_any_dataset(at, ingress, out);
        }
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
        // Neighbours may only register routes and query stored segments, and only where
        // configured.
        let is_served = match scope {
            Scope::Localhost => sender != Sender::Remote,
            Scope::Localhop if is_holdings => {
                self.holdings_for_neighbours && self.neighbours.try_acquire(at.now)
            }
            Scope::Localhop => self.localhop && module.value == b"rib",
        };
        if !is_served || !module.is_generic() || !verb.is_generic() {
            self.stats.ignored += 1;
            return;
        }
        let request = ManagementRequest { at, ingress, scope, sender, interest: &interest };
        if let Some(command) = Command::from_module_and_verb(module.value, verb.value) {
            self.on_command(&request, command, out);
        } else if (module.value, verb.value) == (b"rib", b"announce") {
            self.on_announce(&request, out);
        } else if scope == Scope::Localhost || is_holdings {
            self.on_dataset(&request, module.value, verb.value, out);
        } else {
            self.stats.ignored += 1;
        }
    }

    /// Answers an Interest that any dataset satisfies. ndn-cxx's integration tests (a362e65) expect
    /// Data for `/localhost`, which NFD's store has from the answers to NFD's own commands.
    fn publish_any_dataset(&mut self, at: Clocks, ingress: FaceId, out: &mut ManagerOutbox) {
        let mut name = Scope::Localhost.prefix();
        name.append_str("faces").append_str("channels");
        let content = self.channel_items();
        self.stats.datasets += 1;
        self.publish(&ReplyTarget { ingress, name }, &content, at, out);
    }

    /// Handles Data for an Interest of the manager itself.
    fn on_data(&mut self, now: Instant, packet: &Packet) {
        let data = DataView::decode(packet).ok();
        let readvertiser = self.readvertiser.as_mut();
        let is_answer = data
            .zip(readvertiser)
            .is_some_and(|(data, readvertiser)| readvertiser.on_data(now, &data));
        self.stats.ignored += u64::from(!is_answer);
    }

    /// Handles a Nack for an Interest of the manager itself.
    fn on_nack(&mut self, now: Instant, packet: &Packet) {
        let interest = InterestView::decode(packet).ok();
        let readvertiser = self.readvertiser.as_mut();
        let is_answer = interest
            .zip(readvertiser)
            .is_some_and(|(interest, readvertiser)| readvertiser.on_nack(now, interest.name));
        self.stats.ignored += u64::from(!is_answer);
    }

    /// Reports changed routes to the routing daemon.
    fn readvertise(&mut self, at: Clocks, out: &mut ManagerOutbox) {
        let changed = self.routing.rib.take_changed();
        if let Some(readvertiser) = &mut self.readvertiser {
            if !changed.is_empty() {
                let rib = &self.routing.rib;
                readvertiser.on_routes_changed(at.now, &changed, rib, &self.faces);
            }
            readvertiser.run(at, self.publisher.signer(), &mut out.interests);
        }
    }

    /// Handles a command: decodes, authorizes, validates and runs it. NFD does not answer a command
    /// that it cannot decode. This manager does, so that the client need not wait for its timeout.
    fn on_command(
        &mut self,
        request: &ManagementRequest<'_>,
        command: Command,
        out: &mut ManagerOutbox,
    ) {
        let parameters = match request.interest.name.component(PARAMETERS_AT) {
            Some(component) => ControlParameters::decode(component.value),
            None => Err(DecodeError::Missing { element: "ControlParameters" }),
        };
        // A malformed command changes nothing.
        let affects_sender_only = parameters.as_ref().map_or(true, |parameters| {
            self.authorizer.affects_sender_only(request, command, parameters)
        });
        if !self.authorize(request, affects_sender_only, out) {
            return;
        }
        self.stats.commands += 1;
        let outcome = match parameters {
            Err(error) => Outcome::refuse(400, &format!("malformed command: {error}")),
            Ok(parameters) if !command.accepts(&parameters) => {
                Outcome::refuse(400, "failed in validating parameters")
            }
            Ok(mut parameters) => {
                command.apply_defaults(&mut parameters);
                if self.changes_own_route(command, &parameters) {
                    Outcome::refuse(406, "The router's own routes cannot be changed")
                } else {
                    self.carry_out(request, command, parameters, out)
                }
            }
        };
        match outcome {
            Outcome::Reply(response) => self.respond(&request.reply_target(), &response, out),
            Outcome::Task(task) => {
                if !self.begin_transaction(request, task, out) {
                    let response = ControlResponse::new(500, "Too many commands in progress");
                    self.respond(&request.reply_target(), &response, out);
                }
            }
        }
    }

    fn carry_out(
        &mut self,
        request: &ManagementRequest<'_>,
        command: Command,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) -> Outcome {
        match command {
            Command::FacesCreate => self.faces.create(&parameters),
            Command::FacesUpdate => self.faces.update(request.ingress, &parameters),
            Command::FacesDestroy => match self.faces.destroy(&parameters) {
                Ok(action) => {
                    out.actions.extend(action);
                    Outcome::ok(parameters)
                }
                Err(refusal) => Outcome::Reply(refusal),
            },
            Command::FibAddNextHop => {
                request.resolve_face(&mut parameters);
                let response = self.routing.add_next_hop(&self.faces, parameters);
                self.routing.flush(&mut out.actions);
                Outcome::Reply(response)
            }
            Command::FibRemoveNextHop => {
                request.resolve_face(&mut parameters);
                self.routing.remove_next_hop(&parameters);
                self.routing.flush(&mut out.actions);
                Outcome::ok(parameters)
            }
            Command::CsConfig => {
                let (body, action) = self.store.configure(&parameters);
                out.actions.extend(action);
                Outcome::ok(body)
            }
            Command::CsErase => Outcome::Task(store::erase(&parameters)),
            Command::CsEvictFirst => {
                let prefix = contents::prefix(parameters);
                Outcome::Task(Task::Contents(ContentsTask::EvictFirst { prefix }))
            }
            Command::CsPin => Outcome::Task(Task::Contents(contents::pin(parameters))),
            Command::CsUnpin => {
                let prefix = contents::prefix(parameters);
                Outcome::Task(Task::Contents(ContentsTask::Unpin { prefix }))
            }
            Command::StrategyChoiceSet => self.choose_strategy(parameters, out),
            Command::StrategyChoiceUnset => {
                let prefix = parameters.name.as_ref();
                out.actions.extend(prefix.and_then(|prefix| self.strategies.unset(prefix)));
                Outcome::ok(parameters)
            }
            Command::RouterReload => Outcome::Task(Task::Reload),
            Command::RibRegister => self.register_route(request, parameters, out),
            Command::RibUnregister => {
                request.resolve_face(&mut parameters);
                self.routing.unregister(&self.faces, &parameters);
                self.routing.flush(&mut out.actions);
                Outcome::ok(parameters)
            }
        }
    }

    /// Whether a command would change a route by which commands reach the manager. No later command
    /// could restore it.
    fn changes_own_route(&self, command: Command, parameters: &ControlParameters) -> bool {
        let Some(prefix) = &parameters.name else { return false };
        let is_own = parameters.face_id == Some(FaceId::INTERNAL)
            && Scope::of(prefix.as_view()).is_some()
            && self.routing.rib.routes(prefix).any(|route| *route == OWN_ROUTE);
        match command {
            Command::FibRemoveNextHop => is_own,
            Command::RibRegister | Command::RibUnregister => {
                is_own && parameters.origin == Some(OWN_ROUTE.origin)
            }
            _ => false,
        }
    }

    fn choose_strategy(
        &mut self,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) -> Outcome {
        let prefix = parameters.name.clone().unwrap_or_default();
        let strategy = parameters.strategy.take().unwrap_or_default();
        if routing::is_too_long(&prefix) {
            let text = format!("Prefix has too many components (limit is {PREFIX_COMPONENTS_MAX})");
            return Outcome::refuse(414, &text);
        }
        match self.strategies.choose(&prefix, strategy.as_view()) {
            Ok((instance, action)) => {
                out.actions.extend(action);
                parameters.strategy = Some(instance);
                Outcome::ok(parameters)
            }
            Err(refusal) => Outcome::Reply(refusal),
        }
    }

    fn register_route(
        &mut self,
        request: &ManagementRequest<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) -> Outcome {
        let prefix = parameters.name.clone().unwrap_or_default();
        if routing::is_too_long(&prefix) {
            return Outcome::Reply(routing::too_long("Route"));
        }
        let face = request.resolve_face(&mut parameters);
        let route = routing::registered_route(request.at.now, face, &parameters);
        Outcome::Reply(self.add_route(request, &prefix, route, parameters, out))
    }

    /// Handles a control message of hicn-light. An answer that is lost is requested again.
    fn on_hicn_control(
        &mut self,
        now: Instant,
        face: FaceId,
        message: &[u8],
        out: &mut ManagerOutbox,
    ) {
        let view = ControlView::decode(message).ok().filter(|_| self.faces.contains(face));
        let request = view.as_ref().and_then(|view| HicnRequest::of(view, face));
        let (Some(view), Some(request)) = (view, request) else {
            self.stats.ignored += 1;
            return;
        };
        let is_closing = matches!(request, HicnRequest::Close);
        let message = match request {
            HicnRequest::ListRoutes => {
                self.stats.datasets += 1;
                hicn::list_routes(&view, &self.routing.rib)
            }
            request => {
                let is_ok = self.run_hicn_request(now, face, request);
                ControlMessage::answer(&view, is_ok).encode()
            }
        };
        self.routing.flush(&mut out.actions);
        let has_routes = self.routing.rib.has_route_to(face);
        out.hicn_answers.push(HicnAnswer { face, message, has_routes, is_closing });
    }

    /// Runs a request of a program of this host, which changes only its own face. Returns whether
    /// it may do this.
    fn run_hicn_request(&mut self, now: Instant, face: FaceId, request: HicnRequest) -> bool {
        let is_ok = match request {
            HicnRequest::Register(prefix) if self.authorizer.may_register(prefix.as_view()) => {
                // As in hicn-light, only the routes of the longest prefix are used.
                let parameters = ControlParameters { flags: Some(0), ..Default::default() };
                let route = routing::registered_route(now, face, &parameters);
                let is_added = self.routing.register(&self.faces, &prefix, route).is_ok();
                self.stats.overflows += u64::from(!is_added);
                is_added
            }
            HicnRequest::Unregister(prefix) if self.authorizer.may_register(prefix.as_view()) => {
                let parameters = ControlParameters {
                    name: Some(prefix),
                    face_id: Some(face),
                    ..Default::default()
                };
                self.routing.unregister(&self.faces, &parameters);
                true
            }
            HicnRequest::Register(_) | HicnRequest::Unregister(_) | HicnRequest::Refuse => {
                self.stats.unauthorized += 1;
                return false;
            }
            // The routes of a closed face are removed as for any face.
            HicnRequest::Close | HicnRequest::Accept | HicnRequest::ListRoutes => true,
        };
        self.stats.commands += 1;
        is_ok
    }

    fn on_learning_input(&mut self, at: Clocks, input: LearningInput, out: &mut ManagerOutbox) {
        match input {
            LearningInput::Announced { face, announcement } => {
                self.on_announced(at, face, &announcement);
            }
            LearningInput::RouteRefused { face, name } => {
                learning::unlearn(&self.faces, &mut self.routing, face, &name);
            }
            LearningInput::AnnouncementNeeded { prefix } => {
                let (rib, signer) = (&self.routing.rib, self.publisher.signer());
                let announcement = learning::find_announcement(at, rib, &prefix, signer);
                out.actions.push(Action::SetAnnouncement { prefix, announcement });
            }
        }
    }

    /// A neighbour's announcement of a prefix, which came with Data.
    fn on_announced(&mut self, at: Clocks, face: FaceId, announcement: &Packet) {
        let is_learned = self.announcements.try_acquire(at.now)
            && learning::learn(
                at,
                face,
                announcement,
                &self.authorizer,
                (&self.faces, &mut self.routing),
            )
            .is_ok();
        self.stats.announcements_refused += u64::from(!is_learned);
    }

    /// rib/announce: the Interest contains a prefix announcement, and the route leads to its
    /// sender.
    fn on_announce(&mut self, request: &ManagementRequest<'_>, out: &mut ManagerOutbox) {
        let Some(parameters) = request.interest.application_parameters() else {
            self.stats.ignored += 1;
            return;
        };
        let data = announcement::find(parameters);
        let parsed = data.as_ref().and_then(|data| Announcement::of(data, request.at.now_unix_ms));
        let (Some(data), Some(announcement)) = (data, parsed) else {
            let response = ControlResponse::new(400, "Malformed prefix announcement");
            return self.respond(&request.reply_target(), &response, out);
        };
        let prefix = &announcement.prefix;
        // If the sender may register this prefix for itself, the Interest needs no signature.
        if !self.authorize(request, self.authorizer.may_register(prefix.as_view()), out) {
            return;
        }
        self.stats.commands += 1;
        let response = if routing::is_too_long(prefix) {
            routing::too_long("Route")
        } else if self.authorizer.accepts_announcement(&data, request.at.now_unix_ms) {
            let (route, body) =
                routing::announced_route(request.at.now, request.ingress, &announcement);
            let response = self.add_route(request, prefix, route, body, out);
            if self.routing.rib.routes(prefix).any(|known| *known == route) {
                let announcement = Packet::from(data.wire);
                self.routing.rib.set_announcement(prefix, route.face, announcement);
            }
            response
        } else {
            self.stats.unauthorized += 1;
            ControlResponse::new(403, "Prefix announcement rejected")
        };
        self.respond(&request.reply_target(), &response, out);
    }

    /// Adds a route and returns the answer, with `body` if it succeeds. A route to an unknown face
    /// is omitted without an error, as in NFD, which detects it only later.
    fn add_route(
        &mut self,
        request: &ManagementRequest<'_>,
        prefix: &Name,
        route: Route,
        body: ControlParameters,
        out: &mut ManagerOutbox,
    ) -> ControlResponse {
        // A program that registers a shorter prefix must not receive the Interests of neighbours
        // for the router.
        let localhop = Scope::Localhop.prefix();
        if request.sender == Sender::Application
            && prefix.as_view().is_prefix_of(localhop.as_view())
        {
            self.register_trusted(&localhop, OWN_ROUTE, out);
        }
        if self.faces.contains(route.face)
            && self.routing.register(&self.faces, prefix, route).is_err()
        {
            self.stats.overflows += 1;
            return ControlResponse::new(500, "The RIB is full");
        }
        self.routing.flush(&mut out.actions);
        ControlResponse::ok(body)
    }

    /// Adds a route of the router itself. No one waits for an answer, so a failure is only counted.
    /// The limits leave room for the routes of a usual configuration.
    fn register_trusted(&mut self, prefix: &Name, route: Route, out: &mut ManagerOutbox) {
        if self.faces.contains(route.face)
            && self.routing.register(&self.faces, prefix, route).is_ok()
        {
            self.routing.flush(&mut out.actions);
        } else {
            self.stats.overflows += 1;
        }
    }

    fn set_initial_strategy(&mut self, prefix: &Name, strategy: &Name, out: &mut ManagerOutbox) {
        match self.strategies.choose(prefix, strategy.as_view()) {
            Ok((_, action)) => out.actions.extend(action),
            Err(_) => self.stats.overflows += 1,
        }
    }

    fn on_face_event(
        &mut self,
        now: Instant,
        kind: FaceEventKind,
        info: FaceInfo,
        out: &mut ManagerOutbox,
    ) {
        if kind == FaceEventKind::Destroyed {
            self.faces.remove(info.face_id);
            self.routing.remove_face(&self.faces, info.face_id);
            self.routing.flush(&mut out.actions);
        } else {
            self.faces.insert(info.clone());
            if kind == FaceEventKind::Down {
                self.routing.withdraw_all(&self.faces, info.face_id);
                self.routing.flush(&mut out.actions);
            }
        }
        let notification = self.publisher.notify(now, &FaceEventNotification { kind, info });
        self.send(notification, out);
    }

    /// Handles an Interest for a dataset, or for a segment of a recent one.
    fn on_dataset(
        &mut self,
        request: &ManagementRequest<'_>,
        module: &[u8],
        dataset: &[u8],
        out: &mut ManagerOutbox,
    ) {
        if (module, dataset) == (b"faces", b"events") {
            out.data.extend(self.publisher.find_event(
                request.at.now,
                request.ingress,
                request.interest,
            ));
            return;
        }
        let last = request.interest.name.last();
        // A name with a version or segment refers to a dataset that was published earlier.
        if last.is_some_and(|last| last.as_segment().is_some() || last.as_version().is_some()) {
            // An old version is not answered, as in NFD. The client then requests a new one.
            match self.publisher.find_segment(request.ingress, request.interest) {
                Some(data) => out.data.push(data),
                None => self.stats.ignored += 1,
            }
            return;
        }
        let Some(dataset) = self.dataset(request, module, dataset) else {
            self.stats.ignored += 1;
            return;
        };
        self.stats.datasets += 1;
        let refusal = match dataset {
            Dataset::Content(content) => {
                return self.publish(&request.reply_target(), &content, request.at, out);
            }
            Dataset::Task(task) => {
                if self.begin_transaction(request, task, out) {
                    return;
                }
                ControlResponse::new(500, "Too many requests in progress")
            }
            Dataset::Malformed(what) => ControlResponse::new(400, what),
        };
        let refusal = self.publisher.refuse(&request.reply_target(), &refusal);
        self.send(refusal, out);
    }

    /// The dataset with this name, if there is one.
    fn dataset(
        &self,
        request: &ManagementRequest<'_>,
        module: &[u8],
        dataset: &[u8],
    ) -> Option<Dataset> {
        Some(match (module, dataset) {
            (b"faces", b"list") => Dataset::Task(Task::Faces(FaceQueryFilter::default())),
            (b"faces", b"query") => {
                let last = request.interest.name.last();
                match last.map(|last| FaceQueryFilter::decode(last.value)) {
                    Some(Ok(filter)) => Dataset::Task(Task::Faces(filter)),
                    _ => Dataset::Malformed("Malformed filter"),
                }
            }
            (b"faces", b"channels") => Dataset::Content(self.channel_items()),
            (b"cs", b"info") => Dataset::Task(Task::Store),
            HOLDINGS => match store::holdings_object(request.interest) {
                Some(object) => Dataset::Task(Task::Holdings { object }),
                None => Dataset::Malformed("Malformed object name"),
            },
            (b"cs", b"list") => match contents::object_query(request.interest) {
                Some(query) => Dataset::Task(Task::Contents(ContentsTask::List(query))),
                None => Dataset::Malformed("Malformed query"),
            },
            (b"status", b"general") => Dataset::Task(Task::General),
            (b"status", b"controller") => Dataset::Task(Task::Controller),
            (b"fib", b"list") => items(self.routing.fib.items()),
            (b"rib", b"list") => items(self.routing.rib_items(request.at.now)),
            (b"strategy-choice", b"list") => items(self.strategies.items()),
            _ => return None,
        })
    }

    /// The content of faces/channels.
    fn channel_items(&self) -> Vec<u8> {
        encode_items(self.channels.iter().map(|uri| ChannelStatus { local_uri: uri.clone() }))
    }
}

impl core::fmt::Debug for Manager {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Manager")
            .field("faces", &self.faces.len())
            .field("routes", &self.routing.rib.len())
            .field("fib_entries", &self.routing.fib.len())
            .field("pending", &self.transactions.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
