//! Disks as byte vectors in memory.

use weir_base::Packet;
use weir_store::disk::{DiskOp, DiskOpKind, DiskOutcome, record};

pub(super) const STORE_ID: u64 = 0x5157_0BE5;
pub(super) const REGIONS: u32 = 8;
pub(super) const REGION_BYTES: u64 = 64 << 10;
pub(super) const DISK_OCTETS: usize = 4096 + REGIONS as usize * REGION_BYTES as usize;

pub(super) fn checksum(octets: &[u8]) -> u32 {
    octets
        .iter()
        .fold(0x811C_9DC5, |sum, &octet| (sum ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}

/// The result of an operation that succeeds.
pub(super) fn carry_out(disk: &mut [u8], op: &DiskOp) -> DiskOutcome {
    match &op.kind {
        DiskOpKind::Write { offset, len, sequence, chunks: parts } => {
            let place =
                record::RecordLocation { store_id: STORE_ID, offset: *offset, sequence: *sequence };
            let (at, len) = (*offset as usize, *len as usize);
            record::encode_chunks(parts, &place, 512, checksum, &mut disk[at..at + len]);
            DiskOutcome::Written
        }
        &DiskOpKind::ReadRaw { offset, len } => {
            DiskOutcome::Raw(disk[offset as usize..][..len as usize].to_vec())
        }
        &DiskOpKind::ReadRecord { offset, len, sequence } => {
            let place = record::RecordLocation { store_id: STORE_ID, offset, sequence };
            let octets = &disk[offset as usize..][..len as usize];
            match record::parse_data(octets, &place, checksum) {
                Ok(found) => DiskOutcome::Record {
                    packet: Packet::from(found.body),
                    fresh_until_unix_ms: found.fresh_until_unix_ms,
                },
                Err(fault) => DiskOutcome::Damaged(fault),
            }
        }
    }
}
