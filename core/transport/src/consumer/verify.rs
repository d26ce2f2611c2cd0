//! What is believed: which packets are held, checked against what, refused, asked for again.
//!
//! The consumer checks nothing itself: an operation goes to the driver, its verdict comes back.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet, Slab};
use weir_security::Verifier;
use weir_security::manifest::{DigestManifest, Listed, ManifestError, PartId, Shape};
use weir_wire::{DataView, KeyLocator, KeyLocatorView};

use super::check::{Check, KeyId, Verdict, VerifyId};
use super::config::{OnBad, Verification};
use super::layout::Layout;
use super::naming::{Naming, is_probe};
use super::outbox::{Delivery, VerifyOp};
use super::target::{Part, Target, Unit};
use super::{Consumer, ConsumerError, ConsumerEvent, ConsumerOutbox};
use crate::PathId;
use crate::segment_set::SegmentSet;

/// Signers of one object at most.
const SIGNERS_MAX: usize = 16;
/// Times that one packet is asked for again because it came damaged or forged, and how many of
/// these are asked for by the digest that the manifest lists.
pub(super) const REFUSALS_MAX: u32 = 4;
const BY_DIGEST: u32 = 2;
/// Segments of an object at most: 32 octets of memory each while their manifest part is awaited.
const SEGMENTS_MAX: u64 = 1 << 40;

/// A packet that came, and what it says that is of use later.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) packet: Packet,
    pub(super) path: PathId,
    pub(super) incoming_face: Option<FaceId>,
    pub(super) last_segment: Option<u64>,
    pub(super) content_bytes: u32,
}

/// A packet that the driver is verifying.
struct Pending {
    index: u64,
    last_segment: Option<u64>,
    content_bytes: u32,
    /// Kept if it is for the reader or the consumer itself.
    packet: Option<Packet>,
    /// Whose signature is checked, if it is a part of the manifest.
    signer: Option<Arc<dyn Verifier>>,
}

/// A signer, by what its packets say of it.
struct KnownSigner {
    id: KeyId,
    signature_type: u64,
    locator: Option<KeyLocator>,
    /// `None` until the driver has told.
    verifier: Option<Arc<dyn Verifier>>,
}

impl KnownSigner {
    fn signed(&self, data: &DataView<'_>) -> bool {
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
enum Signed {
    By(Arc<dyn Verifier>),
    /// The driver has been asked.
    NotKnownYet,
    ByTooMany,
}

/// The state of verification.
pub(super) struct Verifying {
    /// Lists the digests of segments.
    manifest: Option<DigestManifest>,
    manifest_signer: Option<Arc<dyn Verifier>>,
    signers: Vec<KnownSigner>,
    next_key: u32,
    /// Packets that came before what they need to be checked.
    pub(super) held: Vec<(u64, Incoming)>,
    pending: Slab<Pending>,
    /// How often units came damaged or forged.
    refusals: BTreeMap<u64, u32>,
    /// The last segment as a verified one states it.
    last_segment: Option<u64>,
}

impl Verifying {
    pub(super) fn new() -> Self {
        Self {
            manifest: None,
            manifest_signer: None,
            signers: Vec::new(),
            next_key: 0,
            held: Vec::new(),
            pending: Slab::new(),
            refusals: BTreeMap::new(),
            last_segment: None,
        }
    }

    /// There is a manifest of that shape, or none.
    pub(super) fn set_manifest(&mut self, shape: Option<Shape>) {
        self.manifest = shape.map(|shape| DigestManifest::new(shape, SEGMENTS_MAX));
    }

    /// A part of the manifest is verified, by its own signature or by a part above it.
    pub(super) fn take_part(
        &mut self,
        id: PartId,
        content: &[u8],
        signer: Option<Arc<dyn Verifier>>,
    ) -> Result<(), ManifestError> {
        let manifest = self.manifest.as_mut().expect("only then there are parts of it");
        manifest.add_part(id, content)?;
        self.manifest_signer = self.manifest_signer.take().or(signer);
        Ok(())
    }

    /// What the manifest says of a part; `None` where a signature does.
    fn listed(&self, layout: &Layout, part: Part) -> Option<Listed> {
        let (level, number) = layout.listed_as(part)?;
        Some(self.manifest.as_ref()?.listed(level, number))
    }

    /// Whether a part could be verified if it came: the manifest part that lists it is there.
    pub(super) fn can_check(&self, layout: &Layout, part: Part) -> bool {
        self.listed(layout, part) != Some(Listed::Unknown)
    }

    /// Whether nothing is held or being verified.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.pending.is_empty()
    }

    /// The unit `index` came damaged or forged; how often it has by now.
    pub(super) fn count_refusal(&mut self, index: u64) -> u32 {
        let times = self.refusals.entry(index).or_default();
        *times += 1;
        *times
    }

    /// The unit `index` came as it should.
    pub(super) fn forget_refusals(&mut self, index: u64) {
        self.refusals.remove(&index);
    }

    /// Whose signature a packet bears, or says it does.
    fn signer_of(&mut self, packet: &Packet, events: &mut Vec<ConsumerEvent>) -> Signed {
        let data = DataView::decode(packet).expect("it was decoded before");
        if let Some(known) = self.signers.iter().find(|signer| signer.signed(&data)) {
            return known.verifier.clone().map_or(Signed::NotKnownYet, Signed::By);
        }
        if self.signers.len() >= SIGNERS_MAX {
            return Signed::ByTooMany;
        }
        let id = KeyId(self.next_key);
        self.next_key += 1;
        let info = data.signature_info().to_signature_info();
        self.signers.push(KnownSigner {
            id,
            signature_type: info.signature_type,
            locator: info.key_locator,
            verifier: None,
        });
        events.push(ConsumerEvent::NeedKey { key: id, packet: packet.clone() });
        Signed::NotKnownYet
    }
}

impl Consumer {
    /// Takes a packet for the unit `index`, the first one or one that was asked for again.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        index: u64,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        self.unread += 1;
        self.stats.delivered += 1;
        self.stats.octets += incoming.packet.len() as u64;
        self.examine(now, index, incoming, out);
    }

