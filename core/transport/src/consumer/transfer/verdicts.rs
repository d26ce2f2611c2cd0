//! What happens to a received packet.

use alloc::format;
use alloc::string::{String, ToString};
use core::net::Ipv6Addr;

use weir_base::Instant;
use weir_security::manifest::{DigestLookup, PartId};
use weir_wire::DataView;

use super::{Purpose, Transfer};
use crate::consumer::config::Verification;
use crate::consumer::end_claim::EndMetadata;
use crate::consumer::layout::Layout;
use crate::consumer::naming::{METADATA_INDEX, is_probe};
use crate::consumer::outbox::{ConsumerError, ConsumerOutbox, Delivery};
use crate::consumer::stream::StreamPart;
use crate::consumer::target::PacketId;
use crate::consumer::verify::{
    AcceptedPart, AcceptedSegment, BAD_COPIES_MAX, Incoming, VerifyOutcome,
};
use crate::metadata::Metadata;

/// How often a packet that failed verification is requested by the digest in the manifest.
const DIGEST_REQUESTS_MAX: u32 = 2;

/// Results of verification that concern other components.
#[must_use]
pub(in crate::consumer) enum Verified {
    Metadata,
    /// The metadata are not usable.
    BadMetadata(ConsumerError),
    /// The first part of a manifest whose shape was unknown.
    FirstManifestPart(AcceptedPart),
    /// That part is not usable.
    BadManifest(ConsumerError),
    /// Another manifest part: packets that wait for it can be verified.
    ManifestPart,
}

impl Transfer {
    /// Takes a packet, received for the first time or again.
    pub(in crate::consumer) fn accept(
        &mut self,
        now: Instant,
        index: u64,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        self.reader.add_unread();
        self.stats.delivered += 1;
        self.stats.octets += incoming.packet.len() as u64;
        self.verify(now, index, incoming, out)
    }

    /// Starts the verification of a packet: when it arrives, and again when its prerequisite may
    /// have arrived.
    pub(in crate::consumer) fn verify(
        &mut self,
        now: Instant,
        index: u64,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        let outcome = self.verify.verify(index, incoming, &self.inventory, out);
        self.apply_outcome(now, index, outcome, out)
    }

    /// Delivers, rejects or holds the packet. Returns what discovery and other packets must know.
    pub(in crate::consumer) fn apply_outcome(
        &mut self,
        now: Instant,
        index: u64,
        outcome: VerifyOutcome,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        match outcome {
            VerifyOutcome::Pending => {}
            VerifyOutcome::Cancelled => self.reader.drop_unread(1),
            VerifyOutcome::Unlisted(incoming) => {
                if !self.set_aside_unlisted(index) {
                    self.verify.hold(index, incoming);
                }
            }
            VerifyOutcome::Segment(segment) => self.accept_segment(now, index, segment, out),
            VerifyOutcome::Metadata => {
                self.reader.drop_unread(1);
                return Some(Verified::Metadata);
            }
            VerifyOutcome::Part(part) => return self.accept_part(now, index, part, out),
            VerifyOutcome::Bad { reason, digest } => {
                return self.on_bad_packet(now, index, reason, digest, out);
            }
            VerifyOutcome::Untrusted(reason) => {
                self.reader.drop_unread(1);
                let error = ConsumerError::Untrusted(reason);
                // Discovery decides about probes and metadata: it may continue without them.
                if is_probe(index) {
                    return Some(Verified::BadManifest(error));
                }
                if self.inventory.packet_at(index).1 == PacketId::Metadata {
                    return Some(Verified::BadMetadata(error));
                }
                self.fail_packet(index, error, out);
            }
            VerifyOutcome::Unrecoverable(reason) => {
                self.reader.drop_unread(1);
                let error = self.unverified(index, reason);
                self.fail_packet(index, error, out);
            }
        }
        None
    }

