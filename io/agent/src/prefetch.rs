//! Fetches parts of objects ahead of demand: the transport's consumer on a local face of the
//! router, which stores what passes as its rules say. What is fetched is not kept here, nor
//! believed: who reads it later verifies it. It gives way to whatever else uses the same path
//! (`ledbat`).

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
    DownloadError, DownloadId, DownloadOptions, Found, Host, Notifier, Opened, Output, OutputError,
    PacketReader, Summary, download,
};
use weir_transport::{ConsumerConfig, Controller, Delivery, Metadata, Target, Verification};

use crate::shared::AgentShared;

/// How long a part is left for later that cannot be had, and how often new orders are looked for.
const LATER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// How long the router has to say what is there already.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interests under way at most: a bound beside that of the controller, which sees no queue where
/// there is none but the router's own work.
const WINDOW_MAX: u32 = 64;
/// Segments that came before others at most.
const UNITS_MAX: u32 = 512;

/// What is to be fetched, whole: new orders take the place of all before.
#[derive(Clone, Default)]
pub(crate) struct Orders(Arc<Mutex<Ordered>>);

#[derive(Default)]
struct Ordered {
    all: Vec<Prefetch>,
    number: u64,
}

impl Orders {
    pub(crate) fn replace(&self, orders: Vec<Prefetch>) {
        let mut ordered = self.lock();
        ordered.number += u64::from(ordered.all != orders);
        ordered.all = orders;
    }

    /// All orders, if they were replaced since `number` was theirs, and their number.
    fn since(&self, number: u64) -> Option<(Vec<Prefetch>, u64)> {
        let ordered = self.lock();
        (ordered.number != number).then(|| (ordered.all.clone(), ordered.number))
    }

    fn has(&self, order: &Prefetch) -> bool {
        self.lock().all.contains(order)
    }

    fn lock(&self) -> MutexGuard<'_, Ordered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Orders in the state that each is in.
#[derive(Default)]
struct Queue {
    number: u64,
    next: VecDeque<Prefetch>,
    /// Those that could not be had, the one that is due first in front.
    later: VecDeque<(Instant, Prefetch)>,
    done: BTreeSet<Prefetch>,
}

impl Queue {
    /// Takes what is new of orders.
    fn update(&mut self, orders: &Orders) {
        let Some((all, number)) = orders.since(self.number) else { return };
        self.number = number;
        let wanted: BTreeSet<&Prefetch> = all.iter().collect();
        self.done.retain(|order| wanted.contains(order));
        self.later.retain(|(_, order)| wanted.contains(order));
        let later: BTreeSet<&Prefetch> = self.later.iter().map(|(_, order)| order).collect();
        let is_new = |order: &&Prefetch| !self.done.contains(*order) && !later.contains(*order);
        self.next = all.iter().filter(is_new).cloned().collect();
    }

    /// The order to fetch now: one that could not be had waits behind all others.
    fn pop(&mut self, now: Instant) -> Option<Prefetch> {
        self.next
            .pop_front()
            .or_else(|| self.later.pop_front_if(|(due, _)| *due <= now).map(|(_, order)| order))
    }
}

/// The thread that fetches.
pub(crate) struct Prefetcher {
    shared: Arc<AgentShared>,
    orders: Orders,
    /// One for all parts, so that its face is known.
    client: Option<Client>,
    queue: Queue,
}

impl Prefetcher {
    pub(crate) fn new(shared: Arc<AgentShared>, orders: Orders) -> Self {
        Self { shared, orders, client: None, queue: Queue::default() }
    }

    pub(crate) fn run(mut self) {
        while self.shared.pause(LOOK) {
            self.queue.update(&self.orders);
            let Some(order) = self.queue.pop(Instant::now()) else { continue };
            match self.fetch(&order) {
                Ok(()) => {
                    tracing::info!(
                        object = %order.object,
                        first = order.first,
                        last = order.last,
                        "fetched ahead"
                    );
                    self.queue.done.insert(order);
                }
                // It is not wanted any more, or nothing is.
                Err(_) if !self.orders.has(&order) || self.shared.is_stopping() => {}
                Err(error) => {
                    tracing::warn!(object = %order.object, %error, "cannot fetch ahead; later");
                    self.queue.later.push_back((Instant::now() + LATER, order));
                }
            }
        }
    }

    fn fetch(&mut self, order: &Prefetch) -> Result<(), String> {
        let mut client = self.client.take().map_or_else(|| self.connect(), Ok)?;
        let mut part = Part {
            order,
            shared: &self.shared,
            orders: &self.orders,
            gaps: self.gaps(order),
            gap: 0..0,
            trust: Arc::new(DigestVerifier),
        };
        let options =
            DownloadOptions { fetch: config(), threads: 1, side_by_side: 1, ..Default::default() };
        download(&mut client, options, &mut part).map_err(|error| error.to_string())?;
        // After a failure with a new one: this may be gone.
        self.client = Some(client);
        Ok(())
    }

