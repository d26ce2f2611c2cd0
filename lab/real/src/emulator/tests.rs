use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use weir_base::{Instant, Packet, Pool};
use weir_face::{Datagram, UdpOptions, UdpPort};
use weir_netem::{Jitter, LinkConfig, LinkModel, Loss, Transit};

use super::*;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Far longer than these tests take, so only a hang reaches it.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// An emulator on its own thread, with a socket at each side.
struct EmulatorFixture {
    near: UdpPort,
    far: UdpPort,
    to_far: SocketAddr,
    to_near: SocketAddr,
    control: Arc<EmulatorControl>,
    thread: JoinHandle<Result<EmulatorStats, EmulatorError>>,
    pool: Pool,
}

impl EmulatorFixture {
    /// Side b is known from the start; side a is learned.
    fn new(link: LinkConfig) -> Self {
        let far = UdpPort::bind(ANY, &UdpOptions::default()).unwrap();
        let ends = UdpEnds { peer_b: Some(far.local_addr()), ..UdpEnds::new(ANY, ANY) };
        let emulator = Emulator::bind(ends, EmulatorConfig::symmetric(link)).unwrap();
        let (to_far, to_near) = (emulator.local_a(), emulator.local_b());
        let control = Arc::new(EmulatorControl::default());
        let its_control = control.clone();
        Self {
            near: UdpPort::bind(ANY, &UdpOptions::default()).unwrap(),
            far,
            to_far,
            to_near,
            control,
            thread: std::thread::spawn(move || emulator.run_controlled(&its_control)),
            pool: Pool::new(8 << 20),
        }
    }

    fn send(&mut self, frames: &[Packet]) {
        let sent = self.near.send_frames(self.to_far.into(), frames).unwrap();
        assert_eq!(sent.done, frames.len());
    }

    /// Receives `count` datagrams at side b.
    fn receive(&mut self, count: usize) -> Vec<Datagram> {
        receive(&mut self.far, &mut self.pool, count)
    }

    fn stop(self) -> EmulatorStats {
        self.control.stop.store(true, Ordering::Relaxed);
        let stats = self.thread.join().unwrap().unwrap();
        for direction in [&stats.a_to_b, &stats.b_to_a] {
            let accounted =
                direction.sent_frames + direction.in_flight_frames + direction.dropped_frames();
            assert_eq!(direction.received_frames, accounted, "{direction:?}");
            assert_eq!(direction.dropped_socket, 0, "{direction:?}");
        }
        stats
    }
}

