//! Sizes that this machine cannot provide.
//!
//! A router starts with them all the same, because memory is allocated, and a sparse file grows,
//! when it is used. So these are warnings.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc;
use nix::sys::statvfs::statvfs;
use weir_base::units::{Size, approximate_bytes as octets};
use weir_runtime::{MemoryLimit, installed_memory_bytes, memory_limit_needed_bytes};

use super::{DiskSection, FileConfig};

/// A size that is too large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) detail: String,
    pub(crate) fix: String,
}

impl FileConfig {
    /// Sizes that exceed what this machine has, or the limit of a process.
    pub(crate) fn size_warnings(&self, limit: Option<&MemoryLimit>) -> Vec<String> {
        let memory = self.memory_shortage(limit, installed_memory_bytes());
        let spaces = disk_spaces(&self.disk).into_iter();
        let disks = spaces.filter_map(|space| space.shortage);
        memory
            .into_iter()
            .chain(disks)
            .map(|Shortage { detail, fix }| format!("{detail}: {fix}"))
            .collect()
    }

    /// Whether the store, the index of the disks and the router's other memory exceed a limit or
    /// the machine's memory.
    pub(crate) fn memory_shortage(
        &self,
        limit: Option<&MemoryLimit>,
        installed_bytes: Option<u64>,
    ) -> Option<Shortage> {
        let (store_bytes, memory_bytes) =
            (self.store.size.bytes, self.router.memory_max.get_ref().bytes);
        // Full disks with typical records need half of their index's limit.
        let index_bytes = self.index_bytes_max();
        let needed_bytes = store_bytes.saturating_add(memory_bytes).saturating_add(index_bytes / 2);
        let needed = match index_bytes {
            0 => format!("[store] size and [router] memory_max are {}", octets(needed_bytes)),
            _ => format!(
                "[store] size, [router] memory_max and the index of disks ({}) are {}",
                octets(index_bytes / 2),
                octets(needed_bytes)
            ),
        };
        if let Some(bytes) = installed_bytes.filter(|&bytes| bytes < needed_bytes) {
            return Some(Shortage {
                detail: format!("{needed}, and this machine has {} of memory", octets(bytes)),
                fix: "configure less; the kernel ends a router that uses all memory".to_owned(),
            });
        }
        let enough_bytes = memory_limit_needed_bytes(store_bytes, memory_bytes, index_bytes);
        let limit = limit.filter(|limit| limit.left_bytes < enough_bytes)?;
        let bytes = enough_bytes.checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX);
        let enough = Size { bytes };
        Some(Shortage {
            detail: format!("{needed}, and {} leaves {}", limit.name, octets(limit.left_bytes)),
            fix: format!("raise the limit to {enough} or more, or configure less"),
        })
    }

    /// The memory limit of the disks' index, as the router computes it at the start.
    fn index_bytes_max(&self) -> u64 {
        let threads = self.threads();
        let disks = super::disk::to_runtime(&self.disks, &self.disk, threads);
        let Ok(Some(disks)) = disks else { return 0 };
        let capacities = self.disk.iter().map(capacity_bytes);
        let capacity_bytes = capacities.fold(0, u64::saturating_add);
        threads as u64 * disks.shard_index_bytes_max(capacity_bytes / threads as u64, threads)
    }
}

/// The size of a disk, and 0 if it cannot be opened.
fn capacity_bytes(disk: &DiskSection) -> u64 {
    let mut options = fs::File::options();
    // Opening a FIFO would wait for a writer.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let length = || options.open(&disk.path)?.seek(SeekFrom::End(0));
    disk.size.map_or_else(|| length().unwrap_or(0), |size| size.bytes)
}

/// The disks on one file system.
pub(crate) struct DiskSpace<'a> {
    disks: Vec<&'a DiskSection>,
    /// Whether the file of one of them does not exist yet.
    pub(crate) has_new: bool,
    /// If the file system has too little free space for all of them.
    pub(crate) shortage: Option<Shortage>,
}

impl DiskSpace<'_> {
    /// The paths of the disks, for messages.
    pub(crate) fn paths(&self) -> String {
        let paths = self.disks.iter().map(|disk| disk.path.display().to_string());
        paths.collect::<Vec<_>>().join(", ")
    }

    /// Whether `missing_bytes`, which the disks need beyond their files, are not free.
    fn find_shortage(&self, missing_bytes: u64) -> Option<Shortage> {
        let path = &self.disks[0].path;
        let folder = folder_of(path);
        // A link may lead to another file system than that of its folder.
        let status = statvfs(path).or_else(|_| statvfs(folder)).ok()?;
        let free_bytes = status.blocks_available().saturating_mul(status.fragment_size());
        let (title, verb) =
            if self.disks.len() == 1 { ("disk", "needs") } else { ("disks", "need") };
        let (missing, free) = (octets(missing_bytes), octets(free_bytes));
        (missing_bytes > free_bytes).then(|| Shortage {
            detail: format!(
                "{title} {} {verb} {missing} more for `size`, and {free} are free",
                self.paths()
            ),
            fix: format!("free space in {}, or reduce `size` in [[disk]]", folder.display()),
        })
    }
}

