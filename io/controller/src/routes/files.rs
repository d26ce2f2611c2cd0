//! Files of producers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use weir_control::message::Refusal;
use weir_control::{ControlError, File, FileStatus, Segments};
use weir_wire::Name;

use crate::access::{Body, FileReader, ProducerCaller, Reader};
use crate::app::{App, ControllerState};
use crate::database::Record;
use crate::error_response::ErrorResponse;
use crate::follow;
use crate::token::Role;
use crate::tokens::Caller;

/// Maximum and default number of files in an answer.
const COUNT_MAX: usize = 10_000;
/// Maximum number of files in a request that registers them.
const LIST_MAX: usize = 1000;
/// Number of objects examined under one lock.
const STEP: usize = 500;

/// Which files to list.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only files whose name comes after this one.
    #[param(value_type = Option<String>)]
    after: Option<Name>,
    /// How many, at most 10,000.
    count: Option<usize>,
}

/// A file with its owner.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct OwnedFile {
    #[serde(flatten)]
    file: File,
    /// Role and name of the token that registered it.
    owner: String,
    /// The newest version of it by the same owner, if that is not this one. Routers keep only that
    /// version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    newer: Option<Name>,
}

/// Lists files in the order of their names.
#[utoipa::path(
    get,
    path = "/v1/files",
    params(ListQuery),
    responses((status = 200, body = Vec<OwnedFile>), (status = "4XX", body = Refusal)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: FileReader,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Vec<OwnedFile>>, ErrorResponse> {
    let Query(ListQuery { after, count }) = query.map_err(ErrorResponse::from)?;
    let count = count.unwrap_or(COUNT_MAX).min(COUNT_MAX);
    let mut files = Vec::new();
    let mut next = after;
    // In steps, so that decisions do not wait for a long list.
    loop {
        let left = count - files.len();
        let from = next.take();
        next = app.with(|state| {
            let (found, last) = state.controller.files_after(from.as_ref(), STEP);
            let owned = |file: &&File| OwnedFile {
                file: (*file).clone(),
                owner: state.controller.owner(&file.name).unwrap_or_default().to_owned(),
                newer: state.controller.newer_version(&file.name).map(|newer| newer.name.clone()),
            };
            files.extend(found.iter().take(left).map(owned));
            last.cloned()
        });
        if next.is_none() || files.len() == count {
            return Ok(Json(files));
        }
        tokio::task::yield_now().await;
    }
}

/// Registers a file. It is no error if the file is registered already, or was registered without
/// its manifest. It is an error if it is registered with another size.
#[utoipa::path(
    post,
    path = "/v1/files",
    request_body = File,
    responses(
        (status = 201, description = "The file is registered now"),
        (status = 200, description = "The file was registered already"),
        (status = "4XX", body = Refusal),
        (
            status = 503,
            description = "The database is unavailable; nothing is registered",
            body = Refusal
        ),
    ),
)]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    Body(file): Body<File>,
) -> Result<StatusCode, ErrorResponse> {
    // A separate task, so that a client that disconnects does not leave it half done.
    finish(tokio::spawn(async move { add_whole(&app, &caller, file).await }.in_current_span()))
        .await
}

async fn add_whole(app: &App, caller: &Caller, file: File) -> Result<StatusCode, ErrorResponse> {
    may_register(app, caller, &file.name)
        .map_err(|error| ErrorResponse::new(StatusCode::FORBIDDEN, error))?;
    // Read other controllers' changes first: one of them may have changed the file already.
    let mut follower = app.follower.lock().await;
    let caught_up = follow::catch_up(app, &mut follower).await;
    let (status, is_own) = app.with(|state| status_of(state, caller, &file, 0));
    if status? == FileStatus::Unchanged {
        return Ok(StatusCode::OK);
    }
    if !is_own {
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, not_owner_text(&file.name)));
    }
    // Only a change needs the database, so fail only now.
    caught_up?;
    let written = write_files(app, vec![file], caller).await?;
    if let Some(name) = written.left_out.first() {
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, unreadable_text(name)));
    }
    Ok(if written.statuses == [FileStatus::New] { StatusCode::CREATED } else { StatusCode::OK })
}

