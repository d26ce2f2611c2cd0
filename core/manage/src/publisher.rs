//! Signs and keeps the Data of the manager.

use alloc::boxed::Box;

use weir_base::{FaceId, Instant, Packet};
use weir_security::{Signer, sign_data};
use weir_wire::{Data, InterestView, PACKET_SIZE_MAX, content_type};

use crate::dataset::{DatasetCache, FRESHNESS_MS};
use crate::element::Element;
use crate::events::EventStream;
use crate::io::OutData;
use crate::parameters::ControlResponse;
use crate::request::ReplyTarget;
use crate::status::FaceEventNotification;

/// ContentType of ordinary Data.
const CONTENT_TYPE_BLOB: u64 = 0;

/// The signer, the latest datasets and the latest notifications. Each method returns the Data to
/// send, or `None` if the signer fails.
pub(crate) struct Publisher {
    signer: Box<dyn Signer>,
    datasets: DatasetCache,
    events: EventStream,
}

impl Publisher {
    pub(crate) fn new(signer: Box<dyn Signer>) -> Self {
        Self { signer, datasets: DatasetCache::default(), events: EventStream::default() }
    }

    pub(crate) fn signer(&self) -> &dyn Signer {
        self.signer.as_ref()
    }

    /// Answers a command.
    pub(crate) fn respond(
        &self,
        target: &ReplyTarget,
        response: &ControlResponse,
    ) -> Option<OutData> {
        self.sign_response(target, response, CONTENT_TYPE_BLOB)
    }

    pub(crate) fn refuse(
        &self,
        target: &ReplyTarget,
        response: &ControlResponse,
    ) -> Option<OutData> {
        self.sign_response(target, response, content_type::NACK)
    }

    fn sign_response(
        &self,
        target: &ReplyTarget,
        response: &ControlResponse,
        content_type: u64,
    ) -> Option<OutData> {
        let sign = |response: &ControlResponse| {
            let data = Data::new(target.name.clone())
                .content_type(content_type)
                .freshness_ms(FRESHNESS_MS)
                .content(response.encode());
            sign_data(&data, self.signer.as_ref()).ok()
        };
        let mut wire = sign(response)?;
        if wire.len() > PACKET_SIZE_MAX {
            // The parameters of a command are already in the name, so there is room only for the
            // code.
            let text = "the answer does not fit into a packet";
            wire = sign(&ControlResponse::new(response.code, text))?;
        }
        Some(OutData { face: target.ingress, packet: Packet::from(wire), no_cache: false })
    }

    /// Publishes a dataset; returns its first segment.
    pub(crate) fn publish(
        &mut self,
        target: &ReplyTarget,
        content: &[u8],
        now_unix_ms: u64,
    ) -> Option<OutData> {
        let name = target.name.as_view();
        let packet = self.datasets.publish(name, content, now_unix_ms, self.signer.as_ref())?;
        Some(OutData { face: target.ingress, packet, no_cache: true })
    }

    /// The segment of a recent dataset for this Interest.
    pub(crate) fn find_segment(
        &self,
        face: FaceId,
        interest: &InterestView<'_>,
    ) -> Option<OutData> {
        let packet = self.datasets.find(interest)?;
        Some(OutData { face, packet, no_cache: true })
    }

    /// Publishes a notification of faces/events.
    pub(crate) fn notify(
        &mut self,
        now: Instant,
        notification: &FaceEventNotification,
    ) -> Option<OutData> {
        let packet = self.events.publish(now, notification, self.signer.as_ref())?;
        Some(OutData { face: FaceId::INTERNAL, packet, no_cache: true })
    }

    /// The notification for an Interest under faces/events.
    pub(crate) fn find_event(
        &self,
        now: Instant,
        face: FaceId,
        interest: &InterestView<'_>,
    ) -> Option<OutData> {
        let packet = self.events.find(now, interest)?;
        Some(OutData { face, packet, no_cache: true })
    }
}
