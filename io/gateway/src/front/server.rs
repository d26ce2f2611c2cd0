//! Connections: HTTP/1.1 and HTTP/2 over TCP, with or without TLS, with limits.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_http::WriteTimeout;

use super::body::{Body, full};
use super::errors::Failure;
use super::{SHUTDOWN_TIMEOUT, Shared, request};

/// Upper bound of concurrent requests of an HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: u32 = 32 << 10;
/// Bytes of responses that a connection buffers.
const SEND_BYTES: usize = 1 << 20;
/// The pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Upper bounds of connections.
pub(super) struct Limits {
    max: usize,
    per_address_max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Limits {
    pub(super) fn new(max: usize, per_address_max: usize) -> Self {
        Self { max, per_address_max, counts: Mutex::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<IpAddr, usize>) -> T) -> T {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection that counts towards the limits.
pub(super) struct Connection {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Connection {
    /// `None` at a limit.
    pub(super) fn open(shared: &Arc<Shared>, address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        let limits = &shared.limits;
        let is_open = limits.change(|counts| {
            let total: usize = counts.values().sum();
            let own = counts.get(&address).copied().unwrap_or(0);
            let has_room = total < limits.max && own < limits.per_address_max;
            if has_room {
                counts.insert(address, own + 1);
            }
            has_room
        });
        if !is_open {
            shared.metrics.on_refused_connection();
            return None;
        }
        shared.metrics.connections.inc();
        Some(Self { shared: shared.clone(), address })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.metrics.connections.dec();
        self.shared.limits.change(|counts| {
            if let Some(count) = counts.get_mut(&self.address) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&self.address);
                }
            }
        });
    }
}

/// Accepts connections until `stopping`.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<ServerConfig>,
    shared: Arc<Shared>,
    http3_port: Option<u16>,
    mut stopping: watch::Receiver<bool>,
) {
    let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    let alternative = http3_port.map(|port| format!("h3=\":{port}\"; ma=86400"));
    let alternative = alternative.and_then(|text| HeaderValue::from_str(&text).ok());
    let graceful = Arc::new(GracefulShutdown::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stops| *stops) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(connection) = Connection::open(&shared, address.ip()) else { continue };
        let (tls, alternative) = (tls.clone(), alternative.clone());
        let watcher = graceful.watcher();
        let serving = async move {
            let _ = stream.set_nodelay(true);
            let client_timeout = Duration::from_nanos(connection.shared.config.client_timeout.ns);
            let stream = WriteTimeout::new(stream, client_timeout);
            let served = async {
                match tls {
                    None => serve_requests(stream, &connection, alternative, watcher, false).await,
                    Some(tls) => {
                        let accepted = tokio::time::timeout(client_timeout, tls.accept(stream));
                        match accepted.await {
                            Ok(Ok(stream)) => {
                                // The client has chosen by ALPN.
                                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                                serve_requests(stream, &connection, alternative, watcher, is_http2)
                                    .await
                            }
                            Ok(Err(error)) => Err(error.into()),
                            Err(_) => Err("the TLS handshake timed out".into()),
                        }
                    }
                }
            };
            if let Err(error) = served.await {
                tracing::debug!(%address, error, "a connection ended early");
            }
        };
        tokio::spawn(serving);
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: &Connection,
    alternative: Option<HeaderValue>,
    watcher: hyper_util::server::graceful::Watcher,
    is_http2: bool,
) -> Result<(), AnyError> {
    let (shared, client) = (connection.shared.clone(), connection.address);
    let client_timeout = Duration::from_nanos(shared.config.client_timeout.ns);
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, alternative) = (shared.clone(), alternative.clone());
        async move {
            let mut response = respond(&shared, client, request).await;
            if let Some(alternative) = alternative {
                response.headers_mut().insert(header::ALT_SVC, alternative);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(client_timeout)
        .max_buf_size(HEAD_BYTES_MAX as usize * 4);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(client_timeout)
        .keep_alive_timeout(client_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES)
        .adaptive_window(true);
    if is_http2 {
        builder = builder.http2_only();
    }
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    watcher.watch(serving.into_owned()).await
}

/// Answers a request of any protocol.
pub(super) async fn respond<B>(
    shared: &Arc<Shared>,
    client: IpAddr,
    request: Request<B>,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<AnyError>,
{
    let (parts, body) = request.into_parts();
    match parts.method {
        Method::OPTIONS => request::options(),
        _ => request::respond(shared, client, parts, body).await,
    }
}

/// Serves `/metrics` and `/health`.
pub(super) async fn serve_status(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::spawn(serve_status_connection(stream, address, shared.clone()));
    }
}

async fn serve_status_connection(stream: TcpStream, address: SocketAddr, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = match request.uri().path() {
            "/metrics" => {
                let text = shared.metrics.text(shared.pieces.bytes(), shared.heads.known());
                let mut response = Response::new(full(text));
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                let kind = HeaderValue::from_static(kind);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            "/health" => Response::new(full("ok\n")),
            _ => {
                let reason = "this address serves /metrics and /health";
                Failure::new(StatusCode::NOT_FOUND, reason).response()
            }
        };
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(SHUTDOWN_TIMEOUT);
    if let Err(error) = pin!(builder.serve_connection(TokioIo::new(stream), service)).await {
        tracing::debug!(%address, %error, "a connection for metrics ended early");
    }
}
