//! Objects in S3-compatible storage, as responses of an HTTP server.

use std::ops::Range;

use futures_util::{StreamExt, TryStreamExt};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Attribute, Error, GetOptions, GetRange, GetResult, ObjectStore};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use weir_socket::{Location, open_object_store};

use super::response::{Body, BodyLimits, Problem, Response};

/// The bucket of an origin.
pub(super) struct Bucket(AmazonS3);

impl Bucket {
    /// # Errors
    /// The address or a setting is invalid.
    pub(super) fn open(url: &str) -> Result<Self, String> {
        let location: Location = url.parse().map_err(|error| format!("{error}"))?;
        let store =
            open_object_store(&location).map_err(|error| format!("`{location}`: {error}"))?;
        Ok(Self(store))
    }

    /// Reads an object, or a range of it.
    pub(super) async fn get(
        &self,
        url: &Url,
        range: Option<Range<u64>>,
        conditions: HeaderMap,
        limits: BodyLimits,
    ) -> Result<Response, Problem> {
        let text = |name: HeaderName| Some(conditions.get(name)?.to_str().ok()?.to_owned());
        let time = |name| httpdate::parse_http_date(&text(name)?).ok().map(Into::into);
        let options = GetOptions {
            if_match: text(header::IF_MATCH),
            if_none_match: text(header::IF_NONE_MATCH),
            if_modified_since: time(header::IF_MODIFIED_SINCE),
            if_unmodified_since: time(header::IF_UNMODIFIED_SINCE),
            range: range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        // A query has no meaning for an object.
        let path = percent_decode_str(url.path()).decode_utf8().ok();
        let path = path.filter(|_| url.query().is_none()).and_then(|it| Path::parse(&*it).ok());
        let result = match path {
            Some(path) => self.0.get_opts(&path, options).await,
            None => return Ok(bodiless(StatusCode::NOT_FOUND, limits)),
        };
        match result {
            Ok(found) => Ok(response_of(found, range.is_some(), limits)),
            Err(error) => Ok(bodiless(status_of(&error)?, limits)),
        }
    }
}

fn bodiless(status: StatusCode, limits: BodyLimits) -> Response {
    let body = Body::new(futures_util::stream::empty().boxed(), limits);
    Response { status, fields: HeaderMap::new(), length: Some(0), body }
}

fn status_of(error: &Error) -> Result<StatusCode, Problem> {
    match error {
        Error::NotFound { .. } => Ok(StatusCode::NOT_FOUND),
        Error::NotModified { .. } => Ok(StatusCode::NOT_MODIFIED),
        Error::Precondition { .. } => Ok(StatusCode::PRECONDITION_FAILED),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Ok(StatusCode::FORBIDDEN),
        // The range of an empty object.
        error if error.to_string().contains("416") => Ok(StatusCode::RANGE_NOT_SATISFIABLE),
        error => {
            tracing::warn!(%error, "the bucket does not answer");
            Err(Problem::bad_gateway("The bucket of this content does not answer."))
        }
    }
}

fn response_of(found: GetResult, is_partial: bool, limits: BodyLimits) -> Response {
    let (range, total) = (found.range.clone(), found.meta.size);
    let mut fields = HeaderMap::new();
    let modified = httpdate::fmt_http_date(found.meta.last_modified.into());
    let content_range = format!("bytes {}-{}/{total}", range.start, range.end.saturating_sub(1));
    let attribute = |name| found.attributes.get(&name).map(|value| value.to_string());
    for (name, value) in [
        (header::ETAG, found.meta.e_tag.clone()),
        (header::LAST_MODIFIED, Some(modified)),
        (header::CONTENT_RANGE, is_partial.then_some(content_range)),
        (header::CONTENT_TYPE, attribute(Attribute::ContentType)),
        (header::CONTENT_ENCODING, attribute(Attribute::ContentEncoding)),
        (header::CONTENT_LANGUAGE, attribute(Attribute::ContentLanguage)),
        (header::CONTENT_DISPOSITION, attribute(Attribute::ContentDisposition)),
        (header::CACHE_CONTROL, attribute(Attribute::CacheControl)),
    ] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            fields.insert(name, value);
        }
    }
    let status = if is_partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let pieces = found.into_stream().map_err(|_| Problem::bad_gateway("The bucket ended early."));
    let body = Body::new(pieces.boxed(), limits);
    Response { status, fields, length: Some(range.end - range.start), body }
}
