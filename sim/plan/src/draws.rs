//! Random choices that depend on a plan and its seed only. Both arms draw them here. So they
//! request the same content at the same times, and start with the same content in stores and on
//! disks.

use std::collections::{BTreeMap, BTreeSet};

use weir_base::{Packet, Rng};
use weir_control::File;
use weir_wire::{DataView, Name};

use crate::app::Producer;
use crate::error::PlanError;
use crate::hash::{SeedPurpose, seed_of};
use crate::plan::{DiskPlan, Plan, Role, RouterPlan};
use crate::workload::{Demand, Popularity};

/// Limit on the objects of a producer that are registered with a controller.
const FILES_MAX: u64 = 10_000;
/// How much a large segment number may lengthen a name, compared with segment 0, in bytes.
const NUMBER_BYTES: u64 = 8;

impl Plan {
    /// The seed of a consumer or producer.
    pub fn app_seed(&self, node: usize) -> u64 {
        seed_of(self.seed, SeedPurpose::App, node as u64)
    }

    pub fn link_seed(&self, link: usize) -> u64 {
        seed_of(self.seed, SeedPurpose::Link, 2 * link as u64)
    }

    /// The producers by node, to generate their Data.
    pub fn producers(&self) -> Result<BTreeMap<usize, Producer>, PlanError> {
        let mut producers = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Role::Producer(producer) = &node.role else { continue };
            let app = Producer::new(producer, self.app_seed(index)).map_err(|error| {
                PlanError::App { node: node.name.clone(), problem: error.to_string() }
            })?;
            producers.insert(index, app);
        }
        Ok(producers)
    }

    /// The files that producers register with a controller: the node and each of its objects.
    pub fn files(&self) -> Result<Vec<(usize, File)>, PlanError> {
        let mut files = Vec::new();
        for (node, mut producer) in self.producers()? {
            for object in 0..producer.collection().object_count().min(FILES_MAX) {
                let packet = producer.segment(object, 0);
                let Ok(data) = DataView::decode(&packet) else { continue };
                let shape = producer.collection().shape(object);
                let name = data.name.parent().to_name();
                let (segments, size_bytes) = (shape.segments, shape.bytes);
                let packet_bytes = packet.len() as u64 + NUMBER_BYTES;
                let manifest = Vec::new();
                files.push((node, File { name, segments, size_bytes, packet_bytes, manifest }));
            }
        }
        Ok(files)
    }

    /// The Data in a router's store at the start
    /// ([`RouterPlan::store_filled`](RouterPlan::store_filled)), in the order of insertion. The
    /// caller omits what does not fit.
    pub fn stored_at_start(
        &self,
        node: usize,
    ) -> Result<impl Iterator<Item = Packet> + use<>, PlanError> {
        let share = match self.nodes.get(node).map(|node| &node.role) {
            Some(Role::Router(router)) if router.store.size.bytes > 0 => router.store_filled,
            _ => 0.0,
        };
        let mut producers = self.producers()?;
        let chosen = match share > 0.0 {
            true => {
                let mut rng = Rng::from_seed(seed_of(self.seed, SeedPurpose::Fill, node as u64));
                choose_segments(&producers, share, &mut rng)
            }
            false => Vec::new(),
        };
        Ok(chosen.into_iter().filter_map(move |(producer, object, segment)| {
            Some(producers.get_mut(&producer)?.segment(object, segment))
        }))
    }

    /// The Data on a router's disks at the start
    /// ([`DiskPlan::filled_objects`](DiskPlan::filled_objects) and
    /// [`DiskPlan::filled`](DiskPlan::filled)), in the order of insertion. If all consumers follow
    /// traces, only content of the traces counts.
    pub fn on_disk_at_start(
        &self,
        node: usize,
    ) -> Result<impl Iterator<Item = Packet> + use<>, PlanError> {
        let mut producers = self.producers()?;
        let chosen = match self.nodes.get(node).map(|node| &node.role) {
            Some(Role::Router(RouterPlan { disk: Some(disk), .. })) => {
                let mut rng =
                    Rng::from_seed(seed_of(self.seed, SeedPurpose::FillDisk, node as u64));
                choose_on_disk(self, &producers, disk, &mut rng)
            }
            _ => Vec::new(),
        };
        Ok(chosen.into_iter().filter_map(move |(producer, object, segment)| {
            Some(producers.get_mut(&producer)?.segment(object, segment))
        }))
    }
}

