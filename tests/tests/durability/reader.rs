//! Reads a repository by its documented layout (`docs/repository.md`), without Weir's own code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use sha2::{Digest, Sha256};

/// One version of an object. All its packets are intact.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    /// The content of its segments. Empty for a certificate.
    pub(crate) content: Vec<u8>,
}

/// The last version of each object in a repository, by name.
///
/// # Panics
/// If the file of an object is incomplete.
pub(crate) fn read_repository(folder: &Path) -> BTreeMap<String, Stored> {
    let mark = fs::read_to_string(folder.join("repository")).expect("the mark of a repository");
    assert_eq!(mark, "weir repository 1\n");
    loop {
        // A running process may remove a file between listing and reading. Try again.
        if let Some(objects) = try_read(folder) {
            return objects;
        }
    }
}

fn try_read(folder: &Path) -> Option<BTreeMap<String, Stored>> {
    let mut objects = BTreeMap::<String, Stored>::new();
    for entry in fs::read_dir(folder.join("objects")).expect("the objects") {
        let path = entry.expect("an entry").path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        assert_ne!(ending, Some("damaged"), "{}", path.display());
        if ending != Some("obj") {
            continue;
        }
        let octets = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            octets => octets.expect("an object"),
        };
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a hash");
        let (name, stored) = read_object(stem, &octets);
        let is_later = objects.get(&name).is_none_or(|other| other.version < stored.version);
        if is_later {
            objects.insert(name, stored);
        }
    }
    Some(objects)
}

fn read_object(stem: &str, octets: &[u8]) -> (String, Stored) {
    assert_eq!(&octets[..8], b"weirobj\x01", "{stem}");
    let header_len = u32_at(octets, 16) as usize;
    let (header, body) = octets[20..].split_at(header_len);
    assert_eq!(u32_at(body, 0), crc32c(&octets[..20 + header_len]), "{stem}: header");
    let body = &body[4..];

    let elements = elements(header);
    let one = |typ: u64| elements.iter().find(|element| element.0 == typ).expect("an element").1;
    let name = one(7);
    let digest = Sha256::digest(name);
    assert_eq!(&octets[8..16], &digest[..8], "{stem}: number of the object");
    let hash = digest[..16].iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    });
    assert_eq!(stem, hash);
    let [segments, slot, size] = [0x83, 0x84, 0x85].map(|typ| number(one(typ)) as usize);

    let mut content = Vec::new();
    for segment in 0..segments {
        let slot = &body[segment * slot..][..slot];
        content.extend_from_slice(read_slot(slot, &octets[8..16], segment, name));
    }
    assert_eq!(content.len(), size, "{stem}: size");
    let packets = &body[segments * slot..];
    for (_, packet) in elements.iter().filter(|element| element.0 == 0x87) {
        let place = self::elements(packet).into_iter().find(|element| element.0 == 0x88);
        let place = place.expect("a place").1;
        let offset = u64::from_le_bytes(place[..8].try_into().expect("octets")) as usize;
        let packet = &packets[offset..][..u32_at(place, 8) as usize];
        assert_eq!(crc32c(packet), u32_at(place, 12), "{stem}: packet at {offset}");
    }
    let (name, version) = text_of(name);
    (name, Stored { version, content })
}

fn read_slot<'a>(slot: &'a [u8], object: &[u8], segment: usize, name: &[u8]) -> &'a [u8] {
    let trailer = &slot[slot.len() - 24..];
    assert_eq!(&trailer[..8], object);
    assert_eq!(trailer[8..16], (segment as u64).to_le_bytes());
    assert_eq!(u32_at(trailer, 20), crc32c(&slot[..slot.len() - 4]), "segment {segment}");
    let packet = elements(&slot[..u32_at(trailer, 16) as usize]);
    let data = elements(packet.first().filter(|element| element.0 == 6).expect("Data").1);
    let segment_name = elements(data[0].1);
    let last = segment_name.last().expect("a component");
    assert_eq!((last.0, number(last.1)), (50, segment as u64));
    assert!(data[0].1.starts_with(name), "a segment of another object");
    data.iter().find(|element| element.0 == 21).expect("Content").1
}

/// Types and values of TLV elements.
fn elements(mut octets: &[u8]) -> Vec<(u64, &[u8])> {
    let mut elements = Vec::new();
    while !octets.is_empty() {
        let (typ, rest) = var_number(octets);
        let (len, rest) = var_number(rest);
        let (value, rest) = rest.split_at(len as usize);
        elements.push((typ, value));
        octets = rest;
    }
    elements
}

fn var_number(octets: &[u8]) -> (u64, &[u8]) {
    let len = match octets[0] {
        253 => 2,
        254 => 4,
        255 => 8,
        small => return (small.into(), &octets[1..]),
    };
    (number(&octets[1..=len]), &octets[1 + len..])
}

/// A number in network byte order.
fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, &octet| number << 8 | u64::from(octet))
}

/// Splits a name into its text without version, and the version.
fn text_of(name: &[u8]) -> (String, u64) {
    let mut components = elements(name);
    let (typ, value) = components.pop().expect("a version");
    let version = if typ == 54 { number(value) } else { 0 };
    let mut text = String::new();
    for (typ, value) in components {
        let value = String::from_utf8_lossy(value);
        let _ = match typ {
            8 => write!(text, "/{value}"),
            typ => write!(text, "/{typ}={value}"),
        };
    }
    (text, version)
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(octets[at..at + 4].try_into().expect("four bytes"))
}

fn crc32c(octets: &[u8]) -> u32 {
    let shift = |crc: u32, _| crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !octets.iter().fold(!0, |crc, &octet| (0..8).fold(crc ^ u32::from(octet), shift))
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
