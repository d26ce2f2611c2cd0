//! What the screen shows, computed from two readings. No clock and no terminal here.

use std::collections::HashMap;
use std::time::Duration;

use weir_base::FaceId;
use weir_manage::{CsInfo, FaceCounters, FaceStatus, GeneralStatus};
use weir_store::disk::DiskTierStats;
use weir_store::{ObjectList, ObjectOrder, StoredObject};
use weir_wire::Name;

use super::reader::{Reading, Timed};

/// The order of faces and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Bytes,
    Packets,
    Total,
    Name,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Bytes, Self::Packets, Self::Total, Self::Name];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes/s",
            Self::Packets => "packets/s",
            Self::Total => "total bytes",
            Self::Name => "name",
        }
    }

    pub(super) fn next(self) -> Self {
        self.step(1)
    }

    pub(super) fn previous(self) -> Self {
        self.step(Self::ALL.len() - 1)
    }

    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }

    /// Which objects the router must list. It knows totals but no rates: the objects with the
    /// highest rates are among those that were used last.
    pub(super) const fn object_order(self) -> ObjectOrder {
        match self {
            Self::Bytes | Self::Packets => ObjectOrder::LastUse,
            Self::Total => ObjectOrder::Served,
            Self::Name => ObjectOrder::Name,
        }
    }
}

/// A number per second; `None` until there are two readings.
pub(super) type Rate = Option<f64>;

/// What a counter gained per second. A counter that is lower than before has started again at zero,
/// and has counted at least its present value since.
pub(super) fn rate(before: u64, after: u64, elapsed: Duration) -> Rate {
    let gained = after.checked_sub(before).unwrap_or(after);
    (!elapsed.is_zero()).then(|| gained as f64 / elapsed.as_secs_f64())
}

/// Interests, Data, Nacks or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) received: Rate,
    pub(super) sent: Rate,
}

/// Where the Data came from that the router sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Source {
    pub(super) label: &'static str,
    /// Its part (0 to 1) of what was sent since the previous reading; `None` if nothing was.
    pub(super) now: Option<f64>,
    /// Its part since the router started.
    pub(super) since_start: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaceRow {
    pub(super) id: FaceId,
    pub(super) uri: String,
    pub(super) bytes: Flow,
    pub(super) interests: Rate,
    pub(super) data: Rate,
    pub(super) total_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectRow {
    pub(super) name: Name,
    pub(super) hits: Rate,
    pub(super) served: Rate,
    pub(super) total_served_bytes: u64,
    pub(super) held_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct DiskRow {
    pub(super) path: String,
    pub(super) capacity_bytes: u64,
    pub(super) read: Rate,
    pub(super) written: Rate,
    pub(super) is_dead: bool,
    pub(super) failures: u64,
}

/// All disks together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Disks {
    pub(super) count: u64,
    pub(super) stalled: u64,
    pub(super) is_recovering: bool,
    pub(super) used_bytes: u64,
    pub(super) capacity_bytes: u64,
    /// Mean time that an Interest waited for a disk since the previous reading.
    pub(super) latency_ns: Option<u64>,
    pub(super) rows: Vec<DiskRow>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Store {
    pub(super) used_bytes: Option<u64>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) packets: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) version: String,
    pub(super) uptime_ms: u64,
    pub(super) pending: u64,
    pub(super) interests: Flow,
    pub(super) data: Flow,
    pub(super) nacks: Flow,
    pub(super) bytes: Flow,
    pub(super) sources: Vec<Source>,
    pub(super) store: Option<Store>,
    pub(super) disks: Option<Disks>,
    pub(super) faces: Vec<FaceRow>,
    /// `None` if the router does not list objects, or not yet.
    pub(super) objects: Option<Vec<ObjectRow>>,
    /// All objects of the store, also those that are not in `objects`.
    pub(super) objects_total: u64,
}

impl Report {
    /// The rates between two readings. Without a first one, or if the router has restarted between
    /// them, there are only totals.
    pub(super) fn between(before: Option<&Reading>, after: &Reading) -> Self {
        let before = before.filter(|before| !has_restarted(before, after));
        let general = &after.general.value;
        let counters = Span::new(before.map(|before| &before.general), &after.general);
        let flow = |received: fn(&GeneralStatus) -> u64, sent: fn(&GeneralStatus) -> u64| Flow {
            received: counters.rate(received),
            sent: counters.rate(sent),
        };
        let face_lists = Span::new(before.map(|before| &before.faces), &after.faces);
        let faces = face_rows(&face_lists);
        let sum = |rate: fn(&FaceRow) -> Rate| faces.iter().map(rate).sum();
        let bytes =
            Flow { received: sum(|face| face.bytes.received), sent: sum(|face| face.bytes.sent) };
        let lists =
            after.objects.as_ref().map(|lists| Span::new(lists.before.as_deref(), &lists.latest));
        let store = after
            .store
            .as_ref()
            .map(|store| Span::new(before.and_then(|before| before.store.as_ref()), store));
        Self {
            version: general.version.clone(),
            uptime_ms: uptime(general).as_millis() as u64,
            pending: general.pit_entries,
            interests: flow(|general| general.in_interests, |general| general.out_interests),
            data: flow(|general| general.in_data, |general| general.out_data),
            nacks: flow(|general| general.in_nacks, |general| general.out_nacks),
            bytes,
            sources: store.as_ref().map(|store| sources(store, &face_lists)).unwrap_or_default(),
            store: store.as_ref().map(|store| store_of(store.after)),
            disks: store.as_ref().and_then(disks),
            faces,
            objects_total: lists.as_ref().map_or(0, |lists| lists.after.total),
            objects: lists.as_ref().map(object_rows),
        }
    }

