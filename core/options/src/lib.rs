#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Declares a struct of options for configuration files. The documentation of an option is also the
/// text that is printed above it.
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
            /// Each option with the lines of its text, in the order of the file.
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
