//! A link emulator in user space: datagrams that come in at one UDP port leave at another as a
//! [`LinkModel`](weir_netem::LinkModel) says. It needs no privileges.
//!
//! Two programs that would talk to one another talk to the emulator instead: the one at side a
//! sends to port `a` and hears from it, the one at side b likewise. One thread serves both
//! directions, each with its own model and queue.
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
mod run;
mod stats;

pub use config::{EmulatorConfig, EmulatorError};
pub use run::{Control, Emulator, run};
pub(crate) use stats::LatenessHistogram;
pub use stats::{DirectionStats, EmulatorStats, LatenessStats};

#[cfg(test)]
mod tests;
