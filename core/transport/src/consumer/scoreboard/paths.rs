//! The paths of one scoreboard, and which of them takes the next chunk.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_base::Instant;
use weir_store::SegmentRange;

use crate::PathId;
use crate::consumer::labels::LabelStats;
use crate::consumer::path::Path;
use crate::consumer::schedule::{Schedule, SendKind};
use crate::consumer::stats::PathStats;

pub(crate) struct Paths {
    schedule: Box<dyn Schedule>,
    all: Vec<Path>,
    /// Counters of removed paths.
    removed: BTreeMap<PathId, PathStats>,
    /// A router has reported that it holds segments.
    knows_holders: bool,
    /// The kind of chunk that [`Paths::choose`] was last called for.
    last_request: SendKind,
    /// At the last [`Paths::choose`], only pacing kept a chunk from being sent.
    is_paced: bool,
}

impl Paths {
    pub(super) fn new(schedule: Box<dyn Schedule>) -> Self {
        Self {
            schedule,
            all: Vec::new(),
            removed: BTreeMap::new(),
            knows_holders: false,
            last_request: SendKind::Resend,
            is_paced: false,
        }
    }

    pub(crate) fn all(&self) -> &[Path] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [Path] {
        &mut self.all
    }

    /// The paths that the schedule uses now.
    pub(crate) fn in_use(&self) -> &[Path] {
        &self.all[..self.schedule.used(&self.all)]
    }

    pub(super) fn get(&self, id: PathId) -> Option<&Path> {
        self.all.iter().find(|path| path.id == id)
    }

    pub(super) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.all.iter_mut().find(|path| path.id == id)
    }

    pub(super) fn add(&mut self, path: Path) {
        self.all.reserve_exact(1);
        self.all.push(path);
    }

    pub(super) fn remove(&mut self, id: PathId) {
        let stats = self.stats(id);
        self.removed.insert(id, stats);
        self.all.retain(|path| path.id != id);
    }

    /// Counters of a path so far.
    pub(crate) fn stats(&self, id: PathId) -> PathStats {
        let mut stats = self.removed.get(&id).copied().unwrap_or_default();
        if let Some(path) = self.get(id) {
            stats.add(&path.stats());
        }
        stats
    }

    /// Measurements of a path by path label, since it was last added.
    pub(crate) fn labels(&self, id: PathId) -> &[LabelStats] {
        self.get(id).map_or(&[], Path::labels)
    }

    /// The paths for requests outside the window, in the order to try them: working ones first.
    pub(crate) fn request_order(&self) -> Vec<PathId> {
        let mut paths: Vec<&Path> = self.in_use().iter().collect();
        paths.sort_by_key(|path| (path.is_failing(), path.rtt.smoothed_ns().is_none()));
        paths.into_iter().map(|path| path.id).collect()
    }

    /// Whether no packet has arrived on any path since a timeout.
    pub(super) fn are_unresponsive(&self) -> bool {
        let in_use = self.in_use();
        !in_use.is_empty() && in_use.iter().all(Path::is_unresponsive)
    }

    pub(super) fn set_holdings(&mut self, id: PathId, held: Vec<SegmentRange>) {
        self.knows_holders |= !held.is_empty();
        if let Some(path) = self.get_mut(id) {
            path.set_holdings(held);
        }
    }

    pub(crate) fn knows_holders(&self) -> bool {
        self.knows_holders
    }

    /// Reserves the next new chunk for paths whose routers hold this segment. If none of these
    /// paths works, every path may take the chunk.
    pub(super) fn prefer_holders(&mut self, segment: Option<u64>) {
        let holds = |path: &Path| segment.is_some_and(|segment| path.holds(segment));
        let has_holder = self.in_use().iter().any(|path| holds(path) && !path.is_failing());
        for path in &mut self.all {
            let is_passed_over = has_holder && !holds(path);
            path.set_passed_over(is_passed_over);
        }
    }

    /// The path that takes the next chunk now.
    pub(super) fn choose(&mut self, next: SendKind, now: Instant) -> Option<PathId> {
        self.last_request = next;
        let chosen = self.schedule.choose(&self.all, next, now);
        self.is_paced = chosen.is_none() && self.departure(next).is_some();
        let path = &self.all[chosen?];
        debug_assert!(path.may_send(now));
        Some(path.id)
    }

    /// Interests requested ahead are not paced.
    pub(super) fn set_unpaced(&mut self) {
        self.is_paced = false;
    }

    /// The earliest time at which a path can take a chunk, with the windows as they are.
    pub(super) fn departure(&self, next: SendKind) -> Option<Instant> {
        self.schedule.departure(&self.all, next)
    }

    /// When a path can take a chunk of the kind last requested.
    pub(super) fn next_departure(&self) -> Option<Instant> {
        self.departure(self.last_request)
    }

    /// When pacing permits the next Interest, if only pacing delays it.
    pub(super) fn paced_departure(&self) -> Option<Instant> {
        if self.is_paced { self.next_departure() } else { None }
    }
}
