use sha2::{Digest, Sha256};

use crate::data_builder::Data;
use crate::error::DecodeError;
use crate::interest::{InterestView, check_digest, read_name};
use crate::name::{ComponentView, NameView};
use crate::signature::SignatureInfoView;
use crate::tlv::{self, Order, Reader};

/// A Data, borrowed (NDN packet 0.3, Data).
#[derive(Clone, Copy, Debug)]
pub struct DataView<'a> {
    /// The whole Data TLV.
    pub wire: &'a [u8],
    /// Name.
    pub name: NameView<'a>,
    /// Octets of the TLV-VALUE of the name without its last component.
    pub parent_len: usize,
    /// ContentType; 0 (Blob) when absent.
    pub content_type: u64,
    /// FreshnessPeriod in milliseconds; 0 when absent.
    pub freshness_ms: u64,
    /// FinalBlockId.
    pub final_block_id: Option<ComponentView<'a>>,
    /// Value of Content; empty when absent.
    pub content: &'a [u8],
    /// Value of SignatureInfo.
    pub(crate) signature_info_value: &'a [u8],
    /// Value of SignatureValue.
    pub signature_value: &'a [u8],
    /// The signed octets: from Name to the end of SignatureInfo.
    pub signed_portion: &'a [u8],
}

#[derive(Default)]
struct MetaInfo<'a> {
    content_type: u64,
    freshness_ms: u64,
    final_block_id: Option<ComponentView<'a>>,
}

impl<'a> MetaInfo<'a> {
    #[inline]
    fn from_value(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let mut order = Order::new(tlv::META_INFO);
        let mut meta = Self::default();
        while let Some(element) = reader.next_element()? {
            let rank = match element.typ {
                tlv::CONTENT_TYPE => 1,
                tlv::FRESHNESS_PERIOD => 2,
                tlv::FINAL_BLOCK_ID => 3,
                _ => 0,
            };
            if !order.accept(element.typ, rank)? {
                continue;
            }
            match rank {
                1 => meta.content_type = element.nni()?,
                2 => meta.freshness_ms = element.nni()?,
                _ => meta.final_block_id = Some(final_block_id(element.value)?),
            }
        }
        Ok(meta)
    }
}

fn final_block_id(value: &[u8]) -> Result<ComponentView<'_>, DecodeError> {
    if value.is_empty() {
        return Err(DecodeError::FinalBlockId);
    }
    ComponentView::decode(value).map_err(|error| match error {
        DecodeError::TrailingOctets(_) => DecodeError::FinalBlockId,
        other => other,
    })
}

impl<'a> DataView<'a> {
    /// Decodes exactly one Data TLV. The signature is not verified, see [`DataView::check_digest`].
    ///
    /// # Errors
    /// What the packet format forbids.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        let body = tlv::read_single_of(wire, tlv::DATA)?;
        let mut reader = Reader::new(body);
        let mut order = Order::new(tlv::DATA);
        let (name, scan) = read_name(&mut reader, &mut order, tlv::DATA)?;
        let mut meta = MetaInfo::default();
        let mut content: &[u8] = &[];
        let mut signature_info_value: &[u8] = &[];
        let mut signed_portion = None;
        let mut signature_value = None;
        while let Some(element) = reader.next_element()? {
            let rank = match element.typ {
                tlv::NAME => 1,
                tlv::META_INFO => 2,
                tlv::CONTENT => 3,
                tlv::SIGNATURE_INFO => 4,
                tlv::SIGNATURE_VALUE => 5,
                _ => 0,
            };
            if !order.accept(element.typ, rank)? {
                continue;
            }
            match rank {
                2 => meta = MetaInfo::from_value(element.value)?,
                3 => content = element.value,
                4 => {
                    SignatureInfoView::from_value(element.value, tlv::SIGNATURE_INFO)?;
                    signature_info_value = element.value;
                    signed_portion = Some(&body[..reader.position()]);
                }
                _ => signature_value = Some(element.value),
            }
        }
        let missing = |element| DecodeError::Missing { within: tlv::DATA, element };
        let signed_portion = signed_portion.ok_or(missing(tlv::SIGNATURE_INFO))?;
        let signature_value = signature_value.ok_or(missing(tlv::SIGNATURE_VALUE))?;
        Ok(Self {
            wire,
            name,
            parent_len: scan.parent_len,
            content_type: meta.content_type,
            freshness_ms: meta.freshness_ms,
            final_block_id: meta.final_block_id,
            content,
            signature_info_value,
            signature_value,
            signed_portion,
        })
    }

    /// SignatureInfo.
    pub fn signature_info(&self) -> SignatureInfoView<'a> {
        SignatureInfoView::from_value(self.signature_info_value, tlv::SIGNATURE_INFO)
            .expect("SignatureInfo was checked when the Data was decoded")
    }

    /// The implicit digest: SHA-256 of the whole Data TLV.
    pub fn implicit_digest(&self) -> [u8; 32] {
        Sha256::digest(self.wire).into()
    }

    /// Whether this Data satisfies `interest`; MustBeFresh restricts caches only and is not looked
    /// at. Computes the implicit digest only for a name that asks for it.
    pub fn satisfies(&self, interest: &InterestView<'_>) -> bool {
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

    /// Checks a signature of type DigestSha256; others need a key and pass here.
    ///
    /// # Errors
    /// [`DecodeError::SignatureDigestMismatch`].
    pub fn check_digest(&self) -> Result<(), DecodeError> {
        check_digest(
            self.signature_info().signature_type,
            &[self.signed_portion],
            self.signature_value,
        )
    }

    /// An owned copy without the signature.
    pub fn to_data(&self) -> Data {
        Data {
            name: self.name.to_name(),
            content_type: self.content_type,
            freshness_ms: self.freshness_ms,
            final_block_id: self.final_block_id.map(|component| component.to_component()),
            content: self.content.to_vec(),
        }
    }
}
