//! One module a subcommand.

pub(crate) mod cs;
pub(crate) mod demo;
pub(crate) mod face;
pub(crate) mod get;
pub(crate) mod key;
pub(crate) mod lab;
pub(crate) mod link;
pub(crate) mod model;
pub(crate) mod packet;
pub(crate) mod ping;
pub(crate) mod put;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod status;
pub(crate) mod strategy;
