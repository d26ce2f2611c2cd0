//! From a TCP connection to a WebSocket: the handshake of TLS, if configured, then that of RFC
//! 6455, section 4. A peer may send packets right after its part of the handshake, so nothing is
//! read beyond the end of that part.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConnection, ServerConnection};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::machine::TryParse as _;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::handshake::{client, derive_accept_key};
use tungstenite::http::{HeaderMap, StatusCode, Uri};
use tungstenite::protocol::Role;

use super::WebSocketSocket;
use super::tls::TlsStream;
use super::tls_files::{ServerCertificate, TlsFileError, TlsTrust};
use super::transport::Transport;
use crate::listen::{BindError, TcpListener};
use crate::socket::socket_source;
use crate::stream::StreamSocket;
use crate::uri::FaceUri;

/// Longest request or response. Browsers send some cookies.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The end of a request or response.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// For a browser that opens the address as a page, and other clients that do not request a
/// WebSocket.
const REFUSAL: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nConnection: Upgrade, close\r\nContent-Type: text/plain\r\n\
    Content-Length: 57\r\n\r\nThis port accepts WebSockets that carry NDNLPv2 packets.\n";
/// Headers that proxies add.
const PROXY_HEADERS: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Accepts WebSockets at a TCP address.
#[derive(Debug)]
pub struct WebSocketListener {
    tcp: TcpListener,
    /// For TLS.
    certificate: Option<ServerCertificate>,
}

impl WebSocketListener {
    /// Listens on `address`; port 0 selects any free port. An IPv6 listener accepts no IPv4 peers.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        TcpListener::bind(address).map(|tcp| Self { tcp, certificate: None })
    }

    /// Listens on this socket, with a certificate over TLS.
    pub fn on(tcp: TcpListener, certificate: Option<ServerCertificate>) -> Self {
        Self { tcp, certificate }
    }

    /// The local face address, `ws://…` or `wss://…`.
    pub fn local_uri(&self) -> FaceUri {
        local_uri(self.tcp.local_addr(), self.certificate.is_some())
    }

    /// Reads the certificate again, if its files have changed; `None` if not. After an error, new
    /// connections get the previous one.
    pub(crate) fn reload_certificate(&mut self) -> Option<Result<(), TlsFileError>> {
        self.certificate.as_mut()?.reload()
    }

    pub(crate) fn certificate_problem(&self) -> Option<String> {
        self.certificate.as_ref()?.problem()
    }

    /// Accepts the next connection; `None` if there is none.
    ///
    /// # Errors
    /// Those of `accept`. If the process has no file descriptor left, the connection stays in the
    /// backlog: try again later.
    pub(crate) fn accept(&self) -> io::Result<Option<Handshake>> {
        let Some(tcp) = self.tcp.accept()? else { return Ok(None) };
        let stream = match &self.certificate {
            None => Stream::Plain(Box::new(tcp)),
            Some(certificate) => {
                let tls = ServerConnection::new(certificate.config()).map_err(io::Error::other)?;
                Stream::Tls(Box::new(TlsStream::new(tcp, tls.into())))
            }
        };
        Ok(Some(Handshake { stream, head: Head::default() }))
    }
}

socket_source!(WebSocketListener, tcp);

fn local_uri(address: SocketAddr, is_tls: bool) -> FaceUri {
    if is_tls { FaceUri::websocket_tls(address) } else { FaceUri::WebSocket(address) }
}

/// An accepted connection whose request is incomplete. It is readable when it can advance.
#[derive(Debug)]
pub struct Handshake {
    stream: Stream,
    head: Head,
}

#[derive(Debug)]
enum Stream {
    Plain(Box<StreamSocket>),
    Tls(Box<TlsStream>),
}

/// A connection whose handshake is complete.
pub(crate) enum OpenedWebSocket {
    Plain(Box<WebSocketSocket<StreamSocket>>),
    Tls(Box<WebSocketSocket<TlsStream>>),
}

impl Handshake {
    /// The peer's address.
    pub fn peer(&self) -> IpAddr {
        let tcp = match &self.stream {
            Stream::Plain(tcp) => &**tcp,
            Stream::Tls(tls) => tls.tcp(),
        };
        address_of(tcp.remote_uri()).ip()
    }

    /// Whether the whole request has arrived.
    ///
    /// # Errors
    /// The connection failed, or the request is too long. Drop the handshake.
    pub fn read(&mut self) -> io::Result<bool> {
        match &mut self.stream {
            Stream::Plain(tcp) => {
                let read = self.head.read(&mut **tcp);
                if self.head.is_tls_record() {
                    // Ends the handshake of the peer at once: it is no TLS.
                    let _ = tcp.write(REFUSAL);
                    return Err(invalid_data(
                        "the peer uses wss://, but this listener has no certificate; the peer must \
                         use ws://, or a listener with TLS",
                    ));
                }
                read
            }
            Stream::Tls(tls) => {
                self.head.read(&mut **tls).map_err(|error| match tls_error(&error) {
                    Some(rustls::Error::InvalidMessage(_)) => invalid_data(format!(
                        "{error}; the peer may use ws://, but must use wss://"
                    )),
                    _ => error,
                })
            }
        }
    }

