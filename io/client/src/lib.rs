#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod command_signer;
mod connection;
mod connector;
mod event_loop;
mod paths;
mod prefix_map;
mod sources;
mod waker;

pub use client::{Client, CommandError, ExpressError};
pub use connection::{ReceivedPacket, monotonic_now, packet_bytes_max, random_u64};
pub use connector::{Inheritance, RegistrationAnswer, RegistrationError};
pub use event_loop::{Context, Endpoint, EventLoop};
pub use paths::{ClientError, PathChange, ROUTERS_MAX};
pub use prefix_map::PrefixMap;
pub use waker::{EndpointId, EndpointWaker, Waker};
