//! Features of the system. The list is also the table in docs/operate.md.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;

use io_uring::IoUring;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::socket::{SetSockOpt, setsockopt, sockopt};
use weir_base::units::Size;
use weir_runtime::memory_limit;

use super::{Finding, Outcome};
use crate::config::FileConfig;
use crate::table::octets;

/// A feature without which a router works, with less performance. `missing`, `effect` and `remedy`
/// are the row of the table.
struct Feature {
    name: &'static str,
    missing: &'static str,
    effect: &'static str,
    remedy: &'static str,
    check: fn(&FileConfig) -> Outcome,
}

const fn feature(
    name: &'static str,
    missing: &'static str,
    effect: &'static str,
    remedy: &'static str,
    check: fn(&FileConfig) -> Outcome,
) -> Feature {
    Feature { name, missing, effect, remedy, check }
}

const FEATURES: &[Feature] = &[
    feature(
        "memory",
        "memory: cgroup (`memory.max`, `memory.high`, `memory.limit_in_bytes` of version 1), \
         `ulimit -v`, `ulimit -d`",
        "If not all fits at the start, `[router] memory_max` becomes half of what is left and the \
         store three quarters of the rest; the log has both. `weir cs info` shows the store's \
         limit, and `weir cs config --capacity` cannot exceed it. The index of disks needs half \
         of its limit",
        "raise the limit, or configure less; also if other processes share the group, because \
         they are not counted",
        memory,
    ),
    feature(
        "overcommit",
        "memory that the system refuses later (`vm.overcommit_memory = 2`)",
        "the store stops growing and evicts; it tries again after 2 s",
        "`sysctl -w vm.overcommit_memory=0`",
        overcommit,
    ),
    feature(
        "threads",
        "the thread that prepares the store's memory (`ulimit -u`, `pids.max`), or SCHED_IDLE for \
         it",
        "Data waits for pages while the store grows; without SCHED_IDLE the thread competes with \
         workers on a busy machine",
        "raise the limit; `memory_ahead = \"0\"` starts no thread",
        threads,
    ),
    feature(
        "huge pages",
        "huge pages",
        "none: the store requests none (decision 0020)",
        "",
        |_| Outcome::found("not used"),
    ),
    feature(
        "open files",
        "open files: a hard limit (`ulimit -Hn`) below 65,536; the router raises the soft limit to \
         it",
        "connections and files above the limit are refused",
        "`LimitNOFILE=65536` in the systemd unit, or `ulimit -n 65536` as root",
        open_files,
    ),
    feature(
        "io_uring",
        "io_uring (Linux before 5.11, `kernel.io_uring_disabled`, seccomp)",
        "up to 16 threads a disk: more processor time for each operation",
        "allow it; `engine = \"io_uring\"` refuses to start without",
        io_uring,
    ),
    feature(
        "io_uring workers",
        "`IORING_REGISTER_IOWQ_MAX_WORKERS` (Linux before 5.15)",
        "at most four blocking operations for each processor, such as first writes to a file",
        "",
        io_uring_workers,
    ),
    feature(
        "locked memory",
        "locked memory (`ulimit -l`) for io_uring's buffers",
        "the kernel looks buffers up for each operation",
        "raise it: `LimitMEMLOCK=64M` in the systemd unit, or `ulimit -l 65536`",
        locked_memory,
    ),
    feature(
        "UDP batches",
        "UDP_SEGMENT (GSO), UDP_GRO, `sendmmsg`, `recvmmsg` (seccomp)",
        "a system call, or a pass through the kernel, for each packet",
        "allow them",
        udp_batches,
    ),
    feature(
        "packet information",
        "IP_PKTINFO, IPV6_RECVPKTINFO (seccomp)",
        "a host with several addresses answers over UDP from the address that the system chooses",
        "allow them, or listen on each address",
        packet_information,
    ),
    feature(
        "port sharing",
        "SO_REUSEPORT, SO_ATTACH_REUSEPORT_CBPF (seccomp; several workers)",
        "one worker reads all of a UDP port",
        "allow them",
        port_sharing,
    ),
    feature(
        "receive buffers",
        "`net.core.rmem_max` below 2 MiB, and no CAP_NET_ADMIN",
        "fast UDP peers lose packets in bursts",
        "raise it: `sysctl -w net.core.rmem_max=2097152`",
        receive_buffers,
    ),
    feature(
        "shared memory",
        "`memfd_create` (an application's), or F_SEAL_FUTURE_WRITE",
        "the application keeps its Unix connection; `weir face list` shows no `shm://` for it. \
         The router counts refusals (`shared-memory-refused`); applications report nothing",
        "",
        shared_memory,
    ),
    feature(
        "file watches",
        "`fs.inotify.max_user_watches` below 8,192 or `fs.inotify.max_user_instances` below 128",
        "`weir put --watch` does not notice changes in some folders, and says so",
        "`sysctl -w fs.inotify.max_user_watches=65536 fs.inotify.max_user_instances=128`",
        file_watches,
    ),
    feature(
        "processors",
        "processors: affinity, `cpu.max`",
        "`threads = \"auto\"` counts usable ones; the log has the number if these are not all",
        "",
        processors,
    ),
];

