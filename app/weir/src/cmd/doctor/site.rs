//! The configuration, and what it needs: sockets, ports, disks and the clock.

use std::collections::BTreeMap;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::unistd::{AccessFlags, faccessat};
use weir_client::Client;
use weir_face::{client_transport, unix_time_ms};

use super::process::Measured;
use super::router_user::RouterUser;
use super::{Finding, Outcome};
use crate::config::{
    ConfigFile, DiskSection, DiskSpace, FileConfig, UnixChoice, disk_spaces, folder_of,
};
use crate::table::octets;

/// Binds a socket and closes it.
type Bind = fn(SocketAddr) -> io::Result<()>;

/// What is checked, and the findings so far.
pub(super) struct Site {
    /// The configuration, or the defaults if it is invalid.
    pub(super) config: FileConfig,
    pub(super) measured: Measured,
    pub(super) user: RouterUser,
    pub(super) findings: Vec<Finding>,
}

/// Checks the configuration and what it needs.
pub(super) fn check(path: Option<&Path>) -> Site {
    let uri = client_transport().map(|choice| choice.uri).ok();
    let uri = uri.filter(|uri| Client::connect(uri).is_ok());
    let measured = Measured::find(uri.as_ref());
    let user = RouterUser::find(&measured);
    let router = uri.map(|uri| uri.to_string());
    let (config, outcome) = configuration(path, &user);
    let mut findings = vec![
        needed("configuration", outcome),
        Finding::new(
            "clock",
            true,
            "other machines reject signatures and certificates of this one",
            clock(),
        ),
        needed("Unix socket", unix_socket(&config.faces.unix, router.as_deref(), &user)),
    ];
    findings.extend(ports(&config, router.is_some(), &user));
    findings.extend(disks(&config, &user));
    Site { config, measured, user, findings }
}

fn needed(check: &str, outcome: Outcome) -> Finding {
    Finding::new(check, true, "the router does not start", outcome)
}

fn ports(config: &FileConfig, is_running: bool, user: &RouterUser) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, addresses, bind) in [
        ("UDP port", &config.faces.udp, bind_udp as Bind),
        ("TCP port", &config.faces.tcp, bind_tcp as Bind),
        ("WebSocket port", &config.faces.websocket, bind_tcp as Bind),
    ] {
        for &address in addresses {
            // The first try finds a port in use, the second one a port that the user may not have.
            let bound = bind(address).and_then(|()| user.run_bind(|| bind(address)));
            findings.push(needed(&format!("{name} {address}"), port(bound, is_running)));
        }
    }
    findings
}

fn disks(config: &FileConfig, user: &RouterUser) -> Vec<Finding> {
    if config.disk.is_empty() {
        let detail = "none is configured: the store is in memory alone";
        return vec![needed("disks", Outcome::found(detail))];
    }
    let mut findings = Vec::new();
    for disk in &config.disk {
        let shown = disk.path.display();
        let outcome = user.run_at(&disk.path, || disk_file(disk, user));
        findings.push(needed(&format!("disk {shown}"), outcome));
        if is_folder_missing(disk, user) {
            continue;
        }
        findings.push(Finding::new(
            format!("direct access to {shown}"),
            false,
            "the page cache holds a second copy of data, which the store needs for itself",
            user.run_at(&disk.path, || direct_access(disk, user)),
        ));
    }
    // The user of a service may not look into its folder before the start.
    let spaces = || disk_spaces(&config.disk);
    let spaces = if user.unit.is_some() { spaces() } else { user.run(spaces) };
    findings.extend(spaces.iter().map(disk_space));
    findings
}

/// Whether systemd has not created the folder of a disk yet.
fn is_folder_missing(disk: &DiskSection, user: &RouterUser) -> bool {
    user.owns(&disk.path) && !folder_of(&disk.path).exists()
}

/// The configuration that the user of the router reads. If it cannot, the other checks use what
/// this user reads.
fn configuration(path: Option<&Path>, user: &RouterUser) -> (FileConfig, Outcome) {
    // The router has another working folder.
    let path = path.and_then(|path| std::path::absolute(path).ok());
    let read = || ConfigFile::read(path.as_deref());
    let file = match user.run(read) {
        Ok(file) => file,
        Err(error) => {
            let fix = match &path {
                Some(path) if is_denied(&error) => user.grant(path),
                _ => "correct the file; weir router --print-default-config prints all keys".into(),
            };
            let config = read().map(|file| file.config).unwrap_or_default();
            return (config, Outcome::missing(format!("{error:#}"), fix));
        }
    };
    let outcome = match check_content(&file.config, user) {
        Err(error) if is_denied(&error) => {
            let fix = user.grant(Path::new("the file"));
            Outcome::missing(format!("{error:#}"), fix)
        }
        Err(error) => Outcome::missing(format!("{error:#}"), "correct the file"),
        Ok(()) => match &file.path {
            Some(path) => Outcome::found(path.display().to_string()),
            None => Outcome::found("no file: the defaults"),
        },
    };
    (file.config, outcome)
}

