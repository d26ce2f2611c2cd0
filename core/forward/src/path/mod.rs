//! What happens to a packet between the face that it comes in by and those that it leaves by.

mod bypass;
mod contents;
mod data;
mod disk;
mod interest;
mod nack;
mod refill;
mod room;
mod shards;

pub use interest::InterestStep;
