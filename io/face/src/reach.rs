//! Finds out which of a host's addresses responds (RFC 8305, "Happy Eyeballs"): attempts run in
//! parallel, each started a little after the previous one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use weir_wire::{Interest, Name};

use crate::uri::{FaceUri, FaceUriError, ResolveError};

/// Delay before the next attempt starts, unless the previous one has failed (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// Timeout of an attempt over TCP. Linux retransmits its first packet after 1 s and after 3 s.
const TCP_TIMEOUT: Duration = Duration::from_millis(3500);
/// Maximum number of addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;
/// Number of datagrams sent to one address, [`STAGGER`] apart.
const DATAGRAMS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    Answered,
    /// No response. Over UDP, a router may drop Interests without a route.
    Silent,
    /// The host or the network refuses.
    Failed,
}

impl FaceUri {
    /// Like [`FaceUri::resolve`], but of several addresses of a host, selects the first that
    /// responds: over TCP with a connection, over UDP with any packet. `current` is tried first. If
    /// none responds, selects the next address after `current` that has not refused, so repeated
    /// calls try each in turn. A single address is not tried. Blocks for a few seconds at most.
    pub fn resolve_reachable(text: &str, current: Option<&Self>) -> Result<Self, ResolveError> {
        let mut all = Self::resolve_all(text)?;
        let at = all.iter().position(|uri| Some(uri) == current);
        all.rotate_left(at.unwrap_or(0));
        all.truncate(ADDRESSES_MAX);
        let chosen = if all.len() > 1 { first_reachable(&all, at.is_some()) } else { 0 };
        Ok(all.swap_remove(chosen))
    }

    /// The address of the peer of a `wss://` URI, selected as in [`Self::resolve_reachable`].
    pub(crate) fn resolve_tls_peer(&self) -> Result<SocketAddr, ResolveError> {
        let Self::WebSocketTls { host, port, .. } = self else {
            return Err(FaceUriError::Tls(self.to_string()).into());
        };
        if let Some(address) = self.socket_addr() {
            return Ok(address);
        }
        let found = Self::resolve_reachable(&format!("tcp://{host}:{port}"), None)?;
        found.socket_addr().ok_or_else(|| FaceUriError::Tls(self.to_string()).into())
    }

    /// Whether the host of a UDP address reports that no socket listens there, or cannot be
    /// reached.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Udp(_)) && probe(self) == ProbeOutcome::Failed
    }
}

/// Index of the address to use. `has_current`: the first is in use; it comes last if none responds.
fn first_reachable(all: &[FaceUri], has_current: bool) -> usize {
    let (sender, outcomes) = mpsc::channel();
    let mut results = vec![None; all.len()];
    let (mut started, mut next_at) = (0, Instant::now());
    while results.iter().any(Option::is_none) {
        if started < all.len() && Instant::now() >= next_at {
            let (sender, uri, index) = (sender.clone(), all[started].clone(), started);
            // The thread ends by itself, and its late result has no receiver.
            let attempt = move || sender.send((index, probe(&uri)));
            if std::thread::Builder::new().name("weir-reach".into()).spawn(attempt).is_err() {
                results[started] = Some(ProbeOutcome::Silent);
            }
            (started, next_at) = (started + 1, Instant::now() + STAGGER);
            continue;
        }
        // Wait for results, at most until the next attempt is due.
        let wait = match started < all.len() {
            true => next_at.saturating_duration_since(Instant::now()),
            false => 2 * TCP_TIMEOUT,
        };
        match outcomes.recv_timeout(wait) {
            Ok((index, ProbeOutcome::Answered)) => return index,
            Ok((index, outcome)) => {
                // An attempt without success starts the next one at once (RFC 8305, section 5).
                results[index] = Some(outcome);
                next_at = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) if started < all.len() => {}
            Err(_) => break,
        }
    }
    let first = usize::from(has_current);
    let mut in_turn = (first..all.len()).chain(0..first);
    in_turn.find(|&index| results[index] != Some(ProbeOutcome::Failed)).unwrap_or(0)
}

fn probe(uri: &FaceUri) -> ProbeOutcome {
    let outcome = match uri {
        FaceUri::Tcp(address) | FaceUri::WebSocket(address) => {
            TcpStream::connect_timeout(address, TCP_TIMEOUT).map(|_| ProbeOutcome::Answered)
        }
        FaceUri::Udp(address) => probe_udp(*address),
        _ => Ok(ProbeOutcome::Silent),
    };
    outcome.unwrap_or(ProbeOutcome::Failed)
}

/// Sends Interests for a name that does not exist. A router answers with a Nack and does not
/// forward them, because the name begins with /localhop.
fn probe_udp(address: SocketAddr) -> io::Result<ProbeOutcome> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(STAGGER))?;
    let mut name = Name::new();
    name.append_str("localhop").append_str("ping");
    for attempt in 0..DATAGRAMS {
        let nonce = u32::from(address.port());
        socket.send(&Interest::new(name.clone()).nonce(attempt << 16 | nonce).encode())?;
        match socket.recv(&mut [0; 64]) {
            Ok(_) => return Ok(ProbeOutcome::Answered),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ProbeOutcome::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn loopback(last: u8, port: u16) -> SocketAddr {
        (Ipv4Addr::new(127, 0, 0, last), port).into()
    }

    #[test]
    fn tcp_selects_accepting_address() {
        let listener = TcpListener::bind(loopback(3, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let all = [1, 2, 3].map(|last| FaceUri::Tcp(loopback(last, port)));
        assert_eq!(first_reachable(&all, false), 2);
    }

    #[test]
    fn udp_selects_answering_address() {
        let silent = UdpSocket::bind(loopback(1, 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        let answering = UdpSocket::bind(loopback(3, port)).unwrap();
        let all = [1, 2, 3].map(|last| FaceUri::Udp(loopback(last, port)));
        let router = std::thread::spawn(move || {
            let (_, from) = answering.recv_from(&mut [0; 100]).unwrap();
            answering.send_to(b"a Nack", from).unwrap();
        });
        assert_eq!(first_reachable(&all, false), 2);
        router.join().unwrap();
        assert!(!all[0].is_refused() && all[1].is_refused());
        // Now both are silent, and the second address refuses.
        let answering = UdpSocket::bind(loopback(3, port));
        assert!(answering.is_ok());
        assert_eq!(first_reachable(&all, false), 0);
        assert_eq!(first_reachable(&all, true), 2);
    }
}
