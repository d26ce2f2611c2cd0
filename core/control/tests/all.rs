//! Tests of the controller, in one program: each file would link all libraries again.

mod beside;
mod bounds;
mod common;
mod controller;
mod demand;
mod repair;
mod routes;
mod versions;
