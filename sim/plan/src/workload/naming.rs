//! Names of segments: `prefix/<filler components>/<object>/seg=<segment>`.

use weir_base::HashKey;
use weir_wire::Name;
use weir_wire::tlv::{self, encode_nni};

use super::WorkloadError;

/// Maximum components of a name.
const COMPONENTS_MAX: u32 = 64;
/// Components after the prefix and the fillers: object and segment.
const COMPONENTS_OWN: u32 = 2;
/// Minimum digits of an object number, so that names have equal lengths.
const DIGITS_MIN: usize = 8;
/// Digits of 2^64 - 1.
const DIGITS_MAX: usize = 20;
const EIGHT_DIGITS: u64 = 100_000_000;
/// Bytes of an implicit digest component.
const DIGEST_WIRE: usize = 34;

/// The names of the segments of numbered objects. The object is a generic component with at least
/// eight decimal digits, and the segment is a SegmentNameComponent.
#[derive(Clone, Debug)]
pub struct Naming {
    /// The name's value before the object.
    stem: Vec<u8>,
    stem_key: u64,
    prefix_key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedName<'a> {
    pub object: u64,
    pub segment: u64,
    /// The implicit digest at the end of the name.
    pub digest: Option<&'a [u8; 32]>,
}

impl Naming {
    /// Names under the URI `prefix` with `components` components in total; 0 means the minimum. A
    /// filler component is `c` and its position in the name.
    ///
    /// # Errors
    /// The prefix is not a URI, or the number of components is out of range.
    pub(crate) fn new(prefix: &str, components: u32) -> Result<Self, WorkloadError> {
        let name: Name = prefix.parse().map_err(|error| {
            let problem =
                format!("is `{prefix}`, which is not a valid name: {error}; write one like /a/b");
            WorkloadError::value("prefix", problem)
        })?;
        let least = name.component_count() as u64 + u64::from(COMPONENTS_OWN);
        let wanted = if components == 0 { least } else { u64::from(components) };
        if wanted < least || wanted > u64::from(COMPONENTS_MAX) {
            let problem = format!(
                "is {wanted}; under {prefix} names have from {least} to {COMPONENTS_MAX} \
                 components, object and segment included"
            );
            return Err(WorkloadError::value("components", problem));
        }
        let mut stem = name.clone();
        for place in name.component_count() as u64..wanted - u64::from(COMPONENTS_OWN) {
            stem.append_str(&format!("c{place:02}"));
        }
        // The key is public: content and sizes must be equal in every run.
        let key = HashKey::new([0, 0]);
        Ok(Self {
            stem_key: key.hash(stem.value()),
            prefix_key: key.hash(name.value()),
            stem: stem.value().to_vec(),
        })
    }

    /// Identifies the name without object and segment.
    pub(crate) fn stem_key(&self) -> u64 {
        self.stem_key
    }

    pub(crate) fn prefix_key(&self) -> u64 {
        self.prefix_key
    }

    /// The name of an object, directly above its segments.
    pub fn object_name(&self, object: u64) -> Name {
        let mut digits = [0; DIGITS_MAX];
        let mut name = weir_wire::NameView::from_value(&self.stem)
            .expect("made of whole components")
            .to_name();
        name.append_generic(decimal(object, &mut digits));
        name
    }

    /// Replaces `out` by the value of that name.
    pub(crate) fn write_object(&self, object: u64, out: &mut Vec<u8>) {
        let mut digits = [0; DIGITS_MAX];
        let digits = decimal(object, &mut digits);
        out.clear();
        out.extend_from_slice(&self.stem);
        out.extend([tlv::GENERIC_NAME_COMPONENT as u8, digits.len() as u8]);
        out.extend_from_slice(digits);
    }

    pub fn segment_name(&self, object: u64, segment: u64) -> Name {
        let mut name = self.object_name(object);
        name.append_segment(segment);
        name
    }

    /// Length of the value of a segment's name.
    #[inline]
    pub(crate) fn value_len(&self, object: u64, segment: u64) -> usize {
        self.stem.len() + 2 + digit_count(object) + 2 + tlv::nni_size(segment)
    }

    /// Writes the value of a segment's name to the start of `out` and returns its length.
    #[inline]
    pub(crate) fn write_value(&self, object: u64, segment: u64, out: &mut [u8]) -> usize {
        let mut digits = [0; DIGITS_MAX];
        let digits = decimal(object, &mut digits);
        let number = encode_nni(segment);
        let stem = self.stem.len();
        let end = stem + 2 + digits.len();
        out[..stem].copy_from_slice(&self.stem);
        out[stem] = tlv::GENERIC_NAME_COMPONENT as u8;
        out[stem + 1] = digits.len() as u8;
        out[stem + 2..end].copy_from_slice(digits);
        out[end] = tlv::SEGMENT_NAME_COMPONENT as u8;
        out[end + 1] = number.len() as u8;
        out[end + 2..end + 2 + number.len()].copy_from_slice(&number);
        end + 2 + number.len()
    }

    /// Parses the TLV-VALUE of an object's own name, without a segment.
    pub(crate) fn parse_object(&self, value: &[u8]) -> Option<u64> {
        let rest = value.strip_prefix(self.stem.as_slice())?;
        let (digits, rest) = short_component(rest, tlv::GENERIC_NAME_COMPONENT)?;
        if rest.is_empty() { number_of(digits) } else { None }
    }

