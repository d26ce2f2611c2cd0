//! NDNLPv2: the link header of a packet (NDN-FACTS 2).

use alloc::vec::Vec;

use crate::error::DecodeError;
use crate::run::{RUN_MISSING, RunFields, RunOffer};
use crate::tlv::{self, Element, Reader, Writer};

/// Most octets that [`LpHeader::encode_prefix`] writes.
pub const LP_PREFIX_MAX: usize = 160;

/// Most octets of a PIT token.
pub(crate) const PIT_TOKEN_SIZE_MAX: usize = 32;
/// Most octets of a [`ShortToken`]. No known router uses longer tokens.
const SHORT_TOKEN_SIZE_MAX: usize = 12;

const CACHE_POLICY_NO_CACHE: u64 = 1;

/// Opaque octets that a router attaches to an Interest and receives back with the Data. By them, it
/// finds its pending Interest. There are 1 to 32 of them, or none if there is no token.
#[derive(Clone, Copy, Default)]
pub struct PitToken {
    octets: [u8; PIT_TOKEN_SIZE_MAX],
    size: u8,
}

impl PitToken {
    pub const EMPTY: Self = Self { octets: [0; PIT_TOKEN_SIZE_MAX], size: 0 };

    /// A token of up to 32 octets; `None` if there are more.
    #[inline]
    pub fn new(token: &[u8]) -> Option<Self> {
        let mut octets = [0; PIT_TOKEN_SIZE_MAX];
        octets.get_mut(..token.len())?.copy_from_slice(token);
        Some(Self { octets, size: token.len() as u8 })
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.size)]
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The same token in less space; `None` if it has more than 12 octets.
    #[inline(always)]
    pub fn to_short(&self) -> Option<ShortToken> {
        let octets = *self.octets.first_chunk()?;
        let is_short = usize::from(self.size) <= SHORT_TOKEN_SIZE_MAX;
        is_short.then_some(ShortToken { octets, size: self.size })
    }
}

/// A PIT token of at most 12 octets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortToken {
    octets: [u8; SHORT_TOKEN_SIZE_MAX],
    size: u8,
}

impl From<ShortToken> for PitToken {
    #[inline(always)]
    fn from(short: ShortToken) -> Self {
        let mut octets = [0; PIT_TOKEN_SIZE_MAX];
        octets[..SHORT_TOKEN_SIZE_MAX].copy_from_slice(&short.octets);
        Self { octets, size: short.size }
    }
}

impl PartialEq for PitToken {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for PitToken {}

impl core::hash::Hash for PitToken {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl core::fmt::Debug for PitToken {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_slice().iter().try_for_each(|octet| write!(formatter, "{octet:02x}"))
    }
}

/// Why an Interest was not forwarded. The larger the number of a reason, the more severe it is.
/// [`NackReason::None`] is the most severe, although its number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NackReason {
    /// No reason given.
    #[default]
    None,
    Congestion,
    /// The nonce has been seen before.
    Duplicate,
    NoRoute,
    /// An unknown number.
    Other(u64),
}

impl NackReason {
    /// The number in a packet.
    pub const fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Congestion => 50,
            Self::Duplicate => 100,
            Self::NoRoute => 150,
            Self::Other(code) => code,
        }
    }

    /// The reason with this number in a packet.
    pub(crate) const fn from_code(code: u64) -> Self {
        match code {
            0 => Self::None,
            50 => Self::Congestion,
            100 => Self::Duplicate,
            150 => Self::NoRoute,
            code => Self::Other(code),
        }
    }

    /// The less severe of two reasons: the one with the smaller number, where 0 counts as the
    /// largest.
    pub const fn less_severe(self, other: Self) -> Self {
        match (self.code(), other.code()) {
            (0, _) => other,
            (_, 0) => self,
            (ours, theirs) if ours <= theirs => self,
            _ => other,
        }
    }
}

/// The header fields of an LpPacket that matter only on one link. [`LpFraming::BARE`] is that of a
/// packet without an LpPacket around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LpFraming {
    /// Sequence, one per fragment.
    pub sequence: Option<u64>,
    /// FragIndex, from 0.
    pub frag_index: u64,
    /// FragCount; 1 if not fragmented.
    pub frag_count: u64,
    /// TxSequence, one per transmission.
    pub tx_sequence: Option<u64>,
}

