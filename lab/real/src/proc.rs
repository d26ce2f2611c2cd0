//! Processor time, cores and parent of processes, from the kernel.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use weir_base::NS_PER_S;

/// Processor time of this process, ns.
pub(super) fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock of processor time");
    time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64
}

/// Processor time of a process, ns. It includes finished threads: a router has one for each scrape
/// of its metrics.
pub(super) fn cpu_ns(id: u32) -> io::Result<u64> {
    let id = i32::try_from(id).map_err(|_| io::ErrorKind::NotFound)?;
    let time = clock_getcpuclockid(Pid::from_raw(id)).and_then(clock_gettime)?;
    Ok(time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64)
}

/// Resident memory of a process, bytes.
pub(super) fn resident_bytes(id: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.ok_or_else(|| io::Error::other("the process has no VmRSS"))? * 1024)
}

/// The cores that this process may use.
pub fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
}

/// Restricts this process and its later children to `cores`.
///
/// # Errors
/// The cores do not exist, or the process may not use them.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Makes the kernel kill this process when its parent, which must be `parent_id`, exits.
pub fn end_with_parent(parent_id: u32) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // The parent may have exited before the request. The kernel then sends no signal.
    match nix::unistd::getppid().as_raw() {
        id if id == parent_id as i32 => Ok(()),
        _ => Err(io::Error::other("the coordinator has ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_passes() {
        let before = cpu_ns(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while own_cpu_ns() < 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(cpu_ns(std::process::id()).unwrap() >= before);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert!(cpu_ns(ended.id()).is_err());
    }

    #[test]
    fn cpu_time_includes_ended_threads() {
        let work = || {
            let (mut sum, start_ns) = (0_u64, own_cpu_ns());
            while own_cpu_ns() < start_ns + 20_000_000 {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
            cpu_ns(std::process::id()).unwrap()
        };
        let at_its_end = std::thread::spawn(work).join().unwrap();
        assert!(cpu_ns(std::process::id()).unwrap() >= at_its_end);
    }

    #[test]
    fn memory_in_use_is_resident() {
        let before_bytes = resident_bytes(std::process::id()).unwrap();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after_bytes = resident_bytes(std::process::id()).unwrap();
        assert!(after_bytes > before_bytes + memory.len() as u64 / 2);
        assert!(resident_bytes(u32::MAX).is_err());
    }

    #[test]
    fn missing_cores_are_an_error() {
        assert!(!cores().unwrap().is_empty());
        assert!(pin(&[]).is_err());
        assert!(pin(&[1_000_000]).is_err());
    }
}
