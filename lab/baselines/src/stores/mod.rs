//! Stores of the papers.

mod blocking;

pub use blocking::BlockingStore;
