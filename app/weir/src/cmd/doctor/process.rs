//! The process whose limits count: the running router, or else this shell.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use weir_face::FaceUri;
use weir_runtime::{
    GroupLimit, MemoryLimit, group_files, memory_limit, memory_limit_of_process, process_limit,
};

/// The processes of the unit that the packages install.
const UNIT_PROCESSES: &str = "/sys/fs/cgroup/system.slice/weir-router.service/cgroup.procs";

/// A process, and how its limits are described.
pub(super) struct Measured {
    /// `None` for this shell.
    pub(super) pid: Option<u32>,
}

impl Measured {
    /// The router that listens at this address, or that systemd has started.
    pub(super) fn find(router: Option<&FaceUri>) -> Self {
        let listening = match router {
            Some(FaceUri::Unix(path)) => UnixStream::connect(path).ok().and_then(|stream| {
                u32::try_from(getsockopt(&stream, PeerCredentials).ok()?.pid()).ok()
            }),
            _ => None,
        };
        let of_unit = || fs::read_to_string(UNIT_PROCESSES).ok()?.lines().next()?.parse().ok();
        // systemd itself listens for units that it starts later. Another namespace has no number.
        let listening = listening.filter(|&pid| pid > 1);
        Self { pid: listening.or_else(of_unit) }
    }

    #[cfg(test)]
    pub(super) fn of_this_shell() -> Self {
        Self { pid: None }
    }

    /// Whose limits these are.
    pub(super) fn owner(&self) -> String {
        match self.pid {
            Some(pid) => format!("of the running router, process {pid}"),
            None => "of this shell".to_owned(),
        }
    }

    /// A file of the process in `/proc`.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let process = self.pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        PathBuf::from(format!("/proc/{process}/{name}"))
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name)).ok()
    }

    /// A soft and a hard limit by its title in `/proc/PID/limits` (proc(5)), such as
    /// `Max open files`.
    pub(super) fn limit(&self, title: &str) -> Option<(u64, u64)> {
        process_limit(&self.text("limits")?, title)
    }

    /// A field of `/proc/PID/status`.
    pub(super) fn status(&self, field: &str) -> Option<String> {
        let text = self.text("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// The smallest limit of its control groups, and the file with it. `read` reads the text of a
    /// file.
    pub(super) fn group_limit(
        &self,
        limit: GroupLimit,
        read: fn(&str) -> Option<u64>,
    ) -> Option<(u64, PathBuf)> {
        smallest(group_files(self.pid, limit), read)
    }

    pub(super) fn memory_limit(&self) -> Option<MemoryLimit> {
        self.pid.map_or_else(memory_limit, memory_limit_of_process)
    }
}

/// The smallest limit in these files, and its file.
fn smallest(files: Vec<PathBuf>, read: fn(&str) -> Option<u64>) -> Option<(u64, PathBuf)> {
    let limits = files.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((read(text.trim())?, path))
    });
    limits.min_by_key(|(limit, _)| *limit)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn smallest_limit_up_to_the_root_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let read = |text: &str| text.parse().ok();
        let (leaf, slice) = (file("leaf", "max\n"), file("slice", "32\n"));
        let root = file("root", "4096\n");
        let files = vec![leaf.clone(), slice.clone(), root, folder.path().join("none")];
        assert_eq!(smallest(files, read), Some((32, slice)));
        assert_eq!(smallest(vec![leaf], read), None);
    }

    #[test]
    fn limits_of_own_process_are_those_of_the_shell() {
        let own = Measured::of_this_shell();
        let of_pid = Measured { pid: Some(std::process::id()) };
        assert_eq!(own.limit("Max open files"), of_pid.limit("Max open files"));
        assert!(own.status("CapEff").is_some() && own.owner() == "of this shell");
    }

    #[test]
    fn finds_the_process_behind_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let measured = Measured::find(Some(&FaceUri::Unix(path)));
        let pid = std::process::id();
        assert_eq!(measured.owner(), format!("of the running router, process {pid}"));
        assert!(measured.limit("Max open files").is_some());
    }
}
