//! A small replacement for the store. It respects the depth and remembers what it wrote.
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use weir_base::Packet;
use weir_disk::{DiskFileConfig, DiskMonitor, DiskPorts, DiskSet, Engine, open};
use weir_store::disk::{DiskOp, DiskOpId, DiskOpKind, DiskOutcome, WriteChunk};

pub(crate) const MIB: u64 = 1 << 20;

/// Longer than anything takes. Only a hang gets there.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn config(path: &std::path::Path, mib: u64) -> DiskFileConfig {
    DiskFileConfig { region_bytes: Some(MIB), ..DiskFileConfig::new(path, Some(mib * MIB)) }
}

/// All combinations of engine and direct I/O.
pub(crate) fn variants() -> Vec<(Engine, bool)> {
    let mut variants = vec![(Engine::Threads(4), true), (Engine::Threads(4), false)];
    if has_io_uring() {
        variants.extend([(Engine::IoUring, true), (Engine::IoUring, false)]);
    } else {
        eprintln!("no io_uring here: it is NOT tested");
    }
    variants
}

fn has_io_uring() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder.path().join("probe"), 4);
    config.engine = Engine::IoUring;
    open(&[config], 1).unwrap().start(1, 1).is_ok()
}

pub(crate) struct Shard {
    pub(crate) ports: DiskPorts,
    poll: Poll,
    events: Events,
    next: u64,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
}

pub(crate) fn start(set: DiskSet, depth: u32, shards: usize) -> (DiskMonitor, Vec<Shard>) {
    let (monitor, ports) = set.start(depth, shards).unwrap();
    let shards = ports.into_iter().map(|ports| {
        let poll = Poll::new().unwrap();
        for source in ports.sources() {
            let source = source.as_raw_fd();
            poll.registry().register(&mut SourceFd(&source), Token(0), Interest::READABLE).unwrap();
        }
        let events = Events::with_capacity(4);
        Shard { ports, poll, events, next: 0, outcomes: Vec::new() }
    });
    let shards = shards.collect();
    (monitor, shards)
}

impl Shard {
    pub(crate) fn submit(&mut self, disk: u8, kind: DiskOpKind) -> DiskOpId {
        self.next += 1;
        let id = DiskOpId(self.next);
        self.ports.submit(DiskOp { id, disk, kind });
        id
    }

    /// The outcomes, at least one unless the time is over.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<(DiskOpId, DiskOutcome)> {
        let until = Instant::now() + time;
        loop {
            self.ports.drain(&mut self.outcomes);
            // Operations may have to be started again.
            self.ports.flush();
            if !self.outcomes.is_empty() {
                return std::mem::take(&mut self.outcomes);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Vec::new();
            }
            match self.poll.poll(&mut self.events, Some(left)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// The outcome of an operation that is the only one in progress.
    pub(crate) fn one(&mut self, disk: u8, kind: DiskOpKind) -> DiskOutcome {
        let id = self.submit(disk, kind);
        let outcomes = self.wait(LONG);
        assert_eq!(outcomes.len(), 1, "one answer for one operation");
        assert_eq!(outcomes[0].0, id);
        outcomes.into_iter().next().unwrap().1
    }
}

pub(crate) fn data(len: usize, seed: u64) -> Packet {
    let mut octets = vec![0; len];
    weir_base::Rng::from_seed(seed).fill(&mut octets);
    Packet::from(octets)
}

pub(crate) fn write(
    offset: u64,
    sequence: u32,
    chunks: Vec<WriteChunk>,
    block_bytes: u32,
) -> DiskOpKind {
    let len = chunks.iter().map(|chunk| chunk.size(block_bytes)).sum::<u64>() as u32;
    DiskOpKind::Write { offset, len, sequence, chunks }
}

pub(crate) fn record(packet: Packet) -> WriteChunk {
    WriteChunk::Data { packet, fresh_until_unix_ms: 77 }
}
