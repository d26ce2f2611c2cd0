//! Trials: measurements without the events of a plan. They cover sockets as applications use them,
//! TCP and HTTPS for comparison, the cost of cryptography, and live video behind a cache server.
//!
//! The routers are those of the plan, in a line. Producers are at the last one and consumers at the
//! first one. All other processes are roles of [`role`](role::run_part) and programs of the system,
//! which end with the trial.

mod comparison;
mod hls;
mod keys;
mod processes;
mod report;
mod role;
mod stamp;
mod subscribers;
mod video;

use std::time::{Duration, Instant};

use serde_json::Value;
use weir_face::FaceUri;
use weir_plan::Plan;
use weir_scenario::trial::{Trial, TrialKind};

pub use self::report::TrialReport;
pub use self::role::{RoleError, run_part};

use self::processes::{GroupProcessId, ProcessGroup};
use self::report::{jain, rate_bps};
use self::role::Role;
use super::testbed::Testbed;
use super::{RealError, RealOptions, check};

/// Runs a trial at the routers of `plan`, within its duration.
///
/// # Errors
/// A [`RealError`]. No process is left running.
pub fn run(trial: &Trial, plan: &Plan, options: &RealOptions) -> Result<TrialReport, RealError> {
    plan.check().map_err(|error| RealError::Unsupported(error.to_string()))?;
    check::check(plan)?;
    let mut testbed = Testbed::new(plan, options)?;
    if trial.has_routers() {
        testbed.start()?;
    }
    let dir = testbed.dir().to_path_buf();
    let deadline = Instant::now() + Duration::from_nanos(plan.duration_ns);
    let mut group = ProcessGroup::new(options, &dir, deadline, plan.seed);
    let report = match trial.what {
        TrialKind::Transfer => transfer(trial, &mut group, &mut testbed)?,
        TrialKind::Answers => answers(trial, &mut group, &testbed)?,
        TrialKind::Echo => echo(trial, &mut group, plan.nodes.len())?,
        TrialKind::Cryptography => cryptography(trial, &mut group)?,
        TrialKind::Publication => publication(trial, &mut group)?,
        TrialKind::Sockets => sockets(trial, &mut group, &testbed)?,
        TrialKind::Subscribers => subscribers::measure(trial, &mut group, &testbed)?,
        TrialKind::Video => video::measure(trial, &mut group, &testbed)?,
        TrialKind::Tcp | TrialKind::Https => comparison::measure(trial, &mut group)?,
    };
    drop(group);
    testbed.stop()?;
    Ok(report)
}

/// The addresses of the routers for applications.
fn routers_at(testbed: &Testbed<'_>) -> Vec<String> {
    let at = |router: &super::router::Router| FaceUri::Unix(router.at.unix.clone()).to_string();
    testbed.routers.values().map(at).collect()
}

/// The addresses of the first and the last router.
fn ends(testbed: &Testbed<'_>) -> (String, String) {
    let at = routers_at(testbed);
    let end = |at: Option<&String>| at.expect("a plan has routers").clone();
    (end(at.first()), end(at.last()))
}

fn number(
    group: &mut ProcessGroup<'_>,
    id: GroupProcessId,
    of: &Value,
    key: &str,
) -> Result<u64, RealError> {
    of[key].as_u64().ok_or_else(|| group.failure(id, &format!("did not report its `{key}`")))
}

fn samples(report: &mut TrialReport, measure: &'static str, of: &Value) {
    for sample in of.as_array().into_iter().flatten().filter_map(Value::as_f64) {
        report.add(measure, sample);
    }
}

