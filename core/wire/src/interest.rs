use sha2::{Digest, Sha256};

use crate::error::DecodeError;
use crate::interest_builder::Interest;
use crate::limits::DEFAULT_INTEREST_LIFETIME_MS;
use crate::name::{DIGEST_SIZE, NameScan, NameView};
use crate::signature::{SignatureInfoView, signature_type};
use crate::tlv::{self, Element, Order, Reader};

/// An Interest, borrowed (NDN packet 0.3, Interest).
#[derive(Clone, Copy, Debug)]
pub struct InterestView<'a> {
    /// The whole Interest TLV.
    pub wire: &'a [u8],
    /// Name, of at least one component.
    pub name: NameView<'a>,
    /// Whether the name may be a proper prefix of the Data's.
    pub can_be_prefix: bool,
    /// Whether a cache may answer with fresh Data only.
    pub must_be_fresh: bool,
    /// ForwardingHint; empty when absent.
    pub forwarding_hint: ForwardingHint<'a>,
    /// Nonce: its four octets as a big-endian number.
    pub nonce: Option<u32>,
    /// InterestLifetime in milliseconds.
    pub lifetime_ms: Option<u64>,
    /// HopLimit.
    pub hop_limit: Option<u8>,
    /// Value of ApplicationParameters.
    pub application_parameters: Option<&'a [u8]>,
    /// Signature of a signed Interest.
    pub signature: Option<SignatureView<'a>>,
    /// Offset of the value of Nonce in `wire`.
    pub nonce_at: Option<usize>,
    /// Offset of the value of HopLimit in `wire`.
    pub hop_limit_at: Option<usize>,
    /// Where a Nonce belongs in `wire`: behind Name, CanBePrefix, MustBeFresh and ForwardingHint.
    pub(crate) nonce_place: u32,
    /// Start and end of the ForwardingHint TLV in `wire`; both 0 when absent.
    pub(crate) forwarding_hint_at: (u32, u32),
    /// Offset of the Interest's TLV-VALUE in `wire`.
    pub(crate) body_at: u32,
}

/// The names of a ForwardingHint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingHint<'a> {
    value: &'a [u8],
}

impl<'a> ForwardingHint<'a> {
    fn from_value(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let mut order = Order::new(tlv::FORWARDING_HINT);
        let mut is_empty = true;
        while let Some(element) = reader.next_element()? {
            if element.typ == tlv::NAME {
                NameView::from_value(element.value)?;
                is_empty = false;
            } else {
                order.accept(element.typ, 0)?;
            }
        }
        if is_empty { Err(DecodeError::EmptyForwardingHint) } else { Ok(Self { value }) }
    }

    /// Whether there is no ForwardingHint.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// The names, in the order of the packet.
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
    /// Value of InterestSignatureInfo.
    pub info_value: &'a [u8],
    /// Value of InterestSignatureValue.
    pub value: &'a [u8],
    /// Name components without the last one, then ApplicationParameters up to the signature value.
    signed_portion: [&'a [u8]; 2],
}

impl<'a> SignatureView<'a> {
    /// InterestSignatureInfo.
    pub fn info(&self) -> SignatureInfoView<'a> {
        SignatureInfoView::from_value(self.info_value, tlv::INTEREST_SIGNATURE_INFO)
            .expect("InterestSignatureInfo was checked when the Interest was decoded")
    }

    /// The signed octets, which are those of both slices one after the other.
    pub const fn signed_portion(&self) -> [&'a [u8]; 2] {
        self.signed_portion
    }

    /// Checks a signature of type DigestSha256; others need a key and pass here.
    ///
    /// # Errors
    /// [`DecodeError::SignatureDigestMismatch`].
    pub fn check_digest(&self) -> Result<(), DecodeError> {
        check_digest(self.info().signature_type, &self.signed_portion, self.value)
    }
}

/// Checks `value` as the signature of `portions` when `typ` is DigestSha256.
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

