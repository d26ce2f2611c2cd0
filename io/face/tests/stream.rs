//! Stream faces over real Unix and TCP sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tempfile::TempDir;
use weir_base::{Packet, Pool};
use weir_face::{
    Connected, FaceUri, RecvStatus, SendStatus, StreamSocket, TcpListener, UnixAccess, UnixListener,
};
use weir_io_fixture::face::{connect, data, link_with, octets_of, packets_of, pump, receive};
use weir_link::LinkConfig;
use weir_wire::FrameError;

struct Server {
    listener: UnixListener,
    _directory: TempDir,
}

fn server() -> Server {
    let directory = tempfile::tempdir().unwrap();
    let listener =
        UnixListener::bind(&directory.path().join("nfd.sock"), UnixAccess::default()).unwrap();
    Server { listener, _directory: directory }
}

impl Server {
    fn accept(&self) -> StreamSocket {
        self.listener.accept().unwrap().expect("a connection waits")
    }

    /// A plain socket, and the face at its other end.
    fn plain_pair(&self) -> (UnixStream, StreamSocket) {
        let plain = UnixStream::connect(self.listener.path()).unwrap();
        (plain, self.accept())
    }

    fn pair(&self) -> (StreamSocket, StreamSocket) {
        let near = connect(&FaceUri::Unix(self.listener.path().into()));
        (near, self.accept())
    }
}

fn tcp_pair(ip: std::net::IpAddr) -> (StreamSocket, StreamSocket, TcpListener) {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0)).unwrap();
    let near = connect(&FaceUri::Tcp(listener.local_addr()));
    let far = loop {
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
    };
    (near, far, listener)
}

#[test]
fn reassembles_frames_split_anywhere() {
    let server = server();
    let packets = [data(2, 0), data(300, 1), data(40, 2)];
    let octets = octets_of(&link_with(&packets, LinkConfig::stream()));
    let mut pool = Pool::new(1 << 20);
    for split in 0..=octets.len() {
        let (mut plain, mut face) = server.plain_pair();
        let mut frames = Vec::new();
        for part in [&octets[..split], &octets[split..]] {
            plain.write_all(part).unwrap();
            assert_eq!(face.recv(&mut pool, &mut frames).unwrap(), RecvStatus::Drained);
        }
        assert_eq!(packets_of(frames), packets, "split at {split}");
    }
}

#[test]
fn reads_frame_byte_by_byte() {
    let (mut plain, mut face) = server().plain_pair();
    let packets = [data(300, 1), data(8000, 2)];
    let octets = octets_of(&link_with(&packets, LinkConfig::stream()));
    let mut pool = Pool::new(1 << 20);
    let mut frames = Vec::new();
    for octet in octets {
        plain.write_all(&[octet]).unwrap();
        face.recv(&mut pool, &mut frames).unwrap();
    }
    assert_eq!(packets_of(frames), packets);
}

/// Packets of all sizes, so that they cross blocks and calls in every way, over both kinds of
/// sockets.
#[test]
fn packets_of_all_sizes_arrive_in_order() {
    let packets: Vec<Packet> =
        (0..3000).map(|index| data(2 + (index * index * 37) % 8700, index)).collect();
    let mut config = LinkConfig::stream();
    config.egress.queue_bytes_max = 64 << 20;
    let (mut near, mut far) = server().pair();
    let mut link = link_with(&packets, config.clone());
    assert!(packets_of(pump(&mut near, &mut link, &mut far)) == packets);
    assert_eq!(link.counters().out_frames, 3000);
    for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        let (mut near, mut far, _listener) = tcp_pair(ip);
        let mut link = link_with(&packets, config.clone());
        assert!(packets_of(pump(&mut near, &mut link, &mut far)) == packets);
    }
}

#[test]
fn sends_whole_batch_of_small_packets() {
    let packets: Vec<Packet> = (0..5000).map(|index| data(30 + index % 20, index)).collect();
    let (mut near, mut far) = server().pair();
    let mut link = link_with(&packets, LinkConfig::stream());
    assert_eq!(packets_of(pump(&mut near, &mut link, &mut far)), packets);
}

#[test]
fn stopped_reader_costs_bounded_queue() {
    let (mut plain, mut face) = server().plain_pair();
    let mut link = weir_link::Link::new(LinkConfig::stream());
    let mut pool = Pool::new(1 << 20);
    let mut refused = 0;
    let mut accepted = Vec::new();
    for index in 0..3000 {
        let packet = data(8000, index);
        match link.enqueue(weir_base::Instant::ZERO, Default::default(), packet.clone()) {
            Ok(()) => accepted.push(packet),
            Err(reason) => {
                assert_eq!(reason, weir_link::LinkDrop::QueueFull);
                refused += 1;
            }
        }
        let status = face.send(&mut link).unwrap();
        link.detach_frames(&mut pool);
        assert_eq!(status == SendStatus::Drained, link.is_egress_empty());
    }
    assert!(refused > 500, "24 MB do not fit into queue and socket");
    assert!(link.queue_bytes() <= link.config().egress.queue_bytes_max);
    assert_eq!(link.counters().drops[weir_link::LinkDrop::QueueFull], refused);

    // When the reader continues, all accepted packets arrive, in order and complete.
    let total: usize = accepted.iter().map(|packet| packet.len()).sum();
    let reader = std::thread::spawn(move || {
        let mut octets = vec![0; total];
        plain.read_exact(&mut octets).unwrap();
        octets
    });
    while face.send(&mut link).unwrap() == SendStatus::WouldBlock {
        std::thread::sleep(Duration::from_micros(200));
    }
    let expected: Vec<u8> = accepted.iter().flat_map(|packet| packet.to_vec()).collect();
    assert!(reader.join().unwrap() == expected);
}