    /// Faces in this order.
    pub(super) fn sorted_faces(&self, sort: Sort) -> Vec<&FaceRow> {
        let mut rows: Vec<_> = self.faces.iter().collect();
        rows.sort_by(|one, other| {
            let descending = |key: fn(&FaceRow) -> f64| key(other).total_cmp(&key(one));
            let first = match sort {
                Sort::Bytes => descending(|face| sum_of(face.bytes.received, face.bytes.sent)),
                Sort::Packets => descending(|face| sum_of(face.interests, face.data)),
                Sort::Total => other.total_bytes.cmp(&one.total_bytes),
                Sort::Name => one.uri.cmp(&other.uri),
            };
            first.then(other.total_bytes.cmp(&one.total_bytes)).then(one.id.cmp(&other.id))
        });
        rows
    }

    /// Objects in this order.
    pub(super) fn sorted_objects(&self, sort: Sort) -> Vec<&ObjectRow> {
        let mut rows: Vec<_> = self.objects.iter().flatten().collect();
        rows.sort_by(|one, other| {
            let descending = |key: fn(&ObjectRow) -> Rate| {
                key(other).unwrap_or(0.0).total_cmp(&key(one).unwrap_or(0.0))
            };
            let first = match sort {
                Sort::Bytes => descending(|object| object.served),
                Sort::Packets => descending(|object| object.hits),
                Sort::Total => other.total_served_bytes.cmp(&one.total_served_bytes),
                Sort::Name => one.name.cmp(&other.name),
            };
            let by_total = || other.total_served_bytes.cmp(&one.total_served_bytes);
            first.then_with(by_total).then_with(|| one.name.cmp(&other.name))
        });
        rows
    }
}

fn sum_of(one: Rate, other: Rate) -> f64 {
    one.unwrap_or(0.0) + other.unwrap_or(0.0)
}

fn uptime(general: &GeneralStatus) -> Duration {
    Duration::from_millis(general.current_unix_ms.saturating_sub(general.start_unix_ms))
}

/// A router that started after `before` has been up for less than the time since then. The wall
/// clocks do not matter.
fn has_restarted(before: &Reading, after: &Reading) -> bool {
    let elapsed = after.general.at.saturating_sub(before.general.at);
    uptime(&after.general.value) < elapsed
}

/// A dataset and the one before.
struct Span<'a, T> {
    before: Option<&'a T>,
    after: &'a T,
    elapsed: Duration,
}

impl<'a, T> Span<'a, T> {
    fn new(before: Option<&'a Timed<T>>, after: &'a Timed<T>) -> Self {
        let elapsed = before.map_or(Duration::ZERO, |before| after.at.saturating_sub(before.at));
        Self { before: before.map(|before| &before.value), after: &after.value, elapsed }
    }

    fn rate(&self, counter: fn(&T) -> u64) -> Rate {
        rate(counter(self.before?), counter(self.after), self.elapsed)
    }
}

/// Faces with a peer. The three reserved ones of a router have none.
fn face_rows(faces: &Span<'_, Vec<FaceStatus>>) -> Vec<FaceRow> {
    let is_reserved = |uri: &str| ["internal://", "contentstore://", "null://"].contains(&uri);
    let known: Option<HashMap<_, _>> = faces.before.map(|before| {
        before.iter().map(|face| ((face.info.face_id, &face.info.uri), face.counters)).collect()
    });
    let peers = faces.after.iter().filter(|face| !is_reserved(&face.info.uri));
    let row = |face: &FaceStatus| {
        // A face that is new since the list before has counted from zero.
        let key = (face.info.face_id, &face.info.uri);
        let before = known.as_ref().map(|known| known.get(&key).copied().unwrap_or_default());
        let after = face.counters;
        let rate_of = |counter: fn(&FaceCounters) -> u64| {
            rate(counter(&before?), counter(&after), faces.elapsed)
        };
        FaceRow {
            id: face.info.face_id,
            uri: face.info.uri.clone(),
            bytes: Flow {
                received: rate_of(|face| face.in_bytes),
                sent: rate_of(|face| face.out_bytes),
            },
            interests: rate_of(|face| face.in_interests + face.out_interests),
            data: rate_of(|face| face.in_data + face.out_data),
            total_bytes: after.in_bytes + after.out_bytes,
        }
    };
    peers.map(row).collect()
}

