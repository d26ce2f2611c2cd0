//! Errors of sockets.

use std::io::{self, ErrorKind};

use weir_client::ClientError;
use weir_transport::{ConsumerError, MissingSegments};
use weir_wire::Name;

use crate::fetch::DownloadError;

/// Why an operation of a socket failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The name is not below the socket's prefix.
    #[error("{name} is not below {prefix}, which the socket is bound to")]
    OutsidePrefix { name: Name, prefix: Name },
    /// Another producer of the session is bound to the prefix.
    #[error("another producer of this session is bound to {0}; close it, or use another prefix")]
    PrefixInUse(Name),
    /// The router does not register the prefix.
    #[error("the router refuses {prefix}: {reason}")]
    PrefixRefused { prefix: Name, reason: String },
    /// The data is not signed by a trusted producer.
    #[error("cannot be verified: {0}")]
    NotVerified(String),
    #[error("no answer for {0}; is its producer running?")]
    TimedOut(Name),
    /// The router has no route for the name.
    #[error("no route to {0}; is its producer running, and is there a route to it?")]
    NoRoute(Name),
    /// The producer answers that the name does not exist.
    #[error("the producer has no {0}; check the name")]
    NotFound(Name),
    /// Some segments of an object got no answer; everything else was fetched. Lists them.
    #[error("{0}")]
    Incomplete(Box<MissingSegments>),
    /// The producer refuses, or a router does for a reason other than a missing route.
    #[error("refused: {0}")]
    Refused(String),
    /// A growing object has a newer version, and will have no end.
    #[error("{versioned} was abandoned before its end; fetch the newer version {newer}")]
    Superseded {
        /// The version that was read.
        versioned: Name,
        /// The current version.
        newer: Name,
    },
    /// There is no router, or it cannot be reached.
    #[error("no router: {0}")]
    NoRouter(String),
    /// The router's address does not accept the connection in time.
    #[error("no router: {0}")]
    RouterTimedOut(String),
    #[error("stopped by the caller")]
    Stopped,
    /// The file for the option `disk` cannot be created.
    #[error("cannot create the file for the option `disk`: {reason}")]
    Disk {
        reason: String,
        /// The `errno` of the system, if it was called.
        errno: Option<i32>,
    },
    /// The socket or its session is closed.
    #[error("the socket or its session is closed; open it again")]
    Closed,
    /// The object exceeds the output buffer, or the packet exceeds the maximum size.
    #[error("too large: at most {max_bytes} bytes fit")]
    TooLong { max_bytes: u64 },
    /// An option has no such name or value.
    #[error("{0}")]
    Option(String),
    /// An argument is invalid: a malformed packet, a key that cannot sign.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    System(String),
}

impl From<ClientError> for SocketError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::System(error) => Self::System(error.to_string()),
            ClientError::Connect { ref source, .. } if source.kind() == ErrorKind::TimedOut => {
                Self::RouterTimedOut(error.to_string())
            }
            other => Self::NoRouter(other.to_string()),
        }
    }
}

impl From<io::Error> for SocketError {
    fn from(error: io::Error) -> Self {
        Self::System(error.to_string())
    }
}

impl From<ConsumerError> for SocketError {
    fn from(error: ConsumerError) -> Self {
        match error {
            ConsumerError::NoRoute(name) | ConsumerError::NoRouteFurtherOn(name) => {
                Self::NoRoute(name)
            }
            ConsumerError::Unanswered(name) => Self::TimedOut(name),
            ConsumerError::Incomplete(missing) => Self::Incomplete(missing),
            ConsumerError::Refused(name) => Self::NotFound(name),
            ConsumerError::Nacked { .. } => Self::Refused(error.to_string()),
            ConsumerError::Superseded { versioned, newer } => Self::Superseded { versioned, newer },
            _ => Self::NotVerified(error.to_string()),
        }
    }
}

impl From<DownloadError> for SocketError {
    fn from(error: DownloadError) -> Self {
        match error {
            DownloadError::Fetch(error) => error.into(),
            DownloadError::Client(error) => error.into(),
            DownloadError::Refused(reason) => Self::Refused(reason),
            DownloadError::Stopped => Self::Closed,
            other => Self::System(other.to_string()),
        }
    }
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> Self {
        let kind = match &error {
            SocketError::OutsidePrefix { .. }
            | SocketError::Option(_)
            | SocketError::Invalid(_) => ErrorKind::InvalidInput,
            SocketError::PrefixInUse(_) => ErrorKind::AddrInUse,
            SocketError::PrefixRefused { .. } | SocketError::Refused(_) => {
                ErrorKind::PermissionDenied
            }
            SocketError::NotVerified(_) => ErrorKind::InvalidData,
            SocketError::TimedOut(_) | SocketError::RouterTimedOut(_) => ErrorKind::TimedOut,
            SocketError::NoRoute(_) => ErrorKind::NetworkUnreachable,
            SocketError::NotFound(_) => ErrorKind::NotFound,
            SocketError::Incomplete(missing) if missing.has_no_route() => {
                ErrorKind::NetworkUnreachable
            }
            SocketError::Incomplete(_) => ErrorKind::TimedOut,
            SocketError::NoRouter(_) => ErrorKind::ConnectionRefused,
            SocketError::Superseded { .. } => ErrorKind::ConnectionReset,
            SocketError::Closed => ErrorKind::NotConnected,
            SocketError::TooLong { .. } => ErrorKind::FileTooLarge,
            SocketError::Disk { errno, .. } => match errno {
                Some(errno) => io::Error::from_raw_os_error(*errno).kind(),
                None => ErrorKind::InvalidInput,
            },
            SocketError::Stopped | SocketError::System(_) => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
