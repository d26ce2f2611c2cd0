//! A TCP relay that breaks its connection after a given number of bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Relays bytes in both directions, and closes the connection after a given number from the far
/// side.
///
/// It serves one connection. Its threads end with the connection.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    returned: Arc<AtomicU64>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 for one connection, which is relayed to `port`.
    ///
    /// # Panics
    /// If no port is free.
    pub fn to(port: u16, returned_bytes_max: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own_port = listener.local_addr().expect("bound address").port();
        let returned = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&returned);
        thread::spawn(move || {
            let Ok((near, _)) = listener.accept() else { return };
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { return };
            relay(&near, &far, returned_bytes_max, &counter);
        });
        Self { port: own_port, returned }
    }

    /// FaceUri of the near side.
    pub fn uri(&self) -> String {
        format!("tcp4://127.0.0.1:{}", self.port)
    }

    /// Bytes received from the far side so far.
    pub fn returned_bytes(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }
}

fn relay(near: &TcpStream, far: &TcpStream, returned_bytes_max: u64, returned: &AtomicU64) {
    let (mut near_source, mut far_sink) = (near, far);
    let (mut far_source, mut near_sink) = (far, near);
    thread::scope(|scope| {
        scope.spawn(move || {
            // Ends when either side closes the connection.
            let _ = std::io::copy(&mut near_source, &mut far_sink);
            let _ = far_sink.shutdown(Shutdown::Both);
        });
        let mut octets = [0; 16 * 1024];
        while returned.load(Ordering::Relaxed) < returned_bytes_max {
            let Ok(count @ 1..) = far_source.read(&mut octets) else { break };
            if near_sink.write_all(&octets[..count]).is_err() {
                break;
            }
            returned.fetch_add(count as u64, Ordering::Relaxed);
        }
        let _ = near_sink.shutdown(Shutdown::Both);
        let _ = far_source.shutdown(Shutdown::Both);
    });
}
