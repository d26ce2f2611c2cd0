//! From a request to the head of its response.
//!
//! 1. The host and the path give a name.
//! 2. The name's metadata give the version, and the head that its producer states.
//! 3. Conditions and ranges decide which bytes follow (`response`).

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body as HttpBody;
use weir_socket::SocketError;
use weir_wire::Name;

use super::Shared;
use super::body::{Body, empty};
use super::errors::Failure;
use super::fields::words;
use super::heads::{Found, HeadSource};
use super::listing;
use super::log::Access;
use super::response;
use super::uploads;
use crate::config::HostConfig;
use crate::head::{AnswerBody, ResponseHead};
use crate::names::{Target, name_of_path, name_with_headers};

const METHODS: &str = "GET, HEAD, OPTIONS";
/// Request headers that never select a response here: content is requested without coding.
const NOT_VARYING: [&str; 2] = ["accept-encoding", "origin"];

/// What a request found.
pub(super) enum Answer {
    /// The answer to an upload.
    Uploaded(ResponseHead, AnswerBody),
    Object(Arc<Found>, HeadSource),
    /// A directory without slash at the end of its path.
    Redirect(HeaderValue),
    Listing(String),
}

/// Answers a request. Never fails: errors are responses.
pub(super) async fn respond<B>(
    shared: &Arc<Shared>,
    client: IpAddr,
    request: Parts,
    body: B,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let target = request.uri.path_and_query().map_or("*", |target| target.as_str()).to_owned();
    let mut access =
        Access::new(client, request.method.to_string(), target, shared.metrics.clone());
    let answered = answer(shared, &request, body).await;
    let head_only = request.method == Method::HEAD;
    let mut response = match answered {
        Ok(Answer::Object(found, source)) => {
            access.source = response::source_word(source);
            shared.metrics.on_head(access.source);
            response::of_object(shared, &request, found, source, access)
        }
        Ok(Answer::Uploaded(head, body)) => uploads::response(shared, (head, body), access).await,
        Ok(Answer::Redirect(location)) => {
            access.status = StatusCode::MOVED_PERMANENTLY;
            let mut response = Response::new(empty());
            *response.status_mut() = access.status;
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        Ok(Answer::Listing(page)) => {
            access.add_bytes(page.len());
            listing::response(page)
        }
        Err(failure) => {
            access.status = failure.status;
            failure.response()
        }
    };
    if head_only {
        response = response.map(|_| empty());
    }
    allow_other_sites(response.headers_mut());
    response
}

/// Content is public by construction: no cookie and no authorization reaches an origin. So scripts
/// of other sites may read it (Fetch, CORS).
fn allow_other_sites(fields: &mut HeaderMap) {
    let any = HeaderValue::from_static("*");
    fields.entry(header::ACCESS_CONTROL_ALLOW_ORIGIN).or_insert_with(|| any.clone());
    fields.entry(header::ACCESS_CONTROL_EXPOSE_HEADERS).or_insert(any);
}

/// The answer to a preflight request, and to OPTIONS in general.
pub(super) fn options() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    for (name, value) in [
        (header::ALLOW, METHODS),
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    allow_other_sites(fields);
    response
}

async fn answer<B>(shared: &Arc<Shared>, request: &Parts, body: B) -> Result<Answer, Failure>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let is_upload = uploads::is_upload(&request.method);
    if !is_upload && request.method != Method::GET && request.method != Method::HEAD {
        return Err(Failure::method(METHODS));
    }
    shared.check_token(&request.headers)?;
    let host = host_of(shared, request)?;
    let query = request.uri.query().filter(|_| host.query);
    let target = name_of_path(&host.prefix, request.uri.path(), query)?;
    if is_upload {
        let (head, body) = uploads::upload(shared, &target.name, request, body).await?;
        return Ok(Answer::Uploaded(head, body));
    }
    if let Some(version) = target.version {
        let found = shared.heads.find_version(&target.name, version).await?;
        return Ok(Answer::Object(found, HeadSource::Memory));
    }
    let cache_control = words(&request.headers, &header::CACHE_CONTROL);
    let must_ask = cache_control.iter().any(|word| word == "no-cache" || word == "max-age=0");
    let found = shared.heads.find(&target.name, must_ask).await;
    match found {
        Ok((found, _)) if found.metadata.is_directory() => Ok(Answer::Redirect(folder(request)?)),
        Ok((found, source)) => {
            let variant = variant(host, request, &target.name, &found);
            let Some(variant) = variant else { return Ok(Answer::Object(found, source)) };
            let (found, source) = shared.heads.find(&variant, must_ask).await?;
            Ok(Answer::Object(found, source))
        }
        Err(error) if target.is_folder => find_in_directory(shared, host, &target, error).await,
        Err(error) => Err(error.into()),
    }
}

/// The host that serves a request.
fn host_of<'a>(shared: &'a Shared, request: &Parts) -> Result<&'a HostConfig, Failure> {
    let field = request.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = request.uri.authority().map(http::uri::Authority::as_str).or(field);
    let name = authority.unwrap_or_default();
    let name = match name.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => name.split(':').next().unwrap_or_default(),
    };
    let is_it = |host: &&HostConfig| host.host.eq_ignore_ascii_case(name);
    let hosts = &shared.config.hosts;
    let host = hosts.iter().find(is_it).or_else(|| hosts.iter().find(|host| host.host == "*"));
    host.ok_or_else(|| {
        Failure::new(StatusCode::NOT_FOUND, format!("no host {name} is configured here"))
    })
}

/// The path of a directory, with a slash at the end.
fn folder(request: &Parts) -> Result<HeaderValue, Failure> {
    let mut location = format!("{}/", request.uri.path());
    if let Some(query) = request.uri.query() {
        location = format!("{location}?{query}");
    }
    HeaderValue::from_str(&location)
        .map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "the path is malformed"))
}

/// The name of the variant of a response that depends on headers of this request. Only headers that
/// the response names in `Vary` and the configuration permits become a part of the name: all others
/// would split what clients can share.
fn variant(host: &HostConfig, request: &Parts, name: &Name, found: &Found) -> Option<Name> {
    let varies = words(&found.head.fields, &header::VARY);
    let mut headers = Vec::new();
    for field in &host.vary {
        let field = field.to_lowercase();
        let value = request.headers.get(&field).and_then(|value| value.to_str().ok());
        if let Some(value) = value
            && varies.contains(&field)
            && !NOT_VARYING.contains(&&field[..])
        {
            headers.push((field, value.to_owned()));
        }
    }
    (!headers.is_empty()).then(|| name_with_headers(name, &headers))
}

/// A path with a slash at the end whose name no producer serves: the index or the listing of a
/// directory.
async fn find_in_directory(
    shared: &Arc<Shared>,
    host: &HostConfig,
    target: &Target,
    error: SocketError,
) -> Result<Answer, Failure> {
    let directory = target.name.as_view().parent().to_name();
    if directory == host.prefix && directory.is_empty() {
        return Err(error.into());
    }
    let (found, _) = shared.heads.find(&directory, false).await?;
    if !found.metadata.is_directory() {
        return Err(error.into());
    }
    let entries = listing::fetch(shared, &found).await?;
    if entries.contains(&host.index) {
        let index = directory.clone().append_str(&host.index).clone();
        let (found, source) = shared.heads.find(&index, false).await?;
        return Ok(Answer::Object(found, source));
    }
    match host.listing {
        true => Ok(Answer::Listing(listing::page(&directory, &host.prefix, &entries))),
        false => Err(Failure::new(StatusCode::FORBIDDEN, "directories are not listed here")),
    }
}
