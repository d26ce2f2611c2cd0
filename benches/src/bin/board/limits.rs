//! Limits of the machine, measured in the same run: costs that no program can avoid.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cpu_time::ThreadTime;
use nix::sys::socket::{setsockopt, sockopt};
use weir_benches::median;

use crate::programs::{Programs, number};
use crate::record::Figure;

/// Content bytes of one Data. All limits refer to this size.
const OCTETS: usize = 8000;
/// Data in one system call: the most that UDP accepts.
const BATCH: usize = 8;
/// Size of a shared-memory ring.
const RING_BYTES: usize = 512 << 10;
const ROUNDS: usize = 9;
const TIME_PER_ROUND: Duration = Duration::from_millis(100);
/// Larger than the caches of one core.
const MEMORY_BYTES: usize = 64 << 20;

/// Processor time for 8000 bytes in us, unless stated otherwise.
pub(crate) struct Limits {
    pub(crate) copy_us: f64,
    /// The same, into a ring that another processor reads.
    pub(crate) ring_us: f64,
    pub(crate) touch_us: f64,
    pub(crate) unix_send_us: f64,
    /// For bytes that are not in the core's caches, like those of a store.
    pub(crate) unix_send_stored_us: f64,
    pub(crate) unix_receive_us: f64,
    pub(crate) udp_send_us: f64,
    pub(crate) udp_receive_us: f64,
    pub(crate) sha256_us: f64,
    pub(crate) ecdsa_us: f64,
    pub(crate) cores: f64,
}

impl Limits {
    pub(crate) fn measure(programs: &Programs) -> Result<Self> {
        let (unix_send_us, unix_receive_us) = alternate(&mut unix(BATCH)?)?;
        let (unix_send_stored_us, _) = alternate(&mut unix(MEMORY_BYTES / OCTETS)?)?;
        let (udp_send_us, udp_receive_us) = alternate(&mut udp()?)?;
        let (touch_us, copy_us) = memory();
        let words = ["--json", "ecdsa", "sha256 x16"];
        let speeds = programs.json("speed", &words)?;
        let us =
            |row: &str| Ok::<_, anyhow::Error>(1e6 / number(&speeds, &[row, "verifies_per_s"])?);
        Ok(Self {
            copy_us,
            ring_us: ring(),
            touch_us,
            unix_send_us,
            unix_send_stored_us,
            unix_receive_us,
            udp_send_us,
            udp_receive_us,
            sha256_us: us("sha256 x16, 8000")?,
            ecdsa_us: us("ecdsa, 8000")?,
            cores: std::thread::available_parallelism()?.get() as f64,
        })
    }

    /// Rate in Gbit/s for Data that take `us` of processor time each, with all processors busy.
    pub(crate) fn gbps(&self, us: f64) -> f64 {
        OCTETS as f64 * 8e-3 * self.cores / us
    }

    /// Minimum processor time of a verifying consumer for one Data over Unix.
    pub(crate) fn consumer_us(&self) -> f64 {
        self.unix_receive_us + self.sha256_us
    }

    /// The limits with names, for the record.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let figures = [
            ("copy 8000 octets", self.copy_us),
            ("copy 8000 octets for another processor", self.ring_us),
            ("touch 8192 octets first", self.touch_us),
            ("Unix socket, send 8000 octets", self.unix_send_us),
            ("Unix socket, send 8000 octets of a store", self.unix_send_stored_us),
            ("Unix socket, receive 8000 octets", self.unix_receive_us),
            ("UDP with GSO, send 8000 octets", self.udp_send_us),
            ("UDP with GRO, receive 8000 octets", self.udp_receive_us),
            ("SHA-256, 8000 octets, 16 side by side", self.sha256_us),
            ("ECDSA P-256, verify 8000 octets", self.ecdsa_us),
        ];
        figures.map(|(name, us)| Figure::new(name, "us", us)).into()
    }
}

/// Two connected non-blocking sockets of this process.
trait SocketPair {
    /// Sends some bytes; returns 0 if there is no space.
    fn send(&mut self) -> std::io::Result<usize>;
    /// Receives some bytes; returns 0 if there are none.
    fn receive(&mut self) -> std::io::Result<usize>;
}

struct UnixEnds {
    near: UnixStream,
    far: UnixStream,
    octets: Vec<Vec<u8>>,
    next: usize,
    received: Vec<Vec<u8>>,
}

/// `count`: number of different buffers that are sent in turn.
fn unix(count: usize) -> Result<UnixEnds> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let octets = |count| vec![vec![7; OCTETS]; count];
    Ok(UnixEnds { near, far, octets: octets(count), next: 0, received: octets(BATCH) })
}

