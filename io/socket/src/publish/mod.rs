//! Publishing: objects are signed once (`sign`), with threads that producers share (`sign_pool`),
//! and served from where their content is (`serve`).

mod lingering;
mod serve;
pub(crate) mod sign;
pub(crate) mod sign_pool;

pub use serve::{Loss, ObjectStore, Update, Updates, serve};
pub use sign::{
    Label, PublishError, PublishOptions, Signs, publish_file, publish_listing, publish_octets,
};