    /// Parses the TLV-VALUE of a name; `None` if it is not one of these names.
    #[inline]
    pub fn parse<'a>(&self, value: &'a [u8]) -> Option<ParsedName<'a>> {
        let rest = value.strip_prefix(self.stem.as_slice())?;
        let (digits, rest) = short_component(rest, tlv::GENERIC_NAME_COMPONENT)?;
        let (number, rest) = short_component(rest, tlv::SEGMENT_NAME_COMPONENT)?;
        // A number in a longer encoding than necessary is a different name.
        let segment = tlv::nni(number).filter(|&it| tlv::nni_size(it) == number.len())?;
        let digest = match rest.len() {
            0 => None,
            DIGEST_WIRE => {
                let (digest, _) = short_component(rest, tlv::IMPLICIT_SHA256_DIGEST_COMPONENT)?;
                Some(digest.try_into().ok()?)
            }
            _ => return None,
        };
        Some(ParsedName { object: number_of(digits)?, segment, digest })
    }
}

/// Splits off a component with fewer than 253 bytes and a type below 253. Returns its value and the
/// rest.
#[inline]
fn short_component(wire: &[u8], typ: u32) -> Option<(&[u8], &[u8])> {
    let (&[found, len], rest) = wire.split_first_chunk()?;
    (u32::from(found) == typ && len < 253).then_some(())?;
    rest.split_at_checked(usize::from(len))
}

#[inline]
fn digit_count(number: u64) -> usize {
    if number < EIGHT_DIGITS { DIGITS_MIN } else { number.ilog10() as usize + 1 }
}

/// The digits of a number, at least eight.
#[inline]
fn decimal(number: u64, out: &mut [u8; DIGITS_MAX]) -> &[u8] {
    if number < EIGHT_DIGITS {
        let octets = eight_digits(number as u32);
        out[..DIGITS_MIN].copy_from_slice(&octets);
        return &out[..DIGITS_MIN];
    }
    let mut at = DIGITS_MAX;
    let mut rest = number;
    while rest > 0 {
        at -= 1;
        out[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    &out[at..]
}

/// Computes eight digits in one word: it splits halves, then quarters, then digits.
#[inline]
fn eight_digits(number: u32) -> [u8; DIGITS_MIN] {
    let number = u64::from(number);
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    // `* 5243 >> 19` divides by 100 and `* 103 >> 10` by 10, both exactly for these ranges.
    let hundreds = ((halves * 5_243) >> 19) & 0x0000_007F_0000_007F;
    let pairs = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let digits = tens | ((pairs - tens * 10) << 8);
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// Parses digits; `None` unless [`decimal`] would write them.
#[inline]
fn number_of(digits: &[u8]) -> Option<u64> {
    if !(DIGITS_MIN..=DIGITS_MAX).contains(&digits.len())
        || (digits.len() > DIGITS_MIN && digits[0] == b'0')
    {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &octet| {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 14] = [
        0,
        1,
        9,
        10,
        255,
        256,
        65_535,
        65_536,
        12_345_678,
        99_999_999,
        100_000_000,
        4_294_967_296,
        12_345_678_901_234,
        u64::MAX,
    ];

    #[test]
    fn names_survive_a_round_trip() {
        let naming = Naming::new("/lab/p7", 6).unwrap();
        let name = naming.segment_name(42, 3);
        assert_eq!(name.to_string(), "/lab/p7/c02/c03/00000042/seg=3");
        assert_eq!(name.component_count(), 6);
        for object in NUMBERS {
            for segment in NUMBERS {
                let name = naming.segment_name(object, segment);
                let mut value = [0; 128];
                let len = naming.write_value(object, segment, &mut value);
                assert_eq!(&value[..len], name.value());
                assert_eq!(naming.value_len(object, segment), len);
                assert_eq!(
                    naming.parse(name.value()),
                    Some(ParsedName { object, segment, digest: None })
                );
                let mut full = name.clone();
                full.append_implicit_digest([9; 32]);
                let digest = Some(&[9; 32]);
                assert_eq!(
                    naming.parse(full.value()),
                    Some(ParsedName { object, segment, digest })
                );
            }
        }
    }

    #[test]
    fn eight_digits_are_right() {
        for number in (0..100_000_000).step_by(997).chain([99_999_999, 9_999, 10_000]) {
            assert_eq!(eight_digits(number), *format!("{number:08}").as_bytes());
        }
    }

    #[test]
    fn foreign_names_do_not_parse() {
        let naming = Naming::new("/lab/p7", 0).unwrap();
        for uri in [
            "/lab/p7/00000042",
            "/lab/p7/00000042/3",
            "/lab/p7/0000042/seg=3",
            "/lab/p7/000000042/seg=3",
            "/lab/p7/0000004x/seg=3",
            "/lab/p7/99999999999999999999/seg=3",
            "/lab/p8/00000042/seg=3",
            "/lab/p7/00000042/seg=3/x",
            "/lab/p7/00000042/50=%00%03",
            "/lab/p7/00000042/50=...",
            "/lab/p7",
            "/",
        ] {
            let name: Name = uri.parse().unwrap();
            assert_eq!(naming.parse(name.value()), None, "{uri}");
        }
        let value = naming.segment_name(42, 3).value().to_vec();
        for end in 0..value.len() {
            assert_eq!(naming.parse(&value[..end]), None);
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for (prefix, components) in [("/a/b", 3), ("/a", 65), ("/0=x", 0), ("/a/b/c", 1)] {
            assert!(Naming::new(prefix, components).is_err(), "{prefix} {components}");
        }
        let message = Naming::new("/a/b", 3).unwrap_err().to_string();
        assert!(message.contains("from 4 to 64"), "{message}");
        assert_eq!(Naming::new("/a", 64).unwrap().segment_name(0, 0).component_count(), 64);
        assert_eq!(Naming::new("/", 0).unwrap().segment_name(0, 0).component_count(), 2);
    }
}