    /// Answers the request, which must be complete.
    ///
    /// # Errors
    /// It requests no WebSocket of version 13; or the connection failed.
    pub(crate) fn finish(self) -> io::Result<OpenedWebSocket> {
        Ok(match self.stream {
            Stream::Plain(tcp) => OpenedWebSocket::Plain(answer(*tcp, &self.head, false)?.into()),
            Stream::Tls(tls) => OpenedWebSocket::Tls(answer(*tls, &self.head, true)?.into()),
        })
    }
}

socket_source!(Handshake, stream);

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(tcp) => tcp.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Answers the complete request `head`.
fn answer<T: Transport>(
    mut stream: T,
    head: &Head,
    is_tls: bool,
) -> io::Result<WebSocketSocket<T>> {
    let answer = Request::try_parse(&head.octets)
        .and_then(|parsed| parsed.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
        .and_then(|(_, request)| {
            let mut answer = Vec::new();
            write_response(&mut answer, &create_response(&request)?)?;
            Ok((answer, is_from_this_host(request.headers())))
        });
    let (answer, is_from_this_host) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let _ = stream.write(REFUSAL);
            return Err(invalid_data(error.to_string()));
        }
    };
    write_all(&mut stream, &answer)?;
    let tcp = stream.tcp_mut();
    let is_local = tcp.is_local() && is_from_this_host;
    let [local, remote] = [tcp.local_uri(), tcp.remote_uri()].map(address_of);
    tcp.set_ends(local_uri(local, is_tls), FaceUri::WebSocketClient(remote), is_local);
    WebSocketSocket::new(stream, Role::Server)
}

impl WebSocketSocket<StreamSocket> {
    /// Connects to a router that listens for WebSockets, within `timeout`.
    ///
    /// # Errors
    /// Those of `connect`; TimedOut; InvalidData if the peer answers with something else.
    pub(crate) fn connect(peer: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let until = Instant::now() + timeout;
        let stream = StreamSocket::connect_tcp_timeout(peer, timeout)?;
        // The zone of a link-local address has no meaning for the peer.
        let url = format!("ws://{}/", SocketAddr::new(peer.ip(), peer.port()));
        request(stream, &url, FaceUri::WebSocket(peer), until)
    }
}

impl WebSocketSocket<TlsStream> {
    /// Connects to the router at `remote`, a [`FaceUri::WebSocketTls`], within `timeout`. Its
    /// certificate must be valid for the host in the URI.
    ///
    /// # Errors
    /// Those of name resolution and `connect`; TimedOut; InvalidData if the certificate is not
    /// accepted, or the peer answers with something else.
    pub(crate) fn connect_tls(
        remote: &FaceUri,
        trust: &TlsTrust,
        timeout: Duration,
    ) -> io::Result<Self> {
        let FaceUri::WebSocketTls { host, path, .. } = remote else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let until = Instant::now() + timeout;
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let peer = remote.resolve_tls_peer().map_err(io::Error::other)?;
        let left = until.saturating_duration_since(Instant::now());
        let tcp = StreamSocket::connect_tcp_timeout(peer, left.max(Duration::from_millis(1)))?;
        let tls = ClientConnection::new(trust.client_config()?, name).map_err(io::Error::other)?;
        let url = format!("{remote}{}", if path.is_empty() { "/" } else { "" });
        request(TlsStream::new(tcp, tls.into()), &url, remote.clone(), until)
            .map_err(explain_failed_tls)
    }
}

/// Requests a WebSocket from the peer of a new connection.
fn request<T: Transport>(
    mut stream: T,
    url: &str,
    remote: FaceUri,
    until: Instant,
) -> io::Result<WebSocketSocket<T>> {
    let request = url.into_client_request().and_then(client::generate_request);
    let (request, key) = request.map_err(io::Error::other)?;
    write_all(&mut stream, &request)?;
    let mut head = Head::default();
    let read = head.read_all(&mut stream, until);
    if head.is_tls_record() {
        return Err(invalid_data(
            "the peer accepts only TLS: use wss:// with the host name in its certificate",
        ));
    }
    read?;
    check_response(&head.octets, &key).map_err(invalid_data)?;
    let tcp = stream.tcp_mut();
    let (local, is_local) = (address_of(tcp.local_uri()), tcp.is_local());
    tcp.set_ends(FaceUri::WebSocketClient(local), remote, is_local);
    WebSocketSocket::new(stream, Role::Client)
}

