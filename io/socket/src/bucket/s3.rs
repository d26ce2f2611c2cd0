//! Buckets, with the crate `object_store`.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, GetOptions, GetRange, ObjectStore,
    ObjectStoreExt, PutPayload, RetryConfig, WriteMultipart,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::{BucketError, BucketObject, BucketRead, Location};

/// Threads that communicate with the server.
const THREADS: usize = 2;
/// Concurrent small reads.
const CONCURRENT_READS_MAX: usize = 32;
/// A smaller upload is one request. A larger one has parts of at least this size.
const PART_BYTES: usize = 8 << 20;
/// Upper bound of parts per upload: servers accept 10,000.
const PARTS_MAX: u64 = 9_000;
/// Concurrent parts of an upload.
const CONCURRENT_PARTS_MAX: usize = 4;
/// Bytes of concurrent small uploads, in permits of [`PERMIT_BYTES`].
const UPLOAD_PERMITS: usize = 1024;
const PERMIT_BYTES: usize = 64 << 10;
/// Concurrent small uploads.
const CONCURRENT_UPLOADS_MAX: usize = 32;

/// Time limit to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a read, including the body.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of a request that writes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a failed request is repeated.
const RETRIES: usize = 4;
/// Time after which a failed request is not repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit to abort a failed upload.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
const PLAIN_HTTP: &str = "the endpoint has no TLS, and is not on this machine; name one with \
                          https, or set AWS_ALLOW_HTTP=true where the network is trusted";
/// The start of an error of `object_store` with an HTTP status.
const STATUS_PREFIX: &str = "Server returned non-2xx status code: ";
/// Upper bound of bytes of a reason that are reported.
const REASON_BYTES_MAX: usize = 300;

/// A place in a bucket. Blocking calls must not come from threads of an async runtime.
#[derive(Debug)]
pub struct Bucket {
    location: Location,
    prefix: Path,
    reads: Arc<AmazonS3>,
    writes: Arc<AmazonS3>,
    upload_units: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // In the background, because a pending name lookup could block for long.
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Prepares access to a bucket from the AWS environment variables: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and others known to
    /// `object_store`. `endpoint` overrides the variable. Sends nothing to the server yet.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn open(location: &Location, endpoint: Option<&str>) -> Result<Self, BucketError> {
        let prefix = Path::parse(&location.prefix);
        let prefix = prefix.map_err(|error| BucketError::Other(error.to_string()))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("bucket")
            .enable_all()
            .build()
            .map_err(|error| BucketError::Other(error.to_string()))?;
        let _inside = runtime.enter();
        let build = |time| builder(location, endpoint, time)?.build().map_err(to_bucket_error);
        let (reads, writes) = (Arc::new(build(READ_TIMEOUT)?), Arc::new(build(WRITE_TIMEOUT)?));
        drop(_inside);
        Ok(Self {
            location: location.clone(),
            prefix,
            reads,
            writes,
            upload_units: Arc::new(Semaphore::new(UPLOAD_PERMITS)),
            uploads: Arc::new(Semaphore::new(CONCURRENT_UPLOADS_MAX)),
            runtime: Some(runtime),
        })
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("taken only by drop")
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// The first `max` objects whose names begin with `below` and a slash. An empty `below` stands
    /// for all objects.
    pub(crate) fn list(&self, below: &str, max: usize) -> Result<Vec<BucketObject>, BucketError> {
        let path = self.path(below);
        let before = match self.prefix.as_ref() {
            "" => 0,
            prefix => prefix.len() + 1,
        };
        self.runtime().block_on(async {
            let mut found = Vec::new();
            let mut list = self.reads.list(Some(&path)).take(max);
            while let Some(object) = list.next().await {
                let object = object.map_err(to_bucket_error)?;
                let name = object.location.as_ref().get(before..).unwrap_or_default().to_owned();
                found.push(BucketObject { name, bytes: object.size });
            }
            Ok(found)
        })
    }

