//! A link emulator in user space: frames that arrive at one UDP port leave at another as a
//! [`LinkModel`](weir_netem::LinkModel) says. One thread serves both directions, each with its own
//! model and queue. It needs no privileges: two programs send to the emulator instead of to each
//! other, the one at side a to port `a` and the one at side b to port `b`.
//!
//! **Time.** The system stamps a datagram when it reaches the socket, and the model is asked with
//! that stamp, so that a late wake-up of this thread does not count as delay and lateness never
//! adds up. The thread sleeps until shortly before a frame is due (`ppoll`, timer slack of 1 ns)
//! and spins for at most [`EmulatorConfig::spin_ns`]. How late frames left, from due until the
//! system call that sent them returned, is measured for each and reported: judge a result by it.
//!
//! **More than the rate** waits in the model's bounded queue and is dropped there, counted. What
//! the socket's own buffer loses because this thread got no processor is counted apart
//! ([`DirectionStats::dropped_socket`]): a run in which that is not 0 was not emulated faithfully.

mod config;
mod direction;
mod port;
mod run;
mod stats;

pub use config::{EmulatorConfig, EmulatorError, UdpEnds};
pub use run::Emulator;
pub(crate) use run::EmulatorControl;
pub(crate) use stats::LatenessHistogram;
pub use stats::{DirectionStats, EmulatorStats, LatenessStats};

#[cfg(test)]
mod tests;
