//! Operations that the driver has started and not finished.

use super::address::{Key, RecordAddress};
use super::device::WriteBatch;
use super::op::DiskOpId;
use weir_base::Slab;

pub(super) enum OpPurpose {
    Read(u32),
    Write(WriteBatch),
    Recovery(u32),
    /// Compares a record with the fingerprint of newer Data.
    Comparison(Key, RecordAddress),
}

pub(super) struct RunningOp {
    id: DiskOpId,
    pub(super) disk: u8,
    pub(super) purpose: OpPurpose,
}

#[derive(Default)]
pub(super) struct Operations {
    running: Slab<RunningOp>,
    serial: u64,
}

impl Operations {
    /// Adds an operation. Its identifier is never used again; the low 16 bits are its slot.
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

    /// Removes an operation, if it is in progress.
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
