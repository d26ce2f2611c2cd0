//! A WebSocket face with a hostile peer that sends arbitrary bytes after the handshake. Shared by a
//! property test of `weir-face` and a fuzz target.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use weir_base::Pool;
use weir_face::{Accepted, Listener, RecvStatus, Socket, WebSocketListener};

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// Longest message: an LpPacket with the largest Data.
const MESSAGE_BYTES_MAX: usize = 8800 + 160;
const TIMEOUT: Duration = Duration::from_secs(10);

thread_local! {
    /// The socket where the peers connect, for all scripts.
    static LISTENER: (Listener, SocketAddr) = {
        let listener = WebSocketListener::bind(([127, 0, 0, 1], 0).into()).expect("a socket");
        let address = listener.local_uri().socket_addr().expect("an address");
        (Listener::WebSocket(listener), address)
    };
}

/// Sends `script`, which begins with the length of its first part. Nothing may panic, and no
/// message may be longer than a packet. The face ends when the peer does.
pub(crate) fn check(script: &[u8]) {
    let [first, script @ ..] = script else { return };
    let (first, second) = script.split_at(usize::from(*first).min(script.len()));
    let (mut peer, mut face) = LISTENER.with(|(listener, address)| connect(listener, *address));
    let mut pool = Pool::new(1 << 20);
    let mut frames = Vec::new();
    // The face may have closed the connection after the first part.
    let _ = peer.write_all(first);
    let status = face.recv(&mut pool, &mut frames);
    let mut is_open = matches!(status, Ok(RecvStatus::Drained | RecvStatus::More));
    let _ = peer.write_all(second);
    peer.shutdown(std::net::Shutdown::Write).ok();
    let until = Instant::now() + TIMEOUT;
    while is_open {
        assert!(Instant::now() < until, "the face does not end");
        let status = face.recv(&mut pool, &mut frames);
        is_open = matches!(status, Ok(RecvStatus::Drained | RecvStatus::More));
    }
    assert!(frames.iter().all(|frame| frame.len() <= MESSAGE_BYTES_MAX));
    assert!(frames.len() <= script.len() / 6, "a frame of a client has six octets or more");
}

fn connect(listener: &Listener, address: SocketAddr) -> (TcpStream, Socket) {
    let mut peer = TcpStream::connect(address).expect("listens");
    // The connection must not keep its port for a minute.
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&peer.as_fd(), sockopt::Linger, &linger).expect("an option");
    peer.write_all(REQUEST).expect("room");
    let until = Instant::now() + TIMEOUT;
    let mut handshake = loop {
        assert!(Instant::now() < until, "no connection");
        if let Some(Accepted::Handshake(handshake)) = listener.accept().expect("accepts") {
            break handshake;
        }
    };
    while !handshake.read().expect("a request") {
        assert!(Instant::now() < until, "no request");
    }
    (peer, Socket::of_handshake(handshake).expect("a valid request"))
}
