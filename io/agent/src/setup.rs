//! The routes and strategies that a configuration needs, and the steps from one setup to the next.

use std::collections::BTreeMap;

use weir_base::FaceId;
use weir_control::message::{Configuration, SetupPart};
use weir_manage::route_flags;
use weir_wire::Name;

/// Cost of a route to the keeper of a part. Segments in no part use ordinary routes, which are
/// cheaper.
const PART_COST: u64 = u32::MAX as u64;

/// Cost and flags of a route.
type RouteValue = (u64, u64);

/// Routes and strategies that the agent has set up or must set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    routes: BTreeMap<(Name, FaceId), RouteValue>,
    strategies: BTreeMap<Name, Name>,
}

/// One command to the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetupStep {
    AddRoute { prefix: Name, face: FaceId, cost: u64, flags: u64 },
    RemoveRoute { prefix: Name, face: FaceId },
    SetStrategy { prefix: Name, strategy: Name },
    UnsetStrategy { prefix: Name },
}

impl SetupStep {
    /// The part of a configuration that it belongs to.
    pub(crate) fn part(&self) -> SetupPart {
        match self {
            Self::AddRoute { .. } | Self::RemoveRoute { .. } => SetupPart::Routes,
            Self::SetStrategy { .. } | Self::UnsetStrategy { .. } => SetupPart::Strategies,
        }
    }
}

impl Setup {
    /// The setup that a configuration needs.
    ///
    /// `face_of` returns the face to a router. `others` returns the faces of routes to an object
    /// that are not the controller's. An object for which `keeps` is true has a strategy of someone
    /// else and is forwarded without its plan. The second value is the number of routes left out
    /// because they exceed `routes_max`.
    pub(crate) fn from_configuration(
        configuration: &Configuration,
        routes_max: usize,
        face_of: impl Fn(&str) -> Option<FaceId>,
        others: impl Fn(&Name) -> Vec<FaceId>,
        keeps: impl Fn(&Name) -> bool,
    ) -> (Self, usize) {
        let (mut setup, mut left_out) = (Self::default(), 0);
        for route in &configuration.routes {
            if setup.routes.len() >= routes_max {
                left_out += 1;
            } else if let Some(face) = face_of(&route.router) {
                let value = (route.cost, route_flags::CHILD_INHERIT);
                setup.routes.insert((route.prefix.clone(), face), value);
            }
        }
        for distribution in configuration.distributions.iter().filter(|one| !keeps(&one.object)) {
            let object = &distribution.object;
            let parts = distribution.routers().count();
            if setup.routes.len() + parts > routes_max {
                left_out += parts;
                continue;
            }
            // The strategy needs the faces of ordinary routes: without `spread`, they get the
            // segments that are in no part.
            let mut ordinary = others(object);
            let is_above = |prefix: &Name| prefix.as_view().is_prefix_of(object.as_view());
            let own = setup.routes.keys().filter(|(prefix, _)| is_above(prefix));
            ordinary.extend(own.map(|(_, face)| *face));
            setup.strategies.insert(object.clone(), distribution.strategy(&face_of, &ordinary));
            for face in distribution.routers().filter_map(&face_of) {
                setup.routes.entry((object.clone(), face)).or_insert((PART_COST, 0));
            }
        }
        (setup, left_out)
    }

    /// The steps from this setup to another one. Additions come first, so that a name always has a
    /// route.
    pub(crate) fn steps_to(&self, wanted: &Self) -> Vec<SetupStep> {
        let mut steps = Vec::new();
        for ((prefix, face), &(cost, flags)) in &wanted.routes {
            let key = (prefix.clone(), *face);
            if self.routes.get(&key) != Some(&(cost, flags)) {
                let prefix = prefix.clone();
                steps.push(SetupStep::AddRoute { prefix, face: *face, cost, flags });
            }
        }
        for (prefix, strategy) in &wanted.strategies {
            if self.strategies.get(prefix) != Some(strategy) {
                let (prefix, strategy) = (prefix.clone(), strategy.clone());
                steps.push(SetupStep::SetStrategy { prefix, strategy });
            }
        }
        // Unset strategies before removing the routes to the keepers that they name.
        let removed =
            self.strategies.keys().filter(|prefix| !wanted.strategies.contains_key(prefix));
        steps.extend(removed.map(|prefix| SetupStep::UnsetStrategy { prefix: prefix.clone() }));
        let removed = self.routes.keys().filter(|key| !wanted.routes.contains_key(key));
        steps.extend(removed.map(|(prefix, face)| {
            let (prefix, face) = (prefix.clone(), *face);
            SetupStep::RemoveRoute { prefix, face }
        }));
        steps
    }

    /// Records a step that the router has taken.
    pub(crate) fn record_step(&mut self, step: SetupStep) {
        match step {
            SetupStep::AddRoute { prefix, face, cost, flags } => {
                self.routes.insert((prefix, face), (cost, flags));
            }
            SetupStep::RemoveRoute { prefix, face } => {
                self.routes.remove(&(prefix, face));
            }
            SetupStep::SetStrategy { prefix, strategy } => {
                self.strategies.insert(prefix, strategy);
            }
            SetupStep::UnsetStrategy { prefix } => {
                self.strategies.remove(&prefix);
            }
        }
    }

