//! Who may connect to a Unix socket, and who has connected.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{getsockopt, sockopt};

/// Who may connect to a Unix listener, by the mode and group of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixAccess {
    /// Permission bits of the socket file. Connecting takes the one for writing.
    pub mode: u32,
    /// The group of the socket file; `None` leaves the one that the system gives it.
    pub group: Option<u32>,
}

impl Default for UnixAccess {
    /// As NFD: applications of every user may connect. What they may then do is for management to
    /// decide, and the directories that only concern one user are closed to others.
    fn default() -> Self {
        Self { mode: 0o666, group: None }
    }
}

/// Groups of a peer that are looked at. Linux has at most this many (NGROUPS_MAX).
const GROUPS_MAX: usize = 65536;
/// What is asked for first.
const GROUPS_FIRST_GUESS: usize = 32;

/// Who is at the other end of a Unix connection: the user and groups that the process had when it
/// connected, as the kernel has recorded them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    pub user: u32,
    group: u32,
    /// Supplementary groups; none where the kernel does not tell (Linux before 4.13).
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

/// SO_PEERGROUPS.
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS_FIRST_GUESS];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the pointer and length describe `groups`, which lives through the call; a
        // `gid_t` is a `u32`.
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
        // The kernel says how many there are.
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
