//! The control thread's side of the content store's disks: opens them, logs their state, and writes
//! memory to them before the router stops.

use std::path::PathBuf;
use std::time::Duration;

use weir_base::{HashKey, Instant, Merge, NS_PER_MS, NS_PER_S};
use weir_disk::{DiskMonitor, DiskPorts, DiskSet};
use weir_face::unix_time_ms;
use weir_forward::{BusyPolicy, Command};
use weir_store::disk::{DiskTierConfig, DiskTierStats};

use super::notify_stopping;
use super::stalls::Stalls;
use super::workers::Workers;
use crate::clock::Clock;
use crate::config::DisksConfig;
use crate::error::StartError;
use crate::snapshot::DiskSnapshot;

/// How long opening the disks may take. A device that hangs must not block the start.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum write backlog, however small the store is.
const WRITE_BACKLOG_BYTES_MIN: u64 = 16 << 20;
/// Minimum interval between log lines of the same kind.
const LOG_INTERVAL_NS: u64 = 10 * NS_PER_S;
/// Interval between log lines about the progress of the final flush.
const PROGRESS_INTERVAL_NS: u64 = 2 * NS_PER_S;
/// A stop request at least this long after the first one is a second request, which skips the
/// final flush. Supervisors may send two signals in a row and mean one.
const SECOND_SIGNAL_NS: u64 = 200 * NS_PER_MS;

/// Disks that are open and locked, before their engines start.
pub(super) struct OpenDisks {
    set: DiskSet,
    config: DisksConfig,
    shards: usize,
}

impl OpenDisks {
    /// Opens and locks all disks, or none.
    pub(super) fn open(config: DisksConfig, shards: usize) -> Result<Self, StartError> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        let files = config.files.clone();
        std::thread::Builder::new()
            .name("weir-disks".into())
            .spawn(move || {
                // The caller may have stopped waiting.
                let _ = answer.send(weir_disk::open(&files, shards as u32));
            })
            .map_err(|source| StartError::System { what: "a thread", source })?;
        let Ok(opened) = answered.recv_timeout(OPEN_TIMEOUT) else {
            let paths: Vec<String> =
                config.files.iter().map(|file| file.path.display().to_string()).collect();
            let seconds = OPEN_TIMEOUT.as_secs();
            return Err(StartError::DisksHang { seconds, paths: paths.join(", ") });
        };
        Ok(Self { set: opened?, config, shards })
    }

    /// The key of all name hashes. The index on disk identifies names by their hashes.
    pub(super) fn hash_key(&self) -> HashKey {
        self.set.hash_key()
    }

    pub(super) fn busy(&self) -> BusyPolicy {
        self.config.busy.clone()
    }

    /// Configuration of one shard's disk tier.
    pub(super) fn shard_tier(
        &self,
        clock: Clock,
        shard: usize,
        store_bytes: u64,
    ) -> DiskTierConfig {
        let geometries = (0..self.set.disks())
            .map(|disk| self.set.geometry(disk, shard as u32))
            .collect::<Vec<_>>();
        let tier = &self.config.tier;
        DiskTierConfig {
            disks: geometries,
            store_id: self.set.store_id(),
            hash_key: self.set.hash_key(),
            // A clock that was never set is near 1970: the difference could be negative.
            unix_ms_at_zero: unix_time_ms().saturating_sub(clock.now().as_ns() / NS_PER_MS),
            index_bytes_max: self.index_bytes_max(shard),
            write_backlog_bytes_max: self.write_backlog_bytes_max(store_bytes) / self.shards as u64,
            ..tier.clone().for_shard(self.shards as u32)
        }
    }

    /// Memory in bytes for Data that waits to be written, for all shards.
    fn write_backlog_bytes_max(&self, store_bytes: u64) -> u64 {
        let chosen = self.config.write_backlog_bytes_max;
        chosen.unwrap_or((store_bytes / 2).max(WRITE_BACKLOG_BYTES_MIN))
    }

    /// Memory limit of one shard's index, in bytes.
    fn index_bytes_max(&self, shard: usize) -> u64 {
        let parts = (0..self.set.disks()).map(|disk| self.set.geometry(disk, shard as u32));
        let capacity_bytes = parts.map(|part| u64::from(part.regions) * part.region_bytes).sum();
        self.config.shard_index_bytes_max(capacity_bytes, self.shards)
    }

    /// Memory limit of the index in bytes, for all shards.
    pub(super) fn index_bytes(&self) -> u64 {
        (0..self.shards).map(|shard| self.index_bytes_max(shard)).sum()
    }

    fn capacity_bytes(&self, disk: usize) -> u64 {
        let parts = (0..self.shards).map(|shard| self.set.geometry(disk, shard as u32));
        parts.map(|part| u64::from(part.regions) * part.region_bytes).sum()
    }

    /// Starts the disks' engines. Returns a port for each worker thread.
    pub(super) fn start(self, now: Instant) -> Result<(Disks, Vec<DiskPorts>), StartError> {
        let count = self.set.disks();
        let capacities: Vec<u64> = (0..count).map(|disk| self.capacity_bytes(disk)).collect();
        let read_only: Vec<String> = (0..count)
            .filter(|&disk| !self.set.geometry(disk, 0).is_writable)
            .map(|disk| self.config.files[disk].path.display().to_string())
            .collect();
        let depth = self.config.tier.clone().for_shard(self.shards as u32).depth;
        let (monitor, ports) = self.set.start(depth, self.shards)?;
        let stalls = Stalls::new(&self.config, &monitor, now);
        for (disk, file) in self.config.files.iter().enumerate() {
            let path = file.path.display();
            let (bytes, engine) = (capacities[disk], monitor.kind(disk));
            tracing::info!(%path, bytes, engine, "disk of the content store");
        }
        let disks = Disks {
            monitor,
            read_only,
            paths: self.config.files.iter().map(|file| file.path.clone()).collect(),
            capacities,
            stalls,
            reports: vec![None; self.shards],
            started: now,
            logged: LoggedDiskState {
                failures: std::iter::repeat_with(ThrottledCount::default).take(count).collect(),
                are_dead: vec![false; count],
                ..LoggedDiskState::default()
            },
            stop_timeout: self.config.stop_timeout,
            final_flush: None,
        };
        Ok((disks, ports))
    }
}

