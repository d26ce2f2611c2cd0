/// What the disk tier holds, and what happened so far.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct DiskTierStats {
    /// Records in the index.
    pub entries: u64,
    /// Octets that they take on disk.
    pub bytes: u64,
    /// Octets of RAM of index and filter.
    pub index_bytes: u64,
    /// Whether what was on disk before is still being read in.
    pub is_recovering: bool,
    /// Records found on disk at the start.
    pub recovered: u64,
    /// Regions of which the start could not read something, or found the header, the footer or the
    /// checkpoint damaged or lost: of what is in them only those records are known that were found
    /// one by one.
    pub regions_unreadable: u64,
    /// Reads that wait or are under way, now.
    pub reads_waiting: u64,
    /// Records that wait to be written or are being written, now.
    pub writes_waiting: u64,
    /// Lookups that the filter ended.
    pub filter_negatives: u64,
    /// Lookups that passed the filter and were not in the index.
    pub filter_false_positives: u64,
    /// Counters of the filter that ran full and stay so, now: they cost false positives. Next to
    /// none in a filter of the right size.
    pub filter_saturated: u64,
    /// Lookups answered from records that wait to be written.
    pub hits_unwritten: u64,
    /// Records read for Interests.
    pub reads: u64,
    /// Lookups that joined a read that was under way.
    pub reads_shared: u64,
    /// Reads refused because as many as may be were waiting.
    pub reads_refused: u64,
    /// Reads that the system failed.
    pub read_errors: u64,
    /// Records read that were not what they should be; never served.
    pub damaged: u64,
    /// Records written.
    pub writes: u64,
    /// Octets written, padding and checkpoints included.
    pub written_bytes: u64,
    /// Writes that the system failed; what they held is not stored.
    pub write_errors: u64,
    /// Data that the admission policy did not let on the disk.
    pub not_admitted: u64,
    /// Data that passed by because as many records as may be were waiting to be written.
    pub passed_by: u64,
    /// Data not stored because no disk takes any, or the index may not grow.
    pub no_room: u64,
    /// Records that made room for others.
    pub evictions: u64,
    /// Records erased by command.
    pub erasures: u64,
    /// Times that a disk was found stalled.
    pub stalls: u64,
    /// Disks that are stalled, now.
    pub stalled: u64,
    /// Which: bit n for disk n of [`DiskTierConfig::disks`](super::DiskTierConfig::disks).
    pub stalled_set: u64,
}

impl DiskTierStats {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        self.is_recovering |= other.is_recovering;
        let mut theirs = *other;
        for (mine, theirs) in self.counts_mut().into_iter().zip(theirs.counts_mut()) {
            *mine += *theirs;
        }
        // Shards share the disks: each sees the same one stall.
        self.stalled_set |= other.stalled_set;
        self.stalled = u64::from(self.stalled_set.count_ones());
    }

    fn counts_mut(&mut self) -> [&mut u64; 25] {
        [
            &mut self.entries,
            &mut self.bytes,
            &mut self.index_bytes,
            &mut self.recovered,
            &mut self.regions_unreadable,
            &mut self.reads_waiting,
            &mut self.writes_waiting,
            &mut self.filter_negatives,
            &mut self.filter_false_positives,
            &mut self.filter_saturated,
            &mut self.hits_unwritten,
            &mut self.reads,
            &mut self.reads_shared,
            &mut self.reads_refused,
            &mut self.read_errors,
            &mut self.damaged,
            &mut self.writes,
            &mut self.written_bytes,
            &mut self.write_errors,
            &mut self.not_admitted,
            &mut self.passed_by,
            &mut self.no_room,
            &mut self.evictions,
            &mut self.erasures,
            &mut self.stalls,
        ]
    }
}