fn receive(port: &mut UdpPort, pool: &mut Pool, count: usize) -> Vec<Datagram> {
    let mut datagrams = Vec::new();
    let end = Clock::now() + WAIT_MAX;
    while datagrams.len() < count {
        assert!(Clock::now() < end, "{} of {count} came", datagrams.len());
        let before = datagrams.len();
        port.recv(pool, &mut datagrams).unwrap();
        if datagrams.len() == before {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    assert_eq!(datagrams.len(), count);
    datagrams
}

/// A frame that contains its number.
fn frame(number: u32, len: usize) -> Packet {
    let mut octets = vec![number as u8; len.max(4)];
    octets[..4].copy_from_slice(&number.to_be_bytes());
    Packet::from(octets)
}

fn number(datagram: &Datagram) -> u32 {
    u32::from_be_bytes(datagram.frame[..4].try_into().unwrap())
}

#[test]
fn frames_keep_order_delay_and_rate() {
    let (rate_bps, delay_ns) = (40_000_000, 5_000_000);
    let mut rig = EmulatorFixture::new(LinkConfig {
        rate_bps: Some(rate_bps),
        delay_ns,
        jitter: Jitter::Uniform { max_ns: 2_000_000 },
        ..LinkConfig::default()
    });
    let frames: Vec<Packet> = (0..300).map(|n| frame(n, 20 + (n as usize * 37) % 1400)).collect();
    let start = Clock::now();
    let mut sent_bytes = 0;
    for (index, chunk) in frames.chunks(30).enumerate() {
        rig.send(chunk);
        sent_bytes += chunk.iter().map(|frame| frame.len() as u128).sum::<u128>();
        for (datagram, sent) in rig.receive(chunk.len()).iter().zip(chunk) {
            assert_eq!(datagram.frame, *sent, "chunk {index}");
            assert_eq!(datagram.path.remote, rig.to_near);
        }
        let least_ns = sent_bytes * 8_000_000_000 / u128::from(rate_bps)
            + (index as u128 + 1) * u128::from(delay_ns);
        // A late sender only increases the time.
        let elapsed_ns = start.elapsed().as_nanos();
        assert!(elapsed_ns * 100 >= least_ns * 99, "{elapsed_ns} ns, at least {least_ns} ns");
    }
    let stats = rig.stop();
    assert_eq!((stats.a_to_b.received_frames, stats.a_to_b.sent_frames), (300, 300));
    assert_eq!(u128::from(stats.a_to_b.sent_bytes), sent_bytes);
    let lateness = stats.a_to_b.lateness;
    assert!(lateness.p50_ns > 0 && lateness.p50_ns <= lateness.p99_ns);
    assert!(lateness.p99_ns <= lateness.max_ns);
    assert!(stats.processor_ns > 0 && stats.duration_ns > 0);
}

/// The seed alone determines which frames are lost, the same ones as in the model.
#[test]
fn model_losses_are_applied() {
    let link = LinkConfig {
        delay_ns: 100_000,
        loss: Loss::GilbertElliott {
            good_to_bad: 0.1,
            bad_to_good: 0.3,
            loss_good: 0.01,
            loss_bad: 0.8,
        },
        ..LinkConfig::default()
    };
    let mut model = LinkModel::new(link.clone(), 1);
    let mut rig = EmulatorFixture::new(link);
    let mut lost = 0;
    for first in (0..2_000).step_by(50) {
        let frames: Vec<Packet> = (first..first + 50).map(|n| frame(n, 100)).collect();
        let survives = |_: &u32| matches!(model.send(Instant::ZERO, 100), Transit::Arrives(_));
        let expected: Vec<u32> = (first..first + 50).filter(survives).collect();
        lost += 50 - expected.len() as u64;
        rig.send(&frames);
        let arrived: Vec<u32> = rig.receive(expected.len()).iter().map(number).collect();
        assert_eq!(arrived, expected);
    }
    assert!(lost > 200, "{lost}");
    assert_eq!(rig.stop().a_to_b.dropped_loss, lost);
}

/// One system call sends several datagrams, and one receives them. They leave as separate
/// datagrams.
#[test]
fn datagram_runs_are_split_and_queue_is_bounded() {
    let mut rig = EmulatorFixture::new(LinkConfig { delay_ns: 1_000, ..LinkConfig::default() });
    let mut frames: Vec<Packet> = (0..40).map(|n| frame(n, 1_200)).collect();
    frames.push(frame(40, 700));
    rig.send(&frames);
    let arrived: Vec<Packet> = rig.receive(41).into_iter().map(|datagram| datagram.frame).collect();
    assert_eq!(arrived, frames);
    rig.stop();

    // A run of datagrams arrives at one time: one frame is sent, and five wait.
    let mut rig = EmulatorFixture::new(LinkConfig {
        rate_bps: Some(1_000_000),
        queue_packets_max: 5,
        ..LinkConfig::default()
    });
    let frames: Vec<Packet> = (0..50).map(|n| frame(n, 1_000)).collect();
    rig.send(&frames);
    let arrived: Vec<u32> = rig.receive(6).iter().map(number).collect();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5]);
    let stats = rig.stop();
    assert_eq!((stats.a_to_b.dropped_queue_packets, stats.a_to_b.queue_packets_peak), (44, 5));
}

