use sha2::{Digest, Sha256};

use crate::error::DecodeError;
use crate::interest_builder::Interest;
use crate::limits::DEFAULT_INTEREST_LIFETIME_MS;
use crate::name::{DIGEST_SIZE, NameHead, NameScan, NameView};
use crate::signature::{SignatureInfoView, signature_type};
use crate::tlv::{self, ChildReader, ElementFormat, Reader};

/// An Interest, borrowed (NDN packet 0.3, Interest).
#[derive(Clone, Copy, Debug)]
pub struct InterestView<'a> {
    /// The whole Interest TLV.
    pub wire: &'a [u8],
    /// Name, of at least one component.
    pub name: NameView<'a>,
    /// Whether the name may be a proper prefix of the Data's name.
    pub can_be_prefix: bool,
    /// Whether caches may only answer with fresh Data.
    pub must_be_fresh: bool,
    /// ForwardingHint; empty if absent.
    pub forwarding_hint: ForwardingHint<'a>,
    /// Nonce: its four octets as a big-endian number.
    pub nonce: Option<u32>,
    /// InterestLifetime in milliseconds.
    pub lifetime_ms: Option<u64>,
    pub hop_limit: Option<u8>,
    /// Where Nonce ends in `wire`. Only valid if there is a Nonce.
    nonce_end: u32,
    /// Where Nonce belongs in `wire`: behind Name, CanBePrefix, MustBeFresh and ForwardingHint.
    pub(crate) nonce_position: u32,
    /// Start and end of the ForwardingHint TLV in `wire`; both 0 if absent.
    pub(crate) forwarding_hint_at: (u32, u32),
    /// Offset of the Interest's TLV-VALUE in `wire`.
    pub(crate) body_at: u32,
    /// Where HopLimit ends in `wire`, or where it would be inserted.
    tail_at: u32,
}

/// The names of a ForwardingHint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingHint<'a> {
    value: &'a [u8],
}

impl<'a> ForwardingHint<'a> {
    fn from_value(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let mut is_empty = true;
        while let Some(element) = reader.next_element()? {
            if element.typ == tlv::NAME {
                NameView::from_value(element.value)?;
                is_empty = false;
            } else {
                tlv::check_skippable(tlv::FORWARDING_HINT, element.typ)?;
            }
        }
        if is_empty { Err(DecodeError::EmptyForwardingHint) } else { Ok(Self { value }) }
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// The names in the order of the packet.
    pub fn iter(&self) -> impl Iterator<Item = NameView<'a>> + Clone + use<'a> {
        Reader::new(self.value)
            .flatten()
            .filter(|element| element.typ == tlv::NAME)
            .flat_map(|element| NameView::from_value(element.value))
    }
}

/// The signature of a signed Interest.
#[derive(Clone, Copy, Debug)]
pub struct SignatureView<'a> {
    pub info_value: &'a [u8],
    pub value: &'a [u8],
    /// Name components without the last one, then ApplicationParameters up to the signature value.
    signed_portion: [&'a [u8]; 2],
}

impl<'a> SignatureView<'a> {
    pub fn info(&self) -> SignatureInfoView<'a> {
        SignatureInfoView::from_value(self.info_value, tlv::INTEREST_SIGNATURE_INFO)
            .expect("InterestSignatureInfo was checked when the Interest was decoded")
    }

    /// The signed octets: those of both slices together.
    pub const fn signed_portion(&self) -> [&'a [u8]; 2] {
        self.signed_portion
    }

    /// Checks a signature of type DigestSha256. Other types need a key and are not checked.
    ///
    /// # Errors
    /// [`DecodeError::SignatureDigestMismatch`].
    pub fn check_digest(&self) -> Result<(), DecodeError> {
        check_digest(self.info().signature_type, &self.signed_portion, self.value)
    }
}

/// Checks `value` as the signature of `portions` if `typ` is DigestSha256.
pub(crate) fn check_digest(typ: u64, portions: &[&[u8]], value: &[u8]) -> Result<(), DecodeError> {
    if typ != signature_type::DIGEST_SHA256 {
        return Ok(());
    }
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    if hasher.finalize()[..] == *value { Ok(()) } else { Err(DecodeError::SignatureDigestMismatch) }
}

/// ApplicationParameters and everything behind them. Most Interests have neither.
struct InterestTail<'a> {
    parameters: Option<&'a [u8]>,
    /// The octets that ParametersSha256Digest covers: from ApplicationParameters to the end.
    digested: &'a [u8],
    signature: Option<SignatureView<'a>>,
}

