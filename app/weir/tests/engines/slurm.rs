//! Shares as a job array of Slurm.

use std::process::Command;

use crate::cluster::Cluster;
use crate::sweep::Sweep;

#[test]
fn slurm_shares_survive_kills_and_a_lost_node() {
    let Some(mut cluster) = Cluster::start() else { return };
    let sweep = Sweep::new(&[("SLURM_CONF", &cluster.configuration())]);
    let lock = sweep.hold_share(2);
    let running = sweep.start_on("slurm");
    sweep.wait_for_share(2);
    let job = std::fs::read_to_string(sweep.out().join("slurm.job")).expect("a job");
    cluster.command(Command::new("scancel").arg(format!("{job}_2")));
    let log = running.fail();
    assert!(log.contains("2 of 8 runs are missing; repeat the command to continue"), "{log}");
    assert!(log.contains("share 2/4: cancelled"), "{log}");
    assert_eq!(sweep.records_merged(), 6);

    // The command dies, and the node of its job fails.
    sweep.damage_record(2);
    let mut running = sweep.start_on("slurm");
    let share = sweep.wait_for_share(2);
    running.child.kill().expect("killed");
    running.child.wait().expect("waited");
    cluster.lose_node(share);
    drop(lock);
    let running = sweep.start_on("slurm");
    cluster.wait_for_requeue();
    cluster.start_node();
    let log = running.succeed();
    assert!(log.contains("of an earlier command"), "{log}");
    assert!(!log.contains("submitted"), "{log}");
    sweep.assert_equal();
}

#[test]
fn missing_slurm_is_a_clear_error() {
    let nowhere = tempfile::tempdir().expect("folder");
    let sweep = Sweep::new(&[("PATH", nowhere.path())]);
    let log = sweep.start_on("slurm").fail();
    assert!(log.contains("cannot start sbatch"), "{log}");
    assert!(log.contains("SBATCH_PARTITION"), "{log}");
}
