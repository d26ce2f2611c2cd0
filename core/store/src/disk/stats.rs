weir_base::counters! {
    /// The contents of the disk tier, and counters of events.
    #[derive(Copy)]
    pub struct DiskTierStats {
        /// Data packets on the disks.
        entries: Now, "disk_entries", status 6;
        /// Bytes of Data on the disks.
        bytes: Now, "disk_bytes", status 8;
        /// Memory of the index of the disks and its filter.
        index_bytes: Now, "disk_index_bytes", status 10;
        /// 1 while the router still reads at its start what its disks hold, else 0.
        recovering: Set, "disk_recovering", status 12;
        /// Records found on disk at the start.
        recovered: Now, "disk_recovered", status 14;
        /// Regions with an unreadable part, or with a damaged or missing header, footer or
        /// checkpoint. Only the records that a scan found are known.
        regions_unreadable: Now, "disk_regions_unreadable";
        /// Disk reads that wait or are in progress.
        reads_waiting: Now, "disk_reads_waiting", status 16;
        /// Records that wait to be written or are being written.
        writes_waiting: Now, "disk_writes_waiting", status 18;
        /// Bytes that wait to be written to disk.
        write_backlog_bytes: Now, "disk_write_backlog_bytes";
        /// Lookups for which memory alone showed that no disk has the Data.
        filter_negatives: Total, "disk_filter_negatives";
        /// Lookups that passed this filter although no disk had the Data.
        filter_false_positives: Total, "disk_filter_false_positives";
        /// Counters of the filter that reached their maximum and stay there. They cause false
        /// positives. A filter of the right size has next to none.
        filter_saturated: Now, "disk_filter_saturated";
        /// Lookups answered with Data that waits to be written.
        hits_unwritten: Total, "disk_hits_unwritten", status 46;
        /// Records read for Interests.
        reads: Total, "disk_reads", status 20;
        /// Lookups that joined a read in progress.
        reads_shared: Total, "disk_reads_shared", status 22;
        /// Disk reads refused because too many were waiting.
        reads_refused: Total, "disk_reads_refused", status 24;
        /// Disk reads that failed with a system error.
        read_errors: Total, "disk_read_errors", status 26;
        /// Records that were damaged when they were read; they are never served.
        damaged: Total, "disk_damaged", status 28;
        /// Records written.
        writes: Total, "disk_writes", status 30;
        /// Bytes written, including padding and checkpoints.
        written_bytes: Total, "disk_written_bytes", status 32;
        /// Disk writes that failed with a system error. Data that is still in memory is written
        /// again.
        write_errors: Total, "disk_write_errors", status 34;
        /// Data packets lost because their write failed after memory had evicted them.
        lost: Total, "disk_lost";
        /// Records erased because other Data of their name arrived.
        superseded: Total, "disk_superseded";
        /// Data packets that the admission policy kept off the disks.
        not_admitted: Total, "disk_not_admitted", status 36;
        /// Data packets not stored because too many records were waiting to be written.
        passed_by: Total, "disk_backlog_full", status 38;
        /// Data packets not stored because no disk can take them, or the index may not grow.
        no_room: Total, "disk_full", status 40;
        /// Data packets evicted from the disks for others.
        evictions: Total, "disk_evictions", status 42;
        /// Data packets erased from the disks by command.
        erasures: Total, "disk_erasures";
        /// Times that a disk stopped responding.
        stalls: Total, "disk_stalls", status 44;
        /// Number of disks that do not respond. Kept as a set with bit n for disk n of
        /// [`DiskTierConfig::disks`](super::DiskTierConfig::disks), since all shards see the same
        /// stalled disk.
        stalled_set: Set, "disks_stalled", status 2;
        /// The disks whose contents are still being recovered, as in `stalled_set`.
        unrecovered_set: Set;
    }
}

impl DiskTierStats {
    /// Whether the contents of the disks are still being recovered.
    pub fn is_recovering(&self) -> bool {
        self.recovering != 0
    }
}
