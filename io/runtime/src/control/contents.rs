//! Questions about the store: asked of every packet thread, answered as one.

mod merge;
mod shares;

use std::time::Duration;

use weir_base::Instant;
use weir_face::unix_time_ms;
use weir_forward::{Command, StoreCommand, StoreEvent};
use weir_manage::ManagerInput;
use weir_store::{HoldingChanges, HoldingsConfig, Rules, RulesRefused};
use weir_wire::Name;

use self::merge::{merge_changes, merge_pages};
use self::shares::shares;
use super::Control;
use crate::message::ToWorker;
use crate::questions::{Answer, AnswerTo, ContentsError, ContentsPage, Question};

/// Questions that wait for packet threads at most.
const JOBS_MAX: usize = 64;
/// How long packet threads have to answer a management client.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Who asked.
enum AskedBy {
    Thread(AnswerTo),
    Manager { txn: u64 },
}

/// What was asked of every shard.
enum Kind {
    Page,
    Rules,
    /// Whether all that is held is told anew.
    Changes {
        blocks_max: usize,
        is_anew: bool,
    },
}

/// A question that some threads have not answered yet.
pub(super) struct Job {
    asked_by: AskedBy,
    kind: Kind,
    /// Shards still to answer, a bit for each.
    waiting: u64,
    deadline: Instant,
    parts: Vec<(u16, StoreEvent)>,
}

/// What is known of the store's contents beside the jobs.
#[derive(Default)]
pub(super) struct State {
    jobs: std::collections::BTreeMap<u64, Job>,
    tracking: Option<HoldingsConfig>,
    rules: Rules,
    /// Generation and number of the last batch of changes of each shard; none before the first,
    /// and after one that got lost.
    told: Option<Vec<(u64, u64)>>,
    /// The same of the whole router.
    generation: u64,
    sequence: u64,
}

impl State {
    /// When a question is answered at the latest.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.jobs.values().map(|job| job.deadline).min()
    }
}

impl Control {
    /// What the configuration asks for.
    pub(super) fn start_contents(&mut self) {
        if self.config.management.holdings_for_neighbours {
            self.track(Some(HoldingsConfig::default()));
        }
    }

    /// A question of another thread.
    pub(super) fn on_question(
        &mut self,
        now: Instant,
        question: Question,
        within: Duration,
        answer: AnswerTo,
    ) {
        let deadline = now.plus_ns(within.as_nanos() as u64);
        self.ask_contents(question, deadline, AskedBy::Thread(answer));
    }

    /// A management client wants to know what is held of an object.
    pub(super) fn list_holdings(&mut self, txn: u64, object: Name) {
        if self.contents.tracking.is_none() {
            self.track(Some(HoldingsConfig::default()));
        }
        let deadline = self.clock.now().plus_ns(MANAGER_TIMEOUT.as_nanos() as u64);
        self.ask_contents(Question::ListOne { object }, deadline, AskedBy::Manager { txn });
    }

    fn ask_contents(&mut self, question: Question, deadline: Instant, asked_by: AskedBy) {
        let result = match question {
            Question::Track(config) => {
                self.track(config);
                Ok(Answer::Done)
            }
            Question::RestartChanges => {
                // The next changes see to it.
                self.contents.told = None;
                Ok(Answer::Done)
            }
            Question::StopChanges => {
                self.contents.told = None;
                self.tell_stores(|_| StoreCommand::StopChanges);
                Ok(Answer::Done)
            }
            Question::WatchMisses(watches) => {
                self.tell_all(|| ToWorker::Router(Command::WatchMisses(watches)));
                Ok(Answer::Done)
            }
            _ if self.contents.jobs.len() >= JOBS_MAX => Err(ContentsError::Busy),
            Question::List { prefix, from, visits_max } => {
                let cursors = from.map(|from| from.shards);
                return self.start_job(Kind::Page, deadline, asked_by, |transaction, shard| {
                    let from = match &cursors {
                        None => Default::default(),
                        Some(cursors) => (*cursors.get(shard)?)?,
                    };
                    let prefix = prefix.clone();
                    Some(StoreCommand::List { transaction, prefix, from, visits_max })
                });
            }
            Question::ListOne { object } => {
                return self.start_job(Kind::Page, deadline, asked_by, |transaction, _| {
                    Some(StoreCommand::ListOne { transaction, object: object.clone() })
                });
            }
            Question::TakeChanges { blocks_max } => match self.start_changes(blocks_max) {
                Ok(kind) => {
                    let take = |transaction, _| {
                        Some(StoreCommand::TakeChanges { transaction, blocks_max })
                    };
                    return self.start_job(kind, deadline, asked_by, take);
                }
                Err(error) => Err(error),
            },
            Question::SetRules(rules) => match self.check_rules(rules) {
                Ok(None) => Ok(Answer::Done),
                Ok(Some(mut shares)) => {
                    return self.start_job(
                        Kind::Rules,
                        deadline,
                        asked_by,
                        |transaction, shard| {
                            let rules = std::mem::take(&mut shares[shard]);
                            Some(StoreCommand::SetRules { transaction, rules })
                        },
                    );
                }
                Err(refused) => Err(refused.into()),
            },
        };
        self.answer_contents(asked_by, result);
    }

