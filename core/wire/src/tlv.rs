//! Type-length-value elements (NDN packet 0.3, TLV): numbers, a reader and a writer.

use alloc::vec::Vec;

use crate::error::DecodeError;
pub use crate::types::*;

/// Reads a VAR-NUMBER at the start of `input`. Returns its value and its length in octets.
///
/// # Errors
/// [`DecodeError::Truncated`] and [`DecodeError::NonShortestNumber`].
#[inline]
pub fn read_var_number(input: &[u8]) -> Result<(u64, usize), DecodeError> {
    match input.first() {
        Some(&octet) if octet < 253 => Ok((u64::from(octet), 1)),
        _ => read_long_var_number(input),
    }
}

fn read_long_var_number(input: &[u8]) -> Result<(u64, usize), DecodeError> {
    let (value, size, smallest) = match *input {
        [253, a, b, ..] => (u64::from(u16::from_be_bytes([a, b])), 3, 253),
        [254, a, b, c, d, ..] => (u64::from(u32::from_be_bytes([a, b, c, d])), 5, 1 << 16),
        [255, a, b, c, d, e, f, g, h, ..] => {
            (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 9, 1 << 32)
        }
        _ => return Err(DecodeError::Truncated),
    };
    if value < smallest { Err(DecodeError::NonShortestNumber) } else { Ok((value, size)) }
}

/// The length of a VAR-NUMBER in octets: 1, 3, 5 or 9.
#[inline]
pub const fn var_number_size(number: u64) -> usize {
    match number {
        0..=252 => 1,
        253..=0xFFFF => 3,
        0x1_0000..=0xFFFF_FFFF => 5,
        _ => 9,
    }
}

/// Writes a VAR-NUMBER to the start of `out`. Returns its length in octets.
///
/// # Panics
/// If `out` is shorter than [`var_number_size`].
#[inline]
pub fn write_var_number(number: u64, out: &mut [u8]) -> usize {
    let size = var_number_size(number);
    if size == 1 {
        out[0] = number as u8;
    } else {
        out[0] = match size {
            3 => 253,
            5 => 254,
            _ => 255,
        };
        out[1..size].copy_from_slice(&number.to_be_bytes()[9 - size..]);
    }
    size
}

/// The length of a non-negative integer in its shortest form: 1, 2, 4 or 8 octets.
#[inline]
pub const fn nni_size(number: u64) -> usize {
    match number {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

/// Decodes a TLV-VALUE of 1, 2, 4 or 8 octets as a non-negative integer.
#[inline]
pub fn nni(value: &[u8]) -> Option<u64> {
    match *value {
        [a] => Some(u64::from(a)),
        [a, b] => Some(u64::from(u16::from_be_bytes([a, b]))),
        [a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

/// Decodes the TLV-VALUE of `element` as a non-negative integer.
///
/// # Errors
/// [`DecodeError::IntegerLength`] when the length is not 1, 2, 4 or 8.
#[inline]
pub fn decode_nni(element: u32, value: &[u8]) -> Result<u64, DecodeError> {
    nni(value).ok_or(DecodeError::IntegerLength { element, length: value.len() })
}

/// A non-negative integer in its shortest form. Dereferences to its octets.
#[derive(Clone, Copy, Debug)]
pub struct EncodedNni {
    octets: [u8; 8],
    size: u8,
}

impl core::ops::Deref for EncodedNni {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.octets[8 - usize::from(self.size)..]
    }
}

/// Encodes a non-negative integer in its shortest form.
#[inline]
pub const fn encode_nni(number: u64) -> EncodedNni {
    EncodedNni { octets: number.to_be_bytes(), size: nni_size(number) as u8 }
}

/// One TLV in a [`Reader`]'s input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub typ: u32,
    pub value: &'a [u8],
    pub wire: &'a [u8],
    /// Offset of the whole TLV in the reader's input.
    pub offset: usize,
}

impl Element<'_> {
    /// Offset of the TLV-VALUE in the reader's input.
    #[inline]
    pub(crate) fn value_offset(&self) -> usize {
        self.offset + self.wire.len() - self.value.len()
    }

    /// The TLV-VALUE as a non-negative integer.
    ///
    /// # Errors
    /// [`DecodeError::IntegerLength`].
    #[inline]
    pub(crate) fn nni(&self) -> Result<u64, DecodeError> {
        decode_nni(self.typ, self.value)
    }
}

/// Reads TLVs one after another. After an error it returns nothing more.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub const fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// Offset of the next TLV in the input.
    #[inline]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Whether all TLVs have been read.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.at >= self.input.len()
    }

    /// The next TLV; `None` at the end.
    ///
    /// # Errors
    /// The octets are not a TLV. The reader is then at its end.
    #[inline]
    pub fn next_element(&mut self) -> Result<Option<Element<'a>>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        match read_element(&self.input[self.at..]) {
            Ok((typ, value, size)) => {
                let at = self.at;
                self.at += size;
                Ok(Some(Element { typ, value, wire: &self.input[at..self.at], offset: at }))
            }
            Err(error) => {
                self.at = self.input.len();
                Err(error)
            }
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Element<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_element().transpose()
    }
}

