//! The kinds of sockets there are. What uses a face's socket sees [`Socket`], [`Listener`] and
//! [`Connected`], and never which kind it is.

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
use crate::listen::{TcpListener, UnixListener};
use crate::shared::SharedSocket;
use crate::status::{RecvStatus, SendStatus};
use crate::stream::StreamSocket;
use crate::udp_peer::UdpPeer;
use crate::uri::FaceUri;

macro_rules! sockets {
    ($($(#[$doc:meta])* $variant:ident($kind:ty) = $default_link:expr,)+) => {
        /// The socket of one face, of any kind; non-blocking.
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

            /// Sends what `link` has ready, as far as the socket takes it. A socket must always be
            /// given the same link.
            #[inline]
            pub fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
                match self { $(Self::$variant(one) => one.send(link),)+ }
            }

            /// Tells `link` what waits in the socket by now; after sending it has been told.
            pub fn tell_backlog(&mut self, link: &mut Link) {
                match self { $(Self::$variant(one) => one.tell_backlog(link),)+ }
            }

            /// This side's address, NFD's LocalUri.
            pub fn local_uri(&self) -> FaceUri {
                match self { $(Self::$variant(one) => one.local_uri().clone(),)+ }
            }

            /// The peer's address, NFD's (remote) Uri.
            pub fn remote_uri(&self) -> FaceUri {
                match self { $(Self::$variant(one) => one.remote_uri().clone(),)+ }
            }

            /// Whether the peer is on this host, which gives the face local scope.
            pub fn is_local(&self) -> bool {
                match self { $(Self::$variant(one) => one.is_local(),)+ }
            }

            /// Octets of memory that the beginning of a packet takes whose rest has not come yet.
            pub fn held_bytes(&self) -> usize {
                match self { $(Self::$variant(one) => one.held_bytes(),)+ }
            }

            /// How a face over this socket has its link, unless it is told otherwise.
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
    /// Unix or TCP.
    Stream(StreamSocket) = |_: &StreamSocket| LinkConfig::stream(),
    /// An application and the router of its machine: Unix, and shared memory when there is traffic.
    #[allow(private_interfaces, reason = "nobody needs its name")]
    Shared(Box<SharedSocket>) = |_: &SharedSocket| LinkConfig::stream(),
    /// One UDP peer, at a port of its own.
    Udp(Box<UdpPeer>) = |peer: &UdpPeer| peer.link_config(),
}

/// Waits for connections, of any kind.
#[derive(Debug)]
pub enum Listener {
    /// On a path.
    Unix(UnixListener),
    /// On an address and port.
    Tcp(TcpListener),
}

sources!(Listener: Unix, Tcp,);

impl Listener {
    /// The next connection; `None` when none waits.
    ///
    /// # Errors
    /// Those of `accept`. When this process has no file to spare the connection stays in the queue:
    /// try again later.
    pub fn accept(&self) -> io::Result<Option<Socket>> {
        let accepted = match self {
            Self::Unix(listener) => listener.accept(),
            Self::Tcp(listener) => listener.accept(),
        };
        let Some(stream) = accepted? else { return Ok(None) };
        Ok(Some(match self {
            Self::Unix(listener) if let Some(memory) = listener.shared_memory() => {
                Socket::Shared(Box::new(SharedSocket::of_router(stream, memory)))
            }
            _ => Socket::Stream(stream),
        }))
    }

    /// The address of this side.
    pub fn local_uri(&self) -> FaceUri {
        match self {
            Self::Unix(listener) => listener.local_uri(),
            Self::Tcp(listener) => listener.local_uri(),
        }
    }
}

/// How a router reaches a peer.
#[derive(Debug)]
pub enum Connected {
    /// By a socket of the face's own.
    Socket(Socket),
    /// By a port that it shares with other peers.
    Peer(SocketAddr),
}

impl Connected {
    /// Connects to a peer, waiting for at most `timeout`.
    ///
    /// # Errors
    /// Those of `connect`; Unsupported for a kind that cannot be connected to.
    pub fn to(remote: &FaceUri, timeout: Duration) -> io::Result<Self> {
        let stream = match remote {
            FaceUri::Udp(peer) => return Ok(Self::Peer(*peer)),
            FaceUri::Tcp(peer) => StreamSocket::connect_tcp_timeout(*peer, timeout),
            FaceUri::Unix(path) => StreamSocket::connect_unix(path, timeout),
            other => {
                let why = format!("faces of the scheme {} cannot be made", other.scheme());
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        stream.map(|stream| Self::Socket(Socket::Stream(stream)))
    }
}

impl Socket {
    /// One end of a pair whose other end is in this process: a local face.
    pub fn of_pair(stream: UnixStream) -> io::Result<Self> {
        StreamSocket::of_pair(stream).map(Self::Stream)
    }

    /// Who connected, where the kernel knows: over a Unix listener, or within this process.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        let is_unix = matches!(self.remote_uri(), FaceUri::Fd(_));
        is_unix.then(|| PeerCredentials::of(self.as_fd()).ok()).flatten()
    }

    /// Whether packets go through shared memory.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.is_shared())
    }

    /// Whether room to send, once there was none, is told by something to read, and not by the
    /// socket's being writable.
    pub fn signals_room_by_input(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.signals_room_by_input())
    }

    /// Whether there was no room to send, and there is now. To be asked before a wait where
    /// [room is told by input](Self::tells_room_by_input): what told so may have been read already.
    pub fn is_writable_again(&self) -> bool {
        matches!(self, Self::Shared(socket) if socket.is_writable_again())
    }

    /// Takes what has told of something to read, which the caller knows of and leaves for later.
    pub fn discard_doorbells(&mut self) -> io::Result<()> {
        match self {
            Self::Shared(socket) => socket.discard_doorbells(),
            _ => Ok(()),
        }
    }

    /// Connects an application to a router, waiting for at most `timeout`.
    pub fn connect(remote: &FaceUri, timeout: Duration) -> io::Result<Self> {
        match Connected::to(remote, timeout)? {
            Connected::Socket(Socket::Stream(stream)) if matches!(remote, FaceUri::Unix(_)) => {
                Ok(Self::Shared(Box::new(SharedSocket::of_application(stream))))
            }
            Connected::Socket(socket) => Ok(socket),
            Connected::Peer(peer) => UdpPeer::open(peer).map(|peer| Self::Udp(Box::new(peer))),
        }
    }
}

/// What management has to know of the kind of a face.
impl FaceUri {
    /// Whether frames have a bound of their own (an MTU) and one port serves many peers.
    pub fn is_datagram(&self) -> bool {
        matches!(self, Self::Udp(_))
    }

    /// Whether a faces/create command may make such a face.
    pub fn is_made_by_command(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::Tcp(_))
    }

    /// Whether the address says which peer it is, so that there is one face to it at most.
    pub fn is_of_one_peer(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::Tcp(_))
    }
}
