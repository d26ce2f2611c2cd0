//! All processes of a run, from their start to their end.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use weir_base::FaceId;
use weir_face::FaceUri;
use weir_plan::{LinkPackets, Plan, Role, Transport};

use super::app::{AppSpec, EXIT_WRONG_BYTES};
use super::control::Control;
use super::disks::{self, DiskFiles};
use super::links::EmulatedLink;
use super::outputs::{Interruption, Outputs, STOP_CHECK};
use super::process::{END_PATIENCE, Launch, Process};
use super::router::{Addresses, Router, RouterContext, config_text};
use super::{RealError, RealOptions, check, fill};

/// Additional time that a router may take for each prefix without a destination.
const FILLER_PATIENCE_NS: u64 = 100_000;

/// A consumer or producer.
pub(super) struct Application {
    pub(super) process: Process,
    pub(super) is_consumer: bool,
    pub(super) is_done: bool,
    pub(super) events: PathBuf,
    /// Its UDP ports, one for each link.
    bound: Vec<SocketAddr>,
}

/// The processes of a run and the links between them.
pub(super) struct Testbed<'a> {
    pub(super) plan: &'a Plan,
    pub(super) options: &'a RealOptions,
    pub(super) routers: BTreeMap<usize, Router>,
    pub(super) apps: BTreeMap<usize, Application>,
    pub(super) links: BTreeMap<usize, EmulatedLink>,
    /// Present if the plan has a controller.
    control: Option<Control>,
    /// Faces of routers, by node and link.
    faces: HashMap<(usize, usize), FaceId>,
    outputs: Outputs,
    /// Configuration, logs and events.
    dir: PathBuf,
    /// Sockets, whose paths must be short; and all of `dir` if nothing is kept. Removed last.
    temporary: TempDir,
}

impl<'a> Testbed<'a> {
    pub(super) fn new(plan: &'a Plan, options: &'a RealOptions) -> Result<Self, RealError> {
        let system = |what: String| move |source| RealError::System { what, source };
        let temporary = tempfile::Builder::new()
            .prefix("weir-real-")
            .tempdir()
            .map_err(system("cannot create a temporary folder (see TMPDIR)".into()))?;
        let dir = options.keep.clone().unwrap_or_else(|| temporary.path().to_path_buf());
        let folders = [Some(&dir), options.profile.as_ref()];
        for folder in folders.into_iter().flatten() {
            std::fs::create_dir_all(folder)
                .map_err(system(format!("cannot make {}", folder.display())))?;
        }
        let dir =
            std::path::absolute(&dir).map_err(system(format!("cannot use {}", dir.display())))?;
        Ok(Self {
            plan,
            options,
            routers: BTreeMap::new(),
            apps: BTreeMap::new(),
            links: BTreeMap::new(),
            control: None,
            faces: HashMap::new(),
            outputs: Outputs::new(options.stop.clone()),
            dir,
            temporary,
        })
    }

    /// Configuration and logs.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the routers and their controller, after everything else has ended.
    pub(super) fn stop(&mut self) -> Result<(), RealError> {
        self.routers.values_mut().try_for_each(|router| router.process.stop())?;
        self.control.as_mut().map_or(Ok(()), Control::stop)
    }

    /// Starts all processes and connects them. On return, all wait for the start.
    pub(super) fn start(&mut self) -> Result<(), RealError> {
        let deadline = self.start_deadline();
        self.bind_links()?;
        if let Some(of) = &self.plan.controller {
            let control = Control::start(self.plan, of, self.options, &self.dir, deadline)?;
            self.control = Some(control);
        }
        self.start_routers(deadline)?;
        for node in self.router_nodes() {
            self.wait_for_filler(node, deadline)?;
        }
        self.start_apps(deadline)?;
        self.join_links()?;
        for node in self.app_nodes() {
            self.line_with(node, "ready", deadline)?;
        }
        let mut filled = BTreeMap::new();
        for node in self.router_nodes() {
            self.add_routes(node)?;
            let router = self.routers.get_mut(&node).expect("every router was started");
            fill::await_disks(self.plan, router)?;
            filled.insert(node, fill::fill(self.plan, router)?);
            // The store has cached the replies to the commands of the set-up. The run starts
            // without them.
            router.forget_management()?;
        }
        match &mut self.control {
            Some(control) => control.await_network(self.plan, self.options, &filled, deadline),
            None => Ok(()),
        }
    }

