//! The configuration, and what it needs: sockets, ports, disks and the clock.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{AccessFlags, access};
use weir_client::Client;
use weir_face::{client_transport, unix_time_ms};

use super::process::Measured;
use super::{Finding, Outcome};
use crate::config::{ConfigFile, DiskSection, FileConfig, UnixChoice, disk_shortage, folder_of};
use crate::table::octets;

/// Binds a socket and closes it.
type Bind = fn(SocketAddr) -> io::Result<()>;

/// What is checked, and the findings so far.
pub(super) struct Site {
    /// The configuration, or the defaults if it is invalid.
    pub(super) config: FileConfig,
    pub(super) measured: Measured,
    pub(super) findings: Vec<Finding>,
}

/// Checks the configuration and what it needs.
pub(super) fn check(path: Option<&Path>) -> Site {
    let uri = client_transport().map(|choice| choice.uri).ok();
    let uri = uri.filter(|uri| Client::connect(uri).is_ok());
    let measured = Measured::find(uri.as_ref());
    let router = uri.map(|uri| uri.to_string());
    let (config, outcome) = configuration(path);
    let needed =
        |check: &str, outcome| Finding::new(check, true, "the router does not start", outcome);
    let mut findings = vec![
        needed("configuration", outcome),
        Finding::new(
            "clock",
            true,
            "other machines reject signatures and certificates of this one",
            clock(),
        ),
        needed("Unix socket", unix_socket(&config.faces.unix, router.as_deref())),
    ];
    let is_running = router.is_some();
    for (name, addresses, bind) in [
        ("UDP port", &config.faces.udp, bind_udp as Bind),
        ("TCP port", &config.faces.tcp, bind_tcp as Bind),
        ("WebSocket port", &config.faces.websocket, bind_tcp as Bind),
    ] {
        for &address in addresses {
            findings.push(needed(&format!("{name} {address}"), port(bind(address), is_running)));
        }
    }
    if config.disk.is_empty() {
        let detail = "none is configured: the store is in memory alone";
        findings.push(needed("disks", Outcome::found(detail)));
    }
    for disk in &config.disk {
        let shown = disk.path.display();
        findings.push(needed(&format!("disk {shown}"), disk_file(disk)));
        findings.extend(disk_space(disk));
        findings.push(Finding::new(
            format!("direct access to {shown}"),
            false,
            "the page cache holds a second copy of data, which the store needs for itself",
            direct_access(disk),
        ));
    }
    Site { config, measured, findings }
}

fn configuration(path: Option<&Path>) -> (FileConfig, Outcome) {
    let (config, path) = match ConfigFile::read(path) {
        Ok(file) => (file.config, file.path),
        Err(error) => {
            let fix = "correct the file; weir router --print-default-config prints all keys";
            return (FileConfig::default(), Outcome::missing(format!("{error:#}"), fix));
        }
    };
    let outcome = match (config.to_runtime(), path) {
        (Err(error), _) => Outcome::missing(format!("{error:#}"), "correct the file"),
        (Ok(_), Some(path)) => Outcome::found(path.display().to_string()),
        (Ok(_), None) => Outcome::found("no file: the defaults"),
    };
    (config, outcome)
}

fn clock() -> Outcome {
    let built_unix_s: u64 = env!("WEIR_BUILD_UNIX_S").parse().expect("build.rs writes a number");
    let now_unix_s = unix_time_ms() / 1000;
    if now_unix_s + 86_400 < built_unix_s {
        Outcome::missing("it is before the date of this program", "timedatectl set-ntp true")
    } else {
        Outcome::found("it is after the date of this program")
    }
}