impl LpFraming {
    pub const BARE: Self = Self { sequence: None, frag_index: 0, frag_count: 1, tx_sequence: None };
}

/// The header fields of an LpPacket that belong to the packet in it. The default is that of a
/// packet without an LpPacket around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LpHeader {
    pub pit_token: PitToken,
    /// The reason, if the packet is a Nack of the Interest in it.
    pub nack: Option<NackReason>,
    pub incoming_face: Option<u64>,
    pub next_hop_face: Option<u64>,
    /// CachePolicy NoCache.
    pub no_cache: bool,
    /// CongestionMark, the value of a [`CongestionMark`]; 0 is unmarked.
    pub congestion_mark: u64,
    /// NonDiscovery: an Interest of self-learning that follows routes and is not flooded.
    pub non_discovery: bool,
}

/// The congestion marks of a packet (NDNLPv2, CongestionMark; decision 0016). The value is a set of
/// kinds, one bit each, since several routers may have marked the packet. Routers copy the value,
/// so the kinds reach the consumer. A router or consumer that knows no kinds treats any value but 0
/// as congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CongestionMark(u64);

impl CongestionMark {
    pub const NONE: Self = Self(0);
    /// Few packets are marked, and one mark is a complete signal of congestion. NFD uses this
    /// value.
    pub const SPARSE: Self = Self(1);
    /// The share of marked packets says how congested a router is. A single mark says little.
    pub const PROPORTIONAL: Self = Self(2);

    #[inline]
    pub const fn from_value(value: u64) -> Self {
        Self(value)
    }

    #[inline]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// These marks and those of `other`.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any router marked the packet.
    #[inline]
    pub const fn is_set(self) -> bool {
        self.0 != 0
    }

    /// Whether the share of this kind of marks counts.
    pub const fn is_proportional(self) -> bool {
        self.0 & Self::PROPORTIONAL.0 != 0
    }

    /// Whether a single mark is a complete signal. Unknown kinds count as such.
    pub const fn is_sparse(self) -> bool {
        self.0 & !Self::PROPORTIONAL.0 != 0
    }
}

/// A signal from a router to the router at the other end of one link. It is about the sender, not
/// about a packet. Links and drivers carry it without interpreting it. To add a signal, add a
/// variant here, its encoding below, and code in the two routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopSignal {
    /// The sender's store has no capacity for Interests that could go elsewhere (Nack-alpha and
    /// Nack-beta of paper nb-cache, III-E; decision 0011).
    Unavailable {
        /// For how long, in milliseconds; 0 if it has capacity again.
        for_ms: u64,
    },
}

impl HopSignal {
    /// Encodes an LpPacket without fragment (IDLE) that holds the signal. Receivers that do not
    /// know the field ignore it.
    pub fn encode(self) -> Vec<u8> {
        let Self::Unavailable { for_ms } = self;
        let mut body = Writer::with_capacity(16);
        body.tlv(tlv::LP_UNAVAILABLE, &tlv::encode_nni(for_ms));
        let mut out = Writer::with_capacity(body.len() + 8);
        out.tlv(tlv::LP_PACKET, body.as_slice());
        out.into_vec()
    }

    /// Parses a field that NDNLPv2 does not assign. A value in another form is ignored: it is not a
    /// signal, but not an error either.
    fn parse(field: &Element<'_>) -> Option<Self> {
        match field.typ {
            tlv::LP_UNAVAILABLE => tlv::nni(field.value).map(|for_ms| Self::Unavailable { for_ms }),
            _ => None,
        }
    }
}

impl LpHeader {
    /// The header of a packet without an LpPacket around it.
    pub const PLAIN: Self = Self {
        pit_token: PitToken::EMPTY,
        nack: None,
        incoming_face: None,
        next_hop_face: None,
        no_cache: false,
        congestion_mark: 0,
        non_discovery: false,
    };

