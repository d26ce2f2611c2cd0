//! The process whose limits count: the running router, or else this shell.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use weir_face::FaceUri;
use weir_runtime::{MemoryLimit, memory_limit, memory_limit_of_process};

/// The processes of the unit that the packages install.
const UNIT_PROCESSES: &str = "/sys/fs/cgroup/system.slice/weir-router.service/cgroup.procs";

/// A limit without a bound.
pub(super) const UNLIMITED: u64 = u64::MAX;

/// A process, and how its limits are described.
pub(super) struct Measured {
    /// `None` for this shell.
    pid: Option<u32>,
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
    pub(super) fn of(pid: Option<u32>) -> Self {
        Self { pid }
    }

    /// Whose limits these are.
    pub(super) fn owner(&self) -> String {
        match self.pid {
            Some(pid) => format!("of the running router, process {pid}"),
            None => "of this shell".to_owned(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        let process = self.pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        PathBuf::from(format!("/proc/{process}/{name}"))
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name)).ok()
    }

    /// A soft and a hard limit by its title in `/proc/PID/limits` (proc(5)), such as
    /// `Max open files`.
    pub(super) fn limit(&self, title: &str) -> Option<(u64, u64)> {
        limit_of(&self.text("limits")?, title)
    }

    /// A field of `/proc/PID/status`.
    pub(super) fn status(&self, field: &str) -> Option<String> {
        let text = self.text("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// The folder of its control group (version 2).
    pub(super) fn group(&self) -> Option<PathBuf> {
        let text = self.text("cgroup")?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(PathBuf::from(format!("/sys/fs/cgroup{path}")))
    }

    pub(super) fn memory_limit(&self) -> Option<MemoryLimit> {
        self.pid.map_or_else(memory_limit, memory_limit_of_process)
    }
}

fn limit_of(limits: &str, title: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
    let mut numbers = line.split_whitespace().map(|text| match text {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn reads_limits_of_a_process() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 1048576              files\n\
                      Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(limit_of(limits, "Max open files"), Some((1024, 1_048_576)));
        assert_eq!(limit_of(limits, "Max locked memory"), Some((8_388_608, UNLIMITED)));
        assert_eq!(limit_of(limits, "Max processes"), None);
        let own = Measured::of(None);
        let of_pid = Measured::of(Some(std::process::id()));
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