/// What a file would change, and whether the caller may make this change: a manifest is added by
/// the owner of the file or by an operator. `after` is the number of new files before it.
fn status_of(
    state: &ControllerState,
    caller: &Caller,
    file: &File,
    after: usize,
) -> (Result<FileStatus, ControlError>, bool) {
    let owner = state.controller.owner(&file.name);
    let is_own = owner.is_none_or(|owner| *owner == caller.audit_name());
    (state.controller.file_status(file, after), is_own || caller.role == Role::Operator)
}

fn not_owner_text(name: &Name) -> String {
    format!(
        "{name} was registered with another token; only that token or an operator's may add the \
         manifest"
    )
}

fn unreadable_text(name: &Name) -> String {
    format!(
        "{name} was registered with another token, and its database row cannot be read: register \
         it again with that token, or withdraw it with an operator's"
    )
}

/// The result of writing files.
struct Written {
    /// What each file changes.
    statuses: Vec<FileStatus>,
    /// Files of others whose rows exist and cannot be read.
    left_out: BTreeSet<Name>,
}

/// Writes files to the database and adds them to the controller: all but those left out, or none.
async fn write_files(
    app: &App,
    files: Vec<File>,
    caller: &Caller,
) -> Result<Written, ErrorResponse> {
    let (who, may_replace) = (caller.audit_name(), caller.role == Role::Operator);
    let statuses: Vec<FileStatus> = app.with(|state| {
        let statuses = files.iter().map(|file| state.controller.file_status(file, 0));
        statuses.collect::<Result<_, ControlError>>()
    })?;
    let with_status: Vec<(File, FileStatus)> =
        files.into_iter().zip(statuses.iter().copied()).collect();
    let at_ms = app.wall_clock.now_ms();
    let added = app.database.add_files(&with_status, &who, may_replace, at_ms).await;
    app.note_write(&added);
    let left_out = added?;
    app.with(|state| {
        for (file, _) in with_status {
            let name = file.name.clone();
            if left_out.contains(&name) {
                continue;
            }
            if let Err(error) = state.controller.add_file(&who, file) {
                tracing::warn!(
                    %name, %error,
                    "a file was written to the database but cannot be added to the controller"
                );
            }
        }
    });
    Ok(Written { statuses, left_out })
}

/// A file of a list that is refused.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct FileRefused {
    /// Its name.
    #[schema(value_type = String)]
    name: Name,
    /// The reason, for people.
    error: String,
}

/// Registers up to 1,000 files. The answer contains the refused files with reasons. Of the other
/// files either all are registered or, if the database is unavailable, none.
#[utoipa::path(
    post,
    path = "/v1/files/list",
    request_body = Vec<File>,
    responses(
        (status = 200, description = "All files but these are registered", body = Vec<FileRefused>),
        (status = "4XX", body = Refusal),
        (
            status = 503,
            description = "The database is unavailable; nothing is registered",
            body = Refusal
        ),
    ),
)]
pub(super) async fn add_list(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    Body(files): Body<Vec<File>>,
) -> Result<Json<Vec<FileRefused>>, ErrorResponse> {
    if files.len() > LIST_MAX {
        let error =
            format!("the list has more than {LIST_MAX} files; send the rest in another request");
        return Err(ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, error));
    }
    // A separate task, so that a client that disconnects does not leave it half done.
    let task = tokio::spawn(async move { add_all(&app, &caller, files).await }.in_current_span());
    let refused = task.await.unwrap_or_else(|error| {
        Err(ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    });
    refused.map(Json)
}

async fn add_all(
    app: &App,
    caller: &Caller,
    files: Vec<File>,
) -> Result<Vec<FileRefused>, ErrorResponse> {
    let mut refused = Vec::new();
    let mut new: BTreeMap<Name, File> = BTreeMap::new();
    // The number of new files, without manifests of known files.
    let mut added = 0;
    // Read other controllers' changes first: one of them may have changed the file already.
    let mut follower = app.follower.lock().await;
    follow::catch_up(app, &mut follower).await?;
    for file in files {
        let name = file.name.clone();
        if let Err(error) = may_register(app, caller, &name) {
            refused.push(FileRefused { name, error });
            continue;
        }
        if let Some(other) = new.get(&name) {
            // An identical file that is listed twice counts once.
            if *other != file {
                let error = ControlError::FileConflict(name.clone()).to_string();
                refused.push(FileRefused { name, error });
            }
            continue;
        }
        let (status, is_own) = app.with(|state| status_of(state, caller, &file, added));
        match status {
            Ok(FileStatus::Unchanged) => {}
            Ok(_) if !is_own => refused.push(FileRefused { error: not_owner_text(&name), name }),
            Ok(status) => {
                added += usize::from(status == FileStatus::New);
                new.insert(name, file);
            }
            Err(error) => refused.push(FileRefused { name, error: error.to_string() }),
        }
    }
    let written = write_files(app, new.into_values().collect(), caller).await?;
    let left_out = written.left_out.into_iter();
    refused.extend(left_out.map(|name| FileRefused { error: unreadable_text(&name), name }));
    Ok(refused)
}

