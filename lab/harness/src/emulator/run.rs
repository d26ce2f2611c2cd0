use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use weir_base::Pool;
use weir_face::{Datagram, UdpOptions, UdpPort};

use super::config::{EmulatorConfig, EmulatorError};
use super::direction::Direction;
use super::stats::EmulatorStats;

/// How long the thread sleeps at most, and so how late it notices that it should stop.
const SLEEP_NS_MAX: u64 = 10_000_000;
/// Receive buffer: what comes while this thread has no processor, 30 ms at 1 Gbit/s, and what the
/// system adds for each datagram.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
const POOL_BYTES_MAX: usize = 64 << 20;
/// Batches read from one socket before frames that are due get their turn.
const BATCHES_MAX: usize = 4;

/// What can be done to a running emulator from another thread. Takes effect within 10 ms.
#[derive(Debug)]
pub struct Control {
    /// Set to end [`Emulator::run`].
    pub stop: AtomicBool,
    /// Whether the link from a to b is up. Taking it down loses what is on it.
    pub a_to_b_is_up: AtomicBool,
    /// Whether the link from b to a is up.
    pub b_to_a_is_up: AtomicBool,
    /// The share of its rate that the link has, both ways, in thousandths.
    pub rate_permille: AtomicU32,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            stop: AtomicBool::new(false),
            a_to_b_is_up: AtomicBool::new(true),
            b_to_a_is_up: AtomicBool::new(true),
            rate_permille: AtomicU32::new(1000),
        }
    }
}

/// One side: its port, who is there, and when the latest datagram came from there.
struct Side {
    port: UdpPort,
    peer: Option<SocketAddr>,
    latest_ns: u64,
}

/// A link between two UDP ports, see [the module](super).
pub struct Emulator {
    a: Side,
    b: Side,
    a_to_b: Direction,
    b_to_a: Direction,
    config: EmulatorConfig,
    pool: Pool,
    datagrams: Vec<Datagram>,
    start: Clock,
}

/// Emulates a link until `stop` is set.
///
/// # Errors
/// A configuration that cannot be, a port that cannot be had, a socket that breaks.
pub fn run(config: EmulatorConfig, stop: &AtomicBool) -> Result<EmulatorStats, EmulatorError> {
    Emulator::bind(config)?.run(stop)
}

impl Emulator {
    /// Checks the configuration and takes the ports.
    ///
    /// # Errors
    /// As [`run`], before anything is forwarded.
    pub fn bind(config: EmulatorConfig) -> Result<Self, EmulatorError> {
        for (direction, link) in [("a to b", &config.a_to_b), ("b to a", &config.b_to_a)] {
            link.check().map_err(|source| EmulatorError::Config { direction, source })?;
        }
        let a = bind_side(config.a, config.peer_a)?;
        let b = bind_side(config.b, config.peer_b)?;
        let bytes_max = config.in_flight_bytes_max;
        Ok(Self {
            a_to_b: Direction::new(config.a_to_b.clone(), config.seed, bytes_max),
            // Another stream of draws, as the other direction may be configured alike.
            b_to_a: Direction::new(config.b_to_a.clone(), !config.seed, bytes_max),
            a,
            b,
            pool: Pool::new(bytes_max.min(POOL_BYTES_MAX)),
            datagrams: Vec::with_capacity(4_096),
            start: Clock::now(),
            config,
        })
    }

    /// The address that side a sends to.
    pub fn local_a(&self) -> SocketAddr {
        self.a.port.local_addr()
    }

    /// The address that side b sends to.
    pub fn local_b(&self) -> SocketAddr {
        self.b.port.local_addr()
    }

    /// Forwards until `stop` is set. The calling thread's timer slack is 1 ns meanwhile.
    ///
    /// # Errors
    /// A socket that breaks.
    pub fn run(self, stop: &AtomicBool) -> Result<EmulatorStats, EmulatorError> {
        self.run_while(|_, _| !stop.load(Ordering::Relaxed))
    }

    /// As [`run`](Self::run), with links that can be taken down and up and be slowed down.
    ///
    /// # Errors
    /// A socket that breaks.
    pub(crate) fn run_controlled(self, control: &Control) -> Result<EmulatorStats, EmulatorError> {
        self.run_while(|a_to_b, b_to_a| {
            a_to_b.set_up(control.a_to_b_is_up.load(Ordering::Relaxed));
            b_to_a.set_up(control.b_to_a_is_up.load(Ordering::Relaxed));
            let rate_share = f64::from(control.rate_permille.load(Ordering::Relaxed)) / 1000.0;
            a_to_b.set_rate_share(rate_share);
            b_to_a.set_rate_share(rate_share);
            !control.stop.load(Ordering::Relaxed)
        })
    }

