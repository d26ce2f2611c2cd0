//! Sets up the router as a configuration says, by its management protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use weir_base::FaceId;
use weir_control::message::{Configuration, Peer};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency, FaceStatus, RibEntry, route_origin};
use weir_runtime::ContentsError;
use weir_socket::{Client, CommandError};
use weir_wire::Name;

use crate::setup::{Setup, Step};
use crate::shared::Shared;

/// How long the store may take to follow rules.
const RULES_TIMEOUT: Duration = Duration::from_secs(5);
/// The answer to a face that is there already.
const EXISTS: u64 = 409;

/// What is set up, and the way to change it.
pub(crate) struct Applier {
    shared: Arc<Shared>,
    client: Option<Client>,
    setup: Setup,
    /// Faces made for configurations.
    made: BTreeSet<FaceId>,
    /// What has been told to be wrong.
    told: BTreeSet<String>,
    /// The generation that was last set up whole.
    whole: u64,
}

impl Applier {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (setup, made, told) = (Setup::default(), BTreeSet::new(), BTreeSet::new());
        Self { shared, client: None, setup, made, told, whole: 0 }
    }

    /// Sets up what a configuration asks for and takes away what it lacks; whether all of it is
    /// done. What is not is to be tried again.
    pub(crate) fn apply(&mut self, configuration: &Configuration) -> bool {
        let mut problems = Vec::new();
        self.apply_rules(configuration, &mut problems);
        if let Err(error) = self.apply_tables(configuration, &mut problems) {
            // The connection may be gone: with a new one next time.
            self.client = None;
            problems.push(format!("the router's management fails: {error}"));
        }
        let problems: BTreeSet<String> = problems.into_iter().collect();
        for problem in problems.difference(&self.told) {
            tracing::warn!(generation = configuration.generation, "{problem}; tried again");
        }
        let is_whole = problems.is_empty();
        if is_whole && self.whole != configuration.generation {
            self.whole = configuration.generation;
            tracing::info!(
                generation = configuration.generation,
                routes = configuration.routes.len(),
                distributions = configuration.distributions.len(),
                rules = configuration.rules.len(),
                "set up as the controller says"
            );
        }
        self.told = problems;
        is_whole
    }

    fn apply_rules(&mut self, configuration: &Configuration, problems: &mut Vec<String>) {
        let rules = configuration.store_rules();
        match self.shared.contents.set_rules(rules, RULES_TIMEOUT) {
            // Those that come late come.
            Ok(()) | Err(ContentsError::Late) => {}
            Err(error) => problems.push(format!("the store's rules stay as they were: {error}")),
        }
    }

    fn apply_tables(
        &mut self,
        configuration: &Configuration,
        problems: &mut Vec<String>,
    ) -> Result<(), CommandError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.shared.connect().map_err(|error| CommandError::Express(error.into()))?,
        };
        let there: Vec<FaceStatus> = client.dataset("faces/list")?;
        let is_there = |face: FaceId| there.iter().any(|status| status.info.face_id == face);
        self.setup.forget_faces(is_there);
        self.made.retain(|face| is_there(*face));
        let mut by_uri: BTreeMap<String, FaceId> =
            there.iter().map(|status| (status.info.uri.clone(), status.info.face_id)).collect();
        let mut faces: BTreeMap<&str, FaceId> = BTreeMap::new();
        for peer in &configuration.peers {
            match self.face_to(&mut client, peer, &mut by_uri)? {
                Ok(face) => drop(faces.insert(&peer.router, face)),
                Err(problem) => problems.push(problem),
            }
        }
        let routes: Vec<RibEntry> = client.dataset("rib/list")?;
        let others = |object: &Name| others(&routes, object);
        let wanted = Setup::wanted(configuration, |router| faces.get(router).copied(), others);
        for step in self.setup.steps_to(&wanted) {
            match carry_out(&mut client, &step) {
                Ok(()) => self.setup.note(step),
                Err(CommandError::Refused(response)) => {
                    let (code, text) = (response.code, response.text);
                    problems.push(format!("the router refuses {step:?}: {code} {text}"));
                }
                Err(error) => return Err(error),
            }
        }
        let used: BTreeSet<FaceId> = faces.into_values().collect();
        let unused = |face: &FaceId| !used.contains(face) && !self.setup.uses(*face);
        for face in self.made.iter().copied().filter(unused).collect::<Vec<_>>() {
            let parameters = ControlParameters { face_id: Some(face), ..Default::default() };
            client.command(Command::FacesDestroy, &parameters)?;
            self.made.remove(&face);
        }
        self.client = Some(client);
        Ok(())
    }

    /// The face to another router: one that is there, or a new one.
    fn face_to(
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
            let response = client.respond(Command::FacesCreate, &parameters)?;
            let face = response.body.as_ref().and_then(|body| body.face_id);
            match (response.code, face) {
                (200, Some(face)) => {
                    self.made.insert(face);
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
fn others(routes: &[RibEntry], object: &Name) -> Vec<FaceId> {
    let above = routes.iter().filter(|entry| entry.name.as_view().is_prefix_of(object.as_view()));
    let routes = above.flat_map(|entry| &entry.routes);
    routes
        .filter(|route| route.origin != route_origin::CONTROLLER)
        .map(|route| route.face_id)
        .collect()
}

fn carry_out(client: &mut Client, step: &Step) -> Result<(), CommandError> {
    let origin = Some(route_origin::CONTROLLER);
    let (command, parameters) = match step.clone() {
        Step::AddRoute { prefix, face, cost, flags } => {
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
        Step::RemoveRoute { prefix, face } => {
            let (name, face_id) = (Some(prefix), Some(face));
            let parameters = ControlParameters { name, face_id, origin, ..Default::default() };
            (Command::RibUnregister, parameters)
        }
        Step::SetStrategy { prefix, strategy } => {
            let (name, strategy) = (Some(prefix), Some(strategy));
            let parameters = ControlParameters { name, strategy, ..Default::default() };
            (Command::StrategyChoiceSet, parameters)
        }
        Step::UnsetStrategy { prefix } => {
            let parameters = ControlParameters { name: Some(prefix), ..Default::default() };
            (Command::StrategyChoiceUnset, parameters)
        }
    };
    client.command(command, &parameters).map(drop)
}
