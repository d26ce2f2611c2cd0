//! A router on a system that lacks features or memory. It continues to work, perhaps slower or with
//! a smaller store, and logs what is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, Uid};
use weir_tests::{
    DeniedCall, DiskStore, Host, Process, Router, TEST_TIMEOUT, is_denial_unavailable, random_file,
    sha256_hex, weir_binary, without_calls,
};

/// Much more than the store of any of these routers.
const FILE_BYTES: usize = 96 << 20;
const SMALL_BYTES: usize = 4 << 20;

/// A file served at a router.
struct Served {
    _producer: Process,
    name: String,
    digest: String,
}

fn serve(router: &Router, bytes: usize) -> Served {
    let digest = random_file(&router.host.path("source"), bytes, 16);
    let (producer, name) = router.put_object(&["source", "/file"]);
    Served { _producer: producer, name, digest }
}

/// Fetches the file twice, from the producer and from the store.
fn expect_file(host: &Host, transport: &str, served: &Served) {
    expect_copies(host, transport, &served.name, &served.digest);
}

fn expect_copies(host: &Host, transport: &str, name: &str, digest: &str) {
    for copy in ["first", "second"] {
        let words = ["get", name, "-o", copy];
        host.spawn(transport, &words).finish().success();
        assert_eq!(sha256_hex(&host.path(copy)), digest);
    }
}