fn unix_socket(choice: &UnixChoice, router: Option<&str>) -> Outcome {
    let path = match (router, choice) {
        (Some(uri), _) => return Outcome::found(format!("a router answers at {uri}")),
        (None, UnixChoice::None) => return Outcome::found("none is configured"),
        // One of its paths is in the directory for temporary files.
        (None, UnixChoice::Auto) => return Outcome::found("no router runs; a path is free"),
        (None, UnixChoice::Path(path)) => path,
    };
    let folder = folder_of(path);
    match access(folder, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Outcome::found(format!("{} can be created", path.display())),
        Err(error) => Outcome::missing(
            format!("{} cannot be created: {error}", path.display()),
            format!("install -d -o \"$USER\" {}", folder.display()),
        ),
    }
}

fn bind_udp(address: SocketAddr) -> io::Result<()> {
    UdpSocket::bind(address).map(drop)
}

fn bind_tcp(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

fn port(bound: io::Result<()>, is_running: bool) -> Outcome {
    let Err(error) = bound else { return Outcome::found("free") };
    match error.kind() {
        ErrorKind::AddrInUse if is_running => Outcome::found("in use; a router runs"),
        ErrorKind::AddrInUse => Outcome::missing(
            "another program uses it",
            "stop that program (ss -lnp shows it), or choose another port in [faces]",
        ),
        ErrorKind::PermissionDenied => Outcome::missing(
            "no permission for a port below 1024",
            "AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or choose another port",
        ),
        // As the router: an IPv6 address is ignored on a machine without IPv6.
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            Outcome::found("ignored: this machine has no such protocol")
        }
        _ => Outcome::missing(
            format!("{error}"),
            "choose an address of this machine in [faces] (ip address shows them)",
        ),
    }
}

/// What fixes a check that this user may not do.
const RUN_AS_ROOT: &str = "run weir doctor as root, or as the user of the router";

/// Where the service may write. Its user exists only while it runs, so no file can belong to it.
const SERVICE_FOLDER: &str = "the service of a package can write to /var/lib/weir, and to a block \
                              device with SupplementaryGroups=disk";

/// Whether the disk can be opened, or its file created.
fn disk_file(disk: &DiskSection) -> Outcome {
    let path = &disk.path;
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Outcome::missing(format!("{error}"), RUN_AS_ROOT);
        }
        Err(_) => return new_disk_file(disk),
    };
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) if metadata.file_type().is_block_device() => Outcome::found("a block device"),
        Ok(_) => {
            let allocated_bytes = metadata.blocks() * 512;
            let (size, allocated) = (octets(metadata.len()), octets(allocated_bytes));
            Outcome::found(format!("a file of {size}, {allocated} are allocated"))
        }
        Err(error) => {
            Outcome::missing(format!("{error}"), format!("{RUN_AS_ROOT}; {SERVICE_FOLDER}"))
        }
    }
}

/// Whether the file of a disk can be created.
fn new_disk_file(disk: &DiskSection) -> Outcome {
    let folder = folder_of(&disk.path);
    match access(folder, AccessFlags::W_OK | AccessFlags::X_OK) {
        Err(Errno::EACCES) if folder.exists() => Outcome::missing(
            format!("{} cannot be created: Permission denied", disk.path.display()),
            format!("{RUN_AS_ROOT}; {SERVICE_FOLDER}"),
        ),
        Err(error) => Outcome::missing(
            format!("{} cannot be created: {error}", disk.path.display()),
            format!("mkdir -p {}; {SERVICE_FOLDER}", folder.display()),
        ),
        Ok(()) if disk.size.is_none() => {
            Outcome::missing("a new file needs a size", "add `size` to [[disk]]")
        }
        Ok(()) => Outcome::found("a new file"),
    }
}

