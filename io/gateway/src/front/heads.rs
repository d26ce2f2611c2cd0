//! The heads of responses: which version a name has, and what its producer says about it.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, StatusCode};
use lru::LruCache;
use weir_face::unix_time_ms;
use weir_socket::{Consumer, SocketError};
use weir_transport::Metadata;
use weir_wire::Name;

use crate::head::ResponseHead;

/// Upper bound of names whose heads are known.
const HEADS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not 0");
/// A head that left its producer at most this long before the request came from the producer, not
/// from a store.
const FROM_ORIGIN_MS: u64 = 50;
/// How long after its end a store may still hold a head for fresh: its clock began with the arrival
/// of the packet.
const STALE_GRACE_MS: u64 = 2000;

/// Where a head came from, for `Cache-Status`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum HeadSource {
    Memory,
    /// A router's store.
    Network,
    Origin,
}

/// A version, and the head of its response.
pub(super) struct Found {
    pub(super) metadata: Arc<Metadata>,
    pub(super) head: ResponseHead,
    /// Whether the producer stated the head. If not, it is made from the metadata.
    pub(super) is_http: bool,
    /// When it was requested.
    requested: Instant,
}

impl Found {
    fn new(metadata: Metadata, requested: Instant) -> Result<Self, SocketError> {
        let (head, is_http) = match &metadata.http_head {
            Some(octets) => match ResponseHead::decode(octets) {
                Ok(head) => (head, true),
                Err(error) => return Err(SocketError::NotVerified(error.to_string())),
            },
            None => (head_of_object(&metadata), false),
        };
        Ok(Self { metadata: Arc::new(metadata), head, is_http, requested })
    }

    /// Whether it comes from a store, is stale, and must not be used like this.
    fn is_forbidden(&self, now_ms: u64) -> bool {
        let end_ms = self.head.received_ms.saturating_add(self.head.lifetime_ms);
        end_ms.saturating_add(STALE_GRACE_MS) < now_ms && self.is_http && self.forbids_stale()
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
                && now_ms < end_ms.saturating_add(seconds.saturating_mul(1000))
        })
    }

    /// Whether the producer forbids to use it when it is stale.
    fn forbids_stale(&self) -> bool {
        const WORDS: [&str; 5] =
            ["must-revalidate", "proxy-revalidate", "no-cache", "no-store", "s-maxage"];
        let values = self.head.fields.get_all(header::CACHE_CONTROL).iter();
        values.filter_map(|value| value.to_str().ok()).any(|value| {
            let mut words = value.split(',').map(str::trim);
            words.any(|word| WORDS.iter().any(|stop| starts_with_word(word, stop)))
        })
    }
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
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

/// What is known about a name.
#[derive(Default)]
struct HeadSlot {
    latest: Mutex<Option<Arc<Found>>>,
    /// Held while the head is requested, so that one request serves all that wait.
    requesting: tokio::sync::Mutex<()>,
}

impl HeadSlot {
    fn latest(&self) -> Option<Arc<Found>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the later one of two heads. A client never gets an older version than before, whatever
    /// store answers.
    fn update(&self, found: Arc<Found>) -> Arc<Found> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = latest.as_ref().is_some_and(|latest| match latest.is_http {
            true => found.head.received_ms < latest.head.received_ms,
            false => version_of(&found.metadata) < version_of(&latest.metadata),
        });
        match (&*latest, is_older) {
            (Some(latest), true) => latest.clone(),
            _ => latest.insert(found).clone(),
        }
    }
}

fn version_of(metadata: &Metadata) -> Option<u64> {
    metadata.versioned.as_view().last()?.as_version()
}

/// The heads of all names.
pub(super) struct Heads {
    consumer: Consumer,
    timeout: Duration,
    slots: Mutex<LruCache<Name, Arc<HeadSlot>>>,
}

