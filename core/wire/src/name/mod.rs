//! Names (NDN packet 0.3, Name): borrowed views, the owned form and the URI form.

mod component;
mod owned;
mod uri;

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

pub use component::{Component, ComponentView};
pub use owned::Name;
pub(crate) use uri::UriDisplay;
pub use uri::{NameUriError, UriStyle};

use crate::error::DecodeError;
use crate::tlv;

/// Octets of a digest component's value.
pub const DIGEST_SIZE: usize = 32;

/// A validated Name: the octets of its TLV-VALUE, borrowed.
///
/// Two names are equal if their octets are. TLV numbers have their shortest form, so the order of
/// the octets is the canonical order of names.
#[derive(Clone, Copy, Default)]
pub struct NameView<'a> {
    value: &'a [u8],
    count: u32,
}

/// The result of one pass over a Name's TLV-VALUE.
#[derive(Clone, Copy, Default)]
pub(crate) struct NameScan {
    pub(crate) count: u32,
    /// Octets before the last component.
    pub(crate) parent_len: usize,
    pub(crate) parameters_digests: u32,
    /// Offset of the last ParametersSha256Digest component in the TLV-VALUE.
    pub(crate) parameters_digest_at: usize,
}

/// All but the last component of the previous packet's name. The next packet often belongs to the
/// same object. Then this part of its name need not be checked again.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameHead<'a> {
    value: &'a [u8],
    count: u32,
    is_repeated: bool,
}

impl<'a> NameHead<'a> {
    /// No head: the next packet is the first.
    pub const NONE: Self = Self { value: &[], count: 0, is_repeated: false };

    /// The octets of its components. They are empty if there is no head, because the name has only
    /// one component or has a parameters digest.
    #[inline]
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Whether the two latest packets had the same head.
    #[inline]
    pub const fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Scans a name, and makes `self` the head of that name.
    #[inline(always)]
    pub(crate) fn scan(&mut self, value: &'a [u8]) -> Result<NameScan, DecodeError> {
        // The fast path: only the last component differs, and it is short and not a digest.
        if let Some((head, [3..=252, length @ 0..=252, last @ ..])) =
            value.split_at_checked(self.value.len())
            && last.len() == usize::from(*length)
            && self.is_equal(head)
        {
            self.is_repeated = true;
            let (count, parent_len) = (self.count + 1, head.len());
            return Ok(NameScan { count, parent_len, ..NameScan::default() });
        }
        let scan = NameScan::of(value)?;
        *self = match scan.parameters_digests {
            0 => Self {
                value: &value[..scan.parent_len],
                count: scan.count.saturating_sub(1),
                is_repeated: false,
            },
            _ => Self::NONE,
        };
        Ok(scan)
    }

    /// Compares the ends first, since the names of objects differ there.
    #[inline(always)]
    fn is_equal(&self, head: &[u8]) -> bool {
        let end = |octets: &[u8]| octets.last_chunk().map(|end| u64::from_le_bytes(*end));
        end(self.value).is_some_and(|known| end(head) == Some(known)) && *self.value == *head
    }
}

impl NameScan {
    #[inline]
    pub(crate) fn of(value: &[u8]) -> Result<Self, DecodeError> {
        let mut scan = Self::default();
        // Local variables stay in registers. The fields of `scan` do not, since its address
        // escapes.
        let (mut count, mut last, mut rest) = (0, value, value);
        loop {
            // Nearly every component has a type and a length of one octet each.
            while let [3..=252, length @ 0..=252, after @ ..] = rest
                && let Some(after) = after.get(usize::from(*length)..)
            {
                (count, last, rest) = (count + 1, rest, after);
            }
            if rest.is_empty() {
                return Ok(Self { count, parent_len: value.len() - last.len(), ..scan });
            }
            let size = scan.scan_uncommon_component(value, value.len() - rest.len())?;
            (count, last, rest) = (count + 1, rest, &rest[size..]);
        }
    }

    /// Checks the component at `at`, which is a digest, has long numbers, or is malformed.
    fn scan_uncommon_component(&mut self, value: &[u8], at: usize) -> Result<usize, DecodeError> {
        let rest = &value[at..];
        let (typ, _) = tlv::read_var_number(rest)?;
        if typ == 0 || typ > u64::from(u16::MAX) {
            return Err(DecodeError::ComponentType(typ));
        }
        let mut reader = tlv::Reader::new(rest);
        let element = reader.next_element()?.ok_or(DecodeError::Truncated)?;
        if element.typ <= tlv::PARAMETERS_SHA256_DIGEST_COMPONENT {
            if element.value.len() != DIGEST_SIZE {
                return Err(DecodeError::DigestComponentLength(element.value.len()));
            }
            if element.typ == tlv::PARAMETERS_SHA256_DIGEST_COMPONENT {
                self.parameters_digests += 1;
                self.parameters_digest_at = at;
            }
        }
        Ok(element.wire.len())
    }
}

