//! Live video behind a cache server, as in section 7 of the paper socket-api.
//!
//! A channel source writes HLS segments into a folder, nginx serves it, and Apache Traffic Server
//! (ATS) is the cache before nginx. Viewers either connect to ATS, or to gateway fronts, whose
//! Interests reach a gateway origin through routers. ATS counts its requests and hits itself.

mod cache_server;
mod gateway;
mod origin;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use weir_base::NS_PER_S;
use weir_scenario::trial::{Delivery, Trial, Video};

use super::super::RealError;
use super::super::proc;
use super::super::testbed::Testbed;
use super::hls::{INDEX, MASTER, QUALITIES, channel_name};
use super::processes::{GroupProcessId, ProcessGroup};
use super::report::TrialReport;
use super::role::{AudienceCounts, Role};

use self::cache_server::{CacheCounts, CacheServer};

/// A folder in memory, for the segments and the cache.
const MEMORY_FOLDER: &str = "/dev/shm";
/// Pause between two attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the measurement.
pub(super) fn measure(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    testbed: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let programs = match origin::Programs::find(&trial.video) {
        Ok(programs) => programs,
        Err(missing) => return Ok(TrialReport::missing(missing)),
    };
    let Some(cache_server) = cache_server::Programs::find() else {
        return Ok(TrialReport::missing(cache_server::MISSING));
    };
    let memory = memory_folder()?;
    let folder = memory.path().to_path_buf();
    group.keep(memory);
    let mut setup = Setup { trial, group, folder, working: Vec::new(), network: Vec::new() };
    let (origin, source) = origin::start(&mut setup, &programs)?;
    let cache = cache_server::start(&mut setup, &cache_server, origin)?;
    let entrances = match trial.video.delivery {
        Delivery::Tcp => vec![cache.address],
        Delivery::Named => gateway::start(&mut setup, testbed, cache.address)?,
    };
    setup.await_channels(&entrances)?;
    let mut report = setup.watch(&cache, &entrances)?;
    report.add("source-delay", setup.source_delay_s(source)?);
    Ok(report)
}

/// The processes of a measurement.
struct Setup<'a, 'b> {
    trial: &'a Trial,
    group: &'a mut ProcessGroup<'b>,
    /// Encoded and served segments, and the cache.
    folder: PathBuf,
    /// Processes that must not end.
    working: Vec<GroupProcessId>,
    /// The system's numbers of routers and gateways.
    network: Vec<u32>,
}

/// The state of all counters at one time.
struct Snapshot {
    at: Instant,
    cache: CacheCounts,
    cache_cpu_ns: u64,
    network_cpu_ns: u64,
    audience: AudienceCounts,
}

impl Setup<'_, '_> {
    fn video(&self) -> &Video {
        &self.trial.video
    }