/// Ends the emulator if a test fails in the scope that waits for it.
struct StopOnDrop<'a>(&'a EmulatorControl);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn learns_peer_and_drops_foreign_frames() {
    let emulator =
        Emulator::bind(UdpEnds::new(ANY, ANY), EmulatorConfig::symmetric(LinkConfig::default()))
            .unwrap();
    let (at_a, at_b) = (emulator.local_a(), emulator.local_b());
    let control = EmulatorControl::default();
    let stats = std::thread::scope(|scope| {
        let stop = StopOnDrop(&control);
        let thread = scope.spawn(|| emulator.run_controlled(&control));
        let [near, far, stranger] = std::array::from_fn(|_| {
            let socket = UdpSocket::bind(ANY).unwrap();
            socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
            socket
        });
        let expect = |socket: &UdpSocket, text: &[u8], from: SocketAddr| {
            let mut octets = [0; 100];
            let (len, sender) = socket.recv_from(&mut octets).unwrap();
            assert_eq!((&octets[..len], sender), (text, from));
        };
        // No peer is known at b. Port a is read first, so this frame is lost in any case.
        near.send_to(b"early", at_a).unwrap();
        far.send_to(b"hello", at_b).unwrap();
        expect(&near, b"hello", at_a);
        stranger.send_to(b"let me in", at_a).unwrap();
        near.send_to(b"welcome", at_a).unwrap();
        expect(&far, b"welcome", at_b);
        drop(stop);
        thread.join().unwrap().unwrap()
    });
    assert_eq!((stats.a_to_b.dropped_no_peer, stats.b_to_a.dropped_no_peer), (1, 0));
    assert_eq!((stats.a_to_b.strangers, stats.b_to_a.strangers), (1, 0));
    assert_eq!((stats.a_to_b.sent_frames, stats.b_to_a.sent_frames), (1, 1));
}

#[test]
fn down_link_loses_frames_in_flight() {
    // The delay exceeds the test's duration, so the frame is in flight when the link goes down.
    let mut rig =
        EmulatorFixture::new(LinkConfig { delay_ns: 3_600_000_000_000, ..LinkConfig::default() });
    rig.send(&[frame(0, 50)]);
    let wait_out = || std::thread::sleep(Duration::from_millis(100));
    wait_out();
    rig.control.a_to_b_is_up.store(false, Ordering::Relaxed);
    wait_out();
    rig.send(&[frame(1, 50)]);
    wait_out();
    rig.control.a_to_b_is_up.store(true, Ordering::Relaxed);
    wait_out();
    rig.send(&[frame(2, 50)]);
    wait_out();
    let stats = rig.stop();
    assert_eq!(stats.a_to_b.received_frames, 3);
    assert!(stats.a_to_b.dropped_down >= 1, "{stats:?}");
    assert_eq!(stats.a_to_b.sent_frames, 0);
}

#[test]
fn invalid_emulators_are_rejected_with_reason() {
    let fine = EmulatorConfig::symmetric(LinkConfig::default());
    let mut config = fine.clone();
    config.b_to_a = LinkConfig { rate_bps: Some(0), ..LinkConfig::default() };
    let error = Emulator::bind(UdpEnds::new(ANY, ANY), config).unwrap_err().to_string();
    assert!(error.contains("b to a") && error.contains("rate of 0"), "{error}");

    let taken = UdpSocket::bind(ANY).unwrap();
    let ends = UdpEnds::new(ANY, taken.local_addr().unwrap());
    let error = Emulator::bind(ends, fine.clone()).unwrap_err().to_string();
    assert!(error.contains(&taken.local_addr().unwrap().to_string()), "{error}");

    let peer_a = Some("[::1]:9".parse().unwrap());
    let error = Emulator::bind(UdpEnds { peer_a, ..UdpEnds::new(ANY, ANY) }, fine);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("[::1]:9") && error.contains("IPv6"), "{error}");
}
