//! Accepts connections, with or without TLS, and shuts them down cleanly. Each connection has a
//! slot and may be evicted from it ([`ConnectionSlots`]). A client must also read its answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_http::WriteTimeout;

use crate::connection_slots::{ConnectionSlot, ConnectionSlots};

/// Maximum time for a TLS handshake, and for the head of a request.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may read nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long requests in progress may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `stopping`.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Router,
    places: Arc<ConnectionSlots>,
    mut stopping: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    loop {
        // Stop accepting at shutdown.
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = stopping.wait_for(|stops| *stops) => break,
        };
        let Some((stream, address)) = accepted else { continue };
        let place = Arc::new(places.acquire(address.ip()));
        let (tls, routes, watcher) = (tls.clone(), routes.clone(), graceful.watcher());
        tokio::spawn(async move {
            tokio::select! {
                () = accept_tls(stream, address, tls, routes, watcher, &place) => {}
                () = place.evicted() => {
                    tracing::debug!(
                        %address,
                        "a connection without a token is closed to make room for another one"
                    );
                }
            }
        });
    }
    // From here on, the system refuses new connections.
    drop(listener);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time and are aborted");
    }
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn accept_tls(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    routes: Router,
    watcher: Watcher,
    place: &Arc<ConnectionSlot>,
) {
    // Answers are small, and a client waits for each.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(stream, WRITE_TIMEOUT);
    let Some(tls) = tls else {
        return serve_requests(stream, address, routes, watcher, place).await;
    };
    match tokio::time::timeout(START_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, address, routes, watcher, place).await,
        Ok(Err(error)) => tracing::debug!(%address, %error, "the TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "the TLS handshake timed out"),
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: SocketAddr,
    routes: Router,
    watcher: Watcher,
    place: &Arc<ConnectionSlot>,
) {
    let (routes, place) = (TowerToHyperService::new(routes), Arc::clone(place));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&place));
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(START_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%address, %error, "a connection ended early");
    }
}
