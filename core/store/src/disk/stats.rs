weir_base::counters! {
    /// The contents of the disk tier, and counters of events.
    #[derive(Copy)]
    pub struct DiskTierStats {
        /// Records in the index.
        entries: Now, "disk_entries", status 6;
        /// Bytes of these records on disk.
        bytes: Now, "disk_bytes", status 8;
        /// Bytes of memory for index and filter.
        index_bytes: Now, "disk_index_bytes", status 10;
        /// 1 while the contents of the disks are still being recovered.
        recovering: Set, "disk_recovering", status 12;
        /// Records found on disk at the start.
        recovered: Now, "disk_recovered", status 14;
        /// Regions with an unreadable part, or with a damaged or missing header, footer or
        /// checkpoint. Only the records that a scan found are known.
        regions_unreadable: Now, "disk_regions_unreadable";
        /// Reads that wait or are in progress.
        reads_waiting: Now, "disk_reads_waiting", status 16;
        /// Records that wait to be written or are being written.
        writes_waiting: Now, "disk_writes_waiting", status 18;
        /// Bytes that these records will take on disk.
        write_backlog_bytes: Now, "disk_write_backlog_bytes";
        /// Lookups that the filter answered.
        filter_negatives: Total, "disk_filter_negatives";
        /// Lookups that passed the filter but were not in the index.
        filter_false_positives: Total, "disk_filter_false_positives";
        /// Counters of the filter that reached their maximum and stay there. They cause false
        /// positives. A filter of the right size has next to none.
        filter_saturated: Now, "disk_filter_saturated";
        /// Lookups answered from records that wait to be written.
        hits_unwritten: Total, "disk_hits_unwritten", status 46;
        /// Records read for Interests.
        reads: Total, "disk_reads", status 20;
        /// Lookups that joined a read in progress.
        reads_shared: Total, "disk_reads_shared", status 22;
        /// Reads refused because too many were waiting.
        reads_refused: Total, "disk_reads_refused", status 24;
        /// Reads that the system reported an error for.
        read_errors: Total, "disk_read_errors", status 26;
        /// Records read that were not the expected ones; never served.
        damaged: Total, "disk_damaged", status 28;
        /// Records written.
        writes: Total, "disk_writes", status 30;
        /// Bytes written, including padding and checkpoints.
        written_bytes: Total, "disk_written_bytes", status 32;
        /// Writes that the system reported an error for. Data that is still in memory is written
        /// again.
        write_errors: Total, "disk_write_errors", status 34;
        /// Data packets lost because their write failed after memory had evicted them.
        lost: Total, "disk_lost";
        /// Records erased because other Data of their name arrived.
        superseded: Total, "disk_superseded";
        /// Data packets that the admission policy kept off the disks.
        not_admitted: Total, "disk_not_admitted", status 36;
        /// Data packets not stored because too many records were waiting to be written.
        passed_by: Total, "disk_passed_by", status 38;
        /// Data packets not stored because no disk can take them, or the index may not grow.
        no_room: Total, "disk_no_room", status 40;
        /// Records evicted for others.
        evictions: Total, "disk_evictions", status 42;
        /// Records erased by command.
        erasures: Total, "disk_erasures";
        /// How often a disk was found stalled.
        stalls: Total, "disk_stalls", status 44;
        /// Number of disks that do not respond. Kept as a set with bit n for disk n of
        /// [`DiskTierConfig::disks`](super::DiskTierConfig::disks), since all shards see the same
        /// stalled disk.
        stalled_set: Set, "disks_stalled", status 2;
    }
}

impl DiskTierStats {
    /// Whether the contents of the disks are still being recovered.
    pub fn is_recovering(&self) -> bool {
        self.recovering != 0
    }
}
