//! Routers of this process with agents, and a controller.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Site, TestController, name};
use weir_control::{ControllerConfig, File, Part};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FaceStatus, RibEntry, route_origin};
use weir_runtime::Handle;
use weir_socket::Client;
use weir_wire::{Component, Data, DataView, Interest, InterestView, LpHeader, Name};

const SEGMENT_BYTES: usize = 8000;

/// An application that produces segments of any object below a prefix, and counts what it is asked.
struct Producer {
    asked: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Producer {
    fn start(router: &Handle, prefix: &str, segments: u64) -> Self {
        let mut client = Client::over_pair(router.local_port().connect().unwrap()).unwrap();
        client.register_prefix(&name(prefix)).unwrap();
        let (asked, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ends) = (Arc::clone(&asked), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let last = Component::segment(segments - 1);
            let mut packets = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let deadline = client.now().plus_ns(20_000_000);
                if client.poll(Some(deadline), &mut packets).is_err() {
                    return;
                }
                for packet in packets.drain(..) {
                    let Ok(interest) = InterestView::decode(&packet.packet) else { continue };
                    count.fetch_add(1, Ordering::Relaxed);
                    let wire = Data::new(interest.name.to_name())
                        .freshness_ms(1000)
                        .final_block_id(last.clone())
                        .content([7; SEGMENT_BYTES])
                        .encode_with_digest();
                    let header =
                        LpHeader { pit_token: packet.header.pit_token, ..LpHeader::default() };
                    let data = client.pool().copy(&wire);
                    let _ = client.send(packet.path, header, data);
                }
            }
        });
        Self { asked, stop, thread: Some(thread) }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Reads all segments in order, some at a time, as `weir get` would.
fn read(router: &Handle, object: &Name, segments: u64) {
    let mut client = Client::over_pair(router.local_port().connect().unwrap()).unwrap();
    let path = client.paths().next().unwrap();
    let mut wanted: VecDeque<u64> = (0..segments).collect();
    let mut in_flight: BTreeMap<u64, Instant> = BTreeMap::new();
    let until = Instant::now() + PATIENCE;
    let mut packets = Vec::new();
    while !wanted.is_empty() || !in_flight.is_empty() {
        assert!(Instant::now() < until, "{} segments are missing", wanted.len() + in_flight.len());
        while in_flight.len() < 16
            && let Some(segment) = wanted.pop_front()
        {
            let mut asked = object.clone();
            asked.append_segment(segment);
            let nonce = client.random() as u32;
            let interest = Interest::new(asked).nonce(nonce).lifetime_ms(1000).encode();
            client.send_octets(path, &interest).unwrap();
            in_flight.insert(segment, Instant::now());
        }
        let deadline = client.now().plus_ns(20_000_000);
        client.poll(Some(deadline), &mut packets).unwrap();
        for packet in packets.drain(..) {
            if packet.header.nack.is_none() {
                let data = DataView::decode(&packet.packet).unwrap();
                assert_eq!(data.content.len(), SEGMENT_BYTES);
                in_flight.remove(&data.name.last().unwrap().as_segment().unwrap());
            }
        }
        let late = |at: &Instant| at.elapsed() > Duration::from_secs(1);
        let late: Vec<u64> =
            in_flight.iter().filter(|(_, at)| late(at)).map(|(segment, _)| *segment).collect();
        for segment in late {
            in_flight.remove(&segment);
            wanted.push_back(segment);
        }
    }
}

fn file(segments: u64) -> File {
    File {
        name: name("/data/file/v=1"),
        segments,
        size_bytes: segments * SEGMENT_BYTES as u64,
        packet_bytes: 8200,
    }
}

/// `edge`, `middle` and `origin` in a row.
struct Row {
    controller: TestController,
    edge: Site,
    /// Held, so that it goes on.
    _middle: Site,
    origin: Site,
}

impl Row {
    fn start(threads: usize, store_bytes: u64) -> Self {
        let controller = TestController::start(ControllerConfig::default());
        let origin = Site::start("origin", &controller, threads, store_bytes, &[]);
        let middle = Site::start("middle", &controller, threads, store_bytes, &[&origin.uri]);
        let edge = Site::start("edge", &controller, threads, store_bytes, &[&middle.uri]);
        Self { controller, edge, _middle: middle, origin }
    }

