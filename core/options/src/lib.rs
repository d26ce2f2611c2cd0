#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// A struct of options in files. The text of each is its documentation and what is printed above
/// it.
macro_rules! options {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $text:literal])+
                $(#[serde($($attribute:tt)*)])?
                $option:ident: $type:ty = $default:expr;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[allow(
            rustdoc::broken_intra_doc_links,
            reason = "the texts are those of configuration files, where [store] is a table"
        )]
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(expecting = "a table", deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[doc = $text])+
                $(#[serde($($attribute)*)])?
                pub $option: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($option: $default),* }
            }
        }

        impl $name {
            /// Each option and the lines of its text, in the order of files.
            pub const TEXTS: &[(&str, &[&str])] = &[$((stringify!($option), &[$($text),+])),*];
        }
    };
}

mod bounds;
mod disks;
mod store;

pub use bounds::INDEX_BYTES_MIN;
pub use disks::DisksOptions;
pub use store::StoreOptions;
