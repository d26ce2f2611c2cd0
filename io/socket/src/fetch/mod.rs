//! Fetching objects: several at a time, every segment verified, into files, memory or streams.
//!
//! From the top: `downloads` runs many downloads on one client, `download` one object. What they
//! ask of their owner is in `host`. Threads open, verify and write (`verify_pool`), make whole
//! files durable (`durability`) and write streams (`sink`). An `output` is where an object goes;
//! `part_file` is the one that survives a break.

mod directory;
mod download;
mod downloads;
mod durability;
mod erasures;
mod host;
mod lookup;
mod notifier;
mod output;
mod part_file;
mod sink;
mod verify_pool;

pub use directory::Directory;
pub(crate) use downloads::Downloads;
pub use downloads::{DownloadOptions, download};
pub use host::{DownloadError, DownloadHost, DownloadId, Found, PathSummary, Summary};
pub use notifier::Notifier;
pub use output::{MemoryOutput, Opened, Output, OutputError, PacketReader};
pub use part_file::{PartFile, is_reserved_name};
pub use sink::FileSink;