impl<'a> NameView<'a> {
    /// Decodes a whole Name TLV.
    ///
    /// # Errors
    /// The octets are no Name.
    pub fn decode(wire: &'a [u8]) -> Result<Self, DecodeError> {
        Self::from_value(tlv::read_single_of(wire, tlv::NAME)?)
    }

    /// Checks the TLV-VALUE of a Name.
    ///
    /// # Errors
    /// The octets are no sequence of name components.
    #[inline]
    pub fn from_value(value: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self { value, count: NameScan::of(value)?.count })
    }

    /// A view of octets that were scanned before.
    #[inline]
    pub(crate) const fn from_scanned(value: &'a [u8], count: u32) -> Self {
        Self { value, count }
    }

    /// The octets of the TLV-VALUE: the TLVs of the components.
    #[inline]
    pub const fn value(self) -> &'a [u8] {
        self.value
    }

    #[inline]
    pub const fn component_count(self) -> usize {
        self.count as usize
    }

    /// Whether the name has no components.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    #[inline]
    pub const fn components(self) -> Components<'a> {
        Components { rest: self.value, remaining: self.count as usize }
    }

    /// The component at `index`, from 0.
    #[inline]
    pub fn component(self, index: usize) -> Option<ComponentView<'a>> {
        self.components().nth(index)
    }

    #[inline]
    pub fn first(self) -> Option<ComponentView<'a>> {
        self.components().next()
    }

    #[inline]
    pub fn last(self) -> Option<ComponentView<'a>> {
        self.components().last()
    }

    /// The first `count` components, or the whole name if it has fewer.
    #[inline]
    pub fn prefix(self, count: usize) -> Self {
        if count >= self.component_count() {
            return self;
        }
        let mut components = self.components();
        for _ in 0..count {
            components.next();
        }
        Self { value: &self.value[..self.value.len() - components.rest.len()], count: count as u32 }
    }

    /// The name without its last component; the empty name stays empty.
    #[inline]
    pub fn parent(self) -> Self {
        self.prefix(self.component_count().saturating_sub(1))
    }

    /// The components from index `count` on.
    #[inline]
    pub fn suffix(self, count: usize) -> Self {
        let prefix = self.prefix(count);
        Self { value: &self.value[prefix.value.len()..], count: self.count - prefix.count }
    }

    /// Whether `name` starts with all components of this name. A name is a prefix of itself.
    #[inline]
    pub fn is_prefix_of(self, name: NameView<'_>) -> bool {
        // It is enough to compare octets: the end of `self` is a component boundary in both names.
        name.value.starts_with(self.value)
    }

    pub fn to_name(self) -> Name {
        Name::from(self)
    }

    /// The URI form in this style, for display.
    pub const fn uri(self, style: UriStyle) -> UriDisplay<'a> {
        UriDisplay::new(self, style)
    }

    /// The URI form with the type number of every component, such as `/8=A/50=%01`.
    pub fn canonical_uri(self) -> alloc::string::String {
        alloc::format!("{}", self.uri(UriStyle::Canonical))
    }
}

impl PartialEq for NameView<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for NameView<'_> {}

impl PartialOrd for NameView<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameView<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(other.value)
    }
}

impl Hash for NameView<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl fmt::Display for NameView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.uri(UriStyle::Alternate), formatter)
    }
}

impl fmt::Debug for NameView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Iterates over the components of a [`NameView`].
#[derive(Clone, Debug)]
pub struct Components<'a> {
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> Components<'a> {
    /// The components that are left, as a name.
    #[inline]
    pub(crate) const fn as_name(&self) -> NameView<'a> {
        NameView { value: self.rest, count: self.remaining as u32 }
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = ComponentView<'a>;

    #[inline]
    fn next(&mut self) -> Option<ComponentView<'a>> {
        let component = ComponentView::take(self.rest)?;
        self.rest = &self.rest[component.wire.len()..];
        self.remaining -= 1;
        Some(component)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Components<'_> {}
impl core::iter::FusedIterator for Components<'_> {}