impl Heads {
    pub(super) fn new(consumer: Consumer, timeout: Duration) -> Self {
        Self { consumer, timeout, slots: Mutex::new(LruCache::new(HEADS_MAX)) }
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
    ) -> Result<(Arc<Found>, HeadSource), SocketError> {
        let arrival = Instant::now();
        let slot = self.slots().get_or_insert(object.clone(), Arc::default).clone();
        if let Some(found) = slot.latest()
            && !must_ask
            && found.head.fresh_ms(unix_time_ms()) > 0
        {
            return Ok((found, HeadSource::Memory));
        }
        if let Some(found) = slot.latest()
            && !must_ask
            && found.may_be_used_while_validated(unix_time_ms())
        {
            let (heads, object) = (self.clone(), object.clone());
            tokio::spawn(async move { heads.ask(&object, &slot, arrival, true).await.map(drop) });
            return Ok((found, HeadSource::Memory));
        }
        self.ask(object, &slot, arrival, must_ask).await
    }

    /// Requests the head, or waits for a request that others began after `arrival`.
    async fn ask(
        &self,
        object: &Name,
        slot: &HeadSlot,
        arrival: Instant,
        must_ask: bool,
    ) -> Result<(Arc<Found>, HeadSource), SocketError> {
        let _guard = slot.requesting.lock().await;
        // A request that began after this one arrived has an answer for it, too.
        if let Some(found) = slot.latest()
            && (found.requested >= arrival || !must_ask && found.head.fresh_ms(unix_time_ms()) > 0)
        {
            return Ok((found, HeadSource::Memory));
        }
        let arrival_ms = unix_time_ms();
        let requested = Instant::now();
        match self.request(object).await {
            Ok(metadata) => {
                let found = Arc::new(Found::new(metadata, requested)?);
                let is_new = found.head.received_ms + FROM_ORIGIN_MS >= arrival_ms;
                if found.is_forbidden(arrival_ms) {
                    return Err(SocketError::TimedOut(object.clone()));
                }
                let source = if is_new { HeadSource::Origin } else { HeadSource::Network };
                Ok((slot.update(found), source))
            }
            Err(error) => match slot.latest() {
                Some(found) if is_disconnected(&error) && !found.forbids_stale() => {
                    Ok((found, HeadSource::Memory))
                }
                _ => Err(error),
            },
        }
    }

    /// A version of an object.
    ///
    /// # Errors
    /// The version cannot be found.
    pub(super) async fn find_version(
        self: &Arc<Self>,
        object: &Name,
        version: u64,
    ) -> Result<Arc<Found>, SocketError> {
        let versioned = object.clone().append_version(version).clone();
        if let Ok((found, _)) = self.find(object, false).await
            && found.metadata.versioned == versioned
        {
            return Ok(found);
        }
        self.find_exact(&versioned).await
    }

    /// A version that no metadata describe: its name and its end.
    ///
    /// # Errors
    /// The version cannot be found.
    pub(super) async fn find_exact(&self, versioned: &Name) -> Result<Arc<Found>, SocketError> {
        let metadata = self.request(versioned).await?;
        Ok(Arc::new(Found::new(metadata, Instant::now())?))
    }

    /// Forgets the head of an object that has been changed.
    pub(super) fn forget(&self, object: &Name) {
        self.slots().pop(object);
    }

    /// Fetches metadata only: of no bytes of the content.
    async fn request(&self, name: &Name) -> Result<Metadata, SocketError> {
        let mut reader = self.consumer.fetch_range(name, 0..0)?;
        let found =
            poll_fn(|context| reader.poll_metadata(context).map(|metadata| metadata.cloned()));
        match tokio::time::timeout(self.timeout, found).await {
            Ok(found) => found,
            Err(_) => Err(SocketError::TimedOut(name.clone())),
        }
    }
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

/// The values of a header that lists words, in lower case.
pub(super) fn words(fields: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let words = values.flat_map(|value| value.split(',')).map(|word| word.trim().to_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}
