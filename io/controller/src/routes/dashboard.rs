//! The dashboard: a page that requests `/v1/state` with a token. The page itself contains no
//! secret.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::app::App;

/// Only the dashboard's own files and no inline scripts are allowed, because names of routers and
/// files come from others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers =
        [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text)
}

pub(super) fn routes() -> Router<Arc<App>> {
    let page = include_str!("../dashboard/index.html");
    let style = include_str!("../dashboard/style.css");
    let script = include_str!("../dashboard/dashboard.js");
    Router::new()
        .route("/", get(async || asset("text/html; charset=utf-8", page)))
        .route("/style.css", get(async || asset("text/css; charset=utf-8", style)))
        .route("/dashboard.js", get(async || asset("text/javascript; charset=utf-8", script)))
}
