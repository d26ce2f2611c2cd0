//! A router in this process and peers made of bare sockets.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_manage::commands::{Command, Scope, build_command};
use weir_manage::{ControlParameters, ControlResponse, Element};
use weir_runtime::{
    DataSource, FaceBounds, FaceDefaults, Handle, Listener, ManagementConfig, NAME_COMPONENTS_MAX,
    Runtime, RuntimeConfig, Snapshot, UnsolicitedPolicy,
};
use weir_security::DigestSigner;
use weir_store::StoreConfig;
use weir_wire::{
    Data, DataView, Interest, InterestView, LpHeader, LpView, NackReason, Name, PacketView,
    peek_frame,
};

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A router on a socket of its own.
pub(crate) struct TestRouter {
    pub(crate) handle: Option<Handle>,
    pub(crate) directory: TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn config(path: PathBuf) -> RuntimeConfig {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    RuntimeConfig {
        threads: 1,
        store: StoreConfig { capacity_bytes: 16 << 20, ..StoreConfig::default() },
        disks: None,
        extension: None,
        pit_entries_max: 10_000,
        pit_entries_per_face_max: 10_000,
        interest_lifetime_max: Duration::from_secs(600),
        memory_bytes_max: 256 << 20,
        memory_ahead_bytes: 1 << 20,
        fib_entries_max: 10_000,
        unsolicited: UnsolicitedPolicy::DropAll,
        name_components_max: NAME_COMPONENTS_MAX,
        data_source: DataSource::NextHops,
        producer_regions: Vec::new(),
        faces: FaceBounds { faces_max: 4096, per_host_max: 4096, per_network_max: 4096 },
        listeners: vec![
            Listener::Unix(path),
            Listener::Udp { address: loopback, required: true },
            Listener::Tcp { address: loopback, required: true },
        ],
        face_defaults: FaceDefaults::default(),
        static_faces: Vec::new(),
        strategies: Vec::new(),
        unix_access: weir_runtime::UnixAccess::default(),
        management: ManagementConfig::default(),
        metrics: None,
        rebalance_interval: Duration::from_secs(1),
        handle_signals: false,
    }
}

impl TestRouter {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut RuntimeConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nfd.sock");
        let mut config = config(path.clone());
        change(&mut config);
        let handle = Runtime::start(config).expect("the router starts");
        Self { handle: Some(handle), directory, path }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.handle.as_ref().unwrap()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.handle().snapshot().expect("the router lives")
    }

    /// Waits until the router's state satisfies `is_so`.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Snapshot) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.snapshot();
            if is_so(&snapshot) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {snapshot:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn unix(&self) -> Peer<UnixStream> {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::new(socket)
    }

    pub(crate) fn tcp(&self) -> Peer<TcpStream> {
        let socket = TcpStream::connect(self.address("tcp4")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::new(socket)
    }

    pub(crate) fn udp(&self) -> UdpPeer {
        self.udp_from([127, 0, 0, 1])
    }

    /// A peer with another address of this machine, as if it were another host.
    pub(crate) fn udp_from(&self, address: [u8; 4]) -> UdpPeer {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::from(address), 0)).unwrap();
        socket.connect(self.address("udp4")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        UdpPeer { socket }
    }

    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        let prefix = format!("{scheme}://");
        let mut found = self.handle().listening().iter();
        found.find_map(|uri| uri.strip_prefix(&prefix)).unwrap().parse().unwrap()
    }

    pub(crate) fn stop(mut self) {
        self.handle.take().unwrap().stop().expect("a clean stop");
    }
}

#[derive(Debug)]
pub(crate) enum Got {
    Interest { header: LpHeader, wire: Vec<u8> },
    Nack { reason: NackReason, wire: Vec<u8> },
    Data { header: LpHeader, wire: Vec<u8> },
}

impl Got {
    pub(crate) fn of_frame(frame: &[u8]) -> Self {
        let view = LpView::decode(frame).expect("the router sends valid frames");
        let header = view.header.clone();
        let wire = view.fragment.expect("no idle packets").to_vec();
        match (PacketView::decode(&wire).expect("the router sends valid packets"), header.nack) {
            (PacketView::Interest(_), None) => Self::Interest { header, wire },
            (PacketView::Interest(_), Some(reason)) => Self::Nack { reason, wire },
            (PacketView::Data(_), _) => Self::Data { header, wire },
        }
    }

