//! Requests about the store. They are sent to every worker thread, and the answers are merged.

mod marks;
mod merge;
mod objects;
mod pins;
mod shares;

use std::collections::BTreeMap;
use std::time::Duration;

use weir_base::Instant;
use weir_face::unix_time_ms;
use weir_forward::{Command, StoreCommand, StoreEvent};
use weir_manage::{ContentsAnswer, ContentsTask, ManagerInput};
use weir_store::{
    HoldingChanges, HoldingsConfig, ObjectList, ObjectQuery, ObjectTable, Rules, RulesError,
    keep_bytes_max,
};
use weir_wire::Name;

use self::marks::{BATCH_VISITS, MarkJob};
use self::merge::{merge_changes, merge_pages};
use self::objects::{LISTS_MAX, ObjectsJob, PAGE_VISITS, table_bytes_max};
use self::pins::Pins;
use self::shares::{PinnedRules, shares};
use super::workers::Workers;
use crate::contents_request::{
    ContentsError, ContentsPage, ContentsReply, ContentsRequest, ReplySender,
};

/// Maximum number of requests that wait for worker threads.
const JOBS_MAX: usize = 64;
/// Time that worker threads have to answer a management request.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the answer goes.
enum Requester {
    Thread(ReplySender),
    /// Answered with [`ManagerInput::Holdings`].
    Manager {
        txn: u64,
    },
    /// Answered with [`ManagerInput::Contents`].
    Operator {
        txn: u64,
    },
}

/// The kind of request to the shards.
enum JobKind {
    Page,
    Objects(Box<ObjectsJob>),
    Mark(Box<MarkJob>),
    /// `count` is the answer.
    Rules {
        count: u64,
    },
    /// `is_restart`: this batch begins a new generation with all holdings.
    Changes {
        blocks_max: usize,
        is_restart: bool,
    },
}

/// A request that some shards have not answered.
struct Job {
    requester: Requester,
    kind: JobKind,
    /// Shards that have not answered, one bit each.
    waiting: u64,
    deadline: Instant,
    replies: Vec<(u16, StoreEvent)>,
}

/// Pending requests, and the settings in force.
pub(super) struct Contents {
    workers: Workers,
    jobs: BTreeMap<u64, Job>,
    next_transaction: u64,
    tracking: Option<HoldingsConfig>,
    /// The plan of a controller.
    plan: Rules,
    pins: Pins,
    /// The number of the rules that the shards have, which combine plan and pins.
    rules_generation: u64,
    has_disks: bool,
    /// Bytes that these rules keep.
    kept_bytes: u64,
    /// Total capacity of the stores. Rules must fit into it.
    capacity_bytes: u64,
    /// Generation and number of each shard's last batch of changes. `None` before the first batch,
    /// and after a batch was lost.
    reported: Option<Vec<(u64, u64)>>,
    /// Generation of the whole router's changes, and number of its last batch.
    generation: u64,
    sequence: u64,
    /// The time of the present request.
    now: Instant,
}

impl Contents {
    pub(super) fn new(workers: Workers, capacity_bytes: u64, has_disks: bool) -> Self {
        Self {
            workers,
            jobs: BTreeMap::new(),
            next_transaction: 1,
            tracking: None,
            plan: Rules::default(),
            pins: Pins::default(),
            rules_generation: 0,
            kept_bytes: 0,
            has_disks,
            capacity_bytes,
            reported: None,
            generation: 0,
            sequence: 0,
            now: Instant::ZERO,
        }
    }

    /// The store has another capacity. Rules in force stay, even if they keep more than it allows.
    pub(super) fn set_capacity(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        if let Some(problem) = self.excess() {
            tracing::warn!("{problem}");
        }
    }

