//! Helpers of the socket tests.

#![allow(dead_code, reason = "each test binary uses some of them")]

use std::time::{Duration, Instant as Clock};

use weir_base::{Instant, Packet, Pool};
use weir_face::{Connected, FaceUri, RecvStatus, SendStatus, Socket, StreamSocket};
use weir_link::{Link, LinkConfig};
use weir_wire::lp::{LpHeader, PitToken};

/// A Data TLV of `len` octets in all, each octet telling its place; at least 4.
pub(crate) fn data(len: usize, salt: usize) -> Packet {
    let value = match len {
        0..255 => len - 2,
        255..=256 => len - 4 + usize::from(len < 257),
        _ => len - 4,
    };
    let mut octets = vec![6];
    if value < 253 {
        octets.push(value as u8);
    } else {
        octets.push(253);
        octets.extend((value as u16).to_be_bytes());
    }
    octets.extend((0..value).map(|at| (at * 31 + salt * 7 + at / 256) as u8));
    Packet::from(octets)
}

/// A stream to a listener of this process.
pub(crate) fn connect(remote: &FaceUri) -> StreamSocket {
    match Connected::to(remote, Duration::from_secs(1)).unwrap() {
        Connected::Socket(Socket::Stream(stream)) => stream,
        other => panic!("{other:?}"),
    }
}

/// A link with `packets` queued; every third one with a PIT token, so with a header.
pub(crate) fn link_with(packets: &[Packet], config: LinkConfig) -> Link {
    let mut link = Link::new(config);
    for (index, packet) in packets.iter().enumerate() {
        let token: &[u8] = if index % 3 == 0 { b"token" } else { b"" };
        let header = LpHeader { pit_token: PitToken::new(token).unwrap(), ..LpHeader::default() };
        link.enqueue(Instant::ZERO, header, packet.clone()).unwrap();
    }
    link
}

/// The octets that [`link_with`] puts on a stream.
pub(crate) fn octets_of(link: &Link) -> Vec<u8> {
    link.frames().flat_map(|frame| [frame.prefix(), frame.payload()].concat()).collect()
}

/// Receives until `count` frames are there.
pub(crate) fn receive(socket: &mut StreamSocket, pool: &mut Pool, count: usize) -> Vec<Packet> {
    let mut frames = Vec::new();
    let end = Clock::now() + Duration::from_secs(10);
    while frames.len() < count {
        assert!(Clock::now() < end, "{} of {count} frames came", frames.len());
        match socket.recv(pool, &mut frames).unwrap() {
            RecvStatus::Drained => std::thread::sleep(Duration::from_micros(100)),
            RecvStatus::More => {}
            other => panic!("{other:?} after {} frames", frames.len()),
        }
    }
    frames
}

/// Sends and receives until the link is empty and all its frames have come.
pub(crate) fn pump(from: &mut StreamSocket, link: &mut Link, to: &mut StreamSocket) -> Vec<Packet> {
    let mut pool = Pool::new(4 << 20);
    let count = link.frames().len();
    let mut frames = Vec::new();
    while frames.len() < count {
        let sent = from.send(link).unwrap();
        assert_eq!(sent == SendStatus::Drained, link.is_egress_empty());
        to.recv(&mut pool, &mut frames).unwrap();
    }
    frames
}

/// What a link makes of `frames`.
pub(crate) fn packets_of(frames: Vec<Packet>) -> Vec<Packet> {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut pool = Pool::new(1 << 20);
    let whole = |frame| match link.receive(Instant::ZERO, frame, &mut pool) {
        weir_link::Received::Packet { packet, .. } => Some(packet),
        weir_link::Received::Partial => None,
        other => panic!("{other:?}"),
    };
    frames.into_iter().filter_map(whole).collect()
}