pub(super) fn check(config: &FileConfig) -> Vec<Finding> {
    let findings = FEATURES.iter().map(|feature| {
        let mut outcome = (feature.check)(config);
        if outcome.fix.is_empty() {
            outcome.fix = feature.remedy.replace('`', "");
        }
        let about = Some(feature.missing.replace('`', ""));
        let finding = Finding::new(feature.name, false, &feature.effect.replace('`', ""), outcome);
        Finding { about, ..finding }
    });
    findings.collect()
}

/// The text of a file of the kernel, or `None` if it is not there.
fn kernel_text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel_number(path: &str) -> Option<u64> {
    kernel_text(path)?.parse().ok()
}

/// Whether the kernel has at least this version.
fn is_kernel_at_least(major: u32, minor: u32) -> bool {
    let release = kernel_text("/proc/sys/kernel/osrelease").unwrap_or_default();
    version_of(&release).is_none_or(|version| version >= (major, minor))
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn memory(config: &FileConfig) -> Outcome {
    let store_bytes = config.store.size.bytes;
    let needed_bytes = store_bytes.saturating_add(config.router.memory_max.get_ref().bytes);
    match memory_limit() {
        None => Outcome::found("no limit"),
        Some(limit) if limit.left_bytes / 4 * 3 >= needed_bytes => {
            Outcome::found(format!("{} left in {}", octets(limit.left_bytes), limit.name))
        }
        Some(limit) => Outcome::missing(
            format!(
                "{} leaves {}, and [store] size and [router] memory_max are {}",
                limit.name,
                octets(limit.left_bytes),
                octets(needed_bytes)
            ),
            format!(
                "raise the limit to {} or more, or configure less",
                Size { bytes: (needed_bytes / 3 * 4).next_multiple_of(1 << 20) }
            ),
        ),
    }
}

fn overcommit(_: &FileConfig) -> Outcome {
    match kernel_number("/proc/sys/vm/overcommit_memory") {
        Some(2) => Outcome::missing("vm.overcommit_memory is 2", ""),
        Some(mode) => Outcome::found(format!("vm.overcommit_memory is {mode}")),
        None => Outcome::found("no limit"),
    }
}

/// Threads that a router with several disks needs.
const THREADS_NEEDED: u64 = 64;

fn threads(_: &FileConfig) -> Outcome {
    let own = getrlimit(Resource::RLIMIT_NPROC).map_or(RLIM_INFINITY, |(soft, _)| soft);
    let group = kernel_text("/proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
        kernel_number(&format!("/sys/fs/cgroup{path}/pids.max"))
    });
    let limit = group.unwrap_or(RLIM_INFINITY).min(own);
    match limit {
        RLIM_INFINITY => Outcome::found("no limit"),
        limit if limit >= THREADS_NEEDED => Outcome::found(format!("at most {limit}")),
        limit => Outcome::missing(format!("at most {limit} of about {THREADS_NEEDED}"), ""),
    }
}

const FILES_NEEDED: u64 = 65_536;

