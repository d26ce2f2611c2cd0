//! Access to the application's memory. Only this module and `exports` follow its pointers.

use libc::{c_char, c_int, c_void, cmsghdr, iovec, msghdr, sockaddr, socklen_t};
use nix::errno::Errno;

use crate::constants::{ADDRESS_BYTES, FAMILY_BYTES, SOL_ICN};

/// Maximum number of buffers of a message, as in POSIX.
const IOVECS_MAX: usize = 1024;

/// Copies bytes of the application.
///
/// # Safety
/// `from` is NULL or points to `len` readable bytes.
pub(crate) unsafe fn octets(from: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    match (from.is_null(), len) {
        (_, 0) => Ok(Vec::new()),
        (true, _) => Err(Errno::EFAULT),
        _ if isize::try_from(len).is_err() => Err(Errno::EINVAL),
        // SAFETY: not NULL, no longer than a slice may be; the caller promises the rest.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec()),
    }
}

/// Copies bytes up to the first zero, at most `len`.
///
/// # Safety
/// As for [`octets`], up to the first zero.
pub(crate) unsafe fn text(from: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    if from.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not NULL; the caller promises the rest.
    let len = unsafe { libc::strnlen(from.cast::<c_char>(), len) };
    // SAFETY: these bytes were just examined.
    unsafe { octets(from, len) }
}

/// Copies an address: its family, and its name up to the zero.
///
/// # Safety
/// `address` is NULL or points to `len` readable bytes, up to the first zero of the name.
pub(crate) unsafe fn address(address: *const sockaddr, len: socklen_t) -> Result<Vec<u8>, Errno> {
    let (from, len) = (address.cast::<u8>(), len as usize);
    if from.is_null() {
        return Err(Errno::EFAULT);
    }
    if !(FAMILY_BYTES..=ADDRESS_BYTES).contains(&len) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the family lies within the address.
    let mut found = unsafe { octets(from.cast(), FAMILY_BYTES) }?;
    // SAFETY: the name starts after it, within the address or at its end.
    let name = unsafe { text(from.add(FAMILY_BYTES).cast(), len - FAMILY_BYTES) }?;
    found.extend(name);
    Ok(found)
}

/// Copies the value that a pointer points to.
///
/// # Safety
/// `from` is NULL or points to a readable `T`.
pub(crate) unsafe fn value<T: Copy>(from: *const T) -> Result<T, Errno> {
    match from.is_null() {
        true => Err(Errno::EFAULT),
        // SAFETY: not NULL; the caller promises the rest.
        false => Ok(unsafe { from.read_unaligned() }),
    }
}

/// The buffers of a message.
///
/// # Safety
/// `msg_iov` is NULL or points to `msg_iovlen` readable entries.
unsafe fn iovecs(message: &msghdr) -> Result<Vec<iovec>, Errno> {
    let (first, count) = (message.msg_iov, message.msg_iovlen);
    if count > IOVECS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    // SAFETY: there are `count` entries, if the pointer is not NULL.
    (0..count).map(|at| unsafe { value(first.wrapping_add(at)) }).collect()
}

/// Copies and joins the bytes of a message.
///
/// # Safety
/// The buffers of the message and their contents are readable.
pub(crate) unsafe fn joined_octets(message: &msghdr) -> Result<Vec<u8>, Errno> {
    let mut all = Vec::new();
    // SAFETY: the caller promises both.
    for piece in unsafe { iovecs(message) }? {
        // SAFETY: the caller promises it.
        all.extend(unsafe { octets(piece.iov_base, piece.iov_len) }?);
    }
    Ok(all)
}

/// Buffers of the application, filled from the start.
pub(crate) struct ScatterBuffer {
    pieces: Vec<(*mut u8, usize)>,
}

