//! Objects whose content arrives slice by slice. A slice is what some parts of the manifest list,
//! so it can be signed and sent before the rest of the content exists.

use std::ops::Range;

use weir_base::{Packet, Pool};
use weir_security::manifest::{DIGESTS_PER_PART, Digest, ManifestPart, ManifestShape, PartId};
use weir_security::{NullSigner, SignatureFormat, Signer, sha256_each};
use weir_transport::{Metadata, NameMapping, SegmentTemplate};
use weir_wire::{Component, Data, NAME_COMPONENTS_MAX, Name, PACKET_SIZE_MAX};

use super::error::PublishError;
use super::sign::{
    MANIFEST_SEGMENTS_MIN, PublishOptions, digests_per_part_max, sign_single_packet, signature_info,
};
use crate::sockets::Identity;

/// Components of the names of metadata and manifest parts below the object's name.
const COMPONENTS_BELOW_OBJECT: usize = 3;
/// The longest signature value of the supported algorithms but RSA (ECDSA P-256, DER), whose length
/// varies. RSA's is constant, and measured.
const SIGNATURE_BYTES_MIN: usize = 72;

/// Most bytes of a slice with several parts: as many as one part of a usual object lists. With
/// short segments, or with hICN names, a part lists fewer.
const SLICE_BYTES: u64 = 8000 * DIGESTS_PER_PART as u64;

/// Slices have NDN's signatures, also with hICN names.
const FORMAT: SignatureFormat = SignatureFormat::Ndn;

/// One version of an object, which is signed slice by slice.
///
/// Two producers with the same key sign the same content as the same packets, as far as the
/// signature algorithm is deterministic: slices have the same bounds, and only manifest parts have
/// signatures.
#[derive(Clone)]
pub struct SlicedObject {
    versioned: Name,
    size_bytes: u64,
    segment_size: u64,
    packet_bytes_max: usize,
    /// `None`: the object is so short that each segment is signed.
    manifest: Option<ManifestShape>,
    parts_per_slice: u64,
    freshness_ms: u64,
    mapping: NameMapping,
    identity: Identity,
}

/// The packets of a slice.
pub struct SignedSlice {
    pub packets: Vec<Packet>,
    /// SHA-256 of what the manifest parts list; without a manifest, of the content. It is the same
    /// exactly if the slice has the same content.
    pub digest: Digest,
}

impl SlicedObject {
    /// The version with this name, of `size_bytes` bytes.
    ///
    /// # Errors
    /// The names of its packets are too long or too deep.
    pub fn new(
        versioned: Name,
        size_bytes: u64,
        identity: &Identity,
        options: &PublishOptions,
    ) -> Result<Self, PublishError> {
        let components = versioned.as_view().component_count() - 1 + COMPONENTS_BELOW_OBJECT;
        if components > NAME_COMPONENTS_MAX {
            return Err(PublishError::TooDeep { components });
        }
        let segment_size = options.segment_size.max(1) as u64;
        let mut object = Self {
            versioned,
            size_bytes,
            segment_size,
            packet_bytes_max: options.packet_bytes_max,
            manifest: None,
            parts_per_slice: 1,
            freshness_ms: options.freshness_ms,
            mapping: options.mapping,
            identity: identity.clone(),
        };
        object.mapping.check_last(object.segments() - 1)?;
        if object.segments() >= MANIFEST_SEGMENTS_MIN {
            let shape = object.choose_shape(digests_per_part_max(options))?;
            object.parts_per_slice = parts_per_slice(shape.digests_per_part(), segment_size);
            object.manifest = Some(shape);
        }
        Ok(object)
    }

    /// Bytes of a slice of an object with a manifest, unless its name is unusually long.
    pub fn usual_slice_bytes(options: &PublishOptions) -> u64 {
        let digests = digests_per_part_max(options) as u64;
        let segment_size = options.segment_size.max(1) as u64;
        parts_per_slice(digests, segment_size) * digests * segment_size
    }

