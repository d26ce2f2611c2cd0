//! The controller: reports of routers and producers go in, plans and configurations come out.

mod config;
mod configuration;
mod event;
mod plans;
mod registry;
mod routes;
mod startup;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::Instant;
use weir_wire::Name;

pub use self::config::ControllerConfig;
pub use self::event::{ControlError, Event, FileStatus};

use self::configuration::ConfigurationSources;
use self::plans::{PlanContext, Plans, promisable_bytes};
use self::registry::Registry;
use self::routes::Routing;
use self::startup::StartupStep;
use crate::data_map::ActivePlan;
use crate::file::File;
use crate::limits::LimitKind;
use crate::message::{
    Configuration, Decision, Forwarded, Registered, RouterReport, Update, UpdateNumber,
};
use crate::network::Link;
use crate::objects::Limits;
use crate::plan::Plan;
use crate::segments::Segments;

/// Highest generation that a router may report. At 1,000 numbers a millisecond it lasts 35 years.
/// Without it one router could use up all numbers.
const GENERATION_MAX: u64 = 1 << 50;

/// Limits on one report. Agents report less.
const URIS_MAX: usize = 64;
const FACES_MAX: usize = 4096;
const PREFIXES_MAX: usize = 8192;
const PROBLEMS_MAX: usize = 256;
/// Bytes that a store may hold beyond the capacity that it reported.
const SLACK_BYTES: u64 = 1 << 20;

/// Holds what the controller knows, and makes its decisions. It reads no clock: callers pass `now`,
/// which counts from the controller's start.
///
/// It owns three components and calls them in order; the README has a table. The components do not
/// know the controller. `Registry` knows no other component, `Routing` reads the network of the
/// registry, and `Plans` changes plans with a `PlanContext` that borrows both.
pub struct Controller {
    config: ControllerConfig,
    registry: Registry,
    plans: Plans,
    routing: Routing,
}

impl Controller {
    /// An empty controller.
    pub fn new(config: ControllerConfig) -> Self {
        let registry = Registry::new(config.numbers);
        Self { config, registry, plans: Plans::default(), routing: Routing::new() }
    }

    /// Restores files with their owners, and the newest plan of each file, from an earlier run.
    /// Invalid files and plans are ignored. Configurations do not mention routers that have not
    /// reported yet.
    pub fn restore(&mut self, files: Vec<(String, File)>, plans: Vec<Plan>) {
        let files = files.into_iter().filter(|(_, file)| file.is_valid());
        files.for_each(|(owner, file)| self.plans.map.objects.add_file(&owner, file));
        let mut superseded = Vec::new();
        for plan in plans {
            self.registry.raise_generation(plan.number);
            let Some(file) = self.plans.map.objects.file(&plan.object) else { continue };
            if plan.is_end() || !plan.is_valid(file.segments) {
                continue;
            }
            // Paths are not known yet. `repair_restored` adds the routers on them when the start is
            // over.
            let keepers = plan.parts.iter().map(|part| part.router.clone());
            let concerned = keepers.chain(plan.consumers.iter().cloned()).collect();
            let active = ActivePlan::new(plan, file, concerned, self.registry.now);
            if self.plans.map.objects.newer_version(&active.plan.object).is_some() {
                superseded.push(active.plan.object.clone());
            }
            self.plans.map.insert_plan(active);
        }
        // Plans of older versions end, as if the newer version had been registered now.
        for object in &superseded {
            self.withdraw(object);
        }
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.registry.take_events()
    }

