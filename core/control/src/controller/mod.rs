//! The controller: what routers and producers tell goes in, what they are to do comes out.

mod beside;
mod configuration;
mod planning;
mod repair;
mod room;
mod routes;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use self::planning::promisable;
use self::repair::Upkeep;
use self::routes::Routing;
use crate::bounds::Bound;
use crate::data_map::{ActivePlan, DataMap};
use crate::demand::Demand;
use crate::file::File;
use crate::message::{Decision, Forwarded, Registered, RouterReport, Update, UpdateNumber};
use crate::network::{Link, Network, PLANS_MAX, PLANS_PER_S, Router, Twin};
use crate::objects::{Limits, RouterId};
use crate::placement::Placement;
use crate::plan::Plan;
use crate::segments::Segments;

/// Numbers of configurations that routers may bring along, at most: one a millisecond takes 35
/// years, in steps of 1,000. Else one router could have all numbers used up.
const GENERATION_MAX: u64 = 1 << 50;

/// Addresses, faces, prefixes and problems of one router, at most. Agents tell of fewer.
const URIS_MAX: usize = 64;
const FACES_MAX: usize = 4096;
const PREFIXES_MAX: usize = 8192;
const PROBLEMS_MAX: usize = 256;
/// A router that is refused for its name tries again within half a minute.
const TWIN_TOLD_NS: u64 = 60 * NS_PER_S;
/// Octets that a store may hold beyond what was told of it.
const SLACK_BYTES: u64 = 1 << 20;

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
    /// Objects of which one router may tell that it holds something, at most, and of them those
    /// that no producer has registered. What is beyond does not count.
    pub objects_max: usize,
    /// See there.
    pub unregistered_max: usize,
    /// Octets of memory that what one router holds may take here, at most, and what all hold.
    pub holdings_bytes_max: u64,
    /// See there.
    pub holdings_total_bytes_max: u64,
    /// Its numbers are those that leave the second when divided by the first, so that no two
    /// controllers of a network give one number twice.
    pub numbers: (u64, u64),
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
            unregistered_max: 10_000,
            holdings_bytes_max: 64 << 20,
            holdings_total_bytes_max: 1 << 30,
            numbers: (1, 0),
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
    /// Two routers report by one name: what one of them tells does not count. There is one event a
    /// minute at most.
    TwoOfOneName {
        /// The name.
        router: String,
        /// Under which others reach the one that does not count.
        uris: Vec<String>,
    },
    /// A router has gained nothing for a minute and lacks segments that it was to fetch and keep.
    /// Others get its part, and it gets no other for ten minutes.
    KeepsNot {
        /// Its name.
        router: String,
        /// The file.
        object: Name,
        /// How many it lacks.
        segments: u64,
    },
    /// Something that a router says or asks does not count. Of each kind and router there is one
    /// event a minute at most.
    Bounded {
        /// Its name.
        router: String,
        /// What it is too much for.
        bound: Bound,
        /// How much does not count, since the last such event: segments, objects or questions.
        count: u64,
    },
}

/// What is new of a file that a producer tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNews {
    /// It is known as it is.
    Nothing,
    /// It was registered without its manifest.
    Manifest,
    /// It is not known.
    All,
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
    /// Another router has this name, and was there first.
    #[error(
        "another router reports as {0}, and was here first: give this one a name and a token of \
         its own"
    )]
    NameTaken(String),
    /// No controller has ever given a number as high.
    #[error("no configuration has number {0}; start the router's agent anew without one")]
    NoGeneration(u64),
    /// A file without segments, without a name, or larger than can be.
    #[error(
        "a file has a name of 2,000 octets at most, 1 to 2^48 segments, packets of 1 to 8,800 \
         octets, and a manifest of 4 lists at most, below its name and no longer than itself"
    )]
    NoFile,
    /// A file was registered before with another size, or with another manifest.
    #[error(
        "{0} is registered with another size or manifest; a changed file has a new version in its \
         name"
    )]
    OtherFile(Name),
}

