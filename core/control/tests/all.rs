//! Tests of the controller, in one program, because each file would link all libraries again.

mod common;
mod controller;
mod demand;
mod limits;
mod repair;
mod routes;
mod several_controllers;
mod versions;
