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
mod sweep;
mod theory;
mod transfers;
