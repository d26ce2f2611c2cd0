//! Authorization of requests by tokens, and bodies of limited size.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING};
use axum::http::request::Parts;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_zlib_with_limit};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::connection_slots::ConnectionSlot;
use crate::error_response::ErrorResponse;
use crate::token::{Role, is_name};
use crate::tokens::{Caller, TokenError};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

async fn caller(parts: &Parts, app: &App) -> Result<Caller, ErrorResponse> {
    let header = parts.headers.get(AUTHORIZATION);
    let text = header.and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let Some(text) = text else {
        let error = "the request has no token; send the header `Authorization: Bearer TOKEN`";
        return Err(ErrorResponse::new(StatusCode::UNAUTHORIZED, error));
    };
    let caller = app.tokens.caller(text, &app.database).await.map_err(|error| {
        let status = match error {
            TokenError::Unknown | TokenError::Expired(..) | TokenError::NotYetValid(..) => {
                StatusCode::UNAUTHORIZED
            }
            TokenError::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
        };
        ErrorResponse::new(status, error.to_string())
    })?;
    // Move the connection out of the anonymous slots, where others could evict it.
    if let Some(place) = parts.extensions.get::<Arc<ConnectionSlot>>() {
        place.mark_authenticated();
    }
    Ok(caller)
}

/// The caller, if its token has one of these roles.
async fn caller_with_role(
    roles: &[Role],
    parts: &Parts,
    app: &App,
) -> Result<Caller, ErrorResponse> {
    let caller = caller(parts, app).await?;
    if roles.contains(&caller.role) {
        return Ok(caller);
    }
    let roles: Vec<String> = roles.iter().map(Role::to_string).collect();
    let error = format!(
        "the token of {} has the role {}; this request needs a token with one of the roles: {}",
        caller.name,
        caller.role,
        roles.join(", ")
    );
    Err(ErrorResponse::new(StatusCode::FORBIDDEN, error))
}

async fn router_name(parts: &mut Parts) -> Result<String, ErrorResponse> {
    let path = Path::<String>::from_request_parts(parts, &()).await;
    let name = path.ok().map(|Path(name)| name).filter(|name| is_name(name));
    name.ok_or_else(|| {
        let error = "the router's name in the path is invalid: use 1 to 64 of A-Z a-z 0-9 . _ -";
        ErrorResponse::new(StatusCode::BAD_REQUEST, error)
    })
}

/// A request of a router about itself: its name, and the caller.
pub(crate) struct OwnRouter(pub(crate) String, pub(crate) Caller);

impl FromRequestParts<Arc<App>> for OwnRouter {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        let caller = caller_with_role(&[Role::Router], parts, app).await?;
        let name = router_name(parts).await?;
        check_own_name(&caller, &name)?;
        Ok(Self(name, caller))
    }
}

/// A request about a router, by that router or by someone who may see all routers.
pub(crate) struct RouterReader(pub(crate) String);

impl FromRequestParts<Arc<App>> for RouterReader {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        let roles = [Role::Router, Role::Operator, Role::Reader];
        let caller = caller_with_role(&roles, parts, app).await?;
        let name = router_name(parts).await?;
        if caller.role == Role::Router {
            check_own_name(&caller, &name)?;
        }
        Ok(Self(name))
    }
}

fn check_own_name(caller: &Caller, name: &str) -> Result<(), ErrorResponse> {
    if caller.name == name {
        return Ok(());
    }
    let error =
        format!("the token is for router {}, not for {name}; use the token of {name}", caller.name);
    Err(ErrorResponse::new(StatusCode::FORBIDDEN, error))
}

/// A request to register or withdraw files.
pub(crate) struct ProducerCaller(pub(crate) Caller);

impl FromRequestParts<Arc<App>> for ProducerCaller {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        caller_with_role(&[Role::Producer, Role::Operator], parts, app).await.map(Self)
    }
}

/// A request to see routers, plans and events.
pub(crate) struct Reader;

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        caller_with_role(&[Role::Operator, Role::Reader], parts, app).await.map(|_| Self)
    }
}

/// A request to see files; all roles but routers may.
pub(crate) struct FileReader;

impl FromRequestParts<Arc<App>> for FileReader {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        let roles = [Role::Producer, Role::Operator, Role::Reader];
        caller_with_role(&roles, parts, app).await.map(|_| Self)
    }
}

/// A JSON body that matches its schema. It may be compressed (`deflate`); the size limit applies to
/// the inflated body as well.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = ErrorResponse;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        // Refuse a large body before the client is asked to send it (`Expect: 100-continue`).
        if request.body().size_hint().lower() > app.body_bytes_max as u64 {
            return Err(too_large(app));
        }
        let late = |_| {
            let error = "the body did not arrive in time; send the request again";
            ErrorResponse::new(StatusCode::REQUEST_TIMEOUT, error)
        };
        let read = async {
            let request = inflated(request, app).await?;
            Ok::<_, ErrorResponse>(Json::<T>::from_request(request, app).await)
        };
        match tokio::time::timeout(BODY_TIMEOUT, read).await.map_err(late)?? {
            Ok(Json(body)) => Ok(Self(body)),
            Err(JsonRejection::JsonDataError(error)) => {
                let error = std::error::Error::source(&error).map_or_else(
                    || error.body_text(),
                    |cause| format!("the body does not match its schema: {cause}"),
                );
                Err(ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, error))
            }
            Err(rejection) => Err(not_read(app, rejection.status(), rejection.body_text())),
        }
    }
}

fn too_large(app: &App) -> ErrorResponse {
    let max = app.body_bytes_max;
    let error = format!("the body is larger than {max} bytes; send it in several requests");
    ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

/// The error for a body that axum refuses.
fn not_read(app: &App, status: StatusCode, text: String) -> ErrorResponse {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(app),
        status => ErrorResponse::new(status, text),
    }
}

/// The content codings of a body, without `identity`.
fn codings(request: &Request) -> Vec<&[u8]> {
    let lists = request.headers().get_all(CONTENT_ENCODING).iter();
    let codings = lists.flat_map(|list| list.as_bytes().split(|octet| *octet == b','));
    let is_none = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    codings.map(<[u8]>::trim_ascii).filter(|coding| !is_none(coding)).collect()
}

/// The request with its body inflated, if it is compressed (RFC 9110, 8.4.1.2).
async fn inflated(mut request: Request, app: &Arc<App>) -> Result<Request, ErrorResponse> {
    match codings(&request)[..] {
        [] => return Ok(request),
        [coding] if coding.eq_ignore_ascii_case(b"deflate") => {}
        _ => {
            let error =
                "this content coding is not supported; send the body as it is or with `deflate`";
            return Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
    }
    request.headers_mut().remove(CONTENT_ENCODING);
    // Reading the body consumes the request, so keep a copy of its head.
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let octets = Bytes::from_request(request, app)
        .await
        .map_err(|rejection| not_read(app, rejection.status(), rejection.body_text()))?;
    let octets = decompress_to_vec_zlib_with_limit(&octets, app.body_bytes_max);
    let octets = octets.map_err(|error| match error.status {
        TINFLStatus::HasMoreOutput => too_large(app),
        _ => ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "the body says `Content-Encoding: deflate` but is not a valid zlib stream",
        ),
    })?;
    Ok(Request::from_parts(parts, octets.into()))
}
