//! Files of a repository: the finished packets of one object, each with a checksum
//! (`docs/repository.md`).

use std::io;
use std::ops::Range;
use std::path::Path;

use weir_base::{Packet, Pool};
use weir_disk::checksum;
use weir_security::sha256;
use weir_wire::tlv::{self, Reader, Writer};
use weir_wire::{Name, NameView, PACKET_SIZE_MAX};

use super::held_file::HeldFile;
use super::location::{DAMAGED_SUFFIX, ObjectLocation, OpenObject, open_to_read};

/// The first bytes of a file, with the version of the layout.
const MAGIC: [u8; 8] = *b"weirobj\x01";
/// Magic, number of the object, length of the header.
const PREAMBLE_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of the first read of an object. Few headers are longer.
pub(crate) const FIRST_READ_BYTES: u64 = 4096;
/// Bytes of the longest header. It grows by about 130 for each 248 segments.
const HEADER_BYTES_MAX: usize = 1 << 28;
/// Number of the object, number of the segment, length of the packet, checksum.
pub(crate) const TRAILER_BYTES: usize = 24;

/// The largest packet with its trailer.
const SLOT_BYTES_MAX: u64 = (PACKET_SIZE_MAX + TRAILER_BYTES) as u64;

const ROOT: u32 = 0x81;
const ORIGIN: u32 = 0x82;
const SEGMENTS: u32 = 0x83;
const SLOT_BYTES: u32 = 0x84;
const SIZE_BYTES: u32 = 0x85;
const PACKET_BYTES: u32 = 0x86;
const WHOLE: u32 = 0x87;
const PACKET_LOCATION: u32 = 0x88;

/// A digest of what an object was made from, and how. If it is unchanged, the object need not be
/// signed again.
pub(crate) type Origin = [u8; 32];

/// A packet found by its own name: metadata, a manifest part or a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPacket {
    pub(crate) name: Name,
    /// Its offset after the slots.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) checksum: u32,
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Name of the version, right above its segments.
    pub(crate) versioned: Name,
    /// The prefix under which it was put.
    pub(crate) root: Name,
    pub(crate) origin: Origin,
    /// 0 for a file with only named packets.
    pub(crate) segments: u64,
    /// Bytes from one segment to the next.
    pub(crate) slot_bytes: u64,
    pub(crate) size_bytes: u64,
    /// Bytes of its largest segment packet.
    pub(crate) packet_bytes: u64,
    pub(crate) named_packets: Vec<NamedPacket>,
}

impl Header {
    /// The bytes of the file before the first slot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tlv(tlv::NAME, self.versioned.value());
        writer.tlv(ROOT, self.root.value());
        writer.tlv(ORIGIN, &self.origin);
        for (typ, number) in [
            (SEGMENTS, self.segments),
            (SLOT_BYTES, self.slot_bytes),
            (SIZE_BYTES, self.size_bytes),
            (PACKET_BYTES, self.packet_bytes),
        ] {
            writer.nni(typ, number);
        }
        for whole in &self.named_packets {
            writer.nested(WHOLE, |writer| {
                writer.tlv(tlv::NAME, whole.name.value());
                let mut location = whole.offset.to_le_bytes().to_vec();
                location.extend(whole.len.to_le_bytes());
                location.extend(whole.checksum.to_le_bytes());
                writer.tlv(PACKET_LOCATION, &location);
            });
        }
        let header = writer.into_vec();
        let mut octets = MAGIC.to_vec();
        octets.extend(object_number(&self.versioned).to_le_bytes());
        octets.extend((header.len() as u32).to_le_bytes());
        octets.extend(header);
        octets.extend(checksum(&octets).to_le_bytes());
        octets
    }

    fn decode(header: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(header);
        let first = reader.next_element().ok()??;
        let name = |value| NameView::from_value(value).ok().map(NameView::to_name);
        let versioned = (first.typ == tlv::NAME).then(|| name(first.value))??;
        let (mut root, mut origin, mut numbers, mut whole) = (None, None, [0; 4], Vec::new());
        while let Some(element) = reader.next_element().ok()? {
            match element.typ {
                ROOT => root = Some(name(element.value)?),
                ORIGIN => origin = Some(element.value.try_into().ok()?),
                SEGMENTS..=PACKET_BYTES => {
                    numbers[(element.typ - SEGMENTS) as usize] = tlv::nni(element.value)?;
                }
                WHOLE => whole.push(decode_whole(element.value)?),
                _ => {}
            }
        }
        let [segments, slot_bytes, size_bytes, packet_bytes] = numbers;
        let slots = TRAILER_BYTES as u64..=SLOT_BYTES_MAX;
        // A slot has room for a trailer, and for no more than the largest packet. Other sizes mean
        // that the header is damaged.
        let is_sound = segments == 0 || slots.contains(&slot_bytes);
        let (root, origin) = (root?, origin?);
        is_sound.then_some(Self {
            versioned,
            root,
            origin,
            segments,
            slot_bytes,
            size_bytes,
            packet_bytes,
            named_packets: whole,
        })
    }

    /// Bytes of the file after the header.
    fn body_bytes(&self) -> Option<u64> {
        let slots = self.segments.checked_mul(self.slot_bytes)?;
        let ends =
            self.named_packets.iter().map(|whole| whole.offset.checked_add(u64::from(whole.len)));
        let end = ends.max().unwrap_or(Some(0))?;
        slots.checked_add(end)
    }
}