#[test]
fn socket_backlog_sets_congestion_marks() {
    let (_plain, mut face) = server().plain_pair();
    let mut link = weir_link::Link::new(LinkConfig::stream());
    let mut at_ms = 0;
    // Far less than the socket accepts, but all of it stays there.
    for index in 0..60 {
        at_ms += 10;
        let now = weir_base::Instant::from_ns(at_ms * weir_base::NS_PER_MS);
        link.enqueue(now, Default::default(), data(3000, index)).unwrap();
        assert_eq!(face.send(&mut link).unwrap(), SendStatus::Drained);
    }
    assert!(link.counters().marks_set > 0);
}

#[test]
fn framing_error_follows_the_good_frames() {
    let server = server();
    let mut pool = Pool::new(1 << 20);
    let good = data(50, 1);
    let too_long = [&good[..], &[6, 254, 0, 1, 0, 0]].concat();
    let wrong_type = [&good[..], &[7, 0]].concat();
    let garbage = [&good[..], &[0xa5; 9000]].concat();
    for (octets, error) in [
        (too_long, FrameError::TooLong(65_542)),
        (wrong_type, FrameError::UnexpectedType(7)),
        (garbage, FrameError::UnexpectedType(0xa5)),
    ] {
        let (mut plain, mut face) = server.plain_pair();
        plain.write_all(&octets).unwrap();
        let mut frames = Vec::new();
        let status = face.recv(&mut pool, &mut frames).unwrap();
        assert_eq!(status, RecvStatus::FramingLost(error));
        assert_eq!(frames, std::slice::from_ref(&good));
    }
    // Other faces are not affected.
    let (mut plain, mut face) = server.plain_pair();
    plain.write_all(&good).unwrap();
    assert_eq!(receive(&mut face, &mut pool, 1), [good]);
}

#[test]
fn close_follows_the_last_frames() {
    let server = server();
    let mut pool = Pool::new(1 << 20);
    let (mut plain, mut face) = server.plain_pair();
    plain.write_all(&data(50, 1)).unwrap();
    plain.write_all(&data(50, 1)[..20]).unwrap();
    drop(plain);
    let mut frames = Vec::new();
    assert_eq!(face.recv(&mut pool, &mut frames).unwrap(), RecvStatus::Closed);
    assert_eq!(frames.len(), 1);

    let mut link = link_with(&[data(50, 1)], LinkConfig::stream());
    let error = face.send(&mut link).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let mut plain = TcpStream::connect(listener.local_addr()).unwrap();
    let mut face = listener.accept().unwrap().unwrap();
    plain.write_all(&data(8000, 1)).unwrap();
    drop(plain);
    frames.clear();
    assert_eq!(face.recv(&mut pool, &mut frames).unwrap(), RecvStatus::Closed);
    assert_eq!(frames.len(), 1);
}

#[test]
fn frames_of_one_read_share_their_block() {
    let (mut near, mut far) = server().pair();
    let packets = [data(3000, 1), data(3000, 2), data(3000, 3)];
    let mut link = link_with(&packets, LinkConfig::stream());
    near.send(&mut link).unwrap();
    let frames = receive(&mut far, &mut Pool::new(1 << 20), 3);
    for pair in frames.windows(2) {
        assert_eq!(pair[0].as_ptr_range().end, pair[1].as_ptr());
    }
}

#[test]
fn faces_know_their_addresses_and_scope() {
    let server = server();
    let (near, far) = server.pair();
    let path = FaceUri::Unix(server.listener.path().to_owned());
    assert_eq!((near.remote_uri(), far.local_uri()), (&path, &path));
    assert!(matches!((near.local_uri(), far.remote_uri()), (FaceUri::Fd(_), FaceUri::Fd(_))));
    assert!(near.is_local() && far.is_local());

    let (near, far, listener) = tcp_pair(Ipv4Addr::LOCALHOST.into());
    assert_eq!(near.remote_uri(), &listener.local_uri());
    assert_eq!(near.local_uri(), far.remote_uri());
    assert!(near.is_local() && far.is_local());
}

#[test]
fn connect_times_out_on_a_full_backlog() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let listener =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    listener.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    listener.listen(0).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match Connected::to(&FaceUri::Unix(path.clone()), Duration::from_millis(50)) {
            Ok(connected) => waiting.push(connected),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    // Accepting a connection makes room for another.
    listener.accept().unwrap();
    Connected::to(&FaceUri::Unix(path), Duration::from_secs(60)).unwrap();
}

#[test]
fn refused_tcp_connection_is_an_error() {
    let address = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        listener.local_addr()
    };
    let result = Connected::to(&FaceUri::Tcp(address), Duration::from_secs(1));
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn thousands_of_faces_work_at_once() {
    let files = weir_face::raise_file_limit().unwrap();
    let count = 4000.min((files as usize).saturating_sub(500) / 2);
    assert!(count >= 100, "this test needs some open files, the limit is {files}");
    let server = server();
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push(server.pair());
    }
    let mut pool = Pool::new(8 << 20);
    for (index, (near, far)) in pairs.iter_mut().enumerate() {
        let packet = data(100 + index % 50, index);
        let mut link = link_with(std::slice::from_ref(&packet), LinkConfig::stream());
        near.send(&mut link).unwrap();
        let frames = receive(far, &mut pool, 1);
        assert_eq!(packets_of(frames), [packet]);
    }
}
