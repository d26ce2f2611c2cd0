//! Verification as operations: received packets that are held, being checked, or were rejected.
//!
//! The consumer computes no signature and no digest. For each packet it decides *what* must be
//! checked, puts a [`VerifyOp`] into the outbox, and continues. The driver checks it on any thread,
//! in any order, in batches ([`Check::run_all`]), and returns a [`Verdict`]. So a slow check delays
//! no Interest, and simulations can charge its cost.
//!
//! 1. [`VerifyQueue::verify`] looks up how the packet is verified. If the manifest lists it, its
//!    digest counts ([`Check::Digest`]). For a sole segment it is the Content digest in the
//!    metadata ([`Check::Content`]). Otherwise its own signature counts ([`Check::Signature`]).
//! 2. If the prerequisite is missing, the packet is held. The prerequisite is the manifest part
//!    that lists it, or the key of its signer. The first packet of an unknown signer raises
//!    [`ConsumerEvent::NeedKey`]. When a prerequisite arrives, the consumer calls `verify` again
//!    for all held packets.
//! 3. [`VerifyQueue::conclude`] takes the verdict and returns a [`VerifyOutcome`]: a good segment,
//!    metadata or manifest part; or a bad packet.
//! 4. A bad packet is requested again: at most [`BAD_COPIES_MAX`] times, first by its digest, then
//!    fresh (`Transfer::on_bad_packet`).
//!
//! Example: segments 0 and 1 arrive before the manifest part that lists them. Both are held. The
//! part arrives, and its signer is unknown: `NeedKey`, and the part is held, too. The key arrives:
//! one operation for the part. Its verdict is good, so two operations for the segments follow, each
//! a digest.
//!
//! A segment must never reach the reader before its verdict, unless verification is off. A verdict
//! for a packet that was cancelled meanwhile has no effect. Memory is bounded: held packets count
//! as unread, signers by [`SIGNERS_MAX`], a manifest by [`SEGMENTS_MAX`].

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use weir_base::{FaceId, Packet, Slab};
use weir_security::Verifier;
use weir_security::manifest::{DigestLookup, DigestManifest, ManifestError, ManifestShape, PartId};
use weir_wire::{DataView, KeyLocator, KeyLocatorView, signature_type};

use super::check::{Check, KeyId, Verdict, VerifyId};
use super::config::{OnBad, Verification};
use super::end_claim::StatedEnd;
use super::inventory::Inventory;
use super::layout::Layout;
use super::outbox::{ConsumerEvent, ConsumerOutbox, VerifyOp};
use super::stream::StreamPart;
use super::target::PacketId;
use crate::PathId;

/// Upper bound of signers of one object.
const SIGNERS_MAX: usize = 16;
/// How often a packet that failed verification is requested again.
pub(super) const BAD_COPIES_MAX: u32 = 4;
/// Upper bound of segments of an object: each takes 32 bytes of memory while its manifest part is
/// awaited.
const SEGMENTS_MAX: u64 = 1 << 40;

/// A received packet, with the fields that are needed later.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) packet: Packet,
    pub(super) path: PathId,
    pub(super) incoming_face: Option<FaceId>,
    pub(super) end: StatedEnd,
    pub(super) content_bytes: u32,
}

impl Incoming {
    pub(super) fn new(
        data: &DataView<'_>,
        packet: Packet,
        path: PathId,
        incoming_face: Option<FaceId>,
    ) -> Self {
        Self {
            end: StatedEnd::of(data),
            content_bytes: data.content.len() as u32,
            packet,
            path,
            incoming_face,
        }
    }
}

/// A packet that the driver is verifying.
struct PendingVerification {
    index: u64,
    end: StatedEnd,
    content_bytes: u32,
    /// Kept if it is for the reader or the consumer itself.
    packet: Option<Packet>,
    /// The signer whose signature is checked, for a manifest part.
    signer: Option<Arc<dyn Verifier>>,
}

/// A signer, as its packets describe it.
pub(super) struct KnownSigner {
    id: KeyId,
    signature_type: u64,
    locator: Option<KeyLocator>,
    /// `None` until the driver has answered.
    verifier: Option<Arc<dyn Verifier>>,
}

impl KnownSigner {
    /// Whether it signed a packet, or the packet claims so.
    pub(super) fn signed(&self, data: &DataView<'_>) -> bool {
        let info = &data.signature_info();
        info.signature_type == self.signature_type
            && match (&self.locator, info.key_locator) {
                (None, None) => true,
                (Some(KeyLocator::Name(name)), Some(KeyLocatorView::Name(other))) => {
                    name.as_view() == other
                }
                (Some(KeyLocator::Digest(digest)), Some(KeyLocatorView::Digest(other))) => {
                    digest == other
                }
                _ => false,
            }
    }
}

