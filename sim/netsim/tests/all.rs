//! Tests of simulated networks, in one program: each file would link all libraries again.

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
/// The laboratory's, from its source: a crate of `sim` must not depend on one of `lab`.
#[path = "../../../lab/baselines/src/stores/mod.rs"]
#[expect(unreachable_pub, reason = "it is a part of a library")]
mod stores;
mod sweep;
mod theory;
mod transfers;