    fn track(&mut self, config: Option<HoldingsConfig>) {
        if self.contents.tracking == config {
            return;
        }
        self.contents.tracking = config;
        self.contents.told = None;
        let shards = self.workers.len() as u64;
        let share = config.map(|config| HoldingsConfig { bytes_max: config.bytes_max / shards });
        self.tell_stores(|_| StoreCommand::Track(share));
    }

    fn tell_stores(&self, mut command: impl FnMut(usize) -> StoreCommand) {
        for (shard, worker) in self.workers.iter().enumerate() {
            worker.send(ToWorker::Router(Command::Store(command(shard))));
        }
    }

    /// Asks the shards for which there is a command.
    fn start_job(
        &mut self,
        kind: Kind,
        deadline: Instant,
        asked_by: AskedBy,
        mut command: impl FnMut(u64, usize) -> Option<StoreCommand>,
    ) {
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        let mut waiting = 0;
        for (shard, worker) in self.workers.iter().enumerate() {
            if let Some(command) = command(transaction, shard) {
                waiting |= 1 << shard;
                worker.send(ToWorker::Router(Command::Store(command)));
            }
        }
        let job = Job { asked_by, kind, waiting, deadline, parts: Vec::new() };
        if waiting == 0 {
            return self.finish_job(job);
        }
        self.contents.jobs.insert(transaction, job);
    }

    /// An answer of one shard.
    pub(super) fn on_store_event(&mut self, worker: u16, event: StoreEvent) {
        let (StoreEvent::Listed { transaction, .. }
        | StoreEvent::Changed { transaction, .. }
        | StoreEvent::RulesSet { transaction, .. }) = event;
        let Some(job) = self.contents.jobs.get_mut(&transaction) else { return };
        job.waiting &= !(1 << worker);
        job.parts.push((worker, event));
        if job.waiting == 0
            && let Some(job) = self.contents.jobs.remove(&transaction)
        {
            self.finish_job(job);
        }
    }

    /// Answers what has waited long enough.
    pub(super) fn run_contents_timers(&mut self, now: Instant) {
        let late = |job: &Job| job.deadline <= now;
        let jobs = &self.contents.jobs;
        let late: Vec<u64> =
            jobs.iter().filter(|(_, job)| late(job)).map(|(&transaction, _)| transaction).collect();
        for transaction in late {
            if let Some(job) = self.contents.jobs.remove(&transaction) {
                self.finish_job(job);
            }
        }
    }

    fn finish_job(&mut self, job: Job) {
        let Job { asked_by, kind, waiting, deadline, parts } = job;
        let result = match kind {
            Kind::Page => merge_pages(parts, self.workers.len(), waiting).map(Answer::Page),
            Kind::Rules => rules_result(parts, waiting),
            Kind::Changes { .. } if waiting != 0 => {
                self.contents.told = None;
                Err(ContentsError::Late)
            }
            Kind::Changes { blocks_max, is_anew } => {
                match self.merge_changes(parts, is_anew) {
                    Ok(Some(changes)) => Ok(Answer::Changes(changes)),
                    // A shard has begun anew by itself: all do.
                    Ok(None) if !is_anew => {
                        self.tell_stores(|_| StoreCommand::RestartChanges);
                        let kind = Kind::Changes { blocks_max, is_anew: true };
                        return self.start_job(kind, deadline, asked_by, |transaction, _| {
                            Some(StoreCommand::TakeChanges { transaction, blocks_max })
                        });
                    }
                    Ok(None) => Err(ContentsError::Late),
                    Err(error) => Err(error),
                }
            }
        };
        self.answer_contents(asked_by, result);
    }

