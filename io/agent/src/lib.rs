#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod agent;
mod apply;
mod config;
mod error;
mod files;
mod prefetch;
mod questions;
mod report;
mod report_thread;
mod rest;
mod retry_waits;
mod round_trips;
mod setup;
mod shared;
mod state_file;
mod status;

pub use access::Access;
pub use agent::{Agent, AgentStats};
pub use config::AgentConfig;
pub use error::AgentError;
pub use files::{
    BackgroundRegistration, FileError, FileRefused, Files, FilesEvent, RegisteredFile,
};
