//! Sends and receives several datagrams in one system call. The kernel's structures are built on
//! the stack for each call. That costs some tens of nanoseconds per batch, and no pointers outlive
//! the call.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use socket2::SockAddr;

use crate::udp_path::LocalAddress;

/// Maximum number of messages per call. A message is a datagram or a run of equal datagrams.
pub(crate) const BATCH_MAX: usize = 32;
/// Maximum number of slices of all messages in one sending call.
pub(crate) const IO_SLICES_MAX: usize = 512;

/// Space for received control messages: segment size and drop counter (24 bytes each), time of
/// arrival (32), and local address (40 for IPv6).
type Control = [u64; 15];
/// Space for sent control messages: segment size and source address.
type SentControl = [u64; 8];

/// The buffers for one message: its first bytes, and further ones.
pub(crate) struct ReceiveTarget<'a> {
    pub(crate) head: &'a mut [u8],
    pub(crate) rest: &'a mut [u8],
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) peer: Option<SocketAddr>,
    /// The local address that the message was sent to, if enabled.
    pub(crate) local: Option<LocalAddress>,
    pub(crate) len: usize,
    /// Size of each datagram in the message, except that the last may be shorter.
    pub(crate) segment: usize,
    pub(crate) is_truncated: bool,
    /// Number of datagrams lost to a full receive buffer since the socket was created.
    pub(crate) overflows: Option<u32>,
    /// When the kernel received the message, in ns since the Unix epoch, if enabled.
    pub(crate) received_unix_ns: Option<u64>,
}

/// Whether the system supports sendmmsg and recvmmsg.
pub(crate) fn is_supported(fd: RawFd) -> bool {
    // SAFETY: no message is passed, so no pointer is followed.
    unsafe {
        let (none, flags) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
        recvmmsg(fd, none, 0, flags) == 0 && sendmmsg(fd, none, 0, flags) == 0
    }
}

/// recvmmsg(2) without a time limit, as a system call: see [`sendmmsg`].
///
/// # Safety
/// As for the system call: all pointers in the `count` headers must be valid.
unsafe fn recvmmsg(
    fd: RawFd,
    messages: *mut libc::mmsghdr,
    count: usize,
    flags: libc::c_int,
) -> libc::c_long {
    let time_limit = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_recvmmsg, fd, messages, count, flags, time_limit) }
}

/// sendmmsg(2) as a system call. musl's function sends each message by a call of its own, in case
/// the padding of its headers is not zero. Ours is: they start as zeros.
///
/// # Safety
/// As for the system call: all pointers in the `count` headers must be valid.
unsafe fn sendmmsg(
    fd: RawFd,
    messages: *mut libc::mmsghdr,
    count: usize,
    flags: libc::c_int,
) -> libc::c_long {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_sendmmsg, fd, messages, count, flags) }
}

