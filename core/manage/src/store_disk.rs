//! The disks of a content store in `cs/info`. This is an extension of Weir; other programs skip it.

use alloc::collections::BTreeMap;

use weir_base::{CounterKind, Counters};

use crate::element::{Element, Elements, Writer};
use crate::error::DecodeError;
use crate::numbers::types;

/// Counters of the disks of a content store, by their number in the dataset. Tables of counters
/// declare these numbers ([`Counter::status`](weir_base::Counter::status)). All are even, so
/// readers skip numbers that they do not know. A missing counter is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsDiskInfo {
    numbers: BTreeMap<u32, u64>,
}

/// Number of [`CsDiskInfo::disks`].
const DISKS: u32 = 0;
/// Number of [`CsDiskInfo::capacity_bytes`].
const CAPACITY_BYTES: u32 = 4;
/// Numbers of [`CsDiskInfo::read_latency`]. Those of tables of counters lie between.
const READ_LATENCY_NS: u32 = 80;
const READ_LATENCY_COUNT: u32 = 82;
/// Maximum number of counters in a peer's answer.
const NUMBERS_MAX: usize = 256;

impl CsDiskInfo {
    /// `disks` files and devices with a total of `capacity_bytes` for records.
    pub fn new(disks: u64, capacity_bytes: u64) -> Self {
        Self { numbers: [(DISKS, disks), (CAPACITY_BYTES, capacity_bytes)].into() }
    }

    /// Number of files and devices.
    pub fn disks(&self) -> u64 {
        self.number(DISKS)
    }

    /// Bytes for records on them.
    pub fn capacity_bytes(&self) -> u64 {
        self.number(CAPACITY_BYTES)
    }

    /// The sum of the times, in nanoseconds, that Interests answered from a disk waited, and their
    /// number.
    pub fn read_latency(&self) -> (u64, u64) {
        (self.number(READ_LATENCY_NS), self.number(READ_LATENCY_COUNT))
    }

    /// Adds the numbers of [`read_latency`](Self::read_latency).
    pub fn set_read_latency(&mut self, sum_ns: u64, count: u64) {
        self.numbers.extend([(READ_LATENCY_NS, sum_ns), (READ_LATENCY_COUNT, count)]);
    }

    /// Adds the counters of a table that are part of status datasets.
    pub fn add(&mut self, stats: &impl Counters) {
        let rows = stats.rows().filter_map(|(counter, value)| Some((counter.status?, value)));
        self.numbers.extend(rows);
    }

    /// The table of counters that was added. Counters that were not sent are 0.
    pub fn table<T: Counters>(&self) -> T {
        let mut stats = T::default();
        for (index, counter) in T::TABLE.iter().enumerate() {
            let value = counter.status.map_or(0, |number| self.number(number));
            *stats.number_mut(index) = match counter.kind {
                // Only the number of members is sent, so the lowest members stand for the set.
                CounterKind::Set => u64::MAX.checked_shr(64 - value.min(64) as u32).unwrap_or(0),
                _ => value,
            };
        }
        stats
    }

    fn number(&self, number: u32) -> u64 {
        self.numbers.get(&number).copied().unwrap_or(0)
    }
}

impl Element for CsDiskInfo {
    const TYPE: u32 = types::STORE_DISK;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let mut numbers = BTreeMap::new();
        for element in Elements::new(value) {
            let element = element?;
            match element.typ.checked_sub(types::STORE_DISK_FIRST) {
                Some(number) if number % 2 == 0 && numbers.len() < NUMBERS_MAX => {
                    numbers.insert(number, element.number()?);
                }
                _ => element.skip()?,
            }
        }
        Ok(Self { numbers })
    }

    fn encode_value(&self, writer: &mut Writer) {
        for (&number, &value) in &self.numbers {
            writer.number(types::STORE_DISK_FIRST + number, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    weir_base::counters! {
        struct Table {
            /// Sent.
            sent: Total, "sent", status 60;
            /// Sent as a number.
            which: Set, "which", status 2;
            /// Not sent.
            apart: Total, "apart";
        }
    }

    #[test]
    fn tables_round_trip_with_unknown_numbers() {
        let table = Table { sent: 1 << 40, which: 0b1010, apart: 3 };
        let mut info = CsDiskInfo::new(4, 99);
        info.add(&table);
        assert_eq!(info.read_latency(), (0, 0));
        info.set_read_latency(3_000_000, 2);
        let known = CsDiskInfo::decode(&info.encode()).unwrap();
        assert_eq!((known.disks(), known.capacity_bytes()), (4, 99));
        assert_eq!(known.read_latency(), (3_000_000, 2));
        assert_eq!(known.table::<Table>(), Table { sent: 1 << 40, which: 0b11, apart: 0 });
        let mut writer = Writer::default();
        writer.nested(types::STORE_DISK, |inner| {
            inner.number(types::STORE_DISK_FIRST + 60, 7).number(types::STORE_DISK_FIRST + 200, 1);
        });
        let known = CsDiskInfo::decode(&writer.into_octets()).unwrap();
        assert_eq!(known.table::<Table>().sent, 7);
    }
}
