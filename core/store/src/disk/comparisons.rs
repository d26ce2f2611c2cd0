//! Compares records with the fingerprints of newer Data before a stop.

use super::address::{Key, RecordAddress};
use super::op::{DiskOpKind, DiskOutcome};
use super::operations::OpPurpose;
use super::tier::DiskTier;

impl DiskTier {
    /// Starts to compare all records that have a fingerprint. Fingerprints do not survive a
    /// restart, so records that differ must be erased before a stop.
    pub(crate) fn begin_comparisons(&mut self) {
        for device in &mut self.devices {
            device.comparisons.clear();
        }
        let mut next = Key { object: 0, segment: 0 };
        while let Some(key) = self.fingerprints.first_from(next) {
            next = key.next();
            match self.find(key) {
                Some(address) => self.devices[usize::from(address.disk())].comparisons.push(key),
                None => drop(self.fingerprints.remove(key)),
            }
        }
    }

    /// The next record of a disk to compare.
    pub(super) fn next_comparison(&mut self, disk: usize) -> Option<(OpPurpose, DiskOpKind)> {
        while let Some(key) = self.devices[disk].comparisons.pop() {
            let Some(address) =
                self.find(key).filter(|address| usize::from(address.disk()) == disk)
            else {
                continue;
            };
            if self.fingerprints.find(key).is_none() || self.pending.find(address).is_some() {
                continue;
            }
            self.devices[disk].comparing += 1;
            let kind = self.devices[disk].read_record(address);
            return Some((OpPurpose::Comparison(key, address), kind));
        }
        None
    }

    pub(super) fn on_comparison(
        &mut self,
        key: Key,
        address: RecordAddress,
        outcome: &DiskOutcome,
    ) {
        self.devices[usize::from(address.disk())].comparing -= 1;
        // Skip a record that was replaced, erased or evicted during the read.
        if self.find(key) != Some(address) {
            return;
        }
        let Some(fingerprint) = self.fingerprints.find(key) else { return };
        match outcome {
            DiskOutcome::Record { packet, .. } => {
                if self.config.hash_key.hash(packet) == fingerprint {
                    self.fingerprints.remove(key);
                } else {
                    self.erase_unverified(key);
                }
            }
            // It cannot be compared, so it must not be served.
            DiskOutcome::Failed(_) => {
                self.stats.read_errors += 1;
                self.erase_unverified(key);
            }
            DiskOutcome::Damaged(_) | DiskOutcome::Raw(_) | DiskOutcome::Written => {
                self.stats.damaged += 1;
                self.discard_record(key, address);
            }
        }
    }
}
