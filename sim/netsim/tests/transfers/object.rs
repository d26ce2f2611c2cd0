//! An object with metadata and an optional manifest; some packets may be absent.

use std::collections::BTreeSet;

use weir_base::{HashKey, Instant, Packet, Rng};
use weir_security::manifest::{ManifestShape, PartId};
use weir_security::{DigestSigner, Signer, manifest, sha256};
use weir_transport::{
    Answer, Catalog, Metadata, MissPolicy, ProducerConfig, ProducerInput, SegmentTemplate, Source,
};
use weir_wire::{Component, Data, DataView, InterestView, Name, SignatureInfo};

use super::{Changing, Origin, object, versioned};

pub(super) const FLAT: ManifestShape = ManifestShape { digests_per_part: 20, levels: 1 };
const VERSION: u64 = 42;

pub(super) fn version() -> Name {
    versioned(VERSION)
}

pub(super) struct Object {
    catalog: Catalog,
    template: SegmentTemplate,
    pub(super) content: Vec<u8>,
    segment_size: usize,
    signatures: Vec<Vec<u8>>,
    /// Sent in place of the correct packet of its name.
    pub(super) false_packet: Option<Packet>,
    /// Segments and manifest packets that are absent until this time.
    pub(super) absent: BTreeSet<u64>,
    pub(super) absent_parts: BTreeSet<PartId>,
    pub(super) absent_until: Instant,
    pub(super) unanswered: MissPolicy,
    now: Instant,
}

impl Object {
    pub(super) fn new(
        content: Vec<u8>,
        segment_size: usize,
        manifest: Option<ManifestShape>,
    ) -> Self {
        let versioned = version();
        let segments = content.len().div_ceil(segment_size).max(1) as u64;
        let last = segments - 1;
        let info = SignatureInfo::new(0);
        let template = SegmentTemplate::new(versioned.as_view(), 10_000, last, &info);
        let mut catalog = Catalog::new();
        catalog.add_object(versioned.as_view(), segments);
        let mut scratch = Vec::new();
        let contents: Vec<&[u8]> =
            (0..segments).map(|at| chunk(&content, segment_size, at)).collect();
        let sign = |(segment, content): (u64, &&[u8])| {
            template.sign(segment, content, &DigestSigner, &mut scratch).unwrap()
        };
        let signatures: Vec<Vec<u8>> = (0..).zip(&contents).map(sign).collect();
        let digests = template.digests(0, &contents, &signatures, &mut scratch);
        let parts = manifest.map(|shape| manifest_parts(&digests, shape)).into_iter().flatten();
        parts.for_each(|part| catalog.add_packet(part).unwrap());
        let metadata = Metadata { last_segment: Some(last), manifest, ..Metadata::new(versioned) };
        let mut name = object();
        name.append_keyword(b"metadata").append_version(1).append_segment(0);
        catalog.add_packet(signed(name, metadata.encode())).unwrap();
        Self {
            catalog,
            template,
            content,
            segment_size,
            signatures,
            false_packet: None,
            absent: BTreeSet::new(),
            absent_parts: BTreeSet::new(),
            absent_until: Instant::FAR_FUTURE,
            unanswered: MissPolicy::Ignore,
            now: Instant::ZERO,
        }
    }

    /// Random bytes in segments of 100.
    pub(super) fn random(len: usize, manifest: Option<ManifestShape>) -> Self {
        let mut content = vec![0; len];
        Rng::from_seed(1).fill(&mut content);
        Self::new(content, 100, manifest)
    }

    pub(super) fn origin(self) -> Origin<Self> {
        let config = ProducerConfig::new(HashKey::new([1, 2]));
        let unanswered = self.unanswered;
        Origin::new(self, ProducerConfig { on_miss: unanswered, ..config })
    }

    fn is_absent(&self, interest: &InterestView<'_>) -> bool {
        let version = version();
        let is_part =
            |id: &PartId| manifest::part_name(version.as_view(), *id).as_view() == interest.name;
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let is_segment = interest.name.parent() == version.as_view();
        let is_absent = is_segment && segment.is_some_and(|at| self.absent.contains(&at));
        self.now < self.absent_until && (is_absent || self.absent_parts.iter().any(is_part))
    }
}

impl Source for Object {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        if let Some(packet) = &self.false_packet
            && DataView::decode(packet).unwrap().satisfies(interest)
        {
            return Answer::Packet(packet.clone());
        }
        if self.is_absent(interest) {
            return Answer::NotFound;
        }
        match self.catalog.find(interest) {
            Answer::Segment { segment, .. } => {
                let content = chunk(&self.content, self.segment_size, segment);
                let signature = &self.signatures[segment as usize];
                let mut packet = vec![0; 8800];
                let frame = self.template.write(segment, content.len(), signature, &mut packet);
                packet[frame.content.clone()].copy_from_slice(content);
                packet.truncate(frame.len);
                Answer::Packet(packet.into())
            }
            answer => answer,
        }
    }
}

impl Changing for Object {
    fn changes(&mut self, now: Instant) -> Vec<ProducerInput> {
        self.now = now;
        Vec::new()
    }
}

pub(super) fn signed(name: Name, content: Vec<u8>) -> Packet {
    let data = Data::new(name).content(content).final_block_id(Component::segment(0));
    data.encode_signed(&SignatureInfo::new(0), |portions| DigestSigner.sign(portions).unwrap())
        .into()
}

fn unsigned(name: Name, content: Vec<u8>) -> Packet {
    Data::new(name).content(content).encode_signed(&SignatureInfo::new(200), |_| vec![]).into()
}

/// Manifest packets of the highest level are signed. Those below are listed by digest in the level
/// above.
fn manifest_parts(segments: &[[u8; 32]], shape: ManifestShape) -> Vec<Packet> {
    let (mut packets, mut digests) = (Vec::new(), segments.to_vec());
    for level in 1..=shape.levels {
        let parts = (0..).zip(manifest::encode_parts(&digests, shape, level));
        let parts = parts.map(|(number, content)| {
            let name = manifest::part_name(version().as_view(), PartId { level, number });
            if level == shape.levels { signed(name, content) } else { unsigned(name, content) }
        });
        let parts: Vec<Packet> = parts.collect();
        digests = parts.iter().map(|part| sha256(&[part])).collect();
        packets.extend(parts);
    }
    packets
}

fn chunk(content: &[u8], size: usize, segment: u64) -> &[u8] {
    let start = segment as usize * size;
    &content[start..content.len().min(start + size)]
}
