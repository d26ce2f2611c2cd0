//! Asks the server for a resource: one request brings the head and the first bytes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_base::NS_PER_MS;
use weir_face::unix_time_ms;
use weir_security::sha256;
use weir_socket::{Identity, Producer, PublishOptions, SlicedObject};
use weir_wire::Name;

use super::policy::{Freshness, Validator, may_be_stale, version_number};
use super::upstream::{Body, Counters, Problem, Response, Target, Upstream, content_range};
use super::version::Version;
use crate::config::OriginConfig;
use crate::head::{HEAD_BYTES_MAX, ResponseHead};

/// Bytes of the first request: a slice of an object with a name of usual length.
pub(super) const FIRST_BYTES: u64 = 248 * 8000;
/// A head of up to this size fits into metadata with any name and certificate of usual length.
const HEAD_BYTES_SAFE: usize = 2000;
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Fields of a stored response that a 304 does not replace: they describe its body.
const KEPT_BY_NOT_MODIFIED: [HeaderName; 4] =
    [header::CONTENT_ENCODING, header::CONTENT_TYPE, header::ETAG, REPR_DIGEST];

/// What all tasks of an origin share.
pub(super) struct Context {
    pub(super) upstream: Upstream,
    pub(super) producer: Producer,
    pub(super) counters: Arc<Counters>,
    pub(super) config: OriginConfig,
    identity: Identity,
    options: PublishOptions,
}

/// A version, and the head with which it was last received or confirmed.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) version: Arc<Version>,
    pub(super) head: ResponseHead,
}

/// What the server says about a resource.
pub(super) enum Answer {
    Current(Known),
    /// It fails, and the known version is used although it is stale.
    Stale,
    /// It fails. The body of this version says why.
    Failed(Known),
}

/// A version whose body is still being received, from the second slice on.
pub(super) struct Rest {
    pub(super) version: Arc<Version>,
    pub(super) body: Body,
}

/// A question about a resource.
pub(super) struct Question {
    pub(super) object: Name,
    pub(super) target: Arc<Target>,
    pub(super) known: Option<Known>,
    /// The server has changed content without changing its validator.
    pub(super) has_false_validators: bool,
}

/// The first bytes of a version.
struct Found {
    known: Known,
    first: Bytes,
    rest: Option<Body>,
}

impl Context {
    pub(super) fn new(
        upstream: Upstream,
        producer: Producer,
        identity: Identity,
        options: PublishOptions,
        config: OriginConfig,
    ) -> Self {
        let counters = upstream.counters();
        Self { upstream, producer, counters, config, identity, options }
    }

