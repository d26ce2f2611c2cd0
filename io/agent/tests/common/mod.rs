//! A controller of `weir-control` behind a socket with just enough HTTP for agents, and routers in
//! this process.
pub(crate) mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use weir_agent::{Access, Agent, AgentConfig};
use weir_base::Instant as Moment;
use weir_client::Client;
use weir_control::message::{Configuration, Forward, Refusal, RouterReport, Update};
use weir_control::{ControlError, Controller, ControllerConfig};
use weir_io_fixture::wait_until;
use weir_manage::FaceStatus;
use weir_runtime::{Handle, Listener, Runtime, RuntimeConfig, StaticFace};
use weir_store::StoreConfig;
use weir_wire::{Component, Data, DataView, Interest, InterestView, LpHeader, Name};

pub(crate) use weir_io_fixture::TEST_TIMEOUT;
pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

struct ControllerState {
    controller: Controller,
    began: Instant,
    /// Answered requests by kind.
    requests: BTreeMap<&'static str, u64>,
    is_refusing: bool,
    /// Whether it refuses unknown fields, as controllers from before instance numbers do.
    is_old: bool,
    /// Whether requests for configurations are refused with `Retry-After`.
    puts_off: bool,
    /// Objects that routers asked about, in order.
    asked: Vec<Name>,
    /// Accepted updates, and the bytes of the heads and bodies of their requests.
    updates: Vec<Update>,
    update_bytes: (u64, u64),
    /// A configuration that replaces the controller's own.
    dictated: Option<Configuration>,
    /// Whether it is sent to routers again and again.
    is_stubborn: bool,
    /// The only accepted token, if set.
    token: Option<String>,
    /// Bytes of padding in answers to reports.
    padding: usize,
    /// Maximum number of changes in an update; larger ones are refused as too large.
    changes_max: usize,
}

impl ControllerState {
    fn now(&self) -> Moment {
        Moment::from_ns(self.began.elapsed().as_nanos() as u64)
    }
}

#[derive(Clone)]
pub(crate) struct TestController {
    shared: Arc<(Mutex<ControllerState>, Condvar)>,
    pub(crate) address: SocketAddr,
}

type Answer = (u16, Vec<u8>);

impl TestController {
    pub(crate) fn start(config: ControllerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = ControllerState {
            controller: Controller::new(config),
            began: Instant::now(),
            requests: BTreeMap::new(),
            is_refusing: false,
            is_old: false,
            puts_off: false,
            asked: Vec::new(),
            updates: Vec::new(),
            update_bytes: (0, 0),
            dictated: None,
            is_stubborn: false,
            token: None,
            padding: 0,
            changes_max: usize::MAX,
        };
        let controller = Self { shared: Arc::new((Mutex::new(state), Condvar::new())), address };
        let serving = controller.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        controller
    }

    fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.shared.0.lock().unwrap()
    }

    /// Runs `act` with the controller.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Controller) -> T) -> T {
        let result = act(&mut self.state().controller);
        self.shared.1.notify_all();
        result
    }

    /// Forgets everything, like a restart.
    pub(crate) fn forget(&self) {
        self.with(|controller| *controller = Controller::new(ControllerConfig::default()));
    }

    /// Objects that routers asked about, in order.
    pub(crate) fn asked(&self) -> Vec<Name> {
        self.state().asked.clone()
    }

    /// All updates, and the bytes of the heads and bodies of their requests.
    pub(crate) fn updates(&self) -> (Vec<Update>, (u64, u64)) {
        let state = self.state();
        (state.updates.clone(), state.update_bytes)
    }

    /// Gives all routers this configuration from now on.
    pub(crate) fn dictate(&self, configuration: Configuration) {
        self.state().dictated = Some(configuration);
        self.shared.1.notify_all();
    }

    /// Sends all routers this configuration again and again.
    pub(crate) fn repeat_configuration(&self, configuration: Configuration) {
        self.state().is_stubborn = true;
        self.dictate(configuration);
    }

    /// Refuses updates with more changes from now on.
    pub(crate) fn limit(&self, changes_max: usize) {
        self.state().changes_max = changes_max;
    }

    /// Refuses requests for configurations with `Retry-After` from now on.
    pub(crate) fn postpone(&self) {
        self.state().puts_off = true;
    }

    /// Accepts only this token from now on.
    pub(crate) fn take_only(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Pads answers to reports from now on.
    pub(crate) fn pad(&self, octets: usize) {
        self.state().padding = octets;
    }

    /// Behaves like a controller from before instance numbers.
    pub(crate) fn use_old_schema(&self) {
        self.state().is_old = true;
    }

    /// Answers every request with 503, or stops doing so.
    pub(crate) fn refuse(&self, is_refusing: bool) {
        self.state().is_refusing = is_refusing;
        self.shared.1.notify_all();
    }

    pub(crate) fn requests(&self, what: &str) -> u64 {
        self.state().requests.get(what).copied().unwrap_or(0)
    }

    /// Waits until the controller's state satisfies `is_so`.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Controller) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is_so(&self.state().controller) {
            assert!(Instant::now() < until, "{what}: {}", self.describe());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Plans, holdings and routers, for failure messages.
    pub(crate) fn describe(&self) -> String {
        let state = self.state();
        let controller = &state.controller;
        let mut text = String::new();
        for plan in controller.plans() {
            text += &format!("{plan:?}\n");
            for (router, held) in controller.holdings(&plan.object) {
                text += &format!("{router}: {:?}\n", held.ranges().collect::<Vec<_>>());
            }
        }
        for (name, report) in controller.routers() {
            text += &format!("{name}: {report:?} {:?}\n", controller.configuration(name));
        }
        text
    }

    fn serve(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(request) = request(&mut reader) {
            let (status, body) = self.answer(&request);
            // Longer than any test.
            let wait = if status == 429 { "Retry-After: 250\r\n" } else { "" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\n{wait}Content-Length: {length}\r\n\r\n");
            let head = if status == 204 { "HTTP/1.1 204 x\r\n\r\n".to_owned() } else { head };
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let Request { method, target, token, body, head_bytes, body_bytes } = request;
        let (path, query) = target.split_once('?').unwrap_or((target.as_str(), ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let ["v1", "routers", router, rest @ ..] = &parts[..] else { return refusal(404, "path") };
        if self.state().is_refusing {
            *self.state().requests.entry("refused").or_default() += 1;
            return refusal(503, "away");
        }
        if self.state().token.as_ref().is_some_and(|taken| taken != token) {
            *self.state().requests.entry("unauthorized").or_default() += 1;
            return refusal(401, "unknown token");
        }
        let mut state = self.state();
        let now = state.now();
        let answer = match (method.as_str(), rest) {
            ("PUT", []) => {
                *state.requests.entry("report").or_default() += 1;
                let report: RouterReport = serde_json::from_slice(body).unwrap();
                if state.is_old && String::from_utf8_lossy(body).contains("\"instance\"") {
                    return refusal(422, "unknown field `instance`");
                }
                let (status, mut body) = json(state.controller.report(now, router, report));
                body.resize(body.len() + state.padding, b' ');
                (status, body)
            }
            ("POST", ["updates"]) => {
                *state.requests.entry("update").or_default() += 1;
                let update: Update = serde_json::from_slice(body).unwrap();
                if update.changes.len() > state.changes_max {
                    *state.requests.entry("too large").or_default() += 1;
                    return refusal(413, "too large");
                }
                state.updates.push(update.clone());
                state.update_bytes.0 += *head_bytes as u64;
                state.update_bytes.1 += *body_bytes as u64;
                json(state.controller.update(now, router, update))
            }
            ("POST", ["forward"]) => {
                *state.requests.entry("forward").or_default() += 1;
                let forward: Forward = serde_json::from_slice(body).unwrap();
                state.asked.push(forward.object.clone());
                json(state.controller.forward(router, &forward.object))
            }
            ("GET", ["config"]) => {
                drop(state);
                return self.configuration(router, query);
            }
            other => panic!("{other:?}"),
        };
        drop(state);
        self.shared.1.notify_all();
        answer
    }

    fn configuration(&self, router: &str, query: &str) -> Answer {
        let value = |key: &str| -> u64 {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).unwrap().1.parse().unwrap()
        };
        let (after, until) = (value("after"), Instant::now() + Duration::from_secs(value("wait")));
        let mut state = self.state();
        *state.requests.entry("configuration").or_default() += 1;
        if state.puts_off {
            return refusal(429, "later");
        }
        loop {
            if !state.controller.routers().any(|(name, _)| name == router) {
                return refusal(404, "unknown");
            }
            if let Some(dictated) = &state.dictated
                && (dictated.generation > after || state.is_stubborn)
            {
                return (200, serde_json::to_vec(dictated).unwrap());
            }
            let generation = state.controller.generation_of(router);
            // A restarted controller has none for a while.
            if generation > after
                && let Some(configuration) = state.controller.configuration(router)
            {
                return (200, serde_json::to_vec(&configuration).unwrap());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_refusing {
                return (204, Vec::new());
            }
            state = self.shared.1.wait_timeout(state, left).unwrap().0;
        }
    }
}

fn json<T: serde::Serialize>(result: Result<T, ControlError>) -> Answer {
    match result {
        Ok(answer) => (200, serde_json::to_vec(&answer).unwrap()),
        Err(refused) => {
            let (status, expected) = match &refused {
                ControlError::OutOfOrder { expected } => (409, Some(*expected)),
                ControlError::UnknownRouter(_) => (404, None),
                _ => (400, None),
            };
            let refusal = Refusal { error: refused.to_string(), expected };
            (status, serde_json::to_vec(&refusal).unwrap())
        }
    }
}

fn refusal(status: u16, error: &str) -> Answer {
    (status, serde_json::to_vec(&Refusal { error: error.into(), expected: None }).unwrap())
}

/// A request, with the number of bytes before its body and in the body as sent.
struct Request {
    method: String,
    target: String,
    token: String,
    body: Vec<u8>,
    head_bytes: usize,
    body_bytes: usize,
}

fn request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut is_chunked, mut head_bytes) = (0, false, line.len());
    let (mut is_deflated, mut token) = (false, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        head_bytes += header.len();
        if let Some((name, value)) = header.trim().split_once(": Bearer ")
            && name.eq_ignore_ascii_case("authorization")
        {
            token = value.to_owned();
        }
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        is_chunked |= header.starts_with("transfer-encoding:");
        is_deflated |= header == "content-encoding: deflate";
    }
    assert!(!is_chunked, "bodies have a length");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body_bytes = body.len();
    if is_deflated {
        body = miniz_oxide::inflate::decompress_to_vec_zlib(&body).unwrap();
    }
    Some(Request { method, target, token, body, head_bytes, body_bytes })
}

/// A router with an agent. The agent is dropped first.
pub(crate) struct RouterWithAgent {
    pub(crate) agent: Option<Agent>,
    pub(crate) router: Handle,
    pub(crate) uri: String,
}

/// A router with these threads and this store in bytes, and permanent faces to others.
pub(crate) fn router(threads: usize, store_bytes: u64, neighbours: &[&str]) -> (Handle, String) {
    let face = |uri: &&str| StaticFace {
        uri: (*uri).to_owned(),
        permanent: true,
        ..StaticFace::default()
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let handle = Runtime::start(RuntimeConfig {
        threads,
        store: StoreConfig { capacity_bytes: store_bytes, ..StoreConfig::default() },
        interest_lifetime_max: Duration::from_secs(60),
        listeners: vec![Listener::Udp {
            format: weir_face::UdpFormat::Ndn,
            address,
            required: true,
        }],
        static_faces: neighbours.iter().map(face).collect(),
        ..weir_io_fixture::router::config(PathBuf::new())
    })
    .expect("the router starts");
    let uri = handle.listening()[0].clone();
    wait_for_faces(&handle, neighbours);
    (handle, uri)
}

/// Waits for the configured faces of a router, which are created after its start.
fn wait_for_faces(router: &Handle, uris: &[&str]) {
    let mut client = Client::from_socket_pair(router.local_port().connect().unwrap()).unwrap();
    wait_until("the router has its faces", || {
        let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
        uris.iter().all(|uri| faces.iter().any(|face| face.info.uri == *uri))
    });
}

impl RouterWithAgent {
    pub(crate) fn start(
        name: &str,
        controller: &TestController,
        threads: usize,
        store_bytes: u64,
        neighbours: &[&str],
    ) -> Self {
        let (router, uri) = router(threads, store_bytes, neighbours);
        let mut node = Self { agent: None, router, uri };
        node.start_agent(name, controller);
        node
    }

    pub(crate) fn start_agent(&mut self, name: &str, controller: &TestController) {
        self.start_agent_with(name, controller, |_| {});
    }

    pub(crate) fn start_agent_with(
        &mut self,
        name: &str,
        controller: &TestController,
        change: impl FnOnce(&mut AgentConfig),
    ) {
        let mut config = AgentConfig {
            access: Access {
                url: format!("http://{}", controller.address),
                token: Some("secret".into()),
                ..Access::default()
            },
            name: name.into(),
            uris: vec![self.uri.clone()],
            rates_bps: Default::default(),
            interval: Duration::from_millis(100),
            routes_max: 10_000,
            state_file: None,
            prefetch: true,
            asks_for_hosts: false,
        };
        change(&mut config);
        self.agent = Some(Agent::start(config, &self.router).unwrap());
    }
}

pub(crate) const SEGMENT_BYTES: usize = 8000;

/// An application that produces segments of any object below a prefix, and counts Interests.
pub(crate) struct Producer {
    asked: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Producer {
    pub(crate) fn start(router: &Handle, prefix: &str, segments: u64) -> Self {
        let mut client = Client::from_socket_pair(router.local_port().connect().unwrap()).unwrap();
        client.register_prefix(&name(prefix)).unwrap();
        let (asked, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ends) = (Arc::clone(&asked), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let last = Component::segment(segments - 1);
            let mut packets = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let deadline = client.now().plus_ns(20_000_000);
                if client.poll(Some(deadline), &mut packets).is_err() {
                    return;
                }
                for packet in packets.drain(..) {
                    let Ok(interest) = InterestView::decode(&packet.packet) else { continue };
                    count.fetch_add(1, Ordering::Relaxed);
                    let wire = Data::new(interest.name.to_name())
                        .freshness_ms(1000)
                        .final_block_id(last.clone())
                        .content([7; SEGMENT_BYTES])
                        .encode_with_digest();
                    let header =
                        LpHeader { pit_token: packet.header.pit_token, ..LpHeader::default() };
                    let data = client.pool().copy(&wire);
                    let _ = client.send(packet.path, header, data);
                }
            }
        });
        Self { asked, stop, thread: Some(thread) }
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Reads all segments in order with several Interests in flight, as `weir get` would.
pub(crate) fn read(router: &Handle, object: &Name, segments: u64) {
    let mut client = Client::from_socket_pair(router.local_port().connect().unwrap()).unwrap();
    read_by(&mut client, object, segments);
}

/// The same over an existing connection.
pub(crate) fn read_by(client: &mut Client, object: &Name, segments: u64) {
    let path = client.paths().next().unwrap();
    let mut wanted: VecDeque<u64> = (0..segments).collect();
    let mut in_flight: BTreeMap<u64, Instant> = BTreeMap::new();
    let until = Instant::now() + TEST_TIMEOUT;
    let mut packets = Vec::new();
    while !wanted.is_empty() || !in_flight.is_empty() {
        assert!(Instant::now() < until, "{} segments are missing", wanted.len() + in_flight.len());
        while in_flight.len() < 16
            && let Some(segment) = wanted.pop_front()
        {
            let mut asked = object.clone();
            asked.append_segment(segment);
            let nonce = client.random_u64() as u32;
            let interest = Interest::new(asked).nonce(nonce).lifetime_ms(1000).encode();
            client.send_bytes(path, &interest).unwrap();
            in_flight.insert(segment, Instant::now());
        }
        let deadline = client.now().plus_ns(20_000_000);
        client.poll(Some(deadline), &mut packets).unwrap();
        for packet in packets.drain(..) {
            if packet.header.nack.is_none() {
                let data = DataView::decode(&packet.packet).unwrap();
                assert_eq!(data.content.len(), SEGMENT_BYTES);
                in_flight.remove(&data.name.last().unwrap().as_segment().unwrap());
            }
        }
        let late = |at: &Instant| at.elapsed() > Duration::from_secs(1);
        let late: Vec<u64> =
            in_flight.iter().filter(|(_, at)| late(at)).map(|(segment, _)| *segment).collect();
        for segment in late {
            in_flight.remove(&segment);
            wanted.push_back(segment);
        }
    }
}
