//! Objects ready to be served, and where their packets are. `published` has content signed by this
//! process. `stored` has files or bucket objects with all packets of an object.

pub(crate) mod block_cache;
pub(crate) mod held_file;
pub(crate) mod location;
pub(crate) mod published;
pub(crate) mod stored;

pub use held_file::OpenFiles;
pub use published::Published;
