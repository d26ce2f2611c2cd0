//! Fetches parts of objects ahead of demand, as an ordinary consumer of the router, which stores
//! what passes as its rules say. What is fetched is not kept here, nor believed: who reads it later
//! verifies it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_control::message::Prefetch;
use weir_socket::{Client, FromRouter};
use weir_wire::{DataView, Interest, InterestView, Name};

use crate::shared::Shared;
use crate::window::Window;

/// How long an Interest waits for its Data.
const LIFETIME: Duration = Duration::from_secs(2);
/// How often a segment is asked for before the part is left for later.
const TRIES_MAX: u32 = 6;
/// How long a part is left for later, and how often new orders are looked for.
const LATER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// How long the router has to say what is there already.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(2);

/// What is to be fetched, whole: new orders take the place of all before.
#[derive(Clone, Default)]
pub(crate) struct Orders(Arc<Mutex<Vec<Prefetch>>>);

impl Orders {
    pub(crate) fn replace(&self, orders: Vec<Prefetch>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = orders;
    }

    fn all(&self) -> Vec<Prefetch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, order: &Prefetch) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(order)
    }
}

/// The thread that fetches.
pub(crate) struct Prefetcher {
    shared: Arc<Shared>,
    orders: Orders,
    /// One for all parts, so that its face is known.
    client: Option<Client>,
    done: Vec<Prefetch>,
}

/// How a part came to its end.
enum End {
    Done,
    /// It is not wanted any more.
    Withdrawn,
    /// Something is missing that does not come, or the router is gone.
    Failed(String),
}

impl Prefetcher {
    pub(crate) fn new(shared: Arc<Shared>, orders: Orders) -> Self {
        Self { shared, orders, client: None, done: Vec::new() }
    }

    pub(crate) fn run(mut self) {
        while self.shared.pause(LOOK) {
            let orders = self.orders.all();
            self.done.retain(|order| orders.contains(order));
            let Some(order) = orders.into_iter().find(|order| !self.done.contains(order)) else {
                continue;
            };
            match self.fetch(&order) {
                End::Done => {
                    tracing::info!(
                        object = %order.object,
                        first = order.first,
                        last = order.last,
                        "fetched ahead"
                    );
                    self.done.push(order);
                }
                End::Withdrawn => {}
                End::Failed(error) => {
                    tracing::warn!(object = %order.object, %error, "cannot fetch ahead; later");
                    if !self.shared.pause(LATER) {
                        return;
                    }
                }
            }
        }
    }

    fn fetch(&mut self, order: &Prefetch) -> End {
        let client = match self.client.take().map_or_else(|| self.connect(), Ok) {
            Ok(client) => client,
            Err(error) => return End::Failed(error),
        };
        let mut fetch = Fetch {
            client,
            window: Window::new(),
            object: order.object.clone(),
            wanted: self.missing(order),
            in_flight: BTreeMap::new(),
        };
        let is_wanted = || !self.shared.is_stopping() && self.orders.has(order);
        let end = fetch.run(is_wanted);
        // After a failure with a new one: this may be gone.
        if !matches!(end, End::Failed(_)) {
            self.client = Some(fetch.client);
        }
        end
    }

    fn connect(&self) -> Result<Client, String> {
        let mut client = self.shared.connect().map_err(|error| error.to_string())?;
        // What is asked for here is not asked about: the controller has ordered it.
        let face = client.enable_local_fields().map_err(|error| error.to_string())?;
        self.shared.prefetch_face.store(face.0, Ordering::Relaxed);
        Ok(client)
    }

    /// The segments of a part that the store lacks.
    fn missing(&self, order: &Prefetch) -> VecDeque<(u64, u32)> {
        let page = self.shared.contents.list_one(&order.object, ROUTER_TIMEOUT);
        let holdings = page.map(|page| page.holdings).unwrap_or_default();
        let mut held: Vec<(u64, u64)> = holdings
            .iter()
            .flat_map(|holding| &holding.ranges)
            .map(|range| (range.first, range.last))
            .collect();
        held.sort_unstable();
        let mut missing = VecDeque::new();
        let mut next = order.first;
        for (first, last) in held {
            missing.extend((next..first.min(order.last.saturating_add(1))).map(|at| (at, 0)));
            next = next.max(last.saturating_add(1));
        }
        if next <= order.last {
            missing.extend((next..=order.last).map(|at| (at, 0)));
        }
        missing
    }
}

/// A part that is being fetched.
struct Fetch {
    client: Client,
    window: Window,
    object: Name,
    /// Segments to be asked for, and how often they were.
    wanted: VecDeque<(u64, u32)>,
    /// When a segment was asked for, and how often.
    in_flight: BTreeMap<u64, (Instant, u32)>,
}

impl Fetch {
    fn run(&mut self, is_wanted: impl Fn() -> bool) -> End {
        let mut packets = Vec::new();
        while !self.wanted.is_empty() || !self.in_flight.is_empty() {
            if !is_wanted() {
                return End::Withdrawn;
            }
            self.ask();
            let deadline = self.client.now().plus_ns(LOOK.as_nanos() as u64);
            if let Err(error) = self.client.poll(Some(deadline), &mut packets) {
                return End::Failed(error.to_string());
            }
            for packet in packets.drain(..) {
                self.on_packet(&packet);
            }
            if let Some(segment) = self.expire() {
                return End::Failed(format!("segment {segment} does not come"));
            }
        }
        End::Done
    }

    fn ask(&mut self) {
        let Some(path) = self.client.paths().next() else { return };
        while self.in_flight.len() < self.window.size() {
            let Some((segment, tries)) = self.wanted.pop_front() else { return };
            let mut name = self.object.clone();
            name.append_segment(segment);
            let nonce = self.client.random() as u32;
            let lifetime_ms = LIFETIME.as_millis() as u64;
            let interest = Interest::new(name).nonce(nonce).lifetime_ms(lifetime_ms).encode();
            if self.client.send_octets(path, &interest).is_err() {
                self.wanted.push_front((segment, tries));
                return;
            }
            self.in_flight.insert(segment, (Instant::now(), tries + 1));
        }
    }

    fn on_packet(&mut self, packet: &FromRouter) {
        if packet.header.nack.is_some() {
            let Ok(nacked) = InterestView::decode(&packet.packet) else { return };
            let is_of_object = nacked.name.parent() == self.object.as_view();
            let segment = nacked.name.last().and_then(|last| last.as_segment());
            let segment = segment.filter(|_| is_of_object);
            // It is asked for again when its time is over.
            if segment.is_some_and(|segment| self.in_flight.contains_key(&segment)) {
                self.window.on_loss();
            }
            return;
        }
        let Ok(data) = DataView::decode(&packet.packet) else { return };
        // It may be the answer to an Interest for a part that is not wanted any more.
        if data.name.parent() != self.object.as_view() {
            return;
        }
        let Some(segment) = data.name.last().and_then(|last| last.as_segment()) else { return };
        if let Some((asked, tries)) = self.in_flight.remove(&segment)
            && tries == 1
        {
            self.window.on_answer(asked.elapsed());
        }
    }

    /// Takes back what was not answered in time; a segment that has been asked for often enough.
    fn expire(&mut self) -> Option<u64> {
        let late: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, (asked, _))| asked.elapsed() > LIFETIME)
            .map(|(segment, _)| *segment)
            .collect();
        if !late.is_empty() {
            self.window.on_loss();
        }
        for segment in late {
            let Some((_, tries)) = self.in_flight.remove(&segment) else { continue };
            if tries >= TRIES_MAX {
                return Some(segment);
            }
            self.wanted.push_front((segment, tries));
        }
        None
    }
}
