//! The encoding of a list of objects in the management protocol (docs/contents.md).

use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS};
use weir_wire::{DecodeError, Name, NameView, tlv};

use super::StoredObject;
use crate::uses::{ObjectUses, TierShare};

const NAME: u32 = 7;
const LIST: u32 = 0xf5c4;
const TOTAL: u32 = 0xf5c6;
const DROPPED: u32 = 0xf5c8;
const UNNAMED: u32 = 0xf5ca;
const PARTIAL: u32 = 0xf5cc;
const OBJECT: u32 = 0xf5ce;
const MEMORY_PACKETS: u32 = 0xf5d0;
const MEMORY_BYTES: u32 = 0xf5d2;
const DISK_PACKETS: u32 = 0xf5d4;
const DISK_BYTES: u32 = 0xf5d6;
const SEGMENTS: u32 = 0xf5d8;
const HITS: u32 = 0xf5da;
const SERVED_BYTES: u32 = 0xf5dc;
const MS_SINCE_USE: u32 = 0xf5de;
const PIN: u32 = 0xf5e0;
const PIN_BYTES: u32 = 0xf5e2;

/// The objects that a router holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectList {
    /// In the requested order, up to the requested number.
    pub objects: Vec<StoredObject>,
    /// When the list was requested. Ages count back from it.
    pub listed_at: Instant,
    /// All objects below the prefix.
    pub total: u64,
    /// What the tiers hold below the prefix.
    pub memory: TierShare,
    pub disk: TierShare,
    /// Objects that were left out for lack of memory.
    pub dropped: u64,
    /// Objects on disks whose names are not known.
    pub unnamed: u64,
    /// The prefixes that operators have pinned, with their limits in bytes.
    pub pins: Vec<(Name, u64)>,
    /// Whether the router may hold more than is listed, in addition to what the limit cut off.
    pub is_partial: bool,
}

/// Why bytes are not a valid list of objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectListError {
    /// Not TLV, or an invalid name or number.
    #[error(transparent)]
    Wire(#[from] DecodeError),
    /// The outermost element has another type.
    #[error("an element of type {0} is there in place of the list of objects")]
    Type(u32),
    /// An unknown element that may not be skipped.
    #[error("unknown critical element of type {0}")]
    Critical(u32),
}

impl ObjectList {
    /// Whether a pin covers this object.
    pub fn is_pinned(&self, object: &StoredObject) -> bool {
        self.pins.iter().any(|(pin, _)| pin.as_view().is_prefix_of(object.name.as_view()))
    }

    /// Encodes one TLV. Times are encoded as milliseconds before the request.
    pub fn encode(&self) -> Vec<u8> {
        let now = self.listed_at;
        let mut writer = tlv::Writer::new();
        writer.nested(LIST, |inner| {
            inner.nni(TOTAL, self.total);
            write_share(inner, MEMORY_PACKETS, MEMORY_BYTES, self.memory);
            write_share(inner, DISK_PACKETS, DISK_BYTES, self.disk);
            inner.nni(DROPPED, self.dropped);
            inner.nni(UNNAMED, self.unnamed);
            if self.is_partial {
                inner.tlv(PARTIAL, &[]);
            }
            for (prefix, bytes_max) in &self.pins {
                inner.nested(PIN, |inner| {
                    inner.tlv(NAME, prefix.as_view().value());
                    inner.nni(PIN_BYTES, *bytes_max);
                });
            }
            for object in &self.objects {
                inner.nested(OBJECT, |inner| write_object(inner, object, now));
            }
        });
        writer.into_vec()
    }

    /// Decodes exactly one TLV, which was encoded at `now`.
    pub fn decode(wire: &[u8], now: Instant) -> Result<Self, ObjectListError> {
        let value = match tlv::read_single(wire)? {
            (LIST, value) => value,
            (other, _) => return Err(ObjectListError::Type(other)),
        };
        let mut list = Self { listed_at: now, ..Self::default() };
        for element in tlv::Reader::new(value) {
            let element = element?;
            let number = || tlv::decode_nni(element.typ, element.value);
            match element.typ {
                TOTAL => list.total = number()?,
                MEMORY_PACKETS => list.memory.packets = number()?,
                MEMORY_BYTES => list.memory.bytes = number()?,
                DISK_PACKETS => list.disk.packets = number()?,
                DISK_BYTES => list.disk.bytes = number()?,
                DROPPED => list.dropped = number()?,
                UNNAMED => list.unnamed = number()?,
                PARTIAL => list.is_partial = true,
                PIN => list.pins.push(read_pin(element.value)?),
                OBJECT => list.objects.push(read_object(element.value, now)?),
                other if tlv::is_critical(other) => return Err(ObjectListError::Critical(other)),
                _ => {}
            }
        }
        Ok(list)
    }
}

