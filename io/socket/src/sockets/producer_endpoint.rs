//! The network thread's end of a producer socket: answers Interests from its output buffer.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::vec;

use crossbeam_channel::{Receiver, Sender};
use weir_base::{HashKey, Instant, Packet};
use weir_client::{Client, Context, Endpoint, ReceivedPacket};
use weir_transport::{
    NameMapping, Producer, ProducerEvent, ProducerInput, ProducerOutbox, ProducerStats,
};
use weir_wire::{Name, NameView};

use super::ProducerOptions;
use super::latest::{GrowthUpdate, LatestVersions};
use super::output_disk::{OpenDisk, OutputDisk};
use super::pending::{Completer, PublishConfirmation};
use super::requests::{Request, RequestQueue, ServedNames};

/// Commands from the application.
pub(crate) enum ProducerCommand {
    /// Publish packets, and optionally the metadata that make them the latest version of an object.
    Published { packets: Vec<Packet>, metadata: Option<Packet>, confirmation: PublishConfirmation },
    Grown {
        packets: Vec<Packet>,
        metadata: Packet,
        growth: GrowthUpdate,
        confirmation: PublishConfirmation,
    },
    /// A growing object of this version ends without an end.
    LiveAbandoned { versioned: Name },
    /// Return the metadata of an object's latest version.
    Latest { object: Name, metadata: Completer<Option<Packet>> },
    /// Return the counters.
    Stats { stats: Completer<ProducerStats> },
    /// Answer waiting Interests with this Data, without storing it.
    Answered { packet: Packet },
    /// Refuse what this Interest requests.
    Refused { interest: Packet },
}

/// The output buffer that answers, with its disk if it has one.
pub(crate) struct OutputBuffer {
    producer: Producer<LatestVersions>,
    disk: Option<OutputDisk>,
}

impl OutputBuffer {
    pub(crate) fn new(
        options: &ProducerOptions,
        hash_key: HashKey,
        disk: Option<OpenDisk>,
    ) -> Self {
        let latest = LatestVersions::new(options.objects_max as usize, options.mapping);
        let config = options.config(hash_key);
        match disk {
            None => Self { producer: Producer::new(latest, config), disk: None },
            Some((disk, tier)) => {
                let producer = Producer::with_disk(latest, config, tier);
                Self { producer, disk: Some(disk) }
            }
        }
    }
}

/// A publication in progress.
struct PendingPublication {
    packets: vec::IntoIter<Packet>,
    metadata: Option<Packet>,
    growth: Option<GrowthUpdate>,
    confirmation: PublishConfirmation,
}

/// Packets put between two checks whether the disk is behind.
const PUT_BATCH_PACKETS: usize = 16;

pub(crate) struct ProducerEndpoint {
    served: ServedNames,
    producer: Producer<LatestVersions>,
    disk: Option<OutputDisk>,
    /// Receives the disk when the producer is gone and operations are pending.
    closing: Option<Sender<OutputDisk>>,
    commands: Receiver<ProducerCommand>,
    requests: Arc<RequestQueue>,
    /// A publication in progress that waits for the disk.
    publication: Option<PendingPublication>,
    /// Growth of objects in this turn.
    growths: Vec<GrowthUpdate>,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
}

impl ProducerEndpoint {
    pub(crate) fn new(
        served: ServedNames,
        OutputBuffer { producer, disk }: OutputBuffer,
        receiver: Receiver<ProducerCommand>,
        requests: Arc<RequestQueue>,
    ) -> Self {
        Self {
            served,
            producer,
            disk,
            closing: None,
            commands: receiver,
            requests,
            publication: None,
            growths: Vec::new(),
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
        }
    }

    /// The network thread has the endpoint from now on, and gets the disk back.
    pub(crate) fn close_disk_by(&mut self, closing: Sender<OutputDisk>) {
        self.closing = Some(closing);
    }

