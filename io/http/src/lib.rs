#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod tls;
mod write_timeout;

pub use tls::{TlsError, TlsFiles, tls_config};
pub use write_timeout::WriteTimeout;
