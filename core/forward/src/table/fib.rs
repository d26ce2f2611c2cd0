//! The forwarding information base.

use alloc::vec::Vec;

use weir_base::HashKey;
use weir_wire::InterestView;

use crate::io::NextHop;
use crate::table::prefixes::{PrefixHashes, PrefixTable};

/// The next hops of a prefix.
#[derive(Clone, Debug)]
pub(crate) struct FibEntry {
    /// Stays when the next hops change.
    pub(crate) id: u32,
    /// By rising cost.
    pub(crate) next_hops: Vec<NextHop>,
}

/// The FIB entry of an Interest: of its name, whose prefixes hash to `hashes`, or of the first
/// delegation of a forwarding hint that has one. `is_home`: the hint has led it here.
#[inline]
pub(crate) fn fib_entry<'a>(
    fib: &'a PrefixTable<FibEntry>,
    key: &HashKey,
    interest: &InterestView<'_>,
    hashes: &PrefixHashes,
    is_home: bool,
) -> Option<&'a FibEntry> {
    if interest.forwarding_hint.is_empty() || is_home {
        return fib.longest_match(interest.name, hashes);
    }
    interest.forwarding_hint.iter().find_map(|delegation| {
        let hashes = PrefixHashes::of(key, delegation, fib.lengths());
        fib.longest_match(delegation, &hashes)
    })
}
