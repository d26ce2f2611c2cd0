//! The producer socket.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_base::{HashKey, Packet};
use weir_client::random_u64;
use weir_face::unix_time_ms;
use weir_security::{SignatureFormat, sign_data_as};
use weir_transport::ProducerStats;
use weir_wire::{Component, Data, DataView, Name};

use super::binding::{PendingBind, PrefixBinding};
use super::live::LiveWriter;
use super::offer::Offer;
use super::outbound::{EndpointSender, Identity};
use super::output_disk::{OpenDisk, OutputDisk};
use super::pending::{Pending, pending};
use super::producer_endpoint::{OutputBuffer, ProducerCommand, ProducerEndpoint};
use super::publication::Publication;
use super::requests::{Request, RequestQueue, ServedNames};
use super::{ProducerOptions, Session, SocketError, check_below, check_packet};
use crate::object::published::Published;
use crate::publish::sign::PublishOptions;

/// Content up to this size is signed by one thread.
const SINGLE_THREAD_BYTES: usize = 1 << 16;

/// Publishes objects below a prefix. Published packets are answered from the output buffer, without
/// the application. The application [receives](Producer::recv) the other requests. Dropping the
/// producer releases the prefix and forgets its objects.
///
/// Several threads may publish at once.
pub struct Producer {
    prefix: Name,
    identity: Arc<Identity>,
    options: ProducerOptions,
    outbound: EndpointSender,
    requests: Arc<RequestQueue>,
    binding: PrefixBinding,
}

/// A producer being bound: a future, which can also be [waited](Binder::wait) for. Its prefix is
/// reserved from the beginning. Dropping it cancels the binding and releases the prefix.
#[must_use = "it is not bound yet; wait for it"]
pub struct Binder {
    step: BindStep,
    producer_parts: Option<ProducerParts>,
}

/// What a producer that is being bound waits for.
enum BindStep {
    /// The file of the output buffer, which another thread creates.
    Opening(PrefixBinding, Pending<OpenDisk>),
    Registering(PendingBind),
    /// It is bound, or has failed.
    Finished,
}

/// A producer without its binding.
struct ProducerParts {
    prefix: Name,
    identity: Identity,
    options: ProducerOptions,
    commands: Sender<ProducerCommand>,
    command_receiver: Receiver<ProducerCommand>,
    requests: Arc<RequestQueue>,
    hash_key: HashKey,
}

impl ProducerParts {
    /// The network thread's end.
    fn endpoint(&self, network_prefix: Name, disk: Option<OpenDisk>) -> ProducerEndpoint {
        let answers = OutputBuffer::new(&self.options, self.hash_key, disk);
        let (prefix, mapping) = (self.prefix.clone(), self.options.mapping);
        let served = ServedNames { prefix, network_prefix, mapping };
        ProducerEndpoint::new(served, answers, self.command_receiver.clone(), self.requests.clone())
    }

    fn bound(self, binding: PrefixBinding) -> Result<Producer, SocketError> {
        let Self { prefix, identity, options, commands, requests, .. } = self;
        let endpoint = binding.waker().ok_or(SocketError::Closed)?;
        let outbound = EndpointSender::new(commands, endpoint);
        let identity = Arc::new(identity);
        Ok(Producer { prefix, identity, options, outbound, requests, binding })
    }
}

impl Binder {
    /// Waits until the router has registered the prefix.
    pub fn wait(mut self) -> Result<Producer, SocketError> {
        if let BindStep::Opening(_, opened) = &self.step {
            let disk = opened.wait_again()?;
            self.on_disk_opened(disk)?;
        }
        let BindStep::Registering(bind) = &mut self.step else { return Err(SocketError::Closed) };
        let binding = bind.wait()?;
        self.on_bound(binding)
    }

    fn on_disk_opened(&mut self, disk: OpenDisk) -> Result<(), SocketError> {
        let step = std::mem::replace(&mut self.step, BindStep::Finished);
        if let (BindStep::Opening(binding, _), Some(parts)) = (step, &self.producer_parts) {
            let endpoint = parts.endpoint(binding.prefix().clone(), Some(disk));
            self.step = BindStep::Registering(binding.serve(endpoint)?);
        }
        Ok(())
    }

    fn on_bound(&mut self, binding: PrefixBinding) -> Result<Producer, SocketError> {
        self.step = BindStep::Finished;
        self.producer_parts.take().ok_or(SocketError::Closed)?.bound(binding)
    }
}

impl Future for Binder {
    type Output = Result<Producer, SocketError>;

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        let binder = self.get_mut();
        if let BindStep::Opening(_, opened) = &mut binder.step {
            let disk = ready!(Pin::new(opened).poll(context))?;
            binder.on_disk_opened(disk)?;
        }
        let BindStep::Registering(bind) = &mut binder.step else {
            return Poll::Ready(Err(SocketError::Closed));
        };
        let binding = ready!(bind.poll(context))?;
        Poll::Ready(binder.on_bound(binding))
    }
}

