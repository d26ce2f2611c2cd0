//! Fetching objects: several at once, every segment verified, into files, memory or streams.
//!
//! # From packets to a file
//!
//! ```text
//!   downloads.rs   which downloads run; finds the download of a packet      network thread
//!   download.rs    one object: a Consumer, and where its segments go        network thread
//!   verify_pool.rs verifies batches, and writes them to the part file       pool threads
//!   sink.rs        writes segments at their offsets, or to a stream         pool, stream thread
//!   durability.rs  makes files durable and gives them their names           one thread
//!   part_file.rs   the file on disk: part file, state file, final name
//!   spans.rs       the phases of a download, for traces
//! ```
//!
//! 1. **Find.** The `Consumer` finds the version and its metadata. The [`DownloadHost`] states
//!    where the object goes, as an [`Output`].
//! 2. **Admit.** The download waits until its segments fit into the budget that all downloads share
//!    (`DownloadOptions::segments_max`). A larger object waits for others to end. One download
//!    always runs.
//! 3. **Open.** A pool thread opens the output. If there is a part file with a state file of the
//!    same version, the download resumes. The thread reads the stored segments and compares them
//!    with their checksums. The consumer does not request the intact ones.
//! 4. **Reassemble.** Segments arrive in any order. The network thread collects them in batches of
//!    32 and gives each batch to the pool. A pool thread verifies the batch and writes each good
//!    segment at `segment * segment_size`. So nothing waits for order, and a slow disk or signature
//!    delays no Interest.
//! 5. **Report.** The thread returns the verdicts. Good segments are recorded in the consumer. Bad
//!    ones are erased from local routers' stores (`erasures.rs`), and requested again.
//! 6. **Save.** Every 2 seconds the durability thread syncs the data, and then replaces the state
//!    file, which lists the stored segments with their checksums.
//! 7. **Finish.** When every segment is verified: sync the data, rename the part file to the final
//!    name, remove the state file, sync the directory. Files that finish together share one
//!    `syncfs`.
//!
//! The size of segments decides the offsets. If the metadata do not state it, the network thread
//! verifies one segment itself and takes its size; until then all others wait.
//!
//! Example: an object has 100 segments of 8000 bytes. The process is killed when the state file
//! lists segments 0 to 63. The next download reads these 64 segments. Segment 10 was damaged on
//! disk, so its checksum differs, and 37 segments are requested. The same happens if the producer
//! has restarted and made another version of the same content (`ContentDigest`).
//!
//! A download must never store a segment before it is verified, or list it in the state file before
//! its data is synced. It must never leave an incomplete file under the final name.

mod directory;
mod discard;
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
mod spans;
mod verify_pool;

pub use directory::Directory;
pub use discard::DiscardOutput;
pub(crate) use downloads::Downloads;
pub use downloads::{DownloadOptions, download};
pub use host::{DownloadError, DownloadHost, DownloadId, Found, PathSummary, Summary};
pub use notifier::Notifier;
pub use output::{MemoryOutput, Opened, Output, OutputError, PacketReader};
pub use part_file::{DiscardReason, PartFile, is_reserved_name};
pub use sink::FileSink;
