#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod factorial;
pub mod multipath;
pub mod nqueue;
pub mod pipeline;
