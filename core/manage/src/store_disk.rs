//! What `cs/info` tells of the disks of a content store: Weir's own, which other programs skip.

use crate::element::{DecodeError, Element, Elements, Writer};
use crate::numbers::types;

macro_rules! disk_numbers {
    ($($(#[$doc:meta])* $field:ident = $offset:literal,)+) => {
        /// The disks of a content store. A number that is not there is 0, so that more of them can
        /// come.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CsDiskInfo {
            $($(#[$doc])* pub $field: u64,)+
        }

        impl Element for CsDiskInfo {
            const TYPE: u32 = types::STORE_DISK;

            fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
                let mut info = Self::default();
                for element in Elements::new(value) {
                    let element = element?;
                    match element.typ.checked_sub(types::STORE_DISK_FIRST) {
                        $(Some($offset) => info.$field = element.number()?,)+
                        _ => element.skip()?,
                    }
                }
                Ok(info)
            }

            fn encode_value(&self, writer: &mut Writer) {
                $(writer.number(types::STORE_DISK_FIRST + $offset, self.$field);)+
            }
        }
    };
}

// Even: whoever does not know one passes over it.
disk_numbers! {
    /// Files and devices.
    disks = 0,
    /// Those of them that do not answer now.
    stalled = 2,
    /// Octets that they have for records.
    capacity_bytes = 4,
    /// Records.
    entries = 6,
    /// Octets that these take on disk.
    bytes = 8,
    /// Memory of index and filter.
    index_bytes = 10,
    /// 1 while what was there at the start is still being read in.
    is_recovering = 12,
    /// Records found at the start.
    recovered = 14,
    /// Reads that wait or are under way.
    reads_waiting = 16,
    /// Records that wait to be written or are being written.
    writes_waiting = 18,
    /// Records read for Interests.
    reads = 20,
    /// Lookups that joined a read under way.
    reads_shared = 22,
    /// Reads refused because as many as may be were waiting.
    reads_refused = 24,
    /// Reads that the system failed.
    read_errors = 26,
    /// Records that were not what they should be; never served.
    damaged = 28,
    /// Records written.
    writes = 30,
    /// Octets written.
    written_bytes = 32,
    /// Writes that the system failed.
    write_errors = 34,
    /// Data that the admission policy kept off.
    not_admitted = 36,
    /// Data that passed by because as many records as may be were waiting.
    passed_by = 38,
    /// Data not stored because no disk takes any or the index may not grow.
    no_room = 40,
    /// Records that made room.
    evictions = 42,
    /// Times that a disk was found stalled.
    stalls = 44,
    /// Lookups answered from records that wait to be written.
    hits_unwritten = 46,
    /// Pending Interests answered from a disk.
    answered = 48,
    /// Interests that passed by because of the queue.
    bypassed_queue_full = 50,
    /// Interests that passed by because the answer was likely to come sooner from elsewhere.
    bypassed_slower = 52,
    /// Interests that passed by to find out how long answers take from elsewhere.
    bypassed_probe = 54,
    /// Interests that passed by a stalled disk.
    bypassed_stalled = 56,
    /// Interests that waited for a disk and went on without it.
    went_on = 58,
    /// Data that left with a congestion mark because of the disks.
    marked = 60,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_unknown_ones_are_passed_over() {
        let info = CsDiskInfo { disks: 2, damaged: 7, marked: 1 << 40, ..CsDiskInfo::default() };
        let octets = info.encode();
        assert_eq!(CsDiskInfo::decode(&octets).unwrap(), info);
        let mut writer = Writer::default();
        writer.nested(types::STORE_DISK, |inner| {
            inner.number(types::STORE_DISK_FIRST + 28, 7).number(types::STORE_DISK_FIRST + 200, 1);
        });
        let known = CsDiskInfo::decode(&writer.into_octets()).unwrap();
        assert_eq!(known, CsDiskInfo { damaged: 7, ..CsDiskInfo::default() });
    }
}
