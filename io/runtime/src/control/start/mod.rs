//! Opens all resources and starts the threads. A failed start leaves nothing behind: dropping a
//! value closes its sockets and ends its threads.

mod sockets;
mod threads;

use std::path::PathBuf;
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Waker};
use weir_base::HashKey;
use weir_face::TlsTrust;
use weir_forward::Command;
use weir_manage::ManagerInput;

use self::sockets::Sockets;
pub(super) use self::sockets::warn_if_shared;
use self::threads::WorkerStarter;
use super::acceptor::Acceptor;
use super::contents::Contents;
use super::disks::OpenDisks;
use super::erasures::Erasures;
use super::faces::Faces;
use super::management::Management;
use super::manager_config::manager_config;
use super::reload::{DeclaredParts, Reloads};
use super::service::Service;
use super::signals::Signals;
use super::snapshots::Snapshots;
use super::store::Store;
use super::workers::Confirmation;
use super::{Control, LISTENER_TOKEN_FIRST, SIGNAL_TOKEN, WAKER_TOKEN, random_u64};
use crate::arena::Preparer;
use crate::check::check_values;
use crate::clock::Clock;
use crate::config::RuntimeConfig;
use crate::contents::Contents as StoreContents;
use crate::error::StartError;
use crate::face_quota::FaceQuota;
use crate::handle::{Handle, HandleParts};
use crate::limits;
use crate::mailbox::{ControlReceiver, ControlSender};
use crate::metrics::{ExtraMetrics, MetricsPages, MetricsServer};

/// Resources that are opened before the first thread starts.
struct Opened {
    config: RuntimeConfig,
    /// Upper limit for later changes of the store's capacity.
    store_bytes_max: u64,
    /// The configuration before the memory settings were lowered.
    declared: DeclaredParts,
    reloads: crossbeam_channel::Sender<()>,
    signals: Option<Signals>,
    sockets: Sockets,
    disks: Option<OpenDisks>,
    poll: Poll,
    sender: ControlSender,
    receiver: ControlReceiver,
    trust: TlsTrust,
}

/// Opens the sockets and starts the threads.
pub(crate) fn start(mut config: RuntimeConfig) -> Result<Handle, StartError> {
    check_values(&config)?;
    if let Err(error) = weir_face::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
    let system = |what| move |source| StartError::System { what, source };
    // Handlers come first. A signal during a slow start, or after the sockets appear, then stops
    // the router cleanly.
    let signals = match config.handle_signals {
        true => Some(Signals::register().map_err(system("signal handlers"))?),
        false => None,
    };
    let trust = TlsTrust::new(config.face_defaults.tls_ca.clone())?;
    let sockets = Sockets::open(&config)?;
    let disk_paths = named_disks(&config);
    let disks = match config.disks.take() {
        Some(disks) => Some(OpenDisks::open(disks, config.threads)?),
        None => None,
    };
    let index_bytes_max = disks.as_ref().map_or(0, OpenDisks::index_bytes);
    let declared = DeclaredParts::of(&config);
    let store_bytes_max = limits::fit_to_limits(&mut config, index_bytes_max);
    limits::log_processors(config.threads);
    let poll = Poll::new().map_err(system("an event queue"))?;
    let waker = Waker::new(poll.registry(), WAKER_TOKEN).map_err(system("an event queue"))?;
    let (sender, receiver) = ControlSender::new(Arc::new(waker));
    let pages = MetricsPages {
        control: sender.clone(),
        extra: ExtraMetrics::default(),
        has_contents: config.metrics_contents,
    };
    let metrics = match config.metrics {
        Some(address) => Some(
            MetricsServer::start(address, pages.clone())
                .map_err(|error| StartError::metrics(address, &error))?,
        ),
        None => None,
    };
    let (reloads, requests) = crossbeam_channel::unbounded();
    let contents = StoreContents::new(sender.clone(), receiver.misses.clone(), config.threads);
    let listening = sockets.listening.clone();
    let keeps_index = config.management.holdings_for_neighbours;
    let mailbox = sender.clone();
    let control = Control::build(Opened {
        config,
        store_bytes_max,
        declared,
        reloads,
        signals,
        sockets,
        disks,
        poll,
        sender,
        receiver,
        trust,
    })?;
    let thread = std::thread::Builder::new()
        .name("weir-control".into())
        .spawn(move || control.run(keeps_index))
        .map_err(system("the control thread"))?;
    let parts =
        HandleParts { control: mailbox, metrics, pages, requests, listening, contents, disk_paths };
    let handle = Handle::new(thread, parts);
    // Fails outside systemd, which is fine.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    Ok(handle)
}

