//! Connections: accepted up to a bound, with TLS or without, and ended in good order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// How long a handshake may take, and the head of a request.
const BEGIN_WAIT: Duration = Duration::from_secs(30);
/// How long requests under way may take to end once the program is to stop.
const END_WAIT: Duration = Duration::from_secs(5);
/// After a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// Serves until `stopping`.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Router,
    connections_max: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            _ = stopping.wait_for(|stops| *stops) => break,
        };
        let Some((stream, address, permit)) = accepted else { continue };
        let (tls, routes, watcher) = (tls.clone(), routes.clone(), graceful.watcher());
        tokio::spawn(async move {
            begin(stream, address, tls, routes, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(END_WAIT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests are cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address, permit)),
        Err(error) => {
            tracing::warn!(%error, "a connection is not accepted");
            tokio::time::sleep(ACCEPT_WAIT).await;
            None
        }
    }
}

async fn begin(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    routes: Router,
    watcher: Watcher,
) {
    // Answers are small, and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return exchange(stream, address, routes, watcher).await };
    match tokio::time::timeout(BEGIN_WAIT, tls.accept(stream)).await {
        Ok(Ok(stream)) => exchange(stream, address, routes, watcher).await,
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS"),
        Err(_) => tracing::debug!(%address, "TLS takes too long"),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: SocketAddr,
    routes: Router,
    watcher: Watcher,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(BEGIN_WAIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%address, %error, "a connection ends early");
    }
}
