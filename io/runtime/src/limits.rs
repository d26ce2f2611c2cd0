//! Limits of the system for this process: memory (of its cgroup and its own limits) and processors.
//!
//! The kernel kills a process that exceeds its cgroup's memory, and allocation fails at its own
//! limits. So the router lowers its memory settings at the start until they fit.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit};

use crate::config::RuntimeConfig;
use crate::memory::memory_bytes_min;

const ADDRESS_SPACE: &str = "RLIMIT_AS (ulimit -v)";
const DATA: &str = "RLIMIT_DATA (ulimit -d)";

/// Quarters of the remaining memory that the store gets. The rest covers page tables, socket
/// buffers and address space lost to span alignment.
const STORE_QUARTERS: u64 = 3;

/// A limit of this process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit's name, as an operator knows it.
    pub name: String,
    pub bytes: u64,
    /// The unused part of the limit. For a cgroup, the use by other processes is ignored.
    pub left_bytes: u64,
}

/// Lowers the memory settings to the system's limits, and logs that. `index_bytes_max`: the limit
/// of the disks' index. Returns the largest capacity that the store may be given later.
pub(crate) fn fit_to_limits(config: &mut RuntimeConfig, index_bytes_max: u64) -> u64 {
    let Some(limit) = memory_limit() else { return u64::MAX };
    if limit.name == ADDRESS_SPACE {
        use_one_heap();
    }
    let before = (config.store.capacity_bytes, config.memory_bytes_max);
    let left_bytes = left_after_index(limit.left_bytes, index_bytes_max);
    let (store_bytes, memory_bytes) = divide(left_bytes, before, memory_bytes_min(config.threads));
    // A later change may let the store grow into everything that the other memory leaves.
    let (store_bytes_max, _) = divide(left_bytes, (u64::MAX, memory_bytes), memory_bytes);
    if (store_bytes, memory_bytes) == before {
        return store_bytes_max;
    }
    config.store.capacity_bytes = store_bytes;
    config.memory_bytes_max = memory_bytes;
    let mib = |bytes: u64| bytes >> 20;
    tracing::warn!(
        limit = limit.name,
        limit_mib = mib(limit.bytes),
        store_mib = mib(store_bytes),
        memory_max_mib = mib(memory_bytes),
        index_mib = mib(index_bytes_max),
        "the system limits this process to less memory than is configured ([store] size is {} \
         MiB, [router] memory_max {} MiB): the content store is smaller, and fewer Interests can \
         be pending; raise the limit, or configure less",
        mib(before.0),
        mib(before.1),
    );
    store_bytes_max
}

/// Makes all threads allocate from one heap. Otherwise glibc reserves 64 MiB of address space per
/// thread, which counts against RLIMIT_AS.
fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no memory is involved.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Memory left after the disks' index. The index needs half of its limit, but at least half of
/// `left_bytes` remains.
fn left_after_index(left_bytes: u64, index_bytes_max: u64) -> u64 {
    left_bytes - (index_bytes_max / 2).min(left_bytes / 2)
}

/// The smallest limit under which the router does not lower its memory settings. `index_bytes_max`:
/// the limit of the disks' index.
pub fn memory_limit_needed_bytes(
    store_bytes: u64,
    memory_bytes_max: u64,
    index_bytes_max: u64,
) -> u64 {
    let with_rest = store_bytes.div_ceil(STORE_QUARTERS).saturating_mul(4);
    with_rest.saturating_add(memory_bytes_max).saturating_add(index_bytes_max / 2)
}

/// Divides `left_bytes` into memory for the store and for everything else, each at most
/// `wanted`. If there is not enough, everything else gets half, but at least `least_bytes`.
fn divide(left_bytes: u64, wanted: (u64, u64), least_bytes: u64) -> (u64, u64) {
    let (store_bytes, memory_bytes) = wanted;
    let store_of = |memory_bytes| left_bytes.saturating_sub(memory_bytes) / 4 * STORE_QUARTERS;
    if memory_bytes <= left_bytes && store_bytes <= store_of(memory_bytes) {
        return wanted;
    }
    let memory_bytes = memory_bytes.min((left_bytes / 2).max(least_bytes));
    (store_bytes.min(store_of(memory_bytes)), memory_bytes)
}

