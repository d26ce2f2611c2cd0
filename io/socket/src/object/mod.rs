//! Objects ready to be served, and where their packets are: content signed by this process
//! (`published`), or a file or bucket object with all packets of an object (`stored`).

pub(crate) mod block_cache;
pub(crate) mod held_file;
pub(crate) mod location;
pub(crate) mod published;
pub(crate) mod stored;

pub use held_file::OpenFiles;
pub use published::Published;