fn write_share(writer: &mut tlv::Writer, packets: u32, bytes: u32, share: TierShare) {
    if share != TierShare::default() {
        writer.nni(packets, share.packets);
        writer.nni(bytes, share.bytes);
    }
}

fn write_object(writer: &mut tlv::Writer, object: &StoredObject, now: Instant) {
    writer.tlv(NAME, object.name.as_view().value());
    write_share(writer, MEMORY_PACKETS, MEMORY_BYTES, object.memory);
    write_share(writer, DISK_PACKETS, DISK_BYTES, object.disk);
    if let Some(segments) = object.segments {
        writer.nni(SEGMENTS, segments);
    }
    let ObjectUses { hits, served_bytes, .. } = object.uses;
    if hits > 0 {
        writer.nni(HITS, hits);
        writer.nni(SERVED_BYTES, served_bytes);
    }
    if let Some(ms) = object.uses.ms_since_last(now) {
        writer.nni(MS_SINCE_USE, ms);
    }
}

fn read_pin(value: &[u8]) -> Result<(Name, u64), ObjectListError> {
    let mut pin = (Name::default(), 0);
    for element in tlv::Reader::new(value) {
        let element = element?;
        match element.typ {
            NAME => pin.0 = NameView::decode(element.wire)?.to_name(),
            PIN_BYTES => pin.1 = tlv::decode_nni(PIN_BYTES, element.value)?,
            other if tlv::is_critical(other) => return Err(ObjectListError::Critical(other)),
            _ => {}
        }
    }
    Ok(pin)
}

fn read_object(value: &[u8], now: Instant) -> Result<StoredObject, ObjectListError> {
    let mut object = StoredObject::default();
    for element in tlv::Reader::new(value) {
        let element = element?;
        let number = || tlv::decode_nni(element.typ, element.value);
        match element.typ {
            NAME => object.name = NameView::decode(element.wire)?.to_name(),
            MEMORY_PACKETS => object.memory.packets = number()?,
            MEMORY_BYTES => object.memory.bytes = number()?,
            DISK_PACKETS => object.disk.packets = number()?,
            DISK_BYTES => object.disk.bytes = number()?,
            SEGMENTS => object.segments = Some(number()?),
            HITS => object.uses.hits = number()?,
            SERVED_BYTES => object.uses.served_bytes = number()?,
            MS_SINCE_USE => {
                let ns = number()?.saturating_mul(NS_PER_MS);
                // Zero would mean that the time is not known.
                object.uses.last_use = Instant::from_ns(now.as_ns().saturating_sub(ns).max(1));
            }
            other if tlv::is_critical(other) => return Err(ObjectListError::Critical(other)),
            _ => {}
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_survives_the_wire() {
        let share = |packets| TierShare { packets, bytes: 8000 * packets };
        let now = Instant::from_ns(90_000 * NS_PER_MS);
        let object = StoredObject {
            name: "/a/v=1".parse().unwrap(),
            memory: share(3),
            disk: share(5),
            segments: Some(7),
            uses: ObjectUses {
                hits: 11,
                served_bytes: 88_000,
                last_use: Instant::from_ns(80_000 * NS_PER_MS),
            },
        };
        let unused = StoredObject { name: "/b".parse().unwrap(), ..StoredObject::default() };
        let list = ObjectList {
            objects: alloc::vec![object, unused],
            listed_at: now,
            total: 40,
            memory: share(300),
            disk: share(0),
            dropped: 2,
            unnamed: 1,
            pins: alloc::vec![("/p".parse().unwrap(), 1 << 30)],
            is_partial: true,
        };
        let wire = list.encode();
        assert_eq!(ObjectList::decode(&wire, now), Ok(list));
        for len in 0..wire.len() {
            assert!(ObjectList::decode(&wire[..len], now).is_err(), "{len} bytes");
        }
        assert_eq!(ObjectList::decode(&[7, 0], now), Err(ObjectListError::Type(7)));
    }
}
