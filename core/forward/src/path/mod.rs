//! The paths of packets through a shard. Each file calls only files below it, or to its left in the
//! same line:
//!
//! ```text
//! shards   refill                messages of other shards; the router's own Interests
//! announced                      Data with a prefix announcement
//! interest data  nack  reads     where a packet or a finished read begins its path
//! lookup   offer forward  step   store stage; Data for other shards; FIB and strategy; stages
//! bypass                         whether an Interest waits for a disk
//! pending                        PIT stage
//! wait                           how an entry waits for a disk or for other shards
//! end                            how an entry ends
//! ```

mod announced;
mod bypass;
mod data;
mod end;
mod forward;
mod interest;
mod lookup;
mod nack;
mod offer;
mod pending;
mod reads;
mod refill;
mod shards;
mod step;
mod wait;

pub use step::InterestStep;
