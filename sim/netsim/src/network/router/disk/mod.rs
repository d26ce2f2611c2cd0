//! The disks of a router: when operations end, and what they do.

mod image;
mod producers;

use weir_base::{HashKey, Instant, Rng, Slab};
use weir_netem::{DiskConfig, DiskModel, DiskOp as Job, DiskOpKind as JobKind, ServiceTime};
use weir_store::disk::{
    DiskFailure, DiskGeometry, DiskOp, DiskOpId, DiskOpKind, DiskOutcome, DiskTierConfig,
};

pub(crate) use self::image::Acknowledged;
use self::image::{Blocks, DiskImage, ImageWrite, RecordFormat};
pub(in crate::network) use self::producers::ProducerSet;
use crate::check::disk as promises;
use crate::check::recent::TraceKind;
use weir_plan::DiskPlan;
use weir_plan::hash::of_octets;

/// Where regions begin. A real disk has its superblock before that offset.
const DATA_OFFSET: u64 = 1 << 16;
/// Wall-clock time at the start of a run, ms since 1970. The value is arbitrary.
const UNIX_MS_AT_ZERO: u64 = 1_700_000_000_000;

/// The checksum of records on simulated disks. It detects the changes that faults make.
fn checksum(octets: &[u8]) -> u32 {
    let hash = of_octets(octets);
    (hash ^ hash >> 32) as u32
}

/// An operation in progress.
#[derive(Debug)]
struct ActiveOp {
    shard: u16,
    op: DiskOp,
}

/// Current faults of one disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskFaults {
    pub(crate) errors: f64,
    pub(crate) flipped: f64,
    pub(crate) lost: f64,
    pub(crate) torn: f64,
    /// Number of faults that leave no space.
    pub(crate) full: f64,
}

impl DiskFaults {
    /// Adds a fault's effects, or removes them. All values are 0 again after the last fault.
    fn changed(self, by: Self, begins: bool) -> Self {
        let add = |mine: f64, change: f64| {
            let sum = if begins { mine + change } else { mine - change };
            if sum < 1e-12 { 0.0 } else { sum }
        };
        Self {
            errors: add(self.errors, by.errors),
            flipped: add(self.flipped, by.flipped),
            lost: add(self.lost, by.lost),
            torn: add(self.torn, by.torn),
            full: add(self.full, by.full),
        }
    }
}

struct Disk {
    /// `None` if the disk is shared; the network then owns the model.
    model: Option<DiskModel>,
    image: DiskImage,
    under_way: Slab<ActiveOp>,
    under_way_by_shard: Vec<u32>,
    faults: DiskFaults,
    /// The highest generation written to each region; 0 for none.
    sequences: Vec<u32>,
}

/// An operation that a shared disk has finished.
pub(in crate::network) struct EndedOp {
    /// The router's number for it.
    pub(in crate::network) id: u64,
    pub(in crate::network) bytes: u32,
    pub(in crate::network) has_failed: bool,
}

/// Operations for a shared disk, each with this router's number.
pub(in crate::network) type SharedOperations<'a> = std::vec::Drain<'a, Job>;

/// The result of a finished operation.
pub(crate) struct CompletedOp {
    pub(crate) shard: usize,
    pub(crate) id: DiskOpId,
    pub(crate) outcome: DiskOutcome,
    pub(crate) what: TraceKind,
    pub(crate) bytes: u32,
}

/// All disks of a router. They survive its crashes.
pub(crate) struct Disks {
    plan: DiskPlan,
    shards: u16,
    /// Maximum number of operations of a shard in progress on one disk.
    depth: u32,
    format: RecordFormat,
    disks: Vec<Disk>,
    error_probability: f64,
    rng: Rng,
    /// Operations to pass to the shared disk.
    shared: Vec<Job>,
    /// The first failed check of an operation.
    check_failure: Option<String>,
}

impl Disks {
    /// Empty disks. All their random numbers come from `seed`.
    pub(crate) fn new(plan: &DiskPlan, shards: u16, seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let format =
            RecordFormat { store_id: rng.next_u64(), block_bytes: plan.block_bytes, checksum };
        let regions = plan.regions();
        let bytes = DATA_OFFSET + u64::from(regions) * plan.region_bytes;
        let config = DiskConfig { queue_max: u32::MAX, ..plan.device.clone() };
        let is_shared = plan.shared_as.is_some();
        let disk = |_| Disk {
            model: (!is_shared).then(|| DiskModel::new(config.clone(), rng.next_u64())),
            image: DiskImage::new(format, bytes),
            under_way: Slab::new(),
            under_way_by_shard: vec![0; usize::from(shards)],
            faults: DiskFaults::default(),
            sequences: vec![0; regions as usize],
        };
        let mut disks = Self {
            disks: (0..plan.disks).map(disk).collect(),
            plan: plan.clone(),
            shards,
            depth: 0,
            format,
            error_probability: plan.device.error_probability,
            rng,
            shared: Vec::new(),
            check_failure: None,
        };
        // The depth is the same for all shards and does not depend on the key.
        disks.depth = disks.tier(0, HashKey::new([0, 0])).depth;
        disks
    }

