//! Who may do what: tokens in requests, and bodies of bounded size.

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
        let error = "a token is needed: the header `Authorization: Bearer TOKEN`";
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
    if let Some(place) = parts.extensions.get::<Arc<ConnectionSlot>>() {
        place.mark_authenticated();
    }
    Ok(caller)
}

/// Lets in those who have one of these roles.
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
        "the token of {} is for a {}; this needs one for: {}",
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
        let error = "a router's name has 1 to 64 of A-Z a-z 0-9 . _ -";
        ErrorResponse::new(StatusCode::BAD_REQUEST, error)
    })
}

/// The router that a request is about, which makes it itself, and with which token.
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

/// The router that a request is about: its own, or of one who sees everything.
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
    let error = format!("the token is for router {}, not for {name}", caller.name);
    Err(ErrorResponse::new(StatusCode::FORBIDDEN, error))
}

/// Who registers and withdraws files.
pub(crate) struct ProducerCaller(pub(crate) Caller);

impl FromRequestParts<Arc<App>> for ProducerCaller {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        caller_with_role(&[Role::Producer, Role::Operator], parts, app).await.map(Self)
    }
}

pub(crate) struct Reader;

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        caller_with_role(&[Role::Operator, Role::Reader], parts, app).await.map(|_| Self)
    }
}

/// Who sees files: everybody but routers.
pub(crate) struct FileReader;

impl FromRequestParts<Arc<App>> for FileReader {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        let roles = [Role::Producer, Role::Operator, Role::Reader];
        caller_with_role(&roles, parts, app).await.map(|_| Self)
    }
}

/// A body that is as its schema says. It may come deflated, and is then as large as others at most.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = ErrorResponse;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ErrorResponse> {
        // Before anybody is asked to send it.
        if request.body().size_hint().lower() > app.body_bytes_max as u64 {
            return Err(too_large(app));
        }
        let late = |_| {
            let error = "the body takes too long to arrive";
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
                    |cause| format!("the body is not as it must be: {cause}"),
                );
                Err(ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, error))
            }
            Err(rejection) => Err(not_read(app, rejection.status(), rejection.body_text())),
        }
    }
}

fn too_large(app: &App) -> ErrorResponse {
    let max = app.body_bytes_max;
    let error = format!("the body is larger than {max} octets; send it in parts");
    ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

/// What axum does not take.
fn not_read(app: &App, status: StatusCode, text: String) -> ErrorResponse {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(app),
        status => ErrorResponse::new(status, text),
    }
}

/// The content codings of a body, without the one that changes nothing.
fn codings(request: &Request) -> Vec<&[u8]> {
    let lists = request.headers().get_all(CONTENT_ENCODING).iter();
    let codings = lists.flat_map(|list| list.as_bytes().split(|octet| *octet == b','));
    let is_none = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    codings.map(<[u8]>::trim_ascii).filter(|coding| !is_none(coding)).collect()
}

/// A request with its body as it was before it was deflated (RFC 9110, 8.4.1.2), if it was.
async fn inflated(mut request: Request, app: &Arc<App>) -> Result<Request, ErrorResponse> {
    match codings(&request)[..] {
        [] => return Ok(request),
        [coding] if coding.eq_ignore_ascii_case(b"deflate") => {}
        _ => {
            let error = "a body comes as it is or with `Content-Encoding: deflate`";
            return Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
    }
    request.headers_mut().remove(CONTENT_ENCODING);
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let octets = Bytes::from_request(request, app)
        .await
        .map_err(|rejection| not_read(app, rejection.status(), rejection.body_text()))?;
    let octets = decompress_to_vec_zlib_with_limit(&octets, app.body_bytes_max);
    let octets = octets.map_err(|error| match error.status {
        TINFLStatus::HasMoreOutput => too_large(app),
        _ => ErrorResponse::new(StatusCode::BAD_REQUEST, "the body is not deflated as it says"),
    })?;
    Ok(Request::from_parts(parts, octets.into()))
}
