//! Shares as tasks of a Dask cluster with two workers.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::sweep::{Sweep, kill, parent};

/// Starts the cluster, prints its address, and ends with its input.
const CLUSTER: &str = "
import sys
from distributed import LocalCluster
if __name__ == '__main__':
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()
";

struct Cluster {
    child: Child,
    address: String,
}

impl Cluster {
    fn start(python: &Path, folder: &Path) -> Self {
        let mut child = Command::new(python)
            .args(["-c", CLUSTER])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut address = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut address).expect("an address");
        Self { child, address: address.trim().to_owned() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The Python environment of `cargo xtask clients`, which has `distributed`.
fn environment() -> Option<PathBuf> {
    let folder = match std::env::var_os("WEIR_INTEROP") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_BIN_EXE_weir")).join("../../interop"),
    };
    let programs = folder.join("weir-python/bin");
    if programs.join("python3").exists() {
        return Some(programs);
    }
    println!("NOT tested: no {}; run `cargo xtask clients`", programs.display());
    None
}

#[test]
fn dask_shares_survive_kills_and_a_lost_worker() {
    let Some(programs) = environment() else { return };
    let folder = tempfile::tempdir().expect("folder");
    let cluster = Cluster::start(&programs.join("python3"), folder.path());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path)));
    let sweep = Sweep::new(&[
        ("DASK_SCHEDULER_ADDRESS", Path::new(&cluster.address)),
        ("PATH", Path::new(&path.expect("a path"))),
    ]);
    let lock = sweep.hold_share(2);
    let running = sweep.start_on("dask");
    kill(sweep.wait_for_share(2));
    let log = running.fail();
    assert!(log.contains("2 workers"), "{log}");
    assert!(log.contains("share 2/4: killed by signal 9"), "{log}");
    assert_eq!(sweep.records_merged(), 6);
    sweep.damage_record(2);
    let running = sweep.start_on("dask");
    // Dask gives the share to another worker, where it waits for this process or for the lock.
    kill(parent(sweep.wait_for_share(2)));
    drop(lock);
    running.succeed();
    sweep.assert_equal();
}
