//! Identifies the measured source and the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// A kind of machine. Figures of different kinds are not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn of_this_host() -> Result<Self> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
        let processor = value_of(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into());
        let meminfo = std::fs::read_to_string("/proc/meminfo")?;
        let kib = value_of(&meminfo, "MemTotal").context("no MemTotal")?;
        let kib: u64 = kib.trim_end_matches(" kB").parse().context("MemTotal is no number")?;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            processor,
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: (kib + (1 << 19)) >> 20,
            kernel: kernel.trim_end().to_owned(),
        })
    }
}

/// The value of the first line `KEY : VALUE`.
fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Average number of runnable processes in the last minute; `None` if the kernel does not report
/// it.
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceState {
    pub(crate) commit: String,
    /// Identifies uncommitted changes; `None` if there are none.
    pub(crate) changes: Option<String>,
    /// Identifies a `weir` program that was measured instead of one built from this source.
    pub(crate) program: Option<String>,
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches is in the repository")
}

/// The state of the repository, without its records.
pub(crate) fn state() -> Result<SourceState> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let status = git(&["status", "--porcelain", "--", ".", ":!benches/records"])?;
    let diff = git(&["diff", "HEAD", "--", ".", ":!benches/records"])?;
    // The diff omits new files, but the status contains their names.
    let changes = (!status.is_empty()).then(|| identity(format!("{status}\n{diff}").as_bytes()));
    let program = std::env::var_os("WEIR_BIN").map(|path| {
        let octets = std::fs::read(&path);
        octets.map(|octets| identity(&octets)).with_context(|| format!("WEIR_BIN={path:?}"))
    });
    Ok(SourceState { commit, changes, program: program.transpose()? })
}

/// The first 48 bits of a digest, in hexadecimal.
fn identity(octets: &[u8]) -> String {
    let digest = weir_security::sha256(&[octets]);
    digest[..6].iter().map(|octet| format!("{octet:02x}")).collect()
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(repository()).args(arguments).output();
    let output = output.context("cannot start git, which says what is measured")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {errors}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The present time in UTC as `YYYYMMDDThhmmss`, which sorts by time.
pub(crate) fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let unix_s = now.map_or(0, |now| now.as_secs() as i64);
    let text = weir_wire::format_timestamp(unix_s);
    String::from_utf8_lossy(&text).into_owned()
}

/// The folder of this program, where the others are built as well.
pub(crate) fn programs() -> Result<PathBuf> {
    let program = std::env::current_exe().context("path of this program")?;
    Ok(program.parent().context("programs lie in target/PROFILE")?.to_owned())
}
