//! A toy algorithm for tests. The public key is a text, and the signature is the SHA-256 of this
//! text and the message.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::{
    Certificate, CertificateDraft, KeyLocator, SELF_ISSUER, SignError, SignatureType, Signer,
    Validity, Verifier, VerifierFactory, VerifyError, key_name, sha256,
};
use weir_wire::Name;

pub(crate) const NOW_S: i64 = 1_800_000_000;

pub(crate) const VALID: Validity =
    Validity { not_before_unix_s: NOW_S - 10, not_after_unix_s: NOW_S + 10 };

/// Signs and verifies; its public key is `secret`.
#[derive(Clone)]
pub(crate) struct ToyKey {
    pub(crate) secret: String,
    pub(crate) locator: Name,
}

impl ToyKey {
    /// The key `k` of an identity; the KeyLocator is its name.
    pub(crate) fn new(identity: &str, secret: &str) -> Self {
        let identity: Name = identity.parse().unwrap();
        Self { secret: secret.to_string(), locator: key_name(identity.as_view(), b"k") }
    }

    fn draft(&self, issuer: &'static [u8], validity: Validity) -> CertificateDraft<'_> {
        CertificateDraft {
            key_name: self.locator.as_view(),
            public_key: self.secret.as_bytes(),
            issuer,
            version: 7,
            validity,
        }
    }

    pub(crate) fn self_signed(&self) -> Certificate {
        self.draft(SELF_ISSUER, VALID).issue_to_self(self).unwrap()
    }

    pub(crate) fn certified_by(&self, issuer: &Self, validity: Validity) -> Certificate {
        self.draft(b"NA", validity).issue(issuer).unwrap()
    }
}

impl Signer for ToyKey {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Name(self.locator.clone()))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        if self.secret.is_empty() {
            return Err(SignError::Provider);
        }
        Ok(sha256(&[&[self.secret.as_bytes()], portions].concat()).to_vec())
    }
}

impl Verifier for ToyKey {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        let expected = self.sign(portions).map_err(|_| VerifyError::Mismatch)?;
        if expected == signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

/// Accepts any text as a public key, except `unusable`.
pub(crate) struct ToyFactory;

impl VerifierFactory for ToyFactory {
    fn verifier_from_spki(&self, spki: &[u8]) -> Option<Box<dyn Verifier>> {
        let secret = core::str::from_utf8(spki).ok().filter(|text| *text != "unusable")?;
        Some(Box::new(ToyKey { secret: secret.to_string(), locator: Name::new() }))
    }
}
