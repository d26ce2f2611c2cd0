//! Tests of the agent, in one program: each file would link all libraries again.

mod bad_controller;
mod beside;
mod common;
mod files;
mod hosts;
mod kept;
mod network;
mod tls;
mod updates;