/// Checks that the caller's token allows a name. Returns the reason if not.
fn may_register(app: &App, caller: &Caller, name: &Name) -> Result<(), String> {
    if caller.may_register(name) {
        return Ok(());
    }
    let owner = caller.audit_name();
    app.audit_refused_name(&owner, name);
    Err(format!(
        "the token of {owner} allows names below {}, not {name}; use another token",
        caller.prefixes()
    ))
}

/// Which file.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct NameQuery {
    /// The name of its segments without the segment number.
    #[param(value_type = String)]
    name: Name,
}

/// Withdraws a file that is no longer served, which ends its plan. Only its owner and operators may
/// do so.
#[utoipa::path(
    delete,
    path = "/v1/files",
    params(NameQuery),
    responses(
        (status = 204, description = "The file is withdrawn"),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is unavailable; the file stays", body = Refusal),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    query: Result<Query<NameQuery>, QueryRejection>,
) -> Result<StatusCode, ErrorResponse> {
    let Query(NameQuery { name }) = query.map_err(ErrorResponse::from)?;
    finish(tokio::spawn(async move { remove_whole(&app, &caller, name).await }.in_current_span()))
        .await
}

async fn remove_whole(app: &App, caller: &Caller, name: Name) -> Result<StatusCode, ErrorResponse> {
    // Read other controllers' changes first: one of them may have changed the file already.
    let mut follower = app.follower.lock().await;
    follow::catch_up(app, &mut follower).await?;
    let owner = app.with(|state| state.controller.owner(&name).map(str::to_owned));
    let (at_ms, who) = (app.wall_clock.now_ms(), caller.audit_name());
    // A file whose row cannot be read is unknown here, but may be in the database.
    let (is_known, only) = (owner.is_some(), (caller.role != Role::Operator).then(|| who.clone()));
    if let (Some(only), Some(owner)) = (&only, &owner)
        && only != owner
    {
        let error = format!(
            "{name} was registered by {owner}; only this owner or an operator may withdraw it"
        );
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, error));
    }
    let record = Record::Audit { at_ms, who, action: "file withdrawn", detail: name.to_string() };
    let removed = app.database.remove_file(&name, is_known, only.as_deref(), record).await;
    app.note_write(&removed);
    if !removed? {
        return Err(ErrorResponse::not_found(format!(
            "{name} is not registered; GET /v1/files lists the registered files"
        )));
    }
    app.with(|state| state.controller.remove_file(&name));
    Ok(StatusCode::NO_CONTENT)
}

async fn finish(
    task: tokio::task::JoinHandle<Result<StatusCode, ErrorResponse>>,
) -> Result<StatusCode, ErrorResponse> {
    task.await.unwrap_or_else(|error| {
        Err(ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    })
}

/// The segments of a file that a router holds.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Holding {
    /// Its name.
    router: String,
    /// The segments that it reports, as `[first, last]`.
    #[schema(value_type = Vec<[u64; 2]>)]
    segments: Segments,
}

/// Shows which segments of a file, or of any other object, each router reports to hold.
#[utoipa::path(
    get,
    path = "/v1/files/holdings",
    params(NameQuery),
    responses((status = 200, body = Vec<Holding>), (status = "4XX", body = Refusal)),
)]
pub(super) async fn holdings(
    State(app): State<Arc<App>>,
    _: Reader,
    query: Result<Query<NameQuery>, QueryRejection>,
) -> Result<Json<Vec<Holding>>, ErrorResponse> {
    let Query(NameQuery { name }) = query.map_err(ErrorResponse::from)?;
    let holding =
        |(router, segments): (&str, Segments)| Holding { router: router.to_owned(), segments };
    let held = app.with(|state| {
        let held = state.controller.holdings(&name);
        held.into_iter().map(holding).collect()
    });
    Ok(Json(held))
}
