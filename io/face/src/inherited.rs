//! Listening sockets that the service manager has opened and passed to this process
//! (sd_listen_fds(3)). They stay open while the router restarts, so clients wait instead of
//! failing.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Socket, Type};

use crate::listen::{BindError, TcpListener, UnixListener};
use crate::locate::unix_path_candidates;
use crate::udp::{UdpOptions, UdpPort};

/// Whether the sockets have been taken. Each descriptor must have one owner.
static WERE_TAKEN: AtomicBool = AtomicBool::new(false);

/// The sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<Inherited>);

/// One socket of the service manager.
#[derive(Debug)]
pub struct Inherited {
    socket: Socket,
    address: Address,
    /// From `FileDescriptorName=`.
    name: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
    Udp(SocketAddr),
    /// A socket of a kind that no listener has.
    Other,
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => write!(f, "unix {}", path.display())?,
            Address::Tcp(address) => write!(f, "tcp {address}")?,
            Address::Udp(address) => write!(f, "udp {address}")?,
            Address::Other => f.write_str("a socket of another kind")?,
        }
        write!(f, " ({})", self.name)
    }
}

impl InheritedSockets {
    /// Takes the sockets of this process. They can be taken once.
    ///
    /// # Errors
    /// If the variables of the environment are invalid.
    pub fn take() -> io::Result<Self> {
        let passed = sd_notify::listen_fds_with_names()?;
        if passed.len() == 0 || WERE_TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(Self::default());
        }
        let sockets = passed.map(|(descriptor, name)| {
            // SAFETY: the service manager has opened these descriptors for this process
            // (LISTEN_PID), and `WERE_TAKEN` ensures that nothing else owns them.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let socket = Socket::from(descriptor);
            let address = address_of(&socket);
            Inherited { socket, address, name }
        });
        Ok(Self(sockets.collect()))
    }

    fn take_address(&mut self, address: &Address) -> Option<Socket> {
        let at = self.0.iter().position(|one| one.address == *address)?;
        Some(self.0.swap_remove(at).socket)
    }

    /// Takes the Unix socket with this path. `None` if there is none; an error if it is unusable.
    pub fn unix(&mut self, path: &Path) -> Option<Result<UnixListener, BindError>> {
        let path = std::path::absolute(path).ok()?;
        let socket = self.take_address(&Address::Unix(path.clone()))?;
        let address = path.display().to_string();
        let listener = UnixListener::inherited(socket, path);
        Some(listener.map_err(|source| BindError::Io { address, source }))
    }

    /// Takes a Unix socket with one of the default paths, like [`Self::unix`].
    pub fn unix_default(&mut self) -> Option<Result<UnixListener, BindError>> {
        unix_path_candidates().iter().find_map(|path| self.unix(path))
    }

    /// Takes the TCP socket with this address, like [`Self::unix`].
    pub fn tcp(&mut self, address: SocketAddr) -> Option<Result<TcpListener, BindError>> {
        let socket = self.take_address(&Address::Tcp(address))?;
        let listener = TcpListener::inherited(socket, address);
        Some(listener.map_err(|source| BindError::Io { address: address.to_string(), source }))
    }

    /// Takes the UDP socket with this address, and binds others for further threads, as
    /// [`UdpPort::bind_all`].
    pub fn udp(
        &mut self,
        address: SocketAddr,
        count: usize,
        options: &UdpOptions,
    ) -> Option<io::Result<(Vec<UdpPort>, io::Result<()>)>> {
        let socket = self.take_address(&Address::Udp(address))?;
        let first = UdpPort::inherited(socket, address, options);
        Some(first.map(|first| UdpPort::share_all(first, count, options)))
    }

    /// The sockets that no listener has taken.
    pub fn unused(&self) -> &[Inherited] {
        &self.0
    }
}

fn address_of(socket: &Socket) -> Address {
    let (Ok(kind), Ok(local)) = (socket.r#type(), socket.local_addr()) else {
        return Address::Other;
    };
    match (kind, local.as_socket(), local.as_pathname()) {
        (Type::STREAM, Some(address), _) => Address::Tcp(address),
        (Type::DGRAM, Some(address), _) => Address::Udp(address),
        (Type::STREAM, None, Some(path)) => Address::Unix(path.to_owned()),
        _ => Address::Other,
    }
}

#[cfg(test)]
mod tests {
    use socket2::Domain;

    use super::*;

    #[test]
    fn unusable_socket_is_an_error() {
        // A datagram socket cannot listen, so it stands for one that fails.
        let inherited = |address| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            InheritedSockets(vec![Inherited { socket, address, name: String::new() }])
        };
        let (path, address) = (Path::new("/none"), "127.0.0.1:6363".parse().unwrap());
        assert!(inherited(Address::Unix(path.into())).unix(path).unwrap().is_err());
        let mut sockets = inherited(Address::Tcp(address));
        assert!(sockets.tcp(address).unwrap().is_err());
        assert!(sockets.tcp(address).is_none(), "the socket was taken");
    }
}
