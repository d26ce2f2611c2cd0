use alloc::vec::Vec;

use weir_wire::tlv::Writer;
use weir_wire::{KeyLocator, SignatureInfo, signature_type, tlv};

use crate::ah::{AhView, Algorithm, SIGNATURE_SIZE_MAX, WORD};
use crate::name::HicnName;
use crate::native::{SignedOctets, zeros};

/// How a producer signs: the fields of the authentication header that all its packets share.
///
/// The header states the length of the signature, and is signed. So all signatures of a key take
/// the same number of octets, and shorter ones are padded with zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeSigning {
    algorithm: Algorithm,
    key_id: [u8; 32],
    time_ms: u64,
    field_size: usize,
}

impl NativeSigning {
    /// Signs with a key whose signatures have at most `signature_size_max` octets. `None` if the
    /// header has no room for them.
    pub fn new(
        algorithm: Algorithm,
        key_id: [u8; 32],
        time_ms: u64,
        signature_size_max: usize,
    ) -> Option<Self> {
        let field_size = signature_size_max.next_multiple_of(WORD);
        (field_size <= SIGNATURE_SIZE_MAX).then_some(Self {
            algorithm,
            key_id,
            time_ms,
            field_size,
        })
    }

    /// Octets of a SignatureValue.
    pub const fn field_size(&self) -> usize {
        self.field_size
    }

    /// What the signature of a Data with this payload covers.
    pub fn signed_octets<'a>(&self, name: HicnName, payload: &'a [u8]) -> SignedOctets<'a> {
        let ah = AhView {
            algorithm: self.algorithm,
            padding: 0,
            time_ms: self.time_ms,
            key_id: &self.key_id,
            signature_field: zeros(self.field_size),
        };
        SignedOctets::new(name, Some(&ah), payload)
    }

    /// The padding behind a signature; `None` if the signature is too long.
    pub fn padding(&self, signature_size: usize) -> Option<u8> {
        u8::try_from(self.field_size.checked_sub(signature_size)?).ok()
    }

    /// The SignatureInfo of a Data. The padding is the last octet of its encoding.
    pub fn signature_info(&self, padding: u8) -> SignatureInfo {
        let mut algorithm = Writer::new();
        algorithm.tlv(tlv::HICN_ALGORITHM, &[self.algorithm.number(), padding]);
        SignatureInfo {
            time_ms: Some(self.time_ms),
            extensions: algorithm.into_vec(),
            ..SignatureInfo::new(signature_type::HICN)
                .key_locator(KeyLocator::Digest(self.key_id.to_vec()))
        }
    }

    /// The SignatureValue with this signature, and its padding; `None` if the signature is too
    /// long.
    pub fn signature_value(&self, mut signature: Vec<u8>) -> Option<(Vec<u8>, u8)> {
        let padding = self.padding(signature.len())?;
        signature.resize(self.field_size, 0);
        Some((signature, padding))
    }
}