    /// Has a packet verified, or holds it until that can be done.
    fn examine(&mut self, now: Instant, index: u64, incoming: Incoming, out: &mut ConsumerOutbox) {
        let (piece, part) = self.naming.part_of(index);
        let is_content = matches!(part, Part::Unit(_));
        let mut signer = None;
        let check = match (self.config.verification, part) {
            (Verification::ByDriver, _) => Check::ByDriver,
            (Verification::Off, Part::Unit(_)) => {
                let packet = self.reader.is_there().then_some(incoming.packet);
                let Incoming { last_segment, content_bytes, .. } = incoming;
                let pending = Pending { index, last_segment, content_bytes, packet, signer };
                return self.unit_good(pending, false, out);
            }
            (Verification::Off, _) => {
                self.unread -= 1;
                return self.believed(out);
            }
            (Verification::Signatures, part) if let Some(listed) = self.listed(part) => {
                let digest = match listed {
                    Listed::As(digest) => digest,
                    Listed::Unknown if self.set_aside_unverifiable(index) => return,
                    Listed::Unknown => return self.verification.held.push((index, incoming)),
                    Listed::Not => {
                        let reason = "the manifest does not list it".to_string();
                        let what = what(part);
                        return self.fail(ConsumerError::Unverified { what, reason }, out);
                    }
                };
                Check::Digest { digest, signer: self.verification.manifest_signer.clone() }
            }
            _ => match self.verification.signer_of(&incoming.packet, &mut out.events) {
                Signed::By(verifier) => {
                    signer = (!is_content).then(|| verifier.clone());
                    match self.digest_of_sole(part, &incoming) {
                        Some(digest) => Check::Content { digest, signer: verifier },
                        None => Check::Signature(verifier),
                    }
                }
                Signed::NotKnownYet => return self.verification.held.push((index, incoming)),
                Signed::ByTooMany => {
                    let reason = format!("it has more than {SIGNERS_MAX} signers");
                    return self.untrusted(now, index, reason, false, out);
                }
            },
        };
        let Incoming { packet, path, incoming_face, last_segment, content_bytes } = incoming;
        let keeps = !is_content || self.reader.is_there();
        let kept = keeps.then(|| packet.clone());
        let pending = Pending { index, last_segment, content_bytes, packet: kept, signer };
        let op = VerifyId(self.verification.pending.insert(pending));
        out.verify.push(VerifyOp { op, piece, part, packet, path, incoming_face, check });
    }

    /// The digest of the Content of the only segment there is, as verified metadata states it.
    fn digest_of_sole(&self, part: Part, incoming: &Incoming) -> Option<[u8; 32]> {
        let metadata = self.metadata.as_ref()?;
        let is_sole = part == Part::Unit(Unit::segment(0))
            && (metadata.last_segment, incoming.last_segment) == (Some(0), Some(0));
        metadata.content_digest.filter(|_| is_sole)
    }

