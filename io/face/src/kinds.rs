//! The kinds of sockets. Users of a face's socket see only [`Socket`], [`Listener`] and
//! [`Connected`], and need not know the kind.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use weir_base::{Packet, Pool};
use weir_link::{Link, LinkConfig};

use crate::access::PeerCredentials;
use crate::interfaces::NetworkInterface;
use crate::listen::{TcpListener, UnixListener};
use crate::multicast::MulticastSocket;
use crate::shared::SharedSocket;
use crate::status::{RecvStatus, SendStatus};
use crate::stream::StreamSocket;
use crate::tun::TunSocket;
use crate::udp::UdpCounters;
use crate::udp_format::UdpFormat;
use crate::udp_peer::UdpPeer;
use crate::uri::FaceUri;
use crate::websocket::{
    Handshake, OpenedWebSocket, TlsFileError, TlsStream, TlsTrust, WebSocketListener,
    WebSocketSocket,
};

macro_rules! sockets {
    ($($(#[$doc:meta])* $variant:ident($kind:ty) = $default_link:expr,)+) => {
        /// The non-blocking socket of one face.
        #[derive(Debug)]
        pub enum Socket {
            $($(#[$doc])* $variant($kind),)+
        }

        impl Socket {
            /// Appends the frames of one read to `frames`.
            #[inline]
            pub fn recv(
                &mut self,
                pool: &mut Pool,
                frames: &mut Vec<Packet>,
            ) -> io::Result<RecvStatus> {
                match self { $(Self::$variant(one) => one.recv(pool, frames),)+ }
            }

            /// Sends the frames that `link` has ready, as far as the socket accepts them. A socket
            /// must always be used with the same link.
            #[inline]
            pub fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
                match self { $(Self::$variant(one) => one.send(link),)+ }
            }

            /// Reports the socket's present backlog to `link`. Sending reports it as well.
            pub fn tell_backlog(&mut self, link: &mut Link) {
                match self { $(Self::$variant(one) => one.tell_backlog(link),)+ }
            }

            /// The local address (NFD: LocalUri).
            pub fn local_uri(&self) -> FaceUri {
                match self { $(Self::$variant(one) => one.local_uri().clone(),)+ }
            }

            /// The peer's address (NFD: Uri).
            pub fn remote_uri(&self) -> FaceUri {
                match self { $(Self::$variant(one) => one.remote_uri().clone(),)+ }
            }

            /// Whether the peer is on this host, which gives the face local scope.
            pub fn is_local(&self) -> bool {
                match self { $(Self::$variant(one) => one.is_local(),)+ }
            }

            /// Memory in bytes of an incomplete packet.
            pub fn held_bytes(&self) -> usize {
                match self { $(Self::$variant(one) => one.held_bytes(),)+ }
            }

            /// The default link configuration for a face with this socket.
            pub fn link_config(&self) -> LinkConfig {
                match self { $(Self::$variant(one) => ($default_link)(one),)+ }
            }
        }

        impl AsFd for Socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                match self { $(Self::$variant(one) => one.as_fd(),)+ }
            }
        }

        sources!(Socket: $($variant,)+);
    };
}

macro_rules! sources {
    ($name:ident: $($variant:ident,)+) => {
        impl Source for $name {
            fn register(
                &mut self,
                registry: &Registry,
                token: Token,
                interests: Interest,
            ) -> io::Result<()> {
                match self { $(Self::$variant(one) => one.register(registry, token, interests),)+ }
            }

            fn reregister(
                &mut self,
                registry: &Registry,
                token: Token,
                interests: Interest,
            ) -> io::Result<()> {
                match self {
                    $(Self::$variant(one) => one.reregister(registry, token, interests),)+
                }
            }

            fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
                match self { $(Self::$variant(one) => one.deregister(registry),)+ }
            }
        }
    };
}