    /// Reads some bytes of an object. Fails if a tag is given and the object has another one.
    pub(crate) fn read(
        &self,
        name: &str,
        range: Range<u64>,
        tag: Option<&str>,
    ) -> Result<BucketRead, BucketError> {
        let reading = read(self.reads.clone(), self.path(name), range, tag.map(str::to_owned));
        self.runtime().block_on(reading)
    }

    /// Reads the first bytes of each of these objects, several objects at a time. Calls `take` in
    /// any order, with the position of the object in `names`.
    pub(crate) fn read_each(
        &self,
        names: &[String],
        bytes: u64,
        mut take: impl FnMut(usize, Result<BucketRead, BucketError>),
    ) {
        let reads = names.iter().enumerate().map(|(at, name)| {
            let reading = read(self.reads.clone(), self.path(name), 0..bytes, None);
            async move { (at, reading.await) }
        });
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(CONCURRENT_READS_MAX);
        self.runtime().block_on(async {
            while let Some((at, piece)) = reads.next().await {
                take(at, piece);
            }
        });
    }

    /// As [`Bucket::read`], in the background. Another thread calls `done`, soon or at the time
    /// limit, unless the bucket is dropped earlier.
    pub(crate) fn fetch(
        &self,
        name: String,
        range: Range<u64>,
        tag: Option<String>,
        done: impl FnOnce(Result<BucketRead, BucketError>) + Send + 'static,
    ) {
        let reading = read(self.reads.clone(), self.path(&name), range, tag);
        self.runtime().spawn(async move { done(reading.await) });
    }

    /// Starts an object of this size. It exists completely when the upload is finished, or not at
    /// all.
    pub(crate) fn upload(self: &Arc<Self>, name: &str, bytes: u64) -> Result<Upload, BucketError> {
        let path = self.path(name);
        let form = if bytes <= PART_BYTES as u64 {
            UploadState::Whole(path, Vec::with_capacity(bytes as usize))
        } else {
            let begin = self.writes.put_multipart(&path);
            let upload = self.runtime().block_on(begin).map_err(to_bucket_error)?;
            let part_bytes = bytes.div_ceil(PARTS_MAX).max(PART_BYTES as u64) as usize;
            UploadState::Parts(WriteMultipart::new_with_chunk_size(upload, part_bytes))
        };
        Ok(Upload { bucket: self.clone(), form: Some(form) })
    }

    /// Creates an empty object of that name in the background, if possible.
    pub(crate) fn create_marker(&self, name: String) {
        let (path, writes) = (self.path(&name), self.writes.clone());
        self.runtime().spawn(async move { writes.put(&path, PutPayload::new()).await });
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, name: &str) -> Result<(), BucketError> {
        let path = self.path(name);
        match self.runtime().block_on(self.writes.delete(&path)).map_err(to_bucket_error) {
            Err(BucketError::Missing(_)) => Ok(()),
            result => result,
        }
    }
}

/// An object being written.
#[derive(Debug)]
pub(crate) struct Upload {
    bucket: Arc<Bucket>,
    /// Taken when it is finished.
    form: Option<UploadState>,
}

#[derive(Debug)]
enum UploadState {
    Whole(Path, Vec<u8>),
    Parts(WriteMultipart),
}

impl Upload {
    /// Appends bytes. They are sent when enough have accumulated.
    pub(crate) fn append(&mut self, octets: &[u8]) -> Result<(), BucketError> {
        match self.form.as_mut().expect("taken only by finish") {
            UploadState::Whole(_, all) => all.extend_from_slice(octets),
            UploadState::Parts(parts) => {
                let runtime = self.bucket.runtime();
                let room = parts.wait_for_capacity(CONCURRENT_PARTS_MAX);
                runtime.block_on(room).map_err(to_bucket_error)?;
                // `write` starts a task for each full part, which needs the runtime's context.
                let _inside = runtime.enter();
                parts.write(octets);
            }
        }
        Ok(())
    }