/// Whether there is space for the whole disk. A file whose space is not reserved works until the
/// file system is full; for a new one the router reserves it at the start. `None` if the disk has
/// no size of its own, or no folder.
fn disk_space(disk: &DiskSection) -> Option<Finding> {
    let existing = fs::metadata(&disk.path).ok();
    let is_device =
        existing.as_ref().is_some_and(|metadata| metadata.file_type().is_block_device());
    if disk.size.is_none() || is_device || !folder_of(&disk.path).exists() {
        return None;
    }
    let is_new = existing.is_none();
    let outcome = match disk_shortage(disk) {
        Some(shortage) => Outcome::missing(shortage.detail, shortage.fix),
        None => Outcome::found("there is space for all of it"),
    };
    let effect = if is_new {
        "the router does not start, or writes fail when the file system is full"
    } else {
        "writes fail when the file system is full"
    };
    let check = format!("space for {}", disk.path.display());
    Some(Finding::new(check, is_new, effect, outcome))
}

/// Whether the file system has O_DIRECT.
fn direct_access(disk: &DiskSection) -> Outcome {
    if !disk.direct {
        return Outcome::found("switched off (direct = false)");
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECT);
    let opened = match fs::metadata(&disk.path) {
        Ok(_) => options.open(&disk.path),
        // A file without a name, which disappears when it is closed.
        Err(_) => options
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_TMPFILE)
            .open(folder_of(&disk.path)),
    };
    direct_outcome(opened.map(drop))
}

fn direct_outcome(opened: io::Result<()>) -> Outcome {
    match opened {
        Ok(()) => Outcome::found("usable"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Outcome::missing(
            "the file system has no direct access",
            "use another file system, such as ext4 or XFS, or set direct = false",
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Outcome::missing(format!("it cannot be checked: {error}"), RUN_AS_ROOT)
        }
        Err(error) => Outcome::missing(format!("{error}"), "set direct = false in [[disk]]"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn taken_port_is_missing_without_a_router() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert!(!port(bind_udp(address), false).is_found);
        assert!(port(bind_udp(address), true).is_found);
        drop(socket);
        assert_eq!(port(bind_udp(address), false), Outcome::found("free"));
    }

    #[test]
    fn disk_larger_than_free_space_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let text = |size: &str| format!("[[disk]]\npath = {path:?}\nsize = \"{size}\"\n");
        let disk = |size: &str| FileConfig::parse(&text(size), "a").unwrap().disk.remove(0);
        assert_eq!(disk_space(&disk("64MiB")).unwrap().state(), State::Found);
        assert_eq!(disk_file(&disk("64MiB")), Outcome::found("a new file"));
        let finding = disk_space(&disk("1000000TiB")).unwrap();
        assert_eq!(finding.state(), State::Missing);
        assert!(finding.fix.as_ref().unwrap().contains("reduce"), "{finding:?}");
        // A router may run with this file until the file system is full.
        fs::write(&path, "a").unwrap();
        assert_eq!(disk_space(&disk("1000000TiB")).unwrap().state(), State::Recommended);
        assert!(disk_file(&disk("64MiB")).is_found);
        let lost =
            FileConfig::parse("[[disk]]\npath = \"/none/a\"\nsize = \"1GiB\"\n", "a").unwrap();
        assert!(disk_space(&lost.disk[0]).is_none());
        let outcome = disk_file(&lost.disk[0]);
        assert!(!outcome.is_found && outcome.fix.contains("/none"), "{outcome:?}");
    }

    #[test]
    fn denied_permission_asks_for_root() {
        let outcome = direct_outcome(Err(ErrorKind::PermissionDenied.into()));
        assert!(!outcome.is_found && outcome.fix.contains("as root"), "{outcome:?}");
        let outcome = direct_outcome(Err(ErrorKind::InvalidInput.into()));
        assert!(outcome.fix.contains("direct = false"), "{outcome:?}");
        assert!(direct_outcome(Ok(())).is_found);
    }

    #[test]
    fn invalid_configuration_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        fs::write(&path, "[store]\nsizes = 1\n").unwrap();
        let (_, outcome) = configuration(Some(&path));
        assert!(!outcome.is_found && outcome.detail.contains("sizes"), "{outcome:?}");
    }
}
