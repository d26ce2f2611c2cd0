//! Adopts what other controllers of the database write: files, plans, and which routers report to
//! them.
//!
//! How several controllers share a database (docs/decisions/0028):
//!
//! 1. There is no leader. Each controller plans for the routers that report to it.
//! 2. Shared in the database: tokens, files, plans, the audit, and which controller each router
//!    reports to. Links, prefixes and holdings stay in memory, because routers can report them
//!    again.
//! 3. Each start draws a run number from the database. All numbers of plans and configurations of
//!    this controller end in the run's last three digits. So two controllers never give the same
//!    number. A controller draws a new run number when 500 other starts have followed.
//! 4. Each write transaction draws the next change number, which blocks other writers until it
//!    commits. So a reader that has seen change n has seen all changes up to n. It reads the
//!    changes after n once a second, and before it registers a file. Long outages are no problem:
//!    if old withdrawals have been pruned meanwhile, it reads everything.
//! 5. Each controller increments its beat every two seconds. If the beat of another one stands
//!    still for `router_timeout`, that controller counts as gone, and its routers too. The time in
//!    which this controller could not read the database does not count.
//! 6. A plan is written after the decision, by the journal. The database accepts it only if it
//!    follows the newest plan of its object, or if that is an end. Otherwise another controller was
//!    first: the written plan is a conflict, and this controller adopts the newest one from the
//!    database.
//! 7. A controller with fewer routers than another one gives no configurations and makes no plans
//!    (`Controller::is_waiting`).
//!
//! Example: controllers 1 and 2 receive a request for the same file at once. Both make a plan
//! without a parent, numbers 5,001 and 5,002, and give it to their routers. Controller 1 writes
//! first, as change 41. The database refuses plan 5,002, because it does not follow 5,001.
//! Controller 2 reads change 41, adopts plan 5,001, and gives its routers a configuration for it,
//! with a number above both.
//!
//! A decision must never wait for the database. And a controller must never treat another one as
//! gone because the database does not answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;
use weir_control::{ControlError, Controller, Plan};
use weir_wire::Name;

use crate::app::{App, ControllerState};
use crate::config::Config;
use crate::database::{Changes, Database, DatabaseError, FileChange, FileRow, NUMBER_STEP, Record};
use crate::follower::Follower;

/// Time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The row of a controller without a heartbeat for this long is removed.
const REMOVE_AFTER: Duration = Duration::from_secs(600);

/// Registers this controller, and loads everything from the database.
pub(crate) async fn load(
    config: &Config,
    database: &Database,
    url: String,
) -> Result<(Follower, ControllerState), DatabaseError> {
    let run = database.register_controller(&url, config.wall_clock.now_ms()).await?;
    let mut changes = database.changes_since(None).await?;
    let mut controller = Controller::new(config.controller.clone());
    controller.set_numbers(numbers(run));
    let mut files = Vec::new();
    for change in changes.files {
        if let FileChange::Added(FileRow { file, owner }) = change {
            files.push((owner, file));
        }
    }
    let sizes: BTreeMap<&Name, u64> =
        files.iter().map(|(_, file)| (&file.name, file.segments)).collect();
    changes.plans.retain(|plan| {
        let is_valid = sizes.get(&plan.object).is_none_or(|segments| plan.is_valid(*segments));
        if !is_valid {
            database.note_invalid_plan(plan.number);
        }
        is_valid
    });
    tracing::info!(
        files = files.len(),
        plans = changes.plans.len(),
        run = run % NUMBER_STEP,
        "loaded from the database"
    );
    controller.restore(files, changes.plans);
    let heard = changes.routers.iter().filter(|(_, run)| *run != 0);
    let former: BTreeMap<String, u64> = heard.cloned().collect();
    controller.expect_routers(former.keys().cloned().collect());
    let mut follower = Follower::new(config, run, url);
    follower.change = changes.change;
    follower.routers.extend(changes.routers);
    follower.note_controllers(changes.controllers, Instant::now());
    Ok((follower, ControllerState::new(controller, former)))
}

/// See [`weir_control::ControllerConfig::numbers`].
fn numbers(run: u64) -> (u64, u64) {
    (NUMBER_STEP, run % NUMBER_STEP)
}

/// Does what is due: the heartbeat, changes of other controllers, and which of them are gone.
pub(crate) async fn tick(app: &App) {
    let mut follower = app.follower.lock().await;
    let followed = follow(app, &mut follower).await;
    app.note_read(&followed);
    if followed.is_err() {
        // The others may be running, although nothing can be read.
        return;
    }
    let now = Instant::now();
    let elsewhere = follower.routers_elsewhere(now);
    if elsewhere != follower.announced {
        follower.announced.clone_from(&elsewhere);
        app.with(|state| state.controller.set_heard_elsewhere(elsewhere));
    }
    *app.other_urls.lock().unwrap_or_else(PoisonError::into_inner) = follower.urls(now);
}

