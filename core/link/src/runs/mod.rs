//! Run Interests: one frame carries several Interests for segments of one object
//! (`docs/run-interests.md`, decision 0017).
//!
//! A run is an encoding of the link. The forwarder sees only ordinary Interests.
//!
//! **Negotiation** (`offers.rs`). A peer that does not know runs would drop them. So an end first
//! sends a question. The peer's answer allows runs for 4 seconds, and the question is repeated each
//! second while there are runs to send. The question contains a random number, and the answer must
//! repeat it, because anyone can forge the peer's address over UDP. Only an end with
//! [`RunsConfig::Initiate`] sends the first offer.
//!
//! **Sending** (`gather.rs`, `ReadyQueue::gather`). The driver calls `Link::gather_runs` just
//! before it passes frames to the socket, so disciplines, marks and counters see single Interests.
//!
//! 1. Starting at each ready frame, the search takes the following frames with the same length of
//!    header and packet.
//! 2. A frame joins if it differs only in segment number, nonce and PIT token. Its nonce and its
//!    segment number must have the same offset from the first frame. Offsets must rise, and stay
//!    below the span (64 at most).
//! 3. Two or more frames become one: the first Interest, a bitmap of the offsets, and the PIT
//!    tokens of the others if they differ.
//!
//! Frames that have waited for a full socket, and partly sent frames, stay as they are.
//!
//! **Receiving** (`expansion.rs`). The decoder checks the run as a whole. `Link::next_in_run` then
//! returns its Interests one by one. Each is a copy of the first, with the offset added to segment
//! number and nonce, and with its own PIT token. Shaping delays each one separately.
//!
//! Example: frames for `/a/seg=7`, `/a/seg=8` and `/a/seg=10` with nonces `n`, `n + 1` and `n + 3`
//! become one frame with bitmap `1011` (bits 0, 1 and 3). The receiver writes the numbers 7, 8 and
//! 10 into copies of the first Interest.
//!
//! Runs must never go to a peer that has not accepted them in the last 4 seconds. They must never
//! change a bit of an Interest, or reorder packets.
//!
//! On faces with hICN packets, a run is an Interest manifest of up to 256 suffixes
//! (`manifests.rs`). hICN has no offers, so only the configuration permits sending them: see
//! `PacketFormat::Hicn`.

mod expansion;
mod gather;
mod manifests;
mod offers;

pub(crate) use expansion::Expansion;
pub(crate) use gather::{find_run, join_run};
pub(crate) use manifests::join_manifest;
pub(crate) use offers::Offers;
pub use offers::RunsConfig;
