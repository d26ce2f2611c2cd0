//! Sets up a configuration in the router, by its management protocol.
//!
//! How a configuration is applied:
//!
//! 1. Store rules. If the store refuses them, it keeps its old rules. The agent then ignores the
//!    prefetch orders of this configuration, because the store would not keep the segments.
//! 2. Faces. The agent lists the faces of the router, and forgets routes over faces that have
//!    disappeared. Each peer gets a face: an existing one with one of its addresses, or a new
//!    permanent one.
//! 3. Strategies of others. If someone else has set a strategy at the exact name of an object, it
//!    stays, and the object is forwarded without its plan.
//! 4. The target: all routes and strategies that the configuration needs, up to `routes_max`
//!    routes. See `setup.rs`.
//! 5. The steps from the present setup to the target: add routes, set strategies, unset strategies,
//!    remove routes, in this order. So no name is without a route in between.
//! 6. Unused faces. The agent destroys a face that it has made, unless its own routes or the routes
//!    or strategies of others need this face.
//! 7. The result. The agent notes each failed step and continues with the others. If nothing
//!    failed, the generation counts as set up. Otherwise the report lists the problems, and the
//!    agent tries everything again with growing waits. It also reports settings of others that it
//!    kept, but they are no failure.
//!
//! Example: generation 20 has a route for `/data` over router `one`, and generation 21 over `two`.
//! The agent finds or creates the face to `two`, say 258. It registers `/data` over 258, and then
//! unregisters it over 257, the face to `one`. If the agent made face 257 and nothing else uses
//! it, the agent destroys it. Then it reports generation 21.
//!
//! The agent must never change routes of other origins, strategies of others, or faces that it has
//! not made. It must never report a generation before all old routes are gone: the controller
//! relies on that to avoid loops (docs/decisions/0026).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use weir_base::FaceId;
use weir_client::{Client, CommandError};
use weir_control::message::{Configuration, Peer, SetupPart, SetupProblem};
use weir_manage::commands::Command;
use weir_manage::{
    ControlParameters, FacePersistency, FaceStatus, FibEntry, RibEntry, StrategyChoice,
    route_origin,
};
use weir_runtime::ContentsError;
use weir_wire::Name;

use crate::setup::{Setup, SetupStep};
use crate::shared::AgentShared;

/// How long the store may take to adopt rules.
const RULES_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of problems in a report, and maximum length of each in characters.
const PROBLEMS_MAX: usize = 32;
const TEXT_MAX: usize = 300;
/// The code that management answers if the face exists already.
const EXISTS: u64 = 409;

/// What the agent has set up, and the connection to change it.
pub(crate) struct Applier {
    shared: Arc<AgentShared>,
    client: Option<Client>,
    setup: Setup,
    /// Faces that the agent has created.
    own_faces: BTreeSet<FaceId>,
    /// Problems that have been logged.
    logged: BTreeSet<(SetupPart, String)>,
    /// The last generation that was set up completely.
    complete_generation: u64,
    routes_max: usize,
}

/// The result of an attempt to set up a configuration.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What failed and must be tried again.
    failed: BTreeSet<(SetupPart, String)>,
    /// What was left as someone else has set it.
    foreign: BTreeSet<(SetupPart, String)>,
}

impl Outcome {
    fn failed(&mut self, part: SetupPart, text: String) {
        self.failed.insert((part, text));
    }

    /// Whether nothing failed.
    pub(crate) fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    pub(crate) fn has_failed(&self, part: SetupPart) -> bool {
        self.failed.iter().any(|(failed, _)| *failed == part)
    }

    /// The problems for the report.
    pub(crate) fn problems(&self, generation: u64) -> Vec<SetupProblem> {
        let all = self.failed.iter().chain(&self.foreign);
        let problem = |(part, text): &(SetupPart, String)| SetupProblem {
            generation,
            part: *part,
            text: text.chars().take(TEXT_MAX).collect(),
        };
        all.take(PROBLEMS_MAX).map(problem).collect()
    }
}

impl Applier {
    pub(crate) fn new(shared: Arc<AgentShared>, routes_max: usize) -> Self {
        Self {
            shared,
            client: None,
            setup: Setup::default(),
            own_faces: BTreeSet::new(),
            logged: BTreeSet::new(),
            complete_generation: 0,
            routes_max,
        }
    }

    /// Sets up a configuration and removes what it does not contain any more.
    pub(crate) fn apply(&mut self, configuration: &Configuration) -> Outcome {
        let mut outcome = Outcome::default();
        self.apply_rules(configuration, &mut outcome);
        if let Err(error) = self.apply_tables(configuration, &mut outcome) {
            // The connection may be broken, so the next attempt opens a new one.
            self.client = None;
            outcome.failed(SetupPart::Management, error.to_string());
        }
        self.log_changes(configuration, &outcome);
        outcome
    }

