//! What a run amounts to in numbers.

/// What a run amounted to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened, every hop of every packet included. One plan, one hash.
    pub event_hash: u64,
    /// Packets that were delivered over a link, whole.
    pub packet_hops: u64,
    pub steps: u64,
    /// Events given to the observer.
    pub events: u64,
    /// Virtual time that has passed, ns.
    pub virtual_ns: u64,
    pub damaged_frames: u64,
    /// Times that a consumer found wrong octets in Data, all of it because of such a fault: else
    /// the run would have ended.
    pub damage_noticed: u64,
    /// Interests and Data that found a stage full, whether they passed by or were dropped.
    pub stage_full: u64,
    /// Interests that came to a router with a nonce that was there before.
    pub interests_looped: u64,
}