    /// Starts the commit. [`PendingUpload::wait`] waits until the object exists.
    pub(crate) fn finish(mut self) -> Result<PendingUpload, BucketError> {
        let bucket = self.bucket.clone();
        let runtime = bucket.runtime();
        let task = match self.form.take().expect("taken only by finish") {
            UploadState::Whole(path, octets) => {
                let permits = runtime.block_on(acquire_upload_room(&bucket, octets.len()));
                let writes = bucket.writes.clone();
                runtime.spawn(async move {
                    let _permits = permits;
                    let put = writes.put(&path, Bytes::from(octets).into()).await;
                    put.map(|put| normalize_etag(put.e_tag)).map_err(to_bucket_error)
                })
            }
            UploadState::Parts(parts) => runtime.spawn(async move {
                parts.finish().await.map(|put| normalize_etag(put.e_tag)).map_err(to_bucket_error)
            }),
        };
        Ok(PendingUpload { bucket, task })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(UploadState::Parts(parts)) = self.form.take() {
            let end = async { tokio::time::timeout(ABORT_TIMEOUT, parts.abort()).await };
            // If this fails, the parts remain in the bucket, but are no object. Buckets can be
            // configured to delete such parts.
            let _ = self.bucket.runtime().block_on(end);
        }
    }
}

/// Waits until a small upload may start.
async fn acquire_upload_room(bucket: &Bucket, bytes: usize) -> [OwnedSemaphorePermit; 2] {
    let units = bytes.div_ceil(PERMIT_BYTES).clamp(1, UPLOAD_PERMITS) as u32;
    let one = bucket.uploads.clone().acquire_owned().await;
    let units = bucket.upload_units.clone().acquire_many_owned(units).await;
    [one.expect("never closed"), units.expect("never closed")]
}

/// An object being committed.
#[derive(Debug)]
pub(crate) struct PendingUpload {
    bucket: Arc<Bucket>,
    task: JoinHandle<Result<Option<String>, BucketError>>,
}

impl PendingUpload {
    /// Waits until the object exists. Returns its tag.
    pub(crate) fn wait(self) -> Result<Option<String>, BucketError> {
        let result = self.bucket.runtime().block_on(self.task);
        result.unwrap_or_else(|error| Err(BucketError::Other(error.to_string())))
    }
}

/// A client for a bucket, with the settings of [`Bucket::open`], for reads from an async runtime.
/// It does not know the prefix of the location.
///
/// # Errors
/// A setting is invalid.
pub fn open_object_store(location: &Location) -> Result<AmazonS3, BucketError> {
    builder(location, None, READ_TIMEOUT)?.build().map_err(to_bucket_error)
}

