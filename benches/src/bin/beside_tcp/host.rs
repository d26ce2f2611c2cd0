//! Hosts: network namespaces of this process, each with a TUN device for its only link.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};
use tun_rs::DeviceBuilder;

/// Name of the device in each host.
const DEVICE: &str = "link0";
/// Octets of an IP packet, at most.
pub(crate) const MTU: u16 = 1500;

/// What to do where the system does not let us.
pub(crate) const HELP: &str = "\
not allowed here: this needs network namespaces and TUN devices of its own.
Any of these helps:
  - as root, outside of a container;
  - sysctl kernel.unprivileged_userns_clone=1 (Debian), user.max_user_namespaces=1000 (where it is
    0), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04 and later);
  - modprobe tun, and chmod 666 /dev/net/tun;
  - in a container: --device /dev/net/tun and --cap-add NET_ADMIN --cap-add SYS_ADMIN.
Until then `cargo test -p weir-transport bottleneck` compares controllers under virtual time.";

/// Takes privileges over namespaces made from now on. To be called while this process has one
/// thread.
pub(crate) fn become_root_of_a_user_namespace() -> anyhow::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER) {
        // Root may do without.
        ensure!(uid.is_root(), "cannot make a user namespace: {error}");
        return Ok(());
    }
    let write = |file: &str, text: String| {
        std::fs::write(file, text).with_context(|| format!("cannot write {file}"))
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// A network namespace that sees one link and nothing else of this machine.
pub(crate) struct Host {
    namespace: File,
    device: OwnedFd,
}

impl Host {
    /// A host with this address, linked to the one at `peer`. The calling thread is in it
    /// afterwards.
    pub(crate) fn new(address: &str, peer: &str) -> anyhow::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
        let namespace = File::open("/proc/thread-self/ns/net")?;
        // Without offload: the system cuts what TCP hands over into packets of the MTU.
        let device = DeviceBuilder::new()
            .name(DEVICE)
            .mtu(MTU)
            .enable(false)
            .offload(false)
            .build_sync()
            .context("cannot make a TUN device with /dev/net/tun")?;
        // What one transfer learns about the path is not for the next one.
        let metrics = Path::new("/proc/sys/net/ipv4/tcp_no_metrics_save");
        std::fs::write(metrics, "1").context("cannot set tcp_no_metrics_save")?;
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6"), "1");
        ip(&["link", "set", "lo", "up"])?;
        ip(&["address", "add", address, "peer", peer, "dev", DEVICE])?;
        ip(&["link", "set", DEVICE, "mtu", &MTU.to_string(), "up"])?;
        Ok(Self { namespace, device: device.as_fd().try_clone_to_owned()? })
    }

    /// The device: each read is an IP packet that this host sends, each write one that it gets.
    pub(crate) fn device(&self) -> anyhow::Result<OwnedFd> {
        Ok(self.device.try_clone()?)
    }

    /// Runs `job` on a thread of this host. What it opens and starts belongs to the host.
    pub(crate) fn run<T: Send>(
        &self,
        job: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&self.namespace, CloneFlags::CLONE_NEWNET)?;
                job()
            });
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
        })
    }

    /// Packets that this host sent and its device had no room for, before any emulator saw them.
    pub(crate) fn device_drops(&self) -> anyhow::Result<u64> {
        self.run(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
            let row = table.lines().find_map(|line| line.trim().strip_prefix("link0:"));
            // Eight columns of what came in, then octets, packets, errors and drops of what left.
            let drops = row.and_then(|row| row.split_whitespace().nth(11));
            Ok(drops.context("the device is in /proc/net/dev")?.parse()?)
        })
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot run `ip`; it is in the package iproute2")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("`ip {}` failed: {errors}", arguments.join(" "));
    }
    Ok(())
}
