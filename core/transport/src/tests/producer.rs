//! The producer of these tests, which may leave out what it has.

use super::*;

/// An object with its metadata and, perhaps, its manifest.
pub(super) struct Producer {
    pub(super) catalog: Catalog,
    pub(super) template: SegmentTemplate,
    pub(super) content: Vec<u8>,
    pub(super) segment_size: usize,
    pub(super) signatures: Vec<Vec<u8>>,
    /// Answers for its name in place of the right one.
    pub(super) false_packet: Option<Packet>,
    /// Segments and parts of the manifest that it does not answer for until this time.
    pub(super) absent: BTreeSet<u64>,
    pub(super) absent_parts: BTreeSet<PartId>,
    pub(super) absent_until: Instant,
}

impl Producer {
    pub(super) fn new(content: Vec<u8>, segment_size: usize, manifest: Option<Shape>) -> Self {
        let versioned = versioned();
        let segments = content.len().div_ceil(segment_size).max(1);
        let last = segments as u64 - 1;
        let info = SignatureInfo::new(0);
        let template = SegmentTemplate::new(versioned.as_view(), 10_000, last, &info);
        let mut catalog = Catalog::new();
        catalog.add_object(versioned.as_view(), segments as u64);
        let mut scratch = Vec::new();
        let contents = (0..segments as u64).map(|at| chunk(&content, segment_size, at));
        let contents: Vec<&[u8]> = contents.collect();
        let sign = |(segment, content): (usize, &&[u8])| {
            template.sign(segment as u64, content, &DigestSigner, &mut scratch).unwrap()
        };
        let signatures: Vec<Vec<u8>> = contents.iter().enumerate().map(sign).collect();
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
        }
    }

    /// Whether it does not answer at `now`.
    pub(super) fn is_absent(&self, interest: &InterestView<'_>, now: Instant) -> bool {
        let versioned = versioned();
        let is_part =
            |id: &PartId| manifest::part_name(versioned.as_view(), *id).as_view() == interest.name;
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let is_segment = interest.name.parent() == versioned.as_view();
        let is_absent = is_segment && segment.is_some_and(|at| self.absent.contains(&at));
        now < self.absent_until && (is_absent || self.absent_parts.iter().any(is_part))
    }

    pub(super) fn answer(&mut self, interest: &InterestView<'_>) -> Option<Packet> {
        if let Some(packet) = &self.false_packet
            && DataView::decode(packet).unwrap().satisfies(interest)
        {
            return Some(packet.clone());
        }
        match self.catalog.find(interest) {
            Answer::Packet(packet) => Some(packet),
            Answer::Segment { segment, .. } => {
                let content = chunk(&self.content, self.segment_size, segment);
                let signature = &self.signatures[segment as usize];
                let mut packet = vec![0; 8800];
                let frame = self.template.write(segment, content.len(), signature, &mut packet);
                packet[frame.content.clone()].copy_from_slice(content);
                packet.truncate(frame.len);
                Some(packet.into())
            }
            Answer::Later | Answer::Unknown => None,
        }
    }
}
