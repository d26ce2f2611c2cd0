#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod controllers;
pub mod links;
pub mod stores;
