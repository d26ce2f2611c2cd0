//! Trust decisions of consumers.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_crypto::{KeyChain, KeyChainError, UserTrust};
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision};
use weir_wire::{DataView, Name};

/// The user's trust settings, shared by a fetch and its caller. New signers are remembered after a
/// complete fetch.
#[derive(Clone)]
pub struct SharedTrust(Arc<Mutex<UserTrust>>);

impl SharedTrust {
    /// Trust for content below `root`. If `anchors` are given, only these are trusted.
    /// `allow_unsigned` accepts content that has only a digest.
    ///
    /// # Errors
    /// The user's keys, or an anchor, cannot be read.
    pub fn new(
        root: Name,
        anchors: &[impl AsRef<Path>],
        allow_unsigned: bool,
    ) -> Result<Self, KeyChainError> {
        // Without a home directory there are no keys.
        let chain = KeyChain::open().ok();
        let mut trust = UserTrust::new(root, chain, anchors)?;
        if allow_unsigned {
            trust.policy().allow_unsigned();
        }
        Ok(Self(Arc::new(Mutex::new(trust))))
    }

    fn trust(&self) -> MutexGuard<'_, UserTrust> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers new signers, after all content was verified.
    pub fn remember(&self) {
        // If this fails, the content is still verified; the next fetch sees the signer as new
        // again.
        let _ = self.trust().remember();
    }
}

impl Trust for SharedTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.trust().decide(data)
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.trust().offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.trust().on_fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        self.trust().explain(refusal)
    }
}
