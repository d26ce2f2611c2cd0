//! Whom consumers believe, and who signs: as `weir get` and `weir put` have it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use weir_crypto::{KeyChain, KeyChainError, UserTrust};
use weir_security::DigestSigner;
use weir_security::trust::{Decision, Refusal, Trust, Wanted};
use weir_socket::Identity;
use weir_wire::{DataView, Name};

/// The user's trust, which a fetch uses and which is remembered at its end.
#[derive(Clone)]
pub(crate) struct SharedTrust(Arc<Mutex<UserTrust>>);

impl SharedTrust {
    /// For what is below `root`.
    ///
    /// # Errors
    /// ENOKEY: the user's keys cannot be read.
    pub(crate) fn new(root: Name, allow_unsigned: bool) -> Result<Self, Errno> {
        // Without a home there are no keys.
        let chain = KeyChain::open().ok();
        let mut trust = UserTrust::new(root, chain, &[] as &[&Path]).map_err(|_| Errno::ENOKEY)?;
        if allow_unsigned {
            trust.policy().allow_unsigned();
        }
        Ok(Self(Arc::new(Mutex::new(trust))))
    }

    fn trust(&self) -> MutexGuard<'_, UserTrust> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers who signed, now that all of it has been verified.
    pub(crate) fn remember(&self) {
        // What was got is verified all the same; the next time, too, is the first time then.
        let _ = self.trust().remember();
    }
}

impl Trust for SharedTrust {
    fn decide(&mut self, data: &DataView<'_>) -> Decision {
        self.trust().decide(data)
    }

    fn offer(&mut self, certificate: &[u8]) {
        self.trust().offer(certificate);
    }

    fn fetched(&mut self, wanted: Wanted, packet: Option<&[u8]>) {
        self.trust().fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        self.trust().explain(refusal)
    }
}

/// Who signs what is published.
///
/// # Errors
/// ENOKEY: the user has no default key, and none can be made.
pub(crate) fn identity(only_digest: bool) -> Result<Identity, Errno> {
    if only_digest {
        return Ok(Identity::new(DigestSigner));
    }
    let signer = || -> Result<_, KeyChainError> { KeyChain::open()?.default_signer_or_create() };
    let signer = signer().map_err(|_| Errno::ENOKEY)?;
    let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
    Ok(Identity { certificate, ..Identity::new(signer) })
}
