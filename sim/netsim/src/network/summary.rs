//! The results of a run as numbers.

/// The results of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of every trace line, which includes each hop of each packet. Runs of one plan have
    /// equal hashes.
    pub event_hash: u64,
    /// Whole packets delivered over links.
    pub packet_hops: u64,
    pub steps: u64,
    /// Events passed to the observer.
    pub events: u64,
    /// Elapsed virtual time, ns.
    pub virtual_ns: u64,
    pub damaged_frames: u64,
    /// How often a consumer found wrong bytes in a Data. All are due to faults: otherwise a check
    /// would have ended the run.
    pub damage_noticed: u64,
    /// Interests and Data that found a stage full, dropped or not.
    pub stage_full: u64,
    /// Interests that reached a router with a nonce it had seen before.
    pub interests_looped: u64,
}