    /// Waits until each server has each channel.
    fn await_channels(&mut self, servers: &[SocketAddr]) -> Result<(), RealError> {
        for server in servers {
            for channel in 0..self.video().channels {
                let channel = channel_name(channel);
                self.await_url(&format!("http://{server}/{channel}/{MASTER}"))?;
                for quality in QUALITIES {
                    let quality = quality.name;
                    self.await_url(&format!("http://{server}/{channel}/{quality}/{INDEX}"))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a server answers `url` with status 200.
    fn await_url(&mut self, url: &str) -> Result<(), RealError> {
        while get(url).is_err() {
            self.group.rest(PAUSE, &self.working)?;
        }
        Ok(())
    }

    /// Starts the viewers and measures.
    fn watch(
        &mut self,
        cache: &CacheServer,
        entrances: &[SocketAddr],
    ) -> Result<TrialReport, RealError> {
        let servers: Vec<String> = entrances.iter().map(ToString::to_string).collect();
        let at = servers.join(",");
        let (viewers, _) = self.group.start_role(Role::Watch, self.trial, &at, 0, "")?;
        self.working.push(viewers);
        self.group.rest(Duration::from_nanos(self.video().warm_up.ns), &self.working)?;
        let before = self.snapshot(cache, viewers)?;
        self.group.rest(Duration::from_nanos(self.video().time.ns), &self.working)?;
        let after = self.snapshot(cache, viewers)?;
        let failures: u64 = after.audience.failures.values().sum();
        if failures * 2 > after.audience.requests {
            let what = format!("got no content: {:?}", after.audience.failures);
            return Err(self.group.failure(viewers, &what));
        }
        let mut report = report(self.trial, &before, &after);
        report.add("server-memory", cache.resident_bytes(self.group)? as f64);
        Ok(report)
    }

    fn snapshot(
        &mut self,
        cache: &CacheServer,
        viewers: GroupProcessId,
    ) -> Result<Snapshot, RealError> {
        self.group.send_line(viewers, "count")?;
        let counts = self.group.value(viewers, "counts")?;
        let audience = serde_json::from_value(counts["counts"].clone())
            .map_err(|error| self.group.failure(viewers, &error.to_string()))?;
        let network_cpu_ns = self
            .network
            .iter()
            .map(|&id| proc::cpu_ns(id))
            .sum::<io::Result<u64>>()
            .map_err(system("cannot read the processor time of a router or gateway"))?;
        Ok(Snapshot {
            at: Instant::now(),
            cache: cache.counts()?,
            cache_cpu_ns: cache.cpu_ns(self.group)?,
            network_cpu_ns,
            audience,
        })
    }

    /// The longest delay of a segment's publication until now.
    fn source_delay_s(&mut self, source: GroupProcessId) -> Result<f64, RealError> {
        self.group.send_line(source, "report")?;
        let latest = self.group.value(source, "latest_ns")?;
        let latest_ns = super::number(self.group, source, &latest, "latest_ns")?;
        Ok(latest_ns as f64 / NS_PER_S as f64)
    }
}

/// The measures of the time between two snapshots.
fn report(trial: &Trial, before: &Snapshot, after: &Snapshot) -> TrialReport {
    let video = &trial.video;
    let time_ns = after.at.duration_since(before.at).as_nanos() as f64;
    let time_s = time_ns / NS_PER_S as f64;
    let grown = |of: fn(&Snapshot) -> u64| (of(after) - of(before)) as f64;
    let failures = |of: &Snapshot| of.audience.failures.values().sum::<u64>();
    let viewers = f64::from(video.viewers);
    let requests = grown(|of| of.audience.requests);
    let watched_ns = grown(|of| of.audience.elapsed_ns);
    let mut report = TrialReport::default();
    // The first reading of the counters is a request itself, and counts as a miss.
    report.add("server-requests", (grown(|of| of.cache.requests) - 1.0) / time_s);
    report.add("server-misses", (grown(|of| of.cache.misses) - 1.0) / time_s);
    report.add("server-hits", grown(|of| of.cache.hits) / time_s);
    report.add("server-cpu", grown(|of| of.cache_cpu_ns) / time_ns);
    report.add("server-share", grown(|of| of.cache.octets) / grown(|of| of.audience.octets));
    report.add("channels-watched", grown(|of| of.audience.channel_ns) / watched_ns);
    report.add("viewer-requests", requests / time_s / viewers);
    report.add("viewer-failures", (failures(after) - failures(before)) as f64 / requests);
    report.add("viewer-stalls", grown(|of| of.audience.stalled_ns) / watched_ns / viewers);
    if video.delivery == Delivery::Named {
        report.add("network-cpu", grown(|of| of.network_cpu_ns) / time_ns);
    }
    report
}

fn get(url: &str) -> Result<String, ureq::Error> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIMEOUT)).proxy(None);
    agent.build().new_agent().get(url).call()?.body_mut().read_to_string()
}

fn get_json(url: &str) -> Result<Value, RealError> {
    let failed = |error: String| RealError::System {
        what: format!("cannot read {url}"),
        source: io::Error::other(error),
    };
    let text = get(url).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// A folder that is removed at the end: in memory, if the system has a place for that.
fn memory_folder() -> Result<TempDir, RealError> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("weir-video-");
    builder
        .tempdir_in(MEMORY_FOLDER)
        .or_else(|_| builder.tempdir())
        .map_err(system("cannot create a folder for segments"))
}

/// An address on the loopback interface that no program uses yet.
fn free_address() -> Result<SocketAddr, RealError> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(system("cannot find a free TCP port"))
}

fn system(what: &str) -> impl FnOnce(io::Error) -> RealError {
    let what = what.to_owned();
    |source| RealError::System { what, source }
}