    /// Whether the header is the default, so the packet needs no LpPacket around it.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.pit_token.is_empty()
            && self.nack.is_none()
            && self.incoming_face.is_none()
            && self.next_hop_face.is_none()
            && !self.no_cache
            && self.congestion_mark == 0
            && !self.non_discovery
    }

    /// Writes the part of an LpPacket that precedes a fragment of `fragment_len` octets: type and
    /// length of LpPacket, the header fields, type and length of Fragment. Returns the number of
    /// octets written.
    pub fn encode_prefix(
        &self,
        framing: &LpFraming,
        fragment_len: usize,
        out: &mut [u8; LP_PREFIX_MAX],
    ) -> usize {
        self.encode_prefix_with_acks(framing, &[], fragment_len, out)
    }

    /// Like [`LpHeader::encode_prefix`], with an Ack field of 12 octets for each number in `acks`.
    ///
    /// # Panics
    /// If the result does not fit into [`LP_PREFIX_MAX`] octets.
    #[inline]
    pub fn encode_prefix_with_acks(
        &self,
        framing: &LpFraming,
        acks: &[u64],
        fragment_len: usize,
        out: &mut [u8; LP_PREFIX_MAX],
    ) -> usize {
        let mut fields = FieldWriter { octets: [0; LP_PREFIX_MAX], size: 0 };
        self.write_before_acks(framing, &mut fields);
        for ack in acks {
            fields.tlv(tlv::LP_ACK, &ack.to_be_bytes());
        }
        self.write_after_acks(framing, &mut fields);
        fields.header(tlv::LP_FRAGMENT, fragment_len);
        out[0] = tlv::LP_PACKET as u8;
        let length = fields.size + fragment_len;
        let at = 1 + tlv::write_var_number(length as u64, &mut out[1..]);
        out[at..at + fields.size].copy_from_slice(&fields.octets[..fields.size]);
        at + fields.size
    }

    /// Encodes an LpPacket; one without fragment (IDLE) if `fragment` is `None`.
    pub fn encode(&self, framing: &LpFraming, acks: &[u64], fragment: Option<&[u8]>) -> Vec<u8> {
        self.encode_fields(framing, acks, None, fragment)
    }

    /// Encodes an LpPacket with a PrefixAnnouncement, which is a Data TLV of any length.
    pub fn encode_announced(
        &self,
        framing: &LpFraming,
        announcement: &[u8],
        fragment: &[u8],
    ) -> Vec<u8> {
        self.encode_fields(framing, &[], Some(announcement), Some(fragment))
    }

    fn encode_fields(
        &self,
        framing: &LpFraming,
        acks: &[u64],
        announcement: Option<&[u8]>,
        fragment: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut fields = FieldWriter { octets: [0; LP_PREFIX_MAX], size: 0 };
        self.write_before_acks(framing, &mut fields);
        let split = fields.size;
        self.write_after_acks(framing, &mut fields);
        let octets = [announcement, fragment].into_iter().flatten();
        let octets_len: usize = octets.map(|octets| octets.len() + 8).sum();
        let mut body = Writer::with_capacity(fields.size + 12 * acks.len() + octets_len);
        body.raw(&fields.octets[..split]);
        for ack in acks {
            body.tlv(tlv::LP_ACK, &ack.to_be_bytes());
        }
        body.raw(&fields.octets[split..fields.size]);
        if let Some(announcement) = announcement {
            body.tlv(tlv::LP_PREFIX_ANNOUNCEMENT, announcement);
        }
        if let Some(fragment) = fragment {
            body.tlv(tlv::LP_FRAGMENT, fragment);
        }
        let mut out = Writer::with_capacity(body.len() + 8);
        out.tlv(tlv::LP_PACKET, body.as_slice());
        out.into_vec()
    }

    fn write_before_acks(&self, framing: &LpFraming, fields: &mut FieldWriter) {
        if let Some(sequence) = framing.sequence {
            fields.tlv(tlv::LP_SEQUENCE, &sequence.to_be_bytes());
        }
        if framing.frag_index != 0 {
            fields.nni(tlv::LP_FRAG_INDEX, framing.frag_index);
        }
        if framing.frag_count != 1 {
            fields.nni(tlv::LP_FRAG_COUNT, framing.frag_count);
        }
        if !self.pit_token.is_empty() {
            fields.tlv(tlv::LP_PIT_TOKEN, self.pit_token.as_slice());
        }
        if let Some(reason) = self.nack {
            let code = tlv::encode_nni(reason.code());
            // Some implementations reject a Nack without NackReason, so it is always written.
            fields.header(tlv::LP_NACK, 4 + code.len());
            fields.tlv(tlv::LP_NACK_REASON, &code);
        }
        if let Some(face) = self.incoming_face {
            fields.nni(tlv::LP_INCOMING_FACE_ID, face);
        }
        if let Some(face) = self.next_hop_face {
            fields.nni(tlv::LP_NEXT_HOP_FACE_ID, face);
        }
        if self.no_cache {
            fields.header(tlv::LP_CACHE_POLICY, 5);
            fields.nni(tlv::LP_CACHE_POLICY_TYPE, CACHE_POLICY_NO_CACHE);
        }
        if self.congestion_mark != 0 {
            fields.nni(tlv::LP_CONGESTION_MARK, self.congestion_mark);
        }
    }

    fn write_after_acks(&self, framing: &LpFraming, fields: &mut FieldWriter) {
        if let Some(sequence) = framing.tx_sequence {
            fields.tlv(tlv::LP_TX_SEQUENCE, &sequence.to_be_bytes());
        }
        if self.non_discovery {
            fields.header(tlv::LP_NON_DISCOVERY, 0);
        }
    }
}

