use alloc::vec::Vec;

use crate::error::DecodeError;
use crate::name::{Name, NameView};
use crate::timestamp::{TIMESTAMP_SIZE, format_timestamp, parse_timestamp};
use crate::tlv::{self, ChildReader, ElementFormat, Reader, Writer};

/// SignatureType numbers (NDN packet 0.3, Signature).
pub mod signature_type {
    /// DigestSha256: integrity only.
    pub(crate) const DIGEST_SHA256: u64 = 0;
    pub const HMAC_WITH_SHA256: u64 = 4;
    /// NullSignature: empty.
    pub const NULL: u64 = 200;
    /// Ours: hICN's signature, over octets of the hICN packet (decision 0047).
    pub const HICN: u64 = 9695;
}

/// The key that made a signature, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocatorView<'a> {
    /// Name of a key or certificate.
    Name(NameView<'a>),
    /// SHA-256 of the SubjectPublicKeyInfo.
    Digest(&'a [u8]),
}

impl<'a> KeyLocatorView<'a> {
    /// Decodes the TLV-VALUE of a KeyLocator; `None` if it is neither a name nor a digest.
    fn from_value(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let first = reader.next_element().ok()??;
        let locator = match first.typ {
            tlv::NAME => Self::Name(NameView::from_value(first.value).ok()?),
            tlv::KEY_DIGEST => Self::Digest(first.value),
            _ => return None,
        };
        check_rest_skippable(reader, tlv::KEY_LOCATOR)?;
        Some(locator)
    }

    pub(crate) fn to_key_locator(self) -> KeyLocator {
        match self {
            Self::Name(name) => KeyLocator::Name(name.to_name()),
            Self::Digest(digest) => KeyLocator::Digest(digest.to_vec()),
        }
    }
}

/// `None` if the reader contains an element that may not be skipped.
fn check_rest_skippable(mut reader: Reader<'_>, within: u32) -> Option<()> {
    while let Some(more) = reader.next_element().ok()? {
        tlv::check_skippable(within, more.typ).ok()?;
    }
    Some(())
}

/// The validity of a certificate, borrowed: two timestamps `YYYYMMDDThhmmss`, UTC, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidityPeriodView<'a> {
    pub not_before: &'a str,
    pub not_after: &'a str,
}

impl<'a> ValidityPeriodView<'a> {
    /// Decodes the TLV-VALUE of a ValidityPeriod; `None` if it is malformed.
    fn from_value(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let not_before = Self::timestamp(&mut reader, tlv::NOT_BEFORE)?;
        let not_after = Self::timestamp(&mut reader, tlv::NOT_AFTER)?;
        check_rest_skippable(reader, tlv::VALIDITY_PERIOD)?;
        Some(Self { not_before, not_after })
    }

    fn timestamp(reader: &mut Reader<'a>, element: u32) -> Option<&'a str> {
        let found = reader.next_element().ok()?.filter(|found| found.typ == element)?;
        parse_timestamp(found.value)?;
        core::str::from_utf8(found.value).ok()
    }

    /// Both instants in seconds since the Unix epoch.
    pub fn to_validity_period(self) -> ValidityPeriod {
        let unix_s = |text: &str| {
            parse_timestamp(text.as_bytes()).expect("a decoded timestamp is well formed")
        };
        ValidityPeriod {
            not_before_unix_s: unix_s(self.not_before),
            not_after_unix_s: unix_s(self.not_after),
        }
    }
}

/// SignatureInfo or InterestSignatureInfo, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureInfoView<'a> {
    /// SignatureType, see [`signature_type`].
    pub signature_type: u64,
    /// KeyLocator, if there is one that can be decoded.
    pub key_locator: Option<KeyLocatorView<'a>>,
    /// SignatureNonce: 1 or more octets.
    pub nonce: Option<&'a [u8]>,
    /// SignatureTime, milliseconds since the Unix epoch.
    pub time_ms: Option<u64>,
    pub seq_num: Option<u64>,
    /// ValidityPeriod, in Data only, if there is one that can be decoded.
    pub validity_period: Option<ValidityPeriodView<'a>>,
    /// The whole TLV-VALUE, for elements that are not listed here.
    pub value: &'a [u8],
}

/// The children of SignatureInfo. InterestSignatureInfo lacks the last.
const CHILDREN: &[u32] = &[
    tlv::SIGNATURE_TYPE,
    tlv::KEY_LOCATOR,
    tlv::SIGNATURE_NONCE,
    tlv::SIGNATURE_TIME,
    tlv::SIGNATURE_SEQ_NUM,
    tlv::VALIDITY_PERIOD,
];

static DATA_FORMAT: ElementFormat = ElementFormat::new(tlv::SIGNATURE_INFO, CHILDREN);

static INTEREST_FORMAT: ElementFormat =
    ElementFormat::new(tlv::INTEREST_SIGNATURE_INFO, CHILDREN.split_at(CHILDREN.len() - 1).0);

