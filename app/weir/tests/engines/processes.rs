//! Shares as child processes.

use crate::sweep::{Running, Sweep, kill, wait_until};

#[test]
fn killed_process_and_damaged_record_are_repeated() {
    let sweep = Sweep::new(&[]);
    let lock = sweep.hold_share(2);
    let running = sweep.start_on("processes");
    kill(sweep.wait_for_share(2));
    let log = running.fail();
    assert!(log.contains("2 of 8 runs are missing; repeat the command to continue"), "{log}");
    assert!(log.contains("share 2/4: killed by signal 9"), "{log}");
    assert_eq!(sweep.records_merged(), 6);
    sweep.damage_record(2);
    drop(lock);
    let log = sweep.start_on("processes").succeed();
    assert!(log.contains("6 runs already done"), "{log}");
    assert!(log.contains("its run is repeated"), "{log}");
    sweep.assert_equal();
}

#[test]
fn second_job_for_a_share_waits_for_the_first() {
    let sweep = Sweep::new(&[]);
    let lock = sweep.hold_share(3);
    let share = ["examples/tree", "--part", "3/4", "--out", "out with space/parts/3-of-4"];
    let jobs = ["first", "second"].map(|name| sweep.start(name, &share));
    for job in &jobs {
        wait_until("the job waits", || job.log().contains("waiting for process 1 of host test"));
    }
    drop(lock);
    let logs = jobs.map(Running::succeed);
    let has_repeated = logs.iter().filter(|log| !log.contains("2 runs already done")).count();
    assert_eq!(has_repeated, 1, "{logs:?}");
    // A sweep merges existing records of shares.
    let log = sweep.start_on("processes").succeed();
    assert!(log.contains("2 runs already done"), "{log}");
    sweep.assert_equal();
}