    fn answer_contents(&mut self, asked_by: AskedBy, result: Result<Answer, ContentsError>) {
        match asked_by {
            // Whoever asked may have gone.
            AskedBy::Thread(answer) => drop(answer.send(result)),
            AskedBy::Manager { txn } => {
                let page = match result {
                    Ok(Answer::Page(page)) => page,
                    _ => ContentsPage { is_partial: true, ..ContentsPage::default() },
                };
                let (holdings, is_partial) = (page.holdings, page.is_partial);
                self.manager_inputs.push_back(ManagerInput::Holdings { txn, holdings, is_partial });
            }
        }
    }

    /// Before changes are asked for.
    fn start_changes(&mut self, blocks_max: usize) -> Result<Kind, ContentsError> {
        if self.contents.tracking.is_none() {
            return Err(ContentsError::NotTracked);
        }
        let is_changes = |job: &Job| matches!(job.kind, Kind::Changes { .. });
        if self.contents.jobs.values().any(is_changes) {
            return Err(ContentsError::Busy);
        }
        let is_anew = self.contents.told.is_none();
        if is_anew {
            self.tell_stores(|_| StoreCommand::RestartChanges);
        }
        Ok(Kind::Changes { blocks_max, is_anew })
    }

    /// The shards' changes as those of one router; nothing if a shard has begun a generation that
    /// the others have not.
    fn merge_changes(
        &mut self,
        parts: Vec<(u16, StoreEvent)>,
        is_anew: bool,
    ) -> Result<Option<HoldingChanges>, ContentsError> {
        let mut batches = Vec::with_capacity(parts.len());
        for (shard, event) in parts {
            let StoreEvent::Changed { changes: Some(changes), .. } = event else {
                self.contents.told = None;
                return Err(ContentsError::NotTracked);
            };
            batches.push((shard, changes));
        }
        batches.sort_by_key(|(shard, _)| *shard);
        let at: Vec<_> = batches.iter().map(|(_, one)| (one.generation, one.sequence)).collect();
        let follows = match (&self.contents.told, is_anew) {
            (Some(told), false) => {
                let next = told.iter().map(|&(generation, sequence)| (generation, sequence + 1));
                next.eq(at.iter().copied())
            }
            _ => at.iter().all(|&(_, sequence)| sequence == 1),
        };
        if !follows {
            self.contents.told = None;
            return Ok(None);
        }
        let state = &mut self.contents;
        if is_anew {
            // Higher than any of a router that ran here before.
            state.generation = unix_time_ms().max(state.generation + 1);
            state.sequence = 0;
        }
        state.sequence += 1;
        state.told = Some(at);
        let batches = batches.into_iter().map(|(_, changes)| changes);
        Ok(Some(merge_changes(batches, state.generation, state.sequence)))
    }

    /// The share of each shard of new rules; nothing if they are in force already. All that could
    /// make a shard refuse its share is looked at before the first is told.
    fn check_rules(&mut self, rules: Rules) -> Result<Option<Vec<Rules>>, RulesRefused> {
        if rules == self.contents.rules {
            return Ok(None);
        }
        let (offered, present) = (rules.generation, self.contents.rules.generation);
        if offered <= present {
            return Err(RulesRefused::Outdated { offered, present });
        }
        let capacity_bytes = self.config.store.capacity_bytes;
        rules.check(capacity_bytes)?;
        let shards = self.workers.len() as u16;
        let shares = shares(&rules, &self.shard_key, shards, capacity_bytes);
        for share in &shares {
            share.check(capacity_bytes / u64::from(shards))?;
        }
        self.contents.rules = rules;
        Ok(Some(shares))
    }
}

fn rules_result(parts: Vec<(u16, StoreEvent)>, waiting: u64) -> Result<Answer, ContentsError> {
    for (shard, event) in parts {
        if let StoreEvent::RulesSet { refused: Some(refused), .. } = event {
            // They were checked before, so that this is a disagreement between two parts of ours.
            tracing::error!(shard, %refused, "a packet thread refuses rules that were checked");
            return Err(refused.into());
        }
    }
    if waiting == 0 { Ok(Answer::Done) } else { Err(ContentsError::Late) }
}