    /// Says that the rules in force keep more than the store allows, if they do. That happens when
    /// the store shrinks.
    pub(super) fn excess(&self) -> Option<String> {
        let bytes_max = keep_bytes_max(self.capacity_bytes);
        (self.kept_bytes > bytes_max).then(|| {
            format!(
                "pins and rules keep up to {} MiB, but the store allows {} MiB: pinned Data is \
                 evicted, and new pins are refused until `weir cs unpin` or a larger store",
                self.kept_bytes.div_ceil(1 << 20),
                bytes_max >> 20
            )
        })
    }

    /// Earliest deadline of a pending request.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.jobs.values().map(|job| job.deadline).min()
    }

    /// Handles a request of another thread.
    pub(super) fn on_request(
        &mut self,
        now: Instant,
        question: ContentsRequest,
        within: Duration,
        answer: ReplySender,
    ) {
        self.now = now;
        let deadline = now.plus_ns(within.as_nanos() as u64);
        self.handle_request(question, deadline, Requester::Thread(answer));
    }

    /// Pins the prefixes of the configuration. Returns an error if they keep too much.
    pub(super) fn pin_declared(
        &mut self,
        now: Instant,
        pins: &[(Name, u64)],
    ) -> Result<(), ContentsError> {
        if pins.is_empty() {
            return Ok(());
        }
        let pins = pins
            .iter()
            .fold(Pins::default(), |all, (prefix, bytes_max)| all.with(prefix.clone(), *bytes_max));
        let deadline = now.plus_ns(MANAGER_TIMEOUT.as_nanos() as u64);
        let (answer, refused) = crossbeam_channel::bounded(1);
        self.set_rules(Rules::default(), pins, 0, deadline, Requester::Thread(answer));
        // The rules are checked before they are sent, so a refusal is there already.
        refused.try_recv().map_or(Ok(()), |result| result.map(drop))
    }

    /// Lists holdings of an object for a management client.
    pub(super) fn list_holdings(
        &mut self,
        now: Instant,
        txn: u64,
        object: Name,
    ) -> Option<ManagerInput> {
        if self.tracking.is_none() {
            self.track(Some(HoldingsConfig::default()));
        }
        let deadline = now.plus_ns(MANAGER_TIMEOUT.as_nanos() as u64);
        self.handle_request(
            ContentsRequest::ListOne { object },
            deadline,
            Requester::Manager { txn },
        )
    }

    /// Lists or changes contents for a management client.
    pub(super) fn run_task(
        &mut self,
        now: Instant,
        txn: u64,
        task: ContentsTask,
    ) -> Option<ManagerInput> {
        self.now = now;
        let deadline = now.plus_ns(MANAGER_TIMEOUT.as_nanos() as u64);
        let request = match task {
            ContentsTask::List(query) => ContentsRequest::Objects(query),
            ContentsTask::EvictFirst { prefix } => ContentsRequest::EvictFirst { prefix },
            ContentsTask::Pin { prefix, bytes_max } => ContentsRequest::Pin { prefix, bytes_max },
            ContentsTask::Unpin { prefix } => ContentsRequest::Unpin { prefix },
        };
        self.handle_request(request, deadline, Requester::Operator { txn })
    }

    /// Sends the request to the shards. Returns the reply to the manager, if it is known already.
    fn handle_request(
        &mut self,
        question: ContentsRequest,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        let result = match question {
            ContentsRequest::Track(config) => {
                self.track(config);
                Ok(ContentsReply::Done)
            }
            ContentsRequest::RestartChanges => {
                self.reported = None;
                Ok(ContentsReply::Done)
            }
            ContentsRequest::StopChanges => {
                self.reported = None;
                self.send_stores(|| StoreCommand::StopChanges);
                Ok(ContentsReply::Done)
            }
            ContentsRequest::WatchMisses(watches) => {
                self.workers.send_all_shards(|| Command::ReportMisses(watches));
                Ok(ContentsReply::Done)
            }
            // All requests below wait for shards.
            _ if self.jobs.len() >= JOBS_MAX => Err(ContentsError::Busy),
            ContentsRequest::List { prefix, from, visits_max } => {
                let cursors = from.map(|from| from.shards);
                return self.start_job(JobKind::Page, deadline, asked_by, |transaction, shard| {
                    let from = match &cursors {
                        None => Default::default(),
                        Some(cursors) => (*cursors.get(shard)?)?,
                    };
                    let prefix = prefix.clone();
                    Some(StoreCommand::List { transaction, prefix, from, objects_max: visits_max })
                });
            }
            ContentsRequest::ListOne { object } => {
                return self.start_job(JobKind::Page, deadline, asked_by, |transaction, _| {
                    Some(StoreCommand::ListObject { transaction, object: object.clone() })
                });
            }
            ContentsRequest::Objects(_) if self.lists() >= LISTS_MAX => Err(ContentsError::Busy),
            ContentsRequest::Objects(query) => {
                let job = self.objects_job(query);
                return self.request_objects(job, deadline, asked_by);
            }
            ContentsRequest::EvictFirst { prefix } => {
                let job = MarkJob::new(self.now, prefix, self.workers.count());
                return self.request_marks(Box::new(job), deadline, asked_by);
            }
            ContentsRequest::Pin { prefix, bytes_max } => {
                let pins = self.pins.with(prefix, bytes_max);
                return self.set_rules(self.plan.clone(), pins, bytes_max, deadline, asked_by);
            }
            ContentsRequest::Unpin { prefix } => match self.pins.bytes_max(&prefix) {
                Some(bytes) => {
                    let pins = self.pins.without(&prefix);
                    return self.set_rules(self.plan.clone(), pins, bytes, deadline, asked_by);
                }
                None => Err(ContentsError::NotPinned(prefix)),
            },
            ContentsRequest::TakeChanges { blocks_max } => {
                return self.take_changes(blocks_max, deadline, asked_by);
            }
            ContentsRequest::SetRules(plan) => return self.set_plan(plan, deadline, asked_by),
        };
        send_reply(asked_by, result)
    }

    fn take_changes(
        &mut self,
        blocks_max: usize,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        match self.start_changes(blocks_max) {
            Ok(kind) => self.start_job(kind, deadline, asked_by, |transaction, _| {
                Some(StoreCommand::TakeChanges { transaction, blocks_max })
            }),
            Err(error) => send_reply(asked_by, Err(error)),
        }
    }

    fn set_plan(
        &mut self,
        plan: Rules,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        match self.check_plan(&plan) {
            Ok(false) => send_reply(asked_by, Ok(ContentsReply::Done)),
            Ok(true) => self.set_rules(plan, self.pins.clone(), 0, deadline, asked_by),
            Err(refused) => send_reply(asked_by, Err(refused.into())),
        }
    }

    /// The job of a list of objects. The first list starts the index of disks.
    fn objects_job(&mut self, query: ObjectQuery) -> Box<ObjectsJob> {
        if self.has_disks && self.tracking.is_none() {
            self.track(Some(HoldingsConfig::default()));
        }
        let (bytes_max, key) = (table_bytes_max(self.capacity_bytes), *self.workers.shard_key());
        let table = ObjectTable::new(self.now, query, bytes_max, key);
        Box::new(ObjectsJob::new(table, self.workers.count()))
    }

    /// The number of lists of objects in progress.
    fn lists(&self) -> usize {
        self.jobs.values().filter(|job| matches!(job.kind, JobKind::Objects(_))).count()
    }

    /// Requests the next page of objects from each shard that has one.
    fn request_objects(
        &mut self,
        job: Box<ObjectsJob>,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        let prefix = job.table.query().prefix.clone();
        let cursors: Vec<_> =
            (0..usize::from(self.workers.count())).map(|shard| job.cursor(shard)).collect();
        self.start_job(JobKind::Objects(job), deadline, asked_by, |transaction, shard| {
            let (from, prefix) = (cursors[shard]?, prefix.clone());
            Some(StoreCommand::ListObjects { transaction, prefix, from, visits_max: PAGE_VISITS })
        })
    }

    /// Requests the next batch of marks from each shard that is not finished.
    fn request_marks(
        &mut self,
        job: Box<MarkJob>,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        let prefix = job.prefix.clone();
        let positions: Vec<_> =
            (0..usize::from(self.workers.count())).map(|shard| job.from(shard)).collect();
        self.start_job(JobKind::Mark(job), deadline, asked_by, |transaction, shard| {
            let (from, prefix) = (positions[shard]?, prefix.clone());
            Some(StoreCommand::EvictFirst { transaction, prefix, from, visits_max: BATCH_VISITS })
        })
    }

    /// Puts a plan and pins into force. `count` is the answer to an operator.
    fn set_rules(
        &mut self,
        plan: Rules,
        pins: Pins,
        count: u64,
        deadline: Instant,
        asked_by: Requester,
    ) -> Option<ManagerInput> {
        let rules = pins.combine(&plan, self.rules_generation + 1);
        let pinned = PinnedRules { rules: &rules, pins: pins.list().len() };
        let mut shares = match self.shares_of(pinned) {
            Ok(shares) => shares,
            Err(refused) => return send_reply(asked_by, Err(refused.into())),
        };
        self.kept_bytes = rules.kept_bytes();
        (self.plan, self.pins, self.rules_generation) = (plan, pins, rules.generation);
        self.start_job(JobKind::Rules { count }, deadline, asked_by, |transaction, shard| {
            let rules = std::mem::take(&mut shares[shard]);
            Some(StoreCommand::SetRules { transaction, rules })
        })
    }

    /// Starts or stops the index of holdings.
    pub(super) fn track(&mut self, config: Option<HoldingsConfig>) {
        if self.tracking == config {
            return;
        }
        self.tracking = config;
        self.reported = None;
        let shards = u64::from(self.workers.count());
        let share = config.map(|config| HoldingsConfig { bytes_max: config.bytes_max / shards });
        self.send_stores(|| StoreCommand::Track(share));
    }

    /// Counts hits of these prefixes from now on.
    pub(super) fn count_prefixes(&self, prefixes: &[Name]) {
        self.send_stores(|| StoreCommand::CountPrefixes(prefixes.to_vec()));
    }

    fn send_stores(&self, mut command: impl FnMut() -> StoreCommand) {
        self.workers.send_all_shards(|| Command::Store(command()));
    }

    /// Sends `command` to each shard for which it returns a command, and waits for their answers.
    fn start_job(
        &mut self,
        kind: JobKind,
        deadline: Instant,
        asked_by: Requester,
        mut command: impl FnMut(u64, usize) -> Option<StoreCommand>,
    ) -> Option<ManagerInput> {
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        // One bit for each shard: there are at most 64 (`THREADS_MAX`).
        let mut waiting = 0;
        for shard in 0..self.workers.count() {
            if let Some(command) = command(transaction, usize::from(shard)) {
                waiting |= 1 << shard;
                self.workers.send_shard(shard, Command::Store(command));
            }
        }
        let job = Job { requester: asked_by, kind, waiting, deadline, replies: Vec::new() };
        if waiting == 0 {
            return self.finish_job(job);
        }
        self.jobs.insert(transaction, job);
        None
    }

    /// Handles the answer of one shard. Returns the reply to the manager if this was the last
    /// answer.
    pub(super) fn on_event(
        &mut self,
        now: Instant,
        worker: u16,
        event: StoreEvent,
    ) -> Option<ManagerInput> {
        self.now = now;
        let (StoreEvent::Listed { transaction, .. }
        | StoreEvent::Objects { transaction, .. }
        | StoreEvent::Marked { transaction, .. }
        | StoreEvent::Changed { transaction, .. }
        | StoreEvent::RulesSet { transaction, .. }) = event;
        let job = self.jobs.get_mut(&transaction)?;
        job.waiting &= !(1 << worker);
        job.replies.push((worker, event));
        if job.waiting != 0 {
            return None;
        }
        let job = self.jobs.remove(&transaction)?;
        self.finish_job(job)
    }

    /// Finishes requests whose deadline has passed. Returns replies to the manager.
    pub(super) fn run_timers(&mut self, now: Instant) -> Vec<ManagerInput> {
        let late = self.jobs.iter().filter(|(_, job)| job.deadline <= now);
        let late: Vec<u64> = late.map(|(&transaction, _)| transaction).collect();
        let late: Vec<Job> = late.iter().filter_map(|id| self.jobs.remove(id)).collect();
        late.into_iter().filter_map(|job| self.finish_job(job)).collect()
    }

    fn finish_job(&mut self, job: Job) -> Option<ManagerInput> {
        let Job { requester: asked_by, kind, waiting, deadline, replies: parts } = job;
        let result = match kind {
            JobKind::Page => merge_pages(parts, usize::from(self.workers.count()), waiting)
                .map(ContentsReply::Page),
            JobKind::Objects(mut job) => {
                if job.add(parts, waiting) {
                    return self.request_objects(job, deadline, asked_by);
                }
                let pins = self.pins.list().to_vec();
                Ok(ContentsReply::Objects(ObjectList { pins, ..job.table.into_list() }))
            }
            JobKind::Mark(mut job) => {
                let has_more = job.add(parts);
                if waiting != 0 {
                    Err(ContentsError::TimedOut)
                } else if has_more {
                    // The time counts for each batch, since a large store has many.
                    let deadline = self.now.plus_ns(MANAGER_TIMEOUT.as_nanos() as u64);
                    let deadline = deadline.min(job.until);
                    return self.request_marks(job, deadline, asked_by);
                } else {
                    Ok(ContentsReply::Count(job.packets))
                }
            }
            JobKind::Rules { count } => rules_result(parts, waiting, count),
            JobKind::Changes { .. } if waiting != 0 => {
                self.reported = None;
                Err(ContentsError::TimedOut)
            }
            JobKind::Changes { blocks_max, is_restart } => {
                match self.merge_changes(parts, is_restart) {
                    Ok(Some(changes)) => Ok(ContentsReply::Changes(changes)),
                    // A shard has started a new generation by itself, so all shards must.
                    Ok(None) if !is_restart => {
                        self.send_stores(|| StoreCommand::RestartChanges);
                        let kind = JobKind::Changes { blocks_max, is_restart: true };
                        return self.start_job(kind, deadline, asked_by, |transaction, _| {
                            Some(StoreCommand::TakeChanges { transaction, blocks_max })
                        });
                    }
                    Ok(None) => Err(ContentsError::TimedOut),
                    Err(error) => Err(error),
                }
            }
        };
        send_reply(asked_by, result)
    }

    /// Checks that changes can be requested now.
    fn start_changes(&mut self, blocks_max: usize) -> Result<JobKind, ContentsError> {
        if self.tracking.is_none() {
            return Err(ContentsError::NotTracked);
        }
        let is_changes = |job: &Job| matches!(job.kind, JobKind::Changes { .. });
        if self.jobs.values().any(is_changes) {
            return Err(ContentsError::Busy);
        }
        let is_restart = self.reported.is_none();
        if is_restart {
            self.send_stores(|| StoreCommand::RestartChanges);
        }
        Ok(JobKind::Changes { blocks_max, is_restart })
    }

    /// Merges the shards' changes. Returns `None` if a shard has started a generation that the
    /// others have not.
    fn merge_changes(
        &mut self,
        parts: Vec<(u16, StoreEvent)>,
        is_restart: bool,
    ) -> Result<Option<HoldingChanges>, ContentsError> {
        let mut batches = Vec::with_capacity(parts.len());
        for (shard, event) in parts {
            let StoreEvent::Changed { changes: Some(changes), .. } = event else {
                self.reported = None;
                return Err(ContentsError::NotTracked);
            };
            batches.push((shard, changes));
        }
        batches.sort_by_key(|(shard, _)| *shard);
        let at: Vec<_> = batches.iter().map(|(_, one)| (one.generation, one.sequence)).collect();
        // Each shard's batch must follow the last one that it reported, in the same generation.
        // After a restart, each must be the first of its generation.
        let follows = match (&self.reported, is_restart) {
            (Some(reported), false) => {
                let next =
                    reported.iter().map(|&(generation, sequence)| (generation, sequence + 1));
                next.eq(at.iter().copied())
            }
            _ => at.iter().all(|&(_, sequence)| sequence == 1),
        };
        if !follows {
            self.reported = None;
            return Ok(None);
        }
        if is_restart {
            // Later than any generation of a previous run of this router.
            self.generation = unix_time_ms().max(self.generation + 1);
            self.sequence = 0;
        }
        self.sequence += 1;
        self.reported = Some(at);
        let batches = batches.into_iter().map(|(_, changes)| changes);
        Ok(Some(merge_changes(batches, self.generation, self.sequence)))
    }

    /// Whether a plan is new. A plan that is in force already is not.
    fn check_plan(&self, plan: &Rules) -> Result<bool, RulesError> {
        if *plan == self.plan {
            return Ok(false);
        }
        let (offered, present) = (plan.generation, self.plan.generation);
        if offered <= present {
            return Err(RulesError::Outdated { offered, present });
        }
        Ok(true)
    }

    /// Each shard's share of rules. Every reason for which a shard could reject its share is
    /// checked here, before any is sent.
    ///
    /// After the store has shrunk, the rules in force may keep more than it allows. Rules that keep
    /// no more than those are accepted, because otherwise pins could be removed only all at once.
    /// The shares are reduced to what each shard allows.
    fn shares_of(&self, pinned: PinnedRules<'_>) -> Result<Vec<Rules>, RulesError> {
        let capacity_bytes = self.capacity_bytes;
        let keeps_no_more = pinned.rules.kept_bytes() <= self.kept_bytes;
        pinned.rules.check(if keeps_no_more { u64::MAX } else { capacity_bytes })?;
        let shards = self.workers.count();
        let shares = shares(pinned, self.workers.shard_key(), shards, capacity_bytes);
        for share in &shares {
            share.check(capacity_bytes / u64::from(shards))?;
        }
        Ok(shares)
    }
}