    /// Waits until routes lead from the edge to the producer. Small objects have nothing else of
    /// the controller.
    fn wait_for_routes(&self) {
        self.controller.wait_until("there are routes", |controller| {
            let has_route = |router: &str| {
                controller.configuration(router).is_some_and(|one| !one.routes.is_empty())
            };
            let has_got = |router: &str| {
                let mut routers = controller.routers();
                let report = routers.find(|(name, _)| *name == router);
                report.is_some_and(|(_, it)| it.generation == controller.generation_of(router))
            };
            ["edge", "middle"].iter().all(|router| has_route(router) && has_got(router))
        });
        read(&self.edge.router, &name("/data/small/v=1"), 3);
        // Faces that were made by the first packets of others are reported, too.
        let has_both_ways = |controller: &weir_control::Controller| controller.links().len() == 4;
        self.controller.wait_until("links are known both ways", has_both_ways);
    }
}

#[test]
fn a_file_larger_than_any_store_is_read_twice_and_produced_once() {
    // 19 MB in memory, where no store has more than 12; and 53, where none has more than 50.
    for (threads, store_bytes, segments) in [(1, 12 << 20, 2000), (2, 48 << 20, 5500)] {
        let row = Row::start(threads, store_bytes);
        let producer = Producer::start(&row.origin.router, "/data", segments);
        row.controller.with(|controller| controller.add_file(file(segments)).unwrap());
        row.wait_for_routes();
        let object = file(segments).name;
        read(&row.edge.router, &object, segments);
        row.controller.wait_until("each keeps its part", |controller| {
            let held: BTreeMap<_, _> = controller.holdings(&object).into_iter().collect();
            let has = |part: &Part| {
                let held = held.get(part.router.as_str());
                let count = held.map_or(0, |held| held.count_within(part.first, part.last));
                count == part.last - part.first + 1
            };
            controller.plans().all(|plan| {
                plan.parts.iter().map(|part| part.last - part.first + 1).sum::<u64>() == segments
                    && plan.parts.iter().all(has)
            })
        });
        let before = producer.asked();
        read(&row.edge.router, &object, segments);
        assert_eq!(producer.asked(), before, "{threads} threads: {}", row.controller.describe());
        assert_eq!(row.controller.requests("forward"), 1);
        let plans = row.controller.with(|controller| controller.plans().count());
        assert_eq!(plans, 1);
    }
}

#[test]
fn a_controller_that_forgets_is_told_anew() {
    let row = Row::start(2, 12 << 20);
    let _producer = Producer::start(&row.origin.router, "/data", 300);
    row.wait_for_routes();
    let object = name("/data/other/v=1");
    read(&row.edge.router, &object, 300);
    let is_held = |controller: &weir_control::Controller| {
        let held = controller.holdings(&object);
        held.len() == 3 && held.iter().all(|(_, segments)| segments.count() == 300)
    };
    row.controller.wait_until("all three hold it", is_held);
    let updates = row.controller.requests("update");
    assert!(updates < 40, "{updates} updates for 900 segments");
    row.controller.forget();
    row.controller.wait_until("all three have told again that they hold it", is_held);
}

#[test]
fn without_the_controller_all_goes_on_and_then_it_is_told() {
    let row = Row::start(1, 12 << 20);
    let _producer = Producer::start(&row.origin.router, "/data", 100);
    row.wait_for_routes();
    row.controller.refuse(true);
    let object = name("/data/meanwhile/v=1");
    read(&row.edge.router, &object, 100);
    row.controller.with(|controller| assert!(controller.holdings(&object).is_empty()));
    row.controller.refuse(false);
    row.controller.wait_until("what came meanwhile is told", |controller| {
        controller.holdings(&object).iter().any(|(router, held)| {
            *router == "edge" && held.ranges().collect::<Vec<_>>() == [(0, 99)]
        })
    });
}

#[test]
fn routes_come_and_go_with_producers_and_those_of_others_stay() {
    let row = Row::start(1, 12 << 20);
    let producer = Producer::start(&row.origin.router, "/data", 3);
    row.wait_for_routes();
    let mut client = Client::over_pair(row.edge.router.local_port().connect().unwrap()).unwrap();
    let routes = |client: &mut Client| -> Vec<(String, u64)> {
        let entries: Vec<RibEntry> = client.dataset("rib/list").unwrap();
        let routes = entries.iter().flat_map(|entry| {
            entry.routes.iter().map(|route| (entry.name.to_string(), route.origin))
        });
        routes.filter(|(prefix, _)| !prefix.starts_with("/local")).collect()
    };
    let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
    let middle = faces.iter().find(|face| face.info.uri.starts_with("udp4")).unwrap();
    let parameters = ControlParameters {
        name: Some(name("/data")),
        face_id: Some(middle.info.face_id),
        origin: Some(route_origin::STATIC),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters).unwrap();
    let data = |origin| ("/data".to_owned(), origin);
    let both = [data(route_origin::CONTROLLER), data(route_origin::STATIC)];
    assert_eq!(routes(&mut client), both);
    drop(producer);
    let until = Instant::now() + PATIENCE;
    while routes(&mut client) != [data(route_origin::STATIC)] {
        assert!(Instant::now() < until, "{:?}", routes(&mut client));
        std::thread::sleep(Duration::from_millis(20));
    }
}