sockets! {
    /// A Unix or TCP connection.
    Stream(StreamSocket) = |_: &StreamSocket| LinkConfig::stream(),
    /// A local application and its router: a Unix connection, and shared memory if there is
    /// traffic.
    #[allow(private_interfaces, reason = "no caller names the type")]
    Shared(Box<SharedSocket>) = |_: &SharedSocket| LinkConfig::stream(),
    /// One UDP peer with a port of its own.
    Udp(Box<UdpPeer>) = |peer: &UdpPeer| peer.link_config(),
    /// A WebSocket, with a browser or a router.
    #[allow(private_interfaces, reason = "no caller names the type")]
    WebSocket(Box<WebSocketSocket<StreamSocket>>) =
        |_: &WebSocketSocket<StreamSocket>| LinkConfig::stream(),
    /// A WebSocket over TLS.
    #[allow(private_interfaces, reason = "no caller names the type")]
    WebSocketTls(Box<WebSocketSocket<TlsStream>>) =
        |_: &WebSocketSocket<TlsStream>| LinkConfig::stream(),
    /// hICN packets as plain IPv6, over a TUN device.
    #[allow(private_interfaces, reason = "no caller names the type")]
    Tun(Box<TunSocket>) = |tun: &TunSocket| tun.link_config(),
    /// All nodes of a network link, over UDP multicast.
    #[allow(private_interfaces, reason = "no caller names the type")]
    Multicast(Box<MulticastSocket>) = |_: &MulticastSocket| MulticastSocket::link_config(),
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket path.
    Unix(UnixListener),
    /// A TCP address and port.
    Tcp(TcpListener),
    /// A TCP address and port for WebSockets, over TLS if it has a certificate.
    WebSocket(WebSocketListener),
}

sources!(Listener: Unix, Tcp, WebSocket,);

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// Packets may follow.
    Socket(Socket),
    /// The peer's request must arrive first.
    Handshake(Handshake),
}

impl Listener {
    /// Accepts the next connection; `None` if there is none.
    ///
    /// # Errors
    /// Those of `accept`. If the process has no file descriptor left, the connection stays in the
    /// backlog: try again later.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        let accepted = match self {
            Self::Unix(listener) => listener.accept(),
            Self::Tcp(listener) => listener.accept(),
            Self::WebSocket(listener) => {
                return Ok(listener.accept()?.map(Accepted::Handshake));
            }
        };
        let Some(stream) = accepted? else { return Ok(None) };
        Ok(Some(Accepted::Socket(match self {
            Self::Unix(listener) if let Some(memory) = listener.shared_memory() => {
                Socket::Shared(Box::new(SharedSocket::of_router(stream, memory)))
            }
            _ => Socket::Stream(stream),
        })))
    }

    /// Reads the certificate for TLS again, if its files have changed; `None` if not. After an
    /// error, new connections get the previous one.
    pub fn reload_certificate(&mut self) -> Option<Result<(), TlsFileError>> {
        match self {
            Self::WebSocket(listener) => listener.reload_certificate(),
            Self::Unix(_) | Self::Tcp(_) => None,
        }
    }

    /// Why clients refuse the certificate for TLS at present, if there is one and they do.
    pub fn certificate_problem(&self) -> Option<String> {
        match self {
            Self::WebSocket(listener) => listener.certificate_problem(),
            Self::Unix(_) | Self::Tcp(_) => None,
        }
    }

    /// The local address.
    pub fn local_uri(&self) -> FaceUri {
        match self {
            Self::Unix(listener) => listener.local_uri(),
            Self::Tcp(listener) => listener.local_uri(),
            Self::WebSocket(listener) => listener.local_uri(),
        }
    }
}

/// How a router reaches a peer.
#[derive(Debug)]
pub enum Connected {
    /// Through a socket of the face's own.
    Socket(Socket),
    /// Through a port that the face shares with other peers.
    Peer(UdpFormat, SocketAddr),
}

impl Connected {
    /// Connects to a peer, within `timeout`.
    ///
    /// # Errors
    /// Those of `connect`; Unsupported for a scheme that cannot be connected to.
    pub fn to(remote: &FaceUri, timeout: Duration) -> io::Result<Self> {
        Self::with_trust(remote, timeout, &TlsTrust::default())
    }