impl<'a> InterestTail<'a> {
    /// The tail of the Interest `wire` at offset `at`.
    #[cold]
    fn read(wire: &'a [u8], at: u32, name: NameView<'a>) -> Result<Self, DecodeError> {
        let from = &wire[at as usize..];
        let mut fields = ChildReader::new(from, &INTEREST, tlv::HOP_LIMIT);
        // Expect no types: a child up to HopLimit is out of order now, and only the slow path of
        // `take` reports that.
        fields.expected_types = 0;
        let parameters = fields.take(tlv::APPLICATION_PARAMETERS)?;
        let digested = &from[from.len() - parameters.map_or(0, |value| fields.len_from(value))..];
        let info_value = fields.take(tlv::INTEREST_SIGNATURE_INFO)?;
        if let Some(value) = info_value {
            SignatureInfoView::from_value(value, tlv::INTEREST_SIGNATURE_INFO)?;
        }
        let value = fields.take(tlv::INTEREST_SIGNATURE_VALUE)?;
        let unsigned = value.map_or(0, |value| fields.len_from(value));
        fields.finish()?;
        let signature = match (info_value, value) {
            (None, None) => None,
            (Some(info_value), Some(value)) => {
                let signed = digested.get(..digested.len().saturating_sub(unsigned));
                let signed_portion = [name.parent().value(), signed.unwrap_or_default()];
                Some(SignatureView { info_value, value, signed_portion })
            }
            _ => return Err(DecodeError::SignatureIncomplete),
        };
        Ok(Self { parameters, digested, signature })
    }

    /// Checks that parameters, their digest in the name, and signature are consistent.
    #[cold]
    fn check(&self, name: NameView<'_>, scan: &NameScan) -> Result<(), DecodeError> {
        match (self.parameters, scan.parameters_digests) {
            (None, _) if self.signature.is_some() => {
                return Err(DecodeError::SignatureWithoutParameters);
            }
            (None, 0) => return Ok(()),
            (None, _) => return Err(DecodeError::DigestWithoutParameters),
            (Some(_), 0) => return Err(DecodeError::ParametersWithoutDigest),
            (Some(_), 1) => {}
            (Some(_), _) => return Err(DecodeError::SeveralParametersDigests),
        }
        let from = &name.value()[scan.parameters_digest_at..];
        let (component, after) = from.split_at(2 + DIGEST_SIZE);
        if Sha256::digest(self.digested)[..] != component[2..] {
            return Err(DecodeError::ParametersDigestMismatch);
        }
        match self.signature.is_some() && !after.is_empty() {
            true => Err(DecodeError::ParametersDigestNotLast),
            false => Ok(()),
        }
    }
}

static INTEREST: ElementFormat = ElementFormat::new(
    tlv::INTEREST,
    &[
        tlv::NAME,
        tlv::CAN_BE_PREFIX,
        tlv::MUST_BE_FRESH,
        tlv::FORWARDING_HINT,
        tlv::NONCE,
        tlv::INTEREST_LIFETIME,
        tlv::HOP_LIMIT,
        tlv::APPLICATION_PARAMETERS,
        tlv::INTEREST_SIGNATURE_INFO,
        tlv::INTEREST_SIGNATURE_VALUE,
    ],
);

/// Reads the Name at the start of `body`, the value of an element with this format.
#[inline(always)]
pub(crate) fn read_name<'a>(
    body: &'a [u8],
    format: &'static ElementFormat,
    head: &mut NameHead<'a>,
) -> Result<(NameView<'a>, NameScan, ChildReader<'a>), DecodeError> {
    let not_first = DecodeError::NameNotFirst { within: format.within };
    if body.is_empty() {
        return Err(not_first);
    }
    let (typ, value, size) = tlv::read_element(body)?;
    if typ != tlv::NAME {
        return Err(not_first);
    }
    let scan = head.scan(value)?;
    let name = NameView::from_scanned(value, scan.count);
    Ok((name, scan, ChildReader::new(&body[size..], format, tlv::NAME)))
}

/// The value of an element of `N` octets.
#[inline(always)]
fn fixed_bytes<const N: usize>(element: u32, value: &[u8]) -> Result<[u8; N], DecodeError> {
    value.try_into().map_err(|_| DecodeError::ElementLength { element, length: value.len() })
}