    /// Handles a report of a router.
    ///
    /// # Errors
    /// Another router has this name, there are too many routers, or the report exceeds a limit.
    pub fn report(
        &mut self,
        now: Instant,
        name: &str,
        report: RouterReport,
    ) -> Result<Registered, ControlError> {
        self.registry.now = self.registry.now.max(now);
        check_sizes(&report)?;
        let latest = report.latest_generation();
        if latest > self.registry.generation().max(GENERATION_MAX) {
            return Err(ControlError::UnknownGeneration(latest));
        }
        if let Some(router) = self.registry.network.routers.get_mut(name)
            && router.is_from_duplicate(&report, now)
        {
            self.registry.note_duplicate(name, report.uris);
            return Err(ControlError::NameTaken(name.to_owned()));
        }
        // A restarted controller must continue above the generations that its routers have.
        self.registry.raise_generation(latest);
        // Any router with a configuration shows that this controller is not the first: it must wait
        // until all routers have had time to report.
        let is_new = !self.registry.network.routers.contains_key(name);
        if is_new && latest > 0 {
            let until = now.plus_ns(self.config.router_timeout_ns);
            self.registry.startup.on_configured_router(until);
        }
        let mut had = 0;
        if is_new {
            let max = self.config.routers_max;
            if self.registry.network.routers.len() >= max {
                return Err(ControlError::TooMany { what: "routers", max });
            }
            had = self.registry.network.add(name, now);
            self.registry.record(Event::RouterFound { router: name.to_owned() });
        }
        let Some(router) = self.registry.network.routers.get_mut(name) else {
            return Err(ControlError::UnknownRouter(name.to_owned()));
        };
        router.last_seen = now;
        let (id, expected) = (router.id, router.expected);
        if is_new {
            router.generation = latest;
            // A new router changes the links, and a lost one may have come back under its old
            // number.
            self.routing.links_changed();
        }
        // Generation 0 after a higher one means that the router has restarted.
        had = router.reported_generations.back().map_or(had, |(generation, _)| *generation);
        let routed = report.routed_generation();
        router.note_generation(routed, now);
        if routed == 0 && had > 0 {
            // It has restarted and has no routes.
            self.routing.forget(id);
        }
        let has_more_space = is_new || report.store_bytes > router.report.store_bytes;
        let store_has_changed = router.report.store_bytes != report.store_bytes;
        let former = core::mem::replace(&mut router.report, report);
        // Small changes of routes are computed at once, so that a new producer is reachable without
        // delay.
        if (self.apply_topology_change(name, &former) || is_new)
            && self.routing.take_immediate_run()
        {
            self.refresh_routes();
        }
        if has_more_space {
            self.plans.note_more_room();
        }
        if is_new || store_has_changed {
            self.registry.new_generation(name);
        }
        let generation = self.generation_of(name);
        Ok(Registered { generation, expected, timeout_ns: self.config.router_timeout_ns })
    }

    /// Marks routes as due if a new report changes links or prefixes. Returns whether it does.
    fn apply_topology_change(&mut self, name: &str, former: &RouterReport) -> bool {
        let place = self.registry.update_topology(name, former);
        for prefix in &place.changed_prefixes {
            self.routing.producers_changed(prefix);
        }
        if place.has_link_change {
            self.routing.links_changed();
        }
        place.has_link_change || !place.changed_prefixes.is_empty()
    }

    /// Handles changes of a router's holdings; `objects.rs` explains the sequence of updates.
    ///
    /// # Errors
    /// The update is not the expected one, or the router is unknown.
    pub fn update(&mut self, now: Instant, name: &str, update: Update) -> Result<(), ControlError> {
        let Some(router) = self.registry.network.routers.get_mut(name) else {
            return Err(ControlError::UnknownRouter(name.to_owned()));
        };
        self.registry.now = self.registry.now.max(now);
        router.last_seen = now;
        let is_new_generation =
            update.at.number == 1 && update.at.generation != router.expected.generation;
        // A gap means that an update was lost. The answer says which one is expected.
        if !is_new_generation && (update.at != router.expected || update.at.number == 0) {
            return Err(ControlError::OutOfOrder { expected: router.expected });
        }
        let UpdateNumber { generation, number } = update.at;
        router.expected = UpdateNumber { generation, number: number + 1 };
        let id = router.id;
        let limits = holdings_limits(&self.config, &router.report);
        // The new generation reports everything again.
        if is_new_generation {
            self.plans.forget_holdings(id);
        }
        for change in update.changes {
            let applied = self.plans.apply(id, &limits, change);
            if applied.has_gained
                && let Some(router) = self.registry.network.routers.get_mut(name)
            {
                router.last_gain = now;
            }
            for (bound, count) in applied.refused {
                self.registry.note_limit_exceeded(name, bound, count);
            }
        }
        Ok(())
    }

    /// Counts what was ignored because a router exceeded a limit, and records an event for the
    /// operator.
    pub fn note_limit_exceeded(&mut self, name: &str, bound: LimitKind, count: u64) {
        self.registry.note_limit_exceeded(name, bound, count);
    }

    /// Routers that were refused in the last minute because another router has their name: the
    /// name, and the addresses of the refused router.
    pub fn duplicates(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.registry.duplicates()
    }

    /// For each kind of limit: how often it was exceeded.
    pub fn limit_counts(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        self.registry.limit_counts()
    }