/// The disks' state when it was last logged.
#[derive(Default)]
struct LoggedDiskState {
    has_recovered: bool,
    /// Disks that respond and are not recovered yet. `None` before all reports have arrived.
    recovering_set: Option<u64>,
    stalls: u64,
    stalled_set: u64,
    damaged: ThrottledCount,
    not_stored: ThrottledCount,
    failures: Vec<ThrottledCount>,
    are_dead: Vec<bool>,
}

/// A count that is logged at most every [`LOG_INTERVAL_NS`].
#[derive(Default)]
struct ThrottledCount {
    logged: u64,
    logged_at: Option<Instant>,
}

impl ThrottledCount {
    /// Returns the increase since the last log line, if a new line is due.
    fn take_unlogged(&mut self, now: Instant, count: u64) -> Option<u64> {
        let is_time = self.logged_at.is_none_or(|at| now.ns_since(at) >= LOG_INTERVAL_NS);
        if count == self.logged || !is_time {
            return None;
        }
        self.logged_at = Some(now);
        Some(count - std::mem::replace(&mut self.logged, count))
    }
}

/// The write of memory to the disks before the router stops.
struct FinalFlush {
    began: Instant,
    until: Instant,
    logged_at: Instant,
    /// Shards that have not confirmed, by transaction.
    waiting: Vec<u64>,
}

/// The control thread's side of the disks.
pub(super) struct Disks {
    monitor: DiskMonitor,
    paths: Vec<PathBuf>,
    /// Paths of read-only disks.
    read_only: Vec<String>,
    capacities: Vec<u64>,
    stalls: Stalls,
    /// The latest report of each worker thread.
    reports: Vec<Option<DiskTierStats>>,
    started: Instant,
    logged: LoggedDiskState,
    stop_timeout: Duration,
    final_flush: Option<FinalFlush>,
}