/// Logs the number of usable processors, if it is not all of them.
pub(crate) fn log_processors(threads: usize) {
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    if usable < usize::try_from(online).unwrap_or(0) {
        tracing::info!(
            usable,
            online,
            threads,
            "this process may not use all processors of the machine (affinity, or cgroup cpu.max)"
        );
    }
}

/// `memory.limit_in_bytes` of version 1 says "no limit" with the largest number of pages.
const GROUP_UNLIMITED_BYTES: u64 = 1 << 62;

/// The limit with the least memory left, or `None` without limits.
pub fn memory_limit() -> Option<MemoryLimit> {
    let used = MemoryUsage::now().ok()?;
    let own = [
        (ADDRESS_SPACE, Resource::RLIMIT_AS, used.mapped_bytes),
        (DATA, Resource::RLIMIT_DATA, used.data_bytes),
    ];
    let own = own.into_iter().filter_map(|(name, resource, used_bytes)| {
        let (bytes, _) = getrlimit(resource).ok()?;
        let left_bytes = bytes.saturating_sub(used_bytes);
        (bytes != libc::RLIM_INFINITY).then(|| MemoryLimit { name: name.into(), bytes, left_bytes })
    });
    own.chain(group_limits(None, used.resident_bytes)).min_by_key(|limit| limit.left_bytes)
}

/// The memory limits of a process's control groups.
fn group_limits(pid: Option<u32>, used_bytes: u64) -> impl Iterator<Item = MemoryLimit> {
    group_files(pid, GroupLimit::Memory).into_iter().filter_map(move |path| {
        let bytes: u64 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let left_bytes = bytes.saturating_sub(used_bytes);
        let name = path.display().to_string();
        (bytes < GROUP_UNLIMITED_BYTES).then_some(MemoryLimit { name, bytes, left_bytes })
    })
}

/// The smallest limit of another process, or `None` without limits. All of it counts as left,
/// because that process may already use what it was configured to use.
pub fn memory_limit_of_process(pid: u32) -> Option<MemoryLimit> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let own = [(ADDRESS_SPACE, "Max address space"), (DATA, "Max data size")];
    let own = own.into_iter().filter_map(|(name, title)| {
        let (bytes, _) = process_limit(&text, title).filter(|&(soft, _)| soft != UNLIMITED)?;
        Some(MemoryLimit { name: name.into(), bytes, left_bytes: bytes })
    });
    own.chain(group_limits(Some(pid), 0)).min_by_key(|limit| limit.left_bytes)
}

/// A limit without a bound.
pub const UNLIMITED: u64 = u64::MAX;

/// A soft and a hard limit by its title in `limits`, the text of `/proc/PID/limits` (proc(5)). A
/// title is one such as `Max open files`.
pub fn process_limit(limits: &str, title: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
    let mut numbers = line.split_whitespace().map(|text| match text {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

/// The memory of this machine, if the system reports it.
pub fn installed_memory_bytes() -> Option<u64> {
    // SAFETY: no memory is involved.
    let number = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok();
    Some(number(libc::_SC_PHYS_PAGES)?.saturating_mul(number(libc::_SC_PAGESIZE)?))
}

/// Memory of this process now (`/proc/self/statm`, proc(5)), in bytes.
#[derive(Debug)]
struct MemoryUsage {
    mapped_bytes: u64,
    resident_bytes: u64,
    data_bytes: u64,
}

impl MemoryUsage {
    fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/self/statm")?;
        // SAFETY: no memory is involved.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = u64::try_from(page_bytes).unwrap_or(4096);
        let field = |number: usize| {
            let pages = text.split_ascii_whitespace().nth(number)?.parse::<u64>().ok()?;
            Some(pages * page_bytes)
        };
        let (mapped, resident, data) = (field(0), field(1), field(5));
        let all = mapped.zip(resident).zip(data);
        let ((mapped_bytes, resident_bytes), data_bytes) = all.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { mapped_bytes, resident_bytes, data_bytes })
    }
}

/// A limit of control groups (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupLimit {
    Memory,
    /// Processes and threads.
    Processes,
    /// Processor time, in version 2 alone.
    Processors,
}

