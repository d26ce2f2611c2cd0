//! A server of S3 (the crates `s3s` and `s3s-fs`), with faults where a test wants them.

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
/// How long a slow server thinks.
const SLOW_DELAY: Duration = Duration::from_millis(50);

/// What a server does instead of its work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Nothing: it works.
    None,
    /// It answers each request with 503.
    Busy,
    /// It refuses what writes, with 507.
    Full,
    /// It takes requests and never answers.
    Stalled,
    /// It works, each answer late.
    Slow,
}

const FAULTS: [Fault; 5] = [Fault::None, Fault::Busy, Fault::Full, Fault::Stalled, Fault::Slow];

#[derive(Debug, Default)]
struct ServerState {
    fault: AtomicU8,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// A server on a port of 127.0.0.1 that keeps its objects in a folder.
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

    /// Starts it, or starts it again with the objects that it had.
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

    /// Ends it as a kill would: connections break off, and the port refuses others.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// From now on it does that.
    pub fn set_fault(&self, fault: Fault) {
        self.state.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Requests that read so far.
    pub fn reads(&self) -> u64 {
        self.state.reads.load(Ordering::Relaxed)
    }

    /// Requests that write so far.
    pub fn writes(&self) -> u64 {
        self.state.writes.load(Ordering::Relaxed)
    }

    /// The address of a place in its bucket.
    pub fn url_of(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Has a program know server and credentials, by the variables that programs for S3 have in
    /// common.
    pub fn set_environment(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", self.endpoint())
            .env("NO_PROXY", "127.0.0.1")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// The files in which it keeps the objects below a prefix, sorted.
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
    let text = format!("<Error><Code>{code}</Code><Message>a test has it so</Message></Error>");
    let mut response = Response::new(s3s::Body::from(text));
    *response.status_mut() = status;
    response
}
