//! The thread that reports to the controller: the router's state, the holdings of its store, and
//! large objects that it lacks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_client::Client;
use weir_control::Segments;
use weir_control::message::{Change, RouterReport, Tier, Update, UpdateNumber};
use weir_runtime::{ContentsError, MissReports};
use weir_store::{HoldingChange, HoldingsConfig, SegmentRange, Tier as StoreTier};
use weir_wire::Name;

use crate::config::AgentConfig;
use crate::questions::Questions;
use crate::report::{ReportBuilder, is_same_but_load};
use crate::rest::{RestError, RouterClient};
use crate::retry_waits::RetryWaits;
use crate::shared::{AgentShared, unix_time_ms};

/// Memory in bytes for the index of holdings, for the memory tier and the disk tier each.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of ranges of 64 segments in one update, for each tier of each worker.
const BLOCKS_MAX: usize = 1024;
/// How long the router may take to answer.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(2);

/// The thread, with what it has reported so far.
pub(crate) struct ReportThread {
    rest: RouterClient,
    shared: Arc<AgentShared>,
    backoff: RetryWaits,
    uris: Vec<String>,
    instance: u64,
    interval: Duration,
    watches: MissReports,
    client: Option<Client>,
    reporter: ReportBuilder,
    /// The last report that the controller has, and when the next report is due even without a
    /// change.
    reported: Option<(RouterReport, Instant)>,
    updates: UpdateQueue,
    questions: Questions,
}

/// The numbering of updates. At most one update is unacknowledged.
#[derive(Default)]
struct UpdateQueue {
    /// The last update that the controller accepted.
    last_accepted: UpdateNumber,
    /// An update that was read from the store and that the controller has not acknowledged.
    pending: Option<Update>,
    /// Whether the store has more changes already.
    has_more: bool,
    /// An update has at most `BLOCKS_MAX >> batch_shift` ranges. Grows when the controller rejects
    /// an update, which may be too large.
    batch_shift: u32,
}

impl ReportThread {
    pub(crate) fn new(
        config: &AgentConfig,
        rest: RouterClient,
        shared: Arc<AgentShared>,
        backoff: RetryWaits,
        instance: u64,
    ) -> Self {
        Self {
            rest,
            shared,
            backoff,
            uris: config.uris.clone(),
            instance,
            interval: config.interval,
            watches: match config.asks_for_hosts {
                true => MissReports::All,
                false => MissReports::Local,
            },
            client: None,
            reporter: ReportBuilder::new(config.rates_bps.clone()),
            reported: None,
            updates: UpdateQueue::default(),
            questions: Questions::default(),
        }
    }

    pub(crate) fn run(mut self) {
        let config = HoldingsConfig { bytes_max: INDEX_BYTES_MAX };
        let contents = self.shared.contents.clone();
        let started = contents
            .track(Some(config), ROUTER_TIMEOUT)
            .and_then(|()| contents.watch_misses(self.watches, ROUTER_TIMEOUT));
        if let Err(error) = started {
            tracing::warn!(
                %error,
                "the store reports no holdings; the controller gets none from this router"
            );
        }
        while !self.shared.is_stopping() {
            match self.report_all() {
                Ok(()) => {
                    if self.backoff.reset() {
                        tracing::info!("the controller answers again");
                        self.shared.wake_point().note_reconnect();
                    }
                    self.handle_misses();
                }
                Err(error) if error.is_bad_answer() => {
                    let _ = self.backoff.next(None);
                    if self.backoff.is_first() {
                        tracing::warn!(
                            %error,
                            "the controller's answer cannot be used; the present configuration \
                             stays"
                        );
                    }
                    self.handle_misses();
                }
                Err(error) => {
                    let pause = self.backoff.next(error.retry_after());
                    // `report` has logged already that another router uses this name.
                    if self.backoff.is_first() && !error.is_name_taken() {
                        tracing::warn!(
                            %error,
                            "the controller cannot be used; the router keeps its present \
                             configuration"
                        );
                    }
                    if !self.shared.pause(pause) {
                        break;
                    }
                }
            }
        }
        // The router may continue without an agent.
        let _ = contents.watch_misses(MissReports::Off, ROUTER_TIMEOUT);
        let _ = contents.stop_changes(ROUTER_TIMEOUT);
    }

