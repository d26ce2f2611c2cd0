//! A record in a finished file: which object it is, and a digest of its content. A later download
//! replaces the file without `--force` only if both are unchanged (decision 0035).

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use weir_security::sha256;
use weir_wire::{Name, PACKET_SIZE_MAX};

use super::segments;
use crate::fetch::sink::{Checksums, FileSink, checksum};

/// An extended attribute: it moves with the file and is deleted with it.
const ATTRIBUTE: &str = "user.weir.fetched";
const MAGIC: &[u8; 8] = b"weirget1";
const DIGEST_LEN: usize = 32;
/// Magic, bytes per segment, digest of the object's name, digest of length and checksums.
const RECORD_LEN: usize = MAGIC.len() + 8 + 2 * DIGEST_LEN;

/// Writes the record. Without it, the file counts as the user's own.
pub(super) fn write(sink: &FileSink, versioned: &Name) {
    let Ok(len) = sink.file().metadata().map(|metadata| metadata.len()) else { return };
    let record = record(sink.segment_size(), versioned, len, &sink.checksums());
    // Some file systems do not support attributes.
    let _ = fsetxattr(sink.file(), ATTRIBUTE, &record, XattrFlags::empty());
}

/// Whether an earlier download of the same object, in any version, left the file unchanged.
pub(super) fn is_unchanged(file: &File, versioned: &Name) -> bool {
    let mut found = [0; RECORD_LEN];
    if fgetxattr(file, ATTRIBUTE, &mut found[..]) != Ok(RECORD_LEN) || !found.starts_with(MAGIC) {
        return false;
    }
    let (_, segment_size) = found[..MAGIC.len() + 8].split_at(MAGIC.len());
    let segment_size = u64::from_le_bytes(segment_size.try_into().expect("8 bytes"));
    let Ok(len) = file.metadata().map(|metadata| metadata.len()) else { return false };
    if !(1..=PACKET_SIZE_MAX as u64).contains(&segment_size) {
        return false;
    }
    let mut content = vec![0; segment_size as usize];
    let mut checksums = Checksums::new();
    for segment in 0..segments(len, segment_size) {
        let at = segment * segment_size;
        let content = &mut content[..(len - at).min(segment_size) as usize];
        if file.read_exact_at(content, at).is_err() {
            return false;
        }
        checksums.push(checksum(content));
    }
    record(segment_size, versioned, len, &checksums) == found
}

fn record(segment_size: u64, versioned: &Name, len: u64, checksums: &[u32]) -> [u8; RECORD_LEN] {
    let mut content = len.to_le_bytes().to_vec();
    for segment in 0..segments(len, segment_size) {
        let checksum = checksums.get(segment as usize).copied().unwrap_or(0);
        content.extend_from_slice(&checksum.to_le_bytes());
    }
    let view = versioned.as_view();
    let has_version = view.last().is_some_and(|last| last.as_version().is_some());
    let object = if has_version { view.parent().to_name() } else { versioned.clone() };
    let (name, content) = (sha256(&[object.value()]), sha256(&[&content]));
    let parts = [MAGIC, &segment_size.to_le_bytes()[..], &name, &content].concat();
    parts.try_into().expect("as long as its parts")
}