impl<'a> SignatureInfoView<'a> {
    /// Decodes the TLV-VALUE of the element `within`, which is SignatureInfo or
    /// InterestSignatureInfo.
    ///
    /// # Errors
    /// The packet violates the format.
    #[inline(always)]
    pub fn from_value(value: &'a [u8], within: u32) -> Result<Self, DecodeError> {
        let is_of_data = within == tlv::SIGNATURE_INFO;
        let format = if is_of_data { &DATA_FORMAT } else { &INTEREST_FORMAT };
        let mut fields = ChildReader::new(value, format, 0);
        let signature_type = fields.take_nni(tlv::SIGNATURE_TYPE)?;
        // Do not reject a KeyLocator that cannot be decoded: a forwarder passes such packets on, as
        // NFD does. A verifier then finds no KeyLocator.
        let key_locator = fields.take(tlv::KEY_LOCATOR)?;
        let key_locator = key_locator.and_then(KeyLocatorView::from_value);
        let nonce = fields.take(tlv::SIGNATURE_NONCE)?;
        if nonce.is_some_and(<[u8]>::is_empty) {
            return Err(DecodeError::ElementLength { element: tlv::SIGNATURE_NONCE, length: 0 });
        }
        let time_ms = fields.take_nni(tlv::SIGNATURE_TIME)?;
        let seq_num = fields.take_nni(tlv::SIGNATURE_SEQ_NUM)?;
        let validity_period = match is_of_data {
            true => fields.take(tlv::VALIDITY_PERIOD)?,
            false => None,
        };
        let validity_period = validity_period.and_then(ValidityPeriodView::from_value);
        fields.finish()?;
        let missing = DecodeError::Missing { within, element: tlv::SIGNATURE_TYPE };
        let signature_type = signature_type.ok_or(missing)?;
        Ok(Self { signature_type, key_locator, nonce, time_ms, seq_num, validity_period, value })
    }

    /// The elements that this crate does not know, such as AdditionalDescription.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = tlv::Element<'a>> {
        let known = |typ| {
            matches!(
                typ,
                tlv::SIGNATURE_TYPE
                    | tlv::KEY_LOCATOR
                    | tlv::SIGNATURE_NONCE
                    | tlv::SIGNATURE_TIME
                    | tlv::SIGNATURE_SEQ_NUM
                    | tlv::VALIDITY_PERIOD
            )
        };
        Reader::new(self.value).flatten().filter(move |element| !known(element.typ))
    }

    pub fn to_signature_info(&self) -> SignatureInfo {
        SignatureInfo {
            signature_type: self.signature_type,
            key_locator: self.key_locator.map(KeyLocatorView::to_key_locator),
            nonce: self.nonce.map(<[u8]>::to_vec),
            time_ms: self.time_ms,
            seq_num: self.seq_num,
            validity_period: self.validity_period.map(ValidityPeriodView::to_validity_period),
            extensions: self.extensions().flat_map(|element| element.wire.to_vec()).collect(),
        }
    }
}

/// The key that made a signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyLocator {
    /// Name of a key or certificate.
    Name(Name),
    /// SHA-256 of the SubjectPublicKeyInfo.
    Digest(Vec<u8>),
}

/// The validity of a certificate, both instants inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValidityPeriod {
    /// NotBefore, seconds since the Unix epoch.
    pub not_before_unix_s: i64,
    /// NotAfter, seconds since the Unix epoch.
    pub not_after_unix_s: i64,
}

impl ValidityPeriod {
    /// Whether the period includes this instant.
    pub const fn contains(&self, unix_s: i64) -> bool {
        self.not_before_unix_s <= unix_s && unix_s <= self.not_after_unix_s
    }

    /// NotBefore as it is written in a packet.
    pub fn not_before(&self) -> [u8; TIMESTAMP_SIZE] {
        format_timestamp(self.not_before_unix_s)
    }

    /// NotAfter as it is written in a packet.
    pub fn not_after(&self) -> [u8; TIMESTAMP_SIZE] {
        format_timestamp(self.not_after_unix_s)
    }
}

/// SignatureInfo or InterestSignatureInfo, owned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct SignatureInfo {
    /// SignatureType, see [`signature_type`].
    pub signature_type: u64,
    pub key_locator: Option<KeyLocator>,
    /// SignatureNonce. Other implementations expect 8 octets.
    pub nonce: Option<Vec<u8>>,
    /// SignatureTime, milliseconds since the Unix epoch.
    pub time_ms: Option<u64>,
    pub seq_num: Option<u64>,
    /// ValidityPeriod, for Data only.
    pub validity_period: Option<ValidityPeriod>,
    /// TLVs to append, such as AdditionalDescription.
    pub extensions: Vec<u8>,
}

impl SignatureInfo {
    /// A SignatureInfo with only a type.
    pub fn new(signature_type: u64) -> Self {
        Self { signature_type, ..Self::default() }
    }

    #[must_use]
    pub fn key_locator(mut self, locator: KeyLocator) -> Self {
        self.key_locator = Some(locator);
        self
    }

    /// Appends the element `typ`: SignatureInfo or InterestSignatureInfo.
    pub fn write(&self, typ: u32, writer: &mut Writer) {
        writer.nested(typ, |writer| {
            writer.nni(tlv::SIGNATURE_TYPE, self.signature_type);
            match &self.key_locator {
                Some(KeyLocator::Name(name)) => {
                    writer.nested(tlv::KEY_LOCATOR, |writer| writer.tlv(tlv::NAME, name.value()));
                }
                Some(KeyLocator::Digest(digest)) => {
                    writer.nested(tlv::KEY_LOCATOR, |writer| writer.tlv(tlv::KEY_DIGEST, digest));
                }
                None => {}
            }
            if let Some(nonce) = &self.nonce {
                writer.tlv(tlv::SIGNATURE_NONCE, nonce);
            }
            if let Some(time_ms) = self.time_ms {
                writer.nni(tlv::SIGNATURE_TIME, time_ms);
            }
            if let Some(seq_num) = self.seq_num {
                writer.nni(tlv::SIGNATURE_SEQ_NUM, seq_num);
            }
            if let Some(validity) = self.validity_period.filter(|_| typ == tlv::SIGNATURE_INFO) {
                writer.nested(tlv::VALIDITY_PERIOD, |writer| {
                    writer.tlv(tlv::NOT_BEFORE, &validity.not_before());
                    writer.tlv(tlv::NOT_AFTER, &validity.not_after());
                });
            }
            writer.raw(&self.extensions);
        });
    }
}
