//! A stranger who writes into a ring.

#[path = "../../../fuzz/ring.rs"]
mod any_ring;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn whatever_a_stranger_writes_harms_nobody(script in vec(any::<u8>(), 0..600)) {
        any_ring::check(&script);
    }
}
