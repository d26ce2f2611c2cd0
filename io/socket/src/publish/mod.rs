//! Publishing: objects are signed once (`sign`, `sign_job`) by threads that producers share
//! (`sign_pool`), and served from where their content is (`serve`).

mod error;
mod lingering;
mod serve;
pub(crate) mod sign;
mod sign_job;
pub(crate) mod sign_pool;
mod slices;

pub use error::PublishError;
pub use serve::{ObjectStore, ServeProblem, Update, Updates, serve};
pub use sign::{Label, PublishOptions, SigningMode, publish_file, publish_listing, publish_octets};
pub use slices::{SignedSlice, SlicedObject};