    /// Like [`Self::to`], with the authorities that `wss://` accepts.
    pub fn with_trust(remote: &FaceUri, timeout: Duration, trust: &TlsTrust) -> io::Result<Self> {
        if let Some((format, peer)) = remote.as_udp() {
            return Ok(Self::Peer(format, peer));
        }
        if let FaceUri::HicnTun { device, locator } = remote {
            let tun = TunSocket::open(device, *locator)?;
            return Ok(Self::Socket(Socket::Tun(Box::new(tun))));
        }
        if let FaceUri::WebSocket(peer) = remote {
            let socket = WebSocketSocket::connect(*peer, timeout)?;
            return Ok(Self::Socket(Socket::WebSocket(Box::new(socket))));
        }
        if let FaceUri::WebSocketTls { .. } = remote {
            let socket = WebSocketSocket::connect_tls(remote, trust, timeout)?;
            return Ok(Self::Socket(Socket::WebSocketTls(Box::new(socket))));
        }
        let stream = match remote {
            FaceUri::Tcp(peer) => StreamSocket::connect_tcp_timeout(*peer, timeout),
            FaceUri::Unix(path) => StreamSocket::connect_unix(path, timeout),
            other => {
                let why = format!("cannot connect to a face URI with scheme {}", other.scheme());
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        stream.map(|stream| Self::Socket(Socket::Stream(stream)))
    }

    /// The peer's address (NFD: Uri).
    pub fn remote_uri(&self) -> FaceUri {
        match self {
            Self::Socket(socket) => socket.remote_uri(),
            Self::Peer(format, peer) => format.uri(*peer),
        }
    }

    /// Whether frames have a size limit.
    pub fn is_datagram(&self) -> bool {
        self.remote_uri().is_datagram()
    }
}

impl Socket {
    /// One end of a socket pair within this process: a local face.
    pub fn of_pair(stream: UnixStream) -> io::Result<Self> {
        StreamSocket::of_pair(stream).map(Self::Stream)
    }

    /// Joins NDN's group on a network device.
    ///
    /// # Errors
    /// The device or its address does not exist any longer, or a limit of the system is reached.
    pub fn multicast(interface: &NetworkInterface) -> io::Result<Self> {
        MulticastSocket::open(interface).map(|socket| Self::Multicast(Box::new(socket)))
    }

    /// Error counters of a UDP socket of the face's own.
    pub fn udp_counters(&self) -> Option<UdpCounters> {
        match self {
            Self::Multicast(socket) => Some(socket.counters()),
            _ => None,
        }
    }

    /// Answers the complete request of an accepted connection.
    ///
    /// # Errors
    /// The request was refused, or the connection failed.
    pub fn of_handshake(handshake: Handshake) -> io::Result<Self> {
        Ok(match handshake.finish()? {
            OpenedWebSocket::Plain(socket) => Self::WebSocket(socket),
            OpenedWebSocket::Tls(socket) => Self::WebSocketTls(socket),
        })
    }

    /// Credentials of the peer, if the kernel knows them: over a Unix listener, or within this
    /// process.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        let is_unix = matches!(self.remote_uri(), FaceUri::Fd(_));
        is_unix.then(|| PeerCredentials::of(self.as_fd()).ok()).flatten()
    }

    /// Whether packets go through shared memory.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.is_shared())
    }

    /// Whether the peer announces free space in a full send queue by input (a doorbell), instead of
    /// the system by writability of the socket.
    pub fn signals_space_by_input(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.signals_space_by_input())
    }

    /// Whether the send queue was full and has space now. Check this before waiting if [space is
    /// announced by input](Self::signals_space_by_input): the doorbell may have been read already.
    pub fn is_writable_again(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.is_writable_again())
    }

    /// Whether a read has left something to send that is in no queue, such as the answer to a Ping.
    /// Then call [`send`](Self::send).
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::WebSocket(socket) => socket.has_unsent(),
            Self::WebSocketTls(socket) => socket.has_unsent(),
            _ => false,
        }
    }

    /// Discards pending doorbells. For a caller that knows there is something to read and leaves it
    /// for later.
    pub fn discard_doorbells(&mut self) -> io::Result<()> {
        match self {
            Self::Shared(socket) => socket.discard_doorbells(),
            _ => Ok(()),
        }
    }

    /// Connects an application to a router, within `timeout`.
    pub fn connect(remote: &FaceUri, timeout: Duration) -> io::Result<Self> {
        match Connected::to(remote, timeout)? {
            Connected::Socket(Socket::Stream(stream)) if matches!(remote, FaceUri::Unix(_)) => {
                Ok(Self::Shared(Box::new(SharedSocket::of_application(stream))))
            }
            Connected::Socket(socket) => Ok(socket),
            Connected::Peer(format, peer) => {
                UdpPeer::open(format, peer).map(|peer| Self::Udp(Box::new(peer)))
            }
        }
    }
}

/// Properties of a face's kind that management needs.
impl FaceUri {
    /// Whether frames have a size limit (MTU), and any host can send some. Such a face is ready at
    /// once.
    pub fn is_datagram(&self) -> bool {
        self.as_udp().is_some() || matches!(self, Self::HicnTun { .. })
    }

    /// Whether a face carries hICN packets.
    pub fn has_hicn_packets(&self) -> bool {
        matches!(self, Self::HicnUdp(_) | Self::HicnTun { .. })
    }

    /// Whether the address identifies a peer, so that there is at most one face to it.
    pub fn is_of_one_peer(&self) -> bool {
        self.is_datagram() && !self.is_multicast()
            || matches!(self, Self::Tcp(_) | Self::WebSocket(_) | Self::WebSocketTls { .. })
    }

    /// Whether this is the peer of an accepted connection to which nothing can connect. Its face is
    /// always on-demand.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Fd(_) | Self::WebSocketClient(_))
    }
}