/// Receives one message into each of `targets`, and appends the results to `arrivals`.
///
/// # Errors
/// WouldBlock if the socket is empty; any error of the first message.
pub(crate) fn receive(
    fd: RawFd,
    targets: &mut [ReceiveTarget<'_>],
    is_batched: bool,
    arrivals: &mut Vec<ReceivedMessage>,
) -> io::Result<()> {
    let count = targets.len().min(BATCH_MAX);
    // SAFETY: plain C structures for which zeros are valid.
    let (mut names, mut pieces, mut messages): (
        [libc::sockaddr_storage; BATCH_MAX],
        [[libc::iovec; 2]; BATCH_MAX],
        [libc::mmsghdr; BATCH_MAX],
    ) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
    let mut controls: [Control; BATCH_MAX] = [[0; 15]; BATCH_MAX];
    for (index, target) in targets[..count].iter_mut().enumerate() {
        pieces[index] = [piece_mut(target.head), piece_mut(target.rest)];
        let header = &mut messages[index].msg_hdr;
        header.msg_name = (&raw mut names[index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = pieces[index].as_mut_ptr();
        header.msg_iovlen = if target.rest.is_empty() { 1 } else { 2 };
        header.msg_control = controls[index].as_mut_ptr().cast();
        // Lengths have other types in musl.
        header.msg_controllen = size_of::<Control>() as _;
    }
    let received = if is_batched {
        // SAFETY: the first `count` headers point to names, slices and control buffers that outlive
        // the call; the slices point to the targets, which are exclusively borrowed.
        let result = unsafe { recvmmsg(fd, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())?
    } else {
        receive_singly(fd, &mut messages[..count])?
    };
    for (message, name) in messages[..received].iter().zip(&names) {
        let len = message.msg_len as usize;
        let ControlValues { local, segment, overflows, received_unix_ns: taken_in_unix_ns } =
            read_control(&message.msg_hdr);
        arrivals.push(ReceivedMessage {
            peer: read_address(name),
            local,
            len,
            segment: segment.filter(|&size| size > 0).unwrap_or(len),
            is_truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            overflows,
            received_unix_ns: taken_in_unix_ns,
        });
    }
    Ok(())
}

fn receive_singly(fd: RawFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    for (index, message) in messages.iter_mut().enumerate() {
        // SAFETY: as for recvmmsg in `receive`.
        let result = unsafe { libc::recvmsg(fd, &raw mut message.msg_hdr, libc::MSG_DONTWAIT) };
        match libc::c_uint::try_from(result) {
            Ok(len) => message.msg_len = len,
            Err(_) if index > 0 => return Ok(index),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(messages.len())
}

#[derive(Default)]
struct ControlValues {
    local: Option<LocalAddress>,
    segment: Option<usize>,
    overflows: Option<u32>,
    received_unix_ns: Option<u64>,
}

/// Reads the control messages of a received message: local address (IP_PKTINFO, IPV6_PKTINFO),
/// segment size (UDP_GRO), drop counter (SO_RXQ_OVFL) and time of arrival (SO_TIMESTAMPNS).
fn read_control(header: &libc::msghdr) -> ControlValues {
    let mut values = ControlValues::default();
    // SAFETY: the kernel has filled the header, and its control buffer is alive, so the macros stay
    // within it. The data of these types is an int, a timespec, an in_pktinfo or an in6_pktinfo,
    // possibly unaligned.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let data = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.cast::<libc::c_int>().read_unaligned();
                    values.segment = usize::try_from(size).ok();
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    // Unlike `ipi_addr`, this is never a broadcast address, so it can be the source
                    // of an answer.
                    let ip = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
                    values.local = Some(LocalAddress::new(ip.into(), 0));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    // A multicast address cannot be a source address.
                    let local = LocalAddress::new(ip.into(), info.ipi6_ifindex);
                    values.local = (!ip.is_multicast()).then_some(local);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    values.overflows = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let (s, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
                    values.received_unix_ns =
                        s.ok().zip(ns.ok()).map(|(s, ns)| s * 1_000_000_000 + ns);
                }
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    values
}

/// The address that the kernel wrote to `name`, if it is an IP address.
fn read_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name: *const libc::sockaddr_storage = name;
    // SAFETY: a sockaddr_storage is large enough and aligned for both structures, and fully
    // initialized.
    unsafe {
        match libc::c_int::from((*name).ss_family) {
            libc::AF_INET => {
                let v4 = &*name.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = &*name.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

fn piece_mut(octets: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() }
}

/// A message to send: `slice_count` slices. If `segment` is not 0, the kernel cuts them into
/// datagrams of `segment` bytes.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct OutgoingMessage {
    pub(crate) slice_count: usize,
    pub(crate) segment: u16,
}

pub(crate) struct Destination {
    pub(crate) address: SockAddr,
    /// The source address; `None` leaves it to the system.
    pub(crate) source: Option<LocalAddress>,
}

/// The bytes of several messages, in order.
pub(crate) struct IoSlices<'a> {
    pieces: [&'a [u8]; IO_SLICES_MAX],
    count: usize,
}

impl<'a> IoSlices<'a> {
    pub(crate) fn new() -> Self {
        Self { pieces: [&[]; IO_SLICES_MAX], count: 0 }
    }

    pub(crate) fn free(&self) -> usize {
        IO_SLICES_MAX - self.count
    }

    pub(crate) fn push(&mut self, octets: &'a [u8]) {
        self.pieces[self.count] = octets;
        self.count += 1;
    }
}

/// Sends messages, at most [`BATCH_MAX`]. Their slices are consecutive in `pieces`. Returns how
/// many messages the socket accepted.
pub(crate) fn send(
    fd: RawFd,
    destination: &Destination,
    pieces: &IoSlices<'_>,
    departures: &[OutgoingMessage],
    is_batched: bool,
) -> io::Result<usize> {
    let count = departures.len().min(BATCH_MAX);
    // SAFETY: plain C structures for which zeros are valid.
    let (mut vectors, mut messages): ([libc::iovec; IO_SLICES_MAX], [libc::mmsghdr; BATCH_MAX]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut controls: [SentControl; BATCH_MAX] = [[0; 8]; BATCH_MAX];
    for (vector, octets) in vectors.iter_mut().zip(&pieces.pieces[..pieces.count]) {
        // The cast is safe: the kernel only reads these bytes, but `iovec` has no const pointer.
        *vector =
            libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    }
    let mut first = 0;
    for (index, departure) in departures[..count].iter().enumerate() {
        let vectors = &mut vectors[first..first + departure.slice_count];
        first += departure.slice_count;
        let header = &mut messages[index].msg_hdr;
        header.msg_name = destination.address.as_ptr().cast_mut().cast();
        header.msg_namelen = destination.address.len();
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = vectors.len() as _;
        if departure.segment != 0 || destination.source.is_some() {
            write_control(header, &mut controls[index], departure.segment, destination.source);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if is_batched {
        // SAFETY: the first `count` headers point to the address, slices and control buffers, which
        // outlive the call.
        let result = unsafe { sendmmsg(fd, messages.as_mut_ptr(), count, flags) };
        return usize::try_from(result).map_err(|_| io::Error::last_os_error());
    }
    for (index, message) in messages[..count].iter().enumerate() {
        // SAFETY: as for sendmmsg.
        let result = unsafe { libc::sendmsg(fd, &raw const message.msg_hdr, flags) };
        if result < 0 {
            return if index > 0 { Ok(index) } else { Err(io::Error::last_os_error()) };
        }
    }
    Ok(count)
}

/// Adds a message's segment size, if it is not 0, and its source address.
fn write_control(
    header: &mut libc::msghdr,
    control: &mut SentControl,
    segment: u16,
    source: Option<LocalAddress>,
) {
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = 0;
    if segment != 0 {
        push_control(header, control, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    match source.map(|source| (source.ip, source.interface)) {
        None => {}
        Some((IpAddr::V4(ip), _)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: ip.to_bits().to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            push_control(header, control, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some((IpAddr::V6(ip), interface)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: interface,
            };
            push_control(header, control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
}

/// Appends a control message to those that `header` has in `control`.
fn push_control<T: Copy>(
    header: &mut libc::msghdr,
    control: &mut SentControl,
    level: libc::c_int,
    kind: libc::c_int,
    value: T,
) {
    // `usize` with glibc, `u32` with musl.
    let at: usize = header.msg_controllen as _;
    // SAFETY: these only compute sizes.
    let (space, len) = unsafe {
        let bytes = size_of::<T>() as libc::c_uint;
        (libc::CMSG_SPACE(bytes) as usize, libc::CMSG_LEN(bytes) as usize)
    };
    assert!(at + space <= size_of::<SentControl>(), "room for both kinds");
    // SAFETY: `at` is a sum of CMSG_SPACE, so it keeps the alignment of `control`. The message with
    // its data ends within `control`, as just asserted.
    unsafe {
        let message = control.as_mut_ptr().cast::<u8>().add(at).cast::<libc::cmsghdr>();
        (*message).cmsg_level = level;
        (*message).cmsg_type = kind;
        (*message).cmsg_len = len as _;
        libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
    }
    header.msg_controllen = (at + space) as _;
}
