//! Property tests of a hostile peer: arbitrary writes into a ring, and arbitrary use of a
//! connection.

#[path = "../../../fuzz/ring.rs"]
mod any_ring;
#[path = "../../../fuzz/shared.rs"]
mod any_shared;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn arbitrary_ring_writes_are_safe(script in vec(any::<u8>(), 0..600)) {
        any_ring::check(&script);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn arbitrary_shared_peer_is_safe(script in vec(any::<u8>(), 0..240)) {
        any_shared::check(&script);
    }
}