    /// The configuration of a shard's disk tier.
    pub(crate) fn tier(&self, shard: u16, hash_key: HashKey) -> DiskTierConfig {
        let plan = &self.plan;
        let regions = plan.regions();
        let geometry = DiskGeometry {
            data_offset: DATA_OFFSET,
            region_bytes: plan.region_bytes,
            block_bytes: plan.block_bytes,
            first: shard.into(),
            stride: self.shards.into(),
            regions: regions.saturating_sub(shard.into()).div_ceil(self.shards.into()),
            is_writable: true,
        };
        let geometries = vec![geometry; self.disks.len()];
        let tier = DiskTierConfig {
            unix_ms_at_zero: UNIX_MS_AT_ZERO,
            ..DiskTierConfig::new(geometries, self.format.store_id, hash_key, checksum)
        };
        plan.tier(tier).for_shard(self.shards.into())
    }

    /// Submits the operations of a shard.
    pub(crate) fn submit(&mut self, now: Instant, shard: usize, ops: &mut Vec<DiskOp>) {
        for op in ops.drain(..) {
            let Some(disk) = self.disks.get_mut(usize::from(op.disk)) else {
                self.check_failure = Some(format!(
                    "an operation names disk {}, which does not exist: {:?}",
                    op.disk, op.kind
                ));
                continue;
            };
            let (kind, bytes) = disk.note(&op, self.plan.region_bytes);
            disk.under_way_by_shard[shard] += 1;
            let under_way = disk.under_way_by_shard[shard];
            let checked = promises::check_depth(under_way, self.depth)
                .and_then(|()| promises::aligned(&op.kind, self.plan.block_bytes));
            if let Err(what) = checked {
                self.check_failure = Some(what);
            }
            // The model sees only this number, the kind and the length.
            let id = u64::from(disk.under_way.insert(ActiveOp { shard: shard as u16, op }));
            let job = Job { id, kind, bytes };
            match &mut disk.model {
                Some(model) => {
                    let taken = model.submit(now, job);
                    debug_assert!(taken.is_ok(), "the model's queue has no bound");
                }
                None => self.shared.push(job),
            }
        }
    }

