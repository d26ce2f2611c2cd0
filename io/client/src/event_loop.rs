//! Many consumers and producers on the connections of one client.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use weir_base::{Instant, NS_PER_MS, Slab};
use weir_wire::{DataView, InterestView, Name, NameView};

use crate::client::Client;
use crate::paths::{ClientError, PathChange, ReceivedPacket};
use crate::prefix_map::PrefixMap;
use crate::waker::{EndpointId, EndpointWaker};

/// How often [`EventLoop::run`] looks whether it is to stop.
const TICK_NS: u64 = 200 * NS_PER_MS;
/// Packets that are handed over before what follows from them is sent.
const BATCH_PACKETS: usize = 16;

/// A consumer or a producer that shares a connection with others.
pub trait Endpoint {
    /// Takes the packets that came for it, drained from `packets`. Called also, without packets,
    /// when [`Endpoint::next_wakeup`] has come and when the client's waker was used for it.
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>);

    /// A path of several is gone, or is back. [`Endpoint::handle`] is called after it.
    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let _ = (change, client);
    }

    /// It is about to be taken away: the last that it can send.
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

/// What an endpoint may use while it is called.
pub struct Context<'a> {
    pub client: &'a mut Client,
    id: EndpointId,
}

impl Context<'_> {
    /// Has the endpoint called, from any thread.
    pub fn waker(&self) -> EndpointWaker {
        self.client.waker().endpoint(self.id)
    }
}

#[derive(Default)]
struct RoutingTables {
    interests: PrefixMap<EndpointId>,
    data: PrefixMap<EndpointId>,
}

/// Has a number before the endpoint is there.
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
    /// The number of the packet that it got last: it gets each but once.
    last_packet: u64,
    /// Its place in `by_wakeup`.
    next_wakeup: Option<Instant>,
    /// It is in `ready`.
    is_ready: bool,
}

/// Runs endpoints on the connections of one client: what comes goes to those whose names it has,
/// and each is called when its time has come. A lone endpoint gets everything.
pub struct EventLoop<'a> {
    client: &'a mut Client,
    slots: Slab<EndpointSlot<'a>>,
    by_wakeup: BTreeSet<(Instant, EndpointId)>,
    ready: Vec<EndpointId>,
    names: RoutingTables,
    packets: Vec<ReceivedPacket>,
    /// Packets that came.
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
            packets: Vec::new(),
            count: 0,
            unclaimed_packets: 0,
        }
    }

    /// Adds an endpoint. It is called in the next turn.
    pub fn add(&mut self, endpoint: impl Endpoint + 'a) -> EndpointId {
        let (endpoint, packets) = (Box::new(endpoint), Vec::new());
        let due = Some(Instant::ZERO);
        let slot =
            EndpointSlot { endpoint, packets, last_packet: 0, next_wakeup: due, is_ready: false };
        let id = EndpointId(self.slots.insert(slot));
        self.by_wakeup.insert((Instant::ZERO, id));
        id
    }

    /// As [`EventLoop::add`]. The endpoint is also called when one of its descriptors becomes
    /// readable; they are watched for edges, so that it need not read them.
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

    /// Removes an endpoint and its names, once it has handled the packets that came for it.
    pub fn remove(&mut self, id: EndpointId) {
        self.call();
        let mut slot = self.slots.remove(id.0);
        slot.endpoint.on_removed(self.client);
        slot.next_wakeup.map(|at| self.by_wakeup.remove(&(at, id)));
        self.ready.retain(|&other| other != id);
        self.names.interests.remove(id);
        self.names.data.remove(id);
    }

    /// The endpoint answers Interests below `prefix`, unless another does below a longer one.
    pub fn route_interests(&mut self, id: EndpointId, prefix: &Name) {
        self.names.interests.add(prefix, id);
    }

    /// The endpoint gets the Data below `prefix`, and the Nacks of Interests below it.
    pub fn route_data(&mut self, id: EndpointId, prefix: &Name) {
        self.names.data.add(prefix, id);
    }

    /// The client's time.
    pub fn now(&self) -> Instant {
        self.client.now()
    }

    pub fn done_count(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| slot.endpoint.is_done()).count()
    }

    /// Packets that no endpoint wanted.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed_packets
    }

    /// Runs until all endpoints are done, or `go_on`, which is asked several times a second,
    /// returns false. What is queued by then has been sent as far as the socket took it.
    ///
    /// # Errors
    /// [`ClientError::FramingLost`].
    pub fn run(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<(), ClientError> {
        let mut tick = self.client.now();
        while self.done_count() < self.slots.len() {
            let now = self.client.now();
            if now >= tick {
                if !go_on() {
                    break;
                }
                tick = now.plus_ns(TICK_NS);
            }
            self.run_once(Some(tick))?;
        }
        self.client.flush()
    }

    /// Sends what is queued, as far as the socket takes it.
    ///
    /// # Errors
    /// [`ClientError::FramingLost`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.client.flush()
    }

    /// Waits for packets, an endpoint's time, the client's waker or `until`, and calls the
    /// endpoints that this concerns.
    ///
    /// # Errors
    /// [`ClientError::FramingLost`].
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
        result?;
        let changes = self.client.take_changes();
        for change in &changes {
            let slots = self.slots.iter_mut();
            slots.for_each(|(_, slot)| slot.endpoint.on_path_changed(change, self.client));
        }
        let now = self.client.now();
        let woken = self.client.take_woken();
        if woken.all_endpoints || !changes.is_empty() {
            let all: Vec<u32> = self.slots.iter().map(|(index, _)| index).collect();
            all.into_iter().for_each(|index| self.schedule(EndpointId(index)));
        }
        // It may have been removed since.
        let there = woken.endpoints.into_iter().filter(|id| self.slots.contains(id.0));
        let due = self.by_wakeup.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id);
        there.chain(due).collect::<Vec<_>>().into_iter().for_each(|id| self.schedule(id));
        self.call();
        self.client.flush()
    }

    /// Has an endpoint called next.
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
            let id = self.names.interests.matches(interest.name).next();
            match id {
                Some(id) => {
                    self.slots[id.0].packets.push(packet);
                    self.schedule(id);
                }
                None => {
                    self.unclaimed_packets += 1;
                    self.client.nack_no_route(packet);
                }
            }
        } else if let Ok(data) = DataView::decode(&packet.packet) {
            self.deliver_data(data.name, &packet);
        } else {
            self.unclaimed_packets += 1;
        }
    }

    /// Gives a packet to all who expect such a name.
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

    /// Writes down what happens to it.
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
