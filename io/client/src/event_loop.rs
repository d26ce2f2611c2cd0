//! An event loop: many consumers and producers on the connections of one client.
//!
//! Thousands of endpoints may share a client, so a turn must not touch idle ones. The loop finds
//! the endpoints of a packet by prefix, and those that are due in a set ordered by time. Other
//! threads wake an endpoint by its number.
//!
//! One turn ([`EventLoop::run_once`]):
//!
//! 1. Wait in [`Client::poll`] for packets, a wake-up, or the earliest time of an endpoint. Queued
//!    packets are sent first.
//! 2. Hand the packets over in batches of [`BATCH_PACKETS`]: append each to the inboxes of its
//!    endpoints, call these endpoints, and send what they queued. Small batches keep the router
//!    busy while later packets are processed.
//! 3. Report broken and returned paths to all endpoints.
//! 4. Call the endpoints that were woken or whose time has come. Ask each for its next time.
//! 5. Send queued packets.
//!
//! Interests go to the endpoint with the longest matching prefix. Without one, the loop answers
//! with a Nack, because the router could not know. Data and Nacks go to every endpoint with a
//! matching prefix. An endpoint gets each packet once, even if several of its prefixes match. A
//! lone endpoint gets every packet without a lookup.
//!
//! Example: endpoints A and B fetch `/a`, and C answers `/a/live`. Data `/a/seg=1` goes to A and B.
//! An Interest for `/a/live/x` goes to C.
//!
//! Locks and threads: endpoints run on the thread of the loop only. Other threads may only use
//! wakers. A wake-up is never lost: it ends the present wait or the next one.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use weir_base::{Instant, NS_PER_MS, Slab};
use weir_wire::{DataView, InterestView, Name, NameView};

use crate::client::Client;
use crate::connection::ReceivedPacket;
use crate::paths::{ClientError, PathChange};
use crate::prefix_map::PrefixMap;
use crate::waker::{EndpointId, EndpointWaker};

/// How often [`EventLoop::run`] checks whether to stop.
const TICK_NS: u64 = 200 * NS_PER_MS;
/// Packets handed over before the loop sends the answers to them.
const BATCH_PACKETS: usize = 16;

/// A consumer or producer that shares a connection with others.
pub trait Endpoint {
    /// Takes and drains the packets that arrived for it. Also called, without packets, when
    /// [`Endpoint::next_wakeup`] has come and when its waker was used.
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>);

    /// One of several paths broke or returned. [`Endpoint::handle`] is called afterwards.
    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let _ = (change, client);
    }

    /// The endpoint is being removed: its last chance to send.
    fn on_removed(&mut self, client: &mut Client) {
        let _ = client;
    }

    /// When [`Endpoint::handle`] must be called at the latest, in the client's time. Asked after
    /// each call.
    fn next_wakeup(&self) -> Option<Instant>;

    /// Whether it needs no more calls.
    fn is_done(&self) -> bool;
}

impl<E: Endpoint + ?Sized> Endpoint for &mut E {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        (**self).handle(context, packets);
    }

    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        (**self).on_path_changed(change, client);
    }

    fn on_removed(&mut self, client: &mut Client) {
        (**self).on_removed(client);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (**self).next_wakeup()
    }

    fn is_done(&self) -> bool {
        (**self).is_done()
    }
}

/// What an endpoint may use during a call.
pub struct Context<'a> {
    pub client: &'a mut Client,
    id: EndpointId,
}

impl Context<'_> {
    /// Wakes this endpoint from any thread.
    pub fn waker(&self) -> EndpointWaker {
        self.client.waker().endpoint(self.id)
    }
}

#[derive(Default)]
struct RoutingTables {
    interests: PrefixMap<EndpointId>,
    data: PrefixMap<EndpointId>,
}

/// Reserves a number before the endpoint exists.
struct ReservedEndpoint;

impl Endpoint for ReservedEndpoint {
    fn handle(&mut self, _: &mut Context<'_>, _: &mut Vec<ReceivedPacket>) {}

    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        true
    }
}

struct EndpointSlot<'a> {
    endpoint: Box<dyn Endpoint + 'a>,
    packets: Vec<ReceivedPacket>,
    /// The number of the last Data or Nack that it got, so that it gets each only once.
    last_packet: u64,
    /// Its entry in `by_wakeup`.
    next_wakeup: Option<Instant>,
    is_ready: bool,
}

/// Runs endpoints on the connections of one client. See the module's text.
pub struct EventLoop<'a> {
    client: &'a mut Client,
    slots: Slab<EndpointSlot<'a>>,
    by_wakeup: BTreeSet<(Instant, EndpointId)>,
    ready: Vec<EndpointId>,
    names: RoutingTables,
    /// The endpoint that takes the answers to registrations.
    registrar: Option<EndpointId>,
    packets: Vec<ReceivedPacket>,
    /// Packets received. Numbers each packet, for `Slot::last_packet`.
    count: u64,
    unclaimed_packets: u64,
}