    /// Whether the agent has set this strategy at this prefix.
    pub(crate) fn has_strategy(&self, prefix: &Name, strategy: &Name) -> bool {
        self.strategies.get(prefix) == Some(strategy)
    }

    /// Forgets strategies that others have replaced or removed.
    pub(crate) fn forget_strategies(&mut self, is_there: impl Fn(&Name, &Name) -> bool) {
        self.strategies.retain(|prefix, strategy| is_there(prefix, strategy));
    }

    /// Forgets routes over faces that no longer exist; the router has removed them.
    pub(crate) fn forget_faces(&mut self, is_there: impl Fn(FaceId) -> bool) {
        self.routes.retain(|(_, face), _| is_there(*face));
    }

    /// Whether a route over this face is set up.
    pub(crate) fn has_route_over(&self, wanted: FaceId) -> bool {
        self.routes.keys().any(|(_, face)| *face == wanted)
    }
}

#[cfg(test)]
mod tests {
    use weir_control::message::{Distribution, PartOrder, RouteOrder};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn face_of(router: &str) -> Option<FaceId> {
        match router {
            "one" => Some(FaceId(257)),
            "two" => Some(FaceId(258)),
            _ => None,
        }
    }

    fn configuration(routers: &[&str]) -> Configuration {
        let route = |router: &&str| RouteOrder {
            prefix: name("/data"),
            router: (*router).into(),
            cost: 10,
        };
        Configuration { routes: routers.iter().map(route).collect(), ..Configuration::default() }
    }

    fn with_parts() -> Configuration {
        let part = |router: &str, first, last| PartOrder { router: router.into(), first, last };
        let distribution = Distribution {
            object: name("/data/file/v=1"),
            parts: vec![part("one", 0, 99), part("two", 100, 199), part("lost", 200, 299)],
            spread: Vec::new(),
        };
        Configuration { distributions: vec![distribution], ..configuration(&["one"]) }
    }

    fn wanted(configuration: &Configuration) -> Setup {
        Setup::from_configuration(configuration, usize::MAX, face_of, |_| Vec::new(), |_| false).0
    }

    #[test]
    fn leaves_out_excess_routes() {
        let bounded = |configuration: &Configuration, routes_max| {
            Setup::from_configuration(configuration, routes_max, face_of, |_| Vec::new(), |_| false)
        };
        let (setup, left_out) = bounded(&configuration(&["one", "two"]), 1);
        assert_eq!((setup, left_out), (wanted(&configuration(&["one"])), 1));
        // An object whose parts exceed the limit is forwarded without its plan.
        let (setup, left_out) = bounded(&with_parts(), 2);
        assert_eq!((setup, left_out), (wanted(&configuration(&["one"])), 3));
        assert_eq!(bounded(&with_parts(), 4).1, 0);
    }

    #[test]
    fn adds_before_it_removes() {
        let (before, after) = (wanted(&configuration(&["one"])), wanted(&configuration(&["two"])));
        let steps = before.steps_to(&after);
        let flags = route_flags::CHILD_INHERIT;
        let prefix = name("/data");
        let expected = [
            SetupStep::AddRoute { prefix: prefix.clone(), face: FaceId(258), cost: 10, flags },
            SetupStep::RemoveRoute { prefix, face: FaceId(257) },
        ];
        assert_eq!(steps, expected);
        let mut now = before;
        steps.into_iter().for_each(|step| now.record_step(step));
        assert_eq!(now, after);
        assert!(now.steps_to(&after).is_empty());
    }

    #[test]
    fn parts_add_and_remove_strategies() {
        let setup = wanted(&with_parts());
        let strategy = &setup.strategies[&name("/data/file/v=1")];
        // An ordinary route uses the face to `one` as well, so it keeps weight 1.
        let text = strategy.to_string();
        assert!(text.ends_with("/part~257%3A0-99/part~258%3A100-199/weight~258%3A0"), "{text}");
        assert_eq!(setup.routes.len(), 3);
        let steps = setup.steps_to(&wanted(&configuration(&["one"])));
        assert_eq!(steps.len(), 3);
        assert!(matches!(steps[0], SetupStep::UnsetStrategy { .. }));
        assert!(setup.has_route_over(FaceId(258)));
        // A strategy that someone else has set at the object's name stays, and the agent adds
        // nothing.
        let (without_plan, _) =
            Setup::from_configuration(&with_parts(), usize::MAX, face_of, |_| Vec::new(), |_| true);
        assert_eq!(without_plan, wanted(&configuration(&["one"])));
        let object = name("/data/file/v=1");
        let mut replaced = setup.clone();
        assert!(replaced.has_strategy(&object, &setup.strategies[&object]));
        replaced.forget_strategies(|_, _| false);
        let steps = replaced.steps_to(&without_plan);
        assert!(
            !steps.iter().any(|step| matches!(step, SetupStep::UnsetStrategy { .. })),
            "{steps:?}"
        );
        let mut setup = setup;
        setup.forget_faces(|face| face != FaceId(258));
        assert!(!setup.has_route_over(FaceId(258)) && setup.has_route_over(FaceId(257)));
    }
}
