//! Starts the worker threads.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Waker};
use weir_base::HashKey;
use weir_disk::DiskPorts;
use weir_forward::{BusyPolicy, RouterConfig};
use weir_store::disk::DiskTierConfig;

use crate::arena::Arena;
use crate::clock::Clock;
use crate::config::RuntimeConfig;
use crate::control::disks::{Disks, OpenDisks};
use crate::control::random_u64;
use crate::control::store::shard_store;
use crate::control::workers::{WorkerQueue, WorkerThreads, Workers};
use crate::cross::ShardRings;
use crate::error::StartError;
use crate::face_quota::FaceQuota;
use crate::mailbox::ControlSender;
use crate::memory::MemoryShares;
use crate::message::ToWorker;
use crate::worker::{Siblings, WAKER_TOKEN, Worker, WorkerSetup};

/// What all worker threads share.
pub(super) struct WorkerStarter<'a> {
    pub(super) config: &'a RuntimeConfig,
    pub(super) clock: Clock,
    pub(super) hash_key: HashKey,
    pub(super) quota: &'a Arc<FaceQuota>,
    pub(super) memory: Option<&'a Arc<Arena>>,
    pub(super) control: &'a ControlSender,
}

/// One shard's disk tier configuration and ports.
#[derive(Default)]
struct ShardDisks {
    tier: Option<DiskTierConfig>,
    ports: Option<DiskPorts>,
}

impl WorkerStarter<'_> {
    /// Starts the disks and the threads. If one thread fails to start, the others are stopped.
    pub(super) fn start_workers(
        &self,
        disks: Option<OpenDisks>,
    ) -> Result<(Workers, WorkerThreads, Option<Disks>), StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let count = self.config.threads;
        let router = self.shard_config(disks.as_ref());
        let (disks, shard_disks) = self.start_disks(disks)?;
        let (mut polls, mut wakers) = (Vec::new(), Vec::new());
        for disks in &shard_disks {
            let queue = event_queue(disks.ports.as_ref());
            let (poll, waker) = queue.map_err(system("an event queue"))?;
            polls.push(poll);
            wakers.push(Arc::new(waker));
        }
        // All queues and rings exist before the first thread starts, because each thread gets an
        // end of every ring and queue that concerns it.
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| crossbeam_channel::unbounded::<ToWorker>()).unzip();
        let queues = senders.iter().cloned().zip(wakers.iter().cloned());
        let queues = queues.map(|(commands, waker)| WorkerQueue { commands, waker });
        let workers = Workers::new(queues.collect(), self.hash_key);
        let mut threads = WorkerThreads::new(workers.clone());
        let rings = ShardRings::connect_all(&wakers);
        let parts = polls.into_iter().zip(receivers).zip(rings).zip(shard_disks);
        for (index, (((poll, commands), rings), disks)) in (0..).zip(parts) {
            let siblings =
                (count > 1).then(|| Siblings::new(index, self.hash_key, rings, senders.clone()));
            let setup = WorkerSetup {
                index,
                clock: self.clock,
                poll,
                router: RouterConfig {
                    shard: index,
                    seed: random_u64(),
                    disk: disks.tier,
                    memory: self.memory.map(|arena| Arc::clone(arena) as _),
                    ..router.clone()
                },
                extension: self.config.extension.clone(),
                face_defaults: self.config.face_defaults.clone(),
                rebalance_interval: self.config.rebalance_interval,
                memory: self.memory_shares(),
                commands,
                control: self.control.clone(),
                quota: Arc::clone(self.quota),
                siblings,
                disks: disks.ports,
            };
            let thread = std::thread::Builder::new()
                .name(format!("weir-packet-{index}"))
                .spawn(move || Worker::new(setup).run())
                .map_err(system("a worker thread"))?;
            threads.push(thread);
        }
        Ok((workers, threads, disks))
    }

    fn start_disks(
        &self,
        disks: Option<OpenDisks>,
    ) -> Result<(Option<Disks>, Vec<ShardDisks>), StartError> {
        let shards = 0..self.config.threads;
        let Some(disks) = disks else {
            return Ok((None, shards.map(|_| ShardDisks::default()).collect()));
        };
        let store_bytes = self.config.store.capacity_bytes;
        let tiers: Vec<_> =
            shards.map(|shard| disks.shard_tier(self.clock, shard, store_bytes)).collect();
        let (disks, ports) = disks.start(self.clock.now())?;
        let parts = tiers.into_iter().zip(ports);
        let parts = parts.map(|(tier, ports)| ShardDisks { tier: Some(tier), ports: Some(ports) });
        Ok((Some(disks), parts.collect()))
    }

    fn memory_shares(&self) -> MemoryShares {
        MemoryShares::of(self.config.memory_bytes_max, self.config.threads)
    }

    /// The configuration that all shards share, with one shard's share of each limit.
    fn shard_config(&self, disks: Option<&OpenDisks>) -> RouterConfig {
        let (config, count) = (self.config, self.config.threads);
        let memory = self.memory_shares();
        RouterConfig {
            shard_count: count as u16,
            hash_key: self.hash_key,
            busy: disks.map_or_else(BusyPolicy::default, OpenDisks::busy),
            store: shard_store(&config.store, count as u16),
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
}

/// Creates a worker thread's event queue and the waker for it.
fn event_queue(disks: Option<&DiskPorts>) -> io::Result<(Poll, Waker)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER_TOKEN)?;
    for source in disks.into_iter().flat_map(DiskPorts::sources) {
        let source = source.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), WAKER_TOKEN, Interest::READABLE)?;
    }
    Ok((poll, waker))
}