    /// Takes the operations for the shared disk.
    pub(crate) fn take_shared(&mut self) -> SharedOperations<'_> {
        self.shared.drain(..)
    }

    /// Finishes an operation that the shared disk has served.
    pub(crate) fn end_shared(
        &mut self,
        ended: EndedOp,
        producers: &mut ProducerSet,
    ) -> CompletedOp {
        self.end(0, ended, producers)
    }

    fn end(&mut self, index: usize, ended: EndedOp, producers: &mut ProducerSet) -> CompletedOp {
        let EndedOp { id, bytes, has_failed } = ended;
        let disk = &mut self.disks[index];
        let ActiveOp { shard, op } = disk.under_way.remove(id as u32);
        disk.under_way_by_shard[usize::from(shard)] -= 1;
        let id = op.id;
        let (outcome, what) = disk.carry_out(op.kind, has_failed, &mut self.rng, producers);
        CompletedOp { shard: shard.into(), id, outcome, what, bytes }
    }

    /// When the next operation ends.
    #[inline]
    pub(crate) fn next_completion(&self) -> Option<Instant> {
        self.disks.iter().filter_map(Disk::next_completion).min()
    }

    /// Finishes one operation that ended by `now`, in the order of ending.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        producers: &mut ProducerSet,
    ) -> Option<CompletedOp> {
        let at = self.next_completion().filter(|&at| at <= now)?;
        let index = self.disks.iter().position(|disk| disk.next_completion() == Some(at))?;
        let ended = self.disks[index].model.as_mut()?.complete(now)?;
        let has_failed = ended.result.is_err();
        let ended = EndedOp { id: ended.id, bytes: ended.op.bytes, has_failed };
        Some(self.end(index, ended, producers))
    }

    /// Executes an operation without time or faults, before the run begins.
    pub(crate) fn execute_at_once(
        &mut self,
        op: DiskOp,
        producers: &mut ProducerSet,
    ) -> DiskOutcome {
        let disk = &mut self.disks[usize::from(op.disk)];
        disk.note(&op, self.plan.region_bytes);
        disk.carry_out(op.kind, false, &mut self.rng, producers).0
    }

    /// Crashes the router. Each write in progress takes effect in full, in part or not at all.
    pub(crate) fn crash(&mut self, producers: &mut ProducerSet) {
        let rng = &mut self.rng;
        self.shared.clear();
        for disk in &mut self.disks {
            if let Some(model) = &mut disk.model {
                model.clear();
            }
            let mut under_way = std::mem::replace(&mut disk.under_way, Slab::new());
            disk.under_way_by_shard.fill(0);
            let indexes: Vec<u32> = under_way.iter().map(|(index, _)| index).collect();
            for index in indexes {
                // Reads in progress have no effect. The router that wanted them is gone.
                let DiskOpKind::Write { offset, len, sequence, chunks: parts } =
                    under_way.remove(index).op.kind
                else {
                    continue;
                };
                let blocks = torn_blocks(len / self.plan.block_bytes, rng);
                disk.image.write_some(ImageWrite { offset, sequence, parts }, blocks, producers);
            }
        }
    }

    /// Begins or ends a fault of a disk.
    pub(crate) fn change_faults(&mut self, disk: u8, by: DiskFaults, begins: bool) {
        let Some(disk) = self.disks.get_mut(usize::from(disk)) else { return };
        disk.faults = disk.faults.changed(by, begins);
        if let Some(model) = &mut disk.model {
            model.set_error_probability(self.error_probability + disk.faults.errors);
        }
    }

    /// Stalls one disk, or all, until the given time.
    pub(crate) fn stall(&mut self, now: Instant, disk: Option<u8>, until: Instant) {
        for (index, state) in self.disks.iter_mut().enumerate() {
            if disk.is_none_or(|disk| usize::from(disk) == index)
                && let Some(model) = &mut state.model
            {
                model.stall(now, until);
            }
        }
    }

    /// Returns the first check that failed since the last call.
    #[inline]
    pub(crate) fn take_failure(&mut self) -> Result<(), String> {
        self.check_failure.take().map_or(Ok(()), Err)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.disks.iter().map(|disk| disk.under_way.len()).sum()
    }

    /// Acknowledged records that the store cannot have evicted yet, each with its shard. The sample
    /// of each disk has fewer than twice `count_max` records; `skip` chooses where it starts.
    pub(crate) fn acknowledged(
        &self,
        count_max: usize,
        skip: usize,
        producers: &mut ProducerSet,
    ) -> Vec<(usize, Acknowledged)> {
        let mut found = Vec::new();
        for disk in &self.disks {
            for record in disk.image.acknowledged(count_max, skip, producers) {
                let region = region_at(record.offset, self.plan.region_bytes);
                let shard = region % usize::from(self.shards);
                if disk.is_current(region, record.sequence, usize::from(self.shards)) {
                    found.push((shard, record));
                }
            }
        }
        found
    }
}

impl Disk {
    #[inline]
    fn next_completion(&self) -> Option<Instant> {
        self.model.as_ref()?.next_completion()
    }

    /// The kind and length of an operation for the device model.
    fn note(&mut self, op: &DiskOp, region_bytes: u64) -> (JobKind, u32) {
        match &op.kind {
            DiskOpKind::ReadRecord { len, .. } | DiskOpKind::ReadRaw { len, .. } => {
                (JobKind::Read, *len)
            }
            DiskOpKind::Write { offset, len, sequence, .. } => {
                let region = region_at(*offset, region_bytes);
                if let Some(highest) = self.sequences.get_mut(region) {
                    *highest = (*highest).max(*sequence);
                }
                (JobKind::Write, *len)
            }
        }
    }

    /// Whether the store must still find a record of this generation in a region. The region must
    /// hold the same generation, and must not be the next one to be overwritten.
    fn is_current(&self, region: usize, sequence: u32, shards: usize) -> bool {
        let siblings = self.sequences.iter().skip(region % shards).step_by(shards);
        let oldest = siblings.min().copied().unwrap_or(0);
        self.sequences[region] == sequence && sequence != oldest
    }

