//! The REST interface: one file for each group of resources.

mod dashboard;
mod files;
mod observe;
mod routers;
mod system;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use tracing::Instrument;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApiBuilder, SecurityRequirement};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::drain_body;
use crate::error_response::ErrorResponse;
use crate::metrics::RequestLabels;
use crate::spans;

/// The name of the security scheme in the OpenAPI description.
const TOKEN: &str = "token";

fn documented() -> OpenApiRouter<Arc<App>> {
    let info = InfoBuilder::new()
        .title("Weir controller")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Plans which routers keep which parts of files. A request may have its body as it is \
             or with `Content-Encoding: deflate`, a zlib stream (RFC 9110, 8.4.1.2). The size \
             limit applies to the inflated body as well.",
        ));
    let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let mut api = OpenApiBuilder::new().info(info.build()).build();
    api.components.get_or_insert_default().add_security_scheme(TOKEN, token);
    api.security = Some(vec![SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
    OpenApiRouter::with_openapi(api)
        .routes(routes!(routers::report))
        .routes(routes!(routers::update))
        .routes(routes!(routers::forward))
        .routes(routes!(routers::configuration))
        .routes(routes!(files::list, files::add, files::remove))
        .routes(routes!(files::add_list))
        .routes(routes!(files::holdings))
        .routes(routes!(observe::routers))
        .routes(routes!(observe::links))
        .routes(routes!(observe::plans))
        .routes(routes!(observe::plan))
        .routes(routes!(observe::events))
        .routes(routes!(observe::state))
        .routes(routes!(system::metrics))
        .routes(routes!(system::health))
}

/// All routes.
pub(crate) fn all(app: Arc<App>) -> Router {
    let (router, api) = documented().split_for_parts();
    // Build the description once: it never changes, and takes milliseconds to build.
    let description = api.to_json().unwrap_or_default();
    let description = get(async move || ([(CONTENT_TYPE, "application/json")], description));
    router
        .route("/openapi.json", description)
        .merge(dashboard::routes())
        .fallback(async || {
            ErrorResponse::not_found("this path does not exist; /openapi.json lists all paths")
        })
        .method_not_allowed_fallback(async || {
            let error =
                "this path does not support the method; /openapi.json lists what it supports";
            ErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, error)
        })
        .layer(DefaultBodyLimit::max(app.body_bytes_max))
        .layer(from_fn_with_state(app.clone(), count))
        .layer(from_fn_with_state(app.clone(), drain_body::drain_request))
        .with_state(app)
}

/// The method as a label. Clients may invent methods, which share one label.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(String::new, |path| path.as_str().to_owned());
    let span = spans::request(method, &route);
    let response = next.run(request).instrument(span.clone()).await;
    spans::end_request(&span, response.status());
    // Unknown paths get an empty label. Otherwise any client could create many labels.
    let method = if route.is_empty() { "" } else { method };
    let labels = RequestLabels { method, route, status: response.status().as_u16() };
    app.metrics.requests.get_or_create(&labels).inc();
    response
}
