//! Sizes that this machine cannot provide.
//!
//! A router starts with them all the same, because memory is allocated, and a sparse file grows,
//! when it is used. So these are warnings.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use nix::sys::statvfs::statvfs;
use weir_base::units::{Size, approximate_bytes as octets};
use weir_runtime::{MemoryLimit, installed_memory_bytes};

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
        let disks = self.disk.iter().filter_map(disk_shortage);
        memory
            .into_iter()
            .chain(disks)
            .map(|Shortage { detail, fix }| format!("{detail}: {fix}"))
            .collect()
    }

    /// Whether the store and the router's other memory exceed a limit or the machine's memory.
    pub(crate) fn memory_shortage(
        &self,
        limit: Option<&MemoryLimit>,
        installed_bytes: Option<u64>,
    ) -> Option<Shortage> {
        let store_bytes = self.store.size.bytes;
        let needed_bytes = store_bytes.saturating_add(self.router.memory_max.get_ref().bytes);
        let needed = format!("[store] size and [router] memory_max are {}", octets(needed_bytes));
        if let Some(bytes) = installed_bytes.filter(|&bytes| bytes < needed_bytes) {
            return Some(Shortage {
                detail: format!("{needed}, and this machine has {} of memory", octets(bytes)),
                fix: "configure less; the kernel ends a router that uses all memory".to_owned(),
            });
        }
        let limit = limit.filter(|limit| limit.left_bytes / 4 * 3 < needed_bytes)?;
        let enough = Size { bytes: (needed_bytes / 3 * 4).next_multiple_of(1 << 20) };
        Some(Shortage {
            detail: format!("{needed}, and {} leaves {}", limit.name, octets(limit.left_bytes)),
            fix: format!("raise the limit to {enough} or more, or configure less"),
        })
    }
}

/// Whether a disk is larger than its file and the free space of its file system.
pub(crate) fn disk_shortage(disk: &DiskSection) -> Option<Shortage> {
    let size_bytes = disk.size?.bytes;
    let existing = fs::metadata(&disk.path).ok();
    if existing.as_ref().is_some_and(|metadata| metadata.file_type().is_block_device()) {
        return None;
    }
    let allocated_bytes = existing.map_or(0, |metadata| metadata.blocks() * 512);
    let folder = folder_of(&disk.path);
    let status = statvfs(folder).ok()?;
    let free_bytes = status.blocks_available().saturating_mul(status.fragment_size());
    let missing_bytes = size_bytes.saturating_sub(allocated_bytes);
    (missing_bytes > free_bytes).then(|| Shortage {
        detail: format!(
            "disk {} needs {} more for its `size`, and {} are free",
            disk.path.display(),
            octets(missing_bytes),
            octets(free_bytes)
        ),
        fix: format!("free space in {}, or reduce `size` in [[disk]]", folder.display()),
    })
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
        assert!(shortage.fix.contains("raise the limit to 11GiB"), "{shortage:?}");
        assert_eq!(large.memory_shortage(Some(&limit(16 * GIB)), Some(24 * GIB)), None);
    }

    #[test]
    fn disk_above_free_space_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let text = |size: &str| format!("[[disk]]\npath = {path:?}\nsize = \"{size}\"\n");
        assert_eq!(disk_shortage(&config(&text("64MiB")).disk[0]), None);
        let large = config(&text("1000000TiB"));
        let warnings = large.size_warnings(None);
        assert!(warnings.len() == 1 && warnings[0].contains("reduce `size`"), "{warnings:?}");
    }
}
