//! Resources for people.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use weir_control::message::{Refusal, RouterReport};
use weir_control::{File, Link, Plan, Segments};

use crate::access::Reader;
use crate::app::{App, ControllerState};
use crate::database::{AuditRow, DatabaseError, PlanRow};
use crate::error_response::ErrorResponse;
use crate::history::Sample;
use crate::routes::system::Health;

/// Maximum and default number of rows in an answer.
const ROWS_MAX: u64 = 1000;
const ROWS: u64 = 100;
/// Plans whose progress one page of the dashboard shows, and audit lines next to them.
const SHOWN_PLANS: usize = 20;
const SHOWN_EVENTS: u64 = 30;
/// Maximum number of routers whose holdings of a file it shows, and the approximate maximum number
/// of ranges of each.
const SHOWN_HOLDERS: usize = 64;
const SHOWN_RANGES: u64 = 1000;

/// A router that has reported recently.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct RouterView {
    /// Its name.
    name: String,
    /// When it reported last, in milliseconds since 1970.
    seen_ms: u64,
    /// The generation of its configuration. `generation` is the one that it has set up.
    configuration: u64,
    #[serde(flatten)]
    report: RouterReport,
}

/// A link from one router to another.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct LinkView {
    /// The router that has the face.
    from: String,
    /// The router that the face leads to.
    to: String,
    /// Round-trip time in nanoseconds, if it is known.
    round_trip_ns: Option<u64>,
    /// Capacity in bits per second, if it is known.
    rate_bps: Option<u64>,
    /// Recent traffic in bits per second.
    load_bps: u64,
}

fn routers_of(state: &ControllerState) -> Vec<RouterView> {
    let view = |(name, report): (&str, &RouterReport)| RouterView {
        name: name.to_owned(),
        seen_ms: state.seen_ms.get(name).copied().unwrap_or(0),
        configuration: state.controller.generation_of(name),
        report: report.clone(),
    };
    state.controller.routers().map(view).collect()
}

fn links_of(state: &ControllerState) -> Vec<LinkView> {
    let view = |link: &Link| LinkView {
        from: link.from.clone(),
        to: link.to.clone(),
        round_trip_ns: link.round_trip_ns,
        rate_bps: link.rate_bps,
        load_bps: link.load_bps,
    };
    state.controller.links().iter().map(view).collect()
}

/// Lists the routers that have reported recently.
#[utoipa::path(
    get,
    path = "/v1/routers",
    responses((status = 200, body = Vec<RouterView>), (status = "4XX", body = Refusal)),
)]
pub(super) async fn routers(State(app): State<Arc<App>>, _: Reader) -> Json<Vec<RouterView>> {
    Json(app.with(|state| routers_of(state)))
}

/// Lists the links between routers.
#[utoipa::path(
    get,
    path = "/v1/links",
    responses((status = 200, body = Vec<LinkView>), (status = "4XX", body = Refusal)),
)]
pub(super) async fn links(State(app): State<Arc<App>>, _: Reader) -> Json<Vec<LinkView>> {
    Json(app.with(|state| links_of(state)))
}

/// Which rows to list.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsQuery {
    /// Only rows with a lower number than this.
    before: Option<u64>,
    /// How many, at most 1,000.
    count: Option<u64>,
}

impl RowsQuery {
    fn bounds(self) -> (u64, u64) {
        (self.before.unwrap_or(u64::MAX), self.count.unwrap_or(ROWS).min(ROWS_MAX))
    }
}

/// Lists plans, including superseded ones, the newest first.
#[utoipa::path(
    get,
    path = "/v1/plans",
    params(RowsQuery),
    responses(
        (status = 200, body = Vec<PlanRow>),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is unavailable", body = Refusal),
    ),
)]
pub(super) async fn plans(
    State(app): State<Arc<App>>,
    _: Reader,
    query: Result<Query<RowsQuery>, QueryRejection>,
) -> Result<Json<Vec<PlanRow>>, ErrorResponse> {
    let Query(rows) = query.map_err(ErrorResponse::from)?;
    let (before, count) = rows.bounds();
    Ok(Json(app.database.plans(before, count).await?))
}

