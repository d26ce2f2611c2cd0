//! Helpers for sockets of all kinds.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use socket2::Socket;

/// Requests a large send buffer: beyond the system's limit if the process may, otherwise up to it.
/// A smaller buffer is not an error.
pub(crate) fn grow_send_buffer(socket: &Socket, bytes: usize) {
    if force_buffer(socket, libc::SO_SNDBUFFORCE, bytes).is_err() {
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Like [`grow_send_buffer`], for receiving.
pub(crate) fn grow_receive_buffer(socket: &Socket, bytes: usize) {
    if force_buffer(socket, libc::SO_RCVBUFFORCE, bytes).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

fn force_buffer(socket: &Socket, option: libc::c_int, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int_option(socket, libc::SOL_SOCKET, option, bytes)
}

/// `setsockopt` with an `int` value.
pub(crate) fn set_int_option(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
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

/// Sends multicast datagrams through this device, from this address. The address alone would not
/// identify the device, because several may have the same one.
pub(crate) fn set_multicast_device(
    socket: &Socket,
    index: u32,
    address: Ipv4Addr,
) -> io::Result<()> {
    let request = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: 0 },
        imr_address: libc::in_addr { s_addr: u32::from(address).to_be() },
        imr_ifindex: index.cast_signed(),
    };
    // SAFETY: pointer and length describe `request`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const request).cast(),
            size_of::<libc::ip_mreqn>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes in the socket's send queue (SIOCOUTQ); 0 if the system does not report it.
pub(crate) fn unsent_bytes(socket: &Socket) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int to the pointer, which is valid
    // for it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Reports a socket's backlog to its link, for congestion marks, without a system call for every
/// batch.
///
/// The bytes sent since the last query are an upper limit of the backlog. The limit also applies
/// when the socket reports more: Unix and UDP sockets report memory, 768 bytes for a packet of 100.
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
        // Shaping reacts to smaller backlogs than marking.
        let ignored_bytes = link.config().egress.marking.backlog_ignored_bytes();
        if link.is_shaping() || self.bytes_max > ignored_bytes {
            return self.update(socket, link);
        }
        link.set_socket_backlog(self.bytes_max);
    }

    pub(crate) fn update(&mut self, socket: &Socket, link: &mut weir_link::Link) {
        self.bytes_max = self.bytes_max.min(unsent_bytes(socket));
        link.set_socket_backlog(self.bytes_max);
    }
}

/// Implements mio's `Source` for a type, by the descriptor of its field `socket` or another field.
/// A generic type has one parameter.
macro_rules! socket_source {
    ($watched:ty) => {
        $crate::socket::socket_source!($watched, socket);
    };
    ($watched:ty, $field:ident $(, $generic:ident: $bound:path)?) => {
        impl$(<$generic: $bound>)? std::os::fd::AsRawFd for $watched {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.$field)
            }
        }

        impl$(<$generic: $bound>)? std::os::fd::AsFd for $watched {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self.$field)
            }
        }

        impl$(<$generic: $bound>)? mio::event::Source for $watched {
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
