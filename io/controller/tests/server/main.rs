//! A controller on loopback, and those who talk to it.

mod access;
mod bench;
mod rest;
mod restart;
mod tls;
