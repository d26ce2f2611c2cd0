//! An hICN Data as an NDN Data. Its signature is hICN's, over octets of the hICN packet.

use weir_wire::{Component, DataView, KeyLocatorView, signature_type, tlv};

use crate::ah::{AH_SIZE, AhView, Algorithm, SIGNATURE_SIZE_MAX};
use crate::header::{HEADER_SIZE, Header};
use crate::name::HicnName;

/// ContentType of a manifest: a number without a format (NDN packet 0.3).
pub(crate) const CONTENT_TYPE_MANIFEST: u64 = 4;

static ZEROS: [u8; SIGNATURE_SIZE_MAX] = [0; SIGNATURE_SIZE_MAX];

/// A Data with SignatureType hICN: the fields of its hICN packet.
#[derive(Clone, Copy, Debug)]
pub struct NativeData<'a> {
    pub(crate) name: HicnName,
    pub ah: Option<AhView<'a>>,
    pub(crate) is_manifest: bool,
    pub(crate) is_last: bool,
    pub(crate) path_label: u8,
    pub(crate) payload: &'a [u8],
}

/// The octets that a signature covers: those of the packet with all fields zero that a router may
/// change, and without the signature.
#[derive(Clone, Copy, Debug)]
pub struct SignedOctets<'a> {
    headers: [u8; HEADER_SIZE + AH_SIZE],
    headers_size: usize,
    signature_size: usize,
    payload: &'a [u8],
}

/// The place of a signature of this size, while it is signed.
pub(crate) fn zeros(size: usize) -> &'static [u8] {
    &ZEROS[..size]
}

impl<'a> SignedOctets<'a> {
    /// The octets of a packet with this authentication header, or without one.
    pub(crate) fn new(name: HicnName, ah: Option<&AhView<'_>>, payload: &'a [u8]) -> Self {
        let mut headers = [0; HEADER_SIZE + AH_SIZE];
        headers[..HEADER_SIZE].copy_from_slice(&Header::signed_octets(name));
        let (mut headers_size, mut signature_size) = (HEADER_SIZE, 0);
        if let Some(ah) = ah {
            headers[HEADER_SIZE..].copy_from_slice(&ah.fixed_octets(0));
            (headers_size, signature_size) = (headers.len(), ah.signature_field.len());
        }
        Self { headers, headers_size, signature_size, payload }
    }

    pub fn portions(&self) -> [&[u8]; 3] {
        [&self.headers[..self.headers_size], zeros(self.signature_size), self.payload]
    }
}

impl<'a> NativeData<'a> {
    /// The fields of a Data; `None` if it has another SignatureType, or no hICN packet has this
    /// form.
    pub fn of(data: &DataView<'a>) -> Option<Self> {
        let info = data.signature_info();
        if info.signature_type != signature_type::HICN {
            return None;
        }
        let name = HicnName::from_name(data.name)?;
        let signature_field = data.signature_value();
        let ah = match child(info.value, tlv::HICN_ALGORITHM) {
            None => signature_field.is_empty().then_some(None)?,
            Some(&[number, padding]) => {
                let KeyLocatorView::Digest(key_id) = info.key_locator? else { return None };
                let is_unsigned = number == Algorithm::NONE.number();
                let is_whole = signature_field.len().is_multiple_of(4)
                    && (!is_unsigned || signature_field.is_empty())
                    && signature_field.len() <= SIGNATURE_SIZE_MAX
                    && usize::from(padding) <= signature_field.len();
                let algorithm = Algorithm::from_number(number).ok();
                Some(AhView {
                    algorithm: algorithm.filter(|it| is_whole && *it != Algorithm::NDN)?,
                    padding,
                    time_ms: info.time_ms?,
                    key_id: key_id.try_into().ok()?,
                    signature_field,
                })
            }
            Some(_) => return None,
        };
        let is_manifest = match data.content_type {
            0 => false,
            CONTENT_TYPE_MANIFEST => true,
            _ => return None,
        };
        let is_last = match data.final_block_id() {
            None => false,
            Some(last) => {
                let own = Component::segment(name.suffix.into());
                (last == own.as_view()).then_some(true)?
            }
        };
        let body = tlv::read_single_of(data.wire, tlv::DATA).ok()?;
        let path_label = match child(body, tlv::HICN_PATH_LABEL) {
            None => 0,
            Some(&[label]) => label,
            Some(_) => return None,
        };
        Some(Self { name, ah, is_manifest, is_last, path_label, payload: data.content })
    }

    /// What the signature covers; `None` if the packet is not signed.
    pub fn signed_octets(&self) -> Option<SignedOctets<'a>> {
        self.ah.is_some_and(|ah| ah.algorithm != Algorithm::NONE).then(|| self.stable_octets())
    }

    /// The octets that no router changes: what a signature covers, and what the digest in a
    /// manifest is computed from.
    pub fn stable_octets(&self) -> SignedOctets<'a> {
        SignedOctets::new(self.name, self.ah.as_ref(), self.payload)
    }

    /// Whether the producer marked the packet as the last one. No signature covers the flag.
    pub const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether the producer marked the payload as a manifest. No signature covers the flag.
    pub const fn is_manifest(&self) -> bool {
        self.is_manifest
    }
}

/// The path label of a Data of an hICN producer; `None` for other Data. No signature covers it.
pub fn path_label(data: &DataView<'_>) -> Option<u8> {
    if !HicnName::has_keyword(data.name)
        || data.signature_info().signature_type != signature_type::HICN
    {
        return None;
    }
    let body = tlv::read_single_of(data.wire, tlv::DATA).ok()?;
    match child(body, tlv::HICN_PATH_LABEL) {
        None => Some(0),
        Some(&[label]) => Some(label),
        Some(_) => None,
    }
}

/// The value of the first element of this type.
pub(crate) fn child(octets: &[u8], typ: u32) -> Option<&[u8]> {
    let found = tlv::Reader::new(octets).flatten().find(|element| element.typ == typ);
    found.map(|element| element.value)
}