    /// Binds the ports of links, because routers report them to a controller at their start.
    fn bind_links(&mut self) -> Result<(), RealError> {
        for (index, link) in self.plan.links.iter().enumerate() {
            if check::is_emulated(self.plan, index) {
                let emulated = EmulatedLink::bind(index, link, self.plan.link_seed(index))?;
                self.links.insert(index, emulated);
            }
        }
        Ok(())
    }

    /// The addresses that a router's neighbours send to, one for each emulated link.
    fn addresses_of(&self, node: usize) -> Vec<SocketAddr> {
        let links = check::links_of(self.plan, node).into_iter();
        let address = |(index, _): (usize, usize)| {
            let emulated = self.links.get(&index)?;
            // Each neighbour sends to the port of the emulator on its own side.
            Some(if self.plan.links[index].a == node { emulated.b } else { emulated.a })
        };
        links.filter_map(address).collect()
    }

    /// Large tables take time, and more on a busy machine.
    fn start_deadline(&self) -> Instant {
        let fillers = self.plan.nodes.iter().map(|node| match &node.role {
            Role::Router(router) => u64::from(router.fib_filler),
            Role::Consumer(_) | Role::Producer(_) => 0,
        });
        let extra_ns = fillers.sum::<u64>() * FILLER_PATIENCE_NS;
        Instant::now() + Duration::from_nanos(self.options.start_timeout_ns + extra_ns)
    }

    pub(super) fn router_nodes(&self) -> Vec<usize> {
        (0..self.plan.nodes.len()).filter(|&node| check::is_router(self.plan, node)).collect()
    }

    pub(super) fn app_nodes(&self) -> Vec<usize> {
        (0..self.plan.nodes.len()).filter(|&node| check::is_app(self.plan, node)).collect()
    }