/// Header fields being encoded. [`LP_PREFIX_MAX`] octets hold all of them at their largest.
struct FieldWriter {
    octets: [u8; LP_PREFIX_MAX],
    size: usize,
}

impl FieldWriter {
    #[inline]
    fn header(&mut self, typ: u32, length: usize) {
        self.size += tlv::write_var_number(u64::from(typ), &mut self.octets[self.size..]);
        self.size += tlv::write_var_number(length as u64, &mut self.octets[self.size..]);
    }

    #[inline]
    fn tlv(&mut self, typ: u32, value: &[u8]) {
        self.header(typ, value.len());
        self.octets[self.size..self.size + value.len()].copy_from_slice(value);
        self.size += value.len();
    }

    #[inline]
    fn nni(&mut self, typ: u32, number: u64) {
        self.tlv(typ, &tlv::encode_nni(number));
    }
}

/// An LpPacket, or a bare Interest or Data, borrowed.
#[derive(Clone, Debug)]
pub struct LpView<'a> {
    /// The header fields of the link.
    pub framing: LpFraming,
    /// The header fields of the packet.
    pub header: LpHeader,
    /// Value of Fragment: a whole packet if FragCount is 1; `None` for an IDLE packet.
    pub fragment: Option<&'a [u8]>,
    /// Offset of the fragment in the decoded octets.
    pub fragment_at: usize,
    /// CachePolicyType, including unknown ones.
    pub cache_policy: Option<u64>,
    /// Value of PrefixAnnouncement: a Data TLV. Only its type and length were checked.
    pub prefix_announcement: Option<&'a [u8]>,
    /// The first signal of an IDLE packet. A signal next to a fragment is ignored.
    pub signal: Option<HopSignal>,
    /// Present if the fragment stands for several Interests.
    pub run: Option<RunFields<'a>>,
    /// The first offer of an IDLE packet. An offer next to a fragment is ignored.
    pub run_offer: Option<RunOffer>,
    /// From the first Ack to the last.
    acks: &'a [u8],
    acks_at: usize,
    body: &'a [u8],
}

