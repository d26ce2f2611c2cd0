//! The network thread's end of a producer socket: answers Interests from its output buffer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crossbeam_channel::Receiver;
use weir_base::{HashKey, Instant, Packet};
use weir_transport::{
    Answer as Found, METADATA_KEYWORD, Producer, ProducerEvent, ProducerInput, ProducerOutbox,
    Source,
};
use weir_wire::{DataView, InterestView, Name, NameView};

use super::ProducerOptions;
use super::pending::Answer;
use super::requests::{Request, Requests};
use crate::client::Client;
use crate::event_loop::{Context, Endpoint};
use crate::paths::FromRouter;

/// What the application says of what there is.
pub(crate) enum Told {
    /// Packets are published, and perhaps the metadata that makes them the latest version of an
    /// object.
    Published { packets: Vec<Packet>, metadata: Option<Packet>, taken: Answer<()> },
    /// What this Interest asks for will not be.
    Refused { interest: Packet },
}

/// The metadata of the latest version of each object.
struct Latest {
    /// By the TLV-VALUE of the object's name and the keyword, each with its number in `order`.
    packets: HashMap<Vec<u8>, (u64, Packet)>,
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
    max: usize,
}

impl Latest {
    fn new(max: usize) -> Self {
        Self { packets: HashMap::new(), order: BTreeMap::new(), next: 0, max }
    }

    /// Takes metadata in place of those of an earlier version: threads that publish at once, or
    /// what is published again, come in any order. The name that leads to it.
    fn add(&mut self, metadata: Packet) -> Option<Name> {
        let name = keyword_name(DataView::decode(&metadata).ok()?.name)?.to_name();
        let key = name.value().to_vec();
        let version = version_of(&metadata);
        if self.packets.get(&key).is_some_and(|(_, known)| version_of(known) > version) {
            return Some(name);
        }
        self.next += 1;
        self.order.insert(self.next, key.clone());
        if let Some((before, _)) = self.packets.insert(key, (self.next, metadata)) {
            self.order.remove(&before);
        }
        if self.packets.len() > self.max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.packets.remove(&oldest);
        }
        Some(name)
    }
}

/// A name up to the keyword of metadata.
fn keyword_name(name: NameView<'_>) -> Option<NameView<'_>> {
    let at = name.components().position(|part| part.is_keyword(METADATA_KEYWORD))?;
    Some(name.prefix(at + 1))
}

/// The version that metadata are of.
fn version_of(metadata: &Packet) -> Option<u64> {
    let name = DataView::decode(metadata).ok()?.name;
    name.parent().last()?.as_version()
}

impl Source for Latest {
    fn find(&mut self, interest: &InterestView<'_>) -> Found {
        let found = keyword_name(interest.name).and_then(|name| self.packets.get(name.value()));
        let answers = |packet: &Packet| {
            DataView::decode(packet).is_ok_and(|metadata| metadata.satisfies(interest))
        };
        match found {
            Some((_, packet)) if answers(packet) => Found::Packet(packet.clone()),
            _ => Found::Unknown,
        }
    }
}

/// The endpoint.
pub(crate) struct Outlet {
    prefix: Name,
    producer: Producer<Latest>,
    told: Receiver<Told>,
    requests: Arc<Requests>,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
}

impl Outlet {
    pub(crate) fn new(
        prefix: Name,
        options: &ProducerOptions,
        hash_key: HashKey,
        told: Receiver<Told>,
        requests: Arc<Requests>,
    ) -> Self {
        let latest = Latest::new(options.objects_max as usize);
        Self {
            prefix,
            producer: Producer::new(latest, options.config(hash_key)),
            told,
            requests,
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
        }
    }

    fn turn(&mut self, client: &mut Client) {
        self.producer.handle(client.now(), &mut self.inputs, &mut self.out);
        for (path, header, packet) in self.out.packets.drain(..) {
            // What its queue refuses the link counts; it is asked for again.
            let _ = client.send(path, header, packet);
        }
        for ProducerEvent::Wanted { interest } in self.out.events.drain(..) {
            if let Some(request) = Request::new(&self.prefix, interest) {
                self.requests.push(request);
            }
        }
        debug_assert!(self.out.reads.is_empty(), "it names packets only");
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.requests.close();
    }
}

impl Endpoint for Outlet {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<FromRouter>) {
        let inputs = packets.drain(..).map(|FromRouter { path, header, packet }| {
            ProducerInput::Packet { path, header, packet }
        });
        self.inputs.extend(inputs);
        let mut taken = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            match told {
                Told::Published { packets, metadata, taken: answer } => {
                    self.inputs.extend(packets.into_iter().map(ProducerInput::Put));
                    let name = metadata.and_then(|packet| self.producer.source_mut().add(packet));
                    self.inputs.extend(name.map(ProducerInput::Published));
                    taken.push(answer);
                }
                Told::Refused { interest } => self.inputs.push(ProducerInput::Refuse(interest)),
            }
        }
        self.turn(context.client);
        taken.into_iter().for_each(|taken| taken.give(Ok(())));
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.producer.next_wakeup()
    }

    fn is_done(&self) -> bool {
        false
    }
}
