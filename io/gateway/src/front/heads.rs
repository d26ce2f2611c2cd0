//! The heads of responses: which version a name has, and what its producer says about it.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{HeaderName, StatusCode};
use lru::LruCache;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant as Deadline, timeout_at};
use weir_face::unix_time_ms;
use weir_socket::{Consumer, ConsumerOptions, SocketError};
use weir_transport::Metadata;
use weir_wire::Name;
use weir_wire::tlv::KEYWORD_NAME_COMPONENT;

use super::consumers::Consumers;
use super::fields::words;
use crate::head::ResponseHead;

/// Upper bound of names whose heads are known.
const HEADS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not 0");
/// A response that an origin received at most this long before the request came from the origin,
/// not from a store on the way.
const FROM_ORIGIN_MS: u64 = 50;
/// How long after its end a store may still count a head as fresh: its clock began with the arrival
/// of the packet.
const STALE_GRACE_MS: u64 = 2000;

/// Where a head came from, for `Cache-Status`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum HeadSource {
    /// The front's memory.
    Memory,
    /// The store of the front's router.
    Store,
    /// A next hop of the router: another router, or the application that published the object.
    Network(ForwardReason),
    /// An origin that has just asked its server.
    Origin(ForwardReason),
}

/// Why the front asked the network (RFC 9211, section 2.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ForwardReason {
    /// It knew no head.
    Miss,
    /// The head that it knew was no longer fresh.
    Stale,
    /// The client did not accept a stored response.
    Request,
}

impl HeadSource {
    /// The same source, after a request of a client that does not accept stored responses.
    fn for_request(self) -> Self {
        match self {
            Self::Network(_) => Self::Network(ForwardReason::Request),
            Self::Origin(_) => Self::Origin(ForwardReason::Request),
            other => other,
        }
    }
}

/// A version, and the head of its response.
pub(super) struct FoundVersion {
    pub(super) metadata: Arc<Metadata>,
    pub(super) head: ResponseHead,
    /// Whether the producer stated the head. If not, it is made from the metadata.
    pub(super) is_http: bool,
    /// When it was requested.
    requested: Instant,
}

impl FoundVersion {
    pub(super) fn new(metadata: Metadata, requested: Instant) -> Result<Self, SocketError> {
        let (head, is_http) = match &metadata.http_head {
            Some(octets) => match ResponseHead::decode(octets) {
                Ok(head) => (head, true),
                Err(error) => return Err(SocketError::NotVerified(error.to_string())),
            },
            None => (head_of_object(&metadata), false),
        };
        Ok(Self { metadata: Arc::new(metadata), head, is_http, requested })
    }

    /// Whether it may be used without asking.
    fn is_fresh(&self, now_ms: u64) -> bool {
        self.head.fresh_ms_after(now_ms, self.requested.elapsed()) > 0
    }

    /// Whether it looks like a stale copy of a store. The clock of its origin may differ from this
    /// one, so this is only a hint.
    fn seems_stale(&self, now_ms: u64) -> bool {
        let end_ms = self.head.received_ms.saturating_add(self.head.lifetime_ms);
        end_ms.saturating_add(STALE_GRACE_MS) < now_ms
    }

    /// Whether it may be used now, while it is validated in the background (RFC 5861).
    fn may_be_used_while_validated(&self, now_ms: u64) -> bool {
        let directives = words(&self.head.fields, &header::CACHE_CONTROL);
        let mut seconds = directives
            .iter()
            .filter_map(|word| word.strip_prefix("stale-while-revalidate=")?.parse::<u64>().ok());
        let end_ms = self.head.received_ms.saturating_add(self.head.lifetime_ms);
        seconds.next().is_some_and(|seconds| {
            self.head.lifetime_ms > 0
                && !self.head.forbids_stale()
                && now_ms < end_ms.saturating_add(seconds.saturating_mul(1000))
        })
    }
}