/// The paths of disks that must exist while the router runs.
fn named_disks(config: &RuntimeConfig) -> Vec<PathBuf> {
    let files = config.disks.iter().flat_map(|disks| &disks.files);
    files.filter(|file| !file.unnamed).map(|file| file.path.clone()).collect()
}

impl Control {
    /// Starts the worker threads and creates the components that command them.
    fn build(opened: Opened) -> Result<Self, StartError> {
        let queue_failed = |source| StartError::System { what: "an event queue", source };
        let Opened { config, signals, mut sockets, disks, poll, sender, receiver, trust, .. } =
            opened;
        let clock = Clock::start();
        let hash_key = match &disks {
            Some(disks) => disks.hash_key(),
            None => HashKey::new([random_u64(), random_u64()]),
        };
        let quota = Arc::new(FaceQuota::new(config.faces));
        let (store_bytes, ahead_bytes) = (config.store.capacity_bytes, config.memory_ahead_bytes);
        let memory = Preparer::new(store_bytes, ahead_bytes, config.threads);
        let common = WorkerStarter {
            config: &config,
            clock,
            hash_key,
            quota: &quota,
            memory: memory.as_ref().map(Preparer::arena),
            control: &sender,
        };
        let (workers, threads, disks) = common.start_workers(disks)?;
        let regions = &config.producer_regions;
        workers.send_all_shards(|| Command::SetProducerRegions(regions.clone()));
        let mut management = Management::new(manager_config(&config, opened.store_bytes_max));
        management.push(ManagerInput::Channels(sockets.listening.clone()));
        for (prefix, strategy) in config.strategies.clone() {
            management.push(ManagerInput::SetStrategy { prefix, strategy });
        }
        let shared_memory = sockets.share_memory(&config);
        let acceptor = Acceptor::new(sockets.streams, poll.registry(), LISTENER_TOKEN_FIRST);
        if let Some(signals) = &signals {
            let descriptor = signals.descriptor();
            let source = &mut SourceFd(&descriptor);
            let registered = poll.registry().register(source, SIGNAL_TOKEN, Interest::READABLE);
            registered.map_err(queue_failed)?;
        }
        // Before the ports: the worker threads carry out commands in order, so pins and counted
        // prefixes are in force when the first packet arrives.
        let mut contents = Contents::new(workers.clone(), store_bytes, disks.is_some());
        contents.pin_declared(clock.now(), &config.pins).map_err(|error| {
            StartError::Config(format!("[[pin]]: {error}; choose smaller sizes, or a larger store"))
        })?;
        contents.count_prefixes(&config.counted_prefixes);
        let mut faces = Faces::new(&config, workers.clone(), quota, sender.clone(), trust);
        for (format, ports) in sockets.ports {
            faces.add_port(format, ports);
        }
        Ok(Self {
            clock,
            poll,
            receiver,
            signals,
            acceptor: acceptor.map_err(queue_failed)?,
            faces,
            management,
            reloads: Reloads::new(opened.reloads, opened.declared),
            service: Service::new(clock.now(), &workers),
            snapshots: Snapshots::new(workers.clone(), sender, shared_memory),
            erasures: Erasures::new(workers.clone()),
            contents,
            store: Store::new(workers.clone(), config.store, memory),
            disks,
            confirmation: Confirmation::new(workers.clone()),
            workers,
            threads,
            controller: None,
            is_stopping: false,
            failure: None,
        })
    }
}
