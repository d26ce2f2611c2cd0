//! What `cargo xtask` shares with the program that writes packages.

pub mod tools;
