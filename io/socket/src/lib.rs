#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod connection;
mod directory;
mod download;
mod downloads;
mod erasures;
mod event_loop;
mod host;
mod keeper;
mod kept;
mod linger;
mod lookup;
mod notifier;
mod output;
mod part_file;
mod paths;
mod place;
mod prefix_map;
mod publish;
mod published;
mod remote;
mod repository;
mod serve;
mod sign_pool;
mod sink;
mod sockets;
mod sources;
mod verify_pool;
mod waker;

pub use client::{Client, CommandError, ExpressError};
pub use connection::monotonic_now;
pub use directory::Directory;
pub use downloads::{DownloadOptions, download};
pub use event_loop::{Context, Endpoint, EventLoop};
pub use host::{DownloadError, DownloadId, Found, Host, PathSummary, Summary};
pub use linger::OpenFiles;
pub use notifier::Notifier;
pub use output::{MemoryOutput, Opened, Output, OutputError, PacketReader};
pub use part_file::{PartFile, is_reserved_name};
pub use paths::{ClientError, FromRouter, PathChange, ROUTERS_MAX};
pub use publish::{
    Label, PublishError, PublishOptions, Signs, publish_file, publish_listing, publish_octets,
};
pub use published::Published;
pub use repository::{
    Findings, Handed, LoosePackets, Put, Putting, Repository, RepositoryError, Taken, Unsettled,
};
pub use serve::{Loss, ObjectStore, Update, Updates, serve};
pub use sink::FileSink;
pub use sockets::{
    Binder, Consumer, ConsumerOptions, Identity, LiveWriter, Offer, OptionInfo, OptionKind,
    Pending, Producer, ProducerOptions, Reader, Request, Session, SessionConfig, SocketError,
    WeakSession, Word,
};
pub use waker::{EndpointId, Waker};
pub use weir_bucket::{Bucket, BucketError, Location};
pub use weir_face::unix_time_ms;
pub use weir_transport::PathId;
