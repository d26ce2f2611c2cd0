//! A stranger who writes into a ring, or does what he likes with a connection and its memory.

#[path = "../../../fuzz/ring.rs"]
mod any_ring;
#[path = "../../../fuzz/shared.rs"]
mod any_shared;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn whatever_a_stranger_writes_harms_nobody(script in vec(any::<u8>(), 0..600)) {
        any_ring::check(&script);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn whatever_a_stranger_does_harms_nobody(script in vec(any::<u8>(), 0..240)) {
        any_shared::check(&script);
    }
}