    pub(super) fn name(&self, node: usize) -> &'a str {
        &self.plan.nodes[node].name
    }

    fn launch(
        &mut self,
        node: usize,
        kind: &str,
        arguments: &[&str],
    ) -> Result<Process, RealError> {
        let (number, output) = self.outputs.add(node);
        let is_router = check::is_router(self.plan, node);
        let launch = Launch {
            title: format!("the {kind} `{}`", self.name(node)),
            program: &self.options.program,
            other: None,
            dir: &self.dir,
            file: format!("node-{node}"),
            cores: if is_router { &self.options.cpu_router } else { &self.options.cpu_apps },
            number,
            output: &output,
        };
        Process::start(&launch, arguments)
    }

    fn start_routers(&mut self, deadline: Instant) -> Result<(), RealError> {
        for node in self.router_nodes() {
            if check::disk(self.plan, node).is_some_and(disks::is_filled) {
                self.fill_disks(node)?;
            }
        }
        let mut started = Vec::new();
        for node in self.router_nodes() {
            let at = Addresses::any(self.temporary.path().join(format!("{node}.sock")));
            started.push((node, self.start_router(node, &at, false)?, at));
        }
        for (node, process, at) in started {
            self.await_router(node, process, at, deadline)?;
        }
        Ok(())
    }

    /// Runs a router once to write the initial content of its disks.
    fn fill_disks(&mut self, node: usize) -> Result<(), RealError> {
        let deadline = self.start_deadline();
        let at = Addresses::any(self.temporary.path().join(format!("{node}.sock")));
        let process = self.start_router(node, &at, true)?;
        self.await_router(node, process, at, deadline)?;
        let mut router = self.routers.remove(&node).expect("it was started");
        fill::fill_disks(self.plan, &router)?;
        self.outputs.remove(node);
        router.process.stop()
    }

    fn disks_of(&self, node: usize) -> DiskFiles {
        DiskFiles::new(&self.dir, node, self.plan.app_seed(node))
    }

    /// Stalls one disk of a router or all, or lets them resume.
    pub(super) fn stall_disks(
        &self,
        node: usize,
        disk: Option<u8>,
        begins: bool,
    ) -> Result<(), RealError> {
        match check::disk(self.plan, node) {
            Some(plan) => self.disks_of(node).stall(plan, disk, begins),
            None => Ok(()),
        }
    }

    /// Starts a router. With `is_filled`, it starts only to write the content of its disks.
    fn start_router(
        &mut self,
        node: usize,
        at: &Addresses,
        is_filled: bool,
    ) -> Result<Process, RealError> {
        let Role::Router(plan) = &self.plan.nodes[node].role else {
            return Err(RealError::Unsupported(format!("`{}` is no router", self.name(node))));
        };
        let filler = self.dir.join(format!("node-{node}-filler.txt"));
        let filler = match plan.fib_filler {
            0 => None,
            count => {
                write_filler(&filler, count)?;
                Some(filler)
            }
        };
        let routes = self.plan.routes.iter().filter(|route| route.node == node).count();
        let disks = (&self.disks_of(node), is_filled);
        let runs =
            self.plan.links.iter().any(|link| link.runs && (link.a == node || link.b == node));
        let filler = filler.as_deref();
        let holdings = self.plan.asks_holdings();
        // While it fills its disks, the controller must not know it.
        let control = self.control.as_ref().filter(|_| !is_filled);
        let control =
            control.map(|control| control.agent_text(self.plan, node, &self.addresses_of(node)));
        let setting = RouterContext { at, routes, runs, filler, disks, holdings, control };
        let text = config_text(plan, &setting);
        let path = self.dir.join(format!("node-{node}.toml"));
        write_file(&path, text.as_bytes())?;
        let path = path.display().to_string();
        let mut arguments = vec!["router", "--json", "-c", &path];
        let profile = self.options.profile.as_ref().map(|folder| {
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            folder.join(format!("{}.csv", self.name(node).replace('/', "_"))).display().to_string()
        });
        if let Some(profile) = &profile {
            arguments.extend(["--profile", profile]);
        }
        self.launch(node, "router", &arguments)
    }

    /// Waits until a router is ready, and connects to it.
    fn await_router(
        &mut self,
        node: usize,
        process: Process,
        mut at: Addresses,
        deadline: Instant,
    ) -> Result<(), RealError> {
        let mut process = process;
        let ready = match self.line_of(node, "ready", deadline) {
            Ok(ready) => ready,
            Err(NoLine::Process) => return Err(process.failure("did not start")),
            Err(NoLine::Failed(error)) => return Err(error),
        };
        if at.set_from_ready_line(&ready).is_none() {
            return Err(process.failure("did not report its addresses"));
        }
        match self.routers.remove(&node) {
            None => {
                let router = Router::attach(node, self.name(node), process, at)?;
                self.routers.insert(node, router);
            }
            Some(mut router) => {
                router.restart(process, at)?;
                self.routers.insert(node, router);
            }
        }
        Ok(())
    }

    fn start_apps(&mut self, deadline: Instant) -> Result<(), RealError> {
        for node in self.app_nodes() {
            let spec = self.app_spec(node);
            let path = self.dir.join(format!("node-{node}.json"));
            let text = serde_json::to_vec(&spec).expect("a specification is plain data");
            write_file(&path, &text)?;
            let is_consumer = matches!(spec.role, Role::Consumer(_));
            let kind = if is_consumer { "consumer" } else { "producer" };
            let path = path.display().to_string();
            let process = self.launch(node, kind, &["lab", "app", &path])?;
            let app = Application {
                process,
                is_consumer,
                is_done: false,
                events: spec.events,
                bound: Vec::new(),
            };
            self.apps.insert(node, app);
        }
        for node in self.app_nodes() {
            // All applications start at the same time. Only then wait for their ports.
            let line = self.line_with(node, "bound", deadline)?;
            let uris = line["bound"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let uris = uris.filter_map(|uri| uri.parse::<FaceUri>().ok());
            if let Some(app) = self.apps.get_mut(&node) {
                app.bound = uris.filter_map(|uri| uri.socket_addr()).collect();
            }
        }
        Ok(())
    }

    fn app_spec(&self, node: usize) -> AppSpec {
        let plan = self.plan;
        let links = check::links_of(plan, node);
        let &(link, router) = links.first().expect("checked");
        let transport = plan.links[link].transport;
        let routes = plan.routes.iter().filter(|route| route.node == router && route.link == link);
        // Commands need a local face, and UDP faces are not local. The coordinator sends the
        // commands for those.
        let register = match transport {
            Transport::Udp => Vec::new(),
            Transport::Unix | Transport::Tcp => {
                routes.map(|route| (route.prefix.clone(), route.cost)).collect()
            }
        };
        let reconnect = plan.faults.iter().any(|planned| {
            matches!(planned.fault, weir_plan::Fault::Crash { node, .. } if node == router)
        });
        AppSpec {
            node: node as u32,
            name: plan.nodes[node].name.clone(),
            role: plan.nodes[node].role.clone(),
            seed: plan.app_seed(node),
            duration_ns: plan.duration_ns,
            end_ns: plan.duration_ns.saturating_add(plan.drain_ns),
            sample_ns: plan.sample_ns,
            transport,
            mtus: links.iter().map(|&(link, _)| plan.links[link].mtu).collect(),
            register,
            events: self.dir.join(format!("node-{node}.events")),
            reconnect,
        }
    }

    /// Creates the links, and sends applications the addresses to connect to.
    fn join_links(&mut self) -> Result<(), RealError> {
        for index in 0..self.plan.links.len() {
            let link = &self.plan.links[index];
            if [link.a, link.b].iter().any(|&end| check::is_agents(self.plan, end)) {
                continue;
            }
            match link.transport {
                Transport::Udp => self.join_udp(index)?,
                Transport::Tcp if self.is_between_routers(index) => self.join_tcp(index)?,
                Transport::Tcp | Transport::Unix => {
                    let (app, router) = match check::is_router(self.plan, link.a) {
                        true => (link.b, link.a),
                        false => (link.a, link.b),
                    };
                    let at = &self.routers[&router].at;
                    let uri = match link.transport {
                        Transport::Unix => FaceUri::Unix(at.unix.clone()),
                        Transport::Tcp | Transport::Udp => FaceUri::Tcp(at.tcp),
                    };
                    self.send_line(app, &format!("connect {uri}"))?;
                }
            }
        }
        Ok(())
    }

    fn is_between_routers(&self, index: usize) -> bool {
        let link = &self.plan.links[index];
        check::is_router(self.plan, link.a) && check::is_router(self.plan, link.b)
    }

    /// The address at which a node receives the datagrams of a link.
    fn udp_address(&self, node: usize, link: usize) -> Result<SocketAddr, RealError> {
        let address = match self.routers.get(&node) {
            Some(router) => Some(match self.plan.links[link].packets {
                LinkPackets::Ndn => router.at.udp,
                LinkPackets::Hicn => router.at.hicn_udp,
            }),
            None => self.apps.get(&node).and_then(|app| {
                let links = check::links_of(self.plan, node);
                let at = links.iter().position(|&(index, _)| index == link)?;
                app.bound.get(at).copied()
            }),
        };
        address.ok_or_else(|| RealError::Process {
            title: format!("`{}`", self.name(node)),
            what: "has no UDP port".into(),
            log: String::new(),
        })
    }

    fn join_udp(&mut self, index: usize) -> Result<(), RealError> {
        let link = &self.plan.links[index];
        let ends = (self.udp_address(link.a, index)?, self.udp_address(link.b, index)?);
        let (peer_of_a, peer_of_b) = match self.links.get_mut(&index) {
            Some(emulated) => {
                emulated.begin(ends, &self.options.cpu_apps)?;
                (emulated.a, emulated.b)
            }
            None => (ends.1, ends.0),
        };
        // Routers first: a packet from an unknown address would create a face with other settings.
        let sides = [(link.a, peer_of_a), (link.b, peer_of_b)];
        for (node, peer) in sides {
            if check::is_router(self.plan, node) {
                self.make_udp_face(node, index, peer)?;
            }
        }
        for (node, peer) in sides {
            if !check::is_router(self.plan, node) {
                self.send_line(node, &format!("connect {}", FaceUri::Udp(peer)))?;
            }
        }
        Ok(())
    }

    fn make_udp_face(
        &mut self,
        node: usize,
        index: usize,
        peer: SocketAddr,
    ) -> Result<(), RealError> {
        let link = &self.plan.links[index];
        let router = self.routers.get_mut(&node).expect("every router was started");
        let uri = match link.packets {
            LinkPackets::Ndn => FaceUri::Udp(peer),
            LinkPackets::Hicn => FaceUri::HicnUdp(peer),
        };
        let (face, _) = router.create_face(&uri, Some(link.mtu), link.reliability)?;
        self.faces.insert((node, index), face);
        Ok(())
    }

    fn join_tcp(&mut self, index: usize) -> Result<(), RealError> {
        let link = &self.plan.links[index];
        let remote = FaceUri::Tcp(self.routers[&link.b].at.tcp);
        let router = self.routers.get_mut(&link.a).expect("every router was started");
        let (face, local) = router.create_face(&remote, None, false)?;
        self.faces.insert((link.a, index), face);
        let router = self.routers.get_mut(&link.b).expect("every router was started");
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(face) = router.face_to(&local)? {
                self.faces.insert((link.b, index), face);
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(router.process.failure("has no face to its neighbour"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Adds the routes of a router over faces that the coordinator has created.
    fn add_routes(&mut self, node: usize) -> Result<(), RealError> {
        let router = self.routers.get_mut(&node).expect("every router was started");
        for route in self.plan.routes.iter().filter(|route| route.node == node) {
            if let Some(&face) = self.faces.get(&(node, route.link)) {
                router.add_route(&route.prefix, face, route.cost)?;
            }
        }
        Ok(())
    }

    /// Waits for routes from a file. They are complete some time after the router's start, and it
    /// does not respond until then.
    fn wait_for_filler(&mut self, node: usize, deadline: Instant) -> Result<(), RealError> {
        let Role::Router(plan) = &self.plan.nodes[node].role else {
            return Ok(());
        };
        let wanted = u64::from(plan.fib_filler);
        let router = self.routers.get_mut(&node).expect("every router was started");
        while wanted > 0 && router.fib_entries().is_none_or(|entries| entries < wanted) {
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(RealError::Interrupted);
            }
            if router.process.ends_within(Duration::ZERO) || Instant::now() > deadline {
                return Err(router.process.failure("did not read its routes in time"));
            }
            std::thread::sleep(STOP_CHECK);
        }
        Ok(())
    }

    /// Restarts a crashed router at the same addresses, with its faces and routes.
    pub(super) fn restart_router(&mut self, node: usize) -> Result<(), RealError> {
        let deadline = self.start_deadline();
        let at = self.routers[&node].at.clone();
        let process = self.start_router(node, &at, false)?;
        self.await_router(node, process, at, deadline)?;
        self.wait_for_filler(node, deadline)?;
        for index in 0..self.plan.links.len() {
            let link = &self.plan.links[index];
            // Applications with other transports reconnect by themselves. The links of this router
            // to other routers are UDP (see `check`).
            if link.transport != Transport::Udp || ![link.a, link.b].contains(&node) {
                continue;
            }
            let other = if link.a == node { link.b } else { link.a };
            let peer = match self.links.get(&index) {
                Some(emulated) if link.a == node => emulated.a,
                Some(emulated) => emulated.b,
                None => self.udp_address(other, index)?,
            };
            self.make_udp_face(node, index, peer)?;
        }
        self.add_routes(node)
    }

    /// Crashes a router on purpose.
    pub(super) fn crash(&mut self, node: usize) -> Result<(), RealError> {
        self.outputs.remove(node);
        self.routers.get_mut(&node).expect("every router was started").crash()
    }

    pub(super) fn send_line(&mut self, node: usize, line: &str) -> Result<(), RealError> {
        let app = self.apps.get_mut(&node).expect("every application was started");
        app.process.send_line(line).map_err(|_| self.failure_of(node))
    }

    /// The next line of an application with `key`.
    pub(super) fn line_with(
        &mut self,
        node: usize,
        key: &str,
        deadline: Instant,
    ) -> Result<Value, RealError> {
        self.line_of(node, key, deadline).map_err(|ended| match ended {
            NoLine::Process => self.failure_of(node),
            NoLine::Failed(error) => error,
        })
    }

    fn line_of(&mut self, node: usize, key: &str, deadline: Instant) -> Result<Value, NoLine> {
        loop {
            if let Some(line) = self.outputs.next_with(node, key) {
                return Ok(line);
            }
            if self.outputs.has_ended(node) {
                return Err(NoLine::Process);
            }
            if Instant::now() > deadline {
                let error = match self.apps.get_mut(&node) {
                    Some(app) => app.process.failure("is not ready in time"),
                    None => RealError::Process {
                        title: format!("the router `{}`", self.name(node)),
                        what: "is not ready in time".into(),
                        log: String::new(),
                    },
                };
                return Err(NoLine::Failed(error));
            }
            match self.outputs.receive(STOP_CHECK) {
                Ok(()) => {}
                Err(Interruption::Ended(of)) if of == node => return Err(NoLine::Process),
                Err(Interruption::Ended(of)) => return Err(NoLine::Failed(self.failure_of(of))),
                Err(Interruption::Stop) => return Err(NoLine::Failed(RealError::Interrupted)),
            }
        }
    }

    /// Waits for output for at most `patience`, and records which consumers are done. It is an
    /// error if a process ends unexpectedly.
    pub(super) fn poll_outputs(&mut self, patience: Duration) -> Result<(), RealError> {
        match self.outputs.receive(patience) {
            Ok(()) => {}
            Err(Interruption::Ended(node)) => return Err(self.failure_of(node)),
            Err(Interruption::Stop) => return Err(RealError::Interrupted),
        }
        for (node, app) in &mut self.apps {
            app.is_done |= self.outputs.has_line_with(*node, "done");
        }
        Ok(())
    }

    /// From here on, the end of a process is not an error.
    pub(super) fn expect_ends(&mut self) {
        self.outputs.expect_ends();
    }

    /// Why a process ended early.
    pub(super) fn failure_of(&mut self, node: usize) -> RealError {
        let name = self.name(node).to_owned();
        if let Some(app) = self.apps.get_mut(&node) {
            let error = app.process.failure("ended early");
            if app.process.exit_code() == Some(i32::from(EXIT_WRONG_BYTES)) {
                return RealError::WrongBytes { node: name, what: app.process.log() };
            }
            // When a router ends, its applications follow, so report the router.
            for (_, router) in check::links_of(self.plan, node) {
                if let Some(router) = self.routers.get_mut(&router)
                    && router.process.ends_within(END_PATIENCE)
                {
                    return router.process.failure("ended early");
                }
            }
            return error;
        }
        match self.routers.get_mut(&node) {
            Some(router) => router.process.failure("ended early"),
            None => RealError::Process {
                title: format!("the router `{name}`"),
                what: "did not start".into(),
                log: String::new(),
            },
        }
    }
}

/// Why no line was received.
enum NoLine {
    /// The process that should have printed it has ended.
    Process,
    Failed(RealError),
}

fn write_file(path: &Path, octets: &[u8]) -> Result<(), RealError> {
    std::fs::write(path, octets).map_err(|source| RealError::System {
        what: format!("cannot write {}", path.display()),
        source,
    })
}

/// Writes prefixes without a destination, one per line.
fn write_filler(path: &Path, count: u32) -> Result<(), RealError> {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(count as usize * 24);
    for index in 0..count {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", weir_plan::filler_prefix(index));
    }
    write_file(path, text.as_bytes())
}
