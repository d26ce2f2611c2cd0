//! The tests of the engines in one program, because linking each file separately takes long.

mod common;
mod engines;
mod opening;
