//! Measures the cost of a packet through the sockets of this machine, from queue to frames.
//!
//! `cargo run --release -p weir-face --example socket_speed` prints the processor time per packet
//! of the sending and the receiving thread, and the rate, for each kind of socket and packet size.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use mio::{Events, Interest, Poll, Token};
use weir_base::{Instant, Packet, Pool};
use weir_face::{
    Connected, FaceUri, RecvStatus, SendStatus, Socket, StreamSocket, TcpListener, UdpOptions,
    UdpPort, UnixAccess, UnixListener,
};
use weir_link::{Link, LinkConfig};
use weir_wire::lp::{LpHeader, PitToken};

const DURATION: Duration = Duration::from_secs(2);
const BATCH: usize = 64;

/// A Data TLV of `len` bytes, at least 255 or less than 254.
fn data(len: usize) -> Packet {
    let mut octets = vec![0xa5; len];
    octets[0] = 6;
    if len < 254 {
        octets[1] = (len - 2) as u8;
    } else {
        octets[1] = 253;
        octets[2..4].copy_from_slice(&((len - 4) as u16).to_be_bytes());
    }
    Packet::from(octets)
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[derive(Default)]
struct Side {
    packets: u64,
    octets: u64,
    processor: Duration,
    elapsed: Duration,
}

fn wait_for(poll: &mut Poll, events: &mut Events) {
    poll.poll(events, Some(Duration::from_millis(20))).expect("poll");
}

fn send_all(
    source: &mut impl mio::event::Source,
    packet: &Packet,
    mut send: impl FnMut(&mut Link) -> SendStatus,
) -> Side {
    let mut poll = Poll::new().expect("poll");
    let mut events = Events::with_capacity(8);
    poll.registry().register(source, Token(0), Interest::WRITABLE).expect("register");
    let header =
        LpHeader { pit_token: PitToken::new(b"8 octets").expect("short"), ..Default::default() };
    let mut link = Link::new(LinkConfig::datagram(8800));
    let (start, before) = (Clock::now(), thread_time());
    while start.elapsed() < DURATION {
        for _ in 0..BATCH {
            link.enqueue(Instant::ZERO, header.clone(), packet.clone()).expect("room");
        }
        while send(&mut link) == SendStatus::WouldBlock {
            wait_for(&mut poll, &mut events);
        }
    }
    poll.registry().deregister(source).expect("deregister");
    Side {
        packets: link.counters().out_frames,
        octets: link.counters().out_bytes,
        processor: thread_time() - before,
        elapsed: start.elapsed(),
    }
}

/// `receive` appends frames and returns its status.
fn receive_all(
    source: &mut impl mio::event::Source,
    is_done: &AtomicBool,
    mut receive: impl FnMut(&mut Pool, &mut Vec<Packet>) -> RecvStatus,
) -> Side {
    let mut poll = Poll::new().expect("poll");
    let mut events = Events::with_capacity(8);
    poll.registry().register(source, Token(0), Interest::READABLE).expect("register");
    let mut pool = Pool::new(16 << 20);
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut frames = Vec::new();
    let mut is_drained = false;
    let (start, before) = (Clock::now(), thread_time());
    loop {
        if is_drained {
            if is_done.load(Ordering::Relaxed) {
                break;
            }
            wait_for(&mut poll, &mut events);
        }
        let status = receive(&mut pool, &mut frames);
        is_drained = status == RecvStatus::Drained;
        for frame in frames.drain(..) {
            link.receive(Instant::ZERO, frame, &mut pool);
        }
        if status == RecvStatus::Closed {
            break;
        }
    }
    poll.registry().deregister(source).expect("deregister");
    Side {
        packets: link.counters().in_data,
        octets: link.counters().in_bytes,
        processor: thread_time() - before,
        elapsed: start.elapsed(),
    }
}

fn report(name: &str, sent: &Side, received: &Side) {
    let cost = |side: &Side| side.processor.as_secs_f64() * 1e6 / side.packets.max(1) as f64;
    println!(
        "{name:<26} {:>6.2} us send {:>6.2} us receive {:>7.3} M/s {:>6.1} Gbit/s {:>6.2} % lost",
        cost(sent),
        cost(received),
        received.packets as f64 / 1e6 / sent.elapsed.as_secs_f64(),
        received.octets as f64 * 8e-9 / sent.elapsed.as_secs_f64(),
        (sent.packets - received.packets) as f64 * 100.0 / sent.packets as f64,
    );
}

fn stream_speed(name: &str, mut near: StreamSocket, mut far: StreamSocket, len: usize) {
    let is_done = AtomicBool::new(false);
    let packet = data(len);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&far);
            receive_all(&mut mio::unix::SourceFd(&fd), &is_done, |pool, frames| {
                far.recv(pool, frames).expect("recv")
            })
        });
        let fd = std::os::fd::AsRawFd::as_raw_fd(&near);
        let sent =
            send_all(&mut mio::unix::SourceFd(&fd), &packet, |link| near.send(link).expect("send"));
        drop(near);
        report(name, &sent, &receiver.join().expect("receiver"));
    });
}

fn udp_speed(name: &str, options: &UdpOptions, len: usize) {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let mut near = UdpPort::bind(any, options).expect("bind");
    let mut far = UdpPort::bind(any, options).expect("bind");
    let peer = far.local_addr();
    let is_done = AtomicBool::new(false);
    let packet = data(len);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&far);
            let mut datagrams = Vec::new();
            receive_all(&mut mio::unix::SourceFd(&fd), &is_done, |pool, frames| {
                let status = far.recv(pool, &mut datagrams).expect("recv");
                frames.extend(datagrams.drain(..).map(|datagram| datagram.frame));
                status
            })
        });
        let fd = std::os::fd::AsRawFd::as_raw_fd(&near);
        let sent = send_all(&mut mio::unix::SourceFd(&fd), &packet, |link| {
            near.send(peer.into(), link).expect("send")
        });
        is_done.store(true, Ordering::Relaxed);
        report(name, &sent, &receiver.join().expect("receiver"));
    });
}

fn connect(remote: &FaceUri) -> StreamSocket {
    match Connected::to(remote, Duration::from_secs(1)).expect("connect") {
        Connected::Socket(Socket::Stream(stream)) => stream,
        other => panic!("{other:?}"),
    }
}

fn main() {
    let directory = std::env::temp_dir().join(format!("weir-speed-{}", std::process::id()));
    for len in [8000, 100] {
        let listener =
            UnixListener::bind(&directory.join("nfd.sock"), UnixAccess::default()).expect("listen");
        let near = connect(&FaceUri::Unix(listener.path().into()));
        let far = listener.accept().expect("accept").expect("a connection");
        stream_speed(&format!("Unix, {len} bytes"), near, far, len);
    }
    std::fs::remove_dir(&directory).expect("remove the directory");

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("listen");
    let near = connect(&FaceUri::Tcp(listener.local_addr()));
    let far = listener.accept().expect("accept").expect("a connection");
    stream_speed("TCP, 8000 bytes", near, far, 8000);

    let offload = UdpOptions::default();
    let batch = UdpOptions { offload: false, ..offload.clone() };
    let plain = UdpOptions { batch: false, ..batch.clone() };
    for len in [8000, 1400, 100] {
        udp_speed(&format!("UDP, {len} bytes, GSO"), &offload, len);
        udp_speed(&format!("UDP, {len} bytes, mmsg"), &batch, len);
        udp_speed(&format!("UDP, {len} bytes, single"), &plain, len);
    }
}
