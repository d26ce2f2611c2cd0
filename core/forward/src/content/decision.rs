//! What the content store makes of an Interest that it has not answered from memory.

use weir_store::NameHashes;
use weir_store::disk::{OnDisk, ReadId};

use crate::content::bypass::DiskBypass;

/// Where an Interest goes that the store has not answered.
pub(crate) enum StoreDecision {
    /// To FIB and strategy.
    Forward,
    /// There too, although a disk has what it asks for.
    Bypass(DiskBypass),
    /// Nowhere: a disk is asked.
    ReadDisk(BegunRead),
    /// To the disk that it had passed by, or else to FIB and strategy.
    RetryDisk(NameHashes),
    /// Nowhere: its PIT entry waits already.
    Aggregate,
}

/// A read that was begun, or joined, for an Interest.
pub(crate) struct BegunRead {
    pub(crate) id: ReadId,
    pub(crate) found: OnDisk,
    /// Whether the Data is to be marked.
    pub(crate) is_marked: bool,
}