    /// What the registration of a file would change. `after` is the number of new files that the
    /// caller adds before it.
    ///
    /// # Errors
    /// The file is invalid, differs from the registered one, or there are too many files.
    pub fn file_status(&self, file: &File, after: usize) -> Result<FileStatus, ControlError> {
        if !file.is_valid() {
            return Err(ControlError::InvalidFile);
        }
        match self.plans.map.objects.file(&file.name) {
            Some(known) if known == file => return Ok(FileStatus::Unchanged),
            Some(known) if known.lacks_manifest_of(file) => return Ok(FileStatus::AddsManifest),
            Some(_) => return Err(ControlError::FileConflict(file.name.clone())),
            None => {}
        }
        let max = self.config.files_max;
        if self.plans.map.objects.files_count() + after >= max {
            return Err(ControlError::TooMany { what: "files", max });
        }
        Ok(FileStatus::New)
    }

    /// Registers a file. A file that was registered without its manifest gets the manifest now, and
    /// so do the keepers of its parts; its owner stays the same.
    ///
    /// An owner may register several versions of an object; the version is the last component of
    /// the name. Only the newest version has a plan, so the plan of the older one ends.
    ///
    /// # Errors
    /// As [`Controller::file_status`].
    pub fn add_file(&mut self, owner: &str, file: File) -> Result<(), ControlError> {
        match self.file_status(&file, 0)? {
            FileStatus::Unchanged => {}
            FileStatus::New => {
                let name = file.name.clone();
                self.plans.map.objects.add_file(owner, file);
                // Only the previous version can have a plan: it ended the plans of those before it.
                if let Some(older) =
                    self.plans.map.objects.previous_version(&name).map(|older| older.name.clone())
                {
                    self.withdraw(&older);
                }
            }
            FileStatus::AddsManifest => {
                let plan = self.plans.map.plan(&file.name).map(|active| active.plan.clone());
                if let Some(plan) = plan {
                    // Activate the same plan again: its routers then get the manifest as well.
                    let (plans, mut cx) = self.planning();
                    plans.activate(&mut cx, &file, plan);
                }
                self.plans.map.objects.set_manifest(&file.name, file.manifest);
            }
        }
        Ok(())
    }

    /// Removes a file that is no longer served, and ends its plan. Returns whether it was
    /// registered.
    pub fn remove_file(&mut self, name: &Name) -> bool {
        let is_known = self.plans.map.objects.remove_file(name);
        self.plans.demand.forget(name);
        self.withdraw(name);
        is_known
    }

    /// Sets the remainder for new numbers; see [`ControllerConfig::numbers`].
    pub fn set_numbers(&mut self, numbers: (u64, u64)) {
        self.registry.set_numbers(numbers);
    }

    /// Decides about an object that a router lacks segments from (paper multipath-cache-management,
    /// Algorithms 3 and 4).
    ///
    /// # Errors
    /// The router is unknown.
    pub fn forward(&mut self, name: &str, object: &Name) -> Result<Forwarded, ControlError> {
        let Some(router) = self.registry.network.routers.get(name) else {
            return Err(ControlError::UnknownRouter(name.to_owned()));
        };
        // Without a plan the router handles the object as without a controller.
        let decision = match self.plans.map.objects.file(object) {
            None => Decision::Unknown,
            Some(file) if file.stored_bytes() <= promisable_bytes(router) => Decision::Small,
            Some(_) if self.newer_version(object).is_some() => Decision::NoRoom,
            Some(_) => {
                if !self.plans.demand.record(self.registry.now, router.id, object) {
                    self.registry.count_limit_exceeded(LimitKind::Demand, 1);
                }
                let (plans, mut cx) = self.planning();
                plans.plan_for(&mut cx, name, object)
            }
        };
        Ok(Forwarded { decision, generation: self.generation_of(name) })
    }

