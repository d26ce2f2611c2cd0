//! Access to Unix sockets: permissions of the socket file, and credentials of connected peers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{getsockopt, sockopt};

/// Permissions of a Unix listener's socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixAccess {
    /// Permission bits. Connecting requires the write permission.
    pub mode: u32,
    /// Group of the file; `None` keeps the system's choice.
    pub group: Option<u32>,
}

impl Default for UnixAccess {
    /// Like NFD: applications of every user may connect. Management decides what they may do.
    /// Default directories that concern a single user are closed to others.
    fn default() -> Self {
        Self { mode: 0o666, group: None }
    }
}

/// Upper limit on a peer's groups. Linux allows at most this many (NGROUPS_MAX).
const GROUPS_MAX: usize = 65536;
/// Size of the first attempt.
const GROUPS_FIRST_GUESS: usize = 32;

/// Credentials of the peer of a Unix connection: user and groups of its process when it connected,
/// as recorded by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    pub user: u32,
    group: u32,
    /// Supplementary groups; empty if the kernel does not report them (Linux before 4.13).
    groups: Vec<u32>,
}

impl PeerCredentials {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
        let groups = supplementary_groups(socket).unwrap_or_default();
        Ok(Self { user: peer.uid(), group: peer.gid(), groups })
    }

    /// Whether the peer is a member of `group`.
    pub fn is_in_group(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }
}

/// Reads the groups of the peer's process (SO_PEERGROUPS).
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS_FIRST_GUESS];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: pointer and length describe `groups`, which outlives the call. A `gid_t` is a
        // `u32`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // ERANGE: the buffer is too small, and the kernel reports how many groups there are. A
        // smaller count than the buffer's would make this loop endless.
        if error.raw_os_error() != Some(libc::ERANGE)
            || !(groups.len()..=GROUPS_MAX).contains(&count)
        {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn reads_own_user_and_groups() {
        let (near, _far) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(near.as_fd()).unwrap();
        assert_eq!(peer.user, nix::unistd::geteuid().as_raw());
        assert!(peer.is_in_group(nix::unistd::getegid().as_raw()));
        let groups = nix::unistd::getgroups().unwrap();
        assert!(groups.iter().all(|group| peer.is_in_group(group.as_raw())), "{peer:?}");
        assert!(!peer.is_in_group(4_000_000_001));
    }
}
