//! HTTP/3 (RFC 9114), by the crates `h3` and `quinn`. Nothing else knows them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::stream;
use h3::quic::{BidiStream, RecvStream};
use h3::server::RequestStream;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use quinn::crypto::rustls::QuicServerConfig;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use weir_http::{TlsFiles, tls_config};

use super::server::{Connection, HEAD_BYTES_MAX, STREAMS_MAX, respond};
use super::{FrontError, Shared};

/// Listens at the UDP port of `address`. The future accepts connections until `stopping`.
pub(super) fn serve(
    address: SocketAddr,
    files: &TlsFiles,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) -> Result<impl Future<Output = ()> + Send + 'static, FrontError> {
    let tls = tls_config(files, &[b"h3"])?;
    let error = |reason: String| FrontError::Http3(reason);
    let quic = QuicServerConfig::try_from(tls).map_err(|it| error(it.to_string()))?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    let mut transport = quinn::TransportConfig::default();
    let idle = Duration::from_nanos(shared.config.client_timeout.ns);
    let idle = idle.try_into().map_err(|_| error("the client timeout is too long".into()))?;
    transport.max_concurrent_bidi_streams(STREAMS_MAX.into()).max_idle_timeout(Some(idle));
    config.transport_config(Arc::new(transport));
    let endpoint = quinn::Endpoint::server(config, address)
        .map_err(|error| FrontError::Listen { address, error })?;
    Ok(async move {
        // Each request holds a sender.
        let (in_progress, mut all_done) = mpsc::channel(1);
        loop {
            let incoming = tokio::select! {
                incoming = endpoint.accept() => incoming,
                _ = stopping.wait_for(|stops| *stops) => break,
            };
            let Some(incoming) = incoming else { break };
            let Ok(connection) = Connection::open(&shared, incoming.remote_address().ip()) else {
                incoming.refuse();
                continue;
            };
            let (shared, in_progress) = (shared.clone(), in_progress.downgrade());
            tokio::spawn(async move {
                let address = incoming.remote_address();
                if let Err(error) = serve_connection(incoming, shared, in_progress).await {
                    tracing::debug!(%address, error, "an HTTP/3 connection ended early");
                }
                drop(connection);
            });
        }
        endpoint.set_server_config(None);
        drop(in_progress);
        // `None`: no request is in progress any more.
        let _ = all_done.recv().await;
        endpoint.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
    })
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn serve_connection(
    incoming: quinn::Incoming,
    shared: Arc<Shared>,
    in_progress: mpsc::WeakSender<()>,
) -> Result<(), AnyError> {
    let connection = incoming.await?;
    let client = connection.remote_address().ip();
    let mut connection = h3::server::builder()
        .max_field_section_size(HEAD_BYTES_MAX.into())
        .build::<_, Bytes>(h3_quinn::Connection::new(connection))
        .await?;
    while let Some(resolver) = connection.accept().await? {
        // The front stops.
        let Some(in_progress) = in_progress.upgrade() else { return Ok(()) };
        let shared = shared.clone();
        tokio::spawn(async move {
            let client_timeout = Duration::from_nanos(shared.config.client_timeout.ns);
            let served = async {
                let (request, stream) =
                    timeout(client_timeout, resolver.resolve_request()).await??;
                serve_request(&shared, client, request, stream).await
            };
            if let Err(error) = served.await {
                tracing::debug!(%client, error, "an HTTP/3 request ended early");
            }
            drop(in_progress);
        });
    }
    Ok(())
}

/// Each step of the client may take `client_timeout`. A client that answers keep-alives need not
/// read.
async fn serve_request<S>(
    shared: &Arc<Shared>,
    client: std::net::IpAddr,
    request: Request<()>,
    stream: RequestStream<S, Bytes>,
) -> Result<(), AnyError>
where
    S: BidiStream<Bytes>,
    S::RecvStream: Send + 'static,
{
    let client_timeout = Duration::from_nanos(shared.config.client_timeout.ns);
    let (mut sender, receiver) = stream.split();
    let request = request.map(|()| request_body(receiver, client_timeout));
    let response = respond(shared, client, request).await;
    let (parts, mut body) = response.into_parts();
    let head = http::Response::from_parts(parts, ());
    timeout(client_timeout, sender.send_response(head)).await??;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(data) = frame.into_data()
                    && data.has_remaining()
                {
                    timeout(client_timeout, sender.send_data(data)).await??;
                }
            }
            Err(error) => {
                // A reset, so that the response does not look complete.
                sender.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
                return Err(error.into());
            }
        }
    }
    Ok(timeout(client_timeout, sender.finish()).await??)
}

/// The body of a request, received while it is read.
fn request_body<S>(
    receiver: RequestStream<S, Bytes>,
    client_timeout: Duration,
) -> impl Body<Data = Bytes, Error = AnyError>
where
    S: RecvStream + Send + 'static,
{
    let frames = stream::try_unfold(Receiver(receiver), move |mut receiver| async move {
        let data = timeout(client_timeout, receiver.0.recv_data()).await??;
        let frame = data.map(|mut data| Frame::data(data.copy_to_bytes(data.remaining())));
        Ok::<_, AnyError>(frame.map(|frame| (frame, receiver)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A body that need not be read to its end.
struct Receiver<S: RecvStream>(RequestStream<S, Bytes>);

impl<S: RecvStream> Drop for Receiver<S> {
    fn drop(&mut self) {
        // RFC 9114, 4.1: the response is valid, although not all of the request was read.
        self.0.stop_sending(h3::error::Code::H3_NO_ERROR);
    }
}
