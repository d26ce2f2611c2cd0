//! SHA-256 of sixteen messages in parallel, one in each lane of AVX-512.
//!
//! With the SHA extensions, a single message is hashed at about two bytes a cycle, because each
//! round waits for the one before. Sixteen messages do not wait for each other.

/// Messages that are hashed in parallel.
pub const SHA256_LANES: usize = 16;

const BLOCK: usize = 64;

/// The SHA-256 digests (FIPS 180-4) of sixteen messages of any lengths, or `None` on a processor
/// without AVX-512. The call takes as long as the longest message needs, so messages of similar
/// length gain most.
pub fn sha256_lanes(messages: &[&[u8]; SHA256_LANES]) -> Option<[[u8; 32]; SHA256_LANES]> {
    #[cfg(target_arch = "x86_64")]
    if avx512::is_available() {
        // SAFETY: the processor has what the function needs.
        return Some(unsafe { avx512::digests(messages) });
    }
    let _ = messages;
    None
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use core::arch::x86_64::{
        __m512i, __mmask16, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_mov_epi32,
        _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set4_epi32, _mm512_setzero_si512,
        _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_storeu_si512,
        _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
        _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    use super::{BLOCK, SHA256_LANES};

    cpufeatures::new!(has_avx512, "avx512f", "avx512bw");

    /// Whether the processor supports [`digests`].
    pub(super) fn is_available() -> bool {
        has_avx512::get()
    }

    /// A word of each lane's state before the first block (FIPS 180-4, 5.3.3).
    const INITIAL: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];

    /// A word for each round (FIPS 180-4, 4.2.2).
    #[rustfmt::skip]
    const ROUNDS: [u32; 64] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4,
        0xab1c_5ed5, 0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe,
        0x9bdc_06a7, 0xc19b_f174, 0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f,
        0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da, 0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7,
        0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967, 0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc,
        0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85, 0xa2bf_e8a1, 0xa81a_664b,
        0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070, 0x19a4_c116,
        0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7,
        0xc671_78f2,
    ];

    // Ternary logic by truth table, first operand 0xf0, second 0xcc, third 0xaa.
    const XOR: i32 = 0xf0 ^ 0xcc ^ 0xaa;
    const CHOOSE: i32 = (0xf0 & 0xcc) | (!0xf0 & 0xaa & 0xff);
    const MAJORITY: i32 = (0xf0 & 0xcc) | (0xf0 & 0xaa) | (0xcc & 0xaa);

    /// The bytes of a message after its last whole block, the 1 bit, zeros and the length (FIPS
    /// 180-4, 5.1.1): one block or two.
    struct Tail {
        blocks: [[u8; BLOCK]; 2],
        count: usize,
    }

    impl Tail {
        fn of(message: &[u8]) -> Self {
            let rest = &message[message.len() / BLOCK * BLOCK..];
            let count = if rest.len() < BLOCK - 8 { 1 } else { 2 };
            let mut blocks = [[0; BLOCK]; 2];
            let bits = 8 * message.len() as u64;
            blocks[0][..rest.len()].copy_from_slice(rest);
            blocks[0][rest.len()] = 0x80;
            blocks[count - 1][BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
            Self { blocks, count }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn digests(messages: &[&[u8]; SHA256_LANES]) -> [[u8; 32]; SHA256_LANES] {
        let tails = messages.map(Tail::of);
        let whole = messages.map(|message| message.len() / BLOCK);
        let blocks: [usize; SHA256_LANES] =
            core::array::from_fn(|lane| whole[lane] + tails[lane].count);
        let shortest = whole.iter().copied().min().unwrap_or(0);
        let longest = blocks.iter().copied().max().unwrap_or(0);
        let mut state = INITIAL.map(|word| _mm512_set1_epi32(word.cast_signed()));
        for at in 0..shortest {
            let block = |lane: usize| {
                let block: Option<&[u8; BLOCK]> = messages[lane][at * BLOCK..].first_chunk();
                block.expect("every message has at least `shortest` blocks")
            };
            state = compress(state, words(core::array::from_fn(block)));
        }
        for at in shortest..longest {
            // A lane that is finished takes part with an arbitrary block and keeps its state.
            let block = |lane: usize| -> &[u8; BLOCK] {
                match messages[lane].get(at * BLOCK..).and_then(<[u8]>::first_chunk) {
                    Some(block) => block,
                    None => &tails[lane].blocks[(at - whole[lane]).min(tails[lane].count - 1)],
                }
            };
            let is_open = |lane: &usize| at < blocks[*lane];
            let open: __mmask16 =
                (0..SHA256_LANES).filter(is_open).fold(0, |m, lane| m | 1 << lane);
            let next = compress(state, words(core::array::from_fn(block)));
            for (word, next) in state.iter_mut().zip(next) {
                *word = _mm512_mask_mov_epi32(*word, open, next);
            }
        }
        let mut digests = [[0; 32]; SHA256_LANES];
        for (at, word) in state.into_iter().enumerate() {
            let mut lanes = [0u32; SHA256_LANES];
            // SAFETY: the array has the 64 bytes that are stored, at any alignment.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), word) };
            for (digest, lane) in digests.iter_mut().zip(lanes) {
                digest[4 * at..4 * at + 4].copy_from_slice(&lane.to_be_bytes());
            }
        }
        digests
    }

    /// The sixteen words of each lane's block, word by word: a transposition.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn words(blocks: [&[u8; BLOCK]; SHA256_LANES]) -> [__m512i; 16] {
        let mut rows = [_mm512_setzero_si512(); 16];
        for (row, block) in rows.iter_mut().zip(blocks) {
            // SAFETY: the block has the 64 bytes that are loaded, at any alignment.
            *row = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        }
        // Within each quarter of a row: the words of four rows next to each other.
        let mut quarters = [_mm512_setzero_si512(); 16];
        for group in 0..4 {
            let [a, b, c, d] = rows.as_chunks::<4>().0[group];
            let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (low2, high2) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            quarters[group] = _mm512_unpacklo_epi64(low, low2);
            quarters[4 + group] = _mm512_unpackhi_epi64(low, low2);
            quarters[8 + group] = _mm512_unpacklo_epi64(high, high2);
            quarters[12 + group] = _mm512_unpackhi_epi64(high, high2);
        }
        // Swaps the bytes of big-endian words.
        let order = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
        let mut words = [_mm512_setzero_si512(); 16];
        for word in 0..4 {
            let [a, b, c, d] = quarters.as_chunks::<4>().0[word];
            let (ab, ab2) = (
                _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b),
            );
            let (cd, cd2) = (
                _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d),
            );
            let columns = [
                _mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd),
                _mm512_shuffle_i32x4::<0b10_00_10_00>(ab2, cd2),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(ab2, cd2),
            ];
            for (quarter, column) in columns.into_iter().enumerate() {
                words[4 * quarter + word] = _mm512_shuffle_epi8(column, order);
            }
        }
        words
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(a, b)
    }

    /// The compression function of FIPS 180-4, 6.2.2, for all lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn compress(before: [__m512i; 8], mut words: [__m512i; 16]) -> [__m512i; 8] {
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = before;
        for (sixteen, constants) in ROUNDS.as_chunks::<16>().0.iter().enumerate() {
            for (at, &constant) in constants.iter().enumerate() {
                // The message schedule: from round 16 on, each word depends on four earlier ones.
                if sixteen > 0 {
                    let (w2, w15) = (words[(at + 14) % 16], words[(at + 1) % 16]);
                    let sigma0 = _mm512_ternarylogic_epi32::<XOR>(
                        _mm512_ror_epi32::<7>(w15),
                        _mm512_ror_epi32::<18>(w15),
                        _mm512_srli_epi32::<3>(w15),
                    );
                    let sigma1 = _mm512_ternarylogic_epi32::<XOR>(
                        _mm512_ror_epi32::<17>(w2),
                        _mm512_ror_epi32::<19>(w2),
                        _mm512_srli_epi32::<10>(w2),
                    );
                    let w7 = words[(at + 9) % 16];
                    words[at] = add(add(words[at], sigma0), add(w7, sigma1));
                }
                let sum1 = _mm512_ternarylogic_epi32::<XOR>(
                    _mm512_ror_epi32::<6>(e),
                    _mm512_ror_epi32::<11>(e),
                    _mm512_ror_epi32::<25>(e),
                );
                let sum0 = _mm512_ternarylogic_epi32::<XOR>(
                    _mm512_ror_epi32::<2>(a),
                    _mm512_ror_epi32::<13>(a),
                    _mm512_ror_epi32::<22>(a),
                );
                let chosen = _mm512_ternarylogic_epi32::<CHOOSE>(e, f, g);
                let majority = _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c);
                let constant = _mm512_set1_epi32(constant.cast_signed());
                let first = add(add(add(h, constant), words[at]), add(sum1, chosen));
                (h, g, f, e) = (g, f, e, add(d, first));
                (d, c, b, a) = (c, b, a, add(first, add(sum0, majority)));
            }
        }
        let mut after = [a, b, c, d, e, f, g, h];
        for (word, before) in after.iter_mut().zip(before) {
            *word = add(*word, before);
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::{SHA256_LANES, sha256_lanes};

    fn assert_digests(messages: &[Vec<u8>; SHA256_LANES]) {
        let Some(digests) = sha256_lanes(&messages.each_ref().map(Vec::as_slice)) else { return };
        for (message, digest) in messages.iter().zip(digests) {
            assert_eq!(digest, *Sha256::digest(message), "{} bytes", message.len());
        }
    }

    /// All lengths around the ends of blocks, each in every lane.
    #[test]
    fn lanes_of_any_lengths_are_right() {
        for first in 0..260_usize {
            assert_digests(&core::array::from_fn(|lane| {
                let len = if lane % 3 == 0 { first } else { (first * 7 + lane * 61) % 300 };
                (0..len).map(|at| (at * 31 + lane * 7 + first) as u8).collect()
            }));
        }
    }

    fn message() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..9000)
    }

    proptest! {
        #[test]
        fn any_messages(messages in prop::array::uniform16(message())) {
            assert_digests(&messages);
        }
    }
}
