//! Connections: HTTP/1.1 and HTTP/2 over TCP, with or without TLS, with limits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_base::Exposition;
use weir_http::WriteTimeout;

use super::body::{Body, full};
use super::errors::Failure;
use super::{SHUTDOWN_TIMEOUT, Shared, request};

/// Upper bound of concurrent requests of an HTTP/2 or HTTP/3 connection.
pub(super) const STREAMS_MAX: u32 = 128;
/// Bytes of the head of a request.
pub(super) const HEAD_BYTES_MAX: u32 = 32 << 10;
/// Bytes of requests and responses that an HTTP/1.1 connection buffers.
const BUFFER_BYTES_MAX: usize = 512 << 10;
/// Bytes of responses that an HTTP/2 connection buffers.
const SEND_BYTES: usize = 1 << 20;
/// How long a refused client has time to read why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// The pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Upper bounds of connections.
pub(super) struct Limits {
    max: usize,
    per_address_max: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Limits {
    pub(super) fn new(max: usize, per_address_max: usize) -> Self {
        Self { max, per_address_max, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts towards the limits.
pub(super) struct Connection {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Connection {
    /// At a limit, the status for the client.
    pub(super) fn open(shared: &Arc<Shared>, address: IpAddr) -> Result<Self, StatusCode> {
        let address = address.to_canonical();
        let limits = &shared.limits;
        let mut open = limits.open();
        let own = open.by_address.get(&address).copied().unwrap_or(0);
        let refusal = match (open.total < limits.max, own < limits.per_address_max) {
            (false, _) => Some(StatusCode::SERVICE_UNAVAILABLE),
            (_, false) => Some(StatusCode::TOO_MANY_REQUESTS),
            _ => None,
        };
        if let Some(status) = refusal {
            shared.metrics.on_refused_connection();
            return Err(status);
        }
        open.by_address.insert(address, own + 1);
        open.total += 1;
        drop(open);
        shared.metrics.connections.inc();
        Ok(Self { shared: shared.clone(), address })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.metrics.connections.dec();
        let mut open = self.shared.limits.open();
        open.total -= 1;
        if let Entry::Occupied(mut count) = open.by_address.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
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
    let graceful = GracefulShutdown::new();
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
        let connection = match Connection::open(&shared, address.ip()) {
            Ok(connection) => connection,
            Err(status) if tls.is_none() => {
                tokio::spawn(tokio::time::timeout(REFUSAL_TIME, refuse(stream, status)));
                continue;
            }
            // A handshake costs more than the limit saves.
            Err(_) => continue,
        };
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
                        // Idle connections without TLS need no room for its state.
                        let accepting = Box::pin(tls.accept(stream));
                        let accepted = tokio::time::timeout(client_timeout, accepting);
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
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
}

/// Says why a connection is closed. Reads what the client has sent: with unread bytes, closing
/// would destroy the response on its way.
async fn refuse(mut stream: TcpStream, status: StatusCode) -> io::Result<()> {
    let text = "There are too many connections. Close some, or try again later.\n";
    let length = text.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{text}").as_bytes()).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
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
    let has_requested = Arc::new(AtomicBool::new(false));
    let begun = has_requested.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        begun.store(true, Ordering::Relaxed);
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
        .max_buf_size(BUFFER_BYTES_MAX);
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
    // Nothing else bounds the time until the first octets, or those of HTTP/2's preface.
    let silence = async {
        tokio::time::sleep(client_timeout).await;
        if has_requested.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        served = watcher.watch(serving.into_owned()) => served,
        () = silence => Err("the client sends no request".into()),
    }
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
    request::respond(shared, client, parts, body).await
}

/// Serves `/metrics` and `/health` until `stopping`.
pub(super) async fn serve_status(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stops| *stops) => return,
        };
        let Ok((stream, address)) = accepted else {
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
                let accept = request.headers().get(header::ACCEPT);
                let accept = accept.and_then(|value| value.to_str().ok());
                let form = Exposition::wanted(accept.unwrap_or_default());
                let mut response = Response::new(full(form.of(text)));
                let kind = HeaderValue::from_static(form.content_type());
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
