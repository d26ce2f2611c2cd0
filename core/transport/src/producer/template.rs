//! The bytes of a segment around its Content.
//!
//! The segments of an object differ only in number, Content and signature value. A producer stores
//! the signature values, and writes the rest for each request around the Content that it reads from
//! the file.

use core::ops::Range;

use alloc::vec::Vec;

use weir_base::SHA256_LANES;
use weir_hicn::{HicnName, NativeSigning};
use weir_security::{SignError, Signer, sha256_each};
use weir_wire::tlv::{self, Writer, encode_nni, var_number_size, write_var_number};
use weir_wire::{NameView, PACKET_SIZE_MAX, SignatureInfo};

/// Where the parts of one segment are in its packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the complete packet.
    pub len: usize,
    /// The value of Content, which the driver fills in.
    pub content: Range<usize>,
    pub signed: Range<usize>,
    pub signature: Range<usize>,
}

/// Writes the segments of one object.
#[derive(Clone, Debug)]
pub struct SegmentTemplate {
    /// Value of the Name before the segment number.
    prefix: Vec<u8>,
    meta: Vec<u8>,
    /// MetaInfo of the last segment, for hICN packets: others cannot name the last one.
    last_meta: Vec<u8>,
    last_segment: u64,
    freshness_ms: u64,
    info: Vec<u8>,
    /// Segments have hICN's signature.
    native: Option<NativeSigning>,
}

impl SegmentTemplate {
    /// A template for the segments right below `prefix`, up to `last_segment`, with this
    /// SignatureInfo.
    pub fn new(
        prefix: NameView<'_>,
        freshness_ms: u64,
        last_segment: u64,
        info: &SignatureInfo,
    ) -> Self {
        Self::build(prefix, freshness_ms, last_segment, info, None)
    }

    /// As [`SegmentTemplate::new`], for segments with hICN's signature right below an hICN address.
    pub fn native(
        prefix: NameView<'_>,
        freshness_ms: u64,
        last_segment: u64,
        signing: NativeSigning,
    ) -> Self {
        let info = signing.signature_info(0);
        Self::build(prefix, freshness_ms, last_segment, &info, Some(signing))
    }

    fn build(
        prefix: NameView<'_>,
        freshness_ms: u64,
        last_segment: u64,
        info: &SignatureInfo,
        native: Option<NativeSigning>,
    ) -> Self {
        let mut template = Self {
            prefix: Vec::new(),
            meta: Vec::new(),
            last_meta: Vec::new(),
            last_segment,
            freshness_ms,
            info: info_tlv(info),
            native,
        };
        template.set_object(prefix.value(), last_segment);
        template
    }