/// Checks what a configuration names: groups, hosts and further files.
fn check_content(config: &FileConfig, user: &RouterUser) -> anyhow::Result<()> {
    let mut config = config.clone();
    // Names are resolved here, and not as the user; see `Credentials::run`.
    let mut names = FileConfig::default();
    names.faces.unix_group = mem::take(&mut config.faces.unix_group);
    names.controller.url.clone_from(&config.controller.url);
    names.controller.uris = mem::take(&mut config.controller.uris);
    let convert = |config: &FileConfig| {
        config.to_runtime()?;
        agent(config)
    };
    convert(&names)?;
    // These read certificates, keys, tokens and routes.
    user.run(|| convert(&config))
}

fn agent(config: &FileConfig) -> anyhow::Result<()> {
    let mut section = config.controller.clone();
    // Without a name here, the environment of the service may have it.
    section.name.get_or_insert_with(|| "router".to_owned());
    section.agent(&[], BTreeMap::new()).map(drop)
}

/// Whether an error is about permissions.
fn is_denied(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == ErrorKind::PermissionDenied)
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

fn unix_socket(choice: &UnixChoice, router: Option<&str>, user: &RouterUser) -> Outcome {
    let path = match (router, choice) {
        (Some(uri), _) => return Outcome::found(format!("a router answers at {uri}")),
        (None, UnixChoice::None) => return Outcome::found("none is configured"),
        // One of its paths is in the directory for temporary files.
        (None, UnixChoice::Auto) => return Outcome::found("no router runs; a path is free"),
        (None, UnixChoice::Path(path)) => path,
    };
    if user.unit.as_ref().is_some_and(|unit| unit.opens_socket(path)) {
        return Outcome::found(format!("systemd opens {} for the service", path.display()));
    }
    let folder = folder_of(path);
    match user.run_at(path, || may_create_in(folder)) {
        Ok(()) => Outcome::found(format!("{} can be created", path.display())),
        Err(error) => Outcome::missing(
            format!("{} cannot be created: {error}", path.display()),
            format!("mkdir -p {}; {}", folder.display(), user.grant(folder)),
        ),
    }
}

/// Whether the effective user may create files in a folder.
fn may_create_in(folder: &Path) -> Result<(), Errno> {
    faccessat(AT_FDCWD, folder, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)
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

/// Where the service may write. Its user exists only while it runs, so no file can belong to it.
const SERVICE_FOLDER: &str = "the service of a package can write to /var/lib/weir, and to block \
                              devices with PrivateDevices=no, DeviceAllow=PATH and \
                              SupplementaryGroups=disk";

/// Whether the disk can be opened, or its file created.
fn disk_file(disk: &DiskSection, user: &RouterUser) -> Outcome {
    let path = &disk.path;
    if user.unit.as_ref().is_some_and(|unit| !unit.may_write(path)) {
        return Outcome::missing(
            "the unit may not write there (ProtectSystem=strict, PrivateDevices=yes)",
            format!("{SERVICE_FOLDER}, and to folders in ReadWritePaths="),
        );
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Outcome::missing(format!("{error}"), user.grant(path));
        }
        Err(_) => return new_disk_file(disk, user),
    };
    if !is_disk(&metadata) {
        return Outcome::missing(
            "it is neither a file nor a block device",
            "choose another `path` in [[disk]]",
        );
    }
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) if metadata.file_type().is_block_device() => Outcome::found("a block device"),
        Ok(_) => {
            let allocated_bytes = metadata.blocks() * 512;
            let (size, allocated) = (octets(metadata.len()), octets(allocated_bytes));
            Outcome::found(format!("a file of {size}, {allocated} are allocated"))
        }
        Err(error) => {
            Outcome::missing(format!("{error}"), format!("{}; {SERVICE_FOLDER}", user.grant(path)))
        }
    }
}

fn is_disk(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.file_type().is_block_device()
}

/// Whether the file of a disk can be created.
fn new_disk_file(disk: &DiskSection, user: &RouterUser) -> Outcome {
    let folder = folder_of(&disk.path);
    match may_create_in(folder) {
        // systemd creates the folder.
        Err(_) if is_folder_missing(disk, user) && disk.size.is_some() => {
            Outcome::found("a new file")
        }
        Err(Errno::EACCES) if folder.exists() => Outcome::missing(
            format!("{} cannot be created: Permission denied", disk.path.display()),
            format!("{}; {SERVICE_FOLDER}", user.grant(folder)),
        ),
        Err(error) if !is_folder_missing(disk, user) => Outcome::missing(
            format!("{} cannot be created: {error}", disk.path.display()),
            format!("mkdir -p {}; {SERVICE_FOLDER}", folder.display()),
        ),
        _ if disk.size.is_none() => {
            Outcome::missing("a new file needs a size", "add `size` to [[disk]]")
        }
        _ => Outcome::found("a new file"),
    }
}

