//! Tests of the engines, in one program: each file would link all libraries again.

mod common;
mod engines;
mod opening;
