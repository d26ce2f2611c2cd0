//! Builds the report of a router.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use weir_base::FaceId;
use weir_client::{Client, CommandError};
use weir_control::message::{FaceReport, RouterReport, StoreUse};
use weir_manage::{CsDiskInfo, CsInfo, FaceScope, FaceStatus, RibEntry};
use weir_store::disk::DiskTierStats;
use weir_wire::Name;

/// Maximum number of faces and prefixes in a report.
const FACES_MAX: usize = 1024;
const PREFIXES_MAX: usize = 4096;

/// Builds reports, and remembers byte counts for the load of faces.
#[derive(Default)]
pub(crate) struct ReportBuilder {
    /// Bytes that each face had moved at the time of the last report.
    face_bytes: BTreeMap<FaceId, u64>,
    face_bytes_at: Option<Instant>,
    /// Configured capacities, by the URI of the other end.
    rates_bps: BTreeMap<String, u64>,
}

impl ReportBuilder {
    pub(crate) fn new(rates_bps: BTreeMap<String, u64>) -> Self {
        Self { rates_bps, ..Self::default() }
    }

    /// Asks the router for its state. `threads` is its number of workers.
    pub(crate) fn report(
        &mut self,
        client: &mut Client,
        uris: &[String],
        round_trips: &BTreeMap<FaceId, u64>,
        threads: usize,
    ) -> Result<RouterReport, CommandError> {
        let faces: Vec<FaceStatus> = client.dataset("faces/list")?;
        let routes: Vec<RibEntry> = client.dataset("rib/list")?;
        let store = client.dataset::<CsInfo>("cs/info")?.into_iter().next().unwrap_or_default();
        // The router's own faces are no producers: one is its management, one drops Interests.
        let is_local = |status: &&FaceStatus| {
            status.info.scope == FaceScope::Local && status.info.face_id >= FaceId::FIRST
        };
        let local: BTreeSet<FaceId> =
            faces.iter().filter(is_local).map(|status| status.info.face_id).collect();
        // A prefix with a route to a local face has a producer at this router.
        let prefixes = routes.iter().filter(|entry| {
            let leads_here = entry.routes.iter().any(|route| local.contains(&route.face_id));
            leads_here && !is_local_scope(&entry.name)
        });
        let prefixes = prefixes.map(|entry| entry.name.clone()).take(PREFIXES_MAX).collect();
        Ok(RouterReport {
            uris: uris.to_vec(),
            store_bytes: guaranteed_bytes(store.capacity_bytes.unwrap_or(0), threads),
            disk_bytes: store.disk.as_ref().map_or(0, CsDiskInfo::capacity_bytes),
            store_use: Some(store_use(&store)),
            faces: self.faces(&faces, round_trips),
            prefixes,
            ..RouterReport::default()
        })
    }

    fn faces(
        &mut self,
        faces: &[FaceStatus],
        round_trips: &BTreeMap<FaceId, u64>,
    ) -> Vec<FaceReport> {
        let now = Instant::now();
        let since = self.face_bytes_at.replace(now).map(|before| now - before);
        let mut moved = BTreeMap::new();
        let mut reports = Vec::new();
        for status in faces.iter().filter(|status| status.info.scope == FaceScope::NonLocal) {
            let bytes = status.counters.in_bytes + status.counters.out_bytes;
            let before = self.face_bytes.get(&status.info.face_id);
            // A load needs two readings, so the first report of a face has none.
            let load_bps = match (since, before) {
                (Some(since), Some(before)) if !since.is_zero() => {
                    (bytes.saturating_sub(*before) as f64 * 8.0 / since.as_secs_f64()) as u64
                }
                _ => 0,
            };
            moved.insert(status.info.face_id, bytes);
            if reports.len() < FACES_MAX {
                let remote = status.info.uri.clone();
                let round_trip_ns = round_trips.get(&status.info.face_id).copied();
                let rate_bps = self.rates_bps.get(&remote).copied();
                reports.push(FaceReport { remote, round_trip_ns, load_bps, rate_bps });
            }
        }
        self.face_bytes = moved;
        reports
    }
}

fn store_use(store: &CsInfo) -> StoreUse {
    let disk = store.disk.as_ref().map(CsDiskInfo::table::<DiskTierStats>);
    StoreUse {
        hits: store.hits,
        misses: store.misses,
        memory_bytes: store.bytes.unwrap_or(0),
        disk_bytes: disk.map_or(0, |disk| disk.bytes),
    }
}

/// The bytes of one object that a store of several workers can hold for sure.
///
/// Each range of 64 segments belongs to one worker, chosen by a hash, and each worker has an equal
/// slice of the store. So one slice may be full while others have space. This returns the capacity
/// less three standard deviations of the fill of a slice, plus the 7 % that controllers leave
/// unused anyway.
///
/// Example: two workers share 48 MiB, or 89 ranges. The deviation is sqrt(1 / 89) = 0.106, so 1 -
/// (3 · 0.106 - 0.07) = 75 % are guaranteed.
fn guaranteed_bytes(store_bytes: u64, threads: usize) -> u64 {
    const RANGE_BYTES: f64 = 64.0 * 8800.0;
    const FREE: f64 = 0.07;
    let ranges = (store_bytes as f64 / RANGE_BYTES).max(1.0);
    let uneven = 3.0 * ((threads.max(1) - 1) as f64 / ranges).sqrt() - FREE;
    (store_bytes as f64 * (1.0 - uneven.clamp(0.0, 0.75))) as u64
}

/// Whether names below a prefix stay on this machine or link.
fn is_local_scope(prefix: &Name) -> bool {
    let first = prefix.as_view().component(0);
    first.is_none_or(|first| matches!(first.value, b"localhost" | b"localhop"))
}

/// Whether two reports differ only in loads and in the use of the store.
pub(crate) fn is_same_but_load(one: &RouterReport, other: &RouterReport) -> bool {
    let quiet = |report: &RouterReport| {
        let mut report = report.clone();
        report.faces.iter_mut().for_each(|face| face.load_bps = 0);
        report.store_use = None;
        report
    };
    quiet(one) == quiet(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_less_with_more_threads() {
        assert_eq!(guaranteed_bytes(1 << 30, 1), 1 << 30);
        let share = |bytes: u64, threads| guaranteed_bytes(bytes, threads) as f64 / bytes as f64;
        assert!((0.70..0.80).contains(&share(48 << 20, 2)), "{}", share(48 << 20, 2));
        assert!(share(1 << 30, 2) > 0.99 && share(1 << 30, 4) > 0.94);
        assert!(share(1 << 20, 64) >= 0.25 && guaranteed_bytes(0, 8) == 0);
    }
}