impl GroupLimit {
    /// The controller in version 1, and the files in version 1 and 2.
    const fn files(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Memory => ("memory", &["memory.limit_in_bytes"], &["memory.max", "memory.high"]),
            Self::Processes => ("pids", &["pids.max"], &["pids.max"]),
            Self::Processors => ("cpu", &[], &["cpu.max"]),
        }
    }
}

/// The files with a limit of a process's control groups, from its own group up to the root: the
/// smallest limit counts. Some files may not exist. Without `pid`, those of this process.
pub fn group_files(pid: Option<u32>, limit: GroupLimit) -> Vec<PathBuf> {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    limit_files(&groups, &mounts, limit)
}

/// The limit files of the group and all its parents, for cgroup versions 1 and 2 (cgroups(7),
/// proc(5)).
fn limit_files(groups: &str, mounts: &str, limit: GroupLimit) -> Vec<PathBuf> {
    let (controller, names_v1, names_v2) = limit.files();
    let has_controller = |list: &str| list.split(',').any(|one| one == controller);
    let mut files = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        // The 4th and 5th fields are the mount's root within the hierarchy, and its path here.
        // After the separator come type, source and options (proc(5)).
        let mut place = place.split(' ').skip(3);
        let (Some(root), Some(mount)) = (place.next(), place.next()) else { continue };
        let mut kind = kind.split(' ');
        let (version, options) = (kind.next(), kind.nth(1).unwrap_or_default());
        let names = match version {
            Some("cgroup2") => names_v2,
            Some("cgroup") if has_controller(options) => names_v1,
            _ => continue,
        };
        let group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let is_it = match version {
                Some("cgroup2") => controllers.is_empty(),
                _ => has_controller(controllers),
            };
            is_it.then_some(group)
        });
        // A container sees its own group as the root of the mount.
        let below = group
            .and_then(|group| Path::new(group).strip_prefix(root).ok())
            .filter(|below| below.components().all(|part| part != Component::ParentDir));
        let below = below.unwrap_or(Path::new(""));
        for group in below.ancestors() {
            files.extend(names.iter().map(|name| Path::new(mount).join(group).join(name)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn divides_memory_below_limit() {
        let least = 16 * MIB;
        let wanted = (256 * MIB, 256 * MIB);
        assert_eq!(divide(1024 * MIB, wanted, least), wanted);
        // 256 MiB, and 3/4 of the rest.
        assert_eq!(divide(512 * MIB, wanted, least), (192 * MIB, 256 * MIB));
        assert_eq!(divide(128 * MIB, wanted, least), (48 * MIB, 64 * MIB));
        assert_eq!(divide(24 * MIB, wanted, least), (6 * MIB, 16 * MIB));
        assert_eq!(divide(MIB, wanted, least), (0, 16 * MIB));
        // A small store leaves more for the rest and is not enlarged.
        assert_eq!(divide(256 * MIB, (8 * MIB, 256 * MIB), least), (8 * MIB, 128 * MIB));
        assert_eq!(divide(MIB, (0, 256 * MIB), least), (0, 16 * MIB));
        assert_eq!(divide(256 * MIB, (0, 256 * MIB), least), (0, 256 * MIB));
    }

    #[test]
    fn needed_limit_changes_no_setting() {
        for (store, memory, index) in [(512, 256, 0), (1, 16, 64), (1000, 256, 4000), (0, 16, 1)] {
            let wanted = (store * MIB + 5, memory * MIB);
            let needed_bytes = memory_limit_needed_bytes(wanted.0, wanted.1, index * MIB);
            let divided =
                |limit_bytes| divide(left_after_index(limit_bytes, index * MIB), wanted, 16 * MIB);
            assert_eq!(divided(needed_bytes), wanted, "{store} {memory} {index}");
        }
        let wanted = (512 * MIB, 256 * MIB);
        let needed_bytes = memory_limit_needed_bytes(wanted.0, wanted.1, 0);
        assert_ne!(divide(needed_bytes - 4, wanted, 16 * MIB), wanted);
        assert_eq!(memory_limit_needed_bytes(u64::MAX, MIB, MIB), u64::MAX);
    }

    #[test]
    fn disk_index_leaves_half_to_store() {
        assert_eq!(left_after_index(4096 * MIB, 4500 * MIB), 2048 * MIB);
        assert_eq!(left_after_index(4096 * MIB, 1000 * MIB), 3596 * MIB);
        assert_eq!(left_after_index(0, MIB), 0);
    }

    #[test]
    fn reads_limits_of_parent_cgroups() {
        let v2 = "35 28 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let files = limit_files("0::/system.slice/weir.service\n", v2, GroupLimit::Memory);
        let files: Vec<_> = files.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/system.slice/weir.service/memory.max",
                "/sys/fs/cgroup/system.slice/weir.service/memory.high",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/system.slice/memory.high",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory.high",
            ]
        );
    }

    #[test]
    fn each_limit_has_files_up_to_the_root() {
        let mounts = "35 28 0:30 / /cg rw - cgroup2 cgroup2 rw\n\
                      36 28 0:31 / /cg1/pids rw - cgroup cgroup rw,pids\n\
                      37 28 0:32 / /cg1/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "3:pids:/b\n2:cpu,cpuacct:/b\n0::/a\n";
        let files = |limit| limit_files(groups, mounts, limit);
        let expected = ["/cg/a/pids.max", "/cg/pids.max", "/cg1/pids/b/pids.max"];
        let expected = expected.iter().chain(&["/cg1/pids/pids.max"]).map(PathBuf::from);
        assert_eq!(files(GroupLimit::Processes), expected.collect::<Vec<_>>());
        let expected = ["/cg/a/cpu.max", "/cg/cpu.max"].map(PathBuf::from);
        assert_eq!(files(GroupLimit::Processors), expected);
    }

    #[test]
    fn reads_limits_of_a_process() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 1048576              files\n\
                      Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(process_limit(limits, "Max open files"), Some((1024, 1_048_576)));
        assert_eq!(process_limit(limits, "Max locked memory"), Some((8_388_608, UNLIMITED)));
        assert_eq!(process_limit(limits, "Max processes"), None);
    }

    #[test]
    fn container_limit_is_at_mount_root() {
        let groups = "5:memory:/docker/f00\n4:cpu,cpuacct:/docker/f00\n0::/\n";
        let mounts = "8 3 0:2 /docker/f00 /cg/memory ro master:1 - cgroup cgroup rw,memory\n\
                      9 3 0:3 /docker/f00 /cg/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
                      7 3 0:9 / /proc rw - proc proc rw\n";
        let expected = [PathBuf::from("/cg/memory/memory.limit_in_bytes")];
        assert_eq!(limit_files(groups, mounts, GroupLimit::Memory), expected);
        let mounts = "8 3 0:2 / /cg rw - cgroup2 cgroup rw\n";
        let expected = ["/cg/memory.max", "/cg/memory.high"].map(PathBuf::from);
        assert_eq!(limit_files("0::/\n", mounts, GroupLimit::Memory), expected);
        // A group outside of the mounted hierarchy.
        assert_eq!(limit_files("0::/../other\n", mounts, GroupLimit::Memory), expected);
        for nothing in ["", "0::/\n", ":::\n\n - - \n"] {
            assert!(limit_files(nothing, nothing, GroupLimit::Memory).is_empty());
        }
    }

    #[test]
    fn limits_of_process_are_those_of_itself() {
        let own = memory_limit().map(|limit| (limit.name, limit.bytes));
        let of_process = memory_limit_of_process(std::process::id());
        assert_eq!(of_process.map(|limit| (limit.name, limit.bytes)), own);
        assert!(installed_memory_bytes() > Some(64 * MIB));
    }

    #[test]
    fn reads_own_memory_usage() {
        let used = MemoryUsage::now().unwrap();
        assert!(used.resident_bytes > 0 && used.mapped_bytes > used.resident_bytes);
        assert!(used.data_bytes > 0);
    }
}