    /// Descriptors that become readable when the disk has done something.
    pub(crate) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        self.disk.as_ref().map_or_else(Vec::new, OutputDisk::sources)
    }

    /// Executes one command, or the next batch of a large publication. Returns false if there is
    /// none. The caller delivers the confirmations when this turn has ended.
    fn run_next_command(&mut self, confirmations: &mut Vec<PublishConfirmation>) -> bool {
        if let Some(publication) = self.publication.take() {
            self.put(publication, confirmations);
            return true;
        }
        let Ok(command) = self.commands.try_recv() else { return false };
        match command {
            ProducerCommand::Published { packets, metadata, confirmation } => {
                let (packets, growth) = (packets.into_iter(), None);
                self.put(
                    PendingPublication { packets, metadata, growth, confirmation },
                    confirmations,
                );
            }
            ProducerCommand::Grown { packets, metadata, growth, confirmation } => {
                let (packets, metadata) = (packets.into_iter(), Some(metadata));
                let growth = Some(growth);
                self.put(
                    PendingPublication { packets, metadata, growth, confirmation },
                    confirmations,
                );
            }
            ProducerCommand::LiveAbandoned { versioned } => {
                self.producer.source_mut().forget_unfinished(&versioned)
            }
            ProducerCommand::Latest { object, metadata } => {
                metadata.complete(Ok(self.producer.source_mut().latest(&object)));
            }
            ProducerCommand::Stats { stats } => stats.complete(Ok(self.producer.stats())),
            ProducerCommand::Answered { packet } => self.inputs.push(ProducerInput::Answer(packet)),
            ProducerCommand::Refused { interest } => {
                self.inputs.push(ProducerInput::Refuse(interest))
            }
        }
        true
    }

    fn put(
        &mut self,
        mut publication: PendingPublication,
        confirmations: &mut Vec<PublishConfirmation>,
    ) {
        // With a disk, puts only a few packets at a time, because the disk may fall behind.
        let count = if self.disk.is_some() { PUT_BATCH_PACKETS } else { usize::MAX };
        let packets = publication.packets.by_ref().take(count);
        self.inputs.extend(packets.map(ProducerInput::Put));
        if publication.packets.len() > 0 {
            self.publication = Some(publication);
            return;
        }
        let PendingPublication { metadata, growth, confirmation, .. } = publication;
        // The metadata are added after all packets, because consumers must not learn of a version
        // before its segments exist.
        let name = metadata.and_then(|packet| self.producer.source_mut().add(packet));
        self.inputs.extend(name.map(ProducerInput::Published));
        self.growths.extend(growth);
        confirmations.push(confirmation);
    }

    fn run_once(&mut self, client: &mut Client) {
        if let Some(disk) = &mut self.disk {
            disk.take_completions(&mut self.inputs);
        }
        self.producer.handle(client.now(), &mut self.inputs, &mut self.out);
        if let Some(disk) = &mut self.disk {
            disk.submit(&mut self.out.disk_ops);
        }
        for (path, header, packet) in self.out.packets.drain(..) {
            // The link counts packets that its queue refuses. They will be requested again.
            let _ = client.send(path, header, packet);
        }
        for ProducerEvent::Wanted { interest } in self.out.events.drain(..) {
            let latest = self.producer.source();
            let is_mapped = self.served.mapping != NameMapping::Identity;
            let known = |name: NameView<'_>| latest.known_object(name).filter(|_| is_mapped);
            if let Some(request) = Request::new(&self.served, interest, known) {
                self.requests.push(request);
            }
        }
        debug_assert!(self.out.reads.is_empty(), "it names packets only");
        // The growth takes effect only now. Interests in the same batch as the new segments were
        // sent before these existed, so they must still count as requests for future segments.
        for growth in self.growths.drain(..) {
            self.producer.source_mut().update_growth(growth);
        }
    }
}

impl Drop for ProducerEndpoint {
    fn drop(&mut self) {
        self.requests.close();
        if let (Some(disk), Some(closing)) =
            (self.disk.take().filter(OutputDisk::is_busy), &self.closing)
        {
            // The thread receives as long as a sender exists, so this cannot fail.
            let _ = closing.send(disk);
        }
    }
}

impl Endpoint for ProducerEndpoint {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        let inputs = packets.drain(..).map(|ReceivedPacket { path, header, packet }| {
            ProducerInput::Packet { path, header, packet }
        });
        self.inputs.extend(inputs);
        let mut confirmations = Vec::new();
        loop {
            let was_behind = self.producer.is_disk_behind();
            let has_more = !was_behind && self.run_next_command(&mut confirmations);
            self.run_once(context.client);
            // If the disk is still behind, its descriptor wakes this endpoint again.
            if !has_more && (!was_behind || self.producer.is_disk_behind()) {
                break;
            }
        }
        confirmations.into_iter().for_each(PublishConfirmation::confirm);
    }

    fn on_removed(&mut self, client: &mut Client) {
        self.inputs.push(ProducerInput::RefuseAll);
        self.run_once(client);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.producer.next_wakeup()
    }

    fn is_done(&self) -> bool {
        false
    }
}
