//! The functions of the header. `memory` converts pointers to slices and values. No panic leaves
//! this file.
//!
//! # Safety
//! For all functions: a pointer is NULL, or its target may be read until the call returns, and
//! written if it is not `const`. No other thread writes there meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_int, c_void, msghdr, sockaddr, socklen_t, ssize_t};
use nix::errno::Errno;

use crate::constants::{ICN_ANSWER, ICN_OFFER, ICN_OPTION, ICN_UNVERIFIED, SOL_ICN};
use crate::library::library;
use crate::memory::{
    ReceivedHeader, ScatterBuffer, address, joined_octets, octets, put_control, set, set_message,
    text, value,
};
use crate::names::{address_of, name_from, name_of, padded_address};
use crate::socket::Socket;

/// Runs the body of a function. Returns its result, or -1 and sets `errno`.
fn call<T: From<i8>>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO));
    result.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn icn_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    call(|| {
        let library = library()?;
        library.add(Socket::new(domain, kind, protocol)?)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_bind(
    fd: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    call(|| {
        let library = library()?;
        library.socket(fd)?;
        // SAFETY: the application promises it.
        let prefix = name_of(&unsafe { address(addr, len) }?)?;
        library.bind(fd, prefix).map(|()| 0)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    call(|| {
        let socket = library()?.socket(fd)?;
        if (level, option) != (SOL_ICN, ICN_OPTION) {
            return Err(Errno::ENOPROTOOPT);
        }
        // SAFETY: the application promises it.
        socket.set_option(&unsafe { text(from, len as usize) }?).map(|()| 0)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    to: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    call(|| {
        let socket = library()?.socket(fd)?;
        if level != SOL_ICN || ![ICN_OPTION, ICN_OFFER].contains(&option) {
            return Err(Errno::ENOPROTOOPT);
        }
        // SAFETY: the application promises it.
        let capacity = unsafe { value(len) }? as usize;
        // SAFETY: the application promises it.
        let name = unsafe { text(to, capacity) }?;
        let found = match option {
            ICN_OFFER => socket.offer(&name_from(&name)?)?.to_vec(),
            _ => [socket.option(&name)?.as_bytes(), &[0]].concat(),
        };
        if found.len() > capacity {
            return Err(Errno::EMSGSIZE);
        }
        // SAFETY: the application promises it; the length was read above.
        unsafe {
            ScatterBuffer::new(to, capacity)?.put(&found);
            set(len, found.len() as socklen_t);
        }
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_sendto(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    call(|| {
        let socket = library()?.socket(fd)?;
        // SAFETY: the application promises it.
        let name = name_of(&unsafe { address(addr, addr_len) }?)?;
        // SAFETY: the application promises it.
        let content = unsafe { octets(from, len) }?;
        socket.send(&name, content, flags)?;
        Ok(len as ssize_t)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_recvfrom(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    call(|| {
        let socket = library()?.socket(fd)?;
        // SAFETY: the application promises it.
        let name = name_of(&unsafe { address(addr, value(addr_len)?) }?)?;
        // SAFETY: the application promises it.
        let mut buffer = unsafe { ScatterBuffer::new(to, len) }?;
        let count = match flags & ICN_ANSWER {
            0 => socket.recv(name, &mut buffer, flags)?.count,
            _ => socket.recv_answer(&name, &mut buffer, flags)?,
        };
        Ok(count as ssize_t)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    call(|| {
        let socket = library()?.socket(fd)?;
        // SAFETY: the application promises it.
        let message = unsafe { value(message) }?;
        // SAFETY: the application promises it.
        let name = name_of(&unsafe { address(message.msg_name.cast(), message.msg_namelen) }?)?;
        // SAFETY: the application promises it.
        let octets = unsafe { joined_octets(&message) }?;
        let len = octets.len() as ssize_t;
        match socket.is_consumer() {
            true => socket.express(name, octets, flags)?,
            false => socket.send(&name, octets, flags)?,
        }
        Ok(len)
    })
}

/// See the header.
///
/// # Safety
/// See the file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn icn_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    call(|| {
        let socket = library()?.socket(fd)?;
        // SAFETY: the application promises it.
        let header = unsafe { value(message) }?;
        // SAFETY: the application promises it.
        let mut buffer = unsafe { ScatterBuffer::of(&header) }?;
        if socket.is_consumer() {
            // SAFETY: the application promises it.
            let name = name_of(&unsafe { address(header.msg_name.cast(), header.msg_namelen) }?)?;
            let (count, flags) = match flags & ICN_ANSWER {
                0 => socket.recv(name, &mut buffer, flags).map(|got| (got.count, got.flags()))?,
                _ => (socket.recv_answer(&name, &mut buffer, flags)?, ICN_UNVERIFIED),
            };
            let came =
                ReceivedHeader { name_len: header.msg_namelen, flags, ..ReceivedHeader::default() };
            // SAFETY: the application promises it.
            unsafe { set_message(message, &came) };
            return Ok(count as ssize_t);
        }
        if header.msg_name.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the application promises it.
        let mut name_buffer =
            unsafe { ScatterBuffer::new(header.msg_name, header.msg_namelen as usize) }?;
        let (count, name_len, offered) = socket.recv_request(flags, |request| {
            let address = address_of(request.name()).ok_or(Errno::EMSGSIZE)?;
            let parameters = request.parameters().unwrap_or_default();
            if address.len() > name_buffer.left() || parameters.len() > buffer.left() {
                return Err(Errno::EMSGSIZE);
            }
            name_buffer.put(&address);
            let offered = request.offer().and_then(Result::ok);
            let offered = offered.and_then(|offer| padded_address(offer.name()));
            Ok((buffer.put(parameters), address.len(), offered))
        })?;
        let mut came =
            ReceivedHeader { name_len: name_len as socklen_t, ..ReceivedHeader::default() };
        if let Some(offered) = offered {
            // SAFETY: the application promises it.
            match unsafe { put_control(&header, ICN_OFFER, &offered) } {
                Some(len) => came.control_len = len,
                None => came.flags = libc::MSG_CTRUNC,
            }
        }
        // SAFETY: the application promises it.
        unsafe { set_message(message, &came) };
        Ok(count as ssize_t)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn icn_close(fd: c_int) -> c_int {
    call(|| library()?.close(fd).map(|()| 0))
}
