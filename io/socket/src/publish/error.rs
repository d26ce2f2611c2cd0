//! Errors of publishing.

use std::io;
use std::path::PathBuf;

use weir_security::SignError;
use weir_transport::MappingError;
use weir_wire::NAME_COMPONENTS_MAX;

/// Why an object cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The path is neither a file nor a directory, or another file than before.
    #[error("{} is not a regular file", path.display())]
    NoFile { path: PathBuf },
    #[error("{} has changed", path.display())]
    Changed { path: PathBuf },
    /// It has more or fewer bytes than its size states, like files of `/proc` and `/sys`.
    #[error("{} does not have the size that its file system states", path.display())]
    SizeUnknown { path: PathBuf },
    /// Segments of that size do not fit into a packet with this name and signature.
    #[error("segments of {segment_size} bytes do not fit into a packet: at most {max} do here")]
    SegmentSize {
        /// As requested.
        segment_size: usize,
        /// The largest size that fits.
        max: usize,
    },
    /// The metadata or a manifest part does not fit into a packet.
    #[error("{what} would have {len} bytes: the name or the certificate is too long for a packet")]
    TooLong {
        /// Which of them.
        what: &'static str,
        len: usize,
    },
    /// Names of its packets have more components than routers forward.
    #[error(
        "its packets would have names of {components} components, and routers forward \
         {NAME_COMPONENTS_MAX} at most"
    )]
    TooDeep {
        /// Components of the longest name.
        components: usize,
    },
    /// Some packets have no name in the network.
    #[error(transparent)]
    Unnameable(#[from] MappingError),
    /// hICN's signature covers an hICN name.
    #[error("hICN's signatures need hICN names; choose a mapping such as hicn:2001:db8::/32")]
    NeedsMapping,
    /// The name is an hICN address, below which programs of hICN expect only segments.
    #[error("an object at an hICN address has no manifest of ours; sign each segment")]
    NoManifest,
    /// The signing key cannot be used.
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("interrupted")]
    Stopped,
}
