//! Manifests of a stream of an hICN producer, as hICN's library publishes them.
//!
//! The manifest and the packets that it lists have consecutive suffixes, the manifest first. All
//! manifests list the same number of packets, except the last one, which has a flag. So the layout
//! of a stream is that of an object with a manifest of one level.
//!
//! The signature of a manifest covers its content, also the flag of the last one. That gives the
//! end of the stream. The final segment that manifests state is only a hint: hICN's library
//! computes it from the capacity of manifests, before it knows how many packets fit into one. So it
//! may be too low or too high.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use weir_hicn::manifest::{TransportManifest, TransportParameters};
use weir_security::manifest::{Digest, ManifestShape};

/// A manifest of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamPart {
    pub(super) digests: Vec<Digest>,
    /// No other manifest follows.
    pub(super) is_last: bool,
    /// The suffix of the stream's last packet, if stated. A hint.
    pub(super) final_suffix: Option<u32>,
}

impl StreamPart {
    /// Reads the content of the packet with this suffix.
    ///
    /// # Errors
    /// It is no manifest of the stream, for the returned reason.
    pub(super) fn read(content: &[u8], address: Ipv6Addr, suffix: u64) -> Result<Self, String> {
        let manifest = TransportManifest::decode(content).map_err(|error| error.to_string())?;
        let TransportParameters::ByteStream { final_segment } = manifest.parameters else {
            return Err("it is of a live stream, which is not supported".into());
        };
        if manifest.address != address {
            return Err(format!("it lists packets of {}, not of {address}", manifest.address));
        }
        let mut digests = Vec::with_capacity(manifest.entries().len());
        for (entry, expected) in manifest.entries().zip(suffix + 1..) {
            if u64::from(entry.suffix) != expected {
                let found = entry.suffix;
                return Err(format!("it lists packet {found} where packet {expected} must be"));
            }
            digests.push(*entry.digest);
        }
        if digests.is_empty() {
            return Err("it lists no packets".into());
        }
        let final_suffix = Some(final_segment).filter(|&suffix| suffix != u32::MAX);
        Ok(Self { digests, is_last: manifest.is_last, final_suffix })
    }

    /// Whether the part before the last one has this shape.
    pub(super) fn check_shape(&self, shape: ManifestShape) -> Result<(), String> {
        let (found, full) = (self.digests.len() as u64, shape.digests_per_part());
        if found == full || (self.is_last && found < full) {
            return Ok(());
        }
        Err(format!("it lists {found} packets, the first one of the stream {full}"))
    }

    /// The shape of a manifest whose first part this is.
    pub(super) fn shape(&self) -> Option<ManifestShape> {
        ManifestShape::new(self.digests.len() as u64, 1)
    }
}