fn decode_whole(value: &[u8]) -> Option<NamedPacket> {
    let mut reader = Reader::new(value);
    let name = reader.next_element().ok()??;
    let location = reader.next_element().ok()??;
    if (name.typ, location.typ) != (tlv::NAME, PACKET_LOCATION) {
        return None;
    }
    let location: [u8; 16] = location.value.try_into().ok()?;
    let whole = NamedPacket {
        name: NameView::from_value(name.value).ok()?.to_name(),
        offset: u64::from_le_bytes(location[..8].try_into().ok()?),
        len: u32::from_le_bytes(location[8..12].try_into().ok()?),
        checksum: u32::from_le_bytes(location[12..].try_into().ok()?),
    };
    (whole.len as usize <= PACKET_SIZE_MAX).then_some(whole)
}

/// The number in a file and its slots, so that a slot of another object is not accepted.
pub(crate) fn object_number(versioned: &Name) -> u64 {
    let digest = sha256(&[versioned.value()]);
    u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"))
}

/// Completes the slot of a segment: `slot` begins with the packet of `len` bytes, and the rest is
/// overwritten.
pub(crate) fn seal_slot(slot: &mut [u8], object: u64, segment: u64, len: usize) {
    let trailer_at = slot.len() - TRAILER_BYTES;
    slot[len..trailer_at].fill(0);
    let trailer = &mut slot[trailer_at..];
    trailer[..8].copy_from_slice(&object.to_le_bytes());
    trailer[8..16].copy_from_slice(&segment.to_le_bytes());
    trailer[16..20].copy_from_slice(&(len as u32).to_le_bytes());
    let checked = slot.len() - CHECKSUM_BYTES;
    let sum = checksum(&slot[..checked]);
    slot[checked..].copy_from_slice(&sum.to_le_bytes());
}

/// The length of the packet in a slot, if it is intact and belongs there.
fn check_slot(slot: &[u8], object: u64, segment: u64) -> Option<usize> {
    let (checked, sum) = slot.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (rest, len) = checked.split_last_chunk::<4>()?;
    let (rest, found_segment) = rest.split_last_chunk::<8>()?;
    let (room, found_object) = rest.split_last_chunk::<8>()?;
    let len = u32::from_le_bytes(*len) as usize;
    let is_it = u64::from_le_bytes(*found_object) == object
        && u64::from_le_bytes(*found_segment) == segment
        && len <= room.len()
        && checksum(checked) == u32::from_le_bytes(*sum);
    is_it.then_some(len)
}

/// Why a packet cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it is not what was written")]
    Damaged,
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    pub(crate) location: ObjectLocation,
    pub(crate) header: Header,
    /// Distinguishes it from other versions and objects.
    pub(crate) number: u64,
    body_offset: u64,
    /// Some of its packets are damaged. The others are served. The object is signed again when it
    /// is put again.
    pub(crate) is_damaged: bool,
    pub(crate) is_damage_reported: bool,
    /// It was reported as unreadable, and no packet was read since.
    pub(crate) is_unreadable_reported: bool,
    /// Keeps it readable after its file is removed.
    pub(crate) held: Option<HeldFile>,
}

impl StoredObject {
    pub(crate) fn new(location: ObjectLocation, header: Header, header_bytes: usize) -> Self {
        let (number, body_at) = (object_number(&header.versioned), header_bytes as u64);
        let (is_damaged, is_told, is_unread) = (false, false, false);
        Self {
            location,
            header,
            number,
            body_offset: body_at,
            is_damaged,
            is_damage_reported: is_told,
            is_unreadable_reported: is_unread,
            held: None,
        }
    }