/// Reads the TLV at the start of `input`: its type, value and total length.
#[inline(always)]
pub(crate) fn read_element(input: &[u8]) -> Result<(u32, &[u8], usize), DecodeError> {
    // Nearly every element has a type and a length of one octet each.
    if let [typ @ 1..=252, length @ 0..=252, rest @ ..] = input {
        let length = usize::from(*length);
        if length <= rest.len() {
            return Ok((u32::from(*typ), &rest[..length], length + 2));
        }
    }
    read_long_element(input)
}

#[inline(never)]
fn read_long_element(input: &[u8]) -> Result<(u32, &[u8], usize), DecodeError> {
    let (typ, type_size) = read_var_number(input)?;
    let typ = match u32::try_from(typ) {
        Ok(typ) if typ != 0 => typ,
        _ => return Err(DecodeError::TypeOutOfRange(typ)),
    };
    let rest = &input[type_size..];
    let (length, length_size) = read_var_number(rest)?;
    let rest = &rest[length_size..];
    if length > rest.len() as u64 {
        return Err(DecodeError::LengthOverrun { element: typ });
    }
    let length = length as usize;
    Ok((typ, &rest[..length], type_size + length_size + length))
}

/// Reads `wire`, which must be exactly one TLV of any type. Returns its type and value.
///
/// # Errors
/// The octets are not a TLV, or [`DecodeError::TrailingOctets`].
#[inline]
pub fn read_single(wire: &[u8]) -> Result<(u32, &[u8]), DecodeError> {
    let (typ, value, size) = read_element(wire)?;
    if size != wire.len() {
        return Err(DecodeError::TrailingOctets(wire.len() - size));
    }
    Ok((typ, value))
}

/// The segment number, if `wire` is exactly one Segment component.
#[inline]
pub fn segment(wire: &[u8]) -> Option<u64> {
    match *wire {
        [typ, len, ref value @ ..]
            if u32::from(typ) == SEGMENT_NAME_COMPONENT && usize::from(len) == value.len() =>
        {
            nni(value)
        }
        _ => None,
    }
}

/// Reads the TLV-VALUE of `wire`, which must be exactly one TLV of type `typ`.
///
/// # Errors
/// Those of [`read_single`], and [`DecodeError::UnexpectedOuterType`].
#[inline]
pub fn read_single_of(wire: &[u8], typ: u32) -> Result<&[u8], DecodeError> {
    let (found, value, size) = read_element(wire)?;
    if found != typ {
        return Err(DecodeError::UnexpectedOuterType { found });
    }
    if size != wire.len() {
        return Err(DecodeError::TrailingOctets(wire.len() - size));
    }
    Ok(value)
}

/// The children that an element may have, in their order.
#[derive(Debug)]
pub(crate) struct ElementFormat {
    pub(crate) within: u32,
    order: &'static [u32],
    /// A bit for each child type below 64.
    short_types: u64,
}

impl ElementFormat {
    /// The format of the element `within`, whose children have the types `order`.
    pub(crate) const fn new(within: u32, order: &'static [u32]) -> Self {
        let mut short_types = 0;
        let mut at = 0;
        while at < order.len() {
            if order[at] < u64::BITS {
                short_types |= 1 << order[at];
            }
            at += 1;
        }
        Self { within, order, short_types }
    }

    fn rank(&self, typ: u32) -> Option<usize> {
        self.order.iter().position(|&known| known == typ)
    }
}

/// Reads the children of an element in the order of its format. A child that is unrecognised,
/// repeated or out of order is an error if its type is critical. Otherwise the reader skips it.
///
/// Callers must request every type of the format in order, and must end with
/// [`ChildReader::finish`]. After inlining, the types that may follow are constants at each call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildReader<'a> {
    /// The children that have not been read.
    pub(crate) rest: &'a [u8],
    format: &'static ElementFormat,
    /// The short types of the format that have not been requested yet.
    pub(crate) expected_types: u64,
    /// The type of the child read last.
    last: u32,
}

impl<'a> ChildReader<'a> {
    /// A reader of the children in `rest`. `last` is the type of the child before them; 0 if there
    /// is none.
    #[inline(always)]
    pub(crate) const fn new(rest: &'a [u8], format: &'static ElementFormat, last: u32) -> Self {
        Self { rest, format, expected_types: format.short_types, last }
    }

