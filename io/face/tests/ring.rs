//! A stranger who writes into a ring.

#[path = "../../../fuzz/ring.rs"]
mod ring;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn whatever_a_stranger_writes_harms_nobody(script in proptest::collection::vec(any::<u8>(), 0..600)) {
        ring::check(&script);
    }
}