    pub(crate) fn interest(self) -> Vec<u8> {
        match self {
            Self::Interest { wire, .. } => wire,
            other => panic!("an Interest was due, not {other:?}"),
        }
    }

    pub(crate) fn data(self) -> Vec<u8> {
        match self {
            Self::Data { wire, .. } => wire,
            other => panic!("a Data was due, not {other:?}"),
        }
    }

    pub(crate) fn nack(self) -> NackReason {
        match self {
            Self::Nack { reason, .. } => reason,
            other => panic!("a Nack was due, not {other:?}"),
        }
    }
}

pub(crate) struct Peer<S> {
    pub(crate) socket: S,
    buffer: Vec<u8>,
}

impl<S: Read + Write> Peer<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).unwrap();
    }

    /// The next frame, `None` at the end of the stream.
    pub(crate) fn try_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Ok(Some(len)) = peek_frame(&self.buffer)
                && len <= self.buffer.len()
            {
                return Ok(Some(self.buffer.drain(..len).collect()));
            }
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk)? {
                0 => return Ok(None),
                read => self.buffer.extend_from_slice(&chunk[..read]),
            }
        }
    }

    pub(crate) fn got(&mut self) -> Got {
        Got::of_frame(&self.try_frame().unwrap().expect("the router keeps the face"))
    }

    /// Sends a command and gives the response.
    pub(crate) fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> ControlResponse {
        self.send(&command_interest(command, parameters));
        let data = self.got().data();
        response_of(&data)
    }

    /// Registers a prefix for this very face.
    pub(crate) fn register(&mut self, prefix: &str) {
        let parameters =
            ControlParameters { name: Some(name(prefix)), ..ControlParameters::default() };
        let response = self.command(Command::RibRegister, &parameters);
        assert_eq!(response.code, 200, "{response:?}");
    }
}

pub(crate) struct UdpPeer {
    pub(crate) socket: UdpSocket,
}

impl UdpPeer {
    pub(crate) fn send(&self, frame: &[u8]) {
        self.socket.send(frame).unwrap();
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut datagram = vec![0; 65536];
        let read = self.socket.recv(&mut datagram).unwrap();
        datagram.truncate(read);
        datagram
    }

    pub(crate) fn got(&self) -> Got {
        Got::of_frame(&self.frame())
    }
}

pub(crate) fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

pub(crate) fn interest(uri: &str) -> Vec<u8> {
    static NONCE: AtomicU32 = AtomicU32::new(1);
    Interest::new(name(uri)).nonce(NONCE.fetch_add(1, Ordering::Relaxed)).encode()
}

pub(crate) fn data(uri: &str, content: &[u8]) -> Vec<u8> {
    Data::new(name(uri)).freshness_ms(10_000).content(content).encode_with_digest()
}

pub(crate) fn content_of(wire: &[u8]) -> Vec<u8> {
    DataView::decode(wire).unwrap().content.to_vec()
}

pub(crate) fn name_of(wire: &[u8]) -> String {
    match PacketView::decode(wire).unwrap() {
        PacketView::Interest(InterestView { name, .. }) => name.to_string(),
        PacketView::Data(data) => data.name.to_string(),
    }
}

pub(crate) fn command_interest(command: Command, parameters: &ControlParameters) -> Vec<u8> {
    static TIME: AtomicU64 = AtomicU64::new(0);
    let unix_ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let time = TIME.fetch_add(1, Ordering::Relaxed) + unix_ms;
    build_command(Scope::Localhost, command, parameters, &DigestSigner, time.to_be_bytes(), time)
        .unwrap()
}

pub(crate) fn response_of(data: &[u8]) -> ControlResponse {
    ControlResponse::decode(&content_of(data)).unwrap()
}

/// Runs the ignored test `name` of this file where 10.1.0.0/16 and 10.2.0.0/16 are this machine's
/// and not loopback, each with its own address as the system's choice. False where the system lets
/// no user make a network of its own.
pub(crate) fn runs_among_hosts(name: &str) -> bool {
    let script = "ip link set lo up && ip addr add 10.1.0.1/16 dev lo && \
                  ip addr add 10.2.0.1/16 dev lo && exec \"$0\" \"$@\"";
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
    unshare.arg(std::env::current_exe().unwrap()).args(["--ignored", "--exact", name]);
    let Ok(output) = unshare.output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("running 1 test") {
        return false;
    }
    assert!(output.status.success(), "{text}");
    true
}