/// What of an Interest the digest of its parameters depends on.
#[derive(Default)]
struct Tail<'a> {
    /// Offset of ApplicationParameters in the Interest's TLV-VALUE.
    parameters_at: Option<usize>,
    info: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    /// Offset of InterestSignatureValue in the Interest's TLV-VALUE.
    value_at: usize,
}

/// From ApplicationParameters on, which most Interests lack.
const FIRST_RANK_OF_TAIL: u8 = 8;

#[inline]
const fn rank(typ: u32) -> u8 {
    match typ {
        tlv::NAME => 1,
        tlv::CAN_BE_PREFIX => 2,
        tlv::MUST_BE_FRESH => 3,
        tlv::FORWARDING_HINT => 4,
        tlv::NONCE => 5,
        tlv::INTEREST_LIFETIME => 6,
        tlv::HOP_LIMIT => 7,
        tlv::APPLICATION_PARAMETERS => 8,
        tlv::INTEREST_SIGNATURE_INFO => 9,
        tlv::INTEREST_SIGNATURE_VALUE => 10,
        _ => 0,
    }
}

/// Reads the Name that the value of `within` must start with.
#[inline]
pub(crate) fn read_name<'a>(
    reader: &mut Reader<'a>,
    order: &mut Order,
    within: u32,
) -> Result<(NameView<'a>, NameScan), DecodeError> {
    let first = reader.next_element()?;
    let Some(first) = first.filter(|element| element.typ == tlv::NAME) else {
        return Err(DecodeError::NameNotFirst { within });
    };
    order.accept(tlv::NAME, 1)?;
    let scan = NameScan::of(first.value)?;
    Ok((NameView::from_scanned(first.value, scan.count), scan))
}