/// The head for an object that is no HTTP response, such as a file of `weir put`.
fn head_of_object(metadata: &Metadata) -> ResponseHead {
    let mut head = ResponseHead::new(StatusCode::OK, unix_time_ms());
    let mut set = |name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            head.fields.insert(name, value);
        }
    };
    let object = metadata.versioned.as_view().parent();
    let file = object.last().map(|last| String::from_utf8_lossy(last.value).into_owned());
    let kind = mime_guess::from_path(file.unwrap_or_default()).first_or_octet_stream();
    let is_text = kind.type_() == mime_guess::mime::TEXT;
    set(header::CONTENT_TYPE, format!("{kind}{}", if is_text { "; charset=utf-8" } else { "" }));
    let version = metadata.versioned.as_view().last().and_then(|last| last.as_version());
    set(
        header::ETAG,
        match metadata.content_digest {
            Some(digest) => format!("\"{}\"", hex::encode(&digest[..16])),
            None => format!("\"v{}\"", version.unwrap_or(0)),
        },
    );
    if let Some(mtime_ns) = metadata.mtime_ns {
        let time = std::time::UNIX_EPOCH + Duration::from_nanos(mtime_ns);
        set(header::LAST_MODIFIED, httpdate::fmt_http_date(time));
    }
    head
}

/// A request for a head that failed.
struct HeadFailure {
    requested: Instant,
    ended: Instant,
    error: SocketError,
}

impl HeadFailure {
    /// Whether it answers a request, too: one that has waited for it, or, with `must_ask`, one that
    /// arrived before it began.
    fn answers(&self, arrival: Instant, must_ask: bool) -> bool {
        arrival <= if must_ask { self.requested } else { self.ended }
    }
}

/// What is known about a name.
#[derive(Default)]
struct HeadSlot {
    latest: Mutex<Option<Arc<FoundVersion>>>,
    /// Locked while the head is requested, so that one request serves all that wait. Contains the
    /// outcome of the last one, if it failed.
    requesting: Arc<tokio::sync::Mutex<Option<HeadFailure>>>,
}

impl HeadSlot {
    fn latest(&self) -> Option<Arc<FoundVersion>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the later one of two heads. A client never gets an older version than before, from
    /// any store.
    fn update(&self, found: Arc<FoundVersion>) -> Arc<FoundVersion> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = latest.as_ref().is_some_and(|latest| {
            if latest.is_http {
                found.head.received_ms < latest.head.received_ms
            } else {
                version_of(&found.metadata) < version_of(&latest.metadata)
            }
        });
        match (&*latest, is_older) {
            (Some(latest), true) => latest.clone(),
            _ => latest.insert(found).clone(),
        }
    }

    /// The stale head, if its producer permits to use it after this error.
    fn stale_or(&self, error: SocketError) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        match self.latest() {
            Some(found) if is_disconnected(&error) && !found.head.forbids_stale() => {
                Ok((found, HeadSource::Memory))
            }
            _ => Err(error),
        }
    }
}

fn version_of(metadata: &Metadata) -> Option<u64> {
    metadata.versioned.as_view().last()?.as_version()
}

/// The heads of all names.
pub(super) struct Heads {
    consumers: Arc<Consumers>,
    timeout: Duration,
    slots: Mutex<LruCache<Name, Arc<HeadSlot>>>,
}

impl Heads {
    pub(super) fn new(consumers: Arc<Consumers>, timeout: Duration) -> Self {
        Self { consumers, timeout, slots: Mutex::new(LruCache::new(HEADS_MAX)) }
    }