/// Creates the file of the option `disk` in a thread, because it may take long. The file is deleted
/// if the binding was cancelled in the meantime.
fn open_disk(folder: &Path, options: &ProducerOptions) -> Result<Pending<OpenDisk>, SocketError> {
    let (answer, opened) = pending();
    let folder = folder.to_owned();
    let (bytes, segment_bytes) = (options.disk_size.bytes, options.segment_size.bytes);
    let wait_ns = options.disk_wait.ns;
    let open = move || answer.complete(OutputDisk::open(&folder, bytes, segment_bytes, wait_ns));
    std::thread::Builder::new().name("open-disk".into()).spawn(open)?;
    Ok(opened)
}

impl Producer {
    /// Binds a socket to `prefix`, and registers the prefix at the router. Waits for the router.
    ///
    /// # Errors
    /// [`SocketError::PrefixInUse`] by this session, [`SocketError::PrefixRefused`] by the router,
    /// [`SocketError::NoRouter`], [`SocketError::Option`].
    pub fn bind(session: &Session, prefix: Name, identity: Identity) -> Result<Self, SocketError> {
        Self::bind_with(session, prefix, identity, ProducerOptions::default())
    }

    /// As [`Producer::bind`], with options.
    pub fn bind_with(
        session: &Session,
        prefix: Name,
        identity: Identity,
        options: ProducerOptions,
    ) -> Result<Self, SocketError> {
        Self::begin_bind(session, prefix, identity, options)?.wait()
    }

    /// As [`Producer::bind_with`], for callers that may cancel. Waits only for the connection,
    /// unless that [exists](Session::connect_producers).
    ///
    /// # Errors
    /// As [`Producer::bind`]. The [`Binder`] reports refused prefixes, and why a `disk` cannot be
    /// created.
    pub fn begin_bind(
        session: &Session,
        prefix: Name,
        identity: Identity,
        options: ProducerOptions,
    ) -> Result<Binder, SocketError> {
        options.check_all()?;
        session.connect_producers()?;
        // Names come from untrusted peers, so the hash is keyed.
        let hash_key = HashKey::new([random_u64()?, random_u64()?]);
        let requests = Arc::new(RequestQueue::new(options.requests_max as usize));
        let (commands, receiver) = unbounded();
        let binding = PrefixBinding::reserve(session, options.mapping.prefix(prefix.as_view()))?;
        let parts = ProducerParts {
            prefix,
            identity,
            options,
            commands,
            command_receiver: receiver,
            requests,
            hash_key,
        };
        let step = match parts.options.disk_folder() {
            Some(folder) => BindStep::Opening(binding, open_disk(folder, &parts.options)?),
            None => {
                let endpoint = parts.endpoint(binding.prefix().clone(), None);
                BindStep::Registering(binding.serve(endpoint)?)
            }
        };
        Ok(Binder { step, producer_parts: Some(parts) })
    }

    pub fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The options with which it was bound.
    pub fn options(&self) -> &ProducerOptions {
        &self.options
    }

    /// Publishes a new version of an object: divided into segments, each signed, with a manifest.
    /// Answers waiting Interests at once. Returns the versioned name; if `name` ends in a version,
    /// that one is used.
    ///
    /// Returns when the next request will get it. Signing takes processor time, especially with
    /// signatures other than digests.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for the output buffer.
    pub fn publish(&self, name: &Name, content: impl Into<Packet>) -> Result<Name, SocketError> {
        let (object, version) = self.version_of(name);
        self.publish_version(&object, version, content)
    }

    /// As [`Producer::publish`], without waiting. Threads shared by the producers of a session sign
    /// it; small objects follow each other without a pause. The result is a future for any
    /// executor, and can also be [waited](Pending::wait) for: the versioned name, when the next
    /// request will get it. Versions are numbered in the order of the calls, however long each
    /// takes.
    ///
    /// Dropping it before a thread has started cancels the publication. Later, the object is
    /// published completely. The end of the session cancels everything that has not started.
    ///
    /// # Errors
    /// As [`Producer::publish`], and [`SocketError::Refused`] if 4096 objects of the session wait
    /// to be signed.
    pub fn publish_async(
        &self,
        name: &Name,
        content: impl Into<Packet>,
    ) -> Result<Pending<Name>, SocketError> {
        let (object, version) = self.version_of(name);
        self.publish_version_async(&object, version, content)
    }