impl ScatterBuffer {
    /// A single buffer.
    ///
    /// # Safety
    /// `to` is NULL or points to `len` bytes that stay writable while this value is used.
    pub(crate) unsafe fn new(to: *mut c_void, len: usize) -> Result<Self, Errno> {
        let mut buffer = Self { pieces: Vec::new() };
        buffer.add(to, len)?;
        Ok(buffer)
    }

    /// The buffers of a message.
    ///
    /// # Safety
    /// As for [`ScatterBuffer::new`], for each buffer; the array of buffers is readable.
    pub(crate) unsafe fn of(message: &msghdr) -> Result<Self, Errno> {
        let mut buffer = Self { pieces: Vec::new() };
        // SAFETY: the caller promises it.
        for piece in unsafe { iovecs(message) }? {
            buffer.add(piece.iov_base, piece.iov_len)?;
        }
        Ok(buffer)
    }

    fn add(&mut self, to: *mut c_void, len: usize) -> Result<(), Errno> {
        if to.is_null() && len > 0 {
            return Err(Errno::EFAULT);
        }
        self.left()
            .checked_add(len)
            .filter(|&all| all <= isize::MAX as usize)
            .ok_or(Errno::EINVAL)?;
        if len > 0 {
            self.pieces.push((to.cast(), len));
        }
        Ok(())
    }

    /// Number of free bytes.
    pub(crate) fn left(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// Writes as many bytes as fit, and returns how many.
    pub(crate) fn put(&mut self, octets: &[u8]) -> usize {
        let mut rest = octets;
        while let Some((to, len)) = self.pieces.first_mut().filter(|_| !rest.is_empty()) {
            let count = rest.len().min(*len);
            // SAFETY: the buffer has `len` bytes, as promised when this value was created.
            unsafe { std::ptr::copy(rest.as_ptr(), *to, count) };
            (*to, *len) = (to.wrapping_add(count), *len - count);
            rest = &rest[count..];
            if *len == 0 {
                self.pieces.remove(0);
            }
        }
        octets.len() - rest.len()
    }
}

/// Writes a value to the application's memory.
///
/// # Safety
/// `to` is writable.
pub(crate) unsafe fn set<T>(to: *mut T, value: T) {
    // SAFETY: the caller promises it.
    unsafe { to.write_unaligned(value) };
}

/// The fields of a message header that a receive call sets.
#[derive(Default)]
pub(crate) struct ReceivedHeader {
    pub(crate) name_len: socklen_t,
    pub(crate) control_len: usize,
    pub(crate) flags: c_int,
}

/// Writes these fields, and leaves the others of the header unchanged.
///
/// # Safety
/// `message` is writable.
pub(crate) unsafe fn set_message(message: *mut msghdr, came: &ReceivedHeader) {
    // SAFETY: the caller promises it.
    unsafe {
        set(&raw mut (*message).msg_namelen, came.name_len);
        set(&raw mut (*message).msg_controllen, came.control_len as _);
        set(&raw mut (*message).msg_flags, came.flags);
    }
}

/// Writes a control message if it fits. Returns its size with padding.
///
/// # Safety
/// The control buffer of the message is NULL or writable.
pub(crate) unsafe fn put_control(message: &msghdr, kind: c_int, octets: &[u8]) -> Option<usize> {
    let len = u32::try_from(octets.len()).ok()?;
    // SAFETY: these only compute sizes.
    let (space, len) = unsafe { (libc::CMSG_SPACE(len) as usize, libc::CMSG_LEN(len) as usize) };
    let to = message.msg_control.cast::<u8>();
    if to.is_null() || space > message.msg_controllen {
        return None;
    }
    // SAFETY: all fields are numbers.
    let mut header: cmsghdr = unsafe { std::mem::zeroed() };
    (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (len as _, SOL_ICN, kind);
    // SAFETY: the buffer has `space` bytes; the header is at its start.
    unsafe {
        to.write_bytes(0, space);
        set(to.cast(), header);
        to.add(len - octets.len()).copy_from(octets.as_ptr(), octets.len());
    }
    Some(space)
}
