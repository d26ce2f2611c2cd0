//! An HTTP/1.1 client with one connection, as each player has.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a player waits for a whole response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request got no content.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("status {0}")]
    Status(StatusCode),
    #[error("{0}")]
    Path(#[from] hyper::http::Error),
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("no answer within {PATIENCE:?}")]
    Timeout,
}

pub(super) struct HttpClient {
    server: SocketAddr,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl HttpClient {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server, connection: None }
    }

    /// Gets `path` and passes the content of a response with status 200 to `sink`.
    pub(super) async fn get(
        &mut self,
        path: &str,
        sink: impl FnMut(&[u8]),
    ) -> Result<(), HttpError> {
        let done = match timeout(PATIENCE, self.exchange(path, sink)).await {
            Ok(done) => done,
            Err(_) => Err(HttpError::Timeout),
        };
        // The rest of a response may still arrive there.
        if done.is_err() {
            self.connection = None;
        }
        done
    }

    async fn exchange(&mut self, path: &str, mut sink: impl FnMut(&[u8])) -> Result<(), HttpError> {
        let request = Request::get(path).header(HOST, self.server.to_string()).body(Empty::new())?;
        let connection = self.connected().await?;
        let mut response = connection.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::Status(response.status()));
        }
        while let Some(frame) = response.body_mut().frame().await {
            if let Ok(bytes) = frame?.into_data() {
                sink(&bytes);
            }
        }
        Ok(())
    }

    /// The connection, which the server may have closed while it was idle.
    async fn connected(&mut self) -> Result<&mut SendRequest<Empty<Bytes>>, HttpError> {
        let mut open = self.connection.take();
        if let Some(connection) = &mut open
            && connection.ready().await.is_err()
        {
            open = None;
        }
        let open = match open {
            Some(open) => open,
            None => {
                let stream = TcpStream::connect(self.server).await?;
                stream.set_nodelay(true)?;
                let (sender, driver) = handshake(TokioIo::new(stream)).await?;
                tokio::spawn(driver);
                sender
            }
        };
        Ok(self.connection.insert(open))
    }
}
