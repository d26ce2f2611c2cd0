//! The state of recovery: the regions still to read and index. `recover.rs` has the algorithm.

use super::address::Key;
use super::checkpoint::{Erasure, LogPosition, RegionContents, RegionItem};
use super::device::Device;
use super::scan::RegionScan;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use weir_base::Slab;

/// Regions that are read at a time.
const JOBS_AT_ONCE: usize = 4;

/// The purpose of a recovery read. The number is that of the region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RecoveryRead {
    Header(u32),
    Footer(u32),
    /// The next read of a region's job.
    Job(u32),
}

pub(super) struct RecoveryRequest {
    pub(super) disk: usize,
    pub(super) read: RecoveryRead,
    pub(super) attempts: u32,
}

/// The results of reading the first and last block of a region.
#[derive(Copy, Clone, Default)]
pub(super) struct RegionEnds {
    /// The sequence number of a valid header.
    pub(super) header: Option<u32>,
    /// The sequence number of a valid footer, and the offset and length of the checkpoint.
    pub(super) footer: Option<(u32, u64, u32)>,
    /// Whether a block is neither valid nor zeros, or cannot be read.
    pub(super) has_invalid_bytes: bool,
    /// Whether a part of the region is damaged or cannot be read.
    pub(super) is_unreadable: bool,
}

impl RegionEnds {
    /// Whether a region that had to be scanned is damaged, not just incomplete. It is damaged if
    /// its header does not belong to its records. It is also damaged if a footer or checkpoint
    /// shows that it was closed: then no scan should have been necessary.
    pub(super) fn are_damaged(&self, scan: &RegionScan) -> bool {
        let footer = self.footer.map(|(sequence, ..)| sequence);
        let is_its = |sequence: Option<u32>| sequence == Some(scan.sequence);
        scan.sequence != 0 && (!is_its(self.header) || is_its(footer) || scan.has_checkpoint)
    }
}

/// Where the contents of a region come from.
pub(super) enum ContentSource {
    Checkpoint { at: u64, len: u32 },
    Scan(RegionScan),
}

/// A region to be indexed.
pub(super) struct RegionJob {
    pub(super) region: u32,
    pub(super) sequence: u32,
    pub(super) source: ContentSource,
    pub(super) is_reading: bool,
    /// The contents of the region, once they are known.
    pub(super) contents: Option<RegionContents>,
    /// Items of the contents that are not indexed yet.
    pub(super) items_left: usize,
}

/// The stages of recovery. `recover.rs` describes them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Headers and footers are read.
    Ends,
    /// Regions with an unknown sequence number are scanned.
    UnknownAges,
    /// All sequence numbers are known; regions are indexed.
    Indexing,
}

pub(super) struct DiskRecovery {
    pub(super) stage: Stage,
    pub(super) ends: Vec<RegionEnds>,
    /// The next header (even) or footer (odd) to read.
    pub(super) next_end: u32,
    /// Reads that failed, and their attempts.
    pub(super) retries: Vec<(RecoveryRead, u32)>,
    /// Reads in progress.
    pub(super) reading: u32,
    /// In [`Stage::UnknownAges`], the regions to scan. In [`Stage::Indexing`], all regions that are
    /// left, newest first.
    pub(super) jobs: VecDeque<RegionJob>,
    /// The regions with a known sequence number, until [`Stage::Indexing`].
    pub(super) known_jobs: Vec<RegionJob>,
    /// Erasures, and the position before which each applies.
    pub(super) erased: BTreeMap<Erasure, LogPosition>,
    /// How many of them were added since the start.
    pub(super) erased_since_start: usize,
    /// Whether recovery of the disk was abandoned: nothing more is indexed.
    pub(super) is_abandoned: bool,
}

/// The recovery of all disks. Empty when it has finished.
pub(super) struct Recovery {
    pub(super) disks: Vec<DiskRecovery>,
    pub(super) requests: Slab<RecoveryRequest>,
}

impl Recovery {
    pub(super) fn new(devices: &[Device]) -> Self {
        let disk = |device: &Device| DiskRecovery {
            stage: Stage::Ends,
            ends: vec![RegionEnds::default(); device.regions.len()],
            next_end: 0,
            retries: Vec::new(),
            reading: 0,
            jobs: VecDeque::new(),
            known_jobs: Vec::new(),
            erased: BTreeMap::new(),
            erased_since_start: 0,
            is_abandoned: false,
        };
        Self { disks: devices.iter().map(disk).collect(), requests: Slab::new() }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.disks.is_empty()
    }