    fn connect(&self) -> Result<Client, String> {
        let mut client = self.shared.connect().map_err(|error| error.to_string())?;
        // What is asked for here is not asked about: the controller has ordered it.
        let face = client.enable_local_fields().map_err(|error| error.to_string())?;
        self.shared.prefetch_face.store(face.0, Ordering::Relaxed);
        Ok(client)
    }

    /// The segments of a part that the store lacks, the last first.
    fn gaps(&self, order: &Prefetch) -> Vec<Range<u64>> {
        let page = self.shared.contents.list_one(&order.object, ROUTER_TIMEOUT);
        let holdings = page.map(|page| page.holdings).unwrap_or_default();
        let ranges = holdings.iter().flat_map(|holding| &holding.ranges);
        gaps(order.first..order.last.saturating_add(1), ranges.map(|one| (one.first, one.last)))
    }
}

/// What of a range is in none of these, the last first.
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
    gaps.reverse();
    gaps
}

/// How it is fetched: at lower priority than what anybody waits for.
fn config() -> ConsumerConfig {
    ConsumerConfig {
        controller: Controller::LEDBAT,
        window_max: WINDOW_MAX,
        reader_segments_max: UNITS_MAX,
        verification: Verification::Off,
        look_for_manifest: false,
        use_manifest: false,
        ..ConsumerConfig::default()
    }
}

/// A part that is being fetched, gap by gap.
struct Part<'a> {
    order: &'a Prefetch,
    shared: &'a AgentShared,
    orders: &'a Orders,
    gaps: Vec<Range<u64>>,
    /// The one that is being fetched.
    gap: Range<u64>,
    /// Not asked: nothing is verified.
    trust: Arc<dyn Verifier>,
}

impl Host for Part<'_> {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        self.gap = self.gaps.pop()?;
        let (versioned, segments) = (self.order.object.clone(), self.gap.clone());
        Some((DownloadId(segments.start), Target::Range { versioned, segments }))
    }

    fn output(&mut self, _: DownloadId, _: &Found) -> Result<Box<dyn Output>, String> {
        Ok(Box::new(Nowhere { segments: self.gap.clone() }))
    }

    fn ended(
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

/// Where what is fetched goes.
struct Nowhere {
    segments: Range<u64>,
}

impl Output for Nowhere {
    fn is_quick(&self) -> bool {
        true
    }

    fn open(&mut self, _: &Metadata) -> Result<Opened, OutputError> {
        let (reader, segments) = (Box::new(Passed::default()), self.segments.clone());
        Ok(Opened::Reader { reader, segments, packets_max: UNITS_MAX })
    }
}

#[derive(Default)]
struct Passed {
    packets: u32,
}

impl PacketReader for Passed {
    fn take(&mut self, packets: &mut Vec<Delivery>) {
        self.packets += packets.drain(..).count() as u32;
    }

    fn attach(&mut self, _: Notifier) {}

    fn done(&mut self) -> Option<u32> {
        Some(std::mem::take(&mut self.packets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_cannot_be_had_waits_behind_others() {
        let order = |first| Prefetch { object: "/a/v=1".parse().unwrap(), first, last: first + 9 };
        let (orders, mut queue, now) = (Orders::default(), Queue::default(), Instant::now());
        orders.replace(vec![order(0), order(10), order(20)]);
        queue.update(&orders);
        let failed = queue.pop(now).unwrap();
        queue.later.push_back((now + LATER, failed));
        let fetched = queue.pop(now).unwrap();
        assert_eq!((&fetched, queue.pop(now)), (&order(10), Some(order(20))));
        queue.done.insert(fetched);
        assert_eq!((queue.pop(now), queue.pop(now + LATER)), (None, Some(order(0))));
        // The same orders once more are not new; others are, but for what is done.
        orders.replace(vec![order(0), order(10), order(20)]);
        queue.update(&orders);
        assert_eq!(queue.pop(now + LATER), None);
        orders.replace(vec![order(10), order(30)]);
        queue.update(&orders);
        assert_eq!((queue.pop(now), queue.pop(now)), (Some(order(30)), None));
    }

    #[test]
    fn what_is_held_is_not_fetched() {
        let held = [(20, 29), (5, 9), (25, 34), (90, 200)];
        assert_eq!(gaps(0..100, held.into_iter()), [35..90, 10..20, 0..5]);
        assert_eq!(gaps(7..8, held.into_iter()), []);
        assert_eq!(gaps(10..100, [(0, 9)].into_iter()).first(), Some(&(10..100)));
    }
}
