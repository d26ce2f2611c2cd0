use core::fmt;

/// The secret key of the hash of names. Without it, an attacker could choose names that all have
/// the same hash. The caller draws it at random.
#[derive(Copy, Clone)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// A key of 128 bits. The driver takes it from the system's entropy.
    pub const fn new(key: [u64; 2]) -> Self {
        Self(key)
    }

    /// A hasher that has had no input yet.
    #[inline]
    pub fn hasher(&self) -> NameHasher {
        NameHasher { state: SipState::new(self.0), tail: 0, length: 0 }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.prefixes(bytes).hash_to(bytes.len())
    }

    /// A hasher of the prefixes of `bytes`, shortest first. The fastest way to hash all prefixes of
    /// a name, in one pass.
    #[inline]
    pub fn prefixes<'a>(&self, bytes: &'a [u8]) -> PrefixHasher<'a> {
        PrefixHasher { state: SipState::new(self.0), bytes, at: 0 }
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)") // A key in a log is no secret any more.
    }
}

/// The four words of SipHash (Aumasson and Bernstein, 2012), with 1 round a word and 3 at the end.
#[derive(Copy, Clone)]
struct SipState([u64; 4]);

impl SipState {
    #[inline(always)]
    fn new(key: [u64; 2]) -> Self {
        Self([
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.0;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    /// The hash. `tail` holds the last `length % 8` bytes.
    #[inline(always)]
    fn finish(mut self, tail: u64, length: usize) -> u64 {
        self.absorb(tail | (length as u64) << 56);
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// The bytes of `bytes`, fewer than 8, first one lowest.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len() < 8);
    let mut word = 0;
    let mut at = 0;
    if bytes.len() >= 4 {
        word = u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        at = 4;
    }
    if bytes.len() - at >= 2 {
        word |= u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])) << (8 * at);
        at += 2;
    }
    if at < bytes.len() {
        word |= u64::from(bytes[at]) << (8 * at);
    }
    word
}

/// A keyed hash (SipHash-1-3) of bytes that arrive in several parts. Its value can be read at any
/// point, and does not depend on how the bytes were split.
#[derive(Copy, Clone)]
pub struct NameHasher {
    state: SipState,
    /// The last `length % 8` bytes, first one lowest.
    tail: u64,
    length: usize,
}

impl NameHasher {
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        let filled = self.length % 8;
        self.length += bytes.len();
        let mut at = 0;
        if filled != 0 {
            let free = 8 - filled;
            if bytes.len() < free {
                self.tail |= short_word(bytes) << (8 * filled);
                return;
            }
            let head = match word_at(bytes, 0) {
                Some(word) => word,
                None => short_word(bytes),
            };
            self.state.absorb(self.tail | head << (8 * filled));
            at = free;
        }
        while let Some(word) = word_at(bytes, at) {
            self.state.absorb(word);
            at += 8;
        }
        self.tail = short_word(&bytes[at..]);
    }

    /// The hash of all bytes so far. More bytes may follow.
    #[inline]
    pub fn finish(&self) -> u64 {
        self.state.finish(self.tail, self.length)
    }
}

impl fmt::Debug for NameHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameHasher").field("length", &self.length).finish_non_exhaustive()
    }
}

/// The hashes of prefixes of a byte string, in order of length. Created by [`HashKey::prefixes`].
///
/// Equal to a [`NameHasher`] over the same bytes, but reads whole words directly from the string.
#[derive(Copy, Clone)]
pub struct PrefixHasher<'a> {
    state: SipState,
    bytes: &'a [u8],
    /// Bytes absorbed, a multiple of 8.
    at: usize,
}

impl<'a> PrefixHasher<'a> {
    /// Absorbs the first `end` bytes, as far as all prefixes of at least that length share them.
    /// `end` must not decrease between calls.
    ///
    /// # Panics
    /// As [`PrefixHasher::hash_to`].
    #[inline(always)]
    pub fn absorb_to(&mut self, end: usize) {
        assert!(end <= self.bytes.len() && end >= self.at, "prefixes are hashed shortest first");
        let (words, _) = self.bytes[self.at..end].as_chunks::<8>();
        for word in words {
            self.state.absorb(u64::from_le_bytes(*word));
        }
        self.at += 8 * words.len();
    }

    /// The same hasher, continued with `bytes`, which must begin with the bytes absorbed so far.
    #[inline(always)]
    pub fn resume<'b>(&self, bytes: &'b [u8]) -> PrefixHasher<'b> {
        debug_assert!(
            bytes.starts_with(&self.bytes[..self.at]),
            "`bytes` begins with the absorbed bytes"
        );
        PrefixHasher { state: self.state, bytes, at: self.at }
    }

    /// The hash of the first `end` bytes. `end` must not decrease between calls.
    ///
    /// # Panics
    /// If `end` is greater than the length, or less than the bytes absorbed already.
    #[inline(always)]
    pub fn hash_to(&mut self, end: usize) -> u64 {
        self.absorb_to(end);
        let rest = end - self.at;
        let tail = match word_at(self.bytes, self.at) {
            // The mask covers `rest` bytes, fewer than 8.
            Some(word) => word & ((1 << (8 * rest)) - 1),
            None => short_word(&self.bytes[self.at..end]),
        };
        self.state.finish(tail, end)
    }
}

impl fmt::Debug for PrefixHasher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixHasher").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::Hasher as _;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    fn reference(key: [u64; 2], bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(key[0], key[1]);
        hasher.write(bytes);
        hasher.finish()
    }

    #[test]
    fn every_split_of_short_input_agrees() {
        let bytes: [u8; 20] = core::array::from_fn(|at| (at * 37 + 200) as u8);
        let key = [3, u64::MAX - 5];
        for end in 0..=bytes.len() {
            for cut in 0..=end {
                for second in [cut, (cut + end) / 2, end] {
                    let mut hasher = HashKey::new(key).hasher();
                    hasher.write(&bytes[..cut]);
                    hasher.write(&bytes[cut..second]);
                    hasher.write(&bytes[second..end]);
                    assert_eq!(
                        hasher.finish(),
                        reference(key, &bytes[..end]),
                        "{cut} {second} {end}"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn all_prefixes_equal_the_reference(
            key: [u64; 2],
            pieces in vec(vec(any::<u8>(), 0..40), 0..12),
        ) {
            let all = pieces.concat();
            let key_made = HashKey::new(key);
            let mut streaming = key_made.hasher();
            let mut prefixes = key_made.prefixes(&all);
            let mut end = 0;
            for piece in &pieces {
                streaming.write(piece);
                end += piece.len();
                let expected = reference(key, &all[..end]);
                prop_assert_eq!(streaming.finish(), expected);
                prop_assert_eq!(prefixes.hash_to(end), expected);
                let mut resumed = key_made.prefixes(&all[..end]);
                resumed.absorb_to(end);
                let whole = resumed.resume(&all).hash_to(all.len());
                prop_assert_eq!(whole, reference(key, &all));
            }
            prop_assert_eq!(key_made.hash(&all), reference(key, &all));
        }
    }
}
