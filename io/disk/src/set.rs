use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use weir_base::HashKey;
use weir_store::disk::DiskGeometry;
use weir_store::disk::superblock::{
    COPY_OFFSET_V1, DATA_OFFSET_MIN, DISKS_MAX, REGION_BYTES_MAX, REGION_BYTES_MIN, Superblock,
};

use crate::config::{DiskFileConfig, Engine};
use crate::error::{OpenError, OpenWarning};
use crate::file::{OpenDisk, ReadyDisk, last_copy_offset};
use crate::monitor::DiskMonitor;
use crate::ports::DiskPorts;
use crate::start::{StartError, start};

const MIB: u64 = 1 << 20;

/// Sizes of files and offsets of regions are multiples of this, for any block size.
const ALIGNMENT: u64 = 4096;

/// Disks of at least this size align their regions to 1 MiB, which suits flash.
const ALIGNED_FROM: u64 = 64 * MIB;

/// Regions of a disk that each shard needs to store anything.
const REGIONS_MIN: u64 = 2;

/// All disks of one store, open and locked.
pub struct DiskSet {
    disks: Vec<SetDisk>,
    hash_key: [u64; 2],
    store_id: u64,
    warnings: Vec<OpenWarning>,
}

struct SetDisk {
    ready: ReadyDisk,
    superblock: Superblock,
    /// Whether its records belong to this store.
    is_current: bool,
}

/// Opens the disks of a store, and creates those that do not exist. Never writes to a file or
/// device that holds other data.
///
/// The disks keep the layout that they were created with. The configuration may change their size:
/// more bytes add regions, fewer bytes drop those at the end. An empty file or device in place of a
/// disk, or behind the last, joins the set. A different number of shards, region size or block size
/// is rejected, because nothing on the disks could be found any more.
///
/// # Errors
/// See [`OpenError`]. Everything opened so far is closed again, and created files are removed.
pub fn open(configs: &[DiskFileConfig], shards: u32) -> Result<DiskSet, OpenError> {
    check_configs(configs, shards)?;
    let mut created = CreatedFiles(Vec::new());
    let set = open_all(configs, shards, &mut created)?;
    created.0.clear();
    Ok(set)
}

/// Files that were just created, held open so that they stay locked. Dropping it removes them.
struct CreatedFiles(Vec<(PathBuf, File)>);

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for (path, _) in &self.0 {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove a new file");
            }
        }
    }
}

fn open_all(
    configs: &[DiskFileConfig],
    shards: u32,
    created: &mut CreatedFiles,
) -> Result<DiskSet, OpenError> {
    let mut warnings = Vec::new();
    let mut disks: Vec<OpenDisk> = Vec::new();
    for config in configs {
        let disk = OpenDisk::open(config, &disks, &mut warnings)?;
        if disk.is_new
            && !config.unnamed
            && let Ok(file) = disk.file.try_clone()
        {
            created.0.push((disk.path.clone(), file));
        }
        disks.push(disk);
    }
    check_membership(&disks)?;
    let identity = SetIdentity::of(&disks)?;
    // Check all disks before anything is written to any of them.
    let mut plan = Vec::new();
    for (index, (disk, config)) in disks.iter().zip(configs).enumerate() {
        let superblock = identity.superblock(disk, config, index, configs.len(), shards)?;
        check_layout_unchanged(disk, &superblock)?;
        check_size(disk, &superblock)?;
        plan.push(superblock);
    }
    let store_id = store_id(&disks, &identity, &mut warnings)?;
    let is_known = disks.iter().any(|disk| disk.superblock.is_some());
    for disk in disks.iter().filter(|disk| is_known && disk.superblock.is_none()) {
        warnings.push(OpenWarning::NewDisk { path: disk.path.clone() });
    }
    let mut set = DiskSet { disks: Vec::new(), hash_key: identity.hash_key, store_id, warnings };
    // Write the first disk last. Until then it does not list new disks, so a start with it alone
    // does not report them as missing.
    let together = disks.into_iter().zip(configs).zip(plan).rev();
    for ((disk, config), superblock) in together {
        let superblock = Superblock { store_id, ..superblock };
        let disk = apply_superblock(disk, config, superblock, &mut set.warnings)?;
        set.disks.insert(0, disk);
    }
    for warning in &set.warnings {
        tracing::warn!("{warning}");
    }
    Ok(set)
}