    /// As [`Producer::publish_async`], with the number of the version.
    pub fn publish_version_async(
        &self,
        name: &Name,
        version: u64,
        content: impl Into<Packet>,
    ) -> Result<Pending<Name>, SocketError> {
        let threads = self.options.publish_options().threads;
        let publication = self.prepare(name, version, content.into(), threads)?;
        let slot = publication.signers.reserve_slot();
        let slot = slot.ok_or_else(|| {
            SocketError::Refused(
                "too many objects wait to be signed; wait for an earlier one".into(),
            )
        })?;
        Ok(publication.start(slot))
    }

    /// Starts a growing object: a new version whose segments reach consumers as soon as they are
    /// made, from the [newest](super::Consumer::fetch_newest) or from the first.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`].
    pub fn publish_live(&self, name: &Name) -> Result<LiveWriter, SocketError> {
        let (writer, begun) = self.publish_live_async(name)?;
        begun.wait()?;
        Ok(writer)
    }

    /// As [`Producer::publish_live`], without waiting: the object exists when the result is
    /// delivered, and can be appended to at once.
    pub fn publish_live_async(
        &self,
        name: &Name,
    ) -> Result<(LiveWriter, Pending<()>), SocketError> {
        let (object, version) = self.version_of(name);
        self.check(&object)?;
        self.check_versioned(&object, "a growing object")?;
        let identity = Identity::clone(&self.identity);
        let (mut writer, begun) =
            LiveWriter::new(self.outbound.clone(), identity, &self.options, (object, version))?;
        writer.limit_packets(self.binding.packet_bytes_max());
        Ok((writer, begun))
    }

    /// As [`Producer::publish`], with the number of the version.
    pub fn publish_version(
        &self,
        name: &Name,
        version: u64,
        content: impl Into<Packet>,
    ) -> Result<Name, SocketError> {
        self.publish_object(name, version, content.into(), &mut || true)
            .map(|published| published.versioned().clone())
    }

    /// A version number greater than all earlier ones, for a later call of
    /// [`Producer::publish_version`] that must not replace versions numbered after it.
    pub fn next_version(&self) -> u64 {
        self.outbound.next_version()
    }

