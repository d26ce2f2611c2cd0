//! A file system of a few mebibytes that a test can fill and set read-only.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Host;

/// Mounts a tmpfs with options `$0` at `$1`, prints `mounted`, and keeps the namespace until its
/// standard input ends.
const MOUNT_SCRIPT: &str = r#"mount -t tmpfs -o "$0" tmpfs "$1" && echo mounted && exec cat"#;
/// Changes to the folder `$0` and runs the other arguments, as `nsenter` starts in the root folder.
const ENTER_SCRIPT: &str = r#"cd "$0" && exec "$@""#;
const FILLER: &str = "filler";

/// A tmpfs in a private mount namespace. Only programs started with [`SmallDisk::command`] see it.
/// It is removed on drop.
#[derive(Debug)]
pub struct SmallDisk {
    holder: Child,
    /// Closing it ends the holder.
    _stdin: ChildStdin,
    folder: PathBuf,
    is_root: bool,
}

impl SmallDisk {
    /// Mounts a disk of `size` (in the format of `mount`, such as `2m`) at a new folder of the
    /// host. Returns `None` and prints the reason if that is not possible.
    ///
    /// # Panics
    /// If the folder cannot be made.
    pub fn mount(host: &Host, name: &str, size: &str) -> Option<Self> {
        let folder = host.path(name);
        fs::create_dir(&folder).expect("folder of the small disk");
        let is_root = nix::unistd::geteuid().is_root();
        let mut unshare = Command::new("unshare");
        unshare.arg("--mount");
        if !is_root {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["sh", "-c", MOUNT_SCRIPT, &format!("size={size},mode=700")]).arg(&folder);
        let started = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = match started {
            Ok(holder) => holder,
            Err(error) => {
                eprintln!("NOT tested with a small disk: unshare does not start: {error}");
                return None;
            }
        };
        let stdin = holder.stdin.take().expect("standard input is piped");
        let mut line = String::new();
        let output = holder.stdout.take().expect("standard output is piped");
        let _ = BufReader::new(output).read_line(&mut line);
        if line.trim() != "mounted" {
            eprintln!("NOT tested with a small disk: no file system can be mounted here");
            let _ = holder.wait();
            return None;
        }
        Some(Self { holder, _stdin: stdin, folder, is_root })
    }

    /// Its path for programs started with [`SmallDisk::command`].
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path_from_outside(&self) -> PathBuf {
        let inside = self.folder.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    /// `program` in the namespace of the disk, otherwise as [`Host::command`].
    pub fn command(&self, host: &Host, program: &Path) -> Command {
        let mut command = host.command(Path::new("nsenter"));
        if !self.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command.args(["sh", "-c", ENTER_SCRIPT]).arg(host.path("")).arg(program);
        command
    }

    /// Fills the disk to the last byte.
    ///
    /// # Panics
    /// If writing fails for another reason.
    pub fn fill(&self) {
        let path = self.path_from_outside().join(FILLER);
        let mut file = File::options().create(true).append(true).open(path).expect("filler");
        let mut bytes = &[0; 4096][..];
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    bytes = &bytes[..bytes.len() / 2];
                }
                Err(error) => panic!("the small disk cannot be filled: {error}"),
            }
        }
    }

    /// Removes the file of [`SmallDisk::fill`].
    ///
    /// # Panics
    /// If it was not filled.
    pub fn remove_filler(&self) {
        fs::remove_file(self.path_from_outside().join(FILLER)).expect("filler");
    }

    /// Makes the disk read-only or writable. Fails while a file is open for writing.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn set_read_only(&self, host: &Host, is_read_only: bool) {
        let option = if is_read_only { "remount,ro" } else { "remount,rw" };
        let mut mount = self.command(host, Path::new("mount"));
        let status = mount.args(["-o", option]).arg(&self.folder).status().expect("mount starts");
        assert!(status.success(), "mount -o {option}: {status}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
