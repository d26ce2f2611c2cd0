//! Entropy of the operating system, through the provider.

use aws_lc_rs::rand;

/// Fills `out` with random bytes.
///
/// # Panics
/// The operating system has no entropy. Nothing that needs it can continue.
pub(crate) fn fill_random(out: &mut [u8]) {
    rand::fill(out).expect("the operating system provides entropy");
}

/// `N` random bytes, for nonces of signed Interests, key identifiers and salts.
///
/// # Panics
/// As `fill_random`.
pub fn random_octets<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    fill_random(&mut out);
    out
}
