//! Queries of the store, and their answers.

use crate::disk::OnDisk;
use weir_base::Packet;
use weir_wire::NameView;

/// The keyed hashes of a name that every lookup and insertion needs.
#[derive(Copy, Clone, Debug)]
pub struct NameHashes {
    pub whole: u64,
    /// The hash of the name without its last component; `None` if nothing is left. For an Interest,
    /// it is only needed if the last component is an implicit digest, or if the store has a disk
    /// tier.
    pub parent: Option<u64>,
    /// The hash of the name without its last two components; `None` if nothing is left. Only needed
    /// if the last component is an implicit digest and the store has a disk tier.
    pub grandparent: Option<u64>,
}

/// What an Interest requests from the store.
#[derive(Copy, Clone, Debug)]
pub struct Query<'a> {
    pub name: NameView<'a>,
    pub hashes: NameHashes,
    /// Whether the name may be a proper prefix of the Data's name.
    pub can_be_prefix: bool,
    pub must_be_fresh: bool,
}

#[derive(Clone, Debug)]
pub enum Lookup {
    /// The store has matching Data in memory.
    Hit(Hit),
    /// A disk probably has it: the caller may call [`Store::begin_read`](crate::Store::begin_read),
    /// or forward the Interest.
    OnDisk(OnDisk),
    /// The store does not have it.
    Miss,
}

#[derive(Clone, Debug)]
pub struct Hit {
    pub packet: Packet,
    /// FreshnessPeriod of the Data in milliseconds, capped at 2^32 - 1.
    pub freshness_ms: u64,
    /// Whether the Data arrived less than its FreshnessPeriod ago.
    pub is_fresh: bool,
}
