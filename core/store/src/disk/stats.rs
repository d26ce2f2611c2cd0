weir_base::counters! {
    /// What the disk tier holds, and what happened so far.
    #[derive(Copy)]
    pub struct DiskTierStats {
        /// Records in the index.
        entries: Now, "disk_entries", status 6;
        /// Octets that they take on disk.
        bytes: Now, "disk_bytes", status 8;
        /// Octets of RAM of index and filter.
        index_bytes: Now, "disk_index_bytes", status 10;
        /// 1 while what was on disk before is still being read in.
        recovering: Set, "disk_recovering", status 12;
        /// Records found on disk at the start.
        recovered: Now, "disk_recovered", status 14;
        /// Regions of which the start could not read something, or found the header, the footer or
        /// the checkpoint damaged or lost: of what is in them only those records are known that
        /// were found one by one.
        regions_unreadable: Now, "disk_regions_unreadable";
        /// Reads that wait or are under way.
        reads_waiting: Now, "disk_reads_waiting", status 16;
        /// Records that wait to be written or are being written.
        writes_waiting: Now, "disk_writes_waiting", status 18;
        /// Octets of the disks that those records will take.
        write_backlog_bytes: Now, "disk_write_backlog_bytes";
        /// Lookups that the filter ended.
        filter_negatives: Total, "disk_filter_negatives";
        /// Lookups that passed the filter and were not in the index.
        filter_false_positives: Total, "disk_filter_false_positives";
        /// Counters of the filter that ran full and stay so: they cost false positives. Next to
        /// none in a filter of the right size.
        filter_saturated: Now, "disk_filter_saturated";
        /// Lookups answered from records that wait to be written.
        hits_unwritten: Total, "disk_hits_unwritten", status 46;
        /// Records read for Interests.
        reads: Total, "disk_reads", status 20;
        /// Lookups that joined a read that was under way.
        reads_shared: Total, "disk_reads_shared", status 22;
        /// Reads refused because as many as may be were waiting.
        reads_refused: Total, "disk_reads_refused", status 24;
        /// Reads that the system failed.
        read_errors: Total, "disk_read_errors", status 26;
        /// Records read that were not what they should be; never served.
        damaged: Total, "disk_damaged", status 28;
        /// Records written.
        writes: Total, "disk_writes", status 30;
        /// Octets written, padding and checkpoints included.
        written_bytes: Total, "disk_written_bytes", status 32;
        /// Writes that the system failed. What memory still holds of it is written again.
        write_errors: Total, "disk_write_errors", status 34;
        /// Data lost because the write of it failed when memory did not hold it any more.
        lost: Total, "disk_lost";
        /// Records erased because other Data of their name has come.
        superseded: Total, "disk_superseded";
        /// Data that the admission policy did not let on the disk.
        not_admitted: Total, "disk_not_admitted", status 36;
        /// Data that passed by because as many records as may be were waiting to be written.
        passed_by: Total, "disk_passed_by", status 38;
        /// Data not stored because no disk takes any, or the index may not grow.
        no_room: Total, "disk_no_room", status 40;
        /// Records that made room for others.
        evictions: Total, "disk_evictions", status 42;
        /// Records erased by command.
        erasures: Total, "disk_erasures";
        /// Times that a disk was found stalled.
        stalls: Total, "disk_stalls", status 44;
        /// Number of disks that do not answer. Kept as a set: bit n for disk n of
        /// [`DiskTierConfig::disks`](super::DiskTierConfig::disks), since shards share the disks
        /// and each sees the same one stall.
        stalled_set: Set, "disks_stalled", status 2;
    }
}

impl DiskTierStats {
    /// Whether what was on disk before is still being read in.
    pub fn is_recovering(&self) -> bool {
        self.recovering != 0
    }
}