    /// Does what is due at `now`: declares silent routers lost, moves their parts to other routers,
    /// and continues pending routes and plans.
    pub fn tick(&mut self, now: Instant) {
        self.registry.now = self.registry.now.max(now);
        self.tick_startup(now);
        // Lost routers first: their parts and prefixes must not be used below.
        let mut lost = self.registry.silent_routers(now, self.config.router_timeout_ns);
        if !lost.is_empty() {
            for name in &lost {
                if let Some((id, prefixes)) = self.registry.network.remove(name, now) {
                    self.plans.forget_holdings(id);
                    prefixes.iter().for_each(|prefix| self.routing.producers_changed(prefix));
                }
                self.registry.record(Event::RouterLost { router: name.clone() });
            }
            self.routing.links_changed();
        }
        for id in self.registry.network.forget_departed(now) {
            self.routing.forget(id);
        }
        self.routing.begin_tick();
        self.refresh_routes();
        // Other controllers plan for the routers that report to them. Without any router here, no
        // router could use a new plan.
        lost.retain(|router| !self.registry.startup.is_heard_elsewhere(router));
        if !self.registry.network.routers.is_empty() {
            let (plans, mut cx) = self.planning();
            plans.repair(&mut cx, &lost);
        }
        self.registry.refill_plan_credits(now);
        let (plans, mut cx) = self.planning();
        plans.run_upkeep(&mut cx);
    }

    /// Ends the wait at the start when it is time.
    fn tick_startup(&mut self, now: Instant) {
        let Registry { startup, network, .. } = &mut self.registry;
        let step = startup.tick(now, self.config.router_timeout_ns, network);
        if step == StartupStep::Nothing {
            return;
        }
        self.registry.end_startup();
        if step == StartupStep::FinishAndConfigure {
            // All present routers have had time to report, so they get configurations again.
            self.routing.reset();
            self.routing.begin_tick();
            self.refresh_routes();
            let names: Vec<String> = self.registry.network.routers.keys().cloned().collect();
            names.iter().for_each(|name| self.registry.new_generation(name));
        }
        let (plans, mut cx) = self.planning();
        plans.repair_restored(&mut cx);
    }

    /// Computes the routes that are due, and gives new configurations to the routers whose routes
    /// change.
    fn refresh_routes(&mut self) {
        if self.is_waiting() {
            return;
        }
        if self.routing.update_graph(&self.registry.network) {
            self.plans.note_more_room();
        }
        if !self.config.routes {
            return;
        }
        let new = self.routing.compute(&self.registry.network, self.registry.now);
        for &router in &new.changed_routers {
            let name = self.registry.network.name_of(router).to_owned();
            self.registry.new_generation(&name);
        }
        self.routing.apply(&self.registry.network, new);
    }

    /// The plans, with the context to change them.
    fn planning(&mut self) -> (&mut Plans, PlanContext<'_>) {
        let Self { config, registry, plans, routing } = self;
        (plans, PlanContext { registry, graph: &routing.graph, config })
    }

    fn withdraw(&mut self, object: &Name) {
        let (plans, mut cx) = self.planning();
        plans.withdraw(&mut cx, object);
    }

    fn end_plan(&mut self, object: &Name) {
        let (plans, mut cx) = self.planning();
        plans.end_plan(&mut cx, object);
    }

    /// Sets which routers report to other controllers: each with the number of that controller.
    /// Plans with these routers stay as they are, although the routers do not report here.
    pub fn set_heard_elsewhere(&mut self, routers: BTreeMap<String, u64>) {
        let before = self.registry.startup.set_heard_elsewhere(routers);
        if self.registry.network.routers.is_empty() || self.is_waiting() {
            return;
        }
        // These routers reported elsewhere before, and now report to no controller.
        let silent = before.into_keys().filter(|router| !self.registry.is_heard(router)).collect();
        let (plans, mut cx) = self.planning();
        plans.repair(&mut cx, &silent);
    }

    /// Sets the routers that were present at the end of an earlier run. When all of them have
    /// reported, the controller stops waiting. Until then a restarted router has no configuration.
    pub fn expect_routers(&mut self, routers: BTreeSet<String>) {
        self.registry.startup.expect(routers);
    }

    /// Adopts a plan of another controller if its number is higher than that of the present plan.
    /// With `counts` it replaces the present plan in any case: the database has refused that one,
    /// because it did not follow the newest one.
    ///
    /// The plan is ignored if it is invalid for its file. It is also ignored if a newer version of
    /// the file is registered: the other controller did not know of that version yet, and will end
    /// the plan.
    pub fn adopt(&mut self, plan: Plan, counts: bool) {
        self.registry.raise_generation(plan.number);
        let own = self.plans.map.plan(&plan.object).map(|active| active.plan.number);
        if own.is_some_and(|own| own == plan.number || own > plan.number && !counts) {
            return;
        }
        let file = self.plans.map.objects.file(&plan.object).cloned();
        if file.as_ref().is_some_and(|file| !plan.is_valid(file.segments)) {
            return;
        }
        let gives_way = self.newer_version(&plan.object).is_some();
        match file.filter(|_| !plan.is_end() && !gives_way) {
            Some(file) => {
                let (plans, mut cx) = self.planning();
                plans.activate(&mut cx, &file, plan);
            }
            None => self.end_plan(&plan.object),
        }
    }

