//! The network thread's end of a producer socket: answers Interests from its output buffer.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::vec;

use crossbeam_channel::Receiver;
use weir_base::{HashKey, Instant, Packet};
use weir_store::disk::DiskTierConfig;
use weir_transport::{
    Answer as Found, METADATA_KEYWORD, Metadata, Producer, ProducerEvent, ProducerInput,
    ProducerOutbox, ProducerStats, Source,
};
use weir_wire::{DataView, InterestView, Name, NameView};

use super::ProducerOptions;
use super::output_disk::OutputDisk;
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
    /// An object has grown.
    Grown { packets: Vec<Packet>, metadata: Packet, growth: Growth, taken: Answer<()> },
    /// An object of that version grows no more, and has no end.
    Left { versioned: Name },
    /// It wants to know what the producer did so far.
    Asked { stats: Answer<ProducerStats> },
    /// What this Interest asks for will not be.
    Refused { interest: Packet },
}

/// How far an object is that grows.
pub(crate) struct Growth {
    pub(crate) versioned: Name,
    /// The segment that is made next, if there is to be one.
    pub(crate) next: Option<u64>,
}

/// Segments after those that there are which Interests may wait for; for those after these nobody
/// is to ask yet.
const EARLY_SEGMENTS: u64 = 4096;

/// The metadata of the latest version of each object, and which of them grow.
struct Latest {
    /// By the TLV-VALUE of the versioned name, the segment that is made next.
    growing: HashMap<Vec<u8>, u64>,

    /// By the TLV-VALUE of the object's name and the keyword, each with its number in `order`.
    packets: HashMap<Vec<u8>, (u64, Packet)>,
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
    max: usize,
}

