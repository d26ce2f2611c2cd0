//! Tests of simulated networks, in one program: each further test program would link all libraries
//! again.

mod bottleneck;
mod common;
mod controller;
mod disks;
mod engine;
mod labels;
mod paths;
mod random;
mod routes;
mod runs;
mod shaping;
mod sharing;
mod stages;
/// Included as source, because a crate of `sim` must not depend on one of `lab`.
#[path = "../../../lab/baselines/src/stores/mod.rs"]
#[expect(unreachable_pub, reason = "this file is also part of a library")]
mod stores;
mod sweep;
mod theory;
mod transfers;