impl<'a> EventLoop<'a> {
    /// A loop without endpoints.
    pub fn new(client: &'a mut Client) -> Self {
        Self {
            client,
            slots: Slab::new(),
            by_wakeup: BTreeSet::new(),
            ready: Vec::new(),
            names: RoutingTables::default(),
            registrar: None,
            packets: Vec::new(),
            count: 0,
            unclaimed_packets: 0,
        }
    }

    /// Adds an endpoint. The next turn calls it.
    pub fn add(&mut self, endpoint: impl Endpoint + 'a) -> EndpointId {
        let (endpoint, packets) = (Box::new(endpoint), Vec::new());
        let due = Some(Instant::ZERO);
        let slot =
            EndpointSlot { endpoint, packets, last_packet: 0, next_wakeup: due, is_ready: false };
        let id = EndpointId(self.slots.insert(slot));
        self.by_wakeup.insert((Instant::ZERO, id));
        id
    }

    /// As [`EventLoop::add`]. The loop also calls the endpoint when one of its descriptors becomes
    /// readable. They are edge-triggered, so the endpoint need not read them.
    pub fn add_with_sources<E: Endpoint + 'a>(
        &mut self,
        endpoint: E,
        sources: impl FnOnce(&E) -> Vec<BorrowedFd<'_>>,
    ) -> io::Result<EndpointId> {
        let id = self.add(ReservedEndpoint);
        let sources = sources(&endpoint);
        let watched = sources.into_iter().try_for_each(|source| self.client.watch(source, id));
        if let Err(error) = watched {
            self.remove(id);
            return Err(error);
        }
        self.slots[id.0].endpoint = Box::new(endpoint);
        Ok(id)
    }

    /// Removes an endpoint and its prefixes, after it has handled the packets that arrived for it.
    pub fn remove(&mut self, id: EndpointId) {
        self.call();
        let mut slot = self.slots.remove(id.0);
        slot.endpoint.on_removed(self.client);
        slot.next_wakeup.map(|at| self.by_wakeup.remove(&(at, id)));
        self.ready.retain(|&other| other != id);
        self.registrar = self.registrar.filter(|&other| other != id);
        self.names.interests.remove(id);
        self.names.data.remove(id);
    }

    /// The endpoint answers Interests below `prefix`, except below longer prefixes of others.
    pub fn route_interests(&mut self, id: EndpointId, prefix: &Name) {
        self.names.interests.add(prefix, id);
    }

    /// The endpoint gets Data below `prefix`, and Nacks of Interests below it.
    pub fn route_data(&mut self, id: EndpointId, prefix: &Name) {
        self.names.data.add(prefix, id);
    }

    /// The endpoint is called when the router has answered a registration.
    pub fn route_registrations(&mut self, id: EndpointId) {
        self.registrar = Some(id);
    }

    pub fn now(&self) -> Instant {
        self.client.now()
    }

    pub fn done_count(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| slot.endpoint.is_done()).count()
    }

    /// Packets without an endpoint.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed_packets
    }

    /// Runs until all endpoints are done, or until `keep_going`, called several times a second,
    /// returns false. Finally sends queued packets, as far as the socket accepts them.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn run(&mut self, keep_going: &mut dyn FnMut() -> bool) -> Result<(), ClientError> {
        let mut tick = self.client.now();
        while self.done_count() < self.slots.len() {
            let now = self.client.now();
            if now >= tick {
                if !keep_going() {
                    break;
                }
                tick = now.plus_ns(TICK_NS);
            }
            self.run_once(Some(tick))?;
        }
        self.client.flush()
    }

    /// Sends queued packets, as far as the socket accepts them.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.client.flush()
    }

    /// Runs one turn: waits until packets arrive, an endpoint is due or woken, or `until` has
    /// passed. Then calls the endpoints concerned.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn run_once(&mut self, until: Option<Instant>) -> Result<(), ClientError> {
        let deadline = self.by_wakeup.first().map(|&(at, _)| at).into_iter().chain(until).min();
        let mut packets = std::mem::take(&mut self.packets);
        let result = self.client.poll(deadline, &mut packets);
        let mut batch = packets.drain(..).peekable();
        while batch.peek().is_some() {
            for packet in batch.by_ref().take(BATCH_PACKETS) {
                self.dispatch(packet);
            }
            self.call();
            self.client.flush()?;
        }
        drop(batch);
        self.packets = packets;
        // An error is returned only after the packets received before it have been delivered.
        result?;
        let changes = self.client.take_changes();
        for change in &changes {
            let slots = self.slots.iter_mut();
            slots.for_each(|(_, slot)| slot.endpoint.on_path_changed(change, self.client));
        }
        if let Some(id) = self.registrar.filter(|_| self.client.has_registrations()) {
            self.schedule(id);
        }
        let now = self.client.now();
        let woken = self.client.take_woken();
        if woken.all_endpoints || !changes.is_empty() {
            let all: Vec<u32> = self.slots.iter().map(|(index, _)| index).collect();
            all.into_iter().for_each(|index| self.schedule(EndpointId(index)));
        }
        // A woken endpoint may have been removed in the meantime.
        let known = woken.endpoints.into_iter().filter(|id| self.slots.contains(id.0));
        let due = self.by_wakeup.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id);
        known.chain(due).collect::<Vec<_>>().into_iter().for_each(|id| self.schedule(id));
        self.call();
        self.client.flush()
    }

    /// Marks an endpoint to be called next.
    fn schedule(&mut self, id: EndpointId) {
        if !std::mem::replace(&mut self.slots[id.0].is_ready, true) {
            self.ready.push(id);
        }
    }

    fn call(&mut self) {
        for id in std::mem::take(&mut self.ready) {
            let slot = &mut self.slots[id.0];
            slot.is_ready = false;
            if !slot.endpoint.is_done() {
                let mut context = Context { client: self.client, id };
                slot.endpoint.handle(&mut context, &mut slot.packets);
            }
            // A finished endpoint is not called, so its packets are dropped here.
            slot.packets.clear();
            let due = match slot.endpoint.is_done() {
                true => None,
                false => slot.endpoint.next_wakeup(),
            };
            if due != slot.next_wakeup {
                let before = std::mem::replace(&mut slot.next_wakeup, due);
                before.map(|at| self.by_wakeup.remove(&(at, id)));
                self.by_wakeup.extend(due.map(|at| (at, id)));
            }
        }
    }

    fn dispatch(&mut self, packet: ReceivedPacket) {
        self.count += 1;
        // With a single endpoint no name is decoded.
        if self.slots.len() == 1 {
            let (index, slot) = self.slots.iter_mut().next().expect("there is one");
            slot.packets.push(packet);
            return self.schedule(EndpointId(index));
        }
        let is_nack = packet.header.nack.is_some();
        if let Ok(interest) = InterestView::decode(&packet.packet) {
            if is_nack {
                self.deliver_data(interest.name, &packet);
                return;
            }
            // The longest prefix comes first.
            let id = self.names.interests.matches(interest.name).next();
            match id {
                Some(id) => {
                    self.slots[id.0].packets.push(packet);
                    self.schedule(id);
                }
                None => {
                    self.unclaimed_packets += 1;
                    // The endpoint may be gone, which the router does not know.
                    self.client.nack_no_route(packet);
                }
            }
        } else if let Ok(data) = DataView::decode(&packet.packet) {
            self.deliver_data(data.name, &packet);
        } else {
            self.unclaimed_packets += 1;
        }
    }

    /// Delivers a packet to all endpoints that expect its name.
    fn deliver_data(&mut self, name: NameView<'_>, packet: &ReceivedPacket) {
        let mut is_claimed = false;
        for id in self.names.data.matches(name) {
            is_claimed = true;
            let slot = &mut self.slots[id.0];
            if slot.last_packet != self.count {
                slot.last_packet = self.count;
                slot.packets.push(packet.clone());
                if !std::mem::replace(&mut slot.is_ready, true) {
                    self.ready.push(id);
                }
            }
        }
        self.unclaimed_packets += u64::from(!is_claimed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::net::UnixListener;

    use weir_face::FaceUri;
    use weir_transport::PathId;
    use weir_wire::{Interest, LpHeader};

    use super::*;

    /// Records the calls to it.
    struct CallRecorder<'a>(&'a RefCell<Vec<&'static str>>);

    impl Endpoint for CallRecorder<'_> {
        fn handle(&mut self, _: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
            self.0.borrow_mut().extend(packets.drain(..).map(|_| "packet"));
        }

        fn on_removed(&mut self, _: &mut Client) {
            self.0.borrow_mut().push("removed");
        }

        fn next_wakeup(&self) -> Option<Instant> {
            None
        }

        fn is_done(&self) -> bool {
            false
        }
    }

    #[test]
    fn removed_endpoint_gets_pending_packets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&FaceUri::Unix(path)).unwrap();
        let (one, other) = (RefCell::default(), RefCell::default());
        let mut events = EventLoop::new(&mut client);
        let ids = [events.add(CallRecorder(&one)), events.add(CallRecorder(&other))];
        let names: [Name; 2] = ["/one".parse().unwrap(), "/other".parse().unwrap()];
        for (id, name) in ids.into_iter().zip(&names) {
            events.route_interests(id, name);
            let packet = Interest::new(name.clone()).encode().into();
            let (path, header) = (PathId(0), LpHeader::default());
            events.dispatch(ReceivedPacket { path, header, packet });
        }
        events.remove(ids[0]);
        assert_eq!(*one.borrow(), ["packet", "removed"]);
        assert_eq!(*other.borrow(), ["packet"]);
    }
}