/// What is known about a packet's signer.
enum SignerState {
    By(Arc<dyn Verifier>),
    /// The driver has been asked.
    Unknown,
    TooMany,
}

/// A segment that is verified, or accepted without.
#[derive(Debug)]
pub(super) struct AcceptedSegment {
    /// What it says about the last segment.
    pub(super) end: StatedEnd,
    pub(super) content_bytes: u32,
    /// For the reader, if there is one.
    pub(super) packet: Option<Packet>,
    pub(super) is_verified: bool,
}

pub(super) struct AcceptedPart {
    pub(super) id: PartId,
    pub(super) packet: Packet,
    pub(super) signer: Option<Arc<dyn Verifier>>,
}

/// What happens to a packet.
pub(super) enum VerifyOutcome {
    /// The driver verifies it, or it is held until its signer is known.
    Pending,
    /// Its range was cancelled.
    Cancelled,
    /// The manifest part that lists it has not arrived.
    Unlisted(Incoming),
    Segment(AcceptedSegment),
    Metadata,
    Part(AcceptedPart),
    /// It failed verification; another copy may be good. The digest is that of the right packet, if
    /// known.
    Bad {
        reason: String,
        digest: Option<[u8; 32]>,
    },
    /// Its signer is not trusted.
    Untrusted(String),
    /// It failed verification, and no other copy is requested.
    Unrecoverable(String),
}

pub(super) struct VerifyQueue {
    mode: Verification,
    on_bad: OnBad,
    has_reader: bool,
    /// The digests of segments.
    manifest: Option<DigestManifest>,
    manifest_signer: Option<Arc<dyn Verifier>>,
    signers: Vec<KnownSigner>,
    next_key: u32,
    /// Packets that wait for their prerequisite, with their index.
    held: Vec<(u64, Incoming)>,
    pending: Slab<PendingVerification>,
    /// How often packets failed verification, by index.
    bad_copies: BTreeMap<u64, u32>,
    /// The last segment, as a verified one states it.
    last_segment: Option<u64>,
}

impl VerifyQueue {
    pub(super) fn new(mode: Verification, on_bad: OnBad) -> Self {
        Self {
            mode,
            on_bad,
            has_reader: false,
            manifest: None,
            manifest_signer: None,
            signers: Vec::new(),
            next_key: 0,
            held: Vec::new(),
            pending: Slab::new(),
            bad_copies: BTreeMap::new(),
            last_segment: None,
        }
    }

    #[cfg(test)]
    pub(super) fn set_mode(&mut self, mode: Verification) {
        self.mode = mode;
    }

    pub(super) fn set_reader(&mut self, is_there: bool) {
        self.has_reader = is_there;
    }

    /// Sets the shape of the manifest, or that there is none.
    pub(super) fn set_manifest(&mut self, shape: Option<ManifestShape>) {
        self.manifest = shape.map(|shape| DigestManifest::new(shape, SEGMENTS_MAX));
    }

    /// Adds a verified part of a stream's manifest.
    ///
    /// # Errors
    /// The manifest is too large.
    pub(super) fn add_stream_part(
        &mut self,
        id: PartId,
        part: &StreamPart,
    ) -> Result<(), ManifestError> {
        let manifest = self.manifest.as_mut().expect("parts exist only with a manifest");
        manifest.add_digests(id, part.digests.clone())
    }

    pub(super) fn add_part(&mut self, part: AcceptedPart) -> Result<(), ManifestError> {
        let manifest = self.manifest.as_mut().expect("parts exist only with a manifest");
        let data = DataView::decode(&part.packet).expect("decoded on arrival");
        manifest.add_part(part.id, data.content)?;
        self.manifest_signer = self.manifest_signer.take().or(part.signer);
        Ok(())
    }

    /// The manifest's entry for a packet; `None` if the packet is verified by its signature.
    pub(super) fn listed_digest(&self, layout: &Layout, packet: PacketId) -> Option<DigestLookup> {
        let (level, number) = layout.manifest_position(packet)?;
        Some(self.manifest.as_ref()?.digest_of(level, number))
    }

    /// Whether a packet could be verified now: the part that lists it has arrived.
    pub(super) fn can_check(&self, layout: &Layout, packet: PacketId) -> bool {
        self.listed_digest(layout, packet) != Some(DigestLookup::Unknown)
    }

    /// The index of a packet, or of the manifest part that must be verified first.
    pub(super) fn prerequisite(&self, layout: &Layout, index: u64) -> u64 {
        let mut packet = layout.packet_at(index);
        while !self.can_check(layout, packet)
            && let Some(lister) = layout.listing_part(packet)
        {
            packet = lister;
        }
        layout.index_of(packet).unwrap_or(index)
    }