impl Latest {
    fn new(max: usize) -> Self {
        Self {
            growing: HashMap::new(),
            packets: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
            max,
        }
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

impl Latest {
    fn grow(&mut self, Growth { versioned, next }: Growth) {
        match next {
            Some(next) => self.growing.insert(versioned.value().to_vec(), next),
            None => self.growing.remove(versioned.value()),
        };
    }

    /// Forgets an object that was left before its end, so that nobody begins with it.
    fn leave(&mut self, versioned: &Name) {
        if self.growing.remove(versioned.value()).is_none() {
            return;
        }
        let mut name = versioned.as_view().parent().to_name();
        name.append_keyword(METADATA_KEYWORD);
        let is_its = |packet: &Packet| {
            let metadata = DataView::decode(packet).ok().map(|data| Metadata::decode(data.content));
            metadata.is_some_and(|metadata| metadata.is_ok_and(|one| one.versioned == *versioned))
        };
        if self.packets.get(name.value()).is_some_and(|(_, packet)| is_its(packet))
            && let Some((number, _)) = self.packets.remove(name.value())
        {
            self.order.remove(&number);
        }
    }

    /// Whether an Interest is for a segment that is to be made soon.
    fn is_early(&self, interest: &InterestView<'_>) -> bool {
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let Some(segment) = segment else { return false };
        let versioned = interest.name.parent();
        match self.growing.get(versioned.value()) {
            Some(&next) => (next..next.saturating_add(EARLY_SEGMENTS)).contains(&segment),
            None => self.has_ended_before(versioned, segment),
        }
    }

    /// Whether this was an object that grew and ended before that segment was made: whoever asked
    /// for it did not know yet.
    fn has_ended_before(&self, versioned: NameView<'_>, segment: u64) -> bool {
        let mut name = versioned.parent().to_name();
        name.append_keyword(METADATA_KEYWORD);
        let data =
            self.packets.get(name.value()).and_then(|(_, packet)| DataView::decode(packet).ok());
        let metadata = data.and_then(|data| Metadata::decode(data.content).ok());
        metadata.is_some_and(|metadata| {
            metadata.versioned.as_view() == versioned
                && metadata.next_segment.is_some_and(|next| segment >= next)
        })
    }
}

/// A name up to the keyword of metadata, the last one: an object's name may have others.
fn keyword_name(name: NameView<'_>) -> Option<NameView<'_>> {
    let keywords = name.components().enumerate();
    let (at, _) = keywords.filter(|(_, part)| part.is_keyword(METADATA_KEYWORD)).last()?;
    Some(name.prefix(at + 1))
}

/// The version of the object that metadata are of, and their own: those of one that grows are made
/// anew, and do not make it later than another.
fn version_of(metadata: &Packet) -> Option<(u64, u64)> {
    let data = DataView::decode(metadata).ok()?;
    let object = Metadata::decode(data.content).ok()?.versioned;
    Some((object.as_view().last()?.as_version()?, data.name.parent().last()?.as_version()?))
}

impl Source for Latest {
    fn find(&mut self, interest: &InterestView<'_>) -> Found {
        let found = keyword_name(interest.name).and_then(|name| self.packets.get(name.value()));
        let answers = |packet: &Packet| {
            DataView::decode(packet).is_ok_and(|metadata| metadata.satisfies(interest))
        };
        match found {
            Some((_, packet)) if answers(packet) => Found::Packet(packet.clone()),
            _ if self.is_early(interest) => Found::Later,
            _ => Found::Unknown,
        }
    }
}

/// What answers, from the output buffer, with its disk if it has one.
pub(crate) struct Answers {
    producer: Producer<Latest>,
    disk: Option<OutputDisk>,
}

impl Answers {
    pub(crate) fn new(
        options: &ProducerOptions,
        hash_key: HashKey,
        disk: Option<(OutputDisk, DiskTierConfig)>,
    ) -> Self {
        let (latest, config) =
            (Latest::new(options.objects_max as usize), options.config(hash_key));
        match disk {
            None => Self { producer: Producer::new(latest, config), disk: None },
            Some((disk, tier)) => {
                let producer = Producer::with_disk(latest, config, tier);
                Self { producer, disk: Some(disk) }
            }
        }
    }
}

/// What is being published.
struct Publication {
    packets: vec::IntoIter<Packet>,
    metadata: Option<Packet>,
    growth: Option<Growth>,
    taken: Answer<()>,
}

/// Packets put at a time where they may go on to a disk: it is asked in between whether it is
/// behind.
const PUT_PACKETS: usize = 16;

/// The endpoint.
pub(crate) struct Outlet {
    prefix: Name,
    producer: Producer<Latest>,
    disk: Option<OutputDisk>,
    told: Receiver<Told>,
    requests: Arc<Requests>,
    /// Of which a part has been put, while the disk is behind.
    publication: Option<Publication>,
    /// Of what has been put in this turn.
    growths: Vec<Growth>,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
}

impl Outlet {
    pub(crate) fn new(
        prefix: Name,
        Answers { producer, disk }: Answers,
        told: Receiver<Told>,
        requests: Arc<Requests>,
    ) -> Self {
        Self {
            prefix,
            producer,
            disk,
            told,
            requests,
            publication: None,
            growths: Vec::new(),
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
        }
    }

    /// Does one thing that it was told, or a part of it; says no when there is nothing. Those who
    /// wait until that is done are to be answered at the end.
    fn do_as_told(&mut self, taken: &mut Vec<Answer<()>>) -> bool {
        if let Some(publication) = self.publication.take() {
            self.put(publication, taken);
            return true;
        }
        let Ok(told) = self.told.try_recv() else { return false };
        match told {
            Told::Published { packets, metadata, taken: answer } => {
                let (packets, growth) = (packets.into_iter(), None);
                self.put(Publication { packets, metadata, growth, taken: answer }, taken);
            }
            Told::Grown { packets, metadata, growth, taken: answer } => {
                let (packets, metadata) = (packets.into_iter(), Some(metadata));
                let growth = Some(growth);
                self.put(Publication { packets, metadata, growth, taken: answer }, taken);
            }
            Told::Left { versioned } => self.producer.source_mut().leave(&versioned),
            Told::Asked { stats } => stats.give(Ok(self.producer.stats())),
            Told::Refused { interest } => self.inputs.push(ProducerInput::Refuse(interest)),
        }
        true
    }

    fn put(&mut self, mut publication: Publication, taken: &mut Vec<Answer<()>>) {
        let count = if self.disk.is_some() { PUT_PACKETS } else { usize::MAX };
        let packets = publication.packets.by_ref().take(count);
        self.inputs.extend(packets.map(ProducerInput::Put));
        if publication.packets.len() > 0 {
            self.publication = Some(publication);
            return;
        }
        let Publication { metadata, growth, taken: answer, .. } = publication;
        let name = metadata.and_then(|packet| self.producer.source_mut().add(packet));
        self.inputs.extend(name.map(ProducerInput::Published));
        self.growths.extend(growth);
        taken.push(answer);
    }

    fn turn(&mut self, client: &mut Client) {
        if let Some(disk) = &mut self.disk {
            disk.take(&mut self.inputs);
        }
        self.producer.handle(client.now(), &mut self.inputs, &mut self.out);
        if let Some(disk) = &mut self.disk {
            disk.submit(&mut self.out.disk_ops);
        }
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
        // Interests that came with these packets were early until now.
        for growth in self.growths.drain(..) {
            self.producer.source_mut().grow(growth);
        }
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
        loop {
            let was_behind = self.producer.is_disk_behind();
            let has_more = !was_behind && self.do_as_told(&mut taken);
            self.turn(context.client);
            // Where the disk is behind, it says when it has done something.
            if !has_more && (!was_behind || self.producer.is_disk_behind()) {
                break;
            }
        }
        taken.into_iter().for_each(|taken| taken.give(Ok(())));
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.producer.next_wakeup()
    }

    fn sources(&self) -> Vec<BorrowedFd<'_>> {
        self.disk.as_ref().map_or_else(Vec::new, OutputDisk::sources)
    }

    fn is_done(&self) -> bool {
        false
    }
}