fn transfer(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    testbed: &mut Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, far) = ends(testbed);
    let (mut producers, mut consumers) = (Vec::new(), Vec::new());
    for index in 0..trial.transfers {
        let (producer, ready) = group.start_role(Role::Produce, trial, &far, index, "")?;
        let key = ready["key"].as_str().unwrap_or_default().to_owned();
        producers.push(producer);
        consumers.push(group.start_role(Role::Consume, trial, &near, index, &key)?.0);
    }
    // The first fetch only fills the routers' stores.
    if trial.warm {
        fetch(group, &consumers)?;
    }
    for router in testbed.routers.values_mut() {
        router.begin()?;
    }
    let mut report = TrialReport::default();
    let (mut rates, mut cpu_ns, mut octets) = (Vec::new(), 0, 0);
    for (id, done) in fetch(group, &consumers)? {
        let took_ns = number(group, id, &done, "took_ns")?;
        let got = number(group, id, &done, "octets")?;
        rates.push(rate_bps(got, took_ns));
        octets += got;
        cpu_ns += number(group, id, &done, "cpu_ns")?;
    }
    report.add("goodput", rates.iter().sum());
    report.add("fairness", jain(&rates));
    report.add("consumer-per-cpu", rate_bps(octets, cpu_ns));
    // The busiest router limits the throughput of the line.
    let mut busiest_ns = 0;
    for router in testbed.routers.values_mut() {
        busiest_ns = router.sample()?.cpu_ns.max(busiest_ns);
    }
    report.add("out-per-cpu", rate_bps(octets, busiest_ns));
    let (mut cpu_ns, mut published_ns) = (0, 0);
    for id in producers {
        group.send_line(id, "report")?;
        let done = group.value(id, "published_ns")?;
        published_ns = number(group, id, &done, "published_ns")?.max(published_ns);
        cpu_ns += number(group, id, &done, "cpu_ns")?;
    }
    report.add("producer-per-cpu", rate_bps(octets, cpu_ns));
    report.add("publication-rate", rate_bps(trial.size.bytes, published_ns) / 8.0);
    Ok(report)
}

/// Makes all consumers fetch at the same time.
fn fetch(
    group: &mut ProcessGroup<'_>,
    consumers: &[GroupProcessId],
) -> Result<Vec<(GroupProcessId, Value)>, RealError> {
    for &id in consumers {
        group.send_line(id, "fetch")?;
    }
    consumers.iter().map(|&id| Ok((id, group.value(id, "took_ns")?))).collect()
}

fn answers(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    testbed: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, far) = ends(testbed);
    let (_, ready) = group.start_role(Role::Answer, trial, &far, 0, "")?;
    let key = ready["key"].as_str().unwrap_or_default().to_owned();
    let (asks, _) = group.start_role(Role::Ask, trial, &near, 0, &key)?;
    times(group, asks)
}

fn echo(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    relays: usize,
) -> Result<TrialReport, RealError> {
    let (_, ready) = group.start_role(Role::EchoServer, trial, "", 0, "")?;
    let mut at = ready["at"].as_str().unwrap_or_default().to_owned();
    for index in 0..relays {
        let (_, ready) = group.start_role(Role::EchoRelay, trial, &at, index as u32, "")?;
        at = ready["at"].as_str().unwrap_or_default().to_owned();
    }
    let (client, _) = group.start_role(Role::EchoClient, trial, &at, 0, "")?;
    times(group, client)
}

fn times(group: &mut ProcessGroup<'_>, id: GroupProcessId) -> Result<TrialReport, RealError> {
    group.send_line(id, "begin")?;
    let done = group.value(id, "times_s")?;
    let mut report = TrialReport::default();
    samples(&mut report, "answer-time", &done["times_s"]);
    Ok(report)
}

fn cryptography(trial: &Trial, group: &mut ProcessGroup<'_>) -> Result<TrialReport, RealError> {
    let (id, _) = group.start_role(Role::Cryptography, trial, "", 0, "")?;
    group.send_line(id, "begin")?;
    let done = group.value(id, "sign_s")?;
    let mut report = TrialReport::default();
    samples(&mut report, "sign-time", &done["sign_s"]);
    samples(&mut report, "verify-time", &done["verify_s"]);
    samples(&mut report, "hash-time", &done["hash_s"]);
    Ok(report)
}

fn publication(trial: &Trial, group: &mut ProcessGroup<'_>) -> Result<TrialReport, RealError> {
    let (id, _) = group.start_role(Role::Publication, trial, "", 0, "")?;
    group.send_line(id, "begin")?;
    let done = group.value(id, "took_ns")?;
    let mut report = TrialReport::default();
    for took_ns in done["took_ns"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
        report.add("publication-rate", rate_bps(trial.size.bytes, took_ns) / 8.0);
    }
    Ok(report)
}

fn sockets(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    testbed: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, _) = ends(testbed);
    let (id, _) = group.start_role(Role::Sockets, trial, &near, 0, "")?;
    group.send_line(id, "begin")?;
    let done = group.value(id, "bytes_each")?;
    let mut report = TrialReport::default();
    report.samples.insert("socket-memory", done["bytes_each"].as_f64().into_iter().collect());
    report.samples.insert("socket-time", done["took_s"].as_f64().into_iter().collect());
    Ok(report)
}
