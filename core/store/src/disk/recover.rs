//! How what is on the disks is found again at a start.

use super::checkpoint::Erasure;
use super::device::Device;
use super::op::{DiskOpKind, DiskOutcome};
use super::tier::{DiskTier, Purpose};
use weir_base::Instant;

pub(super) struct Recovery {}

impl Recovery {
    pub(super) fn new(_devices: &[Device]) -> Self {
        Self {}
    }
    pub(super) fn is_over(&self) -> bool {
        true
    }
    pub(super) fn has_work(&self) -> bool {
        false
    }
    pub(super) fn on_erased(&mut self, _erasure: Erasure) {}
    pub(super) fn next_read(&mut self, _disk: usize, _depth: u32) -> Option<(Purpose, DiskOpKind)> {
        None
    }
}

impl DiskTier {
    pub(super) fn on_recovery_read(
        &mut self,
        _now: Instant,
        _disk: usize,
        _tag: u32,
        _outcome: DiskOutcome,
    ) {
    }
    pub(super) fn recover_further(&mut self, _now: Instant) {}
}