fn builder(
    location: &Location,
    endpoint: Option<&str>,
    time: Duration,
) -> Result<AmazonS3Builder, BucketError> {
    let options = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(time);
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(4), ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT };
    let mut builder = AmazonS3Builder::new().with_client_options(options).with_retry(retry);
    // Set after the defaults, so that the environment overrides them.
    for (key, value) in std::env::vars_os() {
        if let (Some(key), Some(value)) = (key.to_str(), value.to_str())
            && key.starts_with("AWS_")
            && let Ok(key) = key.to_ascii_lowercase().parse()
        {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = endpoint {
        builder = builder
            .with_config(AmazonS3ConfigKey::Endpoint, endpoint)
            .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let of = |key| builder.get_config_value(&key);
    let used = of(AmazonS3ConfigKey::S3Endpoint).or_else(|| of(AmazonS3ConfigKey::Endpoint));
    let is_allowed = of(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_plain = used.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if is_plain && is_allowed.is_none_or(|allowed| allowed != "true") {
        if !used.is_some_and(|endpoint| is_loopback(&endpoint)) {
            return Err(BucketError::Other(PLAIN_HTTP.to_owned()));
        }
        builder = builder.with_allow_http(true);
    }
    Ok(builder.with_bucket_name(&location.bucket))
}

/// Whether an endpoint is on this host, so that its traffic never reaches the network.
fn is_loopback(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // In `127.0.0.1@example.net` the host is `example.net`.
    if authority.contains('@') {
        return false;
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

async fn read(
    store: Arc<AmazonS3>,
    path: Path,
    range: Range<u64>,
    tag: Option<String>,
) -> Result<BucketRead, BucketError> {
    let options = GetOptions {
        if_match: tag.clone(),
        range: Some(GetRange::Bounded(range)),
        ..GetOptions::default()
    };
    let found = store.get_opts(&path, options).await.map_err(to_bucket_error)?;
    let (bytes, found_tag) = (found.meta.size, normalize_etag(found.meta.e_tag.clone()));
    // Some servers ignore `if_match`, so the tag of the answer is compared, too.
    if tag.is_some() && found_tag.is_some() && tag != found_tag {
        return Err(BucketError::Replaced);
    }
    let octets = found.bytes().await.map_err(to_bucket_error)?;
    Ok(BucketRead { octets, bytes, tag: found_tag })
}

/// An ETag with quotation marks, because servers differ in whether an ETag in a document has them.
/// `None` for a weak ETag: different contents may share one.
fn normalize_etag(tag: Option<String>) -> Option<String> {
    let tag = tag.filter(|tag| !tag.starts_with("W/"))?;
    Some(format!("\"{}\"", tag.trim_matches('"')))
}

fn to_bucket_error(error: object_store::Error) -> BucketError {
    use object_store::Error as Known;
    let reason = reason(&error);
    match error {
        Known::NotFound { .. } => BucketError::Missing(reason),
        Known::Precondition { .. } => BucketError::Replaced,
        Known::PermissionDenied { .. } | Known::Unauthenticated { .. } => {
            BucketError::Denied(reason)
        }
        Known::Generic { .. } => match status(&reason) {
            Some(404) => BucketError::Missing(reason),
            // The server rejects the request as invalid, so a retry would not help.
            Some(status @ 300..500) if ![408, 429].contains(&status) => BucketError::Other(reason),
            _ => BucketError::Unreachable(reason),
        },
        _ => BucketError::Other(reason),
    }
}

/// The HTTP status in a reason.
fn status(reason: &str) -> Option<u16> {
    reason.get(..3)?.parse().ok()
}

/// The innermost reason, in one line of limited length.
fn reason(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let text = text.strip_prefix(STATUS_PREFIX).map_or(text.clone(), summarize_response);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if line.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|&at| line.is_char_boundary(at));
        line.truncate(end.unwrap_or(0));
        line.push_str("...");
    }
    line
}

/// Status, code and message of a response.
fn summarize_response(answer: &str) -> String {
    let of = |tag: &str| {
        let (_, rest) = answer.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(value, _)| value)
    };
    let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
    match [of("Code"), of("Message")] {
        [None, None] if body.is_empty() => status.to_owned(),
        [None, None] => answer.to_owned(),
        said => format!("{status}: {}", said.into_iter().flatten().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_server_errors() {
        let xml = "404 Not Found: <?xml?><Error><Code>NoSuchBucket</Code></Error>";
        assert_eq!(summarize_response(xml), "404 Not Found: NoSuchBucket");
        let xml = "403 Forbidden: <Error><Code>A</Code><Message>b c</Message><X>d</X></Error>";
        assert_eq!(summarize_response(xml), "403 Forbidden: A, b c");
        assert_eq!(summarize_response("503 Service Unavailable: "), "503 Service Unavailable");
        assert_eq!(summarize_response("500 Oh: dear"), "500 Oh: dear");
        assert_eq!((status("404 Not"), status("error sending")), (Some(404), None));
    }

    #[test]
    fn normalizes_etags() {
        let form = |tag: &str| normalize_etag(Some(tag.to_owned()));
        assert_eq!(form("abc-2"), form("\"abc-2\""));
        assert_eq!(form("\"abc-2\"").as_deref(), Some("\"abc-2\""));
        assert_eq!((form("W/\"abc\""), normalize_etag(None)), (None, None));
    }

    #[test]
    fn plain_http_is_local_only() {
        for endpoint in ["http://127.0.0.1:9000", "http://localhost", "http://[::1]:1/x"] {
            assert!(is_loopback(endpoint), "{endpoint}");
        }
        for endpoint in [
            "https://127.0.0.1",
            "http://127.0.0.1.example.net",
            "http://127.0.0.1@example.net",
            "http://localhost.example.net:80",
            "http://10.0.0.1",
        ] {
            assert!(!is_loopback(endpoint), "{endpoint}");
        }
    }
}
