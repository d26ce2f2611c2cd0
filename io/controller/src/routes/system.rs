//! The state of the controller itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use weir_base::Exposition;

use crate::access::Reader;
use crate::app::App;
use crate::database::{NUMBER_STEP, OutageCause};
use crate::error_response::ErrorResponse;

/// The state of the controller.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `ok`, or `degraded` while the controller works without its database.
    status: &'static str,
    /// Whether the database works.
    database: bool,
    /// Why it does not.
    why: Option<OutageCause>,
    /// Records that wait to be written to the database.
    waiting_records: usize,
    /// Records dropped because the database was unavailable for too long.
    lost_records: u64,
    /// Records that the database refused because of their content.
    refused_records: u64,
    /// Database rows that cannot be read and are skipped, at most 1,000. Another program wrote
    /// them, or a disk is faulty.
    garbled_rows: u64,
    /// One of these rows with its error.
    garbled: Option<String>,
    /// Why changes of other controllers cannot be read at present, if they cannot.
    unread: Option<String>,
    /// Whether the controller gives no configurations at present: routers may not have reported
    /// yet, or another controller has more routers.
    waits: bool,
    /// The number of this controller, which its plan numbers end in.
    run: u64,
    /// Addresses of other running controllers of the database.
    others: Vec<String>,
}

/// Whether the controller works, for monitoring. 503 while the database is unavailable.
#[utoipa::path(
    get,
    path = "/health",
    security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)),
)]
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    // Do not wait for a database that is known to be unavailable.
    let silent = match app.outage() {
        Some(_) => None,
        None => app.database.answers().await.err().map(|error| error.outage_cause()),
    };
    let health = Health::of(&app, silent);
    let status = if health.database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

impl Health {
    /// The state, with the cause if the database has just failed to answer.
    pub(super) fn of(app: &App, silent: Option<OutageCause>) -> Self {
        let why = app.outage().or(silent);
        let database = why.is_none();
        Self {
            status: if database { "ok" } else { "degraded" },
            database,
            why,
            waiting_records: app.journal.waiting_count(),
            lost_records: app.journal.lost_count(),
            refused_records: app.journal.refused_count(),
            garbled_rows: app.database.unreadable().count(),
            garbled: app.database.unreadable().first(),
            unread: app.read_failure(),
            waits: app.with(|state| state.controller.is_waiting()),
            run: app.run.load(Ordering::Relaxed) % NUMBER_STEP,
            others: app.other_urls.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Metrics as text for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    _: Reader,
) -> Result<impl IntoResponse, ErrorResponse> {
    let (counts, bounded) = app.with(|state| {
        let counts = [
            state.controller.routers().count(),
            state.controller.links_count(),
            state.controller.files_count(),
            state.controller.plans().count(),
            state.waiting_count(),
        ];
        (counts.map(|count| count as u64), state.controller.limit_counts().collect::<Vec<_>>())
    });
    let [routers, links, files, plans, requests] = counts;
    let (records, lost) = (app.journal.waiting_count() as u64, app.journal.lost_count());
    let (refused, up) = (app.journal.refused_count(), u64::from(app.outage().is_none()));
    let garbled = app.database.unreadable().count();
    let displaced = app.slots.evicted_count();
    let values =
        [routers, links, files, plans, requests, records, lost, refused, garbled, up, displaced];
    let text = app.metrics.text(values, &bounded);
    let failed =
        |_| ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written");
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let form = Exposition::wanted(accept.unwrap_or_default());
    Ok(([(CONTENT_TYPE, form.content_type())], form.of(text.map_err(failed)?)))
}