    pub(super) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        Counters::add(counter(&self.counters), 1);
    }

    /// Asks the server. Publishes what it sends, and returns what could not be received yet.
    pub(super) async fn ask(&self, question: &mut Question) -> (Answer, Option<Rest>) {
        let mut result = self.ask_and_publish(question).await;
        if result.as_ref().is_err_and(|problem| problem.is_false_validator) {
            question.has_false_validators = true;
            result = self.ask_and_publish(question).await;
        }
        let stale = question.known.as_ref().filter(|known| self.permits_stale(&known.head));
        match result {
            Ok((known, _)) if known.head.status.is_server_error() && stale.is_some() => {
                (Answer::Stale, None)
            }
            Ok((known, rest)) => (Answer::Current(known), rest),
            Err(_) if stale.is_some() => (Answer::Stale, None),
            Err(problem) => (Answer::Failed(self.explain(question, &problem).await), None),
        }
    }

    fn permits_stale(&self, head: &ResponseHead) -> bool {
        let until = head.received_ms.saturating_add(head.lifetime_ms);
        let until = until.saturating_add(self.config.stale.ns / NS_PER_MS);
        unix_time_ms() < until && !head.status.is_server_error() && may_be_stale(&head.fields)
    }

    async fn ask_and_publish(&self, question: &Question) -> Result<(Known, Option<Rest>), Problem> {
        let Found { known, first, rest } = self.find(question).await?;
        let version = &known.version;
        let is_whole = rest.is_none() && first.len() as u64 == version.object.size_bytes();
        if !first.is_empty() || is_whole {
            self.publish_slices(version, first).await?;
        }
        let rest = rest.map(|body| Rest { version: version.clone(), body });
        Ok((known, rest))
    }

    async fn find(&self, question: &Question) -> Result<Found, Problem> {
        let known = question.known.as_ref().filter(|_| !question.has_false_validators);
        let mut range = Some(0..FIRST_BYTES);
        loop {
            let conditions = known.map(|known| known.version.validator.unless_same());
            let conditions = conditions.unwrap_or_default();
            let response = self.upstream.get(&question.target, range.clone(), conditions).await?;
            match (response.status, known) {
                (StatusCode::NOT_MODIFIED, Some(known)) => {
                    self.count(|counters| &counters.not_modified);
                    let head = self.confirmed(&known.head, &response.fields);
                    let known = Known { version: known.version.clone(), head };
                    return Ok(Found { known, first: Bytes::new(), rest: None });
                }
                (StatusCode::NOT_MODIFIED, None) => {
                    return Err(Problem::bad_gateway(
                        "The server answers 304 to a request without conditions.",
                    ));
                }
                (StatusCode::PARTIAL_CONTENT, _) if range.is_some() => {
                    match self.partial(question, response).await? {
                        Some(found) => return Ok(found),
                        None => range = None,
                    }
                }
                (StatusCode::PARTIAL_CONTENT, _) => {
                    return Err(Problem::bad_gateway(
                        "The server answers 206 to a request without a range.",
                    ));
                }
                (StatusCode::RANGE_NOT_SATISFIABLE, _) if range.is_some() => range = None,
                _ => return self.whole(question, response).await,
            }
        }
    }

    /// The head of a known version after a 304 (RFC 9111, section 4.3.4).
    fn confirmed(&self, known: &ResponseHead, fields: &HeaderMap) -> ResponseHead {
        let mut head = known.clone();
        let mut newer = fields.clone();
        let age = newer.get(header::AGE).cloned();
        ResponseHead::remove_hop_fields(&mut newer);
        for name in newer.keys().filter(|name| !KEPT_BY_NOT_MODIFIED.contains(name)) {
            head.fields.remove(name);
            for value in newer.get_all(name) {
                head.fields.append(name, value.clone());
            }
        }
        let mut with_age = head.fields.clone();
        if let Some(age) = age {
            with_age.insert(header::AGE, age);
        }
        self.set_freshness(&mut head, &with_age);
        head
    }

    fn set_freshness(&self, head: &mut ResponseHead, fields: &HeaderMap) {
        let default_ms = self.config.freshness.ns / NS_PER_MS;
        let freshness = Freshness::of(head.status, fields, default_ms);
        (head.lifetime_ms, head.age_s) = (freshness.lifetime_ms, freshness.age_s);
        head.received_ms = unix_time_ms();
    }

    /// A response to a request for a range; `None` if the whole content must be requested.
    async fn partial(
        &self,
        question: &Question,
        mut response: Response,
    ) -> Result<Option<Found>, Problem> {
        let Some((range, total)) = content_range(&response.fields) else { return Ok(None) };
        let validator = validator_of(question, &response);
        let expected = total.min(FIRST_BYTES);
        let is_whole = total == expected;
        if range != (0..expected) || !is_whole && !validator.exists() {
            return Ok(None);
        }
        let first = response.body.take(expected as usize).await?;
        if first.len() as u64 != expected {
            return Err(Problem::bad_gateway("The server sent less content than it announced."));
        }
        response.status = StatusCode::OK;
        let body = is_whole.then(|| sha256(&[&first]));
        let known = self.known(question, &response, (validator, true), total, body)?;
        Ok(Some(Found { known, first, rest: None }))
    }

    /// A response with the whole content.
    async fn whole(&self, question: &Question, mut response: Response) -> Result<Found, Problem> {
        let validator = validator_of(question, &response);
        let bytes_max = self.config.unsized_max.bytes.max(FIRST_BYTES);
        if let Some(length) = response.length
            && length > FIRST_BYTES
            && validator.exists()
        {
            let known = self.known(question, &response, (validator, false), length, None)?;
            let first_bytes = known.version.slice_bytes(0);
            let first = response.body.take(first_bytes).await?;
            if first.len() != first_bytes {
                return Err(Problem::bad_gateway("The server sent less than it announced."));
            }
            return Ok(Found { known, first, rest: Some(response.body) });
        }
        if response.length.is_some_and(|length| length > bytes_max) {
            return Err(too_long());
        }
        let content = response.body.take(bytes_max as usize + 1).await?;
        if content.len() as u64 > bytes_max {
            return Err(too_long());
        }
        let is_short = content.len() as u64 <= FIRST_BYTES;
        let body = (is_short || !validator.exists()).then(|| sha256(&[&content]));
        let size = content.len() as u64;
        let known = self.known(question, &response, (validator, false), size, body)?;
        Ok(Found { known, first: content, rest: None })
    }

    /// The version that a response has, and its head.
    fn known(
        &self,
        question: &Question,
        response: &Response,
        (validator, has_ranges): (Validator, bool),
        size_bytes: u64,
        body: Option<[u8; 32]>,
    ) -> Result<Known, Problem> {
        let mut head = ResponseHead::new(response.status, unix_time_ms());
        self.set_freshness(&mut head, &response.fields);
        head.fields = response.fields.clone();
        ResponseHead::remove_hop_fields(&mut head.fields);
        let location = head.fields.get(header::LOCATION).cloned();
        if let Some(to) = location.and_then(|it| self.upstream.location(&question.target, &it)) {
            head.fields.insert(header::LOCATION, to);
        }
        let location = head.fields.get(header::LOCATION);
        let number = version_number(&validator, (head.status, location), size_bytes, body.as_ref());
        if let Some(digest) = body.filter(|_| head.status == StatusCode::OK) {
            if !validator.exists() {
                let etag = format!("\"{}\"", hex::encode(&digest[..16]));
                head.fields.insert(header::ETAG, text(&etag));
            }
            let stated = text(&format!("sha-256=:{}:", STANDARD.encode(digest)));
            head.fields.entry(REPR_DIGEST).or_insert(stated);
        }
        let earlier = question.known.as_ref().map(|known| &known.version);
        let version = match earlier.filter(|version| version.number == number) {
            // It knows the digests of its slices.
            Some(version) => version.clone(),
            None => {
                let object = self.object(&question.object, number, size_bytes)?;
                Arc::new(Version::new(number, object, validator, has_ranges))
            }
        };
        check_head(&version, &head)?;
        Ok(Known { version, head })
    }

    fn object(&self, name: &Name, number: u64, size: u64) -> Result<SlicedObject, Problem> {
        let versioned = name.clone().append_version(number).clone();
        SlicedObject::new(versioned, size, &self.identity, &self.options)
            .map_err(|error| Problem::bad_gateway(format!("The content cannot be named: {error}.")))
    }

    /// A response that explains a problem.
    async fn explain(&self, question: &Question, problem: &Problem) -> Known {
        tracing::debug!(url = %question.target.url, %problem, "the server fails");
        let content = Bytes::from(format!("{}\n{}\n", problem.status, problem.reason));
        let mut head = ResponseHead::new(problem.status, unix_time_ms());
        for (name, value) in [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            head.fields.insert(name, HeaderValue::from_static(value));
        }
        let (size, digest) = (content.len() as u64, sha256(&[&content]));
        let validator = Validator::default();
        let number = version_number(&validator, (head.status, None), size, Some(&digest));
        let object = self.object(&question.object, number, size);
        let object = object.expect("an object with one segment needs no shape");
        let version = Arc::new(Version::new(number, object, validator, true));
        // Without the text, the status still says enough.
        let _ = self.publish_slices(&version, content).await;
        Known { version, head }
    }

    /// Publishes the complete slices at the start of a version.
    async fn publish_slices(
        &self,
        version: &Arc<Version>,
        mut first: Bytes,
    ) -> Result<(), Problem> {
        for slice in 0..version.object.slices() {
            let slice_bytes = version.slice_bytes(slice);
            if first.len() < slice_bytes {
                break;
            }
            self.publish_slice(version, slice, first.split_to(slice_bytes)).await?;
        }
        Ok(())
    }

    /// Signs and publishes a slice. Returns when the producer answers with it.
    pub(super) async fn publish_slice(
        &self,
        version: &Arc<Version>,
        slice: u64,
        content: Bytes,
    ) -> Result<(), Problem> {
        let fails = |error: &dyn std::fmt::Display| {
            Problem::bad_gateway(format!("The gateway cannot publish the content: {error}."))
        };
        let signed = version.clone();
        // It hashes megabytes.
        let sign = tokio::task::spawn_blocking(move || {
            (signed.is_same_slice(slice, &content), signed.object.sign(slice, &content))
        });
        let (is_same, packets) = sign.await.map_err(|error| fails(&error))?;
        if !is_same {
            return Err(Problem::changed());
        }
        let packets = packets.map_err(|error| fails(&error))?;
        let published = self.producer.publish_packets_async(packets);
        published.map_err(|error| fails(&error))?.await.map_err(|error| fails(&error))?;
        self.count(|counters| &counters.slices);
        Ok(())
    }
}

fn validator_of(question: &Question, response: &Response) -> Validator {
    let has_content = matches!(response.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    match has_content && !question.has_false_validators {
        true => Validator::of(&response.fields),
        false => Validator::default(),
    }
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("hexadecimal digits and Base64 are valid in fields")
}

fn too_long() -> Problem {
    Problem::bad_gateway(
        "The server states no length or no validator, and the content is longer than the \
         gateway holds. Raise `unsized_max`, or let the server send ETag and Content-Length.",
    )
}

/// Rejects heads that do not fit into metadata.
fn check_head(version: &Version, head: &ResponseHead) -> Result<(), Problem> {
    let octets = head.encode();
    let fits = match octets.len() {
        0..=HEAD_BYTES_SAFE => true,
        ..=HEAD_BYTES_MAX => version.object.sign_metadata(u64::MAX, u64::MAX, Some(octets)).is_ok(),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let reason = "The response has more header fields than a packet has room for.";
    Err(Problem::bad_gateway(reason))
}