impl<'a> InterestView<'a> {
    /// Decodes exactly one Interest TLV. Checks the digest of its parameters.
    ///
    /// The signature of a signed Interest is not verified. See [`SignatureView::check_digest`].
    ///
    /// # Errors
    /// The packet violates the format.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(wire, &mut NameHead::default())
    }

    #[inline(always)]
    pub(crate) fn read(wire: &'a [u8], head: &mut NameHead<'a>) -> Result<Self, DecodeError> {
        let body = tlv::read_single_of(wire, tlv::INTEREST)?;
        let (name, scan, mut fields) = read_name(body, &INTEREST, head)?;
        if name.is_empty() {
            return Err(DecodeError::EmptyName);
        }
        // The last field ends with the packet, so the offset follows from what is left to read.
        let position = |fields: &ChildReader<'_>| (wire.len() - fields.rest.len()) as u32;
        let mut nonce_position = position(&fields);
        let mut can_be_prefix = false;
        if let Some(value) = fields.take(tlv::CAN_BE_PREFIX)? {
            let [] = fixed_bytes(tlv::CAN_BE_PREFIX, value)?;
            (can_be_prefix, nonce_position) = (true, position(&fields));
        }
        let mut must_be_fresh = false;
        if let Some(value) = fields.take(tlv::MUST_BE_FRESH)? {
            let [] = fixed_bytes(tlv::MUST_BE_FRESH, value)?;
            (must_be_fresh, nonce_position) = (true, position(&fields));
        }
        let mut forwarding_hint = ForwardingHint::default();
        let mut forwarding_hint_at = (0, 0);
        if let Some(value) = fields.take(tlv::FORWARDING_HINT)? {
            forwarding_hint = ForwardingHint::from_value(value)?;
            nonce_position = position(&fields);
            forwarding_hint_at = ((wire.len() - fields.len_from(value)) as u32, nonce_position);
        }
        let mut nonce = None;
        if let Some(value) = fields.take(tlv::NONCE)? {
            nonce = Some(u32::from_be_bytes(fixed_bytes(tlv::NONCE, value)?));
        }
        let nonce_end = position(&fields);
        let mut lifetime_ms = None;
        if let Some(value) = fields.take(tlv::INTEREST_LIFETIME)? {
            lifetime_ms = Some(tlv::decode_nni(tlv::INTEREST_LIFETIME, value)?);
        }
        let mut hop_limit = None;
        if let Some(value) = fields.take(tlv::HOP_LIMIT)? {
            let [limit] = fixed_bytes(tlv::HOP_LIMIT, value)?;
            hop_limit = Some(limit);
        }
        let tail_at = position(&fields);
        // Most Interests end here. A digest in the name without parameters is an error, too.
        if !fields.rest.is_empty() || scan.parameters_digests > 0 {
            InterestTail::read(wire, tail_at, name)?.check(name, &scan)?;
        }
        Ok(Self {
            wire,
            name,
            can_be_prefix,
            must_be_fresh,
            forwarding_hint,
            nonce,
            lifetime_ms,
            hop_limit,
            nonce_end,
            nonce_position,
            forwarding_hint_at,
            body_at: (wire.len() - body.len()) as u32,
            tail_at,
        })
    }

    /// Offset of Nonce's value in `wire`.
    #[inline]
    pub fn nonce_at(&self) -> Option<usize> {
        self.nonce.map(|_| self.nonce_end as usize - 4)
    }

    /// Offset of HopLimit's value in `wire`.
    #[inline]
    pub(crate) fn hop_limit_at(&self) -> Option<usize> {
        self.hop_limit.map(|_| self.tail_at as usize - 1)
    }

    pub fn application_parameters(&self) -> Option<&'a [u8]> {
        self.tail().ok()?.parameters
    }

    pub fn signature(&self) -> Option<SignatureView<'a>> {
        self.tail().ok()?.signature
    }

    fn tail(&self) -> Result<InterestTail<'a>, DecodeError> {
        InterestTail::read(self.wire, self.tail_at, self.name)
    }

    /// InterestLifetime, or its default, in milliseconds.
    #[inline]
    pub fn lifetime_ms_or_default(&self) -> u64 {
        self.lifetime_ms.unwrap_or(DEFAULT_INTEREST_LIFETIME_MS)
    }

    /// The signed octets of a signed Interest: those of both slices together.
    pub fn signed_portion(&self) -> Option<[&'a [u8]; 2]> {
        self.signature().map(|signature| signature.signed_portion)
    }

    /// An owned copy without the signature.
    pub fn to_interest(&self) -> Interest {
        Interest {
            name: self.name.to_name(),
            can_be_prefix: self.can_be_prefix,
            must_be_fresh: self.must_be_fresh,
            forwarding_hint: self.forwarding_hint.iter().map(NameView::to_name).collect(),
            nonce: self.nonce,
            lifetime_ms: self.lifetime_ms,
            hop_limit: self.hop_limit,
            application_parameters: self.application_parameters().map(<[u8]>::to_vec),
        }
    }
}
