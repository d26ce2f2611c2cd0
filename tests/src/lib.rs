#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bucket_server;
mod c_library;
mod client;
mod denied;
mod disk_store;
mod host;
mod http_server;
mod networks;
mod port;
mod process;
mod python;
mod relay;
mod router;
mod small_disk;
pub mod sockets;

pub use bucket_server::{BucketServer, Fault};
pub use c_library::{CLibrary, run};
pub use client::{Client, Library, interop_is_skipped, open_page};
pub use denied::{DeniedCall, is_denial_unavailable, without_calls};
pub use disk_store::DiskStore;
pub use host::{Host, random_file, sha256_hex, socket_example, weir_binary};
pub use http_server::{HttpRequest, HttpServer, reply};
pub use networks::Networks;
pub use process::{Finished, Process, TEST_TIMEOUT, wait_until};
pub use python::Python;
pub use relay::Relay;
pub use router::Router;
pub use small_disk::SmallDisk;
