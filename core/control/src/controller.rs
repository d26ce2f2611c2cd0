//! The controller: what routers and producers tell goes in, what they are to do comes out.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use crate::data_map::{ActivePlan, DataMap};
use crate::file::File;
use crate::message::{
    Change, Configuration, Decision, Distribution, Forwarded, PartOrder, Peer, Prefetch,
    Registered, Retention, RouteOrder, RouterReport, StoreRule, Update, UpdateNumber,
};
use crate::network::{Link, Network, Router};
use crate::placement::{Candidate, Placement, place};
use crate::plan::{Part, Plan, Share};
use crate::segments::Segments;

/// Of a store this share may be promised; the rest goes on as without a controller.
const PROMISED_SHARE: (u64, u64) = (7, 8);
/// Routers that the segments of a file are spread over at most, and their weights.
const SPREAD_MAX: usize = 32;
const WEIGHT_MAX: u64 = 1000;
/// Numbers of configurations that routers may bring along, at most: one a millisecond takes 35
/// years. Else one router could have all numbers used up.
const GENERATION_MAX: u64 = 1 << 40;
/// Rules of one router, at most.
const RULES_MAX: usize = 4096;

/// What a controller is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// A router that says nothing for this long is gone.
    pub router_timeout_ns: u64,
    /// How routers are chosen.
    pub placement: Placement,
    /// Whether routers fetch their parts of a file while it is read for the first time.
    pub prefetch: bool,
    /// Whether that is so of the part that is read first, too. In the paper it is not; but some of
    /// it has passed before there is a plan, and its keeper is nearer to the producer.
    pub prefetch_first: bool,
    /// In what proportion routers share what several hold, or lead to, the nearest to who asks
    /// first; all further ones as the last. Empty: alike.
    pub ratio: Vec<u64>,
    /// Whether routers get routes to the prefixes that producers have registered at others.
    pub routes: bool,
    /// Routers at most.
    pub routers_max: usize,
    /// Files at most.
    pub files_max: usize,
    /// Objects of which one router may tell that it holds something, at most.
    pub objects_max: usize,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            router_timeout_ns: 15 * NS_PER_S,
            placement: Placement::default(),
            prefetch: true,
            prefetch_first: true,
            ratio: Vec::new(),
            routes: true,
            routers_max: 10_000,
            files_max: 10_000_000,
            objects_max: 1_000_000,
        }
    }
}

/// What has come to pass, for a journal and for a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A router has told of itself for the first time, or again after it was gone.
    RouterFound {
        /// Its name.
        router: String,
    },
    /// A router has said nothing for too long.
    RouterLost {
        /// Its name.
        router: String,
    },
    /// A plan is in force, in place of the one with the number of its parent.
    Planned(Plan),
    /// A router says that it holds segments that its file does not have. They do not count.
    HoldsTooMuch {
        /// Its name.
        router: String,
        /// The file.
        object: Name,
        /// How many there are.
        segments: u64,
    },
}

/// Why something is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The router has not reported, or not for long.
    #[error("router {0} is not known here; it must report first")]
    UnknownRouter(String),
    /// An update does not follow the one before.
    #[error(
        "update {number} of generation {generation} is expected, or number 1 of another generation",
        number = expected.number,
        generation = expected.generation
    )]
    OutOfOrder {
        /// What is expected.
        expected: UpdateNumber,
    },
    /// There are too many of something.
    #[error("there are {max} {what} already, which is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// No controller has ever given a number as high.
    #[error("no configuration has number {0}; start the router's agent anew without one")]
    NoGeneration(u64),
    /// A file without segments, without a name, or larger than can be.
    #[error("a file has a name, 1 to 2^48 segments, and packets of 1 to 8,800 octets")]
    NoFile,
    /// A file was registered before with another size.
    #[error("{0} is registered with another size; a changed file has a new version in its name")]
    OtherFile(Name),
}

/// The controller's knowledge and decisions. It has no clock: `now` counts from its start.
pub struct Controller {
    config: ControllerConfig,
    network: Network,
    map: DataMap,
    /// The highest number given to a plan or to a configuration, or heard of.
    generation: u64,
    links: Vec<Link>,
    /// The routes of each router.
    routes: BTreeMap<String, Vec<RouteOrder>>,
    events: Vec<Event>,
    beginning: Beginning,
}