fn check_configs(configs: &[DiskFileConfig], shards: u32) -> Result<(), OpenError> {
    if configs.is_empty() || configs.len() > DISKS_MAX as usize {
        return Err(OpenError::DiskCount(configs.len()));
    }
    if shards == 0 || shards > 1 << 16 {
        return Err(OpenError::Shards(shards));
    }
    for config in configs {
        let path = || config.path.clone();
        if let Some(region_bytes) = config.region_bytes {
            let is_in_bounds = (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region_bytes);
            if !is_in_bounds || !region_bytes.is_multiple_of(ALIGNMENT) {
                return Err(OpenError::RegionBytes { path: path(), region_bytes });
            }
        }
        let reason = match config.engine {
            Engine::Threads(threads) if !(1..=256).contains(&threads) => {
                Some("a disk has 1 to 256 threads")
            }
            _ => lab_config_error(config),
        };
        if let Some(reason) = reason {
            return Err(OpenError::Config { path: path(), reason: reason.into() });
        }
    }
    Ok(())
}

/// The error in the configuration of an experiment, if there is one.
#[cfg(feature = "lab")]
fn lab_config_error(config: &DiskFileConfig) -> Option<&'static str> {
    match &config.pace {
        Some(pace) if !pace.ops_per_s.is_finite() || pace.ops_per_s < 1e-3 => {
            Some("a pace is a number of operations a second, at least 0.001")
        }
        Some(pace) if !(1..=4096).contains(&pace.parallelism) => {
            Some("the parallelism of a pace is 1 to 4096")
        }
        _ if config.engine == Engine::IoUring && config.faults.is_some() => {
            Some("faults need the threads engine")
        }
        _ => None,
    }
}

#[cfg(not(feature = "lab"))]
fn lab_config_error(_config: &DiskFileConfig) -> Option<&'static str> {
    None
}

/// Rejects disks that belong to different sets or come in another order, and sets with a disk
/// missing.
fn check_membership(disks: &[OpenDisk]) -> Result<(), OpenError> {
    let mut first: Option<(&OpenDisk, &Superblock)> = None;
    let mut count = 0;
    for (position, disk) in (0..).zip(disks) {
        let Some(superblock) = &disk.superblock else { continue };
        let (first_disk, first_superblock) = *first.get_or_insert((disk, superblock));
        let path = || disk.path.clone();
        if superblock.set_id != first_superblock.set_id {
            return Err(OpenError::SetMismatch { path: path(), first: first_disk.path.clone() });
        }
        if superblock.disk != position {
            return Err(OpenError::WrongOrder { path: path(), disk: superblock.disk, position });
        }
        count = count.max(superblock.disks);
    }
    // A file that was just created in place of a known disk counts as missing: the real one may be
    // on a file system that is not mounted.
    let new = disks.iter().take(count as usize).position(|disk| disk.is_new);
    let named = disks.len() as u32;
    let missing = new.map(|at| at as u32).or_else(|| (named < count).then_some(named));
    match missing {
        None => Ok(()),
        Some(disk) => {
            let path = new.map(|at| disks[at].path.clone());
            Err(OpenError::Missing { disk, disks: count, path })
        }
    }
}

fn random() -> Result<u64, OpenError> {
    getrandom::u64().map_err(|error| OpenError::Random(error.to_string()))
}

/// The identifiers and keys that all disks of a set share.
struct SetIdentity {
    set_id: u64,
    store_id: u64,
    hash_key: [u64; 2],
}

impl SetIdentity {
    /// The identity of the disks, or a new one.
    fn of(disks: &[OpenDisk]) -> Result<Self, OpenError> {
        let known = disks.iter().find_map(|disk| disk.superblock.as_ref());
        Ok(match known {
            Some(superblock) => Self {
                set_id: superblock.set_id,
                store_id: superblock.store_id,
                hash_key: superblock.hash_key,
            },
            None => {
                Self { set_id: random()?, store_id: random()?, hash_key: [random()?, random()?] }
            }
        })
    }

