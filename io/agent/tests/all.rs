//! Tests of the agent, in one program, because each file would link all libraries again.

mod bad_controller;
mod common;
mod files;
mod hosts;
mod network;
mod prefetch;
mod state_file;
mod tls;
mod updates;