    /// Reads the header of a file; `None` if there is none or it is damaged. A file shorter than
    /// its header states is damaged.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = open_to_read(path)?;
        let len = file.metadata()?.len();
        let open = OpenObject::File(file);
        let mut octets = vec![0; len.min(FIRST_READ_BYTES) as usize];
        open.read(0..octets.len() as u64, &mut octets)?;
        let is_damaged = path.extension().is_some_and(|ending| ending == DAMAGED_SUFFIX);
        let stored =
            Self::from_first_bytes(ObjectLocation::File(path.to_owned()), octets, len, &open)?;
        Ok(stored.map(|stored| Self { is_damaged: stored.is_damaged || is_damaged, ..stored }))
    }

    /// As [`StoredObject::open`], for an object of `len` bytes that begins with these.
    pub(crate) fn from_first_bytes(
        location: ObjectLocation,
        mut octets: Vec<u8>,
        len: u64,
        open: &OpenObject<'_>,
    ) -> io::Result<Option<Self>> {
        let Some(header_bytes) = header_bytes(&octets).filter(|&bytes| bytes as u64 <= len) else {
            return Ok(None);
        };
        let read = octets.len();
        octets.resize(header_bytes, 0);
        if header_bytes > read {
            open.read(read as u64..header_bytes as u64, &mut octets[read..])?;
        }
        let Some(header) = decode_all(&octets) else { return Ok(None) };
        let Some(body_bytes) = header.body_bytes() else { return Ok(None) };
        if body_bytes > u64::MAX - header_bytes as u64 {
            return Ok(None);
        }
        let is_damaged = len - (header_bytes as u64) < body_bytes;
        Ok(Some(Self { is_damaged, ..Self::new(location, header, header_bytes) }))
    }

    /// The same object at this location.
    pub(crate) fn with_location(self, location: ObjectLocation) -> Self {
        Self { location, ..self }
    }

    /// TLV-VALUE of the object's name, without the version.
    pub(crate) fn object(&self) -> &[u8] {
        self.header.versioned.as_view().parent().value()
    }

    /// Whether all of its packets are intact and readable.
    pub(crate) fn is_intact(&self) -> bool {
        let mut pool = Pool::new(0);
        self.location.open().is_ok_and(|open| {
            let mut read =
                |number| self.read(number, &mut pool, |range, out| open.read(range, out));
            (0..self.packets()).all(|number| read(number).is_ok())
        })
    }

    /// Records the damage for the next start.
    pub(crate) fn mark_damaged(&mut self) -> io::Result<()> {
        self.is_damaged = true;
        self.location.mark_damaged()
    }

    /// The name of a packet in messages.
    pub(crate) fn packet_name(&self, number: u64) -> String {
        match number.checked_sub(self.header.segments) {
            None => format!("segment {number}"),
            Some(at) => self.header.named_packets[at as usize].name.to_string(),
        }
    }

    /// Number of segments and named packets.
    pub(crate) fn packets(&self) -> u64 {
        self.header.segments + self.header.named_packets.len() as u64
    }

    /// Bytes after the header.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.header.body_bytes().unwrap_or(u64::MAX)
    }

    /// The byte range of a packet: a segment, or a named packet after them.
    pub(crate) fn range(&self, number: u64) -> Range<u64> {
        let header = &self.header;
        let (offset, len) = match self.named_packet(number) {
            None => (number * header.slot_bytes, header.slot_bytes),
            Some(whole) => {
                (header.segments * header.slot_bytes + whole.offset, u64::from(whole.len))
            }
        };
        let begin = self.body_offset + offset;
        begin..begin + len
    }

    fn named_packet(&self, number: u64) -> Option<&NamedPacket> {
        number.checked_sub(self.header.segments).map(|at| &self.header.named_packets[at as usize])
    }

    /// The length of the packet in the bytes of its range, if it is intact.
    pub(crate) fn check(&self, number: u64, octets: &[u8]) -> Result<usize, ReadError> {
        match self.named_packet(number) {
            None => check_slot(octets, self.number, number),
            Some(whole) => (checksum(octets) == whole.checksum).then_some(octets.len()),
        }
        .ok_or(ReadError::Damaged)
    }

    /// Reads a packet with `read`, which must fill all bytes of the range.
    pub(crate) fn read(
        &self,
        number: u64,
        pool: &mut Pool,
        read: impl FnOnce(Range<u64>, &mut [u8]) -> io::Result<()>,
    ) -> Result<Packet, ReadError> {
        let range = self.range(number);
        let len = (range.end - range.start) as usize;
        let mut block = pool.alloc(len);
        read(range, &mut block[..len]).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Damaged,
            _ => ReadError::Io(error),
        })?;
        let len = self.check(number, &block[..len])?;
        Ok(block.freeze(len))
    }
}