    /// Whether a packet is verified by its signature.
    pub(super) fn needs_signer(&self, inventory: &Inventory, index: u64) -> bool {
        let (_, packet) = inventory.packet_at(index);
        inventory.layout().and_then(|layout| self.listed_digest(layout, packet)).is_none()
    }

    /// Whether nothing is held or being verified.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.pending.is_empty()
    }

    /// Holds a packet until [`VerifyQueue::take_held`].
    pub(super) fn hold(&mut self, index: u64, incoming: Incoming) {
        self.held.push((index, incoming));
    }

    pub(super) fn take_held(&mut self) -> Vec<(u64, Incoming)> {
        mem::take(&mut self.held)
    }

    /// Drops held packets whose indices are not wanted any more. Returns how many.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(u64) -> bool) -> u32 {
        let before = self.held.len();
        self.held.retain(|&(index, _)| is_wanted(index));
        (before - self.held.len()) as u32
    }

    /// A packet failed verification. Returns how often it has.
    pub(super) fn count_bad_copy(&mut self, index: u64) -> u32 {
        let times = self.bad_copies.entry(index).or_default();
        *times += 1;
        *times
    }

    /// A packet passed verification.
    pub(super) fn forget_bad_copies(&mut self, index: u64) {
        self.bad_copies.remove(&index);
    }

    /// A verified segment states the last segment.
    ///
    /// # Errors
    /// Another one stated the returned number.
    pub(super) fn set_last_segment(&mut self, stated: u64) -> Result<(), u64> {
        let known = *self.last_segment.get_or_insert(stated);
        if known == stated { Ok(()) } else { Err(known) }
    }

    /// Whether a verified segment has stated the last segment.
    pub(super) fn knows_last_segment(&self) -> bool {
        self.last_segment.is_some()
    }

    /// Verifies a packet, or holds it until that is possible.
    pub(super) fn verify(
        &mut self,
        index: u64,
        incoming: Incoming,
        inventory: &Inventory,
        out: &mut ConsumerOutbox,
    ) -> VerifyOutcome {
        let (range, id) = inventory.packet_at(index);
        let is_segment = matches!(id, PacketId::Segment(_));
        let listed = inventory.layout().and_then(|layout| self.listed_digest(layout, id));
        let is_stream = inventory.is_stream();
        let mut signer = None;
        let check = match (self.mode, listed) {
            // The mode decides first, then what the manifest says about the packet.
            (Verification::ByDriver, _) => Check::ByDriver,
            (Verification::Off, _) if is_segment => {
                let Incoming { end, content_bytes, packet, .. } = incoming;
                let packet = self.has_reader.then_some(packet);
                let is_verified = false;
                let segment = AcceptedSegment { end, content_bytes, packet, is_verified };
                return VerifyOutcome::Segment(segment);
            }
            (Verification::Off, _) => return accept_unverified(id, incoming),
            (Verification::Signatures, Some(DigestLookup::Found(digest))) if is_stream => {
                Check::HicnDigest(digest)
            }
            (Verification::Signatures, Some(DigestLookup::Found(digest))) => {
                Check::Digest { digest, signer: self.manifest_signer.clone() }
            }
            // The part that lists this packet has not arrived. The caller holds the packet or sets
            // it aside.
            (Verification::Signatures, Some(DigestLookup::Unknown)) => {
                return VerifyOutcome::Unlisted(incoming);
            }
            // The part that would list this packet is verified and does not, so no copy can pass.
            (Verification::Signatures, Some(DigestLookup::Absent)) => {
                return VerifyOutcome::Unrecoverable("the manifest does not list it".to_string());
            }
            (Verification::Signatures, None) => {
                match self.signer_of(&incoming.packet, &mut out.events) {
                    SignerState::By(verifier) => {
                        // The signer of a manifest part counts as the signer of all packets that
                        // the part lists.
                        signer = (!is_segment).then(|| verifier.clone());
                        match inventory.digest_of_sole(id, incoming.end.signed) {
                            Some(digest) => Check::Content { digest, signer: verifier },
                            None => Check::Signature(verifier),
                        }
                    }
                    SignerState::Unknown => {
                        self.hold(index, incoming);
                        return VerifyOutcome::Pending;
                    }
                    SignerState::TooMany => {
                        let reason = alloc::format!("it has more than {SIGNERS_MAX} signers");
                        return self.untrusted(id, reason);
                    }
                }
            }
        };
        let Incoming { packet, path, incoming_face, end, content_bytes } = incoming;
        // Without a reader, the driver stores segments itself, and no copy is needed here.
        let kept = (!is_segment || self.has_reader).then(|| packet.clone());
        let pending = PendingVerification { index, end, content_bytes, packet: kept, signer };
        let op = VerifyId(self.pending.insert(pending));
        out.verify.push(VerifyOp { op, range, id, packet, path, incoming_face, check });
        VerifyOutcome::Pending
    }

    /// The actual or claimed signer of a packet.
    fn signer_of(&mut self, packet: &Packet, events: &mut Vec<ConsumerEvent>) -> SignerState {
        let data = DataView::decode(packet).expect("decoded on arrival");
        if let Some(known) = self.signers.iter().find(|signer| signer.signed(&data)) {
            return known.verifier.clone().map_or(SignerState::Unknown, SignerState::By);
        }
        let info = data.signature_info().to_signature_info();
        if self.signers.len() >= SIGNERS_MAX && !self.forget_hicn_signer(info.signature_type) {
            return SignerState::TooMany;
        }
        let id = KeyId(self.next_key);
        self.next_key += 1;
        self.signers.push(KnownSigner {
            id,
            signature_type: info.signature_type,
            locator: info.key_locator,
            verifier: None,
        });
        events.push(ConsumerEvent::NeedKey { key: id, packet: packet.clone() });
        SignerState::Unknown
    }

    /// Makes room for a signer of hICN by forgetting the earliest one whose key is known. Key
    /// identifiers of hICN may be any octets, so forged ones must not use up the signers.
    fn forget_hicn_signer(&mut self, new: u64) -> bool {
        let is_known_hicn = |signer: &KnownSigner| {
            signer.signature_type == signature_type::HICN && signer.verifier.is_some()
        };
        let at = self.signers.iter().position(is_known_hicn);
        let at = at.filter(|_| new == signature_type::HICN);
        at.map(|at| self.signers.remove(at)).is_some()
    }

    /// The driver states how to verify a signer's packets. Returns false if the signer is unknown.
    pub(super) fn set_key(&mut self, key: KeyId, verifier: Arc<dyn Verifier>) -> bool {
        let signer = self.signers.iter_mut().find(|signer| signer.id == key);
        signer.map(|signer| signer.verifier = Some(verifier)).is_some()
    }

    /// The driver does not trust a signer.
    pub(super) fn remove_key(&mut self, key: KeyId) -> Option<KnownSigner> {
        let at = self.signers.iter().position(|signer| signer.id == key)?;
        Some(self.signers.remove(at))
    }

    /// The signer of a packet is not trusted. If another signer of this object is, the packet may
    /// be forged, and a good copy may exist.
    pub(super) fn untrusted(&self, packet: PacketId, reason: String) -> VerifyOutcome {
        let has_other = self.signers.iter().any(|signer| signer.verifier.is_some());
        match packet {
            PacketId::Segment(_) if has_other => VerifyOutcome::Bad { reason, digest: None },
            _ => VerifyOutcome::Untrusted(reason),
        }
    }

    /// Takes the driver's verdict. Returns the index of the packet and the outcome; `None` if no
    /// verdict was pending.
    pub(super) fn conclude(
        &mut self,
        op: VerifyId,
        verdict: Verdict,
        inventory: &Inventory,
    ) -> Option<(u64, VerifyOutcome)> {
        if !self.pending.contains(op.0) {
            debug_assert!(false, "a verdict on {op:?}, which is not pending");
            return None;
        }
        let PendingVerification { index, end, content_bytes, packet, signer } =
            self.pending.remove(op.0);
        // The range of the packet was cancelled while the driver verified it.
        if !inventory.is_wanted(index) {
            return Some((index, VerifyOutcome::Cancelled));
        }
        let segment = |packet, is_verified| {
            VerifyOutcome::Segment(AcceptedSegment { end, content_bytes, packet, is_verified })
        };
        let outcome = match (verdict, inventory.packet_at(index).1) {
            (Verdict::Good, PacketId::Segment(_)) => segment(packet, true),
            (Verdict::Good, PacketId::Metadata) => VerifyOutcome::Metadata,
            (Verdict::Good, PacketId::Manifest(id)) => {
                let packet = packet.expect("parts of the manifest are kept");
                VerifyOutcome::Part(AcceptedPart { id, packet, signer })
            }
            (Verdict::Bad { reason, digest }, id) => match self.on_bad {
                OnBad::Deliver if matches!(id, PacketId::Segment(_)) => segment(packet, false),
                OnBad::Fail => VerifyOutcome::Unrecoverable(reason),
                _ => VerifyOutcome::Bad { reason, digest },
            },
        };
        Some((index, outcome))
    }
}

/// Accepts a packet that is no segment without verification.
fn accept_unverified(id: PacketId, Incoming { packet, .. }: Incoming) -> VerifyOutcome {
    match id {
        PacketId::Manifest(id) => VerifyOutcome::Part(AcceptedPart { id, packet, signer: None }),
        _ => VerifyOutcome::Metadata,
    }
}
