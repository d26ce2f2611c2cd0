//! The subcommands, one module each.

pub(crate) mod completions;
#[cfg(feature = "controller")]
pub(crate) mod controller;
pub(crate) mod cs;
pub(crate) mod demo;
pub(crate) mod face;
#[cfg(feature = "gateway")]
pub(crate) mod gateway;
pub(crate) mod get;
pub(crate) mod key;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "lab")]
pub(crate) mod link;
pub(crate) mod man;
#[cfg(feature = "lab")]
pub(crate) mod model;
#[cfg(not(feature = "lab"))]
pub(crate) mod no_lab;
pub(crate) mod packet;
pub(crate) mod ping;
pub(crate) mod put;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod status;
pub(crate) mod strategy;