    /// Logs problems that have not been logged yet.
    fn log_changes(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let generation = configuration.generation;
        for (part, text) in outcome.failed.difference(&self.logged) {
            tracing::warn!(generation, ?part, "{text}; the agent tries it again");
        }
        for (part, text) in outcome.foreign.difference(&self.logged) {
            tracing::warn!(generation, ?part, "{text}");
        }
        if outcome.is_complete() && self.complete_generation != generation {
            self.complete_generation = generation;
            tracing::info!(
                generation,
                routes = configuration.routes.len(),
                distributions = configuration.distributions.len(),
                rules = configuration.rules.len(),
                "the configuration is set up"
            );
        }
        self.logged = outcome.failed.union(&outcome.foreign).cloned().collect();
    }

    fn apply_rules(&mut self, configuration: &Configuration, outcome: &mut Outcome) {
        let rules = configuration.store_rules();
        match self.shared.contents.set_rules(rules, RULES_TIMEOUT) {
            // Late rules still take effect.
            Ok(()) | Err(ContentsError::TimedOut) => {}
            Err(error) => {
                let text =
                    format!("the store refuses the new rules and keeps the old ones: {error}");
                outcome.failed(SetupPart::Rules, text);
            }
        }
    }

    fn apply_tables(
        &mut self,
        configuration: &Configuration,
        outcome: &mut Outcome,
    ) -> Result<(), CommandError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.shared.connect().map_err(|error| CommandError::Express(error.into()))?,
        };
        // The router removes the routes of a face with the face.
        let existing: Vec<FaceStatus> = client.dataset("faces/list")?;
        let is_there = |face: FaceId| existing.iter().any(|status| status.info.face_id == face);
        self.setup.forget_faces(is_there);
        self.own_faces.retain(|face| is_there(*face));
        // Existing faces are reused, including those of others.
        let mut by_uri: BTreeMap<String, FaceId> =
            existing.iter().map(|status| (status.info.uri.clone(), status.info.face_id)).collect();
        let mut faces: BTreeMap<&str, FaceId> = BTreeMap::new();
        for peer in &configuration.peers {
            match self.find_or_create_face(&mut client, peer, &mut by_uri)? {
                Ok(face) => drop(faces.insert(&peer.router, face)),
                Err(text) => outcome.failed(SetupPart::Faces, text),
            }
        }
        let foreign = self.foreign_strategies(&mut client, configuration)?;
        let texts = foreign.iter().map(|object| {
            let text = format!(
                "{object} keeps its strategy, which someone else has set; unset it to use the plan"
            );
            (SetupPart::Strategies, text)
        });
        outcome.foreign.extend(texts);
        let routes: Vec<RibEntry> = client.dataset("rib/list")?;
        let face_of = |router: &str| faces.get(router).copied();
        let others = |object: &Name| foreign_faces(&routes, object);
        let keeps = |object: &Name| foreign.contains(object);
        let (wanted, left_out) =
            Setup::from_configuration(configuration, self.routes_max, face_of, others, keeps);
        self.shared.set_routes_left_out(left_out);
        if left_out > 0 {
            let text = format!(
                "{left_out} routes are not set up: they exceed [controller] routes_max = {}",
                self.routes_max
            );
            outcome.foreign.insert((SetupPart::Routes, text));
        }
        for step in self.setup.steps_to(&wanted) {
            match run_step(&mut client, &step) {
                Ok(()) => self.setup.record_step(step),
                Err(CommandError::Refused(response)) => {
                    let (code, text) = (response.code, response.text);
                    let text = format!("the router's management refuses {step:?}: {code} {text}");
                    outcome.failed(step.part(), text);
                }
                // The command is too long for a packet. That concerns this step alone, so the
                // others continue.
                Err(error @ CommandError::TooLong(_)) => {
                    outcome.failed(step.part(), format!("a command cannot be sent: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        // Faces of present peers are in use. The call also spares faces whose routes could not be
        // removed.
        let used: BTreeSet<FaceId> = faces.into_values().collect();
        self.destroy_unused_faces(&mut client, &used)?;
        self.client = Some(client);
        Ok(())
    }

    /// Objects with a strategy at their exact name that someone else has set.
    fn foreign_strategies(
        &mut self,
        client: &mut Client,
        configuration: &Configuration,
    ) -> Result<BTreeSet<Name>, CommandError> {
        let chosen: Vec<StrategyChoice> = client.dataset("strategy-choice/list")?;
        let chosen: BTreeMap<Name, Name> =
            chosen.into_iter().map(|choice| (choice.name, choice.strategy)).collect();
        self.setup.forget_strategies(|prefix, strategy| chosen.get(prefix) == Some(strategy));
        let objects = configuration.distributions.iter().map(|one| &one.object);
        let is_kept = |object: &&Name| {
            let strategy = chosen.get(*object);
            strategy.is_some_and(|strategy| !self.setup.has_strategy(object, strategy))
        };
        Ok(objects.filter(is_kept).cloned().collect())
    }

    /// Destroys the agent's faces that neither the configuration nor anyone else needs.
    fn destroy_unused_faces(
        &mut self,
        client: &mut Client,
        used: &BTreeSet<FaceId>,
    ) -> Result<(), CommandError> {
        let unused = |face: &FaceId| !used.contains(face) && !self.setup.has_route_over(*face);
        let unused: Vec<FaceId> = self.own_faces.iter().copied().filter(unused).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let faces: Vec<FaceStatus> = client.dataset("faces/list")?;
        // The agent's own routes over them have been removed by now.
        let fib: Vec<FibEntry> = client.dataset("fib/list")?;
        let strategies: Vec<StrategyChoice> = client.dataset("strategy-choice/list")?;
        for face in unused {
            let is_as_made = |status: &FaceStatus| {
                let info = &status.info;
                info.face_id == face && info.persistency == FacePersistency::Permanent
            };
            if !faces.iter().any(is_as_made) {
                // Someone has changed the face and may rely on it, or it is gone.
                self.own_faces.remove(&face);
                continue;
            }
            let mut next_hops = fib.iter().flat_map(|entry| &entry.next_hops);
            let is_used = next_hops.any(|hop| hop.face_id == face)
                || strategies.iter().any(|choice| names_face(&choice.strategy, face));
            if !is_used {
                let parameters = ControlParameters { face_id: Some(face), ..Default::default() };
                client.command(Command::FacesDestroy, &parameters)?;
                self.own_faces.remove(&face);
            }
        }
        Ok(())
    }

    /// The face to another router: an existing one, or a new one.
    fn find_or_create_face(
        &mut self,
        client: &mut Client,
        peer: &Peer,
        by_uri: &mut BTreeMap<String, FaceId>,
    ) -> Result<Result<FaceId, String>, CommandError> {
        if let Some(face) = peer.uris.iter().find_map(|uri| by_uri.get(uri)) {
            return Ok(Ok(*face));
        }
        let mut why = "it reports no address".to_owned();
        for uri in &peer.uris {
            let parameters = ControlParameters {
                uri: Some(uri.clone()),
                face_persistency: Some(FacePersistency::Permanent),
                ..Default::default()
            };
            let response = match client.request_command(Command::FacesCreate, &parameters) {
                Err(error @ CommandError::TooLong(_)) => {
                    why = error.to_string();
                    continue;
                }
                response => response?,
            };
            let face = response.body.as_ref().and_then(|body| body.face_id);
            match (response.code, face) {
                (200, Some(face)) => {
                    self.own_faces.insert(face);
                    by_uri.insert(uri.clone(), face);
                    return Ok(Ok(face));
                }
                (EXISTS, Some(face)) => return Ok(Ok(face)),
                (code, _) => why = format!("{uri}: {code} {}", response.text),
            }
        }
        Ok(Err(format!("no face to router {}: {why}", peer.router)))
    }
}

/// The faces of all routes to an object that others have set.
fn foreign_faces(routes: &[RibEntry], object: &Name) -> Vec<FaceId> {
    let above = routes.iter().filter(|entry| entry.name.as_view().is_prefix_of(object.as_view()));
    let routes = above.flat_map(|entry| &entry.routes);
    routes
        .filter(|route| route.origin != route_origin::CONTROLLER)
        .map(|route| route.face_id)
        .collect()
}

/// Whether a parameter of a strategy mentions a face, as in `part~258:0-99` and `weight~258:2`.
fn names_face(strategy: &Name, face: FaceId) -> bool {
    let mut parameters = strategy.as_view().components().filter_map(|component| {
        let text = std::str::from_utf8(component.value).ok()?;
        let (_, value) = text.split_once('~')?;
        value.split(':').next()?.parse().ok()
    });
    parameters.any(|named: u64| named == face.0)
}

fn run_step(client: &mut Client, step: &SetupStep) -> Result<(), CommandError> {
    let origin = Some(route_origin::CONTROLLER);
    let (command, parameters) = match step.clone() {
        SetupStep::AddRoute { prefix, face, cost, flags } => {
            let parameters = ControlParameters {
                name: Some(prefix),
                face_id: Some(face),
                origin,
                cost: Some(cost),
                flags: Some(flags),
                ..Default::default()
            };
            (Command::RibRegister, parameters)
        }
        SetupStep::RemoveRoute { prefix, face } => {
            let (name, face_id) = (Some(prefix), Some(face));
            let parameters = ControlParameters { name, face_id, origin, ..Default::default() };
            (Command::RibUnregister, parameters)
        }
        SetupStep::SetStrategy { prefix, strategy } => {
            let (name, strategy) = (Some(prefix), Some(strategy));
            let parameters = ControlParameters { name, strategy, ..Default::default() };
            (Command::StrategyChoiceSet, parameters)
        }
        SetupStep::UnsetStrategy { prefix } => {
            let parameters = ControlParameters { name: Some(prefix), ..Default::default() };
            (Command::StrategyChoiceUnset, parameters)
        }
    };
    client.command(command, &parameters).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_faces_in_strategy_parameters() {
        let strategy: Name =
            "/localhost/nfd/strategy/multipath/v=1/part~257%3A0-99/weight~25%3A2".parse().unwrap();
        assert!(names_face(&strategy, FaceId(257)) && names_face(&strategy, FaceId(25)));
        assert!(!names_face(&strategy, FaceId(2)) && !names_face(&strategy, FaceId(0)));
    }
}