impl Disks {
    /// Whether no disk is writable.
    fn is_read_only(&self) -> bool {
        self.read_only.len() == self.paths.len()
    }

    /// When [`Self::run_timers`] must be called.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let writes = self
            .final_flush
            .as_ref()
            .map(|writes| writes.until.min(writes.logged_at.plus_ns(PROGRESS_INTERVAL_NS)));
        [writes, self.stalls.next_wakeup()].into_iter().flatten().min()
    }

    /// Whether a device did not answer when it was closed. A worker thread may then never end.
    pub(super) fn has_unresponsive(&self) -> bool {
        (0..self.paths.len()).any(|disk| self.monitor.has_unfinished_io(disk))
    }

    /// Whether memory is being written to the disks before the router stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.final_flush.is_some()
    }

    /// Whether the index of a disk is still being recovered. A disk that does not respond is left
    /// out: it may hang for good, and the router works without it.
    pub(super) fn is_recovering(&self) -> bool {
        !self.logged.has_recovered && self.logged.recovering_set.is_none_or(|set| set != 0)
    }

    pub(super) fn snapshots(&self) -> Vec<DiskSnapshot> {
        let disks = self.paths.iter().zip(&self.capacities).enumerate();
        let disks = disks.map(|(disk, (path, &capacity_bytes))| DiskSnapshot {
            path: path.clone(),
            engine: self.monitor.kind(disk),
            capacity_bytes,
            counters: self.monitor.counters(disk),
            is_dead: self.monitor.death(disk).is_some(),
        });
        disks.collect()
    }

    /// Records a worker thread's counters. Logs the end of recovery, stalls, damage, and Data that
    /// was not stored.
    pub(super) fn on_report(&mut self, now: Instant, worker: u16, stats: DiskTierStats) {
        self.reports[usize::from(worker)] = Some(stats);
        let mut sum = DiskTierStats::default();
        for report in &self.reports {
            // Sums are complete only after every worker thread has reported.
            let Some(report) = report else { return };
            sum.merge(report);
        }
        self.log_errors(now);
        let news = &mut self.logged;
        news.recovering_set = Some(sum.unrecovered_set & !sum.stalled_set);
        if !sum.is_recovering() && !std::mem::replace(&mut news.has_recovered, true) {
            let ms = now.ns_since(self.started) / NS_PER_MS;
            tracing::info!(
                records = sum.recovered,
                ms,
                "the index of the disks has been recovered"
            );
            if sum.regions_unreadable > 0 {
                let regions = sum.regions_unreadable;
                let what = "regions of the disks are damaged or cannot be read";
                tracing::warn!(regions, "{what}; records in them may be lost");
            }
        }
        for (disk, path) in self.paths.iter().enumerate() {
            let path = path.display();
            let (is_stalled, was_stalled) =
                (sum.stalled_set >> disk & 1 == 1, news.stalled_set >> disk & 1 == 1);
            if is_stalled && !was_stalled {
                tracing::warn!(
                    %path,
                    "a disk does not respond; its Data is fetched from upstream until it does"
                );
            } else if was_stalled && !is_stalled {
                tracing::info!(%path, "the disk responds again");
            }
        }
        // A stall that began and ended between two reports is in the count only.
        if sum.stalls > news.stalls && sum.stalled_set == 0 && news.stalled_set == 0 {
            tracing::warn!(stalls = sum.stalls, "a disk was briefly unresponsive");
        }
        (news.stalled_set, news.stalls) = (sum.stalled_set, sum.stalls);
        if let Some(records) = news.damaged.take_unlogged(now, sum.damaged) {
            let total = sum.damaged;
            tracing::warn!(records, total, "damaged records found on disk; none was served");
        }
        if let Some(packets) = news.not_stored.take_unlogged(now, sum.no_room) {
            let (index_bytes, total) = (sum.index_bytes, sum.no_room);
            let read_only = self.read_only.join(", ");
            if self.is_read_only() {
                tracing::warn!(
                    packets,
                    total,
                    read_only,
                    "Data was not stored: all disks are read-only"
                );
            } else {
                tracing::warn!(
                    packets,
                    total,
                    index_bytes,
                    read_only,
                    "Data was not stored on disk: no disk accepts any, or the index is full \
                     (index_memory_max in [disks])"
                );
            }
        }
    }

    fn log_errors(&mut self, now: Instant) {
        let news = &mut self.logged;
        for (disk, path) in self.paths.iter().enumerate() {
            let path = path.display();
            let failures = self.monitor.counters(disk).failures;
            if let Some(failures) = news.failures[disk].take_unlogged(now, failures) {
                let error = self.monitor.take_error(disk).map(|error| error.to_string());
                tracing::warn!(%path, failures, error, "reads or writes of the disk failed");
            }
            if let Some(cause) = self.monitor.death(disk)
                && !std::mem::replace(&mut news.are_dead[disk], true)
            {
                tracing::error!(%path, "the disk is no longer used: {cause}");
            }
        }
    }

    /// Logs the progress of the final flush. Returns whether the router should wait for it.
    fn is_flushing(&mut self, now: Instant) -> bool {
        let Some(writes) = &mut self.final_flush else { return false };
        let records: u64 = self.reports.iter().flatten().map(|report| report.writes_waiting).sum();
        if writes.waiting.is_empty() {
            let ms = now.ns_since(writes.began) / NS_PER_MS;
            if self.reports.iter().flatten().all(|report| report.stalled_set == 0) {
                tracing::info!(ms, "memory has been written to the disks");
            } else {
                tracing::warn!(
                    ms,
                    "stopping, but not all of memory is on the disks: one is stalled"
                );
            }
            return false;
        }
        if writes.until <= now {
            let what = "stopping, but not all of memory is on the disks: stop_timeout has expired";
            tracing::warn!(records, "{what}");
            return false;
        }
        if now.ns_since(writes.logged_at) >= PROGRESS_INTERVAL_NS {
            writes.logged_at = now;
            tracing::info!(records, "still writing memory to the disks");
        }
        true
    }

    /// Starts the final flush. Returns whether the router may stop at once. It continues to forward
    /// during the flush.
    pub(super) fn begin_stop(&mut self, now: Instant, workers: &Workers) -> bool {
        if self.stop_timeout.is_zero() {
            return true;
        }
        if let Some(writes) = &self.final_flush {
            let is_second = now.ns_since(writes.began) >= SECOND_SIGNAL_NS;
            if is_second {
                tracing::warn!("second request to stop: ending before memory is on the disks");
            }
            return is_second;
        }
        if self.is_read_only() {
            tracing::warn!("the contents of memory are lost: the disks are read-only");
            return true;
        }
        let timeout_ns = u64::try_from(self.stop_timeout.as_nanos()).unwrap_or(u64::MAX);
        notify_stopping(self.stop_timeout);
        tracing::info!("writing memory to the disks before stopping");
        for worker in 0..workers.count() {
            let transaction = u64::from(worker);
            workers.send_shard(worker, Command::FlushStore { transaction });
        }
        let until = now.plus_ns(timeout_ns);
        let waiting = (0..u64::from(workers.count())).collect();
        self.final_flush = Some(FinalFlush { began: now, until, logged_at: now, waiting });
        false
    }

    /// A shard has written its memory to the disks.
    pub(super) fn on_flushed(&mut self, transaction: u64) {
        if let Some(writes) = &mut self.final_flush {
            writes.waiting.retain(|&waiting| waiting != transaction);
        }
    }

    /// Returns whether the router may stop now because the final flush has ended.
    pub(super) fn run_timers(&mut self, now: Instant) -> bool {
        self.stalls.check(now);
        let has_ended = self.final_flush.is_some() && !self.is_flushing(now);
        if has_ended {
            self.final_flush = None;
        }
        has_ended
    }
}
