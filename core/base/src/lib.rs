#![doc = include_str!("../README.md")]
#![no_std]

#[doc(hidden)]
pub extern crate alloc;
#[cfg(test)]
extern crate std;

mod backoff;
mod block;
mod bloom;
mod class;
mod counters;
mod exposition;
mod face;
mod hash;
mod histogram;
mod packet;
mod pool;
mod prefetch;
mod rng;
mod rtt;
mod sha256;
mod slab;
mod source;
mod span;
mod table;
mod time;
pub mod units;
mod url;
mod wheel;
mod words;

pub use backoff::Backoff;
pub use bloom::CountingBloom;
pub use counters::{Counter, CounterKind, Counters, Merge};
pub use exposition::Exposition;
pub use face::FaceId;
pub use hash::{HashKey, NameHasher, PrefixHasher};
pub use histogram::{Histogram, bucket_count};
pub use packet::{Packet, PacketMut};
pub use pool::Pool;
pub use prefetch::prefetch_read;
pub use rng::{Rng, mix, unit};
pub use rtt::{RttConfig, RttEstimator};
pub use sha256::{SHA256_LANES, sha256_lanes};
pub use slab::Slab;
pub use source::SpanSource;
pub use table::{Table, equal_words};
pub use time::{Instant, NS_PER_MS, NS_PER_S, NS_PER_US};
pub use url::without_secrets;
pub use wheel::TimerWheel;
pub use words::UnknownWord;

#[cfg(feature = "serde")]
mod read;
#[cfg(feature = "serde")]
pub use read::text_or_number;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use serde;
