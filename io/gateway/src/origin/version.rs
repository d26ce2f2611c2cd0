//! One version of a resource.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_security::sha256;
use weir_socket::SlicedObject;

use super::playlist::Playlist;
use super::policy::Validator;

/// A version of a resource: its bytes never change.
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) object: SlicedObject,
    /// Without a validator, a part of the version cannot be requested, only the whole resource.
    pub(super) validator: Validator,
    pub(super) playlist: Option<Playlist>,
    /// When it was received first.
    received: Instant,
    /// Whether the server answers requests for ranges.
    has_ranges: AtomicBool,
    /// Of the slices received so far.
    digests: Mutex<HashMap<u64, [u8; 32]>>,
}

impl Version {
    pub(super) fn new(
        number: u64,
        object: SlicedObject,
        (validator, has_ranges): (Validator, bool),
        playlist: Option<Playlist>,
    ) -> Self {
        let (received, digests) = (Instant::now(), Mutex::default());
        let has_ranges = AtomicBool::new(has_ranges);
        Self { number, object, validator, playlist, received, has_ranges, digests }
    }

    /// For how long it is known.
    pub(super) fn age(&self) -> Duration {
        self.received.elapsed()
    }

    pub(super) fn has_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Relaxed)
    }

    pub(super) fn set_no_ranges(&self) {
        self.has_ranges.store(false, Ordering::Relaxed);
    }

    /// Number of bytes of a slice.
    pub(super) fn slice_bytes(&self, slice: u64) -> usize {
        let range = self.object.slice_range(slice);
        (range.end - range.start) as usize
    }

    /// Whether a slice has the content that it had before. If not, the server changes content
    /// without changing its validator.
    pub(super) fn is_same_slice(&self, slice: u64, content: &[u8]) -> bool {
        let digest = sha256(&[content]);
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        *digests.entry(slice).or_insert(digest) == digest
    }
}