/// Whether it has been there long enough to know all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// No router has told of a configuration: there is none that could be taken away by mistake.
    Fresh,
    /// Routers have configurations of a former run. Nobody gets another one until then, when all
    /// that are there have reported.
    Waits { until: Instant },
    /// All that are not known are gone.
    Over,
}

impl Controller {
    /// A controller that knows of nothing.
    #[must_use]
    pub fn new(config: ControllerConfig) -> Self {
        Self {
            config,
            network: Network::default(),
            map: DataMap::default(),
            generation: 0,
            links: Vec::new(),
            routes: BTreeMap::new(),
            events: Vec::new(),
            beginning: Beginning::Fresh,
        }
    }

    /// Takes up files and plans of a former run, the newest plan of each file. Routers that have
    /// not reported yet are not spoken of in configurations.
    pub fn restore(&mut self, files: Vec<File>, plans: Vec<Plan>) {
        self.map.files.extend(files.into_iter().map(|file| (file.name.clone(), file)));
        for plan in plans {
            self.generation = self.generation.max(plan.number);
            let Some(file) = self.map.files.get(&plan.object) else { continue };
            if plan.parts.is_empty() && plan.spread.is_empty() {
                continue;
            }
            let bytes_each = file.stored_bytes_each();
            let keepers = plan.parts.iter().map(|part| part.router.clone());
            let concerned = keepers.chain(plan.consumers.iter().cloned()).collect();
            self.map.insert_plan(ActivePlan { plan, bytes_each, concerned });
        }
    }

    /// What has come to pass since this was called before.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// A router tells of itself.
    ///
    /// # Errors
    /// There are too many routers.
    pub fn report(
        &mut self,
        now: Instant,
        name: &str,
        report: RouterReport,
    ) -> Result<Registered, Refused> {
        if report.generation > self.generation.max(GENERATION_MAX) {
            return Err(Refused::NoGeneration(report.generation));
        }
        // A controller that has forgotten goes on above what its routers have.
        self.generation = self.generation.max(report.generation);
        let is_new = !self.network.routers.contains_key(name);
        if self.beginning == Beginning::Fresh && is_new && report.generation > 0 {
            let until = now.plus_ns(self.config.router_timeout_ns);
            self.beginning = Beginning::Waits { until };
        }
        if is_new {
            let max = self.config.routers_max;
            if self.network.routers.len() >= max {
                return Err(Refused::TooMany { what: "routers", max });
            }
            self.network.routers.insert(name.to_owned(), Router::new(now));
            self.events.push(Event::RouterFound { router: name.to_owned() });
        }
        let Some(router) = self.network.routers.get_mut(name) else {
            return Err(Refused::UnknownRouter(name.to_owned()));
        };
        router.last_seen = now;
        if is_new {
            router.generation = report.generation;
        }
        let has_changed = is_new || !is_same_place(&router.report, &report);
        let store_has_changed = router.report.store_bytes != report.store_bytes;
        router.report = report;
        let expected = router.expected;
        if has_changed {
            self.refresh_routes();
        }
        if is_new || store_has_changed {
            self.touch(name);
        }
        let generation = self.generation_of(name);
        Ok(Registered { generation, expected, timeout_ns: self.config.router_timeout_ns })
    }

    /// A router tells what its store holds.
    ///
    /// # Errors
    /// It is not the update that is expected; the router is unknown.
    pub fn update(&mut self, now: Instant, name: &str, update: Update) -> Result<(), Refused> {
        let Some(router) = self.network.routers.get_mut(name) else {
            return Err(Refused::UnknownRouter(name.to_owned()));
        };
        router.last_seen = now;
        let begins = update.at.number == 1 && update.at.generation != router.expected.generation;
        if begins {
            router.held.clear();
        } else if update.at != router.expected || update.at.number == 0 {
            return Err(Refused::OutOfOrder { expected: router.expected });
        }
        let UpdateNumber { generation, number } = update.at;
        router.expected = UpdateNumber { generation, number: number + 1 };
        for mut change in update.changes {
            if let Some(file) = self.map.files.get(&change.object)
                && let Some(event) = limit(name, file, &mut change)
            {
                self.events.push(event);
            }
            router.apply(change);
        }
        let max = self.config.objects_max;
        if router.held.len() > max {
            router.held.clear();
            router.expected = UpdateNumber::default();
            return Err(Refused::TooMany { what: "objects of this router", max });
        }
        Ok(())
    }