impl<'a> LpView<'a> {
    /// Decodes exactly one LpPacket, Interest or Data TLV.
    ///
    /// If an LpPacket is not fragmented, its packet must be an Interest or Data of the right
    /// length. The contents of that packet are not checked.
    ///
    /// # Errors
    /// The packet violates NDNLPv2.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        let (typ, body) = tlv::read_single(wire)?;
        let mut view = Self {
            framing: LpFraming::BARE,
            header: LpHeader::default(),
            fragment: None,
            fragment_at: 0,
            cache_policy: None,
            prefix_announcement: None,
            signal: None,
            run: None,
            run_offer: None,
            acks: &[],
            acks_at: 0,
            body: &[],
        };
        match typ {
            tlv::LP_PACKET => {
                view.body = body;
                view.read_all_fields(wire.len() - body.len())?;
                view.check_fragment()?;
            }
            tlv::INTEREST | tlv::DATA => view.fragment = Some(wire),
            found => return Err(DecodeError::UnexpectedOuterType { found }),
        }
        Ok(view)
    }

    /// The numbers of the Ack fields.
    pub fn acks(&self) -> impl Iterator<Item = u64> + Clone + use<'a> {
        Reader::new(self.acks)
            .flatten()
            .filter(|element| element.typ == tlv::LP_ACK)
            .filter_map(|element| tlv::nni(element.value))
    }

    /// All fields of the packet; none for a bare Interest or Data.
    pub fn fields(&self) -> impl Iterator<Item = Element<'a>> + Clone + use<'a> {
        Reader::new(self.body).flatten()
    }

    fn read_all_fields(&mut self, body_at: usize) -> Result<(), DecodeError> {
        let mut reader = Reader::new(self.body);
        let mut last = 0;
        while let Some(field) = reader.next_element()? {
            if self.fragment.is_some() {
                return Err(DecodeError::ElementAfterFragment);
            }
            if field.typ == tlv::LP_FRAGMENT {
                self.fragment = Some(field.value);
                self.fragment_at = body_at + field.value_offset();
                continue;
            }
            // Padding is frequent, so skip it before the slower checks.
            if field.typ == tlv::LP_PADDING {
                continue;
            }
            if !is_field(field.typ) {
                check_unrecognised(tlv::LP_PACKET, field.typ)?;
                self.read_unassigned_field(&field);
                continue;
            }
            let (within, element) = (tlv::LP_PACKET, field.typ);
            if element < last {
                return Err(DecodeError::OutOfOrder { within, element });
            }
            if element == last && element != tlv::LP_ACK {
                return Err(DecodeError::Repeated { within, element });
            }
            last = element;
            self.read_field(&field)?;
        }
        Ok(())
    }

    /// Reads a field that NDNLPv2 does not assign. Other receivers ignore it.
    #[cold]
    fn read_unassigned_field(&mut self, field: &Element<'a>) {
        match field.typ {
            tlv::LP_RUN_OFFER => self.run_offer = self.run_offer.or_else(|| RunOffer::parse(field)),
            _ => self.signal = self.signal.or_else(|| HopSignal::parse(field)),
        }
    }

    fn read_field(&mut self, field: &Element<'a>) -> Result<(), DecodeError> {
        let (framing, header) = (&mut self.framing, &mut self.header);
        match field.typ {
            tlv::LP_SEQUENCE => framing.sequence = Some(eight_octets(field)?),
            tlv::LP_FRAG_INDEX => framing.frag_index = field.nni()?,
            tlv::LP_FRAG_COUNT => framing.frag_count = field.nni()?,
            tlv::LP_PIT_TOKEN => {
                let token = PitToken::new(field.value).filter(|token| !token.is_empty());
                header.pit_token = token.ok_or(bad_length(field))?;
            }
            tlv::LP_NACK => header.nack = Some(nack_reason(field.value)?),
            tlv::LP_INCOMING_FACE_ID => header.incoming_face = Some(field.nni()?),
            tlv::LP_NEXT_HOP_FACE_ID => header.next_hop_face = Some(field.nni()?),
            tlv::LP_CACHE_POLICY => {
                let policy = cache_policy(field.value)?;
                header.no_cache = policy == CACHE_POLICY_NO_CACHE;
                self.cache_policy = Some(policy);
            }
            tlv::LP_CONGESTION_MARK => header.congestion_mark = field.nni()?,
            tlv::LP_ACK => {
                eight_octets(field)?;
                // All Acks are in one range of the body, since the fields are in order.
                if self.acks.is_empty() {
                    self.acks_at = field.offset;
                }
                self.acks = &self.body[self.acks_at..field.offset + field.wire.len()];
            }
            tlv::LP_TX_SEQUENCE => framing.tx_sequence = Some(eight_octets(field)?),
            tlv::LP_NON_DISCOVERY => {
                if !field.value.is_empty() {
                    return Err(bad_length(field));
                }
                header.non_discovery = true;
            }
            tlv::LP_RUN => self.run = Some(RunFields { bitmap: field.nni()?, tokens: None }),
            tlv::LP_RUN_TOKENS => {
                self.run.as_mut().ok_or(RUN_MISSING)?.tokens = Some(field.value);
            }
            _ => {
                tlv::read_single_of(field.value, tlv::DATA)?;
                self.prefix_announcement = Some(field.value);
            }
        }
        Ok(())
    }

    fn check_fragment(&mut self) -> Result<(), DecodeError> {
        // Signals and offers count only in a packet without fragment.
        if self.fragment.is_some() {
            (self.signal, self.run_offer) = (None, None);
        }
        let LpFraming { sequence, frag_index, frag_count, .. } = self.framing;
        if frag_index >= frag_count {
            return Err(DecodeError::FragmentIndex);
        }
        if frag_count > 1 && sequence.is_none() {
            return Err(DecodeError::FragmentWithoutSequence);
        }
        let Some(fragment) = self.fragment else { return Ok(()) };
        let is_interest = fragment.first().is_some_and(|&typ| u32::from(typ) == tlv::INTEREST);
        if frag_count == 1 {
            let (typ, _) = tlv::read_single(fragment).map_err(|error| match error {
                DecodeError::TrailingOctets(_) => DecodeError::FragmentContent,
                other => other,
            })?;
            if typ != tlv::INTEREST && typ != tlv::DATA {
                return Err(DecodeError::FragmentContent);
            }
        }
        if self.header.nack.is_some() && frag_index == 0 && !is_interest {
            return Err(DecodeError::NackOfOther);
        }
        Ok(())
    }
}

