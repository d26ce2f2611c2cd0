//! Trials: measurements without the events of a plan. They cover sockets as applications use them,
//! TCP and HTTPS for comparison, and the cost of cryptography.
//!
//! The routers are those of the plan, in a line. Producers are at the last one and consumers at the
//! first one. All other processes are roles of [`part`](part::run_part) and programs of the system,
//! which end with the trial.

mod crew;
mod keys;
mod others;
mod part;
mod report;
mod subscribers;

use std::time::{Duration, Instant};

use serde_json::Value;
use weir_face::FaceUri;
use weir_plan::Plan;
use weir_scenario::trial::{Trial, TrialKind};

pub use self::part::{RoleError, run_part};
pub use self::report::TrialReport;

use self::crew::{GroupProcessId, ProcessGroup};
use self::part::Role;
use self::report::{jain, rate_bps};
use super::site::Testbed;
use super::{RealError, RealOptions, check};

/// Runs a trial at the routers of `plan`, within its duration.
///
/// # Errors
/// A [`RealError`]. No process is left running.
pub fn run(trial: &Trial, plan: &Plan, options: &RealOptions) -> Result<TrialReport, RealError> {
    plan.check().map_err(|error| RealError::Unsupported(error.to_string()))?;
    check::check(plan)?;
    let mut site = Testbed::new(plan, options)?;
    if trial.what.has_routers() {
        site.start()?;
    }
    let dir = site.dir().to_path_buf();
    let deadline = Instant::now() + Duration::from_nanos(plan.duration_ns);
    let mut crew = ProcessGroup::new(options, &dir, deadline);
    let report = match trial.what {
        TrialKind::Transfer => transfer(trial, &mut crew, &mut site)?,
        TrialKind::Answers => answers(trial, &mut crew, &site)?,
        TrialKind::Echo => echo(trial, &mut crew, plan.nodes.len())?,
        TrialKind::Cryptography => cryptography(trial, &mut crew)?,
        TrialKind::Publication => publication(trial, &mut crew)?,
        TrialKind::Sockets => sockets(trial, &mut crew, &site)?,
        TrialKind::Subscribers => subscribers::measure(trial, &mut crew, &site)?,
        TrialKind::Tcp | TrialKind::Https => others::measure(trial, &mut crew)?,
    };
    drop(crew);
    site.stop()?;
    Ok(report)
}

/// The addresses of the routers for applications.
fn routers_at(site: &Testbed<'_>) -> Vec<String> {
    let at = |router: &super::router::Router| FaceUri::Unix(router.at.unix.clone()).to_string();
    site.routers.values().map(at).collect()
}

/// The addresses of the first and the last router.
fn ends(site: &Testbed<'_>) -> (String, String) {
    let at = routers_at(site);
    let end = |at: Option<&String>| at.expect("a plan has routers").clone();
    (end(at.first()), end(at.last()))
}

fn number(
    crew: &mut ProcessGroup<'_>,
    id: GroupProcessId,
    of: &Value,
    key: &str,
) -> Result<u64, RealError> {
    of[key].as_u64().ok_or_else(|| crew.failure(id, &format!("did not report its `{key}`")))
}

fn samples(report: &mut TrialReport, measure: &'static str, of: &Value) {
    for sample in of.as_array().into_iter().flatten().filter_map(Value::as_f64) {
        report.add(measure, sample);
    }
}

fn transfer(
    trial: &Trial,
    crew: &mut ProcessGroup<'_>,
    site: &mut Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, far) = ends(site);
    let (mut producers, mut consumers) = (Vec::new(), Vec::new());
    for index in 0..trial.transfers {
        let (producer, ready) = crew.part(Role::Produce, trial, &far, index, "")?;
        let key = ready["key"].as_str().unwrap_or_default().to_owned();
        producers.push(producer);
        consumers.push(crew.part(Role::Consume, trial, &near, index, &key)?.0);
    }
    // The first fetch only fills the routers' stores.
    if trial.warm {
        fetch(crew, &consumers)?;
    }
    for router in site.routers.values_mut() {
        router.begin()?;
    }
    let mut report = TrialReport::default();
    let (mut rates, mut cpu_ns, mut octets) = (Vec::new(), 0, 0);
    for (id, done) in fetch(crew, &consumers)? {
        let took_ns = number(crew, id, &done, "took_ns")?;
        let got = number(crew, id, &done, "octets")?;
        rates.push(rate_bps(got, took_ns));
        octets += got;
        cpu_ns += number(crew, id, &done, "cpu_ns")?;
    }
    report.add("goodput", rates.iter().sum());
    report.add("fairness", jain(&rates));
    report.add("consumer-per-cpu", rate_bps(octets, cpu_ns));
    // The busiest router limits the throughput of the line.
    let mut busiest_ns = 0;
    for router in site.routers.values_mut() {
        busiest_ns = router.sample()?.cpu_ns.max(busiest_ns);
    }
    report.add("out-per-cpu", rate_bps(octets, busiest_ns));
    let (mut cpu_ns, mut published_ns) = (0, 0);
    for id in producers {
        crew.send_line(id, "report")?;
        let done = crew.value(id, "published_ns")?;
        published_ns = number(crew, id, &done, "published_ns")?.max(published_ns);
        cpu_ns += number(crew, id, &done, "cpu_ns")?;
    }
    report.add("producer-per-cpu", rate_bps(octets, cpu_ns));
    report.add("publication-rate", rate_bps(trial.size.bytes, published_ns) / 8.0);
    Ok(report)
}

