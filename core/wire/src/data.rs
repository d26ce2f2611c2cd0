use sha2::{Digest, Sha256};

use crate::data_builder::Data;
use crate::error::DecodeError;
use crate::interest::{InterestView, check_digest, read_name};
use crate::name::{ComponentView, NameHead, NameView};
use crate::signature::{SignatureInfoView, signature_type};
use crate::tlv::{self, ChildReader, ElementFormat, Reader};

/// Values of ContentType (NDN packet 0.3, Data).
pub mod content_type {
    /// The producer has no Data of this name.
    pub const NACK: u64 = 3;
}

/// A Data, borrowed (NDN packet 0.3, Data).
#[derive(Clone, Copy, Debug)]
pub struct DataView<'a> {
    /// The whole Data TLV.
    pub wire: &'a [u8],
    pub name: NameView<'a>,
    /// Octets of the name's TLV-VALUE without its last component.
    pub parent_len: usize,
    /// FreshnessPeriod in milliseconds; 0 if absent.
    pub freshness_ms: u64,
    /// ContentType; 0 (Blob) if absent.
    pub content_type: u64,
    /// Value of Content; empty if absent.
    pub content: &'a [u8],
    after_name: &'a [u8],
}

static DATA: ElementFormat = ElementFormat::new(
    tlv::DATA,
    &[tlv::NAME, tlv::META_INFO, tlv::CONTENT, tlv::SIGNATURE_INFO, tlv::SIGNATURE_VALUE],
);

static META_INFO: ElementFormat = ElementFormat::new(
    tlv::META_INFO,
    &[tlv::CONTENT_TYPE, tlv::FRESHNESS_PERIOD, tlv::FINAL_BLOCK_ID],
);

fn final_block_id(value: &[u8]) -> Result<ComponentView<'_>, DecodeError> {
    if value.is_empty() {
        return Err(DecodeError::FinalBlockId);
    }
    ComponentView::decode(value).map_err(|error| match error {
        DecodeError::TrailingOctets(_) => DecodeError::FinalBlockId,
        other => other,
    })
}

/// The value of the child of this type among the TLVs in `value`; empty if absent. All known
/// elements of a Data are critical, so none occurs twice.
fn child(value: &[u8], typ: u32) -> &[u8] {
    let found = Reader::new(value).flatten().find(|element| element.typ == typ);
    found.map_or(&[], |element| element.value)
}

