//! PUT, POST and DELETE by reverse pull (paper socket-api, section 4.3).
//!
//! 1. The front publishes the body as an object of its own, with the head of the request in the
//!    metadata.
//! 2. One Interest below the name of the URL carries these metadata to the origin.
//! 3. The origin fetches the object, sends the request to its server once, and answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{AcquireError, Semaphore};
use weir_base::Packet;
use weir_base::units::{Size, Time};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Offer, Producer, ProducerOptions, PublishError,
    PublishOptions, Session, SlicedObject, SocketError,
};
use weir_wire::{DataView, Name};

use super::Shared;
use super::body::{Body, Part, full, parts};
use super::errors::{Failure, METHODS};
use super::log::Access;
use crate::head::{AnswerBody, RequestHead, ResponseHead, UPLOAD_TIME, UploadAnswer};

/// Uploads of the maximum size that are in progress at a time, or more that are smaller. Others
/// wait.
const LARGE_UPLOADS_MAX: u64 = 2;
/// Uploads that a front sends at the same time: a quarter of what an origin accepts.
const SLOTS: usize = 16;
/// Bytes of the head and the manifest of an upload.
const HEAD_AND_MANIFEST_BYTES: u64 = 64 << 10;
/// Bytes that a permit stands for.
const PERMIT_BYTES: u64 = 1024;
/// How long routers keep an Interest for an upload.
const LIFETIME: Time = Time { ns: 10 * weir_base::NS_PER_S };
/// How often it is sent, for longer than the origin may take. It passes the request on only once.
const SENDS: u64 = UPLOAD_TIME.as_secs() * weir_base::NS_PER_S / LIFETIME.ns + 2;

/// How much of the body of a refused request is read, and for how long.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends uploads to origins.
pub(super) struct Uploads {
    producer: Producer,
    identity: Identity,
    options: PublishOptions,
    consumer: Consumer,
    /// The producer's output buffer, so that uploads in progress do not evict each other.
    buffer: Semaphore,
    /// Uploads at the same time. More wait here, because a busy origin refuses them.
    slots: Semaphore,
    bytes_max: u64,
}

/// Permits for an upload: its packets are longer than its content.
fn permits(content_bytes: u64) -> u32 {
    let bytes = content_bytes + content_bytes / 8 + HEAD_AND_MANIFEST_BYTES;
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
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
        let buffer_permits = LARGE_UPLOADS_MAX * u64::from(permits(bytes_max));
        let mut producer_options = ProducerOptions {
            output_buffer: Size { bytes: buffer_permits * PERMIT_BYTES },
            freshness: never,
            metadata_freshness: never,
            ..ProducerOptions::default()
        };
        // Packets of earlier uploads are evicted first, although they have been read.
        producer_options.set("output_policy", "fifo")?;
        let options = producer_options.publish_options();
        let (session, signer) = (session.clone(), identity.clone());
        // Connecting to the router blocks.
        let bind = tokio::task::spawn_blocking(move || {
            Producer::begin_bind(&session, prefix, signer, producer_options)
        });
        let producer = bind.await.map_err(|_| SocketError::Closed)??.await?;
        let buffer = Semaphore::new(buffer_permits as usize);
        let slots = Semaphore::new(SLOTS);
        Ok(Self { producer, identity, options, consumer, buffer, slots, bytes_max })
    }

    /// Publishes the request. Returns the offer for its body.
    async fn publish(&self, head: &RequestHead, content: Bytes) -> Result<Offer, Failure> {
        let number = self.producer.next_version();
        let mut versioned = self.producer.prefix().clone();
        versioned.append_str(&number.to_string()).append_version(number);
        let (identity, options, head) =
            (self.identity.clone(), self.options.clone(), head.encode());
        // It hashes megabytes.
        let sign = tokio::task::spawn_blocking(move || {
            let size = content.len() as u64;
            let object =
                SlicedObject::new(versioned, size, &identity, &options).map_err(internal)?;
            sign_upload(&object, &content, (number, options.metadata_freshness_ms), head)
        });
        let (mut packets, metadata) = sign.await.map_err(internal)??;
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
                    shared.heads.verify(object, &packet).await?;
                    let data = DataView::decode(&packet).map_err(|_| malformed())?;
                    return UploadAnswer::decode(data.content).map_err(|_| malformed());
                }
                Err(error @ SocketError::TimedOut(_)) => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }
}

