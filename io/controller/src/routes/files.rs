//! Files that producers have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
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

/// Files of one answer, at most and when nothing is said.
const COUNT_MAX: usize = 10_000;
/// Files of one request that registers them, at most.
const LIST_MAX: usize = 1000;
/// Objects that are looked at under one lock.
const STEP: usize = 500;

/// Which files are asked for.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Those whose name comes after this one.
    #[param(value_type = Option<String>)]
    after: Option<Name>,
    /// As many, 10,000 at most.
    count: Option<usize>,
}

/// A file with who registered it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct OwnedFile {
    #[serde(flatten)]
    file: File,
    /// Role and name of the token.
    owner: String,
    /// The newest version of it that its owner has registered, if it is not this one: routers are
    /// told to keep that one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    newer: Option<Name>,
}

/// Files in the order of their names.
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
    // In steps, so that decisions wait for none of them.
    loop {
        let left = count - files.len();
        let from = next.take();
        next = app.with(|known| {
            let (found, last) = known.controller.files_after(from.as_ref(), STEP);
            let owned = |file: &&File| OwnedFile {
                file: (*file).clone(),
                owner: known.controller.owner(&file.name).unwrap_or_default().to_owned(),
                newer: known.controller.newer_version(&file.name).map(|newer| newer.name.clone()),
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

/// A producer has a file. The same again is no error, nor is one with a manifest that was
/// registered without; another size under one name is.
#[utoipa::path(
    post,
    path = "/v1/files",
    request_body = File,
    responses(
        (status = 201, description = "It is registered"),
        (status = 200, description = "It was registered before"),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is away; nothing is registered", body = Refusal),
    ),
)]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    Body(file): Body<File>,
) -> Result<StatusCode, ErrorResponse> {
    // Who hangs up does not leave it half done.
    finish(tokio::spawn(async move { add_whole(&app, &caller, file).await })).await
}

async fn add_whole(app: &App, caller: &Caller, file: File) -> Result<StatusCode, ErrorResponse> {
    may_register(app, caller, &file.name)
        .map_err(|error| ErrorResponse::new(StatusCode::FORBIDDEN, error))?;
    let mut turn = app.follower.lock().await;
    let caught_up = follow::catch_up(app, &mut turn).await;
    let (news, is_own) = app.with(|known| status_of(known, caller, &file, 0));
    if news? == FileStatus::Unchanged {
        return Ok(StatusCode::OK);
    }
    if !is_own {
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, not_owner_text(&file.name)));
    }
    caught_up?;
    let written = write_files(app, vec![file], caller).await?;
    if let Some(name) = written.left_out.first() {
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, unreadable_text(name)));
    }
    Ok(if written.news == [FileStatus::New] { StatusCode::CREATED } else { StatusCode::OK })
}

/// What is new of a file that comes after so many others, and whether the caller may tell it: a
/// manifest is told by who registered the file, or by an operator.
fn status_of(
    known: &ControllerState,
    caller: &Caller,
    file: &File,
    after: usize,
) -> (Result<FileStatus, ControlError>, bool) {
    let owner = known.controller.owner(&file.name);
    let is_own = owner.is_none_or(|owner| *owner == caller.audit_name());
    (known.controller.file_status(file, after), is_own || caller.role == Role::Operator)
}

fn not_owner_text(name: &Name) -> String {
    format!("{name} was registered by somebody else, who may register its manifest")
}

fn unreadable_text(name: &Name) -> String {
    format!(
        "{name} was registered by somebody else, and what the database holds of it cannot be read: \
         who registered it may do so again, or an operator may withdraw it"
    )
}

/// What has become of files that were to be written.
struct Written {
    /// What was new of each.
    news: Vec<FileStatus>,
    /// Those that are there as somebody else's and cannot be read.
    left_out: BTreeSet<Name>,
}

/// Writes files into the database and takes them up: all but those that are left out, or none.
async fn write_files(
    app: &App,
    files: Vec<File>,
    caller: &Caller,
) -> Result<Written, ErrorResponse> {
    let (who, may_replace) = (caller.audit_name(), caller.role == Role::Operator);
    let news: Vec<FileStatus> = app.with(|known| {
        let news = files.iter().map(|file| known.controller.file_status(file, 0));
        news.collect::<Result<_, ControlError>>()
    })?;
    let with_news: Vec<(File, FileStatus)> = files.into_iter().zip(news.iter().copied()).collect();
    let at_ms = app.wall_clock.now_ms();
    let added = app.database.add_files(&with_news, &who, may_replace, at_ms).await;
    app.note_write(&added);
    let left_out = added?;
    app.with(|known| {
        for (file, _) in with_news {
            let name = file.name.clone();
            if left_out.contains(&name) {
                continue;
            }
            if let Err(error) = known.controller.add_file(&who, file) {
                tracing::warn!(%name, %error, "a file is in the database alone");
            }
        }
    });
    Ok(Written { news, left_out })
}