/// A prefix without traffic. The entries of [`RouterPlan::fib_filler`] are numbered from 0.
pub fn filler_prefix(number: u32) -> Name {
    let mut name = Name::new();
    name.append_generic(b"filler");
    name.append_generic(number.to_string().as_bytes());
    name
}

/// The segments that can be requested, by object and segment, if all consumers follow traces.
fn traced(plan: &Plan) -> Option<BTreeSet<(u64, u64)>> {
    let mut requested = BTreeSet::new();
    for node in &plan.nodes {
        let Role::Consumer(consumer) = &node.role else { continue };
        let Popularity::Trace { requests } = &consumer.names.popularity else { return None };
        // A consumer of whole objects fetches every segment of a trace's objects.
        if matches!(consumer.demand, Demand::Objects { .. }) {
            return None;
        }
        requested.extend(requests.iter().copied());
    }
    Some(requested)
}

/// Chooses the content on a router's disks at the start: a number of whole objects, and a share of
/// all segments. Returns producer, object and segment.
fn choose_on_disk(
    plan: &Plan,
    producers: &BTreeMap<usize, Producer>,
    disk: &DiskPlan,
    rng: &mut Rng,
) -> Vec<(usize, u64, u64)> {
    let mut objects: Vec<(usize, u64)> = Vec::new();
    for (&index, producer) in producers {
        let count = producer.collection().object_count();
        objects.extend((0..count).map(|object| (index, object)));
    }
    // 1. Objects named by ranges always count. A random choice of the others adds `filled_objects`.
    let is_named = |object: u64| {
        disk.filled_ranges.iter().any(|&(first, last)| (first..=last).contains(&object))
    };
    let (mut named, mut objects): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|&(_, object)| is_named(object));
    shuffle(&mut objects, rng);
    objects.truncate(disk.filled_objects as usize);
    objects.append(&mut named);
    let mut chosen = Vec::new();
    for &(index, object) in &objects {
        let last = producers[&index].collection().shape(object).last_segment();
        chosen.extend((0..=last).map(|segment| (index, object, segment)));
    }
    // 2. A share of all segments, without those of the objects above.
    if disk.filled > 0.0 {
        let objects: BTreeSet<(usize, u64)> = objects.into_iter().collect();
        let more = choose_segments(producers, disk.filled, rng);
        let is_new = |it: &(usize, u64, u64)| !objects.contains(&(it.0, it.1));
        chosen.extend(more.into_iter().filter(is_new));
    }
    // 3. If all consumers follow traces, no Interest requests the other segments.
    if let Some(requested) = traced(plan) {
        chosen.retain(|&(_, object, segment)| requested.contains(&(object, segment)));
    }
    chosen
}

fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for at in (1..list.len()).rev() {
        let other = ((u128::from(rng.next_u64()) * (at as u128 + 1)) >> 64) as usize;
        list.swap(at, other);
    }
}

/// A fraction of all segments of all producers, in random order. Segments that do not fit are thus
/// random too. Returns producer, object and segment.
fn choose_segments(
    producers: &BTreeMap<usize, Producer>,
    share: f64,
    rng: &mut Rng,
) -> Vec<(usize, u64, u64)> {
    let mut chosen = Vec::new();
    for (&index, producer) in producers {
        let collection = producer.collection();
        for object in 0..collection.object_count() {
            for segment in 0..=collection.shape(object).last_segment() {
                if rng.unit() < share {
                    chosen.push((index, object, segment));
                }
            }
        }
    }
    shuffle(&mut chosen, rng);
    chosen
}
