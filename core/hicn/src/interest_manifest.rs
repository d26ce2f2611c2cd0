//! Interest manifests: one Interest that requests up to 256 suffixes of an address.
//!
//! hICN's library and its forwarder put them into the payload of an Interest with the manifest
//! flag. All integers are big-endian:
//!
//! | octets | field |
//! |---|---|
//! | 4 | number of suffixes, 1 to 256 |
//! | 4 | 0 |
//! | 32 | bitmap in words of 64 bits: which suffixes are requested, from the lowest bit on |
//! | 4 each | suffixes; the first is that of the name |
//!
//! A forwarder clears the bits of suffixes that it has answered itself.

use alloc::vec::Vec;

use crate::error::HicnError;

/// Most suffixes of an Interest manifest.
pub const SUFFIXES_MAX: usize = 256;

const COUNT_SIZE: usize = 8;
const WORDS: usize = SUFFIXES_MAX / u64::BITS as usize;
const BITMAP_SIZE: usize = WORDS * 8;
const SUFFIX_SIZE: usize = 4;
/// Octets before the suffixes.
pub const INTEREST_MANIFEST_HEADER_SIZE: usize = COUNT_SIZE + BITMAP_SIZE;

/// The payload of an Interest for several suffixes, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestManifest<'a> {
    bitmap: [u64; WORDS],
    suffixes: &'a [[u8; SUFFIX_SIZE]],
}

impl<'a> InterestManifest<'a> {
    /// # Errors
    /// [`HicnError::InterestManifest`]: the number of suffixes is not that of the payload or beyond
    /// its bounds, or no suffix is requested.
    pub fn decode(payload: &'a [u8]) -> Result<Self, HicnError> {
        let bad = HicnError::InterestManifest;
        let (head, rest) =
            payload.split_first_chunk::<INTEREST_MANIFEST_HEADER_SIZE>().ok_or(bad)?;
        let count = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (suffixes, partial) = rest.as_chunks::<SUFFIX_SIZE>();
        if !(1..=SUFFIXES_MAX).contains(&count) || suffixes.len() != count || !partial.is_empty() {
            return Err(bad);
        }
        let mut bitmap = [0; WORDS];
        for (word, octets) in bitmap.iter_mut().zip(head[COUNT_SIZE..].as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*octets);
        }
        let manifest = Self { bitmap, suffixes };
        if manifest.suffixes().next().is_none() {
            return Err(bad);
        }
        Ok(manifest)
    }

    /// The requested suffixes, in order. Bits without a suffix are ignored.
    pub fn suffixes(&self) -> impl Iterator<Item = u32> + use<'a> {
        let bitmap = self.bitmap;
        let is_requested =
            move |at: usize| bitmap[at / u64::BITS as usize] >> (at % u64::BITS as usize) & 1 == 1;
        let suffixes = self.suffixes.iter().enumerate().filter(move |&(at, _)| is_requested(at));
        suffixes.map(|(_, suffix)| u32::from_be_bytes(*suffix))
    }

    /// Appends the manifest that requests these suffixes, 1 to [`SUFFIXES_MAX`].
    pub fn encode(suffixes: impl ExactSizeIterator<Item = u32>, out: &mut Vec<u8>) {
        let count = suffixes.len();
        debug_assert!((1..=SUFFIXES_MAX).contains(&count));
        out.extend((count as u32).to_be_bytes());
        out.extend([0; 4]);
        for word in 0..WORDS {
            let bits = count.saturating_sub(word * u64::BITS as usize).min(u64::BITS as usize);
            let ones = if bits == 0 { 0 } else { u64::MAX >> (u64::BITS as usize - bits) };
            out.extend(ones.to_be_bytes());
        }
        suffixes.for_each(|suffix| out.extend(suffix.to_be_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn encodes_and_decodes() {
        for count in [1, 2, 63, 64, 65, 255, 256] {
            let suffixes: Vec<u32> = (0..count).map(|at| at * 7 + u32::MAX / 2).collect();
            let mut octets = Vec::new();
            InterestManifest::encode(suffixes.iter().copied(), &mut octets);
            let manifest = InterestManifest::decode(&octets).unwrap();
            assert!(manifest.suffixes().eq(suffixes.iter().copied()));
            // A forwarder has answered the first suffix.
            octets[COUNT_SIZE + 7] &= !1;
            let rest = InterestManifest::decode(&octets);
            let is_none_left = count == 1;
            assert_eq!(rest.is_err(), is_none_left);
            assert!(is_none_left || rest.unwrap().suffixes().eq(suffixes[1..].iter().copied()));
        }
    }

    #[test]
    fn refuses_lying_counts() {
        let mut good = Vec::new();
        InterestManifest::encode([1, 2, 3].into_iter(), &mut good);
        let with_count = |count: u32| {
            let mut changed = good.clone();
            changed[..4].copy_from_slice(&count.to_be_bytes());
            changed
        };
        let mut long = with_count(257);
        long.resize(INTEREST_MANIFEST_HEADER_SIZE + 257 * SUFFIX_SIZE, 1);
        let mut cases = vec![long, with_count(u32::MAX), good[..good.len() - 1].to_vec()];
        cases.extend([0, 2, 4].map(with_count));
        cases.extend((0..INTEREST_MANIFEST_HEADER_SIZE).map(|len| good[..len].to_vec()));
        for payload in cases {
            assert_eq!(InterestManifest::decode(&payload), Err(HicnError::InterestManifest));
        }
        assert!(InterestManifest::decode(&with_count(3)).is_ok());
    }
}