/// Signs the body and the metadata of an upload. `metadata`: their number and freshness in
/// milliseconds.
fn sign_upload(
    object: &SlicedObject,
    content: &[u8],
    metadata: (u64, u64),
    head: Vec<u8>,
) -> Result<(Vec<Packet>, Packet), Failure> {
    let mut packets = Vec::new();
    for slice in 0..object.slices() {
        let range = object.slice_range(slice);
        let piece = &content[range.start as usize..range.end as usize];
        packets.extend(object.sign(slice, piece).map_err(internal)?.packets);
    }
    let (number, freshness_ms) = metadata;
    let metadata = object.sign_metadata(number, freshness_ms, Some(head));
    let too_long = |error: PublishError| {
        Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, error.to_string())
    };
    Ok((packets, metadata.map_err(too_long)?))
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
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
        drain(body).await;
        return Err(Failure::method(METHODS[0]));
    };
    let timeout = Duration::from_nanos(shared.config.client_timeout.ns);
    let limit = uploads.bytes_max;
    let too_long = || {
        let reason = format!("the body is longer than {limit} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let size = body.size_hint();
    if size.lower() > limit {
        drain(body).await;
        return Err(too_long());
    }
    let permits = permits(size.upper().unwrap_or(limit).min(limit));
    let acquired = async {
        let slot = uploads.slots.acquire().await?;
        Ok::<_, AcquireError>((slot, uploads.buffer.acquire_many(permits).await?))
    };
    let Ok(Ok(_permits)) = tokio::time::timeout(timeout, acquired).await else {
        let reason = "too many uploads are in progress; try again later";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let collected = tokio::time::timeout(timeout, Limited::new(body, limit).collect());
    let content = match collected.await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_long()),
        Ok(Err(_)) => return Err(Failure::new(StatusCode::BAD_REQUEST, "the body is broken")),
        Err(_) => return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body is too slow")),
    };
    let head = RequestHead::new(request.method.clone(), request.headers.clone());
    let offer = uploads.publish(&head, content).await?;
    let answer = uploads.offer(shared, object, &request.method, &offer).await?;
    if !answer.head.status.is_client_error() && !answer.head.status.is_server_error() {
        shared.heads.forget(object);
    }
    Ok((answer.head, answer.body))
}

/// Reads the body of a request that is refused. A response before its end would race with what the
/// client still sends.
async fn drain<B>(body: B)
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let drained = Limited::new(body, DRAINED_BYTES_MAX).collect();
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
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
            Ok((found, _)) => {
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

#[cfg(test)]
mod tests {
    use weir_security::DigestSigner;

    use super::*;

    #[test]
    fn permits_cover_packets() {
        let (identity, options) = (Identity::new(DigestSigner), PublishOptions::default());
        for len in [0, 1, 100_000, 5_000_000] {
            let content = vec![1; len];
            let versioned: Name = "/host/front/12345678901234567890/54=%01".parse().unwrap();
            let object = SlicedObject::new(versioned, len as u64, &identity, &options).unwrap();
            let head = vec![0; 5000];
            let signed = sign_upload(&object, &content, (1, 0), head);
            let (packets, metadata) = signed.unwrap();
            let bytes: usize = packets.iter().chain([&metadata]).map(|packet| packet.len()).sum();
            let permitted = u64::from(permits(len as u64)) * PERMIT_BYTES;
            assert!(bytes as u64 <= permitted, "{len}: {bytes} of {permitted}");
        }
    }
}
