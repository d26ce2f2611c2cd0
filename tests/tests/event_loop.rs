//! Many consumers and producers on one connection to a real router.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_base::{Instant, NS_PER_S};
use weir_client::{Client, Context, Endpoint, EventLoop, ReceivedPacket};
use weir_face::FaceUri;
use weir_security::DigestSigner;
use weir_socket::{Label, ObjectStore, PublishOptions, publish_octets};
use weir_tests::{Host, Router};
use weir_transport::PathId;
use weir_wire::{DataView, Interest, Name};

/// Number of producers and of consumers on each of two connections.
const ENDPOINTS: usize = 5;
const SEGMENTS: u64 = 50;
const SEGMENT_BYTES: usize = 100;
/// Time limit of the test.
const PATIENCE_NS: u64 = 60 * NS_PER_S;

fn object(side: usize, number: usize) -> Name {
    format!("/side{side}/object{number}").parse().unwrap()
}

fn content(side: usize, number: usize) -> Vec<u8> {
    let octet = |at: usize| (at * 31 + side * 7 + number) as u8;
    (0..SEGMENTS as usize * SEGMENT_BYTES).map(octet).collect()
}

fn store(side: usize, number: usize) -> ObjectStore {
    let mut store = ObjectStore::new();
    let name = object(side, number);
    let label = Label { name: &name, version: 1, signer: &DigestSigner, certificate: None };
    let options = PublishOptions { segment_size: SEGMENT_BYTES, ..PublishOptions::default() };
    store.add(publish_octets(content(side, number).into(), label, &options).unwrap());
    store
}

/// Requests one segment after the other, and repeats a request without an answer.
struct SegmentFetcher {
    versioned: Name,
    expected: Vec<u8>,
    next: u64,
    asked: Option<Instant>,
}

impl SegmentFetcher {
    fn new(side: usize, number: usize) -> Self {
        let mut versioned = object(side, number);
        versioned.append_version(1);
        Self { versioned, expected: content(side, number), next: 0, asked: None }
    }

    fn name(&self) -> Name {
        self.versioned.clone().append_segment(self.next).clone()
    }
}

impl Endpoint for SegmentFetcher {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        for ReceivedPacket { header, packet, .. } in packets.drain(..) {
            assert_eq!(header.nack, None);
            let data = DataView::decode(&packet).unwrap();
            assert!(self.versioned.as_view().is_prefix_of(data.name), "another's packet");
            if data.name == self.name().as_view() {
                let start = self.next as usize * SEGMENT_BYTES;
                assert_eq!(data.content, &self.expected[start..start + SEGMENT_BYTES]);
                self.next += 1;
                self.asked = None;
            }
        }
        let now = context.client.now();
        let is_due = self.asked.is_none_or(|asked| now >= asked.plus_ns(NS_PER_S));
        if is_due && !self.is_done() {
            let nonce = context.client.random_u64() as u32;
            let interest = Interest::new(self.name()).nonce(nonce).encode();
            context.client.send_bytes(PathId::default(), &interest).unwrap();
            self.asked = Some(now);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.asked.map(|asked| asked.plus_ns(NS_PER_S))
    }

    fn is_done(&self) -> bool {
        self.next >= SEGMENTS
    }
}

/// Runs the producers and consumers of one side over one connection.
fn run_side(router: &FaceUri, side: usize, registered: &AtomicUsize, done: &AtomicUsize) {
    let mut client = Client::connect(router).unwrap();
    let mut stores: Vec<ObjectStore> = (0..ENDPOINTS).map(|number| store(side, number)).collect();
    let mut askers: Vec<SegmentFetcher> =
        (0..ENDPOINTS).map(|number| SegmentFetcher::new(1 - side, number)).collect();
    for number in 0..ENDPOINTS {
        client.register_prefix(&object(side, number)).unwrap();
    }
    registered.fetch_add(1, Ordering::SeqCst);
    while registered.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    let deadline = client.now().plus_ns(PATIENCE_NS);
    let mut events = EventLoop::new(&mut client);
    for (number, store) in stores.iter_mut().enumerate() {
        let id = events.add(store);
        events.route_interests(id, &object(side, number));
    }
    for asker in &mut askers {
        let prefix = asker.versioned.clone();
        let id = events.add(asker);
        events.route_data(id, &prefix);
    }
    // Continue until both sides have received everything.
    let mut has_told = false;
    while done.load(Ordering::SeqCst) < 2 {
        let now = events.now();
        assert!(now < deadline, "it takes too long");
        events.run_once(Some(now.plus_ns(NS_PER_S / 100))).unwrap();
        if !has_told && events.done_count() == ENDPOINTS {
            has_told = true;
            done.fetch_add(1, Ordering::SeqCst);
        }
    }
    assert_eq!(events.unclaimed(), 0);
    drop(events);
    assert!(askers.iter().all(Endpoint::is_done));
    for store in &stores {
        assert!(store.stats().data >= SEGMENTS, "{:?}", store.stats());
        assert_eq!(store.stats().unknown, 0);
    }
}

#[test]
fn twenty_endpoints_share_two_connections() {
    let host = Host::new();
    let router = Router::start(&host);
    let uri: FaceUri = router.unix().parse().unwrap();
    let (registered, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for side in 0..2 {
            let (uri, registered, done) = (&uri, &registered, &done);
            scope.spawn(move || run_side(uri, side, registered, done));
        }
    });
}
