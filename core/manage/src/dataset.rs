//! Status datasets as segmented and versioned Data, for router and client.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::Packet;
use weir_security::{Signer, sign_data};
use weir_wire::{Component, Data, DataView, Interest, InterestView, Name, NameView};

use crate::element::Element;
use crate::error::DecodeError;
use crate::parameters::ControlResponse;

/// Maximum content of one segment, in octets (NFD).
pub(crate) const SEGMENT_PAYLOAD_MAX: usize = 8000;

/// FreshnessPeriod of all management Data, in milliseconds (NFD).
pub(crate) const FRESHNESS_MS: u64 = 1000;

/// Maximum number of datasets that are kept for Interests for their later segments.
const DATASETS_MAX: usize = 64;
/// Maximum size of kept datasets in bytes, without the newest, which may have
/// [`FETCH_BYTES_MAX`] bytes.
const DATASET_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a dataset that a client accepts, in bytes.
const FETCH_BYTES_MAX: usize = 256 << 20;

/// The latest datasets, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DatasetCache {
    sets: VecDeque<(Name, Vec<Packet>)>,
    bytes: usize,
    last_version: u64,
}

impl DatasetCache {
    /// Divides `content` into segments under `<name>/<version>`, keeps them, and returns the first.
    /// Returns `None` if the signer fails, or if the content is larger than a client accepts.
    pub(crate) fn publish(
        &mut self,
        name: NameView<'_>,
        content: &[u8],
        now_unix_ms: u64,
        signer: &dyn Signer,
    ) -> Option<Packet> {
        if content.len() > FETCH_BYTES_MAX {
            return None;
        }
        // Two versions within one millisecond must differ.
        self.last_version = now_unix_ms.max(self.last_version + 1);
        let mut versioned = name.to_name();
        versioned.append_version(self.last_version);
        let segments = segments(&versioned, content, signer)?;
        let first = segments.first().cloned();
        self.bytes += bytes(&segments);
        self.sets.push_back((versioned, segments));
        while self.sets.len() > 1
            && (self.sets.len() > DATASETS_MAX || self.bytes > DATASET_BYTES_MAX)
        {
            let Some((_, oldest)) = self.sets.pop_front() else { break };
            self.bytes -= bytes(&oldest);
        }
        first
    }

    /// Finds the kept Data for an Interest that names a version or a segment.
    pub(crate) fn find(&self, interest: &InterestView<'_>) -> Option<Packet> {
        let name = interest.name;
        let segment = name.last().and_then(|last| last.as_segment());
        let (versioned, segment) = match segment {
            Some(segment) => (name.parent(), segment),
            None if interest.can_be_prefix => (name, 0),
            None => return None,
        };
        let (_, segments) = self.sets.iter().find(|(kept, _)| kept.as_view() == versioned)?;
        segments.get(usize::try_from(segment).ok()?).cloned()
    }
}

fn bytes(segments: &[Packet]) -> usize {
    segments.iter().map(|segment| segment.len()).sum()
}

fn segments(versioned: &Name, content: &[u8], signer: &dyn Signer) -> Option<Vec<Packet>> {
    let count = content.len().div_ceil(SEGMENT_PAYLOAD_MAX).max(1);
    let last = Component::segment(count as u64 - 1);
    (0..count)
        .map(|at| {
            let start = at * SEGMENT_PAYLOAD_MAX;
            let end = content.len().min(start + SEGMENT_PAYLOAD_MAX);
            let mut name = versioned.clone();
            name.append_segment(at as u64);
            let data = Data::new(name)
                .freshness_ms(FRESHNESS_MS)
                .final_block_id(last.clone())
                .content(&content[start..end]);
            sign_data(&data, signer).ok().map(Packet::from)
        })
        .collect()
}

/// Why a dataset could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    #[error("{} {}", .0.code, .0.text)]
    Refused(ControlResponse),
    /// The router sent a segment that was not requested.
    #[error("the router sent Data that was not requested")]
    Unexpected,
    /// The router's Data is malformed.
    #[error("malformed dataset: {0}")]
    Malformed(#[from] DecodeError),
    /// The dataset is larger than a client accepts.
    #[error("the dataset is larger than {} MiB", FETCH_BYTES_MAX >> 20)]
    TooLarge,
}

/// Fetches one dataset. Send [`DatasetFetch::interest`] and pass the answer to
/// [`DatasetFetch::on_data`], until that reports the last segment.
#[derive(Clone, Debug)]
pub struct DatasetFetch {
    name: Name,
    /// The name with the version, once it is known.
    versioned: Option<Name>,
    next_segment: u64,
    content: Vec<u8>,
}

impl DatasetFetch {
    /// Fetches the dataset `/localhost/nfd/<module>/<dataset>`, or another name that is served in
    /// this way.
    pub fn new(name: Name) -> Self {
        Self { name, versioned: None, next_segment: 0, content: Vec::new() }
    }

    pub fn interest(&self, nonce: u32) -> Vec<u8> {
        match &self.versioned {
            None => Interest::new(self.name.clone())
                .can_be_prefix(true)
                .must_be_fresh(true)
                .nonce(nonce)
                .encode(),
            Some(versioned) => {
                let mut name = versioned.clone();
                name.append_segment(self.next_segment);
                Interest::new(name).nonce(nonce).encode()
            }
        }
    }

    /// Handles an answer. Returns `true` for the last segment.
    pub fn on_data(&mut self, data: &DataView<'_>) -> Result<bool, DatasetError> {
        // NFD gives a refusal the content type of a Nack. ndnd 31822ab (`fw/mgmt/thread.go`,
        // `sendCtrlResp`) does not, but names it as the request, without version and segment.
        if data.is_nack() || data.name == self.name.as_view() {
            return Err(DatasetError::Refused(ControlResponse::decode(data.content)?));
        }
        let segment = data.name.last().and_then(|last| last.as_segment());
        let versioned = data.name.parent();
        let is_expected = match &self.versioned {
            Some(known) => known.as_view() == versioned && segment == Some(self.next_segment),
            None => self.name.as_view().is_prefix_of(versioned) && segment.is_some(),
        };
        if !is_expected {
            return Err(DatasetError::Unexpected);
        }
        if self.versioned.is_none() {
            self.versioned = Some(versioned.to_name());
            if segment != Some(0) {
                return Ok(false);
            }
        }
        if self.content.len() + data.content.len() > FETCH_BYTES_MAX {
            return Err(DatasetError::TooLarge);
        }
        self.content.extend_from_slice(data.content);
        self.next_segment += 1;
        Ok(data.final_block_id() == data.name.last())
    }

    pub fn into_content(self) -> Vec<u8> {
        self.content
    }
}
