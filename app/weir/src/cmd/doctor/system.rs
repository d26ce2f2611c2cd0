//! Features of the system. The list is also the table in docs/operate.md.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;

use io_uring::IoUring;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{SetSockOpt, setsockopt, sockopt};
use weir_runtime::{GroupLimit, UNLIMITED, installed_memory_bytes};

use super::credentials::{CAP_IPC_LOCK, CAP_NET_ADMIN};
use super::process::Measured;
use super::router_user::RouterUser;
use super::{Finding, Outcome};
use crate::config::FileConfig;
use crate::table::octets;

/// What is checked.
struct Subject<'a> {
    config: &'a FileConfig,
    process: &'a Measured,
    user: &'a RouterUser,
}

/// A feature without which a router works, with less performance. `missing`, `effect` and `remedy`
/// are the row of the table.
struct Feature {
    name: &'static str,
    missing: &'static str,
    effect: &'static str,
    remedy: &'static str,
    check: fn(&Subject<'_>) -> Outcome,
}

const fn feature(
    name: &'static str,
    missing: &'static str,
    effect: &'static str,
    remedy: &'static str,
    check: fn(&Subject<'_>) -> Outcome,
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

pub(super) fn check(config: &FileConfig, process: &Measured, user: &RouterUser) -> Vec<Finding> {
    let subject = Subject { config, process, user };
    let findings = FEATURES.iter().map(|feature| {
        let mut outcome = (feature.check)(&subject);
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
fn kernel_text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel_number(path: impl AsRef<Path>) -> Option<u64> {
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

fn memory(subject: &Subject<'_>) -> Outcome {
    let of_unit = subject.user.unit.as_ref().and_then(|unit| unit.memory.clone());
    let limits = [of_unit, subject.process.memory_limit()].into_iter().flatten();
    let (limit, installed) =
        (limits.min_by_key(|limit| limit.left_bytes), installed_memory_bytes());
    if let Some(shortage) = subject.config.memory_shortage(limit.as_ref(), installed) {
        return Outcome::missing(shortage.detail, shortage.fix);
    }
    match (limit, installed) {
        (Some(limit), _) => {
            Outcome::found(format!("{} left in {}", octets(limit.left_bytes), limit.name))
        }
        (None, Some(bytes)) => Outcome::found(format!("{}, no limit", octets(bytes))),
        (None, None) => Outcome::found("no limit"),
    }
}

fn overcommit(_: &Subject<'_>) -> Outcome {
    match kernel_number("/proc/sys/vm/overcommit_memory") {
        Some(2) => Outcome::missing("vm.overcommit_memory is 2", ""),
        Some(mode) => Outcome::found(format!("vm.overcommit_memory is {mode}")),
        None => Outcome::found("no limit"),
    }
}

/// Threads that a router with several disks needs.
const THREADS_NEEDED: u64 = 64;

fn threads(subject: &Subject<'_>) -> Outcome {
    let own = subject.process.limit("Max processes").map_or(UNLIMITED, |(soft, _)| soft);
    let group = subject.process.group_limit(GroupLimit::Processes, |text| text.parse().ok());
    let group = group.filter(|(limit, _)| *limit < own);
    let owner = group.as_ref().map(|(_, file)| format!(" ({})", file.display()));
    let owner = format!("{}{}", subject.process.owner(), owner.unwrap_or_default());
    match group.map_or(own, |(limit, _)| limit) {
        UNLIMITED => Outcome::found("no limit"),
        limit if limit >= THREADS_NEEDED => Outcome::found(format!("at most {limit}, {owner}")),
        limit => {
            Outcome::missing(format!("at most {limit} of about {THREADS_NEEDED}, {owner}"), "")
        }
    }
}

const FILES_NEEDED: u64 = 65_536;

fn open_files(subject: &Subject<'_>) -> Outcome {
    let owner = subject.process.owner();
    match subject.process.limit("Max open files") {
        Some((_, UNLIMITED)) => Outcome::found("no limit"),
        Some((_, hard)) if hard >= FILES_NEEDED => {
            Outcome::found(format!("at most {hard}, {owner}"))
        }
        Some((_, hard)) => Outcome::missing(format!("at most {hard}, {owner}"), ""),
        None => Outcome::missing(format!("the limit {owner} cannot be read"), ""),
    }
}

fn io_uring(subject: &Subject<'_>) -> Outcome {
    let disabled = kernel_number("/proc/sys/kernel/io_uring_disabled").filter(|mode| *mode > 0);
    // Mode 1 allows it to root, and to a group.
    match subject.user.run(|| IoUring::new(8)) {
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

fn io_uring_workers(_: &Subject<'_>) -> Outcome {
    if is_kernel_at_least(5, 15) {
        Outcome::found("Linux 5.15 or later")
    } else {
        Outcome::missing("the kernel is older than Linux 5.15", "use a newer kernel")
    }
}

/// Buffers of one disk with the default depth.
const LOCKED_BYTES_NEEDED: u64 = 5 << 20;

fn locked_memory(subject: &Subject<'_>) -> Outcome {
    let (config, owner) = (subject.config, subject.process.owner());
    let disks = config.disk.len().max(1) as u64;
    let disk_bytes = config.to_runtime().ok().and_then(|runtime| runtime.disks);
    let disk_bytes = disk_bytes.map_or(LOCKED_BYTES_NEEDED, |disks| {
        weir_disk::locked_bytes(disks.tier.depth, config.threads())
    });
    // The kernel adds up the memory of all processes of a user.
    let needed_bytes = disks * disk_bytes;
    let needed = format!("disks need {}", octets(needed_bytes));
    match subject.process.limit("Max locked memory").map_or(0, |(soft, _)| soft) {
        _ if subject.user.has(CAP_IPC_LOCK) => {
            Outcome::found(format!("CAP_IPC_LOCK of {}", subject.user.shown()))
        }
        UNLIMITED => Outcome::found("no limit"),
        soft if soft >= needed_bytes => {
            Outcome::found(format!("at most {}, {owner}; {needed}", octets(soft)))
        }
        soft => Outcome::missing(format!("at most {}, {owner}; {needed}", octets(soft)), ""),
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

fn udp_batches(_: &Subject<'_>) -> Outcome {
    let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
    all_of(&[
        ("UDP_SEGMENT", set_option(any, sockopt::UdpGsoSegment, &1400)),
        ("UDP_GRO", set_option(any, sockopt::UdpGroSegment, &true)),
    ])
}

fn packet_information(_: &Subject<'_>) -> Outcome {
    let v4 = set_option(IpAddr::V4(Ipv4Addr::LOCALHOST), sockopt::Ipv4PacketInfo, &true);
    if kernel_text("/proc/net/if_inet6").is_none_or(|text| text.is_empty()) {
        return all_of(&[("IP_PKTINFO", v4)]);
    }
    let v6 = set_option(IpAddr::V6(Ipv6Addr::LOCALHOST), sockopt::Ipv6RecvPacketInfo, &true);
    all_of(&[("IP_PKTINFO", v4), ("IPV6_RECVPKTINFO", v6)])
}

fn port_sharing(_: &Subject<'_>) -> Outcome {
    let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
    all_of(&[("SO_REUSEPORT", set_option(any, sockopt::ReusePort, &true))])
}

const RECEIVE_BUFFER_BYTES: u64 = 2 << 20;

fn receive_buffers(subject: &Subject<'_>) -> Outcome {
    let bytes = kernel_number("/proc/sys/net/core/rmem_max");
    match bytes {
        Some(bytes) if bytes >= RECEIVE_BUFFER_BYTES => Outcome::found(octets(bytes)),
        _ if subject.user.has(CAP_NET_ADMIN) => {
            Outcome::found(format!("CAP_NET_ADMIN of {}", subject.user.shown()))
        }
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

fn shared_memory(_: &Subject<'_>) -> Outcome {
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

fn file_watches(_: &Subject<'_>) -> Outcome {
    let limit = |name: &str| kernel_number(format!("/proc/sys/fs/inotify/{name}"));
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

fn processors(subject: &Subject<'_>) -> Outcome {
    let owner = subject.process.owner();
    let allowed = subject.process.status("Cpus_allowed_list").and_then(|list| count_of(&list));
    let group = subject.process.group_limit(GroupLimit::Processors, quota);
    let group = group.and_then(|(limit, _)| usize::try_from(limit).ok());
    let usable = allowed.unwrap_or(usize::MAX).min(group.unwrap_or(usize::MAX));
    let online = kernel_text("/sys/devices/system/cpu/online").and_then(|text| count_of(&text));
    match online {
        Some(online) if usable < online => Outcome::missing(
            format!("{usable} of {online} are usable, {owner}"),
            "raise cpu.max (CPUQuota= of the unit) or the affinity (taskset, CPUAffinity=), if the \
             router should use more",
        ),
        Some(online) => Outcome::found(format!("{online}")),
        None => Outcome::found("all"),
    }
}

/// The number of processors that `cpu.max` grants, at least 1: a quota and a period, or `max`.
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    Some(quota.checked_div(period)?.max(1))
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

    /// The outcome of a check for a router that this shell would start.
    fn of_shell(config: &FileConfig, check: fn(&Subject<'_>) -> Outcome) -> Outcome {
        let process = Measured::of_this_shell();
        let user = RouterUser::find(&Measured { pid: Some(std::process::id()) });
        check(&Subject { config, process: &process, user: &user })
    }

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
    fn memory_above_that_of_the_machine_is_missing() {
        let large = FileConfig::parse("[store]\nsize = \"8000000TiB\"\n", "a").unwrap();
        let outcome = of_shell(&large, memory);
        assert!(!outcome.is_found && outcome.detail.contains("[store] size"), "{outcome:?}");
    }

    #[test]
    fn limits_are_those_of_the_running_router() {
        let config = FileConfig::default();
        let user = RouterUser::find(&Measured { pid: Some(std::process::id()) });
        let pid = std::process::id();
        for (pid, owner) in [(Some(pid), "of the running router"), (None, "of this shell")] {
            let process = Measured { pid };
            let outcome = open_files(&Subject { config: &config, process: &process, user: &user });
            let is_unlimited = outcome.detail == "no limit";
            assert!(is_unlimited || outcome.detail.contains(owner), "{outcome:?}");
        }
    }

    #[test]
    fn several_disks_need_more_locked_memory() {
        let disk = |at: usize| format!("[[disk]]\npath = \"/d/{at}\"\nsize = \"1GiB\"\n");
        let config = FileConfig::parse(&(0..3).map(disk).collect::<String>(), "a").unwrap();
        let outcome = of_shell(&config, locked_memory);
        let is_free = ["no limit", "CAP_IPC_LOCK"].iter().any(|word| outcome.detail.contains(word));
        assert!(is_free || outcome.detail.contains("disks need 15.0 MiB"), "{outcome:?}");
    }

    #[test]
    fn reads_processor_quotas() {
        assert_eq!(quota("max 100000"), None);
        assert_eq!(quota("150000 100000"), Some(1));
        assert_eq!(quota("50000 100000"), Some(1));
        assert_eq!(quota("400000 100000"), Some(4));
        assert_eq!((quota(""), quota("1 0")), (None, None));
    }
}
