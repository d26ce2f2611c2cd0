//! Opening everything and starting the threads. What fails leaves nothing behind: sockets and
//! threads go with the values that hold them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token, Waker};
use weir_base::{HashKey, Instant};
use weir_disk::DiskPorts;
use weir_face::{BindError, SharedMemory, TcpListener, UdpOptions, UdpPort, UnixListener};
use weir_forward::{BusyPolicy, Command, RouterConfig};
use weir_link::{CodecConfig, EgressConfig, LinkConfig, MarkingConfig, RunsConfig};
use weir_manage::{Manager, ManagerConfig, ManagerInput, ManagerOutbox, StoreSettings};
use weir_store::disk::DiskTierConfig;

use super::anchors::Anchors;
use super::balance::Balance;
use super::connect::Connector;
use super::disks::{Disks, OpenDisks};
use super::management::shard_store;
use super::operators::Operators;
use super::signals::Signals;
use super::table::FaceTable;
use super::{Control, LISTENER_TOKEN_FIRST, SIGNAL_TOKEN, WAKER_TOKEN, WorkerHandle};
use crate::arena::{Arena, Preparer};
use crate::clock::Clock;
use crate::config::{FaceDefaults, Listener, RuntimeConfig, THREADS_MAX};
use crate::cross::CrossPorts;
use crate::error::StartError;
use crate::face_quota::FaceQuota;
use crate::handle::Handle;
use crate::limits;
use crate::mailbox::{ControlReceiver, ControlSender};
use crate::memory::{MemoryShares, memory_bytes_least, shared_bytes};
use crate::message::ToWorker;
use crate::metrics::MetricsServer;
use crate::rate_limited_log::RateLimitedLog;
use crate::worker::{Siblings, WAKER_TOKEN as WORKER_WAKER_TOKEN, Worker, WorkerSetup};

/// All sockets of the configuration.
#[derive(Default)]
struct Sockets {
    streams: Vec<weir_face::Listener>,
    /// Of each port as many as there are packet threads, where the system steers.
    ports: Vec<Vec<UdpPort>>,
    listening: Vec<String>,
}

/// Opens the sockets, starts the threads.
pub(crate) fn start(mut config: RuntimeConfig) -> Result<Handle, StartError> {
    check(&config)?;
    if let Err(error) = weir_face::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let system = |what| move |source| StartError::System { what, source };
    // Before anything that takes time, or that others take for a sign that the router runs: a
    // signal that comes meanwhile stops the router cleanly.
    let signals = match config.handle_signals {
        true => Some(Signals::register().map_err(system("signal handlers"))?),
        false => None,
    };
    let sockets = open_sockets(&config)?;
    let disks = match config.disks.take() {
        Some(disks) => Some(OpenDisks::open(disks, config.threads)?),
        None => None,
    };
    let index_bytes_max = disks.as_ref().map_or(0, OpenDisks::index_bytes);
    let store_bytes_max = limits::fit(&mut config, index_bytes_max);
    limits::tell_processors(config.threads);
    let poll = Poll::new().map_err(system("an event queue"))?;
    let waker = Waker::new(poll.registry(), WAKER_TOKEN).map_err(system("an event queue"))?;
    let (sender, receiver) = ControlSender::new(Arc::new(waker));
    let metrics = match config.metrics {
        Some(address) => Some(MetricsServer::start(address, sender.clone())?),
        None => None,
    };
    let contents = (receiver.missed.clone(), config.threads);
    let listening = sockets.listening.clone();
    let open = (sockets, disks, signals);
    let control = build(config, store_bytes_max, open, poll, (sender.clone(), receiver))?;
    let thread = std::thread::Builder::new()
        .name("weir-control".into())
        .spawn(move || control.run())
        .map_err(system("the control thread"))?;
    let handle = Handle::new(sender, thread, metrics, listening, contents);
    // Outside systemd no program waits for it.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    Ok(handle)
}

fn check(config: &RuntimeConfig) -> Result<(), StartError> {
    let fail = |what: String| Err(StartError::Config(what));
    if !(1..=THREADS_MAX).contains(&config.threads) {
        return fail(format!("threads is {}; give 1 to {THREADS_MAX}", config.threads));
    }
    let least_bytes = memory_bytes_least(config.threads);
    if config.memory_bytes_max < least_bytes {
        return fail(format!(
            "memory_bytes_max is {}; {} packet threads need {least_bytes}",
            config.memory_bytes_max, config.threads
        ));
    }
    if config.pit_entries_max < config.threads {
        return fail("pit_entries_max leaves no room at all; give at least 1000".into());
    }
    if config.management.localhop && config.management.trust_anchors.is_empty() {
        return fail("localhop management without trust anchors would obey nobody".into());
    }
    Ok(())
}