/// A file of a list that is not taken.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct FileRefused {
    /// Its name.
    #[schema(value_type = String)]
    name: Name,
    /// Why, for people.
    error: String,
}

/// A producer has files, 1,000 at most. Those that are refused are in the answer, with the reason;
/// the others are registered, all of them or, if the database is away, none.
#[utoipa::path(
    post,
    path = "/v1/files/list",
    request_body = Vec<File>,
    responses(
        (status = 200, description = "All but these are registered", body = Vec<FileRefused>),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is away; nothing is registered", body = Refusal),
    ),
)]
pub(super) async fn add_list(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    Body(files): Body<Vec<File>>,
) -> Result<Json<Vec<FileRefused>>, ErrorResponse> {
    if files.len() > LIST_MAX {
        let error = format!("a list has {LIST_MAX} files at most; send the rest in another");
        return Err(ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, error));
    }
    // Who hangs up does not leave it half done.
    let task = tokio::spawn(async move { add_all(&app, &caller, files).await });
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
    // Those of them that are no manifests of files that are known.
    let mut added = 0;
    let mut turn = app.follower.lock().await;
    follow::catch_up(app, &mut turn).await?;
    for file in files {
        let name = file.name.clone();
        if let Err(error) = may_register(app, caller, &name) {
            refused.push(FileRefused { name, error });
            continue;
        }
        if let Some(other) = new.get(&name) {
            // Twice in the list it is one.
            if *other != file {
                let error = ControlError::FileConflict(name.clone()).to_string();
                refused.push(FileRefused { name, error });
            }
            continue;
        }
        let (news, is_own) = app.with(|known| status_of(known, caller, &file, added));
        match news {
            Ok(FileStatus::Unchanged) => {}
            Ok(_) if !is_own => refused.push(FileRefused { error: not_owner_text(&name), name }),
            Ok(news) => {
                added += usize::from(news == FileStatus::New);
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

/// Whether a caller's token is for a name; if not, why not.
fn may_register(app: &App, caller: &Caller, name: &Name) -> Result<(), String> {
    if caller.may_register(name) {
        return Ok(());
    }
    let owner = caller.audit_name();
    app.audit_refused_name(&owner, name);
    Err(format!("the token of {owner} is for names below {}, not for {name}", caller.prefixes()))
}

/// Which file is meant.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct NameQuery {
    /// The name of its segments without the segment number.
    #[param(value_type = String)]
    name: Name,
}

/// A file is no longer served: its plan ends. Its owner and operators may say so.
#[utoipa::path(
    delete,
    path = "/v1/files",
    params(NameQuery),
    responses(
        (status = 204, description = "It is withdrawn"),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is away; the file stays", body = Refusal),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    ProducerCaller(caller): ProducerCaller,
    query: Result<Query<NameQuery>, QueryRejection>,
) -> Result<StatusCode, ErrorResponse> {
    let Query(NameQuery { name }) = query.map_err(ErrorResponse::from)?;
    finish(tokio::spawn(async move { remove_whole(&app, &caller, name).await })).await
}

async fn remove_whole(app: &App, caller: &Caller, name: Name) -> Result<StatusCode, ErrorResponse> {
    let mut turn = app.follower.lock().await;
    follow::catch_up(app, &mut turn).await?;
    let owner = app.with(|known| known.controller.owner(&name).map(str::to_owned));
    let (at_ms, who) = (app.wall_clock.now_ms(), caller.audit_name());
    // One whose row cannot be read is not known, and may be there.
    let (is_known, only) = (owner.is_some(), (caller.role != Role::Operator).then(|| who.clone()));
    if let (Some(only), Some(owner)) = (&only, &owner)
        && only != owner
    {
        let error = format!("{name} was registered by {owner}, who may withdraw it");
        return Err(ErrorResponse::new(StatusCode::FORBIDDEN, error));
    }
    let record = Record::Audit { at_ms, who, action: "file withdrawn", detail: name.to_string() };
    let removed = app.database.remove_file(&name, is_known, only.as_deref(), record).await;
    app.note_write(&removed);
    if !removed? {
        return Err(ErrorResponse::not_found(format!("{name} is not registered")));
    }
    app.with(|known| known.controller.remove_file(&name));
    Ok(StatusCode::NO_CONTENT)
}

async fn finish(
    task: tokio::task::JoinHandle<Result<StatusCode, ErrorResponse>>,
) -> Result<StatusCode, ErrorResponse> {
    task.await.unwrap_or_else(|error| {
        Err(ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    })
}

/// What a router holds of a file.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Holding {
    /// Its name.
    router: String,
    /// Segments that it says it holds, as `[first, last]`.
    #[schema(value_type = Vec<[u64; 2]>)]
    segments: Segments,
}

/// What routers say they hold of a file or of any other object.
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
    let held = app.with(|known| {
        let held = known.controller.holdings(&name);
        held.into_iter().map(holding).collect()
    });
    Ok(Json(held))
}