    /// As [`Producer::publish`], while `keep_going`, called regularly, returns true.
    ///
    /// # Errors
    /// As [`Producer::publish`]; [`SocketError::Stopped`] if it was stopped.
    pub fn publish_while(
        &self,
        name: &Name,
        content: impl Into<Packet>,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Name, SocketError> {
        let (object, version) = self.version_of(name);
        self.publish_object(&object, version, content.into(), keep_going)
            .map(|published| published.versioned().clone())
    }

    /// Publishes a new version of an object and returns an offer for it: the receiver of the offer
    /// can fetch it from here.
    pub fn offer(&self, name: &Name, content: impl Into<Packet>) -> Result<Offer, SocketError> {
        let (object, version) = self.version_of(name);
        self.check_versioned(&object, "an offer")?;
        let published = self.publish_object(&object, version, content.into(), &mut || true)?;
        Offer::decode(published.packets().last().expect("every object has metadata").clone())
    }

    /// An offer for the latest version of an object published here, if any.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`], [`SocketError::Closed`].
    pub fn offer_of(&self, name: &Name) -> Result<Option<Offer>, SocketError> {
        self.check(name)?;
        let object = name.clone();
        let latest =
            self.outbound.send_and_wait(|metadata| ProducerCommand::Latest { object, metadata })?;
        latest.map(Offer::decode).transpose()
    }

    /// Answers an Interest with one signed Data of its name, for example with the outcome of an
    /// offer.
    ///
    /// # Errors
    /// [`SocketError::TooLong`] for a packet; the key cannot sign.
    pub fn answer(&self, request: &Request, content: &[u8]) -> Result<(), SocketError> {
        let name = request.interest_name();
        let freshness_ms = self.options.publish_options().freshness_ms;
        let last = Component::from(name.as_view().last().expect("Interests have names"));
        let data = Data::new(name).freshness_ms(freshness_ms).content(content);
        let format = self.options.signature_format.0;
        let data = if format == SignatureFormat::Hicn { data.final_block_id(last) } else { data };
        let packet = sign_data_as(format, &data, &*self.identity.signer, unix_time_ms())
            .map_err(|error| SocketError::Invalid(error.to_string()))?;
        self.publish_packet(packet)
    }

    fn publish_object(
        &self,
        name: &Name,
        version: u64,
        content: Packet,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Published, SocketError> {
        let publication = self.prepare(name, version, content, 0)?;
        let published = publication.sign(keep_going)?;
        publication.submit(&published, keep_going)?;
        Ok(published)
    }

    /// Prepares a publication, with a signing pool of at least this many threads.
    fn prepare(
        &self,
        name: &Name,
        version: u64,
        content: Packet,
        threads_min: usize,
    ) -> Result<Publication, SocketError> {
        self.check(name)?;
        if name.as_view().last().is_some_and(|last| last.as_version().is_some()) {
            return Err(SocketError::Invalid(format!(
                "{name} ends in a version; give the name of the object"
            )));
        }
        let max_bytes = self.options.buffer_bytes();
        if content.len() as u64 > max_bytes {
            return Err(SocketError::TooLong { max_bytes });
        }
        let options = PublishOptions {
            packet_bytes_max: self.binding.packet_bytes_max(),
            ..self.options.publish_options()
        };
        // Content that one thread signs needs no others.
        let is_shared = content.len() > SINGLE_THREAD_BYTES && options.threads > 1;
        let threads = if is_shared { options.threads - 1 } else { 0 };
        Ok(Publication {
            name: name.clone(),
            version,
            content,
            identity: self.identity.clone(),
            options,
            signers: self.binding.signers(threads.max(threads_min))?,
            outbound: self.outbound.clone(),
        })
    }

    /// Its counters: Interests received, Data sent, and so on.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn stats(&self) -> Result<ProducerStats, SocketError> {
        self.outbound.send_and_wait(|stats| ProducerCommand::Stats { stats })
    }

    /// Publishes one Data packet as it is, with a name of the network.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for a packet; it is not Data.
    pub fn publish_packet(&self, data: impl Into<Packet>) -> Result<(), SocketError> {
        let packet = self.check_data(data.into())?;
        self.outbound.publish(vec![packet], None)
    }

    /// As [`Producer::publish_packet`], for many packets and without waiting. The result is
    /// delivered when they are in the output buffer.
    ///
    /// # Errors
    /// As [`Producer::publish_packet`].
    pub fn publish_packets_async(&self, data: Vec<Packet>) -> Result<Pending<()>, SocketError> {
        let packets = data.into_iter().map(|packet| self.check_data(packet));
        let packets = packets.collect::<Result<Vec<_>, _>>()?;
        self.outbound.send_pending(|confirmation| {
            let (metadata, confirmation) = (None, confirmation.into());
            ProducerCommand::Published { packets, metadata, confirmation }
        })
    }

    /// Answers the waiting Interests that this Data satisfies, and does not store it. The next
    /// Interest for it is received again. For Data that is right only at this moment.
    ///
    /// # Errors
    /// As [`Producer::publish_packet`].
    pub fn answer_waiting(&self, data: impl Into<Packet>) -> Result<(), SocketError> {
        let packet = self.check_data(data.into())?;
        self.outbound.send(ProducerCommand::Answered { packet })
    }

    /// Rejects packets that are no Data below the prefix.
    fn check_data(&self, packet: Packet) -> Result<Packet, SocketError> {
        let name = DataView::decode(&packet)
            .map_err(|error| SocketError::Invalid(format!("no Data: {error}")))?
            .name
            .to_name();
        check_below(self.binding.prefix(), &name)?;
        check_packet(&packet, self.binding.packet_bytes_max())?;
        Ok(packet)
    }

    /// States that the requested data will not be published: requesters get a Nack at once.
    pub fn refuse(&self, request: &Request) -> Result<(), SocketError> {
        self.outbound.send(ProducerCommand::Refused { interest: request.interest().clone() })
    }

    /// Waits for an Interest for unpublished data. The Interest waits as long as
    /// [`request_wait`](ProducerOptions::request_wait) and its lifetime permit.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn recv(&self) -> Result<Request, SocketError> {
        self.requests.recv(None).map(|request| request.expect("waits without a limit"))
    }

    /// As [`Producer::recv`]; `None` if none arrives within that time.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn recv_timeout(&self, wait: Duration) -> Result<Option<Request>, SocketError> {
        self.requests.recv(Some(wait))
    }

    /// As [`Producer::recv`], for tasks: all waiting tasks are woken, and one gets the request.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn poll_recv(&self, context: &mut task::Context<'_>) -> Poll<Result<Request, SocketError>> {
        self.requests.poll(context)
    }

    /// The object, and its version: the one at the end of the name, or a new one.
    fn version_of(&self, name: &Name) -> (Name, u64) {
        let name = name.as_view();
        match name.last().and_then(|last| last.as_version()) {
            Some(version) => (name.parent().to_name(), version),
            None => (name.to_name(), self.outbound.next_version()),
        }
    }

    fn check(&self, name: &Name) -> Result<(), SocketError> {
        check_below(&self.prefix, name)
    }

    /// Rejects operations that need metadata, which an object at an hICN address does not have.
    fn check_versioned(&self, object: &Name, what: &str) -> Result<(), SocketError> {
        match self.options.mapping.is_direct(object.as_view()) {
            false => Ok(()),
            true => Err(SocketError::Invalid(format!(
                "{object} is an hICN address, which has no versions; {what} needs another name"
            ))),
        }
    }
}
