#![doc = include_str!("../README.md")]

mod answer;
mod binding;
mod buffer;
mod consumer;
mod download;
mod errors;
mod live;
mod memory;
mod options;
mod process_local;
mod producer;
mod serve;
mod sessions;
mod task;
mod wait;

/// The extension module behind the package `weir`. Applications use `python/weir`.
#[pyo3::pymodule(name = "_weir")]
mod module {
    #[pymodule_export]
    use crate::answer::{Answer, Offer};
    #[pymodule_export]
    use crate::binding::Binding;
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::consumer::{Source, Stream};
    #[pymodule_export]
    use crate::download::download;
    #[pymodule_export]
    use crate::live::Live;
    #[pymodule_export]
    use crate::options::{consumer_options, producer_options};
    #[pymodule_export]
    use crate::producer::{Outlet, Request};
    #[pymodule_export]
    use crate::serve::Shelf;
    #[pymodule_export]
    use crate::sessions::check_name;
    #[pymodule_export]
    use crate::task::Task;
    #[pymodule_export]
    use crate::wait::Notifier;
}
