//! The tests of `server`, with PostgreSQL.

#[path = "../server/access.rs"]
mod access;
mod backend;
#[path = "../server/clock.rs"]
mod clock;
mod crash;
mod failover;
#[path = "../server/fixture.rs"]
mod fixture;
#[path = "../server/full.rs"]
mod full;
#[path = "../server/garbled.rs"]
mod garbled;
mod operations;
mod outage;
mod postgres;
#[path = "../server/rest.rs"]
mod rest;
#[path = "../server/restart.rs"]
mod restart;
#[path = "../server/shared.rs"]
mod shared;
#[path = "../server/tls.rs"]
mod tls;
#[path = "../server/versions.rs"]
mod versions;