/// Shows a plan.
#[utoipa::path(
    get,
    path = "/v1/plans/{number}",
    params(("number" = u64, Path, description = "Its number")),
    responses(
        (status = 200, body = PlanRow),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is unavailable", body = Refusal),
    ),
)]
pub(super) async fn plan(
    State(app): State<Arc<App>>,
    _: Reader,
    number: Result<Path<u64>, PathRejection>,
) -> Result<Json<PlanRow>, ErrorResponse> {
    let Path(number) = number.map_err(ErrorResponse::from)?;
    let found = app.database.plan(number).await?;
    found.map(Json).ok_or_else(|| {
        ErrorResponse::not_found(format!(
            "plan {number} does not exist; GET /v1/plans lists the plans"
        ))
    })
}

/// Lists the audit: who did what, and when, the newest first.
#[utoipa::path(
    get,
    path = "/v1/events",
    params(RowsQuery),
    responses(
        (status = 200, body = Vec<AuditRow>),
        (status = "4XX", body = Refusal),
        (status = 503, description = "The database is unavailable", body = Refusal),
    ),
)]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    _: Reader,
    query: Result<Query<RowsQuery>, QueryRejection>,
) -> Result<Json<Vec<AuditRow>>, ErrorResponse> {
    let Query(rows) = query.map_err(ErrorResponse::from)?;
    let (before, count) = rows.bounds();
    Ok(Json(app.database.audit(before, count).await?))
}

/// A plan in force with its progress.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
struct Transfer {
    #[serde(flatten)]
    plan: Plan,
    /// The file. Its plan ends when it is withdrawn.
    file: File,
    /// How many segments of their parts the keepers hold.
    kept: u64,
    /// Holdings of routers, keepers first, at most 64.
    holdings: Vec<HeldRanges>,
    /// How many routers hold some of it.
    holders_count: usize,
}

/// The segments that a router holds, as `[first, last]`. Gaps of up to a thousandth of the file are
/// filled.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
struct HeldRanges {
    router: String,
    segments: Vec<(u64, u64)>,
    /// The exact number of segments.
    count: u64,
}

/// Everything that the dashboard shows.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Overview {
    /// Time of the controller's clock, in milliseconds since 1970.
    now_ms: u64,
    version: &'static str,
    health: Health,
    routers: Vec<RouterView>,
    links: Vec<LinkView>,
    files_count: usize,
    plans_count: usize,
    /// How many plans are of files with the requested text in their name.
    found_count: usize,
    /// One page of these plans, the newest first.
    transfers: Vec<Transfer>,
    /// The last hour, a sample every 30 seconds.
    history: Vec<Sample>,
    /// The newest audit lines; empty while the database is unavailable.
    events: Vec<AuditRow>,
    /// Routers that are known and not present here: the name, the time of the last report, and
    /// whether the router is lost (it reports to no other controller either).
    gone: Vec<(String, u64, bool)>,
    /// Routers that are refused because another one has their name: the name, and their addresses.
    twins: Vec<(String, Vec<String>)>,
}

/// Which plans to show.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StateQuery {
    /// Only files with this text in their name.
    #[serde(default)]
    find: String,
    /// Which page of 20 plans; 0 is the newest.
    #[serde(default)]
    page: usize,
}

/// One page of the plans whose file has the requested text in its name, and the number of all of
/// them.
fn transfers_of(state: &ControllerState, query: &StateQuery) -> (Vec<Transfer>, usize) {
    let is_meant = |plan: &&Plan| {
        query.find.is_empty() || plan.object.to_string().contains(query.find.as_str())
    };
    let mut plans: Vec<&Plan> = state.controller.plans().filter(is_meant).collect();
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.number));
    let count = plans.len();
    let skipped = query.page.saturating_mul(SHOWN_PLANS);
    let shown = plans.into_iter().skip(skipped).take(SHOWN_PLANS);
    (shown.filter_map(|plan| transfer_of(state, plan)).collect(), count)
}