    /// Forgets a file that another controller has withdrawn. That controller records the end of the
    /// plan.
    pub fn forget_file(&mut self, name: &Name) {
        self.plans.map.objects.remove_file(name);
        self.plans.demand.forget(name);
        self.end_plan(name);
    }

    /// The configuration of a router. None if the router is unknown or has none yet.
    pub fn configuration(&self, name: &str) -> Option<Configuration> {
        if self.is_waiting() {
            return None;
        }
        let Self { config, registry, plans, routing } = self;
        let sources =
            ConfigurationSources { config, network: &registry.network, map: &plans.map, routing };
        sources.configuration(name)
    }

    /// Whether the controller gives no configurations and makes no plans at present: routers may
    /// not have reported yet, or another controller has more routers.
    pub fn is_waiting(&self) -> bool {
        self.registry.is_waiting()
    }

    /// The generation of a router's configuration, 0 if it has none.
    pub fn generation_of(&self, name: &str) -> u64 {
        self.registry.generation_of(name)
    }

    /// The highest number of a plan or a configuration. It rises with every change of a
    /// configuration.
    pub fn generation(&self) -> u64 {
        self.registry.generation()
    }

    /// The present routers with their latest reports.
    pub fn routers(&self) -> impl Iterator<Item = (&str, &RouterReport)> {
        self.registry.network.routers.iter().map(|(name, router)| (name.as_str(), &router.report))
    }

    /// The links between present routers.
    pub fn links(&self) -> Vec<Link> {
        self.registry.network.links()
    }

    pub fn links_count(&self) -> usize {
        self.routing.graph.links_count()
    }

    /// The registered files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.plans.map.objects.files()
    }

    /// The next files in the order of names, among the next `objects_max` objects after `after`.
    /// The second value is the name to continue after, if there are more.
    pub fn files_after(
        &self,
        after: Option<&Name>,
        objects_max: usize,
    ) -> (Vec<&File>, Option<&Name>) {
        let objects: Vec<_> = self.plans.map.objects.after(after).take(objects_max).collect();
        let last = objects.last().map(|(name, _)| *name).filter(|_| objects.len() == objects_max);
        (objects.into_iter().filter_map(|(_, file)| file).collect(), last)
    }

    pub fn files_count(&self) -> usize {
        self.plans.map.objects.files_count()
    }

    /// A registered file.
    pub fn file(&self, name: &Name) -> Option<&File> {
        self.plans.map.objects.file(name)
    }

    /// Who has registered a file.
    pub fn owner(&self, name: &Name) -> Option<&str> {
        self.plans.map.objects.owner(name)
    }

    /// The newest version of a file by the same owner, if it is newer than this one. This file then
    /// has no plan.
    pub fn newer_version(&self, name: &Name) -> Option<&File> {
        self.plans.map.objects.newer_version(name)
    }

    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.map.plans().map(|active| &active.plan)
    }

    /// The segments of an object that each router holds, in the order of router names. Routers
    /// without segments are left out.
    pub fn holdings(&self, object: &Name) -> Vec<(&str, Segments)> {
        let holders = self.plans.map.objects.holders(object).into_iter();
        let mut holders: Vec<(&str, Segments)> =
            holders.map(|(id, held)| (self.registry.network.name_of(id), held)).collect();
        holders.sort_unstable_by_key(|(name, _)| *name);
        holders
    }
}

/// Checks the limits on one report.
fn check_sizes(report: &RouterReport) -> Result<(), ControlError> {
    for (count, what, max) in [
        (report.uris.len(), "addresses of this router", URIS_MAX),
        (report.faces.len(), "faces of this router", FACES_MAX),
        (report.prefixes.len(), "prefixes of this router", PREFIXES_MAX),
        (report.problems.len(), "problems of this router", PROBLEMS_MAX),
    ] {
        if count > max {
            return Err(ControlError::TooMany { what, max });
        }
    }
    Ok(())
}

/// The limits on the holdings that a router may report. A router with several workers reports the
/// memory that it can guarantee for one object, at least a quarter of its store. All of the store
/// may be full, so four times as much is accepted.
fn holdings_limits(config: &ControllerConfig, report: &RouterReport) -> Limits {
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
