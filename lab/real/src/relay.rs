//! A delayed path to a controller: a TCP port that forwards with a delay.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Bytes forwarded at once. `CHUNKS_MAX` such chunks may be in flight in each direction.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS_MAX: usize = 1024;

/// A relay. Dropping it stops new connections; existing ones end with the processes at their ends.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay to `target` with the given one-way delay.
    pub(super) fn start(target: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        std::thread::Builder::new().name("weir-relay".into()).spawn(move || {
            for stream in listener.incoming() {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                // If the target is unreachable, the connection closes and the sender retries.
                let _ = stream.and_then(|stream| join(stream, target, delay));
            }
        })?;
        Ok(Self { address, stop })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes its thread, which waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn join(near: TcpStream, target: SocketAddr, delay: Duration) -> io::Result<()> {
    let far = TcpStream::connect(target)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let back = (far.try_clone()?, near.try_clone()?);
    for (from, to) in [(near, far), back] {
        std::thread::Builder::new()
            .name("weir-relay-way".into())
            .spawn(move || carry(from, to, delay))?;
    }
    Ok(())
}

/// Forwards each chunk with the same delay.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let Ok(ends) = to.try_clone() else { return };
    let reads = std::thread::Builder::new().name("weir-relay-reads".into()).spawn(move || {
        let mut piece = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            if sender.send((Instant::now() + delay, piece[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    if reads.is_ok() {
        for (due, octets) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&octets).is_err() {
                break;
            }
        }
    }
    // Signals the end of the data to the other end.
    let _ = ends.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_with_delay_and_forwards_eof() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let delay = Duration::from_millis(30);
        let relay = Relay::start(server.local_addr().unwrap(), delay).unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut octets = [0; 5];
            stream.read_exact(&mut octets).unwrap();
            stream.write_all(&octets).unwrap();
        });
        let sent_at = Instant::now();
        let mut client = TcpStream::connect(relay.address).unwrap();
        client.write_all(b"hello").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"hello");
        // Both directions.
        assert!(sent_at.elapsed() >= 2 * delay);
        echo.join().unwrap();
    }
}
