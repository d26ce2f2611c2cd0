//! The systemd unit that the packages install: the user and the folders that it gives to a router.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use weir_runtime::MemoryLimit;

use super::credentials::Credentials;

const SERVICE: &str = "weir-router.service";
const SOCKET: &str = "weir-router.socket";
const PROPERTIES: &str = "LoadState,User,Group,DynamicUser,SupplementaryGroups,StateDirectory,\
                          ProtectSystem,ReadWritePaths,PrivateDevices,AmbientCapabilities,\
                          CapabilityBoundingSet,MemoryMax,MemoryHigh,Listen";
/// A user of the range from which systemd takes dynamic ones (systemd.exec(5)). No file belongs to
/// it, so it may do what is allowed for all users.
const DYNAMIC_USER: u32 = 65_519;

/// The installed service, while it does not run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) user: String,
    pub(super) credentials: Credentials,
    /// Folders that systemd creates for the service, and gives to its user.
    state: Vec<PathBuf>,
    /// If only these folders and those of `state` can be written.
    writable: Option<Vec<PathBuf>>,
    /// Whether the service has no block devices.
    hides_devices: bool,
    /// Unix sockets that systemd opens for the service.
    sockets: Vec<PathBuf>,
    pub(super) memory: Option<MemoryLimit>,
}

impl Unit {
    /// Asks systemd. `None` if it does not run, or has no such unit.
    pub(super) fn find() -> Option<Self> {
        let mut command = Command::new("systemctl");
        command.args(["show", SERVICE, SOCKET, "--property", PROPERTIES]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Reads properties of the service, and after an empty line those of the socket.
    fn parse(text: &str) -> Option<Self> {
        let (service, socket) = text.split_once("\n\n").unwrap_or((text, ""));
        let property = |name: &str| {
            let line = service.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default()
        };
        if property("LoadState") != "loaded" {
            return None;
        }
        let folders = |name: &str, parent: &str| {
            let paths = property(name).split_whitespace();
            // `-` and `+` before a path are options of systemd.
            paths.map(|path| Path::new(parent).join(path.trim_start_matches(['-', '+']))).collect()
        };
        let memory = ["MemoryMax", "MemoryHigh"].into_iter().filter_map(|name| {
            // Without a limit, it is `infinity`.
            let bytes = property(name).parse().ok()?;
            let name = format!("{name}= of {SERVICE}");
            Some(MemoryLimit { name, bytes, left_bytes: bytes })
        });
        let is_strict = property("ProtectSystem") == "strict";
        let listening = socket.lines().filter_map(|line| line.strip_prefix("Listen="));
        let sockets = listening.filter_map(|line| line.strip_suffix(" (Stream)"));
        Some(Self {
            user: match property("User") {
                "" => "root".to_owned(),
                user => user.to_owned(),
            },
            credentials: credentials(property)?,
            state: folders("StateDirectory", "/var/lib"),
            writable: is_strict.then(|| folders("ReadWritePaths", "/")),
            hides_devices: property("PrivateDevices") == "yes",
            memory: memory.min_by_key(|limit| limit.bytes),
            sockets: sockets.filter(|path| path.starts_with('/')).map(PathBuf::from).collect(),
        })
    }

    /// Whether systemd creates this folder, or one above it, for the service.
    pub(super) fn owns(&self, path: &Path) -> bool {
        self.state.iter().any(|folder| path.starts_with(folder))
    }

    /// Whether the sandbox of the unit lets the service write here.
    pub(super) fn may_write(&self, path: &Path) -> bool {
        let writable = |folders: &Vec<PathBuf>| folders.iter().any(|it| path.starts_with(it));
        if path.starts_with("/dev") {
            return !self.hides_devices;
        }
        self.owns(path) || self.writable.as_ref().is_none_or(writable)
    }

    pub(super) fn opens_socket(&self, path: &Path) -> bool {
        self.sockets.iter().any(|socket| socket == path)
    }
}

/// The credentials of the service. `None` if its user does not exist.
fn credentials<'a>(property: impl Fn(&str) -> &'a str) -> Option<Credentials> {
    let is_dynamic = property("DynamicUser") == "yes";
    let name = Some(property("User")).filter(|name| !name.is_empty());
    // systemd uses a user with this name if there is one, and then DynamicUser= has no effect.
    let known = name.and_then(|name| {
        let number =
            || name.parse().ok().and_then(|id| User::from_uid(Uid::from_raw(id)).ok().flatten());
        User::from_name(name).ok().flatten().or_else(number)
    });
    let (user, group, mut groups) = match known {
        Some(user) => {
            let c_name = CString::new(user.name.as_str()).ok()?;
            let groups = getgrouplist(&c_name, user.gid).unwrap_or_default();
            (user.uid.as_raw(), user.gid, groups)
        }
        None if name.is_none() && !is_dynamic => (0, Gid::from_raw(0), Vec::new()),
        None if is_dynamic => (DYNAMIC_USER, Gid::from_raw(DYNAMIC_USER), Vec::new()),
        None => return None,
    };
    let group = group_of(property("Group")).unwrap_or(group);
    groups.extend(property("SupplementaryGroups").split_whitespace().filter_map(group_of));
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    let (ambient, bounding) = (property("AmbientCapabilities"), property("CapabilityBoundingSet"));
    Some(Credentials::of_service(user, group.as_raw(), groups, ambient, bounding))
}

fn group_of(name: &str) -> Option<Gid> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid);
    known.or_else(|| name.parse().ok().map(Gid::from_raw))
}

