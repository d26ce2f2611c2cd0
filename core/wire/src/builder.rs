//! The common parts of the builders of Interests and Data.

use alloc::vec::Vec;
use core::convert::Infallible;

use sha2::{Digest, Sha256};

/// Declares methods that set a field and return the builder.
macro_rules! setters {
    ($($(#[$meta:meta])* $field:ident: $type:ty => $value:expr;)+) => {
        $(
            $(#[$meta])*
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $value;
                self
            }
        )+
    };
}

pub(crate) use setters;

/// The result of a signer that cannot fail.
pub(crate) fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// SHA-256 of all portions together.
pub(crate) fn sha256_of(portions: &[&[u8]]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    hasher.finalize().to_vec()
}