    /// Sends what is due: the report, and updates until the store has no more changes.
    fn report_all(&mut self) -> Result<(), RestError> {
        let reported = match self.report() {
            // The controller has accepted the report; only its answer is unusable.
            Err(error) if error.is_bad_answer() => Err(error),
            reported => Ok(reported?),
        };
        loop {
            match self.send_updates() {
                Ok(true) if !self.shared.is_stopping() => {}
                Ok(_) => return reported,
                Err(error) if error.is_unknown() && self.reported.is_some() => {
                    // A restarted controller does not know this router. If it answers 404 again,
                    // the next round retries.
                    self.reported = None;
                    self.report()?;
                    return self.send_updates().map(drop);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&mut self) -> Result<(), RestError> {
        let report = match self.build_report() {
            Ok(report) => report,
            Err(error) => {
                return Err(RestError::Unreachable(format!("the router's management: {error}")));
            }
        };
        // Loads change all the time, so they alone cause no report.
        let is_reported = self
            .reported
            .as_ref()
            .is_some_and(|(last, due)| is_same_but_load(last, &report) && Instant::now() < *due);
        if is_reported {
            return Ok(());
        }
        let is_first = self.reported.is_none();
        let mut answer = self.rest.report(&report);
        if answer.as_ref().is_err_and(RestError::is_bad_request) {
            // Older controllers refuse the unknown field `store_use`, and `instance` before that.
            let report = RouterReport { store_use: None, ..report.clone() };
            answer = self.rest.report(&report);
            if answer.as_ref().is_err_and(RestError::is_bad_request) {
                answer = self.rest.report(&RouterReport { instance: 0, ..report });
            }
        }
        match &answer {
            Ok(_) => self.shared.set_name_refused(false),
            Err(error) if error.is_name_taken() => {
                if !self.shared.is_name_refused() {
                    tracing::warn!(
                        %error,
                        "the controller cannot be used; the router keeps its present configuration"
                    );
                }
                self.shared.set_name_refused(true);
            }
            // Other errors do not show whether another router uses the name.
            Err(_) => {}
        }
        let registered = answer?;
        self.shared.counters.reports.fetch_add(1, Ordering::Relaxed);
        self.shared.note_reported(unix_time_ms());
        if is_first {
            tracing::info!(
                prefixes = report.prefixes.len(),
                "the controller has registered this router"
            );
            self.shared.wake_point().note_reconnect();
        }
        // Report three times within the controller's timeout. Retries must be as frequent: after a
        // restart, the controller waits only one timeout from the first report of any router.
        let pause = Duration::from_nanos(registered.timeout_ns) / 3;
        self.backoff.set_max(pause);
        self.reported = Some((report, Instant::now() + pause));
        self.updates.reconcile(registered.expected, || {
            // An error does not matter: the next update shows whether the store has started a new
            // generation.
            let _ = self.shared.contents.restart_changes(ROUTER_TIMEOUT);
        });
        Ok(())
    }

    fn build_report(&mut self) -> Result<RouterReport, String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(self.shared.connect().map_err(|error| error.to_string())?),
        };
        let threads = self.shared.contents.threads();
        match self.reporter.report(client, &self.uris, &self.shared.round_trips(), threads) {
            Ok(report) => {
                let (generation, problems) = self.shared.setup();
                Ok(RouterReport { generation, problems, instance: self.instance, ..report })
            }
            Err(error) => {
                self.client = None;
                Err(error.to_string())
            }
        }
    }

    /// Sends the changes of the store, if there are any. Returns whether there are more.
    fn send_updates(&mut self) -> Result<bool, RestError> {
        if self.updates.pending.is_none() {
            // The store returns a batch and forgets it. So it stays pending here until the
            // controller has it.
            let changes = match self
                .shared
                .contents
                .take_changes(self.updates.blocks_max(), ROUTER_TIMEOUT)
            {
                Ok(changes) => changes,
                Err(ContentsError::Busy | ContentsError::TimedOut | ContentsError::Stopped) => {
                    return Ok(false);
                }
                Err(error) => {
                    let config = HoldingsConfig { bytes_max: INDEX_BYTES_MAX };
                    let _ = self.shared.contents.track(Some(config), ROUTER_TIMEOUT);
                    tracing::warn!(
                        %error,
                        "cannot read changes of the store; all holdings are reported again"
                    );
                    return Ok(false);
                }
            };
            self.updates.has_more = changes.has_more;
            let changed = changes.changes.into_iter().map(change).collect();
            self.updates.take(changes.generation, changed);
        }
        let Some(update) = &self.updates.pending else { return Ok(self.updates.has_more) };
        match self.rest.update(update) {
            Ok(()) => self.updates.on_accepted(),
            Err(RestError::Refused { expected: Some(expected), .. }) => {
                self.updates.reconcile(expected, || {
                    let _ = self.shared.contents.restart_changes(ROUTER_TIMEOUT);
                });
            }
            Err(error) if error.is_bad_request() => {
                tracing::warn!(
                    %error,
                    "the controller refuses an update; all holdings are reported again in smaller \
                     updates"
                );
                self.updates.batch_shift += 1;
                self.updates.restart();
                let _ = self.shared.contents.restart_changes(ROUTER_TIMEOUT);
                // Wait before the next attempt, in case the controller refuses every body.
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(self.updates.has_more)
    }

    /// Until the next report is due, asks the controller about large objects that the store lacks.
    /// Only requests of applications and hosts count: other routers ask about their own misses.
    fn handle_misses(&mut self) {
        let until = Instant::now() + self.interval;
        let mut answers = true;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Wait in short steps, so that a stop is noticed.
            let mut missed = self.shared.contents.next_miss(left.min(Duration::from_millis(200)));
            let mut objects = Vec::new();
            // Empty the queue of misses before the first question. Questions take time, and a full
            // queue drops misses.
            while let Some(one) = missed {
                let counters = &self.shared.counters;
                if !self.shared.is_own(one.ingress)
                    && !self.shared.is_router(one.ingress)
                    && self.questions.may_ask(Instant::now(), &one, answers, counters)
                {
                    objects.push(one.object);
                }
                missed = self.shared.contents.next_miss(Duration::ZERO);
            }
            for object in objects {
                answers = answers && self.ask_controller(object);
            }
            if self.shared.is_stopping() || Instant::now() >= until {
                return;
            }
        }
    }

    /// Asks about an object. Returns whether the controller answers. If it does not, no further
    /// question is sent before the next report succeeds.
    fn ask_controller(&mut self, object: Name) -> bool {
        match self.rest.forward(&object) {
            Ok(answer) => {
                tracing::info!(
                    %object, decision = ?answer.decision,
                    "the controller has decided about a missed object"
                );
                self.questions.note_answer(Instant::now(), object, answer.decision);
                true
            }
            Err(error) => {
                tracing::debug!(
                    %object, %error,
                    "the controller has not decided about a missed object"
                );
                !matches!(error, RestError::Unreachable(_))
            }
        }
    }
}

impl UpdateQueue {
    /// Makes one batch of changes the pending update. Ignores an empty batch, unless it starts a
    /// generation.
    fn take(&mut self, generation: u64, changes: Vec<Change>) {
        let number = match self.last_accepted.generation == generation {
            true if changes.is_empty() => return,
            true => self.last_accepted.number + 1,
            false => 1,
        };
        self.pending = Some(Update { at: UpdateNumber { generation, number }, changes });
    }

    fn blocks_max(&self) -> usize {
        (BLOCKS_MAX >> self.batch_shift.min(10)).max(1)
    }

    /// Forgets the numbering, because the store starts a new generation.
    fn restart(&mut self) {
        self.pending = None;
        self.last_accepted = UpdateNumber::default();
        self.has_more = true;
    }

    /// The controller has accepted the pending update.
    fn on_accepted(&mut self) {
        if let Some(update) = self.pending.take() {
            self.last_accepted = update.at;
        }
    }

    /// Compares the numbering with the update that the controller expects. Four cases:
    ///
    /// 1. It expects the update after the pending one: the pending one has arrived.
    /// 2. It expects the update after the last accepted one: the pending one is sent again.
    /// 3. The pending update starts a generation that the controller does not know: it is sent
    ///    again.
    /// 4. Otherwise updates were lost, or another router has reported under this name. All holdings
    ///    are reported again. Before the first update there is nothing to report again.
    ///
    /// Example: updates 7.3 and 7.4 were sent, and 7.4 is pending. `expected` 7.5 means that 7.4
    /// has arrived. 7.4 means that it has not. 0.0 means that the controller has restarted.
    fn reconcile(&mut self, expected: UpdateNumber, restart: impl FnOnce()) {
        let after = |at: UpdateNumber| UpdateNumber { number: at.number + 1, ..at };
        if self.pending.as_ref().is_some_and(|update| after(update.at) == expected) {
            return self.on_accepted();
        }
        let starts_generation = self.pending.as_ref().is_some_and(|update| {
            update.at.number == 1 && update.at.generation != expected.generation
        });
        let is_next = after(self.last_accepted) == expected;
        let has_nothing = self.last_accepted == UpdateNumber::default() && self.pending.is_none();
        if !is_next && !starts_generation && !has_nothing {
            self.restart();
            restart();
        }
    }
}

fn change(change: HoldingChange) -> Change {
    let tier = match change.tier {
        StoreTier::Memory => Tier::Memory,
        StoreTier::Disk => Tier::Disk,
    };
    let (added, removed) = (segments(&change.added), segments(&change.removed));
    Change { object: change.name, tier, added, removed }
}

/// Segment numbers beyond `LAST_MAX` belong to no file and are dropped.
fn segments(ranges: &[SegmentRange]) -> Segments {
    let mut segments = Segments::default();
    for range in ranges.iter().filter(|range| range.first <= Segments::LAST_MAX) {
        segments.insert(range.first..=range.last.min(Segments::LAST_MAX));
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u64, number: u64) -> UpdateNumber {
        UpdateNumber { generation, number }
    }

    fn some() -> Vec<Change> {
        let added = Segments::range(0, 1);
        let object = "/a/v=1".parse().unwrap();
        vec![Change { object, tier: Tier::Memory, added, removed: Segments::default() }]
    }

    #[test]
    fn updates_are_numbered_without_gaps() {
        let mut updates = UpdateQueue::default();
        // The first update of a generation is sent even if it is empty, because it deletes the old
        // holdings.
        updates.take(7, Vec::new());
        assert_eq!(updates.pending.as_ref().unwrap().at, at(7, 1));
        updates.on_accepted();
        updates.take(7, Vec::new());
        assert!(updates.pending.is_none());
        updates.take(7, some());
        assert_eq!(updates.pending.as_ref().unwrap().at, at(7, 2));
        updates.on_accepted();
        updates.take(8, some());
        assert_eq!(updates.pending.as_ref().unwrap().at, at(8, 1));
    }

    #[test]
    fn distinguishes_lost_answers_from_lost_updates() {
        let restarted = |updates: &mut UpdateQueue, expected| {
            let mut restarted = false;
            updates.reconcile(expected, || restarted = true);
            restarted
        };
        let mut updates = UpdateQueue { last_accepted: at(7, 3), ..UpdateQueue::default() };
        assert!(!restarted(&mut updates, at(7, 4)));
        // The controller has the pending update; only its answer was lost.
        updates.take(7, some());
        assert!(!restarted(&mut updates, at(7, 5)));
        assert_eq!((updates.last_accepted, updates.pending.is_none()), (at(7, 4), true));
        // The controller lacks the pending update, which is sent again.
        updates.take(7, some());
        assert!(!restarted(&mut updates, at(7, 5)));
        assert!(updates.pending.is_some());
        // The controller has restarted, or another router has reported under this name.
        assert!(restarted(&mut updates, at(0, 0)));
        assert!(updates.pending.is_none());
        // The first update of a new generation is sent again, although 0.0 is expected.
        updates.take(9, some());
        assert!(!restarted(&mut updates, at(0, 0)));
        assert_eq!(updates.pending.as_ref().unwrap().at, at(9, 1));
    }
}
