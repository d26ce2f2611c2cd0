//! The controller of a run: a `weir controller`, and the agents in the routers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_control::File;
use weir_plan::{ControllerPlan, Plan, Role};

use super::process::{Launch, OutputLine, Process};
use super::relay::Relay;
use super::{RealError, RealOptions, check};

/// Reporting interval of agents. It is short, so that the controller soon knows the network.
const INTERVAL: &str = "200ms";
/// The timeout for routers is longer than any run.
const ROUTER_TIMEOUT: &str = "24h";
/// Limit on the time of a controller's reply; `PAUSE` is the time between two requests to it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Limit on the files in one registration request.
const LIST_MAX: usize = 1000;

/// The controller, and its addresses and files.
pub(super) struct Control {
    process: Process,
    /// Where agents and this program reach it.
    agents_url: String,
    url: String,
    operator: String,
    tokens: BTreeMap<usize, String>,
    files: Vec<File>,
    http: ureq::Agent,
    /// Present only if messages have a delay. It is kept here because dropping it stops the relay.
    _relay: Option<Relay>,
}

impl Control {
    /// Starts the controller of the plan with its files in `dir`, and registers the producers'
    /// files.
    pub(super) fn start(
        plan: &Plan,
        of: &ControllerPlan,
        options: &RealOptions,
        dir: &Path,
        deadline: Instant,
    ) -> Result<Self, RealError> {
        let files = ControllerFiles { options, dir, config: dir.join("controller.toml") };
        let database = dir.join("controller.db");
        files.write_config(&config_text(of, &database))?;
        let operator = files.token("operator", "laboratory")?;
        let mut tokens = BTreeMap::new();
        for node in (0..plan.nodes.len()).filter(|&node| check::is_router(plan, node)) {
            tokens.insert(node, files.token("router", &plan.nodes[node].name)?);
        }
        let (process, ready) = files.start(deadline)?;
        let url = ready["url"].as_str().unwrap_or_default().to_owned();
        let what = || "cannot reach the controller".to_owned();
        let system = |source| RealError::System { what: what(), source };
        // Only agents use the relay. This program queries the controller without delay.
        let relay = match of.delay_ns {
            0 => None,
            delay_ns => {
                let target = address_of(&url).map_err(system)?;
                Some(Relay::start(target, Duration::from_nanos(delay_ns)).map_err(system)?)
            }
        };
        let agents_url = match &relay {
            Some(relay) => format!("http://{}", relay.address),
            None => url.clone(),
        };
        let http = ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIMEOUT)).proxy(None);
        let files = plan.files().map_err(|error| RealError::Unsupported(error.to_string()))?;
        let control = Self {
            process,
            agents_url,
            url,
            operator,
            tokens,
            files: files.into_iter().map(|(_, file)| file).collect(),
            http: http.build().new_agent(),
            _relay: relay,
        };
        control.register()?;
        Ok(control)
    }

    /// The controller section of a router's configuration. Neighbours send to it at `addresses`.
    pub(super) fn agent_text(&self, plan: &Plan, node: usize, addresses: &[SocketAddr]) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let uris: Vec<String> =
            addresses.iter().map(|address| quoted(&format!("udp4://{address}"))).collect();
        let prefetch =
            check::links_of(plan, node).into_iter().any(|(_, other)| check::is_agents(plan, other));
        format!(
            "\n[controller]\nurl = {}\nname = {}\ntoken = {}\nuris = [{}]\ninterval = \
             \"{INTERVAL}\"\nstate_file = \"none\"\nprefetch = {prefetch}\nasks_for_hosts = {}\n",
            quoted(&self.agents_url),
            quoted(&plan.nodes[node].name),
            quoted(&self.tokens[&node]),
            uris.join(", "),
            check::has_hosts(plan, node),
        )
    }

    /// Registers the files.
    fn register(&self) -> Result<(), RealError> {
        for files in self.files.chunks(LIST_MAX) {
            let body = serde_json::to_vec(files).expect("files are plain data");
            let left_out = self
                .http
                .post(format!("{}/v1/files/list", self.url))
                .header("Authorization", format!("Bearer {}", self.operator))
                .header("Content-Type", "application/json")
                .send(body)
                .and_then(|mut answer| answer.body_mut().read_to_string())
                .map_err(|error| refused("the files of the plan", &error.to_string()))?;
            if left_out.trim() != "[]" {
                return Err(refused("files of the plan", &left_out));
            }
        }
        Ok(())
    }

    /// Waits until the controller knows everything that a simulated one knows at the start:
    /// routers, the distances between them, the producers, and the content of stores. `filled` has
    /// the number of packets in each store.
    pub(super) fn await_network(
        &mut self,
        plan: &Plan,
        options: &RealOptions,
        filled: &BTreeMap<usize, Option<u64>>,
        deadline: Instant,
    ) -> Result<(), RealError> {
        loop {
            let lacks = match self.missing_knowledge(plan, filled) {
                Ok(None) => return Ok(()),
                Ok(Some(lacks)) => lacks,
                Err(error) => error.to_string(),
            };
            if options.stop.load(Ordering::Relaxed) {
                return Err(RealError::Interrupted);
            }
            if Instant::now() > deadline || self.process.ends_within(Duration::ZERO) {
                return Err(self.process.failure(&format!("does not know the network: {lacks}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Something that the controller does not know yet; `None` if it knows everything.
    fn missing_knowledge(
        &self,
        plan: &Plan,
        filled: &BTreeMap<usize, Option<u64>>,
    ) -> Result<Option<String>, ureq::Error> {
        let (routers, links) = (self.get("/v1/routers", &[])?, self.get("/v1/links", &[])?);
        let rows = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let (routers, links) = (rows(&routers), rows(&links));
        // A link counts only once both agents have reported its round-trip time.
        let is_measured = |from: &str, to: &str| {
            links.iter().any(|link| {
                link["from"] == from && link["to"] == to && link["round_trip_ns"].is_u64()
            })
        };
        for link in &plan.links {
            let ends = [link.a, link.b];
            let [a, b] = ends.map(|node| plan.nodes[node].name.as_str());
            let is_between = ends.iter().all(|&node| check::is_router(plan, node));
            if is_between && !(is_measured(a, b) && is_measured(b, a)) {
                return Ok(Some(format!("how far `{a}` is from `{b}`")));
            }
        }
        let prefixes: Vec<Value> =
            routers.iter().flat_map(|router| rows(&router["prefixes"])).collect();
        for (index, node) in plan.nodes.iter().enumerate() {
            let is_there = |router: &Value| router["name"] == node.name.as_str();
            match &node.role {
                Role::Router(_) if !routers.iter().any(is_there) => {
                    return Ok(Some(format!("the router `{}`", node.name)));
                }
                Role::Router(_) => {
                    let wanted = filled.get(&index).copied().flatten().unwrap_or(0);
                    if wanted > 0 && self.held_segments(&node.name)? < wanted {
                        return Ok(Some(format!("what the store of `{}` holds", node.name)));
                    }
                }
                Role::Producer(of) if !prefixes.contains(&Value::from(&*of.names.prefix)) => {
                    return Ok(Some(format!("where {} is produced", of.names.prefix)));
                }
                Role::Producer(_) | Role::Consumer(_) => {}
            }
        }
        Ok(None)
    }

    /// Number of segments of the plan's files that a router reports.
    fn held_segments(&self, router: &str) -> Result<u64, ureq::Error> {
        let mut count = 0;
        for file in &self.files {
            let rows = self.get("/v1/files/holdings", &[("name", &file.name.to_string())])?;
            let rows = rows.as_array().into_iter().flatten();
            let own = rows.filter(|row| row["router"] == router);
            let ranges = own.flat_map(|row| row["segments"].as_array().into_iter().flatten());
            let ends = ranges.filter_map(|range| Some((range[0].as_u64()?, range[1].as_u64()?)));
            count += ends.map(|(first, last)| last - first + 1).sum::<u64>();
        }
        Ok(count)
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ureq::Error> {
        let request = self.http.get(format!("{}{path}", self.url)).query_pairs(query.to_vec());
        let request = request.header("Authorization", format!("Bearer {}", self.operator));
        let text = request.call()?.body_mut().read_to_string()?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Stops the controller. It is an error if it has ended before.
    pub(super) fn stop(&mut self) -> Result<(), RealError> {
        self.process.stop()
    }
}

fn refused(what: &str, reason: &str) -> RealError {
    let router = "the controller".to_owned();
    RealError::Command { router, what: what.to_owned(), reason: reason.to_owned() }
}

fn address_of(url: &str) -> io::Result<SocketAddr> {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.parse().ok());
    authority.ok_or_else(|| io::Error::other(format!("`{url}` is no address")))
}

/// The decision settings, as in the simulation.
fn config_text(of: &ControllerPlan, database: &Path) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let placement = serde_json::to_string(&of.placement).expect("a word");
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "listen = \"127.0.0.1:0\"\ndatabase = {}\n\n[decisions]\nplacement = {placement}\nprefetch \
         = {}\nprefetch_first = {}\nratio = {:?}\nroutes = false\nrouter_timeout = \
         \"{ROUTER_TIMEOUT}\"\n\n[log]\nlevel = \"warn\"\n",
        quoted(&database.display().to_string()),
        of.prefetch,
        of.prefetch_first,
        of.ratio,
    );
    text
}

struct ControllerFiles<'a> {
    options: &'a RealOptions,
    dir: &'a Path,
    config: PathBuf,
}

impl ControllerFiles<'_> {
    fn write_config(&self, text: &str) -> Result<(), RealError> {
        std::fs::write(&self.config, text).map_err(|source| {
            let what = format!("cannot write {}", self.config.display());
            RealError::System { what, source }
        })
    }

    fn token(&self, role: &str, name: &str) -> Result<String, RealError> {
        let output = Command::new(&self.options.program)
            .args(["controller", "-c"])
            .arg(&self.config)
            .args(["token", "add", "--role", role, "--name", name])
            .current_dir(self.dir)
            .env("HOME", self.dir)
            .output()
            .map_err(|source| RealError::System {
                what: format!("cannot start {}", self.options.program.display()),
                source,
            })?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).trim().to_owned();
        if !output.status.success() {
            return Err(refused(&format!("a token for {name}"), &text(&output.stderr)));
        }
        Ok(text(&output.stdout))
    }

    /// Starts the controller. Returns its process and its ready line.
    fn start(&self, deadline: Instant) -> Result<(Process, Value), RealError> {
        let (sender, received) = channel();
        let launch = Launch {
            title: "the controller".into(),
            program: &self.options.program,
            other: None,
            dir: self.dir,
            file: "controller".into(),
            cores: &self.options.cpu_apps,
            number: 0,
            output: &sender,
        };
        let config = self.config.display().to_string();
        let mut process = Process::start(&launch, &["controller", "-c", &config, "--json"])?;
        match self.ready(&received, deadline) {
            Some(ready) => Ok((process, ready)),
            None if self.options.stop.load(Ordering::Relaxed) => Err(RealError::Interrupted),
            None => Err(process.failure("did not start")),
        }
    }

    fn ready(&self, received: &Receiver<OutputLine>, deadline: Instant) -> Option<Value> {
        while Instant::now() < deadline && !self.options.stop.load(Ordering::Relaxed) {
            match received.recv_timeout(PAUSE) {
                Ok(OutputLine { line: Some(line), .. }) => {
                    let line = serde_json::from_str::<Value>(&line).unwrap_or_default();
                    if line.get("ready").is_some() {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(OutputLine { line: None, .. }) | Err(RecvTimeoutError::Disconnected) => {
                    return None;
                }
            }
        }
        None
    }
}
