use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use weir_base::Pool;

use super::config::{EmulatorConfig, EmulatorError, UdpEnds};
use super::direction::Direction;
use super::port::{Arrival, UdpEnd};
use super::stats::EmulatorStats;

/// Maximum sleep of the thread, which also bounds the delay of a stop.
const SLEEP_NS_MAX: u64 = 10_000_000;
const POOL_BYTES_MAX: usize = 64 << 20;
/// Batches read from one port before due frames are sent.
const BATCHES_MAX: usize = 4;

/// Controls a running emulator from another thread. Changes take effect within 10 ms.
#[derive(Debug)]
pub(crate) struct EmulatorControl {
    /// Set to end [`Emulator::run`].
    pub stop: AtomicBool,
    /// Whether the link from a to b is up. Going down loses the frames in flight.
    pub a_to_b_is_up: AtomicBool,
    /// Whether the link from b to a is up.
    pub b_to_a_is_up: AtomicBool,
    /// The fraction of its rate that the link has in both directions, in thousandths.
    pub rate_permille: AtomicU32,
}

impl Default for EmulatorControl {
    fn default() -> Self {
        Self {
            stop: AtomicBool::new(false),
            a_to_b_is_up: AtomicBool::new(true),
            b_to_a_is_up: AtomicBool::new(true),
            rate_permille: AtomicU32::new(1000),
        }
    }
}

/// One side: its port, and the time of its latest frame.
#[derive(Debug)]
struct EmulatorSide {
    port: UdpEnd,
    latest_ns: u64,
}

/// A link between two UDP ports, see [the module](super).
pub struct Emulator {
    a: EmulatorSide,
    b: EmulatorSide,
    a_to_b: Direction,
    b_to_a: Direction,
    config: EmulatorConfig,
    pool: Pool,
    arrivals: Vec<Arrival>,
    start: Clock,
}

impl Emulator {
    /// Checks the configuration and binds both ports.
    ///
    /// # Errors
    /// The configuration is invalid, or a port cannot be bound.
    pub fn bind(ends: UdpEnds, config: EmulatorConfig) -> Result<Self, EmulatorError> {
        check(&config)?;
        let a = UdpEnd::bind(ends.a, ends.peer_a)?;
        let b = UdpEnd::bind(ends.b, ends.peer_b)?;
        let bytes_max = config.in_flight_bytes_max;
        Ok(Self {
            a_to_b: Direction::new(config.a_to_b.clone(), config.seed, bytes_max),
            // Another random stream, because both directions may have equal configurations.
            b_to_a: Direction::new(config.b_to_a.clone(), !config.seed, bytes_max),
            a: EmulatorSide { port: a, latest_ns: 0 },
            b: EmulatorSide { port: b, latest_ns: 0 },
            pool: Pool::new(bytes_max.min(POOL_BYTES_MAX)),
            arrivals: Vec::with_capacity(4_096),
            start: Clock::now(),
            config,
        })
    }

    /// Sets the peers if they were unknown when the ports were bound.
    pub(crate) fn set_peers(&mut self, a: SocketAddr, b: SocketAddr) -> Result<(), EmulatorError> {
        self.a.port.set_peer(a)?;
        self.b.port.set_peer(b)
    }

    /// The address that side a sends to.
    pub fn local_a(&self) -> SocketAddr {
        self.a.port.local_addr()
    }

    /// The address that side b sends to.
    pub fn local_b(&self) -> SocketAddr {
        self.b.port.local_addr()
    }

    /// Forwards until `stop` is set. The calling thread's timer slack is 1 ns until then.
    pub fn run(self, stop: &AtomicBool) -> Result<EmulatorStats, EmulatorError> {
        self.run_while(|_, _| !stop.load(Ordering::Relaxed))
    }