/// Makes all consumers fetch at the same time.
fn fetch(
    crew: &mut ProcessGroup<'_>,
    consumers: &[GroupProcessId],
) -> Result<Vec<(GroupProcessId, Value)>, RealError> {
    for &id in consumers {
        crew.send_line(id, "fetch")?;
    }
    consumers.iter().map(|&id| Ok((id, crew.value(id, "took_ns")?))).collect()
}

fn answers(
    trial: &Trial,
    crew: &mut ProcessGroup<'_>,
    site: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, far) = ends(site);
    let (_, ready) = crew.part(Role::Answer, trial, &far, 0, "")?;
    let key = ready["key"].as_str().unwrap_or_default().to_owned();
    let (asks, _) = crew.part(Role::Ask, trial, &near, 0, &key)?;
    times(crew, asks)
}

fn echo(
    trial: &Trial,
    crew: &mut ProcessGroup<'_>,
    relays: usize,
) -> Result<TrialReport, RealError> {
    let (_, ready) = crew.part(Role::EchoServer, trial, "", 0, "")?;
    let mut at = ready["at"].as_str().unwrap_or_default().to_owned();
    for index in 0..relays {
        let (_, ready) = crew.part(Role::EchoRelay, trial, &at, index as u32, "")?;
        at = ready["at"].as_str().unwrap_or_default().to_owned();
    }
    let (client, _) = crew.part(Role::EchoClient, trial, &at, 0, "")?;
    times(crew, client)
}

fn times(crew: &mut ProcessGroup<'_>, id: GroupProcessId) -> Result<TrialReport, RealError> {
    crew.send_line(id, "begin")?;
    let done = crew.value(id, "times_s")?;
    let mut report = TrialReport::default();
    samples(&mut report, "answer-time", &done["times_s"]);
    Ok(report)
}

fn cryptography(trial: &Trial, crew: &mut ProcessGroup<'_>) -> Result<TrialReport, RealError> {
    let (id, _) = crew.part(Role::Cryptography, trial, "", 0, "")?;
    crew.send_line(id, "begin")?;
    let done = crew.value(id, "sign_s")?;
    let mut report = TrialReport::default();
    samples(&mut report, "sign-time", &done["sign_s"]);
    samples(&mut report, "verify-time", &done["verify_s"]);
    samples(&mut report, "hash-time", &done["hash_s"]);
    Ok(report)
}

fn publication(trial: &Trial, crew: &mut ProcessGroup<'_>) -> Result<TrialReport, RealError> {
    let (id, _) = crew.part(Role::Publication, trial, "", 0, "")?;
    crew.send_line(id, "begin")?;
    let done = crew.value(id, "took_ns")?;
    let mut report = TrialReport::default();
    for took_ns in done["took_ns"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
        report.add("publication-rate", rate_bps(trial.size.bytes, took_ns) / 8.0);
    }
    Ok(report)
}

fn sockets(
    trial: &Trial,
    crew: &mut ProcessGroup<'_>,
    site: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let (near, _) = ends(site);
    let (id, _) = crew.part(Role::Sockets, trial, &near, 0, "")?;
    crew.send_line(id, "begin")?;
    let done = crew.value(id, "bytes_each")?;
    let mut report = TrialReport::default();
    report.samples.insert("socket-memory", done["bytes_each"].as_f64().into_iter().collect());
    report.samples.insert("socket-time", done["took_s"].as_f64().into_iter().collect());
    Ok(report)
}