/// Whether there is space for whole disks. A file whose space is not reserved works until the file
/// system is full; for a new one the router reserves it at the start.
fn disk_space(space: &DiskSpace<'_>) -> Finding {
    let outcome = match &space.shortage {
        Some(shortage) => Outcome::missing(shortage.detail.clone(), shortage.fix.clone()),
        None => Outcome::found("there is space for all of it"),
    };
    let effect = if space.has_new {
        "the router does not start, or writes fail when the file system is full"
    } else {
        "writes fail when the file system is full"
    };
    Finding::new(format!("space for {}", space.paths()), space.has_new, effect, outcome)
}

/// Whether the file system has O_DIRECT.
fn direct_access(disk: &DiskSection, user: &RouterUser) -> Outcome {
    if !disk.direct {
        return Outcome::found("switched off (direct = false)");
    }
    let mut options = OpenOptions::new();
    // Opening a FIFO would wait for a writer.
    options.read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK);
    let opened = match fs::metadata(&disk.path) {
        Ok(_) => options.open(&disk.path),
        // A file without a name, which disappears when it is closed.
        Err(_) => options
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_TMPFILE)
            .open(folder_of(&disk.path)),
    };
    direct_outcome(opened.map(drop), || user.grant(&disk.path))
}

fn direct_outcome(opened: io::Result<()>, grant: impl Fn() -> String) -> Outcome {
    match opened {
        Ok(()) => Outcome::found("usable"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Outcome::missing(
            "the file system has no direct access",
            "use another file system, such as ext4 or XFS, or set direct = false",
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Outcome::missing(format!("it cannot be checked: {error}"), grant())
        }
        Err(error) => Outcome::missing(format!("{error}"), "set direct = false in [[disk]]"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::super::State;
    use super::super::router_user::RUN_AS_ROOT;
    use super::*;

    /// The user of these tests.
    fn own_user() -> RouterUser {
        RouterUser::find(&Measured { pid: Some(std::process::id()) })
    }

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
        let user = own_user();
        let disk_file = |disk: &DiskSection| disk_file(disk, &user);
        let disk_space = |disk: DiskSection| disk_spaces(&[disk]).first().map(disk_space);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let text = |size: &str| format!("[[disk]]\npath = {path:?}\nsize = \"{size}\"\n");
        let disk = |size: &str| FileConfig::parse(&text(size), "a").unwrap().disk.remove(0);
        assert_eq!(disk_space(disk("64MiB")).unwrap().state(), State::Found);
        assert_eq!(disk_file(&disk("64MiB")), Outcome::found("a new file"));
        let finding = disk_space(disk("1000000TiB")).unwrap();
        assert_eq!(finding.state(), State::Missing);
        assert!(finding.fix.as_ref().unwrap().contains("reduce"), "{finding:?}");
        // A router may run with this file until the file system is full.
        fs::write(&path, "a").unwrap();
        assert_eq!(disk_space(disk("1000000TiB")).unwrap().state(), State::Recommended);
        assert!(disk_file(&disk("64MiB")).is_found);
        let lost =
            FileConfig::parse("[[disk]]\npath = \"/none/a\"\nsize = \"1GiB\"\n", "a").unwrap();
        assert!(disk_space(lost.disk[0].clone()).is_none());
        let outcome = disk_file(&lost.disk[0]);
        assert!(!outcome.is_found && outcome.fix.contains("/none"), "{outcome:?}");
    }

    #[test]
    fn fifo_is_no_disk_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let config = FileConfig::parse(&format!("[[disk]]\npath = {path:?}\n"), "a").unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let user = own_user();
            let warnings = config.size_warnings(None);
            direct_access(&config.disk[0], &user);
            sender.send((warnings, disk_file(&config.disk[0], &user))).unwrap();
        });
        let (warnings, outcome) = receiver.recv_timeout(Duration::from_secs(60)).expect("no wait");
        assert_eq!(warnings, [""; 0]);
        assert!(!outcome.is_found && outcome.detail.contains("neither"), "{outcome:?}");
    }

    #[test]
    fn denied_permission_asks_for_root() {
        let grant = || RUN_AS_ROOT.to_owned();
        let outcome = direct_outcome(Err(ErrorKind::PermissionDenied.into()), grant);
        assert!(!outcome.is_found && outcome.fix.contains("as root"), "{outcome:?}");
        let outcome = direct_outcome(Err(ErrorKind::InvalidInput.into()), grant);
        assert!(outcome.fix.contains("direct = false"), "{outcome:?}");
        assert!(direct_outcome(Ok(()), grant).is_found);
    }

    #[test]
    fn invalid_configuration_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        fs::write(&path, "[store]\nsizes = 1\n").unwrap();
        let (_, outcome) = configuration(Some(&path), &own_user());
        assert!(!outcome.is_found && outcome.detail.contains("sizes"), "{outcome:?}");
    }
}
