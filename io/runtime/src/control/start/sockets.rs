//! Opens all sockets of the configuration.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_face::{
    BindError, InheritedSockets, ServerCertificate, SharedMemory, TcpListener, UdpFormat,
    UdpOptions, UdpPort, UnixListener, WebSocketListener,
};

use crate::config::{Listener, RuntimeConfig};
use crate::error::StartError;
use crate::memory::shared_memory_bytes_max;

#[derive(Default)]
pub(super) struct Sockets {
    pub(super) streams: Vec<weir_face::Listener>,
    /// For each port, one socket for each worker thread, if the system can steer datagrams to them.
    pub(super) ports: Vec<(UdpFormat, Vec<UdpPort>)>,
    pub(super) listening: Vec<String>,
}

impl Sockets {
    pub(super) fn open(config: &RuntimeConfig) -> Result<Self, StartError> {
        let (threads, access) = (config.threads, config.unix_access);
        let mut sockets = Self::default();
        let mut inherited = inherit(config)?;
        for listener in &config.listeners {
            match listener {
                Listener::Unix(path) => sockets.add_unix(match inherited.unix(path) {
                    Some(listener) => listener?,
                    None => UnixListener::bind(path, access)?,
                }),
                Listener::UnixDefault => {
                    let bound = inherited.unix_default();
                    match bound.unwrap_or_else(|| UnixListener::bind_default(access)) {
                        Ok(listener) => sockets.add_unix(listener),
                        // A container may have no other place for it.
                        Err(error) if error.is_read_only() => tracing::warn!(
                            %error,
                            "no Unix socket, so programs of this machine cannot command the router"
                        ),
                        Err(error) => return Err(error.into()),
                    }
                }
                &Listener::Tcp { address, required } => {
                    let bound = bind_tcp(&mut inherited, address).map(weir_face::Listener::Tcp);
                    sockets.add_tcp("tcp", address, required, bound)?;
                }
                &Listener::WebSocket { address, required } => {
                    let bound = bind_tcp(&mut inherited, address);
                    let bound = bound.map(|tcp| WebSocketListener::on(tcp, None));
                    let bound = bound.map(weir_face::Listener::WebSocket);
                    sockets.add_tcp("ws", address, required, bound)?;
                }
                Listener::WebSocketTls { address, required, files } => {
                    let certificate = ServerCertificate::load(files)?;
                    let bound = bind_tcp(&mut inherited, *address);
                    let bound = bound.map(|tcp| WebSocketListener::on(tcp, Some(certificate)));
                    let bound = bound.map(weir_face::Listener::WebSocket);
                    sockets.add_tcp("wss", *address, *required, bound)?;
                }
                &Listener::Udp { format, address, required } => {
                    let options = UdpOptions::default();
                    let bound = inherited.udp(address, threads, &options);
                    match bound.unwrap_or_else(|| UdpPort::bind_all(address, threads, &options)) {
                        Ok((ports, shared)) => {
                            warn_if_shared(&ports, &shared);
                            sockets.add_udp(format, ports);
                        }
                        Err(error) if !required && lacks_family(&error) => {
                            tracing::info!(%address, "cannot listen on UDP: no address family");
                        }
                        Err(source) => {
                            let scheme = format.scheme();
                            return Err(StartError::Listen { scheme, address, source });
                        }
                    }
                }
            }
        }
        for unused in inherited.unused() {
            tracing::warn!(
                socket = %unused,
                "the service manager has passed a socket on which no listener is configured; \
                 remove it from the socket unit, or add its address to [faces]"
            );
        }
        sockets.warn_missing_features();
        Ok(sockets)
    }

    fn add_unix(&mut self, listener: UnixListener) {
        self.listening.push(listener.local_uri().to_string());
        self.streams.push(weir_face::Listener::Unix(listener));
    }

    /// Adds the listener of a TCP port. A port that is not `required` may lack its address family.
    fn add_tcp(
        &mut self,
        scheme: &'static str,
        address: SocketAddr,
        required: bool,
        bound: Result<weir_face::Listener, BindError>,
    ) -> Result<(), StartError> {
        match bound {
            Ok(listener) => {
                self.listening.push(listener.local_uri().to_string());
                self.streams.push(listener);
            }
            Err(BindError::Io { source, .. }) if !required && lacks_family(&source) => {
                tracing::info!(%address, scheme, "cannot listen on TCP: no address family");
            }
            Err(BindError::Io { source, .. }) => {
                return Err(StartError::Listen { scheme, address, source });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn add_udp(&mut self, format: UdpFormat, ports: Vec<UdpPort>) {
        let local = ports[0].local_addr();
        self.listening.push(format.uri(local).to_string());
        if let Ok(granted_bytes) = ports[0].receive_buffer_bytes()
            && granted_bytes < UdpOptions::default().receive_buffer_bytes / 4
        {
            tracing::warn!(
                granted_bytes,
                "small UDP receive buffer: fast peers will lose packets; raise the limit with \
                 `sysctl -w net.core.rmem_max=8388608`"
            );
        }
        self.ports.push((format, ports));
    }

    /// Warns once for all ports, because all ports lack the same features.
    fn warn_missing_features(&self) {
        let ports = self.ports.iter().flat_map(|(_, ports)| ports);
        let lacking = ports.map(UdpPort::missing_features).max_by_key(|lacking| lacking.len());
        if let Some(lacking @ [_, ..]) = lacking {
            tracing::warn!(
                lacking = lacking.join(", "),
                "UDP needs more processor time per packet than necessary: allow the missing \
                 features (Linux 5.0 or later, seccomp)"
            );
        }
    }

    /// Lets applications share memory with the router, if configured.
    pub(super) fn share_memory(&mut self, config: &RuntimeConfig) -> Option<Arc<SharedMemory>> {
        if !config.face_defaults.shared_memory {
            return None;
        }
        let memory = Arc::new(SharedMemory::new(shared_memory_bytes_max(config.memory_bytes_max)));
        for listener in &mut self.streams {
            if let weir_face::Listener::Unix(listener) = listener {
                listener.share_memory(Arc::clone(&memory));
            }
        }
        Some(memory)
    }
}

/// Takes the sockets of the service manager.
fn inherit(config: &RuntimeConfig) -> Result<InheritedSockets, StartError> {
    if !config.handle_signals {
        return Ok(InheritedSockets::default());
    }
    let taken = InheritedSockets::take();
    taken.map_err(|source| StartError::System { what: "the sockets of LISTEN_FDS", source })
}

fn bind_tcp(
    inherited: &mut InheritedSockets,
    address: SocketAddr,
) -> Result<TcpListener, BindError> {
    inherited.tcp(address).unwrap_or_else(|| TcpListener::bind(address))
}

/// Whether the machine lacks the address family (IPv6).
fn lacks_family(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

/// Warns if a single worker thread reads all datagrams of a port.
pub(in crate::control) fn warn_if_shared(ports: &[UdpPort], shared: &io::Result<()>) {
    if let Err(error) = shared {
        tracing::warn!(
            %error,
            local = %ports[0].local_addr(),
            "one worker thread reads all datagrams of this UDP port: the system allows no more \
             sockets on it, or cannot steer peers to them (SO_ATTACH_REUSEPORT_CBPF)"
        );
    }
}
