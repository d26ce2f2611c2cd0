//! The user, groups and capabilities of a process, and checks with these instead of root's.
//!
//! Root passes permission checks that the user of a router does not. The kernel decides by more
//! than the mode of a file: access control lists, read-only mounts, and the servers of network file
//! systems, which may refuse root itself. So [`Credentials::run`] asks the kernel as that user.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc;
use nix::unistd::{
    Gid, Uid, chroot, fchdir, getegid, geteuid, getgroups, setegid, seteuid, setgroups,
};

/// The numbers of capabilities, and their names in units of systemd (capabilities(7)).
pub(super) const CAP_DAC_OVERRIDE: u32 = 1;
pub(super) const CAP_NET_BIND_SERVICE: u32 = 10;
pub(super) const CAP_NET_ADMIN: u32 = 12;
pub(super) const CAP_IPC_LOCK: u32 = 14;
const CAPABILITIES: [(&str, u32); 4] = [
    ("cap_dac_override", CAP_DAC_OVERRIDE),
    ("cap_net_bind_service", CAP_NET_BIND_SERVICE),
    ("cap_net_admin", CAP_NET_ADMIN),
    ("cap_ipc_lock", CAP_IPC_LOCK),
];

/// The identity with which the kernel checks permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: u32,
    pub(super) group: u32,
    /// Supplementary groups, sorted.
    pub(super) groups: Vec<u32>,
    /// Effective capabilities, a bit each.
    capabilities: u64,
}

impl Credentials {
    /// Reads the text of `/proc/PID/status` (proc(5)).
    pub(super) fn parse(status: &str) -> Option<Self> {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // The fourth number is the one for files, and usually the effective one.
        let of_files = |name| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let groups = field("Groups")?.split_whitespace().map(|group| group.parse().ok());
        let capabilities = u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?;
        let (user, group) = (of_files("Uid")?, of_files("Gid")?);
        Some(Self::new(user, group, groups.collect::<Option<_>>()?, capabilities))
    }

    /// Those of this process.
    pub(super) fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").ok();
        let known = status.and_then(|status| Self::parse(&status));
        known.unwrap_or_else(|| {
            let groups = getgroups().unwrap_or_default().into_iter().map(Gid::as_raw);
            Self::new(geteuid().as_raw(), getegid().as_raw(), groups.collect(), 0)
        })
    }

    fn new(user: u32, group: u32, mut groups: Vec<u32>, capabilities: u64) -> Self {
        groups.sort_unstable();
        Self { user, group, groups, capabilities }
    }

    /// Those of a service, with its sets of capabilities as systemd shows them.
    pub(super) fn of_service(
        user: u32,
        group: u32,
        groups: Vec<u32>,
        ambient: &str,
        bounding: &str,
    ) -> Self {
        let lists = |set: &str, name: &str| set.split_whitespace().any(|listed| listed == name);
        // Programs of root get all capabilities of the bounding set (capabilities(7)).
        let known = CAPABILITIES
            .iter()
            .filter(|(name, _)| lists(bounding, name) && (user == 0 || lists(ambient, name)));
        let capabilities = known.fold(0, |set, (_, capability)| set | 1 << capability);
        Self::new(user, group, groups, capabilities)
    }

    pub(super) fn without_capabilities(self) -> Self {
        Self { capabilities: 0, ..self }
    }

    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// Whether this is root, and files are checked for it as for other users.
    pub(super) fn is_weak_root(&self) -> bool {
        self.user == 0 && !self.has(CAP_DAC_OVERRIDE)
    }

    /// Runs a check as this user, and with these folders, if there are some. `own` are the
    /// credentials of this process, which is root.
    ///
    /// The check must not resolve names of users, groups or hosts: the name service loads libraries
    /// at its first use, and would find them below the other root folder.
    ///
    /// # Errors
    /// If this process may not change its user, as in some containers.
    pub(super) fn run<T>(
        &self,
        own: &Self,
        folders: Option<&Folders>,
        check: impl FnOnce() -> T,
    ) -> io::Result<T> {
        let mut restore = RestoreRoot { own, folders: None };
        if let Some(folders) = folders {
            restore.folders = Some(Folders::open(Path::new("/"), Path::new("."))?);
            folders.enter()?;
        }
        // With this capability, the user does not matter. The others end with root's user.
        if !self.has(CAP_DAC_OVERRIDE) {
            setgroups(&to_gids(&self.groups))?;
            setegid(Gid::from_raw(self.group))?;
            seteuid(Uid::from_raw(self.user))?;
        }
        Ok(check())
    }
}