    /// The superblock that a disk will get, except for store and generation.
    fn superblock(
        &self,
        disk: &OpenDisk,
        config: &DiskFileConfig,
        index: usize,
        disks: usize,
        shards: u32,
    ) -> Result<Superblock, OpenError> {
        let before = disk.superblock.as_ref();
        let bytes = target_bytes(disk, config)?;
        // Blocks smaller than the alignment that is required now do not fit. Then
        // `check_layout_unchanged` rejects the disk.
        let alike = before.filter(|before| before.block_bytes.is_multiple_of(disk.block_bytes));
        let region_bytes = config
            .region_bytes
            .or(before.map(|before| before.region_bytes))
            .unwrap_or_else(|| (bytes / 64).clamp(MIB, 64 * MIB) / ALIGNMENT * ALIGNMENT);
        let data_offset = match alike {
            Some(before) => before.data_offset,
            None if bytes >= ALIGNED_FROM => MIB,
            None => DATA_OFFSET_MIN,
        };
        // The regions of an old disk may extend to its end.
        let copy_offset = match alike {
            Some(before) if before.copy_offset == COPY_OFFSET_V1 => COPY_OFFSET_V1,
            _ => last_copy_offset(bytes),
        };
        Ok(Superblock {
            set_id: self.set_id,
            store_id: before.map_or(self.store_id, |before| before.store_id),
            hash_key: self.hash_key,
            generation: before.map_or(0, |before| before.generation),
            bytes,
            data_offset,
            region_bytes,
            block_bytes: alike.map_or(disk.block_bytes, |before| before.block_bytes),
            disks: disks as u32,
            disk: index as u32,
            shards,
            copy_offset,
        })
    }
}

fn target_bytes(disk: &OpenDisk, config: &DiskFileConfig) -> Result<u64, OpenError> {
    let path = || disk.path.clone();
    let known = disk.superblock.as_ref().map(|superblock| superblock.bytes);
    let bytes = match (config.bytes, disk.is_device) {
        (Some(bytes), true) if bytes > disk.bytes => {
            return Err(OpenError::Config {
                path: path(),
                reason: format!(
                    "the device has {} bytes, not {bytes}; leave the size out to use all of it",
                    disk.bytes
                ),
            });
        }
        (Some(bytes), _) => bytes,
        (None, true) => disk.bytes,
        (None, false) => match known {
            Some(bytes) => bytes,
            None if disk.bytes > 0 => disk.bytes,
            None => return Err(OpenError::SizeNeeded { path: path() }),
        },
    };
    // A read-only disk keeps its size.
    let bytes = if disk.is_writable { bytes } else { known.unwrap_or(bytes).min(disk.bytes) };
    Ok(bytes / ALIGNMENT * ALIGNMENT)
}

/// Rejects changes that would make everything on the disk impossible to find.
fn check_layout_unchanged(disk: &OpenDisk, wanted: &Superblock) -> Result<(), OpenError> {
    let Some(before) = &disk.superblock else { return Ok(()) };
    let path = disk.path.clone();
    if before.shards != wanted.shards {
        let (existing, wanted) = (before.shards, wanted.shards);
        return Err(OpenError::ThreadsMismatch { path, existing, wanted });
    }
    if before.region_bytes != wanted.region_bytes {
        let (existing, wanted) = (before.region_bytes, wanted.region_bytes);
        return Err(OpenError::RegionsMismatch { path, existing, wanted });
    }
    if before.block_bytes != wanted.block_bytes {
        let (existing, wanted) = (before.block_bytes, wanted.block_bytes);
        return Err(OpenError::BlocksMismatch { path, existing, wanted });
    }
    Ok(())
}

fn check_size(disk: &OpenDisk, superblock: &Superblock) -> Result<(), OpenError> {
    let regions = REGIONS_MIN * u64::from(superblock.shards);
    let bytes_min = superblock.bytes_for(regions);
    if superblock.bytes >= bytes_min || !disk.is_writable {
        return Ok(());
    }
    let path = disk.path.clone();
    Err(OpenError::TooSmall { path, bytes: superblock.bytes, bytes_min })
}

/// The store that the disks hold, or a new one if they do not agree because a process died while it
/// emptied the store.
fn store_id(
    disks: &[OpenDisk],
    identity: &SetIdentity,
    warnings: &mut Vec<OpenWarning>,
) -> Result<u64, OpenError> {
    let is_other = |disk: &&OpenDisk| {
        disk.superblock.as_ref().is_some_and(|before| before.store_id != identity.store_id)
    };
    let Some(other) = disks.iter().find(is_other) else { return Ok(identity.store_id) };
    let reason = format!("{} was missing when the store was emptied", other.path.display());
    warnings.push(OpenWarning::Emptied { reason });
    random()
}

