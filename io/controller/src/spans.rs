//! Spans of requests and decisions, for traces. Without a subscriber for them they cost nothing.
//!
//! ```text
//! PUT /v1/routers/{router}   a request of the REST interface
//!   decision                 where a router gets a file that it lacks
//!     plan                   a plan that this made, ended or replaced
//! epoch                      a tick that changed something
//!   plan
//! ```
//!
//! Their level is TRACE, so logs do not show them. Integers are `i64`, because OpenTelemetry has no
//! other.

use std::fmt::Display;

use axum::http::StatusCode;
use tracing::field::Empty;
use tracing::{Span, trace_span};
use weir_base::units::saturating_i64;
use weir_control::message::{Decision, Forwarded};
use weir_control::{ControlError, Plan};
use weir_wire::Name;

use crate::database::Record;

/// Routers of a plan that its span lists.
const PARTS_SHOWN_MAX: usize = 64;

/// A request. Clients may invent methods and paths, so those that no route has share one name.
pub(crate) fn request(method: &'static str, route: &str) -> Span {
    let (method, route) = if route.is_empty() { ("other", "") } else { (method, route) };
    trace_span!(
        "request",
        otel.name = format!("{method} {route}").trim_end(),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        weir.plans = Empty,
        weir.lost_routers = Empty,
    )
}

pub(crate) fn end_request(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    // The client's errors are no errors of the server, by OpenTelemetry's conventions for HTTP.
    if status.is_server_error() {
        span.record("otel.status_code", "error");
    }
}

/// The decision about an object that a router lacks.
pub(crate) fn decision(router: &str, object: &Name) -> Span {
    trace_span!(
        "decision",
        weir.router = router,
        weir.object = %object,
        weir.decision = Empty,
        weir.generation = Empty,
        weir.plans = Empty,
        weir.lost_routers = Empty,
        otel.status_description = Empty,
    )
}

pub(crate) fn end_decision(span: &Span, forwarded: &Result<Forwarded, ControlError>) {
    match forwarded {
        _ if span.is_disabled() => {}
        Ok(forwarded) => {
            span.record("weir.decision", decision_name(forwarded.decision));
            span.record("weir.generation", saturating_i64(forwarded.generation));
        }
        Err(error) => {
            span.record("otel.status_description", tracing::field::display(error));
        }
    }
}

fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Unknown => "unknown",
        Decision::Small => "small",
        Decision::NoRoom => "no-room",
        Decision::Planned => "planned",
    }
}

/// Runs a tick, which returns its number of changes, in a span. The span is sent only if there are
/// changes.
pub(crate) fn epoch(tick: impl FnOnce() -> usize) {
    let span =
        trace_span!("epoch", weir.plans = Empty, weir.lost_routers = Empty, weir.discard = Empty,);
    let changes = span.in_scope(tick);
    if changes == 0 {
        span.record("weir.discard", true);
    }
}

/// Records changes in the span of the request, decision or tick that caused them, and each plan in
/// a span of its own.
pub(crate) fn record_decisions(records: &[Record]) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    let plans: Vec<&Plan> = records.iter().filter_map(plan_of).collect();
    let is_lost = |record: &&Record| matches!(record, Record::RouterLost { .. });
    let lost = records.iter().filter(is_lost).count();
    for (name, count) in [("weir.plans", plans.len()), ("weir.lost_routers", lost)] {
        if count > 0 {
            span.record(name, saturating_i64(count as u64));
        }
    }
    for plan in plans {
        let parts = plan.parts.iter();
        let parts = parts.map(|part| format!("{}:{}-{}", part.router, part.first, part.last));
        let segments = plan.parts.iter().map(|part| part.last - part.first + 1).sum();
        let shares = plan.spread.iter().map(|share| format!("{}:{}", share.router, share.weight));
        drop(trace_span!(
            "plan",
            weir.object = %plan.object,
            weir.plan = saturating_i64(plan.number),
            weir.follows = saturating_i64(plan.parent),
            weir.ended = plan.is_end(),
            weir.segments = saturating_i64(segments),
            weir.parts = list(parts),
            weir.spread = list(shares),
            weir.consumers = list(plan.consumers.iter()),
        ));
    }
}

fn plan_of(record: &Record) -> Option<&Plan> {
    match record {
        Record::Plan { plan, .. } => Some(plan),
        _ => None,
    }
}

/// Words with spaces between them; the first ones if there are many.
fn list(words: impl Iterator<Item = impl Display>) -> String {
    let mut shown: Vec<String> =
        words.take(PARTS_SHOWN_MAX + 1).map(|word| word.to_string()).collect();
    if shown.len() > PARTS_SHOWN_MAX {
        shown[PARTS_SHOWN_MAX] = "...".to_owned();
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list(["a", "b"].iter()), "a b");
        let text = list(0..1000);
        assert!(text.ends_with(" 63 ..."), "{text}");
    }
}
