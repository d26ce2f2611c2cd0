#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod agent;
mod apply;
mod backoff;
mod config;
mod files;
mod prefetch;
mod report;
mod rest;
mod setup;
mod shared;
mod tell;
mod window;

pub use agent::Agent;
pub use config::{AgentConfig, AgentError};
pub use files::{FileError, Files};
