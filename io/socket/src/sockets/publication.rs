//! One object being published.

use std::sync::Arc;

use weir_base::{Packet, Pool};
use weir_wire::Name;

use super::SocketError;
use super::outbound::{EndpointSender, Identity};
use super::pending::{Completer, Pending, PublishConfirmation, pending};
use super::producer_endpoint::ProducerCommand;
use crate::object::published::Published;
use crate::publish::PublishError;
use crate::publish::sign::{Label, PublishOptions, publish_octets_with};
use crate::publish::sign_pool::{QueueSlot, SignPoolHandle, SignTask};

/// Packets published at once. Other endpoints run in between.
const BATCH_PACKETS: usize = 256;
/// Content up to this size is signed so fast that others can wait for it.
const SHORT_TASK_BYTES: usize = 1 << 16;

/// What to sign, and everything needed for it.
pub(super) struct Publication {
    pub(super) name: Name,
    pub(super) version: u64,
    pub(super) content: Packet,
    pub(super) identity: Arc<Identity>,
    pub(super) options: PublishOptions,
    pub(super) signers: SignPoolHandle,
    pub(super) outbound: EndpointSender,
}

/// The last packets of a publication, its metadata and its name.
type LastStep = (Vec<Packet>, Option<Packet>, Name);

impl Publication {
    /// Signs it while `keep_going` returns true.
    pub(super) fn sign(
        &self,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Published, SocketError> {
        let label = Label {
            name: &self.name,
            version: self.version,
            signer: &*self.identity.signer,
            certificate: self.identity.certificate.as_deref(),
        };
        let mut options = self.options.clone();
        // Content smaller than a segment needs no room for a whole one.
        options.segment_size = options.segment_size.min(self.content.len().max(1));
        let mut is_stopped = false;
        let keep_going = &mut || {
            is_stopped = !keep_going();
            !is_stopped
        };
        let (signers, signer) = (&self.signers, &self.identity.signer);
        let octets = self.content.clone();
        let published = publish_octets_with(signers, signer, octets, label, &options, keep_going);
        published.map_err(|error| match error {
            PublishError::SegmentSize { max, .. } => SocketError::TooLong { max_bytes: max as u64 },
            PublishError::Stopped if is_stopped => SocketError::Stopped,
            // The threads have ended with the session.
            PublishError::Stopped => SocketError::Closed,
            other => SocketError::Invalid(other.to_string()),
        })
    }

    /// Publishes a signed object in batches, except the last packets. Returns those, and the
    /// metadata if there are any.
    fn publish_all_but_last(
        &self,
        published: &Published,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<Packet>, Option<Packet>), SocketError> {
        let mut pool = Pool::new(0);
        let mut packets = published.packets().to_vec();
        let metadata = packets.pop();
        for segment in 0..published.segments() {
            if packets.len() >= BATCH_PACKETS {
                self.outbound.publish(std::mem::take(&mut packets), None)?;
                if !keep_going() {
                    return Err(SocketError::Stopped);
                }
            }
            packets.push(published.packet(segment, &mut pool));
        }
        Ok((packets, metadata))
    }

    /// Publishes a signed object.
    pub(super) fn submit(
        &self,
        published: &Published,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<(), SocketError> {
        let (packets, metadata) = self.publish_all_but_last(published, keep_going)?;
        self.outbound.publish(packets, metadata)
    }

    /// Lets a thread sign and publish it, without waiting.
    pub(super) fn start(self, slot: QueueSlot) -> Pending<Name> {
        let (answer, published) = pending();
        let signers = self.signers.clone();
        // The wake-up after a short task may wait for other short tasks.
        let is_short = self.content.len() <= SHORT_TASK_BYTES;
        let work = move |wakes: &mut _| match self.finish(&answer) {
            Ok(Some((packets, metadata, name))) => {
                let confirmation = PublishConfirmation::PublishedName(answer, name);
                self.outbound.send_with_wakes(
                    ProducerCommand::Published { packets, metadata, confirmation },
                    wakes,
                );
            }
            Ok(None) => {}
            Err(error) => answer.complete(Err(error)),
        };
        signers.submit(match is_short {
            true => SignTask::short(slot, work),
            false => SignTask::long_with_slot(slot, work),
        });
        published
    }

    /// All but the last step, if the result is still wanted. Returns what the last step needs.
    fn finish(&self, answer: &Completer<Name>) -> Result<Option<LastStep>, SocketError> {
        if !answer.has_receiver() {
            return Ok(None);
        }
        let published = self.sign(&mut || true)?;
        let (packets, metadata) = self.publish_all_but_last(&published, &mut || true)?;
        Ok(Some((packets, metadata, published.versioned().clone())))
    }
}
