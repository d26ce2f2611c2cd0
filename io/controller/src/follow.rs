//! What other controllers of the database write is taken up: files, plans, and which routers they
//! hear.

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

/// Between two signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A controller that was not heard for so long is no longer spoken of in the database.
const REMOVE_AFTER: Duration = Duration::from_secs(600);

/// Begins with all that the database has.
pub(crate) async fn load(
    config: &Config,
    database: &Database,
    url: String,
) -> Result<(Follower, ControllerState), DatabaseError> {
    let run = database.register_controller(&url, config.wall_clock.now_ms()).await?;
    let mut news = database.changes_since(None).await?;
    let mut controller = Controller::new(config.controller.clone());
    controller.set_numbers(numbers(run));
    let mut files = Vec::new();
    for news in news.files {
        if let FileChange::Added(FileRow { file, owner }) = news {
            files.push((owner, file));
        }
    }
    let sizes: BTreeMap<&Name, u64> =
        files.iter().map(|(_, file)| (&file.name, file.segments)).collect();
    news.plans.retain(|plan| {
        let can_be = sizes.get(&plan.object).is_none_or(|segments| plan.is_valid(*segments));
        if !can_be {
            database.note_invalid_plan(plan.number);
        }
        can_be
    });
    tracing::info!(
        files = files.len(),
        plans = news.plans.len(),
        run = run % NUMBER_STEP,
        "read from the database"
    );
    controller.restore(files, news.plans);
    let heard = news.routers.iter().filter(|(_, run)| *run != 0);
    let former: BTreeMap<String, u64> = heard.cloned().collect();
    controller.expect_routers(former.keys().cloned().collect());
    let mut follower = Follower::new(config, run, url);
    follower.change = news.change;
    follower.routers.extend(news.routers);
    follower.note_controllers(news.controllers, Instant::now());
    Ok((follower, ControllerState::new(controller, former)))
}

/// See [`weir_control::ControllerConfig::numbers`].
fn numbers(run: u64) -> (u64, u64) {
    (NUMBER_STEP, run % NUMBER_STEP)
}

/// What is due: a sign of life, what others have written, and who of them is gone.
pub(crate) async fn tick(app: &App) {
    let mut turn = app.follower.lock().await;
    let followed = follow(app, &mut turn).await;
    app.note_read(&followed);
    if followed.is_err() {
        // Nothing is known of the others: they may well be there.
        return;
    }
    let now = Instant::now();
    let elsewhere = turn.routers_elsewhere(now);
    if elsewhere != turn.announced {
        turn.announced.clone_from(&elsewhere);
        app.with(|known| known.controller.set_heard_elsewhere(elsewhere));
    }
    *app.other_urls.lock().unwrap_or_else(PoisonError::into_inner) = turn.urls(now);
}

async fn follow(app: &App, turn: &mut MutexGuard<'_, Follower>) -> Result<(), DatabaseError> {
    let now = Instant::now();
    if turn.is_shared && turn.beat_at.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
    {
        if !app.database.heartbeat(turn.run).await? {
            // It was taken for gone.
            rejoin(app, turn).await?;
        }
        turn.beat_at = Some(now);
        let is_old = |at: Instant| now.duration_since(at) > REMOVE_AFTER;
        let gone = turn.others.values().find(|other| is_old(other.last_beat_at));
        let gone = gone.map(|other| other.row.run);
        if let Some(gone) = gone {
            app.database.remove_controller(gone).await?;
        }
    }
    let runs = catch_up(app, turn).await?;
    if runs - turn.run.min(runs) >= NUMBER_STEP / 2 {
        rejoin(app, turn).await?;
    }
    record_routers(app, turn, now).await
}

/// Others have had so many numbers meanwhile that this one's may be given again: it takes a new
/// one.
async fn rejoin(app: &App, turn: &mut MutexGuard<'_, Follower>) -> Result<(), DatabaseError> {
    let former = turn.run;
    turn.run = app.database.register_controller(&turn.url, app.wall_clock.now_ms()).await?;
    app.run.store(turn.run, Ordering::Relaxed);
    app.with(|known| known.controller.set_numbers(numbers(turn.run)));
    app.database.remove_controller(former).await
}

