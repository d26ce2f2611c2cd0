//! Which local programs may command the router.

use nix::unistd::{Gid, Group, Uid, User};
use weir_face::{FaceUri, Socket};

use crate::config::RuntimeConfig;

/// Root, the router's own user, and the members of a group.
#[derive(Debug)]
pub(super) struct Operators {
    own_user: u32,
    group: Option<u32>,
    /// Whether TCP connections from this host may command the router as well.
    loopback: bool,
}

impl Operators {
    pub(super) fn new(config: &RuntimeConfig) -> Self {
        Self {
            own_user: nix::unistd::geteuid().as_raw(),
            group: config.unix_access.group,
            loopback: config.management.loopback_commands,
        }
    }

    /// Whether the connected program may command the router.
    pub(super) fn includes(&self, socket: &Socket) -> bool {
        if let Some(peer) = socket.peer_credentials() {
            return peer.user == 0
                || peer.user == self.own_user
                || self.group.is_some_and(|group| peer.is_in_group(group));
        }
        self.loopback && socket.is_local() && matches!(socket.remote_uri(), FaceUri::Tcp(_))
    }

    /// Describes who may command the router, for error messages.
    pub(super) fn describe(&self) -> String {
        let mut parties = vec!["root".to_owned()];
        if self.own_user != 0 {
            let known = User::from_uid(Uid::from_raw(self.own_user)).ok().flatten();
            let name = known.map_or_else(|| self.own_user.to_string(), |user| user.name);
            parties.push(format!("user {name}"));
        }
        if let Some(group) = self.group {
            let known = Group::from_gid(Gid::from_raw(group)).ok().flatten();
            let name = known.map_or_else(|| group.to_string(), |group| group.name);
            parties.push(format!("members of group {name}"));
        }
        match parties.split_last() {
            Some((last, first @ [_, ..])) => format!("{} and {last}", first.join(", ")),
            _ => parties.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_groups_as_list() {
        let operators = |own_user, group| Operators { own_user, group, loopback: false };
        assert_eq!(operators(0, None).describe(), "root");
        assert_eq!(operators(4_000_000_001, None).describe(), "root and user 4000000001");
        assert_eq!(
            operators(4_000_000_001, Some(4_000_000_002)).describe(),
            "root, user 4000000001 and members of group 4000000002"
        );
    }
}