fn open_files(_: &FileConfig) -> Outcome {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, RLIM_INFINITY)) => Outcome::found("no limit"),
        Ok((_, hard)) if hard >= FILES_NEEDED => Outcome::found(format!("at most {hard}")),
        Ok((_, hard)) => Outcome::missing(format!("at most {hard}"), ""),
        Err(error) => Outcome::missing(format!("the limit cannot be read: {error}"), ""),
    }
}

fn io_uring(_: &FileConfig) -> Outcome {
    let disabled = kernel_number("/proc/sys/kernel/io_uring_disabled").filter(|mode| *mode > 0);
    match IoUring::new(8) {
        Ok(ring) if ring.params().is_feature_ext_arg() => Outcome::found("usable"),
        Ok(_) => Outcome::missing("the kernel is older than Linux 5.11", "use a newer kernel"),
        Err(error) => match disabled {
            Some(mode) => Outcome::missing(
                format!("kernel.io_uring_disabled is {mode}"),
                "sysctl -w kernel.io_uring_disabled=0",
            ),
            None => Outcome::missing(
                format!("{error}"),
                "allow io_uring in the seccomp filter of the container or unit, such as \
                 SystemCallFilter=@system-service io_uring_setup io_uring_enter io_uring_register",
            ),
        },
    }
}

fn io_uring_workers(_: &FileConfig) -> Outcome {
    if is_kernel_at_least(5, 15) {
        Outcome::found("Linux 5.15 or later")
    } else {
        Outcome::missing("the kernel is older than Linux 5.15", "use a newer kernel")
    }
}

/// Buffers of one disk.
const LOCKED_BYTES_NEEDED: u64 = 8 << 20;

fn locked_memory(_: &FileConfig) -> Outcome {
    match getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft) {
        RLIM_INFINITY => Outcome::found("no limit"),
        soft if soft >= LOCKED_BYTES_NEEDED => Outcome::found(format!("at most {}", octets(soft))),
        soft => Outcome::missing(format!("at most {}", octets(soft)), ""),
    }
}

/// Sets an option of a UDP socket.
fn set_option<O: SetSockOpt>(address: IpAddr, option: O, value: &O::Val) -> Result<(), String> {
    let socket = UdpSocket::bind((address, 0)).map_err(|error| error.to_string())?;
    setsockopt(&socket.as_fd(), option, value).map_err(|error| error.to_string())
}

/// The outcome of several tries, each with a name.
fn all_of(tries: &[(&str, Result<(), String>)]) -> Outcome {
    let failed: Vec<String> = tries
        .iter()
        .filter_map(|(name, tried)| tried.as_ref().err().map(|error| format!("{name}: {error}")))
        .collect();
    if failed.is_empty() {
        Outcome::found("usable")
    } else {
        Outcome::missing(failed.join("; "), "allow them in the seccomp filter")
    }
}

fn udp_batches(_: &FileConfig) -> Outcome {
    let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
    all_of(&[
        ("UDP_SEGMENT", set_option(any, sockopt::UdpGsoSegment, &1400)),
        ("UDP_GRO", set_option(any, sockopt::UdpGroSegment, &true)),
    ])
}

fn packet_information(_: &FileConfig) -> Outcome {
    let v4 = set_option(IpAddr::V4(Ipv4Addr::LOCALHOST), sockopt::Ipv4PacketInfo, &true);
    if kernel_text("/proc/net/if_inet6").is_none_or(|text| text.is_empty()) {
        return all_of(&[("IP_PKTINFO", v4)]);
    }
    let v6 = set_option(IpAddr::V6(Ipv6Addr::LOCALHOST), sockopt::Ipv6RecvPacketInfo, &true);
    all_of(&[("IP_PKTINFO", v4), ("IPV6_RECVPKTINFO", v6)])
}

fn port_sharing(_: &FileConfig) -> Outcome {
    let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
    all_of(&[("SO_REUSEPORT", set_option(any, sockopt::ReusePort, &true))])
}

const RECEIVE_BUFFER_BYTES: u64 = 2 << 20;