/// A listening address that the machine cannot have, because it lacks IPv6.
fn lacks_family(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

fn open_sockets(config: &RuntimeConfig) -> Result<Sockets, StartError> {
    let (threads, access) = (config.threads, config.unix_access);
    let mut sockets = Sockets::default();
    for listener in &config.listeners {
        match listener {
            Listener::Unix(path) => sockets.add_unix(UnixListener::bind(path, access)?),
            Listener::UnixDefault => sockets.add_unix(UnixListener::bind_default(access)?),
            &Listener::Tcp { address, required } => match TcpListener::bind(address) {
                Ok(listener) => {
                    sockets.listening.push(listener.local_uri().to_string());
                    sockets.streams.push(weir_face::Listener::Tcp(listener));
                }
                Err(BindError::Io { source, .. }) if !required && lacks_family(&source) => {
                    tracing::info!(%address, "no TCP here: no such address family");
                }
                Err(BindError::Io { source, .. }) => {
                    return Err(StartError::Listen { scheme: "tcp", address, source });
                }
                Err(error) => return Err(error.into()),
            },
            &Listener::Udp { address, required } => {
                match UdpPort::bind_all(address, threads, &UdpOptions::default()) {
                    Ok((ports, shared)) => {
                        note_sharing(&ports, &shared);
                        sockets.add_udp(ports);
                    }
                    Err(error) if !required && lacks_family(&error) => {
                        tracing::info!(%address, "no UDP here: no such address family");
                    }
                    Err(source) => {
                        return Err(StartError::Listen { scheme: "udp", address, source });
                    }
                }
            }
        }
    }
    sockets.tell_lacking();
    Ok(sockets)
}

impl Sockets {
    fn add_unix(&mut self, listener: UnixListener) {
        self.listening.push(listener.local_uri().to_string());
        self.streams.push(weir_face::Listener::Unix(listener));
    }

    fn add_udp(&mut self, ports: Vec<UdpPort>) {
        let local = ports[0].local_addr();
        self.listening.push(weir_face::FaceUri::Udp(local).to_string());
        if let Ok(granted_bytes) = ports[0].receive_buffer_bytes()
            && granted_bytes < UdpOptions::default().receive_buffer_bytes / 4
        {
            tracing::warn!(
                granted_bytes,
                "small UDP receive buffer: fast peers will lose packets; raise it with \
                 `sysctl -w net.core.rmem_max=8388608`"
            );
        }
        self.ports.push(ports);
    }

    /// What one port lacks, all of them do.
    fn tell_lacking(&self) {
        let ports = self.ports.iter().flatten();
        let lacking = ports.map(UdpPort::lacking).max_by_key(|lacking| lacking.len());
        if let Some(lacking @ [_, ..]) = lacking {
            tracing::warn!(
                lacking = lacking.join(", "),
                "UDP takes more processor time for each packet than it needs to: allow what the \
                 system lacks (Linux 5.0 or later, seccomp)"
            );
        }
    }
}

/// Says so where one packet thread reads all of a port.
pub(super) fn note_sharing(ports: &[UdpPort], shared: &io::Result<()>) {
    if let Err(error) = shared {
        tracing::warn!(
            %error,
            local = %ports[0].local_addr(),
            "one packet thread reads all of this UDP port: the system gives no more sockets for \
             it, or does not steer peers to them (SO_ATTACH_REUSEPORT_CBPF)"
        );
    }
}

/// The configuration's defaults on top of the link's.
pub(super) fn link_config(defaults: &FaceDefaults, base: LinkConfig) -> LinkConfig {
    let marking = MarkingConfig {
        is_on: defaults.congestion_marking,
        policy: defaults.marking,
        threshold_bytes: defaults.mark_threshold_bytes,
        interval_ns: defaults.mark_interval.as_nanos() as u64,
        capacity_bytes: defaults.queue_bytes_max as u64,
    };
    let egress = EgressConfig {
        queue_bytes_max: defaults.queue_bytes_max as u64,
        marking,
        discipline: defaults.discipline,
        seed: random_u64(),
    };
    // A link that cuts packets is one of datagrams.
    let reliability = defaults.reliability && base.codec.fragmentation;
    let runs = if defaults.runs { RunsConfig::Answers } else { RunsConfig::Off };
    let codec = CodecConfig { sequence_start: random_u64(), reliability, runs, ..base.codec };
    LinkConfig { codec, egress, shaping: defaults.shaping, shaping_seed: random_u64() }
}

/// From the system, without which a router cannot keep strangers from its hash tables.
fn random_u64() -> u64 {
    getrandom::u64().expect("the system's random numbers do not fail after start-up")
}

fn build(
    config: RuntimeConfig,
    store_bytes_max: u64,
    (mut sockets, disks, signals): (Sockets, Option<OpenDisks>, Option<Signals>),
    poll: Poll,
    (sender, receiver): (ControlSender, ControlReceiver),
) -> Result<Control, StartError> {
    let clock = Clock::start();
    let shard_key = match &disks {
        Some(disks) => disks.hash_key(),
        None => HashKey::new([random_u64(), random_u64()]),
    };
    let quota = Arc::new(FaceQuota::new(config.faces));
    let (store_bytes, ahead_bytes) = (config.store.capacity_bytes, config.memory_ahead_bytes);
    let memory = Preparer::new(store_bytes, ahead_bytes, config.threads);
    let arena = memory.as_ref().map(Preparer::arena);
    let (workers, disks) =
        start_workers(&config, clock, arena, (shard_key, disks), &quota, &sender)?;
    let mut manager_outbox = ManagerOutbox::default();
    let manager = Manager::new(manager_config(&config, store_bytes_max), &mut manager_outbox);
    let mut manager_inputs = VecDeque::from([ManagerInput::Channels(sockets.listening)]);
    for (prefix, strategy) in config.strategies.clone() {
        manager_inputs.push_back(ManagerInput::SetStrategy { prefix, strategy });
    }
    let shared_memory = share_memory(&config, &mut sockets.streams);
    let mut control = Control {
        operators: Operators::new(&config),
        static_attempts: vec![0; config.static_faces.len()],
        balance: Balance::new(config.threads, config.rebalance_interval.as_nanos() as u64),
        config,
        clock,
        poll,
        sender: sender.clone(),
        receiver,
        listeners: sockets.streams,
        accept_again: None,
        signals,
        workers,
        next_worker: 0,
        quota,
        shared_memory,
        shard_key,
        disks,
        memory,
        faces: FaceTable::default(),
        ports: BTreeMap::new(),
        connector: Connector::new(sender),
        retries: Vec::new(),
        manager,
        manager_inputs,
        manager_outbox,
        snapshots: HashMap::new(),
        erasures: HashMap::new(),
        contents: super::contents::State::default(),
        next_transaction: 1,
        refused_connections: 0,
        refusals: RateLimitedLog::default(),
        accept_failures: RateLimitedLog::default(),
        displace_at: Instant::ZERO,
        is_stopping: false,
        failure: None,
    };
    control.watch().map_err(|source| StartError::System { what: "an event queue", source })?;
    let regions = control.config.producer_regions.clone();
    control.tell_all(|| ToWorker::Router(Command::SetProducerRegions(regions.clone())));
    for ports in sockets.ports {
        control.add_port(ports);
    }
    Ok(control)
}

/// Lets applications share memory with the router, if that is so configured.
fn share_memory(
    config: &RuntimeConfig,
    listeners: &mut [weir_face::Listener],
) -> Option<Arc<SharedMemory>> {
    if !config.face_defaults.shared_memory {
        return None;
    }
    let memory = Arc::new(SharedMemory::new(shared_bytes(config.memory_bytes_max)));
    for listener in listeners {
        if let weir_face::Listener::Unix(listener) = listener {
            listener.share_memory(Arc::clone(&memory));
        }
    }
    Some(memory)
}

impl Control {
    fn watch(&mut self) -> io::Result<()> {
        let registry = self.poll.registry();
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let token = Token(LISTENER_TOKEN_FIRST + index);
            registry.register(listener, token, Interest::READABLE)?;
        }
        match &self.signals {
            Some(signals) => self.register_raw(signals.descriptor(), SIGNAL_TOKEN),
            None => Ok(()),
        }
    }
}