fn object_rows(lists: &Span<'_, ObjectList>) -> Vec<ObjectRow> {
    let known: Option<HashMap<_, _>> = lists
        .before
        .map(|before| before.objects.iter().map(|object| (&object.name, object.uses)).collect());
    // An object that a complete list did not have is new, and has counted from zero.
    let is_complete = lists.before.is_some_and(|before| {
        before.total == before.objects.len() as u64 && !before.is_partial && before.dropped == 0
    });
    let row = |object: &StoredObject| {
        let before = known.as_ref().and_then(|known| {
            known.get(&object.name).copied().or_else(|| is_complete.then(Default::default))
        });
        let of = |before: Option<u64>, after| rate(before?, after, lists.elapsed);
        ObjectRow {
            name: object.name.clone(),
            hits: of(before.map(|uses| uses.hits), object.uses.hits),
            served: of(before.map(|uses| uses.served_bytes), object.uses.served_bytes),
            total_served_bytes: object.uses.served_bytes,
            held_bytes: object.memory.bytes.max(object.disk.bytes),
        }
    };
    lists.after.objects.iter().map(row).collect()
}

/// Bytes of Data that the router made itself: its answers to management commands, and so to this
/// screen. They count as Data from a next hop, the face `internal://`.
fn own_bytes(faces: &[FaceStatus]) -> u64 {
    let own = faces.iter().find(|face| face.info.uri == "internal://");
    own.map_or(0, |face| face.counters.in_bytes)
}

/// The sources by bytes, or by Interests if the router does not report bytes.
fn sources(store: &Span<'_, CsInfo>, faces: &Span<'_, Vec<FaceStatus>>) -> Vec<Source> {
    let Some(memory_bytes) = store.after.served_memory_bytes else {
        let shares = [("store", store.rate(|store| store.hits), store.after.hits)];
        let misses = ("next hop", store.rate(|store| store.misses), store.after.misses);
        return parts(&[&shares[..], &[misses]].concat(), 0.0);
    };
    let next_hop: fn(&CsInfo) -> u64 = |store| store.served_next_hop_bytes.unwrap_or(0);
    let own = faces.rate(|faces| own_bytes(faces)).unwrap_or(0.0);
    let next_hop_now = store.rate(next_hop).map(|rate| (rate - own).max(0.0));
    let next_hop_total = next_hop(store.after).saturating_sub(own_bytes(faces.after));
    let memory_now = store.rate(|store| store.served_memory_bytes.unwrap_or(0));
    let mut shares = vec![("memory", memory_now, memory_bytes)];
    if store.after.disk.is_some() {
        let disk: fn(&CsInfo) -> u64 = |store| store.served_disk_bytes.unwrap_or(0);
        shares.push(("disk", store.rate(disk), disk(store.after)));
    }
    shares.push(("next hop", next_hop_now, next_hop_total));
    // The two datasets are read at different times, so less than that is no traffic.
    parts(&shares, own)
}

/// The parts of a sum. Rates whose sum is at most `noise` are not divided.
fn parts(shares: &[(&'static str, Rate, u64)], noise: f64) -> Vec<Source> {
    let sum: f64 = shares.iter().filter_map(|(_, now, _)| *now).sum();
    let total: u64 = shares.iter().map(|(.., total)| total).sum();
    let source = |&(label, now, since_start): &(&'static str, Rate, u64)| Source {
        label,
        now: now.filter(|_| sum > noise).map(|now| now / sum),
        since_start: (total > 0).then(|| since_start as f64 / total as f64),
    };
    shares.iter().map(source).collect()
}

fn store_of(store: &CsInfo) -> Store {
    Store { used_bytes: store.bytes, capacity_bytes: store.capacity_bytes, packets: store.entries }
}

fn disks(store: &Span<'_, CsInfo>) -> Option<Disks> {
    let info = store.after.disk.as_ref()?;
    let tier: DiskTierStats = info.table();
    let latency = store.before.and_then(|before| {
        let (sum_before, count_before) = before.disk.as_ref()?.read_latency();
        let (sum, count) = info.read_latency();
        let reads = count.checked_sub(count_before)?;
        sum.checked_sub(sum_before)?.checked_div(reads)
    });
    let known = |path: &str| {
        store.before.and_then(|before| before.devices.iter().find(|device| device.path == path))
    };
    let rows = store.after.devices.iter().map(|device| {
        let before = known(&device.path);
        let of = |before: Option<u64>, after| rate(before?, after, store.elapsed);
        DiskRow {
            path: device.path.clone(),
            capacity_bytes: device.capacity_bytes,
            read: of(before.map(|device| device.read_bytes), device.read_bytes),
            written: of(before.map(|device| device.written_bytes), device.written_bytes),
            is_dead: device.is_dead != 0,
            failures: device.failures,
        }
    });
    Some(Disks {
        count: info.disks(),
        stalled: u64::from(tier.stalled_set.count_ones()),
        is_recovering: tier.is_recovering(),
        used_bytes: tier.bytes,
        capacity_bytes: info.capacity_bytes(),
        latency_ns: latency,
        rows: rows.collect(),
    })
}
