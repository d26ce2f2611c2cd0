//! A simulated link between two routers in this process: a delay, a rate, and a queue.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedLink {
    pub(crate) delay: Duration,
    pub(crate) rate_bps: f64,
    /// Datagrams that do not fit are dropped.
    pub(crate) queue_bytes: f64,
}

impl Default for SimulatedLink {
    fn default() -> Self {
        Self { delay: Duration::ZERO, rate_bps: f64::INFINITY, queue_bytes: f64::INFINITY }
    }
}

/// Forwards datagrams from one end to the other with the delay and rate of the link.
fn pass(
    wire: SimulatedLink,
    receive: impl Fn(&mut [u8]) -> Option<usize> + Send + 'static,
    send: impl Fn(&[u8]) + Send + 'static,
) {
    let (late, due) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut octets = vec![0; 1 << 16];
        let mut is_free = Instant::now();
        while let Some(length) = receive(&mut octets) {
            let now = Instant::now();
            let waits = is_free.saturating_duration_since(now);
            if waits.as_secs_f64() * wire.rate_bps / 8.0 > wire.queue_bytes {
                continue;
            }
            let takes = Duration::from_secs_f64(length as f64 * 8.0 / wire.rate_bps);
            is_free = now + waits + takes;
            let _ = late.send((is_free + wire.delay, octets[..length].to_vec()));
        }
    });
    std::thread::spawn(move || {
        for (at, datagram) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            send(&datagram);
        }
    });
}

/// The address to reach a router over such a link, with the same properties both ways.
pub(crate) fn relay(router: &str, wire: SimulatedLink) -> String {
    let router: SocketAddr = router.strip_prefix("udp4://").unwrap().parse().unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.connect(router).unwrap();
    let uri = format!("udp4://{}", near.local_addr().unwrap());
    let sender: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let (near_in, far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let noted = Arc::clone(&sender);
    let receive = move |octets: &mut [u8]| {
        let (length, from) = near_in.recv_from(octets).ok()?;
        *noted.lock().unwrap() = Some(from);
        Some(length)
    };
    pass(wire, receive, move |octets| drop(far_out.send(octets)));
    let back = move |octets: &[u8]| {
        let to = sender.lock().unwrap().expect("a datagram came from there");
        let _ = near.send_to(octets, to);
    };
    pass(wire, move |octets| far.recv(octets).ok(), back);
    uri
}
