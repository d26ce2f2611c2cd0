//! Writes the Interests of the open loop from a template; only the numbers change.

use weir_base::{Packet, Pool};
use weir_wire::DEFAULT_INTEREST_LIFETIME_MS;
use weir_wire::tlv::{self, encode_nni, var_number_size, write_var_number};

use crate::workload::Naming;

const NONCE_LEN: usize = 6;

/// Writes from the start of a block.
struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    fn header(&mut self, typ: u32, len: usize) {
        // All types here are below 253.
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

/// Writes Interests for segments.
#[derive(Clone, Debug)]
pub(super) struct InterestTemplate {
    /// InterestLifetime TLV; empty for the default.
    lifetime: Vec<u8>,
}

impl InterestTemplate {
    pub(super) fn new(lifetime_ms: u64) -> Self {
        let is_default = lifetime_ms == DEFAULT_INTEREST_LIFETIME_MS;
        let number = encode_nni(lifetime_ms);
        let lifetime = [&[tlv::INTEREST_LIFETIME as u8, number.len() as u8], &*number].concat();
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

#[cfg(test)]
mod tests {
    use weir_wire::InterestView;

    use super::*;

    const NUMBERS: [u64; 6] = [0, 255, 256, 65_536, 1 << 32, u64::MAX];

    #[test]
    fn interests_decode_to_their_inputs() {
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
}
