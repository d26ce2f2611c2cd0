#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod agent;
mod apply;
mod config;
mod error;
mod files;
mod kept;
mod prefetch;
mod questions;
mod report;
mod rest;
mod retry_waits;
mod round_trips;
mod setup;
mod shared;
mod tell;

pub use access::Access;
pub use agent::{Agent, AgentStats};
pub use config::AgentConfig;
pub use error::AgentError;
pub use files::{FileError, FileRefused, Files, FilesEvent, RegisteredFile, Telling};