impl SocketPair for UnixEnds {
    fn send(&mut self) -> std::io::Result<usize> {
        let octets = &self.octets[self.next..self.next + BATCH];
        self.next = (self.next + BATCH) % (self.octets.len() / BATCH * BATCH);
        let slices: Vec<_> = octets.iter().map(|octets| IoSlice::new(octets)).collect();
        self.near.write_vectored(&slices)
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        let buffers = self.received.iter_mut();
        let mut slices: Vec<_> = buffers.map(|octets| IoSliceMut::new(octets)).collect();
        self.far.read_vectored(&mut slices)
    }
}

struct UdpEnds {
    near: UdpSocket,
    far: UdpSocket,
    octets: Vec<u8>,
}

fn udp() -> Result<UdpEnds> {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.set_nonblocking(true)?;
    setsockopt(&near, sockopt::UdpGsoSegment, &(OCTETS as i32))
        .context("the kernel segments no datagrams")?;
    setsockopt(&far, sockopt::UdpGroSegment, &true).context("the kernel joins no datagrams")?;
    Ok(UdpEnds { near, far, octets: vec![7; BATCH * OCTETS] })
}

impl SocketPair for UdpEnds {
    fn send(&mut self) -> std::io::Result<usize> {
        self.near.send(&self.octets)
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        self.far.recv(&mut self.octets)
    }
}

/// Median processor time to send and to receive 8000 bytes, in us. In each round, two calls send
/// and as many as necessary receive, so that neither side waits and no buffer overflows.
fn alternate(ends: &mut dyn SocketPair) -> Result<(f64, f64)> {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
        let mut octets = 0_usize;
        while sending + receiving < TIME_PER_ROUND {
            let mut under_way = 0;
            let start = ThreadTime::now();
            for _ in 0..2 {
                under_way += none_if_blocked(ends.send())?;
            }
            sending += start.elapsed();
            ensure!(under_way > 0, "a socket without anything in it takes nothing");
            octets += under_way;
            let start = ThreadTime::now();
            loop {
                match none_if_blocked(ends.receive())? {
                    0 => break,
                    received => under_way = under_way.saturating_sub(received),
                }
                if under_way == 0 {
                    break;
                }
            }
            receiving += start.elapsed();
        }
        let us = |time: Duration| time.as_secs_f64() * 1e6 * OCTETS as f64 / octets as f64;
        sends.push(us(sending));
        receives.push(us(receiving));
    }
    Ok((median(sends), median(receives)))
}

fn none_if_blocked(result: std::io::Result<usize>) -> std::io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Processor time to copy 8000 bytes from memory into a ring that another processor reads.
fn ring() -> f64 {
    let (mut writer, mut reader) = rtrb::RingBuffer::<u8>::new(RING_BYTES);
    let reading = std::thread::spawn(move || {
        let mut octets = vec![0; RING_BYTES];
        while !reader.is_abandoned() {
            let Ok(chunk) = reader.read_chunk(reader.slots()) else { continue };
            let (first, second) = chunk.as_slices();
            octets[..first.len()].copy_from_slice(first);
            octets[first.len()..first.len() + second.len()].copy_from_slice(second);
            chunk.commit_all();
            // Keeps the compiler from removing the copy.
            std::hint::black_box(&mut octets);
        }
    });
    let source = vec![7_u8; MEMORY_BYTES];
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (mut copying, mut copied) = (Duration::ZERO, 0);
        for batch in source.chunks_exact(BATCH * OCTETS) {
            while writer.slots() < batch.len() {
                std::thread::yield_now();
            }
            let start = ThreadTime::now();
            for octets in batch.chunks_exact(OCTETS) {
                let mut chunk = writer.write_chunk(OCTETS).expect("there is room");
                let (first, second) = chunk.as_mut_slices();
                let (to_first, to_second) = octets.split_at(first.len());
                first.copy_from_slice(to_first);
                second.copy_from_slice(to_second);
                chunk.commit_all();
            }
            copying += start.elapsed();
            copied += BATCH;
        }
        rounds.push(copying.as_secs_f64() * 1e6 / copied as f64);
    }
    drop(writer);
    reading.join().expect("it only copies");
    median(rounds)
}

/// Processor time to touch 8192 bytes of new memory, and to copy 8000 bytes from memory.
fn memory() -> (f64, f64) {
    let (mut touches, mut copies) = (Vec::new(), Vec::new());
    let source = vec![7_u8; MEMORY_BYTES];
    for _ in 0..ROUNDS {
        let start = ThreadTime::now();
        let mut target = Vec::with_capacity(MEMORY_BYTES);
        target.resize(MEMORY_BYTES, 1_u8);
        let us = |time: Duration| time.as_secs_f64() * 1e6 / (MEMORY_BYTES / 8192) as f64;
        touches.push(us(start.elapsed()));
        let start = ThreadTime::now();
        for (from, to) in source.chunks_exact(8192).zip(target.chunks_exact_mut(8192)) {
            to[..OCTETS].copy_from_slice(&from[..OCTETS]);
        }
        std::hint::black_box(&target);
        copies.push(us(start.elapsed()));
    }
    (median(touches), median(copies))
}
