//! Why an object cannot be made.

use std::io;
use std::path::PathBuf;

use weir_security::SignError;
use weir_transport::MappingError;
use weir_wire::NAME_COMPONENTS_MAX;

/// Why an object cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The path is neither file nor directory, or not the file it was.
    #[error("{} is no regular file", path.display())]
    NoFile { path: PathBuf },
    /// The file is being written to.
    #[error("{} has changed", path.display())]
    Changed { path: PathBuf },
    /// It has more octets than its size says, or fewer, as files of `/proc` and `/sys` do.
    #[error("{} does not have the size that its file system states", path.display())]
    SizeUnknown { path: PathBuf },
    /// A packet of that size is too large with this name and signature.
    #[error("segments of {segment_size} octets do not fit into a packet: at most {max} do here")]
    SegmentSize {
        /// What was asked for.
        segment_size: usize,
        /// What fits.
        max: usize,
    },
    /// The metadata, or a part of the manifest, is too large for a packet.
    #[error("{what} would take {len} octets: the name or the certificate is too long for a packet")]
    TooLong {
        /// Which of them.
        what: &'static str,
        len: usize,
    },
    /// Names of its packets would have more components than routers forward.
    #[error(
        "its packets would have names of {components} components, and routers forward \
         {NAME_COMPONENTS_MAX} at most"
    )]
    TooDeep {
        /// Components of the longest name.
        components: usize,
    },
    /// The network has no names for all of it.
    #[error(transparent)]
    Unnameable(#[from] MappingError),
    /// The signing key is of no use.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// Broken off.
    #[error("interrupted")]
    Stopped,
}
