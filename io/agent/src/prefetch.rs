//! Prefetches parts of objects, so that they are in the store before a consumer requests them.
//!
//! The thread uses the transport's consumer on a local face of the router. The router stores the
//! passing Data by its rules. The thread itself neither keeps nor verifies it, because readers
//! verify. It yields to all other traffic on the path (`ledbat`).

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_client::Client;
use weir_control::message::Prefetch;
use weir_security::trust::Trust;
use weir_security::{DigestVerifier, Verifier};
use weir_socket::{
    DiscardOutput, DownloadError, DownloadHost, DownloadId, DownloadOptions, Found, Output,
    Summary, download,
};
use weir_transport::{ConsumerConfig, Controller, Target, Verification};

use crate::shared::AgentShared;

/// How long a failed order waits, and how often new orders are checked for.
const RETRY_AFTER: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the router may take to list what it holds.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of Interests in flight. The congestion controller needs this limit where the only
/// queue is the router's own work, which it cannot see.
const WINDOW_MAX: u32 = 64;
/// Maximum number of segments that arrive before earlier ones.
const READER_SEGMENTS_MAX: u32 = 512;

/// The current orders. New orders replace all earlier ones.
#[derive(Clone, Default)]
pub(crate) struct PrefetchOrders(Arc<Mutex<OrderList>>);

#[derive(Default)]
struct OrderList {
    all: Vec<Prefetch>,
    version: u64,
}

impl PrefetchOrders {
    pub(crate) fn replace(&self, orders: Vec<Prefetch>) {
        let mut ordered = self.lock();
        ordered.version += u64::from(ordered.all != orders);
        ordered.all = orders;
    }

    /// All orders and their version, if they were replaced since this version.
    fn since(&self, number: u64) -> Option<(Vec<Prefetch>, u64)> {
        let ordered = self.lock();
        (ordered.version != number).then(|| (ordered.all.clone(), ordered.version))
    }

    fn has(&self, order: &Prefetch) -> bool {
        self.lock().all.contains(order)
    }

    fn lock(&self) -> MutexGuard<'_, OrderList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Orders by state.
#[derive(Default)]
struct OrderQueue {
    number: u64,
    ready: VecDeque<Prefetch>,
    /// Failed orders with the time of the next attempt, the earliest first.
    deferred: VecDeque<(Instant, Prefetch)>,
    done: BTreeSet<Prefetch>,
}

impl OrderQueue {
    /// Takes over new orders, and forgets orders that were withdrawn.
    fn update(&mut self, orders: &PrefetchOrders) {
        let Some((all, number)) = orders.since(self.number) else { return };
        self.number = number;
        let wanted: BTreeSet<&Prefetch> = all.iter().collect();
        self.done.retain(|order| wanted.contains(order));
        self.deferred.retain(|(_, order)| wanted.contains(order));
        let later: BTreeSet<&Prefetch> = self.deferred.iter().map(|(_, order)| order).collect();
        let is_new = |order: &&Prefetch| !self.done.contains(*order) && !later.contains(*order);
        self.ready = all.iter().filter(is_new).cloned().collect();
    }

    /// The order to fetch now. Failed orders wait behind all others.
    fn pop(&mut self, now: Instant) -> Option<Prefetch> {
        self.ready
            .pop_front()
            .or_else(|| self.deferred.pop_front_if(|(due, _)| *due <= now).map(|(_, order)| order))
    }
}

/// The thread that fetches.
pub(crate) struct Prefetcher {
    shared: Arc<AgentShared>,
    orders: PrefetchOrders,
    /// One connection for all parts, so that its face is known.
    client: Option<Client>,
    queue: OrderQueue,
}

impl Prefetcher {
    pub(crate) fn new(shared: Arc<AgentShared>, orders: PrefetchOrders) -> Self {
        Self { shared, orders, client: None, queue: OrderQueue::default() }
    }

    pub(crate) fn run(mut self) {
        while self.shared.pause(POLL_INTERVAL) {
            self.queue.update(&self.orders);
            let Some(order) = self.queue.pop(Instant::now()) else { continue };
            match self.fetch(&order) {
                Ok(()) => {
                    tracing::info!(
                        object = %order.object,
                        first = order.first,
                        last = order.last,
                        "prefetched"
                    );
                    self.queue.done.insert(order);
                }
                // The order was withdrawn, or the agent stops.
                Err(_) if !self.orders.has(&order) || self.shared.is_stopping() => {}
                Err(error) => {
                    tracing::warn!(
                        object = %order.object, %error,
                        "cannot prefetch; the agent retries in 10 s"
                    );
                    self.queue.deferred.push_back((Instant::now() + RETRY_AFTER, order));
                }
            }
        }
    }

    fn fetch(&mut self, order: &Prefetch) -> Result<(), String> {
        let mut client = self.client.take().map_or_else(|| self.connect(), Ok)?;
        let mut part = PartDownload {
            order,
            shared: &self.shared,
            orders: &self.orders,
            gaps: self.gaps(order),
            gap: 0..0,
            trust: Arc::new(DigestVerifier),
        };
        let options = DownloadOptions {
            fetch: config(),
            threads: 1,
            concurrent_max: 1,
            ..Default::default()
        };
        download(&mut client, options, &mut part).map_err(|error| error.to_string())?;
        // After a failure the next order gets a new connection, because this one may be broken.
        self.client = Some(client);
        Ok(())
    }