    /// The disks that are not recovered yet, one bit each.
    pub(super) fn unfinished_set(&self) -> u64 {
        let disks = (0..).zip(&self.disks);
        disks.fold(0, |set, (at, disk)| set | u64::from(!disk.is_finished()) << at)
    }

    /// Whether there is work that needs no disk.
    pub(super) fn has_work(&self) -> bool {
        self.disks.iter().any(DiskRecovery::has_work)
    }

    /// Drops the job of a region that is reused: its old contents are gone.
    pub(super) fn on_reused(&mut self, disk: usize, region: u32) {
        if let Some(disk) = self.disks.get_mut(disk) {
            disk.jobs.retain(|job| job.region != region);
        }
    }

    /// Whether more records of a disk may be indexed.
    pub(super) fn may_index(&self, disk: usize) -> bool {
        self.disks.get(disk).is_some_and(DiskRecovery::may_index)
    }

    /// The most erasures that are kept for any disk.
    #[cfg(test)]
    pub(super) fn erased_len(&self) -> usize {
        self.disks.iter().map(|disk| disk.erased.len()).max().unwrap_or(0)
    }
}

impl DiskRecovery {
    pub(super) fn is_finished(&self) -> bool {
        self.stage == Stage::Indexing && self.jobs.is_empty() && self.reading == 0
    }

    pub(super) fn may_index(&self) -> bool {
        !(self.is_abandoned || self.stage == Stage::Indexing && self.jobs.is_empty())
    }

    /// The position of the record indexed last; `None` if there is none.
    pub(super) fn last_indexed(&self) -> Option<LogPosition> {
        let job = self.jobs.front().filter(|_| self.stage == Stage::Indexing)?;
        let taken = job.contents.iter().flat_map(|contents| &contents.items[job.items_left..]);
        let sectors = taken.filter_map(|item| match item {
            RegionItem::Record { at_sectors, .. } => Some(*at_sectors),
            RegionItem::Erased(_) => None,
        });
        Some((job.sequence, sectors.min().unwrap_or(u32::MAX)))
    }

    pub(super) fn has_work(&self) -> bool {
        let is_known = |job: &RegionJob| job.contents.is_some();
        match self.stage {
            Stage::Ends => self.ends.is_empty(),
            Stage::UnknownAges => self.jobs.iter().all(is_known),
            Stage::Indexing => self.jobs.front().is_some_and(is_known),
        }
    }

    pub(super) fn next_read(&mut self) -> Option<(RecoveryRead, u32)> {
        if let Some(again) = self.retries.pop() {
            return Some(again);
        }
        if self.stage == Stage::Ends {
            let region = self.next_end / 2;
            if region as usize >= self.ends.len() {
                return None;
            }
            let is_header = self.next_end.is_multiple_of(2);
            self.next_end += 1;
            return Some((
                if is_header { RecoveryRead::Header(region) } else { RecoveryRead::Footer(region) },
                0,
            ));
        }
        let window = if self.stage == Stage::Indexing { JOBS_AT_ONCE } else { usize::MAX };
        let jobs = self.jobs.iter_mut().take(window);
        let mut unread = jobs.filter(|job| job.contents.is_none()).take(JOBS_AT_ONCE);
        let job = unread.find(|job| !job.is_reading)?;
        job.is_reading = true;
        Some((RecoveryRead::Job(job.region), 0))
    }

    pub(super) fn is_erased(&self, key: Key, path: &[u64], at: LogPosition) -> bool {
        if self.erased.is_empty() {
            return false;
        }
        let has = |erasure| self.erased.get(&erasure).is_some_and(|&before| at < before);
        has(Erasure::Key(key))
            || has(Erasure::Below(None))
            || has(Erasure::Below(Some(key.object)))
            || path.iter().any(|&prefix| has(Erasure::Below(Some(prefix))))
    }
}

impl RegionJob {
    pub(super) fn of(ends: &RegionEnds, region: u32, block_bytes: u32) -> Option<Self> {
        let scan = |sequence| ContentSource::Scan(RegionScan::new(sequence, block_bytes));
        let (sequence, source) = match (ends.header, ends.footer) {
            (Some(header), Some((footer, at, len))) if header == footer => {
                (header, ContentSource::Checkpoint { at, len })
            }
            (Some(header), _) => (header, scan(header)),
            // The footer alone proves nothing: it may be that of an earlier use.
            (None, Some(_)) => (0, scan(0)),
            (None, None) if ends.has_invalid_bytes => (0, scan(0)),
            (None, None) => return None,
        };
        Some(Self { region, sequence, source, is_reading: false, contents: None, items_left: 0 })
    }

    pub(super) fn set_contents(&mut self, contents: RegionContents) {
        self.items_left = contents.items.len();
        self.contents = Some(contents);
    }
}