/// Waits for a log line. A router accepts connections shortly before it has opened its disks.
fn wait_until_logged(router: &Router, text: &str) {
    let end = Instant::now() + TEST_TIMEOUT;
    while log_count(router, text) == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How often the log contains `text`.
fn log_count(router: &Router, text: &str) -> usize {
    router.process.log().matches(text).count()
}

fn expect_logged_once(router: &Router, text: &str) {
    wait_until_logged(router, text);
    assert_eq!(log_count(router, text), 1, "{text:?} in:\n{}", router.process.log());
}

fn store(size: &str) -> [&str; 4] {
    ["--store", size, "--threads", "1"]
}

/// Checks that a store of 256 MiB got less memory than configured, and uses it.
fn expect_less(router: &Router, limit: &str) {
    expect_logged_once(router, "the system limits this process to less memory than is configured");
    assert!(log_count(router, limit) > 0, "{limit:?} in:\n{}", router.process.log());
    let served = serve(router, FILE_BYTES);
    expect_file(&router.host, &router.unix(), &served);
    let store = router.weir_json(&["cs", "info"]);
    let capacity = store["capacity_bytes"].as_u64().expect("a number");
    let used = store["bytes"].as_u64().expect("a number");
    assert!(capacity < 100 << 20 && used <= capacity, "{store}");
    assert!(used > capacity / 2, "the store is used: {store}");
}

#[test]
fn uses_threads_without_io_uring() {
    if is_denial_unavailable() {
        return;
    }
    let (setup, enter) = (libc::SYS_io_uring_setup, libc::SYS_io_uring_enter);
    // The errors of an old system, of a container, and of a filter without a rule for io_uring.
    let all = [(setup, libc::ENOSYS), (setup, libc::EPERM), (enter, libc::EPERM)];
    for (call, errno) in all {
        let host = Host::new();
        let router =
            without_calls(&[DeniedCall::call(call, errno)], || DiskStore::new("one").start(&host));
        expect_logged_once(&router, "io_uring cannot be used");
        expect_logged_once(&router, "engine=\"threads\"");
        let served = serve(&router, SMALL_BYTES);
        expect_file(&host, &router.unix(), &served);
        assert_eq!(log_count(&router, "ERROR"), 0, "{}", router.process.log());
    }
}

/// Linux 5.11 to 5.14 has io_uring, but without some features that a router uses.
#[test]
fn uses_older_io_uring_for_disks() {
    if is_denial_unavailable() {
        return;
    }
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`, from Linux 5.15 on.
    const IOWQ_MAX_WORKERS: u32 = 19;
    let call = libc::SYS_io_uring_register;
    let argument = Some((1, IOWQ_MAX_WORKERS));
    let denied = DeniedCall { call, argument, errno: libc::EINVAL };
    let host = Host::new();
    let router = without_calls(&[denied], || DiskStore::new("one").start(&host));
    wait_until_logged(&router, "disk of the content store");
    if log_count(&router, "engine=\"io_uring\"") == 0 {
        return eprintln!("io_uring is not available: NOT tested");
    }
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.unix(), &served);
    expect_logged_once(&router, "io_uring has its own bound of operations");
    assert_eq!(log_count(&router, "ERROR"), 0, "{}", router.process.log());
}

#[test]
fn runs_on_linux_5_10_system_calls() {
    if is_denial_unavailable() {
        return;
    }
    /// `epoll_pwait2`, the first new call of Linux 5.11. New calls have the same number on all
    /// architectures.
    const FIRST: libc::c_long = 441;
    /// Higher than any existing call.
    const LAST: libc::c_long = 512;
    let denied: Vec<_> = (FIRST..LAST).map(|call| DeniedCall::call(call, libc::ENOSYS)).collect();
    without_calls(&denied, || {
        let host = Host::new();
        let router = DiskStore::new("one").start(&host);
        let served = serve(&router, SMALL_BYTES);
        expect_file(&host, &router.unix(), &served);
        expect_file(&host, &router.udp(), &served);
    });
}

#[test]
fn udp_works_without_batches_and_gso() {
    if is_denial_unavailable() {
        return;
    }
    let setsockopt = |option: libc::c_int, errno| {
        let argument = Some((2, option as u32));
        DeniedCall { call: libc::SYS_setsockopt, argument, errno }
    };
    // Some filters return EPERM for unknown options. A firewall returns it for packets, too.
    let denied = [
        setsockopt(libc::UDP_SEGMENT, libc::ENOPROTOOPT),
        setsockopt(libc::UDP_GRO, libc::EPERM),
        DeniedCall::call(libc::SYS_sendmmsg, libc::EPERM),
        DeniedCall::call(libc::SYS_recvmmsg, libc::EPERM),
    ];
    let host = Host::new();
    let router = without_calls(&denied, || Router::start(&host));
    expect_logged_once(&router, "UDP_GRO, UDP_SEGMENT, sendmmsg and recvmmsg");
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.udp(), &served);
}

#[test]
fn socket_is_used_without_shared_memory() {
    if is_denial_unavailable() {
        return;
    }
    let router = Router::on_new_host();
    let served = serve(&router, SMALL_BYTES);
    let denied = [DeniedCall::call(libc::SYS_memfd_create, libc::ENOSYS)];
    let unix = router.unix();
    // Copy these fields, as `served` cannot move to another thread.
    let (name, digest) = (served.name.clone(), served.digest.clone());
    without_calls(&denied, || expect_copies(&router.host, &unix, &name, &digest));
}

#[test]
fn memory_thread_runs_without_low_priority() {
    if is_denial_unavailable() {
        return;
    }
    let host = Host::new();
    let denied = [DeniedCall::call(libc::SYS_sched_setscheduler, libc::EPERM)];
    let router = without_calls(&denied, || Router::start(&host));
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.unix(), &served);
    expect_logged_once(&router, "does not allow SCHED_IDLE");
}

/// The memory thread is the only thread that a router can do without.
#[test]
fn router_runs_without_the_memory_thread() {
    if !Uid::current().is_root() {
        return eprintln!("only root can limit the threads of another user: NOT tested");
    }
    let host = Host::new();
    let program = host.path("weir");
    fs::copy(weir_binary(), &program).expect("copy of weir");
    let folder = host.path("router.sock").parent().expect("the host").to_path_buf();
    for (path, mode) in [(&program, 0o755), (&folder, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }
    let mut command = host.command(Path::new("setpriv"));
    // Use a user without other processes, as the limit counts all threads of a user.
    let user = format!("--reuid={}", 1_000_000 + std::process::id());
    let may_be_it = std::process::Command::new("setpriv").args([&user, "true"]).status();
    if !may_be_it.is_ok_and(|status| status.success()) {
        return eprintln!("there is no such user in this namespace: NOT tested");
    }
    command.args([&user, "--clear-groups", "prlimit", "--nproc=3"]).arg(&program);
    let router = Router::start_as(&host, command, "router.sock", &store("64MiB"));
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.unix(), &served);
    expect_logged_once(&router, "cannot start the thread that prepares memory");
}

#[test]
fn store_continues_when_memory_is_refused() {
    if is_denial_unavailable() {
        return;
    }
    /// The size of an allocation with a store of 256 MiB: an eighth, plus the reserve for the rest
    /// of the program.
    const ASKED_BYTES: u32 = (32 + 32) << 20;
    let argument = Some((1, ASKED_BYTES));
    let denied = [DeniedCall { call: libc::SYS_mmap, argument, errno: libc::ENOMEM }];
    let host = Host::new();
    let router = without_calls(&denied, || Router::start_with(&host, &store("256MiB")));
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.unix(), &served);
    expect_logged_once(&router, "the system gives the content store no more memory");
}

#[test]
fn data_limit_shrinks_the_store() {
    let host = Host::new();
    let router = Router::start_after(&host, "ulimit -d 131072", &store("256MiB"));
    expect_less(&router, "RLIMIT_DATA");
}

#[test]
fn address_space_limit_shrinks_the_store() {
    let host = Host::new();
    let router = Router::start_after(&host, "ulimit -v 307200", &store("256MiB"));
    expect_less(&router, "RLIMIT_AS");
}

#[test]
fn growing_store_stays_within_limits() {
    let host = Host::new();
    let router = Router::start_after(&host, "ulimit -d 196608", &store("16MiB"));
    let served = serve(&router, FILE_BYTES);
    router.weir(&["cs", "config", "--capacity", "1GiB"]).success();
    expect_file(&host, &router.unix(), &served);
    let store = router.weir_json(&["cs", "info"]);
    let capacity = store["capacity_bytes"].as_u64().expect("a number");
    assert!((17 << 20..192 << 20).contains(&capacity), "{store}");
    // After shrinking, the store can grow to the same size again.
    for size in ["8MiB", "1GiB"] {
        router.weir(&["cs", "config", "--capacity", size]).success();
    }
    assert_eq!(router.weir_json(&["cs", "info"])["capacity_bytes"], capacity);
}

/// A control group for this test, removed on drop.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// Returns `None` if this process cannot create one.
    fn new(memory_bytes: u64) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = |version: &str, controller: &str| {
            mounts.lines().find_map(|line| {
                let (place, kind) = line.split_once(" - ")?;
                let is_it = kind.split(' ').next() == Some(version)
                    && kind.rsplit(',').any(|one| controller.is_empty() || one == controller);
                is_it.then(|| PathBuf::from(place.split(' ').nth(4).unwrap_or_default()))
            })
        };
        let name = format!("weir-test-{}", std::process::id());
        let v1 = mount("cgroup", "memory").map(|at| (at.join(&name), "memory.limit_in_bytes"));
        let v2 = mount("cgroup2", "").map(|at| {
            // If this fails, the group has no memory controller.
            let _ = fs::write(at.join("cgroup.subtree_control"), "+memory");
            (at.join(&name), "memory.max")
        });
        v1.into_iter().chain(v2).find_map(|(folder, file)| {
            fs::create_dir(&folder).ok()?;
            let group = Self { folder };
            let limit = group.folder.join(file);
            limit.exists().then(|| fs::write(limit, memory_bytes.to_string()).ok())??;
            // Moving a process into the group may still fail.
            let line = format!("echo $$ > {}/cgroup.procs", group.folder.display());
            let entered = std::process::Command::new("sh").args(["-c", &line]).output();
            entered.is_ok_and(|output| output.status.success()).then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended, but the system may need a moment to notice.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn control_group_limits_the_store() {
    let Some(group) = Group::new(96 << 20) else {
        return eprintln!("cannot create a control group: NOT tested");
    };
    let host = Host::new();
    let line = format!("echo $$ > {}/cgroup.procs", group.folder.display());
    let router = Router::start_after(&host, &line, &store("256MiB"));
    expect_less(&router, "weir-test-");
    drop(router);
}

#[test]
fn one_processor_means_one_thread() {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).expect("processors");
    let usable: Vec<_> =
        (0..CpuSet::count()).filter(|&at| all.is_set(at).unwrap_or(false)).collect();
    let router_on_one = |host: &Host| {
        let mut one = CpuSet::new();
        one.set(usable[0]).expect("a processor");
        // Use a temporary thread, so that other tests keep their affinity.
        without_calls(&[], || {
            sched_setaffinity(this, &one).expect("one processor");
            Router::start(host)
        })
    };
    let host = Host::new();
    let router = router_on_one(&host);
    let served = serve(&router, SMALL_BYTES);
    expect_file(&host, &router.unix(), &served);
    if usable.len() > 1 {
        let text = "this process may not use all processors of the machine";
        wait_until_logged(&router, text);
        let log = router.process.log();
        let line = log.lines().find(|line| line.contains(text)).expect("a line of the log");
        assert!(line.contains("usable=1") && line.contains("threads=1"), "{line}");
    }
}
