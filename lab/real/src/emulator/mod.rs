//! A link emulator in user space. Frames that arrive at one UDP port leave at another, as a
//! [`LinkModel`](weir_netem::LinkModel) decides.
//!
//! Two programs send to the emulator instead of to each other: side a to port `a`, and side b to
//! port `b`. The emulator needs no privileges. One thread serves both directions, each with its own
//! model and queue.
//!
//! The thread repeats these steps:
//!
//! 1. Sleep with `ppoll` until a port is readable, or until [`EmulatorConfig::spin_ns`] before the
//!    next frame is due (at most 10 ms).
//! 2. Read up to four batches from each readable port. The kernel has stamped each datagram on
//!    arrival. The model computes the due time from that stamp, or drops the frame.
//! 3. Insert each accepted frame into its direction's queue, which is ordered by due time.
//! 4. Spin if the next frame is due within `spin_ns`.
//! 5. Send all frames that are due, and record how late each one left.
//!
//! Example: a link has 10 Mbit/s, 5 ms delay and no other traffic. A datagram of 1250 bytes reaches
//! the socket at 100.0 ms, and the thread wakes up at 100.3 ms. Sending takes 1 ms, so the frame is
//! due at 100.0 + 1 + 5 = 106.0 ms. The late wake-up adds nothing, because the model uses the
//! kernel's stamp.
//!
//! **Lateness.** The time from when a frame is due until the system call returns is measured for
//! each frame. It does not accumulate. Check it before you trust a result.
//!
//! **Drops.** Frames over the rate wait in the model's bounded queue, and the model drops and
//! counts the rest. Frames that the socket's own buffer lost are counted separately
//! ([`DirectionStats::dropped_socket`]). If that is not 0, the thread got too little processor
//! time, and the run did not emulate the link faithfully.
//!
//! The emulator must never take its own wake-up time for an arrival time, and must never reorder
//! frames unless the model does.

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