    fn connect(&self) -> Result<Client, String> {
        let mut client = self.shared.connect().map_err(|error| error.to_string())?;
        // The agent must not ask the controller about misses of this face: the controller has
        // ordered them.
        let face = client.enable_local_fields().map_err(|error| error.to_string())?;
        self.shared.prefetch_face.store(face.0, Ordering::Relaxed);
        Ok(client)
    }

    /// The segments of an order that the store lacks, the last range first.
    fn gaps(&self, order: &Prefetch) -> Vec<Range<u64>> {
        // Fetch only what the store lacks: an order may be repeated after a restart.
        let page = self.shared.contents.list_one(&order.object, ROUTER_TIMEOUT);
        let holdings = page.map(|page| page.holdings).unwrap_or_default();
        let ranges = holdings.iter().flat_map(|holding| &holding.ranges);
        gaps(order.first..order.last.saturating_add(1), ranges.map(|one| (one.first, one.last)))
    }
}

/// The parts of `wanted` that are in none of the held ranges, the last first.
fn gaps(wanted: Range<u64>, held: impl Iterator<Item = (u64, u64)>) -> Vec<Range<u64>> {
    let mut held: Vec<(u64, u64)> = held.collect();
    held.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = wanted.start;
    for (first, last) in held {
        let end = first.min(wanted.end);
        if next < end {
            gaps.push(next..end);
        }
        next = next.max(last.saturating_add(1));
    }
    if next < wanted.end {
        gaps.push(next..wanted.end);
    }
    // The download takes gaps from the end, so the first one must be last.
    gaps.reverse();
    gaps
}

/// The configuration of the consumer: lower priority than all transfers that someone waits for.
fn config() -> ConsumerConfig {
    ConsumerConfig {
        controller: Controller::LEDBAT,
        window_max: WINDOW_MAX,
        reader_segments_max: READER_SEGMENTS_MAX,
        verification: Verification::Off,
        look_for_manifest: false,
        use_manifest: false,
        ..ConsumerConfig::default()
    }
}

/// The download of an order, one gap after the other.
struct PartDownload<'a> {
    order: &'a Prefetch,
    shared: &'a AgentShared,
    orders: &'a PrefetchOrders,
    gaps: Vec<Range<u64>>,
    /// The gap that is being fetched.
    gap: Range<u64>,
    /// Required by the trait; nothing is verified.
    trust: Arc<dyn Verifier>,
}

impl DownloadHost for PartDownload<'_> {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        self.gap = self.gaps.pop()?;
        let (versioned, segments) = (self.order.object.clone(), self.gap.clone());
        Some((DownloadId(segments.start), Target::Range { versioned, segments }))
    }

    fn output(&mut self, _: DownloadId, _: &Found) -> Result<Box<dyn Output>, String> {
        Ok(Box::new(DiscardOutput::new(self.gap.clone(), READER_SEGMENTS_MAX)))
    }

    fn on_ended(
        &mut self,
        _: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        result.map(drop)
    }

    fn trust(&mut self, _: DownloadId) -> &mut dyn Trust {
        &mut self.trust
    }

    fn progress(&mut self, _: u64) -> bool {
        !self.shared.is_stopping() && self.orders.has(self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_orders_wait_behind_others() {
        let order = |first| Prefetch { object: "/a/v=1".parse().unwrap(), first, last: first + 9 };
        let (orders, mut queue, now) =
            (PrefetchOrders::default(), OrderQueue::default(), Instant::now());
        orders.replace(vec![order(0), order(10), order(20)]);
        queue.update(&orders);
        let failed = queue.pop(now).unwrap();
        queue.deferred.push_back((now + RETRY_AFTER, failed));
        let fetched = queue.pop(now).unwrap();
        assert_eq!((&fetched, queue.pop(now)), (&order(10), Some(order(20))));
        queue.done.insert(fetched);
        assert_eq!((queue.pop(now), queue.pop(now + RETRY_AFTER)), (None, Some(order(0))));
        // The same orders again add nothing. New orders do, except those that are done.
        orders.replace(vec![order(0), order(10), order(20)]);
        queue.update(&orders);
        assert_eq!(queue.pop(now + RETRY_AFTER), None);
        orders.replace(vec![order(10), order(30)]);
        queue.update(&orders);
        assert_eq!((queue.pop(now), queue.pop(now)), (Some(order(30)), None));
    }

    #[test]
    fn skips_segments_in_the_store() {
        let held = [(20, 29), (5, 9), (25, 34), (90, 200)];
        assert_eq!(gaps(0..100, held.into_iter()), [35..90, 10..20, 0..5]);
        assert_eq!(gaps(7..8, held.into_iter()), []);
        assert_eq!(gaps(10..100, [(0, 9)].into_iter()).first(), Some(&(10..100)));
    }
}