const fn is_field(typ: u32) -> bool {
    matches!(
        typ,
        tlv::LP_SEQUENCE
            | tlv::LP_FRAG_INDEX
            | tlv::LP_FRAG_COUNT
            | tlv::LP_PIT_TOKEN
            | tlv::LP_NACK
            | tlv::LP_INCOMING_FACE_ID
            | tlv::LP_NEXT_HOP_FACE_ID
            | tlv::LP_CACHE_POLICY
            | tlv::LP_CONGESTION_MARK
            | tlv::LP_ACK
            | tlv::LP_TX_SEQUENCE
            | tlv::LP_NON_DISCOVERY
            | tlv::LP_PREFIX_ANNOUNCEMENT
            | tlv::LP_RUN
            | tlv::LP_RUN_TOKENS
    )
}

/// Checks that an unrecognised field may be skipped. NDNLPv2 has its own rule: types from 800 to
/// 959 that are divisible by 4 may be.
fn check_unrecognised(within: u32, element: u32) -> Result<(), DecodeError> {
    if (800..=959).contains(&element) && element.is_multiple_of(4) {
        Ok(())
    } else {
        Err(DecodeError::UnrecognisedCritical { within, element })
    }
}

fn bad_length(field: &Element<'_>) -> DecodeError {
    DecodeError::ElementLength { element: field.typ, length: field.value.len() }
}

fn eight_octets(field: &Element<'_>) -> Result<u64, DecodeError> {
    let octets: [u8; 8] = field.value.try_into().map_err(|_| bad_length(field))?;
    Ok(u64::from_be_bytes(octets))
}

/// The number of type `element` in the value of `within`.
fn nested_number(value: &[u8], within: u32, element: u32) -> Result<Option<u64>, DecodeError> {
    let mut reader = Reader::new(value);
    let mut number = None;
    while let Some(field) = reader.next_element()? {
        if field.typ != element {
            check_unrecognised(within, field.typ)?;
        } else if number.is_some() {
            return Err(DecodeError::Repeated { within, element });
        } else {
            number = Some(field.nni()?);
        }
    }
    Ok(number)
}

fn nack_reason(value: &[u8]) -> Result<NackReason, DecodeError> {
    let code = nested_number(value, tlv::LP_NACK, tlv::LP_NACK_REASON)?;
    Ok(code.map_or(NackReason::None, NackReason::from_code))
}

fn cache_policy(value: &[u8]) -> Result<u64, DecodeError> {
    let (within, element) = (tlv::LP_CACHE_POLICY, tlv::LP_CACHE_POLICY_TYPE);
    nested_number(value, within, element)?.ok_or(DecodeError::Missing { within, element })
}
