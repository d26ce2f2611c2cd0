//! PUT, POST and DELETE by reverse pull (paper socket-api, section 4.3).
//!
//! A front sends an Interest `<object>/32=<METHOD>` whose parameters are the signed metadata of an
//! object with the body. The head of the request is in these metadata. The origin fetches both from
//! the front and verifies them, sends the request once, and answers with one Data
//! ([`UploadAnswer`]). Repeated Interests with the same offer get the same answer. The body must
//! come from the front at that moment, so that old Interests, sent by others, have no effect.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::NonZeroUsize;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use lru::LruCache;
use tokio::time::{Instant, timeout_at};
use weir_base::Packet;
use weir_face::unix_time_ms;
use weir_security::sha256;
use weir_socket::{Consumer, Offer, Request};
use weir_wire::{InterestView, Name, tlv};

use super::context::Context;
use super::policy::{Validator, version_number};
use super::response::Problem;
use super::upstream::{Target, is_too_deep};
use super::version::Version;
use crate::head::{AnswerBody, RequestHead, ResponseHead, UPLOAD_TIME, UploadAnswer};

/// Upper bound of uploads at the same time.
const UPLOADS_MAX: usize = 64;
/// Upper bound of answers that are kept.
const ANSWERS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// A longer body of an answer is an object of its own.
const INLINE_BYTES_MAX: usize = 2000;

/// What identifies an upload: the method and name of the object, and the offered version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UploadId {
    /// The name of the object, and the keyword with the method.
    name: Name,
    offered: Name,
}

impl UploadId {
    /// The object that the upload changes.
    pub(super) fn object(&self) -> Name {
        self.name.as_view().parent().to_name()
    }
}

/// A request with a body.
pub(super) struct Upload {
    pub(super) id: UploadId,
    method: Method,
    target: Target,
}

impl Upload {
    /// The upload that an Interest with parameters wants; `None` if it is no offer, or not allowed.
    pub(super) fn of(context: &Context, request: &Request) -> Option<Self> {
        let interest = InterestView::decode(request.interest()).ok()?;
        let digest = interest.name.last()?;
        let name = interest.name.parent();
        let keyword = name.last()?;
        let is_digest = u32::from(digest.typ) == tlv::PARAMETERS_SHA256_DIGEST_COMPONENT;
        let mut methods = context.config.methods.iter();
        let method = methods.find(|method| keyword.is_keyword(method.as_bytes()))?;
        let target = context.upstream.target(name.parent()).filter(|_| is_digest)?;
        // A long answer is an object below this name.
        if is_too_deep(name) {
            return None;
        }
        let offer: Offer = request.offer()?.ok()?;
        let id = UploadId { name: name.to_name(), offered: offer.name().clone() };
        Some(Self { id, method: method.parse().ok()?, target })
    }

    /// Fetches the request and sends it. Returns the encoded answer, and whether the server may
    /// have performed the request.
    pub(super) async fn perform(&self, context: &Context, consumer: &Consumer) -> (Vec<u8>, bool) {
        let deadline = Instant::now() + UPLOAD_TIME;
        let fetched = timeout_at(deadline, self.fetch(consumer, context)).await;
        let late = |_| Problem::timeout("The request was not received from its sender in time.");
        let (head, body) = match fetched.map_err(late).flatten() {
            Ok(fetched) => fetched,
            Err(problem) => return (failure(&problem), false),
        };
        let answer = timeout_at(deadline, self.send(context, head, body)).await;
        let late = |_| {
            let reason = "The server did not answer in time. It may have performed the request.";
            Problem::timeout(reason)
        };
        match answer.map_err(late).flatten() {
            Ok(answer) => {
                let status = answer.head.status;
                let is_error = status.is_client_error() || status.is_server_error();
                (answer.encode(), !is_error)
            }
            Err(problem) => {
                problem.log(&self.target.url);
                (failure(&problem), true)
            }
        }
    }

    async fn send(
        &self,
        context: &Context,
        head: RequestHead,
        body: Bytes,
    ) -> Result<UploadAnswer, Problem> {
        let bytes_max = context.config.unsized_max.bytes;
        let sent = context.upstream.send(&self.method, &self.target, head.fields, body).await;
        let mut response = sent?;
        let content = response.body.take((bytes_max as usize).saturating_add(1)).await?;
        if content.len() as u64 > bytes_max {
            return Err(Problem::bad_gateway("The answer of the server is too long."));
        }
        let mut head = ResponseHead::new(response.status, unix_time_ms());
        head.fields = response.fields;
        ResponseHead::remove_hop_fields(&mut head.fields);
        context.upstream.localize(&self.target, &mut head.fields);
        let body = match content.len() {
            0..=INLINE_BYTES_MAX => AnswerBody::Inline(content.to_vec()),
            _ => AnswerBody::Version(self.publish(context, &head, content).await?),
        };
        Ok(UploadAnswer { head, body })
    }

