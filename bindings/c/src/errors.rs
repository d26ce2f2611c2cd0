//! Maps errors to `errno`.

use nix::errno::Errno;
use weir_socket::SocketError;

/// The error number of a socket error. The README has a table.
pub(crate) fn errno_of(error: &SocketError) -> Errno {
    match error {
        SocketError::OutsidePrefix { .. } | SocketError::Option(_) | SocketError::Invalid(_) => {
            Errno::EINVAL
        }
        SocketError::PrefixInUse(_) => Errno::EADDRINUSE,
        SocketError::PrefixRefused { .. } | SocketError::Refused(_) => Errno::EACCES,
        SocketError::NotVerified(_) => Errno::EBADMSG,
        SocketError::TimedOut(_) | SocketError::RouterTimedOut(_) => Errno::ETIMEDOUT,
        SocketError::NoRoute(_) => Errno::ENETUNREACH,
        SocketError::NotFound(_) => Errno::ENOENT,
        SocketError::Incomplete(missing) if missing.has_no_route() => Errno::ENETUNREACH,
        SocketError::Incomplete(_) => Errno::ETIMEDOUT,
        SocketError::NoRouter(_) => Errno::ECONNREFUSED,
        SocketError::TooLong { .. } => Errno::EMSGSIZE,
        SocketError::Superseded { .. } => Errno::ECONNRESET,
        SocketError::Disk { errno, .. } => errno.map_or(Errno::EINVAL, Errno::from_raw),
        // Not closed by the application: that case ends with EBADF before.
        SocketError::Closed | SocketError::Stopped | SocketError::System(_) => Errno::EIO,
    }
}