impl<'a> InterestView<'a> {
    /// Decodes exactly one Interest TLV, the digest of its parameters included.
    ///
    /// The signature of a signed Interest is not verified, see [`SignatureView::check_digest`].
    ///
    /// # Errors
    /// What the packet format forbids.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        let body = tlv::read_single_of(wire, tlv::INTEREST)?;
        let body_at = wire.len() - body.len();
        let mut reader = Reader::new(body);
        let mut order = Order::new(tlv::INTEREST);
        let (name, scan) = read_name(&mut reader, &mut order, tlv::INTEREST)?;
        if name.is_empty() {
            return Err(DecodeError::EmptyName);
        }
        let mut view = Self {
            wire,
            name,
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: ForwardingHint::default(),
            nonce: None,
            lifetime_ms: None,
            hop_limit: None,
            application_parameters: None,
            signature: None,
            nonce_at: None,
            hop_limit_at: None,
            nonce_place: (body_at + reader.position()) as u32,
            forwarding_hint_at: (0, 0),
            body_at: body_at as u32,
        };
        while let Some(element) = reader.next_element()? {
            let rank = rank(element.typ);
            if !order.accept(element.typ, rank)? {
                continue;
            }
            if rank >= FIRST_RANK_OF_TAIL {
                view.take_tail(body, element, &mut reader, &mut order, &scan)?;
                return Ok(view);
            }
            view.take_element(&element)?;
        }
        if scan.parameters_digests != 0 {
            return Err(DecodeError::DigestWithoutParameters);
        }
        Ok(view)
    }

    #[inline]
    fn take_element(&mut self, element: &Element<'a>) -> Result<(), DecodeError> {
        let value = element.value;
        let body_at = self.body_at as usize;
        let end = (body_at + element.at + element.wire.len()) as u32;
        let bad_length =
            || DecodeError::ElementLength { element: element.typ, length: value.len() };
        match element.typ {
            tlv::CAN_BE_PREFIX | tlv::MUST_BE_FRESH => {
                if !value.is_empty() {
                    return Err(bad_length());
                }
                self.can_be_prefix |= element.typ == tlv::CAN_BE_PREFIX;
                self.must_be_fresh |= element.typ == tlv::MUST_BE_FRESH;
                self.nonce_place = end;
            }
            tlv::FORWARDING_HINT => {
                self.forwarding_hint = ForwardingHint::from_value(value)?;
                self.forwarding_hint_at = ((body_at + element.at) as u32, end);
                self.nonce_place = end;
            }
            tlv::NONCE => {
                let octets: [u8; 4] = value.try_into().map_err(|_| bad_length())?;
                self.nonce = Some(u32::from_be_bytes(octets));
                self.nonce_at = Some(body_at + element.value_at());
            }
            tlv::INTEREST_LIFETIME => self.lifetime_ms = Some(element.nni()?),
            _ => {
                let &[hop_limit] = value else { return Err(bad_length()) };
                self.hop_limit = Some(hop_limit);
                self.hop_limit_at = Some(body_at + element.value_at());
            }
        }
        Ok(())
    }

    /// Takes ApplicationParameters or what may follow them, `element`, and all up to the end.
    #[cold]
    fn take_tail(
        &mut self,
        body: &'a [u8],
        mut element: Element<'a>,
        reader: &mut Reader<'a>,
        order: &mut Order,
        scan: &NameScan,
    ) -> Result<(), DecodeError> {
        let mut tail = Tail::default();
        loop {
            match element.typ {
                tlv::APPLICATION_PARAMETERS => {
                    self.application_parameters = Some(element.value);
                    tail.parameters_at = Some(element.at);
                }
                tlv::INTEREST_SIGNATURE_INFO => {
                    SignatureInfoView::from_value(element.value, element.typ)?;
                    tail.info = Some(element.value);
                }
                _ => {
                    tail.value = Some(element.value);
                    tail.value_at = element.at;
                }
            }
            element = loop {
                let Some(next) = reader.next_element()? else {
                    return self.finish_parameters(body, scan, &tail);
                };
                if order.accept(next.typ, rank(next.typ))? {
                    break next;
                }
            };
        }
    }

    /// Checks that parameters, their digest in the name and the signature belong together.
    fn finish_parameters(
        &mut self,
        body: &'a [u8],
        scan: &NameScan,
        tail: &Tail<'a>,
    ) -> Result<(), DecodeError> {
        let is_signed = match (tail.info, tail.value) {
            (None, None) => false,
            (Some(_), Some(_)) => true,
            _ => return Err(DecodeError::SignatureIncomplete),
        };
        let Some(parameters_at) = tail.parameters_at else {
            return Err(if is_signed {
                DecodeError::SignatureWithoutParameters
            } else {
                DecodeError::DigestWithoutParameters
            });
        };
        match scan.parameters_digests {
            0 => return Err(DecodeError::ParametersWithoutDigest),
            1 => {}
            _ => return Err(DecodeError::SeveralParametersDigests),
        }
        let (before, from) = self.name.value().split_at(scan.parameters_digest_at);
        let (component, after) = from.split_at(2 + DIGEST_SIZE);
        if Sha256::digest(&body[parameters_at..])[..] != component[2..] {
            return Err(DecodeError::ParametersDigestMismatch);
        }
        if let (Some(info_value), Some(value)) = (tail.info, tail.value) {
            if !after.is_empty() {
                return Err(DecodeError::ParametersDigestNotLast);
            }
            let signed_portion = [before, &body[parameters_at..tail.value_at]];
            self.signature = Some(SignatureView { info_value, value, signed_portion });
        }
        Ok(())
    }

    /// InterestLifetime, or its default, in milliseconds.
    #[inline]
    pub fn lifetime_ms_or_default(&self) -> u64 {
        self.lifetime_ms.unwrap_or(DEFAULT_INTEREST_LIFETIME_MS)
    }

    /// The signed octets of a signed Interest as slices to be taken one after the other.
    pub fn signed_portion(&self) -> Option<[&'a [u8]; 2]> {
        self.signature.map(|signature| signature.signed_portion)
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
            application_parameters: self.application_parameters.map(<[u8]>::to_vec),
        }
    }
}
