//! What a download asks of its owner.

use weir_security::trust::{Decision, Refusal, Wanted};
use weir_transport::{Metadata, PathId};
use weir_wire::DataView;

use crate::output::Output;

/// The one path of a client.
pub(crate) const PATH: PathId = PathId(0);

/// What the download asks of its owner.
pub trait Host {
    /// Where an object is to go. Called once, before any segment is fetched.
    ///
    /// # Errors
    /// Ends the download.
    fn output(&mut self, found: &Found) -> Result<Box<dyn Output>, String>;

    /// Whether the signer of a packet is believed. Asked again when what the decision depends on
    /// has been fetched, which goes on beside the download.
    fn decide(&mut self, data: &DataView<'_>) -> Decision;

    /// A certificate that metadata holds.
    fn offer(&mut self, certificate: &[u8]) {
        let _ = certificate;
    }

    /// What came for [`Decision::Fetch`]; `None` if there is nothing to be had.
    fn fetched(&mut self, wanted: Wanted, packet: Option<&[u8]>) {
        let _ = (wanted, packet);
    }

    /// Says to the user why a signer is not believed, which ends the download.
    fn explain(&self, refusal: Refusal) -> String {
        refusal.reason
    }

    /// Told now and then. Returns false to break off.
    fn progress(&mut self, progress: &Progress) -> bool;
}

/// What is known of an object before its segments come; not verified.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its metadata, or no more than its name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer: there may be a later
    /// version.
    pub is_stored: bool,
}

/// How far a download is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Octets of Content verified and stored.
    pub octets: u64,
    /// Octets of the whole object, if known.
    pub octets_total: Option<u64>,
    /// Segments verified and stored, those of an earlier attempt included.
    pub segments: u64,
    /// Segments of the whole object, if known.
    pub segments_total: Option<u64>,
}
