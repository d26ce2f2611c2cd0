//! Routers whose content store has disks.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_base::Rng;

use crate::{Host, Router, wait_until};

/// Size in bytes of the area at the start of a disk with both copies of the superblock.
const SUPERBLOCK_AREA_BYTES: u64 = 8192;

/// The configuration of a router with disks.
#[derive(Debug, Clone)]
pub struct DiskStore {
    /// Name of the configuration file, the socket and the disk files.
    pub name: String,
    pub disks: usize,
    /// Size of each disk, as configuration text.
    pub size: String,
    /// Memory of the store, as configuration text.
    pub memory: String,
    /// Additional lines in `[disks]`.
    pub settings: String,
    /// Additional lines in each `[[disk]]`.
    pub disk_settings: String,
    /// Whether [`Self::stall_file`] can stall the disks. Needs a program with the laboratory.
    pub can_stall: bool,
    /// The folder of the disk files. `None` means the folder of the host.
    pub folder: Option<PathBuf>,
    /// More arguments for `weir router`.
    pub arguments: Vec<String>,
}

impl DiskStore {
    /// One disk of 64 MiB and 1 MiB of memory. Data is written to disk on arrival.
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

    /// A path whose file stalls a disk while it exists, if [`Self::can_stall`].
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

    /// Flips random bits of each disk, outside of the superblocks.
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
        file.read_exact_at(&mut octet, at).expect("a byte");
        octet[0] ^= 1 << (rng.next_u64() % 8);
        file.write_all_at(&octet, at).expect("a byte");
    }
}

impl Router {
    /// The current status of the router's disks.
    ///
    /// # Panics
    /// If the router has no disks.
    pub fn disk_status(&self) -> Value {
        let status = self.weir_json(&["status", "cs"]);
        let disk = status["cs"]["disk"].clone();
        assert!(disk.is_object(), "no disks: {status}");
        disk
    }

    /// Waits until the status of the router's disks satisfies a condition, and returns it.
    ///
    /// # Panics
    /// If [`crate::TEST_TIMEOUT`] runs out first.
    pub fn wait_for_disks(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut disk = Value::Null;
        wait_until(what, || {
            disk = self.disk_status();
            is_so(&disk)
        });
        disk
    }

    /// Waits until the recovery is complete and no write is queued.
    pub fn wait_for_idle_disks(&self) -> Value {
        self.wait_for_disks("the disks are idle", |disk| {
            disk["recovering"] == false && disk["writes_waiting"] == 0
        })
    }
}
