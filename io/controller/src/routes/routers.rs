//! Requests of routers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_control::message::{
    Configuration, Forward, Forwarded, Refusal, Registered, RouterReport, Update, UpdateNumber,
};
use weir_control::{ControlError, LimitKind};

use crate::access::{Body, OwnRouter, RouterReader};
use crate::app::App;
use crate::database::Record;
use crate::error_response::ErrorResponse;
use crate::spans;

/// Maximum time in seconds that a request for a configuration may wait.
const WAIT_S_MAX: u64 = 60;

/// A router reports itself, also as a sign of life.
#[utoipa::path(
    put,
    path = "/v1/routers/{router}",
    params(("router" = String, Path, description = "The name of the token")),
    request_body = RouterReport,
    responses(
        (status = 200, body = Registered),
        (status = "4XX", body = Refusal),
    ),
)]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    OwnRouter(router, caller): OwnRouter,
    Body(mut report): Body<RouterReport>,
) -> Result<Json<Registered>, ErrorResponse> {
    let now = app.clock.now();
    let reported = report.prefixes.len();
    report.prefixes.retain(|prefix| caller.may_register(prefix));
    let foreign = (reported - report.prefixes.len()) as u64;
    let seen_ms = app.wall_clock.now_ms();
    let body = serde_json::to_string(&report).unwrap_or_default();
    let registered = app.with(|state| {
        let is_found = state.subscribe(&router).is_none();
        let registered = state.controller.report(now, &router, report)?;
        if foreign > 0 {
            state.controller.note_limit_exceeded(&router, LimitKind::Prefix, foreign);
        }
        state.seen_ms.insert(router.clone(), seen_ms);
        Ok::<_, ControlError>((registered, is_found))
    });
    let (registered, is_found) = registered?;
    // Later reports change no row: the database only says which routers report here.
    if is_found {
        app.journal.push([Record::Router { name: router, seen_ms, body }]);
    }
    Ok(Json(registered))
}

/// A router reports changes of its holdings.
///
/// 409 says which update is expected. Number 1 of a new generation is accepted at any time.
#[utoipa::path(
    post,
    path = "/v1/routers/{router}/updates",
    params(("router" = String, Path, description = "The name of the token")),
    request_body = Update,
    responses(
        (status = 200, description = "The update that is expected next", body = UpdateNumber),
        (status = 409, body = Refusal),
        (status = "4XX", body = Refusal),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    OwnRouter(router, _): OwnRouter,
    Body(update): Body<Update>,
) -> Result<Json<UpdateNumber>, ErrorResponse> {
    let now = app.clock.now();
    let UpdateNumber { generation, number } = update.at;
    app.with(|state| state.controller.update(now, &router, update))?;
    Ok(Json(UpdateNumber { generation, number: number + 1 }))
}

/// A router requests a decision about an object that it lacks.
#[utoipa::path(
    post,
    path = "/v1/routers/{router}/forward",
    params(("router" = String, Path, description = "The name of the token")),
    request_body = Forward,
    responses(
        (status = 200, body = Forwarded),
        (status = "4XX", body = Refusal),
    ),
)]
pub(super) async fn forward(
    State(app): State<Arc<App>>,
    OwnRouter(router, _): OwnRouter,
    Body(forward): Body<Forward>,
) -> Result<Json<Forwarded>, ErrorResponse> {
    let begin = Instant::now();
    let span = spans::decision(&router, &forward.object);
    let forwarded =
        span.in_scope(|| app.with(|state| state.controller.forward(&router, &forward.object)));
    spans::end_decision(&span, &forwarded);
    app.metrics.decision_seconds.observe(begin.elapsed().as_secs_f64());
    Ok(Json(forwarded?))
}

/// Which configuration.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigurationQuery {
    /// Only a generation higher than this.
    #[serde(default)]
    after: u64,
    /// Seconds to wait for one, at most 60.
    #[serde(default)]
    wait: u64,
}

/// The configuration of a router, as soon as its generation is higher than `after`.
#[utoipa::path(
    get,
    path = "/v1/routers/{router}/config",
    params(("router" = String, Path, description = "The name of the router"), ConfigurationQuery),
    responses(
        (status = 200, body = Configuration),
        (status = 204, description = "There is none within the wait"),
        (status = "4XX", body = Refusal),
    ),
)]
pub(super) async fn configuration(
    State(app): State<Arc<App>>,
    RouterReader(router): RouterReader,
    query: Result<Query<ConfigurationQuery>, QueryRejection>,
) -> Result<Response, ErrorResponse> {
    let Query(ConfigurationQuery { after, wait }) = query.map_err(ErrorResponse::from)?;
    let unknown = || ErrorResponse::from(ControlError::UnknownRouter(router.clone()));
    let mut generations = app.with(|state| state.subscribe(&router)).ok_or_else(unknown)?;
    let mut stopping = app.stopping.clone();
    let end = tokio::time::sleep(Duration::from_secs(wait.min(WAIT_S_MAX)));
    tokio::pin!(end);
    loop {
        if *generations.borrow_and_update() > after {
            let found = app.with(|state| state.controller.configuration(&router));
            if let Some(configuration) = found.filter(|found| found.generation > after) {
                return Ok(Json(configuration).into_response());
            }
        }
        tokio::select! {
            changed = generations.changed() => changed.map_err(|_| unknown())?,
            () = &mut end => return Ok(StatusCode::NO_CONTENT.into_response()),
            _ = stopping.wait_for(|stops| *stops) => {
                return Ok(StatusCode::NO_CONTENT.into_response());
            }
        }
    }
}