fn transfer_of(state: &ControllerState, plan: &Plan) -> Option<Transfer> {
    let file = state.controller.file(&plan.object).cloned()?;
    let mut held = state.controller.holdings(&plan.object);
    let keeps = |router: &str| plan.parts.iter().any(|part| part.router == router);
    // Keepers first: `false` sorts before `true`.
    held.sort_by_key(|(router, _)| !keeps(router));
    let kept = plan.parts.iter().flat_map(|part| {
        let own = held.iter().filter(|(router, _)| *router == part.router);
        own.map(|(_, segments)| segments.count_within(part.first, part.last))
    });
    let (kept, holders_count) = (kept.sum(), held.len());
    let blur = file.segments / SHOWN_RANGES;
    let holdings = held.into_iter().take(SHOWN_HOLDERS).map(|(router, segments)| HeldRanges {
        router: router.to_owned(),
        count: segments.count(),
        segments: merge_near_ranges(&segments, blur),
    });
    let holdings = holdings.collect();
    Some(Transfer { plan: plan.clone(), file, kept, holdings, holders_count })
}

/// The ranges, with those merged whose distance is at most `gap` segments.
fn merge_near_ranges(segments: &Segments, gap: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (first, last) in segments.ranges() {
        match ranges.last_mut() {
            Some((_, end)) if first - *end <= gap => *end = last,
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Everything that the dashboard shows, in one answer.
#[utoipa::path(
    get,
    path = "/v1/state",
    params(StateQuery),
    responses((status = 200, body = Overview), (status = "4XX", body = Refusal)),
)]
pub(super) async fn state(
    State(app): State<Arc<App>>,
    _: Reader,
    query: Result<Query<StateQuery>, QueryRejection>,
) -> Result<Json<Overview>, ErrorResponse> {
    let Query(query) = query.map_err(ErrorResponse::from)?;
    let rows = async {
        let events = app.database.audit(u64::MAX, SHOWN_EVENTS).await?;
        Ok::<_, DatabaseError>((events, app.database.routers().await?))
    };
    // Read the database before locking the state, so that decisions do not wait for it.
    let rows = rows.await;
    let health = Health::of(&app, rows.as_ref().err().map(DatabaseError::outage_cause));
    let (events, mut gone) = rows.unwrap_or_default();
    let overview = app.with(|state| {
        let routers = routers_of(state);
        let twins = state.controller.duplicates();
        gone.retain(|(name, ..)| !routers.iter().any(|router| router.name == *name));
        let (transfers, found_count) = transfers_of(state, &query);
        Overview {
            now_ms: app.wall_clock.now_ms(),
            version: env!("CARGO_PKG_VERSION"),
            health,
            routers,
            links: links_of(state),
            files_count: state.controller.files_count(),
            plans_count: state.controller.plans().count(),
            found_count,
            transfers,
            history: state.history.samples(),
            events,
            gone,
            twins: twins.map(|(name, uris)| (name.to_owned(), uris.to_vec())).collect(),
        }
    });
    Ok(Json(overview))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_ranges_with_small_gaps() {
        let mut held = Segments::range(0, 9);
        held.insert(12..=20);
        held.insert(30..=30);
        assert_eq!(merge_near_ranges(&held, 0), [(0, 9), (12, 20), (30, 30)]);
        assert_eq!(merge_near_ranges(&held, 3), [(0, 20), (30, 30)]);
        assert_eq!(merge_near_ranges(&held, 10), [(0, 30)]);
        assert_eq!(merge_near_ranges(&Segments::default(), 10), []);
    }
}
