//! Runs of Interests between two ends that know them: who takes them, from many frames to one, and
//! back (`docs/run-interests.md`, decision 0017).

mod expansion;
mod gather;
mod offers;

pub(crate) use expansion::Expansion;
pub(crate) use gather::{find_run, join_run};
pub(crate) use offers::Offers;
pub use offers::RunsConfig;