    /// The name right above the segments, as it is in the network.
    pub fn prefix(&self) -> NameView<'_> {
        NameView::from_value(&self.prefix).expect("the value of a name")
    }

    /// Switches to the segments right below the Name with this TLV-VALUE, up to `last_segment`.
    /// Reuses memory: producers of many small objects need one template.
    pub fn set_object(&mut self, prefix: &[u8], last_segment: u64) {
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.last_segment = last_segment;
        write_meta(&mut self.last_meta, self.freshness_ms, Some(last_segment));
        let last = Some(last_segment).filter(|_| self.native.is_none());
        write_meta(&mut self.meta, self.freshness_ms, last);
    }

    fn meta(&self, segment: u64) -> &[u8] {
        if segment == self.last_segment { &self.last_meta } else { &self.meta }
    }

    /// Bytes of the header of Content. The NDN form of an hICN packet has no empty Content.
    fn content_header_len(&self, content_len: usize) -> usize {
        match self.native {
            Some(_) if content_len == 0 => 0,
            _ => header_len(tlv::CONTENT, content_len),
        }
    }

    /// Bytes of the SignatureValue for a signature of this length. hICN's are padded.
    fn signature_value_len(&self, signature_len: usize) -> usize {
        self.native.as_ref().map_or(signature_len, NativeSigning::field_size)
    }

    /// Where the parts of a segment are.
    pub fn frame(&self, segment: u64, content_len: usize, signature_len: usize) -> Frame {
        let value_len = self.signature_value_len(signature_len);
        let name_len = self.prefix.len() + 2 + encode_nni(segment).len();
        let before_content = header_len(tlv::NAME, name_len)
            + name_len
            + self.meta(segment).len()
            + self.content_header_len(content_len);
        let signed_len = before_content + content_len + self.info.len();
        let signature_header = header_len(tlv::SIGNATURE_VALUE, value_len);
        let body_len = signed_len + signature_header + value_len;
        let outer = header_len(tlv::DATA, body_len);
        let signature_at = outer + signed_len + signature_header;
        Frame {
            len: outer + body_len,
            content: outer + before_content..outer + before_content + content_len,
            signed: outer..outer + signed_len,
            signature: signature_at..signature_at + signature_len,
        }
    }

    /// Bytes of Content that fit into a packet with the largest segment number and such a
    /// signature.
    pub fn content_max(&self, last_segment: u64, signature_len: usize) -> usize {
        let full = self.frame(last_segment, PACKET_SIZE_MAX, signature_len);
        PACKET_SIZE_MAX.saturating_sub(full.len - PACKET_SIZE_MAX)
    }

    /// Writes a segment except the value of its Content to the start of `out`.
    ///
    /// # Panics
    /// `out` is shorter than the frame.
    pub fn write(
        &self,
        segment: u64,
        content_len: usize,
        signature: &[u8],
        out: &mut [u8],
    ) -> Frame {
        let frame = self.frame(segment, content_len, signature.len());
        let number = encode_nni(segment);
        let mut at = write_header(tlv::DATA, frame.len - frame.signed.start, out);
        debug_assert_eq!(at, frame.signed.start);
        at += write_header(tlv::NAME, self.prefix.len() + 2 + number.len(), &mut out[at..]);
        at = put_bytes(out, at, &self.prefix);
        at += write_header(tlv::SEGMENT_NAME_COMPONENT, number.len(), &mut out[at..]);
        at = put_bytes(out, at, &number);
        at = put_bytes(out, at, self.meta(segment));
        if self.content_header_len(content_len) > 0 {
            at += write_header(tlv::CONTENT, content_len, &mut out[at..]);
        }
        debug_assert_eq!(at, frame.content.start);
        at = put_bytes(out, frame.content.end, &self.info);
        if let Some(padding) = self.native.as_ref().and_then(|it| it.padding(signature.len())) {
            out[at - 1] = padding;
        }
        let value_len = self.signature_value_len(signature.len());
        at += write_header(tlv::SIGNATURE_VALUE, value_len, &mut out[at..]);
        at = put_bytes(out, at, signature);
        out[at..frame.len].fill(0);
        frame
    }

    /// The signature value of the segment with this Content. Overwrites `scratch`.
    pub fn sign(
        &self,
        segment: u64,
        content: &[u8],
        signer: &dyn Signer,
        scratch: &mut Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        if let Some(native) = &self.native {
            let address = HicnName::address_of(self.prefix()).ok_or(SignError::NoHicnForm)?;
            let suffix = u32::try_from(segment).map_err(|_| SignError::NoHicnForm)?;
            let octets = native.signed_octets(HicnName { address, suffix }, content);
            let signature = signer.sign(&octets.portions())?;
            native.padding(signature.len()).ok_or(SignError::Provider)?;
            return Ok(signature);
        }
        let frame = self.frame(segment, content.len(), 0);
        scratch.resize(frame.len.max(scratch.len()), 0);
        self.write(segment, content.len(), &[], scratch);
        let head = &scratch[frame.signed.start..frame.content.start];
        let tail = &scratch[frame.content.end..frame.signed.end];
        signer.sign(&[head, content, tail])
    }

    /// The implicit SHA-256 digests of the segments from `first` on, with these Contents and
    /// signature values. Overwrites `scratch`.
    pub fn digests(
        &self,
        first: u64,
        contents: &[&[u8]],
        signatures: &[Vec<u8>],
        scratch: &mut Vec<u8>,
    ) -> Vec<[u8; 32]> {
        let mut digests = Vec::with_capacity(contents.len());
        let mut next = first;
        let batches = contents.chunks(SHA256_LANES).zip(signatures.chunks(SHA256_LANES));
        for (contents, signatures) in batches {
            scratch.resize(contents.len() * PACKET_SIZE_MAX, 0);
            let mut packets: Vec<&[u8]> = Vec::with_capacity(contents.len());
            let places = scratch.chunks_mut(PACKET_SIZE_MAX);
            for ((content, signature), place) in contents.iter().zip(signatures).zip(places) {
                let frame = self.write(next, content.len(), signature, place);
                place[frame.content].copy_from_slice(content);
                packets.push(&place[..frame.len]);
                next += 1;
            }
            digests.extend(sha256_each(&packets));
        }
        digests
    }
}