    /// Fetches and verifies the head and the body of the request.
    async fn fetch(
        &self,
        consumer: &Consumer,
        context: &Context,
    ) -> Result<(RequestHead, Bytes), Problem> {
        let bytes_max = context.config.unsized_max.bytes;
        let fails = |error: weir_socket::SocketError| {
            Problem::bad_gateway(format!("The request cannot be fetched from its sender: {error}."))
        };
        let offered = &self.id.offered;
        let object = offered.as_view().parent().to_name();
        let mut reader = consumer.fetch(&object).map_err(fails)?;
        let metadata = poll_fn(|task| reader.poll_metadata(task).map_ok(Clone::clone)).await;
        let metadata = metadata.map_err(fails)?;
        if metadata.versioned != *offered {
            return Err(Problem::bad_gateway("The request was replaced by another one."));
        }
        let head = metadata.http_head.as_deref().and_then(|it| RequestHead::decode(it).ok());
        let head = head.filter(|head| head.method == self.method).ok_or_else(|| Problem {
            status: StatusCode::BAD_REQUEST,
            ..Problem::bad_gateway("The head of the request is malformed.")
        })?;
        let too_long = || Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..Problem::bad_gateway("The request is longer than the gateway allows.")
        };
        if metadata.size_bytes.is_some_and(|bytes| bytes > bytes_max) {
            return Err(too_long());
        }
        let mut body = BytesMut::new();
        loop {
            let piece: Packet = poll_fn(|task| reader.poll_piece(task)).await.map_err(fails)?;
            if piece.is_empty() {
                return Ok((head, body.freeze()));
            }
            if (body.len() + piece.len()) as u64 > bytes_max {
                return Err(too_long());
            }
            body.extend_from_slice(&piece);
        }
    }

    /// Publishes the body of an answer. Returns its versioned name.
    async fn publish(
        &self,
        context: &Context,
        head: &ResponseHead,
        content: Bytes,
    ) -> Result<Name, Problem> {
        let (digest, size) = (sha256(&[&content]), content.len() as u64);
        let validator = Validator::default();
        let number = version_number(&validator, (head.status, None), size, Some(&digest));
        let object = context.object(&self.id.name, number, size)?;
        let name = object.versioned().clone();
        let version = Version::new(number, object, (validator, false), None);
        context.publish_slices(&version.into(), content).await?;
        Ok(name)
    }
}

/// The encoded answer that explains a problem.
pub(super) fn failure(problem: &Problem) -> Vec<u8> {
    let text = format!("{}\n{}\n", problem.status, problem.reason);
    let head = ResponseHead::new(problem.status, unix_time_ms());
    UploadAnswer { head, body: AnswerBody::Inline(text.into_bytes()) }.encode()
}

/// The uploads in progress, and the answers to earlier ones.
pub(super) struct Uploads {
    pub(super) consumer: Consumer,
    /// The Interests that wait for each.
    running: HashMap<UploadId, Vec<Request>>,
    answers: LruCache<UploadId, Vec<u8>>,
}

/// What an Interest for an upload leads to.
pub(super) enum UploadStep {
    Start,
    /// It waits for the same upload.
    Wait,
    /// The answer to the same upload.
    Answer(Vec<u8>),
    /// Too many are in progress.
    Busy,
}

impl Uploads {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self { consumer, running: HashMap::new(), answers: LruCache::new(ANSWERS_MAX) }
    }

    pub(super) fn add(&mut self, id: &UploadId, request: &Request) -> UploadStep {
        if let Some(answer) = self.answers.get(id) {
            return UploadStep::Answer(answer.clone());
        }
        if let Some(waiting) = self.running.get_mut(id) {
            waiting.push(request.clone());
            return UploadStep::Wait;
        }
        if self.running.len() >= UPLOADS_MAX {
            return UploadStep::Busy;
        }
        self.running.insert(id.clone(), vec![request.clone()]);
        UploadStep::Start
    }

    /// Records the answer, and returns the Interests that wait for it.
    pub(super) fn end(&mut self, id: UploadId, answer: Vec<u8>) -> Vec<Request> {
        let waiting = self.running.remove(&id).unwrap_or_default();
        self.answers.put(id, answer);
        waiting
    }
}