    /// A producer has a file.
    ///
    /// # Errors
    /// It is none, differs from what is known of it, or there are too many.
    pub fn add_file(&mut self, file: File) -> Result<(), Refused> {
        let is_file = !file.name.as_view().is_empty()
            && (1..=File::SEGMENTS_MAX).contains(&file.segments)
            && (1..=File::PACKET_BYTES_MAX).contains(&file.packet_bytes);
        if !is_file {
            return Err(Refused::NoFile);
        }
        match self.map.files.get(&file.name) {
            Some(known) if *known == file => return Ok(()),
            Some(_) => return Err(Refused::OtherFile(file.name)),
            None => {}
        }
        let max = self.config.files_max;
        if self.map.files.len() >= max {
            return Err(Refused::TooMany { what: "files", max });
        }
        self.map.files.insert(file.name.clone(), file);
        Ok(())
    }

    /// A file is no longer served: its plan ends. Says whether it was known.
    pub fn remove_file(&mut self, name: &Name) -> bool {
        let is_known = self.map.files.remove(name).is_some();
        self.withdraw(name);
        is_known
    }

    /// A router asks how to get an object of which it lacks segments (paper
    /// multipath-cache-management, Algorithms 3 and 4).
    ///
    /// # Errors
    /// The router is unknown.
    pub fn forward(&mut self, name: &str, object: &Name) -> Result<Forwarded, Refused> {
        let Some(router) = self.network.routers.get(name) else {
            return Err(Refused::UnknownRouter(name.to_owned()));
        };
        let decision = match self.map.files.get(object) {
            None => Decision::Unknown,
            Some(file) if file.stored_bytes() <= promisable(router) => Decision::Small,
            Some(_) => self.plan_for(name, object),
        };
        Ok(Forwarded { decision, generation: self.generation_of(name) })
    }

    /// What time brings: routers that have fallen silent are gone, and what they kept is planned
    /// anew.
    pub fn tick(&mut self, now: Instant) {
        match self.beginning {
            Beginning::Fresh if now.as_ns() > self.config.router_timeout_ns => {
                self.beginning = Beginning::Over;
                self.take_up_plans();
            }
            Beginning::Waits { until } if now >= until => self.begin(),
            Beginning::Fresh | Beginning::Waits { .. } | Beginning::Over => {}
        }
        let timeout_ns = self.config.router_timeout_ns;
        let is_lost = |router: &Router| now.ns_since(router.last_seen) > timeout_ns;
        let silent = self.network.routers.iter().filter(|(_, router)| is_lost(router));
        let lost: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
        if lost.is_empty() {
            return;
        }
        for name in &lost {
            self.network.routers.remove(name);
            self.routes.remove(name);
            self.events.push(Event::RouterLost { router: name.clone() });
        }
        self.refresh_routes();
        self.repair(&lost);
    }

    /// All routers that are there have had the time to report: they get configurations again.
    fn begin(&mut self) {
        self.beginning = Beginning::Over;
        self.refresh_routes();
        let names: Vec<String> = self.network.routers.keys().cloned().collect();
        for name in &names {
            self.touch(name);
        }
        self.take_up_plans();
    }