/// Bytes of the file before the first slot, as its first bytes state.
fn header_bytes(octets: &[u8]) -> Option<usize> {
    let preamble: &[u8; PREAMBLE_BYTES] = octets.first_chunk()?;
    let len = u32::from_le_bytes(preamble[16..].try_into().ok()?) as usize;
    let is_it = preamble[..8] == MAGIC && len <= HEADER_BYTES_MAX;
    is_it.then_some(PREAMBLE_BYTES + len + CHECKSUM_BYTES)
}

/// Whether the header of an object continues after these first bytes.
pub(crate) fn needs_more_header(octets: &[u8]) -> bool {
    header_bytes(octets).is_some_and(|bytes| bytes > octets.len())
}

fn decode_all(octets: &[u8]) -> Option<Header> {
    let (checked, sum) = octets.split_last_chunk::<CHECKSUM_BYTES>()?;
    let is_sound = checksum(checked) == u32::from_le_bytes(*sum);
    let header = is_sound.then(|| Header::decode(&checked[PREAMBLE_BYTES..]))??;
    let object = u64::from_le_bytes(checked[8..16].try_into().ok()?);
    (object == object_number(&header.versioned)).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let name = |uri: &str| -> Name { uri.parse().unwrap() };
        Header {
            versioned: name("/a/b/54=%05"),
            root: name("/a"),
            origin: [7; 32],
            segments: 3,
            slot_bytes: 200,
            size_bytes: 400,
            packet_bytes: 170,
            named_packets: vec![NamedPacket {
                name: name("/a/b/32=metadata/54=%05/50=%00"),
                offset: 0,
                len: 5,
                checksum: checksum(b"whole"),
            }],
        }
    }

    /// A file with that header, segments `segment-N` and the named packet.
    fn write(path: &Path) {
        let header = header();
        let mut octets = header.encode();
        for segment in 0..header.segments {
            let mut slot = vec![0xEE; header.slot_bytes as usize];
            let text = format!("segment-{segment}");
            slot[..text.len()].copy_from_slice(text.as_bytes());
            seal_slot(&mut slot, object_number(&header.versioned), segment, text.len());
            octets.extend(slot);
        }
        octets.extend(b"whole");
        std::fs::write(path, octets).unwrap();
    }

    #[test]
    fn reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.obj");
        write(&path);
        let stored = StoredObject::open(&path).unwrap().unwrap();
        assert_eq!(stored.header, header());
        assert!(!stored.is_damaged);
        let (open, mut pool) = (stored.location.open().unwrap(), Pool::new(0));
        let mut read = |number| stored.read(number, &mut pool, |range, out| open.read(range, out));
        for segment in 0..3 {
            let packet = read(segment).unwrap();
            assert_eq!(packet[..], *format!("segment-{segment}").as_bytes());
        }
        assert_eq!(read(3).unwrap()[..], *b"whole");
    }

    /// Whichever byte of a file is changed, no packet is returned that was not put in.
    #[test]
    fn detects_every_damaged_octet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.obj");
        write(&path);
        let sound = std::fs::read(&path).unwrap();
        let mut pool = Pool::new(0);
        for at in 0..sound.len() {
            let mut octets = sound.clone();
            octets[at] ^= 0x10;
            std::fs::write(&path, octets).unwrap();
            let Some(stored) = StoredObject::open(&path).unwrap() else {
                assert!(at < header().encode().len(), "byte {at} is none of the header");
                continue;
            };
            assert_eq!(stored.header, header());
            let open = stored.location.open().unwrap();
            let mut read =
                |number| stored.read(number, &mut pool, |range, out| open.read(range, out));
            let damaged = (0..4).filter(|&number| read(number).is_err()).count();
            assert_eq!(damaged, 1, "byte {at}");
        }
    }

    #[test]
    fn rejects_slot_of_other_object() {
        let mut slot = vec![1; 100];
        seal_slot(&mut slot, 7, 3, 60);
        assert_eq!(check_slot(&slot, 7, 3), Some(60));
        assert_eq!(check_slot(&slot, 7, 4), None);
        assert_eq!(check_slot(&slot, 8, 3), None);
        assert_eq!(check_slot(&slot[..20], 7, 3), None);
    }

    #[test]
    fn rejects_truncated_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.obj");
        write(&path);
        let sound = std::fs::read(&path).unwrap();
        for len in 0..sound.len() {
            std::fs::write(&path, &sound[..len]).unwrap();
            let stored = StoredObject::open(&path).unwrap();
            assert_eq!(stored.is_some(), len >= header().encode().len(), "{len} bytes");
            assert!(stored.is_none_or(|stored| stored.is_damaged), "{len} bytes");
        }
    }
}
