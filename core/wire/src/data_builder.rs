use alloc::vec::Vec;

use crate::builder::{infallible, setters, sha256_of};
use crate::name::{Component, Name};
use crate::signature::{SignatureInfo, signature_type};
use crate::tlv::{self, Writer};

/// A Data to be signed and encoded.
///
/// Encoding omits MetaInfo if all its values are defaults, and Content if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    pub name: Name,
    /// ContentType; 0 is Blob.
    pub content_type: u64,
    /// FreshnessPeriod in milliseconds; 0 means never fresh.
    pub freshness_ms: u64,
    pub final_block_id: Option<Component>,
    pub content: Vec<u8>,
}

impl Data {
    /// A Data without content.
    pub fn new(name: Name) -> Self {
        Self { name, ..Self::default() }
    }

    setters! {
        content_type: u64 => content_type;
        /// Sets FreshnessPeriod, in milliseconds.
        freshness_ms: u64 => freshness_ms;
        final_block_id: Component => Some(final_block_id);
        content: impl Into<Vec<u8>> => content.into();
    }

    /// Encodes the Data. `sign` computes the signature value of the signed portion.
    pub fn encode_signed(
        &self,
        info: &SignatureInfo,
        sign: impl FnOnce(&[&[u8]]) -> Vec<u8>,
    ) -> Vec<u8> {
        infallible(self.try_encode_signed(info, |portions| Ok(sign(portions))))
    }

    /// Like [`Data::encode_signed`], for a signer that may fail.
    ///
    /// # Errors
    /// Those of `sign`.
    pub fn try_encode_signed<E>(
        &self,
        info: &SignatureInfo,
        sign: impl FnOnce(&[&[u8]]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let mut portion = Writer::with_capacity(self.content.len() + self.name.value().len() + 256);
        portion.tlv(tlv::NAME, self.name.value());
        self.write_meta_info(&mut portion);
        if !self.content.is_empty() {
            portion.tlv(tlv::CONTENT, &self.content);
        }
        info.write(tlv::SIGNATURE_INFO, &mut portion);
        let signature = sign(&[portion.as_slice()])?;
        let signature_size = 1 + tlv::var_number_size(signature.len() as u64) + signature.len();
        let mut out = Writer::with_capacity(portion.len() + signature_size + 10);
        out.header(tlv::DATA, portion.len() + signature_size);
        out.raw(portion.as_slice());
        out.tlv(tlv::SIGNATURE_VALUE, &signature);
        Ok(out.into_vec())
    }

    /// Encodes the Data with a DigestSha256, which proves integrity only.
    pub fn encode_with_digest(&self) -> Vec<u8> {
        let info = SignatureInfo::new(signature_type::DIGEST_SHA256);
        self.encode_signed(&info, sha256_of)
    }

    fn write_meta_info(&self, writer: &mut Writer) {
        if self.content_type == 0 && self.freshness_ms == 0 && self.final_block_id.is_none() {
            return;
        }
        writer.nested(tlv::META_INFO, |writer| {
            if self.content_type != 0 {
                writer.nni(tlv::CONTENT_TYPE, self.content_type);
            }
            if self.freshness_ms != 0 {
                writer.nni(tlv::FRESHNESS_PERIOD, self.freshness_ms);
            }
            if let Some(component) = &self.final_block_id {
                writer.tlv(tlv::FINAL_BLOCK_ID, component.wire());
            }
        });
    }
}