    /// Plans of a former run: now that paths are known, so are the routers between, and what was
    /// given to routers that have not come back is planned anew.
    fn take_up_plans(&mut self) {
        let plans: Vec<(Plan, u64)> =
            self.map.plans().map(|active| (active.plan.clone(), active.bytes_each)).collect();
        for (plan, bytes_each) in plans {
            let concerned = self.concerned(&plan);
            let touched = concerned.clone();
            let former = self.map.insert_plan(ActivePlan { plan, bytes_each, concerned });
            let former = former.map(|former| former.concerned).unwrap_or_default();
            for router in touched.difference(&former) {
                self.touch(router);
            }
        }
        let named = self.map.plans().flat_map(|active| {
            let parts = active.plan.parts.iter().map(|part| &part.router);
            parts.chain(active.plan.spread.iter().map(|share| &share.router))
        });
        let is_gone = |router: &&String| !self.network.routers.contains_key(*router);
        let gone: BTreeSet<String> = named.filter(is_gone).cloned().collect();
        let gone: Vec<String> = gone.into_iter().collect();
        self.repair(&gone);
    }

    fn is_waiting(&self) -> bool {
        matches!(self.beginning, Beginning::Waits { .. })
    }

    /// The configuration of a router; none of one that is unknown or has none yet.
    #[must_use]
    pub fn configuration(&self, name: &str) -> Option<Configuration> {
        let router = self.network.routers.get(name).filter(|router| router.generation > 0)?;
        if self.is_waiting() {
            return None;
        }
        let routes = self.routes.get(name).cloned().unwrap_or_default();
        let mut configuration = Configuration {
            generation: router.generation,
            parent: router.parent,
            routes,
            ..Configuration::default()
        };
        for active in self.map.plans_of(name) {
            self.add_plan(name, active, &mut configuration);
        }
        // What is kept comes before what is refused, of which the last by name are left out.
        configuration.rules.sort_by_key(|rule| matches!(rule.retention, Retention::Refuse));
        configuration.rules.truncate(RULES_MAX);
        let routes = configuration.routes.iter().map(|route| route.router.as_str());
        let distributions = configuration.distributions.iter().flat_map(Distribution::routers);
        let peers: BTreeSet<&str> = routes.chain(distributions).collect();
        configuration.peers = peers.into_iter().filter_map(|peer| self.peer(peer)).collect();
        Some(configuration)
    }

    /// The number of a router's configuration, 0 if it has none.
    #[must_use]
    pub fn generation_of(&self, name: &str) -> u64 {
        self.network.routers.get(name).map_or(0, |router| router.generation)
    }

    /// The highest number that a plan or a configuration has. It rises whenever a configuration
    /// changes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The routers that are there, with what they reported.
    pub fn routers(&self) -> impl Iterator<Item = (&str, &RouterReport)> {
        self.network.routers.iter().map(|(name, router)| (name.as_str(), &router.report))
    }