fn invalid_data(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Adds what to do if the handshake of TLS fails.
fn explain_failed_tls(error: io::Error) -> io::Error {
    let remedy = match tls_error(&error) {
        // The second: an authority of that name has another key.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "name the file of its authority in `tls_ca` of [faces], if you trust it",
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "the router needs a renewed certificate",
        Some(rustls::Error::InvalidCertificate(_)) => "the router needs another certificate",
        Some(rustls::Error::InvalidMessage(_)) => {
            "the peer has no TLS there; use ws:// if you trust the network"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// The head of an HTTP request or response.
#[derive(Debug, Default)]
struct Head {
    octets: Vec<u8>,
}

impl Head {
    /// Whether it begins as a record of TLS does: an alert or a handshake, of version 3.x.
    fn is_tls_record(&self) -> bool {
        matches!(self.octets[..], [0x15 | 0x16, 3, ..])
    }

    /// Waits for the end of the head.
    fn read_all(&mut self, stream: &mut impl Transport, until: Instant) -> io::Result<()> {
        while !self.read(stream)? {
            wait_readable(stream, until)?;
        }
        Ok(())
    }

    /// Reads up to the end of the head. Returns whether it is complete.
    fn read(&mut self, stream: &mut impl Transport) -> io::Result<bool> {
        let mut chunk = [0; 1024];
        loop {
            let start = self.octets.len();
            let room = chunk.len().min(HEAD_BYTES_MAX - start);
            if room == 0 {
                let why = format!("an HTTP head of more than {HEAD_BYTES_MAX} bytes");
                return Err(invalid_data(why));
            }
            match stream.peek(&mut chunk[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(peeked) => self.octets.extend_from_slice(&chunk[..peeked]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                },
            }
            let scanned = start.saturating_sub(HEAD_END.len() - 1);
            let mut windows = self.octets[scanned..].windows(HEAD_END.len());
            let end = windows.position(|window| window == HEAD_END);
            if let Some(end) = end {
                self.octets.truncate(scanned + end + HEAD_END.len());
            }
            stream.skip(self.octets.len() - start)?;
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

/// Checks the answer to a request with this `Sec-WebSocket-Key`.
fn check_response(head: &[u8], key: &str) -> Result<(), String> {
    let parsed = client::Response::try_parse(head).map_err(|error| error.to_string())?;
    let (_, response) = parsed.ok_or("the answer is no HTTP")?;
    let (status, headers) = (response.status(), response.headers());
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(format!("the peer accepts no WebSocket: HTTP status {status}"));
    }
    let accepted = headers.get("Sec-WebSocket-Accept").map(|value| value.as_bytes());
    let is_switched = headers
        .get("Upgrade")
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let has_extension = headers.contains_key("Sec-WebSocket-Extensions")
        || headers.contains_key("Sec-WebSocket-Protocol");
    if !is_switched
        || has_extension
        || accepted != Some(derive_accept_key(key.as_bytes()).as_bytes())
    {
        return Err("the peer's answer breaks the protocol of WebSocket".to_owned());
    }
    Ok(())
}

/// Whether a request over loopback comes from a program or page of this host. Local faces may
/// register prefixes and read the state of the router. A page of any site can open a WebSocket to
/// loopback, and a proxy on this host passes on the requests of others.
fn is_from_this_host(headers: &HeaderMap) -> bool {
    if PROXY_HEADERS.iter().any(|name| headers.contains_key(*name)) {
        return false;
    }
    let Some(origin) = headers.get("origin") else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    origin.as_ref().and_then(Uri::host).is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

fn address_of(uri: &FaceUri) -> SocketAddr {
    uri.socket_addr().unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
}

/// Sends a request or response. The socket is new, so it has room for it.
fn write_all(stream: &mut impl Transport, octets: &[u8]) -> io::Result<()> {
    let sent = stream.write(octets)?;
    if sent == octets.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn wait_readable(stream: &impl AsFd, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_host_are_local() {
        let is_local = |name: &'static str, value: &str| {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            is_from_this_host(&headers)
        };
        assert!(is_from_this_host(&HeaderMap::new()));
        for origin in
            ["http://localhost", "https://localhost:8443", "http://127.0.0.1:1", "http://[::1]:80"]
        {
            assert!(is_local("origin", origin), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "http://localhost.evil.example",
            "null",
            "",
            "http://192.0.2.1",
        ] {
            assert!(!is_local("origin", origin), "{origin}");
        }
        assert!(!is_local("x-forwarded-for", "192.0.2.1"));
        assert!(!is_local("via", "1.1 proxy"));
    }

    #[test]
    fn checks_answer_of_server() {
        let head = |status: &str, rest: &str| {
            format!(
                "HTTP/1.1 {status}\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{rest}\r\n"
            )
        };
        let check = |head: String| check_response(head.as_bytes(), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(check(head("101 Switching Protocols", "")), Ok(()));
        assert!(check(head("404 Not Found", "")).unwrap_err().contains("404"));
        assert!(check(head("101 OK", "Sec-WebSocket-Extensions: x\r\n")).is_err());
        assert!(check(head("101 OK", "").replace("s3p", "t3p")).is_err());
        assert!(check("HTTP/1.1 101 OK\r\n\r\n".to_owned()).is_err());
        assert!(check("nonsense\r\n\r\n".to_owned()).is_err());
    }

    #[test]
    fn refusal_has_its_length() {
        let body = REFUSAL.windows(4).position(|window| window == HEAD_END).unwrap() + 4;
        assert!(REFUSAL.starts_with(b"HTTP/1.1 426"));
        assert_eq!(REFUSAL.len() - body, 57);
    }
}