async fn follow(app: &App, follower: &mut MutexGuard<'_, Follower>) -> Result<(), DatabaseError> {
    let now = Instant::now();
    if follower.is_shared
        && follower.beat_at.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
    {
        if !app.database.heartbeat(follower.run).await? {
            // Another controller has removed the row of this one.
            rejoin(app, follower).await?;
        }
        follower.beat_at = Some(now);
        let is_old = |at: Instant| now.duration_since(at) > REMOVE_AFTER;
        // Remove one long-gone controller in each round, so that the table does not grow.
        let gone = follower.others.values().find(|other| is_old(other.last_beat_at));
        let gone = gone.map(|other| other.row.run);
        if let Some(gone) = gone {
            app.database.remove_controller(gone).await?;
        }
    }
    let last_run = catch_up(app, follower).await?;
    if last_run - follower.run.min(last_run) >= NUMBER_STEP / 2 {
        rejoin(app, follower).await?;
    }
    record_routers(app, follower, now).await
}

/// Draws a new run number, because other controllers may soon get one with the same last digits.
async fn rejoin(app: &App, follower: &mut MutexGuard<'_, Follower>) -> Result<(), DatabaseError> {
    let former = follower.run;
    follower.run = app.database.register_controller(&follower.url, app.wall_clock.now_ms()).await?;
    app.run.store(follower.run, Ordering::Relaxed);
    app.with(|state| state.controller.set_numbers(numbers(follower.run)));
    app.database.remove_controller(former).await
}

/// Adopts all changes of other controllers. Returns the highest run number.
pub(crate) async fn catch_up(
    app: &App,
    follower: &mut MutexGuard<'_, Follower>,
) -> Result<u64, DatabaseError> {
    let changes = app.database.changes_since(Some(follower.change)).await?;
    let Changes { change, is_complete, files, plans, routers, controllers, last_run } = changes;
    follower.note_controllers(controllers, Instant::now());
    follower.routers.extend(routers);
    app.with(|state| {
        if is_complete {
            remove_missing_files(state, &files);
        }
        files.into_iter().for_each(|change| apply_file_change(state, change));
        for plan in plans {
            match is_valid_plan(state, &plan) {
                true => state.controller.adopt(plan, false),
                false => app.database.note_invalid_plan(plan.number),
            }
        }
    });
    follower.change = change;
    // The database refused these plans because another controller was first: adopt its plans.
    let mut conflicts: VecDeque<Name> = app.journal.take_conflicts().into();
    while let Some(object) = conflicts.pop_front() {
        let is_valid = |plan: &Plan| app.with(|state| is_valid_plan(state, plan));
        match app.database.newest_plan(&object, is_valid).await {
            Ok(plan) => app.with(|state| {
                plan.into_iter().for_each(|plan| state.controller.adopt(plan, true));
            }),
            Err(error) => {
                app.journal.add_conflicts(conflicts.into_iter().chain([object]));
                return Err(error);
            }
        }
    }
    Ok(last_run)
}

/// Whether a plan is valid for its file, as far as the file is known.
fn is_valid_plan(state: &ControllerState, plan: &Plan) -> bool {
    let file = state.controller.file(&plan.object);
    file.is_none_or(|file| plan.is_valid(file.segments))
}

fn apply_file_change(state: &mut ControllerState, change: FileChange) {
    match change {
        FileChange::Added(FileRow { file, owner }) => {
            let name = file.name.clone();
            let is_other = matches!(
                state.controller.file_status(&file, 0),
                Err(ControlError::FileConflict(_))
            );
            let is_others = state.controller.owner(&name).is_some_and(|state| state != owner);
            // Only the manifest of a registered file can change. So the known file was withdrawn in
            // between.
            if is_other || is_others {
                state.controller.forget_file(&name);
            }
            if let Err(error) = state.controller.add_file(&owner, file) {
                tracing::warn!(
                    %name, %error,
                    "a file of the database cannot be added and is ignored"
                );
            }
        }
        FileChange::Withdrawn(name) => {
            if state.controller.file(&name).is_some() {
                state.controller.forget_file(&name);
            }
        }
        // The known file stays as it is.
        FileChange::Unreadable(_) => {}
    }
}

/// Removes files that the database does not contain.
fn remove_missing_files(state: &mut ControllerState, files: &[FileChange]) {
    let stored: BTreeSet<&Name> = files
        .iter()
        .filter_map(|change| match change {
            FileChange::Added(row) => Some(&row.file.name),
            FileChange::Unreadable(name) => Some(name),
            FileChange::Withdrawn(_) => None,
        })
        .collect();
    let known_files = state.controller.files().map(|file| &file.name);
    let gone: Vec<Name> = known_files.filter(|name| !stored.contains(name)).cloned().collect();
    gone.iter().for_each(|name| state.controller.forget_file(name));
}

/// Writes which routers report here, where the database does not say so.
async fn record_routers(
    app: &App,
    follower: &mut MutexGuard<'_, Follower>,
    now: Instant,
) -> Result<(), DatabaseError> {
    // Records that wait may contain these routers already.
    if app.journal.waiting_count() > 0 {
        return Ok(());
    }
    let is_known = |name: &str| {
        let run = follower.routers.get(name).copied().unwrap_or(0);
        run == follower.run || follower.is_alive(run, now)
    };
    let records: Vec<Record> = app.with(|state| {
        let unknown = state.controller.routers().filter(|(name, _)| !is_known(name));
        let record = |(name, report): (&str, _)| Record::Router {
            name: name.to_owned(),
            seen_ms: state.seen_ms.get(name).copied().unwrap_or(0),
            body: serde_json::to_string(report).unwrap_or_default(),
        };
        unknown.map(record).collect()
    });
    app.journal.push(records);
    Ok(())
}
