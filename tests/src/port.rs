//! Ports that no other test and no other program uses.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The lowest port.
const FIRST: u16 = 10_000;

/// The reservations of this process. Each port is reserved by an abstract Unix socket with its
/// name, which the kernel removes with the process.
static RESERVED_PORTS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that is free for TCP and UDP, reserved until this process ends. It is below
/// the ephemeral ports of the system, and other tests respect the reservation.
///
/// # Panics
/// If there is none.
pub(crate) fn free_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first_of_system =
        range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    let end: u16 = first_of_system.unwrap_or(32_768).max(FIRST + 1000);
    let mut held = RESERVED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Each process starts at another port, and skips reserved ones.
    let begin = std::process::id().wrapping_mul(97) % u32::from(end - FIRST);
    for step in 0..u32::from(end - FIRST) {
        let offset = (begin + step) % u32::from(end - FIRST);
        let port = FIRST + u16::try_from(offset).expect("below the end");
        let name = format!("weir-test-port-{port}");
        let name = SocketAddr::from_abstract_name(name).expect("a short name");
        let Ok(own) = UnixListener::bind_addr(&name) else { continue };
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            held.push(own);
            return port;
        }
    }
    panic!("no port is free for both TCP and UDP");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_drawn_once() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }
}