    fn run_while(
        mut self,
        mut goes_on: impl FnMut(&mut Direction, &mut Direction) -> bool,
    ) -> Result<EmulatorStats, EmulatorError> {
        let slack_ns = nix::sys::prctl::get_timerslack();
        // Without it, wake-ups come up to 50 us late, and the statistics say so.
        let _ = nix::sys::prctl::set_timerslack(1);
        self.start = Clock::now();
        let processor_start_ns = processor_ns();
        let result = loop {
            if !goes_on(&mut self.a_to_b, &mut self.b_to_a) {
                break Ok(());
            }
            if let Err(error) = self.turn() {
                break Err(error);
            }
        };
        if let Some(slack_ns) = slack_ns.ok().and_then(|slack_ns| slack_ns.try_into().ok()) {
            let _ = nix::sys::prctl::set_timerslack(slack_ns);
        }
        result.map(|()| EmulatorStats {
            duration_ns: self.now_ns(),
            processor_ns: processor_ns().saturating_sub(processor_start_ns),
            seed: self.config.seed,
            a_to_b: self.a_to_b.stats(&self.a.port),
            b_to_a: self.b_to_a.stats(&self.b.port),
        })
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// Waits for a datagram or for a frame to be due, and does what is to be done then.
    fn turn(&mut self) -> Result<(), EmulatorError> {
        let dues_ns = [self.a_to_b.next_due_ns(), self.b_to_a.next_due_ns()];
        let next_due_ns = dues_ns.into_iter().flatten().min();
        let mut now_ns = self.now_ns();
        let wake_ns = next_due_ns.map(|due_ns| due_ns.saturating_sub(self.config.spin_ns));
        let sleep_ns = wake_ns.map_or(SLEEP_NS_MAX, |wake_ns| wake_ns.saturating_sub(now_ns));
        let (reads_a, reads_b) =
            self.wait(sleep_ns.min(SLEEP_NS_MAX)).map_err(EmulatorError::Wait)?;
        if reads_a {
            receive(
                &mut self.a,
                &mut self.a_to_b,
                self.b.peer.is_some(),
                (&mut self.pool, &mut self.datagrams, self.start),
            )?;
        }
        if reads_b {
            receive(
                &mut self.b,
                &mut self.b_to_a,
                self.a.peer.is_some(),
                (&mut self.pool, &mut self.datagrams, self.start),
            )?;
        }
        now_ns = now_ns.max(self.now_ns());
        if let Some(due_ns) = next_due_ns
            && due_ns > now_ns
            && due_ns - now_ns <= self.config.spin_ns
        {
            while now_ns < due_ns {
                std::hint::spin_loop();
                now_ns = self.now_ns();
            }
        }
        self.send_due(now_ns)
    }

    fn send_due(&mut self, now_ns: u64) -> Result<(), EmulatorError> {
        let start = self.start;
        let clock_ns = || nanoseconds(start.elapsed());
        for (direction, to) in [(&mut self.a_to_b, &mut self.b), (&mut self.b_to_a, &mut self.a)] {
            direction
                .send_due(now_ns, &mut to.port, to.peer, clock_ns)
                .map_err(|source| socket_error(&to.port, source))?;
        }
        Ok(())
    }

    /// Sleeps until a socket is ready or `sleep_ns` have passed. Says which sockets can be read.
    fn wait(&self, sleep_ns: u64) -> io::Result<(bool, bool)> {
        let interest = |is_blocked: bool| {
            if is_blocked { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN }
        };
        let mut watched = [
            PollFd::new(self.a.port.as_fd(), interest(self.b_to_a.is_blocked())),
            PollFd::new(self.b.port.as_fd(), interest(self.a_to_b.is_blocked())),
        ];
        let timeout = TimeSpec::from(Duration::from_nanos(sleep_ns));
        match ppoll(&mut watched, Some(timeout), None) {
            Ok(_) => {}
            // A signal; whoever caught it sets the flag to stop.
            Err(Errno::EINTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        // An error that waits at the socket is taken by reading it.
        let readable = PollFlags::POLLIN | PollFlags::POLLERR;
        let can_read = |watched: &PollFd<'_>| {
            watched.revents().is_some_and(|events| events.intersects(readable))
        };
        Ok((can_read(&watched[0]), can_read(&watched[1])))
    }
}

/// Reads what waits at `side` into `direction`.
fn receive(
    side: &mut Side,
    direction: &mut Direction,
    has_peer: bool,
    (pool, datagrams, start): (&mut Pool, &mut Vec<Datagram>, Clock),
) -> Result<(), EmulatorError> {
    for _ in 0..BATCHES_MAX {
        let status =
            side.port.recv(pool, datagrams).map_err(|source| socket_error(&side.port, source))?;
        let now_ns = nanoseconds(start.elapsed());
        let now_unix_ns = unix_ns();
        for datagram in datagrams.drain(..) {
            if *side.peer.get_or_insert(datagram.peer) != datagram.peer {
                direction.count_stranger();
                continue;
            }
            // By how long ago it was; a step of the wall clock in between is bounded on both sides.
            let taken_in_unix_ns = datagram.taken_in_unix_ns.unwrap_or(now_unix_ns);
            let age_ns = now_unix_ns.saturating_sub(taken_in_unix_ns);
            side.latest_ns = side.latest_ns.max(now_ns.saturating_sub(age_ns));
            direction.accept(side.latest_ns, datagram.frame, has_peer);
        }
        if status != weir_face::RecvStatus::More {
            break;
        }
    }
    Ok(())
}

fn bind_side(address: SocketAddr, peer: Option<SocketAddr>) -> Result<Side, EmulatorError> {
    let options = UdpOptions {
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        timestamps: true,
        ..UdpOptions::default()
    };
    if let Some(peer) = peer.filter(|peer| peer.is_ipv4() != address.is_ipv4()) {
        return Err(EmulatorError::Family { port: address, peer });
    }
    let port = UdpPort::bind(address, &options)
        .map_err(|source| EmulatorError::Bind { address, source })?;
    Ok(Side { port, peer, latest_ns: 0 })
}

fn socket_error(port: &UdpPort, source: io::Error) -> EmulatorError {
    EmulatorError::Socket { address: port.local_addr(), source }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanoseconds)
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| nanoseconds(Duration::from(time)))
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator")
            .field("a", &self.a.port)
            .field("b", &self.b.port)
            .finish_non_exhaustive()
    }
}