fn manager_config(config: &RuntimeConfig, store_bytes_max: u64) -> ManagerConfig {
    let anchors = config.management.trust_anchors.clone();
    ManagerConfig {
        anchors: (!anchors.is_empty()).then(|| Box::new(Anchors(anchors)) as _),
        local_registration: config.management.local_registration,
        operators: Operators::new(config).describe(),
        localhop: config.management.localhop,
        holdings_for_neighbours: config.management.holdings_for_neighbours,
        store: StoreSettings {
            capacity_bytes: config.store.capacity_bytes,
            admit: config.store.admit,
            serve: config.store.serve,
        },
        store_bytes_max,
        routes_max: config.fib_entries_max,
        fib_entries_max: config.fib_entries_max,
        ..ManagerConfig::default()
    }
}

/// What the store of a shard has of the disks, and its way to them.
type ShardDisks = (DiskTierConfig, DiskPorts);

fn start_disks(
    disks: Option<OpenDisks>,
    clock: Clock,
    shards: usize,
    store_bytes: u64,
) -> Result<(Option<Disks>, Vec<ShardDisks>), StartError> {
    let Some(disks) = disks else { return Ok((None, Vec::new())) };
    let tiers: Vec<_> =
        (0..shards).map(|shard| disks.shard_tier(clock, shard, store_bytes)).collect();
    let (disks, ports) = disks.start(clock.now())?;
    Ok((Some(disks), tiers.into_iter().zip(ports).collect()))
}