    fn unverified(&self, index: u64, reason: String) -> ConsumerError {
        let what = match self.inventory.packet_at(index).1 {
            // Only its verified content shows whether the first packet of a stream is a manifest.
            PacketId::Manifest(_) if self.inventory.is_stream() && is_probe(index) => {
                "packet 0".into()
            }
            PacketId::Manifest(_) if self.inventory.is_stream() => {
                format!("the manifest at packet {index}")
            }
            PacketId::Metadata => "the metadata".into(),
            PacketId::Manifest(id) => {
                format!("part {} of level {} of the manifest", id.number, id.level)
            }
            PacketId::Segment(segment) => format!("segment {segment}"),
        };
        ConsumerError::Unverified { what, reason }
    }

    fn accept_part(
        &mut self,
        now: Instant,
        index: u64,
        part: AcceptedPart,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        if is_probe(index) {
            self.reader.drop_unread(1);
            return Some(Verified::FirstManifestPart(part));
        }
        let address = self.inventory.layout().and_then(Layout::stream_address);
        let added = match address {
            Some(address) => self.read_stream_part(index, address, &part, out),
            None => self.verify.add_part(part).map_err(|error| error.to_string()),
        };
        if let Err(reason) = added {
            return self.on_bad_packet(now, index, reason, None, out);
        }
        self.reader.drop_unread(1);
        self.reader.skip(index);
        if let Some(holes) = &mut self.holes {
            holes.part_verified();
        }
        Some(Verified::ManifestPart)
    }

    /// Reads a verified manifest of a stream.
    fn read_stream_part(
        &mut self,
        index: u64,
        address: Ipv6Addr,
        part: &AcceptedPart,
        out: &mut ConsumerOutbox,
    ) -> Result<(), String> {
        let data = DataView::decode(&part.packet).expect("decoded on arrival");
        let read = StreamPart::read(data.content, address, index)?;
        let shape = self.inventory.layout().and_then(Layout::manifest);
        read.check_shape(shape.expect("the stream has manifests"))?;
        self.add_stream_part(part.id, &read, out)
    }

    /// Adds a verified manifest of a stream.
    pub(in crate::consumer) fn add_stream_part(
        &mut self,
        id: PartId,
        part: &StreamPart,
        out: &mut ConsumerOutbox,
    ) -> Result<(), String> {
        self.verify.add_stream_part(id, part).map_err(|error| error.to_string())?;
        let Some(layout) = self.inventory.layout() else { return Ok(()) };
        let listed = layout.segments_below(id);
        let end = listed.start + part.digests.len() as u64;
        if part.is_last {
            self.on_last_segment_verified(end - 1, out);
            return Ok(());
        }
        // At least one more segment exists. The final segment is a hint, which may be too low.
        let is_possible = |last: &u64| *last >= end;
        let stated = part.final_suffix.and_then(|suffix| match layout.packet_at(suffix.into()) {
            PacketId::Segment(last) => Some(last),
            _ => None,
        });
        match (self.inventory.last_segment(), stated.filter(is_possible)) {
            _ if self.verify.knows_last_segment() => {}
            (None, Some(last)) => self.set_last(last, true, out),
            (Some(last), _) if !is_possible(&last) => self.forget_last(out),
            _ => {}
        }
        Ok(())
    }

    /// A segment is verified, or accepted without verification.
    fn accept_segment(
        &mut self,
        now: Instant,
        index: u64,
        segment: AcceptedSegment,
        out: &mut ConsumerOutbox,
    ) {
        let AcceptedSegment { end, content_bytes, packet, is_verified } = segment;
        self.stats.segments += 1;
        self.stats.content_octets += u64::from(content_bytes);
        let (range, id) = self.inventory.packet_at(index);
        match packet.filter(|_| self.reader.is_enabled()) {
            Some(packet) => {
                self.reader.add_ready(index, Delivery { range, id, packet, is_verified })
            }
            None => self.reader.drop_unread(1),
        }
        if let (Some(layout), PacketId::Segment(number)) = (self.inventory.layout(), id) {
            let is_whole = layout.is_whole();
            let counts = is_verified || self.config.verification == Verification::Off;
            self.inventory.add_verified(number);
            match end.signed.filter(|_| is_verified) {
                _ if is_whole => {}
                Some(last) => self.on_last_segment_verified(last, out),
                None => self.on_end_claim(now, number, end.is_claimed && counts, out),
            }
        }
        self.on_packet_done(index, out);
    }