/// Compares the disks with the free space of their file systems: those that are files, have a size,
/// and whose folder exists.
pub(crate) fn disk_spaces(disks: &[DiskSection]) -> Vec<DiskSpace<'_>> {
    // By the number of the file system's device.
    let mut spaces: BTreeMap<u64, (DiskSpace<'_>, u64)> = BTreeMap::new();
    for disk in disks {
        let existing = fs::metadata(&disk.path).ok();
        let is_device = existing.as_ref().is_some_and(|file| file.file_type().is_block_device());
        let folder = fs::metadata(folder_of(&disk.path)).ok();
        let (Some(size), Some(folder), false) = (disk.size, folder, is_device) else { continue };
        let file_system = existing.as_ref().map_or(folder.dev(), |file| file.dev());
        let (space, missing_bytes) = spaces.entry(file_system).or_insert_with(|| {
            (DiskSpace { disks: Vec::new(), has_new: false, shortage: None }, 0)
        });
        space.disks.push(disk);
        space.has_new |= existing.is_none();
        let allocated_bytes = existing.map_or(0, |file| file.blocks() * 512);
        let bytes = size.bytes.saturating_sub(allocated_bytes);
        *missing_bytes = missing_bytes.saturating_add(bytes);
    }
    let spaces = spaces.into_values().map(|(space, missing_bytes)| {
        let shortage = space.find_shortage(missing_bytes);
        DiskSpace { shortage, ..space }
    });
    spaces.collect()
}

/// The folder of a path, and the current one for a bare file name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn config(text: &str) -> FileConfig {
        FileConfig::parse(text, "weir.toml").unwrap()
    }

    #[test]
    fn store_above_machine_memory_is_warned_about() {
        let large = config("[store]\nsize = \"1TiB\"\n");
        let shortage = large.memory_shortage(None, Some(24 * GIB)).unwrap();
        assert!(shortage.detail.contains("this machine has 24.0 GiB"), "{shortage:?}");
        assert_eq!(large.memory_shortage(None, Some(2048 * GIB)), None);
        assert_eq!(large.memory_shortage(None, None), None);
        assert_eq!(config("").memory_shortage(None, Some(GIB)), None);
    }

    #[test]
    fn limit_of_a_group_counts_too() {
        let limit = |bytes| MemoryLimit { name: "memory.max".into(), bytes, left_bytes: bytes };
        let large = config("[store]\nsize = \"8GiB\"\n");
        let shortage = large.memory_shortage(Some(&limit(GIB)), Some(24 * GIB)).unwrap();
        assert!(shortage.detail.contains("memory.max leaves 1.00 GiB"), "{shortage:?}");
        assert!(shortage.fix.contains("raise the limit to 11179MiB"), "{shortage:?}");
        assert_eq!(large.memory_shortage(Some(&limit(16 * GIB)), Some(24 * GIB)), None);
        let largest = config("[store]\nsize = \"16777215TiB\"\n");
        let shortage = largest.memory_shortage(Some(&limit(GIB)), None).unwrap();
        assert!(shortage.fix.contains("raise the limit to"), "{shortage:?}");
    }

    #[test]
    fn index_of_disks_counts_as_memory() {
        let limit = MemoryLimit { name: "memory.max".into(), bytes: GIB, left_bytes: GIB };
        // Together 0.92 GiB with the quarter of the store's share.
        let alone = "[router]\nthreads = 1\n[store]\nsize = \"512MiB\"\n";
        assert_eq!(config(alone).memory_shortage(Some(&limit), Some(GIB)), None);
        let disks = |size: &str| {
            let disk = |at: u32| format!("[[disk]]\npath = \"/d/{at}\"\nsize = \"{size}\"\n");
            config(&format!("{alone}{}{}", disk(1), disk(2)))
        };
        assert_eq!(disks("1GiB").memory_shortage(Some(&limit), None), None);
        let shortage = disks("100GiB").memory_shortage(Some(&limit), None).unwrap();
        assert!(shortage.detail.contains("the index of disks ("), "{shortage:?}");
        assert!(disks("1TiB").memory_shortage(None, Some(GIB)).is_some());
        let small = config(&format!("[disks]\nindex_memory_max = \"16MiB\"\n{alone}"));
        assert_eq!(small.memory_shortage(Some(&limit), None), None);
    }

    #[test]
    fn disk_above_free_space_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let text = |size: &str| format!("[[disk]]\npath = {path:?}\nsize = \"{size}\"\n");
        assert_eq!(config(&text("64MiB")).size_warnings(None), [""; 0]);
        let large =
            config(&format!("[disks]\nindex_memory_max = \"64MiB\"\n{}", text("1000000TiB")));
        let warnings = large.size_warnings(None);
        assert!(warnings.len() == 1 && warnings[0].contains("reduce `size`"), "{warnings:?}");
    }

    #[test]
    fn disks_of_one_file_system_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let status = statvfs(folder.path()).unwrap();
        let free_bytes = status.blocks_available() * status.fragment_size();
        // Each of them fits, and both do not.
        let disk = |name: &str| {
            let path = folder.path().join(name);
            format!("[[disk]]\npath = {path:?}\nsize = \"{}KiB\"\n", free_bytes / 1536)
        };
        let (one, two) = (disk("one"), disk("two"));
        let config =
            |disks: &str| config(&format!("[disks]\nindex_memory_max = \"64MiB\"\n{disks}"));
        for alone in [&one, &two] {
            assert_eq!(config(alone).size_warnings(None), [""; 0]);
        }
        let warnings = config(&format!("{one}{two}")).size_warnings(None);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let both = format!("disks {}, {} need ", path("one"), path("two"));
        assert!(warnings.len() == 1 && warnings[0].contains(&both), "{warnings:?}");
    }
}
