#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bucket;
mod fetch;
mod object;
mod publish;
mod repository;
mod sockets;

#[cfg(feature = "s3")]
pub use bucket::open_object_store;
pub use bucket::{Bucket, BucketError, Location};
pub use fetch::{
    Directory, DiscardOutput, DiscardReason, DownloadError, DownloadHost, DownloadId,
    DownloadOptions, FileSink, Found, MemoryOutput, Notifier, Opened, Output, OutputError,
    PacketReader, PartFile, PathSummary, Summary, download, is_reserved_name,
};
pub use object::{OpenFiles, Published};
pub use publish::{
    Label, ObjectStore, PublishError, PublishOptions, ServeProblem, SignedSlice, SigningMode,
    SlicedObject, Update, Updates, publish_file, publish_listing, publish_octets, serve,
};
pub use repository::{
    AdoptedObjects, HandOver, LoadReport, PutOptions, PutResult, Repository, RepositoryError,
    StandalonePackets, UncommittedObject,
};
pub use sockets::{
    Binder, Consumer, ConsumerOptions, Identity, LiveWriter, Offer, OptionInfo, OptionKind,
    Pending, Producer, ProducerOptions, Reader, Request, Session, SessionConfig, SocketError,
    WeakSession, Word,
};
