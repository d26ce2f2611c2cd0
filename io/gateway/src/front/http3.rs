//! HTTP/3 (RFC 9114), by the crates `h3` and `quinn`. Nothing else knows them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use h3::quic::BidiStream;
use h3::server::RequestStream;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use quinn::crypto::rustls::QuicServerConfig;
use tokio::sync::watch;
use weir_http::{TlsFiles, tls_config};

use super::server::{Connection, respond};
use super::{FrontError, Shared};

/// Upper bound of concurrent requests of a connection.
const STREAMS_MAX: u32 = 128;

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
        loop {
            let incoming = tokio::select! {
                incoming = endpoint.accept() => incoming,
                _ = stopping.wait_for(|stops| *stops) => break,
            };
            let Some(incoming) = incoming else { break };
            let Some(connection) = Connection::open(&shared, incoming.remote_address().ip()) else {
                incoming.refuse();
                continue;
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                let address = incoming.remote_address();
                if let Err(error) = serve_connection(incoming, shared).await {
                    tracing::debug!(%address, error, "an HTTP/3 connection ended early");
                }
                drop(connection);
            });
        }
        endpoint.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
    })
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn serve_connection(incoming: quinn::Incoming, shared: Arc<Shared>) -> Result<(), AnyError> {
    let connection = incoming.await?;
    let client = connection.remote_address().ip();
    let mut connection =
        h3::server::builder().build::<_, Bytes>(h3_quinn::Connection::new(connection)).await?;
    while let Some(resolver) = connection.accept().await? {
        let shared = shared.clone();
        tokio::spawn(async move {
            let served = async {
                let (request, stream) = resolver.resolve_request().await?;
                serve_request(&shared, client, request, stream).await
            };
            if let Err(error) = served.await {
                tracing::debug!(%client, error, "an HTTP/3 request ended early");
            }
        });
    }
    Ok(())
}

async fn serve_request<S: BidiStream<Bytes>>(
    shared: &Arc<Shared>,
    client: std::net::IpAddr,
    request: Request<()>,
    mut stream: RequestStream<S, Bytes>,
) -> Result<(), AnyError> {
    let mut content = BytesMut::new();
    while let Some(data) = stream.recv_data().await? {
        content.put(data);
        // A longer body is refused below.
        if content.len() as u64 > shared.config.upload_max.bytes {
            break;
        }
    }
    let request = request.map(|()| Full::new(content.freeze()));
    let response = respond(shared, client, request).await;
    let (parts, mut body) = response.into_parts();
    stream.send_response(http::Response::from_parts(parts, ())).await?;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(data) = frame.into_data()
                    && data.has_remaining()
                {
                    stream.send_data(data).await?;
                }
            }
            Err(error) => {
                // A reset, so that the response does not look complete.
                stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
                return Err(error.into());
            }
        }
    }
    Ok(stream.finish().await?)
}
