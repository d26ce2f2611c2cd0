//! How the controller is.

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

/// How the controller is.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `ok`, or `degraded` while decisions go on without the database.
    status: &'static str,
    /// Whether the database answers.
    database: bool,
    /// Why it does not.
    why: Option<OutageCause>,
    /// Plans and lines of the audit that wait for it.
    waiting_records: usize,
    /// Those that were lost because it was away for too long.
    lost_records: u64,
    /// Those that the database refused by themselves, whatever it is that is wrong with them.
    refused_records: u64,
    /// Rows of the database that could not be read since the start, and were passed over; 1,000 at
    /// most. Somebody else wrote them, or a disk has spoilt them.
    garbled_rows: u64,
    /// One of them, and what is wrong with it.
    garbled: Option<String>,
    /// Why what other controllers write cannot be read at present, if it cannot.
    unread: Option<String>,
    /// Whether it gives no configurations at present: routers may not have come back yet, or other
    /// controllers hear more of them.
    waits: bool,
    /// The number of this controller, which its plans end with, and addresses of others that run.
    run: u64,
    /// See there.
    others: Vec<String>,
}

/// Whether it works, for those who watch over it. 503 while the database is away.
#[utoipa::path(
    get,
    path = "/health",
    security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)),
)]
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    // One that is known to be away is not waited for.
    let silent = match app.outage() {
        Some(_) => None,
        None => app.database.answers().await.err().map(|error| error.outage_cause()),
    };
    let health = Health::of(&app, silent);
    let status = if health.database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

impl Health {
    /// With why the database has not answered just now, if it has not.
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
            waits: app.with(|known| known.controller.is_waiting()),
            run: app.run.load(Ordering::Relaxed) % NUMBER_STEP,
            others: app.other_urls.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Counters as text for Prometheus.
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
    let (counts, bounded) = app.with(|known| {
        let counts = [
            known.controller.routers().count(),
            known.controller.links_count(),
            known.controller.files_count(),
            known.controller.plans().count(),
            known.waiting_count(),
        ];
        (counts.map(|count| count as u64), known.controller.limit_counts().collect::<Vec<_>>())
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
