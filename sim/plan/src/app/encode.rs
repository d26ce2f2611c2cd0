//! Packets written into pooled blocks, all of their parts but the numbers at hand already.

use weir_base::{Packet, Pool};
use weir_wire::tlv::{self, encode_nni, nni_size, var_number_size, write_var_number};
use weir_wire::{DEFAULT_INTEREST_LIFETIME_MS, signature_type};

use crate::workload::{Collection, Naming, Shape};

/// SignatureInfo and SignatureValue of a NullSignature (NDN packet 0.3, registry of types).
const NULL_SIGNATURE: [u8; 7] = [
    tlv::SIGNATURE_INFO as u8,
    3,
    tlv::SIGNATURE_TYPE as u8,
    1,
    signature_type::NULL as u8,
    tlv::SIGNATURE_VALUE as u8,
    0,
];
const NONCE_LEN: usize = 6;

/// Writes from the start of a block on.
struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    fn header(&mut self, typ: u32, len: usize) {
        // All of our types are below 253.
        self.out[self.at] = typ as u8;
        self.at += 1;
        self.at += write_var_number(len as u64, &mut self.out[self.at..]);
    }

    #[inline(always)]
    fn put(&mut self, octets: &[u8]) {
        self.out[self.at..self.at + octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }

    #[inline(always)]
    fn name(&mut self, naming: &Naming, object: u64, segment: u64, len: usize) {
        self.header(tlv::NAME, len);
        self.at += naming.write_value(object, segment, &mut self.out[self.at..]);
    }
}

#[inline(always)]
fn tlv_len(len: usize) -> usize {
    1 + var_number_size(len as u64) + len
}

/// Writes a TLV of a non-negative integer.
fn nni_tlv(typ: u32, number: u64) -> Vec<u8> {
    let number = encode_nni(number);
    [&[typ as u8, number.len() as u8], &*number].concat()
}

/// Writes Interests for segments.
#[derive(Clone, Debug)]
pub(super) struct InterestTemplate {
    /// InterestLifetime TLV, empty for the default.
    lifetime: Vec<u8>,
}

impl InterestTemplate {
    pub(super) fn new(lifetime_ms: u64) -> Self {
        let is_default = lifetime_ms == DEFAULT_INTEREST_LIFETIME_MS;
        let lifetime = nni_tlv(tlv::INTEREST_LIFETIME, lifetime_ms);
        Self { lifetime: if is_default { Vec::new() } else { lifetime } }
    }

    pub(super) fn write(
        &self,
        naming: &Naming,
        object: u64,
        segment: u64,
        nonce: u32,
        pool: &mut Pool,
    ) -> Packet {
        let name_len = naming.value_len(object, segment);
        let value_len = tlv_len(name_len) + NONCE_LEN + self.lifetime.len();
        let mut block = pool.alloc(tlv_len(value_len));
        let mut cursor = Cursor { out: &mut block, at: 0 };
        cursor.header(tlv::INTEREST, value_len);
        cursor.name(naming, object, segment, name_len);
        cursor.header(tlv::NONCE, 4);
        cursor.put(&nonce.to_be_bytes());
        cursor.put(&self.lifetime);
        let len = cursor.at;
        block.freeze(len)
    }
}

/// Writes Data of segments.
#[derive(Clone, Debug)]
pub(super) struct DataTemplate {
    /// FreshnessPeriod TLV, empty for never fresh.
    freshness: Vec<u8>,
}

impl DataTemplate {
    pub(super) fn new(freshness_ms: u64) -> Self {
        let freshness = nni_tlv(tlv::FRESHNESS_PERIOD, freshness_ms);
        Self { freshness: if freshness_ms == 0 { Vec::new() } else { freshness } }
    }

