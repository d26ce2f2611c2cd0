//! Routers whose content store has disks.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_base::Rng;

use crate::{Host, Router, wait_until};

/// Octets at the start of a disk that hold its superblock, both copies of it.
const SUPERBLOCK_AREA_BYTES: u64 = 8192;

/// The configuration of a router with disks.
#[derive(Debug, Clone)]
pub struct DiskStore {
    /// Name of the configuration, of the socket and of the files of the disks.
    pub name: String,
    pub disks: usize,
    /// Size of each, as the configuration has it.
    pub size: String,
    /// Memory of the store, as the configuration has it.
    pub memory: String,
    /// Lines of `[disks]`.
    pub settings: String,
    /// Lines of each `[[disk]]`.
    pub disk_settings: String,
    /// Whether [`Self::stall_file`] stalls them, which only a program with the laboratory can.
    pub can_stall: bool,
    /// Where the files are; in the host when there is nothing here.
    pub folder: Option<PathBuf>,
    /// More arguments for `weir router`.
    pub arguments: Vec<String>,
}

impl DiskStore {
    /// One disk of 64 MiB behind 1 MiB of memory, written to as Data comes.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            disks: 1,
            size: "64MiB".into(),
            memory: "1MiB".into(),
            settings: "offer = \"arrival\"\n".into(),
            disk_settings: String::new(),
            can_stall: false,
            folder: None,
            arguments: Vec::new(),
        }
    }

    pub fn file(&self, host: &Host, disk: usize) -> PathBuf {
        let name = format!("{}.disk{disk}", self.name);
        self.folder.as_ref().map_or_else(|| host.path(&name), |folder| folder.join(&name))
    }

    /// A path whose file, while it is there, stalls a disk if [`Self::can_stall`].
    pub fn stall_file(&self, host: &Host, disk: usize) -> PathBuf {
        host.path(&format!("{}.stall{disk}", self.name))
    }

    /// Writes the configuration and returns its path.
    pub fn write_config(&self, host: &Host) -> PathBuf {
        let Self { memory, settings, size, disk_settings: each, .. } = self;
        let mut text = format!("[store]\nsize = {memory:?}\n[disks]\n{settings}");
        for disk in 0..self.disks {
            let path = self.file(host, disk);
            let _ = writeln!(text, "[[disk]]\npath = {path:?}\nsize = {size:?}");
            if self.can_stall {
                let _ = writeln!(text, "stalled_while = {:?}", self.stall_file(host, disk));
            }
            text.push_str(each);
        }
        host.write(&format!("{}.toml", self.name), text.as_bytes())
    }

    /// Starts a router with these disks.
    pub fn start(&self, host: &Host) -> Router {
        let config = self.write_config(host);
        let mut arguments = vec!["-c".into(), config.to_str().expect("UTF-8").into()];
        arguments.extend(self.arguments.iter().cloned());
        Router::start_at_with(host, &self.name, &arguments)
    }

    /// Flips bits of each disk, anywhere but in the superblocks.
    ///
    /// # Panics
    /// If a file cannot be read or written.
    pub fn flip_bits(&self, host: &Host, flips: usize, seed: u64) {
        let mut rng = Rng::from_seed(seed);
        for disk in 0..self.disks {
            flip_bits(&self.file(host, disk), SUPERBLOCK_AREA_BYTES, flips, &mut rng);
        }
    }
}

fn flip_bits(path: &Path, from: u64, flips: usize, rng: &mut Rng) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("file of a disk");
    let len = file.metadata().expect("its length").len();
    for _ in 0..flips {
        let at = from + rng.next_u64() % (len - from);
        let mut octet = [0];
        file.read_exact_at(&mut octet, at).expect("an octet");
        octet[0] ^= 1 << (rng.next_u64() % 8);
        file.write_all_at(&octet, at).expect("an octet");
    }
}

impl Router {
    /// What the router says of its disks now.
    ///
    /// # Panics
    /// If it has none.
    pub fn disk_status(&self) -> Value {
        let status = self.weir_json(&["status", "cs"]);
        let disk = status["cs"]["disk"].clone();
        assert!(disk.is_object(), "no disks: {status}");
        disk
    }

    /// Waits until what the router says of its disks is as wanted, and returns it.
    ///
    /// # Panics
    /// If [`crate::PEER_TIMEOUT`] runs out first.
    pub fn wait_for_disks(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut disk = Value::Null;
        wait_until(what, || {
            disk = self.disk_status();
            is_so(&disk)
        });
        disk
    }

    /// Waits until what was on the disks is read in and nothing waits to be written.
    pub fn wait_for_idle_disks(&self) -> Value {
        self.wait_for_disks("the disks rest", |disk| {
            disk["recovering"] == false && disk["writesWaiting"] == 0
        })
    }
}
