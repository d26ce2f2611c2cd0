//! Sets up the router as a configuration says, by its management protocol.

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

/// How long the store may take to follow rules.
const RULES_TIMEOUT: Duration = Duration::from_secs(5);
/// Problems that the controller is told at most, and letters of each.
const PROBLEMS_MAX: usize = 32;
const TEXT_MAX: usize = 300;
/// The answer to a face that is there already.
const EXISTS: u64 = 409;

/// What is set up, and the way to change it.
pub(crate) struct Applier {
    shared: Arc<AgentShared>,
    client: Option<Client>,
    setup: Setup,
    own_faces: BTreeSet<FaceId>,
    /// What has been told to be wrong.
    logged: BTreeSet<(SetupPart, String)>,
    /// The generation that was last set up whole.
    complete_generation: u64,
    routes_max: usize,
}

/// What came of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What failed and is to be tried again.
    failed: BTreeSet<(SetupPart, String)>,
    /// What is left as somebody else has set it.
    foreign: BTreeSet<(SetupPart, String)>,
}

impl Outcome {
    fn failed(&mut self, part: SetupPart, text: String) {
        self.failed.insert((part, text));
    }

    /// Whether all is set up that is to be.
    pub(crate) fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    pub(crate) fn has_failed(&self, part: SetupPart) -> bool {
        self.failed.iter().any(|(failed, _)| *failed == part)
    }

    /// What the controller is told of it.
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
        let (setup, made, told) = (Setup::default(), BTreeSet::new(), BTreeSet::new());
        Self {
            shared,
            client: None,
            setup,
            own_faces: made,
            logged: told,
            complete_generation: 0,
            routes_max,
        }
    }

    /// Sets up what a configuration asks for and takes away what it lacks.
    pub(crate) fn apply(&mut self, configuration: &Configuration) -> Outcome {
        let mut outcome = Outcome::default();
        self.apply_rules(configuration, &mut outcome);
        if let Err(error) = self.apply_tables(configuration, &mut outcome) {
            // The connection may be gone: with a new one next time.
            self.client = None;
            outcome.failed(SetupPart::Management, error.to_string());
        }
        self.log_changes(configuration, &outcome);
        outcome
    }

    /// Says what is new of what is wrong.
    fn log_changes(&mut self, configuration: &Configuration, outcome: &Outcome) {
        let generation = configuration.generation;
        for (part, text) in outcome.failed.difference(&self.logged) {
            tracing::warn!(generation, ?part, "{text}; tried again");
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
                "set up as the controller says"
            );
        }
        self.logged = outcome.failed.union(&outcome.foreign).cloned().collect();
    }

    fn apply_rules(&mut self, configuration: &Configuration, outcome: &mut Outcome) {
        let rules = configuration.store_rules();
        match self.shared.contents.set_rules(rules, RULES_TIMEOUT) {
            // Those that come late come.
            Ok(()) | Err(ContentsError::TimedOut) => {}
            Err(error) => {
                let text = format!("the store's rules stay as they were: {error}");
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
        let there: Vec<FaceStatus> = client.dataset("faces/list")?;
        let is_there = |face: FaceId| there.iter().any(|status| status.info.face_id == face);
        self.setup.forget_faces(is_there);
        self.own_faces.retain(|face| is_there(*face));
        let mut by_uri: BTreeMap<String, FaceId> =
            there.iter().map(|status| (status.info.uri.clone(), status.info.face_id)).collect();
        let mut faces: BTreeMap<&str, FaceId> = BTreeMap::new();
        for peer in &configuration.peers {
            match self.find_or_create_face(&mut client, peer, &mut by_uri)? {
                Ok(face) => drop(faces.insert(&peer.router, face)),
                Err(text) => outcome.failed(SetupPart::Faces, text),
            }
        }
        let kept = self.foreign_strategies(&mut client, configuration)?;
        let texts = kept.iter().map(|object| {
            let text = format!("{object} keeps the strategy that somebody else has set");
            (SetupPart::Strategies, text)
        });
        outcome.foreign.extend(texts);
        let routes: Vec<RibEntry> = client.dataset("rib/list")?;
        let face_of = |router: &str| faces.get(router).copied();
        let others = |object: &Name| foreign_faces(&routes, object);
        let keeps = |object: &Name| kept.contains(object);
        let (wanted, left_out) =
            Setup::from_configuration(configuration, self.routes_max, face_of, others, keeps);
        self.shared.set_routes_left_out(left_out);
        if left_out > 0 {
            let text = format!(
                "{left_out} routes are left out: [controller] routes_max allows {}",
                self.routes_max
            );
            outcome.foreign.insert((SetupPart::Routes, text));
        }
        for step in self.setup.steps_to(&wanted) {
            match run_step(&mut client, &step) {
                Ok(()) => self.setup.record_step(step),
                Err(CommandError::Refused(response)) => {
                    let (code, text) = (response.code, response.text);
                    let text = format!("the router refuses {step:?}: {code} {text}");
                    outcome.failed(step.part(), text);
                }
                // It is wrong by itself, and stops no other step.
                Err(error @ CommandError::TooLong(_)) => {
                    outcome.failed(step.part(), format!("a step cannot be taken: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        let used: BTreeSet<FaceId> = faces.into_values().collect();
        self.destroy_unused_faces(&mut client, &used)?;
        self.client = Some(client);
        Ok(())
    }

    /// The objects at whose names somebody else has set a strategy.
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

    /// Destroys the faces made here that neither a configuration needs any more nor anybody else.
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
        // Its own routes over them are gone by now.
        let fib: Vec<FibEntry> = client.dataset("fib/list")?;
        let strategies: Vec<StrategyChoice> = client.dataset("strategy-choice/list")?;
        for face in unused {
            let is_as_made = |status: &FaceStatus| {
                let info = &status.info;
                info.face_id == face && info.persistency == FacePersistency::Permanent
            };
            if !faces.iter().any(is_as_made) {
                // Somebody has changed it and counts on it, or it is gone.
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

    /// The face to another router: one that is there, or a new one.
    fn find_or_create_face(
        &mut self,
        client: &mut Client,
        peer: &Peer,
        by_uri: &mut BTreeMap<String, FaceId>,
    ) -> Result<Result<FaceId, String>, CommandError> {
        if let Some(face) = peer.uris.iter().find_map(|uri| by_uri.get(uri)) {
            return Ok(Ok(*face));
        }
        let mut why = "it tells of no address".to_owned();
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

/// The faces by which routes above an object lead that somebody else made.
fn foreign_faces(routes: &[RibEntry], object: &Name) -> Vec<FaceId> {
    let above = routes.iter().filter(|entry| entry.name.as_view().is_prefix_of(object.as_view()));
    let routes = above.flat_map(|entry| &entry.routes);
    routes
        .filter(|route| route.origin != route_origin::CONTROLLER)
        .map(|route| route.face_id)
        .collect()
}

/// Whether a parameter of a strategy is about a face, as in `part~258:0-99` and `weight~258:2`.
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
