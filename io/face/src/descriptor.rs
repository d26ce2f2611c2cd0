//! File descriptors that travel with the bytes of a Unix connection (SCM_RIGHTS).

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::untrusted_file::UntrustedFile;

/// Maximum number of descriptors in one message on Linux (SCM_MAX_FD).
const DESCRIPTORS_MAX: usize = 253;

/// Size of a control message with this many descriptors.
const fn control_bytes(descriptors: usize) -> usize {
    size_of::<libc::cmsghdr>() + descriptors * size_of::<RawFd>()
}

/// Sends a few bytes together with `descriptor`.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    octets: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut piece =
        libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    let mut control = [0_u64; control_bytes(1).div_ceil(8)];
    let mut message = header(&mut piece);
    message.msg_control = control.as_mut_ptr().cast();
    // Lengths have other types in musl.
    message.msg_controllen = control_bytes(1) as _;
    // SAFETY: the message's control buffer has space for one header and one descriptor.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = control_bytes(1) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reads into `octets`, and appends received files to `files`. The control buffer has space for the
/// maximum number of files. The system would close any others at once, in this thread.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    octets: &mut [u8],
    files: &mut Vec<UntrustedFile>,
) -> io::Result<usize> {
    let mut piece = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    let mut control = MaybeUninit::<[u64; control_bytes(DESCRIPTORS_MAX).div_ceil(8)]>::uninit();
    let mut message = header(&mut piece);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_bytes(DESCRIPTORS_MAX) as _;
    // SAFETY: the message points to `octets`, which is exclusively borrowed, and to a control
    // buffer. Both outlive the call.
    let read =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the control buffer and set its length. A message of this level
    // and type holds as many descriptors as its length says, and this process owns them.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(control) = head.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let numbers = libc::CMSG_DATA(head).cast::<RawFd>();
                // `usize` with glibc, `u32` with musl.
                let len: usize = control.cmsg_len as _;
                let bytes = len - control_bytes(0);
                for at in 0..bytes / size_of::<RawFd>() {
                    let file = OwnedFd::from_raw_fd(numbers.add(at).read_unaligned());
                    files.push(UntrustedFile::new(file));
                }
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    Ok(read)
}

fn header(piece: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: a plain C structure for which zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;

    /// No file is left for the system to close.
    #[test]
    fn as_many_files_come_as_can_be_sent() {
        let (near, far) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let numbers = [writer.as_raw_fd(); DESCRIPTORS_MAX];
        let control = [ControlMessage::ScmRights(&numbers)];
        let pieces = [IoSlice::new(b"octets")];
        sendmsg::<()>(near.as_raw_fd(), &pieces, &control, MsgFlags::empty(), None).unwrap();
        let (mut octets, mut files) = ([0; 100], Vec::new());
        assert_eq!(receive(far.as_fd(), &mut octets, &mut files).unwrap(), 6);
        assert_eq!(files.len(), DESCRIPTORS_MAX);
        drop((files, writer));
        // All of them are closed in the end.
        std::io::copy(&mut { reader }, &mut std::io::sink()).unwrap();
    }
}