    /// The links between routers that are there.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The files that producers have told of.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.map.files.values()
    }

    /// A file, if a producer has told of it.
    #[must_use]
    pub fn file(&self, name: &Name) -> Option<&File> {
        self.map.files.get(name)
    }

    /// The plans in force.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.map.plans().map(|active| &active.plan)
    }

    /// What each router says it holds of an object, by router; those that hold nothing are left
    /// out.
    #[must_use]
    pub fn holdings(&self, object: &Name) -> Vec<(&str, Segments)> {
        let held = self.network.routers.iter().map(|(name, router)| {
            let held = router.held_of(object);
            (name.as_str(), held)
        });
        held.filter(|(_, held)| !held.is_empty()).collect()
    }

    fn plan_for(&mut self, name: &str, object: &Name) -> Decision {
        let Some(file) = self.map.files.get(object).cloned() else { return Decision::Unknown };
        if let Some(active) = self.map.plan(object) {
            let Plan { parts, spread, consumers, .. } = &active.plan;
            if !self.is_waiting() && !consumers.iter().any(|consumer| consumer == name) {
                let consumers = consumers.iter().cloned().chain([name.to_owned()]);
                self.make_plan(&file, parts.clone(), spread.clone(), consumers.collect());
            }
            return Decision::Planned;
        }
        if self.is_waiting() {
            // Those who hold or could keep it may not have reported yet.
            return Decision::NoRoom;
        }
        let consumers = vec![name.to_owned()];
        let holders = self.spread(name, |_, router| holds_all(router, &file));
        if !holders.is_empty() {
            self.make_plan(&file, Vec::new(), holders, consumers);
            return Decision::Planned;
        }
        let range = (0, file.segments - 1);
        let candidates = self.candidates(name, object, &file);
        let parts = place(self.config.placement, &file, range, candidates);
        if !parts.is_empty() {
            self.make_plan(&file, parts, Vec::new(), consumers);
            return Decision::Planned;
        }
        let leading = self.leading(name, object);
        let ways = self.spread(name, |router, _| leading.contains(router));
        if ways.len() < 2 {
            return Decision::NoRoom;
        }
        self.make_plan(&file, Vec::new(), ways, consumers);
        Decision::Planned
    }

    /// Routers that a consumer's router may ask for any segment of a file, the nearest first (paper
    /// multipath-cache-management, Algorithm 3).
    fn spread(&self, consumer: &str, is_one: impl Fn(&str, &Router) -> bool) -> Vec<Share> {
        let to_consumer = Network::paths(&self.links, consumer);
        let is_other = |(name, _): &(&String, &Router)| name.as_str() != consumer;
        let all = self.network.routers.iter().filter(is_other);
        let chosen = all.filter(|(name, router)| is_one(name, router));
        let mut chosen: Vec<(u64, &String)> =
            chosen.filter_map(|(name, _)| Some((to_consumer.distance(name)?, name))).collect();
        chosen.sort_unstable();
        let ratio = &self.config.ratio;
        let weight = |place: usize| ratio.get(place).or(ratio.last()).copied().unwrap_or(1);
        let share = |(place, (_, name)): (usize, (u64, &String))| Share {
            router: name.clone(),
            weight: weight(place).clamp(1, WEIGHT_MAX),
        };
        chosen.into_iter().enumerate().map(share).take(SPREAD_MAX).collect()
    }

    /// The neighbours of a consumer's router from which a path leads to the producer that does not
    /// come back.
    fn leading(&self, consumer: &str, object: &Name) -> BTreeSet<&str> {
        let producers = self.network.producers_of(object);
        let Some(producer) = producers.first() else { return BTreeSet::new() };
        let paths = Network::paths(&self.links, producer);
        let neighbours = self.links.iter().filter(|link| link.from == consumer);
        let leads = |name: &str| {
            paths.distance(name).is_some() && paths.path(name).all(|router| router != consumer)
        };
        neighbours.map(|link| link.to.as_str()).filter(|name| leads(name)).collect()
    }

    /// Routers that may keep a part of an object that `consumer` reads: those that have room and a
    /// path to the producer that does not lead back to the consumer.
    fn candidates(&self, consumer: &str, object: &Name, file: &File) -> Vec<Candidate> {
        let producers = self.network.producers_of(object);
        let Some(producer) = producers.first() else { return Vec::new() };
        let to_producer = Network::paths(&self.links, producer);
        let to_consumer = Network::paths(&self.links, consumer);
        let farthest = match self.config.placement {
            Placement::LargestFree => None,
            Placement::Nearest => to_consumer.distance(producer),
        };
        let candidate = |(name, router): (&String, &Router)| {
            let promised = self.map.promised_bytes(name);
            let free_bytes = promisable(router).saturating_sub(promised);
            let is_reached = to_producer.distance(name).is_some();
            let comes_back = to_producer.path(name).any(|router| router == consumer);
            let distance = to_consumer.distance(name)?;
            let is_near = farthest.is_none_or(|farthest| distance < farthest);
            let fits = free_bytes >= file.stored_bytes_each();
            let router = name.clone();
            (fits && is_near && is_reached && !comes_back).then_some(Candidate {
                router,
                free_bytes,
                distance,
            })
        };
        self.network.routers.iter().filter_map(candidate).collect()
    }

    fn make_plan(
        &mut self,
        file: &File,
        parts: Vec<Part>,
        spread: Vec<Share>,
        consumers: Vec<String>,
    ) {
        self.generation += 1;
        let object = file.name.clone();
        let parent = self.map.plan(&object).map_or(0, |active| active.plan.number);
        let plan = Plan { number: self.generation, parent, object, consumers, parts, spread };
        self.events.push(Event::Planned(plan.clone()));
        let concerned = self.concerned(&plan);
        let bytes_each = file.stored_bytes_each();
        let touched = concerned.clone();
        let former = self.map.insert_plan(ActivePlan { plan, bytes_each, concerned });
        let former = former.map(|former| former.concerned).unwrap_or_default();
        for router in touched.union(&former) {
            self.touch(router);
        }
    }

    /// Routers that Data of a plan passes through: from the producer to those that keep it, and
    /// from there to the consumers. Those that keep nothing are told to refuse it.
    fn concerned(&self, plan: &Plan) -> BTreeSet<String> {
        let producers = self.network.producers_of(&plan.object);
        let to_producer = producers.first().map(|producer| Network::paths(&self.links, producer));
        let mut concerned: BTreeSet<String> = plan.consumers.iter().cloned().collect();
        for part in &plan.parts {
            concerned.insert(part.router.clone());
            let up = to_producer.iter().flat_map(|paths| paths.path(&part.router));
            concerned.extend(up.map(str::to_owned));
            let to_keeper = Network::paths(&self.links, &part.router);
            for consumer in &plan.consumers {
                concerned.extend(to_keeper.path(consumer).map(str::to_owned));
            }
        }
        concerned
    }

    fn withdraw(&mut self, object: &Name) {
        if let Some(active) = self.map.remove_plan(object) {
            self.generation += 1;
            let (number, parent) = (self.generation, active.plan.number);
            let (consumers, parts, spread) = (Vec::new(), Vec::new(), Vec::new());
            let plan = Plan { number, parent, object: object.clone(), consumers, parts, spread };
            self.events.push(Event::Planned(plan));
            for router in &active.concerned {
                self.touch(router);
            }
        }
    }

    /// Plans anew what routers that are gone were to keep. What others keep stays where it is.
    fn repair(&mut self, lost: &[String]) {
        let is_hit = |active: &&ActivePlan| {
            let Plan { parts, spread, .. } = &active.plan;
            parts.iter().any(|part| lost.contains(&part.router))
                || spread.iter().any(|share| lost.contains(&share.router))
        };
        let hit: Vec<Name> =
            self.map.plans().filter(is_hit).map(|active| active.plan.object.clone()).collect();
        for object in hit {
            let Some(file) = self.map.files.get(&object).cloned() else { continue };
            let Some(active) = self.map.plan(&object) else { continue };
            let mut consumers = active.plan.consumers.clone();
            consumers.retain(|consumer| !lost.contains(consumer));
            let mut spread = active.plan.spread.clone();
            spread.retain(|share| !lost.contains(&share.router));
            let (gone, parts): (Vec<Part>, Vec<Part>) =
                active.plan.parts.iter().cloned().partition(|part| lost.contains(&part.router));
            let Some(consumer) =
                consumers.first().cloned().filter(|_| !(parts.is_empty() && spread.is_empty()))
            else {
                // Nobody asks at present, or nothing is left: who asks next gets a new plan.
                self.withdraw(&object);
                continue;
            };
            self.make_plan(&file, parts, spread.clone(), consumers.clone());
            for part in gone {
                let candidates = self.candidates(&consumer, &object, &file);
                let range = (part.first, part.last);
                let more = place(self.config.placement, &file, range, candidates);
                let Some(active) = self.map.plan(&object) else { break };
                let mut parts = active.plan.parts.clone();
                parts.extend(more);
                parts.sort_by_key(|part| part.first);
                self.make_plan(&file, parts, spread.clone(), consumers.clone());
            }
        }
    }

    /// What a plan means for a router.
    fn add_plan(&self, name: &str, active: &ActivePlan, to: &mut Configuration) {
        let ActivePlan { plan, bytes_each, .. } = active;
        let Plan { object, consumers, .. } = plan;
        let is_consumer = consumers.iter().any(|consumer| consumer == name);
        let own = plan.parts.iter().filter(|part| part.router == name);
        for part in own {
            let (first, last) = (part.first, part.last);
            let bytes_max = (last - first + 1) * bytes_each;
            let retention = Retention::Keep { bytes_max };
            to.rules.push(StoreRule { object: object.clone(), first, last, retention });
            let is_read_first = plan.parts.first() == Some(part);
            if self.config.prefetch && (self.config.prefetch_first || !is_read_first) {
                to.prefetch.push(Prefetch { object: object.clone(), first, last });
            }
        }
        if !plan.parts.is_empty() {
            let (first, last) = (0, Segments::LAST_MAX);
            let retention = Retention::Refuse;
            to.rules.push(StoreRule { object: object.clone(), first, last, retention });
        }
        if is_consumer {
            let others = plan.parts.iter().filter(|part| {
                part.router != name && self.network.routers.contains_key(&part.router)
            });
            let order = |part: &Part| PartOrder {
                router: part.router.clone(),
                first: part.first,
                last: part.last,
            };
            let parts: Vec<PartOrder> = others.map(order).collect();
            let is_there = |share: &&Share| self.network.routers.contains_key(&share.router);
            let spread: Vec<Share> = plan.spread.iter().filter(is_there).cloned().collect();
            if !(parts.is_empty() && spread.is_empty()) {
                to.distributions.push(Distribution { object: object.clone(), parts, spread });
            }
        }
    }

    fn peer(&self, name: &str) -> Option<Peer> {
        let router = self.network.routers.get(name)?;
        Some(Peer { router: name.to_owned(), uris: router.report.uris.clone() })
    }

    /// Computes links and routes anew, and touches the routers whose routes have changed.
    fn refresh_routes(&mut self) {
        self.links = self.network.links();
        if !self.config.routes {
            return;
        }
        let mut all: BTreeMap<String, Vec<RouteOrder>> = BTreeMap::new();
        for (producer, record) in &self.network.routers {
            let paths = Network::paths(&self.links, producer);
            for prefix in &record.report.prefixes {
                for name in self.network.routers.keys() {
                    if let (Some(next), Some(cost)) = (paths.next(name), paths.distance(name)) {
                        let (prefix, router) = (prefix.clone(), next.to_owned());
                        let cost = cost / 1000;
                        let route = RouteOrder { prefix, router, cost };
                        all.entry(name.clone()).or_default().push(route);
                    }
                }
            }
        }
        let names: Vec<String> = self.network.routers.keys().cloned().collect();
        for name in names {
            let mut new = all.remove(&name).unwrap_or_default();
            // A prefix that several routers have may be reached by one neighbour.
            new.sort_by(|one, other| {
                (&one.prefix, &one.router, one.cost).cmp(&(
                    &other.prefix,
                    &other.router,
                    other.cost,
                ))
            });
            new.dedup_by(|two, one| two.prefix == one.prefix && two.router == one.router);
            if self.routes.get(&name).is_none_or(|former| *former != new) {
                self.routes.insert(name.clone(), new);
                self.touch(&name);
            }
        }
    }

    /// A router is to get a new configuration.
    fn touch(&mut self, name: &str) {
        if self.is_waiting() {
            return;
        }
        self.generation += 1;
        if let Some(router) = self.network.routers.get_mut(name) {
            router.parent = router.generation;
            router.generation = self.generation;
        }
    }
}

/// Whether a router holds all of a file.
fn holds_all(router: &Router, file: &File) -> bool {
    router.held_of(&file.name).count_within(0, file.segments - 1) == file.segments
}

/// Octets of a store that plans may have.
fn promisable(router: &Router) -> u64 {
    router.report.store_bytes / PROMISED_SHARE.1 * PROMISED_SHARE.0
}

/// Whether two reports tell of the same place in the network.
fn is_same_place(one: &RouterReport, other: &RouterReport) -> bool {
    let remotes = |report: &RouterReport| -> Vec<(String, Option<u64>)> {
        report.faces.iter().map(|face| (face.remote.clone(), face.round_trip_ns)).collect()
    };
    one.uris == other.uris && one.prefixes == other.prefixes && remotes(one) == remotes(other)
}

/// Takes away what the file does not have.
fn limit(router: &str, file: &File, change: &mut Change) -> Option<Event> {
    let beyond = Segments::range(file.segments, Segments::LAST_MAX);
    let segments = change.added.count_within(file.segments, Segments::LAST_MAX);
    if segments == 0 {
        return None;
    }
    change.added.remove(&beyond);
    let (router, object) = (router.to_owned(), file.name.clone());
    Some(Event::HoldsTooMuch { router, object, segments })
}
