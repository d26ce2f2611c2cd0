//! Metrics of the process, with the names that Prometheus' own client libraries use.

use std::fmt;
use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Clock ticks in a second, as Linux reports them to programs on x86-64 and AArch64.
const TICKS_PER_S: f64 = 100.0;

/// Position of the start time behind the name of the program in `/proc/self/stat`. It is field 22,
/// and field 3 is the first one behind the name.
const START_TIME_AT: usize = 22 - 3;

/// Reports the build and the process. Without `/proc`, it reports only the build and CPU time.
#[derive(Debug)]
pub(crate) struct ProcessCollector {
    pub(crate) commit: &'static str,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Always 1; the labels say which version runs";
        encoder
            .encode_descriptor("weir_build_info", help, None, MetricType::Gauge)?
            .encode_family(&[("version", env!("CARGO_PKG_VERSION")), ("commit", self.commit)])?
            .encode_gauge(&1_u64)?;
        if let Some(cpu_s) = cpu_s() {
            let help = "CPU time that the process has used, user and system";
            encoder
                .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&cpu_s, None)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |key| status_number(&status, key).map(|kib| (kib << 10) as f64);
        let gauges = [
            ("process_resident_memory_bytes", "Memory that the process occupies", kib("VmRSS:")),
            (
                "process_virtual_memory_bytes",
                "Address space of the process, which includes memory that it does not use",
                kib("VmSize:"),
            ),
            (
                "process_threads",
                "Threads of the process",
                status_number(&status, "Threads:").map(|count| count as f64),
            ),
            ("process_open_fds", "Open file descriptors: sockets and files", open_fds()),
            (
                "process_max_fds",
                "Limit on open file descriptors (LimitNOFILE of systemd)",
                getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft as f64),
            ),
            (
                "process_start_time_seconds",
                "When the process started, in seconds since 1970; changes at a restart",
                start_time_s(),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                gauge.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

fn cpu_s() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(us as f64 / 1e6)
}

/// The number behind `key` in `/proc/self/status`.
fn status_number(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<f64> {
    // The folder is one of them while it is read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn start_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: f64 = fields.split(' ').nth(START_TIME_AT)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot_s = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot_s.trim().parse::<f64>().ok()? + ticks / TICKS_PER_S)
}