/// Gives a disk the size in its new superblock, then writes the superblock.
fn apply_superblock(
    mut disk: OpenDisk,
    config: &DiskFileConfig,
    mut superblock: Superblock,
    warnings: &mut Vec<OpenWarning>,
) -> Result<SetDisk, OpenError> {
    let before = disk.superblock.clone();
    if disk.is_writable {
        warn_about_size(&disk, before.as_ref(), &superblock, warnings);
        let is_sized = disk.bytes == superblock.bytes && before.is_some();
        if !disk.is_device && !is_sized {
            disk.set_len(superblock.bytes, warnings)?;
        }
        let is_changed = before.as_ref() != Some(&superblock);
        if is_changed || needs_repair(&disk, warnings) {
            superblock.generation += 1;
            match disk.write_superblock(superblock.clone()) {
                // One valid copy is enough: a full file system does not prevent the disk from being
                // used.
                Err(error) if !is_changed => tracing::warn!("{error}"),
                written => written?,
            }
        }
    }
    let is_current =
        before.is_none_or(|before| disk.is_writable || before.store_id == superblock.store_id);
    let OpenDisk { file, is_writable, .. } = disk;
    let block_bytes = superblock.block_bytes;
    let ready = ReadyDisk { config: config.clone(), file, block_bytes, is_writable };
    Ok(SetDisk { ready, superblock, is_current })
}

fn needs_repair(disk: &OpenDisk, warnings: &[OpenWarning]) -> bool {
    warnings.contains(&OpenWarning::Repaired { path: disk.path.clone() })
}

fn warn_about_size(
    disk: &OpenDisk,
    before: Option<&Superblock>,
    superblock: &Superblock,
    warnings: &mut Vec<OpenWarning>,
) {
    let path = || disk.path.clone();
    let bytes = superblock.bytes;
    let Some(before) = before else { return };
    let bytes_before = before.bytes;
    if disk.bytes < bytes_before && !disk.is_device {
        warnings.push(OpenWarning::Truncated { path: path(), bytes: disk.bytes, bytes_before });
    }
    match bytes.cmp(&bytes_before) {
        std::cmp::Ordering::Greater => {
            warnings.push(OpenWarning::Grown { path: path(), bytes_before, bytes });
        }
        std::cmp::Ordering::Less => {
            warnings.push(OpenWarning::Shrunk { path: path(), bytes_before, bytes });
        }
        std::cmp::Ordering::Equal => {}
    }
}

impl DiskSet {
    /// The key of the name hashes, the same for the lifetime of the store.
    pub fn hash_key(&self) -> HashKey {
        HashKey::new(self.hash_key)
    }

    /// The number that marks the records of the store.
    pub fn store_id(&self) -> u64 {
        self.store_id
    }

    pub fn disks(&self) -> usize {
        self.disks.len()
    }

    /// One shard's share of a disk. Without regions if the disk is read-only and holds the records
    /// of another store.
    ///
    /// # Panics
    /// If there is no such disk or shard.
    pub fn geometry(&self, disk: usize, shard: u32) -> DiskGeometry {
        let SetDisk { ready, superblock, is_current } = &self.disks[disk];
        let geometry = superblock.geometry(shard, ready.is_writable);
        if *is_current { geometry } else { DiskGeometry { regions: 0, ..geometry } }
    }

    /// Warnings for the operator. They have been logged already.
    pub fn warnings(&self) -> &[OpenWarning] {
        &self.warnings
    }

    /// The ports of each shard. `depth` is
    /// [`DiskTierConfig::depth`](weir_store::disk::DiskTierConfig::depth): the most operations that
    /// each shard has in progress on each disk. The disks stay locked until all ports and the
    /// monitor are dropped.
    pub fn start(
        self,
        depth: u32,
        shards: usize,
    ) -> Result<(DiskMonitor, Vec<DiskPorts>), StartError> {
        let disks = self.disks.into_iter().map(|disk| disk.ready).collect();
        start(disks, self.store_id, depth, shards)
    }
}

impl fmt::Debug for DiskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let superblocks: Vec<_> = self.disks.iter().map(|disk| &disk.superblock).collect();
        f.debug_struct("DiskSet").field("disks", &superblocks).finish_non_exhaustive()
    }
}
