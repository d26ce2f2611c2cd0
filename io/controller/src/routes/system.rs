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
use weir_control::message::RouterReport;

use crate::access::Reader;
use crate::app::App;
use crate::database::{NUMBER_STEP, OutageCause};
use crate::metrics::Values;

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
) -> impl IntoResponse {
    let mut values = app.with(|state| {
        let controller = &state.controller;
        let has_problems = |(_, report): &(&str, &RouterReport)| !report.problems.is_empty();
        let counts = [
            controller.routers().count(),
            controller.routers().filter(has_problems).count(),
            controller.links_count(),
            controller.files_count(),
            controller.plans().count(),
            state.waiting_count(),
        ];
        let [routers, ill, links, files, plans, waiting] = counts.map(|count| count as u64);
        Values {
            gauges: [routers, ill, links, files, plans, waiting, 0, 0, 0],
            counters: [state.lost_routers(), 0, 0, 0],
            over_limit: controller.limit_counts().collect(),
        }
    });
    let journal = &app.journal;
    values.gauges[6..].copy_from_slice(&[
        journal.waiting_count() as u64,
        app.database.unreadable().count(),
        u64::from(app.outage().is_none()),
    ]);
    values.counters[1..].copy_from_slice(&[
        journal.lost_count(),
        journal.refused_count(),
        app.slots.evicted_count(),
    ]);
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let form = Exposition::wanted(accept.unwrap_or_default());
    ([(CONTENT_TYPE, form.content_type())], form.of(app.metrics.text(&values)))
}