/// The root folder and the working folder of a process.
pub(super) struct Folders {
    root: File,
    working: File,
}

impl Folders {
    /// Those of a process, a folder of `/proc`. `None` if its user namespace or root folder is not
    /// that of this process, as in a container: root must not use libraries and settings that the
    /// container may have replaced.
    ///
    /// The sandbox of a systemd unit keeps both. It has other mounts, which are found with these
    /// folders: for example, only they lead to the state of a dynamic user.
    pub(super) fn of_process(process: &Path) -> io::Result<Option<Self>> {
        let folders = Self::open(&process.join("root"), &process.join("cwd"))?;
        let has_same_root = is_same(&folders.root.metadata()?, &fs::metadata("/")?);
        // After the folders are opened: a process cannot return from another user namespace.
        let is_inside = has_same_root && shares_user_namespace(process)?;
        Ok(is_inside.then_some(folders))
    }

    fn open(root: &Path, working: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        Ok(Self { root: options.open(root)?, working: options.open(working)? })
    }

    fn enter(&self) -> nix::Result<()> {
        fchdir(&self.root)?;
        chroot(".")?;
        fchdir(&self.working)
    }
}

/// Whether a process, a folder of `/proc`, has the user namespace of this process. In another one,
/// its capabilities do not count for this machine.
pub(super) fn shares_user_namespace(process: &Path) -> io::Result<bool> {
    let own = fs::metadata("/proc/self/ns/user")?;
    Ok(is_same(&own, &fs::metadata(process.join("ns/user"))?))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn to_gids(groups: &[u32]) -> Vec<Gid> {
    groups.iter().copied().map(Gid::from_raw).collect()
}

/// Makes this process root again when it is dropped.
struct RestoreRoot<'a> {
    own: &'a Credentials,
    folders: Option<Folders>,
}

impl Drop for RestoreRoot<'_> {
    fn drop(&mut self) {
        // These cannot fail, because root is still the real user.
        let _ = seteuid(Uid::from_raw(self.own.user));
        let _ = setegid(Gid::from_raw(self.own.group));
        let _ = setgroups(&to_gids(&self.own.groups));
        if let Some(folders) = &self.folders {
            let _ = folders.enter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_credentials_of_files() {
        let status = "Name:\tweir\nUid:\t0\t1\t2\t61234\nGid:\t5\t6\t7\t8\nGroups:\t44 6 \n\
                      CapEff:\t0000000000000402\n";
        let read = Credentials::parse(status).unwrap();
        assert_eq!((read.user, read.group, &read.groups[..]), (61_234, 8, &[6, 44][..]));
        assert!(read.has(CAP_DAC_OVERRIDE) && read.has(CAP_NET_BIND_SERVICE));
        assert!(!read.has(CAP_IPC_LOCK));
        for missing in ["", "Uid:\t1\nGid:\t1\t1\t1\t1\nGroups:\t\nCapEff:\t0\n"] {
            assert_eq!(Credentials::parse(missing), None);
        }
    }

    #[test]
    fn bounding_set_limits_capabilities() {
        let all = "cap_chown cap_dac_override cap_net_bind_service cap_net_admin";
        let (ports, files) = (CAP_NET_BIND_SERVICE, CAP_DAC_OVERRIDE);
        for (user, ambient, bounding, capability, is_there) in [
            (7, "cap_sys_nice cap_net_bind_service", all, ports, true),
            (7, "cap_net_bind_service", all, files, false),
            (7, "cap_net_bind_service", "", ports, false),
            (0, "", all, files, true),
            (0, "", "cap_net_bind_service", files, false),
            (0, "cap_dac_override", "", files, false),
        ] {
            let service = Credentials::of_service(user, 9, vec![], ambient, bounding);
            let shown = format!("user {user}, {ambient:?} of {bounding:?}");
            assert_eq!(service.has(capability), is_there, "{shown}");
        }
    }

    #[test]
    fn own_process_is_not_in_a_container() {
        let own = Path::new("/proc/self");
        assert!(Folders::of_process(own).unwrap().is_some());
        assert!(shares_user_namespace(own).unwrap());
        assert!(Folders::of_process(Path::new("/none")).is_err());
    }
}
