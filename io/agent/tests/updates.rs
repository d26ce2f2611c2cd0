//! The cost of reporting holdings: bytes of updates in proportion to the bytes of Data, as ranges,
//! and as one message for each packet (paper multipath-cache-management, 3.1). Run it with
//! `--nocapture` to see figures.

use crate::common;

use common::{Producer, RouterWithAgent, SEGMENT_BYTES, TestController, name, read};
use weir_control::message::{Change, Update, UpdateNumber};
use weir_control::{ControllerConfig, Segments};
use weir_wire::Name;

/// Bytes of a Data packet in addition to the content: name and signature.
const OVERHEAD_BYTES: u64 = 100;

#[derive(Debug, Default)]
struct UpdateCost {
    messages: u64,
    bytes: u64,
    /// Segments added or removed: the number of messages with one message for each packet.
    packets: u64,
    by_packet_bytes: u64,
    /// Bytes of added segments.
    data_bytes: u64,
}

impl UpdateCost {
    fn of(updates: &[Update], (heads, bodies): (u64, u64)) -> Self {
        let head = heads / (updates.len() as u64).max(1);
        let (messages, bytes) = (updates.len() as u64, heads + bodies);
        let mut cost = Self { messages, bytes, ..Self::default() };
        for change in updates.iter().flat_map(|update| &update.changes) {
            let Change { object, tier, added, removed } = change;
            for (segments, is_added) in [(added, true), (removed, false)] {
                cost.data_bytes += match is_added {
                    true => segments.count() * (SEGMENT_BYTES as u64 + OVERHEAD_BYTES),
                    false => 0,
                };
                for segment in segments.ranges().flat_map(|(first, last)| first..=last) {
                    cost.packets += 1;
                    let one = Segments::range(segment, segment);
                    let none = Segments::default();
                    let (added, removed) = if is_added { (one, none) } else { (none, one) };
                    let object = object.clone();
                    let changes = vec![Change { object, tier: *tier, added, removed }];
                    let at = UpdateNumber { generation: 1_790_000_000_000, number: cost.packets };
                    cost.by_packet_bytes += head + length(&Update { at, changes });
                }
            }
        }
        cost
    }

    fn share(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.data_bytes as f64
    }
}

/// Size of a body in bytes.
fn length(update: &Update) -> u64 {
    serde_json::to_vec(update).unwrap().len() as u64
}

/// Reads objects through a router whose agent reports every 100 ms, and measures the updates.
fn cost(store_bytes: u64, objects: u64, segments: u64) -> UpdateCost {
    let controller = TestController::start(ControllerConfig::default());
    let node = RouterWithAgent::start("edge", &controller, 2, store_bytes, &[]);
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    let _producer = Producer::start(&node.router, "/data", segments);
    let object = |number: u64| -> Name {
        name(&format!("/data/climate/run-17/file-{number:05}.nc/v=1790000000000"))
    };
    for number in 0..objects {
        read(&node.router, &object(number), segments);
    }
    let last = object(objects - 1);
    controller.wait_until("the last one is reported", |controller| {
        let held = controller.holdings(&last);
        held.iter().any(|(_, held)| held.count() > 0)
    });
    let (updates, bytes) = controller.updates();
    UpdateCost::of(&updates, bytes)
}

#[test]
fn updates_cost_under_one_per_cent() {
    for (what, store_bytes, objects, segments) in [
        ("one file of 40 MB in a store of 64 MiB", 64 << 20, 1, 5000),
        ("one file of 40 MB in a store of 16 MiB", 16 << 20, 1, 5000),
        ("20 files of 2 MB in a store of 16 MiB", 16 << 20, 20, 250),
        ("2,000 files of one segment in a store of 64 MiB", 64 << 20, 2000, 1),
    ] {
        let cost = cost(store_bytes, objects, segments);
        let (ranges, by_packet) = (cost.share(cost.bytes), cost.share(cost.by_packet_bytes));
        println!(
            "{what}: {} messages, {} bytes, {ranges:.3} % of the Data; packet by packet {} \
             messages, {by_packet:.2} %",
            cost.messages, cost.bytes, cost.packets
        );
        assert!(cost.data_bytes > 0, "{what}");
        assert!(cost.bytes < cost.by_packet_bytes, "{what}: {cost:?}");
        assert!(ranges < 1.0, "{what}: {cost:?}");
    }
}