/// Takes up all that others have written. Returns the highest number of a controller.
pub(crate) async fn catch_up(
    app: &App,
    turn: &mut MutexGuard<'_, Follower>,
) -> Result<u64, DatabaseError> {
    let news = app.database.changes_since(Some(turn.change)).await?;
    let Changes {
        change,
        is_complete: is_whole,
        files,
        plans,
        routers,
        controllers: sharers,
        last_run: runs,
    } = news;
    turn.note_controllers(sharers, Instant::now());
    turn.routers.extend(routers);
    app.with(|known| {
        if is_whole {
            remove_missing_files(known, &files);
        }
        files.into_iter().for_each(|news| apply_file_change(known, news));
        for plan in plans {
            match can_be(known, &plan) {
                true => known.controller.adopt(plan, false),
                false => app.database.note_invalid_plan(plan.number),
            }
        }
    });
    turn.change = change;
    let mut overtaken: VecDeque<Name> = app.journal.take_conflicts().into();
    while let Some(object) = overtaken.pop_front() {
        let is_valid_plan = |plan: &Plan| app.with(|known| can_be(known, plan));
        match app.database.newest_plan(&object, is_valid_plan).await {
            Ok(plan) => app.with(|known| {
                plan.into_iter().for_each(|plan| known.controller.adopt(plan, true));
            }),
            Err(error) => {
                app.journal.add_conflicts(overtaken.into_iter().chain([object]));
                return Err(error);
            }
        }
    }
    Ok(runs)
}

/// Whether a plan is one for its file, as far as that is known.
fn can_be(known: &ControllerState, plan: &Plan) -> bool {
    let file = known.controller.file(&plan.object);
    file.is_none_or(|file| plan.is_valid(file.segments))
}

fn apply_file_change(known: &mut ControllerState, news: FileChange) {
    match news {
        FileChange::Added(FileRow { file, owner }) => {
            let name = file.name.clone();
            let is_other = matches!(
                known.controller.file_status(&file, 0),
                Err(ControlError::FileConflict(_))
            );
            let is_others = known.controller.owner(&name).is_some_and(|known| known != owner);
            if is_other || is_others {
                known.controller.forget_file(&name);
            }
            if let Err(error) = known.controller.add_file(&owner, file) {
                tracing::warn!(%name, %error, "a file of the database is left out");
            }
        }
        FileChange::Withdrawn(name) => {
            if known.controller.file(&name).is_some() {
                known.controller.forget_file(&name);
            }
        }
        // What is known of it stays.
        FileChange::Unreadable(_) => {}
    }
}

/// Files that the database lacks are forgotten.
fn remove_missing_files(known: &mut ControllerState, files: &[FileChange]) {
    let there: BTreeSet<&Name> = files
        .iter()
        .filter_map(|news| match news {
            FileChange::Added(row) => Some(&row.file.name),
            FileChange::Unreadable(name) => Some(name),
            FileChange::Withdrawn(_) => None,
        })
        .collect();
    let known_files = known.controller.files().map(|file| &file.name);
    let gone: Vec<Name> = known_files.filter(|name| !there.contains(name)).cloned().collect();
    gone.iter().for_each(|name| known.controller.forget_file(name));
}

/// Writes down anew which routers are here, where the database says that nobody hears them.
async fn record_routers(
    app: &App,
    turn: &mut MutexGuard<'_, Follower>,
    now: Instant,
) -> Result<(), DatabaseError> {
    if app.journal.waiting_count() > 0 {
        return Ok(());
    }
    let is_known = |name: &str| {
        let run = turn.routers.get(name).copied().unwrap_or(0);
        run == turn.run || turn.is_alive(run, now)
    };
    let records: Vec<Record> = app.with(|known| {
        let unknown = known.controller.routers().filter(|(name, _)| !is_known(name));
        let record = |(name, report): (&str, _)| Record::Router {
            name: name.to_owned(),
            seen_ms: known.seen_ms.get(name).copied().unwrap_or(0),
            body: serde_json::to_string(report).unwrap_or_default(),
        };
        unknown.map(record).collect()
    });
    app.journal.push(records);
    Ok(())
}