/// What a packet thread waits for, and what rouses it.
fn event_queue(disks: Option<&DiskPorts>) -> io::Result<(Poll, Waker)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WORKER_WAKER_TOKEN)?;
    for source in disks.into_iter().flat_map(DiskPorts::sources) {
        let source = source.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), WORKER_WAKER_TOKEN, Interest::READABLE)?;
    }
    Ok((poll, waker))
}

/// What all shards have in common, and the share of each.
fn shard_config(config: &RuntimeConfig) -> RouterConfig {
    let count = config.threads;
    let memory = MemoryShares::of(config.memory_bytes_max, count);
    RouterConfig {
        shard_count: count as u16,
        seed: random_u64(),
        store: shard_store(&config.store, count),
        pit_entries_max: config.pit_entries_max / count,
        pit_entries_per_face_max: config.pit_entries_per_face_max.div_ceil(count),
        pit_bytes_max: memory.pit_bytes,
        pool_bytes_max: memory.pool_bytes as usize / 2,
        remote_lifetime_ns_max: config.interest_lifetime_max.as_nanos() as u64,
        name_components_max: config.name_components_max,
        data_source: config.data_source,
        unsolicited: config.unsolicited,
        ..RouterConfig::default()
    }
}

fn start_workers(
    config: &RuntimeConfig,
    clock: Clock,
    memory: Option<&Arc<Arena>>,
    (shard_key, disks): (HashKey, Option<OpenDisks>),
    quota: &Arc<FaceQuota>,
    control: &ControlSender,
) -> Result<(Vec<WorkerHandle>, Option<Disks>), StartError> {
    let system = |what| move |source| StartError::System { what, source };
    let count = config.threads;
    let (mut polls, mut wakers) = (Vec::new(), Vec::new());
    let busy = disks.as_ref().map_or_else(BusyPolicy::default, OpenDisks::busy);
    let (disks, disk_parts) = start_disks(disks, clock, count, config.store.capacity_bytes)?;
    for worker in 0..count {
        let ports = disk_parts.get(worker).map(|(_, ports)| ports);
        let (poll, waker) = event_queue(ports).map_err(system("an event queue"))?;
        polls.push(poll);
        wakers.push(Arc::new(waker));
    }
    let channels: Vec<_> = (0..count).map(|_| crossbeam_channel::unbounded::<ToWorker>()).collect();
    let queues: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
    let mut disk_parts = disk_parts.into_iter();
    let mut rings = CrossPorts::connect_all(&wakers).into_iter();
    let mut handles = Vec::new();
    for (index, (poll, (commands, receiver))) in polls.into_iter().zip(channels).enumerate() {
        let ports = rings.next().expect("one set of rings for each thread");
        let (disk, disk_ports) = disk_parts.next().unzip();
        let siblings =
            (count > 1).then(|| Siblings::new(index as u16, shard_key, ports, queues.clone()));
        let setup = WorkerSetup {
            index: index as u16,
            clock,
            poll,
            router: RouterConfig {
                shard: index as u16,
                hash_key: shard_key,
                disk,
                busy: busy.clone(),
                memory: memory.map(|arena| Arc::clone(arena) as _),
                ..shard_config(config)
            },
            face_defaults: config.face_defaults,
            rebalance_interval: config.rebalance_interval,
            memory: MemoryShares::of(config.memory_bytes_max, count),
            commands: receiver,
            control: control.clone(),
            quota: Arc::clone(quota),
            siblings,
            disks: disk_ports,
        };
        let thread = std::thread::Builder::new()
            .name(format!("weir-packet-{index}"))
            .spawn(move || Worker::new(setup).run())
            .map_err(system("a packet thread"))?;
        let waker = Arc::clone(&wakers[index]);
        handles.push(WorkerHandle { commands, waker, thread: Some(thread) });
    }
    Ok((handles, disks))
}