    fn slots(&self) -> MutexGuard<'_, LruCache<Name, Arc<HeadSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> usize {
        self.slots().len()
    }

    /// The head of the current version of an object. With `must_ask`, a head in memory does not
    /// answer unless it was requested after this call.
    ///
    /// # Errors
    /// The object cannot be found.
    pub(super) async fn find(
        self: &Arc<Self>,
        object: &Name,
        must_ask: bool,
    ) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        let arrival = Instant::now();
        let slot = self.slots().get_or_insert(object.clone(), Arc::default).clone();
        if let Some(found) = slot.latest()
            && !must_ask
        {
            let now_ms = unix_time_ms();
            if found.is_fresh(now_ms) {
                return Ok((found, HeadSource::Memory));
            }
            if found.may_be_used_while_validated(now_ms) {
                self.validate(object, &slot);
                return Ok((found, HeadSource::Memory));
            }
        }
        self.ask(object, &slot, arrival, must_ask).await
    }

    /// Requests the head in the background, unless it is already being requested.
    fn validate(self: &Arc<Self>, object: &Name, slot: &Arc<HeadSlot>) {
        let Ok(guard) = slot.requesting.clone().try_lock_owned() else { return };
        let (heads, object, slot) = (self.clone(), object.clone(), slot.clone());
        let deadline = Deadline::now() + self.timeout;
        tokio::spawn(
            async move { heads.request_head(&object, &slot, guard, deadline).await.map(drop) },
        );
    }

    /// Requests the head, or waits for a request that others began.
    async fn ask(
        &self,
        object: &Name,
        slot: &HeadSlot,
        arrival: Instant,
        must_ask: bool,
    ) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        let deadline = Deadline::from_std(arrival) + self.timeout;
        let locked = timeout_at(deadline, slot.requesting.clone().lock_owned());
        let Ok(guard) = locked.await else {
            return slot.stale_or(SocketError::TimedOut(object.clone()));
        };
        // A request that began after this one arrived has an answer for it, too.
        if let Some(found) = slot.latest()
            && (found.requested >= arrival || !must_ask && found.is_fresh(unix_time_ms()))
        {
            return Ok((found, HeadSource::Memory));
        }
        if let Some(failure) = &*guard
            && failure.answers(arrival, must_ask)
        {
            return slot.stale_or(failure.error.clone());
        }
        let (found, source) = self.request_head(object, slot, guard, deadline).await?;
        Ok((found, if must_ask { source.for_request() } else { source }))
    }

    /// Requests the head until the deadline, and records it or the failure.
    async fn request_head(
        &self,
        object: &Name,
        slot: &HeadSlot,
        mut last_failure: OwnedMutexGuard<Option<HeadFailure>>,
        deadline: Deadline,
    ) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        let requested = Instant::now();
        let received = timeout_at(deadline, self.receive_head(object, slot, requested)).await;
        match received.unwrap_or_else(|_| Err(SocketError::TimedOut(object.clone()))) {
            Ok((found, source)) => {
                *last_failure = None;
                Ok((slot.update(Arc::new(found)), source))
            }
            Err(error) => {
                if matches!(error, SocketError::NotVerified(_)) && slot.latest().is_none() {
                    self.consumers.restart(object);
                }
                let failed = HeadFailure { requested, ended: Instant::now(), error: error.clone() };
                *last_failure = Some(failed);
                slot.stale_or(error)
            }
        }
    }

    /// Receives a head from the network. Where producers forbid to use a stale one, the
    /// FreshnessPeriod decides, as stores observe it. A clock that differs from the origin's does
    /// not.
    async fn receive_head(
        &self,
        object: &Name,
        slot: &HeadSlot,
        requested: Instant,
    ) -> Result<(FoundVersion, HeadSource), SocketError> {
        let asked_ms = unix_time_ms();
        let is_strict = slot.latest().is_some_and(|latest| latest.head.forbids_stale());
        let mut consumer = self.consumers.of(object);
        if is_strict {
            refuse_stale(&mut consumer)?;
        }
        let (metadata, mut is_from_store) = request(&consumer, object, 0..0).await?;
        let mut found = FoundVersion::new(metadata, requested)?;
        if !is_strict && found.head.forbids_stale() && found.seems_stale(asked_ms) {
            refuse_stale(&mut consumer)?;
            let (metadata, is_again_from_store) = request(&consumer, object, 0..0).await?;
            found = FoundVersion::new(metadata, requested)?;
            is_from_store = is_again_from_store;
        }
        let reason =
            if slot.latest().is_some() { ForwardReason::Stale } else { ForwardReason::Miss };
        // Only an origin states when its server responded.
        let is_new = found.is_http && found.head.received_ms + FROM_ORIGIN_MS >= asked_ms;
        let source = match (is_from_store, is_new) {
            (true, _) => HeadSource::Store,
            (false, true) => HeadSource::Origin(reason),
            (false, false) => HeadSource::Network(reason),
        };
        Ok((found, source))
    }

    /// A version of an object.
    ///
    /// # Errors
    /// The version cannot be found.
    pub(super) async fn find_version(
        self: &Arc<Self>,
        object: &Name,
        version: u64,
    ) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        let versioned = object.clone().append_version(version).clone();
        if let Ok((found, source)) = self.find(object, false).await
            && found.metadata.versioned == versioned
        {
            return Ok((found, source));
        }
        self.find_exact(&versioned).await
    }

    /// A version that no metadata describe: its name and its end.
    ///
    /// # Errors
    /// The version cannot be found.
    pub(super) async fn find_exact(
        &self,
        versioned: &Name,
    ) -> Result<(Arc<FoundVersion>, HeadSource), SocketError> {
        // Without metadata, only its content shows that it exists.
        let consumer = self.consumers.of(&versioned.as_view().parent().to_name());
        let requested = request(&consumer, versioned, 0..1);
        let found = tokio::time::timeout(self.timeout, requested).await;
        let (metadata, is_from_store) =
            found.map_err(|_| SocketError::TimedOut(versioned.clone()))??;
        let source = match is_from_store {
            true => HeadSource::Store,
            false => HeadSource::Network(ForwardReason::Miss),
        };
        Ok((Arc::new(FoundVersion::new(metadata, Instant::now())?), source))
    }

    /// Verifies a packet of the producer of an object.
    ///
    /// # Errors
    /// [`SocketError::NotVerified`].
    pub(super) async fn verify(
        self: &Arc<Self>,
        object: &Name,
        packet: &[u8],
    ) -> Result<(), SocketError> {
        let consumer = self.consumers.of(object);
        if consumer.verify(packet).is_ok() {
            return Ok(());
        }
        // Metadata of the same producer carry its certificate.
        let _ = self.find(object, true).await;
        consumer.verify(packet)
    }

    /// Forgets the heads that an upload may have changed: those of the object, of its variants, and
    /// of its folder.
    pub(super) fn forget(&self, object: &Name) {
        let mut path = object.as_view();
        while path.last().is_some_and(|last| u32::from(last.typ) == KEYWORD_NAME_COMPONENT) {
            path = path.parent();
        }
        // A directory of `weir put`, and the resource of a server.
        let directory = path.parent().to_name();
        let folder = directory.clone().append_generic(b"").clone();
        let mut slots = self.slots();
        let variants = slots.iter().map(|(name, _)| name);
        let variants = variants.filter(|name| is_variant_of(name, object)).cloned();
        let variants: Vec<Name> = variants.collect();
        for name in variants.iter().chain([object, &directory, &folder]) {
            slots.pop(name);
        }
    }
}

