//! The user, groups and capabilities of a process, and checks with these instead of root's.
//!
//! Root passes permission checks that the user of a router does not. The kernel decides by more
//! than the mode of a file: access control lists, read-only mounts, and the servers of network file
//! systems, which may refuse root itself. So [`Credentials::run`] asks the kernel as that user.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::unistd::{
    Gid, Uid, chdir, chroot, fchdir, getegid, geteuid, getgroups, setegid, seteuid, setgroups,
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

    /// Those of a service, with its capabilities as systemd shows them.
    pub(super) fn of_service(user: u32, group: u32, groups: Vec<u32>, capabilities: &str) -> Self {
        let known = CAPABILITIES.iter().filter(|(name, _)| {
            user == 0 || capabilities.split_whitespace().any(|capability| capability == *name)
        });
        let capabilities = known.fold(0, |set, (_, capability)| set | 1 << capability);
        Self::new(user, group, groups, capabilities)
    }

    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// Runs a check as this user, and with the root and working folder of `process`, a folder of
    /// `/proc`, if there is one. `own` are the credentials of this process, which is root.
    ///
    /// # Errors
    /// If this process may not change its user, as in some containers.
    pub(super) fn run<T>(
        &self,
        own: &Self,
        process: Option<&Path>,
        check: impl FnOnce() -> T,
    ) -> io::Result<T> {
        let mut back = Back { own, folders: None };
        if let Some(process) = process {
            back.folders = Some((File::open("/")?, File::open(".")?));
            chdir(&process.join("cwd"))?;
            chroot(&process.join("root"))?;
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

fn to_gids(groups: &[u32]) -> Vec<Gid> {
    groups.iter().copied().map(Gid::from_raw).collect()
}

/// Makes this process root again when it is dropped.
struct Back<'a> {
    own: &'a Credentials,
    /// The root folder and the working folder.
    folders: Option<(File, File)>,
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // These cannot fail, because root is still the real user.
        let _ = seteuid(Uid::from_raw(self.own.user));
        let _ = setegid(Gid::from_raw(self.own.group));
        let _ = setgroups(&to_gids(&self.own.groups));
        if let Some((root, working)) = &self.folders {
            let _ = fchdir(root.as_fd()).and_then(|()| chroot("."));
            let _ = fchdir(working.as_fd());
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
    fn service_of_root_has_all_capabilities() {
        let service = |user, text| Credentials::of_service(user, 9, vec![], text);
        assert!(service(7, "cap_sys_nice cap_net_bind_service").has(CAP_NET_BIND_SERVICE));
        assert!(!service(7, "cap_net_bind_service").has(CAP_DAC_OVERRIDE));
        assert!(service(0, "").has(CAP_DAC_OVERRIDE));
    }
}
