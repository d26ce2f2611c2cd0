//! Operations that are under way.

use super::address::{Key, RecordAddress};
use super::device::WriteBatch;
use super::op::DiskOpId;
use weir_base::Slab;

/// What an operation is for.
pub(super) enum OpPurpose {
    Read(u32),
    Write(WriteBatch),
    Recovery(u32),
    /// Whether a record is the Data that has come since, whose fingerprint is known.
    Comparison(Key, RecordAddress),
}

/// An operation that is under way.
pub(super) struct RunningOp {
    id: DiskOpId,
    pub(super) disk: u8,
    pub(super) purpose: OpPurpose,
}

/// The operations that are under way.
#[derive(Default)]
pub(super) struct Operations {
    running: Slab<RunningOp>,
    serial: u64,
}

impl Operations {
    /// Begins an operation. Its number never comes again, and says where to look.
    pub(super) fn begin(&mut self, disk: u8, purpose: OpPurpose) -> DiskOpId {
        let slot = self.running.insert(RunningOp { id: DiskOpId(0), disk, purpose });
        self.serial += 1;
        let id = DiskOpId(self.serial << 16 | u64::from(slot));
        self.running[slot].id = id;
        id
    }

    pub(super) fn is_running(&self, id: DiskOpId) -> bool {
        self.running.get(slot_of(id)).is_some_and(|running| running.id == id)
    }

    /// Ends an operation, if it is under way.
    pub(super) fn end(&mut self, id: DiskOpId) -> Option<RunningOp> {
        self.is_running(id).then(|| self.running.remove(slot_of(id)))
    }

    pub(super) fn of_disk(&self, disk: usize) -> impl Iterator<Item = &RunningOp> {
        let running = self.running.iter().map(|(_, running)| running);
        running.filter(move |running| usize::from(running.disk) == disk)
    }
}

fn slot_of(id: DiskOpId) -> u32 {
    (id.0 & 0xFFFF) as u32
}