    /// Takes the next child if it has type `typ`. Returns its TLV-VALUE.
    #[inline(always)]
    pub(crate) fn take(&mut self, typ: u32) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(&next) = self.rest.first() else { return Ok(None) };
        // The fast path: a short type and a length of one octet.
        if typ < u64::BITS {
            self.expected_types &= !(1 << typ);
            if u32::from(next) == typ
                && let [_, length @ 0..=252, rest @ ..] = self.rest
                && let Some((value, rest)) = rest.split_at_checked(usize::from(*length))
            {
                (self.rest, self.last) = (rest, typ);
                return Ok(Some(value));
            }
        }
        // The next child has a type that comes later, so this one is absent.
        if u32::from(next) < u64::BITS && self.expected_types & 1 << next != 0 {
            return Ok(None);
        }
        let (found, rest) = self.take_uncommon(typ)?;
        self.rest = rest;
        if found.is_some() {
            self.last = typ;
        }
        Ok(found)
    }

    /// The same, as a non-negative integer.
    #[inline(always)]
    pub(crate) fn take_nni(&mut self, typ: u32) -> Result<Option<u64>, DecodeError> {
        self.take(typ)?.map(|value| decode_nni(typ, value)).transpose()
    }

    /// The number of octets from the start of the last child to the end of the element. `value` is
    /// the TLV-VALUE of that child, whose type must be below 253.
    pub(crate) fn len_from(&self, value: &[u8]) -> usize {
        1 + var_number_size(value.len() as u64) + value.len() + self.rest.len()
    }

    /// Checks that no critical child follows.
    #[inline(always)]
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { self.take_uncommon(0).map(|_| ()) }
    }

    /// The slow path of `take`, for a child that must be skipped or has long numbers. Also returns
    /// the rest. Type 0 stands for the end: it comes after all others.
    #[cold]
    fn take_uncommon(mut self, typ: u32) -> Result<(Option<&'a [u8]>, &'a [u8]), DecodeError> {
        let requested_rank = self.format.rank(typ).unwrap_or(usize::MAX);
        while !self.rest.is_empty() {
            let (element, value, size) = read_element(self.rest)?;
            let rest = &self.rest[size..];
            if element == typ {
                return Ok((Some(value), rest));
            }
            let rank = self.format.rank(element);
            if rank.is_some_and(|rank| rank > requested_rank) {
                break;
            }
            if is_critical(element) {
                let within = self.format.within;
                return Err(match rank {
                    None => DecodeError::UnrecognisedCritical { within, element },
                    Some(_) if element == self.last => DecodeError::Repeated { within, element },
                    Some(_) => DecodeError::OutOfOrder { within, element },
                });
            }
            self.rest = rest;
        }
        Ok((None, self.rest))
    }
}

/// Checks that an unrecognised child of `within` may be skipped.
///
/// # Errors
/// [`DecodeError::UnrecognisedCritical`].
pub(crate) fn check_skippable(within: u32, element: u32) -> Result<(), DecodeError> {
    match is_critical(element) {
        true => Err(DecodeError::UnrecognisedCritical { within, element }),
        false => Ok(()),
    }
}

/// Appends TLVs to a vector.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    octets: Vec<u8>,
}

impl Writer {
    pub const fn new() -> Self {
        Self { octets: Vec::new() }
    }

    /// An empty writer with space for `capacity` octets.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { octets: Vec::with_capacity(capacity) }
    }

    pub fn len(&self) -> usize {
        self.octets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.octets
    }

    /// The octets written so far, to be modified.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    pub fn into_vec(self) -> Vec<u8> {
        self.octets
    }

    /// Appends octets that are encoded already.
    pub fn raw(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    pub(crate) fn var_number(&mut self, number: u64) {
        let mut octets = [0; 9];
        let size = write_var_number(number, &mut octets);
        self.octets.extend_from_slice(&octets[..size]);
    }

    /// Appends TLV-TYPE and TLV-LENGTH. The caller appends the TLV-VALUE.
    pub fn header(&mut self, typ: u32, length: usize) {
        self.var_number(u64::from(typ));
        self.var_number(length as u64);
    }

    pub fn tlv(&mut self, typ: u32, value: &[u8]) {
        self.header(typ, value.len());
        self.octets.extend_from_slice(value);
    }

    /// Appends a TLV whose value is a non-negative integer in its shortest form.
    pub fn nni(&mut self, typ: u32, number: u64) {
        self.tlv(typ, &encode_nni(number));
    }

    /// Appends a TLV whose value `write` appends.
    pub fn nested(&mut self, typ: u32, write: impl FnOnce(&mut Self)) {
        self.var_number(u64::from(typ));
        let length_at = self.octets.len();
        self.octets.push(0);
        write(self);
        let length = (self.octets.len() - length_at - 1) as u64;
        let size = var_number_size(length);
        if size > 1 {
            // Most values are short, so one octet was reserved. Move a long value back to make
            // space.
            self.octets.splice(length_at..length_at, core::iter::repeat_n(0, size - 1));
        }
        write_var_number(length, &mut self.octets[length_at..]);
    }
}
