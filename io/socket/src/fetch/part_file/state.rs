//! The state file: the version that a part file contains, the keys that verified its segments, and
//! the segments with their checksums.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use weir_security::sha256;
use weir_transport::SegmentSet;
use weir_wire::{Name, NameView, PACKET_SIZE_MAX};

use crate::fetch::sink::{Checksums, checksum};

const MAGIC: &[u8; 8] = b"weirpt04";
/// Starts the state of a download that accepts unverified segments.
const UNVERIFIED_MAGIC: &[u8; 8] = b"weirpu04";
const DIGEST_LEN: usize = 32;
/// Stands for an unknown digest.
const NO_DIGEST: [u8; DIGEST_LEN] = [0; DIGEST_LEN];
/// Size limit of a state file. A segment uses 33 bits, so this is enough for four billion.
pub(super) const BYTES_MAX: u64 = 16 << 30;

/// The content of a state file.
pub(super) struct PartState {
    /// Whether each segment was verified when it was stored.
    pub(super) is_verified: bool,
    /// The keys that have signed segments.
    pub(super) keys: Vec<[u8; DIGEST_LEN]>,
    pub(super) segment_size: u64,
    /// The digest of the object, if its metadata stated one.
    pub(super) content_digest: Option<[u8; DIGEST_LEN]>,
    pub(super) stored: SegmentSet,
    pub(super) checksums: Checksums,
}

/// What a state file says about all segments.
pub(super) struct StateHead<'a> {
    pub(super) is_verified: bool,
    pub(super) keys: &'a [[u8; DIGEST_LEN]],
    pub(super) segment_size: u64,
    pub(super) content_digest: Option<[u8; DIGEST_LEN]>,
}

/// The segments of a part file that still match their checksums. Each was right when it was stored,
/// but may have been damaged on the disk since.
pub(super) fn intact_segments(file: &File, state: &PartState) -> io::Result<SegmentSet> {
    let len = file.metadata()?.len();
    let mut have = SegmentSet::new();
    let mut content = vec![0; state.segment_size.min(PACKET_SIZE_MAX as u64) as usize];
    for segment in state.stored.iter() {
        let Some(at) = segment.checked_mul(state.segment_size).filter(|&at| at <= len) else {
            continue;
        };
        let content = &mut content[..(len - at).min(state.segment_size) as usize];
        file.read_exact_at(content, at)?;
        if state.checksums.get(segment as usize) == Some(&checksum(content)) {
            have.insert(segment);
        }
    }
    Ok(have)
}

/// Encodes the state of a file with the segments `have`.
pub(super) fn encode(
    versioned: &Name,
    head: &StateHead<'_>,
    have: &SegmentSet,
    checksums: &[u32],
) -> Vec<u8> {
    let name = versioned.value();
    let mut octets = if head.is_verified { MAGIC } else { UNVERIFIED_MAGIC }.to_vec();
    octets.extend_from_slice(&(head.keys.len() as u64).to_le_bytes());
    octets.extend_from_slice(head.keys.as_flattened());
    octets.extend_from_slice(&head.segment_size.to_le_bytes());
    octets.extend_from_slice(&(name.len() as u64).to_le_bytes());
    octets.extend_from_slice(name);
    octets.extend_from_slice(&head.content_digest.unwrap_or(NO_DIGEST));
    octets.extend_from_slice(&(have.words().len() as u64).to_le_bytes());
    for word in have.words() {
        octets.extend_from_slice(&word.to_le_bytes());
    }
    for segment in have.iter() {
        let checksum = checksums.get(segment as usize).copied().unwrap_or(0);
        octets.extend_from_slice(&checksum.to_le_bytes());
    }
    // The digest detects an incomplete file, as after a power failure.
    let digest = sha256(&[&octets]);
    octets.extend_from_slice(&digest);
    octets
}

pub(super) fn decode(octets: &[u8]) -> Option<(NameView<'_>, PartState)> {
    let (octets, digest) = octets.split_at_checked(octets.len().checked_sub(DIGEST_LEN)?)?;
    let (magic, rest) = octets.split_first_chunk::<8>()?;
    let is_verified = magic == MAGIC;
    if !is_verified && magic != UNVERIFIED_MAGIC {
        return None;
    }
    if sha256(&[octets]) != digest {
        return None;
    }
    let (key_count, rest) = rest.split_first_chunk::<8>()?;
    let key_octets = u64::from_le_bytes(*key_count).checked_mul(DIGEST_LEN as u64)?;
    let (keys, rest) = rest.split_at_checked(usize::try_from(key_octets).ok()?)?;
    let keys = keys.as_chunks::<DIGEST_LEN>().0.to_vec();
    let (segment_size, rest) = rest.split_first_chunk::<8>()?;
    let segment_size = u64::from_le_bytes(*segment_size);
    if segment_size > PACKET_SIZE_MAX as u64 {
        return None;
    }
    let (name_len, rest) = rest.split_first_chunk::<8>()?;
    let name_len = usize::try_from(u64::from_le_bytes(*name_len)).ok()?;
    let (name, rest) = rest.split_at_checked(name_len)?;
    let (content_digest, rest) = rest.split_first_chunk::<DIGEST_LEN>()?;
    let content_digest = Some(*content_digest).filter(|digest| *digest != NO_DIGEST);
    let (word_count, rest) = rest.split_first_chunk::<8>()?;
    let word_octets = u64::from_le_bytes(*word_count).checked_mul(8)?;
    let (words, rest) = rest.split_at_checked(usize::try_from(word_octets).ok()?)?;
    let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let have = SegmentSet::from_words(words);
    // One checksum for each stored segment, in ascending order, and nothing after them.
    let (stored, left) = rest.as_chunks::<4>();
    if !left.is_empty() || stored.len() as u64 != have.len() {
        return None;
    }
    let mut checksums = vec![0; have.words().len() * 64];
    for (segment, checksum) in have.iter().zip(stored) {
        checksums[segment as usize] = u32::from_le_bytes(*checksum);
    }
    let state =
        PartState { is_verified, keys, segment_size, content_digest, stored: have, checksums };
    Some((NameView::from_value(name).ok()?, state))
}