/// The controller's knowledge and decisions. It has no clock: `now` counts from its start.
pub struct Controller {
    config: ControllerConfig,
    network: Network,
    map: DataMap,
    demand: Demand,
    /// The highest number given to a plan or to a configuration, or heard of.
    generation: u64,
    routing: Routing,
    events: Vec<Event>,
    beginning: Beginning,
    /// Routers that were there at the end of a former run, until it has begun.
    expected: BTreeSet<String>,
    /// Routers that other controllers hear, and which of these does.
    elsewhere: BTreeMap<String, u64>,
    upkeep: Upkeep,
    /// How often something of any router did not count.
    bounded: [u64; Bound::ALL.len()],
    /// When it was told what time it is.
    ticked: Instant,
    /// When somebody spoke last.
    now: Instant,
}

/// Whether it has been there long enough to know all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// No router has told of a configuration: there is none that could be taken away by mistake.
    Fresh,
    /// Routers have configurations of a former run. Nobody gets another one until then, when all
    /// that are there have reported; or until soon after those that are expected have.
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
            demand: Demand::default(),
            generation: 0,
            routing: Routing::new(),
            events: Vec::new(),
            beginning: Beginning::Fresh,
            expected: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            upkeep: Upkeep::default(),
            bounded: Default::default(),
            ticked: Instant::ZERO,
            now: Instant::ZERO,
        }
    }

    /// Takes up files, each with its owner, and plans of a former run, the newest plan of each
    /// file, but for those that cannot be. Routers that have not reported yet are not spoken of in
    /// configurations.
    pub fn restore(&mut self, files: Vec<(String, File)>, plans: Vec<Plan>) {
        let files = files.into_iter().filter(|(_, file)| file.is_possible());
        files.for_each(|(owner, file)| self.map.objects.add_file(&owner, file));
        let mut giving_way = Vec::new();
        for plan in plans {
            self.generation = self.generation.max(plan.number);
            let Some(file) = self.map.objects.file(&plan.object) else { continue };
            if plan.is_end() || !plan.is_possible(file.segments) {
                continue;
            }
            let keepers = plan.parts.iter().map(|part| part.router.clone());
            let concerned = keepers.chain(plan.consumers.iter().cloned()).collect();
            let active = ActivePlan::new(plan, file, concerned, self.now);
            if self.map.objects.newer(&active.plan.object).is_some() {
                giving_way.push(active.plan.object.clone());
            }
            self.map.insert_plan(active);
        }
        giving_way.iter().for_each(|object| self.withdraw(object));
    }

    /// What has come to pass since this was called before.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// A router tells of itself.
    ///
    /// # Errors
    /// There are too many routers, or another one has its name.
    pub fn report(
        &mut self,
        now: Instant,
        name: &str,
        report: RouterReport,
    ) -> Result<Registered, Refused> {
        self.now = self.now.max(now);
        check_sizes(&report)?;
        let latest = report.latest_generation();
        if latest > self.generation.max(GENERATION_MAX) {
            return Err(Refused::NoGeneration(latest));
        }
        if let Some(router) = self.network.routers.get_mut(name)
            && router.is_of_twin(&report, now)
        {
            self.note_twin(name, report.uris);
            return Err(Refused::NameTaken(name.to_owned()));
        }
        // A controller that has forgotten goes on above what its routers have.
        self.generation = self.generation.max(latest);
        let is_new = !self.network.routers.contains_key(name);
        if self.beginning == Beginning::Fresh && is_new && latest > 0 {
            let until = now.plus_ns(self.config.router_timeout_ns);
            self.beginning = Beginning::Waits { until };
        }
        let mut had = 0;
        if is_new {
            let max = self.config.routers_max;
            if self.network.routers.len() >= max {
                return Err(Refused::TooMany { what: "routers", max });
            }
            had = self.network.add(name, now);
            self.events.push(Event::RouterFound { router: name.to_owned() });
        }
        let Some(router) = self.network.routers.get_mut(name) else {
            return Err(Refused::UnknownRouter(name.to_owned()));
        };
        router.last_seen = now;
        let (id, expected) = (router.id, router.expected);
        if is_new {
            router.generation = latest;
            // It, and who is gone, may be others than before.
            self.routing.links_changed();
        }
        had = router.has.back().map_or(had, |(generation, _)| *generation);
        let routed = report.routed_generation();
        router.note_has(routed, now);
        if routed == 0 && had > 0 {
            // It has begun anew, and has no routes.
            self.routing.forget(id);
        }
        let has_room = is_new || report.store_bytes > router.report.store_bytes;
        let store_has_changed = router.report.store_bytes != report.store_bytes;
        let former = core::mem::replace(&mut router.report, report);
        if self.note_place(name, &former) || is_new {
            self.routes_changed();
        }
        if has_room {
            self.upkeep.room_came();
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
        self.now = self.now.max(now);
        router.last_seen = now;
        let begins = update.at.number == 1 && update.at.generation != router.expected.generation;
        if !begins && (update.at != router.expected || update.at.number == 0) {
            return Err(Refused::OutOfOrder { expected: router.expected });
        }
        let UpdateNumber { generation, number } = update.at;
        router.expected = UpdateNumber { generation, number: number + 1 };
        let id = router.id;
        let limits = limits(&self.config, &router.report);
        if begins {
            self.forget_holdings(id);
        }
        for change in update.changes {
            if self.map.plan(&change.object).is_some_and(|active| active.plan.parts.is_empty()) {
                self.upkeep.holders_changed(&change.object);
            }
            let applied = self.map.objects.apply(id, &limits, change);
            if applied.has_gained
                && let Some(router) = self.network.routers.get_mut(name)
            {
                router.gained = now;
            }
            for (bound, count) in applied.refused {
                self.does_not_count(name, bound, count);
            }
        }
        Ok(())
    }

    /// What a router holds is not known any more.
    fn forget_holdings(&mut self, id: RouterId) {
        let Self { map: DataMap { objects, plans, .. }, upkeep, .. } = self;
        objects.forget(id, |object| {
            if plans.get(object).is_some_and(|active| active.plan.parts.is_empty()) {
                upkeep.holders_changed(object);
            }
        });
    }

    /// Something that a router says or asks does not count. The operator is told.
    pub fn does_not_count(&mut self, name: &str, bound: Bound, count: u64) {
        let total = &mut self.bounded[bound as usize];
        *total = total.saturating_add(count);
        let Some(router) = self.network.routers.get_mut(name) else { return };
        if let Some(count) = router.tallies[bound as usize].add(self.now, count) {
            self.events.push(Event::Bounded { router: name.to_owned(), bound, count });
        }
    }

    fn note_twin(&mut self, name: &str, uris: Vec<String>) {
        let total = &mut self.bounded[Bound::Name as usize];
        *total = total.saturating_add(1);
        let Some(router) = self.network.routers.get_mut(name) else { return };
        if router.tallies[Bound::Name as usize].add(self.now, 1).is_some() {
            self.events.push(Event::TwoOfOneName { router: name.to_owned(), uris });
        }
    }

    /// Routers that report by the names of others and so do not count, as far as they have done so
    /// within a minute: the name, and under which addresses others reach the one that is refused.
    pub fn twins(&self) -> impl Iterator<Item = (&str, &[String])> {
        let routers = self.network.routers.iter();
        routers.flat_map(|(name, router)| {
            let is_near = |twin: &&Twin| self.now.ns_since(twin.seen) < TWIN_TOLD_NS;
            router.twins.iter().filter(is_near).map(|twin| (name.as_str(), twin.uris.as_slice()))
        })
    }

    /// How often something that routers say or ask did not count, by what it was too much for.
    pub fn bounded(&self) -> impl Iterator<Item = (Bound, u64)> {
        Bound::ALL.iter().copied().zip(self.bounded)
    }

    /// What is new of a file that a producer tells of, which is to be added after so many others.
    ///
    /// # Errors
    /// It is none, differs from what is known of it, or there are too many.
    pub fn news_of_file(&self, file: &File, after: usize) -> Result<FileNews, Refused> {
        if !file.is_possible() {
            return Err(Refused::NoFile);
        }
        match self.map.objects.file(&file.name) {
            Some(known) if known == file => return Ok(FileNews::Nothing),
            Some(known) if known.lacks_manifest_of(file) => return Ok(FileNews::Manifest),
            Some(_) => return Err(Refused::OtherFile(file.name.clone())),
            None => {}
        }
        let max = self.config.files_max;
        if self.map.objects.files_count() + after >= max {
            return Err(Refused::TooMany { what: "files", max });
        }
        Ok(FileNews::All)
    }

    /// An owner has a file. One that was registered without its manifest gets it now, and so do
    /// those that keep parts of it; it stays whose it was. Of several versions that one owner has
    /// registered of an object, the last components of their names, the newest alone is planned
    /// for: the plan of an older one ends, and its room is free.
    ///
    /// # Errors
    /// As [`Controller::news_of_file`].
    pub fn add_file(&mut self, owner: &str, file: File) -> Result<(), Refused> {
        match self.news_of_file(&file, 0)? {
            FileNews::Nothing => {}
            FileNews::All => {
                let name = file.name.clone();
                self.map.objects.add_file(owner, file);
                // Those before it have given way to it already.
                if let Some(older) = self.map.objects.older(&name).map(|older| older.name.clone()) {
                    self.withdraw(&older);
                }
            }
            FileNews::Manifest => {
                let plan = self.map.plan(&file.name).map(|active| active.plan.clone());
                if let Some(plan) = plan {
                    self.put_in_force(&file, plan);
                }
                self.map.objects.set_manifest(&file.name, file.manifest);
            }
        }
        Ok(())
    }

    /// A file is no longer served: its plan ends. Says whether it was known.
    pub fn remove_file(&mut self, name: &Name) -> bool {
        let is_known = self.map.objects.remove_file(name);
        self.demand.forget(name);
        self.withdraw(name);
        is_known
    }

    /// The numbers of its plans and configurations are others from now on, see
    /// [`ControllerConfig::numbers`].
    pub fn set_numbers(&mut self, numbers: (u64, u64)) {
        self.config.numbers = numbers;
    }

    /// The next number, higher than any that it knows of.
    fn count(&mut self) -> u64 {
        let (step, rest) = (self.config.numbers.0.max(1), self.config.numbers.1);
        let next = self.generation - self.generation % step + rest % step;
        self.generation = if next > self.generation { next } else { next + step };
        self.generation
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
        let decision = match self.map.objects.file(object) {
            None => Decision::Unknown,
            Some(file) if file.stored_bytes() <= promisable(router) => Decision::Small,
            Some(_) if self.newer_version(object).is_some() => Decision::NoRoom,
            Some(_) => {
                if !self.demand.note(self.now, router.id, object) {
                    self.bounded[Bound::Demand as usize] += 1;
                }
                self.plan_for(name, object)
            }
        };
        Ok(Forwarded { decision, generation: self.generation_of(name) })
    }

    /// What time brings: routers that have fallen silent are gone, and what they kept is planned
    /// anew.
    pub fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.tick_beginning(now);
        let timeout_ns = self.config.router_timeout_ns;
        let is_lost = |router: &Router| now.ns_since(router.last_seen) > timeout_ns;
        let silent = self.network.routers.iter().filter(|(_, router)| is_lost(router));
        let lost: BTreeSet<String> = silent.map(|(name, _)| name.clone()).collect();
        if !lost.is_empty() {
            for name in &lost {
                if let Some((id, prefixes)) = self.network.remove(name, now) {
                    self.forget_holdings(id);
                    prefixes.iter().for_each(|prefix| self.routing.producers_changed(prefix));
                }
                self.events.push(Event::RouterLost { router: name.clone() });
            }
            self.routing.links_changed();
        }
        for id in self.network.forget_gone(now) {
            self.routing.forget(id);
        }
        self.upkeep_routes();
        self.repair_lost(lost);
        self.let_routers_ask(now);
        self.upkeep();
    }

    /// Routers may ask for more plans, and of what did not count is told what is due.
    fn let_routers_ask(&mut self, now: Instant) {
        let since = core::mem::replace(&mut self.ticked, now);
        let more = now.ns_since(since).saturating_mul(PLANS_PER_S) / NS_PER_S;
        for (name, router) in &mut self.network.routers {
            router.plans_left = PLANS_MAX.min(router.plans_left.saturating_add(more));
            for (tally, &bound) in router.tallies.iter_mut().zip(Bound::ALL) {
                // Told when the other one speaks.
                if bound == Bound::Name {
                    continue;
                }
                if let Some(count) = tally.due(now) {
                    self.events.push(Event::Bounded { router: name.clone(), bound, count });
                }
            }
        }
    }

    /// All routers that are there have had the time to report: they get configurations again.
    fn begin(&mut self) {
        self.end_beginning();
        self.routing.begin();
        self.upkeep_routes();
        let names: Vec<String> = self.network.routers.keys().cloned().collect();
        for name in &names {
            self.touch(name);
        }
        self.take_up_plans();
    }

    /// Whether nobody gets a configuration or a new plan at present: routers may not have come back
    /// yet, or others hear more of them.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.beginning, Beginning::Waits { .. })
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
    pub fn links(&self) -> Vec<Link> {
        self.network.links()
    }

    /// How many there are.
    #[must_use]
    pub fn links_count(&self) -> usize {
        self.routing.graph.links_count()
    }

    /// The files that producers have told of.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.map.objects.files()
    }

    /// The next files by name, of so many objects after one; and where to go on if there are more.
    pub fn files_after(
        &self,
        after: Option<&Name>,
        objects_max: usize,
    ) -> (Vec<&File>, Option<&Name>) {
        let objects: Vec<_> = self.map.objects.after(after).take(objects_max).collect();
        let last = objects.last().map(|(name, _)| *name).filter(|_| objects.len() == objects_max);
        (objects.into_iter().filter_map(|(_, file)| file).collect(), last)
    }

    /// How many files producers have told of.
    #[must_use]
    pub fn files_count(&self) -> usize {
        self.map.objects.files_count()
    }

    /// A file, if a producer has told of it.
    #[must_use]
    pub fn file(&self, name: &Name) -> Option<&File> {
        self.map.objects.file(name)
    }

    /// Who has registered a file.
    #[must_use]
    pub fn owner(&self, name: &Name) -> Option<&str> {
        self.map.objects.owner(name)
    }

    /// The newest version of a file's object that the file's owner has registered, if that is newer
    /// than the file, which then has no plan.
    #[must_use]
    pub fn newer_version(&self, name: &Name) -> Option<&File> {
        self.map.objects.newer(name)
    }

    /// The plans in force.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.map.plans().map(|active| &active.plan)
    }

    /// What each router says it holds of an object, by router; those that hold nothing are left
    /// out.
    #[must_use]
    pub fn holdings(&self, object: &Name) -> Vec<(&str, Segments)> {
        let holders = self.map.objects.holders(object).into_iter();
        let mut holders: Vec<(&str, Segments)> =
            holders.map(|(id, held)| (self.network.name_of(id), held)).collect();
        holders.sort_unstable_by_key(|(name, _)| *name);
        holders
    }

    /// A router is to get a new configuration.
    fn touch(&mut self, name: &str) {
        if self.is_waiting() {
            return;
        }
        let number = self.count();
        if let Some(router) = self.network.routers.get_mut(name) {
            router.parent = router.generation;
            router.generation = number;
        }
    }
}

/// Agents tell of no more than that.
fn check_sizes(report: &RouterReport) -> Result<(), Refused> {
    for (count, what, max) in [
        (report.uris.len(), "addresses of this router", URIS_MAX),
        (report.faces.len(), "faces of this router", FACES_MAX),
        (report.prefixes.len(), "prefixes of this router", PREFIXES_MAX),
        (report.problems.len(), "problems of this router", PROBLEMS_MAX),
    ] {
        if count > max {
            return Err(Refused::TooMany { what, max });
        }
    }
    Ok(())
}

/// What one router may say that it holds. Routers with several packet threads tell of the part of
/// their memory that they are sure of, a quarter at least; all of it may be full.
fn limits(config: &ControllerConfig, report: &RouterReport) -> Limits {
    let memory = report.store_bytes.saturating_mul(4).saturating_add(SLACK_BYTES);
    let disk = report.disk_bytes.saturating_add(report.disk_bytes / 8).saturating_add(SLACK_BYTES);
    Limits {
        objects_max: config.objects_max,
        unregistered_max: config.unregistered_max,
        bytes_max: config.holdings_bytes_max,
        total_bytes_max: config.holdings_total_bytes_max,
        content_bytes_max: [memory, disk],
    }
}
