//! Entropy of the operating system, through the provider.

use aws_lc_rs::rand;

/// Fills `out` with unpredictable octets.
///
/// # Panics
/// If the operating system gives no entropy: nothing that needs it can go on.
pub(crate) fn fill_random(out: &mut [u8]) {
    rand::fill(out).expect("the operating system gives entropy");
}

/// `N` unpredictable octets: nonces of signed Interests, key identifiers, salts.
///
/// # Panics
/// As `fill_random`.
pub fn random_octets<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    fill_random(&mut out);
    out
}
