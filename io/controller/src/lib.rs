#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod admin;
mod app;
mod clock;
mod config;
mod connection_slots;
mod connections;
mod database;
mod drain_body;
mod error_response;
mod follow;
mod follower;
mod history;
mod journal;
mod metrics;
mod routes;
mod server;
mod spans;
mod token;
mod tokens;

pub use admin::{add_token, remove_token, tokens};
pub use clock::WallClock;
pub use config::{Config, StartError};
pub use database::{DatabaseError, DatabaseLocation, LocationError, ServerUrl};
pub use journal::RowsKept;
pub use server::Server;
pub use token::{Role, Token, is_name};