    /// A verified segment states the last segment number.
    fn on_last_segment_verified(&mut self, stated: u64, out: &mut ConsumerOutbox) {
        if let Err(known) = self.verify.set_last_segment(stated) {
            let what = "the number of segments".to_string();
            let reason = format!("one segment states {stated} as the last, another {known}");
            return self.fail(ConsumerError::Unverified { what, reason }, out);
        }
        self.set_last(stated, true, out);
    }

    /// Metadata arrived while a claim is tested.
    pub(super) fn on_end_metadata(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        let known = self.inventory.metadata.as_ref().map(|known| &known.versioned);
        let metadata = Metadata::decode(data.content).ok();
        let last = metadata
            .filter(|metadata| Some(&metadata.versioned) == known)
            .and_then(|metadata| metadata.last_segment);
        match (last, self.claims.metadata()) {
            (Some(last), _) => {
                self.claims.set_metadata(EndMetadata::Verifying(last));
                return self.accept(now, METADATA_INDEX, incoming, out);
            }
            (None, EndMetadata::Requested { is_fresh: false }) => {
                self.request_end_metadata(now, true)
            }
            (None, _) => self.claims.set_metadata(EndMetadata::Done),
        }
        None
    }

    /// If the verified metadata were requested for the end of the object, takes it.
    pub(super) fn on_end_metadata_verified(&mut self, out: &mut ConsumerOutbox) {
        if let EndMetadata::Verifying(last) = self.claims.metadata() {
            self.claims.set_metadata(EndMetadata::Done);
            self.claims.on_end_signed();
            self.requests.retain(|purpose| !matches!(purpose, Purpose::TestClaim(_)));
            self.on_last_segment_verified(last, out);
        }
    }

    /// A packet failed verification: it is requested again, or its object fails.
    fn on_bad_packet(
        &mut self,
        now: Instant,
        index: u64,
        reason: String,
        digest: Option<[u8; 32]>,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        self.reader.drop_unread(1);
        let (_, id) = self.inventory.packet_at(index);
        let error = self.unverified(index, reason);
        // Discovery decides about metadata and probes, as in `apply_outcome`.
        if id == PacketId::Metadata {
            return Some(Verified::BadMetadata(error));
        }
        if is_probe(index) {
            return Some(Verified::BadManifest(error));
        }
        if !self.config.is_reliable {
            self.skip_packet(index, out);
            return None;
        }
        let times = self.verify.count_bad_copy(index);
        if times > BAD_COPIES_MAX {
            self.fail_packet(index, error, out);
            return None;
        }
        let layout = self.inventory.layout();
        let listed = match layout.and_then(|layout| self.verify.listed_digest(layout, id)) {
            // A name cannot have the digest of an hICN packet.
            Some(DigestLookup::Found(digest)) if !self.inventory.is_stream() => Some(digest),
            _ => None,
        };
        // First by digest, if known: routers cannot answer such an Interest with a bad copy.
        let digest = digest.or(listed).filter(|_| times <= DIGEST_REQUESTS_MAX);
        // A second failure means that a router probably holds a bad copy. A fresh request bypasses
        // it.
        let must_be_fresh = digest.is_none() && times > 1;
        if !self.refetch(now, index, digest, must_be_fresh, self.config.retries_max) {
            let name = self.inventory.naming.name_of(index);
            self.fail_packet(index, ConsumerError::Damaged(name), out);
            return None;
        }
        // The bad segment may have stated a forged last segment, too.
        if matches!(id, PacketId::Segment(_)) {
            self.forget_last(out);
        }
        None
    }
}
