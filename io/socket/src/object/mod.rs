//! Objects that are ready to be served, and where their packets are: content that was signed here
//! (`published`), or a file or an object of a bucket with all packets of one (`stored`).

pub(crate) mod block_cache;
pub(crate) mod held_file;
pub(crate) mod location;
pub(crate) mod published;
pub(crate) mod stored;

pub use held_file::OpenFiles;
pub use published::Published;
