//! What an Interest asks of the store, and the answers.

use crate::disk::OnDisk;
use weir_base::Packet;
use weir_wire::NameView;

/// The keyed hashes of a name that every lookup and insertion needs.
#[derive(Copy, Clone, Debug)]
pub struct NameHashes {
    pub whole: u64,
    /// That of the name without its last component; none when nothing is left. An Interest may
    /// leave it out unless its last component is an implicit digest.
    pub parent: Option<u64>,
    /// That of the name without its last two components; none when nothing is left. Only needed
    /// where the last component is an implicit digest and the store has a disk tier.
    pub grandparent: Option<u64>,
}

/// What an Interest asks of the store.
#[derive(Copy, Clone, Debug)]
pub struct Query<'a> {
    pub name: NameView<'a>,
    /// The keyed hashes of the name.
    pub hashes: NameHashes,
    /// Whether the name may be a proper prefix of that of the Data.
    pub can_be_prefix: bool,
    /// Whether the Data must be fresh.
    pub must_be_fresh: bool,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The store has matching Data.
    Hit(Hit),
    /// It is on a disk: the caller may [`Store::begin_read`](crate::Store::begin_read), or forward
    /// the Interest.
    OnDisk(OnDisk),
    /// It has not.
    Miss,
}

/// Data that answers a [`Query`].
#[derive(Clone, Debug)]
pub struct Hit {
    /// The whole Data TLV.
    pub packet: Packet,
    /// FreshnessPeriod of the Data in milliseconds, capped at 2^32 - 1.
    pub freshness_ms: u64,
    /// Whether the FreshnessPeriod has not passed since the Data came.
    pub is_fresh: bool,
}
