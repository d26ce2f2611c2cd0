//! A controller on loopback and its clients. The tests run twice from the same files: as `server`
//! with SQLite, and as `server_postgres`.

mod access;
mod backend;
mod clock;
mod crowd;
mod dashboard;
mod fixture;
mod full;
mod garbled;
mod rest;
mod restart;
mod shared;
mod tls;
mod versions;
