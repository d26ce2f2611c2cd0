//! How the memory that a router may take beside its content store is shared out.

/// Shares of one number of octets. They are bounds and not reservations: what one of them does not
/// use stays with the system.
///
/// Another sixteenth may be [shared with applications](shared_bytes). The rest, an eighth, is for
/// what has bounds of its own: faces, routes, and the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryShares {
    /// The PIT, with the Interests in it: a half.
    pub(crate) pit_bytes: u64,
    /// What waits to be sent on all faces: an eighth.
    pub(crate) egress_bytes: u64,
    /// Packets of which fragments are missing, of all faces: a sixteenth.
    pub(crate) reassembly_bytes: u64,
    /// Beginnings of packets on connections: a sixteenth.
    pub(crate) connection_bytes: u64,
    /// Free packet buffers that are kept for use again, of the thread's sockets and of its router
    /// one half each: a sixteenth.
    pub(crate) pool_bytes: u64,
}

impl MemoryShares {
    /// What one of `threads` packet threads has of `bytes_max` octets.
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

/// What applications and a router of `bytes_max` octets may share, all of them together: a
/// sixteenth.
pub(crate) fn shared_memory_bytes_max(bytes_max: u64) -> u64 {
    bytes_max / 16
}

/// The least that `threads` packet threads can work with, in octets.
pub fn memory_bytes_min(threads: usize) -> u64 {
    const LEAST_BYTES: u64 = 16 << 20;
    const THREAD_BYTES: u64 = 4 << 20;
    LEAST_BYTES.max(THREAD_BYTES * threads as u64)
}
