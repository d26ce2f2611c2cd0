//! Checks that tables and queues stay within their configured bounds, that only long queues set
//! marks, and that PITs are empty at the end.

use weir_forward::{RouterConfig, RouterStats};

/// Compares the tables of one shard with its configuration.
pub(crate) fn router(stats: &RouterStats, config: &RouterConfig) -> Result<(), String> {
    if stats.store.bytes > stats.store.capacity_bytes {
        let (bytes, capacity) = (stats.store.bytes, stats.store.capacity_bytes);
        return Err(format!("the store holds {bytes} bytes, more than its capacity of {capacity}"));
    }
    if stats.pit_entries > config.pit_entries_max as u64 {
        let (entries, max) = (stats.pit_entries, config.pit_entries_max);
        return Err(format!("the PIT has {entries} entries, more than its limit of {max}"));
    }
    if stats.dead_nonces > config.dead_nonces_max as u64 {
        let (nonces, max) = (stats.dead_nonces, config.dead_nonces_max);
        return Err(format!(
            "the dead nonce list has {nonces} entries, more than its limit of {max}"
        ));
    }
    Ok(())
}

/// Checks a queue that holds `len` packets or bytes against its limit `max`.
pub(crate) fn queue(what: &str, len: u64, max: u64) -> Result<(), String> {
    if len <= max {
        return Ok(());
    }
    Err(format!("{what} holds {len}, more than its limit of {max}"))
}

/// Checks that the queue justified a mark.
pub(crate) fn mark(backlog_bytes: u64, threshold_bytes: u64) -> Result<(), String> {
    if backlog_bytes > threshold_bytes {
        return Ok(());
    }
    Err(format!(
        "a packet was marked with {backlog_bytes} bytes queued; the threshold is {threshold_bytes}"
    ))
}

/// Checks the PIT at the end of a run, when no packet is in flight.
pub(crate) fn drained(pit_entries: u64) -> Result<(), String> {
    if pit_entries == 0 {
        return Ok(());
    }
    Err(format!("{pit_entries} Interests are still pending after all lifetimes have expired"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_one_entry_over_the_bound() {
        let config =
            RouterConfig { pit_entries_max: 5, dead_nonces_max: 7, ..RouterConfig::default() };
        let mut stats = RouterStats { pit_entries: 5, dead_nonces: 7, ..RouterStats::default() };
        stats.store.bytes = 100;
        stats.store.capacity_bytes = 100;
        assert_eq!(router(&stats, &config), Ok(()));
        stats.store.bytes += 1;
        assert!(router(&stats, &config).unwrap_err().contains("101 bytes"));
        stats.store.bytes = 0;
        stats.pit_entries = 6;
        assert!(router(&stats, &config).unwrap_err().contains("PIT"));
        stats.pit_entries = 0;
        stats.dead_nonces = 8;
        assert!(router(&stats, &config).unwrap_err().contains("nonce"));
    }

    #[test]
    fn checks_queues_marks_and_final_pit() {
        assert_eq!(queue("stage", 3, 3), Ok(()));
        assert!(queue("stage", 4, 3).is_err());
        assert_eq!(mark(65_537, 65_536), Ok(()));
        assert!(mark(65_536, 65_536).is_err());
        assert_eq!(drained(0), Ok(()));
        assert!(drained(1).is_err());
    }
}
