//! In the steady state, no packet costs an allocation on its way through the sockets.

use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, UdpOptions, UdpPort, UnixAccess, UnixListener};
use weir_io_fixture::face::{connect, data};
use weir_link::{Link, LinkConfig};

const BATCH: usize = 8;

fn enqueue_batch(link: &mut Link, packet: &Packet) {
    for _ in 0..BATCH {
        link.enqueue(Instant::ZERO, Default::default(), packet.clone()).unwrap();
    }
}

#[test]
fn stream_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let listener =
        UnixListener::bind(&directory.path().join("nfd.sock"), UnixAccess::default()).unwrap();
    let mut near = connect(&FaceUri::Unix(listener.path().into()));
    let mut far = listener.accept().unwrap().unwrap();
    let mut link = Link::new(LinkConfig::stream());
    let mut pool = Pool::new(16 << 20);
    let mut frames = Vec::with_capacity(64);
    for len in [40, 8000] {
        let packet = data(len, 1);
        let mut exchange = |rounds: usize| {
            for _ in 0..rounds {
                enqueue_batch(&mut link, &packet);
                near.send(&mut link).unwrap();
                while frames.len() < BATCH {
                    far.recv(&mut pool, &mut frames).unwrap();
                }
                frames.clear();
            }
        };
        exchange(200);
        let info = allocation_counter::measure(|| exchange(200));
        assert_eq!(info.count_total, 0, "with packets of {len} bytes");
    }
}

#[test]
fn udp_port_allocates_nothing() {
    let any = ([127, 0, 0, 1], 0).into();
    let mut near = UdpPort::bind(any, &UdpOptions::default()).unwrap();
    let mut far = UdpPort::bind(any, &UdpOptions::default()).unwrap();
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut pool = Pool::new(16 << 20);
    let mut datagrams = Vec::with_capacity(64);
    for len in [40, 1400, 8000] {
        let packet = data(len, 1);
        let mut exchange = |rounds: usize| {
            for _ in 0..rounds {
                enqueue_batch(&mut link, &packet);
                near.send(far.local_addr().into(), &mut link).unwrap();
                while datagrams.len() < BATCH {
                    far.recv(&mut pool, &mut datagrams).unwrap();
                }
                datagrams.clear();
            }
        };
        exchange(200);
        let info = allocation_counter::measure(|| exchange(200));
        assert_eq!(info.count_total, 0, "with packets of {len} bytes");
    }
}
