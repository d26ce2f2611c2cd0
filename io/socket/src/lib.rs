#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod connection;
mod download;
mod downloads;
mod event_loop;
mod host;
mod keeper;
mod lookup;
mod output;
mod publish;
mod serve;
mod sink;
mod verify_pool;

pub use client::{Client, ClientError, CommandError, ExpressError, FromRouter, Waker};
pub use connection::monotonic_now;
pub use downloads::{DownloadOptions, download};
pub use event_loop::{Context, Endpoint, EndpointId, EventLoop};
pub use host::{DownloadError, DownloadId, Found, Host, Summary};
pub use output::{
    MemoryOutput, Opened, Output, OutputError, PartFile, StreamOutput, is_reserved_name,
};
pub use publish::{
    Label, PublishError, PublishOptions, Published, publish_file, publish_listing, publish_octets,
};
pub use serve::{Loss, ObjectStore, serve};
pub use sink::FileSink;
pub use weir_face::unix_time_ms;