    fn carry_out(
        &mut self,
        kind: DiskOpKind,
        has_failed: bool,
        rng: &mut Rng,
        producers: &mut ProducerSet,
    ) -> (DiskOutcome, TraceKind) {
        let flips = |share: f64, rng: &mut Rng| share > 0.0 && rng.unit() < share;
        match kind {
            DiskOpKind::Write { offset, len, sequence, chunks: parts } => {
                let block_count = len / self.image.block_bytes();
                let write = ImageWrite { offset, sequence, parts };
                self.write(write, block_count, has_failed, rng, producers)
            }
            // A failed read returns nothing. A failed write, above, may still reach the disk in
            // part.
            _ if has_failed => (DiskOutcome::Failed(DiskFailure::Io), TraceKind::DiskFailed),
            DiskOpKind::ReadRecord { offset, len, sequence } => {
                if !flips(self.faults.flipped, rng) {
                    let outcome = self.image.read_record(offset, len, sequence, producers);
                    return (outcome, TraceKind::DiskRead);
                }
                let octets = flipped(self.image.read_octets(offset, len, producers), rng);
                (self.image.open(&octets, offset, sequence), TraceKind::DiskDamaged)
            }
            DiskOpKind::ReadRaw { offset, len } => {
                let octets = self.image.read_octets(offset, len, producers);
                match flips(self.faults.flipped, rng) {
                    true => (DiskOutcome::Raw(flipped(octets, rng)), TraceKind::DiskDamaged),
                    false => (DiskOutcome::Raw(octets), TraceKind::DiskRead),
                }
            }
        }
    }

    fn write(
        &mut self,
        write: ImageWrite,
        block_count: u32,
        has_failed: bool,
        rng: &mut Rng,
        producers: &mut ProducerSet,
    ) -> (DiskOutcome, TraceKind) {
        let failure = match (self.faults.full > 0.0, has_failed) {
            (true, _) => Some(DiskFailure::NoSpace),
            (_, true) => Some(DiskFailure::Io),
            _ => None,
        };
        if let Some(failure) = failure {
            let blocks = torn_blocks(block_count, rng);
            self.image.write_some(write, blocks, producers);
            return (DiskOutcome::Failed(failure), TraceKind::DiskFailed);
        }
        let DiskFaults { lost, torn, .. } = self.faults;
        // Draws no random number if no fault is active, so that faults do not shift later draws.
        let draw = if lost + torn > 0.0 { rng.unit() } else { 1.0 };
        if draw >= lost + torn {
            self.image.write_all(write, producers);
            return (DiskOutcome::Written, TraceKind::DiskWritten);
        }
        // A torn write reaches the disk in part and a lost one not at all. Both report success.
        if draw >= lost {
            let blocks = torn_blocks(block_count, rng);
            self.image.write_some(write, blocks, producers);
        }
        (DiskOutcome::Written, TraceKind::DiskDamaged)
    }
}

/// Chooses all, none or some of the blocks of a write.
fn torn_blocks(count: u32, rng: &mut Rng) -> Blocks {
    match rng.below(4) {
        0 => 0..count,
        1 => 0..0,
        2 => 0..rng.below(count + 1),
        // A disk may write the last blocks first.
        _ => rng.below(count + 1)..count,
    }
}

/// Flips a few bits.
fn flipped(mut octets: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    if !octets.is_empty() {
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(octets.len() as u32) as usize;
            octets[at] ^= 1 << rng.below(8);
        }
    }
    octets
}

fn region_at(offset: u64, region_bytes: u64) -> usize {
    (offset.saturating_sub(DATA_OFFSET) / region_bytes) as usize
}

/// Upper bound on the wait of an Interest before a blocking store, ns, without stalls.
///
/// All operations queued before it must end first, with writes in between. An exponential service
/// time has no bound; the bound used here is exceeded with a probability below 1e-25.
pub(in crate::network) fn interest_wait_max_ns(plan: &DiskPlan) -> u64 {
    let longest = |service: &ServiceTime, per_kib_ns: u64, bytes: u64| {
        let moving_ns = per_kib_ns.saturating_mul(bytes.div_ceil(1024));
        let service_ns = match service {
            ServiceTime::Constant { ns } => *ns,
            ServiceTime::Exponential { mean_ns } => mean_ns.saturating_mul(64),
            ServiceTime::Histogram { bins } => bins.iter().map(|&(ns, _)| ns).max().unwrap_or(0),
        };
        service_ns.saturating_add(moving_ns)
    };
    let device = &plan.device;
    let read_ns = longest(&device.read, device.read_ns_per_kib, 1 << 16);
    let write_bytes = plan.options.write_size_max.bytes.max(1 << 16);
    let write_ns = longest(&device.write, device.write_ns_per_kib, write_bytes);
    let before = u64::from(plan.experiments.interests_waiting_max) + 1;
    let each_ns = read_ns.saturating_add(write_ns.saturating_mul(plan.options.depth.into()));
    before.saturating_mul(each_ns).saturating_add(plan.options.stalled_after.ns)
}

#[cfg(test)]
mod tests;
