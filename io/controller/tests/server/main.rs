//! A controller on loopback, and those who talk to it. The tests run twice: as `server` with
//! SQLite, and as `server_postgres`, from the same files.

mod access;
mod backend;
mod bench;
mod clock;
mod crowd;
mod dashboard;
mod full;
mod garbled;
mod rest;
mod restart;
mod shared;
mod tls;
mod versions;
