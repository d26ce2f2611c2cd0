//! What the kinds of sockets share.

use std::io;
use std::os::fd::AsRawFd;

use socket2::Socket;

/// Asks for large buffers: beyond the system's limit where the process may, up to it otherwise. A
/// smaller buffer than asked is no error.
pub(crate) fn grow_send_buffer(socket: &Socket, bytes: usize) {
    if force_buffer(socket, libc::SO_SNDBUFFORCE, bytes).is_err() {
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// As [`grow_send_buffer`], for receiving.
pub(crate) fn grow_receive_buffer(socket: &Socket, bytes: usize) {
    if force_buffer(socket, libc::SO_RCVBUFFORCE, bytes).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

fn force_buffer(socket: &Socket, option: libc::c_int, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int_option(socket, libc::SOL_SOCKET, option, bytes)
}

/// `setsockopt` with an `int`.
pub(crate) fn set_int_option(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Octets that wait in the socket to be sent (SIOCOUTQ); 0 where the system does not tell.
pub(crate) fn unsent_bytes(socket: &Socket) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int to the pointer, which is valid
    // for it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Keeps a link told of the socket's backlog, for congestion marks, without a system call for every
/// batch: what was sent since the socket was last asked bounds what can wait in it. The bound stays
/// when the socket says more, since what Unix and UDP sockets tell is memory: 768 octets for a
/// packet of 100.
#[derive(Debug, Default)]
pub(crate) struct BacklogEstimate {
    bytes_max: u64,
}

impl BacklogEstimate {
    pub(crate) fn after_send(
        &mut self,
        socket: &Socket,
        sent_bytes: u64,
        link: &mut weir_link::Link,
    ) {
        self.bytes_max += sent_bytes;
        // Shaping goes by less than what marking may ignore.
        let ignored_bytes = link.config().egress.marking.backlog_ignored_bytes();
        if link.is_shaping() || self.bytes_max > ignored_bytes {
            return self.tell(socket, link);
        }
        link.set_socket_backlog(self.bytes_max);
    }

    pub(crate) fn tell(&mut self, socket: &Socket, link: &mut weir_link::Link) {
        self.bytes_max = self.bytes_max.min(unsent_bytes(socket));
        link.set_socket_backlog(self.bytes_max);
    }
}

/// Lets mio watch a type by the descriptor of its field `socket`, or of another.
macro_rules! socket_source {
    ($watched:ty) => {
        $crate::socket::socket_source!($watched, socket);
    };
    ($watched:ty, $field:ident) => {
        impl std::os::fd::AsRawFd for $watched {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.$field)
            }
        }

        impl std::os::fd::AsFd for $watched {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self.$field)
            }
        }

        impl mio::event::Source for $watched {
            fn register(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(self))
                    .register(registry, token, interests)
            }

            fn reregister(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(self))
                    .reregister(registry, token, interests)
            }

            fn deregister(&mut self, registry: &mio::Registry) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(self)).deregister(registry)
            }
        }
    };
}
pub(crate) use socket_source;