impl<'a> DataView<'a> {
    /// Decodes exactly one Data TLV. The signature is not verified. See [`DataView::check_digest`].
    ///
    /// # Errors
    /// The packet violates the format.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(wire, &mut NameHead::default())
    }

    #[inline(always)]
    pub(crate) fn read(wire: &'a [u8], head: &mut NameHead<'a>) -> Result<Self, DecodeError> {
        let body = tlv::read_single_of(wire, tlv::DATA)?;
        let (name, scan, mut fields) = read_name(body, &DATA, head)?;
        let after_name = fields.rest;
        let (mut content_type, mut freshness_ms) = (0, 0);
        if let Some(meta) = fields.take(tlv::META_INFO)? {
            let mut meta = ChildReader::new(meta, &META_INFO, 0);
            content_type = meta.take_nni(tlv::CONTENT_TYPE)?.unwrap_or(0);
            freshness_ms = meta.take_nni(tlv::FRESHNESS_PERIOD)?.unwrap_or(0);
            meta.take(tlv::FINAL_BLOCK_ID)?.map(final_block_id).transpose()?;
            meta.finish()?;
        }
        let content = fields.take(tlv::CONTENT)?.unwrap_or_default();
        let signature_info = fields.take(tlv::SIGNATURE_INFO)?;
        if let Some(value) = signature_info {
            SignatureInfoView::from_value(value, tlv::SIGNATURE_INFO)?;
        }
        let signature_value = fields.take(tlv::SIGNATURE_VALUE)?;
        fields.finish()?;
        let missing = |element| DecodeError::Missing { within: tlv::DATA, element };
        signature_info.ok_or(missing(tlv::SIGNATURE_INFO))?;
        signature_value.ok_or(missing(tlv::SIGNATURE_VALUE))?;
        let parent_len = scan.parent_len;
        Ok(Self { wire, name, parent_len, freshness_ms, content_type, content, after_name })
    }

    fn meta_info(&self, typ: u32) -> &'a [u8] {
        child(child(self.after_name, tlv::META_INFO), typ)
    }

    /// Whether the ContentType is Nack: the producer says that it has no Data of this name.
    #[inline]
    pub fn is_nack(&self) -> bool {
        self.content_type == content_type::NACK
    }

    pub fn final_block_id(&self) -> Option<ComponentView<'a>> {
        ComponentView::take(self.meta_info(tlv::FINAL_BLOCK_ID))
    }

    /// The number of the last segment, if FinalBlockId states it and the signature covers it. The
    /// signature is not verified.
    ///
    /// NDN's signatures cover all of MetaInfo. hICN's covers none of it, because FinalBlockId is a
    /// flag there that any router may change. So for such a Data this is `None`, and
    /// [`DataView::final_block_id`] is only a claim.
    pub fn signed_last_segment(&self) -> Option<u64> {
        if self.signature_info().signature_type == signature_type::HICN {
            return None;
        }
        self.final_block_id()?.as_segment()
    }

    pub fn signature_info(&self) -> SignatureInfoView<'a> {
        let value = child(self.after_name, tlv::SIGNATURE_INFO);
        SignatureInfoView::from_value(value, tlv::SIGNATURE_INFO)
            .expect("SignatureInfo was checked when the Data was decoded")
    }

    pub fn signature_value(&self) -> &'a [u8] {
        child(self.after_name, tlv::SIGNATURE_VALUE)
    }

    /// The signed octets: from Name to the end of SignatureInfo.
    pub fn signed_portion(&self) -> &'a [u8] {
        let mut elements = Reader::new(self.after_name);
        elements.by_ref().flatten().find(|element| element.typ == tlv::SIGNATURE_INFO);
        let unsigned = self.after_name.len() - elements.position();
        let body = tlv::read_single_of(self.wire, tlv::DATA).unwrap_or_default();
        &body[..body.len() - unsigned]
    }

    /// The implicit digest: SHA-256 of the whole Data TLV.
    pub fn implicit_digest(&self) -> [u8; 32] {
        Sha256::digest(self.wire).into()
    }

    /// Whether this Data satisfies `interest`. MustBeFresh applies to caches only and is ignored.
    /// Computes the implicit digest only if the Interest's name needs it.
    pub fn satisfies(&self, interest: &InterestView<'_>) -> bool {
        // The full name of a Data has one more component: its implicit digest.
        if interest.name.component_count() == self.name.component_count() + 1 {
            return interest.name.last().is_some_and(|last| {
                last.is_implicit_digest()
                    && self.name.is_prefix_of(interest.name)
                    && self.implicit_digest() == *last.value
            });
        }
        match interest.can_be_prefix {
            true => interest.name.is_prefix_of(self.name),
            false => interest.name == self.name,
        }
    }

    /// Checks a signature of type DigestSha256. Other types need a key and are not checked.
    ///
    /// # Errors
    /// [`DecodeError::SignatureDigestMismatch`].
    pub fn check_digest(&self) -> Result<(), DecodeError> {
        check_digest(
            self.signature_info().signature_type,
            &[self.signed_portion()],
            self.signature_value(),
        )
    }

    /// An owned copy without the signature.
    pub fn to_data(&self) -> Data {
        Data {
            name: self.name.to_name(),
            content_type: self.content_type,
            freshness_ms: self.freshness_ms,
            final_block_id: self.final_block_id().map(|component| component.to_component()),
            content: self.content.to_vec(),
        }
    }
}
