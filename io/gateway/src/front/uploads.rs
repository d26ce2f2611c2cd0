//! PUT, POST and DELETE by reverse pull (paper socket-api, section 4.3).
//!
//! 1. The front publishes the body as an object of its own, with the head of the request in the
//!    metadata.
//! 2. One Interest below the name of the URL carries these metadata to the origin.
//! 3. The origin fetches the object, sends the request to its server once, and answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::Semaphore;
use weir_base::units::Time;
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Offer, Producer, ProducerOptions, PublishOptions, Session,
    SlicedObject, SocketError,
};
use weir_wire::{DataView, Name};

use super::Shared;
use super::body::{Body, Part, full, parts};
use super::errors::Failure;
use super::log::Access;
use crate::head::{AnswerBody, RequestHead, ResponseHead, UploadAnswer};

/// Upper bound of uploads at a time. Each may hold `upload_max` bytes. Others wait.
const UPLOADS_MAX: usize = 16;
/// How often an Interest for an upload is sent. The origin passes the request on only once.
const SENDS: u32 = 3;
/// How long the origin may take for each.
const LIFETIME: Time = Time { ns: 10 * weir_base::NS_PER_S };

/// How much of the body of a refused request is read, and for how long.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends uploads to origins.
pub(super) struct Uploads {
    producer: Producer,
    identity: Identity,
    options: PublishOptions,
    consumer: Consumer,
    slots: Semaphore,
    bytes_max: u64,
}

impl Uploads {
    /// Binds `prefix` for the bodies of uploads.
    pub(super) async fn start(
        session: &Session,
        prefix: Name,
        identity: Identity,
        mut consumer: Consumer,
        bytes_max: u64,
    ) -> Result<Self, SocketError> {
        consumer
            .set_options(ConsumerOptions { lifetime: LIFETIME, ..consumer.options().clone() })?;
        // Only the front itself may offer an upload, so stores must not answer for it later.
        let never = Time { ns: 0 };
        let producer_options = ProducerOptions {
            freshness: never,
            metadata_freshness: never,
            ..ProducerOptions::default()
        };
        let options = producer_options.publish_options();
        let (session, signer) = (session.clone(), identity.clone());
        // Connecting to the router blocks.
        let bind = tokio::task::spawn_blocking(move || {
            Producer::begin_bind(&session, prefix, signer, producer_options)
        });
        let producer = bind.await.map_err(|_| SocketError::Closed)??.await?;
        let slots = Semaphore::new(UPLOADS_MAX);
        Ok(Self { producer, identity, options, consumer, slots, bytes_max })
    }

    /// Publishes the request. Returns the offer for its body.
    async fn publish(&self, head: &RequestHead, content: Bytes) -> Result<Offer, Failure> {
        let fails = |error: String| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        let number = self.producer.next_version();
        let mut versioned = self.producer.prefix().clone();
        versioned.append_str(&number.to_string()).append_version(number);
        let size = content.len() as u64;
        let object = SlicedObject::new(versioned, size, &self.identity, &self.options)
            .map_err(|error| fails(error.to_string()))?;
        let mut packets = Vec::new();
        for slice in 0..object.slices() {
            let range = object.slice_range(slice);
            let piece = &content[range.start as usize..range.end as usize];
            let signed = object.sign(slice, piece).map_err(|error| fails(error.to_string()))?;
            packets.extend(signed.packets);
        }
        let metadata = object
            .sign_metadata(number, self.options.metadata_freshness_ms, Some(head.encode()))
            .map_err(|error| {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                Failure::new(status, error.to_string())
            })?;
        packets.push(metadata.clone());
        self.producer.publish_packets_async(packets)?.await?;
        Ok(Offer::decode(metadata)?)
    }

    /// Sends the offer to the origin. Returns its answer, verified.
    async fn offer(
        &self,
        shared: &Shared,
        object: &Name,
        method: &Method,
        offer: &Offer,
    ) -> Result<UploadAnswer, Failure> {
        let to = object.clone().append_keyword(method.as_str().as_bytes()).clone();
        let mut last = SocketError::TimedOut(to.clone());
        for _ in 0..SENDS {
            match self.consumer.send(&to, offer)?.await {
                Ok(packet) => {
                    self.verify(shared, object, &packet).await?;
                    let data = DataView::decode(&packet).map_err(|_| malformed())?;
                    return UploadAnswer::decode(data.content).map_err(|_| malformed());
                }
                Err(error @ SocketError::TimedOut(_)) => last = error,
                Err(SocketError::NoRoute(_)) => {
                    let reason = "the origin does not accept this method here";
                    return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, reason));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    async fn verify(&self, shared: &Shared, object: &Name, packet: &[u8]) -> Result<(), Failure> {
        if self.consumer.verify(packet).is_ok() {
            return Ok(());
        }
        // Metadata of the same producer carry its certificate.
        let _ = shared.heads.find(object, true).await;
        Ok(self.consumer.verify(packet)?)
    }
}

fn malformed() -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "the answer of the origin is malformed")
}

/// Whether this method changes a resource.
pub(super) fn is_upload(method: &Method) -> bool {
    [Method::PUT, Method::POST, Method::DELETE].contains(method)
}

/// Passes a request with a body on to the origin of its name.
pub(super) async fn upload<B>(
    shared: &Shared,
    object: &Name,
    request: &Parts,
    body: B,
) -> Result<(ResponseHead, AnswerBody), Failure>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some(uploads) = &shared.uploads else {
        // A response before the end of a request would race with what the client still sends.
        let drained = Limited::new(body, DRAINED_BYTES_MAX).collect();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
        return Err(Failure::method("GET, HEAD, OPTIONS"));
    };
    let timeout = Duration::from_nanos(shared.config.client_timeout.ns);
    let Ok(Ok(_slot)) = tokio::time::timeout(timeout, uploads.slots.acquire()).await else {
        let reason = "too many uploads are in progress; try again later";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let limit = usize::try_from(uploads.bytes_max).unwrap_or(usize::MAX);
    let collected = tokio::time::timeout(timeout, Limited::new(body, limit).collect());
    let content = match collected.await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => {
            let reason = format!("the body is broken, or longer than {limit} bytes");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        Err(_) => return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body is too slow")),
    };
    let mut fields = request.headers.clone();
    ResponseHead::remove_hop_fields(&mut fields);
    for name in [header::COOKIE, header::AUTHORIZATION, header::HOST, header::EXPECT] {
        fields.remove(name);
    }
    let head = RequestHead { method: request.method.clone(), fields };
    let offer = uploads.publish(&head, content).await?;
    let answer = uploads.offer(shared, object, &request.method, &offer).await?;
    if !answer.head.status.is_client_error() && !answer.head.status.is_server_error() {
        shared.heads.forget(object);
    }
    Ok((answer.head, answer.body))
}

/// The response for an answer to an upload.
pub(super) async fn response(
    shared: &Shared,
    (head, body): (ResponseHead, AnswerBody),
    mut access: Access,
) -> Response<Body> {
    access.status = head.status;
    access.source = "origin";
    let fields: HeaderMap = head.fields;
    let body = match body {
        AnswerBody::Inline(octets) => {
            access.add_bytes(octets.len());
            full(octets)
        }
        AnswerBody::Version(versioned) => match shared.heads.find_exact(&versioned).await {
            Ok(found) => {
                let metadata = found.metadata.clone();
                let cursor = shared.pieces.cursor(metadata, 0, u64::MAX);
                parts(vec![Part::Content(cursor)], access.into())
            }
            Err(error) => return Failure::from(error).response(),
        },
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = fields;
    response
}