    /// The largest parts of at most `digests_max` digests that fit into a packet with this name and
    /// key.
    fn choose_shape(&self, digests_max: usize) -> Result<ManifestShape, PublishError> {
        let shape = ManifestShape::new(digests_max as u64, 1).expect("it is in range");
        let digests = vec![[0; 32]; digests_max];
        let part = ManifestPart { shape, level: 1, first: u64::MAX, digests: &digests };
        // The last part has the longest number.
        let data = self.part_data(self.segments(), shape, part.encode());
        let signer = &*self.identity.signer;
        let packet = weir_security::sign_data(&data, signer)?;
        let signature = signer.sign(&[])?.len();
        let len = packet.len() - signature + signature.max(SIGNATURE_BYTES_MIN);
        let too_many = len.saturating_sub(PACKET_SIZE_MAX).div_ceil(size_of::<Digest>());
        let digests = digests_max.saturating_sub(too_many) as u64;
        let too_long = PublishError::TooLong { what: "a part of the manifest", len };
        ManifestShape::new(digests, 1).ok_or(too_long)
    }

    pub fn versioned(&self) -> &Name {
        &self.versioned
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn segments(&self) -> u64 {
        self.size_bytes.div_ceil(self.segment_size).max(1)
    }

    fn segments_per_slice(&self) -> u64 {
        match self.manifest {
            Some(shape) => shape.digests_per_part() * self.parts_per_slice,
            None => MANIFEST_SEGMENTS_MIN,
        }
    }

    /// Number of slices, at least one.
    pub fn slices(&self) -> u64 {
        self.segments().div_ceil(self.segments_per_slice())
    }

    /// The slice with this segment, if the object has it.
    pub fn slice_of_segment(&self, segment: u64) -> Option<u64> {
        (segment < self.segments()).then(|| segment / self.segments_per_slice())
    }

    /// The slice with this part of the manifest, if the object has it.
    pub fn slice_of_part(&self, part: u64) -> Option<u64> {
        let slice = part / self.parts_per_slice;
        self.slice_of_segment(part.checked_mul(self.manifest?.digests_per_part())?)
            .filter(|found| *found == slice)
    }

    /// The bytes of a slice.
    pub fn slice_range(&self, slice: u64) -> Range<u64> {
        let bytes = self.segments_per_slice() * self.segment_size;
        (slice * bytes).min(self.size_bytes)..((slice + 1) * bytes).min(self.size_bytes)
    }

    /// Signs a slice: its manifest parts, if it has any, then its segments.
    ///
    /// # Errors
    /// The key cannot sign, or a packet is too long.
    ///
    /// # Panics
    /// `content` does not have the length of the slice.
    pub fn sign(&self, slice: u64, content: &[u8]) -> Result<SignedSlice, PublishError> {
        let segments = self.sign_segments(slice, content)?;
        let Some(shape) = self.manifest else {
            let digest = weir_security::sha256(&[content]);
            return Ok(SignedSlice { packets: segments, digest });
        };
        let lists = self.list_digests(slice, shape, &segments);
        let digest = digest_of(&lists);
        let first = slice * self.parts_per_slice;
        let parts = (first..).zip(lists).map(|(number, list)| {
            let part = self.part_data(number, shape, list);
            sign_single_packet("a part of the manifest", &part, &*self.identity.signer, FORMAT)
        });
        let mut packets = parts.collect::<Result<Vec<_>, _>>()?;
        packets.extend(segments);
        Ok(SignedSlice { packets, digest })
    }

    /// [`SignedSlice::digest`] without signatures of manifest parts.
    ///
    /// # Errors
    /// # Panics
    /// As [`SlicedObject::sign`].
    pub fn digest(&self, slice: u64, content: &[u8]) -> Result<Digest, PublishError> {
        let Some(shape) = self.manifest else {
            return Ok(weir_security::sha256(&[content]));
        };
        let segments = self.sign_segments(slice, content)?;
        Ok(digest_of(&self.list_digests(slice, shape, &segments)))
    }

    /// The segments of a slice, all in one block of memory.
    fn sign_segments(&self, slice: u64, content: &[u8]) -> Result<Vec<Packet>, PublishError> {
        let range = self.slice_range(slice);
        assert_eq!(content.len() as u64, range.end - range.start, "slice {slice}");
        let signer: &dyn Signer = match self.manifest {
            Some(_) => &NullSigner,
            None => &*self.identity.signer,
        };
        let prefix = self.mapping.version_prefix(self.versioned.as_view());
        let (info, last) = (signature_info(signer), self.segments() - 1);
        let template = SegmentTemplate::new(prefix.as_view(), self.freshness_ms, last, &info);
        let chunks = content.chunks(self.segment_size as usize);
        // An empty object has one empty segment.
        let chunks = chunks.chain(content.is_empty().then_some(&[][..]));
        let first = slice * self.segments_per_slice();
        let mut scratch = Vec::new();
        let segments = (first..).zip(chunks).map(|(segment, content)| {
            let signature = template.sign(segment, content, signer, &mut scratch)?;
            let len = template.frame(segment, content.len(), signature.len()).len;
            let excess = len.saturating_sub(self.packet_bytes_max);
            if excess > 0 {
                let segment_size = self.segment_size as usize;
                let max = segment_size.saturating_sub(excess);
                return Err(PublishError::SegmentSize { segment_size, max });
            }
            Ok((segment, content, signature, len))
        });
        let segments = segments.collect::<Result<Vec<_>, _>>()?;
        let bytes = segments.iter().map(|(_, _, _, len)| len).sum();
        let mut block = Pool::new(0).alloc(bytes);
        let mut at = 0;
        for (segment, content, signature, len) in &segments {
            let out = &mut block[at..at + len];
            let frame = template.write(*segment, content.len(), signature, out);
            out[frame.content].copy_from_slice(content);
            at += len;
        }
        let block = block.freeze(bytes);
        let mut at = 0;
        let packets = segments.iter().map(|(_, _, _, len)| {
            at += len;
            block.slice(at - len..at)
        });
        Ok(packets.collect())
    }

    /// The content of the manifest parts of a slice.
    fn list_digests(&self, slice: u64, shape: ManifestShape, segments: &[Packet]) -> Vec<Vec<u8>> {
        let wires: Vec<&[u8]> = segments.iter().map(|packet| &packet[..]).collect();
        let digests = sha256_each(&wires);
        let first = slice * self.segments_per_slice();
        let firsts = (first..).step_by(shape.digests_per_part() as usize);
        let parts = firsts.zip(digests.chunks(shape.digests_per_part() as usize));
        parts
            .map(|(first, digests)| ManifestPart { shape, level: 1, first, digests }.encode())
            .collect()
    }

    fn part_data(&self, number: u64, shape: ManifestShape, list: Vec<u8>) -> Data {
        let name = |number| self.mapping.part_name(self.versioned.as_view(), PartId::leaf(number));
        let last = name(self.segments().div_ceil(shape.digests_per_part()) - 1);
        let last = last.as_view().last().map(Component::from);
        Data::new(name(number))
            .freshness_ms(self.freshness_ms)
            .final_block_id(last.expect("the name ends in a number"))
            .content(list)
    }

    /// Signs the metadata of the version. `number` is that of the metadata themselves: later ones
    /// have greater numbers. `freshness_ms` is how long stores may answer with them.
    ///
    /// # Errors
    /// The key cannot sign, or the head or the certificate is too long.
    pub fn sign_metadata(
        &self,
        number: u64,
        freshness_ms: u64,
        http_head: Option<Vec<u8>>,
    ) -> Result<Packet, PublishError> {
        let metadata = Metadata {
            last_segment: Some(self.segments() - 1),
            segment_size: Some(self.segment_size),
            size_bytes: Some(self.size_bytes),
            manifest: self.manifest,
            certificate: self.identity.certificate.clone(),
            http_head,
            ..Metadata::new(self.versioned.clone())
        };
        let name = self.mapping.metadata_name(self.versioned.as_view().parent(), number);
        let last = Component::from(name.as_view().last().expect("the name ends in a number"));
        let data = Data::new(name)
            .freshness_ms(freshness_ms)
            .final_block_id(last)
            .content(metadata.encode());
        sign_single_packet("metadata", &data, &*self.identity.signer, FORMAT)
    }
}

fn parts_per_slice(digests_per_part: u64, segment_size: u64) -> u64 {
    (SLICE_BYTES / (digests_per_part * segment_size)).max(1)
}

fn digest_of(lists: &[Vec<u8>]) -> Digest {
    weir_security::sha256(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use weir_security::DigestSigner;
    use weir_security::manifest::{DigestLookup, DigestManifest};
    use weir_wire::DataView;

    use super::*;

    fn object(name: &str, size_bytes: u64) -> SlicedObject {
        let options = PublishOptions { segment_size: 100, ..PublishOptions::default() };
        let versioned = name.parse().unwrap();
        SlicedObject::new(versioned, size_bytes, &Identity::new(DigestSigner), &options).unwrap()
    }

    #[test]
    fn slices_cover_object_once() {
        for size in [0, 1, 99, 100, 200, 201, 24_801, 1_984_000, 1_984_001, 5_000_000] {
            let object = object("/a/54=%01", size);
            let ranges: Vec<_> =
                (0..object.slices()).map(|slice| object.slice_range(slice)).collect();
            assert_eq!(ranges[0].start, 0, "{size}");
            assert_eq!(ranges.last().unwrap().end, size, "{size}");
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{size}");
            assert_eq!(object.slice_of_segment(object.segments()), None, "{size}");
            assert_eq!(object.slice_of_segment(object.segments() - 1), Some(object.slices() - 1));
            let parts = object.segments().div_ceil(DIGESTS_PER_PART as u64);
            if object.manifest.is_some() {
                assert_eq!(object.slice_of_part(parts - 1), Some(object.slices() - 1), "{size}");
                assert_eq!(object.slice_of_part(parts), None, "{size}");
            }
        }
    }

    #[test]
    fn parts_list_segments_of_their_slice() {
        // Two slices. The first has 80 parts.
        let object = object("/a/54=%01", 2_000_000);
        let content: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8).collect();
        let shape = object.manifest.unwrap();
        let mut manifest = DigestManifest::new(shape, object.segments());
        let mut read = Vec::new();
        for slice in 0..object.slices() {
            let range = object.slice_range(slice);
            let content = &content[range.start as usize..range.end as usize];
            let SignedSlice { packets, digest } = object.sign(slice, content).unwrap();
            assert_eq!(object.digest(slice, content).unwrap(), digest);
            let parts = packets.len() - content.len().div_ceil(100);
            for packet in &packets[..parts] {
                let part = DataView::decode(packet).unwrap();
                let number = part.name.last().unwrap().as_segment().unwrap();
                assert_eq!(object.slice_of_part(number), Some(slice));
                manifest.add_part(PartId::leaf(number), part.content).unwrap();
            }
            for packet in &packets[parts..] {
                let data = DataView::decode(packet).unwrap();
                let segment = data.name.last().unwrap().as_segment().unwrap();
                let digest = weir_security::sha256(&[packet]);
                assert_eq!(manifest.digest_of(0, segment), DigestLookup::Found(digest));
                read.extend_from_slice(data.content);
            }
        }
        assert_eq!(read, content);
    }

    #[test]
    fn long_names_have_smaller_parts() {
        let short = object("/a/54=%01", 1 << 20).manifest.unwrap().digests_per_part;
        assert_eq!(usize::from(short), DIGESTS_PER_PART);
        let name = format!("/{}/54=%01", "n".repeat(3000));
        let object = object(&name, 1 << 20);
        let digests = object.manifest.unwrap().digests_per_part();
        assert!((1..DIGESTS_PER_PART as u64).contains(&digests));
        let content = vec![7; (object.slice_range(0).end) as usize];
        assert!(
            object.sign(0, &content).unwrap().packets.iter().all(|it| it.len() <= PACKET_SIZE_MAX)
        );
    }

    /// hICN packets are not fragmented, so a part fits where a segment does.
    #[test]
    fn parts_of_hicn_names_fit_segments() {
        let options = PublishOptions {
            segment_size: 1200,
            mapping: "hicn:2001:db8::/32".parse().unwrap(),
            ..PublishOptions::default()
        };
        let (name, identity) = ("/a/54=%01".parse().unwrap(), Identity::new(DigestSigner));
        let object = SlicedObject::new(name, 100_000, &identity, &options).unwrap();
        for slice in 0..object.slices() {
            let content = vec![7; object.slice_range(slice).count()];
            let packets = object.sign(slice, &content).unwrap().packets;
            let lens = packets.iter().map(|it| DataView::decode(it).unwrap().content.len());
            assert!(lens.max() <= Some(options.segment_size), "slice {slice}");
        }
    }

    #[test]
    fn metadata_carry_head() {
        let object = object("/a/54=%01", 250);
        let packet = object.sign_metadata(9, 1000, Some(vec![1, 2])).unwrap();
        let data = DataView::decode(&packet).unwrap();
        assert_eq!(data.name.to_name(), "/a/32=metadata/54=%09/50=%00".parse().unwrap());
        let metadata = Metadata::decode(data.content).unwrap();
        assert_eq!(metadata.http_head, Some(vec![1, 2]));
        assert_eq!((metadata.last_segment, metadata.size_bytes), (Some(2), Some(250)));
        assert_eq!(metadata.manifest, object.manifest);
    }
}
