//! The configuration, and what it needs: sockets, ports, disks and the clock.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use weir_client::Client;
use weir_face::{client_transport, unix_time_ms};

use super::{Finding, Outcome};
use crate::config::{ConfigFile, DiskSection, FileConfig, UnixChoice};
use crate::table::octets;

/// Binds a socket and closes it.
type Bind = fn(SocketAddr) -> io::Result<()>;

/// Checks the configuration and what it needs. Returns the configuration, or the defaults if it is
/// invalid.
pub(super) fn check(path: Option<&Path>) -> (FileConfig, Vec<Finding>) {
    let router = client_transport()
        .map(|choice| choice.uri)
        .ok()
        .and_then(|uri| Client::connect(&uri).ok().map(|_| uri.to_string()));
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
        findings.push(needed(&format!("disk {shown}"), disk_space(disk, is_running)));
        findings.push(Finding::new(
            format!("direct access to {shown}"),
            false,
            "the page cache holds a second copy of data, which the store needs for itself",
            direct_access(disk),
        ));
    }
    (config, findings)
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

/// The folder of a path, and the current one for a bare file name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
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

/// Whether the disk can be opened and has its size, or there is space for it.
fn disk_space(disk: &DiskSection, is_running: bool) -> Outcome {
    let path = &disk.path;
    let existing = fs::metadata(path);
    if existing.as_ref().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return match OpenOptions::new().read(true).open(path) {
            Ok(_) => Outcome::found("a block device"),
            Err(error) => Outcome::missing(
                format!("{error}"),
                format!("chgrp weir {0} && chmod g+rw {0}", path.display()),
            ),
        };
    }
    let allocated_bytes = existing.as_ref().map_or(0, |metadata| metadata.blocks() * 512);
    let folder = folder_of(path);
    if let (Err(_), Err(error)) = (&existing, access(folder, AccessFlags::W_OK)) {
        return Outcome::missing(
            format!("{} cannot be created: {error}", path.display()),
            format!("install -d -o \"$USER\" {}", folder.display()),
        );
    }
    let Some(size) = disk.size else {
        return match existing {
            Ok(metadata) => Outcome::found(format!("a file of {}", octets(metadata.len()))),
            Err(_) => Outcome::missing("a new file needs a size", "add `size` to [[disk]]"),
        };
    };
    let free_bytes = match statvfs(folder) {
        Ok(status) => status.blocks_available().saturating_mul(status.fragment_size()),
        Err(error) => return Outcome::missing(format!("{error}"), "check the path"),
    };
    let missing_bytes = size.bytes.saturating_sub(allocated_bytes);
    if missing_bytes <= free_bytes || is_running {
        let text = format!(
            "{} of {size} are allocated, {} are free",
            octets(allocated_bytes),
            octets(free_bytes)
        );
        return Outcome::found(text);
    }
    Outcome::missing(
        format!("{} are free of {} that it needs", octets(free_bytes), octets(missing_bytes)),
        format!("free space in {}, or reduce `size`", folder.display()),
    )
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
    match opened {
        Ok(_) => Outcome::found("usable"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Outcome::missing(
            "the file system has no direct access",
            "use another file system, such as ext4 or XFS, or set direct = false",
        ),
        Err(error) => Outcome::missing(format!("{error}"), "set direct = false in [[disk]]"),
    }
}

#[cfg(test)]
mod tests {
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
        assert!(disk_space(&disk("64MiB"), false).is_found);
        let outcome = disk_space(&disk("1000000TiB"), false);
        assert!(!outcome.is_found && outcome.fix.contains("reduce"), "{outcome:?}");
        let lost =
            FileConfig::parse("[[disk]]\npath = \"/none/a\"\nsize = \"1GiB\"\n", "a").unwrap();
        let outcome = disk_space(&lost.disk[0], false);
        assert!(!outcome.is_found && outcome.fix.contains("/none"), "{outcome:?}");
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