    /// What the manifest says of a part; `None` where a signature does.
    pub(super) fn listed(&self, part: Part) -> Option<Listed> {
        let Naming::Object(layout) = &self.naming else { return None };
        self.verification.listed(layout, part)
    }

    /// Looks again at the packets that had to wait.
    pub(super) fn release(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        for (index, incoming) in core::mem::take(&mut self.verification.held) {
            self.examine(now, index, incoming, out);
        }
    }

    /// The driver says what verifies a signer's packets, or that it is not to be believed.
    pub(super) fn key(
        &mut self,
        now: Instant,
        key: KeyId,
        verifier: Result<Arc<dyn Verifier>, String>,
        out: &mut ConsumerOutbox,
    ) {
        let signers = &mut self.verification.signers;
        let Some(at) = signers.iter().position(|signer| signer.id == key) else { return };
        match verifier {
            Ok(verifier) => signers[at].verifier = Some(verifier),
            Err(reason) => {
                let refused = signers.remove(at);
                let others = signers.iter().any(|signer| signer.verifier.is_some());
                for (index, incoming) in core::mem::take(&mut self.verification.held) {
                    let data = DataView::decode(&incoming.packet).expect("it was decoded before");
                    if self.needs_signer(index) && refused.signed(&data) {
                        self.untrusted(now, index, reason.clone(), others, out);
                    } else {
                        self.verification.held.push((index, incoming));
                    }
                }
            }
        }
        self.release(now, out);
    }

    fn needs_signer(&self, index: u64) -> bool {
        self.listed(self.naming.part_of(index).1).is_none()
    }

    /// The signer of a packet is not believed. If `others` of this object are, it may be somebody
    /// else's packet, and another may come.
    fn untrusted(
        &mut self,
        now: Instant,
        index: u64,
        reason: String,
        others: bool,
        out: &mut ConsumerOutbox,
    ) {
        let others = others || self.verification.signers.iter().any(|one| one.verifier.is_some());
        let part = self.naming.part_of(index).1;
        if others && matches!(part, Part::Unit(_)) {
            return self.refuse(now, index, reason, None, out);
        }
        self.unread -= 1;
        let error = ConsumerError::Untrusted(reason);
        match part {
            _ if is_probe(index) => self.part_refused(now, out),
            Part::Metadata => self.refuse_metadata(now, error, out),
            _ => self.fail_unit(index, error, out),
        }
    }

    /// The driver's verdict.
    pub(super) fn verified(
        &mut self,
        now: Instant,
        op: VerifyId,
        verdict: Verdict,
        out: &mut ConsumerOutbox,
    ) {
        if !self.verification.pending.contains(op.0) {
            debug_assert!(false, "a verdict on {op:?}, which is not asked for");
            return;
        }
        let pending = self.verification.pending.remove(op.0);
        let index = pending.index;
        if !self.is_wanted(index) {
            // The piece was given up.
            self.unread -= 1;
            return;
        }
        let part = self.naming.part_of(index).1;
        match (verdict, part) {
            (Verdict::Good, Part::Unit(_)) => self.unit_good(pending, true, out),
            (Verdict::Good, Part::Metadata) => {
                self.unread -= 1;
                self.believed(out);
            }
            (Verdict::Good, Part::Manifest(id)) => self.part_good(now, id, pending, out),
            (Verdict::Bad { reason, digest }, _) => match self.config.on_bad {
                OnBad::Deliver if matches!(part, Part::Unit(_)) => {
                    self.unit_good(pending, false, out);
                }
                OnBad::Fail => {
                    self.unread -= 1;
                    let what = what(part);
                    self.fail_unit(index, ConsumerError::Unverified { what, reason }, out);
                }
                _ => self.refuse(now, index, reason, digest, out),
            },
        }
    }

    fn part_good(&mut self, now: Instant, id: PartId, pending: Pending, out: &mut ConsumerOutbox) {
        let Pending { index, packet, signer, .. } = pending;
        let packet = packet.expect("parts of the manifest are kept");
        let data = DataView::decode(&packet).expect("it was decoded before");
        if is_probe(index) {
            self.unread -= 1;
            return self.part_believed(now, id, data.content, signer, out);
        }
        if let Err(error) = self.verification.take_part(id, data.content, signer) {
            return self.refuse(now, index, error.to_string(), None, out);
        }
        self.unread -= 1;
        self.reader.pass(index);
        if let Some(holes) = &mut self.holes {
            holes.part_verified();
        }
        self.release(now, out);
    }

