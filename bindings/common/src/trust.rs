//! Trust decisions of consumers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_crypto::{KeyChain, KeyChainError, UserTrust, hicn_verifier};
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision};
use weir_security::{Verifier, sha256};
use weir_wire::{DataView, Name};

/// Which signers a consumer trusts.
#[derive(Clone, Debug, Default)]
pub struct TrustSettings {
    /// Certificate files. If there are any, only their owners are trusted.
    pub anchors: Vec<PathBuf>,
    /// Accepts content that has only a digest.
    pub allow_unsigned: bool,
    /// Also accepts content whose signature cannot be verified.
    pub accept_unverified: bool,
    /// A file with the key of an hICN producer. Then only packets signed with it are accepted.
    pub hicn_key: Option<PathBuf>,
}

impl TrustSettings {
    /// Whether packets are accepted that anyone can make.
    pub fn may_be_unverified(&self) -> bool {
        self.allow_unsigned || self.accept_unverified
    }
}

/// The user's trust settings, shared by a fetch and its caller. New signers are remembered after a
/// complete fetch.
#[derive(Clone)]
pub struct SharedTrust(Arc<Mutex<UserTrust>>);

impl SharedTrust {
    /// Trust for content below `root`.
    ///
    /// # Errors
    /// The user's keys, or a file of the settings, cannot be read.
    pub fn new(root: Name, settings: &TrustSettings) -> Result<Self, KeyChainError> {
        // Without a home directory there are no keys.
        let chain = KeyChain::open().ok();
        let mut trust = UserTrust::new(root, chain, &settings.anchors)?;
        if settings.allow_unsigned {
            trust.policy().allow_unsigned();
        }
        if settings.accept_unverified {
            trust.policy().accept_unverified();
        }
        if let Some(path) = &settings.hicn_key {
            let (key, digest) = read_hicn_key(path)?;
            trust.policy().set_hicn_key(key.into(), digest);
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

/// Reads the key of an hICN producer: a public key in PEM, an NDN certificate, or the passphrase of
/// an HMAC key. Also returns the digest of the file.
///
/// # Errors
/// The file cannot be read, or has no such key.
pub fn read_hicn_key(path: &Path) -> Result<(Box<dyn Verifier>, [u8; 32]), KeyChainError> {
    let path = path.to_owned();
    match std::fs::read(&path) {
        Ok(octets) => hicn_verifier(&octets)
            .map(|key| (key, sha256(&[&octets])))
            .map_err(|source| KeyChainError::Key { path, source }),
        Err(source) => Err(KeyChainError::Io { doing: "read", path, source }),
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

    fn accepted_keys(&self) -> Vec<[u8; 32]> {
        self.trust().accepted_keys()
    }

    fn explain(&self, refusal: Refusal) -> String {
        self.trust().explain(refusal)
    }
}

#[cfg(test)]
mod tests {
    use weir_crypto::KeyType;
    use weir_security::sign_data;
    use weir_wire::Data;

    use super::*;

    /// Whether a packet is accepted whose signer serves no certificate.
    fn accepts_unknown_signer(settings: &TrustSettings) -> bool {
        let name: Name = "/weir-binding-test/file".parse().unwrap();
        let keys = std::env::temp_dir().join(format!("weir-binding-{}", std::process::id()));
        let chain = KeyChain::at(&keys);
        let key = chain.generate(&name, KeyType::Ecdsa, None).unwrap();
        let signer = chain.signer(&key.name).unwrap();
        std::fs::remove_dir_all(&keys).unwrap();
        let packet = sign_data(&Data::new(name.clone()), &signer).unwrap();
        let packet = DataView::decode(&packet).unwrap();
        let mut trust = SharedTrust::new(name, settings).unwrap();
        loop {
            match trust.decide(&packet) {
                TrustDecision::Accept(verifier) => return verifier.accepts_any(),
                TrustDecision::Fetch { wanted, .. } => trust.on_fetched(wanted, None),
                TrustDecision::Refuse(_) => return false,
            }
        }
    }

    #[test]
    fn only_accept_unverified_accepts_unknown_signers() {
        let mut settings = TrustSettings { allow_unsigned: true, ..TrustSettings::default() };
        assert!(!accepts_unknown_signer(&settings));
        settings = TrustSettings { accept_unverified: true, ..TrustSettings::default() };
        assert!(settings.may_be_unverified());
        assert!(accepts_unknown_signer(&settings));
    }
}
