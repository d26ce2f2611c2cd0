//! A router, an origin, a consumer, and HTTP servers that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_face::FaceUri;
use weir_io_fixture::router::TestRouter;

use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{Consumer, ConsumerOptions, Identity, Session};
use weir_wire::Name;

use crate::config::OriginConfig;
use crate::head::ResponseHead;
use crate::origin::Origin;

/// The prefix of all names.
pub(super) const PREFIX: &str = "/p";

/// A request as the server received it: the request line and fields, in lower case but for values.
#[derive(Clone, Debug)]
pub(super) struct HttpRequest {
    pub(super) line: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl HttpRequest {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| &value[..])
    }

    /// The range that it requests.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
    }
}

/// What a server sends, byte by byte.
pub(super) enum Reply {
    /// These bytes; then it closes the connection.
    Close(Vec<u8>),
    /// These bytes; then nothing, for ever.
    Hang(Vec<u8>),
}

type Handler = dyn Fn(&HttpRequest) -> Reply + Send + Sync;

/// An HTTP server that answers each request on a connection of its own.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<HttpRequest>>>,
}

impl Server {
    pub(super) fn start(handler: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<HttpRequest>>> = Arc::default();
        let (log, handler): (_, Arc<Handler>) = (requests.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, handler) = (log.clone(), handler.clone());
                std::thread::spawn(move || serve(stream, &log, &*handler));
            }
        });
        Self { address, requests }
    }

    /// A server that answers all requests with the same bytes.
    pub(super) fn fixed(reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self::start(move |_| Reply::Close(reply.clone()))
    }

    pub(super) fn requests(&self) -> Vec<HttpRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<HttpRequest>>, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut fields) = (String::new(), Vec::new());
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).unwrap();
        let Some((name, value)) = field.trim_end().split_once(": ") else { break };
        fields.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let line = line.trim_end().to_owned();
    let mut request = HttpRequest { line, fields, body: Vec::new() };
    let length = request.field("content-length").map_or(0, |length| length.parse().unwrap());
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).unwrap();
    log.lock().unwrap().push(request.clone());
    let (octets, hangs) = match handler(&request) {
        Reply::Close(octets) => (octets, false),
        Reply::Hang(octets) => (octets, true),
    };
    let mut stream = stream;
    let _ = stream.write_all(&octets);
    if hangs {
        // Until the client closes it.
        let _ = stream.read(&mut [0]);
    }
}

/// A response with a length.
pub(super) fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{fields}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// What an ordinary server answers: ranges, If-Match and If-None-Match.
pub(super) fn file(request: &HttpRequest, etag: &str, fields: &str, body: &[u8]) -> Reply {
    let fields = format!("etag: {etag}\r\n{fields}");
    if request.field("if-match").is_some_and(|tag| tag != etag) {
        return Reply::Close(response("412 Precondition Failed", "", b""));
    }
    if request.field("if-none-match") == Some(etag) {
        return Reply::Close(response("304 Not Modified", &fields, b""));
    }
    let Some((first, last)) = request.range() else {
        return Reply::Close(response("200 OK", &fields, body));
    };
    let last = last.min(body.len());
    let range = format!("content-range: bytes {first}-{}/{}\r\n{fields}", last - 1, body.len());
    Reply::Close(response("206 Partial Content", &range, &body[first..last]))
}

/// Content without repetition.
pub(super) fn content(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(super) fn router_without_store() -> TestRouter {
    TestRouter::start_with(|config| config.store.capacity_bytes = 0)
}

/// A router, an origin and a consumer.
pub(super) struct Network {
    pub(super) origin: Origin,
    pub(super) consumer: Arc<Consumer>,
    pub(super) session: Session,
    _router: TestRouter,
}

/// What a consumer receives.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) head: ResponseHead,
    pub(super) versioned: Name,
    pub(super) body: Result<Vec<u8>, String>,
}

impl Received {
    pub(super) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.fields.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone().unwrap()).unwrap()
    }
}

impl Network {
    pub(super) async fn start(server: SocketAddr) -> Self {
        Self::start_with(server, |_| {}).await
    }

    pub(super) async fn start_with(
        server: SocketAddr,
        change: impl FnOnce(&mut OriginConfig),
    ) -> Self {
        Self::start_on(TestRouter::start(), server, change).await
    }

    pub(super) async fn start_on(
        router: TestRouter,
        server: SocketAddr,
        change: impl FnOnce(&mut OriginConfig),
    ) -> Self {
        let uri = FaceUri::Unix(router.path.clone());
        let session = tokio::task::spawn_blocking(move || Session::connect(&uri).unwrap());
        let session = session.await.unwrap();
        let mut config = OriginConfig::new(PREFIX.parse().unwrap(), format!("http://{server}"));
        change(&mut config);
        let (identity, trust) = (Identity::new(DigestSigner), Arc::new(DigestVerifier));
        let trust: Arc<dyn Verifier> = trust;
        let origin = Origin::start_with_uploads(&session, identity, config, trust.clone());
        let origin = origin.await.unwrap();
        let mut consumer = Consumer::bind(&session, Name::new(), trust);
        let options = ConsumerOptions { stored: false, retries: 2, ..ConsumerOptions::default() };
        consumer.set_options(options).unwrap();
        Self { origin, consumer: Arc::new(consumer), session, _router: router }
    }

    pub(super) fn set_mapping(&mut self, mapping: &str) {
        let mut consumer = (*self.consumer).clone();
        consumer.set("mapping", mapping).unwrap();
        self.consumer = Arc::new(consumer);
    }

    /// Fetches a resource: its head, and its body from `first` on.
    pub(super) async fn get_from(&self, name: &str, first: u64) -> Result<Received, String> {
        let consumer = self.consumer.clone();
        let name: Name = format!("{PREFIX}{name}").parse().unwrap();
        let fetch = move || {
            let mut reader = consumer.fetch_range(&name, first..u64::MAX).unwrap();
            let metadata = reader.metadata().map_err(|error| error.to_string())?.clone();
            let mut body = Vec::new();
            let read = reader.read_to_end(&mut body).map_err(|error| error.to_string());
            Ok(Received {
                head: ResponseHead::decode(&metadata.http_head.unwrap()).unwrap(),
                versioned: metadata.versioned,
                body: read.map(|_| body),
            })
        };
        tokio::task::spawn_blocking(fetch).await.unwrap()
    }

    pub(super) async fn get(&self, name: &str) -> Received {
        self.get_from(name, 0).await.unwrap()
    }
}

/// Longer than routers and the origin use metadata again.
pub(super) async fn until_stale() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}