/// Sends a reply to the requesting thread, or returns it for the manager.
fn send_reply(
    asked_by: Requester,
    result: Result<ContentsReply, ContentsError>,
) -> Option<ManagerInput> {
    match asked_by {
        Requester::Thread(answer) => {
            // The thread may have stopped waiting.
            let _ = answer.send(result);
            None
        }
        Requester::Manager { txn } => {
            let page = match result {
                Ok(ContentsReply::Page(page)) => page,
                _ => ContentsPage { is_partial: true, ..ContentsPage::default() },
            };
            let (holdings, is_partial) = (page.holdings, page.is_partial);
            Some(ManagerInput::Holdings { txn, holdings, is_partial })
        }
        Requester::Operator { txn } => {
            let answer = match result {
                Ok(ContentsReply::Objects(list)) => ContentsAnswer::List(list),
                Ok(ContentsReply::Count(count)) => ContentsAnswer::Done(count),
                Ok(_) => ContentsAnswer::Done(0),
                Err(error) => ContentsAnswer::Refused(error.to_string()),
            };
            Some(ManagerInput::Contents { txn, answer })
        }
    }
}

fn rules_result(
    parts: Vec<(u16, StoreEvent)>,
    waiting: u64,
    count: u64,
) -> Result<ContentsReply, ContentsError> {
    for (shard, event) in parts {
        if let StoreEvent::RulesSet { refused: Some(refused), .. } = event {
            // The rules were checked before, so the two checks disagree.
            tracing::error!(shard, %refused, "a worker thread rejects rules that passed the check");
            return Err(refused.into());
        }
    }
    if waiting == 0 { Ok(ContentsReply::Count(count)) } else { Err(ContentsError::TimedOut) }
}