fn receive_buffers(_: &FileConfig) -> Outcome {
    let bytes = kernel_number("/proc/sys/net/core/rmem_max");
    match bytes {
        Some(bytes) if bytes >= RECEIVE_BUFFER_BYTES => Outcome::found(octets(bytes)),
        _ if has_net_admin() => Outcome::found("CAP_NET_ADMIN"),
        Some(bytes) => Outcome::missing(
            format!("net.core.rmem_max is {}", octets(bytes)),
            format!("sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}"),
        ),
        // Older kernels hide it in network namespaces.
        None => Outcome::missing(
            "net.core.rmem_max cannot be read here",
            format!("on the host: sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}"),
        ),
    }
}

/// Whether this process has CAP_NET_ADMIN, capability 12 (capabilities(7)).
fn has_net_admin() -> bool {
    let status = kernel_text("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> 12 & 1 == 1)
}

fn shared_memory(_: &FileConfig) -> Outcome {
    let sealed = memfd_create("weir-doctor", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC)
        .and_then(|file| fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_FUTURE_WRITE)));
    match sealed {
        Ok(_) => Outcome::found("usable"),
        Err(Errno::EINVAL) => {
            Outcome::missing("no F_SEAL_FUTURE_WRITE: the kernel is older than Linux 5.1", "")
        }
        Err(error) => Outcome::missing(
            format!("memfd_create: {error}"),
            "allow memfd_create in the seccomp filter",
        ),
    }
}

fn file_watches(_: &FileConfig) -> Outcome {
    let limit = |name: &str| kernel_number(&format!("/proc/sys/fs/inotify/{name}"));
    match (limit("max_user_watches"), limit("max_user_instances")) {
        (Some(watches), Some(instances)) => {
            let text = format!("{watches} watches, {instances} instances");
            if watches >= 8192 && instances >= 128 {
                Outcome::found(text)
            } else {
                Outcome::missing(text, "")
            }
        }
        _ => Outcome::missing("no inotify", "use a kernel with CONFIG_INOTIFY_USER"),
    }
}

fn processors(_: &FileConfig) -> Outcome {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let online = kernel_text("/sys/devices/system/cpu/online").and_then(|text| count_of(&text));
    match online {
        Some(online) if usable < online => Outcome::missing(
            format!("{usable} of {online} are usable"),
            "raise cpu.max (CPUQuota= of the unit) or the affinity (taskset, CPUAffinity=), if the \
             router should use more",
        ),
        _ => Outcome::found(format!("{usable}")),
    }
}

/// The number of processors in a list such as `0-3,8`.
fn count_of(list: &str) -> Option<usize> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in docs/operate.md. WEIR_WRITE_OPTIONS=1 writes it.
    #[test]
    fn page_has_a_row_for_each_feature() {
        const HEAD: &str = "| missing | effect | remedy |\n|---|---|---|\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");
        let page = fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(HEAD).expect("the table");
        let (_, after) = rest.split_once("\n\n").expect("text after the table");
        let rows = FEATURES.iter().map(|Feature { missing, effect, remedy, .. }| {
            let gap = if remedy.is_empty() { "" } else { " " };
            format!("| {missing} | {effect} | {remedy}{gap}|\n")
        });
        let expected = format!("{before}{HEAD}{}\n{after}", rows.collect::<String>());
        if std::env::var_os("WEIR_WRITE_OPTIONS").is_some() {
            fs::write(path, expected).unwrap();
            return;
        }
        assert!(page == expected, "write the table in docs/operate.md with WEIR_WRITE_OPTIONS=1");
    }

    #[test]
    fn reads_versions_and_processor_lists() {
        assert_eq!(version_of("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.10-rc1"), Some((5, 10)));
        assert_eq!(version_of("weird"), None);
        assert_eq!(count_of("0-3,8"), Some(5));
        assert_eq!(count_of("0"), Some(1));
        assert_eq!(count_of(""), None);
    }

    #[test]
    fn memory_above_the_limit_is_missing() {
        let large = FileConfig::parse("[store]\nsize = \"8000000TiB\"\n", "a").unwrap();
        let outcome = memory(&large);
        let has_limit = memory_limit().is_some();
        assert_eq!(outcome.is_found, !has_limit, "{outcome:?}");
    }
}
