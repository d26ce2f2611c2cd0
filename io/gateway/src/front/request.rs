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
use http::{Method, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use weir_socket::SocketError;
use weir_wire::Name;

use super::Shared;
use super::body::{Body, empty};
use super::errors::{Failure, METHODS};
use super::fields::words;
use super::heads::{FoundVersion, HeadSource};
use super::listing;
use super::log::Access;
use super::response::{self, ResolvedObject};
use super::uploads;
use crate::config::HostConfig;
use crate::head::{AnswerBody, ResponseHead};
use crate::names::{name_of_path, name_with_headers};

/// Request headers that never select a response here: content is requested without coding.
const NOT_VARYING: [&str; 2] = ["accept-encoding", "origin"];

/// What a request leads to.
enum Resolution {
    /// The answer to an upload.
    Uploaded(ResponseHead, AnswerBody),
    Object(ResolvedObject),
    /// A directory without slash at the end of its path.
    Redirect(HeaderValue),
    Listing(String),
    /// The methods of a resource.
    Methods,
}

/// The current version of an object.
fn current((found, source): (Arc<FoundVersion>, HeadSource)) -> Resolution {
    Resolution::Object(ResolvedObject { found, source, is_versioned: false })
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
    let resolved = resolve(shared, &request, body).await;
    let head_only = request.method == Method::HEAD;
    let mut response = match resolved {
        Ok(Resolution::Object(object)) => {
            access.source = response::source_word(object.source);
            shared.metrics.on_head(access.source);
            response::of_object(shared, &request, &object, access)
        }
        Ok(Resolution::Uploaded(head, body)) => {
            uploads::response(shared, (head, body), access).await
        }
        Ok(Resolution::Methods) => {
            access.status = StatusCode::NO_CONTENT;
            options(methods(shared))
        }
        Ok(Resolution::Redirect(location)) => {
            access.status = StatusCode::MOVED_PERMANENTLY;
            let mut response = Response::new(empty());
            *response.status_mut() = access.status;
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        Ok(Resolution::Listing(page)) => {
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
    } else if request.version < Version::HTTP_11 && !has_length(&response) {
        // In HTTP/1.0 the end of the connection is the end of the body, so one that breaks off
        // would look complete.
        let reason = "HTTP/1.0 cannot carry content of unknown length; use HTTP/1.1";
        response = Failure::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, reason).response();
    }
    allow_other_sites(response.headers_mut());
    response
}

fn has_length(response: &Response<Body>) -> bool {
    response.headers().contains_key(header::CONTENT_LENGTH)
        || response.body().size_hint().exact().is_some()
}

/// Content is public by construction: no cookie and no authorization reaches an origin. So scripts
/// of other sites may read it (Fetch, CORS).
fn allow_other_sites(fields: &mut HeaderMap) {
    let any = HeaderValue::from_static("*");
    fields.entry(header::ACCESS_CONTROL_ALLOW_ORIGIN).or_insert_with(|| any.clone());
    fields.entry(header::ACCESS_CONTROL_EXPOSE_HEADERS).or_insert(any);
}

fn methods(shared: &Shared) -> &'static str {
    METHODS[usize::from(shared.uploads.is_some())]
}

/// The answer to a preflight request, and to OPTIONS in general.
fn options(methods: &'static str) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    for (name, value) in [
        (header::ALLOW, methods),
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        // The asterisk does not include Authorization.
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, Authorization"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn resolve<B>(shared: &Arc<Shared>, request: &Parts, body: B) -> Result<Resolution, Failure>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let authority = authority(request)?;
    if request.method == Method::OPTIONS {
        // Preflight requests have no token.
        return Ok(Resolution::Methods);
    }
    let is_upload = uploads::is_upload(&request.method);
    if !is_upload && request.method != Method::GET && request.method != Method::HEAD {
        return Err(Failure::method(methods(shared)));
    }
    shared.check_token(&request.headers)?;
    let host = host_of(&shared.config.hosts, authority)?;
    let query = request.uri.query().filter(|_| host.query);
    let target = name_of_path(&host.prefix, request.uri.path(), query)?;
    if target.name.as_view().component(0).is_some_and(|first| first.value == b"localhost") {
        let reason = "names below /localhost belong to routers";
        return Err(Failure::new(StatusCode::NOT_FOUND, reason));
    }
    if is_upload && target.version.is_some() {
        // A version never changes.
        return Err(Failure::method(METHODS[0]));
    }
    if is_upload {
        let (head, body) = uploads::upload(shared, &target.name, request, body).await?;
        return Ok(Resolution::Uploaded(head, body));
    }
    if let Some(version) = target.version {
        let (found, source) = shared.heads.find_version(&target.name, version).await?;
        return Ok(Resolution::Object(ResolvedObject { found, source, is_versioned: true }));
    }
    let cache_control = words(&request.headers, &header::CACHE_CONTROL);
    let must_ask = cache_control.iter().any(|word| word == "no-cache" || word == "max-age=0");
    match shared.heads.find(&target.name, must_ask).await {
        Ok((found, _)) if found.metadata.is_directory() => {
            Ok(Resolution::Redirect(folder(request)?))
        }
        Ok((found, source)) => {
            let variant = variant(&host.vary, &request.headers, &target.name, &found);
            let Some(variant) = variant else {
                return Ok(current((found, source)));
            };
            let varying = shared.heads.find(&variant, must_ask).await?;
            Ok(current(varying))
        }
        // Another error says nothing about directories.
        Err(error @ (SocketError::NotFound(_) | SocketError::NoRoute(_))) if target.is_folder => {
            find_in_directory(shared, host, request, error).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The host and port of a request.
///
/// # Errors
/// There are several, or HTTP/1.1 has none (RFC 9112, section 3.2).
fn authority(request: &Parts) -> Result<&str, Failure> {
    let bad = |reason: &str| Failure::new(StatusCode::BAD_REQUEST, reason);
    let mut fields = request.headers.get_all(header::HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(bad("the request has several Host fields"));
    }
    if field.is_none() && request.version == Version::HTTP_11 {
        return Err(bad("the request has no Host field"));
    }
    let field = field.map(HeaderValue::to_str).transpose();
    let field = field.map_err(|_| bad("the Host field is malformed"))?;
    let authority = request.uri.authority().map(http::uri::Authority::as_str);
    Ok(authority.or(field).unwrap_or_default())
}

/// The host that serves a request.
fn host_of<'a>(hosts: &'a [HostConfig], authority: &str) -> Result<&'a HostConfig, Failure> {
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_it = |host: &&HostConfig| host.host.eq_ignore_ascii_case(name);
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
/// the response names in `Vary` and the configuration (`permitted`) permits become a part of the
/// name: all others would split what clients can share.
fn variant(
    permitted: &[String],
    request: &HeaderMap,
    name: &Name,
    found: &FoundVersion,
) -> Option<Name> {
    let varies = words(&found.head.fields, &header::VARY);
    let mut headers = Vec::new();
    for field in permitted {
        let field = field.to_lowercase();
        let values = request.get_all(&field).iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        if !values.is_empty() && varies.contains(&field) && !NOT_VARYING.contains(&&field[..]) {
            // Several lines mean the same as one (RFC 9110, section 5.2).
            headers.push((field, values.join(", ")));
        }
    }
    (!headers.is_empty()).then(|| name_with_headers(name, &headers))
}

/// A path with a slash at the end whose name no producer serves: the index or the listing of a
/// directory.
async fn find_in_directory(
    shared: &Arc<Shared>,
    host: &HostConfig,
    request: &Parts,
    error: SocketError,
) -> Result<Resolution, Failure> {
    let path = name_of_path(&host.prefix, request.uri.path(), None)?;
    let directory = path.name.as_view().parent().to_name();
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
        return Ok(current(shared.heads.find(&index, false).await?));
    }
    if !host.listing {
        return Err(Failure::new(StatusCode::FORBIDDEN, "directories are not listed here"));
    }
    Ok(Resolution::Listing(listing::page(&directory, &host.prefix, &entries)))
}

#[cfg(test)]
mod tests;