    /// A unit is there for good, verified or wanted all the same.
    fn unit_good(&mut self, pending: Pending, is_verified: bool, out: &mut ConsumerOutbox) {
        let Pending { index, last_segment, content_bytes, packet, .. } = pending;
        self.stats.units += 1;
        self.stats.content_octets += u64::from(content_bytes);
        let (piece, part) = self.naming.part_of(index);
        match packet.filter(|_| self.reader.is_there()) {
            Some(packet) => self.reader.put(index, Delivery { piece, part, packet, is_verified }),
            None => self.unread -= 1,
        }
        if let (Naming::Object(layout), Part::Unit(unit)) = (&self.naming, part) {
            // Only of whole objects, which have their segments from 0 on.
            if !matches!(self.target, Target::Range { .. }) && layout.wants_all() {
                self.have.insert(unit.chunk);
            }
            if let Some(last) = last_segment.filter(|_| is_verified && !layout.is_whole()) {
                self.last_verified(last, out);
            }
        }
        self.unit_over(index, out);
    }

    /// A verified segment says which is the last.
    fn last_verified(&mut self, stated: u64, out: &mut ConsumerOutbox) {
        let known = *self.verification.last_segment.get_or_insert(stated);
        if known != stated {
            let what = "the number of segments".to_string();
            let reason = format!("one says that {stated} is the last, another {known}");
            return self.fail(ConsumerError::Unverified { what, reason }, out);
        }
        self.set_last(stated, true, out);
    }

    /// A unit came that is not what its producer signed: it is asked for once more, or given up.
    fn refuse(
        &mut self,
        now: Instant,
        index: u64,
        reason: String,
        digest: Option<[u8; 32]>,
        out: &mut ConsumerOutbox,
    ) {
        self.unread -= 1;
        let part = self.naming.part_of(index).1;
        let error = ConsumerError::Unverified { what: what(part), reason };
        if part == Part::Metadata {
            return self.refuse_metadata(now, error, out);
        }
        if is_probe(index) {
            return self.part_refused(now, out);
        }
        if !self.config.is_reliable {
            return self.miss(index, out);
        }
        let times = self.verification.count_refusal(index);
        if times > REFUSALS_MAX {
            return self.fail_unit(index, error, out);
        }
        let listed = match self.listed(part) {
            Some(Listed::As(digest)) => Some(digest),
            _ => None,
        };
        let digest = digest.or(listed).filter(|_| times <= BY_DIGEST);
        // After the first time, damage on the way is less likely than a bad copy in a router.
        let mut selectors = self.selectors();
        selectors.must_be_fresh |= digest.is_none() && times > 1;
        let name = self.naming.name_of(index);
        let retries_max = self.config.retries_max;
        if !self.requests.ask_again(index, name.clone(), digest, selectors, retries_max, now) {
            return self.fail_unit(index, ConsumerError::Damaged(name), out);
        }
        // What the packet said of the last segment counts no more.
        let is_content = matches!(part, Part::Unit(_));
        if is_content && self.last_is_from_segment && self.verification.last_segment.is_none() {
            self.last_is_from_segment = false;
            match self.metadata.as_ref().and_then(|metadata| metadata.last_segment) {
                Some(last) => self.set_last(last, false, out),
                None => {
                    self.last_segment = None;
                    self.set_limit();
                }
            }
        }
    }

    /// Forgets the packets of units that are not wanted any more.
    pub(super) fn forget_unwanted(&mut self) {
        let Naming::Sequence(pieces) = &self.naming else { return };
        self.requests.retain(|index| pieces.is_wanted(index));
        let before = self.verification.held.len();
        self.verification.held.retain(|&(index, _)| pieces.is_wanted(index));
        self.unread -= (before - self.verification.held.len()) as u32;
    }

    fn is_wanted(&self, index: u64) -> bool {
        match &self.naming {
            Naming::Sequence(pieces) => pieces.is_wanted(index),
            Naming::Object(_) => true,
        }
    }

    /// The segments that are there: those of the start, and those verified since.
    pub fn have(&self) -> &SegmentSet {
        &self.have
    }
}

/// What a packet is called in an error.
fn what(part: Part) -> String {
    match part {
        Part::Metadata => "the metadata".into(),
        Part::Manifest(PartId { level, number }) => {
            format!("part {number} of level {level} of the manifest")
        }
        Part::Unit(unit) => format!("segment {}", unit.chunk),
    }
}
