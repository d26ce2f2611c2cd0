//! A private key with the name under which it signs.

use std::sync::Arc;

use weir_security::{Certificate, KeyLocator, SignError, SignatureType, Signer};
use weir_wire::Name;

use crate::private_key::PrivateKey;

/// Signs with a key of any type. Clones share the key, so threads can sign in parallel.
#[derive(Clone, Debug)]
pub struct KeySigner {
    key: Arc<PrivateKey>,
    locator: Name,
    certificate: Option<Certificate>,
}

impl KeySigner {
    /// Signs with `key`; the KeyLocator is `locator`, the name of the key or of its certificate.
    pub fn new(key: PrivateKey, locator: Name) -> Self {
        Self { key: Arc::new(key), locator, certificate: None }
    }

    /// Signs with `key`; the KeyLocator is the certificate's name.
    pub(crate) fn with_certificate(key: PrivateKey, certificate: Certificate) -> Self {
        let locator = certificate.name().to_name();
        Self { key: Arc::new(key), locator, certificate: Some(certificate) }
    }

    /// The certificate named in the KeyLocator, which a producer serves with its objects. HMAC keys
    /// have none.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    pub fn locator_name(&self) -> &Name {
        &self.locator
    }

    pub fn key(&self) -> &PrivateKey {
        &self.key
    }
}

impl Signer for KeySigner {
    fn signature_type(&self) -> SignatureType {
        self.key.key_type().signature_type()
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Name(self.locator.clone()))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        self.key.sign(portions)
    }

    fn key_digest(&self) -> Option<[u8; 32]> {
        Some(weir_security::sha256(&[&self.key.public_key().ok()?]))
    }

    fn signature_size_max(&self) -> usize {
        self.key.signature_size_max()
    }
}
