//! Converts errors to exceptions of `weir`, with advice on what to do next.

use std::path::PathBuf;

use nix::errno::Errno;
use pyo3::prelude::*;
use weir_client::CommandError;
use weir_crypto::KeyChainError;
use weir_socket::{DownloadError, OutputError, PublishError, SocketError};

/// An exception of `weir._errors`, by class name.
pub(crate) fn raise(class: &str, message: impl Into<String>) -> PyErr {
    let message = message.into();
    Python::attach(|py| {
        let made = py
            .import("weir._errors")
            .and_then(|module| module.getattr(class))
            .and_then(|class| class.call1((message,)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// For a value that was created before `fork` and is used in the child.
pub(crate) fn forked(what: &str) -> PyErr {
    raise(
        "ForkedError",
        format!(
            "{what} was created before this process was forked, and its threads exist only in \
             the parent; create a new one in the child, or start workers with the method spawn"
        ),
    )
}

/// For an invalid name or prefix.
pub(crate) fn name(message: impl Into<String>) -> PyErr {
    raise("InvalidName", message)
}

/// For a value that another task or thread is using.
pub(crate) fn busy(what: &str) -> PyErr {
    raise("BusyError", format!("another task or thread is using {what}; give each its own"))
}

pub(crate) fn closed(what: &str) -> PyErr {
    raise("ClosedError", format!("{what} is closed; create a new one"))
}

pub(crate) fn of_socket(error: SocketError) -> PyErr {
    match error {
        SocketError::OutsidePrefix { .. } => raise("InvalidName", error.to_string()),
        SocketError::PrefixInUse(prefix) => raise(
            "PrefixInUse",
            format!("another producer of this process is bound to {prefix}; close it first"),
        ),
        SocketError::PrefixRefused { .. } => raise(
            "RefusedError",
            format!("{error}; ask who runs the router to allow it, or use another prefix"),
        ),
        SocketError::NotVerified(reason) => {
            raise("VerificationError", format!("cannot be verified: {reason}"))
        }
        SocketError::TimedOut(name) => raise(
            "TimedOut",
            format!("no answer for {name}. Is its producer running (`weir put`, `weir.put`)?"),
        ),
        SocketError::NoRoute(name) => raise(
            "NotFound",
            format!(
                "no router on the path has a route to {name}. Is its producer running (`weir put`, \
                 `weir.put`), and is there a route to it (`weir route list`)?"
            ),
        ),
        SocketError::NotFound(_) => {
            raise("NotFound", format!("{error}. Is the name written as it was published?"))
        }
        SocketError::Incomplete(missing) => raise(
            if missing.has_no_route() { "NotFound" } else { "TimedOut" },
            format!(
                "{missing}. Is the producer running (`weir put`, `weir.put`)? Fetch it again when \
                 it is"
            ),
        ),
        SocketError::Superseded { .. } => {
            raise("Superseded", format!("{error}; fetch it again, without a version"))
        }
        SocketError::Refused(_) => raise("RefusedError", error.to_string()),
        SocketError::NoRouter(reason) | SocketError::RouterTimedOut(reason) => raise(
            "NoRouter",
            format!(
                "no router: {reason}; start one with `weir router`, or name one by router=, such \
                 as router=\"unix:///run/nfd/nfd.sock\", or NDN_CLIENT_TRANSPORT"
            ),
        ),
        SocketError::Closed => closed("the socket"),
        SocketError::TooLong { .. } => raise("TooLong", error.to_string()),
        SocketError::Option(_) | SocketError::Disk { .. } => {
            raise("OptionError", error.to_string())
        }
        SocketError::Invalid(_) | SocketError::Stopped | SocketError::System(_) => {
            raise("WeirError", error.to_string())
        }
    }
}

pub(crate) fn of_download(error: DownloadError) -> PyErr {
    match error {
        DownloadError::Store(source) => {
            raise("WeirError", format!("cannot write the file: {source}; is the disk full?"))
        }
        DownloadError::Output(OutputError::Io { source, path }) => of_file(&source, path),
        DownloadError::Output(error @ OutputError::InUse { .. }) => {
            raise("BusyError", format!("{error}; pass another path with to="))
        }
        DownloadError::Output(error) => {
            raise("WeirError", format!("{error}; pass another path with to="))
        }
        error @ DownloadError::Size { .. } => {
            raise("WeirError", format!("{error}; fetch it into memory instead, without to="))
        }
        error => of_socket(error.into()),
    }
}

/// Like Python's errors about its own files.
fn of_file(error: &std::io::Error, path: PathBuf) -> PyErr {
    let path = path.into_os_string();
    pyo3::exceptions::PyOSError::new_err(match error.raw_os_error() {
        Some(number) => (number, Errno::from_raw(number).desc().to_owned(), path),
        None => (0, error.to_string(), path),
    })
}

pub(crate) fn of_keys(error: KeyChainError) -> PyErr {
    raise("KeyChainError", with_causes(&error))
}

pub(crate) fn of_publish(error: PublishError) -> PyErr {
    match error {
        PublishError::Read { path, source } => of_file(&source, path),
        PublishError::NoFile { .. } | PublishError::SizeUnknown { .. } => {
            raise("WeirError", format!("{error}; read it, and put its bytes"))
        }
        PublishError::SegmentSize { max: 0, .. } => {
            name("the name is too long: no space is left for content; choose a shorter one")
        }
        PublishError::SegmentSize { .. } => {
            raise("OptionError", format!("{error}; give a smaller segment_size"))
        }
        error => raise("WeirError", with_causes(&error)),
    }
}

pub(crate) fn of_command(error: CommandError) -> PyErr {
    raise("RefusedError", format!("the router refuses the prefix: {}", with_causes(&error)))
}

/// The error and its causes, unless the message already contains them.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let more = found.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = found.source();
    }
    text
}