/// Replaces `meta` by a MetaInfo, which is absent if it would be empty.
fn write_meta(meta: &mut Vec<u8>, freshness_ms: u64, last_segment: Option<u64>) {
    meta.clear();
    // All types and lengths here take one byte.
    meta.extend([tlv::META_INFO as u8, 0]);
    if freshness_ms > 0 {
        let freshness = encode_nni(freshness_ms);
        meta.extend([tlv::FRESHNESS_PERIOD as u8, freshness.len() as u8]);
        meta.extend_from_slice(&freshness);
    }
    if let Some(last) = last_segment.map(encode_nni) {
        meta.extend([tlv::FINAL_BLOCK_ID as u8, (2 + last.len()) as u8]);
        meta.extend([tlv::SEGMENT_NAME_COMPONENT as u8, last.len() as u8]);
        meta.extend_from_slice(&last);
    }
    match meta.len() - 2 {
        0 => meta.clear(),
        len => meta[1] = len as u8,
    }
}

fn info_tlv(info: &SignatureInfo) -> Vec<u8> {
    let mut writer = Writer::new();
    info.write(tlv::SIGNATURE_INFO, &mut writer);
    writer.into_vec()
}

fn header_len(typ: u32, len: usize) -> usize {
    var_number_size(u64::from(typ)) + var_number_size(len as u64)
}

fn write_header(typ: u32, len: usize, out: &mut [u8]) -> usize {
    let at = write_var_number(u64::from(typ), out);
    at + write_var_number(len as u64, &mut out[at..])
}

