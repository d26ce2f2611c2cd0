//! Content bytes. They depend on the name only, so every receiver can check them.

use super::random::mix;

/// Enough words for the largest packet.
const WORDS: usize = 1104;
const WORD: usize = 8;
/// Words compared before a difference is located.
const BLOCK: usize = 64;

/// Random words from which all content is made.
static TABLE: [u64; WORDS] = table();

const fn table() -> [u64; WORDS] {
    let mut table = [0; WORDS];
    let mut at = 0;
    while at < WORDS {
        table[at] = mix(at as u64 ^ 0x5EED_0F5E_ED0F_5EED);
        at += 1;
    }
    table
}

/// The content of one name. Word `i` is `(TABLE[i] ^ flip) + shift` in little endian. The name
/// selects `flip` and `shift`, so each byte takes all 256 values over the names. Vector
/// instructions make this as fast as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentKey {
    flip: u64,
    shift: u64,
}

impl ContentKey {
    /// Maximum content in bytes.
    pub(crate) const BYTES_MAX: usize = WORDS * WORD;

    /// The key of a segment of an object under the name that `stem` stands for.
    #[inline]
    pub(crate) fn new(stem: u64, object: u64, segment: u64) -> Self {
        let name = mix(mix(stem ^ mix(object)) ^ segment);
        Self { flip: name, shift: mix(name) }
    }

    #[inline(always)]
    fn word(self, table: u64) -> [u8; WORD] {
        (table ^ self.flip).wrapping_add(self.shift).to_le_bytes()
    }

    /// Writes the content.
    ///
    /// # Panics
    /// `out` is longer than [`Self::BYTES_MAX`].
    #[inline]
    pub(crate) fn fill(self, out: &mut [u8]) {
        assert!(out.len() <= Self::BYTES_MAX, "content must fit into a packet");
        let (words, rest) = out.as_chunks_mut::<WORD>();
        for (octets, &table) in words.iter_mut().zip(&TABLE) {
            *octets = self.word(table);
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&self.word(TABLE[words.len()])[..rest.len()]);
        }
    }

    /// Position of the first byte of `octets` that differs from the content. `octets` has at most
    /// [`Self::BYTES_MAX`] bytes.
    #[inline]
    pub(crate) fn first_difference(self, octets: &[u8]) -> Option<usize> {
        let (words, rest) = octets.as_chunks::<WORD>();
        let mut table = &TABLE[..];
        for block in words.chunks(BLOCK) {
            let (expected, after) = table.split_at(block.len());
            table = after;
            // Without an early exit, the compiler vectorises this loop.
            let different = block.iter().zip(expected).fold(0, |bits, (&word, &expected)| {
                bits | (u64::from_ne_bytes(word) ^ u64::from_ne_bytes(self.word(expected)))
            });
            if different != 0 {
                return self.search(octets);
            }
        }
        let is_same = rest.is_empty() || self.word(table[0])[..rest.len()] == *rest;
        if is_same { None } else { self.search(octets) }
    }

    #[cold]
    fn search(self, octets: &[u8]) -> Option<usize> {
        (0..octets.len()).find(|&at| octets[at] != self.word(TABLE[at / WORD])[at % WORD])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_wrong_byte() {
        let key = ContentKey::new(1, 2, 3);
        for len in [0, 1, 7, 8, 9, 255, 256, 257, 1000, 1024, ContentKey::BYTES_MAX] {
            let mut octets = vec![0; len];
            key.fill(&mut octets);
            assert_eq!(key.first_difference(&octets), None, "{len}");
            for at in (0..len).step_by(1 + len / 300) {
                octets[at] ^= 0x10;
                assert_eq!(key.first_difference(&octets), Some(at), "{len}");
                octets[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn other_names_have_other_content() {
        let mut octets = [0; 64];
        ContentKey::new(1, 2, 3).fill(&mut octets);
        for (stem, object, segment) in [(2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2), (2, 1, 3)] {
            let other = ContentKey::new(stem, object, segment);
            assert!(other.first_difference(&octets).is_some_and(|at| at < 4));
        }
        // Shifted content differs too.
        for slip in 1..32 {
            let difference = ContentKey::new(1, 2, 3).first_difference(&octets[slip..]);
            assert!(difference.is_some_and(|at| at < 4));
        }
    }
}