    /// As [`run`](Self::run), with links that can go down and slow down.
    pub(crate) fn run_controlled(
        self,
        control: &EmulatorControl,
    ) -> Result<EmulatorStats, EmulatorError> {
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
        // Without it, wake-ups are up to 50 us late, which the statistics show.
        let _ = nix::sys::prctl::set_timerslack(1);
        self.start = Clock::now();
        let processor_start_ns = processor_ns();
        let result = loop {
            if !goes_on(&mut self.a_to_b, &mut self.b_to_a) {
                break Ok(());
            }
            if let Err(error) = self.step() {
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

    /// Waits for a frame or for a due time, and handles both.
    fn step(&mut self) -> Result<(), EmulatorError> {
        let dues_ns = [self.a_to_b.next_due_ns(), self.b_to_a.next_due_ns()];
        let next_due_ns = dues_ns.into_iter().flatten().min();
        let mut now_ns = self.now_ns();
        // 1. Sleep until a frame arrives or spinning must start.
        let wake_ns = next_due_ns.map(|due_ns| due_ns.saturating_sub(self.config.spin_ns));
        let sleep_ns = wake_ns.map_or(SLEEP_NS_MAX, |wake_ns| wake_ns.saturating_sub(now_ns));
        let (reads_a, reads_b) =
            self.wait(sleep_ns.min(SLEEP_NS_MAX)).map_err(EmulatorError::Wait)?;
        // 2. Read first: a frame that has arrived may be due before the current next one.
        if reads_a {
            receive(
                &mut self.a,
                &mut self.a_to_b,
                self.b.port.has_peer(),
                &mut self.pool,
                &mut self.arrivals,
                self.start,
            )?;
        }
        if reads_b {
            receive(
                &mut self.b,
                &mut self.b_to_a,
                self.a.port.has_peer(),
                &mut self.pool,
                &mut self.arrivals,
                self.start,
            )?;
        }
        now_ns = now_ns.max(self.now_ns());
        // 3. Spin for the last part, which is more precise than a timer.
        if let Some(due_ns) = next_due_ns
            && due_ns > now_ns
            && due_ns - now_ns <= self.config.spin_ns
        {
            while now_ns < due_ns {
                std::hint::spin_loop();
                now_ns = self.now_ns();
            }
        }
        // 4. Send what is due.
        self.send_due(now_ns)
    }

    fn send_due(&mut self, now_ns: u64) -> Result<(), EmulatorError> {
        let start = self.start;
        let clock_ns = || nanoseconds(start.elapsed());
        for (direction, to) in [(&mut self.a_to_b, &mut self.b), (&mut self.b_to_a, &mut self.a)] {
            direction
                .send_due(now_ns, &mut to.port, clock_ns)
                .map_err(|source| broken(&to.port, source))?;
        }
        Ok(())
    }

    /// Sleeps until a port is ready or `sleep_ns` have passed. Returns which ports are readable.
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
            // A signal arrived; its handler sets the stop flag.
            Err(Errno::EINTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        // Reading a port also clears its pending error.
        let readable = PollFlags::POLLIN | PollFlags::POLLERR;
        let can_read = |watched: &PollFd<'_>| {
            watched.revents().is_some_and(|events| events.intersects(readable))
        };
        Ok((can_read(&watched[0]), can_read(&watched[1])))
    }
}

fn check(config: &EmulatorConfig) -> Result<(), EmulatorError> {
    for (direction, link) in [("a to b", &config.a_to_b), ("b to a", &config.b_to_a)] {
        link.check().map_err(|source| EmulatorError::Config { direction, source })?;
    }
    Ok(())
}

/// Reads the waiting frames of `side` into `direction`.
fn receive(
    side: &mut EmulatorSide,
    direction: &mut Direction,
    has_peer: bool,
    pool: &mut Pool,
    arrivals: &mut Vec<Arrival>,
    start: Clock,
) -> Result<(), EmulatorError> {
    for _ in 0..BATCHES_MAX {
        let has_more =
            side.port.receive(pool, arrivals).map_err(|source| broken(&side.port, source))?;
        let now_ns = nanoseconds(start.elapsed());
        for Arrival { frame, age_ns } in arrivals.drain(..) {
            // The model needs times that never decrease, and the kernel timestamps of frames may.
            side.latest_ns = side.latest_ns.max(now_ns.saturating_sub(age_ns));
            direction.accept(side.latest_ns, frame, has_peer);
        }
        if !has_more {
            break;
        }
    }
    Ok(())
}

fn broken(port: &UdpEnd, source: io::Error) -> EmulatorError {
    EmulatorError::Port { port: port.to_string(), source }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
