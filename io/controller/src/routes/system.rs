//! How the controller is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::access::Sees;
use crate::app::App;
use crate::refusal::Problem;

/// How the controller is.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `ok`, or `degraded` while decisions go on without the database.
    status: &'static str,
    /// Whether the database answers.
    database: bool,
    /// Plans and lines of the audit that wait for it.
    waiting_records: usize,
    /// Those that were lost because it was away for too long.
    lost_records: u64,
}

/// Whether it works, for those who watch over it. 503 while the database is away.
#[utoipa::path(
    get,
    path = "/health",
    security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)),
)]
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let database = !app.journal.is_away() && app.database.is_there().await;
    let health = Health {
        status: if database { "ok" } else { "degraded" },
        database,
        waiting_records: app.journal.waiting_count(),
        lost_records: app.journal.lost_count(),
    };
    let status = if database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

/// Counters as text for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    _: Sees,
) -> Result<impl IntoResponse, Problem> {
    let (counts, bounded) = app.with(|known| {
        let counts = [
            known.controller.routers().count(),
            known.controller.links_count(),
            known.owners.len(),
            known.controller.plans().count(),
            known.waiting_count(),
        ];
        (counts.map(|count| count as u64), known.controller.bounded().collect::<Vec<_>>())
    });
    let [routers, links, files, plans, requests] = counts;
    let (records, lost) = (app.journal.waiting_count() as u64, app.journal.lost_count());
    let up = u64::from(!app.journal.is_away());
    let values = [routers, links, files, plans, requests, records, lost, up];
    let text = app.metrics.text(values, &bounded);
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text.map_err(failed)?))
}
