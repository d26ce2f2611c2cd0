//! An S3 server (the crates `s3s` and `s3s-fs`) with optional faults.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::port::free_port;

const BUCKET: &str = "bucket";
const ACCESS_KEY: &str = "weir-tests";
const SECRET_KEY: &str = "weir-tests-secret";
/// Delay of each response of a slow server.
const SLOW_DELAY: Duration = Duration::from_millis(50);

/// A fault of the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// No fault.
    None,
    /// Answers each request with status 503.
    Busy,
    /// Rejects writes with status 507.
    Full,
    /// Accepts requests and never answers.
    Stalled,
    /// Answers each request late.
    Slow,
}

const FAULTS: [Fault; 5] = [Fault::None, Fault::Busy, Fault::Full, Fault::Stalled, Fault::Slow];

#[derive(Debug, Default)]
struct ServerState {
    fault: AtomicU8,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// A server on a port of 127.0.0.1 that stores its objects in a folder.
#[derive(Debug)]
pub struct BucketServer {
    folder: TempDir,
    port: u16,
    state: Arc<ServerState>,
    runtime: Option<Runtime>,
}

impl Default for BucketServer {
    fn default() -> Self {
        Self::new()
    }
}

impl BucketServer {
    /// A server with an empty bucket.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("weir-s3").tempdir().expect("a folder");
        fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let mut server = Self { folder, port: free_port(), state: Arc::default(), runtime: None };
        server.start();
        server
    }

    /// Starts the server, or restarts it with its objects.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&mut self) {
        let mut service =
            S3ServiceBuilder::new(FileSystem::new(self.folder.path()).expect("a folder"));
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = service.build();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (port, state) = (self.port, self.state.clone());
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port)));
        let listener = listener.expect("its port");
        runtime.spawn(accept(listener, service, state));
        self.runtime = Some(runtime);
    }

    /// Stops the server as a kill would: connections break, and new ones are refused.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Sets the current fault.
    pub fn set_fault(&self, fault: Fault) {
        self.state.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Number of read requests so far.
    pub fn reads(&self) -> u64 {
        self.state.reads.load(Ordering::Relaxed)
    }

    /// Number of write requests so far.
    pub fn writes(&self) -> u64 {
        self.state.writes.load(Ordering::Relaxed)
    }

    /// The `s3://` URL of a prefix in its bucket.
    pub fn url_of(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// The URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the usual environment variables with the server and the credentials for a program.
    pub fn set_environment(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", self.endpoint())
            .env("NO_PROXY", "127.0.0.1")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// The sorted files of the objects below a prefix.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.folder.path().join(BUCKET).join(prefix)) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        files
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(listener: TcpListener, service: S3Service, state: Arc<ServerState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (service, state) = (service.clone(), state.clone());
        let answer = service_fn(move |request| respond(request, service.clone(), state.clone()));
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(connection);
    }
}

async fn respond(
    request: Request<Incoming>,
    service: S3Service,
    state: Arc<ServerState>,
) -> Result<Response<s3s::Body>, s3s::HttpError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let counter = if is_read { &state.reads } else { &state.writes };
    counter.fetch_add(1, Ordering::Relaxed);
    match FAULTS[usize::from(state.fault.load(Ordering::Relaxed))] {
        Fault::Busy => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        Fault::Full if !is_read => {
            return Ok(refusal(StatusCode::INSUFFICIENT_STORAGE, "StorageFull"));
        }
        Fault::Stalled => std::future::pending().await,
        Fault::Slow => tokio::time::sleep(SLOW_DELAY).await,
        Fault::None | Fault::Full => {}
    }
    Service::call(&service, request).await
}

fn refusal(status: StatusCode, code: &str) -> Response<s3s::Body> {
    let text = format!("<Error><Code>{code}</Code><Message>fault of a test</Message></Error>");
    let mut response = Response::new(s3s::Body::from(text));
    *response.status_mut() = status;
    response
}
