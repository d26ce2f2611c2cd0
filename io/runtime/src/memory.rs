//! Division of the router's memory, except that of its content store.

/// One worker thread's shares of the memory budget. They are upper limits, not reservations: unused
/// memory stays with the system.
///
/// Another sixteenth may be [shared with applications](shared_memory_bytes_max). The remaining
/// eighth is for structures that have limits of their own: faces, routes, and the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryShares {
    /// The PIT, including its Interests: half.
    pub(crate) pit_bytes: u64,
    /// Egress queues of all faces: an eighth.
    pub(crate) egress_bytes: u64,
    /// Partially reassembled packets of all faces: a sixteenth.
    pub(crate) reassembly_bytes: u64,
    /// Incomplete packets on connections: a sixteenth.
    pub(crate) connection_bytes: u64,
    /// Free packet buffers for reuse, half for the thread's sockets and half for its router: a
    /// sixteenth.
    pub(crate) pool_bytes: u64,
}

impl MemoryShares {
    /// The shares of one of `threads` worker threads.
    pub(crate) fn of(bytes_max: u64, threads: usize) -> Self {
        let thread_bytes = bytes_max / threads as u64;
        Self {
            pit_bytes: thread_bytes / 2,
            egress_bytes: thread_bytes / 8,
            reassembly_bytes: thread_bytes / 16,
            connection_bytes: thread_bytes / 16,
            pool_bytes: thread_bytes / 16,
        }
    }
}

/// Memory that the router shares with all applications together: a sixteenth.
pub(crate) fn shared_memory_bytes_max(bytes_max: u64) -> u64 {
    bytes_max / 16
}

/// Minimum memory for `threads` worker threads, in bytes.
pub fn memory_bytes_min(threads: usize) -> u64 {
    const LEAST_BYTES: u64 = 16 << 20;
    const THREAD_BYTES: u64 = 4 << 20;
    LEAST_BYTES.max(THREAD_BYTES * threads as u64)
}