fn put_bytes(out: &mut [u8], at: usize, octets: &[u8]) -> usize {
    let end = at + octets.len();
    out[at..end].copy_from_slice(octets);
    end
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use weir_hicn::{Algorithm, HicnView, Hop, from_tlv, to_tlv};
    use weir_security::{DigestSigner, DigestVerifier, verify_data};
    use weir_wire::{Component, Data, DataView, KeyLocator, Name};

    use super::*;

    fn name() -> Name {
        "/some/object/54=%FD%12".parse().unwrap()
    }

    #[test]
    fn writes_the_signed_segment() {
        let info = SignatureInfo::new(0);
        let template = SegmentTemplate::new(name().as_view(), 10_000, 300, &info);
        let mut scratch = Vec::new();
        for (segment, len) in [(0, 8000), (1, 0), (2, 100), (255, 140), (256, 8000), (300, 17)] {
            let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let signature = template.sign(segment, &content, &DigestSigner, &mut scratch).unwrap();
            let mut packet = vec![0xEE; 8800];
            let frame = template.write(segment, len, &signature, &mut packet);
            packet[frame.content.clone()].copy_from_slice(&content);
            packet.truncate(frame.len);
            assert_eq!(packet[frame.signature.clone()], signature);
            let data = DataView::decode(&packet).unwrap();
            let mut expected = name();
            assert_eq!(data.name, expected.append_segment(segment).as_view());
            assert_eq!(data.content, content);
            assert_eq!(data.freshness_ms, 10_000);
            assert_eq!(data.final_block_id().unwrap().as_segment(), Some(300));
            let digests = template.digests(segment, &[&content], &[signature], &mut scratch);
            assert_eq!([data.implicit_digest()], digests[..]);
            verify_data(&data, &DigestVerifier).unwrap();
        }
    }

    /// Segments whose numbers take one byte and two, more of them than there are lanes.
    #[test]
    fn batch_digests_match_single_digests() {
        let info = SignatureInfo::new(0);
        let template = SegmentTemplate::new(name().as_view(), 10_000, 300, &info);
        let contents: Vec<Vec<u8>> = (0..50).map(|at| vec![at as u8; 40 * at]).collect();
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let signatures: Vec<Vec<u8>> = (0..50).map(|at| vec![at as u8; 32 + at % 3]).collect();
        let mut scratch = Vec::new();
        let digests = template.digests(230, &contents, &signatures, &mut scratch);
        assert_eq!(digests.len(), 50);
        for (at, digest) in digests.into_iter().enumerate() {
            let (content, signature) = (contents[at], &signatures[at]);
            let mut packet = vec![0; 8800];
            let frame = template.write(230 + at as u64, content.len(), signature, &mut packet);
            packet[frame.content.clone()].copy_from_slice(content);
            assert_eq!(weir_security::sha256(&[&packet[..frame.len]]), digest);
        }
    }

    #[test]
    fn template_is_reusable() {
        for freshness_ms in [0, 7, 70_000] {
            let info = SignatureInfo::new(weir_wire::signature_type::NULL);
            let mut template = SegmentTemplate::new(name().as_view(), freshness_ms, 3, &info);
            let other: Name = "/b".parse().unwrap();
            template.set_object(other.value(), 70_000);
            let mut packet = vec![0; 100];
            let frame = template.write(9, 5, &[], &mut packet);
            packet[frame.content].copy_from_slice(b"hello");
            packet.truncate(frame.len);
            let data = DataView::decode(&packet).unwrap();
            assert_eq!(data.name, "/b/50=%09".parse::<Name>().unwrap().as_view());
            assert_eq!(data.freshness_ms, freshness_ms);
            assert_eq!(data.final_block_id().unwrap().as_segment(), Some(70_000));
            assert_eq!(data.content, b"hello");
            assert_eq!(data.signature_info().signature_type, weir_wire::signature_type::NULL);
        }
    }

    /// The NDN packets are those that a border router makes of the hICN packets.
    #[test]
    fn native_segments_survive_hicn_packets() {
        let address = HicnName::parse_uri("hicn:b001::1").unwrap().unwrap();
        for (freshness_ms, size) in [(0, 32), (10_000, 40), (1000, 33)] {
            let signing = NativeSigning::new(Algorithm::ECDSA_SHA256, [7; 32], 9, size).unwrap();
            let template =
                SegmentTemplate::native(address.as_view(), freshness_ms, 300, signing.clone());
            let mut scratch = Vec::new();
            for (segment, len) in [(0, 1000), (1, 0), (255, 140), (256, 8000), (300, 17)] {
                let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let signature =
                    template.sign(segment, &content, &DigestSigner, &mut scratch).unwrap();
                let mut packet = vec![0xEE; 8800];
                let frame = template.write(segment, len, &signature, &mut packet);
                packet[frame.content.clone()].copy_from_slice(&content);
                packet.truncate(frame.len);
                assert_eq!(packet[frame.signature.clone()][..32], signature);
                let mut expected = address.clone();
                let data = Data::new(expected.append_segment(segment).clone());
                let data = data.freshness_ms(freshness_ms).content(content.clone());
                let data = match segment {
                    300 => data.final_block_id(Component::segment(300)),
                    _ => data,
                };
                let (value, padding) = signing.signature_value(signature.clone()).unwrap();
                let expected = data.encode_signed(&signing.signature_info(padding), |_| value);
                assert_eq!(packet, expected);
                let hop = Hop { locator: [9; 16].into(), face: 0, is_marked: false };
                let sent = from_tlv(&packet, &hop).unwrap();
                let view = HicnView::decode(&sent).unwrap();
                assert_eq!(view.ah.unwrap().signature(), signature);
                assert_eq!(to_tlv(&view, 0).unwrap(), packet);
                // The signature covers the hICN packet, with what routers change zero.
                let mut covered = vec![0; sent.len()];
                let signed_to = 104 + size.next_multiple_of(4);
                for range in [8..24, 44..48, 60..63, 64..104, signed_to..sent.len()] {
                    covered[range.clone()].copy_from_slice(&sent[range]);
                }
                assert_eq!(signature, weir_security::sha256(&[&covered]));
            }
        }
        let signing = NativeSigning::new(Algorithm::HMAC_SHA256, [7; 32], 9, 28).unwrap();
        let template = SegmentTemplate::native(address.as_view(), 0, 3, signing.clone());
        let too_long = template.sign(0, b"text", &DigestSigner, &mut Vec::new());
        assert_eq!(too_long, Err(SignError::Provider));
        let template = SegmentTemplate::native(name().as_view(), 0, 3, signing);
        let other = template.sign(0, b"text", &DigestSigner, &mut Vec::new());
        assert_eq!(other, Err(SignError::NoHicnForm));
    }

    #[test]
    fn content_max_fills_a_packet() {
        let locator = KeyLocator::Name("/some/key/KEY/1".parse().unwrap());
        let info = SignatureInfo::new(3).key_locator(locator);
        let template = SegmentTemplate::new(name().as_view(), 10_000, 1 << 20, &info);
        let max = template.content_max(1 << 20, 72);
        assert_eq!(template.frame(1 << 20, max, 72).len, PACKET_SIZE_MAX);
    }
}