#[cfg(test)]
mod tests {
    use super::super::credentials::CAP_NET_BIND_SERVICE;
    use super::*;

    const SHOWN: &str = "StateDirectory=weir\nUser=no-such-user\nGroup=no-such-user\n\
                         DynamicUser=yes\nSupplementaryGroups=6 44\nProtectSystem=strict\n\
                         ReadWritePaths=-/srv/a /srv/b\nAmbientCapabilities=cap_net_bind_service\n\
                         CapabilityBoundingSet=cap_net_bind_service cap_net_admin\n\
                         MemoryMax=infinity\nMemoryHigh=1048576\n\
                         LoadState=loaded\n\nListen=0.0.0.0:6363 (Stream)\n\
                         Listen=/run/nfd/nfd.sock (Stream)\nLoadState=loaded\n";

    #[test]
    fn dynamic_user_owns_the_state_alone() {
        let unit = Unit::parse(SHOWN).unwrap();
        assert_eq!(unit.user, "no-such-user");
        let credentials = &unit.credentials;
        assert_eq!((credentials.user, credentials.group), (DYNAMIC_USER, DYNAMIC_USER));
        assert_eq!(credentials.groups, [6, 44]);
        assert!(credentials.has(CAP_NET_BIND_SERVICE));
        let is_owner = |path: &str| unit.owns(Path::new(path));
        assert!(is_owner("/var/lib/weir/disk") && is_owner("/var/lib/weir"));
        assert!(!is_owner("/var/lib/weird") && !is_owner("/srv/a/disk"));
        let may_write = |path: &str| unit.may_write(Path::new(path));
        assert!(may_write("/var/lib/weir/disk") && may_write("/srv/a/disk"));
        assert!(may_write("/dev/nvme0n1") && !may_write("/srv/c"));
        let private = Unit::parse(&format!("PrivateDevices=yes\n{SHOWN}")).unwrap();
        assert!(!private.may_write(Path::new("/dev/nvme0n1")));
        assert_eq!(unit.memory.as_ref().map(|limit| limit.bytes), Some(1 << 20));
        assert!(unit.opens_socket(Path::new("/run/nfd/nfd.sock")));
        assert!(!unit.opens_socket(Path::new("/run/other.sock")));
    }

    #[test]
    fn absent_unit_is_none() {
        assert_eq!(Unit::parse(""), None);
        assert_eq!(Unit::parse("LoadState=not-found\nUser=\n"), None);
        let gone = "LoadState=loaded\nUser=no-such-user\nDynamicUser=no\n";
        assert_eq!(Unit::parse(gone), None);
        let root = Unit::parse("LoadState=loaded\nUser=\nDynamicUser=no\n").unwrap();
        assert_eq!((root.credentials.user, &*root.user), (0, "root"));
        assert!(root.may_write(Path::new("/srv/c")));
    }
}