fn is_variant_of(name: &Name, object: &Name) -> bool {
    let name = name.as_view();
    let is_keyword = name.last().is_some_and(|last| u32::from(last.typ) == KEYWORD_NAME_COMPONENT);
    is_keyword && name.parent() == object.as_view()
}

/// Accepts stale metadata of stores no longer.
fn refuse_stale(consumer: &mut Consumer) -> Result<(), SocketError> {
    consumer.set_options(ConsumerOptions { stored: false, ..consumer.options().clone() })
}

/// Fetches metadata, and these bytes of the content. Returns also whether the metadata came from
/// the store of the front's router.
async fn request(
    consumer: &Consumer,
    name: &Name,
    bytes: Range<u64>,
) -> Result<(Metadata, bool), SocketError> {
    let has_bytes = !bytes.is_empty();
    let mut reader = consumer.fetch_range(name, bytes)?;
    if has_bytes {
        poll_fn(|context| reader.poll_fill_buf(context).map_ok(drop)).await?;
    }
    let found = poll_fn(|context| reader.poll_metadata(context).map(|found| found.cloned()));
    let metadata = found.await?;
    Ok((metadata, reader.is_from_local_store()))
}

/// Whether the network does not answer, rather than that the object does not exist.
fn is_disconnected(error: &SocketError) -> bool {
    matches!(
        error,
        SocketError::TimedOut(_)
            | SocketError::NoRoute(_)
            | SocketError::NoRouter(_)
            | SocketError::RouterTimedOut(_)
            | SocketError::Refused(_)
    )
}

#[cfg(test)]
mod tests;