    /// The Data of a segment of an object of this shape.
    pub(super) fn write(
        &self,
        collection: &Collection,
        shape: Shape,
        object: u64,
        segment: u64,
        pool: &mut Pool,
    ) -> Packet {
        let naming = collection.naming();
        let name_len = naming.value_len(object, segment);
        let last = encode_nni(shape.last_segment());
        let final_len = 2 + nni_size(shape.last_segment());
        let meta_len = self.freshness.len() + tlv_len(final_len);
        let content_len = shape.content_bytes(segment);
        let value_len =
            tlv_len(name_len) + tlv_len(meta_len) + tlv_len(content_len) + NULL_SIGNATURE.len();
        let mut block = pool.alloc(tlv_len(value_len));
        let mut cursor = Cursor { out: &mut block, at: 0 };
        cursor.header(tlv::DATA, value_len);
        cursor.name(naming, object, segment, name_len);
        cursor.header(tlv::META_INFO, meta_len);
        cursor.put(&self.freshness);
        cursor.header(tlv::FINAL_BLOCK_ID, final_len);
        cursor.header(tlv::SEGMENT_NAME_COMPONENT, last.len());
        cursor.put(&last);
        cursor.header(tlv::CONTENT, content_len);
        let content = cursor.at..cursor.at + content_len;
        collection.fill(object, segment, &mut cursor.out[content]);
        cursor.at += content_len;
        cursor.put(&NULL_SIGNATURE);
        let len = cursor.at;
        block.freeze(len)
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::{DataView, InterestView};

    use super::*;
    use crate::app::tests::names;
    use crate::workload::Sizes;

    const NUMBERS: [u64; 6] = [0, 255, 256, 65_536, 1 << 32, u64::MAX];

    #[test]
    fn interests_are_what_they_say() {
        let mut pool = Pool::new(1 << 20);
        let naming = Naming::new("/lab/p7", 16).unwrap();
        for lifetime_ms in [1, 1000, 4000, 70_000] {
            let template = InterestTemplate::new(lifetime_ms);
            for object in NUMBERS {
                for segment in NUMBERS {
                    let packet = template.write(&naming, object, segment, 0x0102_0304, &mut pool);
                    let interest = InterestView::decode(&packet).unwrap();
                    assert_eq!(interest.name, naming.segment_name(object, segment).as_view());
                    assert_eq!(interest.nonce, Some(0x0102_0304));
                    assert_eq!(interest.lifetime_ms_or_default(), lifetime_ms);
                    assert!(!interest.can_be_prefix && !interest.must_be_fresh);
                }
            }
        }
    }

    #[test]
    fn data_are_what_they_say() {
        let mut pool = Pool::new(1 << 20);
        for (freshness_ms, bytes) in [(0, 0), (0, 1), (5, 999), (5, 1000), (70_000, 1_000_000)] {
            let collection = Collection::new(&names(Sizes::Fixed { bytes }, 1000)).unwrap();
            let template = DataTemplate::new(freshness_ms);
            let shape = collection.shape(7);
            for segment in 0..shape.segments {
                let packet = template.write(&collection, shape, 7, segment, &mut pool);
                let data = DataView::decode(&packet).unwrap();
                let name = collection.naming().segment_name(7, segment);
                assert_eq!(data.name, name.as_view());
                assert_eq!(data.freshness_ms, freshness_ms);
                assert_eq!(data.signature_info.signature_type, signature_type::NULL);
                collection.check(7, segment, &data).unwrap();
            }
            let total: usize = (0..shape.segments).map(|it| shape.content_bytes(it)).sum();
            assert_eq!(total as u64, bytes);
        }
    }

    #[test]
    fn the_largest_segment_fills_a_packet_at_most() {
        let mut pool = Pool::new(1 << 20);
        let problem = Collection::new(&names(Sizes::Fixed { bytes: 9000 }, 9000)).unwrap_err();
        let text = problem.to_string();
        let room: u32 =
            text.split(" to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let collection = Collection::new(&names(Sizes::Fixed { bytes: u64::MAX }, room)).unwrap();
        let packet = DataTemplate::new(u64::MAX).write(
            &collection,
            collection.shape(u64::MAX),
            u64::MAX,
            1 << 33,
            &mut pool,
        );
        assert!(packet.len() <= weir_wire::PACKET_SIZE_MAX && packet.len() > 8700);
        assert!(Collection::new(&names(Sizes::Fixed { bytes: 1 }, room + 1)).is_err());
    }
}
