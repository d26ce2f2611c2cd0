//! The size of a workload's packets in a content store.

use weir_base::{HashKey, Instant, Pool};
use weir_plan::app::{AppInput, AppOutbox, PathId, Producer};
use weir_plan::workload::{Collection, ProducerPlan, WorkloadError};
use weir_store::{NameHashes, NewData, Store, StoreConfig, UNKNOWN_SOURCE};
use weir_wire::{DataView, Interest, LpHeader};

/// Number of sampled packets.
const SAMPLE: u64 = 512;

/// Bytes that one of a producer's packets uses in the store, with its share of the index. This is
/// the mean over the first few hundred packets, inserted into a temporary store.
pub(crate) fn packet_bytes(plan: &ProducerPlan) -> Result<u64, WorkloadError> {
    let plan = ProducerPlan { delay_ns: 0, ..plan.clone() };
    let collection = Collection::new(&plan.names)?;
    let mut producer = Producer::new(&plan, 0)?;
    let mut pool = Pool::new(1 << 20);
    let (mut inputs, mut outbox) = (Vec::new(), AppOutbox::default());
    'objects: for object in 0..collection.object_count() {
        for segment in 0..=collection.shape(object).last_segment() {
            if inputs.len() as u64 == SAMPLE {
                break 'objects;
            }
            let wire = Interest::new(collection.naming().segment_name(object, segment)).encode();
            let (path, header) = (PathId::default(), LpHeader::default());
            inputs.push(AppInput { path, header, packet: pool.copy(&wire) });
        }
    }
    producer.handle(Instant::ZERO, &mut inputs, &mut outbox);
    let key = HashKey::new([1, 2]);
    let mut store = Store::new(StoreConfig { capacity_bytes: 1 << 30, ..StoreConfig::default() });
    for (_, _, packet) in &outbox.packets {
        let Ok(data) = DataView::decode(packet) else { continue };
        let parent = data.name.parent();
        let hashes = NameHashes {
            whole: key.hash(data.name.value()),
            parent: (!parent.is_empty()).then(|| key.hash(parent.value())),
            grandparent: None,
        };
        let prefixes = |path: &mut Vec<u64>| {
            let count = data.name.component_count();
            path.extend((1..count).map(|n| key.hash(data.name.prefix(n).value())));
        };
        let received = NewData { data: &data, hashes, source: UNKNOWN_SOURCE };
        store.insert(Instant::ZERO, received, prefixes, &mut pool);
    }
    let stats = store.stats();
    Ok(stats.bytes.div_ceil(stats.entries.max(1)))
}
